//! Leaving a world that uses MPI: MPI ends on all ranks together or not at all, so whoever leaves waits for the others, and tells them how far
//! it has come, lest they wait for it.

use super::{Inner, TOPIC_PARTED};
use crate::memory::bell::now;
use crate::mpi::Engine;

impl Inner {
    /// Leaves all groups, and ends MPI once all ranks are here. They are waited for as long as they are well.
    pub(super) fn part(&self, engine: &Engine) {
        if engine.is_usable() {
            for group in self.working() {
                let says = [group.topic().to_le_bytes(), group.begun().to_le_bytes()].concat();
                for rank in group.ranks.iter().filter(|rank| **rank != self.mesh.rank()) {
                    // Who has left already needs nothing of us.
                    let _ = self.mesh.send(*rank, TOPIC_PARTED, &says, &[]);
                }
                group.close();
            }
            self.mesh.part();
        }
        engine.end(&self.mesh);
    }

    /// The ranks of a group that have left before they began a call, as they have said themselves.
    pub(crate) fn parted_before(&self, topic: u64, ranks: &[u32], call: u64) -> Option<u32> {
        let mut parted = self.parted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for rank in ranks.iter().filter(|rank| **rank != self.mesh.rank() && self.mesh.left(**rank)) {
            while let Ok((says, _)) = self.mesh.receive(*rank, TOPIC_PARTED, now()) {
                let word = |at: usize| {
                    says.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
                };
                parted.insert((*rank, word(0)), word(8));
            }
            if parted.get(&(*rank, topic)).is_some_and(|begun| *begun < call) {
                return Some(*rank);
            }
        }
        None
    }
}
