//! Messages over a TCP connection that nobody else can read or change: heads and contents as in [`super::Stream`], sealed in records.
//!
//! A record is 8 bytes that say how long it is, so many sealed bytes, and the 16 bytes that prove both. It holds bytes of one message: the head
//! and what follows it, or what follows that. All records of a message but the last hold its content in whole words, so that no element is cut.
//! A length is believed before its record is proven, but none is believed that is longer than a record may be, and the room for that is there.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use eirene_train_mesh::{KeepFromForks, Opening, Sealing, TAG};

use super::Outgoing;
use super::stream::bytes_of;
use crate::error::Error;
use crate::message::{HEAD, Head};

/// Most bytes that one record seals: the cipher has reached its full speed, and a record's plain bytes are still in the cache when they are used.
pub(super) const RECORD: usize = 64 << 10;
/// Bytes of a record's length.
pub(super) const LENGTH: usize = 8;
/// A whole record as it goes over the wire.
pub(super) const WIRE: usize = LENGTH + RECORD + TAG;
/// Records that are sent or read at once, where there are as many. A row of full ones leaves no part of a record behind, and fewer of the small
/// packets with which a system call ends.
const AT_ONCE: usize = 4;

/// A sealed connection to a rank of another node.
pub(crate) struct Sealed {
    rank: u32,
    /// A forked data loader must not keep the connection open when this rank dies. Goes before the socket does.
    _own: KeepFromForks,
    socket: TcpStream,
    sealing: Sealing,
    opening: Opening,
    /// The records that are going out: bytes up to `full`, of which those before `gone` have left.
    out: Vec<u8>,
    gone: usize,
    full: usize,
    /// What came, in whole words so that elements are aligned. Records from `next` to `filled` are still sealed.
    raw: Vec<u64>,
    next: usize,
    filled: usize,
    /// What was opened and not yet taken: content of the message that is coming in.
    begin: usize,
    end: usize,
    /// That message, and bytes of its content that were taken.
    head: Option<Head>,
    taken: u64,
}

