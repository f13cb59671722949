//! Whole worlds: ranks as threads and as processes, on one pretended node or several.

mod collectives;
mod failures;
mod ranks;
