//! Segments: files that are written once and read until they are removed. Each has a block for each session, and a directory at the end that
//! says where; only the directory is kept in memory. The layout is in the crate's documentation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::block::{Block, BlockBuilder, Placed, milliseconds, read_index};
use crate::disk::{Disk, Kind, SegmentName, io_at};
use crate::wire::Reader;
use crate::{SessionId, StoreError};

const MAGIC: [u8; 8] = *b"EIRMS\0\0\x01";
/// Bytes of the directory for a session.
const ENTRY_BYTES: usize = 48;
/// Offset of the directory, number of entries, checksum, magic.
const TRAILER_BYTES: usize = 24;

/// Why a part of a segment could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Its file was removed meanwhile.
    Gone,
    /// A checksum is wrong.
    Broken,
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            io::ErrorKind::UnexpectedEof => Self::Broken,
            _ => Self::Io(error),
        }
    }
}

/// Where a session's block lies, and what times are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) session: SessionId,
    offset: u64,
    index_bytes: u32,
    pub(crate) bytes: u32,
    /// Milliseconds; of minutes where they begin.
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// A segment, with its directory.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    path: PathBuf,
    pub(crate) bytes: u64,
    /// By session.
    pub(crate) entries: Vec<Entry>,
}

impl Segment {
    /// Reads the directory of a file.
    pub(crate) fn open(disk: &Disk, name: SegmentName) -> Result<Self, ReadError> {
        let path = disk.path(&name.to_string());
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        let trailer_at = bytes.checked_sub(TRAILER_BYTES as u64).ok_or(ReadError::Broken)?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, trailer_at)?;
        let directory_at = Reader(&trailer).u64().ok_or(ReadError::Broken)?;
        // The count is as long as the file says, so that a wrong one asks for no memory.
        let length = trailer_at.checked_sub(directory_at).ok_or(ReadError::Broken)?;
        let mut directory = vec![0; usize::try_from(length).map_err(|_| ReadError::Broken)?];
        file.read_exact_at(&mut directory, directory_at)?;
        let entries = read_directory(&directory, &trailer, directory_at).ok_or(ReadError::Broken)?;
        Ok(Self { name, path, bytes, entries })
    }

    /// The session's entry.
    pub(crate) fn entry(&self, session: &SessionId) -> Option<&Entry> {
        let place = self.entries.binary_search_by(|entry| entry.session.cmp(session)).ok()?;
        self.entries.get(place)
    }

    /// The last time of all.
    pub(crate) fn last(&self) -> i64 {
        self.entries.iter().map(|entry| entry.last).max().unwrap_or(i64::MIN)
    }

    /// An error of the operating system about this file.
    pub(crate) fn error(&self, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path.clone(), source }
    }

    fn read(&self, offset: u64, bytes: u32) -> Result<Vec<u8>, ReadError> {
        let mut read = vec![0; bytes as usize];
        File::open(&self.path)?.read_exact_at(&mut read, offset)?;
        Ok(read)
    }

    /// The series of an entry, with times in milliseconds.
    pub(crate) fn series(&self, entry: &Entry) -> Result<Vec<Placed>, ReadError> {
        let mut series = read_index(&self.read(entry.offset, entry.index_bytes)?).ok_or(ReadError::Broken)?;
        for placed in &mut series {
            placed.first = milliseconds(self.name.kind, placed.first);
            placed.last = milliseconds(self.name.kind, placed.last);
        }
        Ok(series)
    }

    /// The bytes of an entry's block as they are, if they are right.
    pub(crate) fn copy(&self, entry: &Entry) -> Result<(Vec<u8>, usize), ReadError> {
        let bytes = self.read(entry.offset, entry.bytes)?;
        let index = entry.index_bytes as usize;
        Block::read(bytes.clone(), index).ok_or(ReadError::Broken)?;
        Ok((bytes, index))
    }

    /// An entry's block.
    pub(crate) fn block(&self, entry: &Entry) -> Result<Block, ReadError> {
        Block::read(self.read(entry.offset, entry.bytes)?, entry.index_bytes as usize).ok_or(ReadError::Broken)
    }
}

/// Directory and trailer have one checksum, which is in the trailer.
fn read_directory(directory: &[u8], trailer: &[u8], directory_at: u64) -> Option<Vec<Entry>> {
    let mut reader = Reader(trailer);
    reader.u64()?;
    let count = reader.u32()? as usize;
    let sum = reader.u32()?;
    if reader.array() != Some(MAGIC) || count.checked_mul(ENTRY_BYTES) != Some(directory.len()) {
        return None;
    }
    if checksum(directory, directory_at, count) != sum {
        return None;
    }
    let mut reader = Reader(directory);
    (0..count).map(|_| read_entry(&mut reader, directory_at)).collect()
}

fn checksum(directory: &[u8], directory_at: u64, count: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(directory);
    hasher.update(&directory_at.to_le_bytes());
    hasher.update(&(count as u32).to_le_bytes());
    hasher.finalize()
}

fn read_entry(reader: &mut Reader<'_>, directory_at: u64) -> Option<Entry> {
    let entry = Entry {
        session: SessionId(reader.array()?),
        offset: reader.u64()?,
        index_bytes: reader.u32()?,
        bytes: reader.u32()?,
        first: reader.i64()?,
        last: reader.i64()?,
    };
    let end = entry.offset.checked_add(u64::from(entry.bytes))?;
    (end <= directory_at && entry.index_bytes <= entry.bytes).then_some(entry)
}

/// A segment that is written.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    name: SegmentName,
    file: File,
    written: u64,
    entries: Vec<Entry>,
}

