//! Which bytes of a file are asked for, and under what conditions (RFC 9110, sections 13 and 14): one range, strong entity tags.

use eirene_files_protocol::Version;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

/// What a `Range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything: there is no range, several, or what is none.
    Whole,
    /// From one byte on, to another one or the end.
    From(u64, Option<u64>),
    /// The last so many.
    Last(u64),
}

/// A part of a file: its first byte, and the byte behind its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// First.
    pub from: u64,
    /// Behind the last.
    pub to: u64,
}

/// What to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// All of it.
    Whole,
    /// This part.
    Part(Span),
    /// The client has it.
    NotModified,
    /// It is not what the client thinks.
    Failed,
    /// There is no such part.
    OutOfRange,
}

impl Wanted {
    /// Reads a header's value.
    pub(crate) fn parse(value: &str) -> Self {
        Self::parse_one(value).unwrap_or(Self::Whole)
    }

    fn parse_one(value: &str) -> Option<Self> {
        let (unit, range) = value.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// The part of a file of this size; none: there is no such part.
    pub(crate) fn of(self, size: u64) -> Option<Span> {
        match self {
            Self::Whole => Some(Span { from: 0, to: size }),
            Self::From(first, _) if first >= size => None,
            Self::From(first, last) => {
                let to = last.map_or(size, |last| last.saturating_add(1).min(size));
                Some(Span { from: first, to })
            }
            Self::Last(0) => None,
            Self::Last(_) if size == 0 => None,
            Self::Last(many) => Some(Span { from: size.saturating_sub(many), to: size }),
        }
    }
}

/// Digits alone; more than any file has is as good as the largest number.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The strong tag of a content. It says nothing of where the file lies.
pub(crate) fn etag(version: &Version) -> String {
    let mut hash = Sha256::new();
    for number in [version.device, version.inode, version.bytes] {
        hash.update(number.to_le_bytes());
    }
    for moment in [version.modified, version.changed] {
        hash.update(moment.seconds.to_le_bytes());
        hash.update(moment.nanoseconds.to_le_bytes());
    }
    format!("\"{}\"", data_encoding::HEXLOWER.encode(&hash.finalize()[..16]))
}

/// Whether anything has to be known of the file before it is decided what is read.
pub(crate) fn has_conditions(headers: &HeaderMap) -> bool {
    [header::RANGE, header::IF_MATCH, header::IF_NONE_MATCH].iter().any(|name| headers.contains_key(name))
}

/// What to answer a request with these headers for a content of this tag and size; `ranges` where parts may be asked for at all.
pub(crate) fn decide(headers: &HeaderMap, tag: &str, size: u64, ranges: bool) -> Decision {
    if headers.contains_key(header::IF_MATCH) && !names(headers, &header::IF_MATCH, tag, false) {
        return Decision::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) && names(headers, &header::IF_NONE_MATCH, tag, true) {
        return Decision::NotModified;
    }
    let mut given = headers.get_all(header::RANGE).iter();
    let range = match (given.next(), given.next()) {
        (Some(range), None) if ranges => range.to_str().map_or(Wanted::Whole, Wanted::parse),
        _ => Wanted::Whole,
    };
    // A date tells contents of the same second not apart, so only a tag holds.
    let holds = headers.get(header::IF_RANGE).is_none_or(|value| value.as_bytes() == tag.as_bytes());
    match range {
        Wanted::Whole => Decision::Whole,
        _ if !holds => Decision::Whole,
        range => range.of(size).map_or(Decision::OutOfRange, Decision::Part),
    }
}

/// Whether a list of tags has this one in it, or is for any. A weak tag is as good as a strong one where that is `weak` enough.
fn names(headers: &HeaderMap, name: &header::HeaderName, tag: &str, weak: bool) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).any(|listed| {
        let listed = if weak { listed.strip_prefix("W/").unwrap_or(listed) } else { listed };
        listed == "*" || listed == tag
    })
}

#[cfg(test)]
mod tests {
    use eirene_files_protocol::Moment;
    use proptest::prelude::*;

    use super::*;

