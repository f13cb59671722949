//! A group of ranks and its messages.
#![expect(unsafe_code, reason = "calls into MPI")]

use std::sync::Arc;
use std::time::Duration;

use libc::c_int;

use crate::error::Error;
use crate::ffi::{Handle, Status};
use crate::issue::Kept;
use crate::number::Width;
use crate::request::{Done, Kind, Request};
use crate::start::Session;

/// A communicator of its own: its messages meet nobody else's. Dropping it frees it.
#[derive(Debug)]
pub struct Communicator {
    pub(crate) session: Arc<Session>,
    pub(crate) handle: Handle,
    rank: u32,
    size: u32,
}

/// A message that has arrived and waits to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Who sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length.
    pub bytes: usize,
}

impl Communicator {
    /// Takes a fresh communicator over.
    pub(crate) fn adopt(session: &Arc<Session>, handle: Handle) -> Result<Self, Error> {
        let handler = session.constants().errors_return;
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        let mut new = Self { session: Arc::clone(session), handle, rank: 0, size: 0 };
        // SAFETY: the communicator is good and the handler is MPI's own.
        session.call("MPI_Comm_set_errhandler", |api, _| unsafe { api.comm_set_errhandler(handle, handler) })?;
        // SAFETY: the communicator is good, and the place for a C int.
        session.call("MPI_Comm_rank", |api, _| unsafe { api.comm_rank(handle, &raw mut rank) })?;
        // SAFETY: as above.
        session.call("MPI_Comm_size", |api, _| unsafe { api.comm_size(handle, &raw mut size) })?;
        new.rank = rank.unsigned_abs();
        new.size = size.unsigned_abs();
        Ok(new)
    }

    /// This rank in the group.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks in the group.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The greatest tag a message may carry.
    pub fn greatest_tag(&self) -> u32 {
        self.session.tag_limit
    }

