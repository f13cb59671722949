//! A new directory, and those on the way to it where that is wanted.

use eirene_files_protocol::{Answer, Code, EntryKind, MakeDirectory, RelativePath};

use crate::beneath::Space;
use crate::server::Job;

pub(super) fn run(job: &Job, make: &MakeDirectory) -> Result<Answer, Code> {
    let space = job.space(make.space)?;
    let made = if make.parents { make_all(space, &make.path)? } else { make_one(space, &make.path).map(|()| true)? };
    Ok(Answer::Made { made })
}

fn make_one(space: &Space, path: &RelativePath) -> Result<(), Code> {
    let spot = space.spot(path)?;
    spot.directory.make_directory(&spot.name)
}

/// Makes what is missing, from above down. Whether the last was.
pub(super) fn make_all(space: &Space, path: &RelativePath) -> Result<bool, Code> {
    space.check_writable()?;
    let mut here = RelativePath::default();
    let mut made = false;
    for name in path.components() {
        here = here.join(&name).map_err(|_| Code::TooDeep)?;
        made = match make_one(space, &here) {
            Ok(()) => true,
            // Also where this directory may not be written to: what lies there already needs no writing.
            Err(Code::Exists | Code::Forbidden) => {
                let found = space.find(&here, crate::beneath::Last::Followed)?;
                if found.look()?.0 != EntryKind::Directory {
                    return Err(Code::Exists);
                }
                false
            }
            Err(why) => return Err(why),
        };
    }
    Ok(made)
}
