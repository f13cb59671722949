//! Time comes in by parameter, so that every rule can be tested with a clock of its own.

use jiff::Timestamp;
use std::sync::{Arc, Mutex};

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The time now, UTC.
    fn now(&self) -> Timestamp;
}

/// The machine's clock, truncated to microseconds: what the database keeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// A clock that stands still until it is moved, for tests.
#[derive(Debug, Clone)]
pub struct MockClock(Arc<Mutex<Timestamp>>);

impl MockClock {
    /// A clock that stands at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(at)))
    }

    /// Moves the clock forward by whole seconds (backward when negative).
    pub fn advance_s(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now += jiff::SignedDuration::from_secs(seconds);
    }
}

impl Clock for MockClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
