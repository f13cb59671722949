//! Uploads: bytes that come in pieces, lie hidden where the file will lie, and get its name once they are all there.
//!
//! How far an upload is, is written down in its sidecar, and never exceeds what lies there. Bytes beyond that are cut off before others are
//! written. One writes at a time. A disk of this machine is not waited for at the end of each piece, but after so many bytes and before the whole
//! gets its name: after a power cut the upload goes on from where bytes are certain. A file that was put in the place of the upload's own is not
//! written to, whatever the sidecar says: the upload is over.

use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use eirene_files_protocol::{
    Answer, Code, CreateUpload, EntryKind, Moved, Name, OnConflict, PartSpot, Problem, UploadState, WriteUpload,
};
use rustix::fs::{FlockOperation, fdatasync, flock, fstatvfs, fsync, ftruncate};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::delete::Removal;
use super::earlier;
use super::make_directory::make_all;
use crate::beneath::{Place, look_at_entry};
use crate::change::{Spot, set_modified};
use crate::checksum::Sum;
use crate::errno::code;
use crate::server::Job;
use crate::settle::{others, settle};
use crate::sidecar::{Hashed, Known, Sidecar};
use crate::stream::Stream;
use crate::summing::{Summing, Sums};
use crate::trash::Trash;
use crate::walk::Account;
use crate::writeback::{WriteBehind, is_on_local_disk};

/// Bytes of the buffer.
const BUFFER: usize = 256 * 1024;
/// After so many bytes it is written down how far it is: so many are sent again after a crash, at most.
const NOTE: u64 = 16 * 1024 * 1024;
/// After so many bytes they are made to outlive a power cut.
const SYNC: u64 = 512 * 1024 * 1024;

/// An upload whose own file is open.
struct Upload<'a> {
    spot: Spot<'a>,
    file: OwnedFd,
    sidecar: Sidecar,
    known: Known,
}

pub(super) fn create(job: &Job, wanted: &CreateUpload) -> Result<Answer, Code> {
    let space = job.space(wanted.part.space)?;
    if wanted.parents {
        make_all(space, &wanted.part.directory)?;
    }
    let above = wanted.part.directory.clone();
    let spot = Spot::new(space, space.directory_to_change(&above)?, above, wanted.name.clone())?;
    if wanted.on_conflict == OnConflict::Refuse && spot.found().is_ok() {
        return Err(Code::Exists);
    }
    if let (Some(length), Ok(room)) = (wanted.length, fstatvfs(spot.directory.as_fd()))
        && room.f_bavail.saturating_mul(room.f_frsize) < length
    {
        return Err(spot.directory.why_full(Code::NoSpace, length));
    }
    let part = wanted.part.id.file_name();
    let file = spot.directory.create(&part)?;
    let made = || -> Result<Known, Code> {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut known = Known {
            sequence: 0,
            inode: rustix::fs::fstat(&file).map_err(code)?.st_ino,
            length: wanted.length,
            offset: 0,
            synced: 0,
            boot: job.boot().to_owned(),
            sha256: wanted.sha256,
            hashed: wanted.sha256.map(|_| Hashed::of(&Sha256::new(), 0)),
            name: wanted.name.clone(),
            on_conflict: wanted.on_conflict,
            modified: wanted.modified,
            created: i64::try_from(created).unwrap_or(i64::MAX),
            finished: None,
        };
        Sidecar::create(&spot.directory, wanted.part.id, &mut known)?;
        Ok(known)
    };
    match made() {
        Ok(known) => Ok(Answer::Upload(state(&known, 0))),
        Err(why) => {
            // Nothing is left behind of what could not begin; the first error is the one that tells something.
            let _ = spot.directory.remove_file(&part);
            let _ = spot.directory.remove_file(&wanted.part.id.sidecar_name());
            Err(why)
        }
    }
}

fn state(known: &Known, offset: u64) -> UploadState {
    UploadState { offset, length: known.length, created: known.created, finished: known.finished.clone() }
}

/// What is known of an upload, and its own file if that has not got its name yet.
fn open<'a>(job: &'a Job, part: &PartSpot) -> Result<(Spot<'a>, Sidecar, Known), Code> {
    let space = job.space(part.space)?;
    let directory = space.directory_to_change(&part.directory)?;
    let (sidecar, known) = Sidecar::open(&directory, part.id)?;
    // A program of the person's may have written it: the name is looked at as any.
    let spot = Spot::new(space, directory, part.directory.clone(), known.name.clone())?;
    Ok((spot, sidecar, known))
}

