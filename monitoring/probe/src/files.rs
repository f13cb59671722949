//! Files of the kernel that are read again and again: the descriptor is kept, and each look reads from the beginning.
//!
//! A descriptor of `/proc/PID/…` and of a control group is of that process or group for ever: once it has ended, reading fails, even where
//! the number or name has been given to another.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Most bytes of one file; the rest is not looked at.
pub(crate) const MOST_BYTES: usize = 512 * 1024;

/// Room into which files are read, used again for each.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Vec<u8>,
}

impl Room {
    /// What is in an open file now.
    pub(crate) fn read(&mut self, file: &File) -> io::Result<&[u8]> {
        self.bytes.resize(self.bytes.len().max(4096), 0);
        let mut length = 0;
        loop {
            if length == self.bytes.len() {
                if length >= MOST_BYTES {
                    break;
                }
                self.bytes.resize(length * 2, 0);
            }
            match file.read_at(self.bytes.get_mut(length..).unwrap_or_default(), length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.bytes.get(..length).unwrap_or_default())
    }

    /// The text of an open file now.
    pub(crate) fn text(&mut self, file: &File) -> Option<Cow<'_, str>> {
        self.read(file).ok().map(String::from_utf8_lossy)
    }

    /// The text of a file that is opened for this once.
    pub(crate) fn once(&mut self, path: &Path) -> Option<Cow<'_, str>> {
        let file = File::open(path).ok()?;
        self.read(&file).ok().map(String::from_utf8_lossy)
    }
}

/// A file that is kept open. Where it is gone it is opened anew at the next look, because a mount may come back.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: Option<File>,
}

impl Kept {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// What it says now.
    pub(crate) fn text<'a>(&mut self, room: &'a mut Room) -> Option<Cow<'a, str>> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let file = self.file.as_ref()?;
        let text = room.read(file).ok().map(String::from_utf8_lossy);
        if text.is_none() {
            self.file = None;
        }
        text
    }
}
