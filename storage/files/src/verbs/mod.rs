//! What can be asked: one file a verb.

mod archive;
mod list;
mod read;
mod stat;
mod tar_writer;

use eirene_files_protocol::{Answer, Code, Problem, Verb};

use crate::server::Job;
use crate::stream::Stream;

/// Does what is asked.
pub(crate) fn run(job: &mut Job) -> Result<Answer, Problem> {
    let stream = job.stream.take().map(|socket| Stream::new(socket, job.cancelled.clone())).transpose()?;
    match (&job.verb, stream) {
        (Verb::List(list), None) => Ok(list::run(job, list)?),
        (Verb::Stat(stat), None) => Ok(stat::run(job, stat)?),
        (Verb::Read(read), Some(mut stream)) => read::run(job, read, &mut stream),
        (Verb::Archive(archive), Some(mut stream)) => Ok(archive::run(job, archive, &mut stream)?),
        (Verb::List(_) | Verb::Stat(_) | Verb::Read(_) | Verb::Archive(_), _) => Err(Code::Invalid.into()),
    }
}
