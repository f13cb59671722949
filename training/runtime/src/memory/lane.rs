//! A one-way ring of slots from one rank to another. One side only fills, the other only empties; no lock, no read-modify-write.
//!
//! A message is cut into **pieces** of at most one slot. A slot carries the number of its piece, which is written last and says that the rest
//! is there: the receiver spins on the very cache line that brings head and first bytes. The receiver's count of what it has emptied is all
//! that flows back.

use super::segment::{LINE, Segment};
use super::sync::{AtomicU64, Ordering, Shared};
use crate::message::Head;

/// Slots of a ring: enough that the two sides need not meet for each piece.
const SLOTS: u64 = if cfg!(loom) { 2 } else { 8 };
/// Bytes before a slot's content: a cache line, of which the content's first bytes are the next.
const SLOT_HEAD: usize = size_of::<Slot>();

/// The head of a slot.
#[repr(C, align(64))]
struct Slot {
    /// Number of the piece in it, from 1; 0 before the first.
    piece: AtomicU64,
    /// What is said of the piece. The sender's, until `piece` says otherwise; then the receiver's, until it has counted it as emptied.
    piece_head: Shared<PieceHead>,
}

/// What is said of a piece.
#[repr(C)]
#[derive(Clone, Copy)]
struct PieceHead {
    /// Of the message that it belongs to.
    message: Head,
    /// Bytes in it.
    bytes: u32,
}

const _: () = assert!(cfg!(loom) || SLOT_HEAD == 64);

/// How large rings are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of content a slot takes; a multiple of [`LINE`].
    pub(crate) slot: usize,
}

impl Shape {
    /// For rings to and from `peers` others: a few get slots of the size that was measured to be best, many share what that costs.
    pub(crate) fn for_peers(peers: usize) -> Self {
        /// What all rings into one rank may take once they have been used.
        const BUDGET: usize = 16 << 20;
        let slot = BUDGET / peers.max(1) / SLOTS as usize;
        Self { slot: (slot.clamp(8 << 10, 256 << 10) / LINE) * LINE }
    }

    /// Bytes that one ring takes.
    pub(crate) fn ring(self) -> usize {
        LINE + SLOTS as usize * self.stride()
    }

    fn stride(self) -> usize {
        (SLOT_HEAD + self.slot).next_multiple_of(LINE)
    }
}

/// Where a ring lies.
#[derive(Clone, Copy)]
struct Ring {
    base: *mut u8,
    shape: Shape,
}

// SAFETY: an address into a segment which both ends keep alive; see `Sender` and `Receiver` for who may do what.
unsafe impl Send for Ring {}

impl Ring {
    fn at(segment: &Segment, offset: usize, shape: Shape) -> Self {
        assert!(
            offset.is_multiple_of(LINE) && offset + shape.ring() <= segment.bytes(),
            "a ring lies within its segment"
        );
        // SAFETY: within the segment, as just seen.
        Self { base: unsafe { segment.address().add(offset) }, shape }
    }

    /// How many pieces have been emptied.
    fn emptied(&self) -> &AtomicU64 {
        // SAFETY: the first line of a ring is this number, zero in a new segment.
        unsafe { &*self.base.cast() }
    }

    /// The slot of a piece.
    fn slot(&self, piece: u64) -> *mut Slot {
        let index = (piece % SLOTS) as usize;
        // SAFETY: within the ring.
        unsafe { self.base.add(LINE + index * self.shape.stride()).cast() }
    }

    fn content(&self, piece: u64) -> *mut u8 {
        // SAFETY: within the ring.
        unsafe { self.slot(piece).cast::<u8>().add(SLOT_HEAD) }
    }
}

/// The end that fills. There is one for each ring.
pub(crate) struct Sender {
    ring: Ring,
    /// Pieces filled.
    filled: u64,
    /// What the other side had emptied when we last looked.
    emptied: u64,
}

/// The end that empties. There is one for each ring.
pub(crate) struct Receiver {
    ring: Ring,
    /// Pieces emptied.
    emptied: u64,
    /// Bytes of the current piece that were taken already.
    taken: usize,
}

impl Sender {
    /// The end that fills the ring at an offset, which must be new and have no other such end.
    pub(crate) fn new(segment: &Segment, offset: usize, shape: Shape) -> Self {
        Self { ring: Ring::at(segment, offset, shape), filled: 0, emptied: 0 }
    }

    /// Bytes a piece may have.
    pub(crate) fn capacity(&self) -> usize {
        self.ring.shape.slot
    }

    /// Whether a piece can be put now.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.filled - self.emptied < SLOTS {
            return true;
        }
        // What the receiver read from the slot, it read before it said so.
        self.emptied = self.ring.emptied().load(Ordering::Acquire);
        self.filled - self.emptied < SLOTS
    }

    /// Puts a piece. `fill` gets the slot's memory, writes at most [`Self::capacity`] bytes and says how many. False if there is no room.
    pub(crate) fn put(&mut self, head: &Head, fill: impl FnOnce(*mut u8) -> usize) -> bool {
        if !self.has_room() {
            return false;
        }
        let slot = self.ring.slot(self.filled);
        let bytes = fill(self.ring.content(self.filled));
        assert!(bytes <= self.capacity(), "a piece fits its slot");
        // SAFETY: the slot has been emptied, so the receiver does not touch it before `piece` says that it may.
        unsafe {
            (*slot).piece_head.set(PieceHead { message: *head, bytes: bytes as u32 });
            (*slot).piece.store(self.filled + 1, Ordering::Release);
        }
        self.filled += 1;
        true
    }
}

