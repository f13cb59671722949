//! Asking the others what they have called and how far they are, when a collective takes long between nodes or within MPI; within a node it
//! stands in shared memory.
//!
//! MPI may also carry out calls that do not match without a word: where it does collectives every rank asks the next one every second what it
//! has called, so that what they got is not used for long.
//!
//! A question says what its asker has called, and the answer what the other rank has: whoever sees that they differ ends the world. Whoever
//! waits for something answers; where MPI is in use a thread does, also while the program computes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{Inner, LISTEN, TOPIC_STATUS};
use crate::error::Error;
use crate::memory::bell::now;
use crate::message::{HEAD, Head};
use crate::record::{Record, Said, Share};

/// How long the others may take to say where they are, when a collective has taken too long, MPI has refused it, or a message does not fit.
const ANSWER: Duration = Duration::from_millis(500);

/// How often ranks compare what they have called where MPI would not say that it differs.
const COMPARE: Duration = Duration::from_secs(1);

const QUESTION: u8 = 0;
const ANSWERED: u8 = 1;

/// How often somebody answers for a rank that computes.
const ANSWERS: Duration = Duration::from_millis(50);

/// Bytes of a question or an answer.
const STATUS: usize = 1 + 8 + 8 + HEAD + 8 + 8 + 8;

/// What a rank has said of itself, by the rank and the group's number.
pub(super) type Heard = HashMap<(u32, u64), Told>;

/// What a rank has said of itself in a group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// The last call it has begun.
    begun: u64,
    /// The last of ours that it has called like this rank.
    agreed: u64,
}

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Status {
    kind: u8,
    group: u64,
    /// The last call that the sender has begun.
    begun: u64,
    /// The call it is about.
    about: u64,
    /// What the sender has called there, if it has and knows.
    said: Option<Said>,
}

impl Status {
    fn to_bytes(self) -> Vec<u8> {
        // No collective has the number 0.
        let head = Head { call: self.about, ..Head::default() };
        let nothing = Said { head, share: Share { gives: 0, gets: 0 }, history: 0 };
        let Said { head, share, history } = self.said.unwrap_or(nothing);
        [
            &[self.kind][..],
            &self.group.to_le_bytes(),
            &self.begun.to_le_bytes(),
            &head.to_bytes(),
            &share.gives.to_le_bytes(),
            &share.gets.to_le_bytes(),
            &history.to_le_bytes(),
        ]
        .concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, words) = bytes.split_first().filter(|_| bytes.len() == STATUS)?;
        let words: Vec<u64> = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [group, begun, first, second, third, fourth, gives, gets, history] = words.try_into().ok()?;
        let head = Head::from_words([first, second, third, fourth]);
        let said = (head.kind[0] > 0).then_some(Said { head, share: Share { gives, gets }, history });
        Some(Self { kind: *kind, group, begun, about: head.call, said })
    }
}

/// Starts a thread that answers for this rank as long as the world is wanted, and gives MPI up when the others have to, whatever else its
/// threads do. It sleeps by itself, not with
/// those whom others ring for.
pub(super) fn begin_to_answer(world: &Arc<Inner>) -> Result<(), Error> {
    let world = Arc::downgrade(world);
    let answer = move || {
        loop {
            std::thread::sleep(ANSWERS);
            let Some(world) = world.upgrade().filter(|world| !world.stop.load(Ordering::Acquire)) else { return };
            world.heed();
            world.answer();
        }
    };
    let spawned = std::thread::Builder::new().name("eirene-answers".to_owned()).spawn(answer);
    spawned.map(drop).map_err(|error| Error::Memory {
        bytes: 0,
        what: "start a thread in".to_owned(),
        reason: error.to_string(),
    })
}

impl Inner {
    /// Who of a group has not come to a call, as far as they say themselves. A rank that is busy with something else may not answer in time.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if one is seen to have called something else.
    pub(crate) fn ask_around(&self, group: u64, record: &Record, call: u64) -> Result<Vec<u32>, Error> {
        self.ask(group, record, call);
        let deadline = now() + ANSWER;
        loop {
            let missing = self.known_not(group, record, |told| told.begun >= call);
            if missing.is_empty() || now() >= deadline {
                return Ok(missing);
            }
            std::thread::sleep(Duration::from_millis(1));
            self.listen()?;
        }
    }

