//! Nodes as those who run the cluster see them: out of service with a reason, back again, and what each was before.
//!
//! The scheduler decides who may change a node, and the poller tells what became of it: nothing is shown as done before it was seen. The
//! past is written by the reconciler `node_history`, from snapshots alone.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eirene_core::confinement::ConfinedNode;
use eirene_core::node_history::{GONE, IN_SERVICE, NodeChange};
use eirene_core::scheduler::{Node, Scheduler, SchedulerError, SchedulerResult};
use eirene_core::{DrainReason, NodeName, Sentence, Session};
use eirene_database::Db;
use eirene_words::say;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::sync::Mutex;

use crate::actor::Actor;
use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::error::AppError;
use crate::nodes::clean;
use crate::nudge::Nudges;
use crate::shared::Shared;

/// Changes of each node that are kept, and told.
pub const MOST_CHANGES: u32 = 500;

/// What each node was last written down to be.
type Known = BTreeMap<NodeName, NodeChange>;

/// What the service is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Scheduler.
    pub scheduler: Arc<dyn Scheduler>,
    /// The cluster as last seen.
    pub cluster: Cluster,
    /// Audit log.
    pub audit: Audit,
    /// Bells of the reconcilers.
    pub nudges: Nudges,
}

/// A node, for admins.
#[derive(Debug, Clone)]
pub struct SeenNode {
    /// As it was last seen; none of one that the scheduler no longer has.
    pub node: Option<Node>,
    /// Sessions and runs that have it.
    pub sessions: Vec<Session>,
    /// What it was, newest first.
    pub history: Vec<NodeChange>,
    /// What holds jobs there to what they have asked for, as an agent there last said.
    pub confined: Option<ConfinedNode>,
}

/// The upkeep of nodes. Cheap to clone.
#[derive(Clone)]
pub struct Upkeep {
    parts: Shared<Parts>,
    /// None until the database was asked, and after it failed.
    known: Arc<Mutex<Option<Known>>>,
}

impl Upkeep {
    /// The upkeep of the nodes of `parts.scheduler`.
    pub fn new(parts: Parts) -> Self {
        Self { parts: Shared::new(parts), known: Arc::default() }
    }

    /// Has a node take no more jobs; those it runs go on. Where it is drained already, it gets this reason.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for who is no admin, [`AppError::NotFound`] for no node, and what the scheduler answers: with code
    /// `node_not_permitted` where the portal's account may not.
    pub async fn drain(&self, actor: &Actor, node: &NodeName, reason: &DrainReason) -> Result<(), AppError> {
        actor.require_admin()?;
        self.must_be_there(node)?;
        let details = json!({"reason": reason.as_str()});
        let (parts, name, reason) = (self.parts.clone(), node.clone(), reason.clone());
        let by = actor.user.username.clone();
        let drain = async move { parts.scheduler.drain_node(&name, &reason, &by).await };
        self.change_and_note(actor, "node.drain", node, details, drain).await
    }

    /// Has a drained or down node take jobs again. Errors as of [`Upkeep::drain`].
    pub async fn resume(&self, actor: &Actor, node: &NodeName) -> Result<(), AppError> {
        actor.require_admin()?;
        self.must_be_there(node)?;
        let (parts, name) = (self.parts.clone(), node.clone());
        let resume = async move { parts.scheduler.resume_node(&name).await };
        self.change_and_note(actor, "node.resume", node, json!({}), resume).await
    }

    /// What a node was, newest first; for admins, as reasons name people.
    ///
    /// # Errors
    /// [`AppError::NotFound`] for a node that neither is nor was.
    pub async fn history(&self, actor: &Actor, node: &NodeName) -> Result<Vec<NodeChange>, AppError> {
        actor.require_admin()?;
        let history = self.parts.db.node_history(node, MOST_CHANGES).await?;
        if history.is_empty() {
            self.must_be_there(node)?;
        }
        Ok(history)
    }

    /// What holds jobs on a node to what they have asked for; none while nobody has told. Errors as of [`Upkeep::history`].
    pub async fn confined(&self, actor: &Actor, node: &NodeName) -> Result<Option<ConfinedNode>, AppError> {
        self.must_be_known(actor, node).await?;
        Ok(self.parts.db.confined_node(node).await?)
    }

    /// A node, what is on it and what it was. Errors as of [`Upkeep::history`].
    pub async fn look(&self, actor: &Actor, name: &NodeName) -> Result<SeenNode, AppError> {
        actor.require_admin()?;
        let history = self.history(actor, name).await?;
        let node = self.parts.cluster.snapshot().nodes.iter().find(|node| node.name == *name).cloned();
        let mut sessions = self.parts.db.live_sessions().await?;
        sessions.retain(|session| session.nodes.contains(name));
        let confined = self.parts.db.confined_node(name).await?;
        Ok(SeenNode { node, sessions, history, confined })
    }

