//! What is known of an upload, in a file beside its bytes: two slots of one block each, written in turns and in place.
//!
//! In place, because a full file system and a quota that is used up leave no room for a new file, and that is exactly when it must be written
//! down how far an upload came. In turns, because a write that is torn by a power cut leaves the slot before it as it was. Each slot begins
//! with a checksum; the readable one with the higher number counts.
//!
//! Where others may write to the directory, this file may be anybody's: it counts only as a plain file of the person's with one name.

use std::os::fd::OwnedFd;

use data_encoding::HEXLOWER;
use eirene_files_protocol::{Code, Digest, EntryKind, Moment, Moved, Name, OnConflict, PartId};
use serde::{Deserialize, Serialize};
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest as _, Sha256};

use crate::beneath::Place;
use crate::errno::code;

/// Bytes of a slot.
const SLOT: usize = 4096;
/// Hex digits of a slot's checksum.
const CHECK: usize = 16;

/// What is known of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// How often this was written.
    pub(crate) sequence: u64,
    /// The file of its bytes, which no other can pass itself off as.
    pub(crate) inode: u64,
    /// Its size in the end, where that is known.
    pub(crate) length: Option<u64>,
    /// How many bytes count.
    pub(crate) offset: u64,
    /// How many are certain to outlive a power cut.
    pub(crate) synced: u64,
    /// The system's start at which `offset` was true.
    pub(crate) boot: String,
    /// SHA-256 that the whole is to have.
    pub(crate) sha256: Option<Digest<32>>,
    /// The state of that sum, and how many bytes are in it.
    pub(crate) hashed: Option<Hashed>,
    /// What it will be called.
    pub(crate) name: Name,
    /// Where that is taken.
    pub(crate) on_conflict: OnConflict,
    /// Last change of content.
    pub(crate) modified: Option<Moment>,
    /// When it was made, in seconds since 1970.
    pub(crate) created: i64,
    /// Where the whole lies.
    pub(crate) finished: Option<Moved>,
}

/// A sum that goes on where it stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hashed {
    /// How many bytes are in it.
    pub(crate) bytes: u64,
    state: String,
}

impl Hashed {
    pub(crate) fn of(hasher: &Sha256, bytes: u64) -> Self {
        Self { bytes, state: HEXLOWER.encode(&hasher.serialize()) }
    }

    /// None where it is not of this version.
    pub(crate) fn hasher(&self) -> Option<Sha256> {
        let state = HEXLOWER.decode(self.state.as_bytes()).ok()?;
        Sha256::deserialize(state.as_slice().try_into().ok()?).ok()
    }
}

impl Known {
    /// How many bytes count, of a file of this size: never more than lie there, and after another start of the system no more than are
    /// certain.
    pub(crate) fn offset_now(&self, size: u64, boot: &str) -> u64 {
        let offset = if self.boot == boot { self.offset } else { self.synced.min(self.offset) };
        offset.min(size)
    }

    /// Everything that counts was to be made certain. Where that failed no more counts than was certain before: the kernel says once that it could
    /// not write something, and has forgotten it then (fsync(2)).
    pub(crate) fn reached_the_disk(&mut self, result: Result<(), Code>) -> Result<(), Code> {
        if result.is_ok() {
            self.synced = self.offset;
        } else {
            self.offset = self.synced.min(self.offset);
            self.hashed = self.hashed.take().filter(|hashed| hashed.bytes <= self.offset);
        }
        result
    }
}

/// The file beside an upload.
#[derive(Debug)]
pub(crate) struct Sidecar {
    file: OwnedFd,
}

impl Sidecar {
    /// Makes it.
    pub(crate) fn create(directory: &Place, id: PartId, known: &mut Known) -> Result<Self, Code> {
        let sidecar = Self { file: directory.create_private(&id.sidecar_name())? };
        // Both slots are there from the start: later writes need no more room.
        sidecar.write(known)?;
        sidecar.write(known)?;
        sidecar.sync()?;
        Ok(sidecar)
    }

    /// Opens it, with what is known.
    pub(crate) fn open(directory: &Place, id: PartId) -> Result<(Self, Known), Code> {
        let place = match directory.child(&id.sidecar_name()) {
            Err(Code::NotFound) => return Err(Code::UploadGone),
            other => other?,
        };
        let (kind, found) = place.look()?;
        if kind != EntryKind::File || found.stx_nlink != 1 || found.stx_uid != rustix::process::geteuid().as_raw() {
            return Err(Code::UploadGone);
        }
        let sidecar = Self { file: place.write()? };
        let known = sidecar.read()?;
        Ok((sidecar, known))
    }

