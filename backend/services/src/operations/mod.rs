//! Work on files that outlives its request: copies, deletions, searches. Each is a row of its owner's from the start; how far it has come is
//! known here and told on the way, what came of it is in the row. What was under way when the portal ended, or the process that worked for it, is
//! not gone on with by itself: nobody knows what else was done to the files meanwhile. What it has left (`left.rs`) is kept for a while for whoever
//! asks for the same again.

mod findings;
mod left;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_core::file_work::{Operation, OperationKind, OperationState};
use eirene_core::{Clock, OperationId, Scope, UserId};
use eirene_database::Db;
use eirene_files_protocol::{PartId, Progress, RelativePath};
use eirene_words::say;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::findings::Findings;
use super::Page;
use super::actor::Actor;
use super::events::{EventKind, Events, Fact};
use super::files::Within;
use crate::cause;
use crate::error::AppError;
use crate::error::files::FilesTrouble;
use crate::shared::Shared;

/// Operations of one person that wait or run.
const MOST_LIVE: usize = 16;
/// Of them so many run at once: the person's process has as many threads for such work.
const MOST_RUNNING: usize = 2;
/// Scans and looks for old files have a thread of their own there, of the lowest priority, so none keeps a copy waiting.
const MOST_IDLE: usize = 1;
/// How often it is told how far one is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How what is not whole yet is called of the `number`th thing that an operation makes: by the operation's id, so that its row finds it again.
pub fn part_of(operation: OperationId, number: usize) -> PartId {
    let of = Sha256::new_with_prefix(b"a part of an operation");
    let digest = of.chain_update(operation.to_string()).chain_update((number as u64).to_le_bytes()).finalize();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    PartId(id)
}

/// Operations. Cheap to clone.
#[derive(Clone)]
pub struct Operations {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    events: Events,
    live: Mutex<HashMap<OperationId, Live>>,
    /// By person, those of work that nobody waits for apart.
    turns: Mutex<HashMap<(UserId, bool), Arc<Semaphore>>>,
    /// What searches and scans found.
    results: Mutex<Findings>,
    /// What was interrupted at the last look for it.
    interrupted: Mutex<HashSet<OperationId>>,
    /// Those that were interrupted, of which what they left is being gone on with, or removed: never both.
    held: Mutex<HashSet<OperationId>>,
}

struct Live {
    user: UserId,
    cancel: CancellationToken,
    state: OperationState,
    progress: Progress,
    told: Instant,
}

/// How work says how far it is, and hears that it is no longer wanted.
#[derive(Clone)]
pub struct Handle {
    inner: Shared<Inner>,
    operation: Operation,
    /// The same that were interrupted, the newest first, to be gone on with.
    earlier: Vec<OperationId>,
    /// What it may have left by now.
    left: Arc<Mutex<Option<Left>>>,
    /// Cancelled when nobody wants it any more.
    pub cancelled: CancellationToken,
}

/// What work may have left that nobody has said is cleared away; the greater counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Its process is lost: it can be gone on with.
    Kept,
    /// It was to be cleared away: it is only to be removed.
    Unwanted,
}

/// What came of the work.
#[derive(Debug, Default)]
pub struct Finished {
    /// What is to be said of it: how much was done, what was left alone.
    pub summary: Value,
    /// What was found.
    pub results: Vec<Value>,
}

