//! Tells the owner of a session that its time is nearly over, so that nothing is lost by surprise. Nobody sits at a run: its program is
//! warned by the agent, and no person.
//!
//! This is the one place that decides about it. What was told already is read back from the kept events at the start, so a restart of
//! the portal neither repeats a notice nor swallows one whose moment has come meanwhile. A session that is given more time is told anew.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use eirene_core::{Desired, JobKind, Session, SessionId, SessionState};
use eirene_words::words;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Sessions;
use crate::error::AppError;
use crate::events::EventKind;

/// Minutes before the end at which it is told, the last first.
const MOMENTS_MIN: [i64; 2] = [2, 10];
/// How often it is looked.
const EVERY: Duration = Duration::from_secs(5);
/// Ends that differ by less are the same: schedulers round.
const SAME_END: SignedDuration = SignedDuration::from_mins(1);
/// Events read back at once, and how often at most.
const BATCH: u32 = 500;
const MOST_BATCHES: u32 = 40;
/// What programs know the notice by.
const CODE: &str = "ends_soon";

/// Tells it.
pub struct Notices {
    sessions: Sessions,
    told: HashMap<SessionId, Told>,
    remembers: bool,
}

/// The last that was told about one session.
#[derive(Debug, Clone, Copy)]
struct Told {
    moment_min: i64,
    ends_at: Timestamp,
}

impl Told {
    fn covers(self, other: Self) -> bool {
        self.moment_min <= other.moment_min && self.ends_at.duration_since(other.ends_at).abs() < SAME_END
    }
}

/// The moment that has come for a session that long before its end.
fn moment(left: SignedDuration) -> Option<i64> {
    MOMENTS_MIN.into_iter().find(|moment| left <= SignedDuration::from_mins(*moment))
}

/// What there is to tell about `session` now.
fn due(session: &Session, now: Timestamp) -> Option<Told> {
    let is_session = session.kind() == JobKind::Session;
    let lives = is_session && matches!(session.state, SessionState::Starting | SessionState::Running);
    let ends_at = session.ends_at.filter(|_| lives && session.desired == Desired::Running)?;
    let left = ends_at.duration_since(now);
    let moment_min = moment(left).filter(|_| left.is_positive())?;
    // Whoever asked for five minutes knows that there are fewer than ten.
    let whole = session.started_at.map(|started| ends_at.duration_since(started));
    let is_news = whole.is_none_or(|whole| whole > SignedDuration::from_mins(moment_min));
    is_news.then_some(Told { moment_min, ends_at })
}

impl Notices {
    /// For all of `sessions`.
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions, told: HashMap::new(), remembers: false }
    }

    /// Looks again and again until eirened ends.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut failures = 0_u32;
        loop {
            match self.look().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        let cause = anyhow::Error::new(error);
                        tracing::warn!(
                            error = format!("{cause:#}"),
                            "Sessions that end soon were not looked for; the next look goes on"
                        );
                    }
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    /// Looks once.
    async fn look(&mut self) -> Result<(), AppError> {
        if !self.remembers {
            self.remember().await?;
            self.remembers = true;
        }
        let parts = &self.sessions.parts;
        let now = parts.clock.now();
        let live = parts.db.live_sessions().await?;
        let ids: HashSet<SessionId> = live.iter().map(|session| session.id).collect();
        self.told.retain(|id, _| ids.contains(id));
        for session in &live {
            let Some(due) = due(session, now) else { continue };
            if self.told.get(&session.id).is_some_and(|told| told.covers(due)) {
                continue;
            }
            self.told.insert(session.id, due);
            let data = notice(session, due.ends_at, now);
            parts.events.publish(EventKind::Notice, Some(session.id), Some(session.owner), data).await;
        }
        Ok(())
    }

    /// Reads back what was told before this process began.
    async fn remember(&mut self) -> Result<(), AppError> {
        let db = &self.sessions.parts.db;
        let longest = MOMENTS_MIN.into_iter().max().unwrap_or(0);
        let since = self.sessions.parts.clock.now() - SignedDuration::from_mins(longest);
        let mut up_to = db.latest_event_id().await?;
        for _ in 0..MOST_BATCHES {
            let from = up_to - i64::from(BATCH);
            let batch = db.events_after(from, BATCH).await?;
            for event in batch.iter().filter(|event| event.id <= up_to && event.kind == EventKind::Notice.as_str()) {
                let Some((session, told)) = event.session.zip(read(&event.data)) else { continue };
                let entry = self.told.entry(session).or_insert(told);
                if told.covers(*entry) || told.ends_at > entry.ends_at + SAME_END {
                    *entry = told;
                }
            }
            up_to = from;
            if up_to <= 0 || batch.first().is_none_or(|oldest| oldest.at < since) {
                break;
            }
        }
        Ok(())
    }
}

