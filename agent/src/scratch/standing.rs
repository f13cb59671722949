//! How far the scratches of all nodes are, and what the portal is told of that.
//!
//! Copies run in threads of their own and count what they have done; what is told of it is a picture now and then. The last word is said in any case.

use std::collections::BTreeMap;
use std::time::Duration;

use eirene_tunnel::message::{Amount, FromAgent, MAX_SCRATCH_NODES, MAX_SCRATCH_TEXT, ScratchReport, ScratchWord};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::report::short;

/// Shortest time between two words about it.
const GAP: Duration = Duration::from_secs(1);

/// How much has been copied on one node, of how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Amounts {
    copied: Amount,
    total: Option<Amount>,
}

/// Counts what is copied on this node. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(watch::Sender<Amounts>);

impl Meter {
    /// Whether somebody wants to know it.
    pub(super) fn is_watched(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// So much is about to be copied, where that is known.
    pub(super) fn begin(&self, total: Option<Amount>) {
        self.0.send_replace(Amounts { copied: Amount::default(), total });
    }

    /// So much more is there.
    pub(super) fn add(&self, bytes: u64, files: u64) {
        self.0.send_modify(|amounts| amounts.copied = amounts.copied.plus(Amount { bytes, files }));
    }

    /// Passes on what is counted, now and then, until nobody counts any more.
    pub(crate) fn follow(&self, mut say: impl FnMut(Amounts) + Send + 'static) {
        let mut amounts = self.0.subscribe();
        tokio::spawn(async move {
            while amounts.changed().await.is_ok() {
                say(*amounts.borrow_and_update());
                tokio::time::sleep(GAP).await;
            }
        });
    }
}

/// How the scratch of one node is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    amounts: Amounts,
    /// Whether something stays there that is owed.
    kept: bool,
    /// Why, where that is known.
    why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct All {
    /// None before there is to be one.
    state: Option<ScratchWord>,
    nodes: BTreeMap<String, Node>,
}

/// How the scratches of all nodes are. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing(watch::Sender<All>);

impl Standing {
    /// All of them are that far; what was counted before is over.
    pub(crate) fn enter(&self, state: ScratchWord) {
        self.0.send_modify(|all| {
            all.state = Some(state);
            all.nodes.values_mut().for_each(|node| node.amounts = Amounts::default());
        });
    }

    /// So much has been copied on a node.
    pub(crate) fn count(&self, node: &str, amounts: Amounts) {
        self.0.send_modify(|all| all.nodes.entry(node.to_owned()).or_default().amounts = amounts);
    }

    /// What was to be kept has been brought out, but on these nodes.
    pub(crate) fn end(&self, kept: Vec<(String, Option<String>)>) {
        self.0.send_modify(|all| {
            all.state = Some(if kept.is_empty() { ScratchWord::Done } else { ScratchWord::Kept });
            for (node, why) in kept {
                let node = all.nodes.entry(node).or_default();
                (node.kept, node.why) = (true, why);
            }
        });
    }

    /// What the portal is told, from now on.
    pub(crate) fn teller(&self) -> Teller {
        Teller { all: self.0.subscribe(), told: None }
    }
}

/// The next word about it, as soon as there is something new.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    all: watch::Receiver<All>,
    /// None before the first one.
    told: Option<Instant>,
}

impl Teller {
    /// Waits for the next one. Can be cancelled: then nothing counts as told.
    pub(crate) async fn next(&mut self) -> FromAgent {
        loop {
            if let Some(told) = self.told {
                self.changed().await;
                self.all.mark_changed();
                tokio::time::sleep_until(told + GAP).await;
            }
            if let Some(message) = self.last() {
                return message;
            }
            self.changed().await;
        }
    }

    /// How it is now, if there is anything to say.
    pub(crate) fn last(&mut self) -> Option<FromAgent> {
        let message = message(&self.all.borrow_and_update())?;
        self.told = Some(Instant::now());
        Some(message)
    }

    async fn changed(&mut self) {
        if self.all.changed().await.is_err() {
            // The agent is about to end.
            std::future::pending::<()>().await;
        }
    }
}

