//! Into the trash, what lies there, and out of it.

use eirene_files_protocol::{
    Answer, Code, EmptyTrash, ListTrash, MOST_BYTES, MOST_TRASHED, Part, PutInTrash, Restore, TrashId, Trashed, Which,
};

use super::delete::Removal;
use crate::beneath::{kind_of_entry, look_at_entry};
use crate::directory::Names;
use crate::server::Job;
use crate::settle::settle;
use crate::trash::{Trash, file_name};
use crate::walk::Account;

pub(super) fn put(job: &Job, wanted: &PutInTrash) -> Result<Answer, Code> {
    let spot = job.space(wanted.space)?.spot(&wanted.path)?;
    let found = spot.found()?.look()?;
    let trash = Trash::open(spot.space, true)?;
    let id = trash.announce(spot.path_of(&spot.name)?, &found)?;
    if let Err(why) = trash.take(id, &spot.directory, &spot.name) {
        trash.forget(id);
        return Err(why);
    }
    Ok(Answer::PutInTrash { id })
}

/// What lies in one of a trash's directories.
fn ids(job: &Job, directory: &crate::beneath::Place) -> Result<Vec<TrashId>, Code> {
    let names = Names::read(&directory.list()?, &job.cancelled)?;
    let ids = (0..names.len() as u32).filter_map(|place| std::str::from_utf8(names.get(place)).ok()?.parse().ok());
    Ok(ids.collect())
}

pub(super) fn list(job: &Job, wanted: &ListTrash) -> Result<Answer, Code> {
    if wanted.limit == 0 || wanted.limit > MOST_TRASHED {
        return Err(Code::Invalid);
    }
    let trash = match Trash::open(job.space(wanted.space)?, false) {
        Ok(trash) => trash,
        Err(Code::NotFound) => return Ok(Answer::TrashListed { entries: 0, next: None }),
        Err(why) => return Err(why),
    };
    let mut ids = ids(job, &trash.files)?;
    let entries = ids.len() as u64;
    ids.sort_unstable_by(|a, b| b.cmp(a));
    let begin = wanted.after.map_or(0, |after| ids.partition_point(|id| *id >= after));
    let end = (begin + wanted.limit as usize).min(ids.len());
    let page = &ids[begin..end];
    let mut frame = Vec::new();
    let mut bytes = 0;
    for id in page {
        job.cancelled.check()?;
        let trashed = if let Some(info) = trash.info(*id) {
            Trashed { id: *id, origin: Some(info.path), kind: info.kind, bytes: info.bytes }
        } else {
            let looked = look_at_entry(trash.files.as_fd(), file_name(*id)?.as_bytes());
            Trashed { id: *id, origin: None, kind: kind_of_entry(&looked), bytes: None }
        };
        // JSON makes at most six bytes of one.
        let most = 160 + 6 * trashed.origin.as_ref().map_or(0, |path| path.as_bytes().len());
        if bytes + most > MOST_BYTES - 1024 {
            job.part(Part::Trashed(std::mem::take(&mut frame)))?;
            bytes = 0;
        }
        bytes += most;
        frame.push(trashed);
    }
    if !frame.is_empty() {
        job.part(Part::Trashed(frame))?;
    }
    let next = page.last().copied().filter(|_| end < ids.len());
    Ok(Answer::TrashListed { entries, next })
}

pub(super) fn restore(job: &Job, wanted: &Restore) -> Result<Answer, Code> {
    let space = job.space(wanted.space)?;
    let trash = Trash::open(space, false)?;
    let name = file_name(wanted.id)?;
    trash.files.child(&name)?;
    // What an announcement says is hostile like any path: a program of the person's may have written it.
    let to = match &wanted.to {
        Some(to) => to.clone(),
        None => trash.info(wanted.id).map(|info| info.path).ok_or(Code::NotFound)?,
    };
    let moved = settle(&trash.files, &name, &space.spot(&to)?, wanted.on_conflict)?;
    trash.forget(wanted.id);
    Ok(Answer::Moved(moved))
}

pub(super) fn empty(job: &Job, wanted: &EmptyTrash) -> Result<Answer, Code> {
    let space = job.space(wanted.space)?;
    space.check_writable()?;
    let mut account = Account::new();
    let trash = match (Trash::open(space, false), wanted.which) {
        (Ok(trash), _) => trash,
        (Err(Code::NotFound), Which::Before(_)) => return Ok(Answer::Removed(account.walked)),
        (Err(why), _) => return Err(why),
    };
    let chosen = match wanted.which {
        Which::One(id) => {
            trash.files.child(&file_name(id)?)?;
            vec![id]
        }
        Which::Before(time) => {
            let mut ids = ids(job, &trash.files)?;
            ids.retain(|id| id.milliseconds() < time);
            ids
        }
    };
    let removal = Removal { job, space, cancelled: &job.cancelled, opens: false };
    for id in chosen {
        // The announcement goes last: until then what is left of it can still be found, and removed again.
        if removal.remove(&trash.files, &file_name(id)?, &mut account)? {
            trash.forget(id);
        }
    }
    if let Which::Before(_) = wanted.which {
        for id in ids(job, &trash.info)? {
            if trash.is_left_over(id) {
                trash.forget(id);
            }
        }
    }
    Ok(Answer::Removed(account.walked))
}
