//! Printing: tables for people, JSON for programs, errors on standard error; readable without colour.

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
    let _ = writeln!(std::io::stderr(), "{}", serde_json::json!({"error": message, "code": portal_code}));
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
    if out.is_terminal() {
        serde_json::to_writer_pretty(&mut out, value)?;
    } else {
        serde_json::to_writer(&mut out, value)?;
    }
    writeln!(out)?;
    Ok(())
}

/// One of many JSON values, a line each.
pub(crate) fn json_line(value: &Value) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{value}")?;
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

/// Names come from other people: control characters must not reach the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
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
    }
}
