//! A copy of a file, or of a directory with all in it.
//!
//! Links are copied as what they say, files with several names in the copied tree keep them, holes stay holes, times, permissions and access
//! lists stay as they are; where there can be no lists, what is lost with them is named. Pipes, sockets, devices and mounts are left out and
//! named. The copy grows under a hidden name and gets its own when it is whole; one that cannot be finished is removed, and one whose process
//! was killed is found by its id. What is left of a directory then, or where the portal ends meanwhile, the next copy of the same
//! [goes on with](super::earlier).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use eirene_files_protocol::{
    Answer, Code, Compare, Copied, CopyFiles, EntryKind, Moved, Name, OnConflict, RelativePath,
};
use rustix::fs::{SeekFrom, Statx, copy_file_range, ftruncate, seek};
use rustix::io::Errno;

use super::delete::Removal;
use super::{compare, earlier};
use crate::beneath::{Place, Space};
use crate::change::is_same;
use crate::errno::code;
use crate::rights::{Lists, keep};
use crate::server::{Cancelled, Job};
use crate::settle::settle;
use crate::walk::{Account, Step, Walk};
use crate::writeback::reach_storage;

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
    let (kind, found) = from.look()?;
    if kind == EntryKind::Directory && to.directory.lies_in(&from)? {
        return Err(Code::IntoItself);
    }
    if wanted.same_is_done
        && wanted.on_conflict != OnConflict::KeepBoth
        && to.found().and_then(|there| there.look()).is_ok_and(|(_, there)| !is_same(&there, &found))
        && let Some(copied) = same(job, wanted)?
    {
        return Ok(Answer::Copied(copied));
    }
    let part = wanted.id.file_name();
    if to.directory.child(&part).is_ok() {
        return Err(Code::Exists);
    }
    let mut copy = Copying {
        job,
        space,
        to_space: to.space,
        account: Account::new(),
        named: HashMap::new(),
        named_bytes: 0,
        asked: 0,
    };
    let copied = if kind == EntryKind::Directory {
        let (top, left) = earlier::begin(job, &to.directory, wanted)?;
        copy.tree(&from, Target { place: top, found, left })
    } else {
        copy.copy(&from, kind, &to.directory, &part, &RelativePath::default())
    };
    let settled = copied.and_then(|()| settle(&to.directory, &part, &to, wanted.on_conflict));
    match settled {
        Ok(moved) => {
            // It is whole: a note that stays is found by its id.
            let _ = to.directory.remove_file(&wanted.id.note_name());
            Ok(Answer::Copied(Copied { moved, walked: copy.account.walked }))
        }
        // Nobody has said that it is not wanted any more: it can be gone on with. A storage that breaks off is no reason: the portal is there.
        Err(_) if kind == EntryKind::Directory && is_cut_off(job) => Err(Code::CutOff),
        Err(why) => {
            let why = to.directory.why_full(why, copy.asked);
            // The portal can ask for it again by its id.
            let cleaning = Removal { job, space: to.space, cancelled: &Cancelled::default(), opens: true };
            let _ = earlier::remove(&cleaning, &to.directory, wanted.id, &mut Account::new());
            Err(why)
        }
    }
}

/// What lies at the target, if it is the same as what is to be copied.
fn same(job: &Job, wanted: &CopyFiles) -> Result<Option<Copied>, Code> {
    match compare::run(job, &Compare { from: wanted.from.clone(), to: wanted.to.clone() })? {
        Answer::Compared(walked) if walked.skipped_in_all == 0 => {
            Ok(Some(Copied { moved: Moved { path: wanted.to.path.clone(), trashed: None }, walked }))
        }
        _ => Ok(None),
    }
}

/// A directory that is being copied.
struct Target {
    /// The copy.
    place: Rc<Place>,
    /// What was found of the original, for the times and permissions of the copy once it is full.
    found: Statx,
    /// Whether something of an earlier copy is in it.
    left: bool,
}

struct Copying<'a> {
    job: &'a Job,
    space: &'a Space,
    to_space: &'a Space,
    account: Account,
    /// Files with several names, and where the copy lies in the copied tree.
    named: HashMap<(u64, u64), RelativePath>,
    named_bytes: usize,
    /// Bytes that were to be written last.
    asked: u64,
}

