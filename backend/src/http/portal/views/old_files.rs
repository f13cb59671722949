//! Old files in a space: what would be removed when, and how to keep it.

use eirene_core::old_files::{OldFileExample, OldFilesFound};
use eirene_words::Words;
use serde::Serialize;

use super::format::{self, Time};
use super::{Field, FormError};
use crate::services::old_files::OldFilesReport;

/// An old file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OldFileRow {
    /// Its path below the space.
    pub(crate) path: String,
    /// Its size.
    pub(crate) size: String,
    /// When it was last changed; none where no clock can tell.
    pub(crate) changed: Option<Time>,
}

/// What one look found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OldFilesSum {
    /// When.
    pub(crate) at: Time,
    /// How much, a sentence each.
    pub(crate) lines: Vec<String>,
    /// The largest.
    pub(crate) rows: Vec<OldFileRow>,
}

/// What is said of old files on a space's page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OldFilesShown {
    /// What becomes of them.
    pub(crate) rule: String,
    /// How they stand.
    pub(crate) text: String,
    /// When what is listed goes at the earliest.
    pub(crate) goes_at: Option<Time>,
    /// What is listed.
    pub(crate) list: Option<OldFilesSum>,
    /// What the last look found that somebody asked for.
    pub(crate) look: Option<OldFilesSum>,
    /// What was removed last, a sentence each.
    pub(crate) removed: Vec<String>,
    /// When that was.
    pub(crate) removed_at: Option<Time>,
    /// Whether it is being looked at.
    pub(crate) running: bool,
    /// Where the button that has it looked at sends its form; empty for whoever may not.
    pub(crate) action: String,
}

impl OldFilesShown {
    /// Shows what is known of `space`; none where nothing becomes of old files.
    pub(crate) fn new(words: &Words, space: &str, report: &OldFilesReport) -> Option<Self> {
        let rule = report.rule?;
        let (days, warn_days) = (rule.days.to_string(), rule.warn_days.to_string());
        let values = [("days", days.as_str()), ("warn_days", warn_days.as_str())];
        let state = &report.state;
        let mut removed = Vec::new();
        if let Some((_, removal)) = &state.removed {
            removed.push(sum(words, removal.files, removal.bytes));
            if removal.kept > 0 {
                removed.push(words.fill("old_files.kept", &[("n", &format::number(removal.kept))]));
            }
            if removal.failed > 0 {
                removed.push(words.fill("old_files.failed", &[("n", &format::number(removal.failed))]));
            }
        }
        let found = |at, found: &OldFilesFound| OldFilesSum {
            at: Time::new(at),
            lines: lines(words, found),
            rows: found.examples.iter().map(|example| row(words, example)).collect(),
        };
        Some(Self {
            rule: if rule.dry_run {
                words.fill("old_files.rule_trial", &values)
            } else {
                words.fill("old_files.rule", &values)
            },
            text: report.sentence().as_str().to_owned(),
            goes_at: report.goes_at.map(Time::new),
            list: state.list.as_ref().map(|list| found(list.at, &list.found)),
            look: state.look.as_ref().map(|look| found(look.at, &look.found)),
            removed,
            removed_at: state.removed.map(|(at, _)| Time::new(at)),
            running: report.running,
            action: if report.may_look { format!("/spaces/{space}/old-files") } else { String::new() },
        })
    }
}

fn sum(words: &Words, files: u64, bytes: u64) -> String {
    words.count_with("old_files.sum", files, &[("size", &format::bytes(words, bytes))])
}

fn lines(words: &Words, found: &OldFilesFound) -> Vec<String> {
    let mut lines = vec![sum(words, found.files, found.bytes)];
    if found.saved > 0 {
        lines.push(words.fill("old_files.saved", &[("n", &format::number(found.saved))]));
    }
    if found.skipped > 0 {
        lines.push(words.count("my_spaces.sizes_page.skipped", found.skipped));
    }
    if found.more {
        lines.push(words.get("old_files.more"));
    }
    lines
}

fn row(words: &Words, example: &OldFileExample) -> OldFileRow {
    let changed = example.modified_at.max(example.changed_at);
    OldFileRow {
        path: example.path.clone(),
        size: format::bytes(words, example.bytes),
        changed: changed.map(Time::new),
    }
}

/// The form by which an admin says something of one space.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct OldFilesForm {
    /// Where it is sent; empty where nothing becomes of old files.
    pub(crate) action: String,
    /// What becomes of them there.
    pub(crate) text: String,
    /// Whether the space is exempt.
    pub(crate) exempt: bool,
    /// Days after which a file is old there; empty for what the root says.
    pub(crate) days: Field,
    /// What is wrong with it.
    pub(crate) errors: Vec<FormError>,
}

impl OldFilesForm {
    /// One with what `report` says; `href` is the page of the space.
    pub(crate) fn new(href: &str, report: &OldFilesReport) -> Self {
        if report.rule.is_none() {
            return Self::default();
        }
        Self {
            action: format!("{href}/old-files"),
            text: report.sentence().as_str().to_owned(),
            exempt: report.state.exempt,
            days: Field::new(report.state.days.map(|days| days.to_string()).unwrap_or_default()),
            errors: vec![],
        }
    }

    /// The same as it was sent, with what was wrong.
    pub(crate) fn refused(mut self, exempt: bool, days: String, errors: Vec<FormError>) -> Self {
        (self.exempt, self.days) = (exempt, Field::new(days));
        self.days.error = FormError::text_of(&errors, "days");
        Self { errors, ..self }
    }
}