    /// Reads what is known now: another writer may have gone on since it was opened.
    pub(crate) fn read(&self) -> Result<Known, Code> {
        let mut bytes = [0; 2 * SLOT];
        let mut length = 0;
        while length < bytes.len() {
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut bytes[length..], length as u64));
            match read.map_err(code)? {
                0 => break,
                read => length += read,
            }
        }
        let slots = bytes.chunks(SLOT).filter_map(parse);
        slots.max_by_key(|known| known.sequence).ok_or(Code::UploadGone)
    }

    /// Writes down what is known.
    pub(crate) fn write(&self, known: &mut Known) -> Result<(), Code> {
        known.sequence += 1;
        let slot = compose(known).ok_or(Code::Failed)?;
        let mut at = (known.sequence % 2) * SLOT as u64;
        let mut left = slot.as_slice();
        while !left.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.file, left, at)).map_err(code)?;
            left = &left[written..];
            at += written as u64;
        }
        Ok(())
    }

    /// Makes what was written outlive a power cut.
    pub(crate) fn sync(&self) -> Result<(), Code> {
        rustix::fs::fdatasync(&self.file).map_err(code)
    }
}

fn check(text: &[u8]) -> String {
    let sum: [u8; 32] = Sha256::digest(text).into();
    HEXLOWER.encode(&sum[..CHECK / 2])
}

fn compose(known: &Known) -> Option<Vec<u8>> {
    let mut text = serde_json::to_vec(known).ok()?;
    if text.len() > SLOT - CHECK {
        return None;
    }
    // White space behind the end is none of JSON's concern.
    text.resize(SLOT - CHECK, b'\n');
    Some([check(&text).as_bytes(), &text].concat())
}

fn parse(slot: &[u8]) -> Option<Known> {
    let (sum, text) = slot.split_at_checked(CHECK)?;
    if check(text).as_bytes() == sum { serde_json::from_slice(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let moved =
            |name: &[u8]| Moved { path: eirene_files_protocol::RelativePath::parse(name).unwrap(), trashed: None };
        let mut hasher = Sha256::new();
        hasher.update(b"some bytes");
        Known {
            sequence: u64::MAX - 9,
            inode: u64::MAX,
            length: Some(u64::MAX),
            offset: 900,
            synced: 500,
            boot: "boot".into(),
            sha256: Some(Digest([9; 32])),
            hashed: Some(Hashed::of(&hasher, 10)),
            name: Name::parse(&[1; 255]).unwrap(),
            on_conflict: OnConflict::KeepBoth,
            modified: Some(Moment { seconds: i64::MIN, nanoseconds: 999_999_999 }),
            created: i64::MAX,
            finished: Some(moved(b"d/name")),
        }
    }

    #[test]
    fn a_slot_comes_back_as_it_was_and_a_torn_one_not_at_all() {
        let known = known();
        let slot = compose(&known).unwrap();
        assert_eq!(slot.len(), SLOT);
        assert_eq!(parse(&slot).as_ref(), Some(&known));
        for place in [0, CHECK, CHECK + 1, 300, SLOT - 1] {
            let mut torn = slot.clone();
            torn[place] ^= 1;
            assert_eq!(parse(&torn), None, "{place}");
        }
        assert_eq!(parse(&slot[..SLOT - 1]), None);
        assert_eq!(parse(b""), None);
        assert_eq!(known.hashed.unwrap().hasher().unwrap().finalize(), Sha256::digest(b"some bytes"));
        let other = Hashed { bytes: 1, state: "00".into() };
        assert!(other.hasher().is_none(), "of another version");
    }

    #[test]
    fn no_more_counts_than_lies_there_and_than_is_certain_after_another_start() {
        let known = known();
        for (size, boot, offset) in [
            (1_000, "boot", 900),
            (900, "boot", 900),
            (700, "boot", 700),
            (1_000, "other", 500),
            (400, "other", 400),
            (0, "boot", 0),
        ] {
            assert_eq!(known.offset_now(size, boot), offset, "{size} {boot}");
        }
    }

    #[test]
    fn what_did_not_reach_the_disk_comes_again() {
        let mut known = known();
        assert_eq!(known.reached_the_disk(Ok(())), Ok(()));
        assert_eq!((known.offset, known.synced), (900, 900));
        (known.offset, known.hashed) = (1_000, Some(Hashed::of(&Sha256::new(), 1_000)));
        assert_eq!(known.reached_the_disk(Err(Code::Failed)), Err(Code::Failed));
        assert_eq!((known.offset, known.synced), (900, 900));
        assert_eq!(known.hashed, None, "it is the sum of other bytes");
        known.hashed = Some(Hashed::of(&Sha256::new(), 900));
        let _ = known.reached_the_disk(Err(Code::Failed));
        assert!(known.hashed.is_some());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_slot_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), good in proptest::bool::ANY) {
            // Also with the sum that is right for it.
            let slot = if good { [check(&bytes).as_bytes(), &bytes].concat() } else { bytes };
            proptest::prop_assert_eq!(parse(&slot), None);
        }
    }
}
