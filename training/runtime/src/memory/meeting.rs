//! Where the ranks of a group that share memory meet: a fence, and what each says of its call while all are there.

use std::sync::Arc;

use super::segment::{LINE, Segment};
use super::sync::{AtomicU64, Ordering, Shared, fence};
use crate::message::{HEAD, Head};

/// Where a buffer lies in the shared memory of its rank.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the arena region, from 1; 0 if it is in none.
    pub(crate) region: u64,
    /// Bytes from the region's beginning.
    pub(crate) offset: u64,
}

/// What a rank says of the call it has come with.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Saying {
    /// The call.
    pub(crate) head: Head,
    /// Stands for all calls before it.
    pub(crate) history: u64,
    /// Where its input lies.
    pub(crate) input: Place,
    /// Where its output lies.
    pub(crate) output: Place,
}

/// How many calls back a rank can be asked for.
const CALLS: u64 = if cfg!(loom) { 2 } else { 8 };

/// What a rank writes and all others read.
#[repr(C, align(128))]
struct Seat {
    /// How often it has come.
    arrived: AtomicU64,
    /// The last call it has begun.
    begun: AtomicU64,
    /// What its last calls were, by their numbers.
    calls: [[AtomicU64; HEAD / 8]; CALLS as usize],
    /// What it says, at even and odd arrivals: a rank that is one ahead must not overwrite what others still read.
    sayings: [Shared<Saying>; 2],
}

/// One rank's view of the meeting place.
pub(crate) struct Meeting {
    segment: Arc<Segment>,
    offset: usize,
    me: usize,
    size: usize,
    arrivals: u64,
}

impl Meeting {
    /// Bytes that the meeting place of a group takes.
    pub(crate) fn bytes(size: usize) -> usize {
        size_of::<Seat>() * size
    }

    /// The place at an offset of a segment that was new.
    pub(crate) fn new(segment: Arc<Segment>, offset: usize, me: usize, size: usize) -> Self {
        assert!(
            offset.is_multiple_of(LINE) && offset + Self::bytes(size) <= segment.bytes() && me < size,
            "within its segment"
        );
        Self { segment, offset, me, size, arrivals: 0 }
    }

    fn seat(&self, rank: usize) -> *mut Seat {
        assert!(rank < self.size, "a rank of the group");
        // SAFETY: within the segment, as `new` has seen.
        unsafe { self.segment.address().add(self.offset + rank * size_of::<Seat>()).cast() }
    }

    fn arrived(&self, rank: usize) -> &AtomicU64 {
        // SAFETY: an atomic in memory that lives as long as we do.
        unsafe { &(*self.seat(rank)).arrived }
    }

    fn begun(&self, rank: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &(*self.seat(rank)).begun }
    }

    fn call(&self, rank: usize, number: u64) -> &[AtomicU64; HEAD / 8] {
        // SAFETY: as above.
        unsafe { &(*self.seat(rank)).calls[(number % CALLS) as usize] }
    }

    /// How often this rank has come.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Notes that a call has begun, for those who ask who is missing, and who has called something else.
    pub(crate) fn begin(&self, head: &Head) {
        // Whoever sees a word of this call sees that the one before it had begun. After Boehm, "Can seqlocks get along with programming
        // language memory models?" (MSPC 2012), where a counter tells readers that what they have read was being overwritten.
        fence(Ordering::Release);
        for (place, word) in self.call(self.me, head.call).iter().zip(head.to_words()) {
            place.store(word, Ordering::Relaxed);
        }
        self.begun(self.me).store(head.call, Ordering::Release);
    }

    /// A rank whose call was another one than this rank's of the same number, as far as both are known: of the first rank whose latest
    /// call up to this number differs, the oldest that does. This rank's, the rank, and its.
    pub(crate) fn disagreement(&self, number: u64) -> Option<(Head, usize, Head)> {
        let differ = |rank: usize, number: u64| {
            let (mine, theirs) = (self.said(self.me, number)?, self.said(rank, number)?);
            (mine != theirs).then_some((mine, rank, theirs))
        };
        (0..self.size).filter(|rank| *rank != self.me).find_map(|rank| {
            // Heads have something of what was called before: who has the same now mostly had it then.
            let last = self.begun(rank).load(Ordering::Acquire).min(number);
            let latest = differ(rank, last)?;
            (last.saturating_sub(CALLS - 2)..last).find_map(|number| differ(rank, number)).or(Some(latest))
        })
    }

    /// A call of a rank's, if it has begun it and it is not too long ago.
    fn said(&self, rank: usize, number: u64) -> Option<Head> {
        if self.begun(rank).load(Ordering::Acquire) < number {
            return None;
        }
        let head = Head::from_words(std::array::from_fn(|word| self.call(rank, number)[word].load(Ordering::Relaxed)));
        // Pairs with the one in `begin`. A call is overwritten once the one before the overwriting one has begun.
        fence(Ordering::Acquire);
        (head.call == number && self.begun(rank).load(Ordering::Relaxed) < number + CALLS - 1).then_some(head)
    }

    /// The ranks that have not begun a call.
    pub(crate) fn not_begun(&self, call: u64) -> Vec<usize> {
        (0..self.size).filter(|rank| self.begun(*rank).load(Ordering::Relaxed) < call).collect()
    }

    /// Comes to the fence. What was written before is seen by all who go on behind it.
    pub(crate) fn arrive(&mut self, saying: Option<&Saying>) {
        self.arrivals += 1;
        if let Some(saying) = saying {
            // SAFETY: others read the saying of this parity only while everybody is at an arrival of the same parity; that all have left the
            // last such one is known, because all came to the one between.
            unsafe { (*self.seat(self.me)).sayings[(self.arrivals % 2) as usize].set(*saying) };
        }
        self.arrived(self.me).store(self.arrivals, Ordering::Release);
    }

    /// Whether everybody has come.
    pub(crate) fn complete(&self) -> bool {
        (0..self.size).all(|rank| self.arrived(rank).load(Ordering::Acquire) >= self.arrivals)
    }

    /// Who has not come.
    pub(crate) fn not_arrived(&self) -> Vec<u32> {
        let absent = |rank: &u32| self.arrived(*rank as usize).load(Ordering::Acquire) < self.arrivals;
        (0..self.size as u32).filter(absent).collect()
    }

    /// What a rank has said at this arrival. Only once it is complete, and before the next.
    pub(crate) fn saying(&self, rank: usize) -> Saying {
        // SAFETY: see `arrive`.
        unsafe { (*self.seat(rank)).sayings[(self.arrivals % 2) as usize].get() }
    }
}