impl SegmentWriter {
    /// Bytes that a block takes, with its entry.
    pub(crate) fn cost(block: usize) -> u64 {
        (block + ENTRY_BYTES) as u64
    }

    /// Bytes that every segment takes.
    pub(crate) const FIXED: u64 = (MAGIC.len() + TRAILER_BYTES) as u64;

    pub(crate) fn begin(disk: &mut Disk, name: SegmentName) -> Result<Self, StoreError> {
        let mut writer = Self { name, file: disk.begin(&name.to_string())?, written: 0, entries: Vec::new() };
        writer.write(disk, &MAGIC)?;
        Ok(writer)
    }

    fn write(&mut self, disk: &mut Disk, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, self.written).map_err(io_at(&disk.path(&self.name.to_string())))?;
        self.written += bytes.len() as u64;
        disk.add(bytes.len() as u64);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the block of a session; sessions come in order.
    pub(crate) fn block(&mut self, disk: &mut Disk, session: SessionId, block: BlockBuilder) -> Result<(), StoreError> {
        let Some((first, last)) = block.span() else { return Ok(()) };
        let span = (milliseconds(self.name.kind, first), milliseconds(self.name.kind, last));
        let (bytes, index) = block.finish();
        self.copy(disk, session, span, &bytes, index)
    }

    /// Adds a block of which the bytes are known.
    pub(crate) fn copy(
        &mut self,
        disk: &mut Disk,
        session: SessionId,
        (first, last): (i64, i64),
        bytes: &[u8],
        index: usize,
    ) -> Result<(), StoreError> {
        let length = u32::try_from(bytes.len()).map_err(|_| StoreError::TooLarge)?;
        let entry = Entry { session, offset: self.written, index_bytes: index as u32, bytes: length, first, last };
        self.write(disk, bytes)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Ends it and gives it its name, which is there for good after [`Disk::sync`].
    pub(crate) fn finish(mut self, disk: &mut Disk) -> Result<Segment, StoreError> {
        if let Err(error) = self.end(disk) {
            self.abandon(disk);
            return Err(error);
        }
        let path = disk.path(&self.name.to_string());
        Ok(Segment { name: self.name, path, bytes: self.written, entries: self.entries })
    }

    fn end(&mut self, disk: &mut Disk) -> Result<(), StoreError> {
        let mut directory = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        for entry in &self.entries {
            directory.extend_from_slice(&entry.session.0);
            directory.extend_from_slice(&entry.offset.to_le_bytes());
            directory.extend_from_slice(&entry.index_bytes.to_le_bytes());
            directory.extend_from_slice(&entry.bytes.to_le_bytes());
            directory.extend_from_slice(&entry.first.to_le_bytes());
            directory.extend_from_slice(&entry.last.to_le_bytes());
        }
        let (directory_at, count) = (self.written, self.entries.len());
        let sum = checksum(&directory, directory_at, count);
        directory.extend_from_slice(&directory_at.to_le_bytes());
        directory.extend_from_slice(&(count as u32).to_le_bytes());
        directory.extend_from_slice(&sum.to_le_bytes());
        directory.extend_from_slice(&MAGIC);
        self.write(disk, &directory)?;
        disk.finish(&self.name.to_string(), &self.file)
    }

    /// Removes what was written.
    pub(crate) fn abandon(self, disk: &mut Disk) {
        disk.abandon(&self.name.to_string());
        disk.subtract(self.written);
    }
}

/// The name under which a segment of `kind` holds journals.
pub(crate) fn name(kind: Kind, lowest: u64, highest: u64) -> SegmentName {
    SegmentName { kind, lowest, highest, version: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(disk: &mut Disk) -> Segment {
        let mut writer = SegmentWriter::begin(disk, name(Kind::Raw, 1, 2)).unwrap();
        for id in [3, 7] {
            let mut block = BlockBuilder::default();
            assert!(block.raw("a", &[(i64::from(id), 1.0), (100, 2.0)]));
            writer.block(disk, SessionId([id; 16]), block).unwrap();
        }
        writer.finish(disk).unwrap()
    }

    #[test]
    fn a_segment_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _lock) = Disk::open(dir.path(), 1 << 20).unwrap();
        let segment = written(&mut disk);
        let again = Segment::open(&disk, segment.name).unwrap();
        assert_eq!((again.bytes, &again.entries), (disk.used(), &segment.entries));
        assert!(again.entry(&SessionId([4; 16])).is_none());
        let entry = again.entry(&SessionId([7; 16])).unwrap();
        assert_eq!((entry.first, entry.last), (7, 100));
        let mut block = again.block(entry).unwrap();
        let placed = block.series.clone();
        assert_eq!(block.raw(&placed[0]).unwrap(), [(7, 1.0), (100, 2.0)]);
        assert_eq!(again.series(entry).unwrap(), placed);
    }

    #[test]
    fn a_wrong_byte_or_a_cut_is_found_at_every_place() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _lock) = Disk::open(dir.path(), 1 << 20).unwrap();
        let segment = written(&mut disk);
        let path = disk.path(&segment.name.to_string());
        let bytes = std::fs::read(&path).unwrap();
        let read = || -> Result<(), ReadError> {
            let segment = Segment::open(&disk, segment.name)?;
            segment.entries.iter().try_for_each(|entry| segment.block(entry).map(drop))
        };
        read().unwrap();
        for place in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[place] ^= 0x10;
            std::fs::write(&path, &wrong).unwrap();
            // The magic at the begin is for people and file(1).
            assert!(matches!(read(), Err(ReadError::Broken)) || place < MAGIC.len(), "{place}");
            std::fs::write(&path, &bytes[..place]).unwrap();
            assert!(matches!(read(), Err(ReadError::Broken)), "{place}");
        }
    }
}
