//! Bytes in pieces, lines out: a line is never passed on in parts, so that labels and lines of several ranks do not mix.
//!
//! Progress bars go back to the begin of their line (carriage return) instead of ending it. Where lines are labelled, such a line is
//! shown once a second, as it looks then; what it looked like in between is not kept, as on a terminal.

use std::time::{Duration, Instant};

/// A line longer than this is passed on in parts after all; memory is not without end.
const LONGEST: usize = 1024 * 1024;

/// How often a progress bar is shown.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// Collects pieces until lines are whole.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
    /// Since when there is a progress bar in the rest.
    bar_since: Option<Instant>,
}

impl Lines {
    /// Takes a piece; gives all lines that are whole now, with their ends.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(last) = piece.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(piece);
            return if self.rest.len() > LONGEST { self.finish() } else { Vec::new() };
        };
        let mut whole = std::mem::take(&mut self.rest);
        self.bar_since = None;
        whole.extend_from_slice(&piece[..=last]);
        self.rest.extend_from_slice(&piece[last + 1..]);
        whole
    }

    /// Gives what is left, as a line.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.bar_since = None;
        let mut rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }

    /// Gives a progress bar as it looks now, as a line, if it is time to show it.
    pub(crate) fn bar(&mut self, now: Instant) -> Vec<u8> {
        let mut states = self.rest.split(|byte| *byte == b'\r');
        // A state behind the last return may be half written. One return alone, at the end, may belong to a line's end.
        let unfinished = states.next_back().unwrap_or_default().len();
        let Some(state) = states.rfind(|state| !state.is_empty()).filter(|_| self.rest.len() > unfinished + 1) else {
            return Vec::new();
        };
        let since = *self.bar_since.get_or_insert(now);
        if now.duration_since(since) < SHOWN_EVERY {
            return Vec::new();
        }
        let shown = [state, b"\n"].concat();
        self.rest.drain(..self.rest.len() - unfinished);
        self.bar_since = Some(now);
        shown
    }

    /// How many bytes are kept.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// When a progress bar is to be shown.
    pub(crate) fn next_bar(&self) -> Option<Instant> {
        self.bar_since.filter(|_| self.rest.contains(&b'\r')).map(|since| since + SHOWN_EVERY)
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
        let out: usize = (0..100).map(|_| lines.push(&vec![b'x'; 64 * 1024]).len()).sum();
        assert!(out > 99 * 64 * 1024 - LONGEST - 64 * 1024);
        assert!(lines.rest.len() <= LONGEST);
    }

    #[test]
    fn a_progress_bar_is_shown_once_a_second_as_it_looks_then() {
        let mut lines = Lines::default();
        let begin = Instant::now();
        assert_eq!(lines.next_bar(), None);
        lines.push(b"\r10%\r20");
        assert_eq!(lines.bar(begin), b"");
        assert_eq!(lines.next_bar(), Some(begin + SHOWN_EVERY));
        lines.push(b"%\r30%");
        assert_eq!(lines.bar(begin + SHOWN_EVERY), b"20%\n");
        assert_eq!(lines.next_bar(), None);
        lines.push(b"\r40%\r50%");
        assert_eq!(lines.bar(begin + SHOWN_EVERY), b"");
        assert_eq!(lines.bar(begin + 2 * SHOWN_EVERY), b"40%\n");
        assert_eq!(lines.push(b"\n"), b"50%\n");
        assert_eq!(lines.next_bar(), None);
    }

    #[test]
    fn a_line_s_end_in_two_bytes_is_no_progress_bar() {
        let mut lines = Lines::default();
        let begin = Instant::now();
        lines.push(b"\r");
        assert_eq!(lines.bar(begin), b"");
        assert_eq!(lines.bar(begin + SHOWN_EVERY), b"");
        assert_eq!(lines.push(b"\n"), b"\r\n");
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

        #[test]
        fn bars_are_lines_and_never_panic(pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x')], 0..10), 0..20)) {
            let mut lines = Lines::default();
            let mut now = Instant::now();
            for piece in &pieces {
                let whole = lines.push(piece);
                prop_assert!(whole.is_empty() || whole.ends_with(b"\n"));
                now += Duration::from_millis(600);
                let bar = lines.bar(now);
                prop_assert!(bar.is_empty() || (bar.ends_with(b"\n") && bar.len() > 1 && !bar.contains(&b'\r')));
            }
        }
    }
}
