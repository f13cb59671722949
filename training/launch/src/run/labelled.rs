//! What `srun --label` writes, read back: whose line it is, lines put together again that SLURM has cut, and what SLURM says of a step's end
//! left out where it is said already.
//!
//! SLURM carries what a rank writes in messages of at most 1024 bytes (`SLURM_IO_MAX_MSG_LEN`; `_task_build_message` in slurmstepd's io.c, the
//! same from 21.08 to 26.05). A message is as many whole lines as fit into 1023 bytes; only where the next line is longer, it is 1024 bytes of
//! that line alone. `srun` writes the label before each line of a message, and an end of its own behind a line that has none
//! (`write_labelled_message`). So a labelled line of 1024 bytes is a piece: it goes on in the next line of that rank on that output, which is
//! empty where the line had just these 1024 bytes. A line of 1023 bytes fills a message with its own end, and is whole.
//!
//! What is left when a rank's output ends is sent as it is, in messages of 1024 bytes that need not begin with a line. Whole lines are among it
//! only where SLURM could not send as fast as the rank wrote: then one of the last four kilobytes can stay in two, for nothing in what `srun`
//! writes says where a message ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::lines::Lines;

/// Bytes of a line from which on SLURM cuts it.
const PIECE: usize = 1024;

/// Most bytes of unfinished lines that are kept, of all ranks of an output together: a mebibyte, as everywhere, for sixteen of them at a time. A
/// line for which there is no room is passed on in parts.
const MOST: usize = 16 << 20;

/// A line, and the rank that wrote it; none: `srun` itself.
pub(super) type Line = (Option<u32>, Vec<u8>);

/// One of the outputs of `srun --label`.
#[derive(Debug, Default)]
pub(super) struct Labelled {
    /// Of `srun`'s lines.
    lines: Lines,
    /// Of each rank's line, what has come.
    unfinished: BTreeMap<u32, Lines>,
    held: usize,
    /// Ranks whose unfinished line has gone back to its begin: only there is looked for progress bars.
    with_bar: BTreeSet<u32>,
    cancelled: bool,
}

impl Labelled {
    /// Takes what was read; gives the lines that are whole now, with their ends, in the order in which they became whole.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Line> {
        let whole = self.lines.push(bytes);
        whole.split_inclusive(|byte| *byte == b'\n').filter_map(|line| self.line(line)).collect()
    }

    /// The output has ended: gives what is left, as lines.
    pub(super) fn finish(&mut self) -> Vec<Line> {
        let last = self.lines.finish();
        let last = (!last.is_empty()).then(|| self.line(&last)).flatten();
        self.held = 0;
        let unfinished = std::mem::take(&mut self.unfinished);
        let rests = unfinished.into_iter().map(|(rank, mut lines)| (Some(rank), lines.finish()));
        last.into_iter().chain(rests).filter(|(_, line)| !line.is_empty()).collect()
    }

    /// Whether SLURM has said that it cancelled the step. It says so too where it only ends the other ranks of one that has failed.
    pub(super) fn was_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Progress bars as they look now, where it is time to show them.
    pub(super) fn bars(&mut self, now: Instant) -> Vec<Line> {
        let mut shown = Vec::new();
        for rank in &self.with_bar {
            let Some(lines) = self.unfinished.get_mut(rank) else { continue };
            let before = lines.len();
            let bar = lines.bar(now);
            self.held -= before - lines.len();
            if !bar.is_empty() {
                shown.push((Some(*rank), bar));
            }
        }
        shown
    }

    /// When a progress bar is to be shown.
    pub(super) fn next_bar(&self) -> Option<Instant> {
        let lines = self.with_bar.iter().filter_map(|rank| self.unfinished.get(rank));
        lines.filter_map(Lines::next_bar).min()
    }

    fn line(&mut self, line: &[u8]) -> Option<Line> {
        let Some((rank, text)) = rank_of(line) else {
            return (!repeats(line)).then(|| (None, line.to_vec()));
        };
        // In the middle of a rank's line, too: it is not the rank's.
        if let Some(end) = of_slurm_s_end(text) {
            self.cancelled |= end == SlurmsEnd::Cancelled;
            return None;
        }
        let piece = text.strip_suffix(b"\n").filter(|piece| piece.len() == PIECE);
        if piece.is_none() && !self.unfinished.contains_key(&rank) {
            return Some((Some(rank), text.to_vec()));
        }
        let lines = self.unfinished.entry(rank).or_default();
        let before = lines.len();
        let mut whole = lines.push(piece.unwrap_or(text));
        if whole.is_empty() && self.held - before + lines.len() > MOST {
            whole = lines.finish();
        }
        self.held = self.held - before + lines.len();
        if lines.len() == 0 {
            self.unfinished.remove(&rank);
            self.with_bar.remove(&rank);
        } else if piece.is_some_and(|piece| piece.contains(&b'\r')) {
            self.with_bar.insert(rank);
        }
        (!whole.is_empty()).then_some((Some(rank), whole))
    }
}

