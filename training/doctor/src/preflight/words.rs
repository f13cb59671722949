//! What a rank of the preflight says, a line at a time, and how it is found again among everything else that a step writes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What stands before each word, whatever a launcher has put before that.
const MARK: &str = "eirene-preflight ";

/// A rank's word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Whose; on node number `rank`, for there is one on each.
    pub rank: u32,
    /// What.
    #[serde(flatten)]
    pub(super) word: Word,
}

/// In the order in which they come; the last one is [`Word::Done`] or [`Word::Failed`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub(super) enum Word {
    /// It has begun: the nodes' names, as its launcher told them, and its own.
    Here { nodes: Vec<String>, node: String },
    /// It has found the others.
    Met,
    /// What its memory is like.
    Memory(Memory),
    /// How long a fixed computation takes at best, milliseconds.
    Processor { milliseconds: f64 },
    /// What the lower rank of two has measured.
    Link(Pair),
    /// What the higher one has received wrongly.
    Received { with: u32, wrong: u64 },
    /// All added up numbers: how long, milliseconds, and how many sums are wrong.
    Sum { milliseconds: f64, wrong: u64 },
    /// It goes no further.
    Failed { why: Why, with: Vec<u32>, text: String },
    /// All was tried.
    Done,
}

/// What a rank has found of its node's memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// Bytes that were written and read again.
    pub(super) bytes: u64,
    /// Words of eight bytes that were read other than written.
    pub(super) wrong: u64,
    /// Gigabytes read a second, at best.
    pub(super) speed: f64,
    /// Bytes that this job may still take, where that is known.
    pub(super) room: Option<u64>,
    /// Why memory could not be had or shared.
    pub(super) problem: Option<String>,
}

/// A link, measured from its lower rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    /// The higher rank.
    pub(super) with: u32,
    /// One way, microseconds, at best.
    pub(super) latency: f64,
    /// Gigabytes a second to the higher rank, at best.
    pub(super) out: f64,
    /// From it.
    pub(super) back: f64,
    /// How far its clock is ahead, seconds.
    pub(super) clock: f64,
    /// Words that came back wrong.
    pub(super) wrong: u64,
}

/// Why a rank goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Why {
    /// Those ranks did not come at all.
    Absent,
    /// It could not reach that rank, or what came from it was broken.
    Link,
    /// That rank has begun with a transfer and stopped in the midst of it.
    Late,
    /// The time for all was over before all was tried.
    Over,
    /// That rank's process is gone.
    Died,
    /// Another rank has given up before.
    Follows,
    /// Something of its own.
    Own,
}

impl Said {
    /// As a line, with its end.
    pub(super) fn line(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{MARK}{json}\n")
    }

    /// From a line, if it is one: a launcher's label may stand before it.
    fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.split_once(MARK)?.1).ok()
    }
}

/// Everything that was heard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Words {
    pub(super) all: Vec<Said>,
    /// Ranks of which their launcher says that they have failed, for they themselves never do.
    pub(super) ended: BTreeSet<u32>,
}

impl Words {
    /// Out of what the ranks have written together, and what their launcher has said of them; other lines are passed over, and so is half a
    /// line at the end.
    pub fn read(text: &[u8], launcher: &[u8]) -> Self {
        let (text, launcher) = (String::from_utf8_lossy(text), String::from_utf8_lossy(launcher));
        let all = text.lines().filter_map(Said::read).collect();
        Self { all, ended: launcher.lines().filter_map(ended).collect() }
    }

    /// Whether anybody said anything: where not, nothing is known of any node.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// The rank of a line like `rank 1 on c2 was killed by signal SIGKILL` or `rank 1 (on c2, pid 7) exited with code 3`.
fn ended(line: &str) -> Option<u32> {
    let (number, rest) = line.split_once("rank ")?.1.split_once(' ')?;
    let is_about_its_end =
        ["was killed by signal", "exited with code", "ended with status"].iter().any(|how| rest.contains(how));
    (is_about_its_end && rest.trim_start_matches('(').starts_with("on ")).then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_found_behind_labels_and_among_other_lines() {
        let said = [
            Said { rank: 0, word: Word::Here { nodes: vec!["c1".into(), "c2".into()], node: "c1".into() } },
            Said { rank: 1, word: Word::Memory(Memory { bytes: 1 << 20, speed: 3.5, ..Memory::default() }) },
            Said { rank: 0, word: Word::Link(Pair { with: 1, latency: 40.5, out: 1.0, ..Pair::default() }) },
            Said { rank: 1, word: Word::Failed { why: Why::Late, with: vec![0], text: "over".into() } },
            Said { rank: 0, word: Word::Done },
        ];
        let mut text = String::from("bash: warning: setlocale\n");
        for (at, word) in said.iter().enumerate() {
            text.push_str(["", "[1] ", "  1: "][at % 3]);
            text.push_str(&word.line());
        }
        text += "[0] eirene-preflight {\"rank\":1,\"word\":\"do";
        assert_eq!(Words::read(text.as_bytes(), b"").all, said);
    }

    #[test]
    fn launchers_tell_whose_process_has_ended() {
        let agent = b"eirene-agent: rank 1 on c2 was killed by signal SIGKILL\nsrun: error: c2: task 1: Killed\n";
        assert_eq!(Words::read(b"", agent).ended, [1].into());
        let run = b"eirene-train: rank 3 (on c4, pid 77) exited with code 1; ending the other 3 ranks\nrank 2 on time\nrank x on c1";
        assert_eq!(Words::read(b"", run).ended, [3].into());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), marked in any::<bool>()) {
            let begin = if marked { MARK.as_bytes() } else { b"" };
            let _ = Words::read(&[begin, &bytes].concat(), &bytes);
        }
    }
}
