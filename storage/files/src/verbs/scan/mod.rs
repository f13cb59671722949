//! What takes the room: measures a directory and all below it, a part at a time, and says what each directory holds once it is done with it.
//!
//! Room is what the file system has given out, not what files say they are. A file with several names counts once, where it is met first; no
//! mount is entered. The platform's own counts too: it takes room as everything else. Two threads measure, each another directory (`walk.rs`):
//! a disk answers two questions at once sooner than one after the other.

mod walk;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_files_protocol::{
    Answer, Code, EntryKind, KnownDirectory, MOST_BYTES, MOST_KNOWN, Measured, Part, RelativePath, Scan, Scanned,
};
use rustix::fs::{Statx, makedev};

use self::walk::Pool;
use crate::beneath::Last;
use crate::server::Job;
use crate::walk::Account;

/// Every directory down to this depth is said.
const DEPTH: usize = 4;
/// A deeper one is said if it holds more than this part of what was measured so far.
const PART: u64 = 1000;
/// Most files with several names that are remembered.
const MOST_NAMED: usize = 1_000_000;

#[derive(Clone, Copy, Default)]
struct Sums {
    bytes: u64,
    entries: u64,
    own_bytes: u64,
    own_entries: u64,
    /// Whether something in it was not measured.
    partial: bool,
}

impl Sums {
    /// What lies directly in it.
    fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.own_bytes += bytes;
        self.entries += 1;
        self.own_entries += 1;
    }

    /// More of the same directory.
    fn add(&mut self, more: &Self) {
        self.own_bytes += more.own_bytes;
        self.own_entries += more.own_entries;
        self.add_below(more);
    }

    /// All of a directory in it.
    fn add_below(&mut self, below: &Self) {
        self.bytes += below.bytes;
        self.entries += below.entries;
        self.partial |= below.partial;
    }
}

fn inode(found: &Statx) -> (u64, u64) {
    (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)
}

/// A directory that is not done with: it is said after all in it, whichever thread ends that.
struct Directory {
    above: Option<Arc<Self>>,
    /// Below what was asked for.
    path: RelativePath,
    /// One for what was asked for.
    depth: usize,
    inode: (u64, u64),
    sums: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    sums: Sums,
    /// What of it is not done with: its own list, and directories in it.
    left: usize,
}

impl Directory {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said of a scan, by whichever thread.
struct Said {
    account: Account,
    frame: Vec<Measured>,
    frame_bytes: usize,
    /// Which of the known were met.
    met: Vec<u32>,
    /// Whether time was over before all was begun.
    out_of_time: bool,
}

/// Files with several names.
#[derive(Default)]
struct Named {
    inodes: HashSet<(u64, u64)>,
    /// There were more than are remembered.
    too_many: bool,
}

struct Scanning<'a> {
    job: &'a Job,
    known: HashMap<&'a RelativePath, (u32, (u64, u64))>,
    begun: Instant,
    budget: Duration,
    said: Mutex<Said>,
    named: Mutex<Named>,
    pool: Pool,
}

pub(super) fn run(job: &Job, scan: &Scan) -> Result<Answer, Code> {
    if scan.known.len() > MOST_KNOWN {
        return Err(Code::Invalid);
    }
    let space = job.space(scan.space)?;
    let top = space.find(&scan.path, Last::Followed)?;
    if top.look()?.0 != EntryKind::Directory {
        return Err(Code::NotADirectory);
    }
    let said = Said { account: Account::new(), frame: Vec::new(), frame_bytes: 0, met: Vec::new(), out_of_time: false };
    let scanning = Scanning {
        job,
        known: (0_u32..)
            .zip(&scan.known)
            .map(|(place, known)| (&known.path, (place, (known.device, known.inode))))
            .collect(),
        begun: Instant::now(),
        budget: Duration::from_millis(scan.budget_ms),
        said: Mutex::new(said),
        named: Mutex::default(),
        pool: Pool::default(),
    };
    scanning.measure(&top)?;
    let mut said = scanning.said.into_inner().unwrap_or_else(PoisonError::into_inner);
    said.send(job)?;
    let approximate = scanning.named.into_inner().unwrap_or_else(PoisonError::into_inner).too_many;
    let Said { account, met, out_of_time, .. } = said;
    Ok(Answer::Scanned(Scanned { complete: !out_of_time, met, approximate, walked: account.walked }))
}

impl Scanning<'_> {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an entry takes of the disk; nothing where it was met under another name.
    fn bytes(&self, found: &Statx, kind: EntryKind) -> u64 {
        if found.stx_nlink > 1 && kind != EntryKind::Directory {
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            if named.inodes.len() < MOST_NAMED {
                if !named.inodes.insert(inode(found)) {
                    return 0;
                }
            } else if named.inodes.contains(&inode(found)) {
                return 0;
            } else {
                named.too_many = true;
            }
        }
        found.stx_blocks.saturating_mul(512)
    }

    /// Takes what was counted of a directory, and says now and then how far it is.
    fn counted(&self, directory: &Directory, some: &mut Sums) -> Result<(), Code> {
        let some = std::mem::take(some);
        directory.open().sums.add(&some);
        let mut said = self.said();
        said.account.walked.entries += some.own_entries;
        said.account.walked.bytes += some.own_bytes;
        said.account.say(self.job)
    }

    /// Something of a directory is done with. With its last, it is said, and is done with in the one above.
    fn done_with(&self, mut directory: Arc<Directory>) -> Result<(), Code> {
        loop {
            let sums = {
                let mut open = directory.open();
                open.left -= 1;
                if open.left > 0 {
                    return Ok(());
                }
                open.sums
            };
            if !sums.partial {
                self.said().take(self.job, &directory, &sums)?;
            }
            let Some(above) = directory.above.clone() else { return Ok(()) };
            above.open().sums.add_below(&sums);
            directory = above;
        }
    }
}

impl Said {
    fn take(&mut self, job: &Job, directory: &Directory, sums: &Sums) -> Result<(), Code> {
        let is_large = sums.bytes > self.account.walked.bytes / PART;
        if directory.depth > DEPTH + 1 && !is_large {
            return Ok(());
        }
        // JSON makes at most six bytes of one.
        let most = 300 + 6 * directory.path.as_bytes().len();
        if self.frame_bytes + most > MOST_BYTES - 1024 {
            self.send(job)?;
        }
        self.frame_bytes += most;
        let (device, inode) = directory.inode;
        self.frame.push(Measured {
            directory: KnownDirectory { path: directory.path.clone(), device, inode },
            bytes: sums.bytes,
            entries: sums.entries,
            own_bytes: sums.own_bytes,
            own_entries: sums.own_entries,
        });
        Ok(())
    }

    fn send(&mut self, job: &Job) -> Result<(), Code> {
        self.frame_bytes = 0;
        if self.frame.is_empty() { Ok(()) } else { job.part(Part::Measured(std::mem::take(&mut self.frame))) }
    }
}