impl Operations {
    /// Operations kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, events: Events) -> Self {
        let inner = Inner {
            db,
            clock,
            events,
            live: Mutex::default(),
            turns: Mutex::default(),
            results: Mutex::default(),
            interrupted: Mutex::default(),
            held: Mutex::default(),
        };
        Self { inner: Shared::new(inner) }
    }

    /// Ends by the word `interrupted` what was under way when the portal ended.
    pub async fn begin_anew(&self) -> Result<u64, AppError> {
        Ok(self.inner.db.interrupt_operations(self.inner.clock.now()).await?)
    }

    /// Begins work for whoever is within a space.
    ///
    /// # Errors
    /// That the person has as many operations as there may be.
    pub async fn begin<F>(
        &self,
        within: &Within,
        kind: OperationKind,
        request: Value,
        work: impl FnOnce(Handle) -> F + Send + 'static,
    ) -> Result<Operation, AppError>
    where
        F: Future<Output = Result<Finished, AppError>> + Send + 'static,
    {
        let user = within.actor().user.id;
        let operation = Operation {
            id: OperationId::generate(),
            user,
            space: within.space().id,
            kind,
            state: OperationState::Waiting,
            request,
            progress: json!({"entries": 0, "bytes": 0}),
            problem: None,
            created_at: self.inner.clock.now(),
            ended_at: None,
        };
        let cancelled = self.inner.admit(&operation)?;
        let inner = self.inner.clone();
        // In a task of its own: whoever asked may be gone before the row is written, and it would count as live for ever.
        let begun = cause::spawn(async move {
            let earlier = match inner.note_begun(&operation).await {
                Ok(earlier) => earlier,
                Err(error) => {
                    inner.live().remove(&operation.id);
                    return Err(error);
                }
            };
            let handle = Handle { inner, operation: operation.clone(), earlier, left: Arc::default(), cancelled };
            cause::spawn(handle.carry_out(work));
            Ok(operation)
        });
        begun.await.map_err(|error| AppError::Internal(error.into()))?
    }

    /// One's own operations, the newest first.
    pub async fn list(
        &self,
        actor: &Actor,
        cursor: Option<OperationId>,
        limit: u32,
    ) -> Result<Page<Operation>, AppError> {
        actor.require(Scope::FilesRead)?;
        let rows = self.inner.db.operations_of(actor.user.id, cursor, limit).await?;
        let full = rows.len() == limit as usize;
        let next = rows.last().filter(|_| full).map(|row| row.id.to_string());
        Ok(Page { items: rows.into_iter().map(|row| self.inner.as_of_now(row)).collect(), next })
    }

    /// One of one's own.
    pub async fn get(&self, actor: &Actor, id: OperationId) -> Result<Operation, AppError> {
        actor.require(Scope::FilesRead)?;
        let row = self.inner.db.operation(id).await?.ok_or(AppError::NotFound)?;
        if row.user == actor.user.id { Ok(self.inner.as_of_now(row)) } else { Err(AppError::Hidden) }
    }

    /// The present state of an operation. The caller has authorised the reader.
    pub async fn as_it_is(&self, id: OperationId) -> Result<Option<Operation>, AppError> {
        Ok(self.inner.db.operation(id).await?.map(|row| self.inner.as_of_now(row)))
    }

    /// Asks one of one's own to end. One that is over stays as it is, but nobody goes on with what it left.
    pub async fn cancel(&self, actor: &Actor, id: OperationId) -> Result<Operation, AppError> {
        let operation = self.get(actor, id).await?;
        // What only reads may be ended by whoever began it.
        if !operation.kind.finds() {
            actor.require(Scope::FilesWrite)?;
        }
        if let Some(live) = self.inner.live().get(&id) {
            live.cancel.cancel();
        }
        self.inner.give_up(&operation).await?;
        Ok(operation)
    }

    /// What one of one's own found, from the `from`th on.
    pub async fn results(
        &self,
        actor: &Actor,
        id: OperationId,
        from: usize,
        limit: usize,
    ) -> Result<Page<Box<RawValue>>, AppError> {
        let operation = self.get(actor, id).await?;
        let kept = self.inner.results().get(id);
        match kept {
            Some(all) => {
                let end = from.saturating_add(limit).min(all.len());
                let items = all.get(from..end).unwrap_or_default().to_vec();
                Ok(Page { items, next: (end < all.len()).then(|| end.to_string()) })
            }
            None if !operation.state.is_final() => {
                let text = say("problem.operation_not_over");
                Err(AppError::Conflict { code: "operation_not_over", text })
            }
            None if operation.state == OperationState::Done && operation.kind.finds() => {
                Err(FilesTrouble::results_gone().into())
            }
            None => Err(AppError::Conflict { code: "nothing_found", text: say("problem.nothing_found") }),
        }
    }
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, HashMap<OperationId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn results(&self) -> MutexGuard<'_, Findings> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the row, and takes what the same have left that were interrupted.
    async fn note_begun(&self, operation: &Operation) -> Result<Vec<OperationId>, AppError> {
        let earlier = self.take_left(operation).await?;
        if let Err(error) = self.db.insert_operation(operation).await {
            self.let_go(&earlier);
            return Err(error.into());
        }
        Ok(earlier)
    }

    fn admit(&self, operation: &Operation) -> Result<CancellationToken, AppError> {
        let mut live = self.live();
        if live.values().filter(|live| live.user == operation.user).count() >= MOST_LIVE {
            return Err(FilesTrouble::too_many_operations().into());
        }
        let cancel = CancellationToken::new();
        let entry = Live {
            user: operation.user,
            cancel: cancel.clone(),
            state: operation.state,
            progress: Progress { entries: 0, bytes: 0 },
            told: Instant::now(),
        };
        live.insert(operation.id, entry);
        Ok(cancel)
    }

    /// The turns of a person; those of people who wait for none are forgotten.
    fn turns(&self, user: UserId, kind: OperationKind) -> Arc<Semaphore> {
        let is_idle = matches!(kind, OperationKind::Scan | OperationKind::OldFiles);
        let many = if is_idle { MOST_IDLE } else { MOST_RUNNING };
        let whose = (user, is_idle);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|of, turns| *of == whose || Arc::strong_count(turns) > 1);
        Arc::clone(turns.entry(whose).or_insert_with(|| Arc::new(Semaphore::new(many))))
    }

    /// The row, with what is known here.
    fn as_of_now(&self, row: Operation) -> Operation {
        match self.live().get(&row.id) {
            Some(live) if !row.state.is_final() => {
                let progress = json!({"entries": live.progress.entries, "bytes": live.progress.bytes});
                Operation { state: live.state, progress, ..row }
            }
            _ => row,
        }
    }
}

