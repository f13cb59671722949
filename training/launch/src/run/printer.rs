//! The run's outputs, written by a thread of their own: a terminal or pager that does not read must not keep the run from hearing
//! Ctrl-C. What is not yet written is bounded; the ranks wait when it is too much.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;

/// An output that the run writes to.
pub type Output = Box<dyn Write + Send>;

/// Unwritten bytes from which on ranks have to wait.
const FULL: usize = 1024 * 1024;

/// Where something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    Stderr,
    /// A rank's own file.
    File(u32),
}

/// The writing thread's other side.
pub(crate) struct Printer {
    shared: Arc<Shared>,
    wake: io::PipeReader,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Vec<(Target, Vec<u8>)>,
    waiting: usize,
    closed: bool,
    idle: bool,
    failed: Option<io::Error>,
}

impl Printer {
    /// Starts the thread. With `files`, each rank has a file in that directory.
    pub(crate) fn start(stdout: Output, stderr: Output, files: Option<&Path>, ranks: u32) -> Result<Self, Error> {
        let mut outputs = Outputs { stdout, stderr, files: Vec::new() };
        if let Some(directory) = files {
            outputs.files = rank_files(directory, ranks)?;
        }
        let (wake, waker) = io::pipe().map_err(Error::system("cannot make a pipe"))?;
        nonblocking(&wake);
        nonblocking(&waker);
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || theirs.write(outputs, waker))
            .map_err(Error::system("cannot start a thread"))?;
        Ok(Self { shared, wake })
    }

    /// Hands something over.
    pub(crate) fn print(&self, target: Target, bytes: Vec<u8>) {
        let mut state = self.shared.lock();
        state.waiting += bytes.len();
        state.queue.push((target, bytes));
        self.shared.changed.notify_all();
    }

    /// Whether ranks have to wait. When it is so no longer, the descriptor has something to read.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.lock().waiting >= FULL
    }

    /// Why nothing can be written any more, said once.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.shared.lock().failed.take()
    }

    /// Takes note that there is room again.
    pub(crate) fn heard(&mut self) {
        let mut buffer = [0; 64];
        while let Ok(1..) = self.wake.read(&mut buffer) {}
    }

    /// Waits until all is written, at most so long; whether it is. Nothing may be printed afterwards.
    pub(crate) fn is_written(&self, patience: Duration) -> bool {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.changed.notify_all();
        let waited = self.shared.changed.wait_timeout_while(state, patience, |state| !state.idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle
    }
}

impl AsFd for Printer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

struct Outputs {
    stdout: Output,
    stderr: Output,
    files: Vec<File>,
}

impl Outputs {
    fn write(&mut self, target: Target, bytes: &[u8]) -> io::Result<()> {
        match target {
            Target::Stdout => self.stdout.write_all(bytes),
            Target::Stderr => self.stderr.write_all(bytes),
            Target::File(rank) => self.files.get_mut(rank as usize).map_or(Ok(()), |file| file.write_all(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()?;
        self.stderr.flush()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life.
    fn write(&self, mut outputs: Outputs, mut waker: io::PipeWriter) {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.queue.is_empty() {
                state.idle = true;
                self.changed.notify_all();
                return;
            }
            let queue = std::mem::take(&mut state.queue);
            drop(state);
            for (target, bytes) in queue {
                self.note(outputs.write(target, &bytes), &mut waker);
                let mut state = self.lock();
                let was_full = state.waiting >= FULL;
                state.waiting -= bytes.len();
                let has_room = was_full && state.waiting < FULL;
                drop(state);
                if has_room {
                    // A full pipe wakes just as well.
                    let _ = waker.write_all(b".");
                }
            }
            self.note(outputs.flush(), &mut waker);
        }
    }

    fn note(&self, result: io::Result<()>, waker: &mut io::PipeWriter) {
        if let Err(error) = result {
            self.lock().failed.get_or_insert(error);
            let _ = waker.write_all(b".");
        }
    }
}

fn rank_files(directory: &Path, ranks: u32) -> Result<Vec<File>, Error> {
    let failed =
        |path: PathBuf| move |source| Error::System { what: format!("cannot write to {}", path.display()), source };
    std::fs::create_dir_all(directory).map_err(failed(directory.to_owned()))?;
    let width = ranks.saturating_sub(1).to_string().len();
    (0..ranks)
        .map(|rank| {
            let path = directory.join(format!("rank-{rank:0width$}.log"));
            File::create(&path).map_err(failed(path))
        })
        .collect()
}

fn nonblocking(descriptor: &impl AsFd) {
    let _ = nix::fcntl::fcntl(descriptor, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK));
}
