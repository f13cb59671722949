//! Bytes of a file. What is said before the first byte holds for all of them, or the last word says otherwise.

use eirene_files_protocol::{Answer, Code, Part, Problem, Read, ReadBegins};

use crate::beneath::{Last, version};
use crate::server::Job;
use crate::stream::Stream;

pub(super) fn run(job: &Job, read: &Read, stream: &mut Stream) -> Result<Answer, Problem> {
    let (file, found) = job.space(read.space)?.find(&read.path, Last::Followed)?.read()?;
    let version = version(&found);
    let to = read.to.map_or(version.bytes, |to| to.min(version.bytes));
    if read.to.is_some_and(|to| to < read.from) {
        return Err(Code::Invalid.into());
    }
    if read.from > version.bytes {
        return Err(Problem { code: Code::OutOfRange, bytes: Some(version.bytes) });
    }
    job.part(Part::ReadBegins(ReadBegins { version, from: read.from, to }))?;
    let reached = stream.send_file(&file, read.from, to)?;
    // What grows is read as long as it was; what shrinks was not read whole.
    if reached < to {
        return Err(Code::ChangedMeanwhile.into());
    }
    Ok(Answer::Written { bytes: stream.written(), entries: 1, skipped: Vec::new(), skipped_in_all: 0 })
}
