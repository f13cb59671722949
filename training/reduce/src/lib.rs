//! Element types and reductions.
