//! Old files: listed first, and removed when they were listed for long.
//!
//! Each time that a file has can save it, and none condemns it alone; so does any doubt. What is to go is looked at twice: under its name, where
//! it must still be what was listed, and once more where nobody can put anything in its place. What is not what was listed goes back.
//! When a list was made, and who was told of it, is for whoever asks to know.

use std::collections::BTreeMap;

use eirene_files_protocol::{
    Answer, Code, EntryKind, ListOld, ListedOld, MOST_BYTES, MOST_OLD, MOST_OLD_BYTES, MOST_OTHERS, MOST_REMOVED_OLD,
    Name, OldFile, OldOfOther, Part, RelativePath, RemoveOld, RemovedOld, UPLOAD_PREFIX, Version,
};
use rustix::fs::Statx;

use crate::beneath::{Last, Place, Space, modified, version};
use crate::change::is_same;
use crate::server::Job;
use crate::trash::{Trash, file_name, new_id};
use crate::walk::{Account, Step, Walk};

/// The first of January 2000: before it no file here was written.
const YEAR_2000: i64 = 946_684_800;

/// What the times of a file say.
#[derive(Debug, PartialEq, Eq)]
enum Age {
    Old,
    Young,
    /// One of them cannot be.
    Doubtful,
}

fn age(times: [i64; 3], before: i64, now: i64) -> Age {
    if times.iter().any(|time| !(YEAR_2000..=now).contains(time)) {
        Age::Doubtful
    } else if times.iter().all(|time| *time < before) {
        Age::Old
    } else {
        Age::Young
    }
}

fn times(found: &Statx) -> [i64; 3] {
    [found.stx_mtime.tv_sec, found.stx_ctime.tv_sec, found.stx_atime.tv_sec]
}

fn accessed(found: &Statx) -> (i64, u32) {
    (found.stx_atime.tv_sec, found.stx_atime.tv_nsec)
}

/// What is asked of a file's times.
#[derive(Clone, Copy)]
struct Line {
    before: i64,
    now: i64,
}

impl Line {
    fn new(before: i64, now: i64) -> Result<Self, Code> {
        if before > now { Err(Code::Invalid) } else { Ok(Self { before, now }) }
    }

    fn age_of(self, found: &Statx) -> Age {
        age(times(found), self.before, self.now)
    }
}

/// Whether it is a file of this person's; another's is not theirs to lose.
fn is_own_file(kind: EntryKind, found: &Statx) -> bool {
    kind == EntryKind::File && found.stx_uid == rustix::process::geteuid().as_raw()
}

pub(super) fn list(job: &Job, wanted: &ListOld) -> Result<Answer, Code> {
    let line = Line::new(wanted.before, wanted.now)?;
    let space = job.space(wanted.space)?;
    let top = space.find(&wanted.path, Last::Followed)?;
    if top.look()?.0 != EntryKind::Directory {
        return Err(Code::NotADirectory);
    }
    let mut account = Account::new();
    let mut told = Told { job, frame: Vec::new(), bytes: 0, bytes_in_all: 0 };
    let (mut saved, mut more) = (0, false);
    let mut others: BTreeMap<u32, OldOfOther> = BTreeMap::new();
    let mut walk = Walk::new(false);
    walk.enter(&top, RelativePath::default(), top.may_lose_names())?;
    while let Some(step) = walk.step(space, &job.cancelled)? {
        account.say(job)?;
        let Some(level) = walk.here() else { break };
        match step {
            Step::Entry(name) => {
                let Ok(path) = level.path.join(&name) else {
                    account.skip(level.path.clone(), Code::TooDeep);
                    continue;
                };
                // What cannot be looked at is not known to be old.
                let Ok(place) = level.place.child(&name) else { continue };
                let Ok((kind, found)) = place.look() else { continue };
                if kind == EntryKind::Directory {
                    if let Err(why) = walk.enter(&place, path.clone(), place.may_lose_names()) {
                        account.skip(path, why);
                    }
                } else if is_own_file(kind, &found) {
                    match (line.age_of(&found), level.data) {
                        (Age::Young, _) => {}
                        (Age::Doubtful, _) => saved += 1,
                        // Its removal would be promised, fail, and be promised again for ever.
                        (Age::Old, Err(why)) => account.skip(path, why),
                        (Age::Old, Ok(())) if account.walked.entries == MOST_OLD => more = true,
                        (Age::Old, Ok(())) => {
                            let file = OldFile { path: below(&wanted.path, &path)?, version: version(&found) };
                            if told.push(file)? {
                                account.done(found.stx_size);
                            } else {
                                more = true;
                            }
                        }
                    }
                    if more {
                        break;
                    }
                } else if kind == EntryKind::File && line.age_of(&found) == Age::Old {
                    count(&mut others, &found);
                }
            }
            Step::Unlisted(why) => account.skip(level.path.clone(), why),
            Step::Leave => drop(walk.leave()),
        }
    }
    told.send()?;
    Ok(Answer::ListedOld(ListedOld { walked: account.walked, saved, more, others: others.into_values().collect() }))
}

