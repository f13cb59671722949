//! Why a sample was not taken, and how often each reason was met. Samples come from programs that people run; none of them may harm the
//! store or what others see, and what is not taken has to be seen by whoever looks at the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a sample was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The series' name is empty, longer than [`crate::MOST_NAME_BYTES`], or has characters other than printable ASCII without blanks.
    Name,
    /// NaN or an infinity.
    NotFinite,
    /// Farther from zero than [`crate::MOST_VALUE`].
    Huge,
    /// Later than now by more than [`crate::MOST_AHEAD_MS`].
    Future,
    /// Earlier than now by more than [`crate::MOST_BEHIND_MS`].
    Past,
    /// Earlier than what the series has by more than the window for late samples, or than what is already closed: a clock was set back.
    Late,
    /// The series has a sample of this very millisecond.
    Duplicate,
    /// More samples of one series than fit into a chunk.
    TooOften,
    /// The session has as many series as it may, or more than its part where memory for series runs short.
    TooManySeries,
    /// As many sessions as may be are open.
    TooManySessions,
    /// The memory for open chunks is used up, or nothing could be written for long.
    Busy,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Name,
        Self::NotFinite,
        Self::Huge,
        Self::Future,
        Self::Past,
        Self::Late,
        Self::Duplicate,
        Self::TooOften,
        Self::TooManySeries,
        Self::TooManySessions,
        Self::Busy,
    ];

    /// As a label of a metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::NotFinite => "not_finite",
            Self::Huge => "huge",
            Self::Future => "future",
            Self::Past => "past",
            Self::Late => "late",
            Self::Duplicate => "duplicate",
            Self::TooOften => "too_often",
            Self::TooManySeries => "too_many_series",
            Self::TooManySessions => "too_many_sessions",
            Self::Busy => "busy",
        }
    }
}

/// How often each reason was met since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; Refusal::ALL.len()]);

impl Counters {
    pub(crate) fn count(&self, refusal: Refusal) {
        if let Some(counter) = self.0.get(refusal as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn all(&self) -> Vec<(Refusal, u64)> {
        Refusal::ALL
            .into_iter()
            .zip(&self.0)
            .map(|(refusal, counter)| (refusal, counter.load(Ordering::Relaxed)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_place_and_a_label_of_its_own() {
        let counters = Counters::default();
        for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
            for _ in 0..=place {
                counters.count(refusal);
            }
        }
        let counts: Vec<u64> = counters.all().into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, (1..=11).collect::<Vec<_>>());
        let labels: std::collections::BTreeSet<_> = Refusal::ALL.into_iter().map(Refusal::label).collect();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
