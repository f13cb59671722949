//! Old files in a space, as the API shows them.

use eirene_core::old_files::{
    OldFileExample, OldFilesDoubt, OldFilesFound, OldFilesList, OldFilesLook, OldFilesRemoval,
};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::services::old_files::{OldFilesReport, Standing};

/// What becomes of files in a space that nobody changes or reads.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFiles)]
pub struct OldFilesView {
    /// `none` where nothing becomes of them, `exempt`, `undetermined` where it cannot be known what is right, `not_listed`, `nothing` where there
    /// are none, `trial` where they are listed and nothing is removed, `untold`, or `waiting` for their time to go.
    #[schema(value_type = String, pattern = "^(none|exempt|undetermined|not_listed|nothing|trial|untold|waiting)$")]
    state: &'static str,
    /// The same in one sentence.
    text: String,
    /// Why it cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    doubt: Option<OldFilesDoubt>,
    /// Days after which a file that was neither changed nor read is old; absent where nothing becomes of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    days: Option<u32>,
    /// Days from telling the owner to the removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    warn_days: Option<u32>,
    /// Whether it is only said what would be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    dry_run: Option<bool>,
    /// Whether it is being looked at now, or something is being removed.
    running: bool,
    /// The operation that does so, for the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    operation: Option<String>,
    /// What is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    list: Option<OldFilesFoundView>,
    /// When the owner was told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    told_at: Option<Timestamp>,
    /// When it goes at the earliest: only what is still as it was listed does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    goes_at: Option<Timestamp>,
    /// What the last look found that somebody asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    look: Option<OldFilesFoundView>,
    /// What was removed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    removed: Option<OldFilesRemovedView>,
}

/// What is old.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFilesFound)]
pub(super) struct OldFilesFoundView {
    /// When it was looked.
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
    /// Days after which a file was taken for old.
    days: u32,
    /// Files.
    files: u64,
    /// Bytes of them.
    bytes: u64,
    /// Files that a time saves that cannot be, one in the future for example.
    saved: u64,
    /// What could not be looked at.
    skipped: u64,
    /// Whether there may be more.
    more: bool,
    /// The largest, for the owner alone.
    examples: Vec<OldFileView>,
}

/// An old file.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFile)]
pub(super) struct OldFileView {
    /// Its path below the space.
    path: String,
    /// The same as base64url of its bytes, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Its size.
    size_bytes: u64,
    /// Last change of content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    modified_at: Option<Timestamp>,
    /// Last change of anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    changed_at: Option<Timestamp>,
}

/// What was removed by one list.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFilesRemoved)]
pub(super) struct OldFilesRemovedView {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Files.
    files: u64,
    /// Bytes that became free.
    bytes: u64,
    /// Files that stayed because they had been changed, read or replaced.
    kept: u64,
    /// Files that were not there any more.
    gone: u64,
    /// Files that could not be removed.
    failed: u64,
}

impl OldFilesFoundView {
    fn new(as_of: Timestamp, days: u32, found: OldFilesFound) -> Self {
        let OldFilesFound { files, bytes, saved, skipped, more, examples } = found;
        let examples = examples.into_iter().map(OldFileView::from).collect();
        Self { as_of, days, files, bytes, saved, skipped, more, examples }
    }
}

impl From<OldFileExample> for OldFileView {
    fn from(example: OldFileExample) -> Self {
        let OldFileExample { path, raw_path, bytes: size_bytes, modified_at, changed_at } = example;
        Self { path, raw_path, size_bytes, modified_at, changed_at }
    }
}

impl From<OldFilesReport> for OldFilesView {
    fn from(report: OldFilesReport) -> Self {
        let (standing, text) = (Standing::of(&report), report.sentence().as_str().to_owned());
        let OldFilesReport { rule, state, goes_at, running, operation, may_look: _ } = report;
        let told_at = state.list.as_ref().and_then(|list| list.told_at);
        let list = state.list.map(|OldFilesList { at, days, found, .. }| OldFilesFoundView::new(at, days, found));
        let look = state.look.map(|OldFilesLook { at, days, found }| OldFilesFoundView::new(at, days, found));
        let removed = state.removed.map(|(at, removal)| {
            let OldFilesRemoval { files, bytes, kept, gone, failed } = removal;
            OldFilesRemovedView { at, files, bytes, kept, gone, failed }
        });
        Self {
            state: standing.as_str(),
            text,
            doubt: if let Standing::Undetermined(doubt) = standing { Some(doubt) } else { None },
            days: rule.map(|rule| rule.days),
            warn_days: rule.map(|rule| rule.warn_days),
            dry_run: rule.map(|rule| rule.dry_run),
            running,
            operation: operation.map(|id| id.to_string()),
            list,
            told_at,
            goes_at,
            look,
            removed,
        }
    }
}
