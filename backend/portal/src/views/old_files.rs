//! Old files in a space: what would be removed when, and how to keep it.

use eirene_core::old_files::{OldFileExample, OldFilesFound, OldFilesOfStranger};
use eirene_services::old_files::{OldFilesMember, OldFilesReport, PromisedRemoval, Standing};
use eirene_words::Words;
use serde::Serialize;

use super::format::{self, Time};
use super::{Field, FormError};
use crate::pages::Page;

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
    /// Whether it is about those of whoever looks, in a space in which others have some, too.
    pub(crate) own_only: bool,
    /// How they stand.
    pub(crate) text: String,
    /// What stands before the time at which what is listed goes.
    pub(crate) goes: String,
    /// When that is, at the earliest.
    pub(crate) goes_at: Option<Time>,
    /// What is listed.
    pub(crate) list: Option<OldFilesSum>,
    /// What the last look found that somebody asked for.
    pub(crate) look: Option<OldFilesSum>,
    /// What was removed last, a sentence each.
    pub(crate) removed: Vec<String>,
    /// When that was.
    pub(crate) removed_at: Option<Time>,
    /// The page that has each member's; empty for whoever may not see it, and where there are none.
    pub(crate) members_href: String,
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
            own_only: report.is_shared && report.is_own,
            text: report.sentence().as_str().to_owned(),
            goes: words.count("old_files.goes_at", state.list.as_ref().map_or(0, |list| list.found.files)),
            goes_at: report.goes_at.map(Time::new),
            list: state.list.as_ref().map(|list| found(list.at, &list.found)),
            look: state.look.as_ref().map(|look| found(look.at, &look.found)),
            removed,
            removed_at: state.removed.map(|(at, _)| Time::new(at)),
            members_href: if report.members.is_empty() {
                String::new()
            } else {
                format!("/admin/storage/spaces/{space}/policy")
            },
            running: report.running,
            action: if report.may_look { format!("/spaces/{space}/old-files") } else { String::new() },
        })
    }
}

/// What is said where nobody misses it: that files of theirs are to be removed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PromisedView {
    /// How many, and where.
    pub(crate) text: String,
    /// What stands before the time at which they go.
    pub(crate) goes: String,
    /// When that is, at the earliest.
    pub(crate) goes_at: Time,
    /// Where they are listed.
    pub(crate) href: String,
    /// What the way there is called.
    pub(crate) see: String,
}

impl PromisedView {
    /// One for each space in which some are.
    pub(crate) fn all(words: &Words, promised: &[PromisedRemoval]) -> Vec<Self> {
        let view = |one: &PromisedRemoval| Self {
            text: words.count_with("old_files.promised", one.files, &[("name", one.title.as_str())]),
            goes: words.count("old_files.goes_at", one.files),
            goes_at: Time::new(one.goes_at),
            href: format!("/spaces/{}", one.space),
            see: words.count("old_files.see", one.files),
        };
        promised.iter().map(view).collect()
    }
}

/// The same by itself.
#[derive(Debug, Serialize)]
pub(crate) struct PromisedFragment {
    /// One for each space in which some are.
    pub(crate) promised: Vec<PromisedView>,
}

impl Page for PromisedFragment {
    const TEMPLATE: &'static str = "fragments/old_files_promised.html";
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

/// What was found of a member's old files.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MemberFound {
    /// Whether it is listed, or was only looked at.
    pub(crate) what: String,
    /// When.
    pub(crate) at: Time,
    /// How much.
    pub(crate) sum: String,
}

/// A member's old files in a space of a group.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MemberRow {
    /// Who.
    pub(crate) name: String,
    /// What is listed, and what was looked at since.
    pub(crate) found: Vec<MemberFound>,
    /// How they stand.
    pub(crate) text: String,
    /// When what is listed goes at the earliest.
    pub(crate) goes_at: Option<Time>,
}

/// Old files in a space of a group that are of nobody who is a member.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StrangerRow {
    /// Whose.
    pub(crate) name: String,
    /// How much.
    pub(crate) sum: String,
    /// When that was seen; none where that was not noted.
    pub(crate) seen: Option<Time>,
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
    /// In a space of a group, the members of whom there is something to say.
    pub(crate) members: Vec<MemberRow>,
    /// In a space of a group, what is of nobody who is a member.
    pub(crate) strangers: Vec<StrangerRow>,
}

