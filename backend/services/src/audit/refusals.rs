//! Folds refusals: the first of a source has a line of its own, and those that follow within [`WINDOW`] have one together, which counts them.

use std::collections::HashMap;

use eirene_core::audit::NewAuditEvent;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Refusals of one source within this time are folded.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Sources at once. What further ones are refused is folded into one line for each action.
const MOST_SOURCES: usize = 10_000;
/// While there are so many, sources whose window has ended are removed this often: each pass goes through all of them.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// The actor of lines for more than [`MOST_SOURCES`].
const MANY: &str = "(many)";

/// Who was refused what, and why. From where is no part of it: one person can have any number of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Source {
    actor: String,
    action: &'static str,
    target: String,
    reason: String,
}

/// Refusals of a source since the one that has a line.
#[derive(Debug)]
struct Folded {
    since: Timestamp,
    more: u64,
    last_at: Timestamp,
    last: NewAuditEvent,
}

impl Folded {
    /// The line for those that were counted; none where there were none.
    fn line(self) -> Option<NewAuditEvent> {
        let Self { since, more, last_at, mut last } = self;
        if more == 0 {
            return None;
        }
        last.details["times"] = json!(more);
        last.details["since"] = json!(since.to_string());
        last.details["until"] = json!(last_at.to_string());
        Some(last)
    }
}

/// The sources of the last minutes. What was counted and has no line yet is lost with the process.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    sources: HashMap<Source, Folded>,
    swept_at: Option<Timestamp>,
}

impl Refusals {
    /// Takes in a refusal, and gives the lines to write now.
    pub(super) fn add(&mut self, mut event: NewAuditEvent, now: Timestamp) -> Vec<NewAuditEvent> {
        let mut lines = Vec::new();
        if self.sources.len() >= MOST_SOURCES && !self.sources.contains_key(&source(&event)) {
            if self.swept_at.is_none_or(|swept_at| now >= swept_at + SWEEP_EVERY) {
                lines = self.ended(now);
            }
            if self.sources.len() >= MOST_SOURCES {
                (event.actor, event.target, event.address) = (MANY.to_owned(), String::new(), None);
            }
        }
        let source = source(&event);
        match self.sources.get_mut(&source) {
            Some(folded) if now < folded.since + WINDOW => {
                (folded.more, folded.last_at, folded.last) = (folded.more.saturating_add(1), now, event);
                return lines;
            }
            _ => {}
        }
        let before = self.sources.insert(source, Folded { since: now, more: 0, last_at: now, last: event.clone() });
        lines.extend(before.and_then(Folded::line));
        lines.push(event);
        lines
    }

    /// Forgets the sources whose window has ended at `now`, and gives their lines.
    pub(super) fn ended(&mut self, now: Timestamp) -> Vec<NewAuditEvent> {
        self.swept_at = Some(now);
        let is_over = |_: &Source, folded: &mut Folded| now >= folded.since + WINDOW;
        self.sources.extract_if(is_over).filter_map(|(_, folded)| folded.line()).collect()
    }

    /// Forgets all sources, and gives their lines.
    pub(super) fn all(&mut self) -> Vec<NewAuditEvent> {
        self.sources.drain().filter_map(|(_, folded)| folded.line()).collect()
    }
}

fn source(event: &NewAuditEvent) -> Source {
    let NewAuditEvent { actor, action, target, details, .. } = event;
    let reason = details["reason"].as_str().unwrap_or_default().to_owned();
    Source { actor: actor.clone(), action, target: target.clone(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start_time;

    fn refusal(actor: &str, reason: &str) -> NewAuditEvent {
        NewAuditEvent {
            actor: actor.into(),
            action: "login",
            target: actor.into(),
            outcome: "refused",
            details: json!({"reason": reason}),
            address: Some("192.0.2.1".into()),
            request_id: None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        start_time() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn repeated_refusals_of_a_source_are_one_counted_line() {
        let mut refusals = Refusals::default();
        let (first, hers) = (refusal("ada", "wrong"), refusal("grace", "wrong"));
        assert_eq!(refusals.add(first.clone(), at(0)), std::slice::from_ref(&first));
        for second in 1..=599 {
            let from = NewAuditEvent { address: Some(format!("2001:db8::{second}")), ..first.clone() };
            assert_eq!(refusals.add(from, at(second)), []);
        }
        assert_eq!(refusals.add(hers.clone(), at(5)), [hers], "another person");
        assert_eq!(refusals.add(refusal("ada", "hidden"), at(5)), [refusal("ada", "hidden")], "another reason");
        assert_eq!(refusals.ended(at(599)), [], "its window has not ended");
        let counted = |times: u64, until: i64, address: Option<String>| {
            let (since, until) = (at(0).to_string(), at(until).to_string());
            let details = json!({"reason": "wrong", "times": times, "since": since, "until": until});
            NewAuditEvent { details, address, ..first.clone() }
        };
        assert_eq!(refusals.ended(at(600)), [counted(599, 599, Some("2001:db8::599".into()))]);
        assert_eq!(refusals.ended(at(10_000)), [], "of one refusal there is nothing to count");

        refusals.add(first.clone(), at(0));
        refusals.add(first.clone(), at(1));
        assert_eq!(refusals.add(first.clone(), at(600)), [counted(1, 1, first.address.clone()), first.clone()]);
        refusals.add(first.clone(), at(601));
        assert_eq!(refusals.all().len(), 1);
        assert_eq!(refusals.all(), []);
    }

    #[test]
    fn many_sources_take_neither_memory_nor_lines_without_end() {
        let mut refusals = Refusals::default();
        let lines: usize =
            (0..3 * MOST_SOURCES).map(|n| refusals.add(refusal(&format!("name{n}"), ""), at(1)).len()).sum();
        assert_eq!((refusals.sources.len(), lines), (MOST_SOURCES + 1, MOST_SOURCES + 1));
        let all = refusals.all();
        assert_eq!(
            all.iter().map(|line| (line.actor.as_str(), &line.details["times"])).collect::<Vec<_>>(),
            [(MANY, &json!(2 * MOST_SOURCES - 1))]
        );
    }
}