/// The upload's own file, which nothing else can pass itself off as.
fn own_file(spot: &Spot<'_>, part: &PartSpot, known: &Known) -> Result<Place, Code> {
    let place = match spot.directory.child(&part.id.file_name()) {
        Err(Code::NotFound | Code::CrossesAMount) => return Err(Code::UploadGone),
        other => other?,
    };
    let (kind, found) = place.look()?;
    let is_own = kind == EntryKind::File && found.stx_ino == known.inode && found.stx_nlink == 1;
    if is_own { Ok(place) } else { Err(Code::UploadGone) }
}

pub(super) fn look(job: &Job, part: &PartSpot) -> Result<Answer, Code> {
    let (spot, _, known) = open(job, part)?;
    if known.finished.is_some() {
        return Ok(Answer::Upload(state(&known, known.offset)));
    }
    let offset = match own_file(&spot, part, &known) {
        Ok(file) => known.offset_now(file.look()?.1.stx_size, job.boot()),
        // It has its name, and was killed before it could say so: whoever finishes it again hears that.
        Err(_) if landed(&spot, &known).is_some() => known.offset,
        Err(why) => return Err(why),
    };
    Ok(Answer::Upload(state(&known, offset)))
}

impl<'a> Upload<'a> {
    /// Opens an upload for its one writer.
    fn open(job: &'a Job, part: &PartSpot) -> Result<Self, Code> {
        let (spot, sidecar, known) = open(job, part)?;
        let file = own_file(&spot, part, &known)?.write()?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Err(Code::Locked),
            Err(errno) => return Err(code(errno)),
        }
        // What counts is what the writer before left.
        let mut known = sidecar.read().unwrap_or(known);
        let size = u64::try_from(rustix::fs::fstat(&file).map_err(code)?.st_size).unwrap_or(0);
        known.offset = known.offset_now(size, job.boot());
        known.synced = known.synced.min(known.offset);
        job.boot().clone_into(&mut known.boot);
        // A sum of bytes that come again is the sum of nothing.
        known.hashed = known.hashed.filter(|hashed| hashed.bytes <= known.offset);
        if known.hashed.is_none() && known.sha256.is_some() && known.offset == 0 {
            known.hashed = Some(Hashed::of(&Sha256::new(), 0));
        }
        Ok(Self { spot, file, sidecar, known })
    }

    /// Writes down how far it is; `certain` makes it outlive a power cut first.
    fn note(&mut self, certain: bool) -> Result<(), Code> {
        let synced = if certain && self.known.synced < self.known.offset { self.sync() } else { Ok(()) };
        self.sidecar.write(&mut self.known)?;
        synced?;
        if certain { self.sidecar.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), Code> {
        self.known.reached_the_disk(fdatasync(&self.file).map_err(code))
    }

    /// Whether so much has come since bytes were made certain that it is time again.
    fn is_due(&self) -> bool {
        self.known.offset - self.known.synced >= SYNC
    }

    /// The same at the end of a piece, after which the file is closed: what a network file system could not write it may say to nobody afterwards.
    fn is_due_at_end(&self) -> bool {
        self.is_due() || !is_on_local_disk(&self.file)
    }

    /// The sum of all bytes that count, as far as it is known; none where nobody wants it.
    fn hasher(&self) -> Option<Sha256> {
        let hashed = self.known.hashed.as_ref().filter(|hashed| hashed.bytes == self.known.offset)?;
        hashed.hasher()
    }
}

pub(super) fn write(job: &Job, wanted: &WriteUpload, stream: &mut Stream) -> Result<Answer, Problem> {
    let mut upload = Upload::open(job, &wanted.part)?;
    let begin = upload.known.offset;
    let told = |code| Problem { code, bytes: Some(begin) };
    if wanted.offset != begin {
        return Err(told(Code::OffsetDiffers));
    }
    match (upload.known.length, wanted.length) {
        (Some(known), Some(wanted)) if known != wanted => return Err(told(Code::Invalid)),
        (None, Some(wanted)) if wanted < begin => return Err(told(Code::Invalid)),
        (None, Some(wanted)) => upload.known.length = Some(wanted),
        _ => {}
    }
    let room = upload.known.length.map_or(u64::MAX, |length| length - begin.min(length));
    if wanted.bytes.is_some_and(|bytes| bytes > room) {
        return Err(told(Code::Invalid));
    }
    // Bytes that do not count are not to be found among those that come.
    ftruncate(&upload.file, begin).map_err(|errno| told(code(errno)))?;
    let most = wanted.bytes.unwrap_or(room);
    let result = if let Some(checksum) = wanted.checksum {
        write_all_or_nothing(&mut upload, stream, most, wanted.bytes, Sum::new(checksum))
    } else {
        write_what_comes(&mut upload, stream, most)
    };
    // However it ended, what came counts.
    let noted = upload.note(upload.is_due_at_end());
    let offset = upload.known.offset;
    match result.and(noted) {
        Ok(()) => Ok(Answer::Upload(state(&upload.known, offset))),
        Err(why) => Err(Problem { code: why, bytes: Some(offset) }),
    }
}

