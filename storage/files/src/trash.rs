//! A person's trash in a space: `.eirene-trash/<uid>/{files,info}`, a directory of what was deleted and one that says where it was.
//!
//! There is no journal. What is deleted is announced in `info` first and renamed into `files` then, and comes back by the same steps the
//! other way round; so whenever the process is killed, every file lies in exactly one place, and at worst an announcement is left that
//! nothing belongs to. Nobody sees it, and emptying the trash takes it along.
//!
//! The outer directory of a shared space is the launcher's to make; at home it is the person's own. What lies in a trash is reached by
//! its id alone.
//!
//! Everybody who may write to a shared space can take a person's name in the outer directory before they do. Then the trash is `<uid>.<random>`. A person
//! can have several trashes so, and sees them as one: they are theirs by their owner, whatever they are called.

use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eirene_files_protocol::{Code, EntryKind, Name, RelativePath, TRASH, TrashId};
use rustix::fs::Statx;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::beneath::{Last, Place, Space};
use crate::directory::Batch;
use crate::errno::code;

/// Most bytes of an announcement: a path of 4,095 bytes that is not UTF-8, and the rest.
const MOST_INFO: usize = 8 * 1024;
/// So old is an announcement without a file before it is taken for left over.
const LEFT_OVER: Duration = Duration::from_hours(1);

/// What is written beside a deleted file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Info {
    /// Where it was.
    pub(crate) path: RelativePath,
    /// What it is.
    pub(crate) kind: EntryKind,
    /// Size of a file.
    pub(crate) bytes: Option<u64>,
}

/// A person's trash in a space.
#[derive(Debug)]
pub(crate) struct Trash {
    pub(crate) files: Place,
    pub(crate) info: Place,
}

impl Trash {
    /// Opens the trash that takes what is deleted, and makes it where there is none.
    pub(crate) fn open(space: &Space) -> Result<Self, Code> {
        let root = space.find(&RelativePath::default(), Last::Followed)?;
        // A trash in a directory of others would be mine to take away from them.
        let outer = directory(&root, &name(TRASH)?, root.look()?.1.stx_uid == me());
        let outer = outer.map_err(|why| if why == Code::NotFound { Code::NotSupported } else { why })?;
        if let Some(own) = Self::own(&outer, &name(me().to_string().as_bytes())?, true)? {
            return Ok(own);
        }
        for other in others(&outer)? {
            if let Some(own) = Self::own(&outer, &other, true)? {
                return Ok(own);
            }
        }
        let fresh = name(format!("{}.{}", me(), new_id()?).as_bytes())?;
        Self::own(&outer, &fresh, true)?.ok_or(Code::Forbidden)
    }

    /// All trashes that are this person's.
    pub(crate) fn all(space: &Space) -> Result<Vec<Self>, Code> {
        let root = space.find(&RelativePath::default(), Last::Followed)?;
        let outer = match directory(&root, &name(TRASH)?, false) {
            Err(Code::NotFound) => return Ok(Vec::new()),
            outer => outer?,
        };
        let others = match others(&outer) {
            // Where names cannot be listed, only the first is ever used.
            Err(Code::Forbidden) => Vec::new(),
            others => others?,
        };
        let mut all = Vec::new();
        for name in std::iter::once(name(me().to_string().as_bytes())?).chain(others) {
            all.extend(Self::own(&outer, &name, false)?);
        }
        Ok(all)
    }

    /// Which of a person's trashes has what is called so.
    pub(crate) fn holding(space: &Space, id: TrashId) -> Result<Self, Code> {
        let name = file_name(id)?;
        for trash in Self::all(space)? {
            match trash.files.child(&name) {
                Err(Code::NotFound) => {}
                found => return found.map(|_| trash),
            }
        }
        Err(Code::NotFound)
    }

