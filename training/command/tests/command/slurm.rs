//! Under a real SLURM of two nodes, both on this host, started for the test: `srun` in its ways, and `run` within a job.

#[path = "../../../launch/tests/fixture/slurm.rs"]
mod fixture;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{PROGRAM, living, marks, wait_until};
use crate::meet::{heard, hello, sorted};
use fixture::Slurm;

/// A SLURM, and a place for what its users leave.
struct Cluster {
    base: tempfile::TempDir,
    slurm: Slurm,
}

impl Cluster {
    fn start() -> Self {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("home")).unwrap();
        Self { base, slurm: Slurm::start(2) }
    }

    fn path(&self) -> &Path {
        self.base.path()
    }

    /// A program of SLURM's for this cluster.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env("SLURM_CONF", &self.slurm.conf).env("BASE", self.path());
        command.env("HOME", self.path().join("home")).env("XDG_RUNTIME_DIR", self.path());
        command
    }

    /// A `run` on both nodes of a job of its own.
    fn run(&self, words: &[&str]) -> Output {
        let run = [
            "-Q",
            "-N2",
            "-n2",
            PROGRAM,
            "run",
            "--nodes",
            "all",
            "--ranks-per-node",
            "2",
            "--address",
            "127.0.0.1",
            "--no-labels",
        ];
        self.command("salloc").args(run).args(words).output().unwrap()
    }

    fn assert_nothing_left(&self) {
        assert_eq!(marks(self.path(), "eirene-"), Vec::<PathBuf>::new());
        assert_eq!(living(self.path()), Vec::<String>::new());
        let meetings = self.path().join("home/.cache/eirene-train");
        assert!(!meetings.exists() || std::fs::read_dir(meetings).unwrap().count() == 0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn slurm_starts_ranks_and_carries_runs() {
    let cluster = Cluster::start();
    let program = hello();

    // One node: the ranks meet in a directory, whatever PMI there is.
    for kind in ["none", "pmi2", "pmix"] {
        let mut command = cluster.command("srun");
        let output =
            command.args([&format!("--mpi={kind}"), "--overcommit", "-N1", "-n", "4", &program]).output().unwrap();
        assert_eq!(sorted(&text(&output.stdout)), heard(4), "{kind}: {}", text(&output.stderr));
        cluster.assert_nothing_left();
    }

    // Two nodes: they meet by a file.
    let output = cluster.command("srun").args(["--overcommit", "-N2", "-n", "4", &program]).output().unwrap();
    assert_eq!(sorted(&text(&output.stdout)), heard(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("on 2 nodes; started by SLURM"), "{}", text(&output.stderr));
    cluster.assert_nothing_left();

    // A run within a job: one step a node, and no variable of theirs misleads the ranks.
    let output = cluster.run(&[&program]);
    assert_eq!(sorted(&text(&output.stdout)), heard(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("on 2 nodes; started by eirene-train run"), "{}", text(&output.stderr));
    cluster.assert_nothing_left();

    // Bytes and failures come through `srun` as they are.
    let output =
        cluster.run(&["sh", "-c", r"[ $RANK = 2 ] || exit 0; printf '\377\r\\n\0x\n'; head -c 300000 /dev/zero"]);
    assert_eq!(output.stdout, [&b"\xff\r\\n\0x\n"[..], &vec![0; 300_000], b"\n"].concat());
    let output = cluster.run(&["sh", "-c", ": > $BASE/pid-$$; [ $RANK = 3 ] && { echo bad >&2; exit 4; }; sleep 1000"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the run failed: rank 3 (on n2, pid "), "{}", text(&output.stderr));
    wait_until("all are gone", || living(cluster.path()).is_empty());
    cluster.assert_nothing_left();

    // A launcher killed without mercy, and a job that is cancelled: both take their ranks along.
    let script = ": > $BASE/pid-$$; : > $BASE/ready-$TRY-$RANK; trap '' TERM; while :; do sleep 0.05; done";
    for attempt in ["killed", "cancelled"] {
        let mut command = cluster.command("salloc");
        let run = [
            "-Q",
            "-N2",
            "-n2",
            "-J",
            attempt,
            PROGRAM,
            "run",
            "--nodes",
            "all",
            "--address",
            "127.0.0.1",
            "--env",
            "TRY",
            "sh",
            "-c",
            script,
        ];
        let mut job =
            command.args(run).env("TRY", attempt).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("ranks run", || marks(cluster.path(), &format!("ready-{attempt}")).len() == 2);
        if attempt == "killed" {
            let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", job.id())).unwrap();
            let launcher = nix::unistd::Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap());
            nix::sys::signal::kill(launcher, nix::sys::signal::Signal::SIGKILL).unwrap();
        } else {
            assert!(cluster.command("scancel").args(["-n", attempt]).status().unwrap().success());
        }
        wait_until("all ranks are gone", || living(cluster.path()).is_empty());
        wait_until("the directories are gone", || marks(cluster.path(), "eirene-").is_empty());
        wait_until("the job ends", || job.try_wait().unwrap().is_some());
    }
}

#[test]
#[ignore = "needs SLURM's daemons; part of the deep tests"]
fn the_doctor_tells_steps_with_pmix_from_steps_without() {
    let cluster = Cluster::start();
    for (kind, level, word) in
        [("pmix", "ok", "Open MPI"), ("pmi2", "ok", "MPICH"), ("none", "warning", "srun --mpi=pmix")]
    {
        let mut command = cluster.command("srun");
        let step = [&format!("--mpi={kind}"), "--overcommit", "-N1", "-n", "2", PROGRAM, "doctor", "--json"];
        let output = command.args(step).output().unwrap();
        let all = text(&output.stdout);
        let report: serde_json::Value =
            serde_json::from_str(&all).unwrap_or_else(|error| panic!("{error}: {all}{}", text(&output.stderr)));
        let sections = report["sections"].as_array().unwrap();
        let findings: Vec<_> = sections.iter().flat_map(|section| section["findings"].as_array().unwrap()).collect();
        let found = |id: &str| findings.iter().find(|finding| finding["id"] == id);
        let chosen = found("mpi.chosen").unwrap();
        assert_eq!((&report["size"], &chosen["level"]), (&2.into(), &level.into()), "{kind}: {chosen}");
        assert!(chosen.to_string().contains(word), "{kind}: {chosen}");
        assert_eq!(output.status.code(), Some(0), "{kind}: {all}");
        let started = found("trial.mpi").map(|finding| finding["fact"].to_string());
        assert_eq!(started.is_some_and(|fact| fact.contains("rank 0 of 2")), kind != "none", "{kind}: {all}");
        cluster.assert_nothing_left();
    }
}