/// The rank that has written a line, as `srun --label` shows it, and the line.
fn rank_of(line: &[u8]) -> Option<(u32, &[u8])> {
    let end = line.iter().position(|byte| *byte == b':')?;
    let rank = std::str::from_utf8(&line[..end]).ok()?.trim_start().parse().ok()?;
    let rest = &line[end + 1..];
    Some((rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// What `srun` says of tasks that have ended: ranks, the agent and the exit status say it. That memory was short nobody else says.
fn repeats(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let Some(text) = line.trim_end().strip_prefix("srun: ") else { return false };
    let words = text.strip_prefix("error: ").unwrap_or_default();
    let twice = words.strip_prefix("Task ").and_then(|rest| rest.strip_suffix(" reported exit for a second time."));
    if text.starts_with("Job step aborted") || text == "forcing job termination" || twice.is_some() {
        return true;
    }
    // `c[1-2]: tasks 0-1,3: Killed`
    let mut parts = words.splitn(3, ": ");
    let (Some(_), Some(tasks), Some(how)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let numbers = tasks.strip_prefix("task ").or(tasks.strip_prefix("tasks "));
    let is_list =
        |list: &str| !list.is_empty() && list.bytes().all(|byte| byte.is_ascii_digit() || b",-[]".contains(&byte));
    numbers.is_some_and(is_list) && how != "Out Of Memory"
}

/// What slurmstepd says of a step's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlurmsEnd {
    /// The step was cancelled.
    Cancelled,
    /// A rank's connection has gone, for the rank has.
    Disconnected,
}

/// What slurmstepd writes among the lines of a node's first rank when a step is ended, and where the end has no reason of its own that is said
/// only here. The whole line must be that: what a program writes of such lines is the program's.
fn of_slurm_s_end(line: &[u8]) -> Option<SlurmsEnd> {
    let text = std::str::from_utf8(line).ok()?.trim_end();
    let (node, text) = text.strip_prefix("slurmstepd")?.split_once(": error: ")?;
    if !(node.is_empty() || node.starts_with('-')) || node.contains(' ') {
        return None;
    }
    // `*** STEP 71.5 ON c1 CANCELLED AT 2026-11-22T15:23:56 ***`
    let cancelled = text.strip_prefix("*** STEP ").and_then(|rest| rest.strip_suffix(" ***"));
    if let Some((_, at)) = cancelled.and_then(|rest| rest.split_once(" CANCELLED AT ")) {
        return (!at.contains(" DUE TO ")).then_some(SlurmsEnd::Cancelled);
    }
    // ` mpi/pmix_v5: _errhandler: c2 [1]: pmixp_client_v2.c:211: Error handler invoked: status = -61, source = [slurm.pmix.71.5:3]`
    let (_, text) = text.strip_prefix(' ')?.strip_prefix("mpi/pmix")?.split_once(": ")?;
    let is_end = text.starts_with("_errhandler: ") && text.contains(": Error handler invoked: status = ");
    is_end.then_some(SlurmsEnd::Disconnected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A rank's messages, as slurmstepd makes them while the rank writes: bytes in order, a whole line or more each, or 1024 bytes of one.
    fn messages(text: &[u8]) -> Vec<Vec<u8>> {
        let (mut rest, mut messages) = (text, Vec::new());
        while !rest.is_empty() {
            let line = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
            let length = if line >= PIECE {
                PIECE
            } else {
                // The last end within 1023 bytes; without any, the output has ended.
                let most = &rest[..rest.len().min(PIECE - 1)];
                most.iter().rposition(|byte| *byte == b'\n').map_or(line, |end| end + 1)
            };
            messages.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
        messages
    }

    /// A message as `srun --label` writes it.
    fn labelled(rank: u32, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in message.split_inclusive(|byte| *byte == b'\n') {
            out.extend_from_slice(format!("{rank:>2}: ").as_bytes());
            out.extend_from_slice(line);
        }
        if message.last() != Some(&b'\n') {
            out.push(b'\n');
        }
        out
    }

    fn read(labelled: &mut Labelled, bytes: &[u8]) -> Vec<Line> {
        let mut lines = labelled.push(bytes);
        lines.extend(labelled.finish());
        lines
    }

    #[test]
    fn lines_tell_their_rank() {
        assert_eq!(rank_of(b" 3: hello: you\n"), Some((3, &b"hello: you\n"[..])));
        assert_eq!(rank_of(b"12:\n"), Some((12, &b"\n"[..])));
        assert_eq!(rank_of(b"srun: error: c2: task 1: Killed\n"), None);
        assert_eq!(rank_of(b"nothing\n"), None);
    }

    #[test]
    fn lines_that_slurm_has_cut_are_whole_again() {
        for length in [0, 1, 1022, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 1_000_000] {
            let line = [vec![b'x'; length], b"\n".to_vec()].concat();
            let text = [line.clone(), b"next\n".to_vec()].concat();
            let bytes: Vec<u8> = messages(&text).iter().flat_map(|message| labelled(3, message)).collect();
            let expected = vec![(Some(3), line), (Some(3), b"next\n".to_vec())];
            assert_eq!(read(&mut Labelled::default(), &bytes), expected, "{length} bytes");
        }
    }

    #[test]
    fn a_rank_that_ends_in_the_middle_of_a_line_loses_nothing() {
        for length in [1, 1023, 1024, 1025, 2048, 3000] {
            let text = vec![b'x'; length];
            let bytes: Vec<u8> = messages(&text).iter().flat_map(|message| labelled(0, message)).collect();
            let expected = [text, b"\n".to_vec()].concat();
            assert_eq!(read(&mut Labelled::default(), &bytes), [(Some(0), expected)], "{length} bytes");
        }
        // Nor does an `srun` that does.
        assert_eq!(read(&mut Labelled::default(), b" 1: half"), [(Some(1), b"half\n".to_vec())]);
    }

    #[test]
    fn lines_without_end_do_not_fill_the_memory() {
        let (mut output, piece) = (Labelled::default(), vec![b'x'; PIECE]);
        let (mut got, mut count) = (0, 0);
        for _ in 0..1000 {
            for rank in 0..64 {
                count += PIECE;
                got += output.push(&labelled(rank, &piece)).iter().map(|(_, line)| line.len() - 1).sum::<usize>();
            }
            assert!(output.held <= MOST);
            assert_eq!(output.held, output.unfinished.values().map(Lines::len).sum::<usize>());
        }
        let rest: usize = output.finish().iter().map(|(_, line)| line.len() - 1).sum();
        assert_eq!(got + rest, count);
    }

    #[test]
    fn a_progress_bar_that_comes_in_pieces_is_shown_as_it_looks() {
        let (mut output, begin) = (Labelled::default(), Instant::now());
        let bar = b"\r  10%|##        |".repeat(100);
        assert!(output.push(&labelled(1, &bar[..PIECE])).is_empty());
        assert!(output.bars(begin).is_empty());
        let later = output.next_bar().unwrap();
        assert_eq!(output.bars(later), [(Some(1), b"  10%|##        |\n".to_vec())]);
        assert!(output.held < PIECE);
    }

    #[test]
    fn what_slurm_says_of_an_end_that_is_said_already_is_left_out() {
        // As SLURM 24.11 writes it.
        for line in [
            "srun: error: c2: task 3: Killed\n",
            "srun: error: c1: tasks 0-1: Terminated\n",
            "srun: error: c2: task 3: Segmentation fault (core dumped)\n",
            "srun: error: c2: task 3: Exited with exit code 7\n",
            "srun: error: c[1-2]: tasks 0-1,3: Exited with exit code 143\n",
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
            "srun: Job step aborted\n",
            "srun: forcing job termination\n",
            "srun: error: Task 3 reported exit for a second time.\n",
            "0: slurmstepd-c1: error: *** STEP 71.5 ON c1 CANCELLED AT 2026-11-22T15:23:56 ***\n",
            "0: slurmstepd: error: *** STEP 71.5 ON c1 CANCELLED AT 2026-11-22T15:23:56 ***\n",
            "2: slurmstepd-c2: error:  mpi/pmix_v5: _errhandler: c2 [1]: pmixp_client_v2.c:211: Error handler invoked: status = -61, \
             source = [slurm.pmix.71.19:3]\n",
        ] {
            let mut output = Labelled::default();
            assert_eq!(read(&mut output, line.as_bytes()), [], "{line}");
            assert_eq!(output.was_cancelled(), line.contains("CANCELLED"), "{line}");
        }
    }

    #[test]
    fn slurm_s_own_errors_and_programs_words_are_shown() {
        for line in [
            "srun: error: Unable to create step for job 8: More processors requested than permitted\n",
            "srun: error: c2: task 3: Out Of Memory\n",
            "srun: error: Node failure on c2\n",
            "srun: error: Timed out waiting for job step to complete\n",
            "srun: error: task 1 launch failed: Invalid job credential\n",
            "srun: error: c1: task seven: of mine\n",
        ] {
            assert_eq!(read(&mut Labelled::default(), line.as_bytes()), [(None, line.as_bytes().to_vec())]);
        }
        for line in [
            "slurmstepd-c1: error: *** STEP 71.5 ON c1 CANCELLED AT 2026-11-22T15:23:56 DUE TO TIME LIMIT ***\n",
            "slurmstepd-c1: error: *** STEP 71.5 ON c1 FAILED (non-zero exit code or other failure mode) ***\n",
            "slurmstepd-c1: error: Detected 1 oom_kill event in StepId=71.5. Some of the step tasks have been OOM Killed.\n",
            "slurmstepd-c1: error:  mpi/pmix_v5: pmixp_coll_tree_reset_if_to: c1 [0]: pmixp_coll_tree.c:1317: 0x7f: collective timeout\n",
            "I have read slurmstepd-c1: error: *** STEP 71.5 ON c1 CANCELLED AT 2026-11-22T15:23:56 ***\n",
            "slurmstepd-c1: error: *** STEP 71.5 ON c1 CANCELLED AT 2026-11-22T15:23:56 *** says the log\n",
            "srun: error: c2: task 3: Killed\n",
            "srun: Job step aborted\n",
        ] {
            let expected = [(Some(0), line.as_bytes().to_vec())];
            assert_eq!(read(&mut Labelled::default(), format!("0: {line}").as_bytes()), expected);
        }
    }

    proptest! {
        #[test]
        fn lines_of_any_length_of_several_ranks_come_out_as_they_were(
            texts in prop::collection::vec(prop::collection::vec(prop_oneof![0..40_usize, 1000..1050_usize, 2040..2056_usize, 0..9000_usize], 0..8), 1..5),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
            reads in prop::collection::vec(1..5000_usize, 1..20),
        ) {
            let line = |rank: usize, at: usize, length: usize| {
                let byte = b'a' + ((rank * 7 + at) % 26) as u8;
                [vec![byte; length], b"\n".to_vec()].concat()
            };
            let lines: Vec<Vec<Vec<u8>>> = texts
                .iter()
                .enumerate()
                .map(|(rank, lengths)| lengths.iter().enumerate().map(|(at, length)| line(rank, at, *length)).collect())
                .collect();
            let mut waiting: Vec<std::collections::VecDeque<Vec<u8>>> =
                lines.iter().map(|lines| messages(&lines.concat()).into()).collect();
            // Messages of ranks in any order; each rank's own in theirs.
            let mut bytes = Vec::new();
            let mut picks = order.iter();
            while waiting.iter().any(|messages| !messages.is_empty()) {
                let ranks: Vec<usize> = (0..waiting.len()).filter(|rank| !waiting[*rank].is_empty()).collect();
                let rank = picks.next().map_or(ranks[0], |pick| ranks[pick.index(ranks.len())]);
                let message = waiting[rank].pop_front().unwrap();
                bytes.extend(labelled(rank as u32, &message));
            }
            let (mut output, mut got, mut rest, mut at) = (Labelled::default(), vec![Vec::new(); lines.len()], &bytes[..], 0);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(reads[at % reads.len()].min(rest.len()));
                for (rank, line) in output.push(now) {
                    got[rank.unwrap() as usize].push(line);
                }
                (rest, at) = (later, at + 1);
            }
            prop_assert_eq!(output.held, 0);
            prop_assert!(output.finish().is_empty());
            prop_assert_eq!(got, lines);
        }
    }
}
