//! The checksum of a file: of one content from its first byte to its last, or of none.

use std::time::{Duration, Instant};

use eirene_files_protocol::{Answer, Code, Digest, Progress, SumUp};
use rustix::fs::{AtFlags, StatxFlags, statx};
use sha2::{Digest as _, Sha256};

use crate::beneath::{Last, version};
use crate::errno::code;
use crate::server::Job;

/// Bytes read at once.
const BUFFER: usize = 256 * 1024;
/// How often to say how far it is.
const SAY: Duration = Duration::from_secs(1);

pub(super) fn run(job: &Job, wanted: &SumUp) -> Result<Answer, Code> {
    let (file, found) = job.space(wanted.space)?.find(&wanted.path, Last::Followed)?.read()?;
    let version_before = version(&found);
    let (mut sum, mut buffer, mut at, mut said) = (Sha256::new(), vec![0; BUFFER], 0, Instant::now());
    loop {
        job.cancelled.check()?;
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut buffer[..], at)).map_err(code)?;
        if read == 0 {
            break;
        }
        sum.update(&buffer[..read]);
        at += read as u64;
        // What grows while it is read would not have to end.
        if at > version_before.bytes {
            return Err(Code::ChangedMeanwhile);
        }
        if said.elapsed() >= SAY {
            said = Instant::now();
            job.progress(Progress { entries: 0, bytes: at })?;
        }
    }
    let after = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(code)?;
    if version(&after) != version_before {
        return Err(Code::ChangedMeanwhile);
    }
    Ok(Answer::Summed { version: version_before, sha256: Digest(sum.finalize().into()) })
}
