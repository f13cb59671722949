//! What is in an archive, as files of a new directory. The archive is hostile: nothing in it decides where anything goes.
//!
//! The directory is made under a hidden name, filled, and gets its own name when all is written; one that cannot be finished is removed with
//! all in it. Each member's name is taken apart, and made step by step below the directory, following nothing. Files are new or not made;
//! symbolic links come last, when nothing is written any more that could go through one, and only those that stay; hard links lead to files
//! that were written here. Devices, pipes and what gives rights are refused and named, and so is every name that leads elsewhere. What is
//! damaged, or grows beyond all measure, is no archive at all.

mod gunzip;
mod name;
mod source;
mod tar;
mod zip;

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use eirene_files_protocol::{
    Answer, Code, EntryKind, Extract, Extracted, HostileText, MOST_MEMBER_NAME, MOST_SKIPPED, Moment, Name, OnConflict,
    Refused, RelativePath,
};
use rustix::fs::{Mode, fchmod, fstat, fstatvfs};

use self::source::Source;
use super::delete::Removal;
use crate::beneath::{Last, Place};
use crate::change::set_modified;
use crate::errno::code;
use crate::server::{Cancelled, Job};
use crate::settle::settle;
use crate::walk::Account;
use crate::writeback::reach_storage;

/// Most members of an archive.
const MOST_MEMBERS: u64 = 1_000_000;
/// So many bytes may come of any archive, however small it is.
const ALWAYS: u64 = 10 * 1024 * 1024;
/// Beyond, so many times its own bytes.
const MOST_RATIO: u64 = 100;
/// Most files, links and directories that are remembered each, and most bytes of what is remembered of them.
const MOST_KEPT: usize = 100_000;
const MOST_KEPT_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of the buffer.
const BUFFER: usize = 256 * 1024;

/// What a member is.
enum Member<'a> {
    /// A file of so many bytes.
    File {
        bytes: u64,
        content: &'a mut dyn Read,
    },
    Directory,
    /// A symbolic link with this text.
    Link(Vec<u8>),
    /// Another name of a file that came before, as the archive calls it.
    HardLink(Vec<u8>),
    /// Nothing that is made here.
    Special,
}

/// What is said of a member.
struct Head<'a> {
    name: &'a [u8],
    /// Permission bits, as far as the archive knows any.
    mode: Option<u32>,
    modified: Option<i64>,
}

pub(super) fn run(job: &Job, wanted: &Extract) -> Result<Answer, Code> {
    let (file, found) = job.space(wanted.from.space)?.find(&wanted.from.path, Last::Followed)?.read()?;
    let space = job.space(wanted.to.space)?;
    let to = space.spot(&wanted.to.path)?;
    let part = wanted.id.file_name();
    if to.directory.child(&part).is_ok() || (wanted.on_conflict == OnConflict::Refuse && to.found().is_ok()) {
        return Err(Code::Exists);
    }
    let source = Source::new(file, found.stx_size, job.cancelled.clone());
    to.directory.make_directory(&part)?;
    let extracted = to.directory.child(&part).and_then(|top| {
        let mut extraction = Extraction::new(job, top, found.stx_size)?;
        extraction.all(&source)?;
        extraction.finish()?;
        Ok(extraction)
    });
    let settled = extracted.and_then(|done| Ok((settle(&to.directory, &part, &to, wanted.on_conflict)?, done)));
    match settled {
        Ok((moved, done)) => {
            let Extraction { account, refused, refused_in_all, .. } = done;
            let (entries, bytes) = (account.walked.entries, account.walked.bytes);
            Ok(Answer::Extracted(Extracted { moved, entries, bytes, refused, refused_in_all }))
        }
        Err(why) => {
            // The portal can ask for it again by its id.
            let cleaning = Removal { job, space, cancelled: &Cancelled::default(), opens: true };
            let _ = cleaning.remove(&to.directory, &part, &mut Account::new());
            Err(why)
        }
    }
}

/// A list that takes only so much memory.
struct Kept<T> {
    items: Vec<T>,
    bytes: usize,
}

