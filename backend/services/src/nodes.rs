//! What runs on the nodes of sessions, and what is being copied there, as their agents last said. Kept in memory: agents say it again whenever
//! they connect.
//!
//! An agent belongs to the person, so this is hostile text about her own session alone: bounded and cleaned here, and believed for no decision.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eirene_core::text::one_line;
use eirene_core::{NodeName, Session, SessionId, SessionState};
use eirene_tunnel::message::{
    Amount, MAX_NODES, MAX_SCRATCH_NODES, MAX_STEPS, NodeReport, NodeState, ScratchReport, StepReport,
};

/// Longest text from an agent, in characters.
const MAX_TEXT: usize = 300;

/// What the last connection that spoke has said of each session.
type Last = HashMap<SessionId, (u64, Arc<Report>)>;

/// The last report of each connected agent. Cheap to clone.
#[derive(Clone, Default)]
pub struct NodeReports {
    last: Arc<Mutex<Last>>,
    connections: Arc<AtomicU64>,
}

/// One connection of an agent: what it says is forgotten with it, if no newer one has spoken.
pub struct Reporter {
    reports: NodeReports,
    session: SessionId,
    connection: u64,
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let mut last = self.reports.lock();
        if last.get(&self.session).is_some_and(|(connection, _)| *connection == self.connection) {
            last.remove(&self.session);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Report {
    nodes: HashMap<NodeName, (NodeState, Option<String>)>,
    steps: Vec<StepReport>,
    copied: Option<Copied>,
}

/// What has been copied to a session's scratch, or from it, of how much where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// On all nodes together.
    pub all: Share,
    /// On single nodes, where there are several.
    pub nodes: Vec<(NodeName, Share)>,
}

/// A part of something, and the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// What is there.
    pub copied: Amount,
    /// Of how much, where that is known; never less than what is there.
    pub total: Option<Amount>,
}

impl Share {
    /// Out of hostile numbers: what JSON's readers take for integers, and a whole that is one.
    pub fn of(copied: Amount, total: Option<Amount>) -> Self {
        let most = i64::MAX.unsigned_abs();
        let copied = Amount { bytes: copied.bytes.min(most), files: copied.files.min(most) };
        let whole = |total: Amount| Amount {
            bytes: total.bytes.clamp(copied.bytes, most),
            files: total.files.clamp(copied.files, most),
        };
        Self { copied, total: total.map(whole) }
    }
}

/// A node of a session and what runs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node.
    pub name: NodeName,
    /// Whether ranks can be started there; none while the agent has not said it.
    pub state: Option<NodeState>,
    /// Why they cannot.
    pub text: Option<String>,
    /// Whether the session's app runs there.
    pub has_app: bool,
    /// Steps with ranks there.
    pub steps: Vec<RunningStep>,
}

/// A step, as one of its nodes sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningStep {
    /// The session's own number for it.
    pub number: u32,
    /// What it runs.
    pub command: String,
    /// Ranks on all its nodes together.
    pub ranks: u32,
    /// How many nodes it has.
    pub nodes: u32,
}

impl Reporter {
    /// Takes a report; false when it says what was known already.
    pub fn note(&self, nodes: Vec<NodeReport>, steps: Vec<StepReport>) -> bool {
        let nodes = nodes.into_iter().take(MAX_NODES).filter_map(|node| {
            let text = node.text.as_deref().map(clean).filter(|text| !text.is_empty());
            Some((node.name.parse().ok()?, (node.state, text)))
        });
        let steps = steps.into_iter().take(MAX_STEPS).map(|mut step| {
            step.command = clean(&step.command);
            step.nodes.truncate(MAX_NODES);
            step
        });
        let (nodes, steps) = (nodes.collect(), steps.collect());
        self.change(|known| Report { nodes, steps, ..known })
    }

    /// Takes what is being copied; none is over. False when it says what was known already.
    pub fn note_copied(&self, copied: Option<(Share, Vec<ScratchReport>)>) -> bool {
        let share = |node: ScratchReport| Some((node.name.parse().ok()?, Share::of(node.copied, node.total)));
        let copied = copied.map(|(all, nodes)| Copied {
            all,
            nodes: nodes.into_iter().take(MAX_SCRATCH_NODES).filter_map(share).collect(),
        });
        self.change(|known| Report { copied, ..known })
    }

    fn change(&self, edit: impl FnOnce(Report) -> Report) -> bool {
        let mut last = self.reports.lock();
        let known = last.get(&self.session).map(|(_, known)| Arc::clone(known)).unwrap_or_default();
        let report = edit((*known).clone());
        let is_new = *known != report || !last.contains_key(&self.session);
        last.insert(self.session, (self.connection, Arc::new(report)));
        is_new
    }
}

