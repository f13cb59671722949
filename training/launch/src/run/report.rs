//! What people see of a run: labelled lines, and at its end why it failed, last and in plain words.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::run::event::{End, Event, Stream};
use crate::run::printer::Target;

/// Lines of stderr that are shown again of the rank that failed first.
const LAST_WORDS: usize = 20;

/// Bytes of such a line that are kept.
const LONGEST_WORD: usize = 4096;

/// Colours that labels take in turn.
const COLORS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// How lines are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) labels: bool,
    pub(crate) color: bool,
    pub(crate) files: bool,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    Rank { rank: u32, end: End },
    Host { host: usize, problem: String, code: u8 },
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Rank { end, .. } => end.exit_code(),
            Self::Host { code, .. } => *code,
        }
    }
}

/// What is known of each rank.
#[derive(Debug, Clone, Default)]
struct Known {
    host: usize,
    pid: u32,
    ended: bool,
    last_words: VecDeque<Vec<u8>>,
}

/// The run as people see it.
pub(crate) struct Report {
    look: Look,
    hosts: Vec<String>,
    ranks: Vec<Known>,
    first: Option<Failure>,
    /// The first rank that ended because of another, while that other is not known.
    suspect: Option<Failure>,
}

impl Report {
    /// `host_of` says for each rank on which of `hosts` it runs.
    pub(crate) fn new(look: Look, hosts: Vec<String>, host_of: impl Iterator<Item = usize>) -> Self {
        let ranks = host_of.map(|host| Known { host, ..Known::default() }).collect();
        Self { look, hosts, ranks, first: None, suspect: None }
    }

    /// Takes note of what happened; gives what is to be printed.
    pub(crate) fn note(&mut self, event: &Event) -> Option<(Target, Vec<u8>)> {
        match event {
            Event::Started { rank, pid } => {
                if let Some(known) = self.ranks.get_mut(*rank as usize) {
                    known.pid = *pid;
                }
                None
            }
            Event::Ended { rank, .. } => {
                if let Some(known) = self.ranks.get_mut(*rank as usize) {
                    known.ended = true;
                }
                None
            }
            Event::Lines { rank, stream, lines } => Some(self.lines(*rank, *stream, lines)),
            Event::Noise { host, lines } => {
                let name = self.hosts.get(*host).map_or("host", String::as_str);
                Some((Target::Stderr, label(lines, format!("[{name}] ").as_bytes())))
            }
            Event::Lost { host, .. } => {
                for known in self.ranks.iter_mut().filter(|known| known.host == *host) {
                    known.ended = true;
                }
                None
            }
        }
    }

    fn lines(&mut self, rank: u32, stream: Stream, lines: &[u8]) -> (Target, Vec<u8>) {
        if let (Stream::Stderr, Some(known)) = (stream, self.ranks.get_mut(rank as usize)) {
            remember(&mut known.last_words, lines);
        }
        let target = match stream {
            _ if self.look.files => return (Target::File(rank), lines.to_vec()),
            Stream::Stdout => Target::Stdout,
            Stream::Stderr => Target::Stderr,
        };
        if !self.look.labels {
            return (target, lines.to_vec());
        }
        let mark = if self.look.color {
            format!("\x1b[{}m[{rank}]\x1b[0m ", COLORS[rank as usize % COLORS.len()])
        } else {
            format!("[{rank}] ")
        };
        (target, label(lines, mark.as_bytes()))
    }

    /// Of several things that happened at once, the one that is no other's consequence; what it means, if it is a failure.
    pub(crate) fn first_failure(&mut self, events: &[Event]) -> Option<String> {
        if self.first.is_some() {
            return None;
        }
        let failures = events.iter().filter_map(|event| match event {
            Event::Ended { rank, end } if !end.is_well() => Some(Failure::Rank { rank: *rank, end: *end }),
            Event::Lost { host, problem, code } => {
                Some(Failure::Host { host: *host, problem: problem.clone(), code: *code })
            }
            Event::Ended { .. } | Event::Started { .. } | Event::Lines { .. } | Event::Noise { .. } => None,
        });
        let failures: Vec<Failure> = failures.collect();
        // Who was killed was not failed by others.
        let killed = failures.iter().find(|failure| matches!(failure, Failure::Rank { end: End::Signal(_), .. }));
        let own =
            || failures.iter().find(|failure| !matches!(failure, Failure::Rank { end, .. } if end.is_consequence()));
        let Some(first) = killed.or_else(own) else {
            self.suspect = self.suspect.take().or_else(|| failures.into_iter().next());
            return None;
        };
        Some(self.blame(first.clone()))
    }