impl<T> Kept<T> {
    fn new() -> Self {
        Self { items: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, item: T, bytes: usize) -> Result<(), Code> {
        if self.items.len() >= MOST_KEPT || self.bytes + bytes > MOST_KEPT_BYTES {
            return Err(Code::TooMany);
        }
        self.bytes += bytes;
        self.items.push(item);
        Ok(())
    }
}

/// What comes of an archive.
struct Extraction<'a> {
    job: &'a Job,
    top: Rc<Place>,
    account: Account,
    members: u64,
    /// How many bytes may come of it.
    most: u64,
    room: u64,
    /// Files that were written, to which hard links may lead.
    files: HashSet<RelativePath>,
    files_bytes: usize,
    links: Kept<(RelativePath, Vec<u8>)>,
    /// Directories, and what they are to be once they are full.
    directories: Kept<(RelativePath, Option<u32>, Option<i64>)>,
    refused: Vec<Refused>,
    refused_in_all: u64,
    buffer: Vec<u8>,
}

impl<'a> Extraction<'a> {
    fn new(job: &'a Job, top: Place, archive: u64) -> Result<Self, Code> {
        let space = fstatvfs(top.list()?).map_err(code)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        Ok(Self {
            job,
            top: Rc::new(top),
            account: Account::new(),
            members: 0,
            most: archive.saturating_mul(MOST_RATIO).max(ALWAYS),
            room: free - free / 20,
            files: HashSet::new(),
            files_bytes: 0,
            links: Kept::new(),
            directories: Kept::new(),
            refused: Vec::new(),
            refused_in_all: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Reads the archive, as what its first bytes say.
    fn all(&mut self, source: &Source) -> Result<(), Code> {
        let mut head = [0; 4];
        let known = source.read_at(&mut head, 0)?;
        match &head[..known] {
            [] => Err(Code::NotAnArchive),
            [0x1F, 0x8B, ..] => tar::read(self, source, gunzip::decode(source), true),
            [b'P', b'K', 3, 4] | [b'P', b'K', 5, 6] => zip::read(self, source),
            _ => tar::read(self, source, source.stream(0, source.bytes()), false),
        }
    }

    /// Takes one member. Only what concerns the whole archive is an error.
    fn take(&mut self, head: &Head<'_>, member: Member<'_>) -> Result<(), Code> {
        self.job.cancelled.check()?;
        self.members += 1;
        if self.members > MOST_MEMBERS {
            return Err(Code::ArchiveTooLarge);
        }
        self.account.say(self.job)?;
        match self.make(head, member) {
            Ok(()) => Ok(()),
            Err(why) if ends_all(why) => Err(why),
            Err(why) => {
                self.refuse(head.name, why);
                Ok(())
            }
        }
    }

    /// Most bytes that may come of the archive.
    fn most(&self) -> u64 {
        self.most
    }

    /// Names a member that is not made.
    fn refuse(&mut self, name: &[u8], why: Code) {
        self.refused_in_all += 1;
        if self.refused.len() < MOST_SKIPPED {
            let name = HostileText(name[..name.len().min(MOST_MEMBER_NAME)].to_vec());
            self.refused.push(Refused { name, why });
        }
    }

    fn make(&mut self, head: &Head<'_>, member: Member<'_>) -> Result<(), Code> {
        let path = name::parse(head.name)?;
        let (path, (above, name)) = match (path, &member) {
            (Some(path), _) => (path.clone(), path.split_last().ok_or(Code::Unsafe)?),
            // The directory itself is there.
            (None, Member::Directory) => return Ok(()),
            (None, _) => return Err(Code::Unsafe),
        };
        match member {
            Member::Special => Err(Code::NotSupported),
            Member::Directory => {
                self.directory(&path)?;
                let bytes = path.as_bytes().len();
                // Where there are too many to remember, they stay as they were made.
                let _ = self.directories.push((path, head.mode, head.modified), bytes);
                self.account.done(0);
                Ok(())
            }
            Member::File { .. } if head.mode.is_some_and(|mode| mode & 0o6000 != 0) => Err(Code::NotSupported),
            Member::File { bytes, content } => {
                let above = self.directory(&above)?;
                let file = above.create(&name)?;
                let filled = self.fill(&file, bytes, content).and_then(|()| reach_storage(&file));
                if let Err(why) = filled.and_then(|()| finish_file(&file, head)) {
                    above.remove_file(&name)?;
                    return Err(why);
                }
                self.account.done(bytes);
                let length = path.as_bytes().len();
                if self.files.len() < MOST_KEPT && self.files_bytes + length <= MOST_KEPT_BYTES {
                    self.files_bytes += length;
                    self.files.insert(path);
                }
                Ok(())
            }
            Member::Link(target) if name::stays(&path, &target) => {
                let bytes = path.as_bytes().len() + target.len();
                self.links.push((path, target), bytes)
            }
            Member::Link(_) => Err(Code::LeadsOut),
            Member::HardLink(target) => {
                let target =
                    name::parse(&target)?.filter(|target| self.files.contains(target)).ok_or(Code::LeadsOut)?;
                let file = self.top.below(&target)?;
                if file.look()?.0 != EntryKind::File {
                    return Err(Code::ChangedMeanwhile);
                }
                self.directory(&above)?.add_name(&name, &file)?;
                self.account.done(0);
                Ok(())
            }
        }
    }

    /// The directory of that path below the new one; what is not there is made, and nothing is followed.
    fn directory(&self, path: &RelativePath) -> Result<Rc<Place>, Code> {
        let mut here = Rc::clone(&self.top);
        for name in path.components() {
            here = Rc::new(enter(&here, &name)?);
        }
        Ok(here)
    }

    /// Writes what is in a file: as many bytes as were said, within what may come of the archive.
    fn fill(&mut self, file: &OwnedFd, bytes: u64, content: &mut dyn Read) -> Result<(), Code> {
        let mut written = 0;
        loop {
            let read = content.read(&mut self.buffer).map_err(|_| Code::NotAnArchive)?;
            if read == 0 {
                return if written == bytes { Ok(()) } else { Err(Code::NotAnArchive) };
            }
            written += read as u64;
            let in_all = self.account.walked.bytes + written;
            if written > bytes {
                return Err(Code::NotAnArchive);
            }
            if in_all > self.most {
                return Err(Code::ArchiveTooLarge);
            }
            if in_all > self.room {
                return Err(Code::NoSpace);
            }
            let mut left = &self.buffer[..read];
            while !left.is_empty() {
                let count = rustix::io::retry_on_intr(|| rustix::io::write(file, left)).map_err(code)?;
                left = &left[count..];
            }
            self.job.cancelled.check()?;
            self.account.say_with(self.job, written)?;
        }
    }

    /// What comes last: links, and what directories are to be.
    fn finish(&mut self) -> Result<(), Code> {
        for (path, target) in std::mem::take(&mut self.links.items) {
            self.job.cancelled.check()?;
            let (above, name) = path.split_last().ok_or(Code::Unsafe)?;
            match self.directory(&above).and_then(|above| above.make_link(&name, &target)) {
                Ok(()) => self.account.done(0),
                Err(why) if ends_all(why) => return Err(why),
                Err(why) => self.refuse(path.as_bytes(), why),
            }
        }
        // The innermost first: a directory that is changed later is changed for good.
        for (path, mode, modified) in std::mem::take(&mut self.directories.items).into_iter().rev() {
            self.job.cancelled.check()?;
            let opened = self.top.below(&path)?.list()?;
            let made = fstat(&opened).map_err(code)?.st_mode;
            let kept = made & 0o7000;
            let wanted = mode.map_or(0o777, |mode| mode & 0o777 | 0o700);
            fchmod(&opened, Mode::from_raw_mode(made & 0o777 & wanted | kept)).map_err(code)?;
            if let Some(seconds) = modified {
                set_modified(&opened, Moment { seconds, nanoseconds: 0 })?;
            }
        }
        Ok(())
    }
}

/// A directory in another one, made where there is none.
fn enter(above: &Place, name: &Name) -> Result<Place, Code> {
    match above.make_directory(name) {
        Ok(()) | Err(Code::Exists) => {}
        Err(why) => return Err(why),
    }
    let place = above.child(name)?;
    if place.look()?.0 == EntryKind::Directory { Ok(place) } else { Err(Code::NotADirectory) }
}

/// A file may do what the archive says, within what new files may here; who may read it may run it, if its owner may.
fn finish_file(file: &OwnedFd, head: &Head<'_>) -> Result<(), Code> {
    if let Some(mode) = head.mode {
        let made = fstat(file).map_err(code)?.st_mode & 0o777;
        let run = if mode & 0o100 == 0 { 0 } else { (made & 0o444) >> 2 };
        let bits = (made | run) & (mode & 0o777 | 0o600);
        fchmod(file, Mode::from_raw_mode(bits)).map_err(code)?;
    }
    match head.modified {
        Some(seconds) => set_modified(file, Moment { seconds, nanoseconds: 0 }),
        None => Ok(()),
    }
}

/// What is no affair of one member.
fn ends_all(why: Code) -> bool {
    matches!(
        why,
        Code::Cancelled
            | Code::CutOff
            | Code::NoSpace
            | Code::OverQuota
            | Code::ReadOnly
            | Code::Away
            | Code::NotAnArchive
            | Code::ArchiveTooLarge
    )
}
