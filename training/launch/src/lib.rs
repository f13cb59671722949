//! Launching.
