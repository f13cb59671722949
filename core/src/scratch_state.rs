//! How a session's fast scratch is, as its agent says it: what is kept of that when the agent is gone.
//!
//! Here is what may follow what. Which agent is believed is the tunnel's, and who may see it is the services'.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::name::NodeName;
use crate::scheduler::JobIdentity;

word_enum! {
    /// How far a scratch is, on all of its session's nodes together.
    ScratchPhase {
        /// It is being made and filled; the program has not begun.
        Filling = "filling",
        /// The program has it.
        Ready = "ready",
        /// The program has ended, and what is to be kept is being copied back.
        Emptying = "emptying",
        /// Nothing is owed any more, and it is removed.
        Done = "done",
        /// Something could not be copied back, and stays on a node; somebody comes for it.
        Kept = "kept",
        /// Nobody comes for it any more.
        Lost = "lost",
    }
}

/// A node that keeps something which is owed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOn {
    /// The node.
    pub node: NodeName,
    /// Why, as one sentence, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Who comes for it.
    #[serde(default, skip_serializing_if = "Rescue::is_none")]
    pub rescue: Rescue,
}

/// How far it is that what is kept on a node is brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rescue {
    /// How often that has failed.
    #[serde(default)]
    pub failures: u32,
    /// It is not tried again before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The job that does it, from the moment before it is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<RescueJob>,
}

impl Rescue {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A job that brings back what is kept on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescueJob {
    /// Unguessable job name by which a submit whose answer was lost is found again.
    pub marker: String,
    /// When a submit was last begun; set before the scheduler is asked.
    pub begun_at: Timestamp,
    /// The job, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<JobIdentity>,
}

/// How the scratch of one start of a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchState {
    /// Which start: each has a scratch of its own.
    pub restart_count: u32,
    /// How far it is.
    pub phase: ScratchPhase,
    /// The nodes that keep something; empty unless it is [`ScratchPhase::Kept`] or [`ScratchPhase::Lost`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptOn>,
    /// Whether its owner has been told that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}

impl KeptOn {
    /// Something that stays on a node.
    pub fn new(node: NodeName, text: Option<String>) -> Self {
        Self { node, text, rescue: Rescue::default() }
    }
}

impl ScratchState {
    /// Of one start of a session.
    pub fn new(restart_count: u32, phase: ScratchPhase, kept: Vec<KeptOn>) -> Self {
        Self { restart_count, phase, kept, told: false }
    }

    /// Whether there is something to do or to tell about it once its session is over.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.phase {
            ScratchPhase::Done => false,
            ScratchPhase::Lost => !self.told,
            ScratchPhase::Filling | ScratchPhase::Ready | ScratchPhase::Emptying | ScratchPhase::Kept => true,
        }
    }

    /// Whether `self` is news after what is known. A start is not heard of any more when there was a later one, and its scratch only goes forward:
    /// what has been said last of all stays.
    #[must_use]
    pub fn is_news(&self, known: Option<&Self>) -> bool {
        let Some(known) = known else { return true };
        match self.restart_count.cmp(&known.restart_count) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => self.phase.place() > known.phase.place(),
        }
    }
}

impl ScratchPhase {
    /// Its place on the way; the ends share one, so none follows another.
    fn place(self) -> u8 {
        match self {
            Self::Filling => 0,
            Self::Ready => 1,
            Self::Emptying => 2,
            Self::Done | Self::Kept | Self::Lost => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(restart_count: u32, phase: ScratchPhase) -> ScratchState {
        ScratchState::new(restart_count, phase, Vec::new())
    }

    #[test]
    fn a_scratch_goes_forward_and_another_start_begins_anew() {
        use ScratchPhase::{Done, Emptying, Filling, Kept, Ready};
        assert!(at(0, Ready).is_news(None), "whoever was away hears of it late");
        assert!(at(0, Kept).is_news(Some(&at(0, Filling))), "and not of every step");
        for (said, known) in [(Ready, Ready), (Filling, Ready), (Emptying, Done), (Done, Kept), (Kept, Done)] {
            assert!(!at(0, said).is_news(Some(&at(0, known))), "{known} → {said}");
        }
        assert!(at(1, Filling).is_news(Some(&at(0, Kept))));
        assert!(!at(0, Done).is_news(Some(&at(1, Filling))), "of an earlier start");
    }

    #[test]
    fn it_is_stored_as_it_is_read() {
        let kept = r#"{"restart_count":2,"phase":"kept","kept":[{"node":"c1","text":"no room"},{"node":"c2"}]}"#;
        let read: ScratchState = serde_json::from_str(kept).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), kept);
        assert_eq!(
            serde_json::to_string(&at(0, ScratchPhase::Ready)).unwrap(),
            r#"{"restart_count":0,"phase":"ready"}"#
        );
    }

    #[test]
    fn what_is_done_needs_nobody_any_more_and_what_is_lost_only_to_be_told() {
        let told = |phase, told| ScratchState { told, ..at(0, phase) }.is_open();
        assert!(!told(ScratchPhase::Done, false));
        assert!(told(ScratchPhase::Lost, false) && !told(ScratchPhase::Lost, true));
        assert!(told(ScratchPhase::Kept, true) && told(ScratchPhase::Ready, false));
    }

    proptest! {
        #[test]
        fn whatever_is_said_in_whatever_order_it_comes_to_rest(said in proptest::collection::vec((0_u32..3, 0_usize..6), 0..60)) {
            let mut known: Option<ScratchState> = None;
            let mut changes = 0;
            for (restart_count, phase) in said {
                let next = at(restart_count, ScratchPhase::ALL[phase]);
                if next.is_news(known.as_ref()) {
                    if let Some(known) = &known {
                        prop_assert!(next.restart_count >= known.restart_count);
                    }
                    known = Some(next);
                    changes += 1;
                }
            }
            // Four places in each of three starts: an agent that says nonsense makes no more of it than that.
            prop_assert!(changes <= 12, "{changes}");
        }
    }
}
