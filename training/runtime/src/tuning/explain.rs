//! Saying on stderr what is chosen and why, once for each kind of call.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use eirene_train_schedule::Collective;

use crate::call;
use crate::choice::{Choice, Topology};

/// What has been said. Only where it is wanted is there one, on rank 0.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    /// Ranks of the group, collective, size as a power of two, and whether all buffers lay in arenas.
    said: Mutex<HashSet<(u32, u8, u32, bool)>>,
}

impl Explained {
    /// Says it, if it has not been said of such a call before.
    pub(crate) fn once(
        &self,
        collective: Collective,
        bytes: usize,
        shared: bool,
        topology: &Topology,
        choice: &Choice,
    ) {
        let kind = (topology.ranks(), call::kind(collective), bytes.max(1).ilog2(), shared);
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(kind) {
            let place = if shared { ", in arenas" } else { "" };
            self.tell(&format!("{}{place}: {choice}", what(collective, bytes, topology)));
        }
    }

    /// Says something.
    #[expect(clippy::unused_self, reason = "who has this is to speak")]
    pub(crate) fn tell(&self, text: &str) {
        // Whoever reads it may be gone; the work goes on.
        let _ = writeln!(std::io::stderr(), "eirene-train: {text}");
    }
}

/// What is to be done, in words.
pub(crate) fn what(collective: Collective, bytes: usize, topology: &Topology) -> String {
    let count = |number: usize, one: &str| {
        if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
    };
    let size = if bytes > 0 { format!(" of {}", count(bytes, "byte")) } else { String::new() };
    let (ranks, nodes) = (count(topology.ranks() as usize, "rank"), count(topology.node_count(), "node"));
    format!("{}{size} on {ranks} of {nodes}", call::name(collective))
}
