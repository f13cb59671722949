//! How a world ends: the reason that all ranks are told, and that nobody is told before everybody's memory is their own again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eirene_train_mesh::{Mesh, Trouble};

use super::Inner;
use crate::error::Error;
use crate::memory::bell::now;

/// How long an end is waited for that explains why a connection broke.
pub(super) const EXPLANATION: Duration = Duration::from_secs(2);

/// How long the reason may take that made a rank leave, and that comes from another one.
const RUMOUR: Duration = Duration::from_millis(300);

/// How long the others may take to give MPI up: the last call of theirs, and the time until a thread of theirs looks.
const QUIESCENCE: Duration = Duration::from_secs(1);

impl Inner {
    /// Ends the world for everybody. Returns the error that explains it best: a rank that has died is the reason for a broken connection,
    /// and what another rank has said comes before what follows from it.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let error = self.explained(error);
        if self.failure.set(error).is_err() {
            // Nobody is told before memory is the caller's again, whoever has found it first.
            let until = now() + QUIESCENCE;
            while !self.failed.load(Ordering::Acquire) && now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            return self.failure();
        }
        let error = self.failure();
        // First, so that whoever hears of the end knows that this rank calls MPI no more.
        if let Some(mpi) = &self.mpi {
            mpi.give_up();
        }
        if !matches!(error, Error::PeerDied { .. } | Error::Aborted { .. }) {
            self.mesh.abort(&error.to_string());
        }
        if self.mpi.is_some() {
            self.quiesce();
        }
        self.failed.store(true, Ordering::Release);
        for group in self.working() {
            group.fail(&error, self);
        }
        self.bell().ring();
        error
    }

    /// Why the world has ended.
    pub(super) fn failure(&self) -> Error {
        self.failure.get().cloned().unwrap_or(Error::Ended { reason: "it was left".to_owned() })
    }

    /// Why a rank is not to be talked to any more: if others know a reason, it is on its way.
    fn explained(&self, error: Error) -> Error {
        let deadline = now() + EXPLANATION;
        let rank = match &error {
            Error::Connection { rank, .. } | Error::Left { rank, .. } => *rank,
            // MPI was given up, or refuses what cannot go on.
            Error::Mpi(_) => return self.mesh.trouble().map_or(error, |trouble| told(trouble, "MPI was at work")),
            _ => return error,
        };
        let mut left_until = None;
        while now() < deadline {
            if let Some(trouble) = self.mesh.trouble() {
                return told(trouble, "a message was under way");
            }
            if left_until.is_none() && self.mesh.left(rank) {
                left_until = Some(now() + RUMOUR);
            }
            if left_until.is_some_and(|until| until < now()) {
                return match error {
                    Error::Left { .. } => error,
                    _ => Error::Left { rank, what: "it was still talked to".to_owned() },
                };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        error
    }

    /// Waits until no other rank calls MPI any more, as they say by saying goodbye: MPI reads the memory of this process, which its caller may
    /// give back or end with, and a rank that finds it gone in the midst of a call is ended by some MPIs.
    fn quiesce(&self) {
        self.mesh.part();
        let until = now() + QUIESCENCE;
        let others = || (0..self.mesh.size()).filter(|rank| *rank != self.mesh.rank());
        while !others().all(|rank| self.mesh.is_over(rank)) && now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives MPI up as soon as another rank has said that the world has ended, also while the program computes: that rank waits for it.
    pub(super) fn heed(&self) {
        if let Some(mpi) = self.mpi.as_ref().filter(|_| self.mesh.trouble().is_some()) {
            mpi.give_up();
            self.mesh.part();
        }
    }
}

/// Why a world could not be made: where a rank has left, the reason may still be on its way from another one.
pub(super) fn not_made(mesh: &Mesh, error: Error) -> Error {
    let until = now() + RUMOUR;
    while matches!(error, Error::Left { .. }) && now() < until {
        if let Some(trouble) = mesh.trouble() {
            return told(trouble, "the world was being made");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    error
}

pub(super) fn told(trouble: Trouble, doing: &str) -> Error {
    match trouble {
        Trouble::Died { rank } => Error::PeerDied { rank, what: doing.to_owned() },
        Trouble::Aborted { rank, reason } => Error::aborted(rank, reason),
        Trouble::Corrupt { rank } => {
            Error::Connection { rank, reason: "somebody has tampered with what it sends".to_owned() }
        }
    }
}
