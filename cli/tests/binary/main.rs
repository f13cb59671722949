//! The program itself, run against a small portal of these tests' own.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod carried;
mod copies;
mod efficiency;
mod errors;
mod files;
mod into_itself;
mod login;
mod nodes;
mod old_files;
mod portal;
mod runs;
mod sessions;
mod silences;
mod space;
mod storage;
mod uploads;
mod waiting;
