//! A rescue that is killed at each of its steps: the real program is stopped by ptrace(2) before and after each of its system calls, one a time,
//! and killed there as `kill -9` does. Whatever had been done by then, what has a name is whole, and the next rescue finishes and leaves nothing.
//! And one whose target is full or read-only.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The journal of a session whose program has written its results when its agent was killed.
const JOURNAL: &str = r#"{"session":"s","node":null,"spaces":{"home":"HOME"},"stage_in":[],"stage_out":[
    [{"from":"results","to":"home:kept/today","on":"always"},"waiting"],
    [{"from":"log","to":"home:log","on":"always"},"waiting"],
    [{"from":"model","to":"home:model","on":"success"},"waiting"]],"phase":"used","succeeded":false}"#;

/// A rescue into a home that is a small file system of its own, once it was made unfit, and again when it was made fit: what they say, and what there
/// is in between and in the end.
const TWICE: &str = r#"mount --make-rprivate / && mount -t tmpfs -o size=1m,mode=0700 none "$HOME" || exit 9
    eval "$1"
    "$3" rescue "$4"
    echo "first: $?, $(cat "$4/data/log"), $(find "$HOME" -type f ! -name ballast | wc -l) files"
    eval "$2"
    "$3" rescue "$4"
    echo "second: $?, $(cat "$HOME/kept/today/a"), $(cat "$HOME/kept/today/deep/b" | wc -c), $(cat "$HOME/log")"
    find "$HOME" -type f | wc -l"#;

/// A person's home, and a scratch that a killed agent has left.
struct Left {
    _directory: tempfile::TempDir,
    home: PathBuf,
    scratch: PathBuf,
}

