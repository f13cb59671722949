//! Ranks that were started: what they say, how they end, and that nothing of them is left.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_mins(5);

/// Waits until something is so.
fn wait_until(mut is_so: impl FnMut() -> bool, complain: impl Fn() -> String) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{}", complain());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program of one rank, which cargo builds beside the tests.
pub(crate) fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("examples/conformance");
    assert!(
        program.exists(),
        "{} is not built; `cargo build -p eirene-train-runtime --examples` does",
        program.display()
    );
    program
}

/// `EIRENE_TEST_SEED`.
pub(crate) fn seed() -> u64 {
    std::env::var("EIRENE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20)
}

/// The network bridges of this machine.
fn bridges() -> Vec<String> {
    let Ok(interfaces) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    let bridges = interfaces.flatten().filter(|interface| interface.path().join("bridge").is_dir());
    bridges.map(|interface| interface.file_name().to_string_lossy().into_owned()).collect()
}

static STARTS: AtomicU64 = AtomicU64::new(0);

/// A launcher under way with its ranks. All of them carry a mark, by which they are found wherever they have gone.
pub(crate) struct Started {
    base: tempfile::TempDir,
    mark: String,
    child: Child,
    text: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
    words: String,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// How it was started, and both outputs.
    pub(crate) text: String,
}

impl Started {
    /// Starts a command in directories of its own, with no launcher's variables but its own.
    pub(crate) fn new(mut command: Command, variables: &[(&str, &str)]) -> Self {
        let base = tempfile::tempdir().unwrap();
        let mark = format!("EIRENE_TEST_MARK={}-{}", std::process::id(), STARTS.fetch_add(1, Ordering::Relaxed));
        for (name, _) in std::env::vars_os() {
            let inherited = name.to_string_lossy();
            let starts = ["SLURM_", "PMI", "OMPI_", "PRTE_", "EIRENE_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"];
            if inherited != "SLURM_CONF" && starts.iter().any(|start| inherited.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        let (name, value) = mark.split_once('=').unwrap();
        command.env(name, value).env("RUST_BACKTRACE", "0").env("OMP_NUM_THREADS", "1");
        for name in ["XDG_RUNTIME_DIR", "HOME", "TMPDIR"] {
            command.env(name, base.path());
        }
        // Open MPI 5 does not learn from a SLURM with PMIx 4 who is on its node, and takes TCP there; of Docker's bridges, which lead nowhere,
        // it waits for ever.
        let bridges = bridges();
        if !bridges.is_empty() {
            command.env("OMPI_MCA_btl_tcp_if_exclude", format!("127.0.0.1/8,sppp,{}", bridges.join(",")));
        }
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = format!("{variables:?} {command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{words}: {error}"));
        let text = Arc::default();
        let readers = vec![collect(child.stdout.take().unwrap(), &text), collect(child.stderr.take().unwrap(), &text)];
        Self { base, mark, child, text, readers, words }
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until so many ranks are under way, and says each one's process.
    pub(crate) fn processes(&self, ranks: u32) -> Vec<i32> {
        let find = |rank: u32| {
            let start = format!("rank {rank} of {ranks} is ");
            self.text().lines().find_map(|line| line.split_once(&start)?.1.trim().parse().ok())
        };
        wait_until(|| (0..ranks).all(|rank| find(rank).is_some()), || format!("not under way: {}", self.said()));
        (0..ranks).filter_map(find).collect()
    }

    /// Waits until somebody says something.
    pub(crate) fn wait_for(&self, what: &str) {
        wait_until(|| self.text().contains(what), || format!("nobody says `{what}`: {}", self.said()));
    }

    fn said(&self) -> String {
        format!("{}\n{}", self.words, self.text())
    }

    /// Waits for the launcher's end, and sees that nothing is left: no process, no directory, no socket. Shared memory has no name and goes
    /// with its processes.
    pub(crate) fn end(mut self) -> Ended {
        let mut status = None;
        let child = &mut self.child;
        let begin = Instant::now();
        while status.is_none() {
            status = child.try_wait().unwrap();
            assert!(begin.elapsed() < PATIENCE, "does not end: {}\n{}", self.words, self.text.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        wait_until(|| self.living().is_empty(), || format!("{:?} are left of {}", self.living(), self.said()));
        for reader in std::mem::take(&mut self.readers) {
            reader.join().unwrap();
        }
        let left: Vec<PathBuf> = std::fs::read_dir(self.base.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("eirene"))
            .collect();
        assert!(left.is_empty(), "{left:?} are left of {}", self.said());
        let base = self.base.path().to_str().unwrap();
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        let sockets: Vec<&str> = sockets.lines().filter(|line| line.contains(base)).collect();
        assert!(sockets.is_empty(), "{sockets:?} are left of {}", self.said());
        Ended { code: status.and_then(|status| status.code()), text: self.said() }
    }

    /// Processes that carry the mark and are no zombies.
    fn living(&self) -> Vec<i32> {
        let is_ours = |process: &i32| {
            let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == self.mark.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for process in self.living() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, into: &Arc<Mutex<String>>) -> std::thread::JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    })
}

impl Ended {
    /// All ranks came to a good end, and there was one world: each says once that it is one of so many, followed by `what`.
    pub(crate) fn assert_right(&self, ranks: u32, what: &str) {
        assert_eq!(self.code, Some(0), "{self:?}");
        for rank in 0..ranks {
            let start = format!("rank {rank} of {ranks}: ");
            let said = |line: &&str| line.split_once(&start).is_some_and(|(_, rest)| rest.contains(what));
            assert_eq!(self.text.lines().filter(said).count(), 1, "rank {rank}: {self:?}");
        }
    }

    /// What ranks said to fail, with the milliseconds it took each.
    pub(crate) fn errors(&self) -> Vec<(u64, &str)> {
        self.text
            .lines()
            .filter_map(|line| line.split_once(": error after ")?.1.split_once(" ms: "))
            .map(|(took, text)| (took.parse().unwrap(), text))
            .collect()
    }
}
