//! Batches on their way to the portal: what it has not taken yet, the newest of it, and how much of it is gone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eirene_tunnel::message::FromAgent;
use tokio::sync::Notify;

/// Bytes that are kept for each node of the session while the portal is away: some minutes of one with eight GPUs, more than half an hour of a small
/// one.
const BYTES_OF_NODE: usize = 1024 * 1024;
/// Bytes that are kept of all nodes together: they are the agent's, and so a part of what its job may have on the first node.
const MOST_BYTES: usize = 32 * BYTES_OF_NODE;
/// Most batches that are said before the last word; the portal may already be in a hurry.
const MOST_AT_THE_END: usize = 64;

/// The batches. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    kept: Arc<Mutex<Kept>>,
    more: Arc<Notify>,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// As large as they are counted: a text may have room for twice as much.
    batches: VecDeque<Box<str>>,
    bytes: usize,
    /// How many the portal will never have, since that was last said.
    lost: u64,
}

impl Kept {
    fn pop(&mut self) -> Option<FromAgent> {
        let batch = self.batches.pop_front()?;
        self.bytes = self.bytes.saturating_sub(batch.len());
        Some(FromAgent::Samples { batch: batch.into() })
    }

    /// Lets the oldest go; whether there was one.
    fn lose(&mut self) -> bool {
        let is_lost = self.pop().is_some();
        self.lost += u64::from(is_lost);
        is_lost
    }
}

impl Outbox {
    /// For a session on so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        let most_bytes = nodes.max(1).saturating_mul(BYTES_OF_NODE).min(MOST_BYTES);
        Self { kept: Arc::default(), more: Arc::default(), most_bytes }
    }

    /// Takes one more; the oldest ones go where there is no room, whichever node they are of.
    pub(crate) fn put(&self, batch: String) {
        {
            let mut kept = self.lock();
            kept.bytes += batch.len();
            kept.batches.push_back(batch.into_boxed_str());
            while kept.bytes > self.most_bytes && kept.lose() {}
        }
        self.more.notify_one();
    }

    /// Waits for the oldest. Can be cancelled: nothing is lost by that.
    pub(crate) async fn next(&self) -> FromAgent {
        loop {
            let oldest = self.lock().pop();
            match oldest {
                Some(message) => return message,
                None => self.more.notified().await,
            }
        }
    }

    /// The newest that are still there, before the last word.
    pub(crate) fn last(&self) -> Vec<FromAgent> {
        let mut kept = self.lock();
        while kept.batches.len() > MOST_AT_THE_END && kept.lose() {}
        std::iter::from_fn(|| kept.pop()).collect()
    }

    /// A sentence about those that are lost, once for an outage: when nothing is left that the portal has not taken.
    pub(crate) fn lost(&self) -> Option<String> {
        let mut kept = self.lock();
        if !kept.batches.is_empty() || kept.lost == 0 {
            return None;
        }
        let lost = std::mem::take(&mut kept.lost);
        Some(format!(
            "the portal could not take all samples in time: the oldest are gone, and charts lack them (batches: {lost})"
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(message: &FromAgent) -> usize {
        let FromAgent::Samples { batch } = message else { panic!("{message:?}") };
        batch.trim_start_matches('x').parse().unwrap()
    }

    #[tokio::test]
    async fn the_newest_are_kept_and_told_in_order() {
        let outbox = Outbox::new(1);
        let many = 3 * BYTES_OF_NODE / 1000;
        for count in 0..many {
            outbox.put(format!("{}{count:06}", "x".repeat(994)));
        }
        let first = number(&outbox.next().await);
        assert_eq!(many - first, BYTES_OF_NODE / 1000);
        assert_eq!(number(&outbox.next().await), first + 1);
        let last: Vec<usize> = outbox.last().iter().map(number).collect();
        assert_eq!(last, (many - MOST_AT_THE_END..many).collect::<Vec<_>>());
        assert!(outbox.last().is_empty());
    }

    #[tokio::test]
    async fn what_is_lost_is_said_once_when_the_portal_has_the_rest() {
        let outbox = Outbox::new(1);
        let put = |count: usize| {
            for _ in 0..count {
                outbox.put("x".repeat(BYTES_OF_NODE / 2));
            }
        };
        put(2);
        assert_eq!(outbox.lost(), None);
        put(5);
        assert_eq!(outbox.lost(), None, "there may be more");
        outbox.next().await;
        put(2);
        for _ in 0..2 {
            assert_eq!(outbox.lost(), None, "it is not over yet");
            outbox.next().await;
        }
        let said = outbox.lost().unwrap();
        assert!(said.ends_with("charts lack them (batches: 6)"), "{said}");
        assert_eq!(outbox.lost(), None, "once");
        for _ in 0..MOST_AT_THE_END + 3 {
            outbox.put("1".into());
        }
        assert_eq!(outbox.last().len(), MOST_AT_THE_END);
        let said = outbox.lost().unwrap();
        assert!(said.ends_with("(batches: 3)"), "what is not said at the end is lost, too: {said}");
    }

    #[test]
    fn more_nodes_have_more_room_up_to_what_a_job_can_spare() {
        for (nodes, most) in [(0, 1), (1, 1), (3, 3), (32, 32), (64, 32), (usize::MAX, 32)] {
            let outbox = Outbox::new(nodes);
            for _ in 0..40 {
                outbox.put("x".repeat(BYTES_OF_NODE));
            }
            assert_eq!(outbox.last().len(), most, "{nodes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_what_comes_and_who_is_cancelled_loses_nothing() {
        let outbox = Outbox::new(1);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), outbox.next()).await;
        assert!(waited.is_err());
        let (message, ()) = tokio::join!(outbox.next(), async { outbox.put("1".into()) });
        assert_eq!(number(&message), 1);
    }
}
