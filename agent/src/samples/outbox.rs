//! Batches on their way to the portal: what it has not taken yet, the newest of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eirene_tunnel::message::FromAgent;
use tokio::sync::Notify;

/// Bytes that are kept while the portal is away: with one node about half an hour.
const MOST_BYTES: usize = 1024 * 1024;
/// Most batches that are said before the last word; the portal may already be in a hurry.
const MOST_AT_THE_END: usize = 64;

/// The batches. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outbox {
    kept: Arc<Mutex<Kept>>,
    more: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Kept {
    batches: VecDeque<String>,
    bytes: usize,
}

impl Kept {
    fn pop(&mut self) -> Option<FromAgent> {
        let batch = self.batches.pop_front()?;
        self.bytes = self.bytes.saturating_sub(batch.len());
        Some(FromAgent::Samples { batch })
    }
}

impl Outbox {
    /// Takes one more; the oldest ones go where there is no room.
    pub(crate) fn put(&self, batch: String) {
        {
            let mut kept = self.lock();
            kept.bytes += batch.len();
            kept.batches.push_back(batch);
            while kept.bytes > MOST_BYTES && kept.pop().is_some() {}
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
        while kept.batches.len() > MOST_AT_THE_END {
            kept.pop();
        }
        std::iter::from_fn(|| kept.pop()).collect()
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
        let outbox = Outbox::default();
        let many = 3 * MOST_BYTES / 1000;
        for count in 0..many {
            outbox.put(format!("{}{count:06}", "x".repeat(994)));
        }
        let first = number(&outbox.next().await);
        assert_eq!(many - first, MOST_BYTES / 1000);
        assert_eq!(number(&outbox.next().await), first + 1);
        let last: Vec<usize> = outbox.last().iter().map(number).collect();
        assert_eq!(last, (many - MOST_AT_THE_END..many).collect::<Vec<_>>());
        assert!(outbox.last().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_what_comes_and_who_is_cancelled_loses_nothing() {
        let outbox = Outbox::default();
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), outbox.next()).await;
        assert!(waited.is_err());
        let (message, ()) = tokio::join!(outbox.next(), async { outbox.put("1".into()) });
        assert_eq!(number(&message), 1);
    }
}
