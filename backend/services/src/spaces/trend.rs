//! How a space grows, and when it is full if it goes on like that.
//!
//! The slope is Theil's and Sen's: the median of the slopes between every two days, each day being the median of its samples. A day of deleting
//! or of unpacking does not change it much, where a line of least squares would follow it. Whoever has just tidied up is judged anew: a fall
//! by more than a fifth from one day to the next begins another history.

use eirene_core::space::UsageSample;
use eirene_core::storage::Bytes;
use jiff::{SignedDuration, Timestamp};

const DAY_S: i64 = 24 * 60 * 60;
/// Days that are looked at.
pub const WINDOW_DAYS: i64 = 30;
/// Days without which nothing is said.
const LEAST_DAYS: usize = 5;
/// Days without a sample after which the past says nothing of the future.
const STALE_DAYS: i64 = 2;
/// Nothing is said of what is farther away.
const FARTHEST_DAYS: i128 = 365;

/// How a space grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trend {
    /// Growth; negative when it shrinks. None when too little is known.
    pub bytes_per_day: Option<i64>,
    /// When it is full; none when it does not grow, has no limit, or that is more than a year away.
    pub full_at: Option<Timestamp>,
    /// On how many days that rests.
    pub days: usize,
}

/// A day, counted from 1970, and the median of what was used on it.
type Day = (i64, i128);

/// The trend of samples in the order of time.
pub fn trend(samples: &[UsageSample], limit: Option<Bytes>, now: Timestamp) -> Trend {
    let today = now.as_second().div_euclid(DAY_S);
    let days = since_last_fall(&daily_medians(samples, today - WINDOW_DAYS, today));
    let unknown = Trend { bytes_per_day: None, full_at: None, days: days.len() };
    let (Some(last), true) = (days.last(), days.len() >= LEAST_DAYS) else { return unknown };
    if today - last.0 > STALE_DAYS {
        return unknown;
    }
    let slope = slope(&days);
    let full_at = limit.and_then(|limit| full_at(i128::from(limit.0) - last.1, slope, now));
    Trend {
        bytes_per_day: Some(i64::try_from(slope).unwrap_or(if slope < 0 { i64::MIN } else { i64::MAX })),
        full_at,
        days: days.len(),
    }
}

