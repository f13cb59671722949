//! Messages over MPI: frames in a group's communicator, under the lane's tag.
//!
//! A message is a frame with its head and the beginning of its content, then frames of [`PIECE`] bytes. Both sides know from the head how long
//! each frame is, so the receiver asks for several in advance, each into a buffer of its length. What is sent is copied first: when a world
//! fails, the caller's memory must be the caller's again, and MPI cannot be made to stop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use eirene_train_mpi::{Done, Error as MpiError, Request};

use super::Outgoing;
use super::stream::bytes_of;
use crate::error::Error;
use crate::message::{HEAD, Head};
use crate::mpi::Room;

/// Content of a message's first frame: what every MPI sends without asking the receiver first.
const FIRST: usize = 4000;

/// Content of the other frames.
const PIECE: usize = 256 << 10;

/// Frames under way in each direction.
const AT_ONCE: usize = 4;

/// How long MPI may take to take a receive back.
const TAKE_BACK: Duration = Duration::from_secs(1);

/// In a head: no message comes any more.
const GOODBYE: [u8; 4] = [255; 4];

/// A link to a rank over MPI.
pub(crate) struct Post {
    /// Its number in the world, for people.
    rank: u32,
    /// Its number in the communicator.
    peer: u32,
    tag: u32,
    room: Arc<Room>,
    out: VecDeque<Frame>,
    into: VecDeque<Frame>,
    spare: Vec<Vec<u64>>,
    /// The message that is coming in.
    head: Option<Head>,
    /// Bytes of its content that were asked for, and that were taken.
    asked: u64,
    taken: u64,
    /// Bytes of the first frame asked for that were taken.
    at: usize,
    /// The other side has said goodbye.
    ended: bool,
}

/// A piece of a message under way, in whole words so that elements are aligned.
struct Frame {
    buffer: Vec<u64>,
    bytes: usize,
    /// None once it is here, or gone.
    request: Option<Request>,
}

impl Frame {
    /// Whether it has ended.
    fn is_done(&mut self, room: &Room) -> Result<Option<usize>, Error> {
        let Some(request) = &mut self.request else { return Ok(Some(self.bytes)) };
        let turn = room.engine.enter()?;
        let done = request.test().map_err(|error| crate::mpi::failed(&error))?;
        drop(turn);
        let Some(Done { bytes, .. }) = done else { return Ok(None) };
        self.request = None;
        Ok(Some(bytes))
    }
}

impl Post {
    /// To a rank of a group, in one of its lanes.
    pub(crate) fn new(room: Arc<Room>, rank: u32, peer: u32, lane: usize) -> Self {
        Self {
            rank,
            peer,
            tag: lane as u32,
            room,
            out: VecDeque::new(),
            into: VecDeque::new(),
            spare: Vec::new(),
            head: None,
            asked: 0,
            taken: 0,
            at: 0,
            ended: false,
        }
    }

    fn wrong(&self, reason: &str) -> Error {
        Error::Connection { rank: self.rank, reason: reason.to_owned() }
    }

    /// What MPI refuses is a matter of this connection.
    fn failed(&self, error: Error) -> Error {
        match error {
            Error::Mpi(reason) => Error::Connection { rank: self.rank, reason },
            other => other,
        }
    }

    fn refused(&self, error: &MpiError) -> Error {
        self.wrong(&error.to_string())
    }

    fn buffer(&mut self, bytes: usize) -> Vec<u64> {
        let words = bytes.div_ceil(8);
        let fits = self.spare.iter().position(|buffer| buffer.len() >= words);
        fits.map_or_else(|| vec![0; words], |place| self.spare.swap_remove(place))
    }

    fn put_aside(&mut self, buffer: Vec<u64>) {
        if self.spare.len() < 2 * AT_ONCE {
            self.spare.push(buffer);
        }
    }

    /// Lets go of frames that are gone.
    fn reap(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.out.front_mut() {
            if frame.is_done(&self.room).map_err(|error| self.failed(error))?.is_none() {
                return Ok(());
            }
            if let Some(frame) = self.out.pop_front() {
                self.put_aside(frame.buffer);
            }
        }
        Ok(())
    }

