//! Where what was measured is kept: one file for a person and a space, written on at its end.
//!
//! The file begins with eight bytes that say what it is. Records follow: their length and their CRC-32, both 32 bits, the lower bytes first, then
//! JSON. Whatever ends before it is whole, or is not what its sum says, is the tail that a power cut left, and is cut off. Losing records costs
//! measuring again and nothing else, so nothing is waited for until it is on the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use eirene_files_protocol::RelativePath;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::tree::{Directory, Tree};

const MAGIC: &[u8; 8] = b"EIRSCAN1";
/// Longest record; a longer one is not ours.
const MOST_BYTES: usize = 64 * 1024;

/// What is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    /// A round began.
    Begun {
        /// When: what was measured since is fresh.
        at: Timestamp,
        /// Below which directory.
        path: RelativePath,
        /// Whether nothing that is written before it is of this round.
        #[serde(default)]
        anew: bool,
    },
    /// A directory was measured to its end.
    Measured(Directory),
    /// A directory is not there any more.
    Gone(RelativePath),
    /// Its owner ended the round, or it failed for good. It can be gone on with.
    Stopped,
    /// The round is over.
    Done {
        /// When.
        at: Timestamp,
        /// Whether files with several names may have been counted twice.
        approximate: bool,
        /// How much could not be looked at.
        skipped: u64,
    },
}

/// A round: one measuring of all below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// When it began.
    pub(super) begun: Timestamp,
    /// Below which directory.
    pub(super) path: RelativePath,
    /// How it is.
    pub(super) state: RoundState,
}

/// How a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundState {
    /// Under way, when it was last written.
    Open,
    /// Ended before it was over.
    Stopped,
    /// Over.
    Done {
        /// When.
        at: Timestamp,
        /// Whether files with several names may have been counted twice.
        approximate: bool,
        /// How much could not be looked at.
        skipped: u64,
    },
}

/// What is kept of a space.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// The directories.
    pub(super) tree: Tree,
    /// The last round.
    pub(super) round: Option<Round>,
}

impl Kept {
    /// Takes a record.
    pub(super) fn take(&mut self, record: Record) {
        let since = self.round.as_ref().map_or(Timestamp::MIN, |round| round.begun);
        match record {
            Record::Begun { at, path, anew } => {
                if anew {
                    self.tree.age(at);
                }
                self.round = Some(Round { begun: at, path, state: RoundState::Open });
            }
            Record::Measured(directory) => self.tree.put(directory, since),
            Record::Gone(path) => self.tree.forget(&path, since),
            Record::Stopped => self.end(RoundState::Stopped),
            Record::Done { at, approximate, skipped } => self.end(RoundState::Done { at, approximate, skipped }),
        }
    }

    fn end(&mut self, state: RoundState) {
        if let Some(round) = &mut self.round {
            round.state = state;
        }
    }

    /// The same in as few records as can be.
    fn records(&self) -> Vec<Record> {
        // Directories as they are, whatever the round: those above come after those below, as they are measured.
        let mut directories: Vec<&Directory> = self.tree.all().collect();
        directories.reverse();
        let mut records: Vec<Record> = directories.into_iter().cloned().map(Record::Measured).collect();
        if let Some(round) = &self.round {
            records.push(Record::Begun { at: round.begun, path: round.path.clone(), anew: false });
            match round.state {
                RoundState::Open => {}
                RoundState::Stopped => records.push(Record::Stopped),
                RoundState::Done { at, approximate, skipped } => {
                    records.push(Record::Done { at, approximate, skipped });
                }
            }
        }
        records
    }
}

/// A file that is written on.
#[derive(Debug)]
pub(super) struct ScanFile {
    path: PathBuf,
    file: File,
}

/// What is kept in a file; nothing where there is none, or where it is not ours.
///
/// # Errors
/// That it cannot be read.
pub(super) fn read(path: &Path) -> io::Result<Kept> {
    Ok(parse(&whole(path)?).0)
}

fn whole(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// What a file's bytes say, and how many of them say it.
fn parse(bytes: &[u8]) -> (Kept, usize) {
    let mut kept = Kept::default();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else { return (kept, 0) };
    while let Some((record, after)) = next(rest) {
        kept.take(record);
        rest = after;
    }
    (kept, bytes.len() - rest.len())
}

fn next(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= MOST_BYTES)?;
    let (json, rest) = rest.split_at_checked(length)?;
    let record = (crc32fast::hash(json) == u32::from_le_bytes(*sum)).then(|| serde_json::from_slice(json).ok())??;
    Some((record, rest))
}

fn encode(records: &[Record]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        let json = serde_json::to_vec(record)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&json).to_le_bytes());
        bytes.extend_from_slice(&json);
    }
    Ok(bytes)
}

