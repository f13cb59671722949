//! What is sampled of a session: metrics, series, and batches of samples as the agent says them and the portal reads them.
//!
//! A [`Batch`] is one JSON object, as all messages of the tunnel are, at most [`MOST_BYTES`] long so that it fits into one line there. Who
//! samples is `monitoring/probe` (and the GPU helper), who keeps samples is the store; nothing here opens a file, reads a clock or knows
//! which session a batch is of: that is the tunnel it came through, never a word in it.
//!
//! The reader takes the writer for hostile: counts, lengths, names, values and times are bounded, and nothing is allocated by a length that
//! was only claimed.

mod batch;
mod metric;
mod series;

pub use batch::{Batch, BatchError, Confinement, NodeName, NodeNameError, Sample, TimeWindow};
pub use metric::{Kind, Metric, Unit, Whose};
pub use series::{Device, DeviceKind, Process, Series, SeriesError, Text, TextError};

/// Most bytes of a batch: a line of the tunnel has 64 KiB, and something is said around it.
pub const MOST_BYTES: usize = 48 * 1024;

/// Most samples in one batch.
pub const MOST_SAMPLES: usize = 1024;

/// Longest name of a device, bytes.
pub const MOST_TEXT: usize = 128;

/// Largest value: 2^53, up to which a double tells every whole number apart. A byte counter reaches it after nine petabytes.
pub const MOST_VALUE: f64 = 9_007_199_254_740_992.0;
