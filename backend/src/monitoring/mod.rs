//! How eirened itself is seen from outside.
//!
//! [`metrics`] is what it counts, [`exposition`] how samples of sessions are shown to Prometheus; where they are read from is `http::health`'s.

pub(crate) mod exposition;
pub(crate) mod metrics;
