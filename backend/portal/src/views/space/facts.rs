//! What else there is to know of a space, a line each: whose it is, where it is seen, by what it is limited, and until when.

use eirene_core::space::{HintState, LimitState, StripeHint, UsageSource};
use eirene_core::storage::Limit;
use eirene_core::{Space, SpaceKind, SpaceOwner, UserId};
use eirene_services::spaces::SpaceSeen;
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::{date, kind, last_moment};
use crate::views::format;
use crate::views::standing::Standing;

/// A line about a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fact {
    /// About what.
    pub(crate) label: String,
    /// What is so.
    pub(crate) value: String,
}

/// What else there is to know of a space; `me` is whoever looks.
pub(crate) fn details(words: &Words, seen: &SpaceSeen, me: UserId) -> Vec<Fact> {
    let space = &seen.space;
    let owner = match &space.owner {
        SpaceOwner::Person { id, .. } if *id == me => words.get("my_spaces.owner_you"),
        SpaceOwner::Person { name, .. } => words.fill("my_spaces.owner_person", &[("name", name.as_str())]),
        SpaceOwner::Group(group) => words.fill("my_spaces.owner_group", &[("name", group.as_str())]),
        SpaceOwner::Everybody => words.get("my_spaces.owner_all"),
    };
    let may = if space.writable && space.owner != SpaceOwner::Everybody {
        "my_spaces.may_write"
    } else {
        "my_spaces.may_read"
    };
    let mounted = match &seen.mounted_at {
        Some(path) => path.to_string_lossy().into_owned(),
        None if space.kind == SpaceKind::Home => words.get("my_spaces.mounted_home"),
        None => words.get("my_spaces.mounted_nowhere"),
    };
    let fact = |label: &str, value: String| Fact { label: words.get(label), value };
    let day = |label: &str, at: Option<Timestamp>| at.map(|at| fact(label, date(at)));
    [
        Some(fact("my_spaces.name", space.name.to_string())),
        Some(fact("my_spaces.kind", kind(words, space.kind))),
        Some(fact("my_spaces.owner", owner)),
        Some(fact("my_spaces.may", words.get(may))),
        Some(fact("my_spaces.mounted", mounted)),
        hint(words, space).map(|text| fact("my_spaces.hint", text)),
        Standing::of(space).chip(words).map(|chip| fact("my_spaces.state", chip.label)),
        limit(words, seen).map(|text| fact("my_spaces.limit", text)),
        day("my_spaces.ends", space.expires_at.map(last_moment)),
        day("my_spaces.taken_away", space.retired_at),
        day("my_spaces.kept_until", space.kept_until()),
        Some(fact("my_spaces.since", date(space.created_at))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What a space is mostly filled with, and whether its files are spread by that.
fn hint(words: &Words, space: &Space) -> Option<String> {
    let hint = match space.hint {
        StripeHint::Usual => return None,
        StripeHint::SmallFiles => words.get("my_spaces.hint_small_files"),
        StripeHint::LargeSequential => words.get("my_spaces.hint_large_sequential"),
    };
    Some(match space.hint_state {
        HintState::Unset | HintState::Applied => hint,
        HintState::Wanted => words.fill("my_spaces.hint_wanted", &[("hint", &hint)]),
        HintState::NotApplied => {
            let said = space.hint_said.as_deref().unwrap_or_default();
            words.fill("my_spaces.hint_not_applied", &[("hint", &hint), ("said", said)])
        }
    })
}

/// The limit that the platform sets, whether it is held, and what counts where it is not.
pub(super) fn limit(words: &Words, seen: &SpaceSeen) -> Option<String> {
    let space = &seen.space;
    let source = seen.seen.map(|look| look.usage.source);
    let bytes = match space.limit_bytes {
        Limit::At(bytes) => Some(format::bytes(words, bytes.0)),
        Limit::Unlimited => None,
    };
    let files = match space.limit_files {
        Limit::At(files) => Some(words.count("my_spaces.files_at_most", files.0)),
        Limit::Unlimited => None,
    };
    let most = bytes.into_iter().chain(files).collect::<Vec<_>>().join(", ");
    match space.limit_state {
        LimitState::Held => Some(most),
        LimitState::Unset => None,
        LimitState::Wanted => Some(words.fill("my_spaces.limit_wanted", &[("most", &most)])),
        LimitState::NotHeld => {
            let said = space.limit_said.as_deref().unwrap_or_default();
            let key = match source {
                // More is counted than what the space's own limit is about, so it is held against another one.
                Some(UsageSource::UserQuota) => "my_spaces.limit_of_storage_counts",
                _ => "my_spaces.limit_not_held",
            };
            Some(words.fill(key, &[("most", &most), ("said", said)]))
        }
    }
}