/// Counts an old file for whoever else it is of, if there is room for one more of them.
fn count(others: &mut BTreeMap<u32, OldOfOther>, found: &Statx) {
    let uid = found.stx_uid;
    if others.len() < MOST_OTHERS || others.contains_key(&uid) {
        let other = others.entry(uid).or_insert(OldOfOther { uid, files: 0, bytes: 0 });
        other.files += 1;
        other.bytes = other.bytes.saturating_add(found.stx_size);
    }
}

/// The path below the space of what lies below a directory.
fn below(directory: &RelativePath, path: &RelativePath) -> Result<RelativePath, Code> {
    if directory.is_space() {
        return Ok(path.clone());
    }
    path.components().try_fold(directory.clone(), |path, name| path.join(&name)).map_err(|_| Code::TooDeep)
}

/// What is old, in frames as large as they may be.
struct Told<'a> {
    job: &'a Job,
    frame: Vec<OldFile>,
    bytes: usize,
    bytes_in_all: usize,
}

impl Told<'_> {
    /// Tells of a file; false where there is no room for it.
    fn push(&mut self, file: OldFile) -> Result<bool, Code> {
        // With the comma behind it.
        let bytes = serde_json::to_vec(&file).map_err(|_| Code::Failed)?.len() + 1;
        if self.bytes_in_all + bytes > MOST_OLD_BYTES {
            return Ok(false);
        }
        if self.bytes + bytes > MOST_BYTES - 1024 {
            self.send()?;
        }
        self.bytes += bytes;
        self.bytes_in_all += bytes;
        self.frame.push(file);
        Ok(true)
    }

    fn send(&mut self) -> Result<(), Code> {
        self.bytes = 0;
        if self.frame.is_empty() { Ok(()) } else { self.job.part(Part::Old(std::mem::take(&mut self.frame))) }
    }
}

pub(super) fn remove(job: &Job, wanted: &RemoveOld) -> Result<Answer, Code> {
    let line = Line::new(wanted.before, wanted.now)?;
    if wanted.files.len() > MOST_REMOVED_OLD {
        return Err(Code::Invalid);
    }
    let space = job.space(wanted.space)?;
    let root = space.directory_to_change(&RelativePath::default())?;
    // A space that is full takes no new trash, and is where files most want to go.
    let trash = match Trash::open(space) {
        Ok(trash) => Some(trash),
        Err(why @ (Code::Away | Code::ReadOnly)) => return Err(why),
        Err(_) => None,
    };
    let mut account = Account::new();
    let (mut kept, mut gone) = (0, 0);
    let mut files = wanted.files.iter();
    while let Some(file) = files.next() {
        job.cancelled.check()?;
        match remove_one(space, &root, trash.as_ref(), file, line) {
            Ok(bytes) => account.done(bytes),
            Err(Code::NotFound) => gone += 1,
            // Something else lies there, or a link or a mount is in the way.
            Err(
                Code::ChangedMeanwhile
                | Code::NotADirectory
                | Code::LeadsOut
                | Code::CrossesAMount
                | Code::TooManyLinks,
            ) => {
                kept += 1;
            }
            Err(why @ (Code::Away | Code::ReadOnly)) if account.walked.entries == 0 => return Err(why),
            // Nothing else on this disk will go better; but what went is said.
            Err(why @ (Code::Away | Code::ReadOnly)) => {
                account.skip(file.path.clone(), why);
                files.by_ref().for_each(|file| account.skip(file.path.clone(), why));
            }
            Err(why) => account.skip(file.path.clone(), why),
        }
    }
    Ok(Answer::RemovedOld(RemovedOld { walked: account.walked, kept, gone }))
}

