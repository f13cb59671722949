//! Detection, as its users see it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod detect;
mod variables;
