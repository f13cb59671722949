//! A copy of a file, or of a directory with all in it.
//!
//! Links are copied as what they say, files with several names in the copied tree keep them, holes stay holes, times and permissions stay
//! as they are. Pipes, sockets, devices and mounts are left out and named. The copy grows under a hidden name and gets its own when it is
//! whole; one that cannot be finished is removed, and one whose process was killed is found by its id.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use eirene_files_protocol::{Answer, Code, Copied, CopyFiles, EntryKind, Name, RelativePath};
use rustix::fs::{SeekFrom, Statx, copy_file_range, ftruncate, seek};
use rustix::io::Errno;

use super::delete::Removal;
use crate::beneath::{Place, Space};
use crate::errno::code;
use crate::server::{Cancelled, Job};
use crate::settle::settle;
use crate::walk::{Account, Step, Walk};

/// Most bytes handed to the kernel at once.
const CHUNK: usize = 8 * 1024 * 1024;
/// Bytes of the buffer where a file system cannot copy by itself.
const BUFFER: usize = 256 * 1024;
/// Most files with several names that are remembered, and most bytes of their paths: what is beyond is copied once more.
const MOST_NAMED: usize = 100_000;
const MOST_NAMED_BYTES: usize = 16 * 1024 * 1024;

pub(super) fn run(job: &Job, wanted: &CopyFiles) -> Result<Answer, Code> {
    let space = job.space(wanted.from.space)?;
    let from = space.source(&wanted.from.path)?;
    let to = job.space(wanted.to.space)?.spot(&wanted.to.path)?;
    let looked = from.look()?;
    if looked.0 == EntryKind::Directory && to.directory.lies_in(&from)? {
        return Err(Code::IntoItself);
    }
    let part = wanted.id.file_name();
    if to.directory.child(&part).is_ok() {
        return Err(Code::Exists);
    }
    let mut copy = Copying { job, space, account: Account::new(), named: HashMap::new(), named_bytes: 0, asked: 0 };
    let copied = copy.copy(&from, looked, &to.directory, &part);
    let settled = copied.and_then(|()| settle(&to.directory, &part, &to, wanted.on_conflict));
    match settled {
        Ok(moved) => Ok(Answer::Copied(Copied { moved, walked: copy.account.walked })),
        Err(why) => {
            let why = to.directory.why_full(why, copy.asked);
            // The portal can ask for it again by its id.
            let cleaning = Removal { job, space: to.space, cancelled: &Cancelled::default() };
            let _ = cleaning.remove(&to.directory, &part, &mut Account::new());
            Err(why)
        }
    }
}

/// A directory that is being copied.
struct Target {
    /// The copy.
    place: Rc<Place>,
    /// What was found of the original, for the times and permissions of the copy once it is full.
    found: Statx,
}

struct Copying<'a> {
    job: &'a Job,
    space: &'a Space,
    account: Account,
    /// Files with several names, and where the copy lies in the copied tree.
    named: HashMap<(u64, u64), RelativePath>,
    named_bytes: usize,
    /// Bytes that were to be written last.
    asked: u64,
}

