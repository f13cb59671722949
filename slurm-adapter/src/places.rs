//! How many programs the launcher is asked to run at once as the service account. It runs at most eight for one user and refuses
//! more, and a refused look leaves open what it was to find out; so calls wait here for their turn, and two places stay free for
//! programs that outlive our wait for them. The poll has a place of its own, which no crowd of other calls takes.

use eirene_core::scheduler::SchedulerResult;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::calls::{TIMEOUT, unreachable};

/// Places of calls other than the poll's.
const OTHERS: usize = 5;

pub(crate) struct Places {
    others: Semaphore,
    poll: Semaphore,
}

impl Default for Places {
    fn default() -> Self {
        Self { others: Semaphore::new(OTHERS), poll: Semaphore::new(1) }
    }
}

impl Places {
    /// The place of what the poll asks for: the lists.
    pub(crate) async fn poll(&self, what: &str) -> SchedulerResult<SemaphorePermit<'_>> {
        take(&self.poll, what).await
    }

    /// A place for any other call.
    pub(crate) async fn other(&self, what: &str) -> SchedulerResult<SemaphorePermit<'_>> {
        take(&self.others, what).await
    }
}

async fn take<'a>(places: &'a Semaphore, what: &str) -> SchedulerResult<SemaphorePermit<'a>> {
    match tokio::time::timeout(TIMEOUT, places.acquire()).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) | Err(_) => Err(unreachable(what, "too many calls at once")),
    }
}
