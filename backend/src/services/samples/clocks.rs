//! Clocks of nodes that are wrong: what is told there is refused for its time, and people and admins hear why there is nothing. In memory, for some
//! minutes, of a bounded number of nodes; an agent's word, as all that it says, so nothing follows from it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eirene_core::{Sentence, SessionId};
use eirene_words::say_count;
use jiff::{SignedDuration, Timestamp};

use super::Samples;

/// What was refused longer ago says nothing of how a clock is now: agents tell something every five seconds.
const KNOWN: SignedDuration = SignedDuration::from_mins(2);
/// Of so many nodes of sessions it is known at most.
const MOST: usize = 4096;

/// A clock that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongClock {
    /// By the word of whose agent.
    pub(crate) session: SessionId,
    /// The node, which that session has.
    pub(crate) node: String,
    /// By how much it is ahead of the portal's; below zero it is behind.
    pub(crate) ahead: SignedDuration,
}

impl WrongClock {
    /// Whole minutes that it is wrong by.
    pub(crate) fn minutes(&self) -> u64 {
        self.ahead.as_mins().unsigned_abs()
    }

    /// What people are told.
    pub(crate) fn text(&self) -> Sentence {
        clock_text(&self.node, self.minutes(), self.ahead.is_negative())
    }
}

/// What people are told of the clock of a node.
pub(crate) fn clock_text(node: &str, minutes: u64, is_behind: bool) -> Sentence {
    let key = if is_behind { "clock.behind" } else { "clock.ahead" };
    say_count(key, minutes, &[("node", node)])
}

/// By session and node: by how much its clock was ahead the last time, and when that was by the portal's.
type Known = HashMap<(SessionId, String), (SignedDuration, Timestamp)>;

/// What is known of clocks.
#[derive(Debug, Default)]
pub(super) struct Clocks(Mutex<Known>);

impl Clocks {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that a session's agent told of this node was refused for its time.
    pub(super) fn wrong(&self, session: SessionId, node: &str, ahead: SignedDuration, now: Timestamp) {
        let mut known = self.lock();
        let key = (session, node.to_owned());
        if known.len() >= MOST && !known.contains_key(&key) {
            forget(&mut known, now);
            if known.len() >= MOST {
                return;
            }
        }
        known.insert(key, (ahead, now));
    }

    /// What it tells now is taken.
    pub(super) fn right(&self, session: SessionId, node: &str) {
        let mut known = self.lock();
        if !known.is_empty() {
            known.remove(&(session, node.to_owned()));
        }
    }

    /// All that are wrong, by node.
    fn all(&self, now: Timestamp) -> Vec<WrongClock> {
        let mut known = self.lock();
        forget(&mut known, now);
        let wrong = |((session, node), (ahead, _)): (&(SessionId, String), &(SignedDuration, Timestamp))| WrongClock {
            session: *session,
            node: node.clone(),
            ahead: *ahead,
        };
        let mut all: Vec<WrongClock> = known.iter().map(wrong).collect();
        all.sort_by(|one, other| (&one.node, one.session).cmp(&(&other.node, other.session)));
        all
    }
}

fn forget(known: &mut Known, now: Timestamp) {
    known.retain(|_, (_, at)| now.duration_since(*at).abs() < KNOWN);
}

impl Samples {
    /// Clocks of nodes that were wrong the last time something was told there, if that was lately; by node.
    pub(crate) fn wrong_clocks(&self) -> Vec<WrongClock> {
        self.inner.clocks.all(self.inner.clock.now())
    }

    /// Those of a session's nodes.
    pub(crate) fn wrong_clocks_of(&self, session: SessionId) -> Vec<WrongClock> {
        let mut all = self.wrong_clocks();
        all.retain(|clock| clock.session == session);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn so_many_are_known_at_most_and_for_a_while() {
        let clocks = Clocks::default();
        let session = SessionId::generate();
        let ahead = SignedDuration::from_mins(6);
        for number in 0..MOST + 10 {
            clocks.wrong(session, &format!("n{number}"), ahead, at(0));
        }
        assert_eq!(clocks.all(at(1)).len(), MOST);
        clocks.wrong(session, "n1", -ahead, at(60));
        clocks.wrong(session, "later", ahead, at(121));
        let wrong = clocks.all(at(122));
        let told: Vec<(&str, i64)> = wrong.iter().map(|clock| (clock.node.as_str(), clock.ahead.as_mins())).collect();
        assert_eq!(told, [("later", 6), ("n1", -6)]);
        clocks.right(session, "n1");
        clocks.right(SessionId::generate(), "later");
        assert_eq!(clocks.all(at(122)).len(), 1);
        assert!(clocks.all(at(400)).is_empty());
    }

    #[test]
    fn it_is_said_which_way_and_by_how_much() {
        let clock = |ahead| WrongClock { session: SessionId::generate(), node: "n1".into(), ahead };
        for (seconds, said) in [(330, "The clock of node n1 is 5 minutes ahead"), (-7205, "n1 is 120 minutes behind")] {
            let text = clock(SignedDuration::from_secs(seconds)).text();
            assert!(text.as_str().contains(said) && !text.as_str().contains('{'), "{}", text.as_str());
        }
    }
}
