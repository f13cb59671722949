//! Everybody's spaces as admins see and change them: a list, a form that makes one, a page that changes one, and what its policy would do.

use eirene_core::space::{PolicyOutcome, PolicyRun, PolicyStep, StripeHint};
use eirene_core::storage::{Bytes, Files, Limit};
use eirene_core::{Space, SpaceKind, UserId};
use eirene_services::config::Root;
use eirene_services::spaces::SpaceSeen;
use eirene_services::spaces::policing::PolicyReport;
use eirene_words::Words;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::format::Time;
use super::layout::{Layout, Tone};
use super::old_files::OldFilesForm;
use super::session::{Chip, sentence};
use super::space::{self, Fact, date, last_moment};
use super::standing::Standing;
use super::storage;
use super::{Choice, Field, FormError};
use crate::pages::Page;

/// A line of the list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RowView {
    /// Name.
    name: String,
    /// The page that changes it.
    href: String,
    /// Whose it is.
    owner: String,
    /// What becomes of it.
    chip: Chip,
    /// Why it is not as it should be; empty when it is.
    reason: String,
    /// What it uses.
    used: String,
    /// When it ends; empty for never.
    ends: String,
}

impl RowView {
    /// Shows `seen`.
    pub(crate) fn new(words: &Words, seen: &SpaceSeen) -> Self {
        let space = &seen.space;
        let there = || Chip { label: words.get("spaces_admin.there"), tone: Tone::Good };
        Self {
            name: space.name.to_string(),
            href: href(seen),
            owner: storage::owner(words, space),
            chip: Standing::of(space).chip(words).unwrap_or_else(there),
            reason: space.reason.as_ref().map(|reason| sentence(reason.text.as_str())).unwrap_or_default(),
            used: seen.seen.map_or_else(|| words.get("spaces_admin.not_seen"), |look| storage::used(words, &look)),
            ends: space.expires_at.map(last_moment).map(date).unwrap_or_default(),
        }
    }
}

/// The page of a space for admins.
pub(crate) fn href(seen: &SpaceSeen) -> String {
    format!("/admin/storage/spaces/{}", seen.space.name)
}

/// Whether an admin can have it taken away.
fn can_leave(standing: Standing) -> bool {
    matches!(standing, Standing::There | Standing::BeingMade | Standing::NotMade | Standing::Returning)
}

/// Whether an admin can have it brought back; from what is being removed nothing comes back.
fn can_return(standing: Standing) -> bool {
    matches!(standing, Standing::Leaving | Standing::Retired)
}

/// The limit of a space as its form has it: whole GiB, rounded up; empty for none.
fn whole_gib(space: &Space) -> String {
    match space.limit_bytes {
        Limit::At(Bytes(bytes)) => bytes.div_ceil(1 << 30).to_string(),
        Limit::Unlimited => String::new(),
    }
}

/// The limit of its files, likewise.
fn whole_files(space: &Space) -> String {
    match space.limit_files {
        Limit::At(Files(files)) => files.to_string(),
        Limit::Unlimited => String::new(),
    }
}

/// What a form about a space was shown with: what is still so when it comes back was not touched, whatever has become of the space meanwhile.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ShownSpace {
    /// What people read.
    pub(crate) title: String,
    /// What it is mostly filled with.
    pub(crate) hint: String,
    /// The day it ends; empty for never.
    pub(crate) expires_at: String,
    /// How much it may hold, GiB; empty for any amount.
    pub(crate) limit_gib: String,
    /// How many files and directories, likewise.
    pub(crate) limit_files: String,
}

