//! The mesh from outside: ranks as threads and as processes, and strangers among them.

mod data;
mod process;
mod processes;
mod strangers;
mod together;
mod world;