fn message(all: &All) -> Option<FromAgent> {
    let state = all.state?;
    let amounts = || all.nodes.values().map(|node| node.amounts);
    let copied = amounts().fold(Amount::default(), |sum, one| sum.plus(one.copied));
    // One node of which it is not known makes that of all of them unknown.
    let total = amounts().try_fold(Amount::default(), |sum, one| Some(sum.plus(one.total?)));
    let total = total.filter(|_| !all.nodes.is_empty());
    let report = |(name, node): (&String, &Node)| ScratchReport {
        name: name.clone(),
        copied: node.amounts.copied,
        total: node.amounts.total,
        kept: node.kept,
        text: node.why.as_ref().map(|text| short(text, MAX_SCRATCH_TEXT)),
    };
    let tells = |node: &Node| node.kept || (all.nodes.len() > 1 && node.amounts != Amounts::default());
    let mut nodes: Vec<ScratchReport> = all.nodes.iter().filter(|(_, node)| tells(node)).map(report).collect();
    nodes.sort_by_key(|node| !node.kept);
    nodes.truncate(MAX_SCRATCH_NODES);
    Some(FromAgent::Scratch { state, copied, total, nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(bytes: u64) -> Amount {
        Amount { bytes, files: 1 }
    }

    fn counted(bytes: u64, total: Option<u64>) -> Amounts {
        Amounts { copied: amount(bytes), total: total.map(amount) }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_copied_is_told_once_a_second_and_the_last_word_always() {
        let standing = Standing::default();
        let mut teller = standing.teller();
        let waits = tokio::time::timeout(Duration::from_hours(1), teller.next()).await;
        assert!(waits.is_err(), "a session without a scratch says nothing of one: {waits:?}");
        standing.enter(ScratchWord::Filling);
        assert!(matches!(teller.next().await, FromAgent::Scratch { state: ScratchWord::Filling, total: None, .. }));
        let begun = Instant::now();
        for bytes in 1..500 {
            standing.count("c1", counted(bytes, Some(500)));
        }
        let told = teller.next().await;
        let (copied, total) = (amount(499), Some(amount(500)));
        assert_eq!(told, FromAgent::Scratch { state: ScratchWord::Filling, copied, total, nodes: Vec::new() });
        assert!(begun.elapsed() >= GAP);
        standing.enter(ScratchWord::Ready);
        assert!(tokio::time::timeout(GAP / 2, teller.next()).await.is_err());
        let told = teller.next().await;
        let nothing = Amount::default();
        assert!(
            matches!(told, FromAgent::Scratch { state: ScratchWord::Ready, copied, .. } if copied == nothing),
            "what was broken off is told afterwards: {told:?}"
        );
        standing.end(Vec::new());
        assert!(matches!(teller.last(), Some(FromAgent::Scratch { state: ScratchWord::Done, .. })));
    }

    #[test]
    fn nodes_are_told_apart_where_there_are_several_or_one_keeps_something() {
        let standing = Standing::default();
        standing.enter(ScratchWord::Filling);
        standing.count("c1", counted(1, Some(2)));
        standing.count("c2", counted(3, None));
        let FromAgent::Scratch { copied, total, nodes, .. } = standing.teller().last().unwrap() else { panic!() };
        assert_eq!((copied.bytes, total, nodes.len()), (4, None, 2), "of one it is not known");
        standing.enter(ScratchWord::Emptying);
        standing.end(vec![("c2".to_owned(), Some("no room\n".to_owned()))]);
        let FromAgent::Scratch { state, nodes, .. } = standing.teller().last().unwrap() else { panic!() };
        assert_eq!((state, nodes.len(), nodes[0].kept), (ScratchWord::Kept, 1, true));
        assert_eq!((nodes[0].name.as_str(), nodes[0].text.as_deref()), ("c2", Some("no room")));
    }

    #[test]
    fn the_longest_word_about_it_is_one_line() {
        let standing = Standing::default();
        let kept = (0..1000).map(|n| (format!("{n:a>64}"), Some("\"".repeat(5000))));
        standing.end(kept.collect());
        let told = standing.teller().last().unwrap();
        let line = serde_json::to_vec(&told).unwrap();
        assert!(line.len() < eirene_tunnel::message::MAX_LINE, "{} bytes", line.len());
    }
}
