//! What a rank has called last in a group, kept for the others, who ask when something takes long ([`crate::world`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eirene_train_schedule::Collective;

use crate::call::{Call, Part, describe, difference, is_in_blocks};
use crate::error::Error;
use crate::message::{HEAD, Head};

/// So many calls back a rank can be asked for: where a rank need not wait for the others, as the root of a broadcast, it may be far ahead.
const CALLS: u64 = 32;

/// A rank that is asked about its own call so many back has begun it, too, as long as nobody runs ahead.
const BACK: u64 = 4;

/// Words of a head.
const WORDS: usize = HEAD / 8;

/// Nothing goes between two ranks in a call.
const NO_SHARE: u64 = u64::MAX;

/// What one rank gives another in a call, and gets from it, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) gives: u64,
    pub(crate) gets: u64,
}

impl Share {
    const NONE: Self = Self { gives: NO_SHARE, gets: NO_SHARE };
}

/// What a rank says of a call of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    /// What it was, without what stands for the calls before.
    pub(crate) head: Head,
    /// What goes between the rank and who is told.
    pub(crate) share: Share,
    /// Stands for this call and all before it.
    pub(crate) history: u64,
}

/// By rank of the group, in the calls of these numbers.
type Shares = VecDeque<(u64, Vec<Share>)>;

/// One rank's last calls in a group.
#[derive(Debug)]
pub(crate) struct Record {
    /// The group's ranks, by their rank in the world.
    ranks: Vec<u32>,
    /// This rank in the world.
    me: u32,
    begun: AtomicU64,
    /// Head and history of each.
    calls: [[AtomicU64; WORDS + 1]; CALLS as usize],
    history: AtomicU64,
    shares: Mutex<Shares>,
    /// How far the rank was when it last looked what to compare, and what it compared then.
    looked: AtomicU64,
    compared: AtomicU64,
}

/// What goes between this rank and each other one, where lengths are a matter of two ranks.
fn shares(call: &Call, me: usize, size: usize) -> Option<Vec<Share>> {
    let one = |parts: &[Part]| parts.first().map_or(NO_SHARE, |part| part.elements as u64);
    let of = |parts: &[Part], rank: usize| parts.get(rank).map_or(NO_SHARE, |part| part.elements as u64);
    let with = |rank: usize| match call.collective {
        Collective::AllToAll => Share { gives: of(&call.input, rank), gets: of(&call.output, rank) },
        Collective::AllGather => Share { gives: one(&call.input), gets: of(&call.output, rank) },
        Collective::ReduceScatter => Share { gives: of(&call.input, rank), gets: one(&call.output) },
        Collective::Gather { root } if root as usize == me => Share { gets: of(&call.output, rank), ..Share::NONE },
        Collective::Gather { root } if root as usize == rank => Share { gives: one(&call.input), ..Share::NONE },
        Collective::Scatter { root } if root as usize == me => Share { gives: of(&call.input, rank), ..Share::NONE },
        Collective::Scatter { root } if root as usize == rank => Share { gets: one(&call.output), ..Share::NONE },
        _ => Share::NONE,
    };
    let is_by_pairs = !matches!(
        call.collective,
        Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. } | Collective::Barrier
    );
    is_by_pairs.then(|| (0..size).map(with).collect())
}

impl Record {
    /// Of a group in which nothing was called yet; `me` is one of `ranks`, all by their rank in the world.
    pub(crate) fn new(ranks: Vec<u32>, me: u32) -> Self {
        let calls = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        let [begun, history, looked, compared] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { ranks, me, begun, calls, history, shares: Mutex::default(), looked, compared }
    }

    /// The group's ranks, by their rank in the world.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// The number of the last call that was begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Notes that a call has begun, of which nobody will ask more than its number.
    pub(crate) fn count(&self, number: u64) {
        self.begun.store(number, Ordering::Release);
    }