/// How many bytes are written at once, of those that are left: up to where the next full buffer begins in the file.
fn at_once(at: u64, left: u64) -> usize {
    let aligned = BUFFER - usize::try_from(at % BUFFER as u64).unwrap_or(0);
    usize::try_from(left).map_or(aligned, |left| left.min(aligned))
}

/// Each byte counts as soon as it is written.
fn write_what_comes(upload: &mut Upload<'_>, stream: &mut Stream, most: u64) -> Result<(), Code> {
    let mut summing = Summing::new(Sums { piece: None, whole: upload.hasher() }, most);
    let (mut noted, begin) = (upload.known.offset, upload.known.offset);
    let mut behind = WriteBehind::new(begin);
    let mut buffer = vec![0; BUFFER];
    let result = loop {
        let left = most - (upload.known.offset - begin);
        let count = at_once(upload.known.offset, left);
        if count == 0 {
            break Ok(());
        }
        let read = match stream.fill(&mut buffer[..count]) {
            Ok(Some(0)) => break Ok(()),
            Ok(Some(read)) => read,
            // Nothing comes for a while: what is there is made certain.
            Ok(None) => {
                keep_sum(upload, summing.whole()?.as_ref());
                upload.note(true)?;
                continue;
            }
            Err(why) => break Err(why),
        };
        let at = upload.known.offset;
        let (written, result) = write_at(&upload.file, &buffer[..read], at);
        upload.known.offset += written as u64;
        buffer = summing.take(buffer, written)?;
        if let Err(why) = result {
            break Err(why);
        }
        behind.reached(&upload.file, upload.known.offset);
        if upload.known.offset - noted >= NOTE {
            noted = upload.known.offset;
            keep_sum(upload, summing.whole()?.as_ref());
            // Where it fails fewer bytes may count than are in the sum, which is kept no more.
            upload.note(upload.is_due())?;
        }
    };
    keep_sum(upload, summing.end()?.whole.as_ref());
    result
}

fn keep_sum(upload: &mut Upload<'_>, hasher: Option<&Sha256>) {
    if let Some(hasher) = hasher {
        upload.known.hashed = Some(Hashed::of(hasher, upload.known.offset));
    }
}

/// No byte counts before all are there and are the right ones.
fn write_all_or_nothing(
    upload: &mut Upload<'_>,
    stream: &mut Stream,
    most: u64,
    expected: Option<u64>,
    sum: Sum,
) -> Result<(), Code> {
    let mut summing = Summing::new(Sums { piece: Some(sum), whole: upload.hasher() }, most);
    let begin = upload.known.offset;
    let mut at = begin;
    let mut behind = WriteBehind::new(begin);
    let mut buffer = vec![0; BUFFER];
    let mut came = || -> Result<(), Code> {
        loop {
            let left = most - (at - begin);
            let count = at_once(at, left);
            if count == 0 {
                return Ok(());
            }
            match stream.fill(&mut buffer[..count])? {
                Some(0) => return Ok(()),
                Some(read) => {
                    write_at(&upload.file, &buffer[..read], at).1?;
                    at += read as u64;
                    behind.reached(&upload.file, at);
                    buffer = summing.take(std::mem::take(&mut buffer), read)?;
                }
                None => {}
            }
        }
    };
    let came = came();
    let summed = summing.end();
    let result = came.and(summed).and_then(|Sums { piece, whole }| {
        if expected.is_some_and(|expected| at - begin < expected) {
            Err(Code::CutOff)
        } else if piece.is_some_and(Sum::came_right) {
            Ok(whole)
        } else {
            Err(Code::ChecksumDiffers)
        }
    });
    match result {
        Ok(whole) => {
            upload.known.offset = at;
            keep_sum(upload, whole.as_ref());
            Ok(())
        }
        Err(why) => {
            let why = upload.spot.directory.why_full(why, 0);
            ftruncate(&upload.file, begin).map_err(code)?;
            Err(why)
        }
    }
}

/// Writes as much as can be written, and says why not more.
fn write_at(file: &OwnedFd, bytes: &[u8], at: u64) -> (usize, Result<(), Code>) {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(file, &bytes[done..], at + done as u64)) {
            Ok(written) => done += written,
            Err(errno) => return (done, Err(code(errno))),
        }
    }
    (done, Ok(()))
}

/// The name under which the whole lies already, where a process was killed between that and saying so.
fn landed(spot: &Spot<'_>, known: &Known) -> Option<Name> {
    let is_it = |name: &Name| {
        look_at_entry(spot.directory.as_fd(), name.as_bytes()).is_ok_and(|found| found.stx_ino == known.inode)
    };
    let mut names = std::iter::once(known.name.clone()).chain(others(&known.name, false));
    match known.on_conflict {
        OnConflict::KeepBoth => names.find(is_it),
        OnConflict::Refuse | OnConflict::Replace => names.next().filter(is_it),
    }
}

