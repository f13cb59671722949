//! What the portal is told of the session's nodes: how they are, and which steps run on them.
//!
//! Told whenever it has changed, but not for every step of a program that starts hundreds. What ranks do is not looked at.

use eirene_core::text::one_line;
use std::time::Duration;

use eirene_tunnel::message::{
    FromAgent, MAX_NODE_TEXT, MAX_NODES, MAX_STEPS, NodeReport, NodeState as Word, StepReport,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::helpers::{Node, NodeState, Nodes};

/// Shortest time between two reports.
const GAP: Duration = Duration::from_millis(500);

/// The next report, as soon as there is something new.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    nodes: watch::Receiver<Nodes>,
    steps: watch::Receiver<Vec<StepReport>>,
    /// None before the first one.
    told: Option<Instant>,
}

impl Report {
    /// Of these nodes and steps, from their present state on.
    pub(crate) fn new(nodes: watch::Receiver<Nodes>, steps: watch::Receiver<Vec<StepReport>>) -> Self {
        Self { nodes, steps, told: None }
    }

    /// Waits for the next one. Can be cancelled: then nothing counts as told.
    pub(crate) async fn next(&mut self) -> FromAgent {
        if let Some(told) = self.told {
            tokio::select! {
                Ok(()) = self.nodes.changed() => self.nodes.mark_changed(),
                Ok(()) = self.steps.changed() => self.steps.mark_changed(),
                // The agent is about to end.
                else => std::future::pending().await,
            }
            tokio::time::sleep_until(told + GAP).await;
        }
        self.told = Some(Instant::now());
        message(&self.nodes.borrow_and_update(), &self.steps.borrow_and_update())
    }
}

/// What is wrong comes first, where not everything has room.
fn message(nodes: &Nodes, steps: &[StepReport]) -> FromAgent {
    let mut all: Vec<NodeReport> = nodes.iter().map(|(name, node)| of(name, node)).collect();
    all.sort_by_key(|node| match node.state {
        Word::Lost | Word::Unknown => 0,
        Word::Starting => 1,
        Word::Ready => 2,
    });
    all.truncate(MAX_NODES);
    let steps = steps.iter().take(MAX_STEPS).cloned().map(|mut step| {
        step.nodes.truncate(MAX_NODES);
        step
    });
    FromAgent::Nodes { nodes: all, steps: steps.collect() }
}

fn of(name: &str, node: &Node) -> NodeReport {
    let (state, text) = match &node.state {
        NodeState::Starting => (Word::Starting, None),
        NodeState::Ready => (Word::Ready, None),
        NodeState::Lost(why) => (Word::Lost, Some(short(why, MAX_NODE_TEXT))),
    };
    NodeReport { name: name.to_owned(), state, text }
}

/// So many bytes of a text at most, on one line.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut bytes = 0;
    let fits = |letter: &char| {
        bytes += letter.len_utf8();
        bytes <= most
    };
    one_line(text, most).chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: NodeState) -> Node {
        Node { state, directory: None, names: Vec::new() }
    }

    fn step(number: u32) -> StepReport {
        StepReport { number, command: "x".repeat(64), ranks: 8, nodes: vec!["n".repeat(64); 500] }
    }

    #[test]
    fn the_longest_report_is_one_line_and_names_what_is_wrong() {
        let lost = || node(NodeState::Lost("\u{1f525}".repeat(500)));
        let mut nodes: Nodes = (0..1000).map(|n| (format!("{n:a>64}"), node(NodeState::Ready))).collect();
        nodes.insert("z".repeat(64), lost());
        let told = message(&nodes, &(0..20).map(step).collect::<Vec<_>>());
        let FromAgent::Nodes { nodes: named, .. } = &told else { panic!("{told:?}") };
        assert_eq!(named[0].state, Word::Lost);
        let all_lost: Nodes = nodes.into_keys().map(|name| (name, lost())).collect();
        for told in [told, message(&all_lost, &(0..20).map(step).collect::<Vec<_>>())] {
            let line = serde_json::to_vec(&told).unwrap();
            assert!(line.len() < eirene_tunnel::message::MAX_LINE, "{} bytes", line.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_one_report_and_none_is_lost() {
        let (nodes, seen_nodes) = watch::channel(Nodes::from([("c1".to_owned(), node(NodeState::Starting))]));
        let (steps, seen_steps) = watch::channel(Vec::new());
        let mut report = Report::new(seen_nodes, seen_steps);
        let begun = Instant::now();
        assert!(matches!(report.next().await, FromAgent::Nodes { steps, .. } if steps.is_empty()));
        nodes.send_modify(|nodes| drop(nodes.insert("c1".to_owned(), node(NodeState::Ready))));
        for number in 0..100 {
            steps.send_modify(|steps| *steps = vec![step(number)]);
        }
        // Somebody else spoke first.
        assert!(tokio::time::timeout(GAP / 2, report.next()).await.is_err());
        let FromAgent::Nodes { nodes: now, steps: running } = report.next().await else { panic!() };
        assert_eq!((now[0].state, running[0].number), (Word::Ready, 99));
        assert!(begun.elapsed() >= GAP);
        assert!(tokio::time::timeout(GAP * 4, report.next()).await.is_err(), "nothing is new");
    }
}
