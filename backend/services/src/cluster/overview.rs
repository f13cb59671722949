//! The cluster as somebody sees it: whoever runs the platform all of it, everybody else what [concerns](super::concern) them.

use std::collections::BTreeMap;
use std::sync::Arc;

use eirene_core::{Clock, NodeName, Scope, Session, SessionId, SessionState};
use eirene_database::Db;
use eirene_monitoring::Metric;

use super::concern::Concern;
use super::{Cluster, ClusterView, Snapshot};
use crate::actor::Actor;
use crate::error::AppError;
use crate::samples::{Back, Recent, Samples};
use crate::spaces::groups::{GroupSource, KnownGroups};

/// What the service is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The cluster.
    pub cluster: Cluster,
    /// The user database's groups.
    pub groups: Arc<dyn GroupSource>,
    /// Samples.
    pub samples: Samples,
}

/// Looks at the cluster for somebody. Cheap to clone.
#[derive(Clone)]
pub struct Overview {
    db: Db,
    cluster: Cluster,
    groups: KnownGroups,
    samples: Samples,
}

/// The cluster as its page shows it to somebody.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What there is.
    pub cluster: ClusterView,
    /// Whether it is seen by whoever runs the platform, so that nothing is left out.
    pub is_operator: bool,
    /// How many nodes are left out.
    pub left_out: usize,
    /// Sessions and runs that are not over: one's own, the operator's all.
    pub live: Vec<Session>,
    /// How busy GPUs are where samples of `live` tell it: a mean between 0 and 1 for each node.
    pub gpus_busy: BTreeMap<NodeName, f64>,
}

impl Seen {
    /// Those that wait, in the order in which they were asked for.
    pub fn waiting(&self) -> impl Iterator<Item = &Session> {
        self.live.iter().filter(|session| session.state == SessionState::Queued)
    }
}

impl Overview {
    /// Of the cluster of `parts`.
    pub fn new(parts: Parts) -> Self {
        let Parts { db, clock, cluster, groups, samples } = parts;
        Self { groups: KnownGroups::new(groups, clock), db, cluster, samples }
    }

    /// The cluster as `actor` sees it.
    ///
    /// # Errors
    /// What the means of signing in do not allow, and the database's.
    pub async fn cluster(&self, actor: &Actor) -> Result<ClusterView, AppError> {
        actor.require(Scope::Read)?;
        if actor.acts_as_admin() {
            return Ok(self.cluster.view());
        }
        let snapshot = self.cluster.snapshot();
        let live = self.db.live_sessions_of(actor.user.id).await?;
        let concern = self.concern(actor, &snapshot, &live).await;
        Ok(ClusterView::of(&snapshot, &concern))
    }

    /// The same with jobs, with what waits and, where asked for, with how busy GPUs are.
    ///
    /// # Errors
    /// As of [`Overview::cluster`].
    pub async fn look(&self, actor: &Actor, with_gpus: bool) -> Result<Seen, AppError> {
        actor.require(Scope::Read)?;
        let (snapshot, is_operator) = (self.cluster.snapshot(), actor.acts_as_admin());
        let live =
            if is_operator { self.db.live_sessions().await? } else { self.db.live_sessions_of(actor.user.id).await? };
        let gpus_busy = if with_gpus { self.gpus_busy(&live).await } else { BTreeMap::new() };
        let concern = if is_operator { None } else { Some(self.concern(actor, &snapshot, &live).await) };
        let cluster = match &concern {
            None => self.cluster.view(),
            Some(concern) => ClusterView::of(&snapshot, concern),
        };
        let left_out = snapshot.nodes.len().saturating_sub(cluster.nodes.len());
        Ok(Seen { cluster, is_operator, left_out, live, gpus_busy })
    }

    /// Partitions and nodes that concern `actor`, as a look that has seen nothing else: what she asks for is judged by it, so that a refusal names
    /// nothing that she does not see.
    ///
    /// # Errors
    /// The database's.
    pub async fn ground(&self, actor: &Actor) -> Result<Arc<Snapshot>, AppError> {
        let snapshot = self.cluster.snapshot();
        if actor.acts_as_admin() || !is_limited(&snapshot) {
            return Ok(snapshot);
        }
        let live = self.db.live_sessions_of(actor.user.id).await?;
        let concern = self.concern(actor, &snapshot, &live).await;
        let (partitions, nodes) = snapshot.ground_of(&concern);
        Ok(Arc::new(Snapshot {
            asked_at: snapshot.asked_at,
            reachable: snapshot.reachable,
            partitions: Arc::new(partitions),
            nodes: Arc::new(nodes),
            ..Snapshot::default()
        }))
    }

