//! The JSON of SLURM's data parsers, as far as we read it, lenient in form: a number may be bare, written out, or
//! `{set, infinite, number}`; a list of words may be one word; a field may be missing, `null` or new. What a missing field
//! means is decided in [`crate::convert`].

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A number that may be absent or without bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Number {
    /// The number, where there is one.
    pub(crate) value: Option<i64>,
    /// Whether it stands for "no limit".
    pub(crate) infinite: bool,
}

impl Number {
    fn of(value: i64) -> Self {
        Self { value: Some(value), infinite: false }
    }

    /// The number if it is at least zero.
    pub(crate) fn unsigned(self) -> Option<u64> {
        self.value.and_then(|value| u64::try_from(value).ok())
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
        Ok(Number { value: i64::try_from(value).ok(), infinite: false })
    }

    fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
        Ok(Number::of(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
        // A count that SLURM keeps as a float, for example a fraction of billing units.
        Ok(if value.is_finite() && value.abs() < 9e15 { Number::of(value as i64) } else { Number::default() })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
        Ok(Number::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(match text.trim() {
            text if text.eq_ignore_ascii_case("unlimited") || text.eq_ignore_ascii_case("infinite") => {
                Number { value: None, infinite: true }
            }
            text => Number { value: text.parse().ok(), infinite: false },
        })
    }

    fn visit_unit<E>(self) -> Result<Number, E> {
        Ok(Number::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Number, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Number::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
        let (mut set, mut infinite, mut number) = (true, false, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "set" => set = map.next_value()?,
                "infinite" => infinite = map.next_value()?,
                "number" => number = map.next_value::<Number>()?.value,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Number { value: number.filter(|_| set && !infinite), infinite })
    }
}

/// A time limit in minutes: a [`Number`], or text such as `1-00:00:00`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Minutes(pub(crate) Number);

impl<'de> Deserialize<'de> for Minutes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MinutesVisitor;
        impl<'de> Visitor<'de> for MinutesVisitor {
            type Value = Minutes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time limit")
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Minutes, E> {
                NumberVisitor.visit_u64(value).map(Minutes)
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Minutes, E> {
                NumberVisitor.visit_i64(value).map(Minutes)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Minutes, E> {
                Ok(Minutes(match crate::text::parse_minutes(text) {
                    Ok(crate::text::Limit::Unlimited) => Number { value: None, infinite: true },
                    Ok(crate::text::Limit::AtMost(minutes)) => {
                        Number { value: i64::try_from(minutes).ok(), infinite: false }
                    }
                    Err(_) => Number::default(),
                }))
            }
            fn visit_unit<E>(self) -> Result<Minutes, E> {
                Ok(Minutes::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Minutes, A::Error> {
                NumberVisitor.visit_map(map).map(Minutes)
            }
        }
        deserializer.deserialize_any(MinutesVisitor)
    }
}

/// Words: a list, or one text that separates them by commas or plus signs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordsVisitor;
        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = Words;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of words")
            }
            fn visit_str<E>(self, text: &str) -> Result<Words, E> {
                let words = text.split([',', '+']).map(str::trim).filter(|word| !word.is_empty());
                Ok(Words(words.map(str::to_owned).collect()))
            }
            fn visit_unit<E>(self) -> Result<Words, E> {
                Ok(Words::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(Text(word)) = seq.next_element()? {
                    words.push(word);
                }
                Ok(Words(words))
            }
        }
        deserializer.deserialize_any(WordsVisitor)
    }
}

/// Text; a number is written out, a list joined by commas, anything else is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Text, E> {
                Ok(Text::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
                Ok(Text::default())
            }
            fn visit_unit<E>(self) -> Result<Text, E> {
                Ok(Text::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
                let mut parts = Vec::new();
                while let Some(Text(part)) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Text(parts.join(",")))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A list that may be `null`.
fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// A structure, or its default for whatever else stands there.
fn structure<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<T> {
        Structure(T),
        Other(IgnoredAny),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::Structure(value) => value,
        Either::Other(IgnoredAny) => T::default(),
    })
}

/// A failure that an answer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// SLURM's number; none when it gave none.
    pub(crate) number: Option<i64>,
    /// What it said.
    pub(crate) said: String,
}

/// An answer that may report failures.
pub(crate) trait Answer: DeserializeOwned + Send + 'static {
    /// The failures it reports.
    fn errors(&self) -> Vec<Failure>;
}

fn failures(errors: &[WireError]) -> Vec<Failure> {
    let failure = |error: &WireError| Failure {
        number: error.error_number.value,
        said: format!("{}: {}", error.description.0, error.error.0),
    };
    errors.iter().map(failure).collect()
}

/// What every answer may carry.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Envelope {
    #[serde(deserialize_with = "list")]
    errors: Vec<WireError>,
    #[serde(deserialize_with = "structure")]
    meta: Meta,
    #[serde(deserialize_with = "list")]
    pings: Vec<Ping>,
    #[serde(deserialize_with = "list")]
    status: Vec<KillStatus>,
    job_id: Number,
    #[serde(deserialize_with = "structure")]
    result: SubmitResult,
}

