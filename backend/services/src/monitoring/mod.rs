//! How eirened itself is seen from outside.
//!
//! [`metrics`] is what it counts, [`exposition`] how samples of sessions are shown to Prometheus; where they are read from is `eirene_gateway::health`'s.

pub mod exposition;
pub mod metrics;