    /// Notes that a call has begun.
    pub(crate) fn begin(&self, call: &Call, number: u64) {
        let place = &self.calls[(number % CALLS) as usize];
        let head = call.head(number);
        for (place, word) in place.iter().zip(head.to_words()) {
            place.store(word, Ordering::Release);
        }
        let history = head.history(self.history.load(Ordering::Relaxed));
        place[WORDS].store(history, Ordering::Release);
        self.history.store(history, Ordering::Relaxed);
        let me = self.ranks.iter().position(|rank| *rank == self.me).unwrap_or(0);
        if let Some(shares) = shares(call, me, self.ranks.len()) {
            let mut kept = self.shares();
            kept.truncate(CALLS as usize - 1);
            kept.push_front((number, shares));
        }
        self.begun.store(number, Ordering::Release);
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this rank tells another one of a call; none if it has not begun it, or does not know any more.
    pub(crate) fn said(&self, number: u64, to: u32) -> Option<Said> {
        if number == 0 || self.begun() < number {
            return None;
        }
        let place = &self.calls[(number % CALLS) as usize];
        let head = Head::from_words(std::array::from_fn(|word| place[word].load(Ordering::Acquire)));
        let history = place[WORDS].load(Ordering::Acquire);
        let other = self.ranks.iter().position(|rank| *rank == to)?;
        let share = self.shares().iter().find(|(call, _)| *call == number).map(|(_, shares)| shares[other]);
        // Whoever overwrites any of it had begun the call before that one; asked last, or it might have happened since.
        if head.call != number || self.begun() >= number + CALLS - 1 {
            return None;
        }
        Some(Said { head, share: share.unwrap_or(Share::NONE), history })
    }

    /// The call that is to be compared with the next rank's now, if there is one that was not yet; and that rank. Asked from time to time.
    pub(crate) fn to_compare(&self) -> Option<(u64, u32)> {
        let begun = self.begun();
        let is_busy = self.looked.swap(begun, Ordering::Relaxed) != begun;
        let call = if is_busy { begun.saturating_sub(BACK) } else { begun };
        let is_new = self.compared.swap(call, Ordering::Relaxed) != call;
        let me = self.ranks.iter().position(|rank| *rank == self.me)?;
        let next = self.ranks[(me + 1) % self.ranks.len()];
        (call > 0 && is_new && next != self.me).then_some((call, next))
    }

    /// An error if what another rank says of a call is not what this one has called.
    pub(crate) fn compare(&self, other: u32, theirs: &Said) -> Result<(), Error> {
        let Some(mine) = self.said(theirs.head.call, other) else { return Ok(()) };
        let differ = || Err(disagreement(self.me, &mine.head, other, &theirs.head));
        // Which blocks do not fit is better than that they do not.
        let blind = |head: Head| if is_in_blocks(&head) { Head { root: 0, ..head } } else { head };
        if blind(mine.head) != blind(theirs.head) {
            return differ();
        }
        let elements = |share: u64| if share == NO_SHARE { 0 } else { share };
        for (giver, gives, taker, takes) in [
            (self.me, mine.share.gives, other, theirs.share.gets),
            (other, theirs.share.gives, self.me, mine.share.gets),
        ] {
            if gives != takes {
                let (gives, takes) = (elements(gives), elements(takes));
                let what = describe(&mine.head);
                let message =
                    format!("in {what}, rank {giver} has {gives} elements for rank {taker}, which takes {takes}");
                return Err(Error::Mismatch { message });
            }
        }
        if mine.head == theirs.head && mine.history == theirs.history { Ok(()) } else { differ() }
    }
}

/// That two ranks of the world have called different things.
pub(crate) fn disagreement(me: u32, mine: &Head, other: u32, theirs: &Head) -> Error {
    Error::Mismatch { message: difference(me, mine, other, theirs) }
}

#[cfg(test)]
mod tests {
    use eirene_train_reduce::{DType, ReduceOp};

    use super::*;

    /// The same group seen by its two ranks, 3 and 5 in the world.
    fn both() -> [Record; 2] {
        [3, 5].map(|me| Record::new(vec![3, 5], me))
    }

    fn reduce(elements: usize) -> Call {
        Call::all_reduce(4096, 4096, elements, DType::F32, ReduceOp::Sum)
    }

    fn each(collective: Collective, input: &[usize], output: &[usize]) -> Call {
        let parts =
            |lengths: &[usize]| lengths.iter().map(|elements| Part { address: 4096, elements: *elements }).collect();
        Call { collective, dtype: DType::F32, op: ReduceOp::Sum, input: parts(input), output: parts(output) }
    }

