//! How fast an agent may talk: a bucket of tokens that fills with time. Who is too fast waits, and its own connection's flow control with it.

use std::time::{Duration, Instant};

/// A bucket.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: f64,
    burst: f64,
    level: f64,
    at: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second: per_second.into(), burst: burst.into(), level: burst.into(), at: Instant::now() }
    }

    pub(super) fn per_minute(per_minute: u32, burst: u32) -> Self {
        Self { per_second: f64::from(per_minute) / 60.0, ..Self::new(1, burst) }
    }

    /// Takes one if there is one; whether there was none.
    pub(super) fn would_wait(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.level = (self.level + passed * self.per_second).min(self.burst);
        let empty = self.level < 1.0;
        if !empty {
            self.level -= 1.0;
        }
        empty
    }

    /// Takes `amount` and says how long to wait for it.
    pub(super) fn take(&mut self, amount: usize, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        // Debt is bounded too: nobody waits for what others asked a minute ago.
        self.level = ((self.level + passed * self.per_second).min(self.burst) - amount as f64).max(-10.0 * self.burst);
        if self.level >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.level / self.per_second) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_do_without_takes_only_what_is_there() {
        let mut pace = Pace::per_minute(6, 2);
        let begun = pace.at;
        let taken: Vec<bool> = (0..4).map(|_| pace.would_wait(begun)).collect();
        assert_eq!(taken, [false, false, true, true]);
        assert!(!pace.would_wait(begun + Duration::from_secs(10)));
        assert!(pace.would_wait(begun + Duration::from_secs(11)));
    }

    #[test]
    fn who_takes_more_than_there_is_waits() {
        let mut pace = Pace::new(10, 20);
        let begun = pace.at;
        assert_eq!(pace.take(20, begun), Duration::ZERO);
        assert_eq!(pace.take(10, begun), Duration::from_secs(1));
        assert_eq!(pace.take(10, begun + Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(pace.take(20, begun + Duration::from_hours(1)), Duration::ZERO);
    }
}
