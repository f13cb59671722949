//! What takes the room: measures a directory and all below it, a part at a time, and says what each directory holds once it is done with it.
//!
//! Room is what the file system has given out, not what files say they are. A file with several names counts once, where it is met first; no
//! mount is entered. The platform's own counts too: it takes room as everything else.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use eirene_files_protocol::{
    Answer, Code, EntryKind, KnownDirectory, MOST_BYTES, MOST_KNOWN, Measured, Part, RelativePath, Scan, Scanned,
};
use rustix::fs::{Statx, makedev};

use crate::beneath::{Last, Place, kind_of_entry, look_at_entry};
use crate::server::Job;
use crate::walk::{Account, Step, Walk};

/// Every directory down to this depth is said.
const DEPTH: usize = 4;
/// A deeper one is said if it holds more than this part of what was measured so far.
const PART: u64 = 1000;
/// Most files with several names that are remembered.
const MOST_NAMED: usize = 1_000_000;

#[derive(Default)]
struct Sums {
    device: u64,
    inode: u64,
    bytes: u64,
    entries: u64,
    own_bytes: u64,
    own_entries: u64,
    /// Whether all in it was measured.
    whole: bool,
}

impl Sums {
    fn of(found: &Statx) -> Self {
        let (device, inode) = inode(found);
        Self { device, inode, whole: true, ..Self::default() }
    }
}

fn inode(found: &Statx) -> (u64, u64) {
    (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)
}

struct Scanning<'a> {
    job: &'a Job,
    account: Account,
    named: HashSet<(u64, u64)>,
    approximate: bool,
    frame: Vec<Measured>,
    frame_bytes: usize,
}

pub(super) fn run(job: &Job, scan: &Scan) -> Result<Answer, Code> {
    if scan.known.len() > MOST_KNOWN {
        return Err(Code::Invalid);
    }
    let space = job.space(scan.space)?;
    let top = space.find(&scan.path, Last::Followed)?;
    let (kind, found) = top.look()?;
    if kind != EntryKind::Directory {
        return Err(Code::NotADirectory);
    }
    let known: HashMap<_, _> =
        (0_u32..).zip(&scan.known).map(|(place, known)| (&known.path, (place, (known.device, known.inode)))).collect();
    let mut met = Vec::new();
    let (begin, budget) = (Instant::now(), Duration::from_millis(scan.budget_ms));
    let mut scanning = Scanning {
        job,
        account: Account::new(),
        named: HashSet::new(),
        approximate: false,
        frame: Vec::new(),
        frame_bytes: 0,
    };
    let mut complete = true;
    let mut walk = Walk::new(true);
    walk.enter(&top, RelativePath::default(), Sums::of(&found))?;
    while let Some(step) = walk.step(space, &job.cancelled)? {
        scanning.account.say(job)?;
        let depth = walk.depth();
        let Some(level) = walk.here() else { break };
        match step {
            Step::Entry(name) => {
                let Ok(path) = level.path.join(&name) else {
                    scanning.account.skip(level.path.clone(), Code::TooDeep);
                    continue;
                };
                let looked = look_at_entry(level.place.as_fd(), name.as_bytes());
                let kind = kind_of_entry(&looked);
                let found = match looked {
                    Ok(found) if kind != EntryKind::Mount => found,
                    Ok(_) => continue,
                    Err(_) => {
                        level.data.whole = false;
                        continue;
                    }
                };
                if kind != EntryKind::Directory {
                    scanning.count(&mut level.data, &found);
                    continue;
                }
                if let Some((place, _)) = known.get(&path).filter(|(_, known)| *known == inode(&found)) {
                    met.push(*place);
                    scanning.count(&mut level.data, &found);
                    continue;
                }
                if begin.elapsed() >= budget {
                    (level.data.whole, complete) = (false, false);
                    continue;
                }
                scanning.count(&mut level.data, &found);
                let entered = level.place.child(&name).and_then(|place: Place| {
                    let (_, found) = place.look()?;
                    walk.enter(&place, path.clone(), Sums::of(&found))
                });
                if let Err(why) = entered {
                    scanning.account.skip(path, why);
                }
            }
            Step::Unlisted(why) => scanning.account.skip(level.path.clone(), why),
            Step::Leave => {
                let Some(level) = walk.leave() else { break };
                let sums = level.data;
                if let Some(above) = walk.here() {
                    above.data.bytes += sums.bytes;
                    above.data.entries += sums.entries;
                    above.data.whole &= sums.whole;
                }
                let is_large = sums.bytes > scanning.account.walked.bytes / PART;
                if sums.whole && (depth <= DEPTH + 1 || is_large) {
                    scanning.say(level.path, &sums)?;
                }
            }
        }
    }
    scanning.send()?;
    let Scanning { account, approximate, .. } = scanning;
    Ok(Answer::Scanned(Scanned { complete, met, approximate, walked: account.walked }))
}

impl Scanning<'_> {
    fn count(&mut self, sums: &mut Sums, found: &Statx) {
        let is_named = found.stx_nlink > 1 && found.stx_mode & 0o170_000 != 0o040_000;
        let is_new = !is_named || {
            let is_known = self.named.contains(&inode(found));
            if !is_known && self.named.len() < MOST_NAMED {
                self.named.insert(inode(found));
            } else if !is_known {
                self.approximate = true;
            }
            !is_known
        };
        let bytes = if is_new { found.stx_blocks.saturating_mul(512) } else { 0 };
        self.account.done(bytes);
        sums.bytes += bytes;
        sums.own_bytes += bytes;
        sums.entries += 1;
        sums.own_entries += 1;
    }

    fn say(&mut self, path: RelativePath, sums: &Sums) -> Result<(), Code> {
        // JSON makes at most six bytes of one.
        let most = 300 + 6 * path.as_bytes().len();
        if self.frame_bytes + most > MOST_BYTES - 1024 {
            self.send()?;
        }
        self.frame_bytes += most;
        self.frame.push(Measured {
            directory: KnownDirectory { path, device: sums.device, inode: sums.inode },
            bytes: sums.bytes,
            entries: sums.entries,
            own_bytes: sums.own_bytes,
            own_entries: sums.own_entries,
        });
        Ok(())
    }

    fn send(&mut self) -> Result<(), Code> {
        self.frame_bytes = 0;
        if self.frame.is_empty() { Ok(()) } else { self.job.part(Part::Measured(std::mem::take(&mut self.frame))) }
    }
}
