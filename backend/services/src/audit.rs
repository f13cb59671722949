//! The audit log: who did what to whom. Append-only; only admins read it.

mod refusals;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eirene_core::audit::{AuditEntry, AuditEvent, NewAuditEvent};
use eirene_core::{Clock, JobKind, Session, SessionId, UserId, Username};
use eirene_database::Db;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use self::refusals::Refusals;
use crate::actor::Actor;
use crate::cause;
use crate::error::AppError;

/// Longest page.
const MAX_PAGE: u32 = 200;

/// A page that is open looks again and again: that is written down once in this time.
const LOOK_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// From this many remembered looks on, those that are over are forgotten.
const MANY_LOOKS: usize = 1_000;

/// At what of somebody else's session or run an admin looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Look {
    /// Where it is and what it asked for.
    Session,
    /// Its log.
    Log,
}

impl Look {
    fn action(self, kind: JobKind) -> &'static str {
        match (self, kind) {
            (Self::Session, JobKind::Session) => "session.view",
            (Self::Log, JobKind::Session) => "session.read_log",
            (Self::Session, JobKind::Run) => "run.view",
            (Self::Log, JobKind::Run) => "run.read_log",
        }
    }
}

/// Who looked at what, and when that was last written down.
type Looks = HashMap<(UserId, SessionId, Look), Timestamp>;

/// The audit log.
#[derive(Clone)]
pub struct Audit {
    db: Db,
    clock: Arc<dyn Clock>,
    looks: Arc<Mutex<Looks>>,
    refusals: Arc<Mutex<Refusals>>,
}

/// A request that HTTP refused: who sent it may not do this.
#[derive(Debug, Clone)]
pub struct RefusedRequest {
    /// Its id.
    pub id: String,
    /// Who sent it.
    pub sender: Username,
    /// From where.
    pub address: Option<IpAddr>,
    /// The HTTP method.
    pub method: &'static str,
    /// The route, without what stands in it for names and ids.
    pub route: String,
    /// Why.
    pub reason: &'static str,
}

/// Which part of the log.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only events before this number.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
    /// Only this actor's.
    pub actor: Option<String>,
    /// Only this action.
    pub action: Option<String>,
}

impl Audit {
    /// The log kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>) -> Self {
        Self { db, clock, looks: Arc::default(), refusals: Arc::default() }
    }

    /// Writes down that somebody looked at a session that is not theirs, once an hour for each.
    pub async fn looked(&self, actor: &Actor, session: &Session, at: Look) {
        if actor.user.id == session.owner || !self.is_news(actor.user.id, session.id, at) {
            return;
        }
        let details = json!({"owner": session.owner_name});
        self.record(actor.audit(at.action(session.kind()), &session.id.to_string(), "ok", details)).await;
    }

    fn is_news(&self, who: UserId, session: SessionId, at: Look) -> bool {
        let now = self.clock.now();
        let is_over = |since: Timestamp| now >= since + LOOK_EVERY;
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() >= MANY_LOOKS {
            looks.retain(|_, since| !is_over(*since));
        }
        let known = looks.get(&(who, session, at)).copied();
        let is_news = known.is_none_or(is_over);
        if is_news {
            looks.insert((who, session, at), now);
        }
        is_news
    }

    /// The entry for what happens now, to be written in one transaction with it.
    pub fn entry(&self, event: NewAuditEvent) -> AuditEntry {
        AuditEntry::new(event, self.clock.now())
    }

    /// Records that a change outside of the database begins: in SLURM, in the storage, in somebody's files. Where it cannot be recorded the change
    /// must not be made. How it ended is recorded afterwards, by [`Audit::record`].
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn begin(&self, event: NewAuditEvent) -> Result<(), AppError> {
        let entry = self.entry(NewAuditEvent { outcome: "begun", ..event });
        self.db.append_audit(&entry).await?;
        Ok(())
    }

    /// Makes a change outside of the database between two lines of the log: that it begins, without which it is not made, and how it ended. That is
    /// a task of its own: a request may end while SLURM or the storage makes the change, and what became of it is recorded all the same. An error is
    /// recorded as a failure too, because an answer that was lost may have been carried out.
    ///
    /// # Errors
    /// The database's; within, those of the change.
    pub(crate) async fn around<T, E>(
        &self,
        event: NewAuditEvent,
        change: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Result<T, E>, AppError>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let audit = self.clone();
        let changing = cause::spawn(async move {
            audit.begin(event.clone()).await?;
            let answer = change.await;
            let outcome = if answer.is_ok() { "ok" } else { "failed" };
            audit.record(NewAuditEvent { outcome, ..event }).await;
            Ok(answer)
        });
        changing.await.map_err(|error| AppError::Internal(error.into()))?
    }

    /// Records a refusal. Repeated refusals of a person within minutes share one more line, which counts them. The caller may be dropped: the line is
    /// written all the same.
    pub(crate) async fn refused(&self, event: NewAuditEvent) {
        let lines = self.fold(event);
        let audit = self.clone();
        // Only a panic could come back, and the log is written to the end without this answer.
        drop(cause::spawn(async move { audit.record_all(lines).await }).await);
    }

    /// Records what HTTP refused to a person. The answer does not wait: its time would tell what is hidden from what is not there.
    pub fn refused_request(&self, request: RefusedRequest) {
        let event = NewAuditEvent {
            actor: request.sender.to_string(),
            action: "http.request",
            target: format!("{} {}", request.method, request.route),
            outcome: "refused",
            details: json!({"reason": request.reason}),
            address: request.address.map(|address| address.to_string()),
            request_id: Some(request.id),
        };
        let lines = self.fold(event);
        if !lines.is_empty() {
            let audit = self.clone();
            cause::spawn(async move { audit.record_all(lines).await });
        }
    }

    /// Records the counted refusals whose window has ended.
    pub async fn record_ended_refusals(&self) {
        let lines = self.refusals().ended(self.clock.now());
        self.record_all(lines).await;
    }

    /// Records all counted refusals, before the program ends.
    pub async fn record_all_refusals(&self) {
        let lines = self.refusals().all();
        self.record_all(lines).await;
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fold(&self, event: NewAuditEvent) -> Vec<NewAuditEvent> {
        self.refusals().add(NewAuditEvent { outcome: "refused", ..event }, self.clock.now())
    }

    async fn record_all(&self, lines: Vec<NewAuditEvent>) {
        for line in lines {
            self.record(line).await;
        }
    }

    /// Records an event outside of a transaction: views, and how changes outside of the database ended. A failure is logged and not
    /// returned.
    pub async fn record(&self, event: NewAuditEvent) {
        let entry = self.entry(event);
        if let Err(error) = self.db.append_audit(&entry).await {
            let NewAuditEvent { action, target, .. } = entry.event();
            tracing::error!(%error, action, target, "An audit event could not be written");
        }
    }

    /// Newest events first.
    pub async fn list(&self, actor: &Actor, query: AuditQuery) -> Result<Vec<AuditEvent>, AppError> {
        actor.require_admin()?;
        let limit = query.limit.clamp(1, MAX_PAGE);
        Ok(self.db.audit_events(query.before, limit, query.actor.as_deref(), query.action.as_deref()).await?)
    }
}

