//! What is sent: values of trapper items, keys with parameters, and what discovery rules are told.

use std::collections::BTreeMap;

use serde::Serialize;

/// Longest parameter of a key.
const MOST_PARAMETER: usize = 128;

/// A value of an item at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Value {
    /// The host's name in Zabbix: the technical one.
    pub host: String,
    /// The item's key.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// When, seconds since 1970.
    pub clock: i64,
    /// Nanoseconds beyond.
    pub ns: u32,
}

/// A parameter of a key that needs no quotes, so that a key made here is, letter for letter, the one that Zabbix makes of a prototype.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameter(String);

impl Parameter {
    /// Of letters, digits and `_.:-`; none where the text has others, is empty or is longer than 128 bytes.
    pub fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        let fits = !text.is_empty() && text.len() <= MOST_PARAMETER && text.bytes().all(plain);
        fits.then(|| Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A key with its parameters: `eirene.node.cpus[c1]`.
pub fn key(name: &str, parameters: &[&Parameter]) -> String {
    if parameters.is_empty() {
        return name.to_owned();
    }
    let parameters: Vec<&str> = parameters.iter().map(|parameter| parameter.as_str()).collect();
    format!("{name}[{}]", parameters.join(","))
}

/// What a discovery rule is told: a row for each thing that was found, with a value for each macro (`NODE` is `{#NODE}`).
pub fn discovery<'a>(rows: impl IntoIterator<Item = Vec<(&'a str, String)>>) -> String {
    let row = |row: Vec<(&str, String)>| -> BTreeMap<String, String> {
        row.into_iter().map(|(name, value)| (format!("{{#{name}}}"), value)).collect()
    };
    let rows: Vec<BTreeMap<String, String>> = rows.into_iter().map(row).collect();
    // Maps of texts always have a form in JSON.
    serde_json::to_string(&rows).unwrap_or_else(|_| "[]".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_one_that_a_prototype_becomes() {
        let [node, gpu] = ["c1.cluster", "0"].map(|text| Parameter::new(text).unwrap());
        assert_eq!(key("eirene.slurm.reachable", &[]), "eirene.slurm.reachable");
        assert_eq!(key("eirene.gpu.util", &[&node, &gpu]), "eirene.gpu.util[c1.cluster,0]");
    }

    #[test]
    fn a_parameter_that_would_need_quotes_is_none() {
        for text in ["", " c1", "a,b", "a]", "\"a\"", "a b", "a\\", "ä", "{#NODE}", &"x".repeat(129)] {
            assert_eq!(Parameter::new(text), None, "{text:?}");
        }
        assert!(Parameter::new("GPU-8932f937:0_1.2").is_some());
    }

    #[test]
    fn discovery_is_an_array_of_macros_and_hostile_text_stays_a_text() {
        let rows = [vec![("NODE", "c1".to_owned())], vec![("NODE", "c2".to_owned()), ("NAME", "\"}]\n".to_owned())]];
        let expected = r#"[{"{#NODE}":"c1"},{"{#NAME}":"\"}]\n","{#NODE}":"c2"}]"#;
        assert_eq!(discovery(rows), expected);
        assert_eq!(discovery([]), "[]");
    }
}
