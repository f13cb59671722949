//! Another name or another place: a rename between two directories that are held, so that nothing on the way can be swapped.

use eirene_files_protocol::{Answer, Code, EntryKind, Move};

use crate::server::Job;
use crate::settle::settle;

pub(super) fn run(job: &Job, wanted: &Move) -> Result<Answer, Code> {
    let from = job.space(wanted.from.space)?.spot(&wanted.from.path)?;
    let to = job.space(wanted.to.space)?.spot(&wanted.to.path)?;
    let found = from.found()?;
    if found.look()?.0 == EntryKind::Directory && to.directory.lies_in(&found)? {
        return Err(Code::IntoItself);
    }
    settle(&from.directory, &from.name, &to, wanted.on_conflict).map(Answer::Moved)
}
