//! The way through a directory and all below it: by descriptors, one directory after the other, each held until it is done with.
//!
//! What lies under a name is found once, looked at, and gone into by what was found; no link is followed and no mount entered. Of a
//! directory no more names are held than one look gives, so that a walk needs the same memory whatever it meets.

use std::rc::Rc;
use std::time::{Duration, Instant};

use eirene_files_protocol::{Code, MOST_SKIPPED, Name, Progress, RelativePath, Skipped, UPLOAD_PREFIX, Walked};
use rustix::fs::SeekFrom;

use crate::beneath::{Place, Space};
use crate::directory::Names;
use crate::errno::code;
use crate::server::{Cancelled, Job};

/// How deep a walk goes: each level holds a descriptor or two, and there are only so many.
pub(crate) const MOST_DEPTH: usize = 64;
/// Most bytes of skipped paths: all that is said of them has to fit into a frame.
const MOST_SKIPPED_BYTES: usize = 16 * 1024;
/// How often to say how far it is.
const SAY: Duration = Duration::from_secs(1);

/// A directory that is being walked.
pub(crate) struct Level<T> {
    /// The directory, opened to list it.
    pub(crate) place: Rc<Place>,
    /// Below what was asked for.
    pub(crate) path: RelativePath,
    /// The walker's own.
    pub(crate) data: T,
    names: Names,
    next: u32,
    ended: bool,
}

/// What comes next.
pub(crate) enum Step {
    /// A name in the innermost directory.
    Entry(Name),
    /// The rest of the innermost directory cannot be listed.
    Unlisted(Code),
    /// The innermost directory is done with, to be left.
    Leave,
}

/// A walk; `T` is what the walker keeps of each directory.
pub(crate) struct Walk<T> {
    levels: Vec<Level<T>>,
    buffer: Vec<u8>,
    /// Whether what is the platform's is met too, as where a directory goes with all in it.
    platform_too: bool,
}

impl<T> Walk<T> {
    pub(crate) fn new(platform_too: bool) -> Self {
        Self { levels: Vec::new(), buffer: Vec::new(), platform_too }
    }

    /// Goes into a directory.
    pub(crate) fn enter(&mut self, place: &Place, path: RelativePath, data: T) -> Result<(), Code> {
        if self.levels.len() >= MOST_DEPTH {
            return Err(Code::TooDeep);
        }
        let place = Rc::new(place.listed()?);
        self.levels.push(Level { place, path, data, names: Names::default(), next: 0, ended: false });
        Ok(())
    }

    /// The innermost directory.
    pub(crate) fn here(&mut self) -> Option<&mut Level<T>> {
        self.levels.last_mut()
    }

    /// The directory around the innermost.
    pub(crate) fn above(&self) -> Option<&Level<T>> {
        self.levels.iter().nth_back(1)
    }

    /// Leaves the innermost directory.
    pub(crate) fn leave(&mut self) -> Option<Level<T>> {
        self.levels.pop()
    }

    /// Begins the innermost directory anew: names may be passed over by a file system where others are removed while it is listed.
    pub(crate) fn again(&mut self) -> Result<(), Code> {
        if let Some(level) = self.levels.last_mut() {
            rustix::fs::seek(level.place.as_fd(), SeekFrom::Start(0)).map_err(code)?;
            (level.names, level.next, level.ended) = (Names::default(), 0, false);
        }
        Ok(())
    }

    /// What comes next; none when all was left.
    pub(crate) fn step(&mut self, space: &Space, cancelled: &Cancelled) -> Result<Option<Step>, Code> {
        cancelled.check()?;
        while let Some(level) = self.levels.last_mut() {
            if (level.next as usize) < level.names.len() {
                let name = level.names.get(level.next);
                let of_the_platform =
                    name.starts_with(UPLOAD_PREFIX) || (level.place.is_root() && space.reserves(name));
                let name = Name::parse(name);
                level.next += 1;
                match name {
                    Ok(name) if self.platform_too || !of_the_platform => return Ok(Some(Step::Entry(name))),
                    // A file system may give out names that are none.
                    _ => continue,
                }
            }
            if level.ended {
                return Ok(Some(Step::Leave));
            }
            cancelled.check()?;
            level.next = 0;
            match Names::read_some(level.place.as_fd(), &mut self.buffer) {
                Ok(names) => (level.ended, level.names) = (names.len() == 0, names),
                Err(why) => {
                    (level.ended, level.names) = (true, Names::default());
                    return Ok(Some(Step::Unlisted(why)));
                }
            }
        }
        Ok(None)
    }
}

/// What is said of a walk: how far it is, and what was left alone.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) walked: Walked,
    skipped_bytes: usize,
    said: Instant,
}

impl Account {
    pub(crate) fn new() -> Self {
        Self { walked: Walked::default(), skipped_bytes: 0, said: Instant::now() }
    }

    /// An entry is done with.
    pub(crate) fn done(&mut self, bytes: u64) {
        self.walked.entries += 1;
        self.walked.bytes += bytes;
    }

    /// An entry is left alone.
    pub(crate) fn skip(&mut self, path: RelativePath, why: Code) {
        self.walked.skipped_in_all += 1;
        let bytes = path.as_bytes().len();
        if self.walked.skipped.len() < MOST_SKIPPED && self.skipped_bytes + bytes <= MOST_SKIPPED_BYTES {
            self.skipped_bytes += bytes;
            self.walked.skipped.push(Skipped { path, why });
        }
    }

    /// Says how far it is, now and then.
    pub(crate) fn say(&mut self, job: &Job) -> Result<(), Code> {
        self.say_with(job, 0)
    }

    /// As [`Self::say`], within an entry of which so many bytes are done with.
    pub(crate) fn say_with(&mut self, job: &Job, more: u64) -> Result<(), Code> {
        if self.said.elapsed() < SAY {
            return Ok(());
        }
        self.said = Instant::now();
        job.progress(Progress { entries: self.walked.entries, bytes: self.walked.bytes + more })
    }
}
