#![doc = include_str!("../README.md")]

#[macro_use]
mod macros;

mod adopted_jobs;
mod alerts;
mod app_access;
mod audit;
mod backup;
mod credentials;
mod db;
mod dialect;
mod error;
mod events;
mod expiry;
mod images;
mod job_usage;
mod logins;
mod node_confinement;
mod node_history;
mod old_files;
mod operations;
mod owner_limits;
mod row;
mod session_row;
mod sessions;
mod space_policy;
mod space_usage;
mod spaces;
mod storage_history;
mod tokens;
mod uploads;
mod users;

#[cfg(test)]
mod tests;

pub use adopted_jobs::AdoptedJob;
pub use app_access::{AppLogin, NewAppLogin};
pub use backup::BackupError;
pub use credentials::AgentCredentials;
pub use db::{Db, Limits};
pub use error::DbError;
pub use events::Event;
pub use logins::Counting;
pub use sessions::{Inserted, Start, StateFilter};
pub use storage_history::StorageLook;
