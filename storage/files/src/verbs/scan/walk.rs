//! The way of a scan through a tree, by two threads. Each goes down into one directory after the other, by descriptors, and leaves a few
//! directories that it meets to the other, so that neither waits while there is work; what a directory holds is asked of all of a batch of names
//! before any directory among them is begun.
//!
//! What goes while the scan is under way is nothing: a space that is worked in is measured all the same.
//!
//! No link is followed and no mount entered: a directory is opened beneath the one it was met in. Held at once are at most 64 directories of
//! either thread and those of the few that wait, and of each the names of directories in one batch.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use eirene_files_protocol::{Code, EntryKind, Name, RelativePath};
use rustix::io::Errno;

use super::{Directory, Open, Scanning, Sums, inode};
use crate::beneath::{Place, kind_of_entry, measure_entry};
use crate::directory::Batch;
use crate::server::STACK_BYTES;
use crate::walk::MOST_DEPTH;

/// How the second thread is called.
const THREAD: &str = "scan";
/// Most directories that wait for a thread: enough that one who lists a large directory need not be asked for each.
const MOST_WAITING: usize = 32;
/// After so many entries it is looked whether the scan is still wanted.
const SOME: usize = 256;

/// A directory that was met and is still to be begun.
struct Task {
    above: Arc<Directory>,
    place: Arc<Place>,
    name: Name,
}

/// A directory that a thread goes through.
struct Level {
    directory: Arc<Directory>,
    place: Arc<Place>,
    /// Directories of the last batch that are still to be begun, the next one last.
    left: Vec<Name>,
    ended: bool,
}

/// What waits for a thread.
#[derive(Default)]
pub(super) struct Pool {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    /// Threads that may still meet directories.
    busy: usize,
    over: bool,
}

/// A thread that works: when it ends, whether well, by an error or by a panic, the other one does not wait for it.
struct Working<'a>(&'a Pool);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.waiting().over = true;
        self.0.more.notify_all();
    }
}

