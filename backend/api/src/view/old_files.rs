//! Old files in a space, as the API shows them.

use eirene_core::old_files::{
    OldFileExample, OldFilesDoubt, OldFilesFound, OldFilesList, OldFilesLook, OldFilesOfStranger, OldFilesRemoval,
    OldFilesRule, OldFilesState,
};
use eirene_services::old_files::{OldFilesMember, OldFilesReport, Standing};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What becomes of files in a space that nobody changes or reads.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFiles)]
pub struct OldFilesView {
    /// `none` where nothing becomes of them, `exempt`, `undetermined` where it cannot be known what is right, `not_listed`, `nothing` where there
    /// are none, `trial` where they are listed and nothing is removed, `untold`, `waiting` for their time to go, or `by_member` for an admin who
    /// is no member of the space's group. In a space of a group it is about one's own files there.
    #[schema(value_type = String, pattern = "^(none|exempt|undetermined|not_listed|nothing|trial|untold|waiting|by_member)$")]
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
    /// In a space of a group, the files of each member, for admins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    members: Vec<OldFilesMemberView>,
    /// In a space of a group, what is old and belongs to nobody who is a member and has an account, for admins. Whose it should be is
    /// undetermined, and it is not removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    others: Vec<OldFilesOfOtherView>,
}

/// What becomes of a member's old files in a space of a group.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFilesOfMember)]
pub(super) struct OldFilesMemberView {
    /// Who.
    person: String,
    /// How they stand, as for a space.
    #[schema(value_type = String, pattern = "^(exempt|undetermined|not_listed|nothing|trial|untold|waiting)$")]
    state: &'static str,
    /// The same in one sentence.
    text: String,
    /// Why it cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    doubt: Option<OldFilesDoubt>,
    /// Whether they are being looked at now, or removed.
    running: bool,
    /// What is listed, without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    list: Option<OldFilesFoundView>,
    /// What the last look found that the member or an admin asked for, without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    look: Option<OldFilesFoundView>,
    /// When the member was told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    told_at: Option<Timestamp>,
    /// When it goes at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    goes_at: Option<Timestamp>,
    /// What was removed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    removed: Option<OldFilesRemovedView>,
}

/// Old files in a space of a group that are of nobody who is a member.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OldFilesOfOther)]
pub(super) struct OldFilesOfOtherView {
    /// Whose they are.
    uid: u32,
    /// Who that is, or was, where it is known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    person: Option<String>,
    /// Files, as the member's process has seen them that saw the most.
    files: u64,
    /// Bytes of them.
    bytes: u64,
    /// When that was: they may have changed since, so look again before anything is done to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    seen_at: Option<Timestamp>,
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
        let OldFilesFound { files, bytes, saved, skipped, more, examples, others: _ } = found;
        let examples = examples.into_iter().map(OldFileView::from).collect();
        Self { as_of, days, files, bytes, saved, skipped, more, examples }
    }
}

impl From<(Timestamp, OldFilesRemoval)> for OldFilesRemovedView {
    fn from((at, removal): (Timestamp, OldFilesRemoval)) -> Self {
        let OldFilesRemoval { files, bytes, kept, gone, failed } = removal;
        Self { at, files, bytes, kept, gone, failed }
    }
}

impl From<OldFilesOfStranger> for OldFilesOfOtherView {
    fn from(OldFilesOfStranger { uid, name, files, bytes, seen_at }: OldFilesOfStranger) -> Self {
        Self { uid, person: name.map(|name| name.to_string()), files, bytes, seen_at }
    }
}

impl OldFilesMemberView {
    fn new(member: &OldFilesMember, rule: OldFilesRule) -> Self {
        let (standing, text) = member.standing(rule);
        let OldFilesState { list, look, .. } = member.state.clone();
        Self {
            person: member.name.to_string(),
            state: standing.as_str(),
            text: text.as_str().to_owned(),
            doubt: standing.doubt(),
            running: member.running,
            told_at: list.as_ref().and_then(|list| list.told_at),
            list: list.map(|OldFilesList { at, days, found, .. }| OldFilesFoundView::new(at, days, found)),
            look: look.map(|OldFilesLook { at, days, found }| OldFilesFoundView::new(at, days, found)),
            goes_at: member.goes_at,
            removed: member.state.removed.map(OldFilesRemovedView::from),
        }
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
        let OldFilesReport { rule, state, goes_at, running, operation, members, may_look: _, is_shared: _, is_own: _ } =
            report;
        let told_at = state.list.as_ref().and_then(|list| list.told_at);
        let list = state.list.map(|OldFilesList { at, days, found, .. }| OldFilesFoundView::new(at, days, found));
        let look = state.look.map(|OldFilesLook { at, days, found }| OldFilesFoundView::new(at, days, found));
        let removed = state.removed.map(OldFilesRemovedView::from);
        let members = rule.into_iter().flat_map(|rule| {
            members.iter().map(move |member| OldFilesMemberView::new(member, rule)).collect::<Vec<_>>()
        });
        Self {
            state: standing.as_str(),
            text,
            doubt: standing.doubt(),
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
            members: members.collect(),
            others: state.strangers.into_iter().map(OldFilesOfOtherView::from).collect(),
        }
    }
}
