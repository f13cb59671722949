//! Messages over a TCP connection that has proven itself: a head, then the content.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use eirene_train_mesh::KeepFromForks;

use super::Outgoing;
use crate::error::Error;
use crate::message::{HEAD, Head};

/// Bytes that are read ahead for a reduction, which needs whole elements at an aligned address.
const AHEAD: usize = 256 << 10;

/// A connection to a rank of another node.
pub(crate) struct Stream {
    rank: u32,
    /// A forked data loader must not keep the connection open when this rank dies. Goes before the socket does.
    _own: KeepFromForks,
    socket: TcpStream,
    /// The head of the message that is coming in, as far as it is here.
    head: [u8; HEAD],
    head_bytes: usize,
    /// Bytes of its content that were taken.
    taken: u64,
    /// Content that was read ahead, in whole words so that elements are aligned: bytes `begin..end`.
    ahead: Vec<u64>,
    begin: usize,
    end: usize,
}

impl Stream {
    /// Of a connection to `rank`.
    pub(crate) fn new(rank: u32, socket: TcpStream) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Connection { rank, reason: error.to_string() };
        socket.set_nonblocking(true).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let own = KeepFromForks::new(socket.as_fd());
        Ok(Self {
            rank,
            _own: own,
            socket,
            head: [0; HEAD],
            head_bytes: 0,
            taken: 0,
            ahead: Vec::new(),
            begin: 0,
            end: 0,
        })
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::Connection { rank: self.rank, reason: error.to_string() }
    }

    fn ended(&self) -> Error {
        Error::Connection { rank: self.rank, reason: "it was closed by the other side".to_owned() }
    }

    /// Sends what can be sent now; true once all has left the caller's memory.
    pub(super) fn push(&mut self, message: &mut Outgoing) -> Result<bool, Error> {
        /// Most bytes of one write, so that others get their turn.
        const MOST: usize = 4 << 20;
        let head = message.head.to_bytes();
        loop {
            if message.is_done() {
                return Ok(true);
            }
            let run = message.what.at(message.sent);
            #[expect(unsafe_code, reason = "reads the caller's memory")]
            // SAFETY: the caller's memory stays and is not written while its message is on its way.
            let content: &[u8] = match run.bytes {
                0 => &[],
                bytes => unsafe { std::slice::from_raw_parts(run.address, bytes.min(MOST)) },
            };
            let written = if message.begun {
                self.socket.write(content)
            } else {
                self.socket.write_vectored(&[IoSlice::new(&head), IoSlice::new(content)])
            };
            match written {
                Ok(bytes) if message.begun => message.sent += bytes,
                Ok(bytes) if bytes >= HEAD => {
                    message.begun = true;
                    message.sent += bytes - HEAD;
                }
                Ok(bytes) => {
                    self.finish_head(&head[bytes..])?;
                    message.begun = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// Writes the rest of a head of which a part has left: a handful of bytes for which the socket has room in a moment.
    fn finish_head(&mut self, mut rest: &[u8]) -> Result<(), Error> {
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    std::thread::yield_now();
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }

    /// As [`super::Link::next`].
    pub(super) fn head(&mut self) -> Result<Option<Head>, Error> {
        while self.head_bytes < HEAD {
            match self.socket.read(&mut self.head[self.head_bytes..]) {
                Ok(0) => return Err(self.ended()),
                Ok(bytes) => self.head_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(Some(Head::from_bytes(&self.head)))
    }

    /// As [`super::Link::peek`].
    pub(super) fn peek(&mut self) -> Result<Option<(Head, &[u8])>, Error> {
        let Some(head) = self.head()? else { return Ok(None) };
        let missing = head.bytes - self.taken - (self.end - self.begin) as u64;
        if missing > 0 {
            self.read_ahead(missing)?;
        }
        // Whole elements of the widest type, unless these are the last.
        let here = self.end - self.begin;
        let rest = head.bytes - self.taken;
        let whole = if here as u64 == rest { here } else { here / 8 * 8 };
        Ok(Some((head, &bytes_of(&mut self.ahead)[self.begin..self.begin + whole])))
    }

    fn read_ahead(&mut self, missing: u64) -> Result<(), Error> {
        if self.ahead.is_empty() {
            self.ahead = vec![0; AHEAD / 8];
        }
        if self.begin > 0 && self.end - self.begin < 8 {
            // Less than an element is left: it moves to the front, where the rest can follow.
            let (begin, end) = (self.begin, self.end);
            bytes_of(&mut self.ahead).copy_within(begin..end, 0);
            (self.begin, self.end) = (0, end - begin);
        }
        loop {
            let room = usize::try_from(missing).unwrap_or(usize::MAX).min(AHEAD - self.end);
            if room == 0 {
                return Ok(());
            }
            match self.socket.read(&mut bytes_of(&mut self.ahead)[self.end..self.end + room]) {
                Ok(0) => return Err(self.ended()),
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// As [`super::Link::take`].
    pub(super) fn take(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.begin, "no more is taken than is there");
        self.begin += bytes;
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
        self.took(bytes);
    }

    fn took(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        if self.taken == Head::from_bytes(&self.head).bytes {
            (self.taken, self.head_bytes) = (0, 0);
        }
    }

    /// As [`super::Link::store`].
    pub(super) fn store(&mut self, address: *mut u8, room: usize) -> Result<usize, Error> {
        let Some(head) = self.head()? else { return Ok(0) };
        let room = room.min(usize::try_from(head.bytes - self.taken).unwrap_or(usize::MAX));
        #[expect(unsafe_code, reason = "writes the caller's memory")]
        // SAFETY: the caller's memory has room for so much and nobody else uses it.
        let into: &mut [u8] = match room {
            0 => &mut [],
            room => unsafe { std::slice::from_raw_parts_mut(address, room) },
        };
        let here = (self.end - self.begin).min(room);
        if here > 0 {
            into[..here].copy_from_slice(&bytes_of(&mut self.ahead)[self.begin..self.begin + here]);
            self.take(here);
            return Ok(here);
        }
        if room == 0 {
            self.took(0);
            return Ok(0);
        }
        match self.socket.read(into) {
            Ok(0) => Err(self.ended()),
            Ok(bytes) => {
                self.took(bytes);
                Ok(bytes)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

/// Words as bytes.
pub(super) fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    #[expect(unsafe_code, reason = "the standard library has no safe way to see words as bytes")]
    // SAFETY: any bytes are words and the other way round; the length is the same memory's.
    unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::extent::{Extent, Extents};

    fn pair() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::new(1, near).unwrap(), Stream::new(0, listener.accept().unwrap().0).unwrap())
    }

    fn message(content: &mut [u8]) -> Outgoing {
        let mut what = Extents::empty();
        what.push(Extent { address: content.as_mut_ptr(), bytes: content.len() });
        Outgoing::new(Head::default(), what)
    }

    #[test]
    fn messages_larger_than_every_buffer_come_whole_in_either_way_of_reading() {
        let (mut near, mut far) = pair();
        for (length, stores) in [(3_000_001, true), (3_000_001, false), (0, true), (0, false), (5, false), (8, true)] {
            let mut content: Vec<u8> = (0..length).map(|i: usize| (i * 7) as u8).collect();
            let mut message = message(&mut content);
            let mut got = Vec::new();
            let mut pushed = false;
            let mut ended = false;
            while !ended {
                pushed = pushed || near.push(&mut message).unwrap();
                if stores {
                    let mut part = vec![0; 100_000];
                    let room = part.len().min(length - got.len());
                    if far.head().unwrap().is_some() {
                        let bytes = far.store(part.as_mut_ptr(), room).unwrap();
                        got.extend_from_slice(&part[..bytes]);
                        ended = got.len() == length;
                    }
                } else if let Some((head, content)) = far.peek().unwrap() {
                    assert_eq!(head.bytes, length as u64);
                    assert_eq!(content.as_ptr() as usize % 8, 0);
                    let bytes = content.len();
                    got.extend_from_slice(content);
                    if bytes > 0 || length == 0 {
                        far.take(bytes);
                    }
                    ended = got.len() == length;
                }
            }
            assert!(pushed);
            assert_eq!(got, (0..length).map(|i: usize| (i * 7) as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_connection_that_ends_is_an_error_that_names_the_rank() {
        let (near, mut far) = pair();
        drop(near);
        let error = loop {
            match far.peek() {
                Ok(None) => std::thread::yield_now(),
                Ok(Some(_)) => panic!("nothing was sent"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("rank 0"), "{error}");
    }
}
