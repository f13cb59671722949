//! One contract for both implementations of the scheduler port, against the real demo cluster.
//!
//! slurmrestd is tried with its newest data parser throughout, and with the older ones where their answers differ. Nothing here
//! waits for a fixed time: conditions are asked for until they hold.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod jobs;
mod refusals;
mod unreachable;

/// Makes one test for each implementation out of a function that takes the cluster and a scheduler.
macro_rules! contract {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        mod restd {
            $(#[tokio::test]
            async fn $name() {
                let Some(cluster) = crate::cluster::Cluster::find().await else { return };
                super::$name(&cluster, &cluster.restd(u32::MAX)).await;
            })*
        }
        mod restd_v0_0_41 {
            $(#[tokio::test]
            async fn $name() {
                let Some(cluster) = crate::cluster::Cluster::find().await else { return };
                super::$name(&cluster, &cluster.restd(41)).await;
            })*
        }
        mod restd_v0_0_40 {
            $(#[tokio::test]
            async fn $name() {
                let Some(cluster) = crate::cluster::Cluster::find().await else { return };
                super::$name(&cluster, &cluster.restd(40)).await;
            })*
        }
        mod cli {
            $(#[tokio::test]
            async fn $name() {
                let Some(cluster) = crate::cluster::Cluster::find().await else { return };
                super::$name(&cluster, &cluster.cli()).await;
            })*
        }
    };
}
pub(crate) use contract;
