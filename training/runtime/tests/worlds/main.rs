//! Whole worlds: ranks as threads and as processes, on one pretended node or several.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::float_cmp, reason = "sums of small whole numbers are exact in every order")]

mod algorithms;
mod collectives;
#[path = "../../../deep.rs"]
mod deep;
mod failures;
mod idle;
mod ranks;
mod secrecy;
mod shapes;
mod tuning;
