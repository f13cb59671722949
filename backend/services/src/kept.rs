//! Answers about people, kept for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use eirene_core::{Clock, Username};
use jiff::{SignedDuration, Timestamp};

/// How long an answer holds.
const HOLDS: SignedDuration = SignedDuration::from_mins(1);
/// Most people whose answers are kept.
const MOST: usize = 10_000;

/// The last answer about each person, for a minute.
#[derive(Clone)]
pub(super) struct Kept<T> {
    clock: Arc<dyn Clock>,
    answers: Arc<Mutex<HashMap<Username, (Timestamp, T)>>>,
}

impl<T: Clone> Kept<T> {
    /// None so far.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, answers: Arc::default() }
    }

    /// The answer about `person`, at most a minute old.
    pub(super) fn get(&self, person: &Username) -> Option<T> {
        let now = self.clock.now();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(person).filter(|(at, _)| now.duration_since(*at).abs() < HOLDS).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer that was given now.
    pub(super) fn put(&self, person: &Username, answer: T) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(person.clone(), (self.clock.now(), answer));
    }
}
