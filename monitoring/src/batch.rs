//! Samples of one node at one time, as they are said:
//! `{"n":"node","t":1700000000000,"c":"cgroup_v2","h":{"m":true,"c":false},"s":[["cpu_seconds",1.5],…]}`.
//!
//! What a batch may hold is bounded before it is held: the bytes first, then each name, then how many. A batch with one wrong sample is
//! refused whole, because whoever wrote it is no agent of ours. A field beside those of [`Batch`] is passed over: an agent that is newer than the
//! portal may say more than it knows, and what both know is as good as before.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::series::Series;
use crate::{MOST_BYTES, MOST_SAMPLES, MOST_VALUE};

/// Longest textual name of a series, bytes.
const MOST_NAME: usize = 256;

/// What confines the job on its node, and so where its figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// A control group of its own, version 2.
    CgroupV2,
    /// Control groups of its own, version 1.
    CgroupV1,
    /// None: figures are summed up over the job's processes, and the site holds nobody to a limit by control groups.
    None,
}

/// What the job's control groups hold it to: a group that only counts, or has processes found and ended, holds nobody to anything. None is what
/// could not be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Whether its memory is limited to less than the node's. A limit of all that the node has tells nothing.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// Whether its CPUs are: fewer than the node's, or a part of their time. A job that has all of the node's CPUs tells nothing.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<bool>,
}

/// Name of a node: 1 to 64 letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct NodeName(String);

/// Not the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a node: 1 to 64 letters, digits, `-`, `_` and `.`")]
pub struct NodeNameError;

impl NodeName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for NodeName {
    type Error = NodeNameError;

    fn try_from(text: &str) -> Result<Self, NodeNameError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NodeNameError)
        }
    }
}

impl<'de> Deserialize<'de> for NodeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::try_from(text.as_ref()).map_err(D::Error::custom)
    }
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Of what.
    pub series: Series,
    /// How much, in the metric's unit: finite, at most [`MOST_VALUE`] either way, and below zero only where the metric may be.
    pub value: f64,
}

impl Sample {
    /// Whether the value is one that this metric can have.
    pub fn is_possible(&self) -> bool {
        let low = if self.series.metric().may_be_negative() { -MOST_VALUE } else { 0.0 };
        (low..=MOST_VALUE).contains(&self.value)
    }
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_seq(Some(2))?;
        pair.serialize_element(&self.series.to_string())?;
        pair.serialize_element(&self.value)?;
        pair.end()
    }
}

impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, value) = <(Cow<'de, str>, f64)>::deserialize(deserializer)?;
        if name.len() > MOST_NAME {
            return Err(D::Error::custom("the name of a series is too long"));
        }
        let sample = Self { series: name.parse().map_err(D::Error::custom)?, value };
        if sample.is_possible() {
            Ok(sample)
        } else {
            Err(D::Error::custom(format_args!("`{name}` cannot be {value}")))
        }
    }
}

/// Samples of one node at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Which node. The portal believes it only if the session has that node.
    #[serde(rename = "n")]
    pub node: NodeName,
    /// When, by the node's clock, to the millisecond.
    #[serde(rename = "t", with = "milliseconds")]
    pub at: Timestamp,
    /// What confines the job there.
    #[serde(rename = "c")]
    pub confinement: Confinement,
    /// What that holds the job to. None where there are no groups, and of older agents, which do not say it.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The figures, at most [`MOST_SAMPLES`]. What is not known is not there; it is never 0 instead.
    #[serde(rename = "s", deserialize_with = "samples")]
    pub samples: Vec<Sample>,
}

/// What is no batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// More than [`MOST_BYTES`].
    #[error("a batch of {0} bytes is too long")]
    TooLong(usize),
    /// Anything else that is wrong in it.
    #[error("a batch was not understood: {0}")]
    NotUnderstood(#[from] serde_json::Error),
    /// Older or newer than what is taken.
    #[error("a batch of {} is of {at}, which is too far from now", .node.as_str())]
    Time {
        /// Of which node it says that it is.
        node: NodeName,
        /// Of which time.
        at: Timestamp,
    },
}

/// How far a batch's time may be from the reader's.
#[derive(Debug, Clone, Copy)]
pub struct TimeWindow {
    /// The oldest that is taken.
    pub oldest: Timestamp,
    /// The newest that is taken.
    pub newest: Timestamp,
}

