//! Time limits: `30`, `30:15`, `1:30:00`, `2-12`, `2-12:30`, `1-02:03:04`, `UNLIMITED`.

use super::TextError;

/// A limit that may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// There is none.
    Unlimited,
    /// At most this.
    AtMost(u64),
}

/// Reads a time limit in whole minutes; seconds are rounded up, as SLURM does.
pub(crate) fn parse_minutes(text: &str) -> Result<Limit, TextError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("unlimited") || text.eq_ignore_ascii_case("infinite") {
        return Ok(Limit::Unlimited);
    }
    seconds(text).map(|seconds| Limit::AtMost(seconds.div_ceil(60))).ok_or_else(|| TextError::new("time limit", text))
}

fn seconds(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(number).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, &[minutes]) => (0, minutes, 0),
        (None, &[minutes, seconds]) => (0, minutes, seconds),
        (Some(_), &[hours]) => (hours, 0, 0),
        (Some(_), &[hours, minutes]) => (hours, minutes, 0),
        (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?.checked_add(seconds)
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, minutes) in [
            ("30", 30),
            ("30:15", 31),
            ("1:30:00", 90),
            ("2-12", 3600),
            ("2-12:30", 3630),
            ("1-02:03:04", 1564),
            ("0", 0),
        ] {
            assert_eq!(parse_minutes(text), Ok(Limit::AtMost(minutes)), "{text}");
        }
        assert_eq!(parse_minutes("UNLIMITED"), Ok(Limit::Unlimited));
    }

    #[test]
    fn other_text_is_refused() {
        for bad in ["", "-", "1-", "-1", "a", "1:2:3:4", "1-2:3:4:5", "1.5", "+3", "99999999999999999999", "1:-2"] {
            assert!(parse_minutes(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(days in 0_u64..5000, hours in 0_u64..24, minutes in 0_u64..60) {
            let total = (days * 24 + hours) * 60 + minutes;
            prop_assert_eq!(parse_minutes(&format!("{days}-{hours:02}:{minutes:02}:00")), Ok(Limit::AtMost(total)));
            prop_assert_eq!(parse_minutes(&total.to_string()), Ok(Limit::AtMost(total)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse_minutes(&text);
        }
    }
}
