//! The journal: what was taken since the last segment, in the order it came, so that a crash loses no more than the last frame.
//!
//! Only flushes append to it. A frame that is not whole ends it: what is behind was never said to be on the disk. What records mean to the
//! open chunks is for [`crate::open`].

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::SessionId;
use crate::StoreError;
use crate::disk::{Disk, FileName, io_at};
use crate::wire::{Reader, put, put_signed};

const MAGIC: [u8; 8] = *b"EIRMJ\0\0\x01";
/// Magic, number and their checksum.
const HEADER_BYTES: usize = 20;
/// Length and checksum of a frame.
const FRAME_HEAD_BYTES: usize = 8;

const DEFINE: u64 = 0;
const SAMPLE: u64 = 1;
const DROP: u64 = 2;
const CHUNK: u64 = 3;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Record<'a> {
    /// A number stands for a series from here on in this journal; what is up to `floor` is closed.
    Define {
        reference: u32,
        session: SessionId,
        name: &'a str,
        floor: i64,
    },
    Sample {
        reference: u32,
        at: i64,
        value: f64,
    },
    /// Samples that stayed open while others were closed, as [`crate::head::Chunk`] has them.
    Chunk {
        reference: u32,
        count: u32,
        bits: &'a [u8],
    },
    /// The session's samples up to here are gone.
    Drop {
        session: SessionId,
    },
}

impl<'a> Record<'a> {
    pub(crate) fn define(out: &mut Vec<u8>, reference: u32, session: SessionId, name: &str, floor: i64) {
        put(out, (u64::from(reference) << 2) | DEFINE);
        out.extend_from_slice(&session.0);
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        put_signed(out, floor);
    }

    /// `last` is the time of the sample before in the same frame.
    pub(crate) fn sample(out: &mut Vec<u8>, last: &mut i64, reference: u32, at: i64, value: f64) {
        put(out, (u64::from(reference) << 2) | SAMPLE);
        put_signed(out, at.wrapping_sub(*last));
        *last = at;
        out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn chunk(out: &mut Vec<u8>, reference: u32, count: u32, bits: &[u8]) {
        put(out, (u64::from(reference) << 2) | CHUNK);
        put(out, u64::from(count));
        put(out, bits.len() as u64);
        out.extend_from_slice(bits);
    }

    pub(crate) fn drop_session(out: &mut Vec<u8>, session: SessionId) {
        put(out, DROP);
        out.extend_from_slice(&session.0);
    }

    fn read(reader: &mut Reader<'a>, last: &mut i64) -> Option<Self> {
        let tag = reader.number()?;
        let reference = u32::try_from(tag >> 2).ok()?;
        match tag & 3 {
            DEFINE => {
                let session = SessionId(reader.array()?);
                let length = usize::from(reader.byte()?);
                let name = std::str::from_utf8(reader.bytes(length)?).ok()?;
                Some(Self::Define { reference, session, name, floor: reader.signed()? })
            }
            SAMPLE => {
                *last = last.wrapping_add(reader.signed()?);
                Some(Self::Sample { reference, at: *last, value: f64::from_le_bytes(reader.array()?) })
            }
            CHUNK => {
                let (count, length) = (u32::try_from(reader.number()?).ok()?, reader.size()?);
                Some(Self::Chunk { reference, count, bits: reader.bytes(length)? })
            }
            DROP => Some(Self::Drop { session: SessionId(reader.array()?) }),
            _ => None,
        }
    }
}

/// A journal that is written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    name: String,
    /// Bytes that are whole and on the disk. What lies behind is written over.
    length: u64,
}

impl Journal {
    /// Bytes that a frame of `payload` takes on the disk, in a new journal or not.
    pub(crate) fn cost(payload: usize) -> u64 {
        (payload + FRAME_HEAD_BYTES + HEADER_BYTES) as u64
    }

