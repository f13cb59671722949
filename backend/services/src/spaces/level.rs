//! How full a space is, and whether its owner is told.
//!
//! A space is as full as the fullest of what can run out: its own bytes and files, and those of the file system it lies on. What is not known
//! is never taken for room: a limit that exists and a usage that was not said is *unknown*, unless something else is known to run out.

use eirene_core::space::{Level, Measured, Usage};
use eirene_core::storage::{Limit, Why};
use jiff::{SignedDuration, Timestamp};

/// Points of per cent a space has to fall below a threshold before reaching it again is news.
const REST: u8 = 5;
/// What was measured longer ago is shown, and says nothing any more of how full a space is.
const MEASURED_HOLDS: SignedDuration = SignedDuration::from_hours(7 * 24);

/// When a space is nearly full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Used, per cent of a space's own limit: warning and critical.
    pub used: [u8; 2],
    /// Free, per cent of the file system: warning and critical.
    pub free: [u8; 2],
}

impl Thresholds {
    /// The same, reached earlier by some points.
    fn earlier_by(self, points: u8) -> (Self, u8) {
        let used = self.used.map(|percent| percent.saturating_sub(points));
        let free = self.free.map(|percent| percent.saturating_add(points));
        (Self { used, free }, 100_u8.saturating_sub(points))
    }
}

/// Whether what was measured was so too long before `at` to warn of it. Of what was measured after it, by a clock that was ahead, nobody knows when
/// that was.
pub fn is_old(measured: Measured, at: Timestamp) -> bool {
    !(SignedDuration::ZERO..=MEASURED_HOLDS).contains(&at.duration_since(measured.at))
}

/// What of `usage` says at `at` how full a space is: all but what was measured too long before.
pub fn holding(usage: &Usage, at: Timestamp) -> Usage {
    match usage.measured {
        Some(measured) if is_old(measured, at) => Usage { used_bytes: None, used_files: None, ..*usage },
        Some(_) | None => *usage,
    }
}

/// How full a space is.
pub fn level(usage: &Usage, thresholds: Thresholds) -> Level {
    level_from(usage, thresholds, 100)
}

/// As [`level`], where a space is full from `full` per cent on.
fn level_from(usage: &Usage, thresholds: Thresholds, full: u8) -> Level {
    let of_limit = |used: Option<u64>, limit: Option<Limit<u64>>, silence: Option<Level>| match (used, limit) {
        (_, Some(Limit::Unlimited)) => Some(Level::Ok),
        (Some(used), Some(Limit::At(most))) => Some(of_percent(percent(used, most), thresholds.used, full)),
        (None, Some(Limit::At(_))) => Some(Level::Unknown),
        (_, None) => silence,
    };
    // Where nobody counts, only the file system can run out. Of files many storages say nothing even where they count bytes.
    let nobody_counts = matches!(usage.missing, Some(Why::NotSupported | Why::NotEnabled | Why::Unlicensed));
    let silence = if nobody_counts { None } else { Some(Level::Unknown) };
    let of_all = |free: Option<u64>, total: Option<u64>| {
        let (free, total) = (free?, total?);
        let used = thresholds.free.map(|free| 100_u8.saturating_sub(free));
        Some(of_percent(percent(total.saturating_sub(free), total), used, full))
    };
    let all = [
        of_limit(usage.used_bytes.map(|n| n.0), usage.limit_bytes.map(|limit| limit.map(|n| n.0)), silence),
        of_limit(usage.used_files.map(|n| n.0), usage.limit_files.map(|limit| limit.map(|n| n.0)), None),
        of_all(usage.free_bytes.map(|n| n.0), usage.total_bytes.map(|n| n.0)),
        of_all(usage.free_files.map(|n| n.0), usage.total_files.map(|n| n.0)),
    ];
    let known = || all.iter().flatten().copied();
    match known().max() {
        Some(worst) if worst > Level::Ok => worst,
        Some(Level::Ok) if !known().any(|level| level == Level::Unknown) => Level::Ok,
        Some(_) | None => Level::Unknown,
    }
}

fn of_percent(percent: u8, thresholds: [u8; 2], full: u8) -> Level {
    match percent {
        percent if percent >= full => Level::Full,
        percent if percent >= thresholds[1] => Level::Critical,
        percent if percent >= thresholds[0] => Level::Warning,
        _ => Level::Ok,
    }
}

