//! When what is to be done about old files in a space. This only says what would be right.
//!
//! Time is counted and not subtracted: each look adds what has passed since the one before, if that is what passes between two looks. So a clock
//! that jumps, and a portal that was down, make nobody wait less, and no list older than its owner has known of it. Nor is time counted in which
//! the owner could not have saved anything.

use eirene_core::old_files::{OldFilesDoubt, OldFilesList, OldFilesRule, OldFilesState};
use jiff::{SignedDuration, Timestamp};

const DAY_S: u64 = 24 * 60 * 60;
/// Seconds for which the clock has to have gone on as clocks do before anything is done.
const STEADY_S: u64 = DAY_S;
/// Seconds after which a list that nothing is removed by is made anew.
const AGAIN_S: u64 = DAY_S;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// List what is old.
    List,
    /// Tell the owner what is listed.
    Tell,
    /// Remove what was listed.
    Remove,
}

/// Notes that it is looked at now, and counts the time since the last look, if nothing is wrong with that. With a `hindrance` the owner could not
/// get at their files, and what is listed waits no shorter for that time.
pub(super) fn watch(
    state: &mut OldFilesState,
    now: Timestamp,
    interval: SignedDuration,
    hindrance: Option<OldFilesDoubt>,
) {
    let since = state.seen_at.replace(now).map(|before| now.duration_since(before));
    state.doubt = match since {
        Some(since) if since.is_negative() => {
            state.steady_s = 0;
            // What was listed by a clock that was ahead may be young.
            state.list = state.list.take().filter(|list| list.at <= now);
            Some(OldFilesDoubt::Clock)
        }
        Some(since) if since <= interval * 2 => {
            let passed = since.as_secs().unsigned_abs();
            state.steady_s = state.steady_s.saturating_add(passed);
            if let Some(list) = state.list.as_mut().filter(|_| hindrance.is_none()) {
                // It may have been made, and told, after the last look.
                let known_for = now.duration_since(list.told_at.unwrap_or(list.at)).as_secs();
                list.waited_s = list.waited_s.saturating_add(passed.min(u64::try_from(known_for).unwrap_or(0)));
            }
            (state.steady_s < STEADY_S).then_some(OldFilesDoubt::NotWatched).or(hindrance)
        }
        _ => {
            state.steady_s = 0;
            Some(OldFilesDoubt::NotWatched)
        }
    };
}

/// What is right to do next, if nothing is in doubt.
pub(super) fn due(state: &OldFilesState, rule: OldFilesRule) -> Due {
    let Some(list) = &state.list else { return Due::List };
    let only_shows = list.dry_run || list.found.files == 0;
    match list.told_at {
        // By another rule other files are old, and nobody was told of those.
        _ if !is_of_rule(list, rule) => Due::List,
        _ if only_shows => {
            if list.waited_s >= AGAIN_S {
                Due::List
            } else {
                Due::Nothing
            }
        }
        None => Due::Tell,
        // Whoever was promised some days has them, whatever the rule says by now.
        Some(_) if list.waited_s >= DAY_S * u64::from(list.warn_days.max(rule.warn_days)) => Due::Remove,
        Some(_) => Due::Nothing,
    }
}

/// Whether a list is one by this rule: by another one nothing is removed.
pub(super) fn is_of_rule(list: &OldFilesList, rule: OldFilesRule) -> bool {
    list.dry_run == rule.dry_run && list.days == rule.days
}

/// When what is listed goes at the earliest; none where nothing goes by that list. That it is in doubt now whether anything may go takes nothing
/// back: with the look that ends the doubt it may begin.
pub(super) fn goes_at(state: &OldFilesState, rule: OldFilesRule) -> Option<Timestamp> {
    let goes = |list: &&OldFilesList| !list.dry_run && list.found.files > 0 && is_of_rule(list, rule);
    let list = state.list.as_ref().filter(|_| !state.exempt).filter(goes)?;
    let told_at = list.told_at?;
    let left = (DAY_S * u64::from(list.warn_days.max(rule.warn_days))).saturating_sub(list.waited_s);
    let since = state.seen_at.map_or(told_at, |seen_at| seen_at.max(told_at));
    since.checked_add(SignedDuration::from_secs(i64::try_from(left).ok()?)).ok()
}