impl NodeReports {
    /// For an agent that has come.
    pub fn open(&self, session: SessionId) -> Reporter {
        Reporter { reports: self.clone(), session, connection: self.connections.fetch_add(1, Ordering::Relaxed) }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being copied to the scratch of a session, or from it. Nodes that only the agent names are not the session's.
    pub fn copied(&self, session: &Session) -> Option<Copied> {
        let mut copied = self.lock().get(&session.id)?.1.copied.clone()?;
        copied.nodes.retain(|(name, _)| session.nodes.contains(name));
        Some(copied)
    }

    /// The nodes of a session that is not over, in its own order. Nodes that only the agent names are not the session's.
    pub fn of(&self, session: &Session) -> Vec<NodeStatus> {
        if session.state.is_final() {
            return Vec::new();
        }
        let report = self.lock().get(&session.id).map(|(_, report)| Arc::clone(report)).unwrap_or_default();
        let runs = session.state == SessionState::Running;
        let status = |(place, name): (usize, &NodeName)| {
            let (state, text) = report.nodes.get(name).cloned().unzip();
            let here = report.steps.iter().filter(|step| step.nodes.iter().any(|node| node == name.as_str()));
            NodeStatus {
                name: name.clone(),
                state,
                text: text.flatten(),
                has_app: runs && place == 0,
                steps: here.map(running).collect(),
            }
        };
        session.nodes.iter().enumerate().map(status).collect()
    }
}

fn running(step: &StepReport) -> RunningStep {
    let nodes = u32::try_from(step.nodes.len()).unwrap_or(u32::MAX);
    RunningStep { number: step.number, command: step.command.clone(), ranks: step.ranks, nodes }
}

/// One short printable line out of hostile text.
pub fn clean(text: &str) -> String {
    one_line(text, MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use crate::testing;

    use super::*;

    fn report(name: &str, state: NodeState, text: Option<&str>) -> NodeReport {
        NodeReport { name: name.to_owned(), state, text: text.map(ToOwned::to_owned) }
    }

    fn step(nodes: &[&str]) -> StepReport {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        StepReport { number: 3, command: "python\ttrain.py\u{1b}[2J".to_owned(), ranks: 4, nodes }
    }

    #[test]
    fn what_runs_on_each_node_is_told_in_the_sessions_own_order() {
        let mut session = testing::session("ada");
        session.nodes = vec!["c2".parse().unwrap(), "c1".parse().unwrap()];
        session.state = SessionState::Running;
        let reports = NodeReports::default();
        let silent = reports.of(&session);
        assert_eq!((silent.len(), silent[0].state, silent[0].has_app, silent[1].has_app), (2, None, true, false));
        let lost = report("c1", NodeState::Lost, Some("its helper\nhas ended"));
        let nodes = vec![report("c2", NodeState::Ready, None), lost, report("d7", NodeState::Ready, None)];
        let first = reports.open(session.id);
        assert!(first.note(nodes.clone(), vec![step(&["c2"])]));
        assert!(!first.note(nodes.clone(), vec![step(&["c2"])]), "nothing is new");
        let told = reports.of(&session);
        assert_eq!(told[0].steps[0].command, "python train.py\u{fffd}[2J");
        assert_eq!((told[1].state, told[1].text.as_deref()), (Some(NodeState::Lost), Some("its helper has ended")));
        assert!(told[1].steps.is_empty() && told.len() == 2);
        let second = reports.open(session.id);
        assert!(!second.note(nodes, vec![step(&["c2"])]));
        drop(first);
        assert_eq!(reports.of(&session), told, "the newer connection counts");
        drop(second);
        assert_eq!(reports.of(&session), silent);
        session.state = SessionState::Ended;
        assert!(reports.of(&session).is_empty());
    }

    #[test]
    fn what_is_copied_is_told_beside_what_runs_and_makes_sense_whatever_an_agent_says() {
        let mut session = testing::session("ada");
        session.nodes = vec!["c1".parse().unwrap()];
        let reports = NodeReports::default();
        assert_eq!(reports.copied(&session), None);
        let agent = reports.open(session.id);
        let amount = |n: u64| Amount { bytes: n, files: n };
        let node = |name: &str| ScratchReport {
            name: name.to_owned(),
            copied: amount(2),
            total: Some(amount(1)),
            kept: false,
            text: None,
        };
        let all = Share::of(amount(u64::MAX), Some(amount(3)));
        let nodes: Vec<_> = ["c1", "d7", "<b>"].into_iter().map(node).collect();
        assert!(agent.note_copied(Some((all, nodes.clone()))));
        assert!(!agent.note_copied(Some((all, nodes))), "nothing is new");
        agent.note(vec![report("c1", NodeState::Ready, None)], Vec::new());
        let copied = reports.copied(&session).unwrap();
        let most = amount(i64::MAX.unsigned_abs());
        assert_eq!((copied.all.copied, copied.all.total), (most, Some(most)), "a part is no more than the whole");
        let c1 = Share { copied: amount(2), total: Some(amount(2)) };
        assert_eq!(copied.nodes, [("c1".parse().unwrap(), c1)]);
        assert!(agent.note_copied(None));
        assert_eq!((reports.copied(&session), reports.of(&session).len()), (None, 1));
        drop(agent);
        assert!(reports.lock().is_empty());
    }

    #[test]
    fn an_agent_that_says_too_much_is_cut_short() {
        let session = testing::session("ada");
        let reports = NodeReports::default();
        let nodes = (0..10_000).map(|n| report(&format!("n{n}"), NodeState::Ready, Some(&"x".repeat(9_000)))).collect();
        let agent = reports.open(session.id);
        agent.note(nodes, vec![step(&["c1"; 500]); 5_000]);
        let last = Arc::clone(&reports.lock()[&session.id].1);
        assert_eq!((last.nodes.len(), last.steps.len(), last.steps[0].nodes.len()), (MAX_NODES, MAX_STEPS, MAX_NODES));
        assert!(last.nodes.values().all(|(_, text)| text.as_ref().unwrap().len() == MAX_TEXT));
    }
}