impl Receiver {
    /// The end that empties the ring at an offset, which must be new and have no other such end.
    pub(crate) fn new(segment: &Segment, offset: usize, shape: Shape) -> Self {
        Self { ring: Ring::at(segment, offset, shape), emptied: 0, taken: 0 }
    }

    /// The head of the message that the next piece belongs to, and what is left of the piece.
    pub(crate) fn peek(&self) -> Option<(Head, &[u8])> {
        let slot = self.ring.slot(self.emptied);
        // SAFETY: the number alone may change under us.
        if unsafe { (*slot).piece.load(Ordering::Acquire) } != self.emptied + 1 {
            return None;
        }
        // SAFETY: filled, as just seen, and the sender does not touch it until we have emptied it. The length is checked against the slot's,
        // whatever the other process wrote.
        unsafe {
            let head = (*slot).piece_head.get();
            let bytes = (head.bytes as usize).min(self.ring.shape.slot);
            let content = self.ring.content(self.emptied).add(self.taken);
            Some((head.message, std::slice::from_raw_parts(content, bytes.saturating_sub(self.taken))))
        }
    }

    /// Takes bytes of the current piece; gives the slot back when it is empty and says whether it did.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.peek().map_or(0, |(_, content)| content.len());
        assert!(bytes <= left, "no more is taken than is there");
        self.taken += bytes;
        if bytes < left {
            return false;
        }
        self.taken = 0;
        self.emptied += 1;
        self.ring.emptied().store(self.emptied, Ordering::Release);
        true
    }
}

/// A new ring in memory of this process, for the model checker, whose atomics are not zeros.
#[cfg(all(test, loom))]
pub(super) fn model(shape: Shape) -> (Segment, Sender, Receiver) {
    let segment = Segment::new(c"model", shape.ring()).unwrap();
    let ring = Ring::at(&segment, 0, shape);
    // SAFETY: nobody else has the segment yet.
    unsafe {
        ring.base.cast::<AtomicU64>().write(AtomicU64::new(0));
        for piece in 0..SLOTS {
            let nothing = PieceHead { message: Head::default(), bytes: 0 };
            ring.slot(piece).write(Slot { piece: AtomicU64::new(0), piece_head: Shared::new(nothing) });
        }
    }
    let (sender, receiver) = (Sender::new(&segment, 0, shape), Receiver::new(&segment, 0, shape));
    (segment, sender, receiver)
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::*;

    fn head(bytes: u64) -> Head {
        Head { bytes, ..Head::default() }
    }

    fn ring() -> (Segment, Sender, Receiver) {
        let shape = Shape { slot: 256 };
        let segment = Segment::new(c"test", shape.ring()).unwrap();
        let (sender, receiver) = (Sender::new(&segment, 0, shape), Receiver::new(&segment, 0, shape));
        (segment, sender, receiver)
    }

    fn put(sender: &mut Sender, content: &[u8]) -> bool {
        sender.put(&head(content.len() as u64), |slot| {
            // SAFETY: tests put less than a slot.
            unsafe { slot.copy_from_nonoverlapping(content.as_ptr(), content.len()) };
            content.len()
        })
    }

    #[test]
    fn what_is_put_is_taken_in_order_and_piecemeal() {
        let (_segment, mut sender, mut receiver) = ring();
        assert!(receiver.peek().is_none());
        assert!(put(&mut sender, b"hello") && put(&mut sender, b"") && put(&mut sender, b"world"));
        assert_eq!(receiver.peek().unwrap().1, b"hello");
        assert!(!receiver.take(2));
        assert_eq!(receiver.peek().unwrap().1, b"llo");
        assert!(receiver.take(3));
        assert_eq!(receiver.peek().unwrap(), (head(0), &b""[..]));
        assert!(receiver.take(0));
        assert_eq!(receiver.peek().unwrap(), (head(5), &b"world"[..]));
    }

    #[test]
    fn a_full_ring_takes_no_more_until_one_is_emptied() {
        let (_segment, mut sender, mut receiver) = ring();
        for number in 0..SLOTS {
            assert!(put(&mut sender, &number.to_le_bytes()));
        }
        assert!(!sender.has_room() && !put(&mut sender, b"x"));
        assert!(receiver.take(8));
        assert!(sender.has_room() && put(&mut sender, b"x"));
    }

    #[test]
    fn two_threads_pass_a_million_bytes_through_a_small_ring() {
        let (_segment, mut sender, mut receiver) = ring();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..20_000_u64 {
                    while !put(&mut sender, &vec![number as u8; (number % 200) as usize]) {
                        std::thread::yield_now();
                    }
                }
            });
            for number in 0..20_000_u64 {
                let content = loop {
                    match receiver.peek() {
                        Some((_, content)) => break content.to_vec(),
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(content, vec![number as u8; (number % 200) as usize]);
                receiver.take(content.len());
            }
        });
    }
}
