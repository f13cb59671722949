//! The log of each session and run: what its agent sent, in one bounded file each.
//!
//! The agent belongs to the person, so the content is hostile text and its amount is limited here whatever the tunnel let through.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use eirene_core::{JobKind, Scope, Session, SessionId};
use eirene_database::Db;
use eirene_words::words;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::broadcast;

use crate::actor::Actor;
use crate::audit::{Audit, Look};
use crate::authorize;
use crate::error::AppError;
use crate::shared::Shared;

/// Longest log kept of one session.
pub const MAX_BYTES: u64 = 1024 * 1024;
/// What is kept of a log that has grown too long.
const KEEP_BYTES: usize = 512 * 1024;
/// A piece further on than this, bytes, belongs to no log: its place would hide all that follows.
const MOST_OFFSET: u64 = 1 << 50;
/// Pieces a slow reader may lag behind before it is told so.
const IN_FLIGHT: usize = 256;

/// How far the agent's own log has arrived: every restart of a job begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    restart_count: u32,
    offset: u64,
}

/// The logs.
#[derive(Clone)]
pub struct Logs {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    audit: Audit,
    directory: PathBuf,
    open: Mutex<HashMap<SessionId, Arc<Entry>>>,
}

struct Entry {
    /// Held while the file is read or written, so that a reader misses nothing between file and channel.
    file: tokio::sync::Mutex<Option<Position>>,
    sender: broadcast::Sender<Bytes>,
}

impl Logs {
    /// Logs kept in `directory`, which is made when it is needed.
    pub fn new(db: Db, audit: Audit, directory: PathBuf) -> Self {
        Self { inner: Shared::new(Inner { db, audit, directory, open: Mutex::default() }) }
    }

    /// The whole log.
    pub async fn read(&self, actor: &Actor, kind: JobKind, session: SessionId) -> Result<String, AppError> {
        actor.require(Scope::SessionsRead)?;
        let session = self.visible(actor, kind, session).await?.id;
        let entry = self.entry(session);
        let bytes = {
            let _file = entry.file.lock().await;
            self.load(session).await.map_err(|e| AppError::Internal(e.into()))?
        };
        self.forget_unused(session);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The whole log, then what is added, until the session is over.
    pub async fn follow(
        &self,
        actor: &Actor,
        kind: JobKind,
        session: SessionId,
    ) -> Result<BoxStream<'static, Bytes>, AppError> {
        actor.require(Scope::SessionsRead)?;
        let seen = self.visible(actor, kind, session).await?;
        let entry = self.entry(seen.id);
        let (bytes, receiver) = {
            let _file = entry.file.lock().await;
            let receiver = (!seen.state.is_final()).then(|| entry.sender.subscribe());
            (self.load(seen.id).await.map_err(|e| AppError::Internal(e.into()))?, receiver)
        };
        drop(entry);
        let before = stream::iter((!bytes.is_empty()).then(|| Bytes::from(bytes)));
        let after = stream::unfold(receiver, |receiver| async move {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Ok(piece) => Some((piece, Some(receiver))),
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    Some((Bytes::from(remark("log.skipped")), Some(receiver)))
                }
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        Ok(before.chain(after).boxed())
    }

    async fn visible(&self, actor: &Actor, kind: JobKind, session: SessionId) -> Result<Session, AppError> {
        let session = authorize::visible(&self.inner.db, actor, kind, session).await?;
        self.inner.audit.looked(actor, &session, Look::Log).await;
        Ok(session)
    }

    /// Adds to the log; only the tunnel's control task and the reconcilers do.
    pub async fn append(&self, session: SessionId, piece: Bytes) -> io::Result<()> {
        let entry = self.entry(session);
        let path = self.path(session);
        let _file = entry.file.lock().await;
        let written = piece.clone();
        tokio::task::spawn_blocking(move || append_bounded(&path, &written)).await.map_err(io::Error::other)??;
        // Nobody following is no error.
        let _ = entry.sender.send(piece);
        Ok(())
    }

    /// Adds what the job's own log has that is not here: SLURM's words, and the agent's where it never came.
    pub async fn append_job_log(&self, session: SessionId, text: &str) -> io::Result<()> {
        let here = self.load(session).await?;
        let here = String::from_utf8_lossy(&here);
        let known: HashSet<&str> = here.lines().map(str::trim_end).collect();
        let new: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !known.contains(line)).collect();
        let new = new.join("\n");
        if new.trim().is_empty() {
            return Ok(());
        }
        self.append(session, format!("{}\n{}\n", words().get("log.of_job"), new.trim_end()).into()).await
    }

