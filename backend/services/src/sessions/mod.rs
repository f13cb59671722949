//! Sessions: starting, showing and stopping them; and what runs have in common with them. What happens in between is the
//! reconcilers' work; they write through [`Sessions::change`] like everybody else.

pub mod agent;
pub mod change;
mod fits;
pub mod notices;
pub mod reasons;
pub mod scratch;
pub mod start;

use std::sync::Arc;

use eirene_core::audit::{AuditEntry, NewAuditEvent};
use eirene_core::{Clock, Desired, JobKind, Scope, Session, SessionId, SessionState};
use eirene_database::{Db, StateFilter};
use eirene_words::say;
use serde_json::json;

pub use fits::{fits, out_of_range};
pub use start::{IdempotencyKey, StartSession, defaults};

use crate::Page;
use crate::actor::Actor;
use crate::audit::{Audit, Look};
use crate::authorize::visible;
use crate::cluster::overview::Overview;
use crate::config::Scratch;
use crate::error::{AppError, FieldError};
use crate::events::Events;
use crate::nudge::Nudges;
use crate::projects::Projects;
use crate::shared::Shared;
use crate::spaces::Spaces;
use crate::traces::Traces;

/// Longest page of a list.
pub const MAX_PAGE: u32 = 200;

/// What the service is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Audit log.
    pub audit: Audit,
    /// Events.
    pub events: Events,
    /// The cluster as its people see it.
    pub overview: Overview,
    /// Bells of the reconcilers.
    pub nudges: Nudges,
    /// Where traces go.
    pub traces: Traces,
    /// Sessions one person may have at once.
    pub most_live: u32,
    /// The fast scratch that is offered.
    pub scratch: Scratch,
    /// The spaces that sessions see.
    pub spaces: Spaces,
    /// Under which accounts people may submit.
    pub projects: Projects,
    /// Runs one person may have at once.
    pub most_runs: u32,
}

/// The sessions.
#[derive(Clone)]
pub struct Sessions {
    pub(super) parts: Shared<Parts>,
    /// Held while a row is added, and never while anybody else is asked.
    adding: Arc<tokio::sync::Mutex<()>>,
}

/// Which sessions, or runs.
#[derive(Debug, Clone)]
pub struct ListSessions {
    /// Everybody's, for admins.
    pub all: bool,
    /// Only those that are not over.
    pub live_only: bool,
    /// Where the page begins.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: u32,
}

/// A job that carries our mark and belongs to no session the database knows: it came back from a restored backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedJob {
    /// Cluster.
    pub cluster: String,
    /// Job number.
    pub job_id: u32,
    /// POSIX user id of its owner.
    pub uid: u32,
    /// When it was last seen.
    pub seen_at: jiff::Timestamp,
}

impl Sessions {
    /// The service.
    pub fn new(parts: Parts) -> Self {
        Self { parts: Shared::new(parts), adding: Arc::default() }
    }

    /// All sessions and runs that have not ended, for the site's own monitoring.
    pub async fn live(&self) -> Result<Vec<Session>, AppError> {
        Ok(self.parts.db.live_sessions().await?)
    }

    /// The present state of a session or run. The caller has authorised the reader, for instance by an event.
    pub async fn as_it_is(&self, id: SessionId) -> Result<Option<Session>, AppError> {
        Ok(self.parts.db.session(id).await?)
    }

    /// Newest first.
    pub async fn list(&self, actor: &Actor, query: ListSessions) -> Result<Page<Session>, AppError> {
        self.page(actor, JobKind::Session, query).await
    }

    /// One page of sessions or of runs.
    pub(super) async fn page(
        &self,
        actor: &Actor,
        kind: JobKind,
        query: ListSessions,
    ) -> Result<Page<Session>, AppError> {
        actor.require(Scope::SessionsRead)?;
        if query.all {
            actor.require_admin()?;
        }
        let owner = (!query.all).then_some(actor.user.id);
        let limit = query.limit.clamp(1, MAX_PAGE);
        let filter = if query.live_only { StateFilter::Live } else { StateFilter::All };
        let cursor = query.cursor.as_deref().map(str::parse).transpose();
        let cursor =
            cursor.map_err(|_| AppError::Invalid(vec![FieldError::new("cursor", say("wrong.list_cursor"))]))?;
        let mut items = self.parts.db.sessions_of(kind, owner, filter, cursor, limit + 1).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = if more { items.last().map(|session| session.id.to_string()) } else { None };
        Ok(Page { items, next })
    }

    /// One session.
    pub async fn get(&self, actor: &Actor, id: SessionId) -> Result<Session, AppError> {
        self.one(actor, JobKind::Session, id).await
    }

    /// One session or run.
    pub(super) async fn one(&self, actor: &Actor, kind: JobKind, id: SessionId) -> Result<Session, AppError> {
        actor.require(Scope::SessionsRead)?;
        let session = visible(&self.parts.db, actor, kind, id).await?;
        self.parts.audit.looked(actor, &session, Look::Session).await;
        Ok(session)
    }

    /// Asks a session to stop. A session that is over, or was asked already, stays as it is.
    pub async fn stop(&self, actor: &Actor, id: SessionId) -> Result<Session, AppError> {
        self.end(actor, JobKind::Session, id).await
    }

    /// Asks a session or a run to end.
    pub(super) async fn end(&self, actor: &Actor, kind: JobKind, id: SessionId) -> Result<Session, AppError> {
        actor.require(Scope::SessionsWrite)?;
        let before = visible(&self.parts.db, actor, kind, id).await?;
        if before.state.is_final() || before.desired == Desired::Ended {
            return Ok(before);
        }
        let details = json!({"owner": before.owner_name, "job_id": before.job.as_ref().map(|job| job.id)});
        let event = match kind {
            JobKind::Session => actor.audit("session.stop", &id.to_string(), "ok", details),
            JobKind::Run => actor.audit("run.cancel", &id.to_string(), "ok", details),
        };
        let entry = self.parts.audit.entry(event);
        self.ask_to_end(id, Some(&entry)).await?.ok_or(AppError::NotFound)
    }

    /// Writes down that it is to end, and wakes who sees to it.
    pub async fn ask_to_end(&self, id: SessionId, audit: Option<&AuditEntry>) -> Result<Option<Session>, AppError> {
        let end = |session: &mut Session| {
            if !session.state.is_final() {
                session.desired = Desired::Ended;
                session.state = SessionState::Stopping;
            }
        };
        let after = self.change_audited(id, end, audit).await?;
        self.parts.nudges.stop().notify_one();
        Ok(after)
    }

    /// Jobs with our mark that belong to no session; for admins.
    pub async fn adopted(&self, actor: &Actor) -> Result<Vec<AdoptedJob>, AppError> {
        actor.require_admin()?;
        let jobs = self.parts.db.adopted_jobs().await?;
        let shown = |job: eirene_database::AdoptedJob| AdoptedJob {
            cluster: job.cluster,
            job_id: job.job_id,
            uid: job.uid,
            seen_at: job.seen_at,
        };
        Ok(jobs.into_iter().map(shown).collect())
    }

    /// Writes what the platform itself did to a session into the audit log.
    pub async fn record(&self, event: NewAuditEvent) {
        self.parts.audit.record(event).await;
    }
}
