//! Starting the real command, and waiting for what it does.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The command under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_eirene-train");

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A run with a place of its own for directories, so that what it leaves behind can be seen.
pub(crate) struct Run {
    pub(crate) base: tempfile::TempDir,
    command: Command,
}

impl Run {
    pub(crate) fn new<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let base = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("run").args(arguments).env("XDG_RUNTIME_DIR", base.path()).env("BASE", base.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { base, command }
    }

    /// Ranks of a shell script. `$BASE` is a directory for its marks.
    pub(crate) fn script(ranks: u32, options: &[&str], script: &str) -> Self {
        let count = ranks.to_string();
        let words = ["-n", count.as_str()].into_iter().chain(options.iter().copied()).chain(["sh", "-c", script]);
        Self::new(words)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What stands on its standard input.
    pub(crate) fn input(mut self, text: &str) -> Self {
        let path = self.base.path().join("input");
        std::fs::write(&path, text).unwrap();
        self.command.stdin(std::fs::File::open(path).unwrap());
        self
    }

    pub(crate) fn start(mut self) -> Started {
        let mut child = self.command.spawn().unwrap();
        let stdout = Arc::default();
        let stderr = Arc::default();
        let readers =
            vec![collect(child.stdout.take().unwrap(), &stdout), collect(child.stderr.take().unwrap(), &stderr)];
        Started { base: self.base, child: Watched(child), stdout, stderr, readers }
    }

    /// Nobody reads its outputs; they are closed with the child.
    pub(crate) fn start_unread(mut self) -> (tempfile::TempDir, Child) {
        let child = self.command.spawn().unwrap();
        (self.base, child)
    }

    pub(crate) fn end(self) -> Ended {
        self.start().end()
    }
}

type Text = Arc<Mutex<Vec<u8>>>;

fn collect(mut from: impl std::io::Read + Send + 'static, into: &Text) -> std::thread::JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            into.lock().unwrap().extend_from_slice(&piece[..count]);
        }
    })
}

/// Killed when a test fails before its end.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Started {
    pub(crate) base: tempfile::TempDir,
    child: Watched,
    stdout: Text,
    stderr: Text,
    readers: Vec<std::thread::JoinHandle<()>>,
}

pub(crate) struct Ended {
    pub(crate) base: tempfile::TempDir,
    /// The exit code, or minus the signal.
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Started {
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid().cast_signed()), signal).unwrap();
    }

    /// Waits for marks that ranks make in `$BASE`.
    pub(crate) fn wait_for_marks(&self, name: &str, count: usize) {
        wait_until(&format!("{count} marks {name}*; stderr: {}", self.stderr()), || self.marks(name).len() >= count);
    }

    pub(crate) fn marks(&self, name: &str) -> Vec<PathBuf> {
        marks(self.base.path(), name)
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    pub(crate) fn stdout(&self) -> Vec<u8> {
        self.stdout.lock().unwrap().clone()
    }

    pub(crate) fn end(mut self) -> Ended {
        let mut status = None;
        wait_until("the run's end", || {
            status = self.child.0.try_wait().unwrap();
            status.is_some()
        });
        for reader in self.readers {
            reader.join().unwrap();
        }
        let status = status.unwrap();
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
        let stdout = std::mem::take(&mut *self.stdout.lock().unwrap());
        let stderr = String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned();
        Ended { base: self.base, code, stdout, stderr }
    }
}

impl Ended {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Nothing of the run may be left: no directory, and no process whose mark `pid-*` says that it was there.
    pub(crate) fn assert_nothing_left(&self) {
        assert_nothing_left(self.base.path());
    }
}

pub(crate) fn marks(base: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(name)).collect()
}

/// Processes that marks `pid-N` name and that still run.
pub(crate) fn living(base: &Path) -> Vec<String> {
    let names = marks(base, "pid-").into_iter().map(|path| path.file_name().unwrap().to_string_lossy()[4..].to_owned());
    names.filter(|pid| is_running(pid)).collect()
}

pub(crate) fn is_running(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !matches!(stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()), Some('Z' | 'X') | None)
}

pub(crate) fn assert_nothing_left(base: &Path) {
    assert_eq!(marks(base, "eirene-train-run."), Vec::<PathBuf>::new());
    assert_eq!(living(base), Vec::<String>::new());
}
