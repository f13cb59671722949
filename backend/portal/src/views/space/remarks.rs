//! What is said of a space beside its numbers, in sentences: what they are of, why there is none, how it grows, and what is doubted.

use eirene_core::space::{Level, Measured, SeenUsage, UsageSource};
use eirene_core::storage::{Limit, Why};
use eirene_core::{Space, UserId};
use eirene_services::spaces::NOT_SHARED;
use eirene_services::spaces::level::is_old;
use eirene_services::spaces::look::nobody_counts;
use eirene_services::spaces::trend::Trend;
use eirene_words::Words;
use jiff::Timestamp;

use super::{counts, date};
use crate::views::format;
use crate::views::session::sentence;

/// Growth that is not worth a word, bytes a day.
const STILL: u64 = 1 << 20;

/// Why a number is not known, in a sentence.
pub(crate) fn why(words: &Words, why: Why) -> String {
    words.get(match why {
        Why::NotSupported => "my_spaces.why.not_supported",
        Why::NotEnabled => "my_spaces.why.not_enabled",
        Why::Refused => "my_spaces.why.refused",
        Why::Unlicensed => "my_spaces.why.unlicensed",
        Why::NotUnderstood => "my_spaces.why.not_understood",
        Why::NeverMeasured => "my_spaces.why.never_measured",
        // And what a later storage may say, which has no words yet.
        _ => "my_spaces.why.did_not_answer",
    })
}

/// Whether what is used would be known, or known anew, by measuring it: nobody counts it, and nobody has measured it of late.
pub(super) fn asks_for_measuring(look: &SeenUsage) -> bool {
    match look.usage.measured {
        Some(measured) => is_old(measured, look.seen_at),
        None => nobody_counts(&look.usage),
    }
}

/// When and by whom it was measured, and what is to be thought of that.
fn measured(words: &Words, measured: Measured, me: UserId, seen_at: Timestamp) -> impl Iterator<Item = String> {
    let by = if measured.by == me { "my_spaces.measured_you" } else { "my_spaces.measured" };
    let approximate = measured.approximate.then(|| words.get("my_spaces.measured_approximate"));
    let old = is_old(measured, seen_at).then(|| words.get("my_spaces.measured_old"));
    [Some(words.fill(by, &[("date", &date(measured.at))])), approximate, old].into_iter().flatten()
}

pub(super) fn remarks(
    words: &Words,
    look: Option<&SeenUsage>,
    own_level: Level,
    me: UserId,
    may_measure: bool,
) -> Vec<String> {
    let Some(SeenUsage { usage, level, seen_at, .. }) = look else { return vec![words.get("my_spaces.never")] };
    // What is known comes first, and then what is not.
    let mut said: Vec<String> =
        usage.measured.map(|how| measured(words, how, me, *seen_at).collect()).unwrap_or_default();
    if !counts(usage) || usage.source == UsageSource::Measured {
        said.push(words.get("my_spaces.silent"));
    }
    if let Some(missing) = usage.missing {
        said.push(why(words, missing));
    }
    match usage.source {
        UsageSource::UserQuota | UsageSource::BeegfsUser => said.push(words.get("my_spaces.whole_storage")),
        UsageSource::BeegfsGroup => said.push(words.get("my_spaces.whole_group")),
        UsageSource::ProjectQuota | UsageSource::Measured | UsageSource::FileSystem | UsageSource::Nothing => {}
    }
    let is_limited = matches!(usage.limit_bytes, Some(Limit::At(_)));
    let free_says = !counts(usage) || (usage.source == UsageSource::Measured && !is_limited);
    if let (Some(free), true) = (usage.free_bytes, free_says) {
        said.push(words.fill("my_spaces.free", &[("free", &format::bytes(words, free.0))]));
    }
    if *level > own_level.max(Level::Ok) {
        said.push(words.get("my_spaces.all_full"));
    }
    if may_measure && usage.measured.is_none() {
        said.push(words.get("my_spaces.measure_text"));
    }
    said
}

pub(super) fn trend_words(words: &Words, trend: Trend) -> Vec<String> {
    let Some(daily) = trend.bytes_per_day else { return vec![words.get("my_spaces.trend_unknown")] };
    let size = [("size", format::bytes(words, daily.unsigned_abs()))];
    let size = size.each_ref().map(|(name, text)| (*name, text.as_str()));
    let grows = match daily {
        still if still.unsigned_abs() < STILL => words.get("my_spaces.trend_still"),
        grows if grows > 0 => words.fill("my_spaces.trend_grows", &size),
        _ => words.fill("my_spaces.trend_shrinks", &size),
    };
    let full = trend.full_at.map(|at| words.fill("my_spaces.full_on", &[("date", &date(at))]));
    [grows].into_iter().chain(full).collect()
}

pub(super) fn doubt(words: &Words, space: &Space) -> String {
    match (&space.reason, space.undetermined) {
        (Some(reason), true) if reason.code == NOT_SHARED => {
            format!("{} {}", words.get("my_spaces.undetermined"), sentence(reason.text.as_str()))
        }
        (Some(reason), _) => sentence(reason.text.as_str()),
        (None, true) => words.get("my_spaces.undetermined"),
        (None, false) => String::new(),
    }
}
