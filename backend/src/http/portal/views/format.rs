//! Times, sizes and durations in words.

use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

/// A point in time: for machines, and for people until the page's module shows it in their own time zone.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Time {
    /// RFC 3339, UTC.
    pub(crate) iso: String,
    /// For people without scripts.
    pub(crate) text: String,
}

impl Time {
    /// Shows `at`.
    pub(crate) fn new(at: Timestamp) -> Self {
        let second = Timestamp::from_second(at.as_second()).unwrap_or(at);
        Self { iso: second.to_string(), text: at.strftime("%-d %b %Y, %H:%M UTC").to_string() }
    }
}

/// Memory in GiB, or MiB when it is less than one.
pub(crate) fn memory(words: &Words, mib: u64) -> String {
    if mib < 1024 {
        return words.fill("unit.mib", &[("n", &mib.to_string())]);
    }
    words.fill("unit.gib", &[("n", &gib(mib))])
}

/// GiB with at most one decimal, as a form shows it.
pub(crate) fn gib(mib: u64) -> String {
    let tenths = (u128::from(mib) * 10 + 512) / 1024;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenth == 0 { whole.to_string() } else { format!("{whole}.{tenth}") }
}

/// A duration in days, hours and minutes.
pub(crate) fn minutes(words: &Words, total: u64) -> String {
    let (days, hours, minutes) = (total / 1440, total % 1440 / 60, total % 60);
    let mut parts = Vec::new();
    for (key, n) in [("unit.day", days), ("unit.hour", hours), ("unit.minute", minutes)] {
        if n > 0 {
            parts.push(words.count(key, n));
        }
    }
    if parts.is_empty() {
        parts.push(words.count("unit.minute", 0));
    }
    parts.join(" ")
}

/// Whole minutes from `from` to `to`, never negative.
pub(crate) fn minutes_between(from: Timestamp, to: Timestamp) -> u64 {
    let seconds = to.as_second() - from.as_second();
    u64::try_from(seconds).unwrap_or(0) / 60
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words::parse(
            "[unit]\nmib='{n} MiB'\ngib='{n} GiB'\n[unit.day]\none='{n} day'\nother='{n} days'\n\
             [unit.hour]\none='{n} h'\nother='{n} h'\n[unit.minute]\none='{n} min'\nother='{n} min'\n",
        )
        .unwrap()
    }

    #[test]
    fn sizes_and_durations_read_well() {
        let words = words();
        assert_eq!(memory(&words, 512), "512 MiB");
        assert_eq!(memory(&words, 2048), "2 GiB");
        assert_eq!(memory(&words, 16000), "15.6 GiB");
        assert_eq!(gib(u64::MAX), "18014398509481984");
        assert_eq!(minutes(&words, 0), "0 min");
        assert_eq!(minutes(&words, 61), "1 h 1 min");
        assert_eq!(minutes(&words, 2 * 1440), "2 days");
    }

    #[test]
    fn times_are_cut_to_seconds() {
        let time = Time::new("2026-11-21T08:09:10.123456Z".parse().unwrap());
        assert_eq!((time.iso.as_str(), time.text.as_str()), ("2026-11-21T08:09:10Z", "21 Nov 2026, 08:09 UTC"));
        let (a, b) = ("2026-11-21T08:00:00Z".parse().unwrap(), "2026-11-21T09:00:59Z".parse().unwrap());
        assert_eq!((minutes_between(a, b), minutes_between(b, a)), (60, 0));
    }
}
