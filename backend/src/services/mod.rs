//! The rules. Each service authorises first, then decides, changes, and tells; none knows HTTP.
//!
//! What needs time or retries is not done here: a service writes down what is wanted and wakes the [reconciler](crate::reconcilers)
//! concerned.

pub mod access;
pub mod accounts;
pub mod actor;
pub mod alerts;
pub mod audit;
pub(crate) mod authorize;
pub mod cluster;
pub(crate) mod duration;
pub mod efficiency;
pub mod events;
pub mod files;
pub mod health;
pub mod images;
mod kept;
pub mod logins;
pub mod logs;
pub mod nodes;
pub mod nudge;
pub mod old_files;
pub mod operations;
pub mod passwords;
pub mod projects;
pub mod runs;
pub mod samples;
pub mod scans;
pub mod sessions;
pub mod spaces;
pub mod storage;
pub mod tokens;
pub mod upkeep;
pub mod uploads;
pub mod zabbix;

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins, when there is one.
    pub next: Option<String>,
}
