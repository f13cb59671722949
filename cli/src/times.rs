//! Times for people: by the clock on their wall, and how far off. JSON keeps the portal's own.

use eirene_core::{Clock as _, SystemClock};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// The time now.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// A time by the person's own time zone: `2026-11-21 14:30 CET`.
pub(crate) fn local(at: Timestamp) -> String {
    let zone = TimeZone::system();
    in_zone(at, if zone.is_unknown() { TimeZone::UTC } else { zone })
}

/// When something is over: a time, or a day alone, which is over with its end by UTC, as the portal's pages tell days.
pub(crate) fn end(text: &str) -> Result<Timestamp, String> {
    let wrong = |_| format!("`{text}` is neither a day like 2027-03-01 nor a time like 2027-03-01T17:00:00Z");
    // A time without a zone would also be read as a day.
    if text.contains(['T', 't', ' ']) {
        return text.parse().map_err(wrong);
    }
    let next = text.parse::<Date>().and_then(Date::tomorrow).and_then(|next| next.to_zoned(TimeZone::UTC));
    next.map(|next| next.timestamp()).map_err(wrong)
}

fn in_zone(at: Timestamp, zone: TimeZone) -> String {
    at.to_zoned(zone).strftime("%Y-%m-%d %H:%M %Z").to_string()
}

/// How far off: `in 1 h 40 min`, `5 min ago`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs();
    let minutes = seconds.unsigned_abs() / 60;
    let (hours, days) = (minutes / 60, minutes / (24 * 60));
    let span = match (days, hours, minutes) {
        (_, _, 0) => "less than a minute".to_owned(),
        (_, 0, _) => format!("{minutes} min"),
        (0 | 1, ..) if minutes.is_multiple_of(60) => format!("{hours} h"),
        (0 | 1, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} days"),
    };
    if seconds < 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// Both.
pub(crate) fn in_full(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", local(at), relative(at, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_short_and_never_longer_than_the_truth() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-11-21T13:40:59Z", "in 1 h 40 min"),
            ("2026-11-21T12:00:30Z", "in less than a minute"),
            ("2026-11-21T11:59:30Z", "less than a minute ago"),
            ("2026-11-21T12:59:59Z", "in 59 min"),
            ("2026-11-21T14:00:00Z", "in 2 h"),
            ("2026-11-22T13:30:00Z", "in 25 h 30 min"),
            ("2026-11-24T13:30:00Z", "in 3 days"),
            ("2026-11-21T11:55:00Z", "5 min ago"),
        ] {
            assert_eq!(relative(at.parse().unwrap(), now), text);
        }
    }

    #[test]
    fn times_are_shown_in_the_zone_of_the_reader() {
        let at = "2026-11-21T23:30:00Z".parse().unwrap();
        assert_eq!(in_zone(at, TimeZone::posix("CET-1").unwrap()), "2026-11-22 00:30 CET");
    }

    #[test]
    fn a_day_is_over_with_its_end_by_utc_and_a_time_needs_a_zone() {
        for (said, meant) in [
            ("2027-02-28", "2027-03-01T00:00:00Z"),
            ("2027-03-01T17:00:00Z", "2027-03-01T17:00:00Z"),
            ("2027-03-01T17:00:00+01:00", "2027-03-01T16:00:00Z"),
        ] {
            assert_eq!(end(said).unwrap(), meant.parse::<Timestamp>().unwrap(), "{said}");
        }
        for wrong in ["", "soon", "2027-02-29", "2027-03-01T17:00:00", "9999-12-31"] {
            assert!(end(wrong).unwrap_err().contains("2027-03-01T17:00:00Z"), "{wrong}");
        }
    }
}
