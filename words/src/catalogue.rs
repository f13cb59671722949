//! A catalogue as it is read from its file, and how its messages are filled in.

use std::collections::BTreeMap;

/// Why the catalogue could not be read.
#[derive(Debug, thiserror::Error)]
pub enum WordsError {
    /// It is not TOML.
    #[error("the message catalogue is not TOML")]
    Syntax(#[from] toml::de::Error),
    /// A message is not text.
    #[error("message `{key}` is not text")]
    NotText {
        /// Its key.
        key: String,
    },
}

/// All messages of one language, by dotted key.
#[derive(Debug, Clone)]
pub struct Words(BTreeMap<String, String>);

impl Words {
    /// Reads a catalogue: tables of texts, nested as deep as one likes.
    pub fn parse(text: &str) -> Result<Self, WordsError> {
        let mut messages = BTreeMap::new();
        flatten("", toml::from_str::<toml::Table>(text)?, &mut messages)?;
        Ok(Self(messages))
    }

    /// The message, when there is one.
    pub fn find(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The message; a missing one shows its key, which is ugly and safe.
    pub fn get(&self, key: &str) -> String {
        self.find(key).unwrap_or(key).to_owned()
    }

    /// The message with `{name}` replaced by the value given for it.
    pub fn fill(&self, key: &str, values: &[(&str, &str)]) -> String {
        fill(self.find(key).unwrap_or(key), values)
    }

    /// The message for a number of things: `key.one` or `key.other`, with `{n}` replaced.
    pub fn count(&self, key: &str, n: u64) -> String {
        self.count_with(key, n, &[])
    }

    /// [`Words::count`] with other values beside the number.
    pub fn count_with(&self, key: &str, n: u64, values: &[(&str, &str)]) -> String {
        let form = if n == 1 { "one" } else { "other" };
        let number = n.to_string();
        let values: Vec<(&str, &str)> = [("n", number.as_str())].into_iter().chain(values.iter().copied()).collect();
        self.fill(&format!("{key}.{form}"), &values)
    }

    /// The messages below `js`, as the JSON object that the page's modules read.
    pub fn for_modules(&self) -> String {
        let chosen: BTreeMap<&str, &str> =
            self.0.iter().filter_map(|(key, text)| Some((key.strip_prefix("js.")?, text.as_str()))).collect();
        serde_json::to_string(&chosen).unwrap_or_else(|_| "{}".to_owned())
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Replaces each `{name}` by its value in one pass, so that a value is never searched for names.
pub fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let Some(length) = rest[start..].find('}') else { break };
        let name = &rest[start + 1..start + length];
        out.push_str(&rest[..start]);
        match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => out.push_str(value),
            None => out.push_str(&rest[start..=start + length]),
        }
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    out
}

fn flatten(prefix: &str, table: toml::Table, into: &mut BTreeMap<String, String>) -> Result<(), WordsError> {
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::String(text) => {
                into.insert(key, text);
            }
            toml::Value::Table(inner) => flatten(&key, inner, into)?,
            _ => return Err(WordsError::NotText { key }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_filled_and_counted() {
        let words =
            Words::parse("[a]\nb = \"{x} of {y}, {z}\"\n[a.n]\none = \"{n} thing\"\nother = \"{n} things\"\n").unwrap();
        assert_eq!(words.fill("a.b", &[("x", "{y}"), ("y", "2")]), "{y} of 2, {z}");
        assert_eq!(words.count("a.n", 1), "1 thing");
        assert_eq!(words.count("a.n", 0), "0 things");
        assert_eq!(words.count_with("a.n", 2, &[("n", "3")]), "2 things");
        assert_eq!(words.get("a.missing"), "a.missing");
        assert_eq!(fill("open { brace", &[("brace", "x")]), "open { brace");
    }

    #[test]
    fn a_message_that_is_no_text_is_refused() {
        assert!(matches!(Words::parse("[a]\nb = 1\n"), Err(WordsError::NotText { key }) if key == "a.b"));
    }
}
