//! Something that was asked for and is done some time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::Error;
use crate::memory::bell::now;
use crate::world::Inner;

/// No rank.
const NOBODY: u32 = u32::MAX;

/// How the ranks came to each other's data in a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Each read and wrote the others' memory; or there is one rank only.
    InPlace,
    /// By messages: it is so little that they are quicker.
    Small,
    /// By messages, or by MPI, although memory could be reached: that was asked for, or measured to be quicker.
    Chosen,
    /// By messages: not all ranks are on one node.
    Nodes,
    /// By messages: a rank's buffers do not lie in an arena, each in one piece.
    Unshared {
        /// Which, by its number in the world; the first if there are several.
        rank: u32,
    },
}

/// What the one who does the work and the one who waits for it share.
#[derive(Debug)]
pub(crate) struct Ticket {
    done: AtomicBool,
    result: OnceLock<Result<(), Error>>,
    source: AtomicU32,
    manner: OnceLock<Manner>,
}

impl Ticket {
    /// Of work that is not done.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            done: AtomicBool::new(false),
            result: OnceLock::new(),
            source: AtomicU32::new(NOBODY),
            manner: OnceLock::new(),
        })
    }

    /// Done, well or not.
    pub(crate) fn finish(&self, result: Result<(), Error>) {
        // Who finishes first is right: a failure of the whole world may come in between.
        let _ = self.result.set(result);
        self.done.store(true, Ordering::Release);
    }

    /// A message came from this rank of the group.
    pub(crate) fn came_from(&self, rank: u32) {
        self.source.store(rank, Ordering::Release);
    }

    /// It is done in this manner.
    pub(crate) fn is_done_by(&self, manner: Manner) {
        // A collective begins once.
        let _ = self.manner.set(manner);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn result(&self) -> Result<(), Error> {
        self.result.get().cloned().unwrap_or(Ok(()))
    }
}

/// A collective or a transfer that goes on while the caller does something else. The buffers it was given must stay, and must not be touched
/// before it is done. Dropping it does not end it.
#[derive(Debug, Clone)]
pub struct Work {
    ticket: Arc<Ticket>,
    world: Arc<Inner>,
}

impl Work {
    pub(crate) fn new(ticket: Arc<Ticket>, world: Arc<Inner>) -> Self {
        Self { ticket, world }
    }

    /// Whether it is done, well or not.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Waits until it is done, and helps with it meanwhile.
    ///
    /// # Errors
    /// Why it failed; [`Error::Timeout`] if it is not done in time, in which case it goes on.
    pub fn wait(&self, longest: Option<Duration>) -> Result<(), Error> {
        let deadline = longest.map(|longest| now() + longest);
        if self.world.help_until(deadline, || self.ticket.is_done()) {
            return self.ticket.result();
        }
        let waited = longest.unwrap_or_default();
        Err(Error::Timeout { waited, what: "what was waited for".to_owned(), missing: Vec::new() })
    }

    /// How the ranks come to each other's data, once a collective has really begun; the same on all ranks.
    pub fn manner(&self) -> Option<Manner> {
        self.ticket.manner.get().copied()
    }

    /// The rank of the group that a received message came from, once it is done.
    pub fn source(&self) -> Option<u32> {
        let source = self.ticket.source.load(Ordering::Acquire);
        (source != NOBODY).then_some(source)
    }
}