fn full_at(room: i128, slope: i128, now: Timestamp) -> Option<Timestamp> {
    if slope <= 0 || room <= 0 || room > slope.saturating_mul(FARTHEST_DAYS) {
        return None;
    }
    let seconds = i64::try_from(room.saturating_mul(i128::from(DAY_S)) / slope).ok()?;
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The medians of the days `after..=until`, oldest first.
fn daily_medians(samples: &[UsageSample], after: i64, until: i64) -> Vec<Day> {
    let mut days: Vec<(i64, Vec<i128>)> = Vec::new();
    for sample in samples {
        let (day, used) = (sample.at.as_second().div_euclid(DAY_S), i128::from(sample.used_bytes.0));
        match days.last_mut() {
            _ if day <= after || day > until => {}
            Some((last, of_day)) if *last == day => of_day.push(used),
            _ => days.push((day, vec![used])),
        }
    }
    days.into_iter().map(|(day, mut used)| (day, median(&mut used))).collect()
}

fn since_last_fall(days: &[Day]) -> Vec<Day> {
    let fell = |two: &[Day]| two[1].1 * 5 < two[0].1 * 4;
    let begin = days.windows(2).rposition(fell).map_or(0, |last| last + 1);
    days[begin..].to_vec()
}

/// Bytes a day; the days differ.
fn slope(days: &[Day]) -> i128 {
    let mut slopes = Vec::new();
    for (at, early) in days.iter().enumerate() {
        slopes.extend(days[at + 1..].iter().map(|late| (late.1 - early.1) / i128::from(late.0 - early.0)));
    }
    median(&mut slopes)
}

/// The median, of an even number the mean of the two in the middle; of none 0.
fn median(numbers: &mut [i128]) -> i128 {
    numbers.sort_unstable();
    match numbers.len() {
        0 => 0,
        odd if odd % 2 == 1 => numbers[odd / 2],
        even => i128::midpoint(numbers[even / 2 - 1], numbers[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start_time;

    const GIB: u64 = 1 << 30;

    /// One sample a day up to today.
    fn daily(used: &[u64]) -> Vec<UsageSample> {
        let first = i64::try_from(used.len()).unwrap() - 1;
        let at =
            |index: usize| start_time() - SignedDuration::from_secs((first - i64::try_from(index).unwrap()) * DAY_S);
        let sample = |(index, used): (usize, &u64)| UsageSample {
            at: at(index),
            used_bytes: Bytes(*used),
            used_files: None,
            limit_bytes: None,
        };
        used.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn what_grows_evenly_is_full_when_one_can_reckon_it() {
        let samples = daily(&[10 * GIB, 11 * GIB, 12 * GIB, 13 * GIB, 14 * GIB]);
        let seen = trend(&samples, Some(Bytes(20 * GIB)), start_time());
        assert_eq!(seen.bytes_per_day, Some(1 << 30));
        assert_eq!(seen.full_at, Some(start_time() + SignedDuration::from_secs(6 * DAY_S)));
        assert_eq!(trend(&samples, None, start_time()).full_at, None);
        assert_eq!(trend(&samples, Some(Bytes(14 * GIB)), start_time()).full_at, None, "it is full");
        assert_eq!(trend(&samples, Some(Bytes(400 * GIB)), start_time()).full_at, None, "not within a year");
    }

    #[test]
    fn little_or_old_knowledge_gives_no_date() {
        let few = daily(&[1, 2, 3, 4]);
        assert_eq!(trend(&few, Some(Bytes(10)), start_time()).bytes_per_day, None);
        let old = daily(&[1, 2, 3, 4, 5]);
        let later = start_time() + SignedDuration::from_secs(3 * DAY_S);
        assert_eq!(trend(&old, Some(Bytes(10)), later), Trend { bytes_per_day: None, full_at: None, days: 5 });
        assert_eq!(trend(&[], None, start_time()), Trend { bytes_per_day: None, full_at: None, days: 0 });
        let before = start_time() - SignedDuration::from_secs(10 * DAY_S);
        assert_eq!(trend(&old, None, before).days, 0, "samples from the future are not looked at");
    }

    #[test]
    fn one_day_of_unpacking_is_no_trend_and_tidying_up_begins_anew() {
        let mut used = vec![100 * GIB; 20];
        used[10] = 900 * GIB;
        used[11] = 900 * GIB;
        let seen = trend(&daily(&used), Some(Bytes(1000 * GIB)), start_time());
        assert_eq!((seen.days, seen.bytes_per_day), (8, Some(0)));
        let grows: Vec<u64> = (0..20_u64).map(|day| if day == 7 { 130 * GIB } else { (100 + day) * GIB }).collect();
        let seen = trend(&daily(&grows), None, start_time());
        assert_eq!((seen.days, seen.bytes_per_day), (20, Some(1 << 30)));
    }

    proptest! {
        #[test]
        fn a_straight_line_has_its_own_slope_whatever_one_day_says(
            begin in 1_000_000_u64..2_000_000, step in 0_u64..10_000, days in 10_usize..30, odd in 0_usize..30, by in 0_u64..100_000,
        ) {
            let mut used: Vec<u64> = (0..days as u64).map(|day| begin + day * step).collect();
            let odd = odd % days;
            used[odd] += by;
            let seen = trend(&daily(&used), None, start_time());
            prop_assert_eq!(seen.days, days);
            prop_assert_eq!(seen.bytes_per_day, Some(step.cast_signed()));
        }

        #[test]
        fn no_date_is_past_or_farther_than_a_year(
            used in proptest::collection::vec(any::<u64>(), 0..40), limit in any::<u64>(),
        ) {
            let seen = trend(&daily(&used), Some(Bytes(limit)), start_time());
            prop_assert!(seen.days <= 30);
            if let Some(full_at) = seen.full_at {
                prop_assert!(full_at >= start_time());
                prop_assert!(full_at <= start_time() + SignedDuration::from_secs(366 * DAY_S));
                prop_assert!(seen.bytes_per_day.unwrap() > 0);
            }
        }
    }
}