impl OldFilesForm {
    /// One with what `report` says; `href` is the page of the space.
    pub(crate) fn new(words: &Words, href: &str, report: &OldFilesReport) -> Self {
        let Some(rule) = report.rule else { return Self::default() };
        let member = |member: &OldFilesMember| {
            let (standing, text) = member.standing(rule);
            let (listed, looked) = (member.state.list.as_ref(), member.looked());
            let is_quiet = matches!(standing, Standing::Nothing | Standing::NotListed | Standing::Exempt);
            let row = |what, at, found: &OldFilesFound| MemberFound {
                what: words.get(what),
                at: Time::new(at),
                sum: sum(words, found.files, found.bytes),
            };
            let listed = listed.filter(|list| list.found.files > 0);
            let listed = listed.map(|list| row("old_files.listed", list.at, &list.found));
            // Who had it looked at is told also where nothing was found.
            let looked = looked.map(|look| row("old_files.looked", look.at, &look.found));
            (!is_quiet || looked.is_some()).then(|| MemberRow {
                name: member.name.to_string(),
                found: listed.into_iter().chain(looked).collect(),
                text: text.as_str().to_owned(),
                goes_at: member.goes_at.map(Time::new),
            })
        };
        let stranger = |stranger: &OldFilesOfStranger| {
            let number = words.fill("old_files.who_number", &[("uid", &stranger.uid.to_string())]);
            StrangerRow {
                name: stranger.name.as_ref().map_or(number.clone(), |name| format!("{name} ({number})")),
                sum: sum(words, stranger.files, stranger.bytes),
                seen: stranger.seen_at.map(Time::new),
            }
        };
        Self {
            action: format!("{href}/old-files"),
            text: report.sentence().as_str().to_owned(),
            exempt: report.state.exempt,
            days: Field::new(report.state.days.map(|days| days.to_string()).unwrap_or_default()),
            errors: vec![],
            members: report.members.iter().filter_map(member).collect(),
            strangers: report.state.strangers.iter().map(stranger).collect(),
        }
    }

    /// The same as it was sent, with what was wrong.
    pub(crate) fn refused(mut self, exempt: bool, days: String, errors: Vec<FormError>) -> Self {
        (self.exempt, self.days) = (exempt, Field::new(days));
        self.days.error = FormError::text_of(&errors, "days");
        Self { errors, ..self }
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::SpaceId;
    use eirene_core::old_files::{OldFilesList, OldFilesLook, OldFilesRule, OldFilesState};
    use eirene_services::testing::start_time;
    use eirene_words::words;
    use jiff::SignedDuration;

    use super::*;

    const RULE: OldFilesRule = OldFilesRule { days: 30, warn_days: 14, dry_run: false };

    /// A member of whom so many files were listed, and found by a look so many seconds later.
    fn member(name: &str, listed: Option<u64>, looked: Option<(u64, i64)>) -> OldFilesMember {
        let found = |files| OldFilesFound { files, ..OldFilesFound::default() };
        let list = listed.map(|files| OldFilesList {
            at: start_time(),
            before: start_time(),
            days: 30,
            warn_days: 14,
            dry_run: false,
            told_at: None,
            waited_s: 0,
            found: found(files),
        });
        let look = looked.map(|(files, later)| OldFilesLook {
            at: start_time() + SignedDuration::from_secs(later),
            days: 30,
            found: found(files),
        });
        let state = OldFilesState { list, look, ..OldFilesState::new(SpaceId::generate()) };
        OldFilesMember { name: name.parse().unwrap(), state, goes_at: None, running: false }
    }

    #[test]
    fn one_file_is_promised_as_one_and_more_as_more() {
        let promised = |files| PromisedRemoval {
            space: "stars".parse().unwrap(),
            title: "Stars".parse().unwrap(),
            files,
            goes_at: start_time(),
        };
        let shown = PromisedView::all(words(), &[promised(1), promised(2)]);
        let said: Vec<_> = shown.iter().map(|one| (one.goes.as_str(), one.see.as_str())).collect();
        assert_eq!(
            said,
            [
                ("It goes at the earliest on", "See which, and how to keep it"),
                ("They go at the earliest on", "See which, and how to keep them"),
            ]
        );
    }

    #[test]
    fn an_admin_sees_of_each_member_what_is_listed_and_what_was_looked_at_since() {
        let members = vec![
            member("both", Some(12), Some((15, 60))),
            member("listed-since", Some(12), Some((15, -60))),
            member("looked-at", None, Some((7, 0))),
            member("none-found", Some(0), Some((0, 60))),
            member("quiet", Some(0), Some((3, -60))),
            member("unknown", None, None),
        ];
        let report = OldFilesReport {
            rule: Some(RULE),
            state: OldFilesState::new(SpaceId::generate()),
            is_shared: true,
            is_own: false,
            members,
            goes_at: None,
            running: false,
            operation: None,
            may_look: true,
        };
        let form = OldFilesForm::new(words(), "/x", &report);
        let found = |row: &MemberRow| -> Vec<String> {
            row.found.iter().map(|found| format!("{} {}", found.what, found.sum)).collect()
        };
        let rows: Vec<_> = form.members.iter().map(|row| (row.name.as_str(), found(row))).collect();
        let (listed, looked) = (words().get("old_files.listed"), words().get("old_files.looked"));
        let expected = |what: &str, files| format!("{what} {}", sum(words(), files, 0));
        assert_eq!(
            rows,
            [
                ("both", vec![expected(&listed, 12), expected(&looked, 15)]),
                ("listed-since", vec![expected(&listed, 12)]),
                ("looked-at", vec![expected(&looked, 7)]),
                ("none-found", vec![expected(&looked, 0)]),
            ]
        );
        let shown = OldFilesShown::new(words(), "stars", &report).unwrap();
        assert_eq!(shown.members_href, "/admin/storage/spaces/stars/policy");
    }
}