    /// A trash of this name, if it is this person's; what others could have opened is closed to them.
    fn own(outer: &Place, own: &Name, make: bool) -> Result<Option<Self>, Code> {
        let open = || {
            let own = mine(outer, own, make)?;
            Ok(Self { files: mine(&own, &name(b"files")?, make)?, info: mine(&own, &name(b"info")?, make)? })
        };
        match open() {
            // None is there, or somebody else's.
            Err(Code::NotFound | Code::NotADirectory | Code::Forbidden) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Says where something was, before it comes.
    pub(crate) fn announce(&self, path: RelativePath, found: &(EntryKind, Statx)) -> Result<TrashId, Code> {
        let id = new_id()?;
        self.announce_as(id, path, found)?;
        Ok(id)
    }

    /// Says where something was that is called so.
    pub(crate) fn announce_as(&self, id: TrashId, path: RelativePath, found: &(EntryKind, Statx)) -> Result<(), Code> {
        let bytes = (found.0 == EntryKind::File).then_some(found.1.stx_size);
        let info = serde_json::to_vec(&Info { path, kind: found.0, bytes }).map_err(|_| Code::Failed)?;
        let file = self.info.create_private(&file_name(id)?)?;
        let written = write_all(&file, &info).and_then(|()| rustix::fs::fdatasync(&file).map_err(code));
        if let Err(why) = written {
            self.forget(id);
            return Err(why);
        }
        Ok(())
    }

    /// Takes what was announced.
    pub(crate) fn take(&self, id: TrashId, from: &Place, name: &Name) -> Result<(), Code> {
        from.rename_new(name, &self.files, &file_name(id)?)
    }

    /// Gives it back; what lies there stays.
    pub(crate) fn give_back(&self, id: TrashId, to: &Place, name: &Name) -> Result<(), Code> {
        self.files.rename_new(&file_name(id)?, to, name)
    }

    /// Removes an announcement that nothing belongs to. One that stays does no harm.
    pub(crate) fn forget(&self, id: TrashId) {
        let _ = file_name(id).and_then(|name| self.info.remove_file(&name));
    }

    /// What was announced; none where that was lost, or is not ours.
    pub(crate) fn info(&self, id: TrashId) -> Option<Info> {
        let (file, _) = self.info.child(&file_name(id).ok()?).ok()?.read().ok()?;
        let mut bytes = vec![0; MOST_INFO];
        let mut length = 0;
        while length < bytes.len() {
            let read = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[length..])).ok()?;
            if read == 0 {
                break;
            }
            length += read;
        }
        serde_json::from_slice(&bytes[..length]).ok()
    }

    /// Whether an announcement may go: nothing belongs to it, and nothing is about to.
    pub(crate) fn is_left_over(&self, id: TrashId) -> bool {
        let Ok(name) = file_name(id) else { return false };
        let age = now().saturating_sub(Duration::from_millis(id.milliseconds()));
        age > LEFT_OVER && matches!(self.files.child(&name), Err(Code::NotFound))
    }
}

/// How an entry is called in both directories.
pub(crate) fn file_name(id: TrashId) -> Result<Name, Code> {
    name(id.to_string().as_bytes())
}

fn name(bytes: &[u8]) -> Result<Name, Code> {
    Name::parse(bytes).map_err(|_| Code::Failed)
}

/// A directory in another, which is neither a link nor anything else.
fn directory(parent: &Place, name: &Name, make: bool) -> Result<Place, Code> {
    let found = match parent.child(name) {
        Err(Code::NotFound) if make => match parent.make_private_directory(name) {
            Ok(()) | Err(Code::Exists) => parent.child(name)?,
            Err(why) => return Err(why),
        },
        other => other?,
    };
    if found.look()?.0 == EntryKind::Directory { Ok(found) } else { Err(Code::NotADirectory) }
}

/// As [`directory`], of this person's alone. What others may write to is closed to them: in a shared space they can move there what is the person's.
fn mine(parent: &Place, name: &Name, make: bool) -> Result<Place, Code> {
    let own = directory(parent, name, make)?;
    let found = own.look()?.1;
    if found.stx_uid != me() {
        return Err(Code::Forbidden);
    }
    if found.stx_mode & 0o777 != 0o700 {
        // Another name would not help there.
        own.set_mode(0o700).map_err(|why| if why == Code::Forbidden { Code::NotSupported } else { why })?;
    }
    Ok(own)
}

/// What is called as this person's trash and a suffix, in order, whatever it is.
fn others(outer: &Place) -> Result<Vec<Name>, Code> {
    let prefix = format!("{}.", me());
    let (outer, mut batch, mut all) = (outer.list()?, Batch::default(), Vec::new());
    while batch.read(outer.as_fd())? {
        let names = batch.names().map(CStr::to_bytes).filter(|name| name.starts_with(prefix.as_bytes()));
        all.extend(names.filter_map(|name| Name::parse(name).ok()));
    }
    all.sort_unstable_by(|one, another| one.as_bytes().cmp(another.as_bytes()));
    Ok(all)
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A name that nothing in a trash has. Names sort by their time, so that a trash lists its entries in order: six bytes of milliseconds, as in a
/// version 7 UUID, then two of their fraction, because one millisecond is enough for several entries.
pub(crate) fn new_id() -> Result<TrashId, Code> {
    let mut id = [0; 16];
    if getrandom(&mut id, GetRandomFlags::empty()).map_err(code)? != id.len() {
        return Err(Code::Failed);
    }
    let time = u64::try_from((now().as_nanos() << 16) / 1_000_000).unwrap_or(u64::MAX);
    id[..8].copy_from_slice(&time.to_be_bytes());
    Ok(TrashId(id))
}

pub(crate) fn write_all(file: &std::os::fd::OwnedFd, mut bytes: &[u8]) -> Result<(), Code> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, bytes)).map_err(code)?;
        bytes = &bytes[written..];
    }
    Ok(())
}
