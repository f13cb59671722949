//! What is said on a session's step socket: a program in the container asks, the agent outside of it starts ranks on the session's nodes.
//!
//! The asker sends one [`Request`] with three descriptors, its standard input, output and error, which become the step's own: nothing is copied
//! on the way. Then it may send [`Word`]s, and gets [`Answer`]s, the last of which is [`Answer::Refused`] or [`Answer::Ended`]. An asker that
//! closes the connection ends its step.
//!
//! A message is a little-endian `u32` length and that much JSON, at most [`MOST_BYTES`]. Everything is typed; nothing of it is ever read by a
//! shell outside of the container. For the agent and the training runtime alike: who may ask, what may be started and how is the agent's.

mod client;
mod wire;

pub use client::Asker;
pub use wire::{Descriptors, Receiver, WireError, frame, parse};

use serde::{Deserialize, Serialize};

/// The variable that names the socket, in a session's container.
pub const SOCKET_VARIABLE: &str = "EIRENE_TRAIN_STEPS";

/// Most bytes of one message. An environment takes most of it.
pub const MOST_BYTES: usize = 1 << 20;

/// What the asker wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Ranks of one program.
    Step(StepRequest),
    /// One process on one node, as `ssh` would start it.
    Remote(RemoteRequest),
}

/// Ranks of one program on the session's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRequest {
    /// How many; none: `ranks_per_node` on every node.
    pub ranks: Option<u32>,
    /// How many on each node; none: dealt out evenly.
    pub ranks_per_node: Option<u32>,
    /// On these nodes of the session only; empty: on all.
    pub nodes: Vec<String>,
    /// Not on these.
    pub exclude: Vec<String>,
    /// Whether there may be more ranks than processors.
    pub oversubscribe: bool,
    /// Whether each rank keeps to processors of its own.
    pub bind: bool,
    /// Whether every line comes with its rank before it, as `3: text`.
    pub labels: bool,
    /// A directory for one file a rank, instead of output here.
    pub output: Option<String>,
    /// The image's MPI, as far as the asker could find one.
    pub mpi: Option<ImageMpi>,
    /// What every rank runs.
    pub program: Program,
}

impl StepRequest {
    /// Whether ranks may be started on a node of this name.
    pub fn wants(&self, node: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == node);
        (self.nodes.is_empty() || named(&self.nodes)) && !named(&self.exclude)
    }
}

/// A program as it is started in the container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
}

/// The MPI of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageMpi {
    /// Name and version, as `Open MPI 5.0.7`.
    pub name: String,
    /// Whether it meets its ranks by PMIx; otherwise by PMI 2.
    pub pmix: bool,
}

/// One process on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRequest {
    /// The node, by any of its names.
    pub node: String,
    /// What the container's own shell there runs: its command is one argument, or none, and then the shell reads its standard input. Without a
    /// directory it begins in the home; the environment comes beside that of the container.
    pub program: Program,
}

/// What the asker may say later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Word {
    /// Hand this signal to every rank.
    Signal {
        /// Which.
        signal: StepSignal,
    },
    /// End the step now. (With braces: serde lets unknown fields of a unit variant pass.)
    End {},
}

/// Signals that can be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepSignal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: save and end.
    Terminate,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

/// What the asker hears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// The step is being started: where, by which way and why, in one sentence. Before that may come what it waits for.
    Starting {
        /// One sentence.
        text: String,
    },
    /// Nothing was started.
    Refused {
        /// Stable code.
        code: String,
        /// One sentence: what is wrong, and what to do.
        text: String,
    },
    /// It is over.
    Ended {
        /// The exit status, 128 + N if signal N ended it.
        status: u8,
    },
}
