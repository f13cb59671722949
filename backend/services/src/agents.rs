//! Agents: who is [let in](admission), and which are connected. The newest connection of a session is the one that counts; an older one is closed.

pub mod admission;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eirene_core::SessionId;
use eirene_tunnel::message::FromPortal;
use eirene_tunnel::{Opener, StreamKind, TunnelStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::nudge::Nudges;
use crate::shared::Shared;
use crate::workers::WorkerId;

/// An agent that does not take a new stream within this time is not there.
const OPEN_WAIT: Duration = Duration::from_secs(10);
/// Seconds an app has between being asked to end and being killed.
const STOP_GRACE_S: u32 = 10;
/// What one agent does makes the poller look at most once in this time: looking means listing everybody's jobs.
const NUDGE_GAP: Duration = Duration::from_secs(5);

/// There is no way to the session's app at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session's agent is not connected")]
pub struct NoTunnel;

/// The connected agents.
#[derive(Clone, Default)]
pub struct TunnelRegistry {
    inner: Shared<Inner>,
}

#[derive(Default)]
struct Inner {
    live: Mutex<HashMap<SessionId, Live>>,
    serial: AtomicU64,
    turns: Mutex<Turns>,
}

/// Sessions for which the poller was woken a short while ago.
#[derive(Default)]
struct Turns(HashMap<SessionId, Turn>);

struct Turn {
    quiet_until: Instant,
    /// Whether the poller is woken again then.
    again: bool,
}

impl Turns {
    /// When to wake the poller because of this session; never, when that is on its way.
    fn take(&mut self, session: SessionId, now: Instant) -> Option<Instant> {
        self.0.retain(|_, turn| turn.again || turn.quiet_until > now);
        let Some(turn) = self.0.get_mut(&session) else {
            self.0.insert(session, Turn { quiet_until: now + NUDGE_GAP, again: false });
            return Some(now);
        };
        (!std::mem::replace(&mut turn.again, true)).then_some(turn.quiet_until)
    }

    /// The poller is woken for the second time.
    fn again(&mut self, session: SessionId, now: Instant) {
        self.0.insert(session, Turn { quiet_until: now + NUDGE_GAP, again: false });
    }
}

struct Live {
    serial: u64,
    job_id: u32,
    restart_count: u32,
    worker: WorkerId,
    opener: Opener,
    control: mpsc::Sender<FromPortal>,
    closing: CancellationToken,
}

/// A connection's place in the register; dropped, the place is free.
pub struct Registration {
    registry: TunnelRegistry,
    session: SessionId,
    serial: u64,
    /// Cancelled when the connection is to end.
    pub closing: CancellationToken,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut live = self.registry.lock();
        if live.get(&self.session).is_some_and(|entry| entry.serial == self.serial) {
            live.remove(&self.session);
        }
        drop(live);
        self.closing.cancel();
    }
}

impl TunnelRegistry {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Live>> {
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a connection in, which this thread carries; the one that was there before is closed.
    pub fn insert(
        &self,
        session: SessionId,
        (job_id, restart_count): (u32, u32),
        opener: Opener,
        control: mpsc::Sender<FromPortal>,
    ) -> Registration {
        let serial = self.inner.serial.fetch_add(1, Ordering::Relaxed);
        let closing = CancellationToken::new();
        let worker = WorkerId::here();
        let entry = Live { serial, job_id, restart_count, worker, opener, control, closing: closing.clone() };
        if let Some(older) = self.lock().insert(session, entry) {
            older.closing.cancel();
        }
        Registration { registry: self.clone(), session, serial, closing }
    }

    /// Opens a stream to the session's app.
    pub async fn open_app(&self, session: SessionId) -> Result<TunnelStream, NoTunnel> {
        let opener = self.lock().get(&session).map(|live| live.opener.clone()).ok_or(NoTunnel)?;
        match tokio::time::timeout(OPEN_WAIT, opener.open(StreamKind::App)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                tracing::debug!(session.id = %session, %error, "A stream was not opened");
                Err(NoTunnel)
            }
            Err(_) => Err(NoTunnel),
        }
    }

    /// Cancelled when the session's streams have to end: it is over, or its agent has gone or been replaced.
    pub fn revoked(&self, session: SessionId) -> CancellationToken {
        let token = self.lock().get(&session).map(|live| live.closing.child_token());
        token.unwrap_or_else(|| {
            let gone = CancellationToken::new();
            gone.cancel();
            gone
        })
    }

    /// Whether the session's agent is connected.
    pub fn is_live(&self, session: SessionId) -> bool {
        self.lock().get(&session).is_some_and(|live| !live.opener.is_closed())
    }

    /// The job the session's connected agent runs in.
    pub fn job_of(&self, session: SessionId) -> Option<u32> {
        self.lock().get(&session).filter(|live| !live.opener.is_closed()).map(|live| live.job_id)
    }

    /// The worker that carries the session's connection.
    pub fn worker(&self, session: SessionId) -> Option<WorkerId> {
        self.lock().get(&session).map(|live| live.worker)
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Asks the agent to end its app; whether there was one to ask.
    pub fn stop(&self, session: SessionId) -> bool {
        let live = self.lock();
        live.get(&session).is_some_and(|live| live.control.try_send(FromPortal::Stop { grace_s: STOP_GRACE_S }).is_ok())
    }

    fn turns(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.inner.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the poller because of this session: at once, or when its turn has come.
    pub fn nudge_poll(&self, session: SessionId, nudges: &Nudges) {
        let now = Instant::now();
        match self.turns().take(session, now) {
            Some(at) if at <= now => nudges.poll().notify_one(),
            Some(at) => {
                let (registry, nudges) = (self.clone(), nudges.clone());
                tokio::spawn(async move {
                    tokio::time::sleep_until(at).await;
                    registry.turns().again(session, Instant::now());
                    nudges.poll().notify_one();
                });
            }
            None => {}
        }
    }

    /// Closes the session's connection and all its streams.
    pub fn close(&self, session: SessionId) {
        if let Some(live) = self.lock().remove(&session) {
            live.closing.cancel();
        }
    }

    /// Closes the connection of an earlier run of the session's job.
    pub fn close_before(&self, session: SessionId, restart_count: u32) {
        let mut live = self.lock();
        if live.get(&session).is_some_and(|entry| entry.restart_count < restart_count)
            && let Some(older) = live.remove(&session)
        {
            older.closing.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_wakes_the_poller_once_in_a_while_and_its_last_word_is_not_lost() {
        let mut turns = Turns::default();
        let (hostile, honest, begun) = (SessionId::generate(), SessionId::generate(), Instant::now());
        assert_eq!(turns.take(hostile, begun), Some(begun));
        let later = begun + NUDGE_GAP / 10;
        assert_eq!(turns.take(hostile, later), Some(begun + NUDGE_GAP), "it is not forgotten");
        assert_eq!(turns.take(hostile, later), None, "but once is enough");
        assert_eq!(turns.take(honest, later), Some(later), "another session does not wait");
        let second = begun + NUDGE_GAP;
        assert_eq!(turns.take(hostile, second), None, "it is about to happen");
        turns.again(hostile, second);
        assert_eq!(turns.take(hostile, second), Some(second + NUDGE_GAP));
        turns.again(hostile, second + NUDGE_GAP);
        let much_later = second + NUDGE_GAP * 3;
        assert_eq!(turns.take(honest, much_later), Some(much_later));
        assert_eq!(turns.0.len(), 1, "nobody is remembered for longer");
    }
}
