//! Printing: tables for people, JSON for programs, errors on standard error; readable without colour.

use eirene_core::text::is_printable;
use std::cell::Cell;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// The person was asked and said no.
#[derive(Debug, thiserror::Error)]
#[error("nothing was changed")]
pub(crate) struct Declined;

/// Says what went wrong and gives the exit code.
pub(crate) fn fail(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {}", printable(message));
    ExitCode::from(code)
}

/// The same for programs: one JSON object on standard error, with the portal's own error code where it has one.
pub(crate) fn fail_as_json(message: &str, portal_code: Option<&str>, code: u8) -> ExitCode {
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        escaped(&serde_json::json!({"error": message, "code": portal_code}).to_string())
    );
    ExitCode::from(code)
}

/// One line for people, on standard error, so that standard output holds results only.
pub(crate) fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(message));
}

/// One result.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", printable(text))?;
    Ok(())
}

/// JSON, indented when a person reads it.
pub(crate) fn json(value: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let text = if out.is_terminal() { serde_json::to_string_pretty(value)? } else { value.to_string() };
    writeln!(out, "{}", escaped(&text))?;
    Ok(())
}

/// One of many JSON values, a line each.
pub(crate) fn json_line(value: &Value) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", escaped(&value.to_string()))?;
    Ok(())
}

/// A table, or a sentence when there is nothing to show.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>, when_empty: &str) -> anyhow::Result<()> {
    if rows.is_empty() {
        say(when_empty);
        return Ok(());
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for text in table.to_string().lines() {
        writeln!(std::io::stdout(), "{}", text.trim_end())?;
    }
    Ok(())
}

/// Names come from other people: what acts on a terminal, or turns the order of letters, must not reach it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if !is_printable(c) && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// A name or a path, on one line: what acts on a terminal as an escape, what is no text as U+FFFD.
pub(crate) fn name(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        if is_printable(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    shown
}

/// JSON with the same escaped that it would let through: it may be a terminal that it goes to. Such characters only stand in strings.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        let code = u32::from(c);
        if code >= 0x7f && !is_printable(c) {
            // Writing to a string does not fail.
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("\\u{code:04x}"));
        } else {
            text.push(c);
        }
    }
    text
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

/// A spinner on standard error; nothing when nobody watches.
pub(crate) fn spinner(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// How many of so many bytes are through, on standard error; nothing when nobody watches.
pub(crate) fn progress(quiet: bool, bytes: u64) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} ({bytes_per_sec}, {eta})") {
        bar.set_style(style);
    }
    bar
}

/// One transfer's share of a bar that several have.
pub(crate) struct Meter<'a> {
    bar: &'a ProgressBar,
    at: Cell<u64>,
}

impl<'a> Meter<'a> {
    /// Of so many bytes.
    pub(crate) fn new(bar: &'a ProgressBar, bytes: u64) -> Self {
        bar.inc_length(bytes);
        Self { bar, at: Cell::new(0) }
    }

    /// So many are through; fewer than before where it began anew.
    pub(crate) fn to(&self, bytes: u64) {
        let before = self.at.replace(bytes);
        if bytes < before { self.bar.dec(before - bytes) } else { self.bar.inc(bytes - before) }
    }
}

/// Asks a yes-or-no question; without a terminal the answer is no.
pub(crate) fn confirm(question: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        anyhow::bail!("{question} Give `--yes` to go on without a terminal");
    }
    write!(std::io::stderr(), "{question} [y/N] ")?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), Declined);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(super::printable("a\u{1b}[31mb\u{7}"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(super::printable("a\u{202e}b\n"), "a\u{fffd}b\n");
    }

    #[test]
    fn a_name_stays_on_its_line_and_acts_on_nothing() {
        assert_eq!(
            super::name("a\n\u{1b}]0;x\u{7}\u{9b}2J\u{202e}ü".as_bytes()),
            "a\\n\\u{1b}]0;x\\u{7}\\u{9b}2J\\u{202e}ü"
        );
        assert_eq!(super::name(b"caf\xe9"), "caf\u{fffd}");
    }

    #[test]
    fn json_says_the_same_without_acting_on_a_terminal() {
        let value = serde_json::json!({"n": "a\n\u{9b}2J\u{202e}\u{7f}ü\u{feff}"});
        let text = super::escaped(&value.to_string());
        assert_eq!(text, r#"{"n":"a\n\u009b2J\u202e\u007fü\ufeff"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