    async fn concern(&self, actor: &Actor, snapshot: &Snapshot, live: &[Session]) -> Concern {
        // A cluster that is open to everybody asks nobody about people.
        let groups = if is_limited(snapshot) { self.groups.of(&actor.user.username).await.ok() } else { None };
        Concern::of(snapshot, groups.as_deref(), live)
    }

    /// Nothing where nobody has samples: the page is there all the same.
    async fn gpus_busy(&self, live: &[Session]) -> BTreeMap<NodeName, f64> {
        let held = live.iter().filter(|session| !session.nodes.is_empty());
        let ids: Vec<SessionId> = held.map(|session| session.id).collect();
        let recent = self.samples.recent(ids, &[Metric::GpuUtil], Back::LAST).await.unwrap_or_default();
        means(recent.into_iter().flat_map(|(_, lines)| lines))
    }
}

/// Whether there is a partition that is not for everybody.
fn is_limited(snapshot: &Snapshot) -> bool {
    snapshot.partitions.iter().any(|partition| !partition.access.groups.is_empty())
}

/// Means of the last values, by node.
fn means(lines: impl Iterator<Item = Recent>) -> BTreeMap<NodeName, f64> {
    let mut sums = BTreeMap::<NodeName, (f64, f64)>::new();
    for line in lines {
        let Some(value) = line.points.last().map(|point| point.max).filter(|value| value.is_finite()) else { continue };
        let Ok(node) = line.node.parse() else { continue };
        let (sum, count) = sums.entry(node).or_default();
        *sum += value.clamp(0.0, 1.0);
        *count += 1.0;
    }
    sums.into_iter().map(|(node, (sum, count))| (node, sum / count)).collect()
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;
    use eirene_core::scheduler::{Job, JobState};
    use eirene_monitoring_store::Point;

    use super::*;
    use crate::cluster::forecast::WORKED_OUT;
    use crate::testing::{self, TestApp};

    /// `long` is for everybody, `main` for `chem` and `vault` for `physics`. Of the GPUs of the one node that everybody sees, jobs in `long` wait for
    /// one, and jobs in `main` for so many.
    fn limited(waited_for: u32) -> Snapshot {
        let waiting = |partition: &str, count| Job {
            partition: partition.into(),
            gpus: vec![("h100".to_owned(), count)],
            ..testing::job(&testing::session("grace"), 1, JobState::Pending)
        };
        let mut cluster = testing::snapshot(vec![waiting("long", 1), waiting("main", waited_for)]);
        let partitions = Arc::make_mut(&mut cluster.partitions);
        let mut vault = partitions[0].clone();
        (vault.name, vault.is_default) = ("vault".parse().unwrap(), false);
        vault.access.groups = vec!["physics".into()];
        partitions.push(vault);
        for partition in partitions {
            if partition.name.as_str() == "main" {
                partition.access.groups = vec!["chem".into()];
            }
        }
        cluster
    }

    #[tokio::test]
    async fn what_is_ahead_is_worked_out_once_a_look_for_all_whom_the_same_concerns() {
        let test = TestApp::new().await;
        test.groups.add("grace", "chem");
        let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
        let alan = test.person("alan", 2003, Role::Researcher).await;
        let waited_for = async |person: &Actor| {
            let seen = test.app.overview.cluster(person).await.unwrap();
            let looked = test.app.overview.look(person, false).await.unwrap().cluster;
            assert_eq!(seen.gpu_types, looked.gpu_types);
            seen.gpu_types.iter().find(|gpus| gpus.gpu_type == "h100").unwrap().waiting
        };
        let mut worked_out = WORKED_OUT.get();
        for others in [4, 7] {
            test.app.cluster.publish(limited(others));
            for _ in 0..3 {
                assert_eq!(waited_for(&ada).await, 1, "what waits in `main` is not in her way");
                assert_eq!(waited_for(&alan).await, 1);
                assert_eq!(waited_for(&grace).await, 1 + others);
            }
            worked_out += 2;
            assert_eq!(WORKED_OUT.get(), worked_out, "once for ada and alan, once for grace");
        }
    }

    #[test]
    fn what_gpus_do_is_a_mean_for_each_node_and_no_wrong_number_spoils_it() {
        let line = |node: &str, device: &str, value: f64| Recent {
            metric: Metric::GpuUtil,
            node: node.into(),
            device: Some(device.into()),
            points: vec![Point { at_ms: 0, min: value, max: value, mean: value, count: 1 }],
        };
        let lines = vec![
            line("c1", "0", 0.5),
            line("c1", "1", 7.0),
            line("c2", "0", f64::NAN),
            line("c3", "0", -1.0),
            line("<b>", "0", 0.5),
        ];
        let told = means(lines.into_iter());
        let told: Vec<_> = told.iter().map(|(node, busy)| (node.as_str(), *busy)).collect();
        assert_eq!(told, [("c1", 0.75), ("c3", 0.0)]);
    }
}
