//! Ranks that find each other, prove who they are, hand each other descriptors, and notice when one is gone.
//!
//! [`Mesh::join`] takes a [`Plan`] and gives a [`Mesh`]: a control connection to every other rank, a unix socket inside
//! the node and TCP between nodes, for small messages and descriptors. The runtime builds its shared memory and its data
//! connections with it. What is *in* the messages is the runtime's business; who started the ranks, and where the plan
//! comes from, is the launcher's.
//!
//! # How ranks meet
//! Everybody comes to rank 0, says on which node it is and where it can be called, and gets the table of all. Then each
//! rank calls all lower ones. Rank 0 hears from everybody how that went and says how it ended; so all ranks that came
//! name the same missing, dead or doubled rank. Listeners, sockets, directories and the meeting file are gone before
//! `join` returns; what a killed rank leaves, the others of its node clear away.
//!
//! # What is protected
//! The secret (128 bits) is known to the ranks and to nobody else. Every connection, of whatever kind, is proven both
//! ways before a byte from it is interpreted: the caller sends 96 bytes of fixed form, and they are read only if
//! their HMAC is right. The module `proof` says how. So without the secret
//! - nobody joins the world, claims a rank, or learns from a listener more than that it listens;
//! - nobody replays, reflects or diverts a proof: both random values are fresh, and direction, world, ranks and purpose
//!   are in it;
//! - nobody reads a control message, or alters, adds, drops, repeats or reorders one unnoticed: each is sealed
//!   (AES-256-GCM) under the connection's own key, by the number that both ends count. What was not sealed so ends the
//!   connection and is [`Trouble::Corrupt`];
//! - the connections that [`Mesh::connect`] gives come with keys of their own for the same ([`Sealing`], [`Opening`]),
//!   unless both ranks have asked for one in the clear, which is in the proof: nobody else can make them do without;
//! - nobody keeps true ranks out by connecting in great numbers, staying silent or guessing: who has not proven itself
//!   has three seconds, there are at most 256 of them, and the oldest goes when one more comes.
//!
//! Inside a node the sockets also lie in a directory that only the user can enter, and the system is asked whether the
//! other end runs as the same user.
//!
//! # What is not protected
//! - A connection in the clear is proven when it begins and not checked after that: who can read the wire reads the data,
//!   and who can change packets on their way can change it.
//! - Keys follow from the world's secret and from what the ends said to each other in the clear. Who records the wire and
//!   learns the secret later can read what was recorded: there is no forward secrecy. A secret is one run's, and is kept
//!   in memory and in files that go with the run.
//! - Who is on the wire sees who talks to whom, when and how much.
//! - The same user on the same machine can read the ranks' memory, and so the secret. A rank that has the secret is
//!   trusted to speak for itself only in its own name, but it can end the work for all.
//! - Who can change packets can always break connections.

mod call;
mod channel;
mod cipher;
mod data;
mod door;
mod error;
mod floor;
mod fork;
mod inbox;
mod join;
mod judge;
mod link;
mod member;
mod mesh;
mod notice;
mod place;
mod plan;
mod proof;
mod room;
mod seal;
mod secret;
mod socket;
mod watch;
mod wire;

pub use cipher::{Altered, Opening, Sealing, TAG};
pub use data::{Connection, Secrecy};
pub use error::{Error, Trouble};
pub use fork::KeepFromForks;
pub use mesh::Mesh;
pub use place::{addresses, listed_interfaces, reachable};
pub use plan::{Meeting, Phase, Plan, Progress};
pub use secret::Secret;