/// The fields of a form about a space, as typed.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct SpaceForm {
    /// Roots to choose from; none where it has one.
    pub(crate) roots: Vec<Choice>,
    /// What was wrong with the root.
    pub(crate) root_error: String,
    /// Name.
    pub(crate) name: Field,
    /// What people read.
    pub(crate) title: Field,
    /// The person it is for.
    pub(crate) owner: Field,
    /// The group it is for.
    pub(crate) group: Field,
    /// What it is mostly filled with.
    pub(crate) hints: Vec<Choice>,
    /// What was wrong with that.
    pub(crate) hint_error: String,
    /// The day it ends.
    pub(crate) expires_at: Field,
    /// How much it may hold, GiB.
    pub(crate) limit_gib: Field,
    /// How many files and directories.
    pub(crate) limit_files: Field,
    /// What it was shown with; empty where there is no space yet.
    pub(crate) shown: ShownSpace,
    /// What is wrong with all of it.
    pub(crate) errors: Vec<FormError>,
}

impl SpaceForm {
    /// An empty one for a new space in one of `roots`.
    pub(crate) fn empty(words: &Words, roots: &[Root]) -> Self {
        let root = |root: &Root| Choice::new(root.name.as_str(), format!("{} ({})", root.title, root.name), "");
        let as_root = Choice::new("", words.get("spaces_admin.hint_of_root"), "");
        let hints = [as_root].into_iter().chain(hints(words, "")).collect();
        Self { roots: roots.iter().map(root).collect(), hints, ..Self::default() }
    }

    /// One with what `seen` is.
    pub(crate) fn of(words: &Words, seen: &SpaceSeen) -> Self {
        let space = &seen.space;
        let shown = ShownSpace {
            title: space.title.to_string(),
            hint: space.hint.as_str().to_owned(),
            expires_at: space.expires_at.map(day).unwrap_or_default(),
            limit_gib: whole_gib(space),
            limit_files: whole_files(space),
        };
        Self {
            title: Field::new(shown.title.as_str()),
            hints: hints(words, &shown.hint).collect(),
            expires_at: Field::new(shown.expires_at.as_str()),
            limit_gib: Field::new(shown.limit_gib.as_str()),
            limit_files: Field::new(shown.limit_files.as_str()),
            shown,
            ..Self::default()
        }
    }

    /// The same with what was wrong.
    pub(crate) fn refused(mut self, errors: Vec<FormError>) -> Self {
        for (name, field) in [
            ("name", &mut self.name),
            ("title", &mut self.title),
            ("owner", &mut self.owner),
            ("group", &mut self.group),
            ("expires_at", &mut self.expires_at),
            ("limit_gib", &mut self.limit_gib),
            ("limit_files", &mut self.limit_files),
        ] {
            field.error = FormError::text_of(&errors, name);
        }
        self.root_error = FormError::text_of(&errors, "root");
        self.hint_error = FormError::text_of(&errors, "hint");
        self.errors = errors;
        self
    }
}

/// The last day of what is over `at`, as a form's field has it; by UTC, as it is read.
fn day(at: Timestamp) -> String {
    last_moment(at).to_zoned(TimeZone::UTC).date().to_string()
}

fn hints<'a>(words: &'a Words, chosen: &'a str) -> impl Iterator<Item = Choice> + 'a {
    StripeHint::ALL.iter().map(move |hint| {
        let key = match hint {
            StripeHint::Usual => "spaces_admin.hint_usual",
            StripeHint::SmallFiles => "my_spaces.hint_small_files",
            StripeHint::LargeSequential => "my_spaces.hint_large_sequential",
        };
        Choice::new(hint.as_str(), words.get(key), chosen)
    })
}

/// Everybody's spaces, and the form that makes one.
#[derive(Debug, Serialize)]
pub(crate) struct ManagingPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The spaces by name.
    pub(crate) spaces: Vec<RowView>,
    /// The next part of the list; empty where there is none.
    pub(crate) next_href: String,
    /// The form.
    pub(crate) form: SpaceForm,
}

impl Page for ManagingPage {
    const TEMPLATE: &'static str = "pages/admin/spaces.html";
}

/// A look of a policy.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RunView {
    at: Time,
    chip: Chip,
    step: String,
    why: String,
}

/// What a policy would do, and did.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PolicyShown {
    chip: Chip,
    step: String,
    why: String,
    runs: Vec<RunView>,
}