impl Answer for Envelope {
    fn errors(&self) -> Vec<Failure> {
        let killed = self.status.iter().map(|status| (status.error.code.value, &status.error.message.0));
        let submitted = std::iter::once((self.result.error_code.value, &self.result.error.0));
        let coded = killed
            .chain(submitted)
            .filter(|(number, _)| number.is_some_and(|number| number != 0))
            .map(|(number, said)| Failure { number, said: said.clone() });
        failures(&self.errors).into_iter().chain(coded).collect()
    }
}

impl Envelope {
    /// SLURM's version in words, when one of its controllers answers.
    pub(crate) fn version_if_up(&self) -> Option<String> {
        let up = self.pings.iter().any(|ping| ping.responding || ping.pinged.0 == "UP");
        up.then(|| format!("SLURM {}", self.meta.slurm.release.0).trim_end().to_owned())
    }

    /// Whether a cancel's answer tells what became of each job, as it does since v0.0.42.
    pub(crate) fn says_what_was_cancelled(&self) -> bool {
        !self.status.is_empty()
    }

    /// The number of the job that a submit made.
    pub(crate) fn submitted_id(&self) -> Option<u32> {
        let id = self.job_id.value.or(self.result.job_id.value);
        id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireError {
    error_number: Number,
    error: Text,
    description: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(alias = "Slurm", deserialize_with = "structure")]
    slurm: MetaSlurm,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetaSlurm {
    release: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ping {
    pinged: Text,
    responding: bool,
}

/// One job's outcome of a cancel, since v0.0.42.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KillStatus {
    #[serde(deserialize_with = "structure")]
    error: KillError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KillError {
    code: Number,
    message: Text,
}

/// Outcome of a submit up to v0.0.41.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubmitResult {
    job_id: Number,
    error_code: Number,
    error: Text,
}

/// The paths of an API description.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiDescription {
    #[serde(deserialize_with = "keys")]
    pub(crate) paths: Vec<String>,
}

/// The keys of a structure.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct KeysVisitor;
    impl<'de> Visitor<'de> for KeysVisitor {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a structure")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut keys = Vec::new();
            while let Some((key, IgnoredAny)) = map.next_entry()? {
                keys.push(key);
            }
            Ok(keys)
        }
    }
    deserializer.deserialize_map(KeysVisitor)
}

/// A list of jobs from slurmctld.
#[derive(Debug, Deserialize)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<WireJob>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for Jobs {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireJob {
    pub(crate) job_id: Number,
    pub(crate) name: Text,
    pub(crate) user_id: Number,
    pub(crate) job_state: Words,
    pub(crate) state_reason: Text,
    pub(crate) partition: Text,
    pub(crate) nodes: Text,
    pub(crate) restart_cnt: Number,
    pub(crate) submit_time: Number,
    pub(crate) start_time: Number,
    pub(crate) end_time: Number,
    pub(crate) exit_code: ExitCode,
    pub(crate) tres_alloc_str: Text,
    pub(crate) tres_req_str: Text,
}

/// How a job ended: structured, or the wait status as one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ExitCode {
    pub(crate) return_code: Option<i64>,
    pub(crate) signal: Option<i64>,
}

impl<'de> Deserialize<'de> for ExitCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Signal {
            #[serde(alias = "signal_id")]
            id: Number,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Structured {
            return_code: Number,
            #[serde(deserialize_with = "structure")]
            signal: Signal,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            WaitStatus(i64),
            Structured(Structured),
            Other(IgnoredAny),
        }
        let positive = |value: i64| Some(value).filter(|value| *value > 0);
        Ok(match Either::deserialize(deserializer)? {
            Either::WaitStatus(status) => {
                Self { return_code: Some((status >> 8) & 0xff), signal: positive(status & 0x7f) }
            }
            Either::Structured(code) => {
                Self { return_code: code.return_code.value, signal: code.signal.id.value.and_then(positive) }
            }
            Either::Other(IgnoredAny) => Self::default(),
        })
    }
}

