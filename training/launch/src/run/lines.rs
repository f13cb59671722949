//! Bytes in pieces, lines out: a line is never passed on in parts, so that labels and lines of several ranks do not mix.

/// A line longer than this is passed on in parts after all; memory is not without end.
const LONGEST: usize = 1024 * 1024;

/// Collects pieces until lines are whole.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes a piece; gives all lines that are whole now, with their ends.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(last) = piece.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(piece);
            return if self.rest.len() > LONGEST { self.finish() } else { Vec::new() };
        };
        let mut whole = std::mem::take(&mut self.rest);
        whole.extend_from_slice(&piece[..=last]);
        self.rest.extend_from_slice(&piece[last + 1..]);
        whole
    }

    /// Gives what is left, as a line.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_without_end_is_kept_until_the_end() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one"), b"");
        assert_eq!(lines.push(b" and\ntwo\nthr"), b"one and\ntwo\n");
        assert_eq!(lines.finish(), b"thr\n");
        assert_eq!(lines.finish(), b"");
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut lines = Lines::default();
        let out: usize = (0..100).map(|_| lines.push(&[b'x'; 64 * 1024]).len()).sum();
        assert!(out > 99 * 64 * 1024 - LONGEST - 64 * 1024);
        assert!(lines.rest.len() <= LONGEST);
    }

    proptest! {
        #[test]
        fn pieces_put_together_are_what_came(pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..40), 0..40)) {
            let mut lines = Lines::default();
            let mut out = Vec::new();
            for piece in &pieces {
                let whole = lines.push(piece);
                prop_assert!(whole.is_empty() || whole.ends_with(b"\n"));
                out.extend(whole);
            }
            out.extend(lines.finish());
            let mut all = pieces.concat();
            if !all.is_empty() && !all.ends_with(b"\n") {
                all.push(b'\n');
            }
            prop_assert_eq!(out, all);
        }
    }
}
