//! The lines of one rank out of a run's log, in which a line of rank N begins with `[N] `, and a line that several ranks have said alike with all of
//! them: `[0-3] `, `[0, 2-4] `.
//!
//! Nothing is kept of the log but what its label has said so far: lines of any length, cut across pieces anywhere, need no memory.

/// Picks the lines of one rank and takes the labels off.
#[derive(Debug)]
pub(super) struct RankLines {
    rank: u32,
    place: Place,
}

/// Where in a line the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At its beginning.
    Beginning,
    /// In its label.
    Label(Label),
    /// Behind the label's bracket.
    Closed { has_rank: bool },
    /// Behind the label: the line is wanted.
    Wanted,
    /// In a line of somebody else.
    Other,
}

/// A label, as far as it has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Label {
    /// Whether the rank is among those named before this number.
    has_rank: bool,
    /// What is before the dash of `2-4`.
    first: Option<u32>,
    number: Option<u32>,
    /// Behind a comma, and before the space that follows it.
    comma: bool,
}

impl Label {
    /// The place behind one more byte.
    fn next(self, byte: u8, rank: u32) -> Option<Place> {
        let Self { has_rank, first, number, comma } = self;
        let named = |last: u32| has_rank || (first.unwrap_or(last)..=last).contains(&rank);
        let label = match (byte, number) {
            (b' ', None) if comma => Self { comma: false, ..self },
            (b'0'..=b'9', None) if !comma => Self { number: Some(u32::from(byte - b'0')), ..self },
            (b'0'..=b'9', Some(number)) if number > 0 => {
                Self { number: Some(number.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?), ..self }
            }
            (b'-', Some(_)) if first.is_none() => Self { first: number, number: None, ..self },
            (b',', Some(number)) => Self { has_rank: named(number), first: None, number: None, comma: true },
            (b']', Some(number)) => return Some(Place::Closed { has_rank: named(number) }),
            _ => return None,
        };
        Some(Place::Label(label))
    }
}

impl RankLines {
    pub(super) fn new(rank: u32) -> Self {
        Self { rank, place: Place::Beginning }
    }

    /// What is wanted of the log's next piece.
    pub(super) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut wanted = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            wanted.extend_from_slice(self.pass_in_line(part));
            if part.ends_with(b"\n") {
                self.place = Place::Beginning;
            }
        }
        wanted
    }

    /// The same for a piece of one line.
    fn pass_in_line<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        for (at, byte) in part.iter().enumerate() {
            self.place = match (self.place, *byte) {
                (Place::Wanted, _) => return &part[at..],
                (Place::Other, _) => return &[],
                (Place::Beginning, b'[') => Place::Label(Label::default()),
                (Place::Label(label), byte) => label.next(byte, self.rank).unwrap_or(Place::Other),
                (Place::Closed { has_rank: true }, b' ') => Place::Wanted,
                (Place::Beginning | Place::Closed { .. }, _) => Place::Other,
            };
        }
        &[]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What it means, line by line.
    fn plainly(log: &str, rank: u32) -> String {
        log.split_inclusive('\n').filter_map(|line| of_rank(line, rank)).collect()
    }

    fn of_rank(line: &str, rank: u32) -> Option<&str> {
        let (label, text) = line.strip_prefix('[')?.split_once("] ")?;
        // A number as it is written, or none.
        let number = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text);
        let ranges: Option<Vec<(u32, u32)>> = label
            .split(", ")
            .map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                Some((number(first)?, number(last)?))
            })
            .collect();
        ranges?.iter().any(|(first, last)| (*first..=*last).contains(&rank)).then_some(text)
    }

    #[test]
    fn the_lines_of_a_rank_come_without_its_label() {
        let log = "pre-flight: well\n[0] a\n[10] b\n[1] c\n[1] \n[1] [0] d\n [1] e\n[1]f\n[01] g\n[1] h";
        assert_eq!(RankLines::new(1).pass(log.as_bytes()), b"c\n\n[0] d\nh");
        assert_eq!(RankLines::new(10).pass(log.as_bytes()), b"b\n");
        assert_eq!(RankLines::new(2).pass(log.as_bytes()), b"");
    }

    #[test]
    fn what_several_ranks_have_said_is_a_line_of_each() {
        let log = "[0-3] a\n[0, 2-4] b\n[2-4, 7] c\n[3-1] d\n[2-] e\n[-2] f\n[1,2] g\n[2, ] h\n[] i\n[99999999999] j\n";
        for (rank, expected) in [(0, "a\nb\n"), (1, "a\n"), (2, "a\nb\nc\n"), (4, "b\nc\n"), (7, "c\n"), (5, "")] {
            let mut lines = RankLines::new(rank);
            assert_eq!(String::from_utf8(lines.pass(log.as_bytes())).unwrap(), expected, "{rank}");
            assert_eq!(plainly(log, rank), expected, "{rank}");
        }
    }

    proptest! {
        #[test]
        fn where_the_log_is_cut_does_not_matter(
            lines in prop::collection::vec(("(\\[[0-2]{1,2}((-|, |,)[0-2]{1,2}){0,2}\\]? ?)?", "[\\[\\]a0-2é ]{0,6}", "\n?"), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            rank in 0_u32..23,
        ) {
            let log: String = lines.into_iter().map(|(label, text, end)| label + &text + &end).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(log.len() + 1)).collect();
            cuts.extend([0, log.len()]);
            cuts.sort_unstable();
            let mut lines = RankLines::new(rank);
            let passed: Vec<u8> =
                cuts.windows(2).flat_map(|ends| lines.pass(&log.as_bytes()[ends[0]..ends[1]])).collect();
            prop_assert_eq!(String::from_utf8(passed).unwrap(), plainly(&log, rank));
        }
    }
}
