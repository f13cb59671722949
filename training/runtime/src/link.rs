//! One rank's connection to another in one lane of a group: messages in order, cut as suits what carries them.

#[cfg(test)]
mod fuzz;
mod mpi;
mod sealed;
mod stream;

use std::sync::Arc;

pub(crate) use mpi::Post;
pub(crate) use sealed::Sealed;
pub(crate) use stream::Stream;

use crate::error::Error;
use crate::extent::Extents;
use crate::memory::bell::Bell;
use crate::memory::lane;
use crate::memory::segment::Segment;
use crate::memory::stores::Stores;
use crate::message::Head;

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// What it says of itself.
    pub(crate) head: Head,
    /// Its content.
    pub(crate) what: Extents,
    /// Bytes that have left.
    pub(crate) sent: usize,
    /// The head has left.
    pub(crate) begun: bool,
}

impl Outgoing {
    /// A message of which nothing has left.
    pub(crate) fn new(head: Head, what: Extents) -> Self {
        Self { head: Head { bytes: what.bytes() as u64, ..head }, what, sent: 0, begun: false }
    }

    fn is_done(&self) -> bool {
        self.begun && self.sent == self.what.bytes()
    }
}

/// Where the bell of a rank of this node is.
#[derive(Clone)]
pub(crate) struct BellAt {
    segment: Arc<Segment>,
    offset: usize,
}

impl BellAt {
    /// At an offset of a segment.
    pub(crate) fn new(segment: Arc<Segment>, offset: usize) -> Self {
        Self { segment, offset }
    }

    /// The bell.
    #[expect(unsafe_code, reason = "a bell is two atomics")]
    pub(crate) fn bell(&self) -> &Bell {
        // SAFETY: atomics only.
        unsafe { self.segment.at(self.offset) }
    }
}

/// A link to a rank.
pub(crate) enum Link {
    /// Through shared memory.
    Memory(Memory),
    /// Over TCP.
    Stream(Stream),
    /// Over TCP, where others may be on the wire.
    Sealed(Box<Sealed>),
    /// Over MPI.
    Mpi(Box<Post>),
}

/// Through shared memory.
pub(crate) struct Memory {
    sender: lane::Sender,
    receiver: lane::Receiver,
    stores: Stores,
    bell: BellAt,
    _segment: Arc<Segment>,
}

impl Memory {
    /// Of two rings in a segment, one for each direction, and the other rank's bell.
    pub(crate) fn new(segment: Arc<Segment>, out: usize, into: usize, shape: lane::Shape, bell: BellAt) -> Self {
        Self {
            sender: lane::Sender::new(&segment, out, shape),
            receiver: lane::Receiver::new(&segment, into, shape),
            stores: Stores::default(),
            bell,
            _segment: segment,
        }
    }
}

impl Link {
    /// Sends what can be sent now; true once all has left the caller's memory.
    #[expect(unsafe_code, reason = "copies out of the caller's memory")]
    pub(crate) fn push(&mut self, message: &mut Outgoing) -> Result<bool, Error> {
        match self {
            Self::Stream(stream) => stream.push(message),
            Self::Sealed(sealed) => sealed.push(message),
            Self::Mpi(post) => post.push(message),
            Self::Memory(memory) => {
                let mut rang = false;
                while !message.is_done() && memory.sender.has_room() {
                    let capacity = memory.sender.capacity();
                    let Outgoing { what, sent, begun, head } = message;
                    let stores = &mut memory.stores;
                    memory.sender.put(head, |slot| {
                        let mut filled = 0;
                        while filled < capacity && *sent < what.bytes() {
                            let run = what.at(*sent);
                            let bytes = run.bytes.min(capacity - filled);
                            // SAFETY: the caller's memory stays while its message is on its way; the slot has room for `capacity` bytes.
                            unsafe { stores.copy(slot.add(filled), run.address, bytes) };
                            filled += bytes;
                            *sent += bytes;
                        }
                        *begun = true;
                        filled
                    });
                    rang = true;
                }
                if rang {
                    memory.bell.bell().ring();
                }
                Ok(message.is_done())
            }
        }
    }

    /// Makes room for what comes, where the transport has none of its own. What is wrong with it shows when it is wanted.
    pub(crate) fn absorb(&mut self) {
        if let Self::Mpi(post) = self {
            let _ = post.head();
        }
    }

    /// The head of the message that comes next, if it is here.
    pub(crate) fn next(&mut self) -> Result<Option<Head>, Error> {
        match self {
            Self::Stream(stream) => stream.head(),
            Self::Sealed(sealed) => sealed.head(),
            Self::Mpi(post) => post.head(),
            Self::Memory(memory) => Ok(memory.receiver.peek().map(|(head, _)| head)),
        }
    }

    /// The head of the message that comes next, and the bytes of it that are here, which may be none yet. They begin at an address that
    /// suits elements of any type.
    pub(crate) fn peek(&mut self) -> Result<Option<(Head, &[u8])>, Error> {
        match self {
            Self::Stream(stream) => stream.peek(),
            Self::Sealed(sealed) => sealed.peek(),
            Self::Mpi(post) => post.peek(),
            Self::Memory(memory) => Ok(memory.receiver.peek()),
        }
    }

    /// Takes bytes that were seen, whole elements only; of a message without content, nothing.
    pub(crate) fn take(&mut self, bytes: usize) {
        match self {
            Self::Stream(stream) => stream.take(bytes),
            Self::Sealed(sealed) => sealed.take(bytes),
            Self::Mpi(post) => post.take(bytes),
            Self::Memory(memory) => {
                if memory.receiver.take(bytes) {
                    memory.bell.bell().ring();
                }
            }
        }
    }

    /// Stores bytes of the next message where they belong, without a stop where that is possible. Says how many.
    #[expect(unsafe_code, reason = "copies into the caller's memory")]
    pub(crate) fn store(&mut self, address: *mut u8, room: usize) -> Result<usize, Error> {
        match self {
            Self::Stream(stream) => return stream.store(address, room),
            Self::Sealed(sealed) => return sealed.store(address, room),
            Self::Mpi(post) => return post.store(address, room),
            Self::Memory(_) => {}
        }
        let bytes = match self.peek()? {
            None => return Ok(0),
            Some((_, content)) => {
                let bytes = content.len().min(room);
                // SAFETY: the caller's memory has room for `room` bytes and nobody else uses it.
                unsafe { address.copy_from_nonoverlapping(content.as_ptr(), bytes) };
                bytes
            }
        };
        self.take(bytes);
        Ok(bytes)
    }
}