/// The rule for one space, whose days an admin may have changed.
pub(super) fn rule_of(state: &OldFilesState, of_root: OldFilesRule) -> OldFilesRule {
    OldFilesRule { days: state.days.unwrap_or(of_root.days), ..of_root }
}

#[cfg(test)]
mod tests {
    use eirene_core::SpaceId;
    use eirene_core::old_files::{OldFilesFound, OldFilesList};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start_time;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);
    const RULE: OldFilesRule = OldFilesRule { days: 30, warn_days: 14, dry_run: false };

    fn state() -> OldFilesState {
        OldFilesState::new(SpaceId::generate())
    }

    fn list() -> OldFilesList {
        OldFilesList {
            at: start_time(),
            before: start_time(),
            days: 30,
            warn_days: 14,
            dry_run: false,
            told_at: Some(start_time()),
            waited_s: 0,
            found: OldFilesFound { files: 1, ..OldFilesFound::default() },
        }
    }

    #[test]
    fn nothing_is_certain_before_a_day_of_looks_and_after_any_jump_or_pause() {
        let mut state = state();
        let mut now = start_time();
        let mut look = |state: &mut OldFilesState, hours: i64| {
            now += HOUR * i32::try_from(hours).unwrap();
            watch(state, now, HOUR, None);
            state.doubt
        };
        assert_eq!(look(&mut state, 0), Some(OldFilesDoubt::NotWatched), "the first look");
        for _ in 0..23 {
            assert_eq!(look(&mut state, 1), Some(OldFilesDoubt::NotWatched));
        }
        assert_eq!(look(&mut state, 1), None);
        state.list = Some(list());
        assert_eq!(look(&mut state, 3), Some(OldFilesDoubt::NotWatched), "a pause, or a jump");
        assert_eq!(state.list.as_ref().unwrap().waited_s, 0, "which does not count");
        for _ in 0..12 {
            look(&mut state, 2);
        }
        assert_eq!((state.doubt, state.list.as_ref().unwrap().waited_s), (None, DAY_S));
        assert_eq!(look(&mut state, -1), Some(OldFilesDoubt::Clock));
        assert!(state.list.is_some(), "it was made before");
        assert_eq!(look(&mut state, -24 * 30), Some(OldFilesDoubt::Clock));
        assert_eq!(state.list, None, "it was made by a clock that was ahead");
        assert_eq!(look(&mut state, 1), Some(OldFilesDoubt::NotWatched));
    }

    #[test]
    fn time_in_which_the_owner_cannot_get_at_their_files_or_knew_nothing_is_not_counted() {
        let begin = start_time();
        let mut state = OldFilesState { seen_at: Some(begin), steady_s: DAY_S, list: Some(list()), ..state() };
        let waited = |state: &OldFilesState| state.list.as_ref().unwrap().waited_s;
        watch(&mut state, begin + HOUR, HOUR, Some(OldFilesDoubt::StorageAway));
        assert_eq!((state.doubt, waited(&state)), (Some(OldFilesDoubt::StorageAway), 0));
        watch(&mut state, begin + HOUR * 2, HOUR, None);
        assert_eq!((state.doubt, waited(&state)), (None, 3600));
        let told_at = begin + HOUR * 2 + SignedDuration::from_secs(3000);
        state.list = Some(OldFilesList { told_at: Some(told_at), ..list() });
        watch(&mut state, begin + HOUR * 3, HOUR, None);
        assert_eq!(waited(&state), 600, "it was told of ten minutes ago");
    }

    #[test]
    fn a_list_is_told_and_waits_before_anything_is_removed_by_it() {
        let with = |list: OldFilesList| OldFilesState { list: Some(list), ..state() };
        let promised = DAY_S * 14;
        assert_eq!(due(&state(), RULE), Due::List);
        assert_eq!(due(&with(OldFilesList { told_at: None, waited_s: promised, ..list() }), RULE), Due::Tell);
        assert_eq!(due(&with(OldFilesList { waited_s: promised - 1, ..list() }), RULE), Due::Nothing);
        assert_eq!(due(&with(OldFilesList { waited_s: promised, ..list() }), RULE), Due::Remove);
        let shorter = OldFilesRule { warn_days: 1, ..RULE };
        assert_eq!(due(&with(OldFilesList { waited_s: promised - 1, ..list() }), shorter), Due::Nothing);
        for other in [OldFilesRule { days: 31, ..RULE }, OldFilesRule { dry_run: true, ..RULE }] {
            assert_eq!(due(&with(OldFilesList { waited_s: promised, ..list() }), other), Due::List, "{other:?}");
        }
        let trial = OldFilesRule { dry_run: true, ..RULE };
        for waited_s in [0, AGAIN_S, promised, u64::MAX] {
            let made_so = OldFilesList { dry_run: true, waited_s, ..list() };
            let expected = if waited_s == 0 { Due::Nothing } else { Due::List };
            assert_eq!(due(&with(made_so), trial), expected, "nothing goes on trial");
            let empty = OldFilesList { found: OldFilesFound::default(), waited_s, ..list() };
            assert_eq!(due(&with(empty), RULE), expected);
        }
    }

    #[test]
    fn it_is_said_when_what_is_listed_goes_by_the_time_that_was_counted() {
        let seen_at = start_time() + HOUR * 24 * 20;
        let waiting = OldFilesList { waited_s: DAY_S * 10, ..list() };
        let state = OldFilesState { seen_at: Some(seen_at), list: Some(waiting), ..state() };
        assert_eq!(goes_at(&state, RULE), Some(seen_at + HOUR * 24 * 4));
        let doubted = OldFilesState { doubt: Some(OldFilesDoubt::People), ..state.clone() };
        assert_eq!(goes_at(&doubted, RULE), goes_at(&state, RULE), "whatever is in doubt");
        let exempt = OldFilesState { exempt: true, ..state.clone() };
        assert_eq!(goes_at(&exempt, RULE), None);
        let untold = OldFilesState { list: Some(OldFilesList { told_at: None, ..list() }), ..state.clone() };
        assert_eq!(goes_at(&untold, RULE), None);
        assert_eq!(goes_at(&state, OldFilesRule { dry_run: true, ..RULE }), None, "nothing goes on trial");
    }

    #[test]
    fn an_admins_days_are_those_of_the_space() {
        assert_eq!(rule_of(&state(), RULE), RULE);
        let other = OldFilesState { days: Some(90), ..state() };
        assert_eq!(rule_of(&other, RULE), OldFilesRule { days: 90, ..RULE });
    }

    proptest! {
        #[test]
        fn whatever_the_clock_does_nobody_waits_less_than_the_looks_that_were_in_time(
            steps in prop::collection::vec(-100_000_i64..1_000_000, 0..60),
        ) {
            let mut state = OldFilesState { list: Some(list()), ..state() };
            let (mut now, mut in_time) = (start_time(), 0_u64);
            state.seen_at = Some(now);
            for step in steps {
                now += SignedDuration::from_secs(step);
                watch(&mut state, now, HOUR, None);
                if (0..=7200).contains(&step) {
                    in_time += step.unsigned_abs();
                }
                prop_assert!(state.list.as_ref().is_none_or(|list| list.waited_s <= in_time));
                prop_assert!(state.steady_s <= in_time);
                prop_assert!(state.doubt.is_some() || state.steady_s >= STEADY_S);
            }
        }
    }
}