    /// Whether a rank ended because of another that is not known yet.
    pub(crate) fn has_suspect(&self) -> bool {
        self.first.is_none() && self.suspect.is_some()
    }

    /// Nobody else failed: the rank that blamed another is all that is known.
    pub(crate) fn blame_suspect(&mut self) -> Option<String> {
        let suspect = self.suspect.take().filter(|_| self.first.is_none())?;
        Some(self.blame(suspect))
    }

    fn blame(&mut self, first: Failure) -> String {
        let mut line = self.headline(&first);
        // Where a rank has failed all are begun, also those of hosts from which that is not heard yet.
        let others = match first {
            Failure::Rank { .. } => self.ranks.iter().filter(|known| !known.ended).count(),
            Failure::Host { .. } => self.unended().len(),
        };
        match others {
            0 => {}
            1 => line.push_str("; ending the other rank"),
            others => {
                let _ = write!(line, "; ending the other {others} ranks");
            }
        }
        self.first = Some(first);
        line
    }

    /// Why the run failed, if it did.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.first.as_ref()
    }

    /// Ranks that have not ended, for messages.
    pub(crate) fn unended(&self) -> Vec<u32> {
        let unended = self.ranks.iter().enumerate().filter(|(_, known)| known.pid != 0 && !known.ended);
        unended.map(|(rank, _)| rank as u32).collect()
    }

    /// The last thing people see of a run that failed.
    pub(crate) fn last(&self) -> Option<Vec<u8>> {
        let first = self.first.as_ref()?;
        let mut text = format!("eirene-train: the run failed: {}\n", self.headline(first)).into_bytes();
        let Failure::Rank { rank, .. } = first else { return Some(text) };
        let words = self.ranks.get(*rank as usize).map(|known| &known.last_words)?;
        if words.is_empty() {
            text.extend_from_slice(b"eirene-train: it wrote nothing to stderr\n");
            return Some(text);
        }
        let count = match words.len() {
            1 => "line".to_owned(),
            count => format!("{count} lines"),
        };
        text.extend_from_slice(format!("eirene-train: its last {count} on stderr:\n").as_bytes());
        for line in words {
            text.extend_from_slice(b"    ");
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        Some(text)
    }

    fn headline(&self, failure: &Failure) -> String {
        match failure {
            Failure::Rank { rank, end } => {
                let known = self.ranks.get(*rank as usize);
                let host = known.and_then(|known| self.hosts.get(known.host)).map_or("this host", String::as_str);
                format!("rank {rank} (on {host}, pid {}) {end}", known.map_or(0, |known| known.pid))
            }
            Failure::Host { host, problem, .. } => {
                format!("host `{}` {problem}", self.hosts.get(*host).map_or("?", String::as_str))
            }
        }
    }
}

fn remember(words: &mut VecDeque<Vec<u8>>, lines: &[u8]) {
    let whole = lines.strip_suffix(b"\n").unwrap_or(lines);
    for line in whole.split(|byte| *byte == b'\n') {
        if words.len() == LAST_WORDS {
            words.pop_front();
        }
        words.push_back(line[..line.len().min(LONGEST_WORD)].to_vec());
    }
}

