//! A page of a directory.
//!
//! Sorted by name, nothing but the names is read before the page is cut, and only what is on the page is looked at: the first page of a
//! hundred thousand entries costs a few milliseconds. Sorted by size or time, each entry has to be looked at.

use std::cmp::Ordering;
use std::os::fd::{AsFd, OwnedFd};

use eirene_files_protocol::{
    Answer, Code, Cursor, Entry, EntryKind, List, Listed, MOST_BYTES, MOST_ENTRIES, Moment, Name, Part, Sort,
    UPLOAD_PREFIX,
};
use sha2::{Digest, Sha256};

use crate::accounts::Id;
use crate::beneath::{Last, kind_of_entry, look_at_entry, modified};
use crate::directory::Names;
use crate::server::{Cancelled, Job};

/// Threads that look at entries where all have to be looked at: more requests on their way to a file system that is far.
const LOOKERS: usize = 4;

pub(super) fn run(job: &Job, list: &List) -> Result<Answer, Code> {
    if list.limit == 0 || list.limit > MOST_ENTRIES {
        return Err(Code::Invalid);
    }
    let space = job.space(list.space)?;
    let place = space.find(&list.path, Last::Followed)?;
    if place.look()?.0 != EntryKind::Directory {
        return Err(Code::NotADirectory);
    }
    let directory = place.list()?;
    let names = Names::read(&directory, &job.cancelled)?;
    let filter = list.filter.as_ref().map(|filter| filter.to_lowercase());
    let wanted = |name: &[u8]| {
        let of_the_platform = name.starts_with(UPLOAD_PREFIX) || (place.is_root() && space.reserves(name));
        !of_the_platform
            && (list.hidden || !name.starts_with(b"."))
            && filter
                .as_ref()
                .is_none_or(|filter| String::from_utf8_lossy(name).to_lowercase().contains(filter.as_str()))
    };
    let mut order: Vec<u32> = (0..names.len() as u32).filter(|entry| wanted(names.get(*entry))).collect();
    let keys = keys(&directory, &names, &order, list.sort, &job.cancelled)?;
    let key = |entry: u32| keys.get(entry as usize).copied().unwrap_or_default();
    let compare = |a: &u32, b: &u32| {
        let ascending = key(*a).cmp(&key(*b)).then_with(|| names.get(*a).cmp(names.get(*b)));
        if list.descending { ascending.reverse() } else { ascending }
    };
    let begin = begin(&names, &mut order, list, compare, &job.cancelled)?;
    let page = &order[begin..(begin + list.limit as usize).min(order.len())];
    let mut ids = Vec::new();
    let entries = page.iter().filter_map(|entry| entry_of(&directory, names.get(*entry)));
    let owned = |entry: &Entry| {
        ids.extend(entry.owner.map(Id::User).into_iter().chain(entry.group.map(Id::Group)));
    };
    send(job, entries.inspect(owned))?;
    let accounts = job.directory().names(ids);
    let end = begin + page.len();
    let next = page.last().filter(|_| end < order.len());
    let next = next.map(|entry| Cursor { offset: end as u64, mark: mark(names.get(*entry)) });
    Ok(Answer::Listed(Listed { entries: order.len() as u64, at_least: names.at_least(), next, accounts }))
}

/// Where the page begins; what is on it is in order afterwards.
fn begin(
    names: &Names,
    order: &mut [u32],
    list: &List,
    compare: impl Fn(&u32, &u32) -> Ordering,
    cancelled: &Cancelled,
) -> Result<usize, Code> {
    let limit = list.limit as usize;
    let Some(after) = list.after else {
        sort_first(order, limit, &compare);
        return Ok(0);
    };
    let offset = usize::try_from(after.offset).unwrap_or(usize::MAX).min(order.len());
    let is_last = |entry: u32| mark(names.get(entry)) == after.mark;
    if offset > 0 {
        order.select_nth_unstable_by(offset - 1, &compare);
        if is_last(order[offset - 1]) {
            sort_first(&mut order[offset..], limit, &compare);
            return Ok(offset);
        }
    }
    order.sort_unstable_by(&compare);
    // Others have come or gone before it.
    for (place, entry) in order.iter().enumerate() {
        if place.is_multiple_of(1024) {
            cancelled.check()?;
        }
        if is_last(*entry) {
            return Ok(place + 1);
        }
    }
    Ok(offset)
}

