//! The lines of one rank out of a run's log, in which every line of rank N begins with `[N] `.
//!
//! Nothing is kept of the log but how much of the label has matched: lines of any length, cut across pieces anywhere, need no memory.

/// Picks the lines of one rank and takes its label off.
#[derive(Debug)]
pub(super) struct RankLines {
    label: Vec<u8>,
    place: Place,
}

/// Where in a line the next byte stands.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// At its beginning, after so many bytes of the label.
    Label(usize),
    /// Behind the label: the line is wanted.
    Wanted,
    /// In a line of somebody else.
    Other,
}

impl RankLines {
    pub(super) fn new(rank: u32) -> Self {
        Self { label: format!("[{rank}] ").into_bytes(), place: Place::Label(0) }
    }

    /// What is wanted of the log's next piece.
    pub(super) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut wanted = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            wanted.extend_from_slice(self.pass_in_line(part));
            if part.ends_with(b"\n") {
                self.place = Place::Label(0);
            }
        }
        wanted
    }

    /// The same for a piece of one line.
    fn pass_in_line<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        match self.place {
            Place::Wanted => part,
            Place::Other => &[],
            Place::Label(matched) => {
                let missing = &self.label[matched..];
                let length = missing.len().min(part.len());
                if part[..length] != missing[..length] {
                    self.place = Place::Other;
                    &[]
                } else if length < missing.len() {
                    self.place = Place::Label(matched + length);
                    &[]
                } else {
                    self.place = Place::Wanted;
                    &part[length..]
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What it means, line by line.
    fn plainly(log: &str, rank: u32) -> String {
        let label = format!("[{rank}] ");
        log.split_inclusive('\n').filter_map(|line| line.strip_prefix(&label)).collect()
    }

    #[test]
    fn the_lines_of_a_rank_come_without_its_label() {
        let log = "pre-flight: well\n[0] a\n[10] b\n[1] c\n[1] \n[1] [0] d\n [1] e\n[1]f\n[1] g";
        assert_eq!(RankLines::new(1).pass(log.as_bytes()), b"c\n\n[0] d\ng");
        assert_eq!(RankLines::new(10).pass(log.as_bytes()), b"b\n");
        assert_eq!(RankLines::new(2).pass(log.as_bytes()), b"");
    }

    proptest! {
        #[test]
        fn where_the_log_is_cut_does_not_matter(
            lines in prop::collection::vec(("(\\[[0-2]{1,2}\\]? ?)?", "[\\[\\]a0-2é ]{0,6}", "\n?"), 0..12),
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
