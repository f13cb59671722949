//! Uploads that are not finished, in what is to be moved to another file system: their bytes lie hidden and are in no copy, and would go with the
//! original. Whoever knows of one before anything is copied does not copy for nothing.

use std::rc::Rc;

use eirene_files_protocol::{Answer, Code, EntryKind, Name, PartId, RelativePath, Spot, UPLOAD_PREFIX};

use super::copy::ends_all;
use crate::beneath::{Place, kind_of_entry, look_at_entry};
use crate::server::Job;
use crate::walk::{Account, Step, Walk};

pub(super) fn run(job: &Job, wanted: &Spot) -> Result<Answer, Code> {
    let space = job.space(wanted.space)?;
    let place = space.source(&wanted.path)?;
    let mut account = Account::new();
    let mut walk = Walk::new(true);
    if place.look()?.0 == EntryKind::Directory {
        walk.enter(&place, RelativePath::default(), ())?;
    }
    while let Some(step) = walk.step(space, &job.cancelled)? {
        // Nothing is done with yet: it is said that it goes on.
        account.say(job)?;
        let Some(level) = walk.here() else { break };
        let tried = match step {
            Step::Entry(name) if level.place.is_root() && space.reserves(name.as_bytes()) => Ok(()),
            Step::Entry(name) if name.as_bytes().starts_with(UPLOAD_PREFIX) => match check(&level.place, &name) {
                Err(Code::UploadUnfinished) => {
                    return Ok(Answer::FoundUnfinished { directory: Some(level.path.clone()) });
                }
                other => other,
            },
            Step::Entry(name) => {
                let looked = look_at_entry(level.place.as_fd(), name.as_bytes());
                match (kind_of_entry(&looked), level.path.join(&name)) {
                    (EntryKind::Directory, Ok(path)) => {
                        let directory = Rc::clone(&level.place);
                        directory.child(&name).and_then(|place| walk.enter(&place, path, ()))
                    }
                    _ => Ok(()),
                }
            }
            Step::Unlisted(why) => Err(why),
            Step::Leave => {
                walk.leave();
                Ok(())
            }
        };
        // What cannot be looked at cannot be copied, which says so and why.
        if let Err(why) = tried
            && ends_all(why)
        {
            return Err(why);
        }
    }
    Ok(Answer::FoundUnfinished { directory: None })
}

/// Refuses what lies hidden where it is the bytes of an upload that is not finished: as long as it is not, what is known of it lies beside them.
/// Notes alone are of one that is finished, and bytes alone are of a copy that is on its way, or was cut off.
pub(super) fn check(directory: &Place, name: &Name) -> Result<(), Code> {
    let id = name.as_bytes().strip_prefix(UPLOAD_PREFIX).and_then(|id| std::str::from_utf8(id).ok());
    let Some(Ok(id)) = id.map(str::parse::<PartId>) else { return Ok(()) };
    match directory.child(&id.sidecar_name()) {
        Ok(_) => Err(Code::UploadUnfinished),
        Err(Code::NotFound) => Ok(()),
        Err(why) => Err(why),
    }
}
