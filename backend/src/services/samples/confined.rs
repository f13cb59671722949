//! What holds the jobs on each node to what they have asked for, as agents say it with every batch. It is written down where the node's page and
//! `doctor` find it: when it changes, and once a day so that it does not grow old.
//!
//! An agent's word about a node that others share: it is shown to who runs the platform, and nothing follows from it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use eirene_core::NodeName;
use eirene_core::confinement::{ConfinedNode, Confinement, Held};
use eirene_database::Db;
use eirene_monitoring as monitoring;
use jiff::{SignedDuration, Timestamp};

/// What has not changed is written again after this time.
const AGAIN: SignedDuration = SignedDuration::from_hours(24);
/// Where agents on one node contradict each other, no more than one of them is written down in this time.
const PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// What was written down last of each node, and when.
#[derive(Debug, Default)]
pub(super) struct Confined(Mutex<HashMap<NodeName, ConfinedNode>>);

impl Confined {
    /// Writes down what an agent on one of its session's nodes has said, where that is due.
    pub(super) async fn note(&self, db: &Db, said: &monitoring::Batch, at: Timestamp) {
        let Ok(node) = said.node.as_str().parse::<NodeName>() else { return };
        let of_groups = said.held.map(|monitoring::Held { memory, cpus }| Held { memory, cpus }).unwrap_or_default();
        let (by, held) = match said.confinement {
            monitoring::Confinement::CgroupV2 => (Confinement::CgroupV2, of_groups),
            monitoring::Confinement::CgroupV1 => (Confinement::CgroupV1, of_groups),
            monitoring::Confinement::None => (Confinement::Nothing, Held::NOTHING),
        };
        let confined = ConfinedNode { node, by, held, at };
        if !self.is_due(&confined) {
            return;
        }
        if let Err(error) = db.put_confined_node(&confined).await {
            tracing::debug!(node = %confined.node, %error, "What confines a node is not written down for now");
            self.lock().remove(&confined.node);
        }
    }

    /// Whether it is to be written; who is told so writes it.
    fn is_due(&self, said: &ConfinedNode) -> bool {
        let mut written = self.lock();
        let is_fresh = |known: &ConfinedNode| {
            let is_same = (known.by, known.held) == (said.by, said.held);
            said.at.duration_since(known.at) < if is_same { AGAIN } else { PAUSE }
        };
        if written.get(&said.node).is_some_and(is_fresh) {
            return false;
        }
        written.insert(said.node.clone(), said.clone());
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<NodeName, ConfinedNode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
