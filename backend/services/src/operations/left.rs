//! What copies, moves and extractions have left that were under way when the portal ended, or the process that worked for it was lost: who asks for the
//! same copy or move again goes on with it, and what nobody goes on with is removed, as the person. A process ends with its channel, so nobody writes to
//! it; what a process that is still there was to clear away is only removed.

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_core::OperationId;
use eirene_core::file_work::{Operation, OperationKind, OperationState};
use eirene_files_protocol::{Code, PartSpot, Verb};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::actor::{Actor, Via};
use super::super::files::path::AskedPath;
use super::super::files::{Files, Need, Within};
use super::{Inner, Operations, part_of};
use crate::error::AppError;

/// How long what was copied is kept for whoever asks for the same again.
const KEPT: SignedDuration = SignedDuration::from_hours(3 * 24);
/// Most operations that are looked at in one run that removes what is left over.
const MOST_CLEARED: u32 = 100;
/// How long a directory is looked for that is not there: it may be on a file system that is away.
const LOOKED_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Most of a person's that were interrupted that are looked through for the same.
const MOST_LOOKED_AT: u32 = 100;
/// Most of the same that are gone on with: each may have left something else of what was asked for.
const MOST_EARLIER: usize = 8;

impl Operations {
    /// Removes what is left of what was interrupted, is kept for nobody any more, and is not gone on with. Only what a row says was interrupted, and
    /// only what was so at the last look, too.
    pub async fn clear(&self, files: &Files, most: Duration) -> Result<(), AppError> {
        let begun = Instant::now();
        let before = self.inner.clock.now() - KEPT;
        let left = self.inner.db.interrupted_operations(MOST_CLEARED, before).await?;
        let now: HashSet<OperationId> = left.iter().map(|operation| operation.id).collect();
        let before =
            std::mem::replace(&mut *self.inner.interrupted.lock().unwrap_or_else(PoisonError::into_inner), now);
        for mut operation in left.into_iter().filter(|operation| before.contains(&operation.id)) {
            if begun.elapsed() > most {
                break;
            }
            if !self.inner.held().insert(operation.id) {
                continue;
            }
            let cleared = self.clear_one(files, &operation).await;
            self.inner.let_go(&[operation.id]);
            match cleared {
                Ok(true) => {
                    operation.progress["cleared"] = json!(true);
                    self.inner.db.note_left(operation.id, &operation.progress).await?;
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(operation = %operation.id, %error, "what is left of it could not be removed");
                }
            }
        }
        Ok(())
    }

    /// Whether nothing is left of it, as far as it can be said.
    async fn clear_one(&self, files: &Files, operation: &Operation) -> Result<bool, AppError> {
        let Some(user) = self.inner.db.user(operation.user).await? else { return Ok(true) };
        let person = Actor { user, via: Via::Cli, address: None, request_id: None };
        let request = &operation.request;
        let within = match request["to_space"].as_str().map(str::parse) {
            Some(Ok(name)) => files.within(&person, &name, Need::Write).await?,
            Some(Err(_)) => return Ok(true),
            None => files.within_id(&person, operation.space, Need::Write).await?,
        };
        let items = request["items"].as_array().map_or(std::slice::from_ref(request), Vec::as_slice);
        let is_long_ago = operation.ended_at.is_some_and(|at| at + LOOKED_FOR < self.inner.clock.now());
        let (mut is_clear, mut stays) = (true, None);
        for (number, item) in items.iter().enumerate() {
            let text = |field: &str| item[field].as_str().map(str::to_owned);
            let raw = text("raw_to");
            let to = AskedPath::new("to", text("to").filter(|_| raw.is_none()), raw).parse_inside()?;
            let Some((directory, _)) = to.split_last() else { continue };
            let part = PartSpot { space: within.number(), directory, id: part_of(operation.id, number) };
            match within.channel().await?.ask(Verb::RemovePart(part)).await?.outcome {
                Ok(_) => {}
                Err(problem) if matches!(problem.code, Code::NotFound | Code::NotADirectory) => is_clear &= is_long_ago,
                // The others need not stay, too.
                Err(problem) => stays = stays.or(Some(problem)),
            }
        }
        stays.map_or(Ok(is_clear), |problem| Err(problem.into()))
    }

    /// Has what the same have left that were interrupted gone on with by nobody, and removed: it is to begin anew.
    pub(crate) async fn give_up_the_same(
        &self,
        within: &Within,
        kind: OperationKind,
        request: &Value,
    ) -> Result<(), AppError> {
        let left = self.inner.db.interrupted_of(within.actor().user.id, MOST_LOOKED_AT).await?;
        let is_same = |row: &&Operation| row.space == within.space().id && row.kind == kind && row.request == *request;
        for row in left.iter().filter(is_same) {
            self.inner.give_up(row).await?;
        }
        Ok(())
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, HashSet<OperationId>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the same person that asked for the very same and were interrupted, the newest first. Nobody else takes them, and what they left is not
    /// removed, until they are let go.
    pub(super) async fn take_left(&self, operation: &Operation) -> Result<Vec<OperationId>, AppError> {
        if !matches!(operation.kind, OperationKind::Copy | OperationKind::Move) {
            return Ok(Vec::new());
        }
        let left = self.left_of_the_same(operation).await?;
        let free: Vec<_> = {
            let mut held = self.held();
            let free = left.into_iter().filter(|id| !held.contains(id)).take(MOST_EARLIER).collect();
            held.extend(&free);
            free
        };
        if free.is_empty() {
            return Ok(free);
        }
        // Whoever held one of them until a moment ago may have been done with it, and has noted so before.
        let still = match self.left_of_the_same(operation).await {
            Ok(still) => still,
            Err(error) => {
                self.let_go(&free);
                return Err(error);
            }
        };
        let (same, over): (Vec<_>, Vec<_>) = free.into_iter().partition(|id| still.contains(id));
        self.let_go(&over);
        Ok(same)
    }

    /// What the same have left that were interrupted, as the rows say it, the newest first.
    async fn left_of_the_same(&self, operation: &Operation) -> Result<Vec<OperationId>, AppError> {
        let left = self.db.interrupted_of(operation.user, MOST_LOOKED_AT).await?;
        let is_same = |row: &Operation| {
            row.space == operation.space && row.kind == operation.kind && row.request == operation.request
        };
        Ok(left.into_iter().filter(is_same).map(|row| row.id).collect())
    }

    /// They may be taken and removed again.
    pub(super) fn let_go(&self, operations: &[OperationId]) {
        let mut held = self.held();
        for id in operations {
            held.remove(id);
        }
    }

    /// Notes that nobody goes on with what an operation left, where it was interrupted.
    pub(super) async fn give_up(&self, operation: &Operation) -> Result<(), AppError> {
        let is_kept = matches!(operation.kind, OperationKind::Copy | OperationKind::Move);
        if operation.state == OperationState::Interrupted && is_kept && operation.progress["cleared"] != true {
            let mut progress = operation.progress.clone();
            progress["given_up"] = json!(true);
            self.db.note_left(operation.id, &progress).await?;
        }
        Ok(())
    }

    /// The same for those that were gone on with and are done: there is no more of them to go on with.
    pub(super) async fn give_up_all(&self, operations: &[OperationId]) {
        for id in operations {
            let given_up = match self.db.operation(*id).await {
                Ok(Some(row)) => self.give_up(&row).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = given_up {
                // It is removed later, then.
                tracing::warn!(operation = %id, %error, "it could not be noted that an operation was gone on with");
            }
        }
    }
}
