//! How eirened itself is seen from outside.
//!
//! [`metrics`] is what it counts; where they are read from is `http::health`'s.

pub(crate) mod metrics;
