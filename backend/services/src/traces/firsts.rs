//! What a session has once after its start: the first answer of its app that gets through to a browser, and the first kernel.
//!
//! Both are awaited from the moment that the app answers until they came or the session no longer runs, in the process that saw it begin to: after a
//! restart of the portal nothing is awaited of what runs already, so that a later answer is never told as the first.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use eirene_core::{JobKind, Session, SessionId, SessionState};

/// Sessions of which something is awaited; of more it is not told.
pub(super) const MOST_AWAITED: usize = 4096;
/// Where there are too many, a session that waits for longer makes room for others.
const AWAITED_FOR: Duration = Duration::from_hours(24);
/// The app that starts kernels.
const WITH_KERNELS: &str = "jupyterlab";

/// Which firsts: those that a request may be, or those that came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Firsts {
    /// An answer of the app to a person's browser.
    pub response: bool,
    /// A kernel that the app starts.
    pub kernel: bool,
}

impl Firsts {
    /// Whether there is one at all.
    pub fn any(self) -> bool {
        self.response || self.kernel
    }

    fn both(self, other: Self) -> Self {
        Self { response: self.response && other.response, kernel: self.kernel && other.kernel }
    }
}

/// What is awaited, of which sessions, and since when.
#[derive(Default)]
pub(super) struct Awaited(RwLock<HashMap<SessionId, (Firsts, Instant)>>);

impl Awaited {
    /// Begins to wait when an app answers that never did before, and ends when its session no longer runs.
    pub(super) fn changed(&self, before: &Session, after: &Session, now: Instant) {
        if before.state == after.state {
            return;
        }
        if after.state != SessionState::Running {
            self.write().remove(&after.id);
        } else if after.restart_count == 0 && after.kind() == JobKind::Session {
            self.add(after.id, Firsts { response: true, kernel: after.app.as_str() == WITH_KERNELS }, now);
        }
    }

    pub(super) fn add(&self, session: SessionId, firsts: Firsts, now: Instant) {
        let mut all = self.write();
        if all.len() >= MOST_AWAITED {
            all.retain(|_, (_, since)| now.saturating_duration_since(*since) < AWAITED_FOR);
        }
        if all.len() < MOST_AWAITED {
            all.insert(session, (firsts, now));
        }
    }

    /// Which of these are awaited.
    pub(super) fn of(&self, session: SessionId, firsts: Firsts) -> Firsts {
        if !firsts.any() {
            return firsts;
        }
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&session).map(|(awaited, _)| awaited.both(firsts)).unwrap_or_default()
    }

    /// These came: which of them were awaited until now. Whoever asks second gets nothing.
    pub(super) fn take(&self, session: SessionId, firsts: Firsts) -> Firsts {
        let mut all = self.write();
        let Some((awaited, _)) = all.get_mut(&session) else { return Firsts::default() };
        let taken = awaited.both(firsts);
        awaited.response &= !taken.response;
        awaited.kernel &= !taken.kernel;
        if !awaited.any() {
            all.remove(&session);
        }
        taken
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<SessionId, (Firsts, Instant)>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
