//! The portal's services and what they stand on: the configuration, errors, and the ports to scheduler, launcher, storage and agents.
//!
//! Each service authorises first, then decides, changes, and tells; none knows HTTP. What needs time or retries is not done here: a service
//! writes down what is wanted and wakes the reconciler concerned.

pub mod access;
pub mod accounts;
pub mod actor;
pub mod agents;
pub mod alerts;
pub mod app;
pub mod audit;
pub(crate) mod authorize;
pub mod beegfs_tool;
pub mod cause;
pub mod cluster;
pub mod config;
pub mod duration;
pub mod efficiency;
pub mod error;
pub mod events;
pub mod file_processes;
pub mod files;
pub mod health;
pub mod images;
mod kept;
pub mod launcher_client;
pub mod launcher_groups;
pub mod logins;
pub mod logs;
pub mod monitoring;
pub mod nodes;
pub mod nudge;
pub mod old_files;
pub mod operations;
pub mod outward;
pub mod passwords;
pub mod places;
pub mod probe;
pub mod projects;
pub mod runs;
pub mod samples;
pub mod scans;
pub mod sessions;
mod shared;
pub mod shared_storage;
pub mod spaces;
pub mod storage;
#[cfg(any(test, feature = "testing"))]
#[expect(missing_docs, clippy::unwrap_used, reason = "arrangements of tests")]
pub mod testing;
pub mod tokens;
pub mod traces;
pub mod upkeep;
pub mod uploads;
pub mod workers;
pub mod zabbix;

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins, when there is one.
    pub next: Option<String>,
}
