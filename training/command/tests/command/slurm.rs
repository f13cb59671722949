//! Under a real SLURM of two nodes, both on this host, started for the test: `srun` in its ways, and `run` within a job.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{PROGRAM, living, marks, wait_until};
use crate::meet::{heard, hello, sorted};

/// munged, slurmctld and two slurmd, with all their files in one directory.
struct Cluster {
    base: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start() -> Self {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
        let hostname = nix::unistd::gethostname().unwrap().into_string().unwrap();
        let short = hostname.split('.').next().unwrap();
        for directory in ["state", "spool-n1", "spool-n2", "home"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("key"), [7; 64]).unwrap();
        std::fs::set_permissions(at("key"), std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        let [control, first, second] = ports();
        let path = base.path().display();
        let config = format!(
            "ClusterName=two\nSlurmctldHost={short}(127.0.0.1)\nSlurmctldPort={control}\nAuthType=auth/munge\n\
             AuthInfo=socket={path}/munge.sock\nCredType=cred/munge\nSlurmUser={user}\nSlurmdUser={user}\nStateSaveLocation={path}/state\n\
             SlurmdSpoolDir={path}/spool-%n\nSlurmctldPidFile={path}/ctld.pid\nSlurmdPidFile={path}/d-%n.pid\n\
             ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSchedulerType=sched/builtin\nSelectType=select/cons_tres\n\
             MpiDefault=none\nNodeName=n1 NodeHostname={short} NodeAddr=127.0.0.1 Port={first} CPUs=2\n\
             NodeName=n2 NodeHostname={short} NodeAddr=127.0.0.1 Port={second} CPUs=2\n\
             PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n"
        );
        std::fs::write(at("slurm.conf"), config).unwrap();
        let mut cluster = Self { base, daemons: Vec::new() };
        let munge = ["socket=munge.sock", "key-file=key", "pid-file=munge.pid", "seed-file=seed", "log-file=munge.log"];
        let munge = munge.map(|option| {
            option
                .split_once('=')
                .map(|(name, file)| format!("--{name}={path}/{file}", path = cluster.path().display()))
        });
        let munge = munge.into_iter().flatten().collect::<Vec<_>>();
        cluster.daemon("munged", &[&["--foreground".to_owned(), "--force".to_owned()], munge.as_slice()].concat());
        wait_until("munged listens", || cluster.path().join("munge.sock").exists());
        cluster.daemon("slurmctld", &["-D".to_owned()]);
        for node in ["n1", "n2"] {
            cluster.daemon("slurmd", &["-D".to_owned(), "-N".to_owned(), node.to_owned()]);
        }
        wait_until("both nodes are idle", || {
            let output = cluster.command("sinfo").args(["-h", "-t", "idle", "-o", "%D"]).output().unwrap();
            output.stdout == b"2\n"
        });
        cluster
    }

    fn path(&self) -> &Path {
        self.base.path()
    }

    fn daemon(&mut self, name: &str, arguments: &[String]) {
        let program =
            ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].iter().map(|directory| Path::new(directory).join(name));
        let program =
            program.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is not installed"));
        let log = std::fs::File::create(self.path().join(format!("{name}-{}.log", self.daemons.len()))).unwrap();
        let mut command = self.command(program.to_str().unwrap());
        let child = command.args(arguments).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.daemons.push(child);
    }

    /// A program of SLURM's for this cluster.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env("SLURM_CONF", self.path().join("slurm.conf")).env("BASE", self.path());
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

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(daemon.id().cast_signed()),
                nix::sys::signal::Signal::SIGTERM,
            );
            let _ = daemon.wait();
        }
    }
}

fn ports() -> [u16; 3] {
    let open = [0; 3].map(|_: i32| std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap());
    open.map(|listener| listener.local_addr().unwrap().port())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "needs SLURM's daemons; part of the deep tests"]
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
