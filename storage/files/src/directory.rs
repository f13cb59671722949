//! The names in a directory, read in one go and kept close together: a hundred thousand of them are a few megabytes.

mod ahead;

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use eirene_files_protocol::Code;
use rustix::fs::RawDir;

use crate::errno::code;
use crate::server::Cancelled;

/// Bytes asked for at once.
const BUFFER: usize = 64 * 1024;
/// The same, of a walk.
const SOME: usize = 32 * 1024;
/// Most names, and most bytes of names, that are looked at: what is beyond is only known to be there.
const MOST_NAMES: usize = 2_000_000;
const MOST_NAME_BYTES: usize = 48 * 1024 * 1024;

/// Names of a directory, in its own order, without `.` and `..`.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    at_least: bool,
}

impl Names {
    pub(crate) fn read(directory: &OwnedFd, cancelled: &Cancelled) -> Result<Self, Code> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let names = Self::read_all(directory, cancelled, || ahead::begin(scope, directory, &is_over));
            is_over.store(true, Ordering::Relaxed);
            names
        })
    }

    /// Reads all names; `read_ahead` is called where the first of them were not in memory.
    fn read_all(directory: &OwnedFd, cancelled: &Cancelled, read_ahead: impl FnOnce()) -> Result<Self, Code> {
        let mut read_ahead = Some(read_ahead);
        let before = ahead::blocks_read();
        let mut names = Self::default();
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(code)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.ends.len() == MOST_NAMES || names.bytes.len() + name.len() > MOST_NAME_BYTES {
                names.at_least = true;
                break;
            }
            names.bytes.extend_from_slice(name);
            names.ends.push(names.bytes.len() as u32);
            if names.ends.len().is_multiple_of(1024) {
                cancelled.check()?;
            }
            if entries.is_buffer_empty()
                && let Some(read_ahead) = read_ahead.take()
                && ahead::blocks_read() > before
            {
                read_ahead();
            }
        }
        Ok(names)
    }

    /// The next names of a directory, as many as one look gives: none at its end. A walk holds no more of a directory than this.
    pub(crate) fn read_some(directory: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<Self, Code> {
        let mut names = Self::default();
        buffer.clear();
        buffer.reserve(SOME);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(code)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.bytes.extend_from_slice(name);
                names.ends.push(names.bytes.len() as u32);
            }
            let last = entries.is_buffer_empty();
            if last && names.len() > 0 {
                break;
            }
        }
        Ok(names)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are more.
    pub(crate) fn at_least(&self) -> bool {
        self.at_least
    }

    /// The name at a place, as the directory has it.
    pub(crate) fn get(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let start = if place == 0 { 0 } else { self.ends[place - 1] as usize };
        &self.bytes[start..self.ends[place] as usize]
    }
}

/// Some names of a directory by their inodes' numbers, the order in which a file system keeps what is known of them: what is asked of the disk in
/// that order is read once and in one direction. Its memory is used again and again.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    buffer: Vec<u8>,
    /// Each with its NUL.
    bytes: Vec<u8>,
    /// Inode, beginning and end.
    names: Vec<(u64, u32, u32)>,
}

impl Batch {
    /// Takes the next names of a directory in place of those before; whether there were any.
    pub(crate) fn read(&mut self, directory: BorrowedFd<'_>) -> Result<bool, Code> {
        self.bytes.clear();
        self.names.clear();
        self.buffer.clear();
        self.buffer.reserve(BUFFER);
        let mut entries = RawDir::new(directory, self.buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(code)?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let start = self.bytes.len() as u32;
                self.bytes.extend_from_slice(name.to_bytes_with_nul());
                self.names.push((entry.ino(), start, self.bytes.len() as u32));
            }
            if entries.is_buffer_empty() && !self.names.is_empty() {
                break;
            }
        }
        self.names.sort_unstable();
        Ok(!self.names.is_empty())
    }

    /// The names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &CStr> {
        let name = |(_, start, end): &(u64, u32, u32)| &self.bytes[*start as usize..*end as usize];
        self.names.iter().map(name).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    }
}
