//! The samples that all sides keep, the same in every run.

use eirene_monitoring::{Group, Metric};

const GPUS: usize = 16;
const OTHERS: usize = 64;
const BEGIN_MS: i64 = 1_767_225_600_000;
const EVERY_MS: i64 = 5000;
const HOUR_MS: i64 = 3_600_000;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Points of a chart.
const POINTS: u32 = 1000;
/// The most that the API takes.
const FINE_POINTS: u32 = 2000;
/// Ticks of an hour.
const TICKS: usize = 720;

/// A session of 16 GPUs: all series that are sampled of each, and 64 others.
pub(super) struct Workload {
    /// Names of the series.
    pub(super) names: Vec<String>,
    /// A value of each series, one tick after the other.
    values: Vec<f64>,
}

/// What a chart is of: from, and to which it is not part of it, in so many points.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) points: u32,
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

impl Workload {
    /// What so many hours are.
    pub(super) fn new(hours: usize) -> Self {
        let gpus = (0..GPUS).flat_map(|gpu| of_gpu().map(move |metric| format!("c1/gpu/{gpu}/{}", metric.name())));
        let names = gpus.chain((0..OTHERS).map(|other| format!("c1/other/{other}"))).collect();
        Self { names, values: values(hours * TICKS) }
    }

    /// How many samples it has.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Each tick's time and values.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (i64, &[f64])> {
        let at = (0..).map(|tick| BEGIN_MS + tick * EVERY_MS);
        at.zip(self.values.chunks(self.names.len()))
    }

    /// The last tick's time.
    pub(super) fn last_ms(&self) -> i64 {
        self.ticks().last().map_or(BEGIN_MS, |(at, _)| at)
    }

    /// All of its time.
    pub(super) fn whole(&self) -> Span {
        Span { points: POINTS, from_ms: BEGIN_MS, to_ms: self.last_ms() + 1 }
    }

    /// The same, as fine as anybody may ask for.
    pub(super) fn fine(&self) -> Span {
        Span { points: FINE_POINTS, ..self.whole() }
    }

    /// Its last hour.
    pub(super) fn hour(&self) -> Span {
        Span { from_ms: self.last_ms() - HOUR_MS, ..self.whole() }
    }
}

/// What is sampled of a GPU.
fn of_gpu() -> impl Iterator<Item = Metric> {
    Metric::ALL.iter().copied().filter(|metric| metric.group() == Group::Gpu)
}

/// What such a session looks like: phases of work and of waiting, as the sensors round it. One tick after the other.
fn values(ticks: usize) -> Vec<f64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    // 0 to 1 (Marsaglia, Xorshift RNGs, 2003).
    let mut chance = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut values = Vec::with_capacity(ticks * (GPUS * of_gpu().count() + OTHERS));
    let (mut bytes_read, mut steps) = (0.0, 0.0);
    for tick in 0..ticks {
        let busy = tick % TICKS > 90;
        for _ in 0..GPUS {
            for metric in of_gpu() {
                values.push(match metric {
                    // NVML says whole percents.
                    Metric::GpuUtil if busy => (88.0 + 12.0 * chance()).floor() / 100.0,
                    Metric::GpuMemoryUtil if busy => (35.0 + 20.0 * chance()).floor() / 100.0,
                    Metric::GpuMemory if busy => 70.0 * GIB,
                    Metric::GpuMemory => 4_194_304.0,
                    Metric::GpuMemoryLimit => 80.0 * GIB,
                    // NVML says milliwatts.
                    Metric::GpuPower if busy => (400_000.0 + 250_000.0 * chance()).floor() / 1000.0,
                    Metric::GpuPower => 71.25,
                    Metric::GpuPowerLimit => 700.0,
                    Metric::GpuTemperature if busy => (61.0 + 4.0 * chance()).floor(),
                    Metric::GpuTemperature => 34.0,
                    Metric::GpuThrottled if busy => f64::from(u8::from(chance() < 0.1)),
                    Metric::GpuUp | Metric::GpuProcesses => 1.0,
                    // Errors there are none, and whoever waits computes nothing.
                    _ => 0.0,
                });
            }
        }
        for other in 0..OTHERS {
            values.push(match other {
                // Cores, per cent with a digit.
                0..32 => (if busy { 900.0 + 100.0 * chance() } else { 20.0 * chance() }).floor() / 10.0,
                // Bytes in pages, and of counters.
                32..40 => 4096.0 * (30_000_000.0 + 50_000.0 * chance()).floor(),
                40..48 => {
                    bytes_read += (3_000_000.0 * chance()).floor();
                    bytes_read
                }
                // Rates and a loss: all digits there are.
                48..56 => 1e8 * chance(),
                56..60 => {
                    steps += 1.0;
                    f64::from((2.0 / (1.0 + steps / 1e4) + 0.01 * chance()) as f32)
                }
                _ => 1.0,
            });
        }
    }
    values
}