/// A list of jobs from the accounting database.
#[derive(Debug, Deserialize)]
pub(crate) struct AccountedJobs {
    pub(crate) jobs: Vec<AccountedJob>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for AccountedJobs {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedJob {
    pub(crate) job_id: Number,
    pub(crate) name: Text,
    pub(crate) user: Text,
    #[serde(deserialize_with = "structure")]
    pub(crate) association: Association,
    #[serde(deserialize_with = "structure")]
    pub(crate) state: AccountedState,
    #[serde(deserialize_with = "structure")]
    pub(crate) time: AccountedTime,
    pub(crate) partition: Text,
    pub(crate) nodes: Text,
    pub(crate) restart_cnt: Number,
    pub(crate) exit_code: ExitCode,
    #[serde(deserialize_with = "structure")]
    pub(crate) tres: AccountedTres,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Association {
    pub(crate) user: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedState {
    pub(crate) current: Words,
    pub(crate) reason: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedTime {
    pub(crate) submission: Number,
    pub(crate) start: Number,
    pub(crate) end: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedTres {
    #[serde(deserialize_with = "list")]
    pub(crate) allocated: Vec<TresCount>,
    #[serde(deserialize_with = "list")]
    pub(crate) requested: Vec<TresCount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TresCount {
    #[serde(rename = "type")]
    pub(crate) kind: Text,
    pub(crate) name: Text,
    pub(crate) count: Number,
}

/// A list of nodes.
#[derive(Debug, Deserialize)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<WireNode>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for Nodes {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireNode {
    pub(crate) name: Text,
    pub(crate) state: Words,
    /// Flags of the state, where they stand apart.
    pub(crate) state_flags: Words,
    pub(crate) reason: Text,
    pub(crate) cpus: Number,
    pub(crate) alloc_cpus: Number,
    pub(crate) real_memory: Number,
    pub(crate) alloc_memory: Number,
    pub(crate) tres_used: Text,
    pub(crate) gres: Text,
    pub(crate) gres_used: Text,
    pub(crate) partitions: Words,
}

/// A list of partitions.
#[derive(Debug, Deserialize)]
pub(crate) struct Partitions {
    pub(crate) partitions: Vec<WirePartition>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for Partitions {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePartition {
    pub(crate) name: Text,
    pub(crate) flags: Words,
    #[serde(deserialize_with = "structure")]
    pub(crate) partition: PartitionState,
    #[serde(deserialize_with = "structure")]
    pub(crate) nodes: PartitionNodes,
    #[serde(deserialize_with = "structure")]
    pub(crate) maximums: PartitionMaximums,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionState {
    pub(crate) state: Words,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionNodes {
    pub(crate) configured: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionMaximums {
    pub(crate) time: Minutes,
    pub(crate) nodes: Number,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(json: &str) -> Number {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn numbers_are_read_in_every_dress() {
        for json in ["7", "7.0", "\"7\"", r#"{"set":true,"infinite":false,"number":7}"#, r#"{"number":7,"new":[1]}"#] {
            assert_eq!(number(json), Number::of(7), "{json}");
        }
        for json in ["null", "true", "[1,2]", "\"x\"", r#"{"set":false,"infinite":false,"number":7}"#, "1e300"] {
            assert_eq!(number(json), Number::default(), "{json}");
        }
        for json in [
            "\"UNLIMITED\"",
            r#"{"set":true,"infinite":true,"number":0}"#,
            r#"{"set":false,"infinite":true,"number":0}"#,
        ] {
            assert_eq!(number(json), Number { value: None, infinite: true }, "{json}");
        }
    }

    #[test]
    fn time_limits_may_be_text() {
        let minutes = |json: &str| serde_json::from_str::<Minutes>(json).unwrap().0;
        assert_eq!(minutes("\"1-00:00:00\""), Number::of(1440));
        assert_eq!(minutes("480"), Number::of(480));
        assert!(minutes("\"UNLIMITED\"").infinite);
        assert!(minutes(r#"{"set":false,"infinite":true,"number":0}"#).infinite);
    }

    #[test]
    fn words_may_be_one_text() {
        for json in [r#"["RUNNING","COMPLETING"]"#, r#""RUNNING,COMPLETING""#, r#""RUNNING+COMPLETING""#] {
            assert_eq!(serde_json::from_str::<Words>(json).unwrap().0, ["RUNNING", "COMPLETING"], "{json}");
        }
        assert!(serde_json::from_str::<Words>("null").unwrap().0.is_empty());
    }

    #[test]
    fn exit_codes_are_read_in_every_dress() {
        let code = |json: &str| serde_json::from_str::<ExitCode>(json).unwrap();
        assert_eq!(code("256"), ExitCode { return_code: Some(1), signal: None });
        assert_eq!(code("9"), ExitCode { return_code: Some(0), signal: Some(9) });
        let structured = r#"{"status":["SIGNALED"],"return_code":{"set":true,"infinite":false,"number":0},
            "signal":{"id":{"set":true,"infinite":false,"number":15},"name":"Terminated"}}"#;
        assert_eq!(code(structured), ExitCode { return_code: Some(0), signal: Some(15) });
        let older = r#"{"status":"ERROR","return_code":3,"signal":{"signal_id":0,"name":"NONE"}}"#;
        assert_eq!(code(older), ExitCode { return_code: Some(3), signal: None });
        assert_eq!(code("null"), ExitCode::default());
    }

    #[test]
    fn odd_and_new_fields_do_not_spoil_a_job() {
        let job: WireJob = serde_json::from_str(
            r#"{"job_id":7,"name":null,"nodes":["c1","c2"],"partition":3,"exit_code":[],"brand_new":{"a":[1]},"job_state":"RUNNING"}"#,
        )
        .unwrap();
        assert_eq!((job.job_id.value, job.nodes.0.as_str(), job.partition.0.as_str()), (Some(7), "c1,c2", "3"));
    }
}
