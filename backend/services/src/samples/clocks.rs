//! Clocks of nodes that are wrong: what is told there is refused for its time, and people and admins hear why there is nothing. In memory, for some
//! minutes, of a bounded number of nodes; an agent's word, as all that it says, so nothing follows from it. Where most nodes are off by the same it is
//! most likely the portal's own clock, and no node is blamed.

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
/// Fewer nodes that are off by the same are off themselves.
const FEWEST: usize = 3;
/// Clocks that differ by no more than this are off by the same.
const SAME: SignedDuration = SignedDuration::from_mins(2);

/// A clock that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongClock {
    /// By the word of whose agent.
    pub session: SessionId,
    /// The node, which that session has.
    pub node: String,
    /// By how much it is ahead of the portal's; below zero it is behind.
    pub ahead: SignedDuration,
    /// Whether most nodes are off by the same, so that the wrong clock is most likely the portal's.
    pub is_common: bool,
}

impl WrongClock {
    /// Whole minutes that it is wrong by.
    pub fn minutes(&self) -> u64 {
        self.ahead.as_mins().unsigned_abs()
    }

    /// What people are told.
    pub fn text(&self) -> Sentence {
        if self.is_common {
            return portal_clock_text(self.minutes(), self.ahead.is_negative());
        }
        clock_text(&self.node, self.minutes(), self.ahead.is_negative())
    }
}

/// What people are told where most nodes are off by the same, behind the portal or ahead of it.
pub fn portal_clock_text(minutes: u64, are_behind: bool) -> Sentence {
    say_count(if are_behind { "clock.portal_ahead" } else { "clock.portal_behind" }, minutes, &[])
}

/// What people are told of the clock of a node.
pub fn clock_text(node: &str, minutes: u64, is_behind: bool) -> Sentence {
    let key = if is_behind { "clock.behind" } else { "clock.ahead" };
    say_count(key, minutes, &[("node", node)])
}

/// What is known lately.
#[derive(Debug, Default)]
struct Known {
    /// By session and node: by how much its clock was ahead the last time, and when that was by the portal's.
    wrong: HashMap<(SessionId, String), (SignedDuration, Timestamp)>,
    /// By node: when something told there was taken for the last time.
    right: HashMap<String, Timestamp>,
}

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
        if known.wrong.len() >= MOST && !known.wrong.contains_key(&key) {
            known.forget(now);
            if known.wrong.len() >= MOST {
                return;
            }
        }
        known.wrong.insert(key, (ahead, now));
    }

    /// What it tells now is taken.
    pub(super) fn right(&self, session: SessionId, node: &str, now: Timestamp) {
        let mut known = self.lock();
        if !known.wrong.is_empty() {
            known.wrong.remove(&(session, node.to_owned()));
        }
        if let Some(at) = known.right.get_mut(node) {
            *at = now;
            return;
        }
        if known.right.len() >= MOST {
            known.forget(now);
        }
        if known.right.len() < MOST {
            known.right.insert(node.to_owned(), now);
        }
    }

    /// All that are wrong, by node.
    fn all(&self, now: Timestamp) -> Vec<WrongClock> {
        let mut known = self.lock();
        known.forget(now);
        let common = known.common();
        let wrong = |((session, node), (ahead, _)): (&(SessionId, String), &(SignedDuration, Timestamp))| {
            let same = common.filter(|common| is_same(*ahead, *common) && !known.right.contains_key(node));
            WrongClock {
                session: *session,
                node: node.clone(),
                ahead: same.unwrap_or(*ahead),
                is_common: same.is_some(),
            }
        };
        let mut all: Vec<WrongClock> = known.wrong.iter().map(wrong).collect();
        all.sort_by(|one, other| (&one.node, one.session).cmp(&(&other.node, other.session)));
        all
    }
}

impl Known {
    fn forget(&mut self, now: Timestamp) {
        let is_late = |at: Timestamp| now.duration_since(at).abs() < KNOWN;
        self.wrong.retain(|_, (_, at)| is_late(*at));
        self.right.retain(|_, at| is_late(*at));
    }