impl Batch {
    /// Its messages, each at most [`MOST_BYTES`] and [`MOST_SAMPLES`]: more than one where it is long. Samples with an impossible value
    /// are left out, as a reader would refuse the rest with them.
    pub fn write(&self) -> Vec<Vec<u8>> {
        let held = self.held.and_then(|held| serde_json::to_string(&held).ok());
        let held = held.map(|held| format!(r#","h":{held}"#)).unwrap_or_default();
        let head = format!(
            r#"{{"n":"{}","t":{},"c":{}{held},"s":["#,
            self.node.0,
            self.at.as_millisecond(),
            serde_json::to_string(&self.confinement).unwrap_or_default()
        );
        let mut messages = Vec::new();
        let (mut message, mut count) = (head.clone().into_bytes(), 0);
        for sample in self.samples.iter().filter(|sample| sample.is_possible()) {
            let Ok(text) = serde_json::to_vec(sample) else { continue };
            if count > 0 && (count == MOST_SAMPLES || message.len() + text.len() + 3 > MOST_BYTES) {
                message.extend_from_slice(b"]}");
                messages.push(std::mem::replace(&mut message, head.clone().into_bytes()));
                count = 0;
            }
            if count > 0 {
                message.push(b',');
            }
            message.extend_from_slice(&text);
            count += 1;
        }
        message.extend_from_slice(b"]}");
        messages.push(message);
        messages
    }

    /// Reads one message; `window` is what time it may be of.
    ///
    /// # Errors
    /// [`BatchError`].
    pub fn read(bytes: &[u8], window: TimeWindow) -> Result<Self, BatchError> {
        if bytes.len() > MOST_BYTES {
            return Err(BatchError::TooLong(bytes.len()));
        }
        let batch: Self = serde_json::from_slice(bytes)?;
        if batch.at < window.oldest || batch.at > window.newest {
            return Err(BatchError::Time { node: batch.node, at: batch.at });
        }
        Ok(batch)
    }
}

/// Takes samples one by one, so that memory grows by what was read and not by what was claimed.
fn samples<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Sample>, D::Error> {
    struct Samples;
    impl<'de> Visitor<'de> for Samples {
        type Value = Vec<Sample>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "at most {MOST_SAMPLES} samples")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<Sample>, A::Error> {
            let mut samples = Vec::new();
            while samples.len() < MOST_SAMPLES {
                let Some(sample) = sequence.next_element()? else { return Ok(samples) };
                samples.push(sample);
            }
            match sequence.next_element::<IgnoredAny>()? {
                None => Ok(samples),
                Some(_) => Err(A::Error::invalid_length(MOST_SAMPLES + 1, &self)),
            }
        }
    }
    deserializer.deserialize_seq(Samples)
}

/// Times as whole milliseconds since 1970.
mod milliseconds {
    use jiff::Timestamp;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(at.as_millisecond())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        Timestamp::from_millisecond(i64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Device, Metric, Process, Text};

    const NOW: i64 = 1_700_000_000_000;

    fn window() -> TimeWindow {
        let at = |offset| Timestamp::from_millisecond(NOW + offset).unwrap();
        TimeWindow { oldest: at(-3_600_000), newest: at(60_000) }
    }

    fn read(text: &str) -> Result<Batch, BatchError> {
        Batch::read(text.as_bytes(), window())
    }

