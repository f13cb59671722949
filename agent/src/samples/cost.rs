//! What sampling costs: processor time of the threads that do it, and of the helper that asks GPUs. Sending what was sampled is the tunnel's, and not
//! in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// Processor time so far. Cheap to clone: all clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Cost {
    nanos: Arc<AtomicU64>,
}

impl Cost {
    /// Does something, and counts what this thread has computed for it.
    pub(super) fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = processor_time(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let done = work();
        if let (Some(begun), Some(now)) = (begun, processor_time(ClockId::CLOCK_THREAD_CPUTIME_ID)) {
            self.add(now.saturating_sub(begun));
        }
        done
    }

    /// All of it.
    pub(super) fn so_far(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn add(&self, time: Duration) {
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }
}

/// A process that samples for the agent, until it has been waited for.
#[derive(Debug)]
pub(super) struct Process {
    id: Pid,
    counted: Duration,
}

impl Process {
    /// The process with this number. None of its time has been counted.
    pub(super) fn new(id: u32) -> Option<Self> {
        Some(Self { id: Pid::from_raw(i32::try_from(id).ok()?), counted: Duration::ZERO })
    }

    /// Counts what it has computed since the last time.
    pub(super) fn count(&mut self, cost: &Cost) {
        let Some(now) = clock_getcpuclockid(self.id).ok().and_then(processor_time) else { return };
        cost.add(now.saturating_sub(self.counted));
        self.counted = self.counted.max(now);
    }
}

/// clock_gettime(2).
fn processor_time(clock: ClockId) -> Option<Duration> {
    clock.now().ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_computed_is_counted_and_waiting_is_not() {
        let cost = Cost::default();
        // Another thread computes, and this one waits for it.
        let computed = Duration::from_millis(100);
        let computes = move || while processor_time(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap() < computed {};
        cost.of(|| std::thread::spawn(computes).join().unwrap());
        assert!(cost.so_far() < computed, "{:?}", cost.so_far());
        let before = cost.so_far();
        let sum = cost.of(|| (0..1_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)));
        assert!(cost.clone().so_far() > before, "{sum}");
    }

    #[test]
    fn a_process_is_counted_while_it_is_there_and_each_second_of_it_once() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (cost, mut process) = (Cost::default(), Process::new(child.id()).unwrap());
        while cost.so_far() < Duration::from_millis(20) {
            process.count(&cost);
        }
        child.kill().unwrap();
        // Waited for only below: what it computed up to its end can still be asked for.
        while !std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") Z ") {
            std::thread::yield_now();
        }
        process.count(&cost);
        let all = cost.so_far();
        process.count(&cost);
        assert_eq!(cost.so_far(), all, "nothing is counted twice");
        child.wait().unwrap();
        process.count(&cost);
        assert_eq!(cost.so_far(), all, "whoever has its number now is another one");
        assert!(Process::new(u32::MAX).is_none());
    }
}