impl Pool {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread more that may meet directories.
    fn join(&self) -> Working<'_> {
        self.waiting().busy += 1;
        Working(self)
    }

    /// Leaves a directory to whoever has time; back where enough of them wait.
    fn offer(&self, task: Task) -> Option<Task> {
        let mut waiting = self.waiting();
        if waiting.tasks.len() >= MOST_WAITING {
            return Some(task);
        }
        waiting.tasks.push_back(task);
        drop(waiting);
        self.more.notify_one();
        None
    }

    /// The next directory, as soon as there is one; none when there will be no more.
    fn take(&self) -> Option<Task> {
        let mut waiting = self.waiting();
        waiting.busy -= 1;
        loop {
            if waiting.over {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                waiting.busy += 1;
                return Some(task);
            }
            if waiting.busy == 0 {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Scanning<'_> {
    /// Measures all below a directory.
    pub(super) fn measure(&self, top: &Place) -> Result<(), Code> {
        let first = enter(top, RelativePath::default(), None)?;
        std::thread::scope(|scope| {
            // Counted before the second thread begins, which would find nothing to wait for otherwise.
            let working = self.pool.join();
            // It has the least priority as the thread that starts it. Where none can be started, one does it all.
            let second = std::thread::Builder::new().name(THREAD.to_owned()).stack_size(STACK_BYTES);
            let second = second.spawn_scoped(scope, || self.work(&self.pool.join(), None));
            let first = self.work(&working, Some(first));
            drop(working);
            let second = second.map_or(Ok(()), |second| second.join().unwrap_or(Err(Code::Failed)));
            first.and(second)
        })
    }

    /// What one thread does.
    fn work(&self, working: &Working<'_>, first: Option<Level>) -> Result<(), Code> {
        let mut levels: Vec<Level> = first.into_iter().collect();
        let mut batch = Batch::default();
        loop {
            let Some(level) = levels.last_mut() else {
                let Some(task) = working.0.take() else { return Ok(()) };
                levels.extend(self.begin(task)?);
                continue;
            };
            if let Some(name) = level.left.pop() {
                let (above, place) = (Arc::clone(&level.directory), Arc::clone(&level.place));
                above.open().left += 1;
                if let Some(task) = working.0.offer(Task { above, place, name }) {
                    levels.extend(self.begin(task)?);
                }
            } else if level.ended {
                let ended = levels.pop();
                ended.map_or(Ok(()), |level| self.done_with(level.directory))?;
            } else {
                self.list_some(level, &mut batch)?;
            }
        }
    }

    /// Goes into a directory that was met.
    fn begin(&self, task: Task) -> Result<Option<Level>, Code> {
        self.job.cancelled.check()?;
        let Task { above, place, name } = task;
        if self.begun.elapsed() >= self.budget {
            above.open().sums.partial = true;
            self.said().out_of_time = true;
            return self.done_with(above).map(|()| None);
        }
        let path = above.path.join(&name).map_err(|_| Code::TooDeep)?;
        let entered = place.child(&name).and_then(|place| enter(&place, path.clone(), Some(&above)));
        match entered {
            Ok(level) => Ok(Some(level)),
            // It went since it was listed, and takes no room any more.
            Err(Code::NotFound) => self.done_with(above).map(|()| None),
            Err(why) => {
                self.said().account.skip(path, why);
                self.done_with(above).map(|()| None)
            }
        }
    }

    /// Measures what a batch of names stands for.
    fn list_some(&self, level: &mut Level, batch: &mut Batch) -> Result<(), Code> {
        self.job.cancelled.check()?;
        match batch.read(level.place.as_fd()) {
            Ok(more) => level.ended = !more,
            // The same, but for what was asked for itself.
            Err(Code::NotFound) if level.directory.above.is_some() => {
                level.ended = true;
                return Ok(());
            }
            Err(why) => {
                level.ended = true;
                self.said().account.skip(level.directory.path.clone(), why);
                return Ok(());
            }
        }
        let mut sums = Sums::default();
        for (number, name) in (1_usize..).zip(batch.names()) {
            if number.is_multiple_of(SOME) {
                self.job.cancelled.check()?;
                self.counted(&level.directory, &mut sums)?;
            }
            let looked = measure_entry(level.place.as_fd(), name);
            let kind = kind_of_entry(&looked);
            let found = match looked {
                Ok(found) if kind != EntryKind::Mount => found,
                // Nor does what went since it was listed.
                Ok(_) | Err(Errno::NOENT) => continue,
                Err(_) => {
                    sums.partial = true;
                    continue;
                }
            };
            if kind != EntryKind::Directory {
                sums.count(self.bytes(&found, kind));
                continue;
            }
            // A file system may give out names that are none.
            let Ok(name) = Name::parse(name.to_bytes()) else { continue };
            let Ok(path) = level.directory.path.join(&name) else {
                self.said().account.skip(level.directory.path.clone(), Code::TooDeep);
                continue;
            };
            sums.count(self.bytes(&found, kind));
            match self.known.get(&path) {
                Some((place, known)) if *known == inode(&found) => self.said().met.push(*place),
                _ => level.left.push(name),
            }
        }
        level.left.reverse();
        self.counted(&level.directory, &mut sums)
    }
}

/// A directory to go through, held by what was found.
fn enter(place: &Place, path: RelativePath, above: Option<&Arc<Directory>>) -> Result<Level, Code> {
    let depth = above.map_or(1, |above| above.depth + 1);
    if depth > MOST_DEPTH {
        return Err(Code::TooDeep);
    }
    let (_, found) = place.look()?;
    let place = Arc::new(place.listed()?);
    let sums = Mutex::new(Open { left: 1, ..Open::default() });
    let directory = Directory { above: above.cloned(), path, depth, inode: inode(&found), sums };
    Ok(Level { directory: Arc::new(directory), place, left: Vec::new(), ended: false })
}
