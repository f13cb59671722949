//! What takes the room in a space: measured by the person's own process at the lowest priority, kept piece by piece, gone on with after any end.
//!
//! A person measures one space once at a time. The process is asked for a minute's worth at a time: what it measured to its end is kept, and is
//! left out of what it is asked next. What takes longer, and was measured before, is measured anew from its oldest piece on, so that numbers are
//! refreshed one by one and are there all the while. What is kept is the person's alone, as their process saw it; of a whole space that was
//! measured in one go, with nothing in it that could not be looked at, by somebody who may write to it, the sum is the space's usage where its
//! storage counts nothing.

mod round;
mod store;
mod tree;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eirene_core::file_work::{Operation, OperationKind};
use eirene_core::{Clock, OperationId, SpaceId, SpaceName, SpaceState, UserId, UserState};
use eirene_database::Db;
use eirene_files_protocol::RelativePath;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::round::Scanning;
use self::store::{Kept, RoundState};
pub use self::tree::Directory;
use super::actor::{Actor, Via};
use super::files::path::{AskedPath, shown};
use super::files::{Files, Need, Within};
use super::operations::{Handle, Operations};
use super::spaces::Spaces;
use crate::error::AppError;
use crate::shared::Shared;

/// Scans. Cheap to clone.
#[derive(Clone)]
pub struct Scans {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    files: Files,
    spaces: Spaces,
    operations: Operations,
    directory: PathBuf,
    /// Whose space is measured now.
    running: Mutex<HashMap<Key, Running>>,
    /// One after the other, so that of two that begin at once one is found by the other.
    beginning: tokio::sync::Mutex<()>,
}

type Key = (SpaceId, UserId);

/// A scan that is under way.
#[derive(Clone)]
struct Running {
    /// None for the moment in which it is begun.
    operation: Option<OperationId>,
    /// None until the work has begun.
    kept: Option<Arc<Mutex<Kept>>>,
}

/// A scan's line among those that run, for as long as anything of it is left.
struct Line {
    inner: Shared<Inner>,
    key: Key,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.inner.running().remove(&self.key);
    }
}

/// How measuring is going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanState {
    /// Nothing was ever measured.
    Never,
    /// Under way, or waiting for its turn.
    Running,
    /// Ended before it was over; it can be gone on with.
    Stopped,
    /// Over.
    Done,
}

impl ScanState {
    /// The word programs know it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }
}

/// What is known of a directory's content.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// How measuring is going.
    pub state: ScanState,
    /// The operation that measures.
    pub operation: Option<OperationId>,
    /// When the last round was over.
    pub as_of: Option<Timestamp>,
    /// Directories measured in the last round, as far as they are kept.
    pub directories_done: u64,
    /// Files and directories in them.
    pub files_done: u64,
    /// Bytes on disk of them.
    pub bytes_done: u64,
    /// Whether files with several names may have been counted twice.
    pub approximate: bool,
    /// How much could not be looked at in the last round.
    pub skipped: u64,
    /// Where: a path below the space.
    pub path: RelativePath,
    /// What the last round measures, or measured.
    pub round: RelativePath,
    /// The directory that is asked about; none where it was not measured, or is too small to be kept.
    pub here: Option<Directory>,
    /// The directories directly in it, the largest first.
    pub items: Vec<Directory>,
}

impl Scans {
    /// Scans whose results are kept below `directory`, which is made when it is needed.
    pub fn new(
        db: Db,
        clock: Arc<dyn Clock>,
        files: Files,
        spaces: Spaces,
        operations: Operations,
        directory: PathBuf,
    ) -> Self {
        let (running, beginning) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { inner: Shared::new(Inner { db, clock, files, spaces, operations, directory, running, beginning }) }
    }

    /// Measures a directory of a space, or goes on where that stopped. Where the person measures something of the space already, that is
    /// what is given back.
    ///
    /// # Errors
    /// As for all that is asked of files.
    pub async fn start(&self, actor: &Actor, space: &SpaceName, path: &AskedPath) -> Result<Operation, AppError> {
        let within = self.inner.files.within(actor, space, Need::Read).await?;
        let path = path.parse()?;
        self.begin(within, path).await
    }

    async fn begin(&self, within: Within, path: RelativePath) -> Result<Operation, AppError> {
        let (actor, key) = (within.actor().clone(), (within.space().id, within.actor().user.id));
        let _one = self.inner.beginning.lock().await;
        let running = self.inner.running().get(&key).and_then(|running| running.operation);
        if let Some(id) = running {
            return self.inner.operations.get(&actor, id).await;
        }
        self.inner.running().insert(key, Running { operation: None, kept: None });
        let line = Line { inner: self.inner.clone(), key };
        let request = json!({"path": shown(path.as_bytes()).0});
        let scanning = Scanning { scans: self.clone(), within: within.clone(), path, line };
        let work = move |handle: Handle| scanning.carry_out(handle);
        let operation = self.inner.operations.begin(&within, OperationKind::Scan, request, work).await?;
        if let Some(running) = self.inner.running().get_mut(&key) {
            running.operation = Some(operation.id);
        }
        Ok(operation)
    }

    /// Ends the measuring of a space, if there is any; what was measured is kept.
    ///
    /// # Errors
    /// That the space is not the person's to use.
    pub async fn stop(&self, actor: &Actor, space: &SpaceName) -> Result<(), AppError> {
        let within = self.inner.files.within(actor, space, Need::Read).await?;
        let running = self.inner.running().get(&(within.space().id, actor.user.id)).cloned();
        if let Some(id) = running.and_then(|running| running.operation) {
            self.inner.operations.cancel(actor, id).await?;
        }
        Ok(())
    }

