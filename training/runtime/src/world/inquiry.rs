//! Asking the others how far they are, when a collective has taken too long between nodes; within a node it stands in shared memory.

use std::time::Duration;

use super::{Inner, TOPIC_STATUS};
use crate::memory::bell::now;

/// How long the others may take to say where they are, when a collective has taken too long.
const ANSWER: Duration = Duration::from_millis(500);

const QUESTION: u8 = 0;
const ANSWERED: u8 = 1;

/// A message about how far a rank is in a group: which call it has begun.
fn status(kind: u8, group: u64, call: u64) -> Vec<u8> {
    [&[kind][..], &group.to_le_bytes(), &call.to_le_bytes()].concat()
}

impl Inner {
    /// Who of a group has not come to a call, as far as they say themselves. Whoever waits for anything answers; a rank that is busy with
    /// something else does not.
    pub(crate) fn ask_around(&self, group: u64, ranks: &[u32], call: u64) -> Vec<u32> {
        let mut missing: Vec<u32> = ranks.iter().copied().filter(|rank| *rank != self.mesh.rank()).collect();
        for rank in &missing {
            // Who cannot be asked is missing.
            let _ = self.mesh.send(*rank, TOPIC_STATUS, &status(QUESTION, group, call), &[]);
        }
        let deadline = now() + ANSWER;
        while now() < deadline && !missing.is_empty() {
            self.listen(|rank, says| {
                if says.1 == group && says.2 >= call {
                    missing.retain(|other| *other != rank);
                }
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        missing
    }

    /// Answers who asks where we are, and takes the answers to our own questions.
    pub(super) fn listen(&self, mut take: impl FnMut(u32, (u8, u64, u64))) {
        for rank in (0..self.mesh.size()).filter(|rank| *rank != self.mesh.rank()) {
            while let Ok((says, _)) = self.mesh.receive(rank, TOPIC_STATUS, now()) {
                let word = |at: usize| {
                    says.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
                };
                let (kind, group, call) = (says.first().copied().unwrap_or(ANSWERED), word(1), word(9));
                // A question says where its asker is, too.
                take(rank, (kind, group, call));
                if kind == QUESTION
                    && let Some(known) = self.working().iter().find(|known| known.topic() == group)
                {
                    let _ = self.mesh.send(rank, TOPIC_STATUS, &status(ANSWERED, group, known.begun()), &[]);
                }
            }
        }
    }
}