impl Copying<'_> {
    fn copy(&mut self, from: &Place, (kind, found): (EntryKind, Statx), to: &Place, part: &Name) -> Result<(), Code> {
        match kind {
            EntryKind::File => self.file(from, to, part).map(|bytes| self.account.done(bytes)),
            EntryKind::Link => to.make_link(part, &from.link_text()?).map(|()| self.account.done(0)),
            EntryKind::Directory => self.tree(from, found, to, part),
            EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => Err(Code::NotSupported),
        }
    }

    fn tree(&mut self, from: &Place, found: Statx, to: &Place, part: &Name) -> Result<(), Code> {
        to.make_private_directory(part)?;
        let top = Rc::new(to.child(part)?);
        let mut walk = Walk::new(false);
        walk.enter(from, RelativePath::default(), Target { place: Rc::clone(&top), found })?;
        while let Some(step) = walk.step(self.space, &self.job.cancelled)? {
            self.account.say(self.job)?;
            let Some(level) = walk.here() else { break };
            match step {
                Step::Entry(name) => {
                    let Ok(path) = level.path.join(&name) else {
                        self.account.skip(level.path.clone(), Code::TooDeep);
                        continue;
                    };
                    let (from, target) = (Rc::clone(&level.place), Rc::clone(&level.data.place));
                    match self.entry(&mut walk, &from, &target, &name, &path, &top) {
                        Ok(()) => {}
                        Err(why) if ends_all(why) => return Err(why),
                        Err(why) => self.account.skip(path, why),
                    }
                }
                Step::Unlisted(why) => self.account.skip(level.path.clone(), why),
                Step::Leave => {
                    let Some(level) = walk.leave() else { break };
                    let Target { place, found } = level.data;
                    let inherited = place.look()?.1.stx_mode & 0o2000;
                    place.set_mode(found.stx_mode & 0o777 | inherited)?;
                    place.set_times(&found)?;
                    self.account.done(0);
                }
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        walk: &mut Walk<Target>,
        from: &Place,
        target: &Place,
        name: &Name,
        path: &RelativePath,
        top: &Place,
    ) -> Result<(), Code> {
        let place = from.child(name)?;
        let (kind, found) = place.look()?;
        match kind {
            EntryKind::File if found.stx_nlink > 1 => {
                let inode = (rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino);
                let known = self.named.get(&inode).map(|known| top.below(known));
                if let Some(Ok(known)) = known
                    && target.add_name(name, &known).is_ok()
                {
                    self.account.done(0);
                    return Ok(());
                }
                let bytes = self.file(&place, target, name)?;
                self.account.done(bytes);
                let length = path.as_bytes().len();
                if self.named.len() < MOST_NAMED && self.named_bytes + length <= MOST_NAMED_BYTES {
                    self.named_bytes += length;
                    self.named.insert(inode, path.clone());
                }
            }
            EntryKind::Directory => {
                target.make_private_directory(name)?;
                let made = Rc::new(target.child(name)?);
                // What is not gone into does not look as if it were empty.
                if let Err(why) = walk.enter(&place, path.clone(), Target { place: made, found }) {
                    target.remove_directory(name)?;
                    return Err(why);
                }
            }
            _ => self.copy(&place, (kind, found), target, name)?,
        }
        Ok(())
    }

    /// Copies a file; a part of one is removed again. Its bytes.
    fn file(&mut self, from: &Place, to: &Place, name: &Name) -> Result<u64, Code> {
        let (file, found) = from.read()?;
        let new = to.create_private(name)?;
        let copied = self.content(&file, &new, found.stx_size).and_then(|()| {
            let copy = to.child(name)?;
            copy.set_mode(found.stx_mode & 0o777)?;
            copy.set_times(&found)
        });
        match copied {
            Ok(()) => Ok(found.stx_size),
            Err(why) => {
                to.remove_file(name)?;
                Err(why)
            }
        }
    }

    /// Copies what is in a file, and leaves its holes out.
    fn content(&mut self, from: &OwnedFd, to: &OwnedFd, bytes: u64) -> Result<(), Code> {
        let mut at = 0;
        while at < bytes {
            self.job.cancelled.check()?;
            let begin = match seek(from, SeekFrom::Data(at)) {
                Ok(begin) => begin.min(bytes),
                // A hole to the end.
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            let end = seek(from, SeekFrom::Hole(begin)).map_or(bytes, |end| end.min(bytes));
            if begin < end {
                self.range(from, to, begin, end)?;
            }
            at = end.max(begin);
            if begin >= bytes {
                break;
            }
        }
        ftruncate(to, bytes).map_err(code)
    }

    fn range(&mut self, from: &OwnedFd, to: &OwnedFd, begin: u64, end: u64) -> Result<(), Code> {
        let (mut at, mut there) = (begin, begin);
        while at < end {
            self.job.cancelled.check()?;
            self.account.say_with(self.job, at)?;
            let count = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
            self.asked = count as u64;
            match copy_file_range(from, Some(&mut at), to, Some(&mut there), count) {
                Ok(0) => return Err(Code::ChangedMeanwhile),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF | Errno::PERM) => {
                    return self.by_hand(from, to, at, end);
                }
                Err(errno) => return Err(code(errno)),
            }
        }
        Ok(())
    }

    fn by_hand(&mut self, from: &OwnedFd, to: &OwnedFd, mut at: u64, end: u64) -> Result<(), Code> {
        let mut buffer = vec![0; BUFFER];
        while at < end {
            self.job.cancelled.check()?;
            self.account.say_with(self.job, at)?;
            let count = usize::try_from(end - at).map_or(BUFFER, |left| left.min(BUFFER));
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(from, &mut buffer[..count], at)).map_err(code)?;
            if read == 0 {
                return Err(Code::ChangedMeanwhile);
            }
            let mut bytes = &buffer[..read];
            self.asked = read as u64;
            while !bytes.is_empty() {
                let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(to, bytes, at)).map_err(code)?;
                bytes = &bytes[written..];
                at += written as u64;
            }
        }
        Ok(())
    }
}

/// What is no affair of one entry: going on would only leave out everything that follows.
pub(super) fn ends_all(why: Code) -> bool {
    matches!(
        why,
        Code::Cancelled | Code::CutOff | Code::NoSpace | Code::OverQuota | Code::ReadOnly | Code::Away | Code::TooMany
    )
}