/// Whole per cent, at most 255; of nothing everything is used.
pub fn percent(used: u64, of: u64) -> u8 {
    let percent = (u128::from(used) * 100).checked_div(u128::from(of)).unwrap_or(100);
    u8::try_from(percent).unwrap_or(u8::MAX)
}

/// What the owner is to have been told after a look that found `usage`, when it was `told` before. A higher level than before is news; a lower one
/// is not, and counts only once the space has fallen some points below: one that moves about a threshold is told of once.
pub fn told_next(told: Level, usage: &Usage, thresholds: Thresholds) -> Level {
    let now = level(usage, thresholds);
    if now == Level::Unknown || now >= told {
        return if now == Level::Unknown { told } else { now };
    }
    let (earlier, full) = thresholds.earlier_by(REST);
    level_from(usage, earlier, full).min(told)
}

#[cfg(test)]
mod tests {
    use eirene_core::UserId;
    use eirene_core::space::UsageSource;
    use eirene_core::storage::{Bytes, Files};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start_time;

    const THRESHOLDS: Thresholds = Thresholds { used: [80, 95], free: [10, 5] };

    fn nothing() -> Usage {
        Usage {
            source: UsageSource::Nothing,
            used_bytes: None,
            limit_bytes: None,
            used_files: None,
            limit_files: None,
            total_bytes: None,
            total_files: None,
            free_bytes: None,
            free_files: None,
            missing: Some(Why::NotEnabled),
            measured: None,
        }
    }

    fn bytes(used: u64, limit: u64) -> Usage {
        Usage {
            source: UsageSource::ProjectQuota,
            used_bytes: Some(Bytes(used)),
            limit_bytes: Some(Limit::At(Bytes(limit))),
            limit_files: Some(Limit::Unlimited),
            missing: None,
            ..nothing()
        }
    }

    #[test]
    fn what_was_measured_long_ago_or_by_a_clock_that_was_ahead_says_nothing() {
        let by = Measured { by: UserId::generate(), at: start_time(), approximate: false };
        let measured = Usage { measured: Some(by), ..bytes(99, 100) };
        let second = SignedDuration::from_secs(1);
        for (after, counts) in
            [(SignedDuration::ZERO, true), (MEASURED_HOLDS, true), (MEASURED_HOLDS + second, false), (-second, false)]
        {
            let holds = holding(&measured, start_time() + after);
            assert_eq!((holds.used_bytes.is_some(), is_old(by, start_time() + after)), (counts, !counts), "{after}");
        }
    }

    #[test]
    fn a_space_is_as_full_as_the_fullest_of_what_can_run_out() {
        for (used, expected) in [
            (79, Level::Ok),
            (80, Level::Warning),
            (94, Level::Warning),
            (95, Level::Critical),
            (99, Level::Critical),
            (100, Level::Full),
            (150, Level::Full),
        ] {
            assert_eq!(level(&bytes(used, 100), THRESHOLDS), expected, "{used}");
        }
        let files = Usage { used_files: Some(Files(96)), limit_files: Some(Limit::At(Files(100))), ..bytes(1, 100) };
        assert_eq!(level(&files, THRESHOLDS), Level::Critical);
        let disk = Usage { total_bytes: Some(Bytes(1000)), free_bytes: Some(Bytes(0)), ..bytes(1, 100) };
        assert_eq!(level(&disk, THRESHOLDS), Level::Full);
        assert_eq!(level(&bytes(0, 0), THRESHOLDS), Level::Full, "a limit of nothing");
    }