    /// Begins journal `number`.
    pub(crate) fn create(disk: &mut Disk, number: u64) -> Result<Self, StoreError> {
        let name = FileName::Journal(number).to_string();
        let file = disk.begin(&name)?;
        let header = header(number);
        let journal = Self { file, name, length: header.len() as u64 };
        journal.file.write_all_at(&header, 0).map_err(io_at(&disk.path(&journal.name)))?;
        disk.finish(&journal.name, &journal.file)?;
        disk.sync()?;
        disk.add(journal.length);
        Ok(journal)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Adds a frame and waits until the disk has it. After an error the same frame can be tried again.
    pub(crate) fn write(&mut self, disk: &mut Disk, payload: &[u8]) -> Result<(), StoreError> {
        let mut head = Vec::with_capacity(FRAME_HEAD_BYTES);
        head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        head.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let (at, file) = (self.length + head.len() as u64, &self.file);
        // The payload can be large, so it is not copied behind its head. What is torn has no right checksum.
        let written = file.write_all_at(&head, self.length).and_then(|()| file.write_all_at(payload, at));
        written.and_then(|()| file.sync_data()).map_err(io_at(&disk.path(&self.name)))?;
        let whole = at + payload.len() as u64;
        disk.add(whole - self.length);
        self.length = whole;
        Ok(())
    }
}

fn header(number: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&number.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    header
}

/// Calls `each` with every record of a journal's bytes; gives how many of them are whole, none where not even the header is.
pub(crate) fn replay(bytes: &[u8], number: u64, mut each: impl FnMut(Record<'_>)) -> Option<usize> {
    let mut reader = Reader(bytes);
    if reader.bytes(HEADER_BYTES)? != header(number) {
        return None;
    }
    let mut whole = HEADER_BYTES;
    while let Some(payload) = frame(&mut reader) {
        whole = bytes.len() - reader.0.len();
        let (mut records, mut last) = (Reader(payload), 0);
        // What has a right checksum was written by us, so that this ends where the payload does.
        while let Some(record) = Record::read(&mut records, &mut last) {
            each(record);
        }
    }
    Some(whole)
}

fn frame<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = reader.u32()? as usize;
    let checksum = reader.u32()?;
    let payload = reader.bytes(length)?;
    // Zeros, which a file system may leave behind a crash, are no frame.
    (length > 0 && crc32fast::hash(payload) == checksum).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _lock) = Disk::open(dir.path(), 1 << 20).unwrap();
        let mut journal = Journal::create(&mut disk, 5).unwrap();
        for frame in 0..3 {
            let (mut payload, mut last) = (Vec::new(), 0);
            Record::define(&mut payload, frame, SessionId([1; 16]), "c1/cpu", -7);
            Record::sample(&mut payload, &mut last, frame, 1_700_000_000_000, 1.5);
            Record::sample(&mut payload, &mut last, frame, 1_700_000_005_000, 2.5);
            Record::drop_session(&mut payload, SessionId([2; 16]));
            journal.write(&mut disk, &payload).unwrap();
        }
        assert_eq!(journal.length(), disk.used());
        std::fs::read(disk.path("journal-0000000000000005")).unwrap()
    }

    #[test]
    fn chunks_come_back_and_cut_ones_do_not() {
        let mut payload = Vec::new();
        Record::chunk(&mut payload, 70_000, 300, &[1, 2, 3]);
        let read = |bytes: &[u8]| Record::read(&mut Reader(bytes), &mut 0).map(|record| format!("{record:?}"));
        assert_eq!(read(&payload).unwrap(), "Chunk { reference: 70000, count: 300, bits: [1, 2, 3] }");
        assert!((0..payload.len()).all(|cut| read(&payload[..cut]).is_none()));
    }

    #[test]
    fn records_come_back() {
        let bytes = journal();
        let mut said = Vec::new();
        let whole = replay(&bytes, 5, |record| said.push(format!("{record:?}")));
        assert_eq!(whole, Some(bytes.len()));
        assert_eq!(said.len(), 12);
        assert!(said[9].contains("Sample { reference: 2, at: 1700000000000, value: 1.5 }"), "{}", said[9]);
        assert_eq!(replay(&bytes, 6, |_| {}), None);
    }

    #[test]
    fn a_journal_cut_at_any_byte_gives_its_whole_frames() {
        let bytes = journal();
        let frame = (bytes.len() - HEADER_BYTES) / 3;
        for cut in 0..bytes.len() {
            let mut count = 0;
            let whole = replay(&bytes[..cut], 5, |_| count += 1);
            if cut < HEADER_BYTES {
                assert_eq!(whole, None);
                continue;
            }
            let frames = (cut - HEADER_BYTES) / frame;
            assert_eq!((whole, count), (Some(HEADER_BYTES + frames * frame), frames * 4));
        }
    }

    #[test]
    fn a_wrong_byte_anywhere_costs_its_frame_and_what_is_behind() {
        let bytes = journal();
        for place in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[place] ^= 0x40;
            let mut count = 0;
            let whole = replay(&wrong, 5, |_| count += 1);
            assert!(whole.is_none_or(|whole| whole <= place), "{place}");
            assert!(count < 12);
        }
    }
}
