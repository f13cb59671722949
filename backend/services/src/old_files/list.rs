//! Where the files are kept that were listed as old in a space: one file in the portal's state directory, written once and read in pieces.
//!
//! In the database they would be a million rows; in the space they would be the person's to write, and a full space has no room for them. The file
//! begins with eight bytes that say what it is and the time of the list, microseconds since 1970. Records follow: their length and CRC-32, 32 bits
//! each, the lower bytes first, then files one after the other; the last record is empty. A path is written as what it does not share with
//! the one before in its record. The file gets its name when it is whole and on the disk; whatever else has that name is none.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use eirene_files_protocol::{Moment, OldFile, RelativePath, Version};
use jiff::Timestamp;

const MAGIC: &[u8; 8] = b"EIROLD01";
/// Longest record; a longer one is not ours. What comes in one frame of the person's process is less.
const MOST_BYTES: usize = 1024 * 1024;
/// Longest path.
const MOST_PATH: usize = 4096;

/// A list that is being written.
pub(super) struct Writer {
    path: PathBuf,
    new: PathBuf,
    file: BufWriter<File>,
}

impl Writer {
    /// Begins a list in the place of what `path` names, which stays until [`Writer::finish`].
    ///
    /// # Errors
    /// That it cannot be written.
    pub(super) fn begin(path: PathBuf, at: Timestamp) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let new = path.with_extension("new");
        // One that was left, and that somebody may still be writing, is not written on.
        if let Err(error) = std::fs::remove_file(&new)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let mut file = BufWriter::new(file);
        file.write_all(MAGIC)?;
        file.write_all(&at.as_microsecond().to_le_bytes())?;
        Ok(Self { path, new, file })
    }

    /// Adds files.
    ///
    /// # Errors
    /// That they cannot be written.
    pub(super) fn add(&mut self, files: &[OldFile]) -> io::Result<()> {
        if files.is_empty() { Ok(()) } else { self.record(&encode(files)?) }
    }

    fn record(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
        self.file.write_all(bytes)
    }

    /// Gives it its name, when it is on the disk.
    ///
    /// # Errors
    /// That it cannot be written; then the one before is still there.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.record(&[])?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        if !is_same(&file, &self.new)? {
            return Err(damaged());
        }
        std::fs::rename(&self.new, &self.path)
    }
}

/// A list that is being read.
pub(super) struct Reader {
    file: BufReader<File>,
}

impl Reader {
    /// Opens the list of this time.
    ///
    /// # Errors
    /// That there is none, or another one.
    pub(super) fn open(path: &Path, at: Timestamp) -> io::Result<Self> {
        let mut file = BufReader::new(File::open(path)?);
        let (mut magic, mut time) = ([0; 8], [0; 8]);
        file.read_exact(&mut magic)?;
        file.read_exact(&mut time)?;
        if magic != *MAGIC || i64::from_le_bytes(time) != at.as_microsecond() {
            return Err(damaged());
        }
        Ok(Self { file })
    }

    /// The next files, as many as were added together; none at the end.
    ///
    /// # Errors
    /// That it cannot be read, or is damaged: what was read before is as it was written.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<OldFile>>> {
        let (mut length, mut sum) = ([0; 4], [0; 4]);
        self.file.read_exact(&mut length)?;
        self.file.read_exact(&mut sum)?;
        let length = usize::try_from(u32::from_le_bytes(length)).ok().filter(|length| *length <= MOST_BYTES);
        let mut bytes = vec![0; length.ok_or_else(damaged)?];
        self.file.read_exact(&mut bytes)?;
        if crc32fast::hash(&bytes) != u32::from_le_bytes(sum) {
            return Err(damaged());
        }
        if bytes.is_empty() { Ok(None) } else { decode(&bytes).ok_or_else(damaged).map(Some) }
    }
}

/// Whether a name is that of an open file, and not of what somebody else began in its place.
fn is_same(file: &File, name: &Path) -> io::Result<bool> {
    let (ours, named) = (file.metadata()?, std::fs::symlink_metadata(name)?);
    Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino()))
}

fn damaged() -> io::Error {
    ErrorKind::InvalidData.into()
}