    fn of(samples: &str) -> String {
        format!(r#"{{"n":"node-1","t":{NOW},"c":"none","s":[{samples}]}}"#)
    }

    #[test]
    fn a_batch_is_compact() {
        let text = of(r#"["cpu_seconds",1.5],["cpu_core/3",0.25]"#);
        let batch = read(&text).unwrap();
        assert_eq!(batch.samples[1].series, Series::with(Metric::CpuCore, Device::Core(3)).unwrap());
        assert_eq!(batch.write(), [text.into_bytes()]);
    }

    #[test]
    fn what_the_groups_hold_the_job_to_is_said_where_it_is_known() {
        assert_eq!(read(&of("")).unwrap().held, None, "an older agent does not say it");
        for (text, memory, cpus) in [
            (r#"{"m":true,"c":false}"#, Some(true), Some(false)),
            (r#"{"m":false}"#, Some(false), None),
            ("{}", None, None),
        ] {
            let text = of("").replace("\"s\"", &format!("\"h\":{text},\"s\""));
            let batch = read(&text).unwrap();
            assert_eq!(batch.held, Some(Held { memory, cpus }), "{text}");
            assert_eq!(batch.write(), [text.into_bytes()]);
        }
    }

    #[test]
    fn what_a_newer_agent_says_besides_is_passed_over() {
        let text = of(r#"["cpu_seconds",1.5]"#);
        for more in ["1", "null", r#"{"m":[true,{"s":[]}]}"#, r#"[["other",-1]]"#] {
            for place in ["\"n\"", "\"s\""] {
                let newer = text.replacen(place, &format!("\"x\":{more},{place}"), 1);
                assert_ne!(newer, text);
                assert_eq!(read(&newer).unwrap(), read(&text).unwrap(), "{newer}");
            }
        }
        let long = text.replace("\"s\"", &format!("\"x\":\"{}\",\"s\"", "y".repeat(MOST_BYTES)));
        assert!(matches!(read(&long), Err(BatchError::TooLong(_))));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for sample in [
            r#"["cpu_seconds",-1]"#,
            r#"["cpu_seconds",NaN]"#,
            r#"["cpu_seconds",1e999]"#,
            r#"["cpu_seconds",1e17]"#,
            r#"["cpu_seconds",null]"#,
            r#"["cpu_seconds"]"#,
            r#"["cpu_seconds",1,2]"#,
            r#"["other",1]"#,
            r#"["report/loss",-1e300]"#,
            r#"["cpu_process/1:a\u0000",1]"#,
        ] {
            assert!(matches!(read(&of(sample)), Err(BatchError::NotUnderstood(_))), "{sample}");
        }
        assert!(read(&of(r#"["report/loss",-1.5]"#)).is_ok());
        for text in [
            String::new(),
            "{}".to_owned(),
            of("").replace("node-1", ""),
            of("").replace("node-1", "a b"),
            of("").replace("none", "v3"),
            of("").replace("\"s\"", "\"s\":[],\"s\""),
            of("").replace("\"s\"", "\"x\":,\"s\""),
            of("").replace("\"s\"", "\"h\":{\"x\":true},\"s\""),
            of("").replace("\"s\"", "\"h\":{\"m\":1},\"s\""),
            of("").replace(&NOW.to_string(), "9223372036854775807"),
            "[".repeat(4000),
        ] {
            assert!(matches!(read(&text), Err(BatchError::NotUnderstood(_))), "{text}");
        }
    }

    #[test]
    fn times_too_far_from_now_are_refused() {
        for time in [0, NOW - 3_600_001, NOW + 60_001, -1] {
            let text = of("").replace(&NOW.to_string(), &time.to_string());
            assert!(
                matches!(read(&text), Err(BatchError::Time { node, at })
                    if node.as_str() == "node-1" && at.as_millisecond() == time),
                "{time}"
            );
        }
        assert!(read(&of("").replace(&NOW.to_string(), &(NOW + 60_000).to_string())).is_ok());
    }

    #[test]
    fn too_many_and_too_long_are_refused() {
        let many = |count: usize| of(&vec![r#"["oom_kills",1]"#; count].join(","));
        assert_eq!(read(&many(MOST_SAMPLES)).unwrap().samples.len(), MOST_SAMPLES);
        assert!(matches!(read(&many(MOST_SAMPLES + 1)), Err(BatchError::NotUnderstood(_))));
        assert!(matches!(read(&" ".repeat(MOST_BYTES + 1)), Err(BatchError::TooLong(_))));
    }

    #[test]
    fn impossible_values_are_not_written() {
        let series = Series::of(Metric::Cpu).unwrap();
        let mut batch = read(&of("")).unwrap();
        for value in [f64::NAN, f64::INFINITY, -1.0, 2.0] {
            batch.samples.push(Sample { series: series.clone(), value });
        }
        let read = Batch::read(&batch.write()[0], window()).unwrap();
        assert_eq!(read.samples, [Sample { series, value: 2.0 }]);
    }

    fn sample() -> impl Strategy<Value = Sample> {
        let device = prop_oneof![
            any::<u16>().prop_map(|core| Series::with(Metric::CpuCore, Device::Core(core))),
            "/\\PC{0,120}".prop_map(|path| Series::with(Metric::IoRead, Device::Mount(Text::lossy(&path).unwrap()))),
            (any::<u32>(), "\\PC{1,15}").prop_map(|(id, name)| {
                Series::with(Metric::CpuProcess, Device::Process(Process { id, name: Text::lossy(&name).unwrap() }))
            }),
        ];
        (device, 0.0..MOST_VALUE).prop_map(|(series, value)| Sample { series: series.unwrap(), value })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))] // each makes up to 1,500 samples

        #[test]
        fn all_samples_arrive_in_messages_that_fit(samples in prop::collection::vec(sample(), 0..1500)) {
            let mut batch = read(&of("")).unwrap();
            batch.samples = samples;
            let mut read = Vec::new();
            for message in batch.write() {
                read.extend(Batch::read(&message, window()).unwrap().samples);
            }
            prop_assert_eq!(read.len(), batch.samples.len());
            for (read, written) in read.iter().zip(&batch.samples) {
                prop_assert_eq!(&read.series, &written.series);
                // The reader of decimals is quick, and may miss the last bit.
                prop_assert!((read.value - written.value).abs() <= f64::EPSILON * written.value);
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Batch::read(&bytes, window()).is_err());
        }

        #[test]
        fn a_damaged_batch_is_possible_or_refused(at in 0usize..60, byte in any::<u8>()) {
            let mut bytes = of(r#"["cpu_seconds",1.5],["cpu_core/3",0.25]"#).into_bytes();
            bytes[at] = byte;
            if let Ok(batch) = Batch::read(&bytes, window()) {
                prop_assert!(batch.samples.iter().all(Sample::is_possible));
            }
        }
    }
}