    /// Sends what can be sent now; true once all has arrived, or is MPI's to deliver.
    pub(super) fn push(&mut self, message: &mut Outgoing) -> Result<bool, Error> {
        loop {
            self.reap()?;
            if message.is_done() {
                return Ok(self.out.is_empty());
            }
            if self.out.len() == AT_ONCE {
                return Ok(false);
            }
            let (head, most) = if message.begun { (0, PIECE) } else { (HEAD, FIRST) };
            let content = most.min(message.what.bytes() - message.sent);
            let mut buffer = self.buffer(head + content);
            let bytes = bytes_of(&mut buffer);
            if head > 0 {
                bytes[..HEAD].copy_from_slice(&message.head.to_bytes());
            }
            let mut filled = head;
            while filled < head + content {
                let run = message.what.at(message.sent);
                let part = run.bytes.min(head + content - filled);
                #[expect(unsafe_code, reason = "reads the caller's memory")]
                // SAFETY: the caller's memory stays and is not written while its message is on its way.
                let from = unsafe { std::slice::from_raw_parts(run.address, part) };
                bytes[filled..filled + part].copy_from_slice(from);
                filled += part;
                message.sent += part;
            }
            message.begun = true;
            self.send(buffer, filled)?;
        }
    }

    #[expect(unsafe_code, reason = "MPI reads the buffer")]
    fn send(&mut self, buffer: Vec<u64>, bytes: usize) -> Result<(), Error> {
        let turn = self.room.engine.enter().map_err(|error| self.failed(error))?;
        // SAFETY: the buffer stays in its frame until the request has ended, or is leaked.
        let sent = unsafe { self.room.communicator.isend(buffer.as_ptr().cast(), bytes, self.peer, self.tag) };
        drop(turn);
        let request = Some(sent.map_err(|error| self.refused(&error))?);
        self.out.push_back(Frame { buffer, bytes, request });
        Ok(())
    }

    /// Asks for the frames that must come next.
    fn ask(&mut self) -> Result<(), Error> {
        let Some(head) = self.head else {
            return if self.into.is_empty() { self.receive(HEAD + FIRST) } else { Ok(()) };
        };
        while self.asked < head.bytes && self.into.len() < AT_ONCE {
            let bytes = usize::try_from(head.bytes - self.asked).unwrap_or(usize::MAX).min(PIECE);
            self.receive(bytes)?;
            self.asked += bytes as u64;
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "MPI writes the buffer")]
    fn receive(&mut self, bytes: usize) -> Result<(), Error> {
        let mut buffer = self.buffer(bytes);
        let (room, from, tag) = (&self.room, Some(self.peer), Some(self.tag));
        let turn = room.engine.enter().map_err(|error| self.failed(error))?;
        // SAFETY: the buffer is as long; it stays in its frame until the request has ended, or is leaked.
        let asked = unsafe { room.communicator.irecv(buffer.as_mut_ptr().cast(), bytes, from, tag) };
        drop(turn);
        let request = Some(asked.map_err(|error| self.refused(&error))?);
        self.into.push_back(Frame { buffer, bytes, request });
        Ok(())
    }

    /// The length of the frame that comes next, if it is here.
    fn front(&mut self) -> Result<Option<usize>, Error> {
        let Some(frame) = self.into.front_mut() else { return Ok(None) };
        if frame.request.is_none() {
            return Ok(Some(frame.bytes));
        }
        let Some(bytes) = frame.is_done(&self.room).map_err(|error| self.failed(error))? else { return Ok(None) };
        if let Some(frame) = self.into.front_mut() {
            if self.head.is_some() && bytes != frame.bytes {
                let reason = format!("a frame of {bytes} bytes came where {} were due", frame.bytes);
                return Err(self.wrong(&reason));
            }
            frame.bytes = bytes;
        }
        Ok(Some(bytes))
    }