/// Removes one file, if it is still what was listed; says how many bytes that frees.
fn remove_one(space: &Space, root: &Place, trash: Option<&Trash>, file: &OldFile, line: Line) -> Result<u64, Code> {
    let (above, name) = file.path.split_last().ok_or(Code::Reserved)?;
    let is_reserved = file.path.components().next().is_none_or(|first| space.reserves(first.as_bytes()));
    if is_reserved || name.as_bytes().starts_with(UPLOAD_PREFIX) {
        return Err(Code::Reserved);
    }
    let found_below;
    let here = if above.is_space() {
        root
    } else {
        found_below = root.below(&above)?;
        &found_below
    };
    let (kind, found) = here.child(&name)?.look_anew()?;
    let is_as_listed = is_own_file(kind, &found) && is_still(&found, &file.version);
    if !is_as_listed || line.age_of(&found) != Age::Old || !space.holds(here) {
        return Err(Code::ChangedMeanwhile);
    }
    // A name can be given to something else in any moment. So what has it is taken to where nobody else gives names, and looked at there;
    // without a trash to a name beside it that nobody knows.
    let id = new_id()?;
    let (aside, there) = match trash {
        Some(trash) => (&trash.files, file_name(id)?),
        None => (here, Name::parse(format!(".eirene-old-{id}").as_bytes()).map_err(|_| Code::Failed)?),
    };
    here.rename_new(&name, aside, &there)?;
    let taken = aside.child(&there).and_then(|taken| taken.look_anew());
    // The rename has changed the time of the last change of attributes: the others still say what they said.
    let is_it = |(kind, taken): &(EntryKind, Statx)| {
        is_same(taken, &found)
            && is_own_file(*kind, taken)
            && taken.stx_size == file.version.bytes
            && modified(taken) == file.version.modified
            && accessed(taken) == accessed(&found)
    };
    let why = match &taken {
        Ok(taken) if is_it(taken) => match aside.remove_file(&there) {
            Ok(()) => return Ok(if found.stx_nlink == 1 { found.stx_size } else { 0 }),
            Err(why) => why,
        },
        Ok(_) => Code::ChangedMeanwhile,
        Err(why) => *why,
    };
    // Where somebody put something there meanwhile, it stays where it is, and is found there.
    if let (Err(_), Some(trash), Ok(taken)) = (aside.rename_new(&there, here, &name), trash, &taken) {
        trash.announce_as(id, file.path.clone(), taken)?;
    }
    Err(why)
}

/// Whether a file is what was listed. A device is another one after each start of this machine, and no walk leaves that of the space.
fn is_still(found: &Statx, listed: &Version) -> bool {
    Version { device: listed.device, ..version(found) } == *listed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_time_can_save_and_none_condemns_alone() {
        let (before, now) = (2_000_000_000, 2_000_001_000);
        let (old, young, future, past) = (1_900_000_000, 2_000_000_500, 2_000_001_001, 1_000);
        assert_eq!(age([old; 3], before, now), Age::Old);
        for place in 0..3 {
            for (time, expected) in
                [(young, Age::Young), (before, Age::Young), (future, Age::Doubtful), (past, Age::Doubtful)]
            {
                let mut times = [old; 3];
                times[place] = time;
                assert_eq!(age(times, before, now), expected, "{place} {time}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_old_has_no_time_that_is_not(times in any::<[i64; 3]>(), before in any::<i64>(), now in any::<i64>()) {
            if age(times, before, now) == Age::Old {
                prop_assert!(times.iter().all(|time| *time < before && *time <= now && *time >= YEAR_2000));
            }
        }
    }
}
