//! What is said on the control stream: one JSON object a line, at most [`MAX_LINE`] bytes.
//!
//! Unknown kinds are passed over by the reader, so that one side may be newer than the other.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Longest line, bytes.
pub const MAX_LINE: usize = 64 * 1024;

/// Most bytes of log text in one message.
pub const MAX_LOG_TEXT: usize = 8 * 1024;

/// Most nodes in one list of a message: with names of 64 bytes and a sentence for each, all lists together stay below [`MAX_LINE`].
pub const MAX_NODES: usize = 64;

/// Longest sentence about a node, bytes.
pub const MAX_NODE_TEXT: usize = 200;

/// Most steps in one message.
pub const MAX_STEPS: usize = 8;

/// Most nodes of which one message says how their scratch is.
pub const MAX_SCRATCH_NODES: usize = 32;

/// Longest sentence about a node's scratch, bytes.
pub const MAX_SCRATCH_TEXT: usize = 400;

/// The agent's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromAgent {
    /// The container is being started.
    Starting {
        /// Nodes of the allocation, from SLURM's variables.
        nodes: Vec<String>,
    },
    /// The app answers on its socket.
    Ready,
    /// How the session's nodes are and which steps run on them, whenever that has changed.
    Nodes {
        /// Nodes behind which there is something to say, at most [`MAX_NODES`].
        nodes: Vec<NodeReport>,
        /// Steps that run, at most [`MAX_STEPS`].
        steps: Vec<StepReport>,
    },
    /// How the session's fast scratch is, where it has one: at once when that changes, and about once a second while something is copied.
    Scratch {
        /// How far it is on all nodes together.
        state: ScratchWord,
        /// What has been copied so far, to it or from it, on all nodes together.
        copied: Amount,
        /// Of how much, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<Amount>,
        /// The same for single nodes, those first that keep something, at most [`MAX_SCRATCH_NODES`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<ScratchReport>,
    },
    /// More of the job's log.
    Log {
        /// Where in the log this text begins, bytes.
        offset: u64,
        /// Text; bytes that are not UTF-8 are replaced.
        text: String,
    },
    /// Samples of one node.
    Samples {
        /// A batch, as `monitoring` writes it: a text of its own, so that one that is wrong is refused and the conversation goes on.
        batch: String,
    },
    /// How long the agent's own work took before the app answered, once, where the job file asks for it.
    Traced {
        /// Stretches of time.
        spans: Vec<AgentSpan>,
    },
    /// Still there.
    Heartbeat,
    /// The session is about to end.
    Stopping {
        /// Why.
        why: StopCause,
    },
    /// The app has ended; the agent is about to.
    Exited {
        /// Exit status of the app; none when a signal ended it.
        status: Option<i32>,
        /// What went wrong, where something did: a stable code.
        code: Option<String>,
        /// The same as one sentence.
        text: Option<String>,
    },
    /// A kind this side does not know.
    #[serde(other)]
    Unknown,
}

/// A stretch of the agent's time, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpan {
    /// What it did.
    pub work: AgentWork,
    /// From when on, milliseconds since 1970.
    pub from_ms: i64,
    /// Until when.
    pub to_ms: i64,
}

/// What an agent does before its app answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentWork {
    /// Reading the job file, and making ready what the container needs.
    Prepare,
    /// Reaching the portal.
    Dial,
    /// Starting the container, and the app in it until it answers.
    App,
    /// A word this side does not know.
    #[serde(other)]
    Unknown,
}

/// How a node of a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Whether ranks can be started there.
    pub state: NodeState,
    /// Why not, as one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The container is being started.
    Starting,
    /// Ranks can be started there.
    Ready,
    /// Not now.
    Lost,
    /// A word this side does not know.
    #[serde(other)]
    Unknown,
}

/// How far a session's scratch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScratchWord {
    /// It is being made and filled; the program has not begun.
    Filling,
    /// The program has it.
    Ready,
    /// The program has ended, and what is to be kept is being copied back.
    Emptying,
    /// Nothing is owed any more, and it is removed.
    Done,
    /// Something could not be copied back, and stays where it is.
    Kept,
    /// A word this side does not know.
    #[serde(other)]
    Unknown,
}

/// How much there is of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
}

impl Amount {
    /// Both together; what is too much is as much as there can be.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }
}

/// How a node's own scratch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchReport {
    /// The node's name.
    pub name: String,
    /// What has been copied so far.
    pub copied: Amount,
    /// Of how much, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Amount>,
    /// Whether something that is owed stays there.
    #[serde(default)]
    pub kept: bool,
    /// Why, as one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A step that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// The session's own number for it.
    pub number: u32,
    /// Program and arguments, shortened.
    pub command: String,
    /// Ranks on all its nodes together.
    pub ranks: u32,
    /// Its nodes, at most [`MAX_NODES`].
    pub nodes: Vec<String>,
}

