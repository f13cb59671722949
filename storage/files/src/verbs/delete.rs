//! Removes for good: a file, or a directory with all in it, from the innermost out.
//!
//! What may not be removed is left alone and named, with the directories it is in. A directory that is renamed out of the space while it
//! is being emptied is left alone from then on.

use std::rc::Rc;

use eirene_files_protocol::{Answer, Code, Delete, EntryKind, Name, RelativePath};
use rustix::process::geteuid;

use crate::beneath::{Place, Space};
use crate::change::is_same;
use crate::server::{Cancelled, Job};
use crate::walk::{Account, Step, Walk};

/// After so many entries it is asked again whether a directory is still in the space.
const LOOK_AGAIN: u32 = 128;

pub(super) fn run(job: &Job, wanted: &Delete) -> Result<Answer, Code> {
    let spot = job.space(wanted.space)?.spot(&wanted.path)?;
    spot.found()?;
    let mut account = Account::new();
    let removal = Removal { job, space: spot.space, cancelled: &job.cancelled, opens: false };
    removal.remove(&spot.directory, &spot.name, &mut account)?;
    Ok(Answer::Removed(account.walked))
}

/// A directory that is being emptied.
struct Emptied {
    /// How it is called in the directory above.
    name: Name,
    /// Whether anything was removed since it was listed from the beginning.
    removed: bool,
    /// Whether something stays.
    keeps: bool,
    entries: u32,
}

/// Who removes where. What is removed because a request was cancelled is not cancelled with it.
pub(crate) struct Removal<'a> {
    pub(crate) job: &'a Job,
    pub(crate) space: &'a Space,
    pub(crate) cancelled: &'a Cancelled,
    /// Whether the person's own directories that are closed to themselves are opened first: only in what the platform made and nobody has seen yet.
    pub(crate) opens: bool,
}

impl Removal<'_> {
    /// As [`Self::remove`], where it is an error that something stays. What is not there is gone.
    pub(crate) fn remove_all(&self, directory: &Place, name: &Name, account: &mut Account) -> Result<(), Code> {
        let before = account.walked.skipped.len();
        let is_gone = || matches!(directory.child(name), Err(Code::NotFound));
        if is_gone() || self.remove(directory, name, account)? || is_gone() {
            return Ok(());
        }
        let whys = account.walked.skipped.iter().skip(before).map(|skipped| skipped.why);
        // Of something in it: what was asked for is there.
        let mut whys = whys.filter(|why| !matches!(why, Code::NotFound | Code::NotADirectory));
        Err(whys.next().unwrap_or(Code::NotEmpty))
    }

    /// Removes what lies in a directory under a name. Whether all of it is gone; only what concerns the request is an error.
    pub(crate) fn remove(&self, directory: &Place, name: &Name, account: &mut Account) -> Result<bool, Code> {
        let mut walk = Walk::new(true);
        let mut gone = self.enter_or_remove(&mut walk, directory, name, RelativePath::default(), account);
        while let Some(step) = walk.step(self.space, self.cancelled)? {
            // Whether it goes on where nobody hears that, `cancelled` says.
            let _ = account.say(self.job);
            let Some(level) = walk.here() else { break };
            match step {
                Step::Entry(name) => {
                    level.data.entries += 1;
                    if level.data.entries.is_multiple_of(LOOK_AGAIN) && !self.space.holds(&level.place) {
                        account.skip(level.path.clone(), Code::ChangedMeanwhile);
                        walk.leave();
                        gone = keep(&mut walk);
                        continue;
                    }
                    let Ok(path) = level.path.join(&name) else {
                        account.skip(level.path.clone(), Code::TooDeep);
                        gone = keep(&mut walk);
                        continue;
                    };
                    let place = Rc::clone(&level.place);
                    if !self.enter_or_remove(&mut walk, &place, &name, path, account) {
                        gone = keep(&mut walk);
                    }
                }
                Step::Unlisted(why) => {
                    account.skip(level.path.clone(), why);
                    gone = keep(&mut walk);
                }
                Step::Leave => {
                    let (held, name) = (Rc::clone(&level.place), level.data.name.clone());
                    let above = walk.above().map(|level| Rc::clone(&level.place));
                    let removed = remove_directory(above.as_deref().unwrap_or(directory), &name, &held);
                    let Some(level) = walk.here() else { break };
                    match removed {
                        Ok(()) => {
                            walk.leave();
                            account.done(0);
                            if let Some(level) = walk.here() {
                                level.data.removed = true;
                            }
                        }
                        // Names are passed over by some file systems where others are removed while they are listed.
                        Err(Code::NotEmpty) if level.data.removed && !level.data.keeps => {
                            level.data.removed = false;
                            walk.again()?;
                        }
                        Err(why) => {
                            if why != Code::NotEmpty || !level.data.keeps {
                                account.skip(level.path.clone(), why);
                            }
                            walk.leave();
                            gone = keep(&mut walk);
                        }
                    }
                }
            }
        }
        Ok(gone)
    }

    /// Removes an entry, or goes into it. Whether it does not stay, as far as is known by now.
    fn enter_or_remove(
        &self,
        walk: &mut Walk<Emptied>,
        directory: &Place,
        name: &Name,
        path: RelativePath,
        account: &mut Account,
    ) -> bool {
        let tried = || -> Result<bool, Code> {
            let place = directory.child(name)?;
            let (kind, found) = place.look()?;
            if kind != EntryKind::Directory {
                directory.remove_file(name)?;
                return Ok(true);
            }
            if !self.space.holds(&place) {
                return Err(Code::ChangedMeanwhile);
            }
            if self.opens && found.stx_uid == geteuid().as_raw() && found.stx_mode & 0o700 != 0o700 {
                place.set_mode(0o700)?;
            }
            let emptied = Emptied { name: name.clone(), removed: false, keeps: false, entries: 0 };
            walk.enter(&place, path.clone(), emptied).map(|()| false)
        };
        match { tried }() {
            Ok(false) => true,
            Ok(true) => {
                account.done(0);
                if let Some(level) = walk.here() {
                    level.data.removed = true;
                }
                true
            }
            Err(why) => {
                account.skip(path, why);
                false
            }
        }
    }
}

/// Something stays in the innermost directory, so it stays too: always `false`.
fn keep(walk: &mut Walk<Emptied>) -> bool {
    if let Some(level) = walk.here() {
        level.data.keeps = true;
    }
    false
}

/// Removes a directory if it still lies where it was found.
fn remove_directory(above: &Place, name: &Name, held: &Place) -> Result<(), Code> {
    let now = above.child(name)?.look()?.1;
    if is_same(&now, &held.look()?.1) { above.remove_directory(name) } else { Err(Code::ChangedMeanwhile) }
}