    /// A second communicator of the same ranks. All of them must call this.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let mut new = self.session.constants().no_communicator;
        // SAFETY: the communicator is good, and `new` a good place.
        self.session.call("MPI_Comm_dup", |api, _| unsafe { api.comm_dup(self.handle, &raw mut new) })?;
        Self::adopt(&self.session, new)
    }

    /// One communicator for each colour, its ranks in the order of `key`; none for who has no colour. All
    /// ranks must call this.
    pub fn split(&self, colour: Option<u32>, key: u32) -> Result<Option<Self>, Error> {
        let mut new = self.session.constants().no_communicator;
        let key = integer(key as usize, "the key")?;
        let colour = match colour {
            Some(colour) => integer(colour as usize, "the colour")?,
            None => self.session.constants().whole.undefined,
        };
        // SAFETY: the communicator is good, and `new` a good place.
        self.session
            .call("MPI_Comm_split", |api, _| unsafe { api.comm_split(self.handle, colour, key, &raw mut new) })?;
        if new == self.session.constants().no_communicator {
            return Ok(None);
        }
        Self::adopt(&self.session, new).map(Some)
    }

    /// The ranks that share memory with this one. All ranks must call this.
    pub fn node(&self) -> Result<Self, Error> {
        let mut new = self.session.constants().no_communicator;
        let key = integer(self.rank as usize, "the rank")?;
        // SAFETY: the communicator and the info are good, and `new` a good place.
        self.session.call("MPI_Comm_split_type", |api, constants| unsafe {
            api.comm_split_type(self.handle, constants.whole.shared, key, constants.no_info, &raw mut new)
        })?;
        Self::adopt(&self.session, new)
    }

    /// Starts to send bytes.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged until the request is finished, even if it is dropped before.
    pub unsafe fn isend(&self, data: *const u8, bytes: usize, to: u32, tag: u32) -> Result<Request, Error> {
        let (count, to, tag) = (integer(bytes, "the message")?, self.peer(to)?, self.tag(tag)?);
        let mut request = self.session.constants().no_request;
        // SAFETY: the caller keeps the bytes; the handles are MPI's own.
        self.session.call("MPI_Isend", |api, constants| unsafe {
            api.isend(data.cast(), count, constants.width(Width::One), to, tag, self.handle, &raw mut request)
        })?;
        Ok(Request::new(&self.session, request, Kind::Send, Kept::default()))
    }

    /// Starts to receive at most `bytes` bytes; a longer message is an error (Open MPI 4 cuts one from this
    /// very rank short without a word). `None` means anybody, any tag.
    ///
    /// # Safety
    /// The memory stays writable and is touched by nobody else until the request is finished, even if it is
    /// dropped before.
    pub unsafe fn irecv(
        &self,
        data: *mut u8,
        bytes: usize,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Request, Error> {
        let count = integer(bytes, "the message")?;
        let (from, tag) = self.envelope(from, tag)?;
        let mut request = self.session.constants().no_request;
        // SAFETY: the caller keeps the memory; the handles are MPI's own.
        self.session.call("MPI_Irecv", |api, constants| unsafe {
            api.irecv(data.cast(), count, constants.width(Width::One), from, tag, self.handle, &raw mut request)
        })?;
        Ok(Request::new(&self.session, request, Kind::Receive, Kept::default()))
    }

    /// Whether a message has arrived. `None` means anybody, any tag.
    pub fn iprobe(&self, from: Option<u32>, tag: Option<u32>) -> Result<Option<Arrived>, Error> {
        let (from, tag) = self.envelope(from, tag)?;
        let mut status = Status::EMPTY;
        let (mut flag, mut count): (c_int, c_int) = (0, 0);
        // SAFETY: the communicator is good; status and flag are good places.
        self.session.call("MPI_Iprobe", |api, _| unsafe {
            api.iprobe(from, tag, self.handle, &raw mut flag, &raw mut status)
        })?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: MPI_Iprobe has filled the status.
        self.session.call("MPI_Get_count", |api, constants| unsafe {
            api.get_count(&raw mut status, constants.width(Width::One), &raw mut count)
        })?;
        let constants = self.session.constants();
        Ok(Some(Arrived {
            source: constants.source(&status).unsigned_abs(),
            tag: constants.tag(&status).unsigned_abs(),
            bytes: usize::try_from(count).unwrap_or(0),
        }))
    }

    /// Sends bytes and waits until they may be changed again.
    pub fn send(&self, data: &[u8], to: u32, tag: u32) -> Result<(), Error> {
        if self.session.one_at_a_time() {
            // SAFETY: the bytes are borrowed until the request has finished.
            return unsafe { self.isend(data.as_ptr(), data.len(), to, tag) }?.finish(None).map(drop);
        }
        let (count, to, tag) = (integer(data.len(), "the message")?, self.peer(to)?, self.tag(tag)?);
        // SAFETY: the bytes are borrowed until the call returns.
        self.session.call("MPI_Send", |api, constants| unsafe {
            api.send(data.as_ptr().cast(), count, constants.width(Width::One), to, tag, self.handle)
        })
    }

    /// Waits for a message. `None` means anybody, any tag; without a limit it waits for ever.
    pub fn receive(
        &self,
        data: &mut [u8],
        from: Option<u32>,
        tag: Option<u32>,
        limit: Option<Duration>,
    ) -> Result<Done, Error> {
        // SAFETY: the memory is borrowed until the request has finished: `finish` cancels it at the limit.
        unsafe { self.irecv(data.as_mut_ptr(), data.len(), from, tag) }?.finish(limit)
    }

    pub(crate) fn peer(&self, rank: u32) -> Result<c_int, Error> {
        if rank >= self.size {
            return Err(Error::invalid(format!("rank {rank} is not among the {} of this group", self.size)));
        }
        integer(rank as usize, "the rank")
    }

    fn tag(&self, tag: u32) -> Result<c_int, Error> {
        if tag > self.session.tag_limit {
            return Err(Error::invalid(format!("tag {tag} is over this MPI's greatest, {}", self.session.tag_limit)));
        }
        integer(tag as usize, "the tag")
    }

    fn envelope(&self, from: Option<u32>, tag: Option<u32>) -> Result<(c_int, c_int), Error> {
        let whole = &self.session.constants().whole;
        Ok((
            from.map_or(Ok(whole.any_source), |from| self.peer(from))?,
            tag.map_or(Ok(whole.any_tag), |tag| self.tag(tag))?,
        ))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.session.free(self.handle);
    }
}

/// A count as MPI takes it.
pub(crate) fn integer(value: usize, what: &str) -> Result<c_int, Error> {
    c_int::try_from(value).map_err(|_| {
        Error::invalid(format!("{what} has {value} elements, and MPI counts to {} in one call", c_int::MAX))
    })
}