impl Sealed {
    /// Of a connection to `rank`, and what both ends seal with.
    pub(crate) fn new(rank: u32, socket: TcpStream, (sealing, opening): (Sealing, Opening)) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Connection { rank, reason: error.to_string() };
        socket.set_nonblocking(true).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let own = KeepFromForks::new(socket.as_fd());
        Ok(Self {
            rank,
            _own: own,
            socket,
            sealing,
            opening,
            out: Vec::new(),
            gone: 0,
            full: 0,
            raw: Vec::new(),
            next: 0,
            filled: 0,
            begin: 0,
            end: 0,
            head: None,
            taken: 0,
        })
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::Connection { rank: self.rank, reason: error.to_string() }
    }

    fn altered(&self) -> Error {
        Error::Connection { rank: self.rank, reason: eirene_train_mesh::Altered.to_string() }
    }

    /// Sends what can be sent now; true once all has left. A message's last record leaves before the next message begins.
    pub(super) fn push(&mut self, message: &mut Outgoing) -> Result<bool, Error> {
        loop {
            while self.gone < self.full {
                match self.socket.write(&self.out[self.gone..self.full]) {
                    Ok(bytes) => self.gone += bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.failed(&error)),
                }
            }
            if message.is_done() {
                return Ok(true);
            }
            (self.gone, self.full) = (0, 0);
            while !message.is_done() && self.full < AT_ONCE * WIRE {
                self.seal(message);
            }
        }
    }

    /// Seals the next record of a message, behind those that are sealed already.
    fn seal(&mut self, message: &mut Outgoing) {
        if self.out.is_empty() {
            self.out = vec![0; AT_ONCE * WIRE];
        }
        let out = &mut self.out[self.full..];
        let mut end = LENGTH;
        if !message.begun {
            out[end..end + HEAD].copy_from_slice(&message.head.to_bytes());
            end += HEAD;
            message.begun = true;
        }
        while end < LENGTH + RECORD && message.sent < message.what.bytes() {
            let run = message.what.at(message.sent);
            let bytes = run.bytes.min(LENGTH + RECORD - end);
            #[expect(unsafe_code, reason = "reads the caller's memory")]
            // SAFETY: the caller's memory stays and is not written while its message is on its way.
            let content = unsafe { std::slice::from_raw_parts(run.address, bytes) };
            out[end..end + bytes].copy_from_slice(content);
            end += bytes;
            message.sent += bytes;
        }
        let length = ((end - LENGTH) as u64).to_le_bytes();
        out[..LENGTH].copy_from_slice(&length);
        let tag = self.sealing.seal(&length, &mut out[LENGTH..end]);
        out[end..end + TAG].copy_from_slice(&tag);
        self.full += end + TAG;
    }

    /// How long the record is that comes next, as far as it says so.
    fn length(&mut self) -> Result<Option<usize>, Error> {
        let here = &bytes_of(&mut self.raw)[self.next..self.filled];
        let Some(length) = here.first_chunk().map(|length| u64::from_le_bytes(*length)) else { return Ok(None) };
        match usize::try_from(length) {
            Ok(length @ 1..=RECORD) => Ok(Some(length)),
            _ => Err(self.altered()),
        }
    }

    /// Opens the next record, once all of the one before was taken; false if it is not here.
    fn open(&mut self) -> Result<bool, Error> {
        loop {
            if let Some(length) = self.length()?
                && self.filled - self.next >= LENGTH + length + TAG
            {
                self.open_record(length)?;
                return Ok(true);
            }
            if !self.read()? {
                return Ok(false);
            }
        }
    }

    fn open_record(&mut self, length: usize) -> Result<(), Error> {
        let from = self.next + LENGTH;
        let to = from + length;
        // Where elements are aligned: a few bytes further to the front, if anywhere.
        let begin = from / 8 * 8;
        let raw = bytes_of(&mut self.raw);
        let (front, behind) = raw.split_at_mut(to);
        let tag = *behind.first_chunk().unwrap_or(&[0; TAG]);
        let aside = (length as u64).to_le_bytes();
        let opened = self.opening.open(&aside, &mut front[begin..], from - begin, &tag);
        opened.map_err(|_| Error::Connection { rank: self.rank, reason: eirene_train_mesh::Altered.to_string() })?;
        (self.begin, self.end) = (begin, begin + length);
        self.next = to + TAG;
        Ok(())
    }

    /// Reads what is here; false if nothing is.
    fn read(&mut self) -> Result<bool, Error> {
        if self.raw.is_empty() {
            self.raw = vec![0; (AT_ONCE * WIRE).div_ceil(8)];
        }
        let raw = bytes_of(&mut self.raw);
        if self.next == self.filled || self.next + WIRE > AT_ONCE * WIRE {
            // A part of a record moves to the front, where the rest can follow.
            raw.copy_within(self.next..self.filled, 0);
            (self.next, self.filled) = (0, self.filled - self.next);
        }
        loop {
            match self.socket.read(&mut raw[self.filled..AT_ONCE * WIRE]) {
                Ok(0) => {
                    return Err(Error::Connection {
                        rank: self.rank,
                        reason: "it was closed by the other side".to_owned(),
                    });
                }
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// That a record's content is its message's, and cuts no element.
    fn check(&self, head: &Head) -> Result<(), Error> {
        let (here, rest) = ((self.end - self.begin) as u64, head.bytes - self.taken);
        if here == rest || (here < rest && here.is_multiple_of(8)) {
            return Ok(());
        }
        let reason = format!("a record of {here} bytes came where {rest} are missing of a message");
        Err(Error::Connection { rank: self.rank, reason })
    }

    /// As [`super::Link::next`].
    pub(super) fn head(&mut self) -> Result<Option<Head>, Error> {
        if self.head.is_none() {
            if !self.open()? {
                return Ok(None);
            }
            let opened = &bytes_of(&mut self.raw)[self.begin..self.end];
            let Some(head) = opened.first_chunk::<HEAD>().map(Head::from_bytes) else {
                let reason = format!("a record of {} bytes came where a message begins", opened.len());
                return Err(Error::Connection { rank: self.rank, reason });
            };
            self.begin += HEAD;
            self.check(&head)?;
            self.head = Some(head);
        }
        Ok(self.head)
    }

    /// The head of the message that comes next; and its content is opened, as far as a record of it is here.
    fn content(&mut self) -> Result<Option<Head>, Error> {
        let Some(head) = self.head()? else { return Ok(None) };
        if self.begin == self.end && self.taken < head.bytes && self.open()? {
            self.check(&head)?;
        }
        Ok(Some(head))
    }

    /// As [`super::Link::peek`].
    pub(super) fn peek(&mut self) -> Result<Option<(Head, &[u8])>, Error> {
        let Some(head) = self.content()? else { return Ok(None) };
        Ok(Some((head, &bytes_of(&mut self.raw)[self.begin..self.end])))
    }

    /// As [`super::Link::take`].
    pub(super) fn take(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.begin, "no more is taken than is there");
        self.begin += bytes;
        self.taken += bytes as u64;
        if self.head.is_some_and(|head| head.bytes == self.taken) {
            (self.head, self.taken) = (None, 0);
        }
    }

    /// As [`super::Link::store`].
    pub(super) fn store(&mut self, address: *mut u8, room: usize) -> Result<usize, Error> {
        if self.content()?.is_none() {
            return Ok(0);
        }
        let content = &bytes_of(&mut self.raw)[self.begin..self.end];
        let bytes = content.len().min(room);
        #[expect(unsafe_code, reason = "writes the caller's memory")]
        // SAFETY: the caller's memory has room for so much and nobody else uses it.
        unsafe {
            address.copy_from_nonoverlapping(content.as_ptr(), bytes);
        }
        self.take(bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::extent::{Extent, Extents};
    use crate::link::{Link, Stream};

    /// Two connected sockets, and what has gone over the wire between them in either direction.
    fn through_a_relay() -> (TcpStream, TcpStream, Arc<Mutex<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let ((near, one), (far, other)) = (connect(), connect());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (mut from, mut to) in [(one.try_clone().unwrap(), other.try_clone().unwrap()), (other, one)] {
            let seen = Arc::clone(&seen);
            // Ends with its connection.
            std::thread::spawn(move || {
                let mut buffer = [0; 5000];
                while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                    seen.lock().unwrap().extend_from_slice(&buffer[..bytes]);
                    if to.write_all(&buffer[..bytes]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
        (near, far, seen)
    }

    fn ends() -> [(Sealing, Opening); 2] {
        [(1, 2), (2, 1)].map(|(ours, theirs)| (Sealing::new([ours; 32].into()), Opening::new([theirs; 32].into())))
    }

    /// Sends a message over a link and receives it from another.
    fn carry(near: &mut Link, far: &mut Link, content: &[u8]) {
        let mut sent = content.to_vec();
        let mut what = Extents::empty();
        what.push(Extent { address: sent.as_mut_ptr(), bytes: sent.len() });
        let mut message = Outgoing::new(Head { call: 0x4d41_524b, ..Head::default() }, what);
        let mut got = Vec::new();
        let mut pushed = false;
        while !pushed || got.len() < content.len() {
            pushed = pushed || near.push(&mut message).unwrap();
            if let Some((_, content)) = far.peek().unwrap() {
                let bytes = content.len();
                got.extend_from_slice(content);
                far.take(bytes);
            }
        }
        assert!(got == content);
    }

    #[test]
    fn who_is_on_the_wire_sees_nothing_of_what_goes_over_it() {
        const MARKER: &[u8; 16] = b"gradient, layer ";
        let content = MARKER.repeat(20_000);
        for is_sealed in [true, false] {
            let (near, far, seen) = through_a_relay();
            let [ours, theirs] = ends();
            let mut both = if is_sealed {
                let both = [Sealed::new(1, near, ours).unwrap(), Sealed::new(0, far, theirs).unwrap()];
                both.map(|sealed| Link::Sealed(Box::new(sealed)))
            } else {
                [(1, near), (0, far)].map(|(rank, socket)| Link::Stream(Stream::new(rank, socket).unwrap()))
            };
            let [near, far] = &mut both;
            carry(near, far, &content);
            carry(far, near, &content);
            let seen = seen.lock().unwrap();
            assert!(seen.len() > 2 * content.len());
            let shows = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
            assert_eq!(shows(MARKER), !is_sealed);
            assert_eq!(shows(&0x4d41_524b_u64.to_le_bytes()), !is_sealed);
        }
    }
}
