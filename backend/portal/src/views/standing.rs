//! What becomes of a space: what is wanted of it and what was seen of it, in one word and one sentence. How full it is, is told elsewhere.

use eirene_core::space::SpaceDesired;
use eirene_core::{Space, SpaceState};
use eirene_words::Words;

use super::layout::Tone;
use super::session::Chip;
use super::space::date;

/// What becomes of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is there, as it should be.
    There,
    /// It is not made yet.
    BeingMade,
    /// It is not made yet, and there is a reason.
    NotMade,
    /// It is there, and will not be.
    Leaving,
    /// It was taken away and can be brought back.
    Retired,
    /// It was taken away and comes back.
    Returning,
    /// It was taken away, and what is left of it is being removed.
    Removing,
    /// It is no more.
    Gone,
}

impl Standing {
    /// By what is wanted and what was seen.
    pub(crate) fn of(space: &Space) -> Self {
        match (space.state, space.desired) {
            (SpaceState::Wanted | SpaceState::Present, SpaceDesired::Retired | SpaceDesired::Gone) => Self::Leaving,
            (SpaceState::Wanted, SpaceDesired::Present) if space.reason.is_some() => Self::NotMade,
            (SpaceState::Wanted, SpaceDesired::Present) => Self::BeingMade,
            (SpaceState::Present, SpaceDesired::Present) => Self::There,
            (SpaceState::Retired, SpaceDesired::Present) => Self::Returning,
            (SpaceState::Retired, SpaceDesired::Retired) => Self::Retired,
            (SpaceState::Retired, SpaceDesired::Gone) => Self::Removing,
            (SpaceState::Gone, _) => Self::Gone,
        }
    }

    /// As a chip; none for what is simply there.
    pub(crate) fn chip(self, words: &Words) -> Option<Chip> {
        let (key, tone) = match self {
            Self::There => return None,
            Self::BeingMade => ("my_spaces.standing.being_made", Tone::Wait),
            Self::NotMade => ("my_spaces.standing.not_made", Tone::Bad),
            Self::Leaving => ("my_spaces.standing.leaving", Tone::Wait),
            Self::Retired => ("my_spaces.standing.retired", Tone::Still),
            Self::Returning => ("my_spaces.standing.returning", Tone::Wait),
            Self::Removing => ("my_spaces.standing.removing", Tone::Still),
            Self::Gone => ("my_spaces.standing.gone", Tone::Still),
        };
        Some(Chip { label: words.get(key), tone })
    }

    /// As a sentence; empty for what is simply there, and where the reason of the space itself says it.
    pub(crate) fn sentence(self, words: &Words, space: &Space) -> String {
        match self {
            Self::There | Self::NotMade | Self::Gone => String::new(),
            Self::BeingMade => words.get("my_spaces.standing.being_made_text"),
            Self::Leaving => words.get("my_spaces.standing.leaving_text"),
            Self::Retired => match (space.retired_at, space.kept_until()) {
                (Some(since), Some(until)) => {
                    let days = [("since", date(since)), ("until", date(until))];
                    words.fill(
                        "my_spaces.standing.retired_text",
                        &days.each_ref().map(|(name, day)| (*name, day.as_str())),
                    )
                }
                _ => String::new(),
            },
            Self::Returning => words.get("my_spaces.standing.returning_text"),
            Self::Removing => words.get("my_spaces.standing.removing_text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::{Reason, SpaceOwner};
    use eirene_services::spaces::testing::a_space;
    use eirene_services::testing::start_time;
    use eirene_words::{say_with, words};

    use super::*;

    fn standing(state: SpaceState, desired: SpaceDesired) -> Space {
        Space { state, desired, ..a_space(SpaceOwner::Everybody) }
    }

    #[test]
    fn what_was_taken_away_says_since_when_and_until_when_it_is_kept() {
        let retired = Space {
            retired_at: Some(start_time()),
            remove_after: Some(start_time() + jiff::SignedDuration::from_hours(24 * 30)),
            ..standing(SpaceState::Retired, SpaceDesired::Retired)
        };
        let said = Standing::of(&retired).sentence(words(), &retired);
        assert!(said.contains(&date(start_time())) && said.contains("February 2026"), "{said}");
    }

    #[test]
    fn what_is_being_removed_says_that_it_cannot_be_brought_back() {
        let removing = standing(SpaceState::Retired, SpaceDesired::Gone);
        assert!(Standing::of(&removing).sentence(words(), &removing).contains("cannot be brought back"));
    }

    #[test]
    fn what_could_not_be_made_is_told_from_what_is_being_made() {
        let made = standing(SpaceState::Wanted, SpaceDesired::Present);
        assert_eq!(Standing::of(&made), Standing::BeingMade);
        let reason = Reason::new("not_made", say_with("space.not_made", &[("said", "no group")]));
        assert_eq!(Standing::of(&Space { reason: Some(reason), ..made }), Standing::NotMade);
        let there = standing(SpaceState::Present, SpaceDesired::Present);
        assert_eq!(Standing::of(&there).chip(words()).map(|chip| chip.label), None);
    }
}