/// An audit event of the platform itself.
pub fn by_system(
    reconciler: &str,
    action: &'static str,
    target: &str,
    outcome: &'static str,
    details: serde_json::Value,
) -> NewAuditEvent {
    NewAuditEvent {
        actor: format!("system:{reconciler}"),
        action,
        target: target.to_owned(),
        outcome,
        details,
        address: None,
        request_id: None,
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;

    use super::*;
    use crate::testing::TestApp;

    #[tokio::test]
    async fn an_admin_who_looks_at_others_sessions_is_written_down_once_an_hour() {
        let test = TestApp::new().await;
        let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
        let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
        let lines = async || -> Vec<(String, String)> {
            let all = test.audited().await;
            let looks =
                all.into_iter().rev().filter(|event| ["session.view", "session.read_log"].contains(&&*event.action));
            looks
                .map(|event| {
                    assert_eq!((event.target, event.details), (session.id.to_string(), json!({"owner": "ada"})));
                    (event.actor, event.action)
                })
                .collect()
        };
        let line = |action: &str| ("root-admin".to_owned(), action.to_owned());

        test.app.sessions.get(&ada, session.id).await.unwrap();
        test.app.logs.read(&ada, JobKind::Session, session.id).await.unwrap();
        assert!(test.app.sessions.get(&test.person("grace", 2002, Role::Researcher).await, session.id).await.is_err());
        assert_eq!(lines().await, [], "nobody looked at what is not theirs");
        for _ in 0..3 {
            test.app.sessions.get(&root, session.id).await.unwrap();
        }
        assert_eq!(lines().await, [line("session.view")]);
        // A session's events carry what its app prints.
        drop(test.app.events.subscribe(&root, Some((JobKind::Session, session.id)), None).await.unwrap());
        test.app.logs.read(&root, JobKind::Session, session.id).await.unwrap();
        drop(test.app.logs.follow(&root, JobKind::Session, session.id).await.unwrap());
        assert_eq!(lines().await, [line("session.view"), line("session.read_log")]);
        test.clock.advance_s(61 * 60);
        drop(test.app.logs.follow(&root, JobKind::Session, session.id).await.unwrap());
        test.app.sessions.get(&root, session.id).await.unwrap();
        assert_eq!(lines().await.len(), 4);
    }

    #[tokio::test]
    async fn looks_that_are_over_are_forgotten() {
        let test = TestApp::new().await;
        let audit = &test.app.audit;
        let who = UserId::generate();
        for _ in 0..MANY_LOOKS {
            assert!(audit.is_news(who, SessionId::generate(), Look::Session));
        }
        test.clock.advance_s(LOOK_EVERY.as_secs());
        assert!(audit.is_news(who, SessionId::generate(), Look::Session));
        assert_eq!(audit.looks.lock().unwrap().len(), 1);
    }
}