pub(super) fn finish(job: &Job, part: &PartSpot) -> Result<Answer, Problem> {
    let (spot, sidecar, mut known) = open(job, part)?;
    if let Some(moved) = known.finished {
        return Ok(Answer::Moved(moved));
    }
    if let Some(name) = landed(&spot, &known) {
        let mut trashed = None;
        // Killed after the two changed places: what had to give way is under the hidden name.
        if let Ok(loser) = spot.directory.child(&part.id.file_name()) {
            let trash = Trash::open(spot.space)?;
            let id = trash.announce(spot.path_of(&name)?, &loser.look()?)?;
            trash.take(id, &spot.directory, &part.id.file_name()).inspect_err(|_| trash.forget(id))?;
            trashed = Some(id);
        }
        return Ok(said(&sidecar, &mut known, Moved { path: spot.path_of(&name)?, trashed }));
    }
    drop((spot, sidecar));
    let mut upload = Upload::open(job, part)?;
    let offset = upload.known.offset;
    if upload.known.length != Some(offset) {
        return Err(Problem { code: Code::OffsetDiffers, bytes: Some(offset) });
    }
    if let Some(wanted) = upload.known.sha256
        && whole_sum(job, &upload)? != wanted.0
    {
        return Err(Code::ChecksumDiffers.into());
    }
    // Bytes that do not count are no part of it.
    ftruncate(&upload.file, offset).map_err(code)?;
    if let Some(modified) = upload.known.modified {
        set_modified(&upload.file, modified)?;
    }
    let synced = upload.known.reached_the_disk(fsync(&upload.file).map_err(code));
    upload.note(true).and(synced)?;
    let moved = settle(&upload.spot.directory, &part.id.file_name(), &upload.spot, upload.known.on_conflict)?;
    if landed(&upload.spot, &upload.known).is_none() {
        // Somebody put something else under the hidden name in the last moment.
        return Err(Code::UploadGone.into());
    }
    // The name outlives a power cut as the bytes do, where the person may read the directory.
    if let Ok(directory) = upload.spot.directory.list() {
        fsync(&directory).map_err(code)?;
    }
    Ok(said(&upload.sidecar, &mut upload.known, moved))
}

/// Writes down that it is finished: it is, whether that can be written down or not.
fn said(sidecar: &Sidecar, known: &mut Known, moved: Moved) -> Answer {
    known.finished = Some(moved.clone());
    known.offset = known.length.unwrap_or(known.offset);
    let _ = sidecar.write(known);
    Answer::Moved(moved)
}

/// SHA-256 of the whole: as it went along, or what is missing of it read again.
fn whole_sum(job: &Job, upload: &Upload<'_>) -> Result<[u8; 32], Code> {
    let known = upload.known.hashed.as_ref().filter(|hashed| hashed.bytes <= upload.known.offset);
    let known = known.and_then(|hashed| Some((hashed.hasher()?, hashed.bytes)));
    let (mut hasher, mut at) = known.unwrap_or_else(|| (Sha256::new(), 0));
    let mut account = Account::new();
    let mut buffer = vec![0; BUFFER];
    while at < upload.known.offset {
        job.cancelled.check()?;
        account.say_with(job, at)?;
        let count = usize::try_from(upload.known.offset - at).map_or(BUFFER, |left| left.min(BUFFER));
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&upload.file, &mut buffer[..count], at));
        let read = read.map_err(code)?;
        if read == 0 {
            return Err(Code::ChangedMeanwhile);
        }
        hasher.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(hasher.finalize().into())
}

pub(super) fn remove(job: &Job, part: &PartSpot) -> Result<Answer, Code> {
    let space = job.space(part.space)?;
    let directory = space.directory_to_change(&part.directory)?;
    let mut account = Account::new();
    let removal = Removal { job, space, cancelled: &job.cancelled, opens: true };
    // What is known goes last: until then somebody can still ask for the rest. So what does not go is said, and not taken for gone.
    earlier::remove(&removal, &directory, part.id, &mut account)?;
    removal.remove_all(&directory, &part.id.sidecar_name(), &mut account)?;
    Ok(Answer::Removed(account.walked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_once_ends_where_a_full_buffer_would() {
        let full = BUFFER as u64;
        for (at, left, expected) in [
            (0, u64::MAX, full),
            (full, 7, 7),
            (3 * full + 1, u64::MAX, full - 1),
            (full - 1, 5, 1),
            (u64::MAX - 1, 1, 1),
            (5, 0, 0),
        ] {
            assert_eq!(at_once(at, left) as u64, expected, "{left} from {at}");
        }
    }
}