    /// What is known of a directory: its own sum, and the largest `limit` of the directories in it.
    ///
    /// # Errors
    /// That the space is not the person's to use, or that the path is none.
    pub async fn sizes(
        &self,
        actor: &Actor,
        space: &SpaceName,
        path: &AskedPath,
        limit: usize,
    ) -> Result<Sizes, AppError> {
        let within = self.inner.files.within(actor, space, Need::Read).await?;
        let path = path.parse()?;
        let key = (within.space().id, actor.user.id);
        let running = self.inner.running().get(&key).cloned();
        let kept = match running.as_ref().and_then(|running| running.kept.clone()) {
            Some(kept) => kept,
            None => Arc::new(Mutex::new(self.inner.read(key).await?)),
        };
        let operation = running.as_ref().and_then(|running| running.operation);
        let heard = match operation {
            Some(id) => self.inner.operations.get(actor, id).await.ok().map(|operation| operation.progress),
            None => None,
        };
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(sizes(&kept, &path, limit, running.is_some(), operation, heard.as_ref()))
    }

    /// Goes on with what was under way when the portal ended; once, when it starts. Says how many.
    pub async fn go_on(&self) -> usize {
        let mut many = 0;
        for key in self.inner.keys().await {
            match self.go_on_with(key).await {
                Ok(true) => many += 1,
                Ok(false) => {}
                Err(error) => {
                    tracing::info!(space.id = %key.0, user.id = %key.1, %error, "A scan was not gone on with");
                }
            }
        }
        many
    }

    async fn go_on_with(&self, (space, user): Key) -> Result<bool, AppError> {
        let Some(round) = self.inner.read((space, user)).await?.round else { return Ok(false) };
        let person = self.inner.db.user(user).await?.filter(|user| user.state == UserState::Active);
        let (Some(user), RoundState::Open) = (person, round.state) else { return Ok(false) };
        let person = Actor { user, via: Via::Cli, address: None, request_id: None };
        let within = self.inner.files.within_id(&person, space, Need::Read).await?;
        self.begin(within, round.path).await?;
        Ok(true)
    }

    /// Removes what is kept of spaces and people that are no more.
    pub async fn clear(&self) -> Result<(), AppError> {
        for (space, user) in self.inner.keys().await {
            let space_is = self.inner.db.space(space).await?.is_some_and(|space| space.state != SpaceState::Gone);
            if space_is && self.inner.db.user(user).await?.is_some() {
                continue;
            }
            let path = self.inner.path((space, user));
            if let Err(error) = tokio::fs::remove_file(path).await {
                tracing::warn!(space.id = %space, user.id = %user, %error, "What is kept of a scan could not be removed");
            }
        }
        Ok(())
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, (space, user): Key) -> PathBuf {
        self.directory.join(format!("{space}-{user}.scan"))
    }

    async fn read(&self, key: Key) -> Result<Kept, AppError> {
        let path = self.path(key);
        blocking(move || store::read(&path)).await
    }

    /// Whose scans of what are kept.
    async fn keys(&self) -> Vec<Key> {
        let directory = self.directory.clone();
        let names = tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<String>>()
        });
        let key = |name: &String| {
            let (space, user) = name.strip_suffix(".scan")?.split_once('-')?;
            Some((space.parse().ok()?, user.parse().ok()?))
        };
        names.await.unwrap_or_default().iter().filter_map(key).collect()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| AppError::Internal(error.into()))?;
    done.map_err(|error| AppError::Internal(error.into()))
}

fn sizes(
    kept: &Kept,
    path: &RelativePath,
    limit: usize,
    runs: bool,
    operation: Option<OperationId>,
    heard: Option<&Value>,
) -> Sizes {
    let round = kept.round.as_ref();
    let (mut files_done, mut bytes_done) = round.map_or((0, 0), |round| done(kept, &round.path, round.begun));
    let number = |name: &str| heard.and_then(|heard| heard[name].as_u64()).unwrap_or(0);
    if runs {
        (files_done, bytes_done) = (files_done.max(number("entries")), bytes_done.max(number("bytes")));
    }
    let over = round.and_then(|round| match round.state {
        RoundState::Done { at, approximate, skipped } => Some((at, approximate, skipped)),
        RoundState::Open | RoundState::Stopped => None,
    });
    let state = match (runs, round, over) {
        (true, ..) => ScanState::Running,
        (false, None, _) => ScanState::Never,
        (false, Some(_), Some(_)) => ScanState::Done,
        (false, Some(_), None) => ScanState::Stopped,
    };
    Sizes {
        state,
        operation,
        as_of: over.map(|(at, ..)| at),
        directories_done: round.map_or(0, |round| kept.tree.fresh(&round.path, round.begun) as u64),
        files_done,
        bytes_done,
        approximate: over.is_some_and(|(_, approximate, _)| approximate),
        skipped: over.map_or(0, |(.., skipped)| skipped),
        here: kept.tree.get(path).cloned(),
        items: kept.tree.children(path).into_iter().take(limit).cloned().collect(),
        path: path.clone(),
        round: round.map(|round| round.path.clone()).unwrap_or_default(),
    }
}

/// Files and bytes that were measured below a directory in the round that began at `since`.
fn done(kept: &Kept, path: &RelativePath, since: Timestamp) -> (u64, u64) {
    if let Some(whole) = kept.tree.get(path).filter(|whole| whole.at >= since) {
        return (whole.files, whole.bytes);
    }
    let tops = kept.tree.fresh_tops(path, since);
    (tops.iter().map(|top| top.files).sum(), tops.iter().map(|top| top.bytes).sum())
}