/// Puts a label before every line. A progress bar that goes back to the begin of its line would hide it.
fn label(lines: &[u8], mark: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + lines.len() / 8);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(mark);
        let hiding = line.iter().take_while(|byte| **byte == b'\r').count();
        out.extend_from_slice(if line.len() > hiding + 1 { &line[hiding..] } else { line });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::event::BECAUSE_OF_ANOTHER;

    const PLAIN: Look = Look { labels: true, color: false, files: false };

    fn report(look: Look) -> Report {
        let mut report = Report::new(look, vec!["a".to_owned(), "b".to_owned()], [0, 0, 1, 1].into_iter());
        for rank in 0..4 {
            report.note(&Event::Started { rank, pid: 100 + rank });
        }
        report
    }

    fn lines(rank: u32, stream: Stream, text: &[u8]) -> Event {
        Event::Lines { rank, stream, lines: text.to_vec() }
    }

    #[test]
    fn every_line_has_its_rank_before_it() {
        let printed = report(PLAIN).note(&lines(3, Stream::Stdout, b"one\n\ntwo\xff\n"));
        assert_eq!(printed, Some((Target::Stdout, b"[3] one\n[3] \n[3] two\xff\n".to_vec())));
        let printed = report(Look { color: true, ..PLAIN }).note(&lines(1, Stream::Stderr, b"x\n"));
        assert_eq!(printed, Some((Target::Stderr, b"\x1b[33m[1]\x1b[0m x\n".to_vec())));
        let printed = report(Look { labels: false, ..PLAIN }).note(&lines(1, Stream::Stderr, b"x\n"));
        assert_eq!(printed, Some((Target::Stderr, b"x\n".to_vec())));
        let printed = report(Look { files: true, ..PLAIN }).note(&lines(1, Stream::Stderr, b"x\n"));
        assert_eq!(printed, Some((Target::File(1), b"x\n".to_vec())));
    }

    #[test]
    fn a_rank_that_was_killed_is_no_other_s_consequence() {
        let mut report = report(PLAIN);
        let events = [
            Event::Ended { rank: 0, end: End::Code(1) },
            Event::Ended { rank: 1, end: End::Code(0) },
            Event::Ended { rank: 2, end: End::Signal(9) },
        ];
        for event in &events {
            report.note(event);
        }
        assert_eq!(
            report.first_failure(&events).unwrap(),
            "rank 2 (on b, pid 102) was killed by signal 9 (SIGKILL): out of memory?; ending the other rank"
        );
        assert_eq!(report.failure().unwrap().exit_code(), 137);
        assert_eq!(report.first_failure(&[Event::Ended { rank: 3, end: End::Code(1) }]), None);
    }

    #[test]
    fn who_ends_because_of_another_is_blamed_only_when_there_is_no_other() {
        let ended = |rank, code| [Event::Ended { rank, end: End::Code(code) }];
        let mut with_other = report(PLAIN);
        assert_eq!(with_other.first_failure(&ended(0, BECAUSE_OF_ANOTHER)), None);
        assert!(with_other.has_suspect());
        assert!(
            with_other.first_failure(&ended(2, 1)).unwrap().starts_with("rank 2 (on b, pid 102) exited with code 1")
        );
        assert!(!with_other.has_suspect());
        assert_eq!(with_other.blame_suspect(), None);

        let mut alone = report(PLAIN);
        alone.first_failure(&ended(3, BECAUSE_OF_ANOTHER));
        alone.first_failure(&ended(0, BECAUSE_OF_ANOTHER));
        assert!(alone.blame_suspect().unwrap().starts_with("rank 3 (on b, pid 103) exited with code 113"));
        assert_eq!(alone.failure().unwrap().exit_code(), 113);
    }

    #[test]
    fn ranks_whose_beginning_is_not_heard_of_yet_are_among_those_that_are_ended() {
        let mut report = Report::new(PLAIN, vec!["a".to_owned(), "b".to_owned()], [0, 0, 1, 1].into_iter());
        let ended = Event::Ended { rank: 3, end: End::Code(7) };
        report.note(&Event::Started { rank: 3, pid: 103 });
        report.note(&ended);
        let said = report.first_failure(&[ended]).unwrap();
        assert_eq!(said, "rank 3 (on b, pid 103) exited with code 7; ending the other 3 ranks");
    }

    #[test]
    fn the_last_words_are_the_last_twenty_lines_of_stderr() {
        let mut report = report(PLAIN);
        let text = (0..30).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
        report.note(&lines(1, Stream::Stderr, text.as_bytes()));
        report.note(&lines(1, Stream::Stdout, b"not this\n"));
        report.first_failure(&[Event::Ended { rank: 1, end: End::Code(3) }]);
        let last = String::from_utf8(report.last().unwrap()).unwrap();
        let expected = (10..30).map(|line| format!("    line {line}\n")).collect::<Vec<_>>().concat();
        assert_eq!(
            last,
            format!(
                "eirene-train: the run failed: rank 1 (on a, pid 101) exited with code 3\n\
                 eirene-train: its last 20 lines on stderr:\n{expected}"
            )
        );
    }
}