    /// By how much most nodes are ahead that tell anything, if it is so. Where something is taken of a node, its clock is not off by that.
    fn common(&self) -> Option<SignedDuration> {
        let mut off: HashMap<&str, SignedDuration> = HashMap::new();
        for ((_, node), (ahead, _)) in self.wrong.iter().filter(|((_, node), _)| !self.right.contains_key(node)) {
            // Of several who tell of a node, the one who tells of less: which it is must not depend on their order.
            let least = off.entry(node).or_insert(*ahead);
            *least = (*least).min(*ahead);
        }
        let mut aheads: Vec<SignedDuration> = off.into_values().collect();
        aheads.sort_unstable();
        let told = aheads.len() + self.right.len();
        // Where more than half of all are off by the same, so is the one in the middle of those that are off.
        let middle = *aheads.get(aheads.len() / 2)?;
        let same = aheads.iter().filter(|ahead| is_same(**ahead, middle)).count();
        (same >= FEWEST && same * 2 > told).then_some(middle)
    }
}

fn is_same(one: SignedDuration, other: SignedDuration) -> bool {
    one.is_negative() == other.is_negative() && one.saturating_sub(other).abs() <= SAME
}

impl Samples {
    /// Clocks of nodes that were wrong the last time something was told there, if that was lately; by node.
    pub fn wrong_clocks(&self) -> Vec<WrongClock> {
        self.inner.clocks.all(self.inner.clock.now())
    }

    /// Those of a session's nodes.
    pub fn wrong_clocks_of(&self, session: SessionId) -> Vec<WrongClock> {
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
        clocks.right(session, "n1", at(122));
        clocks.right(SessionId::generate(), "later", at(122));
        assert_eq!(clocks.all(at(122)).len(), 1);
        assert!(clocks.all(at(400)).is_empty());
    }

    #[test]
    fn it_is_said_which_way_and_by_how_much() {
        let clock = |ahead| WrongClock { session: SessionId::generate(), node: "n1".into(), ahead, is_common: false };
        for (seconds, said) in [(330, "The clock of node n1 is 5 minutes ahead"), (-7205, "n1 is 120 minutes behind")] {
            let text = clock(SignedDuration::from_secs(seconds)).text();
            assert!(text.as_str().contains(said) && !text.as_str().contains('{'), "{}", text.as_str());
            let common = WrongClock { is_common: true, ..clock(SignedDuration::from_secs(seconds)) }.text();
            let way = if seconds < 0 { "the portal's clock is ahead" } else { "the portal's clock is behind" };
            assert!(common.as_str().contains(way) && !common.as_str().contains('{'), "{}", common.as_str());
        }
    }

    #[test]
    fn where_most_nodes_are_off_by_the_same_it_is_the_portals_clock() {
        let clocks = Clocks::default();
        let minutes = SignedDuration::from_mins;
        let common = |second| -> Vec<String> {
            let all = clocks.all(at(second)).into_iter();
            all.filter(|clock| clock.is_common).map(|clock| clock.node).collect()
        };
        let none = Vec::<String>::new();
        let wrong = |node, ahead| clocks.wrong(SessionId::generate(), node, ahead, at(0));
        wrong("a", minutes(8));
        wrong("b", minutes(9));
        assert_eq!(common(1), none, "two are their own business");
        wrong("c", minutes(-70));
        assert_eq!(common(1), none, "it goes the other way");
        wrong("d", minutes(10));
        assert_eq!(common(1), ["a", "b", "d"]);
        assert!(clocks.all(at(1)).iter().all(|clock| clock.is_common == (clock.ahead == minutes(9))));
        // Nodes of which all is taken say that the portal's is right.
        for node in ["e", "f"] {
            clocks.right(SessionId::generate(), node, at(0));
        }
        assert_eq!(common(1), none, "they are half of all");
        wrong("g", minutes(9));
        assert_eq!(common(1), ["a", "b", "d", "g"]);
        // Where one is taken and another is not, it is no clock that both have.
        clocks.right(SessionId::generate(), "g", at(0));
        assert_eq!(common(1), none);
        assert_eq!(common(500), none);
    }
}