impl Copying<'_> {
    fn copy(
        &mut self,
        from: &Place,
        kind: EntryKind,
        to: &Place,
        part: &Name,
        path: &RelativePath,
    ) -> Result<(), Code> {
        match kind {
            EntryKind::File => self.file(from, to, part, path).map(|bytes| self.account.done(bytes)),
            EntryKind::Link => to.make_link(part, &from.link_text()?).map(|()| self.account.done(0)),
            // Directories are gone into, by a walk.
            EntryKind::Directory | EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => {
                Err(Code::NotSupported)
            }
        }
    }

    fn tree(&mut self, from: &Place, target: Target) -> Result<(), Code> {
        let top = Rc::clone(&target.place);
        let mut walk = Walk::new(false);
        walk.enter(from, RelativePath::default(), target)?;
        while let Some(step) = walk.step(self.space, &self.job.cancelled)? {
            self.account.say(self.job)?;
            let Some(level) = walk.here() else { break };
            match step {
                Step::Entry(name) => {
                    let Ok(path) = level.path.join(&name) else {
                        self.account.skip(level.path.clone(), Code::TooDeep);
                        continue;
                    };
                    let from = Rc::clone(&level.place);
                    let target = (Rc::clone(&level.data.place), level.data.left);
                    let done = self.entry(&mut walk, &from, (&target.0, target.1), &name, &path, &top);
                    self.pass_over(&path, done)?;
                }
                Step::Unlisted(why) => self.account.skip(level.path.clone(), why),
                Step::Leave => {
                    let Some(level) = walk.leave() else { break };
                    let Target { place, found, left } = level.data;
                    let swept = if left { earlier::sweep(&level.place, &place, &self.removal()) } else { Ok(()) };
                    self.pass_over(&level.path, swept)?;
                    // Without them it stays its owner's alone.
                    let permitted = self.permissions(&level.place, &found, &place, &level.path);
                    self.pass_over(&level.path, permitted)?;
                    let dated = place.set_times(&found);
                    self.pass_over(&level.path, dated)?;
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
        (target, left): (&Place, bool),
        name: &Name,
        path: &RelativePath,
        top: &Place,
    ) -> Result<(), Code> {
        let place = from.child(name)?;
        let (kind, found) = if left { place.look_anew()? } else { place.look()? };
        let mut made_before = None;
        if left && let Some((made, kind_of_copy, made_found)) = earlier::there(target, name)? {
            if kind == EntryKind::Directory && kind_of_copy == kind {
                // It may be what its original is already, which is not to be written to perhaps.
                made.set_mode(made_found.stx_mode & 0o2000 | 0o700)?;
                made_before = Some(made);
            } else if !self.named.contains_key(&inode(&found))
                && earlier::is_whole((&place, kind, &found), (&made, kind_of_copy, &made_found))?
            {
                let is_file = kind == EntryKind::File;
                if is_file {
                    // What is lost with a list is said of this copy, too.
                    self.permissions(&place, &found, &made, path)?;
                    self.remember(&found, path);
                }
                self.account.done(if is_file { found.stx_size } else { 0 });
                return Ok(());
            } else {
                // Also what is another name of a file that is there by now.
                self.removal().remove_all(target, name, &mut Account::new())?;
            }
        }
        match kind {
            EntryKind::File if found.stx_nlink > 1 => {
                let known = self.named.get(&inode(&found)).map(|known| top.below(known));
                if let Some(Ok(known)) = known
                    && target.add_name(name, &known).is_ok()
                {
                    self.account.done(0);
                    return Ok(());
                }
                let bytes = self.file(&place, target, name, path)?;
                self.account.done(bytes);
                self.remember(&found, path);
            }
            EntryKind::Directory => {
                let left = made_before.is_some();
                let made = if let Some(made) = made_before {
                    made
                } else {
                    target.make_private_directory(name)?;
                    target.child(name)?
                };
                // What is not gone into does not look as if it were empty, nor whole.
                if let Err(why) = walk.enter(&place, path.clone(), Target { place: Rc::new(made), found, left }) {
                    self.removal().remove_all(target, name, &mut Account::new())?;
                    return Err(why);
                }
            }
            _ => self.copy(&place, kind, target, name, path)?,
        }
        Ok(())
    }

    /// Names what did not go well with an entry, and goes on, unless that ends all.
    fn pass_over(&mut self, path: &RelativePath, done: Result<(), Code>) -> Result<(), Code> {
        match done {
            Err(why) if ends_all(why) => Err(why),
            Err(why) => {
                self.account.skip(path.clone(), why);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Who removes from the copy what does not belong there.
    fn removal(&self) -> Removal<'_> {
        Removal { job: self.job, space: self.to_space, cancelled: &self.job.cancelled, opens: true }
    }

    /// Remembers where the copy of a file lies that has several names.
    fn remember(&mut self, found: &Statx, path: &RelativePath) {
        let length = path.as_bytes().len();
        let has_room = self.named.len() < MOST_NAMED && self.named_bytes + length <= MOST_NAMED_BYTES;
        if found.stx_nlink > 1 && has_room {
            self.named_bytes += length;
            self.named.insert(inode(found), path.clone());
        }
    }

    /// Copies a file; a part of one is removed again. Its bytes.
    fn file(&mut self, from: &Place, to: &Place, name: &Name, path: &RelativePath) -> Result<u64, Code> {
        let (file, found) = from.read()?;
        let new = to.create_private(name)?;
        let copied = self.content(&file, &new, found.stx_size).and_then(|()| {
            reach_storage(&new)?;
            // Not what lies under its name by now: whoever may write here may have put another file there, to have it opened.
            let copy = to.made(new);
            self.permissions(from, &found, &copy, path)?;
            copy.set_times(&found)
        });
        match copied {
            Ok(()) => Ok(found.stx_size),
            Err(why) => {
                // Who goes on with what was cut off may have put another there already.
                if !is_cut_off(self.job) {
                    to.remove_file(name)?;
                }
                Err(why)
            }
        }
    }

    /// Gives a copy its original's permissions, and names it where somebody loses what a list gave them.
    fn permissions(&mut self, original: &Place, found: &Statx, copy: &Place, path: &RelativePath) -> Result<(), Code> {
        if keep(original, found, copy)? == Lists::Lost {
            self.account.skip(path.clone(), Code::ListLost);
        }
        Ok(())
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

/// Whether nobody is there any more who could want it.
fn is_cut_off(job: &Job) -> bool {
    job.cancelled.check() == Err(Code::CutOff)
}

/// Which file it is.
fn inode(found: &Statx) -> (u64, u64) {
    (rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)
}

/// What is no affair of one entry: going on would only leave out everything that follows.
pub(super) fn ends_all(why: Code) -> bool {
    matches!(
        why,
        Code::Cancelled | Code::CutOff | Code::NoSpace | Code::OverQuota | Code::ReadOnly | Code::Away | Code::TooMany
    )
}
