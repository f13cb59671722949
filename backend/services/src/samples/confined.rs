//! What holds the jobs on each node to what they have asked for, as agents say it with every batch. It is written down where the node's page and
//! `doctor` find it: when it changes, and once a day so that it does not grow old.
//!
//! Not every session can tell everything: an older agent says less, and so does one whose job has all of a node. What one of them cannot tell leaves
//! what another has told, for a day.
//!
//! An agent's word about a node that others share: it is shown to who runs the platform, and nothing follows from it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use eirene_core::NodeName;
use eirene_core::confinement::{ConfinedNode, Confinement, Held};
use eirene_database::{Db, DbError};
use eirene_monitoring as monitoring;
use jiff::{SignedDuration, Timestamp};

/// What has not changed is written again after this time.
const AGAIN: SignedDuration = SignedDuration::from_hours(24);
/// Where agents on one node contradict each other, no more than one of them is written down in this time.
const PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// What was told is known for so long, where nobody tells it again.
const KNOWN: SignedDuration = SignedDuration::from_hours(24);

/// What is known of each node.
#[derive(Debug, Default)]
pub(super) struct Confined(Mutex<HashMap<NodeName, Known>>);

/// What was written down last of a node, and when it was last told.
#[derive(Debug, Clone, Copy)]
struct Known {
    by: Confinement,
    memory: Told,
    cpus: Told,
    written_at: Timestamp,
}

/// Whether jobs are held to something, and when that was last told.
#[derive(Debug, Clone, Copy)]
struct Told {
    value: Option<bool>,
    at: Timestamp,
}

impl Told {
    /// What is known once somebody has told this.
    fn then(self, said: Self) -> Self {
        let outlives = said.value.is_none() && said.at.duration_since(self.at) < KNOWN;
        if outlives { self } else { said }
    }
}

impl Known {
    fn new(node: &ConfinedNode) -> Self {
        let told = |value| Told { value, at: node.at };
        Self { by: node.by, memory: told(node.held.memory), cpus: told(node.held.cpus), written_at: node.at }
    }

    /// What is known once somebody has said this. Of other groups nothing is known yet.
    fn then(self, said: Self) -> Self {
        if self.by != said.by {
            return said;
        }
        Self { memory: self.memory.then(said.memory), cpus: self.cpus.then(said.cpus), ..said }
    }

    fn held(&self) -> Held {
        Held { memory: self.memory.value, cpus: self.cpus.value }
    }
}

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
        let said = ConfinedNode { node, by, held, at };
        if let Err(error) = self.put(db, &said).await {
            tracing::debug!(node = %said.node, %error, "What confines a node is not written down for now");
            self.lock().remove(&said.node);
        }
    }

    async fn put(&self, db: &Db, said: &ConfinedNode) -> Result<(), DbError> {
        self.remember(db, said).await?;
        match self.due(said.clone()) {
            Some(confined) => db.put_confined_node(&confined).await,
            None => Ok(()),
        }
    }

    /// Knows again what was written down of a node before the portal was started, so that who cannot tell does not undo it. It counts from when
    /// it was written, which may be a day before it was last told.
    async fn remember(&self, db: &Db, said: &ConfinedNode) -> Result<(), DbError> {
        if self.lock().contains_key(&said.node) {
            return Ok(());
        }
        if let Some(written) = db.confined_node(&said.node).await? {
            // A clock that was set back counts from now.
            let known = Known::new(&ConfinedNode { at: written.at.min(said.at), ..written });
            self.lock().entry(said.node.clone()).or_insert(known);
        }
        Ok(())
    }

    /// What is to be written; who is told so writes it.
    fn due(&self, said: ConfinedNode) -> Option<ConfinedNode> {
        let mut all = self.lock();
        let told = Known::new(&said);
        let Some(known) = all.get_mut(&said.node) else {
            all.insert(said.node.clone(), told);
            return Some(said);
        };
        let next = known.then(told);
        let is_same = (next.by, next.held()) == (known.by, known.held());
        let is_fresh = said.at.duration_since(known.written_at) < if is_same { AGAIN } else { PAUSE };
        if is_fresh {
            // It was told again, if not written.
            if is_same {
                *known = Known { written_at: known.written_at, ..next };
            }
            return None;
        }
        *known = next;
        Some(ConfinedNode { held: next.held(), ..said })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<NodeName, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
