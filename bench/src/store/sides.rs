//! What is common to all sides: figures, points of a chart, and how a chart is timed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::time::ClockId;
use serde::{Deserialize, Serialize};

use super::workload::{Span, Workload};
use crate::stats::median;

/// Ticks between two times that what came has to be on the disk.
pub(super) const FLUSH: usize = 12;

/// One side in one round.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct Side {
    /// By processor time of all its threads: what one core takes.
    pub(super) samples_per_core_s: f64,
    /// By the clock, waiting for the disk included.
    pub(super) samples_per_s: f64,
    pub(super) bytes_per_sample: f64,
    #[serde(flatten)]
    pub(super) charts: Charts,
}

/// Microseconds of charts.
#[expect(clippy::struct_field_names, reason = "a unit stands in the name of each raw figure")]
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct Charts {
    /// Of all of the time.
    pub(super) chart_us: f64,
    /// The same, as fine as anybody may ask for.
    pub(super) fine_us: Option<f64>,
    /// Of its last hour.
    pub(super) hour_us: f64,
}

/// Times how samples are taken.
pub(super) struct Taking {
    begun: Instant,
    processor: Duration,
}

impl Taking {
    /// From now on.
    pub(super) fn begin() -> anyhow::Result<Self> {
        Ok(Self { begun: Instant::now(), processor: processor_time()? })
    }

    /// So many were taken: how many in a second of one core, and by the clock.
    pub(super) fn end(self, samples: usize) -> anyhow::Result<(f64, f64)> {
        let (clock, processor) = (self.begun.elapsed(), processor_time()?.saturating_sub(self.processor));
        Ok((samples as f64 / processor.as_secs_f64(), samples as f64 / clock.as_secs_f64()))
    }
}

/// Of all threads of this process, clock_gettime(2).
fn processor_time() -> anyhow::Result<Duration> {
    Ok(ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?.into())
}

/// A chart as it is folded from samples: least, sum, greatest and count of each series in each span.
#[cfg(feature = "peers")]
pub(super) struct Fold {
    span: Span,
    step_ms: i64,
    series: Vec<Vec<Option<[f64; 4]>>>,
}

#[cfg(feature = "peers")]
impl Fold {
    /// Of so many series.
    pub(super) fn new(series: usize, span: Span) -> Self {
        let step_ms = step_ms(span);
        let spans = usize::try_from((span.to_ms - span.from_ms) / step_ms + 1).unwrap_or(0);
        Self { span, step_ms, series: vec![vec![None; spans]; series] }
    }

    /// Takes in one sample, where it is in the time.
    pub(super) fn add(&mut self, series: usize, at_ms: i64, value: f64) {
        if !(self.span.from_ms..self.span.to_ms).contains(&at_ms) {
            return;
        }
        let place = usize::try_from((at_ms - self.span.from_ms) / self.step_ms).unwrap_or(usize::MAX);
        let Some(point) = self.series.get_mut(series).and_then(|points| points.get_mut(place)) else { return };
        let [least, sum, greatest, count] = point.unwrap_or([value, 0.0, value, 0.0]);
        *point = Some([least.min(value), sum + value, greatest.max(value), count + 1.0]);
    }

    /// How many series have something to draw.
    pub(super) fn lines(&self) -> usize {
        self.series.iter().filter(|points| points.iter().any(Option::is_some)).count()
    }
}

/// Length of a span of the chart.
pub(super) fn step_ms(span: Span) -> i64 {
    (span.to_ms - span.from_ms) / i64::from(span.points) + 1
}

/// The charts: medians of so many. `chart` draws one and says how many lines it has.
pub(super) fn charts(
    workload: &Workload,
    times: usize,
    mut chart: impl FnMut(Span) -> anyhow::Result<usize>,
) -> anyhow::Result<Charts> {
    let mut timed = |span: Span| {
        let mut micros = Vec::with_capacity(times);
        for _ in 0..times {
            let begun = Instant::now();
            let lines = chart(span)?;
            micros.push(begun.elapsed().as_secs_f64() * 1e6);
            ensure!(lines == workload.names.len(), "{lines} of {} series are in the chart", workload.names.len());
        }
        anyhow::Ok(median(&micros))
    };
    Ok(Charts {
        chart_us: timed(workload.whole())?,
        fine_us: Some(timed(workload.fine())?),
        hour_us: timed(workload.hour())?,
    })
}

#[cfg(all(test, feature = "peers"))]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_what_its_samples_have() {
        let mut fold = Fold::new(2, Span { points: 1000, from_ms: 10_000, to_ms: 12_000 });
        for (at, value) in [(9_999, 100.0), (10_000, 1.0), (10_002, 4.0), (10_003, 2.0), (12_000, 100.0)] {
            fold.add(0, at, value);
        }
        assert_eq!(fold.step_ms, 3);
        assert_eq!(fold.series[0][..2], [Some([1.0, 5.0, 4.0, 2.0]), Some([2.0, 2.0, 2.0, 1.0])]);
        assert_eq!(fold.lines(), 1);
    }
}