    /// Where the agent's log is to go on for this restart, bytes.
    pub async fn position(&self, session: SessionId, restart_count: u32) -> u64 {
        let entry = self.entry(session);
        let mut position = entry.file.lock().await;
        self.load_position(session, &mut position).await;
        position.filter(|known| known.restart_count == restart_count).map_or(0, |known| known.offset)
    }

    /// Adds what is new of a piece that begins at `offset` of the agent's log; the answer is what was new. What has arrived before is
    /// passed over, a gap is left as it is: the agent keeps no more than it can send.
    pub async fn append_at(
        &self,
        session: SessionId,
        restart_count: u32,
        offset: u64,
        piece: Bytes,
    ) -> io::Result<Option<Bytes>> {
        if offset > MOST_OFFSET {
            return Ok(None);
        }
        let entry = self.entry(session);
        let mut position = entry.file.lock().await;
        self.load_position(session, &mut position).await;
        let end = offset.saturating_add(piece.len() as u64);
        let known = position.filter(|known| known.restart_count == restart_count).map_or(0, |known| known.offset);
        let skip = usize::try_from(known.saturating_sub(offset)).unwrap_or(usize::MAX);
        if skip >= piece.len() {
            return Ok(None);
        }
        let news = piece.slice(skip..);
        let next = Position { restart_count, offset: end };
        let (path, note, written) = (self.path(session), self.position_path(session), news.clone());
        let write = move || {
            append_bounded(&path, &written)?;
            std::fs::write(note, format!("{} {}\n", next.restart_count, next.offset))
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
        *position = Some(next);
        // Nobody following is no error.
        let _ = entry.sender.send(news.clone());
        Ok(Some(news))
    }

    async fn load_position(&self, session: SessionId, position: &mut Option<Position>) {
        if position.is_some() {
            return;
        }
        let Ok(text) = tokio::fs::read_to_string(self.position_path(session)).await else { return };
        let mut numbers = text.split_ascii_whitespace();
        if let (Some(Ok(restart_count)), Some(Ok(offset))) =
            (numbers.next().map(str::parse), numbers.next().map(str::parse))
        {
            *position = Some(Position { restart_count, offset });
        }
    }

    /// Ends all that follow: the session is over.
    pub fn close(&self, session: SessionId) {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Removes the logs that nobody has written to for `age`; at most a thousand at a time.
    pub async fn remove_older_than(&self, age: Duration, now: SystemTime) -> io::Result<u64> {
        let directory = self.inner.directory.clone();
        tokio::task::spawn_blocking(move || remove_old(&directory, age, now)).await.map_err(io::Error::other)?
    }

    async fn load(&self, session: SessionId) -> io::Result<Vec<u8>> {
        match tokio::fs::read(self.path(session)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        }
    }

    fn position_path(&self, session: SessionId) -> PathBuf {
        self.inner.directory.join(format!("{session}.position"))
    }

    fn path(&self, session: SessionId) -> PathBuf {
        self.inner.directory.join(format!("{session}.log"))
    }

    fn entry(&self, session: SessionId) -> Arc<Entry> {
        let mut open = self.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = open.entry(session).or_insert_with(|| {
            Arc::new(Entry { file: tokio::sync::Mutex::new(None), sender: broadcast::channel(IN_FLIGHT).0 })
        });
        Arc::clone(entry)
    }

    fn forget_unused(&self, session: SessionId) {
        let mut open = self.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        let unused =
            open.get(&session).is_some_and(|entry| Arc::strong_count(entry) <= 2 && entry.sender.receiver_count() == 0);
        if unused {
            open.remove(&session);
        }
    }
}

/// A line of ours between those of the log.
fn remark(key: &str) -> String {
    words().get(key) + "\n"
}

fn append_bounded(path: &Path, piece: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let piece = &piece[piece.len().saturating_sub(KEEP_BYTES)..];
    if file.metadata()?.len() + piece.len() as u64 <= MAX_BYTES {
        return file.write_all(piece);
    }
    let old = std::fs::read(path)?;
    let cut = remark("log.cut");
    let tail = &old[old.len().saturating_sub(KEEP_BYTES.saturating_sub(cut.len()))..];
    let tail = tail.iter().position(|b| *b == b'\n').map_or(tail, |end| &tail[end + 1..]);
    let next = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(cut.as_bytes())?;
    file.write_all(tail)?;
    file.write_all(piece)?;
    std::fs::rename(&next, path)
}

fn remove_old(directory: &Path, age: Duration, now: SystemTime) -> io::Result<u64> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        let modified = entry.metadata()?.modified()?;
        if now.duration_since(modified).is_ok_and(|old| old > age) {
            std::fs::remove_file(entry.path())?;
            removed += 1;
        }
        if removed >= 1000 {
            break;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_its_end_and_stays_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs").join("x.log");
        let line = [b"x".repeat(999), b"\n".to_vec()].concat();
        for _ in 0..3000 {
            append_bounded(&path, &line).unwrap();
        }
        append_bounded(&path, b"the end\n").unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() as u64 <= MAX_BYTES);
        assert!(bytes.starts_with(b"[the beginning of this log was dropped]\n") && bytes.ends_with(b"\nthe end\n"));
        let flood = b"y".repeat(3 * 1024 * 1024);
        append_bounded(&path, &flood).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() <= MAX_BYTES);
    }

    #[tokio::test]
    async fn a_log_that_is_sent_again_is_taken_once() {
        let test = crate::testing::TestApp::new().await;
        let (logs, id) = (&test.app.logs, SessionId::generate());
        let read = || std::fs::read_to_string(test.directory.path().join("logs").join(format!("{id}.log"))).unwrap();
        logs.append_at(id, 0, 0, "one\ntwo\n".into()).await.unwrap();
        assert_eq!(logs.append_at(id, 0, 4, "two\nthree\n".into()).await.unwrap().unwrap(), "three\n");
        assert_eq!(logs.append_at(id, 0, 0, "one\n".into()).await.unwrap(), None);
        for offset in [1 << 63, u64::MAX, MOST_OFFSET + 1] {
            assert_eq!(logs.append_at(id, 0, offset, "far\n".into()).await.unwrap(), None);
        }
        assert_eq!(read(), "one\ntwo\nthree\n");
        let after_a_start = Logs::new(test.app.db.clone(), test.app.audit.clone(), test.directory.path().join("logs"));
        assert_eq!(after_a_start.position(id, 0).await, 14);
        assert_eq!(after_a_start.position(id, 1).await, 0, "a restart begins a new log");
        after_a_start.append_at(id, 1, 0, "again\n".into()).await.unwrap();
        assert_eq!(read(), "one\ntwo\nthree\nagain\n");
    }

    #[tokio::test]
    async fn of_the_job_s_own_log_only_what_is_new_is_added() {
        let test = crate::testing::TestApp::new().await;
        let (logs, id) = (&test.app.logs, SessionId::generate());
        let read = || std::fs::read_to_string(test.directory.path().join("logs").join(format!("{id}.log"))).unwrap();
        logs.append_at(id, 0, 0, "one\ntwo\n".into()).await.unwrap();
        logs.append_job_log(id, "one\ntwo\n\n").await.unwrap();
        assert_eq!(read(), "one\ntwo\n");
        logs.append_job_log(id, "one\ntwo\nslurmstepd: error: out of time\n").await.unwrap();
        assert_eq!(read(), "one\ntwo\n--- the job's own log ---\nslurmstepd: error: out of time\n");
    }

    #[test]
    fn only_old_logs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.log"), "a").unwrap();
        let modified = std::fs::metadata(dir.path().join("a.log")).unwrap().modified().unwrap();
        let day = Duration::from_hours(24);
        assert_eq!(remove_old(dir.path(), day, modified + day / 2).unwrap(), 0);
        assert_eq!(remove_old(dir.path(), day, modified + day * 2).unwrap(), 1);
        assert_eq!(remove_old(&dir.path().join("none"), day, modified).unwrap(), 0);
    }
}