/// Why a session is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The portal asked.
    Request,
    /// The time limit is near.
    Walltime,
    /// The scheduler or the person sent a signal.
    Signal,
    /// A cause this side does not know.
    #[serde(other)]
    Unknown,
}

/// The portal's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromPortal {
    /// End the app, give it `grace_s` seconds, then kill it.
    Stop {
        /// Seconds between asking and killing.
        grace_s: u32,
    },
    /// Send the log again from this byte on, and go on.
    SendLog {
        /// Where to begin, bytes.
        offset: u64,
    },
    /// A kind this side does not know.
    #[serde(other)]
    Unknown,
}

/// Writes one message and flushes it.
pub async fn write<T: Serialize>(io: &mut (impl AsyncWrite + Unpin), message: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    io.write_all(&line).await?;
    io.flush().await
}

/// Reads one message into `line`, a buffer the caller keeps so that reading can be cancelled without losing bytes; `None` at the
/// end of the stream. A line that is too long or not understood is an error: the peer is broken or hostile.
pub async fn read<T: DeserializeOwned>(
    io: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> std::io::Result<Option<T>> {
    loop {
        let available = io.fill_buf().await?;
        if available.is_empty() {
            return Ok(None);
        }
        let (taken, whole) = match available.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (available.len(), false),
        };
        if line.len() + taken > MAX_LINE {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "a control line is too long"));
        }
        line.extend_from_slice(&available[..taken]);
        io.consume(taken);
        if whole {
            let message = serde_json::from_slice(line);
            line.clear();
            return Ok(Some(message?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    #[tokio::test]
    async fn messages_arrive_whole_and_unknown_kinds_are_no_error() {
        let (mut a, b) = tokio::io::duplex(16);
        let sender = tokio::spawn(async move {
            write(&mut a, &FromAgent::Log { offset: 3, text: "x\n".repeat(100) }).await.unwrap();
            a.write_all(b"{\"kind\":\"dance\",\"with\":1}\n").await.unwrap();
            write(&mut a, &FromAgent::Stopping { why: StopCause::Walltime }).await.unwrap();
        });
        let (mut reader, mut line) = (BufReader::new(b), Vec::new());
        let mut got = Vec::new();
        while let Some(message) = read::<FromAgent>(&mut reader, &mut line).await.unwrap() {
            got.push(message);
        }
        sender.await.unwrap();
        assert_eq!(got[0], FromAgent::Log { offset: 3, text: "x\n".repeat(100) });
        assert_eq!(got[1..], [FromAgent::Unknown, FromAgent::Stopping { why: StopCause::Walltime }]);
    }

    #[test]
    fn what_an_agent_tells_of_its_time_is_read_and_what_a_later_one_does_is_unknown() {
        let text = r#"{"kind":"traced","spans":[{"work":"dial","from_ms":-1,"to_ms":2},{"work":"sing","from_ms":3,"to_ms":4}]}"#;
        let FromAgent::Traced { spans } = serde_json::from_str(text).unwrap() else { panic!("another kind") };
        assert_eq!(spans[0], AgentSpan { work: AgentWork::Dial, from_ms: -1, to_ms: 2 });
        assert_eq!(spans[1].work, AgentWork::Unknown);
    }

    #[test]
    fn what_another_version_says_of_a_scratch_is_understood_as_far_as_it_can_be() {
        let read = |text: &str| serde_json::from_str::<FromAgent>(text).unwrap();
        let copied = Amount { bytes: 3, files: 1 };
        let least = read(r#"{"kind":"scratch","state":"filling","copied":{"bytes":3,"files":1}}"#);
        assert_eq!(least, FromAgent::Scratch { state: ScratchWord::Filling, copied, total: None, nodes: Vec::new() });
        let later = read(
            r#"{"kind":"scratch","state":"moved_to_the_moon","copied":{"bytes":3,"files":1,"holes":9},"by":"magic",
                "nodes":[{"name":"c1","copied":{"bytes":3,"files":1}}]}"#,
        );
        let FromAgent::Scratch { state: ScratchWord::Unknown, nodes, .. } = later else { panic!("{later:?}") };
        assert_eq!((nodes[0].kept, nodes[0].text.as_deref()), (false, None));
        let most = Amount { bytes: u64::MAX, files: u64::MAX };
        assert_eq!(most.plus(copied), most);
    }

    #[tokio::test]
    async fn endless_lines_and_nonsense_are_errors() {
        let (mut a, b) = tokio::io::duplex(1024);
        let sender = tokio::spawn(async move { a.write_all(&vec![b'x'; MAX_LINE + 1]).await });
        let (mut reader, mut line) = (BufReader::new(b), Vec::new());
        assert!(read::<FromAgent>(&mut reader, &mut line).await.is_err());
        assert!(line.len() <= MAX_LINE);
        drop(reader);
        let _ = sender.await;
        let mut nonsense = BufReader::new(&b"{\"kind\":7}\n"[..]);
        assert!(read::<FromAgent>(&mut nonsense, &mut Vec::new()).await.is_err());
    }
}
