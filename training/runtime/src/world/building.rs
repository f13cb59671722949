//! How a group comes to its lanes: memory with those of this node, a proven connection with every other.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use eirene_train_mesh::{Connection, Mesh};

use super::{FIRST_GROUP_TOPIC, Inner};
use crate::choice::Topology;
use crate::error::Error;
use crate::group::Foundation;
use crate::link::{Link, Memory, Post, Sealed, Stream};
use crate::memory::bell::now;
use crate::memory::lane::Shape;
use crate::memory::meeting::Meeting;
use crate::memory::segment::{LINE, Segment};
use crate::mpi::Room;

/// New memory that some ranks of a node share; the first of them makes it.
pub(super) fn share(
    mesh: &Mesh,
    ranks: &[u32],
    topic: u64,
    name: &std::ffi::CStr,
    bytes: usize,
    deadline: Instant,
) -> Result<Segment, Error> {
    let first = ranks.first().copied().unwrap_or(mesh.rank());
    if mesh.rank() == first {
        let segment = Segment::new(name, bytes)?;
        for rank in &ranks[1..] {
            mesh.send_unless(*rank, topic, &(bytes as u64).to_le_bytes(), segment.descriptor().as_slice(), || {
                now() >= deadline
            })?;
        }
        return Ok(segment);
    }
    let (_, mut descriptors) = mesh.receive(first, topic, deadline)?;
    let descriptor = descriptors.pop().ok_or_else(|| Error::Meeting(format!("rank {first} sent no memory")))?;
    Segment::theirs(&descriptor, bytes)
}

/// The lane of transfers; the other one is the collectives'.
const TRANSFERS: usize = 1;

impl Inner {
    /// Builds what a group stands on.
    pub(super) fn build(&self, ranks: &[u32], me: usize, key: &str, deadline: Instant) -> Result<Foundation, Error> {
        let topic = self.topic(ranks, key);
        let node = |rank: u32| self.mesh.node_of(rank);
        let mine = node(ranks[me]);
        // Positions in the group of those who share this node's memory.
        let near: Vec<usize> = (0..ranks.len()).filter(|position| node(ranks[*position]) == mine).collect();
        let all_near = near.len() == ranks.len();
        let shape = Shape::for_peers(near.len() - 1);
        let meeting_bytes = Meeting::bytes(near.len()).next_multiple_of(LINE);
        // A ring for each lane and each ordered pair.
        let ring = |lane: usize, from: usize, to: usize| {
            meeting_bytes + ((lane * near.len() + from) * near.len() + to) * shape.ring()
        };
        let bytes = ring(2, 0, 0);
        let mut sorted: Vec<u32> = near.iter().map(|position| ranks[*position]).collect();
        sorted.sort_unstable();
        let segment = Arc::new(share(&self.mesh, &sorted, topic, c"eirene-train-group", bytes, deadline)?);
        let seat = near.iter().position(|position| *position == me).unwrap_or(0);
        let mut lanes: [Vec<Option<Link>>; 2] = std::array::from_fn(|_| (0..ranks.len()).map(|_| None).collect());
        for (other, position) in near.iter().enumerate().filter(|(other, _)| *other != seat) {
            let bell = self.bell_of(ranks[*position]);
            for (lane, links) in lanes.iter_mut().enumerate() {
                let (out, into) = (ring(lane, seat, other), ring(lane, other, seat));
                let memory = Memory::new(Arc::clone(&segment), out, into, shape, bell.clone());
                links[*position] = Some(Link::Memory(memory));
            }
        }
        let room = self.room(ranks, topic, deadline)?;
        let by_mpi = room.is_some() && self.policy.messages().is_some();
        // Both sides of a connection come to it in the same order as everybody does: by the pair's lower rank, then the higher.
        let mut far: Vec<usize> = (0..ranks.len()).filter(|position| node(ranks[*position]) != mine).collect();
        far.sort_unstable_by_key(|position| {
            let other = ranks[*position];
            (other.min(ranks[me]), other.max(ranks[me]))
        });
        for position in far {
            self.is_far.store(true, Ordering::Relaxed);
            for (lane, links) in lanes.iter_mut().enumerate() {
                let rank = ranks[position];
                if by_mpi && lane == TRANSFERS {
                    continue;
                }
                if let Some(room) = &room {
                    let post = Post::new(Arc::clone(room), rank, position as u32, lane);
                    links[position] = Some(Link::Mpi(Box::new(post)));
                    continue;
                }
                let secrecy = self.policy.encryption().secrecy();
                let Connection { stream, ends } = self.mesh.connect(rank, topic + lane as u64, secrecy, deadline)?;
                links[position] = Some(match ends {
                    Some(ends) => Link::Sealed(Box::new(Sealed::new(rank, stream, ends)?)),
                    None => Link::Stream(Stream::new(rank, stream)?),
                });
            }
        }
        let meeting = all_near.then(|| Meeting::new(Arc::clone(&segment), 0, seat, near.len()));
        let nodes: Vec<u32> = ranks.iter().map(|rank| node(*rank)).collect();
        let [collectives, transfers] = lanes;
        let (ranks, topology) = (ranks.to_vec(), Topology::new(&nodes));
        Ok(Foundation { topic, ranks, me: me as u32, topology, collectives, transfers, meeting, room, by_mpi })
    }

    /// A communicator for a group, if the world uses MPI. MPI waits for all ranks of a group without an end, so they meet first.
    fn room(&self, ranks: &[u32], topic: u64, deadline: Instant) -> Result<Option<Arc<Room>>, Error> {
        let Some(mpi) = self.mpi.as_ref().filter(|_| ranks.len() > 1) else { return Ok(None) };
        let _turn = mpi.build();
        let others = || ranks.iter().filter(|rank| **rank != self.mesh.rank());
        for rank in others() {
            self.mesh.send(*rank, topic | 1, &[], &[])?;
        }
        for rank in others() {
            self.mesh.receive(*rank, topic | 1, deadline)?;
        }
        // MPI's messages ring no bell.
        self.is_far.store(true, Ordering::Relaxed);
        mpi.room(&self.mesh, ranks, topic, deadline).map(Some)
    }

    /// A number for a group's messages, the same on all its members and, as good as certainly, no other group's. Even.
    fn topic(&self, ranks: &[u32], key: &str) -> u64 {
        let name = format!("{key} {ranks:?}");
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let times = built.entry(name.clone()).or_default();
        *times += 1;
        // FNV-1a.
        let hash = format!("{name} {times}")
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (hash | FIRST_GROUP_TOPIC) & !1
    }
}