    /// As [`super::Link::next`].
    pub(super) fn head(&mut self) -> Result<Option<Head>, Error> {
        if self.head.is_some() {
            return Ok(self.head);
        }
        if self.ended {
            return Err(self.wrong("it was closed by the other side"));
        }
        self.ask()?;
        let Some(bytes) = self.front()? else { return Ok(None) };
        let Some(frame) = self.into.front_mut() else { return Ok(None) };
        let mut words = [0; HEAD];
        words.copy_from_slice(&bytes_of(&mut frame.buffer)[..HEAD]);
        let head = Head::from_bytes(&words);
        if head.kind == GOODBYE {
            self.ended = true;
            self.into.clear();
            return Err(self.wrong("it was closed by the other side"));
        }
        let first = head.bytes.min(FIRST as u64);
        if bytes as u64 != HEAD as u64 + first {
            let reason = format!("a message of {} bytes begins with a frame of {bytes}", head.bytes);
            return Err(self.wrong(&reason));
        }
        (self.at, self.asked, self.taken) = (HEAD, first, 0);
        self.head = Some(head);
        self.ask()?;
        Ok(self.head)
    }

    /// As [`super::Link::peek`].
    pub(super) fn peek(&mut self) -> Result<Option<(Head, &[u8])>, Error> {
        let Some(head) = self.head()? else { return Ok(None) };
        // What was taken has left room for another frame.
        self.ask()?;
        let Some(bytes) = self.front()? else { return Ok(Some((head, &[]))) };
        let at = self.at;
        Ok(self.into.front_mut().map(|frame| (head, &bytes_of(&mut frame.buffer)[at..bytes])))
    }

    /// As [`super::Link::take`].
    pub(super) fn take(&mut self, bytes: usize) {
        let Some(head) = self.head else { return };
        self.at += bytes;
        self.taken += bytes as u64;
        if self.into.front().is_some_and(|frame| frame.request.is_none() && self.at >= frame.bytes) {
            self.at = 0;
            if let Some(frame) = self.into.pop_front() {
                self.put_aside(frame.buffer);
            }
        }
        if self.taken == head.bytes {
            self.head = None;
        }
    }

    /// As [`super::Link::store`].
    #[expect(unsafe_code, reason = "copies into the caller's memory")]
    pub(super) fn store(&mut self, address: *mut u8, room: usize) -> Result<usize, Error> {
        let Some((head, content)) = self.peek()? else { return Ok(0) };
        let bytes = content.len().min(room);
        if bytes == 0 && head.bytes > 0 {
            return Ok(0);
        }
        if bytes > 0 {
            // SAFETY: the caller's memory has room for `room` bytes and nobody else uses it.
            unsafe { address.copy_from_nonoverlapping(content.as_ptr(), bytes) };
        }
        self.take(bytes);
        Ok(bytes)
    }

    /// Tells the other side that nothing comes any more. An error has nobody to hear it: who waits there hears of this rank's end otherwise.
    fn say_goodbye(&mut self) {
        let head = Head { kind: GOODBYE, ..Head::default() };
        let mut buffer = self.buffer(HEAD);
        bytes_of(&mut buffer)[..HEAD].copy_from_slice(&head.to_bytes());
        let _ = self.send(buffer, HEAD);
        let _ = self.reap();
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if self.room.engine.is_usable() {
            self.say_goodbye();
        }
        // None once MPI was given up, and in a fork.
        let turn = self.room.engine.enter();
        for mut frame in self.into.drain(..) {
            let Some(mut request) = frame.request.take() else { continue };
            let is_back = turn.is_ok() && request.cancel().is_ok() && request.wait(Some(TAKE_BACK)).is_ok();
            if !is_back {
                // MPI, or another process's copy of it, may still write there.
                std::mem::forget((request, frame.buffer));
            }
        }
        for mut frame in self.out.drain(..) {
            let Some(request) = frame.request.take() else { continue };
            std::mem::forget(frame.buffer);
            if turn.is_err() {
                std::mem::forget(request);
            }
        }
    }
}
