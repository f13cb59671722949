//! Old files into the trash, where they can be brought back from for as long as it keeps them.
//!
//! Each time that a file has can save it, and none condemns it alone; so does any doubt. What was taken is looked at once more by what it is,
//! and goes back where it is not what was looked at.

use std::rc::Rc;

use eirene_files_protocol::{
    Answer, Code, EntryKind, Found, MOST_FOUND, Name, RelativePath, TrashId, TrashOld, TrashedOld,
};
use rustix::fs::Statx;

use super::search::Results;
use crate::beneath::{Place, modified};
use crate::change::is_same;
use crate::server::Job;
use crate::trash::{Trash, file_name};
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

/// A directory on the way.
struct Visited {
    /// Where it lies, and how it is called there; none for the one that was asked for, which stays.
    above: Option<(Rc<Place>, Name)>,
    /// Whether anything of ours went from it.
    emptied: bool,
}

pub(super) fn run(job: &Job, wanted: &TrashOld) -> Result<Answer, Code> {
    if wanted.before > wanted.now {
        return Err(Code::Invalid);
    }
    let space = job.space(wanted.space)?;
    let top = space.directory_to_change(&wanted.path)?;
    let trash = if wanted.act { Some(Trash::open(space, true)?) } else { None };
    let me = rustix::process::geteuid().as_raw();
    let mut account = Account::new();
    let mut told = Results::new(job);
    let (mut directories, mut saved) = (0, 0);
    let mut walk = Walk::new(false);
    walk.enter(&top, RelativePath::default(), Visited { above: None, emptied: false })?;
    while let Some(step) = walk.step(space, &job.cancelled)? {
        account.say(job)?;
        let Some(level) = walk.here() else { break };
        match step {
            Step::Entry(name) => {
                let Ok(path) = level.path.join(&name) else {
                    account.skip(level.path.clone(), Code::TooDeep);
                    continue;
                };
                let here = Rc::clone(&level.place);
                // What cannot be looked at is not known to be old.
                let Ok(place) = here.child(&name) else { continue };
                let Ok((kind, found)) = place.look() else { continue };
                match kind {
                    EntryKind::Directory => {
                        let visited = Visited { above: Some((here, name)), emptied: false };
                        if let Err(why) = walk.enter(&place, path.clone(), visited) {
                            account.skip(path, why);
                        }
                    }
                    EntryKind::File if found.stx_nlink == 1 && found.stx_uid == me => {
                        match age(times(&found), wanted.before, wanted.now) {
                            Age::Young => continue,
                            Age::Doubtful => {
                                saved += 1;
                                continue;
                            }
                            Age::Old => {}
                        }
                        let Some(trash) = &trash else {
                            if told.found() < u64::from(MOST_FOUND) {
                                let (bytes, time) = (Some(found.stx_size), Some(modified(&found)));
                                told.push(Found { path, kind, bytes, modified: time })?;
                            }
                            account.done(found.stx_size);
                            continue;
                        };
                        if !space.holds(&here) {
                            account.skip(path, Code::ChangedMeanwhile);
                            continue;
                        }
                        let mut names = wanted.path.components().chain(path.components());
                        let origin = names.try_fold(RelativePath::default(), |path, name| path.join(&name));
                        drop(names);
                        let origin = origin.map_err(|_| Code::TooDeep);
                        match origin.and_then(|origin| put(trash, origin, &here, &name, &found, wanted)) {
                            Ok(()) => {
                                account.done(found.stx_size);
                                level.data.emptied = true;
                            }
                            Err(why) => account.skip(path, why),
                        }
                    }
                    _ => {}
                }
            }
            Step::Unlisted(why) => account.skip(level.path.clone(), why),
            Step::Leave => {
                let Some(level) = walk.leave() else { break };
                let Visited { above: Some((above, name)), emptied: true } = level.data else { continue };
                let is_there =
                    above.child(&name).and_then(|place| Ok(is_same(&place.look()?.1, &level.place.look()?.1)));
                // One that is not empty stays, and whatever else is in the way.
                if is_there == Ok(true) && above.remove_directory(&name).is_ok() {
                    directories += 1;
                    if let Some(level) = walk.here() {
                        level.data.emptied = true;
                    }
                }
            }
        }
    }
    told.send()?;
    Ok(Answer::TrashedOld(TrashedOld { walked: account.walked, directories, saved }))
}

/// Puts one file into the trash, if that is still what was looked at.
fn put(
    trash: &Trash,
    origin: RelativePath,
    here: &Place,
    name: &Name,
    found: &Statx,
    wanted: &TrashOld,
) -> Result<(), Code> {
    let id: TrashId = trash.announce(origin, &(EntryKind::File, *found))?;
    if let Err(why) = trash.take(id, here, name) {
        trash.forget(id);
        return Err(why);
    }
    let taken = trash.files.child(&file_name(id)?)?.look()?.1;
    // A rename changes the time of the last change of attributes: the others still say what they said.
    let is_old = taken.stx_mtime.tv_sec < wanted.before && taken.stx_nlink == 1;
    if is_same(&taken, found) && is_old {
        return Ok(());
    }
    // Where somebody put something there meanwhile, it stays in the trash, and is found there.
    if trash.give_back(id, here, name).is_ok() {
        trash.forget(id);
    }
    Err(Code::ChangedMeanwhile)
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