fn encode(files: &[OldFile]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut before: &[u8] = &[];
    for OldFile { path, version } in files {
        let path = path.as_bytes();
        let shared = before.iter().zip(path).take_while(|(a, b)| a == b).count();
        for length in [shared, path.len() - shared] {
            bytes.extend_from_slice(&u16::try_from(length).map_err(io::Error::other)?.to_le_bytes());
        }
        bytes.extend_from_slice(&path[shared..]);
        for number in [version.device, version.inode, version.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for moment in [version.modified, version.changed] {
            bytes.extend_from_slice(&moment.seconds.to_le_bytes());
            bytes.extend_from_slice(&moment.nanoseconds.to_le_bytes());
        }
        before = path;
    }
    Ok(bytes)
}

/// The files of a record; none where it is not what was encoded.
fn decode(mut bytes: &[u8]) -> Option<Vec<OldFile>> {
    let mut files: Vec<OldFile> = Vec::new();
    while !bytes.is_empty() {
        let mut length = || Some(usize::from(u16::from_le_bytes(take(&mut bytes)?)));
        let (shared, rest) = (length()?, length()?);
        let mut path = files.last().map_or(&[][..], |file| file.path.as_bytes()).get(..shared)?.to_vec();
        let (own, after) = bytes.split_at_checked(rest)?;
        path.extend_from_slice(own);
        bytes = after;
        if path.len() > MOST_PATH {
            return None;
        }
        let mut number = || Some(u64::from_le_bytes(take(&mut bytes)?));
        let (device, inode, size) = (number()?, number()?, number()?);
        let mut moment = || {
            let seconds = i64::from_le_bytes(take(&mut bytes)?);
            Some(Moment { seconds, nanoseconds: u32::from_le_bytes(take(&mut bytes)?) })
        };
        let (modified, changed) = (moment()?, moment()?);
        let version = Version { device, inode, bytes: size, modified, changed };
        files.push(OldFile { path: RelativePath::parse(&path).ok()?, version });
    }
    Some(files)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start_time;

    fn file(path: &[u8], number: u64) -> OldFile {
        let moment = |seconds| Moment { seconds, nanoseconds: 7 };
        let version = Version { device: 1, inode: number, bytes: number, modified: moment(-1), changed: moment(9) };
        OldFile { path: RelativePath::parse(path).unwrap(), version }
    }

    fn read(path: &Path, at: Timestamp) -> io::Result<Vec<OldFile>> {
        let mut reader = Reader::open(path, at)?;
        let mut files = Vec::new();
        while let Some(some) = reader.next()? {
            files.extend(some);
        }
        Ok(files)
    }

    #[test]
    fn a_list_reads_back_and_one_that_is_not_whole_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old/one.list");
        let mut writer = Writer::begin(path.clone(), start_time()).unwrap();
        let files = [file(b"a/b/c", 1), file(b"a/b/d\xff", u64::MAX), file(b"e", 3)];
        writer.add(&files[..2]).unwrap();
        writer.add(&[]).unwrap();
        writer.add(&files[2..]).unwrap();
        assert!(!path.exists(), "it has no name yet");
        writer.finish().unwrap();
        assert_eq!(read(&path, start_time()).unwrap(), files);
        let other = start_time() + jiff::SignedDuration::from_micros(1);
        assert!(read(&path, other).is_err(), "another list");
        // One that was begun and not finished leaves the one before, and does not become the one that was begun after it.
        let late = Writer::begin(path.clone(), other).unwrap();
        let mut writer = Writer::begin(path.clone(), start_time()).unwrap();
        assert!(late.finish().is_err());
        assert_eq!(read(&path, start_time()).unwrap().len(), 3);
        writer.add(&files).unwrap();
        writer.finish().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&path, start_time()).is_err(), "{length}");
        }
        for at in 8..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            assert!(read(&path, start_time()).is_err(), "{at}");
        }
    }

    #[test]
    fn only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old/one.list");
        Writer::begin(path.clone(), start_time()).unwrap().finish().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_nothing_else_breaks_anything(
            names in prop::collection::vec("[a-c/]{0,3}[a-z]{1,4}", 0..20), noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let names = names.iter().filter(|name| RelativePath::parse(name.as_bytes()).is_ok());
            let files: Vec<OldFile> = names.zip(1..).map(|(name, number)| file(name.as_bytes(), number)).collect();
            prop_assert_eq!(decode(&encode(&files).unwrap()), Some(files));
            let _ = decode(&noise);
        }
    }
}
