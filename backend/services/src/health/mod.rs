//! How everything is doing that the portal depends on, and how the reconcilers are doing.

pub mod problem;
pub mod readiness;
pub mod status;
