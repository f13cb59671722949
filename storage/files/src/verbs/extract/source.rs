//! The archive's own bytes: read in pieces, not longer than somebody wants them, and what the file system says of them is not lost on the way
//! through whoever reads an archive from them.

use std::cell::Cell;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use eirene_files_protocol::Code;

use crate::errno::code;
use crate::server::Cancelled;

/// Bytes that are read at once.
const BUFFER: usize = 64 * 1024;

/// An archive that is open.
pub(super) struct Source {
    shared: Rc<Shared>,
}

struct Shared {
    file: OwnedFd,
    bytes: u64,
    cancelled: Cancelled,
    /// Why the file could not be read, where that is why an archive could not.
    trouble: Cell<Option<Code>>,
}

impl Source {
    pub(super) fn new(file: OwnedFd, bytes: u64, cancelled: Cancelled) -> Self {
        Self { shared: Rc::new(Shared { file, bytes, cancelled, trouble: Cell::new(None) }) }
    }

    /// Size of the archive.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// Reads at a place, as many bytes as there are.
    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize, Code> {
        let mut length = 0;
        while length < buffer.len() {
            match self.shared.read(&mut buffer[length..], at + length as u64)? {
                0 => break,
                read => length += read,
            }
        }
        Ok(length)
    }

    /// Reads exactly as many bytes as the buffer has.
    pub(super) fn read_all_at(&self, buffer: &mut [u8], at: u64) -> Result<(), Code> {
        if self.read_at(buffer, at)? == buffer.len() { Ok(()) } else { Err(Code::NotAnArchive) }
    }

    /// The bytes from one place to another, one after the other.
    pub(super) fn stream(&self, from: u64, to: u64) -> Bytes {
        let shared = Rc::clone(&self.shared);
        let to = to.min(self.shared.bytes);
        Bytes { shared, at: from.min(to), to, buffer: vec![0; BUFFER], next: 0, filled: 0 }
    }

    /// Why reading failed: the file's own trouble, or that it is no archive.
    pub(super) fn why(&self) -> Code {
        self.shared.trouble.get().unwrap_or(Code::NotAnArchive)
    }
}

impl Shared {
    fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize, Code> {
        let read = self
            .cancelled
            .check()
            .and_then(|()| rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut *buffer, at)).map_err(code));
        read.inspect_err(|why| self.trouble.set(Some(*why)))
    }
}

/// A part of an archive.
pub(super) struct Bytes {
    shared: Rc<Shared>,
    at: u64,
    to: u64,
    buffer: Vec<u8>,
    next: usize,
    filled: usize,
}

impl Read for Bytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.next == self.filled {
            let count = usize::try_from(self.to - self.at).map_or(BUFFER, |left| left.min(BUFFER));
            let read = self.shared.read(&mut self.buffer[..count], self.at);
            (self.next, self.filled) = (0, read.map_err(|_| io::Error::other("the file cannot be read"))?);
            self.at += self.filled as u64;
        }
        let count = into.len().min(self.filled - self.next);
        into[..count].copy_from_slice(&self.buffer[self.next..self.next + count]);
        self.next += count;
        Ok(count)
    }
}
