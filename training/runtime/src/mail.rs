//! How a group's messages between two ranks go: over its links, or as they are through MPI where that was asked for.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::link::Link;
use crate::mpi::Messages;
use crate::transfers::{Receiving, Sending, Transfers};

/// All messages of a group that are under way.
pub(crate) enum Mail {
    /// Over links, by rank.
    Links(Transfers, Vec<Option<Link>>),
    /// Through MPI.
    Mpi(Messages),
}

impl Mail {
    /// How many are not done.
    pub(crate) fn left(&self) -> usize {
        match self {
            Self::Links(transfers, _) => transfers.left(),
            Self::Mpi(messages) => messages.left(),
        }
    }

    /// Refuses a tag that cannot be carried.
    pub(crate) fn check(&self, tag: u32) -> Result<(), Error> {
        match self {
            Self::Links(..) => Ok(()),
            Self::Mpi(messages) => messages.tag(tag).map(drop),
        }
    }

    /// Sends.
    pub(crate) fn send(&mut self, sending: Sending) {
        match self {
            Self::Links(transfers, _) => transfers.send(sending),
            Self::Mpi(messages) => messages.send(sending),
        }
    }

    /// Receives.
    pub(crate) fn receive(&mut self, receiving: Receiving) {
        match self {
            Self::Links(transfers, _) => transfers.receive(receiving),
            Self::Mpi(messages) => messages.receive(receiving),
        }
    }

    /// Does what can be done now; says whether that was anything.
    pub(crate) fn poll(&mut self) -> Result<bool, Error> {
        match self {
            Self::Links(transfers, links) => transfers.poll(links),
            Self::Mpi(messages) => messages.poll(),
        }
    }

    /// The ranks of the group that must do something before all can be done. MPI does not say.
    pub(crate) fn waits_for(&mut self) -> Vec<u32> {
        match self {
            Self::Links(transfers, links) => transfers.waits_for(links),
            Self::Mpi(_) => Vec::new(),
        }
    }

    /// An error if something waits for a rank that has closed the group, where polling does not tell.
    pub(crate) fn look_for_closed(&mut self) -> Result<(), Error> {
        match self {
            Self::Links(..) => Ok(()),
            Self::Mpi(messages) => messages.look_for_closed(),
        }
    }

    /// What has taken too long: with which rank of the group, in words, and how long it was allowed.
    pub(crate) fn overdue(&self, now: Instant) -> Option<(Option<u32>, String, Duration)> {
        match self {
            Self::Links(transfers, _) => transfers.overdue(now),
            Self::Mpi(messages) => messages.overdue(now),
        }
    }

    /// Ends everything with an error.
    pub(crate) fn fail(&mut self, error: &Error) {
        match self {
            Self::Links(transfers, _) => transfers.fail(error),
            Self::Mpi(messages) => messages.fail(error),
        }
    }

    /// Lets go of what joins this rank to the others, and of MPI. `empty`: what is left then.
    pub(crate) fn close(&mut self, empty: Transfers) {
        match self {
            Self::Links(_, links) => links.iter_mut().for_each(|link| *link = None),
            Self::Mpi(messages) => {
                messages.fail(&Error::Ended { reason: "it was left".to_owned() });
                messages.close();
                *self = Self::Links(empty, Vec::new());
            }
        }
    }
}
