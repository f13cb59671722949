//! What runs on the session's nodes: steps, and programs that launchers on any node have started on any other. The portal is told of all of them
//! alike, and all are numbered together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use eirene_tunnel::message::StepReport;
use tokio::sync::watch;

/// What runs in one session. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reports: watch::Sender<Vec<StepReport>>,
    last: AtomicU32,
    begun: AtomicU32,
}

/// One that is told of, until this is dropped.
#[derive(Debug)]
pub(crate) struct Told {
    running: Running,
    number: u32,
}

impl Running {
    /// A number for the next one.
    pub(crate) fn next(&self) -> u32 {
        self.0.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// One more has begun: what is refused has not.
    pub(crate) fn count(&self) {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells of one that runs, or is about to.
    pub(crate) fn tell(&self, report: StepReport) -> Told {
        let number = report.number;
        self.0.reports.send_modify(|reports| reports.push(report));
        Told { running: self.clone(), number }
    }

    /// A program has begun on one node.
    pub(crate) fn program(&self, node: &str, command: String) -> Told {
        self.count();
        self.tell(StepReport { number: self.next(), command, ranks: 1, nodes: vec![node.to_owned()] })
    }

    /// What runs now, and what will.
    pub(crate) fn watch(&self) -> watch::Receiver<Vec<StepReport>> {
        self.0.reports.subscribe()
    }

    /// How many have begun, and how many ranks those have that run.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let ranks = self.0.reports.borrow().iter().fold(0_u32, |sum, report| sum.saturating_add(report.ranks));
        (self.0.begun.load(Ordering::Relaxed), ranks)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.running.0.reports.send_modify(|reports| reports.retain(|report| report.number != self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_told_until_it_is_over_and_counted_for_good() {
        let running = Running::default();
        let first = running.program("c2", "hostname".to_owned());
        let second = running.program("c1", "sleep 9".to_owned());
        let told = || running.watch().borrow().iter().map(|step| step.nodes[0].clone()).collect::<Vec<_>>();
        assert_eq!((told(), running.counts()), (vec!["c2".to_owned(), "c1".to_owned()], (2, 2)));
        drop(first);
        assert_eq!((told(), running.counts()), (vec!["c1".to_owned()], (2, 1)));
        drop(second);
        assert_eq!((told(), running.counts()), (Vec::new(), (2, 0)));
    }
}
