//! What can be asked: one file a verb.

mod archive;
mod compare;
mod copy;
mod delete;
mod earlier;
mod extract;
mod list;
mod make_directory;
mod move_to;
mod old;
mod permissions;
mod preview;
mod read;
mod scan;
mod search;
mod stat;
mod sum_up;
mod tar_writer;
mod trash;
mod unfinished;
mod upload;
mod zip_writer;

use eirene_files_protocol::{Answer, Code, Problem, Verb};

use crate::room::why_ended;
use crate::server::Job;
use crate::stream::Stream;

/// Does what is asked.
pub(crate) fn run(job: &mut Job) -> Result<Answer, Problem> {
    let done = run_as_it_is(job);
    done.map_err(|problem| Problem { code: why_ended(job, problem.code), ..problem })
}

fn run_as_it_is(job: &mut Job) -> Result<Answer, Problem> {
    let stream = job.stream.take().map(|socket| Stream::new(socket, job.cancelled.clone())).transpose()?;
    match (&job.verb, stream) {
        (Verb::List(list), None) => Ok(list::run(job, list)?),
        (Verb::Stat(stat), None) => Ok(stat::run(job, stat)?),
        (Verb::Read(read), Some(mut stream)) => read::run(job, read, &mut stream),
        (Verb::Archive(archive), Some(mut stream)) => Ok(archive::run(job, archive, &mut stream)?),
        (Verb::SumUp(wanted), None) => Ok(sum_up::run(job, wanted)?),
        (Verb::MakeDirectory(make), None) => Ok(make_directory::run(job, make)?),
        (Verb::Move(wanted), None) => Ok(move_to::run(job, wanted)?),
        (Verb::Copy(wanted), None) => Ok(copy::run(job, wanted)?),
        (Verb::Compare(wanted), None) => Ok(compare::run(job, wanted)?),
        (Verb::FindUnfinished(wanted), None) => Ok(unfinished::run(job, wanted)?),
        (Verb::Extract(wanted), None) => Ok(extract::run(job, wanted)?),
        (Verb::PutInTrash(wanted), None) => Ok(trash::put(job, wanted)?),
        (Verb::ListTrash(wanted), None) => Ok(trash::list(job, wanted)?),
        (Verb::Restore(wanted), None) => Ok(trash::restore(job, wanted)?),
        (Verb::EmptyTrash(wanted), None) => Ok(trash::empty(job, wanted)?),
        (Verb::Delete(wanted), None) => Ok(delete::run(job, wanted)?),
        (Verb::CreateUpload(wanted), None) => Ok(upload::create(job, wanted)?),
        (Verb::LookAtUpload(part), None) => Ok(upload::look(job, part)?),
        (Verb::WriteUpload(wanted), Some(mut stream)) => upload::write(job, wanted, &mut stream),
        (Verb::FinishUpload(part), None) => upload::finish(job, part),
        (Verb::RemovePart(part), None) => Ok(upload::remove(job, part)?),
        (Verb::LookAtPermissions(wanted), None) => Ok(permissions::look(job, wanted)?),
        (Verb::SetPermissions(wanted), None) => Ok(permissions::set(job, wanted)?),
        (Verb::Search(search), None) => Ok(search::run(job, search)?),
        (Verb::Scan(scan), None) => Ok(scan::run(job, scan)?),
        (Verb::Preview(wanted), None) => Ok(preview::run(job, wanted)?),
        (Verb::ListOld(wanted), None) => Ok(old::list(job, wanted)?),
        (Verb::RemoveOld(wanted), None) => Ok(old::remove(job, wanted)?),
        // A stream with what has none, or none with what needs one.
        _ => Err(Code::Invalid.into()),
    }
}

/// Which threads do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What answers at once.
    Metadata,
    /// What fills or empties a stream.
    Streams,
    /// What somebody waits for and takes a moment: it never waits behind work, which may go on for hours.
    Short,
    /// What walks through directories or copies.
    Work,
    /// What nobody waits for: it takes what time the others leave.
    Idle,
}

/// The threads for a verb.
pub(crate) fn lane(verb: &Verb) -> Lane {
    match verb {
        // What is summed up is read as what is sent is. An upload is finished among its like: it may be read again, and is not to wait behind a copy.
        Verb::Read(_) | Verb::SumUp(_) | Verb::Archive(_) | Verb::WriteUpload(_) | Verb::FinishUpload(_) => {
            Lane::Streams
        }
        Verb::SetPermissions(wanted) if !wanted.recursive => Lane::Metadata,
        Verb::Copy(_)
        | Verb::Compare(_)
        | Verb::FindUnfinished(_)
        | Verb::Extract(_)
        | Verb::EmptyTrash(_)
        | Verb::Delete(_)
        | Verb::SetPermissions(_)
        | Verb::Search(_) => Lane::Work,
        // A preview is parsed: two at once are as much memory as there is for it.
        Verb::Preview(_) | Verb::RemovePart(_) => Lane::Short,
        Verb::Scan(_) | Verb::ListOld(_) | Verb::RemoveOld(_) => Lane::Idle,
        Verb::List(_)
        | Verb::Stat(_)
        | Verb::MakeDirectory(_)
        | Verb::Move(_)
        | Verb::PutInTrash(_)
        | Verb::ListTrash(_)
        | Verb::Restore(_)
        | Verb::CreateUpload(_)
        | Verb::LookAtUpload(_)
        | Verb::LookAtPermissions(_) => Lane::Metadata,
    }
}