    fn decided(given: &[(&'static str, &str)], size: u64) -> Decision {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().unwrap());
        }
        decide(&headers, "\"a\"", size, true)
    }

    fn part(from: u64, to: u64) -> Decision {
        Decision::Part(Span { from, to })
    }

    #[test]
    fn one_range_is_a_part_and_whatever_else_is_said_is_the_whole() {
        for (range, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-", part(2, 10)),
            ("bytes=2-99", part(2, 10)),
            ("Bytes = 2-3", part(2, 4)),
            ("bytes=-3", part(7, 10)),
            ("bytes=-99", part(0, 10)),
            ("bytes=9-18446744073709551615", part(9, 10)),
            ("bytes=9-99999999999999999999999", part(9, 10)),
            ("bytes=10-", Decision::OutOfRange),
            ("bytes=99999999999999999999999-", Decision::OutOfRange),
            ("bytes=-0", Decision::OutOfRange),
            ("bytes=3-2", Decision::Whole),
            ("bytes=0-1,3-4", Decision::Whole),
            ("bytes=+1-2", Decision::Whole),
            ("bytes=-", Decision::Whole),
            ("bytes=a-b", Decision::Whole),
            ("lines=0-1", Decision::Whole),
            ("", Decision::Whole),
        ] {
            assert_eq!(decided(&[("range", range)], 10), expected, "{range}");
        }
        assert_eq!(decided(&[("range", "bytes=0-1"), ("range", "bytes=2-3")], 10), Decision::Whole);
        assert_eq!(decided(&[("range", "bytes=0-")], 0), Decision::OutOfRange);
        assert_eq!(decided(&[("range", "bytes=-1")], 0), Decision::OutOfRange);
    }

    #[test]
    fn conditions_are_about_the_strong_tag() {
        for (given, expected) in [
            (vec![("if-none-match", "\"a\"")], Decision::NotModified),
            (vec![("if-none-match", "\"b\", W/\"a\"")], Decision::NotModified),
            (vec![("if-none-match", "*")], Decision::NotModified),
            (vec![("if-none-match", "\"b\"")], Decision::Whole),
            (vec![("if-match", "\"b\"")], Decision::Failed),
            (vec![("if-match", "W/\"a\"")], Decision::Failed),
            (vec![("if-match", "\"b\",\"a\""), ("range", "bytes=1-1")], part(1, 2)),
            (vec![("if-range", "\"a\""), ("range", "bytes=1-1")], part(1, 2)),
            (vec![("if-range", "\"b\""), ("range", "bytes=1-1")], Decision::Whole),
            (vec![("if-range", "W/\"a\""), ("range", "bytes=1-1")], Decision::Whole),
            (vec![("if-range", "Mon, 01 Jan 2024 00:00:00 GMT"), ("range", "bytes=1-1")], Decision::Whole),
            (vec![("if-range", "\"b\""), ("range", "bytes=99-")], Decision::Whole),
        ] {
            assert_eq!(decided(&given, 10), expected, "{given:?}");
        }
    }

    #[test]
    fn any_change_is_another_tag() {
        let moment = Moment { seconds: 1, nanoseconds: 2 };
        let version = Version { device: 1, inode: 2, bytes: 3, modified: moment, changed: moment };
        let later = Moment { nanoseconds: 3, ..moment };
        let others = [
            Version { device: 2, ..version },
            Version { inode: 3, ..version },
            Version { bytes: 4, ..version },
            Version { modified: later, ..version },
            Version { changed: later, ..version },
        ];
        for other in others {
            assert_ne!(etag(&other), etag(&version));
        }
        assert_eq!(etag(&version).len(), 34);
    }

    proptest! {
        #[test]
        fn a_part_lies_in_the_file_and_is_what_was_asked_for(range in "[bytes=0-9, -]{0,24}|bytes=[0-9]{0,20}-[0-9]{0,20}", size in 0_u64..1000) {
            match Wanted::parse(&range).of(size) {
                Some(span) => prop_assert!(span.from <= span.to && span.to <= size),
                None => prop_assert!(range.trim().to_ascii_lowercase().starts_with("bytes")),
            }
        }

        #[test]
        fn the_bytes_between_first_and_last_are_those_that_come(first in 0_u64..200, length in 0_u64..200, size in 0_u64..200) {
            let last = first + length;
            let asked: Vec<u64> = (first..=last).filter(|at| *at < size).collect();
            let got: Vec<u64> = Wanted::parse(&format!("bytes={first}-{last}")).of(size).map_or(vec![], |span| (span.from..span.to).collect());
            prop_assert_eq!(got, asked);
            let last: Vec<u64> = (size.saturating_sub(length)..size).collect();
            let got: Vec<u64> = Wanted::parse(&format!("bytes=-{length}")).of(size).map_or(vec![], |span| (span.from..span.to).collect());
            prop_assert_eq!(got, last);
        }
    }
}