impl PolicyShown {
    /// Shows `report`.
    pub(crate) fn new(words: &Words, report: &PolicyReport) -> Self {
        let run = |run: &PolicyRun| RunView {
            at: Time::new(run.at),
            chip: outcome(words, run.outcome),
            step: step(words, run.step),
            why: sentence(&run.why),
        };
        Self {
            chip: outcome(words, report.outcome),
            step: step(words, report.step),
            why: sentence(&report.why),
            runs: report.runs.iter().map(run).collect(),
        }
    }
}

fn outcome(words: &Words, outcome: PolicyOutcome) -> Chip {
    let (key, tone) = match outcome {
        PolicyOutcome::Nothing => ("spaces_admin.outcome_nothing", Tone::Good),
        PolicyOutcome::Warned => ("spaces_admin.outcome_warned", Tone::Wait),
        PolicyOutcome::WouldDo => ("spaces_admin.outcome_would_do", Tone::Wait),
        PolicyOutcome::Did => ("spaces_admin.outcome_did", Tone::Still),
        PolicyOutcome::Undetermined => ("spaces_admin.outcome_undetermined", Tone::Doubt),
    };
    Chip { label: words.get(key), tone }
}

fn step(words: &Words, step: Option<PolicyStep>) -> String {
    words.get(match step {
        None => return String::new(),
        Some(PolicyStep::Warn) => "spaces_admin.step_warn",
        Some(PolicyStep::Retire) => "spaces_admin.step_retire",
        Some(PolicyStep::Remove) => "spaces_admin.step_remove",
    })
}

/// One space, and what can be done with it.
#[derive(Debug, Serialize)]
pub(crate) struct ManagedPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What people read.
    pub(crate) title: String,
    /// Name.
    pub(crate) name: String,
    /// The page that changes it.
    pub(crate) href: String,
    /// What its policy would do.
    pub(crate) policy_href: String,
    /// Where it is asked once more before it is taken away; empty where it cannot be.
    pub(crate) retire_href: String,
    /// What becomes of it.
    pub(crate) chip: Option<Chip>,
    /// The same in a sentence.
    pub(crate) standing: String,
    /// Why it is not as it should be; empty when it is.
    pub(crate) reason: String,
    /// What is known of it.
    pub(crate) details: Vec<Fact>,
    /// Whether it is a home, which nobody changes here.
    pub(crate) is_home: bool,
    /// Whether it can be brought back.
    pub(crate) can_return: bool,
    /// What taking it away means.
    pub(crate) retire_text: String,
    /// The form that changes it.
    pub(crate) form: SpaceForm,
}

impl ManagedPage {
    /// Of `seen`, for the admin `me`, with `form`; `retire_text` says what taking it away means.
    pub(crate) fn new(
        words: &Words,
        layout: Layout,
        seen: &SpaceSeen,
        me: UserId,
        retire_text: String,
        form: SpaceForm,
    ) -> Self {
        let (one, standing) = (&seen.space, Standing::of(&seen.space));
        let is_home = one.kind == SpaceKind::Home;
        Self {
            layout,
            title: one.title.to_string(),
            name: one.name.to_string(),
            href: href(seen),
            policy_href: format!("{}/policy", href(seen)),
            retire_href: if !is_home && can_leave(standing) { format!("{}/retire", href(seen)) } else { String::new() },
            chip: standing.chip(words),
            standing: standing.sentence(words, one),
            reason: one.reason.as_ref().map(|reason| sentence(reason.text.as_str())).unwrap_or_default(),
            details: space::details(words, seen, me),
            is_home,
            can_return: !is_home && can_return(standing),
            retire_text,
            form,
        }
    }
}

impl Page for ManagedPage {
    const TEMPLATE: &'static str = "pages/admin/space.html";
}

/// What the policy of its root would do to a space.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The space's name.
    pub(crate) name: String,
    /// The page that changes it.
    pub(crate) href: String,
    /// The answer.
    pub(crate) policy: PolicyShown,
    /// What becomes of old files in it.
    pub(crate) old_files: OldFilesForm,
}

impl Page for PolicyPage {
    const TEMPLATE: &'static str = "pages/admin/space_policy.html";
}