fn notice(session: &Session, ends_at: Timestamp, now: Timestamp) -> Value {
    let seconds = ends_at.duration_since(now).as_secs();
    let minutes = seconds / 60 + i64::from(seconds % 60 > 0);
    let count = u64::try_from(minutes).unwrap_or(0);
    json!({
        "code": CODE,
        "text": words().count_with("notice.ends_soon", count, &[("name", session.name.as_str())]),
        "session": session.id,
        "minutes_left": minutes,
        "ends_at": ends_at,
    })
}

/// What a notice that was kept has told.
fn read(data: &Value) -> Option<Told> {
    let minutes = data["minutes_left"].as_i64().filter(|_| data["code"] == CODE)?;
    let ends_at = data["ends_at"].as_str()?.parse().ok()?;
    Some(Told { moment_min: moment(SignedDuration::from_mins(minutes))?, ends_at })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;
    use crate::testing::{TestApp, start_time};

    /// A running session that ends this many minutes after the start of the test.
    async fn running(test: &TestApp, owner: &crate::actor::Actor, minutes: i64) -> Session {
        let (session, _) = test.app.sessions.start(owner, TestApp::wish(), None).await.unwrap();
        for state in [SessionState::Starting, SessionState::Running] {
            let changed = test.app.sessions.change(session.id, |session| {
                session.state = state;
                session.started_at = Some(start_time());
                session.ends_at = Some(start_time() + SignedDuration::from_mins(minutes));
            });
            changed.await.unwrap().unwrap();
        }
        test.row(session.id).await
    }

    /// Who was told that how many minutes are left.
    async fn told(test: &TestApp) -> Vec<(SessionId, i64)> {
        let events = test.app.db.events_after(0, 10_000).await.unwrap();
        let notices = events.into_iter().filter(|event| event.kind == "notice");
        notices.map(|event| (event.session.unwrap(), event.data["minutes_left"].as_i64().unwrap())).collect()
    }

    #[tokio::test]
    async fn the_end_is_told_twice_and_a_restart_tells_nothing_again() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let id = running(&test, &ada, 60).await.id;
        let mut stream = test.app.events.subscribe(&ada, None, None).await.unwrap();
        let mut notices = Notices::new(test.app.sessions.clone());
        notices.look().await.unwrap();
        test.clock.advance_s(49 * 60);
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, []);
        test.clock.advance_s(65);
        notices.look().await.unwrap();
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, [(id, 10)]);
        let event = stream.next().await.unwrap();
        assert_eq!((event.kind, event.session, event.owner), (EventKind::Notice, Some(id), Some(ada.user.id)));
        assert_eq!(event.fact.small()["text"], "10 minutes are left of session `jupyterlab`: save your work now");
        assert_eq!(event.fact.small()["ends_at"], "2026-01-02T04:04:05Z");

        // Many events later another process begins.
        for _ in 0..2 * BATCH {
            test.app.events.publish(EventKind::State, None, None, Value::Null).await;
        }
        let mut notices = Notices::new(test.app.sessions.clone());
        notices.look().await.unwrap();
        assert_eq!(told(&test).await.len(), 1);
        test.clock.advance_s(8 * 60);
        // Once more, at the very moment.
        let mut notices = Notices::new(test.app.sessions.clone());
        notices.look().await.unwrap();
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, [(id, 10), (id, 2)]);
        Notices::new(test.app.sessions.clone()).look().await.unwrap();
        assert_eq!(told(&test).await.len(), 2);
    }

    #[tokio::test]
    async fn only_those_that_go_on_and_did_not_ask_for_less_are_told() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let (long, short, stopped) =
            (running(&test, &ada, 60).await, running(&test, &ada, 5).await, running(&test, &ada, 60).await);
        test.app.sessions.stop(&ada, stopped.id).await.unwrap();
        let mut notices = Notices::new(test.app.sessions.clone());
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, []);
        test.clock.advance_s(3 * 60 + 30);
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, [(short.id, 2)]);
        test.clock.advance_s(49 * 60);
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, [(short.id, 2), (long.id, 8)]);
        // More time was given: there is something to tell again when it is nearly over.
        let more =
            |session: &mut Session| session.ends_at = session.ends_at.map(|at| at + SignedDuration::from_mins(30));
        test.app.sessions.change(long.id, more).await.unwrap();
        notices.look().await.unwrap();
        test.clock.advance_s(28 * 60);
        notices.look().await.unwrap();
        assert_eq!(told(&test).await, [(short.id, 2), (long.id, 8), (long.id, 10)]);
        test.clock.advance_s(60 * 60);
        notices.look().await.unwrap();
        assert_eq!(told(&test).await.len(), 3, "what is over is not told");
    }
}