    /// Whether there is or was such a node; for admins. Errors as of [`Upkeep::history`].
    pub(crate) async fn must_be_known(&self, actor: &Actor, node: &NodeName) -> Result<(), AppError> {
        actor.require_admin()?;
        if self.must_be_there(node).is_ok() || !self.parts.db.node_history(node, 1).await?.is_empty() {
            return Ok(());
        }
        Err(AppError::NotFound)
    }

    /// A name may mean several nodes to the scheduler, so only those it has listed are passed on.
    fn must_be_there(&self, node: &NodeName) -> Result<(), AppError> {
        let is_there = self.parts.cluster.snapshot().nodes.iter().any(|seen| seen.name == *node);
        if is_there { Ok(()) } else { Err(AppError::NotFound) }
    }

    /// Has a node changed, see [`Audit::around`](crate::audit::Audit::around).
    async fn change_and_note(
        &self,
        actor: &Actor,
        action: &'static str,
        node: &NodeName,
        details: serde_json::Value,
        change: impl Future<Output = SchedulerResult<()>> + Send + 'static,
    ) -> Result<(), AppError> {
        let parts = self.parts.clone();
        let change = async move {
            let answer = change.await;
            parts.nudges.nodes().notify_one();
            answer
        };
        let answer = self.parts.audit.around(actor.audit(action, node.as_str(), "begun", details), change).await?;
        answer.map_err(|error| refused(&error))
    }

    /// Writes down what has changed since it was last done; says how many changes. From a cluster that was not seen nothing follows.
    ///
    /// # Errors
    /// The database's; what was not written is found again.
    pub async fn note_history(&self) -> Result<usize, AppError> {
        let snapshot = self.parts.cluster.snapshot();
        let Some(at) = snapshot.asked_at.filter(|_| snapshot.reachable && !snapshot.nodes.is_empty()) else {
            return Ok(0);
        };
        let mut known = self.known.lock().await;
        // Taken out, so that after an error the database is asked again.
        let mut last: Known = if let Some(last) = known.take() {
            last
        } else {
            let stored = self.parts.db.last_node_changes().await?;
            stored.into_iter().map(|change| (change.node.clone(), change)).collect()
        };
        let changes = changes(&last, &snapshot.nodes, at);
        for change in &changes {
            self.parts.db.put_node_change(change, MOST_CHANGES).await?;
            last.insert(change.node.clone(), change.clone());
        }
        *known = Some(last);
        Ok(changes.len())
    }
}

/// What is not as it was last known.
fn changes(last: &Known, nodes: &[Node], at: Timestamp) -> Vec<NodeChange> {
    let names: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
    let seen = nodes.iter().map(|node| {
        let state = if node.available { IN_SERVICE } else { node.state.as_str() };
        let reason = node.reason.as_deref().map(clean).filter(|reason| !reason.is_empty());
        (&node.name, state, reason)
    });
    let gone = last.keys().filter(|name| !names.contains(name)).map(|name| (name, GONE, None));
    let change = |(name, state, reason): (&NodeName, &str, Option<String>)| {
        let before = last.get(name);
        if before.is_some_and(|before| before.state == state && before.reason == reason) {
            return None;
        }
        // A clock that was put back does not make the newest change an older one.
        let after = before.map(|before| before.at.saturating_add(SignedDuration::from_micros(1)).unwrap_or(before.at));
        let at = after.map_or(at, |after| at.max(after));
        Some(NodeChange { node: name.clone(), at, state: state.to_owned(), reason })
    };
    seen.chain(gone).filter_map(change).collect()
}

/// Why the scheduler did not do it.
fn refused(error: &SchedulerError) -> AppError {
    match error {
        SchedulerError::Refused { reason } => {
            let text = Sentence::from_elsewhere(&reason.text);
            match reason.code.as_str() {
                "node_unknown" => AppError::NotFound,
                "node_not_permitted" => AppError::Conflict { code: "node_not_permitted", text },
                _ => AppError::Conflict { code: "scheduler_refuses", text },
            }
        }
        SchedulerError::Unreachable { .. }
        | SchedulerError::Malformed { .. }
        | SchedulerError::Unauthorised { .. }
        | SchedulerError::Unsupported { .. }
        | SchedulerError::NoAccounting => {
            tracing::warn!(%error, "The scheduler gave no answer about a node");
            AppError::Unavailable { what: say("away.scheduler"), retry_after_s: 5 }
        }
    }
}
