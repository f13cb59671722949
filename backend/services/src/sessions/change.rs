//! The one way a session's row changes: read, change, write if nobody was faster, tell the open pages.

use eirene_core::audit::{AuditEntry, NewAuditEvent};
use eirene_core::{Session, SessionId, SessionState};
use eirene_words::say;

use super::Sessions;
use crate::error::AppError;
use crate::events::{EventKind, Fact};

/// How often a change that lost the race is tried again.
const TRIES: u32 = 16;

impl Sessions {
    /// Changes one session by `edit` and publishes it; `None` when there is no such session.
    ///
    /// `edit` may run several times, each time on the newest row, and must decide from that row alone. A change that leaves the row
    /// as it was is not written. A way the states do not know is refused as a fault of ours.
    pub async fn change(
        &self,
        id: SessionId,
        edit: impl Fn(&mut Session) + Send + Sync,
    ) -> Result<Option<Session>, AppError> {
        self.change_audited(id, edit, None).await
    }

    /// As [`Sessions::change`], with what the audit log says of it where the row is changed.
    pub async fn change_and_record(
        &self,
        id: SessionId,
        edit: impl Fn(&mut Session) + Send + Sync,
        event: NewAuditEvent,
    ) -> Result<Option<Session>, AppError> {
        self.change_audited(id, edit, Some(&self.parts.audit.entry(event))).await
    }

    /// The same, with a line in the audit log where the row is changed: neither is written without the other.
    pub(super) async fn change_audited(
        &self,
        id: SessionId,
        edit: impl Fn(&mut Session) + Send + Sync,
        audit: Option<&AuditEntry>,
    ) -> Result<Option<Session>, AppError> {
        for _ in 0..TRIES {
            let Some(before) = self.parts.db.session(id).await? else { return Ok(None) };
            let mut after = before.clone();
            edit(&mut after);
            if after == before {
                return Ok(Some(before));
            }
            if !before.state.may_become(after.state) {
                let what = format!("session {id} cannot go from `{}` to `{}`", before.state, after.state);
                return Err(AppError::Internal(anyhow::Error::msg(what)));
            }
            if after.state.is_final() && after.ended_at.is_none() {
                after.ended_at = Some(self.parts.clock.now());
            }
            if !self.parts.db.update_session(&after, audit).await? {
                continue;
            }
            after.version += 1;
            if before.state != after.state {
                tracing::info!(
                    session.id = %id,
                    from = before.state.as_str(),
                    to = after.state.as_str(),
                    reason = after.reason.as_ref().map(|reason| reason.code.as_str()),
                    "Session {id} changed its state"
                );
            }
            self.parts.traces.changed(&before, &after, self.parts.clock.now());
            self.publish(&after).await;
            return Ok(Some(after));
        }
        Err(AppError::Unavailable { what: say("away.session"), retry_after_s: 1 })
    }

    /// Tells the open pages what a session is now.
    pub(super) async fn publish(&self, session: &Session) {
        let fact = Fact::Session(Box::new(session.clone()));
        self.parts.events.publish(EventKind::State, Some(session.id), Some(session.owner), fact).await;
    }
}

/// Sets the state when the way there exists, so that late news cannot bring a session back.
pub fn advance(session: &mut Session, next: SessionState) -> bool {
    let possible = session.state != next && session.state.may_become(next);
    if possible {
        session.state = next;
    }
    possible
}
