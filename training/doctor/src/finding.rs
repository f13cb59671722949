//! What is found: a fact with a level and, unless all is well, what to do.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be, or of no importance.
    Ok,
    /// Worth knowing; runs work.
    Note,
    /// Runs work, but slower or less than they could, or only some of them.
    Warning,
    /// Runs fail, or compute nonsense.
    Problem,
}

impl Level {
    /// The word that stands before a fact.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "WARNING",
            Self::Problem => "PROBLEM",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// One fact, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Its name, which stays the same in all versions: `section.word`.
    pub id: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found, in plain words.
    pub fact: String,
    /// What to do about it; none where all is well.
    pub cure: Option<String>,
    /// The same for programs: a number of bytes, a list of names; null where words are all there is.
    pub value: Value,
}

impl Finding {
    /// All is well.
    pub(crate) fn ok(id: &'static str, fact: impl Into<String>) -> Self {
        Self { id, level: Level::Ok, fact: fact.into(), cure: None, value: Value::Null }
    }

    /// Worth knowing.
    pub(crate) fn note(id: &'static str, fact: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Note, cure: Some(cure.into()), ..Self::ok(id, fact) }
    }

    /// Not as good as it could be.
    pub(crate) fn warning(id: &'static str, fact: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Warning, cure: Some(cure.into()), ..Self::ok(id, fact) }
    }

    /// Runs fail.
    pub(crate) fn problem(id: &'static str, fact: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Problem, cure: Some(cure.into()), ..Self::ok(id, fact) }
    }

    /// The same, with a value for programs.
    pub(crate) fn with(self, value: impl Into<Value>) -> Self {
        Self { value: value.into(), ..self }
    }
}

/// Findings that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    /// Its name for programs, which stays the same.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// In the order of their importance to a reader, not of their level.
    pub findings: Vec<Finding>,
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => {
            let number = count as f64 / *unit as f64;
            if number < 10.0 { format!("{number:.1} {name}") } else { format!("{number:.0} {name}") }
        }
        None => format!("{count} bytes"),
    }
}

/// `1 rank`, `2 ranks`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let said: Vec<String> = [0, 1023, 1024, 64 << 20, 3 << 29, 5 << 40].into_iter().map(bytes).collect();
        assert_eq!(said, ["0 bytes", "1023 bytes", "1.0 KiB", "64 MiB", "1.5 GiB", "5.0 TiB"]);
    }

    #[test]
    fn levels_grow_worse() {
        assert!(Level::Ok < Level::Note && Level::Note < Level::Warning && Level::Warning < Level::Problem);
    }
}
