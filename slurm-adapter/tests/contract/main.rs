//! One contract for both implementations of the scheduler port, against the real demo cluster.
//!
//! slurmrestd is tried with each data parser that it offers: SLURM 24.11 has v0.0.40 to v0.0.42, 26.05 has v0.0.42 to v0.0.45. Nothing here
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
        crate::with_older_parser!(restd_v0_0_44 44 $($name)*);
        crate::with_older_parser!(restd_v0_0_43 43 $($name)*);
        crate::with_older_parser!(restd_v0_0_42 42 $($name)*);
        crate::with_older_parser!(restd_v0_0_41 41 $($name)*);
        crate::with_older_parser!(restd_v0_0_40 40 $($name)*);
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

/// The tests with a data parser that is not the newest. Where this SLURM has no such older one, there is nothing to try.
macro_rules! with_older_parser {
    ($module:ident $parser:literal $($name:ident)*) => {
        mod $module {
            $(#[tokio::test]
            async fn $name() {
                let Some(cluster) = crate::cluster::Cluster::find().await else { return };
                if cluster.has_older_parser($parser).await {
                    super::$name(&cluster, &cluster.restd($parser)).await;
                }
            })*
        }
    };
}
pub(crate) use with_older_parser;