/// A new meeting place in memory of this process, for the model checker, whose atomics are not zeros.
#[cfg(all(test, loom))]
pub(super) fn model(size: usize) -> Vec<Meeting> {
    let segment = Arc::new(Segment::new(c"model", Meeting::bytes(size)).unwrap());
    let meetings: Vec<Meeting> = (0..size).map(|me| Meeting::new(Arc::clone(&segment), 0, me, size)).collect();
    for rank in 0..size {
        let saying = || Shared::new(Saying::default());
        let calls = || std::array::from_fn(|_| AtomicU64::new(0));
        let calls = std::array::from_fn(|_| calls());
        let seat = Seat { arrived: AtomicU64::new(0), begun: AtomicU64::new(0), calls, sayings: [saying(), saying()] };
        // SAFETY: nobody else has the segment yet.
        unsafe { meetings[0].seat(rank).write(seat) };
    }
    meetings
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn everybody_sees_what_everybody_says_round_after_round() {
        const SIZE: usize = 3;
        let segment = Arc::new(Segment::new(c"test", Meeting::bytes(SIZE)).unwrap());
        std::thread::scope(|scope| {
            for me in 0..SIZE {
                let mut meeting = Meeting::new(Arc::clone(&segment), 0, me, SIZE);
                scope.spawn(move || {
                    for round in 0..2000_u64 {
                        let says = |rank: usize| Saying {
                            head: Head { call: round, bytes: rank as u64, ..Head::default() },
                            ..Saying::default()
                        };
                        // Some rounds are plain fences, so that parities change.
                        meeting.arrive((round % 3 != 0).then(|| says(me)).as_ref());
                        while !meeting.complete() {
                            std::thread::yield_now();
                        }
                        if round % 3 != 0 {
                            assert!((0..SIZE).all(|rank| meeting.saying(rank) == says(rank)));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn whoever_calls_something_else_is_found_while_it_can_be_known() {
        let segment = Arc::new(Segment::new(c"test", Meeting::bytes(2)).unwrap());
        let [one, two] = [0, 1].map(|me| Meeting::new(Arc::clone(&segment), 0, me, 2));
        let head = |call, elements| Head { call, elements, ..Head::default() };
        one.begin(&head(1, 10));
        assert_eq!(one.disagreement(1), None);
        two.begin(&head(1, 11));
        assert_eq!(one.disagreement(1), Some((head(1, 10), 1, head(1, 11))));
        assert_eq!(two.disagreement(1), Some((head(1, 11), 0, head(1, 10))));
        // Who is ahead sees it, too, as long as it knows what it had called then.
        (2..CALLS).for_each(|call| two.begin(&head(call, 11)));
        assert_eq!(two.disagreement(CALLS - 1), Some((head(1, 11), 0, head(1, 10))));
        two.begin(&head(CALLS, 11));
        assert_eq!((one.disagreement(1), two.disagreement(CALLS)), (None, None));
    }

    #[test]
    fn who_has_not_begun_is_known() {
        let segment = Arc::new(Segment::new(c"test", Meeting::bytes(2)).unwrap());
        let meeting = Meeting::new(segment, 0, 1, 2);
        meeting.begin(&Head { call: 3, ..Head::default() });
        assert_eq!(meeting.not_begun(3), [0]);
        assert_eq!(meeting.not_begun(4), [0, 1]);
    }
}
