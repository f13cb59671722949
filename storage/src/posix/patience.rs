//! Waits for looks that may never end. A look at a dead mount cannot be ended from outside: its thread stays until the mount comes back. So a place
//! whose last look still hangs is not looked at again, and where many hang nothing is: threads are finite, and others need some too.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eirene_core::storage::{Place, StorageError};

/// Looks that may hang at once.
const MOST_HUNG: usize = 32;
/// Seconds after which a place that was away is looked at again.
pub(super) const RETRY_AFTER_S: u64 = 10;

/// Which looks hang.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience {
    hung: Arc<Mutex<HashSet<Place>>>,
}

/// How a look stands, under the lock of [`Patience`]: given up first, or ended first.
#[derive(Debug, Default)]
struct Ended(bool);

impl Patience {
    fn lock(&self) -> MutexGuard<'_, HashSet<Place>> {
        self.hung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks in a thread of its own, and gives it up after `longest`.
    pub(super) async fn wait<T: Send + 'static>(
        &self,
        place: &Place,
        longest: Duration,
        look: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        {
            let hung = self.lock();
            if hung.contains(place) || hung.len() >= MOST_HUNG {
                return Err(away("an earlier look has not ended yet"));
            }
        }
        let ended = Arc::new(Mutex::new(Ended::default()));
        let ends = End { patience: self.clone(), place: place.clone(), ended: Arc::clone(&ended) };
        let looked = tokio::task::spawn_blocking(move || {
            // Also when the look panics: it is not under way any more.
            let _ends = ends;
            look()
        });
        match tokio::time::timeout(longest, looked).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => Err(StorageError::Away { source: Some(error.into()), retry_after_s: RETRY_AFTER_S }),
            Err(error) => {
                let mut hung = self.lock();
                if !ended.lock().unwrap_or_else(PoisonError::into_inner).0 {
                    hung.insert(place.clone());
                }
                Err(StorageError::Away { source: Some(error.into()), retry_after_s: RETRY_AFTER_S })
            }
        }
    }
}

/// Says that a look has ended, when it is dropped.
struct End {
    patience: Patience,
    place: Place,
    ended: Arc<Mutex<Ended>>,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut hung = self.patience.lock();
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).0 = true;
        hung.remove(&self.place);
    }
}

fn away(why: &'static str) -> StorageError {
    StorageError::Away { source: Some(why.into()), retry_after_s: RETRY_AFTER_S }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn place(number: usize) -> Place {
        Place::Root(format!("root-{number}").parse().unwrap())
    }

    fn is_away<T>(looked: &Result<T, StorageError>) -> bool {
        matches!(looked, Err(StorageError::Away { .. }))
    }

    /// A look at a place that hangs until what is given back is dropped, and was given up.
    async fn hang(patience: &Patience, place: &Place) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel::<()>();
        let looked = patience.wait(place, Duration::from_millis(1), move || {
            // Ends when the other end is dropped.
            let _ = held.recv();
            Ok(())
        });
        assert!(is_away(&looked.await));
        release
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_place_that_hangs_costs_one_thread_and_others_are_looked_at() {
        let patience = Patience::default();
        let release = hang(&patience, &place(1)).await;
        let again = patience.wait(&place(1), LONG, || -> Result<(), _> { unreachable!("nobody looks again") }).await;
        assert!(is_away(&again));
        assert_eq!(patience.wait(&place(2), LONG, || Ok(7)).await.unwrap(), 7);
        drop(release);
        while !patience.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(patience.wait(&place(1), LONG, || Ok(8)).await.unwrap(), 8);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn where_many_hang_no_more_are_begun() {
        let patience = Patience::default();
        let mut held = Vec::new();
        for number in 0..MOST_HUNG {
            held.push(hang(&patience, &place(number)).await);
        }
        let more = patience.wait(&place(MOST_HUNG), LONG, || -> Result<(), _> { unreachable!("nobody looks") }).await;
        assert!(is_away(&more));
        drop(held);
        while !patience.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(patience.wait(&place(MOST_HUNG), LONG, || Ok(1)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_look_that_panics_does_not_hang() {
        let patience = Patience::default();
        let looked = patience.wait(&place(1), LONG, || -> Result<(), _> { panic!("a look") }).await;
        assert!(is_away(&looked));
        assert_eq!(patience.wait(&place(1), LONG, || Ok(1)).await.unwrap(), 1);
    }
}