    #[test]
    fn what_is_not_known_is_no_room() {
        assert_eq!(level(&nothing(), THRESHOLDS), Level::Unknown);
        let silent = Usage { used_bytes: None, missing: Some(Why::DidNotAnswer), ..bytes(1, 100) };
        assert_eq!(level(&silent, THRESHOLDS), Level::Unknown);
        let room = Usage { total_bytes: Some(Bytes(1000)), free_bytes: Some(Bytes(900)), ..silent };
        assert_eq!(level(&room, THRESHOLDS), Level::Unknown, "the limit may be reached all the same");
        let none_left = Usage { free_bytes: Some(Bytes(10)), ..room };
        assert_eq!(level(&none_left, THRESHOLDS), Level::Critical);
        let no_files = Usage { limit_files: None, ..bytes(1, 100) };
        assert_eq!(level(&no_files, THRESHOLDS), Level::Ok, "bytes are limited, and files are not counted");
        let no_quota = Usage { total_bytes: Some(Bytes(1000)), free_bytes: Some(Bytes(900)), ..nothing() };
        assert_eq!(level(&no_quota, THRESHOLDS), Level::Ok, "nobody limits here but the file system");
    }

    #[test]
    fn what_was_measured_warns_for_a_week_and_the_file_system_always() {
        let measured = Measured { by: UserId::generate(), at: start_time(), approximate: false };
        let usage = Usage {
            source: UsageSource::Measured,
            missing: Some(Why::NotSupported),
            measured: Some(measured),
            ..bytes(96, 100)
        };
        let after = |usage: Usage, hours| holding(&usage, start_time() + SignedDuration::from_hours(hours));
        assert_eq!(level(&after(usage, 0), THRESHOLDS), Level::Critical);
        assert_eq!(level(&after(usage, 7 * 24), THRESHOLDS), Level::Critical);
        let old = after(usage, 7 * 24 + 1);
        assert_eq!(level(&old, THRESHOLDS), Level::Unknown, "it may be full by now, and it may be empty");
        assert_eq!(told_next(Level::Critical, &old, THRESHOLDS), Level::Critical, "and nothing is taken back");
        let disk = Usage { total_bytes: Some(Bytes(1000)), free_bytes: Some(Bytes(0)), ..usage };
        assert_eq!(level(&after(disk, 1000), THRESHOLDS), Level::Full);
        let unlimited = Usage { limit_bytes: None, limit_files: None, ..disk };
        let room = Usage { free_bytes: Some(Bytes(900)), ..unlimited };
        assert_eq!(level(&after(room, 1000), THRESHOLDS), Level::Ok, "nobody limits here but the file system");
        let quota = Usage { measured: None, ..usage };
        assert_eq!(
            level(&after(quota, 1000), THRESHOLDS),
            Level::Critical,
            "what a storage counts is as new as the look"
        );
    }

    #[test]
    fn a_level_is_told_once_until_the_space_has_fallen_well_below() {
        let mut told = Level::Ok;
        let mut news = Vec::new();
        for used in [10, 79, 81, 79, 82, 90, 96, 94, 96, 89, 96, 100, 96, 100, 94, 100, 74, 81] {
            let next = told_next(told, &bytes(used, 100), THRESHOLDS);
            if next > told {
                news.push((used, next));
            }
            told = next;
        }
        let expected = [
            (81, Level::Warning),
            (96, Level::Critical),
            (96, Level::Critical),
            (100, Level::Full),
            (100, Level::Full),
            (81, Level::Warning),
        ];
        assert_eq!(news, expected);
    }

    proptest! {
        #[test]
        fn more_used_is_never_less_full(used in 0_u64..300, more in 0_u64..300, limit in 0_u64..300) {
            prop_assert!(level(&bytes(used, limit), THRESHOLDS) <= level(&bytes(used + more, limit), THRESHOLDS));
        }

        #[test]
        fn nobody_is_told_of_what_is_not_so_or_told_twice(
            used in proptest::collection::vec(proptest::option::of(0_u64..130), 1..40),
        ) {
            let mut told = Level::Ok;
            for used in used {
                let usage = Usage { used_bytes: used.map(Bytes), ..bytes(0, 100) };
                let next = told_next(told, &usage, THRESHOLDS);
                if next > told {
                    prop_assert_eq!(next, level(&usage, THRESHOLDS));
                }
                prop_assert!(next >= level(&usage, THRESHOLDS), "whoever is at a level has been told of it");
                prop_assert_eq!(told_next(next, &usage, THRESHOLDS), next, "the same look again is no news");
                told = next;
            }
        }

        #[test]
        fn no_numbers_are_too_large(used in any::<u64>(), limit in any::<u64>()) {
            prop_assert!(level(&bytes(used, limit), THRESHOLDS) >= Level::Ok);
        }
    }
}