/// Brings the first `many` to the front, in order: a page needs no more than itself sorted.
fn sort_first(order: &mut [u32], many: usize, compare: impl Fn(&u32, &u32) -> Ordering) {
    if many < order.len() {
        order.select_nth_unstable_by(many, &compare);
    }
    let first = many.min(order.len());
    order[..first].sort_unstable_by(&compare);
}

/// What entries are sorted by, at the place of their name; nothing where that is the name.
fn keys(
    directory: &OwnedFd,
    names: &Names,
    order: &[u32],
    sort: Sort,
    cancelled: &Cancelled,
) -> Result<Vec<(i64, u64)>, Code> {
    if sort == Sort::Name {
        return Ok(Vec::new());
    }
    let look = |part: &[u32]| -> Result<Vec<(i64, u64)>, Code> {
        let mut keys = Vec::with_capacity(part.len());
        for entry in part {
            cancelled.check()?;
            let entry = entry_of(directory, names.get(*entry));
            let (modified, bytes) = entry.map_or((None, None), |entry| (entry.modified, entry.bytes));
            keys.push(match sort {
                Sort::Modified => {
                    modified.map_or((i64::MIN, 0), |Moment { seconds, nanoseconds }| (seconds, nanoseconds.into()))
                }
                Sort::Bytes | Sort::Name => (0, bytes.unwrap_or(0)),
            });
        }
        Ok(keys)
    };
    let parts: Vec<_> = order.chunks(order.len().div_ceil(LOOKERS).max(1)).collect();
    let looked: Vec<_> = std::thread::scope(|scope| {
        let lookers: Vec<_> = parts.iter().map(|part| scope.spawn(|| look(part))).collect();
        lookers.into_iter().map(|looker| looker.join().unwrap_or(Err(Code::Failed))).collect()
    });
    let mut keys = vec![(0, 0); names.len()];
    for (part, looked) in parts.iter().zip(looked) {
        for (entry, key) in part.iter().zip(looked?) {
            keys[*entry as usize] = key;
        }
    }
    Ok(keys)
}

fn mark(name: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(name).into();
    digest.first_chunk().map_or(0, |mark| u64::from_be_bytes(*mark))
}

/// The entry of that name; none where a file system gives out a name that is none.
fn entry_of(directory: &OwnedFd, name: &[u8]) -> Option<Entry> {
    let name = Name::parse(name).ok()?;
    let looked = look_at_entry(directory.as_fd(), name.as_bytes());
    let kind = kind_of_entry(&looked);
    Some(match looked {
        Ok(found) if kind != EntryKind::Mount => Entry {
            name,
            kind,
            bytes: Some(found.stx_size),
            modified: Some(modified(&found)),
            mode: Some(found.stx_mode & 0o7777),
            owner: Some(found.stx_uid),
            group: Some(found.stx_gid),
            links: Some(found.stx_nlink),
        },
        _ => Entry { name, kind, bytes: None, modified: None, mode: None, owner: None, group: None, links: None },
    })
}

/// Sends entries, as many in a frame as surely fit: JSON makes at most six bytes of one.
fn send(job: &Job, entries: impl Iterator<Item = Entry>) -> Result<(), Code> {
    const OTHERS: usize = 320;
    let mut frame = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        job.cancelled.check()?;
        let most = OTHERS + 6 * entry.name.as_bytes().len();
        if bytes + most > MOST_BYTES - 1024 {
            job.part(Part::Entries(std::mem::take(&mut frame)))?;
            bytes = 0;
        }
        bytes += most;
        frame.push(entry);
    }
    if frame.is_empty() { Ok(()) } else { job.part(Part::Entries(frame)) }
}