    /// An error if another rank of a group is found to have called something else, which is why a message does not fit or MPI has refused a call.
    pub(crate) fn look_for_disagreement(&self, group: u64, record: &Record, call: u64) -> Result<(), Error> {
        self.ask(group, record, call);
        let deadline = now() + ANSWER;
        while !self.known_not(group, record, |told| told.agreed >= call).is_empty() && now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            self.listen()?;
            if self.has_failed() || self.mesh.trouble().is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Asks the ranks of a group what they have called, unless they are known to have called the same.
    pub(crate) fn ask(&self, group: u64, record: &Record, call: u64) {
        for rank in self.known_not(group, record, |told| told.agreed >= call) {
            self.ask_one(rank, group, record, call);
        }
    }

    fn ask_one(&self, rank: u32, group: u64, record: &Record, call: u64) {
        let said = record.said(call, rank);
        let question = Status { kind: QUESTION, group, begun: record.begun(), about: call, said };
        // Who cannot be asked is missing.
        let _ = self.mesh.send(rank, TOPIC_STATUS, &question.to_bytes(), &[]);
    }

    /// Asks the next rank of each group about calls that MPI may have carried out.
    fn compare_with_next(&self) {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mpi.is_none() || compared.elapsed() < COMPARE {
            return;
        }
        *compared = now();
        drop(compared);
        for group in self.working() {
            if let Some((call, next)) = group.record.to_compare() {
                self.ask_one(next, group.topic(), &group.record, call);
            }
        }
    }

    /// The other ranks of a group of which something is not known.
    fn known_not(&self, group: u64, record: &Record, known: impl Fn(Told) -> bool) -> Vec<u32> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |rank: &u32| heard.get(&(*rank, group)).copied().unwrap_or_default();
        let others = record.ranks().iter().filter(|rank| **rank != self.mesh.rank());
        others.filter(|rank| !known(told(rank))).copied().collect()
    }

    /// Answers who asks, and takes the answers to our own questions.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if a rank has called something else than this one.
    pub(super) fn listen(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for rank in (0..self.mesh.size()).filter(|rank| *rank != self.mesh.rank()) {
            while let Ok((says, _)) = self.mesh.receive(rank, TOPIC_STATUS, now()) {
                if let Some(status) = Status::from_bytes(&says) {
                    outcome = outcome.and(self.take(rank, status));
                }
            }
        }
        outcome
    }

    /// Takes what a rank says, and answers it if it asks.
    fn take(&self, rank: u32, status: Status) -> Result<(), Error> {
        let Status { kind, group, begun, about, said } = status;
        let record = self.record(group).filter(|record| record.ranks().contains(&rank));
        // So that it has the reason, if there is one, before it hears of the end.
        if let Some(record) = record.as_ref().filter(|_| kind == QUESTION) {
            let said = record.said(about, rank);
            let answer = Status { kind: ANSWERED, group, begun: record.begun(), about, said };
            let _ = self.mesh.send(rank, TOPIC_STATUS, &answer.to_bytes(), &[]);
        }
        let outcome = match (&record, &said) {
            (Some(record), Some(said)) => record.compare(rank, said),
            _ => Ok(()),
        };
        let mine = record.is_some_and(|record| record.begun() >= about);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let told = heard.entry((rank, group)).or_default();
        told.begun = told.begun.max(begun);
        // Who is so far ahead that it does not know any more has called it, too.
        if mine && outcome.is_ok() && begun >= about {
            told.agreed = told.agreed.max(about);
        }
        outcome
    }

    /// What this rank has called in a group, also in one that is gone, where others may still wait in it.
    fn record(&self, group: u64) -> Option<Arc<Record>> {
        let living = self.working().iter().find(|known| known.topic() == group).map(|known| Arc::clone(&known.record));
        living.or_else(|| self.past_record(group))
    }

    /// Answers who asks, now and then, while nothing is waited for here.
    fn answer(&self) {
        if self.is_far.load(Ordering::Relaxed)
            && let Err(error) = self.listen_now_and_then()
        {
            self.fail(error);
        }
    }

    /// Listens unless that was done a moment ago.
    pub(super) fn listen_now_and_then(&self) -> Result<(), Error> {
        let mut listened = self.listened.lock().unwrap_or_else(PoisonError::into_inner);
        if listened.elapsed() < LISTEN {
            return Ok(());
        }
        *listened = now();
        drop(listened);
        self.compare_with_next();
        self.listen()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_asked_and_answered_is_read_again() {
        let head = Head { call: 7, elements: 9, root: 1, kind: [2, 3, 4, 0], ..Head::default() };
        for said in [None, Some(Said { head, share: Share { gives: 1, gets: u64::MAX }, history: 3 })] {
            let status = Status { kind: QUESTION, group: 5, begun: 6, about: 7, said };
            assert_eq!(Status::from_bytes(&status.to_bytes()), Some(status));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Status::from_bytes(&bytes);
        }
    }
}