impl Left {
    fn new() -> Self {
        // Each step is done some hundred times: memory syncs faster than disks.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let (home, scratch) = (directory.path().join("home"), directory.path().join("scratch"));
        std::fs::create_dir(&home).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(&scratch).unwrap();
        std::fs::create_dir_all(scratch.join("data/results/deep")).unwrap();
        for (name, text) in contents() {
            std::fs::write(scratch.join("data").join(name), text).unwrap();
        }
        symlink("a", scratch.join("data/results/link")).unwrap();
        std::fs::write(scratch.join("data/model"), "unfinished").unwrap();
        let journal = scratch.join("journal.json");
        std::fs::write(&journal, JOURNAL.replace("HOME", home.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self { _directory: directory, home, scratch }
    }

    fn kept(&self) -> [(PathBuf, String); 3] {
        let [(_, a), (_, b), (_, log)] = contents();
        [(self.home.join("kept/today/a"), a), (self.home.join("kept/today/deep/b"), b), (self.home.join("log"), log)]
    }

    fn rescue(&self) -> Option<i32> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eirene-agent"));
        command.arg("rescue").arg(&self.scratch).stdout(Stdio::null()).status().unwrap().code()
    }

    /// A rescue that is stopped `stops` times and then killed; the number of stops there were, and whether it came to its end before.
    fn rescue_killed_after(&self, stops: usize) -> (usize, bool) {
        let mut traced = Traced::start(&self.scratch);
        for stop in 0..stops {
            ptrace::syscall(traced.pid, None).unwrap();
            match waitpid(traced.pid, Some(WaitPidFlag::__WALL)).unwrap() {
                WaitStatus::PtraceSyscall(_) => {}
                WaitStatus::Exited(_, code) => {
                    assert_eq!(code, 0);
                    return (stop, true);
                }
                other => panic!("{other:?}"),
            }
        }
        traced.child.kill().unwrap();
        traced.child.wait().unwrap();
        (stops, false)
    }

    fn check_finished(&self, what: &str) {
        for (path, text) in self.kept() {
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{} after {what}", path.display());
        }
        assert_eq!(std::fs::read_link(self.home.join("kept/today/link")).unwrap(), Path::new("a"), "{what}");
        // Three files and a link, three directories, and nothing else.
        assert_eq!(count(&self.home), 7, "{what}");
        assert!(!self.scratch.exists(), "{what}");
    }
}

/// What the program wrote.
fn contents() -> [(&'static str, String); 3] {
    [("results/a", "alpha".into()), ("results/deep/b", "b".repeat(3000)), ("log", "worked".into())]
}

fn count(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| 1 + if entry.file_type().unwrap().is_dir() { count(&entry.path()) } else { 0 }).sum()
}

/// A rescue before its first step.
struct Traced {
    child: Child,
    pid: Pid,
}

impl Traced {
    fn start(scratch: &Path) -> Self {
        // The shell waits until it is traced, and becomes the rescue then.
        let child = Command::new("sh")
            .args(["-c", "read -r go; exec \"$0\" rescue \"$1\"", env!("CARGO_BIN_EXE_eirene-agent")])
            .arg(scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        let mut traced = Self { child, pid };
        let options = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options).unwrap();
        traced.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let agent = std::fs::canonicalize(env!("CARGO_BIN_EXE_eirene-agent")).unwrap();
        loop {
            let stopped = waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
            assert!(matches!(stopped, WaitStatus::PtraceEvent(_, Signal::SIGTRAP, _)), "{stopped:?}");
            // The first may be the shell's own beginning.
            if std::fs::read_link(format!("/proc/{pid}/exe")).unwrap() == agent {
                return traced;
            }
            ptrace::cont(pid, None).unwrap();
        }
    }
}

#[test]
fn a_home_that_is_full_or_read_only_is_said_and_costs_nothing() {
    for (unfit, fit, words) in [
        (
            r#"head -c 2M /dev/zero >"$HOME/ballast" 2>/dev/null"#,
            r#"rm "$HOME/ballast""#,
            "`results` of the scratch could not be copied to `home:kept/today`: there is no room left for `a`; it is still in `",
        ),
        (
            r#"mount -o remount,bind,ro "$HOME""#,
            r#"mount -o remount,bind,rw "$HOME""#,
            "`log` of the scratch could not be copied to `home:log`: the file system there is mounted read-only; it is still in `",
        ),
    ] {
        let left = Left::new();
        // Whoever is not root becomes root of a namespace to mount.
        let root = nix::unistd::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.args(if root { ["--mount"].as_slice() } else { ["--user", "--map-root-user", "--mount"].as_slice() });
        command.args(["--", "sh", "-c", TWICE, "sh", unfit, fit, env!("CARGO_BIN_EXE_eirene-agent")]);
        let output = command.arg(&left.scratch).env("HOME", &left.home).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(words), "{said}");
        assert!(said.contains("first: 1, worked, 0 files\n"), "nothing is lost, and nothing half is left: {said}");
        assert!(said.contains("second: 0, alpha, 3000, worked\n") && said.ends_with("\n3\n"), "{said}");
        assert!(!left.scratch.exists());
    }
}

#[test]
fn stage_out_survives_kill_9_and_leaves_nothing() {
    let (mut stops, mut killed) = (0, 0);
    loop {
        let left = Left::new();
        let (_, ended) = left.rescue_killed_after(stops);
        if ended {
            left.check_finished("no kill at all");
            break;
        }
        killed += 1;
        for (path, text) in left.kept() {
            // What bears its name is whole, however early the end came.
            if let Ok(there) = std::fs::read_to_string(&path) {
                assert_eq!(there, text, "{} after stop {stops}", path.display());
            } else {
                assert!(left.scratch.join("data/log").exists(), "the only copy is gone after stop {stops}");
            }
        }
        // And once more in between: whoever comes after can be killed as well.
        left.rescue_killed_after(stops / 2 + 150);
        assert_eq!(left.rescue(), Some(0), "after stop {stops}");
        left.check_finished(&format!("stop {stops}"));
        stops += 1;
    }
    assert!(killed > 200, "{killed} kills: the steps were not seen");
}
