//! What is sampled of a session: metrics, series, and batches of samples as the agent says them and the portal reads them.
//!
//! A [`Batch`] is one JSON object, at most [`MOST_BYTES`] long so that it fits into one line of the tunnel as a text there. Who
//! samples is `monitoring/probe` (and the GPU helper), who keeps samples is the store; nothing here opens a file, reads a clock or knows
//! which session a batch is of: that is the tunnel it came through, never a word in it.
//!
//! The reader takes the writer for hostile: counts, lengths, names, values and times are bounded, and nothing is allocated by a length that
//! was only claimed.

mod batch;
mod gpu;
mod metric;
mod series;

pub use batch::{Batch, BatchError, Confinement, Held, NodeName, NodeNameError, Sample, TimeWindow};
pub use gpu::{GPU_WORDS, Gpu, GpuLineError, GpuSaid, MOST_GPUS};
pub use metric::{Group, Kind, Metric, Unit, Whose};
pub use series::{Device, DeviceKind, Process, Series, SeriesError, Text, TextError, is_report_name};

/// Most bytes of a batch: a line of the tunnel has 64 KiB, and each byte may become two where the batch is a text there.
pub const MOST_BYTES: usize = 28 * 1024;

/// Most samples in one batch.
pub const MOST_SAMPLES: usize = 1024;

/// Longest name of a device, bytes.
pub const MOST_TEXT: usize = 128;

/// Largest value: 2^53, up to which a double tells every whole number apart. A byte counter reaches it after nine petabytes.
pub const MOST_VALUE: f64 = 9_007_199_254_740_992.0;

/// Most nodes of a session that tell all their cores and processes one by one. With more of them each tells its part of
/// [`MOST_CORE_SERIES`] and [`MOST_PROCESS_SERIES`], so that none is without.
pub const MOST_NODES_IN_DETAIL: usize = 16;

/// Most series of single cores that a session has room for.
pub const MOST_CORE_SERIES: usize = 4096;

/// Most series of single processes that a session has room for, those that have ended included.
pub const MOST_PROCESS_SERIES: usize = 1024;