impl ScanFile {
    /// Opens a file to write on, made where there is none, with what is kept in it. A torn tail is cut off.
    ///
    /// # Errors
    /// That it cannot be read or written.
    pub(super) fn open(path: PathBuf) -> io::Result<(Self, Kept)> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let (kept, good) = parse(&whole(&path)?);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.set_len(good as u64)?;
        if good == 0 {
            file.write_all(MAGIC)?;
        }
        Ok((Self { path, file }, kept))
    }

    /// Adds records.
    ///
    /// # Errors
    /// That they cannot be written; what was written of them is cut off when the file is opened again.
    pub(super) fn add(&mut self, records: &[Record]) -> io::Result<()> {
        self.file.write_all(&encode(records)?)
    }

    /// Writes `kept` in the place of all that is there: whoever reads meanwhile has the one or the other.
    ///
    /// # Errors
    /// That it cannot be written.
    pub(super) fn replace(&mut self, kept: &Kept) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(MAGIC)?;
        file.write_all(&encode(&kept.records())?)?;
        file.sync_data()?;
        std::fs::rename(&new, &self.path)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start_time;

    fn measured(text: &str, bytes: u64) -> Record {
        Record::Measured(Directory {
            path: RelativePath::parse(text.as_bytes()).unwrap(),
            device: 1,
            inode: bytes + 1,
            bytes,
            files: 1,
            own_bytes: 2,
            own_files: 3,
            at: start_time(),
        })
    }

    fn begun() -> Record {
        Record::Begun { at: start_time(), path: RelativePath::default(), anew: true }
    }

    fn names(kept: &Kept) -> Vec<(Vec<u8>, u64)> {
        kept.tree.all().map(|one| (one.path.as_bytes().to_vec(), one.bytes)).collect()
    }

    #[test]
    fn what_is_written_is_read_and_a_torn_tail_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scans/one.scan");
        assert!(read(&path).unwrap().round.is_none(), "there is none");
        let (mut file, _) = ScanFile::open(path.clone()).unwrap();
        file.add(&[begun(), measured("a/b", 5), measured("a", 7)]).unwrap();
        let good = std::fs::metadata(&path).unwrap().len();
        file.add(&[measured("c", 9)]).unwrap();
        let all = std::fs::read(&path).unwrap();
        for length in usize::try_from(good).unwrap()..all.len() {
            std::fs::write(&path, &all[..length]).unwrap();
            assert_eq!(names(&read(&path).unwrap()), [(b"a".to_vec(), 7), (b"a/b".to_vec(), 5)], "{length}");
        }
        let (mut file, kept) = ScanFile::open(path.clone()).unwrap();
        assert_eq!(kept.tree.all().count(), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), good);
        file.add(&[measured("d", 1), Record::Stopped]).unwrap();
        let kept = read(&path).unwrap();
        assert_eq!((kept.tree.all().count(), kept.round.unwrap().state), (3, RoundState::Stopped));
    }

    #[test]
    fn a_file_in_few_records_says_the_same_and_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.scan");
        let (mut file, mut kept) = ScanFile::open(path.clone()).unwrap();
        let done = Record::Done { at: start_time(), approximate: true, skipped: 2 };
        let records = [begun(), measured("a/b", 5), measured("a", 7), measured("a/b", 6), done];
        file.add(&records).unwrap();
        for record in records {
            kept.take(record);
        }
        let before = std::fs::metadata(&path).unwrap().len();
        file.replace(&kept).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < before);
        let again = read(&path).unwrap();
        assert_eq!((names(&again), &again.round), (names(&kept), &kept.round));
        file.add(&[Record::Gone(RelativePath::parse(b"a").unwrap())]).unwrap();
        assert_eq!(read(&path).unwrap().tree.all().count(), 0);
    }

    #[test]
    fn what_a_clock_measured_that_was_ahead_is_measured_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.scan");
        let (mut file, mut kept) = ScanFile::open(path.clone()).unwrap();
        let (top, now) = (RelativePath::default(), start_time() - jiff::SignedDuration::from_hours(48));
        let again = Record::Begun { at: now, path: top.clone(), anew: true };
        let records = [begun(), measured("a/b", 5), measured("a", 7), measured("c", 3), again];
        file.add(&records).unwrap();
        for record in records {
            kept.take(record);
        }
        assert_eq!((kept.tree.all().count(), kept.tree.fresh(&top, now)), (3, 0));
        let Record::Measured(one) = measured("a/b", 6) else { panic!("it is one") };
        let later = Record::Measured(Directory { at: now + jiff::SignedDuration::from_secs(1), ..one });
        file.add(std::slice::from_ref(&later)).unwrap();
        kept.take(later);
        assert_eq!(kept.tree.fresh(&top, now), 1);
        assert_eq!(names(&kept)[0], (b"a".to_vec(), 8), "what lies above it is older, and holds it");
        // What is read of the file, also in few records, says the same.
        assert_eq!(read(&path).unwrap().tree.fresh(&top, now), 1);
        file.replace(&kept).unwrap();
        assert_eq!(read(&path).unwrap().tree.fresh(&top, now), 1);
    }

    #[test]
    fn only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scans/one.scan");
        let (mut file, kept) = ScanFile::open(path.clone()).unwrap();
        file.replace(&kept).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    proptest! {
        #[test]
        fn whatever_lies_in_the_file_is_read_or_cut_off(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), begins_well in any::<bool>(),
        ) {
            if begins_well {
                bytes.splice(0..0, MAGIC.iter().copied().chain(encode(&[begun()]).unwrap()));
            }
            let (kept, good) = parse(&bytes);
            prop_assert!(good <= bytes.len());
            prop_assert_eq!(kept.round.is_some(), begins_well);
        }
    }
}
