//! Times, sizes and durations in words.

use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use eirene_services::duration::minutes;

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

/// A size on disk with at most one decimal, by the largest unit of which there is one.
pub(crate) fn bytes(words: &Words, bytes: u64) -> String {
    const UNITS: [&str; 5] = ["unit.kib", "unit.mib", "unit.gib", "unit.tib", "unit.pib"];
    if bytes < 1024 {
        return words.count("unit.byte", bytes);
    }
    // What rounds up to 1024 of a unit is one of the next.
    let exponent = UNITS.len().min(bytes.ilog2() as usize / 10);
    let tenths = |exponent: usize| (u128::from(bytes) * 10 + (1 << (10 * exponent - 1))) >> (10 * exponent);
    let exponent = if tenths(exponent) >= 10_240 { UNITS.len().min(exponent + 1) } else { exponent };
    let (whole, tenth) = (tenths(exponent) / 10, tenths(exponent) % 10);
    let text = if tenth == 0 { whole.to_string() } else { format!("{whole}.{tenth}") };
    words.fill(UNITS[exponent - 1], &[("n", &text)])
}

/// A number with its thousands apart.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let (mut out, rest) = (digits[..first].to_owned(), &digits[first..]);
    for group in rest.as_bytes().chunks(3) {
        out.push('\u{202f}');
        out.extend(group.iter().map(|digit| char::from(*digit)));
    }
    out
}

/// Hours with at most one decimal, whole ones where there are many. A little is said to be little, and only nothing is 0.
pub(crate) fn hours(words: &Words, seconds: u64) -> String {
    let tenths = seconds.saturating_add(180) / 360;
    if seconds > 0 && tenths == 0 {
        return words.get("unit.little_hours");
    }
    let (whole, tenth) = (tenths / 10, tenths % 10);
    match (whole, tenth) {
        (100.., _) => number(seconds.saturating_add(1800) / 3600),
        (_, 0) => whole.to_string(),
        _ => format!("{whole}.{tenth}"),
    }
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
    fn sizes_on_disk_have_one_decimal_and_never_1024_of_a_unit() {
        let words = eirene_words::words();
        let said = |n| bytes(words, n).replace('\u{a0}', " ");
        for (size, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (10 << 30, "10 GiB"),
            ((1 << 40) + (1 << 39), "1.5 TiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(said(size), text);
        }
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (12_345_678, "12 345 678")] {
            assert_eq!(number(n).replace('\u{202f}', " "), text);
        }
    }

    #[test]
    fn a_few_minutes_are_not_no_hours() {
        let words = eirene_words::words();
        let said = |seconds| hours(words, seconds).replace(['\u{a0}', '\u{202f}'], " ");
        for (seconds, text) in [
            (0, "0"),
            (1, "< 0.1"),
            (179, "< 0.1"),
            (180, "0.1"),
            (1800, "0.5"),
            (3600, "1"),
            (99 * 3600 + 3419, "99.9"),
            (99 * 3600 + 3420, "100"),
            (12_345 * 3600, "12 345"),
        ] {
            assert_eq!(said(seconds), text, "{seconds}");
        }
        assert!(!said(u64::MAX).is_empty());
    }

    #[test]
    fn times_are_cut_to_seconds() {
        let time = Time::new("2026-11-21T08:09:10.123456Z".parse().unwrap());
        assert_eq!((time.iso.as_str(), time.text.as_str()), ("2026-11-21T08:09:10Z", "21 Nov 2026, 08:09 UTC"));
        let (a, b) = ("2026-11-21T08:00:00Z".parse().unwrap(), "2026-11-21T09:00:59Z".parse().unwrap());
        assert_eq!((minutes_between(a, b), minutes_between(b, a)), (60, 0));
    }
}