    /// What each of the two finds when they have called these.
    fn found(calls: &[Call; 2]) -> [Option<String>; 2] {
        let records = both();
        records.iter().zip(calls).for_each(|(record, call)| record.begin(call, 1));
        let [one, two] = &records;
        let find = |own: &Record, other: &Record, rank: u32| {
            own.compare(rank, &other.said(1, own.me).unwrap()).err().map(|error| error.to_string())
        };
        [find(one, two, 5), find(two, one, 3)]
    }

    #[test]
    fn ranks_that_call_the_same_agree() {
        for pair in [
            [reduce(10), reduce(10)],
            [each(Collective::AllGather, &[1], &[1, 2]), each(Collective::AllGather, &[2], &[1, 2])],
            [each(Collective::AllToAll, &[4, 1], &[4, 2]), each(Collective::AllToAll, &[2, 3], &[1, 3])],
            [each(Collective::Gather { root: 1 }, &[4], &[]), each(Collective::Gather { root: 1 }, &[5], &[4, 5])],
            [each(Collective::Scatter { root: 0 }, &[4, 0], &[4]), each(Collective::Scatter { root: 0 }, &[], &[0])],
            [Call::barrier(), Call::barrier()],
        ] {
            assert_eq!(found(&pair), [None, None], "{pair:?}");
        }
    }

    #[test]
    fn both_ranks_find_what_does_not_fit_and_name_each_other() {
        for (pair, words) in [
            ([reduce(10), reduce(11)], &["rank 3", "10 elements", "rank 5", "11 elements"][..]),
            ([reduce(10), Call { op: ReduceOp::Max, ..reduce(10) }], &["of sum", "of max"]),
            ([reduce(10), Call { dtype: DType::I32, ..reduce(10) }], &["float32", "int32"]),
            ([reduce(10), Call::barrier()], &["allreduce", "barrier"]),
            (
                [each(Collective::AllGather, &[1], &[1, 2]), each(Collective::AllGather, &[1], &[2, 1])],
                &["allgather", "has 1 elements for rank", "takes 2"],
            ),
            (
                [each(Collective::AllToAll, &[4, 1], &[4, 2]), each(Collective::AllToAll, &[2, 3], &[7, 3])],
                &["rank 3 has 1 elements for rank 5, which takes 7"],
            ),
            (
                [each(Collective::Gather { root: 1 }, &[4], &[]), each(Collective::Gather { root: 1 }, &[5], &[3, 5])],
                &["rank 3 has 4 elements for rank 5, which takes 3"],
            ),
        ] {
            for error in found(&pair) {
                let error = error.expect("both see it");
                assert!(words.iter().all(|word| error.contains(word)), "{error}");
            }
        }
    }

    #[test]
    fn ranks_that_have_called_something_else_before_find_it_later() {
        let [one, two] = both();
        one.begin(&reduce(10), 1);
        two.begin(&reduce(11), 1);
        (2..5).for_each(|number| [&one, &two].iter().for_each(|record| record.begin(&reduce(10), number)));
        let error = one.compare(5, &two.said(4, 3).unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("rank 3 and rank 5 have called different things before") && error.contains("call 4"),
            "{error}"
        );
    }

    #[test]
    fn every_call_is_compared_once_with_the_next_rank_also_the_last_ones() {
        let [one, two] = both();
        assert_eq!(one.to_compare(), None);
        (1..=10).for_each(|number| one.begin(&reduce(10), number));
        assert_eq!((one.to_compare(), one.to_compare(), one.to_compare()), (Some((6, 5)), Some((10, 5)), None));
        two.begin(&reduce(10), 1);
        assert_eq!((two.to_compare(), two.to_compare()), (None, Some((1, 3))));
        assert_eq!(Record::new(vec![4], 4).to_compare(), None);
    }

    #[test]
    fn what_was_not_begun_or_is_long_ago_is_not_told() {
        let [one, two] = both();
        one.begin(&reduce(10), 1);
        assert_eq!(one.said(2, 5), None);
        assert!(two.compare(3, &one.said(1, 5).unwrap()).is_ok(), "who has called nothing yet has called nothing else");
        (2..=CALLS).for_each(|number| one.begin(&reduce(10), number));
        assert_eq!(one.said(1, 5), None);
        assert_eq!(one.said(CALLS, 5).unwrap().head.call, CALLS);
        assert_eq!(one.begun(), CALLS);
    }
}
