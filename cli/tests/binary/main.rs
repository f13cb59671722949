//! The program itself, run against a small portal of these tests' own.

mod errors;
mod login;
mod portal;
mod runs;
mod sessions;
mod storage;
mod uploads;
mod waiting;
