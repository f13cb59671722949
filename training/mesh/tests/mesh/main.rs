//! The mesh from outside: ranks as threads and as processes, and strangers among them.

mod process;
mod processes;
mod together;
mod world;
