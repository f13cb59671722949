//! Values that SLURM's data parsers write in different ways: a number may be bare, written out, or `{set, infinite, number}`; a list
//! of words may be one word; an exit code may be structured or the wait status.

use std::fmt;
use std::marker::PhantomData;

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
pub(crate) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// The items of a list that are `wanted`, each judged as soon as it is read.
pub(crate) fn only<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
    wanted: impl FnMut(&T) -> bool,
) -> Result<Vec<T>, D::Error> {
    struct OnlyVisitor<T, F>(F, PhantomData<T>);
    impl<'de, T: DeserializeOwned, F: FnMut(&T) -> bool> Visitor<'de> for OnlyVisitor<T, F> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while let Some(item) = seq.next_element()? {
                if (self.0)(&item) {
                    kept.push(item);
                }
            }
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(OnlyVisitor(wanted, PhantomData))
}

/// A structure, or its default for whatever else stands there.
pub(super) fn structure<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
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

/// The keys of a structure.
pub(super) fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
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
}
