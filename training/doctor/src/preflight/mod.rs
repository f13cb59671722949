//! The preflight: seconds before ranks of a program start on several nodes, one rank on each tries memory, processor and the links to the others.
//!
//! [`rank`] is what each of them does; it says on stdout how far it is, a [`Said`] a line, so that what was found before a node hangs is known all
//! the same. [`judge`] makes a [`Verdict`] of all that was said: measurements in, words out, and nothing is touched. A node is *slow* only beside the
//! others, and *sick* only where a training could not work at all: a machine that is busy must never be refused.
//!
//! Left to others: who starts the ranks and hears them, and what is done about a verdict (`eirene-train-command`).

mod judge;
mod links;
mod memory;
mod rank;
mod verdict;
mod words;

use std::time::Duration;

pub use judge::judge;
pub use rank::rank;
pub use verdict::{Finding, Link, Node, State, Verdict};
pub use words::{Said, Words};

/// How long the ranks have for finding each other: nodes begin one after the other, and read the program from a disk that all share.
const MEET: Duration = Duration::from_secs(9);
/// When all that a rank does is over, from its beginning: a link that is well takes a tenth of a second, on a machine that has nothing else to do.
const ALL: Duration = Duration::from_secs(12);
/// After so long nothing more is heard: who has not said its last word by then never will.
pub const LIMIT: Duration = Duration::from_secs(18);
