//! Worlds of ranks, groups of them, and the engine that carries out verified schedules over whatever joins the ranks.
//!
//! A [`World`] is all ranks that were started together. Ranks of one node share memory ([`memory`]); ranks of different nodes are joined by
//! connections that the mesh has proven. A [`Group`] is some of the ranks, with lanes of its own for collectives and for transfers, so that no
//! two groups ever wait for each other's messages. What a group is asked for is checked ([`call`]), an algorithm is chosen for it ([`choice`], [`tuning`]),
//! its schedule is worked out and proven once ([`collectives`]), and then executed step by step ([`task`]) by whoever has time: the caller itself where nothing
//! else is under way, whoever waits for something, or a thread of the world's own.
//!
//! A world that has failed has failed for good, on all its ranks, with the same reason: half a collective cannot be taken back.
//!
//! Left to others: how ranks find and trust each other (`eirene-train-mesh`), who started them (`eirene-train-launch`), what is a right
//! schedule (`eirene-train-schedule`), arithmetic (`eirene-train-reduce`).

mod arena;
mod call;
mod choice;
mod collectives;
mod error;
mod extent;
mod forks;
mod group;
mod interrupted;
mod link;
mod mail;
mod memory;
mod message;
mod mpi;
mod record;
mod task;
mod transfers;
mod tuning;
mod work;
mod world;

pub use arena::Region;
pub use call::{Call, Part};
pub use eirene_train_reduce::{DType, ReduceOp};
pub use eirene_train_schedule::Collective;
pub use error::Error;
pub use group::Group;
pub use interrupted::Interrupted;
pub use tuning::Tuned;
pub use tuning::policy::Tuning;
pub use work::{Manner, Work};
pub use world::{Encryption, Options, World};
