//! Whether a copy is what lies there now of what it was made of, before the original goes.
//!
//! Every entry of the original is looked for in the copy, and is the same by its kind, by a file's size and time of change, and by what a link
//! says. So what was written to the original while it was copied, or came to it, is named, and so is what has the time of its original and fewer bytes:
//! that is a copy of which something was lost. What is in the copy alone is no loss. What lies hidden
//! in the original is in no copy: where that is an upload that is not finished, its directory is named, for the upload would go with it.

use std::rc::Rc;

use eirene_files_protocol::{Answer, Code, Compare, EntryKind, Name, RelativePath, UPLOAD_PREFIX};
use rustix::fs::Statx;

use super::copy::ends_all;
use super::unfinished;
use crate::beneath::Place;
use crate::server::Job;
use crate::walk::{Account, Step, Walk};

/// Nanoseconds are cut to these by file systems that keep less of a time; BeeGFS and others keep none.
const COARSE_NS: u32 = 100;

pub(super) fn run(job: &Job, wanted: &Compare) -> Result<Answer, Code> {
    let space = job.space(wanted.from.space)?;
    let original = space.source(&wanted.from.path)?;
    let copy = job.space(wanted.to.space)?.source(&wanted.to.path)?;
    let mut account = Account::new();
    let mut walk = Walk::new(true);
    match compared(&original, &copy) {
        Ok((EntryKind::Directory, _)) => walk.enter(&original, RelativePath::default(), Rc::new(copy))?,
        Ok((_, bytes)) => account.done(bytes),
        Err(why @ (Code::ChangedMeanwhile | Code::NotWhole)) => account.skip(RelativePath::default(), why),
        Err(why) => return Err(why),
    }
    while let Some(step) = walk.step(space, &job.cancelled)? {
        account.say(job)?;
        let Some(level) = walk.here() else { break };
        match step {
            Step::Entry(name) if level.place.is_root() && space.reserves(name.as_bytes()) => {}
            Step::Entry(name) if name.as_bytes().starts_with(UPLOAD_PREFIX) => {
                if let Err(why) = unfinished::check(&level.place, &name) {
                    account.skip(level.path.clone(), why);
                }
            }
            Step::Entry(name) => {
                let Ok(path) = level.path.join(&name) else {
                    account.skip(level.path.clone(), Code::TooDeep);
                    continue;
                };
                let (directory, of_copy) = (Rc::clone(&level.place), Rc::clone(&level.data));
                match entry(&mut walk, (&directory, &of_copy), &name, &path) {
                    Ok(Some(bytes)) => account.done(bytes),
                    Ok(None) => {}
                    Err(why) if ends_all(why) => return Err(why),
                    Err(why) => account.skip(path, why),
                }
            }
            Step::Unlisted(why) => account.skip(level.path.clone(), why),
            Step::Leave => {
                walk.leave();
                account.done(0);
            }
        }
    }
    Ok(Answer::Compared(account.walked))
}

/// Compares what lies under a name in both; the bytes of it. None of a directory: it is gone into, and done with when it is left.
fn entry(
    walk: &mut Walk<Rc<Place>>,
    (directory, of_copy): (&Place, &Place),
    name: &Name,
    path: &RelativePath,
) -> Result<Option<u64>, Code> {
    let (original, copy) = (directory.child(name)?, of_copy.child(name)?);
    let (kind, bytes) = compared(&original, &copy)?;
    if kind != EntryKind::Directory {
        return Ok(Some(bytes));
    }
    walk.enter(&original, path.clone(), Rc::new(copy)).map(|()| None)
}

/// What something is and how many bytes are in it, if the copy is the same.
fn compared(original: &Place, copy: &Place) -> Result<(EntryKind, u64), Code> {
    // What a network file system remembers may be older than what was written elsewhere.
    let ((kind, found), (kind_of_copy, made)) = (original.look_anew()?, copy.look_anew()?);
    let (bytes, same) = match kind {
        EntryKind::File => (found.stx_size, found.stx_size == made.stx_size && same_time(&found, &made)),
        EntryKind::Link => (0, kind_of_copy == kind && original.link_text()? == copy.link_text()?),
        EntryKind::Directory => (0, true),
        // Of these there are no copies.
        EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => (0, false),
    };
    if same && kind_of_copy == kind {
        return Ok((kind, bytes));
    }
    let is_short =
        kind == EntryKind::File && kind_of_copy == kind && made.stx_size < found.stx_size && same_time(&found, &made);
    Err(if is_short { Code::NotWhole } else { Code::ChangedMeanwhile })
}

/// Whether the copy has the original's time of change, as far as its file system keeps it.
pub(super) fn same_time(found: &Statx, made: &Statx) -> bool {
    let (of_original, of_copy) = (found.stx_mtime, made.stx_mtime);
    let kept = [of_original.tv_nsec, of_original.tv_nsec / COARSE_NS * COARSE_NS, 0];
    of_original.tv_sec == of_copy.tv_sec && kept.contains(&of_copy.tv_nsec)
}
