//! Leaving a world that uses MPI: MPI ends on all ranks together or not at all, so whoever leaves waits for the others, and tells them how far
//! it has come, lest they wait for it.

use std::sync::{Arc, PoisonError};

use super::{Inner, TOPIC_PARTED};
use crate::group::Shared;
use crate::memory::bell::now;
use crate::mpi::Engine;
use crate::record::Record;

/// Bytes that say how far a rank has come in a group.
const SAYING: usize = 16;

/// A group that was built.
pub(super) struct Past {
    topic: u64,
    record: Arc<Record>,
}

impl Inner {
    /// Keeps in mind how far a group comes, for those who may wait for MPI when this rank has left.
    pub(super) fn remember(&self, group: &Shared) {
        if self.mpi.is_some() {
            let past = Past { topic: group.topic(), record: Arc::clone(&group.record) };
            self.built_with_mpi.lock().unwrap_or_else(PoisonError::into_inner).push(past);
        }
    }

    /// What this rank has called in a group of a world that uses MPI.
    pub(super) fn past_record(&self, topic: u64) -> Option<Arc<Record>> {
        let past = self.built_with_mpi.lock().unwrap_or_else(PoisonError::into_inner);
        past.iter().find(|past| past.topic == topic).map(|past| Arc::clone(&past.record))
    }

    /// Tells a rank how far this one has come in all groups that they share.
    fn say_how_far(&self, rank: u32) {
        let past = self.built_with_mpi.lock().unwrap_or_else(PoisonError::into_inner);
        let shared: Vec<u8> = past
            .iter()
            .filter(|past| past.record.ranks().contains(&rank))
            .flat_map(|past| [past.topic, past.record.begun()])
            .flat_map(u64::to_le_bytes)
            .collect();
        // Many groups take several messages. Who has left already needs none of them.
        for some in shared.chunks(SAYING << 12) {
            let _ = self.mesh.send(rank, TOPIC_PARTED, some, &[]);
        }
    }

    /// Leaves all groups, and ends MPI once all ranks are here. They are waited for as long as they are well.
    pub(super) fn part(&self, engine: &Engine) {
        if engine.is_usable() {
            self.working().iter().for_each(|group| group.close(self));
            (0..self.mesh.size()).filter(|rank| *rank != self.mesh.rank()).for_each(|rank| self.say_how_far(rank));
            self.mesh.part();
        }
        // Others may still wait in a call that does not fit ours: they find that out by asking, and this world is over.
        engine.end(&self.mesh, || drop(self.listen()));
    }

    /// The ranks of a group that have left before they began a call, as they have said themselves.
    pub(crate) fn parted_before(&self, topic: u64, ranks: &[u32], call: u64) -> Option<u32> {
        let mut parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        for rank in ranks.iter().filter(|rank| **rank != self.mesh.rank() && self.mesh.left(**rank)) {
            while let Ok((says, _)) = self.mesh.receive(*rank, TOPIC_PARTED, now()) {
                for words in says.as_chunks::<8>().0.as_chunks::<2>().0 {
                    let [topic, begun] = words.map(u64::from_le_bytes);
                    parted.insert((*rank, topic), begun);
                }
            }
            if parted.get(&(*rank, topic)).is_some_and(|begun| *begun < call) {
                return Some(*rank);
            }
        }
        None
    }
}
