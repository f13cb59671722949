//! What the GPU helper says to the agent, one JSON object a line: which GPUs there are when that changes, their figures, what is in the way.

use serde::{Deserialize, Serialize};

use crate::batch::Sample;
use crate::{MOST_BYTES, MOST_SAMPLES};

/// Version of these words.
pub const GPU_WORDS: u32 = 1;

/// Most GPUs of one node, each part of a divided one counted.
pub const MOST_GPUS: usize = 128;

/// A GPU, or a part of one (MIG).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// What its series are of: its number on the node, `0`, or `0.1` for a part of it.
    pub id: String,
    /// Its UUID, by which it is known wherever it is; empty where the driver has none.
    pub uuid: String,
    /// Its model.
    pub name: String,
    /// The GPU that it is a part of. What that has as a whole, such as its temperature, is told by this number, and it is in no list itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
}

/// A line of the helper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GpuSaid {
    /// The first line: which words it speaks.
    Hello {
        /// [`GPU_WORDS`].
        version: u32,
    },
    /// The job's GPUs on this node, from now on.
    Gpus {
        /// At most [`MOST_GPUS`].
        gpus: Vec<Gpu>,
    },
    /// Figures.
    Samples {
        /// At most [`MOST_SAMPLES`].
        samples: Vec<Sample>,
    },
    /// Nothing can be told at the moment, or not all of it.
    Trouble {
        /// One sentence.
        text: String,
    },
}

/// Why a line of the helper is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuLineError {
    /// More than a line may have.
    #[error("a line of {0} bytes, at most {MOST_BYTES} are taken")]
    TooLong(usize),
    /// Not one of the words, or an impossible figure.
    #[error("not understood: {0}")]
    NotUnderstood(String),
    /// More things than may be.
    #[error("{0} in one line")]
    TooMany(usize),
}

impl GpuSaid {
    /// Reads a line, which may be anything.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn read(line: &[u8]) -> Result<Self, GpuLineError> {
        if line.len() > MOST_BYTES {
            return Err(GpuLineError::TooLong(line.len()));
        }
        let said = serde_json::from_slice(line).map_err(|error| GpuLineError::NotUnderstood(error.to_string()))?;
        match &said {
            Self::Gpus { gpus } if gpus.len() > MOST_GPUS => Err(GpuLineError::TooMany(gpus.len())),
            Self::Samples { samples } if samples.len() > MOST_SAMPLES => Err(GpuLineError::TooMany(samples.len())),
            _ => Ok(said),
        }
    }

    /// The line, with its end.
    pub fn write(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Device, Metric, Series, Text};

    #[test]
    fn what_is_written_is_read() {
        let series = Series::with(Metric::GpuUtil, Device::Gpu(Text::try_from("0.1").unwrap())).unwrap();
        let gpu =
            Gpu { id: "0.1".into(), uuid: "MIG-a".into(), name: "H100 1g.10gb".into(), part_of: Some("0".into()) };
        for said in [
            GpuSaid::Hello { version: GPU_WORDS },
            GpuSaid::Gpus { gpus: vec![gpu] },
            GpuSaid::Samples { samples: vec![Sample { series, value: 0.5 }] },
            GpuSaid::Trouble { text: "no driver\nhere".into() },
        ] {
            let line = said.write();
            assert_eq!(line.split(|byte| *byte == b'\n').count(), 2, "one line, with its end: {said:?}");
            assert_eq!(GpuSaid::read(&line[..line.len() - 1]), Ok(said));
        }
    }

    #[test]
    fn what_is_too_much_or_impossible_is_refused() {
        let gpu = || Gpu { id: "0".into(), uuid: String::new(), name: String::new(), part_of: None };
        let many = GpuSaid::Gpus { gpus: (0..=MOST_GPUS).map(|_| gpu()).collect() };
        assert_eq!(GpuSaid::read(&many.write()), Err(GpuLineError::TooMany(MOST_GPUS + 1)));
        assert_eq!(GpuSaid::read(&vec![b' '; MOST_BYTES + 1]), Err(GpuLineError::TooLong(MOST_BYTES + 1)));
        for line in [
            r#"{"kind":"dance"}"#,
            r#"{"kind":"samples","samples":[["gpu_util/0",-1]]}"#,
            r#"{"kind":"samples","samples":[["gpu_util",1]]}"#,
            r#"{"kind":"gpus","gpus":[{"id":"0"}]}"#,
        ] {
            assert!(matches!(GpuSaid::read(line.as_bytes()), Err(GpuLineError::NotUnderstood(_))), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = GpuSaid::read(&line);
        }
    }
}
