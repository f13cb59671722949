//! Showing what was found, to people and to programs, without a secret in it.

use std::fmt::Write as _;
use std::io::{self, Write};

use eirene_train_launch::Environment;
use serde::Serialize;
use serde_json::Value;

use crate::finding::{Finding, Level, Section};

/// How a report for people looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Whether levels are coloured as well.
    pub color: bool,
    /// Columns of the terminal, where it is one; lines are not broken elsewhere.
    pub columns: Option<usize>,
}

/// All sections, as `--json` writes them. Fields are only ever added; ids and names of sections stay.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Version of this form: 1.
    pub(crate) schema: u32,
    /// Version of `eirene-train`.
    pub(crate) version: &'static str,
    /// The host's name.
    pub(crate) host: String,
    /// Rank and size of the world in which the doctor was started; 0 of 1 where nobody started one.
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Whether there is no problem; the exit code says the same.
    pub(crate) ok: bool,
    /// Number of findings that are problems.
    pub(crate) problems: usize,
    /// Number of findings that are warnings.
    pub(crate) warnings: usize,
    /// The sections, each with its findings.
    pub(crate) sections: Vec<Section>,
}

/// Findings of a level.
pub(crate) fn number(sections: &[Section], level: Level) -> usize {
    sections.iter().flat_map(|section| &section.findings).filter(|finding| finding.level == level).count()
}

/// One section for people: a word for the level, then the fact, then what to do.
pub(crate) fn write_section(to: &mut dyn Write, section: &Section, look: Look) -> io::Result<()> {
    let mut text = format!("\n{}\n", painted(section.title, "1", look));
    for Finding { level, fact, cure, .. } in &section.findings {
        let code = match level {
            Level::Ok => "32",
            Level::Note => "36",
            Level::Warning => "33",
            Level::Problem => "31",
        };
        let word = painted(&format!("{:<7}", level.word()), code, look);
        let _ = writeln!(text, "  {word}  {}", wrapped(fact, 11, look));
        if let Some(cure) = cure {
            let _ = writeln!(text, "           -> {}", wrapped(cure, 14, look));
        }
    }
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// The last line for people.
pub(crate) fn summary(problems: usize, warnings: usize) -> String {
    let count = |number: usize, word: &str| match number {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    };
    format!("{}, {}", count(problems, "problem"), count(warnings, "warning"))
}

fn painted(text: &str, code: &str, look: Look) -> String {
    if look.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Broken between words to the terminal's width, later lines as far in as the first.
fn wrapped(text: &str, indent: usize, look: Look) -> String {
    const NARROWEST: usize = 30;
    let Some(columns) = look.columns else { return text.replace('\n', " ") };
    let room = columns.saturating_sub(indent).max(NARROWEST);
    let (mut whole, mut filled) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if filled > 0 && filled + 1 + length > room {
            let _ = write!(whole, "\n{:indent$}", "");
            filled = 0;
        } else if filled > 0 {
            whole.push(' ');
            filled += 1;
        }
        whole.push_str(word);
        filled += length;
    }
    whole
}

/// What must not be shown: the values of variables whose names say that they are secret.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Those of an environment.
    pub(crate) fn of(environment: &Environment) -> Self {
        // Shorter values are words and numbers, which would be struck out where they mean something else.
        const SHORTEST: usize = 6;
        let secret = environment.variables().filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST);
        let mut values: Vec<String> = secret.map(|(_, value)| value.to_owned()).collect();
        // The longest first: one may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// The text without them.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "(hidden)"))
    }

    /// A section without them.
    pub(crate) fn hide_in(&self, mut section: Section) -> Section {
        for finding in &mut section.findings {
            finding.fact = self.hide(&finding.fact);
            finding.cure = finding.cure.as_deref().map(|cure| self.hide(cure));
            self.hide_in_value(&mut finding.value);
        }
        section
    }

    fn hide_in_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(all) => all.iter_mut().for_each(|value| self.hide_in_value(value)),
            Value::Object(all) => all.values_mut().for_each(|value| self.hide_in_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// By a variable's name. Our own variables say where the secret is, not what it is.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 10] =
        ["SECRET", "TOKEN", "KEY", "PASS", "JWT", "COOKIE", "CREDENTIAL", "AUTH", "PRIVATE", "SIGNATURE"];
    let name = name.to_ascii_uppercase();
    !name.starts_with("EIRENE_TRAIN_") && WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(look: Look) -> String {
        let findings = vec![
            Finding::ok("a.b", "one two three four five six seven eight nine ten"),
            Finding::problem("a.c", "bad", "do this and that and this and that and this"),
        ];
        let mut bytes = Vec::new();
        write_section(&mut bytes, &Section { name: "a", title: "all of it", findings }, look).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn levels_are_words_and_cures_have_their_own_lines() {
        assert_eq!(
            shown(Look::default()),
            "\nall of it\n  ok       one two three four five six seven eight nine ten\n  PROBLEM  bad\n           -> do this and that and this and that and this\n"
        );
    }

    #[test]
    fn lines_are_broken_where_there_is_a_terminal() {
        let text = shown(Look { color: false, columns: Some(44) });
        assert!(text.lines().all(|line| line.len() <= 44), "{text}");
        assert!(text.contains("\n           eight nine ten\n"), "{text}");
    }

    #[test]
    fn colours_come_on_top_of_the_words() {
        let text = shown(Look { color: true, columns: None });
        assert!(text.contains("\x1b[31mPROBLEM\x1b[0m"), "{text:?}");
    }

    #[test]
    fn secrets_are_struck_out_wherever_they_stand() {
        let environment = Environment::new(
            [
                ("WANDB_API_KEY", "abcdef0123456789"),
                ("SLURM_JWT", "abcdef0123456789.and.more"),
                ("EIRENE_TRAIN_SECRET_FILE", "/run/user/1/secret"),
                ("TOKENIZERS_PARALLELISM", "true"),
                ("HOME", "/home/ada"),
            ],
            "c1",
            1000,
        );
        let secrets = Secrets::of(&environment);
        let text = "a abcdef0123456789.and.more b abcdef0123456789 /run/user/1/secret true /home/ada";
        assert_eq!(secrets.hide(text), "a (hidden) b (hidden) /run/user/1/secret true /home/ada");
        let value = serde_json::json!({"a": ["abcdef0123456789"]});
        let finding = Finding::note("a.b", "abcdef0123456789", "abcdef0123456789").with(value);
        let section = secrets.hide_in(Section { name: "a", title: "a", findings: vec![finding] });
        assert!(!serde_json::to_string(&section).unwrap().contains("abcdef"), "{section:?}");
    }
}
