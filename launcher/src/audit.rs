//! One line for each call: who asked for what, for whom, and how it ended; never a token, a file's content or a script.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use eirene_core::launcher::Cause;
use serde::Serialize;

/// The process at the other end of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Process.
    pub pid: i32,
}

/// One line.
#[derive(Debug, Serialize)]
pub struct Entry<'a> {
    /// When it was asked, RFC 3339.
    pub time: String,
    /// Who asked.
    pub peer: Peer,
    /// What was asked.
    pub verb: &'static str,
    /// For what, as the portal says it.
    #[serde(flatten)]
    pub cause: Cause,
    /// For whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person: Option<&'a str>,
    /// SLURM's program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<&'static str>,
    /// The session, the job to cancel, what is changed in BeeGFS, or what is looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `done`, or the code of the refusal.
    pub outcome: &'static str,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// Exit status of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Appends the line; the file is opened each time, so that it may be rotated by renaming it.
pub fn write(path: &Path, entry: &Entry<'_>) -> io::Result<()> {
    tracing::info!(
        peer.uid = entry.peer.uid,
        peer.pid = entry.peer.pid,
        verb = entry.verb,
        person = entry.person,
        program = entry.program,
        target = entry.target,
        outcome = entry.outcome,
        reason = entry.reason,
        duration_ms = entry.duration_ms,
        "answered a call"
    );
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?.write_all(&line)
}
