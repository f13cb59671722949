//! Something that is under way.
#![expect(unsafe_code, reason = "calls into MPI")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::c_int;

use crate::error::Error;
use crate::ffi::{Handle, Status};
use crate::issue::Kept;
use crate::number::Width;
use crate::start::Session;

/// A message or a collective under way. Dropped before its end, a receive is cancelled, a send goes on by
/// itself, and a collective goes on as long as MPI does (it cannot be cancelled).
#[derive(Debug)]
pub struct Request {
    session: Arc<Session>,
    handle: Handle,
    kind: Kind,
    state: State,
    /// What MPI reads until the end.
    kept: Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Collective,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Pending,
    Done(Done),
    Failed,
}

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Who sent what was received.
    pub source: Option<u32>,
    /// The tag of what was received.
    pub tag: Option<u32>,
    /// Bytes received.
    pub bytes: usize,
    /// It was cancelled, and nothing was moved.
    pub cancelled: bool,
}

impl Request {
    pub(crate) fn new(session: &Arc<Session>, handle: Handle, kind: Kind, kept: Kept) -> Self {
        Self { session: Arc::clone(session), handle, kind, state: State::Pending, kept }
    }

    /// Lets MPI work, and tells whether this has finished.
    pub fn test(&mut self) -> Result<Option<Done>, Error> {
        match self.state {
            State::Done(done) => return Ok(Some(done)),
            State::Failed => return Err(Error::invalid("this request has failed before")),
            State::Pending => {}
        }
        let mut status = Status::EMPTY;
        let mut flag: c_int = 0;
        let handle = &raw mut self.handle;
        // SAFETY: the request is under way; status and flag are good places.
        let tested =
            self.session.call("MPI_Test", |api, _| unsafe { api.test(handle, &raw mut flag, &raw mut status) });
        if let Err(error) = tested {
            self.state = State::Failed;
            return Err(error);
        }
        if flag == 0 {
            return Ok(None);
        }
        let done = self.read(&mut status);
        self.state = done.as_ref().map_or(State::Failed, |done| State::Done(*done));
        done.map(Some)
    }

    fn read(&self, status: &mut Status) -> Result<Done, Error> {
        let (mut cancelled, mut count): (c_int, c_int) = (0, 0);
        let status: *mut Status = status;
        if self.kind != Kind::Collective {
            // SAFETY: MPI_Test has filled the status.
            self.session
                .call("MPI_Test_cancelled", |api, _| unsafe { api.test_cancelled(status, &raw mut cancelled) })?;
        }
        if self.kind != Kind::Receive || cancelled != 0 {
            return Ok(Done { source: None, tag: None, bytes: 0, cancelled: cancelled != 0 });
        }
        // SAFETY: as above.
        self.session.call("MPI_Get_count", |api, constants| unsafe {
            api.get_count(status, constants.width(Width::One), &raw mut count)
        })?;
        let constants = self.session.constants();
        // SAFETY: the status is borrowed mutably by this function.
        let status = unsafe { &*status };
        Ok(Done {
            source: Some(constants.source(status).unsigned_abs()),
            tag: Some(constants.tag(status).unsigned_abs()),
            bytes: usize::try_from(count).unwrap_or(0),
            cancelled: false,
        })
    }

    /// Waits. At the limit it is an error, and the request is still under way.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<Done, Error> {
        let start = Instant::now();
        let mut turns = 0_u32;
        loop {
            if let Some(done) = self.test()? {
                return Ok(done);
            }
            turns = turns.saturating_add(1);
            if turns < 64 {
                std::hint::spin_loop();
                continue;
            }
            if let Some(limit) = limit
                && start.elapsed() >= limit
            {
                let what = match self.kind {
                    Kind::Send => "a send",
                    Kind::Receive => "a receive",
                    Kind::Collective => "a collective",
                };
                return Err(Error::TimedOut { what, waited: limit });
            }
            std::thread::yield_now();
        }
    }

    /// Waits, and at the limit cancels, so that nothing is under way afterwards.
    pub(crate) fn finish(mut self, limit: Option<Duration>) -> Result<Done, Error> {
        match self.wait(limit) {
            Err(late @ Error::TimedOut { .. }) => {
                self.cancel()?;
                // A receive that is cancelled ends at once, whatever others do, as cancelled or as received.
                let done = self.wait(None)?;
                if done.cancelled { Err(late) } else { Ok(done) }
            }
            other => other,
        }
    }

    /// Asks MPI to take it back; it then ends soon, as cancelled or as done. Only a receive is surely taken
    /// back; a send may go on, and a collective cannot be cancelled.
    pub fn cancel(&mut self) -> Result<(), Error> {
        if !matches!(self.state, State::Pending) {
            return Ok(());
        }
        if self.kind == Kind::Collective {
            return Err(Error::invalid("MPI cannot cancel a collective"));
        }
        let handle = &raw mut self.handle;
        // SAFETY: the request is under way.
        self.session.call("MPI_Cancel", |api, _| unsafe { api.cancel(handle) })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !matches!(self.state, State::Pending) || !self.session.is_usable() {
            return;
        }
        match self.kind {
            Kind::Receive => {
                if self.cancel().is_ok() {
                    // An error has nobody to hear it.
                    self.wait(Some(Duration::from_secs(1))).ok();
                }
            }
            Kind::Send => {
                let handle = &raw mut self.handle;
                // SAFETY: the request is under way, and whoever started the send keeps the bytes.
                self.session.call("MPI_Request_free", |api, _| unsafe { api.request_free(handle) }).ok();
            }
            // What MPI still reads must stay.
            Kind::Collective => std::mem::forget(std::mem::take(&mut self.kept)),
        }
    }
}