impl Handle {
    /// Of which operation it is.
    pub fn id(&self) -> OperationId {
        self.operation.id
    }

    /// What kind of work it is.
    pub fn kind(&self) -> OperationKind {
        self.operation.kind
    }

    /// The same that were interrupted, the newest first, to be gone on with.
    pub fn earlier(&self) -> &[OperationId] {
        &self.earlier
    }

    /// Notes that something of it may be left: it ends as interrupted, so that what is left is gone on with, or removed.
    pub fn leave(&self, left: Left) {
        let mut noted = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = (*noted).max(Some(left));
    }

    /// Where an upload of its owner's that is not finished lies, at or below this path of its space.
    pub(crate) async fn upload_into(&self, path: &RelativePath) -> Result<Option<RelativePath>, AppError> {
        let now = self.inner.clock.now();
        let open = self.inner.db.open_uploads(self.operation.user).await?;
        let below = |directory: &[u8]| {
            let rest = directory.strip_prefix(path.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        // One that is over its end nobody goes on with.
        let into = open
            .into_iter()
            .find(|upload| upload.space == self.operation.space && upload.expires_at > now && below(&upload.directory));
        Ok(into.and_then(|upload| RelativePath::parse(&upload.directory).ok()))
    }

    /// Notes how far it is; tells so now and then.
    pub fn progress(&self, progress: Progress) {
        let shown = {
            let mut live = self.inner.live();
            let Some(live) = live.get_mut(&self.operation.id) else { return };
            live.progress = progress;
            if live.told.elapsed() < TELL_EVERY {
                return;
            }
            live.told = Instant::now();
            let progress = json!({"entries": progress.entries, "bytes": progress.bytes});
            Operation { state: live.state, progress, ..self.operation.clone() }
        };
        let fact = Fact::Operation(Box::new(shown));
        self.inner.events.publish_transient(EventKind::Operation, None, self.operation.user, fact);
    }

    async fn carry_out<F>(self, work: impl FnOnce(Self) -> F + Send + 'static)
    where
        F: Future<Output = Result<Finished, AppError>> + Send + 'static,
    {
        let turns = self.inner.turns(self.operation.user, self.operation.kind);
        let turn = tokio::select! {
            () = self.cancelled.cancelled() => None,
            turn = turns.acquire() => turn.ok(),
        };
        let outcome = if turn.is_some() {
            self.note(OperationState::Running).await;
            // In a task of its own, so that a mistake of ours ends the work and not its row.
            let working = cause::spawn(work(self.clone()));
            match working.await {
                Ok(outcome) => outcome,
                Err(error) => Err(AppError::Internal(error.into())),
            }
        } else {
            Err(FilesTrouble::cancelled().into())
        };
        drop(turn);
        self.end(outcome).await;
    }

    async fn note(&self, state: OperationState) {
        if let Some(live) = self.inner.live().get_mut(&self.operation.id) {
            live.state = state;
        }
        let progress = &self.operation.progress;
        if let Err(error) = self.inner.db.update_operation(self.operation.id, state, progress, None, None).await {
            tracing::warn!(%error, operation = %self.operation.id, "how far an operation is could not be written");
        }
    }

    /// Writes down what came of it. A database that is away for a moment is waited for: the row says nothing else until then.
    async fn end(self, outcome: Result<Finished, AppError>) {
        let id = self.operation.id;
        let cancelled = self.cancelled.is_cancelled();
        let progress = self.inner.live().get(&id).map_or(Progress { entries: 0, bytes: 0 }, |live| live.progress);
        let mut summary = json!({"entries": progress.entries, "bytes": progress.bytes});
        let (state, problem) = match outcome {
            Ok(Finished { summary: said, results }) => {
                if !said.is_null() {
                    summary = said;
                }
                if self.operation.kind.finds() {
                    self.inner.results().keep(id, &results);
                }
                (OperationState::Done, None)
            }
            Err(_) if cancelled => (OperationState::Cancelled, None),
            Err(AppError::Files(trouble)) => {
                (OperationState::Failed, Some(json!({"code": trouble.code, "text": trouble.text.as_str()})))
            }
            Err(error) => {
                tracing::error!(%error, operation = %id, "an operation failed");
                (OperationState::Failed, Some(json!({"code": "internal", "text": say("problem.internal").as_str()})))
            }
        };
        let left = *self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, problem) = match left {
            None => (state, problem),
            // Whoever asks for the same again goes on with it.
            Some(Left::Kept) if !cancelled => (OperationState::Interrupted, None),
            Some(_) => {
                summary["given_up"] = json!(true);
                // Of several the first that was refused says why.
                let refused = summary["refused"].get(0);
                let first = refused.map(|first| json!({"code": first["code"], "text": first["text"]}));
                (OperationState::Interrupted, problem.or(first))
            }
        };
        let ended_at = self.inner.clock.now();
        let mut wait = Duration::from_secs(1);
        while let Err(error) =
            self.inner.db.update_operation(id, state, &summary, problem.as_ref(), Some(ended_at)).await
        {
            tracing::warn!(%error, operation = %id, "what came of an operation could not be written");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_mins(1));
        }
        self.inner.live().remove(&id);
        if state == OperationState::Done {
            self.inner.give_up_all(&self.earlier).await;
        }
        self.inner.let_go(&self.earlier);
        let over = Operation { state, progress: summary, problem, ended_at: Some(ended_at), ..self.operation.clone() };
        let user = over.user;
        self.inner.events.publish(EventKind::Operation, None, Some(user), Fact::Operation(Box::new(over))).await;
    }
}
