//! Runs on several hosts: through a double of ssh that starts the node here, and through a real sshd where one is installed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use crate::common::{Run, living, marks, wait_until};

/// A program on PATH in place of ssh: notes its arguments, greets on both outputs as servers do, and runs the command in a bare
/// environment. Host `nowhere` does not answer, host `closed` refuses.
const SSH: &str = r#"#!/bin/sh
echo "$@" >> "$BASE/ssh.log"
while [ "$#" -gt 2 ]; do shift; done
host=$1; command=$2
case $host in
    nowhere) : > "$BASE/pid-$$"; exec sleep 1000;;
    closed) echo "connect to host closed port 22: Connection refused" >&2; exit 255;;
esac
: > "$BASE/pid-$$"
echo "Welcome to $host"
exec env -i PATH="$PATH" HOME="$HOME" BASE="$BASE" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" HOST="$host" \
    SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" sh -c "$command"
"#;

/// Runs over the double of ssh.
pub(crate) fn over_ssh<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let run = Run::new(arguments);
    let bin = run.base.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("ssh"), SSH).unwrap();
    std::fs::set_permissions(bin.join("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    run.env("PATH", path)
}

fn two_hosts(script: &str) -> Run {
    over_ssh(["--nodes", "alpha,beta", "--ranks-per-node", "2", "--address", "127.0.0.1", "sh", "-c", script])
}

fn ranks_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| line.as_bytes()[1].is_ascii_digit()).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn two_hosts_run_one_world() {
    let script = "echo \"$HOST $EIRENE_TRAIN_RANK/$EIRENE_TRAIN_SIZE $EIRENE_TRAIN_LOCAL_RANK/$EIRENE_TRAIN_LOCAL_SIZE \
                  $EIRENE_TRAIN_NODE $EIRENE_TRAIN_NODES ${EIRENE_TRAIN_MEETING%:*} $A\"; pwd >&2";
    let ended = over_ssh([
        "--nodes",
        "alpha,beta",
        "-n",
        "3",
        "--address",
        "127.0.0.1",
        "--env",
        "A=it's \"so\"",
        "sh",
        "-c",
        script,
    ])
    .end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        ranks_lines(&ended.stdout()),
        [
            "[0] alpha 0/3 0/2 0 alpha,beta descriptor it's \"so\"",
            "[1] alpha 1/3 1/2 0 alpha,beta tcp://127.0.0.1 it's \"so\"",
            "[2] beta 2/3 0/1 1 alpha,beta tcp://127.0.0.1 it's \"so\"",
        ]
    );
    let here = std::env::current_dir().unwrap();
    let expected: Vec<String> = (0..3).map(|rank| format!("[{rank}] {}", here.display())).collect();
    assert_eq!(ranks_lines(&ended.stderr), expected);
    // What servers say themselves is shown, and is nobody's output.
    assert!(ended.stderr.contains("[alpha] Welcome to alpha\n"), "{}", ended.stderr);
    // Nothing of the world stands in ssh's arguments.
    let log = std::fs::read_to_string(ended.base.path().join("ssh.log")).unwrap();
    let program = crate::common::PROGRAM;
    let line = |host| format!("-T -o BatchMode=yes -o ConnectTimeout=30 {host} {program} node");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [line("alpha"), line("beta")]);
    ended.assert_nothing_left();
}

#[test]
fn ranks_of_two_hosts_meet_by_what_they_are_given() {
    // The real mesh, in this test's own process: the variables and descriptors of real ranks, carried here.
    let script =
        "env > $BASE/part-$RANK; mv $BASE/part-$RANK $BASE/rank-$RANK; while [ ! -e $BASE/go ]; do sleep 0.01; done";
    let started = two_hosts(script).start();
    started.wait_for_marks("rank-", 4);
    let text = |rank| std::fs::read_to_string(started.base.path().join(format!("rank-{rank}"))).unwrap();
    let launches = (0..4).map(|rank| {
        let text = text(rank);
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        eirene_train_launch::Launch::detect(&eirene_train_launch::Environment::new(pairs, "c1", 1000)).unwrap()
    });
    let launches: Vec<_> = launches.collect();
    assert!(launches.iter().all(|launch| launch.world == launches[0].world && launch.world.starts_with("run-")));
    assert_eq!(
        launches.iter().map(|launch| (launch.rank, launch.size)).collect::<Vec<_>>(),
        [(0, 4), (1, 4), (2, 4), (3, 4)]
    );
    assert!(matches!(launches[0].place, eirene_train_launch::Place::Listener(_)));
    // The port that the others are told is open, and it is rank 0 who holds it.
    let eirene_train_launch::Place::Address { host, port } = &launches[3].place else {
        panic!("{:?}", launches[3].place)
    };
    assert_eq!(launches[1].place, launches[3].place);
    std::net::TcpStream::connect((host.as_str(), *port)).unwrap();
    std::fs::write(started.base.path().join("go"), "").unwrap();
    let ended = started.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(std::net::TcpStream::connect((host.as_str(), *port)).is_err(), "nobody listens any more");
    ended.assert_nothing_left();
}

#[test]
fn the_first_failure_on_one_host_ends_all_hosts() {
    let script = ": > $BASE/pid-$$; : > $BASE/ready-$RANK; [ $RANK = 3 ] && { while [ $(ls $BASE | grep -c ready) -lt 4 ]; do :; done; \
                  echo 'bad thing' >&2; exit 7; }; sleep 1000";
    let ended = two_hosts(script).end();
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert!(ended.stderr.contains("eirene-train: rank 3 (on beta, pid "), "{}", ended.stderr);
    assert!(ended.stderr.contains("exited with code 7; ending the other 3 ranks\n"), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("eirene-train: its last line on stderr:\n    bad thing\n"), "{}", ended.stderr);
    ended.assert_nothing_left();
}

#[test]
fn signals_reach_ranks_on_all_hosts() {
    let script = ": > $BASE/pid-$$; trap 'echo got it; exit 0' TERM; : > $BASE/ready-$RANK; while :; do :; done";
    let started = two_hosts(script).start();
    started.wait_for_marks("ready-", 4);
    started.signal(Signal::SIGTERM);
    let ended = started.end();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert_eq!(ranks_lines(&ended.stdout()), ["[0] got it", "[1] got it", "[2] got it", "[3] got it"]);
    ended.assert_nothing_left();
}

#[test]
fn ranks_on_other_hosts_that_do_not_listen_are_killed() {
    let script = ": > $BASE/pid-$$; trap '' TERM; : > $BASE/ready-$RANK; [ $RANK = 0 ] && { while [ $(ls $BASE | grep -c ready) -lt 4 ]; \
                  do :; done; exit 1; }; while :; do :; done";
    let run = over_ssh([
        "--nodes",
        "alpha,beta",
        "--ranks-per-node",
        "2",
        "--address",
        "127.0.0.1",
        "--grace",
        "0.2",
        "sh",
        "-c",
        script,
    ]);
    let ended = run.end();
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("ranks 1, 2, 3 did not end within 0.2 s and were killed"), "{}", ended.stderr);
    wait_until("all are gone", || living(ended.base.path()).is_empty());
    wait_until("directories are gone", || marks(ended.base.path(), "eirene-train-run.").is_empty());
}

#[test]
fn a_launcher_killed_without_mercy_leaves_nothing_on_its_hosts() {
    let script = ": > $BASE/pid-$$; trap '' TERM INT HUP; : > $BASE/ready-$RANK; while :; do :; done";
    let started = two_hosts(script).start();
    started.wait_for_marks("ready-", 4);
    assert_eq!(started.marks("eirene-train-run.").len(), 2);
    started.signal(Signal::SIGKILL);
    let ended = started.end();
    assert_eq!(ended.code, -9);
    wait_until("all processes are gone", || living(ended.base.path()).is_empty());
    wait_until("the directories are gone", || marks(ended.base.path(), "eirene-train-run.").is_empty());
}

#[test]
fn a_node_killed_without_mercy_is_named_and_its_ranks_are_gone() {
    let script = ": > $BASE/pid-$$; echo $PPID > $BASE/node-$HOST; : > $BASE/ready-$RANK; \
                  while :; do sleep 0.05; done";
    let started = two_hosts(script).start();
    started.wait_for_marks("ready-", 4);
    let node = std::fs::read_to_string(started.base.path().join("node-beta")).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(node.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    let ended = started.end();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("the run failed: host `beta` was lost: ssh ended with "), "{}", ended.stderr);
    wait_until("all processes are gone", || living(ended.base.path()).is_empty());
    wait_until("the directories are gone", || marks(ended.base.path(), "eirene-train-run.").is_empty());
}

#[test]
fn a_host_that_does_not_answer_is_named_and_no_rank_is_started() {
    // Long enough for the other host.
    let run = over_ssh(["--nodes", "alpha,nowhere", "--timeout", "20", "sh", "-c", ": > $BASE/started"]);
    let ended = run.end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("host `nowhere` did not answer within 20 s (ssh)"), "{}", ended.stderr);
    assert!(!ended.base.path().join("started").exists());
    wait_until("all processes are gone", || living(ended.base.path()).is_empty());

    let ended = over_ssh(["--nodes", "alpha,closed", "sh", "-c", ": > $BASE/started"]).end();
    assert_eq!(ended.code, 2);
    let expected = "host `closed` could not be reached: ssh ended with code 255: connect to host closed port 22: Connection refused";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert!(!ended.base.path().join("started").exists());
    wait_until("all processes are gone", || living(ended.base.path()).is_empty());
}

#[test]
fn a_program_that_another_host_does_not_have_is_named_with_the_host() {
    let ended = over_ssh(["--nodes", "alpha,beta", "--address", "127.0.0.1", "/not/there"]).end();
    assert_eq!(ended.code, 127, "{}", ended.stderr);
    let parts = ["could not start its ranks: `/not/there` cannot be started on ", "No such file"];
    assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{}", ended.stderr);
    ended.assert_nothing_left();
}

#[test]
fn another_version_on_a_host_is_named_with_both() {
    let run = over_ssh(["--nodes", "alpha,beta", "true"]);
    let node = run.base.path().join("bin/old-node");
    std::fs::write(&node, "#!/bin/sh\nprintf '\\036eirene ready 0.0.1 0 1 - c\\n'; exec cat > /dev/null\n").unwrap();
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run.env("EIRENE_TRAIN_REMOTE", node).end();
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains("has eirene-train 0.0.1, this host has 0.1.0: install the same on both"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_flood_from_another_host_loses_no_byte() {
    let script = "[ $RANK = 3 ] || exit 0; head -c 4194304 /dev/zero | tr '\\0' '\\\\' | fold -w 99";
    let ended = two_hosts(script).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout().matches('\\').count(), 4_194_304);
    assert!(ended.stdout().lines().all(|line| line.starts_with("[3] \\")));
}

#[test]
fn nobody_reading_holds_ranks_on_other_hosts_but_not_ctrl_c() {
    let run = two_hosts(
        ": > $BASE/pid-$$; exec yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    );
    let (base, mut child) = run.start_unread();
    wait_until("ranks run", || marks(base.path(), "pid-").len() == 6);
    let held = |path: &PathBuf| {
        let pid = path.file_name().unwrap().to_string_lossy()[4..].to_owned();
        let is_rank = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim() == "yes";
        is_rank && std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default().contains("pipe")
    };
    wait_until("ranks are held by their pipes", || {
        marks(base.path(), "pid-").iter().filter(|path| held(path)).count() == 4
    });
    for _ in 0..2 {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    }
    wait_until("the run ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until("all are gone", || living(base.path()).is_empty());
    wait_until("directories are gone", || marks(base.path(), "eirene-train-run.").is_empty());
}

#[test]
fn rank_0_of_several_hosts_has_the_launcher_s_standard_input() {
    let words = (0..50_000).fold(String::new(), |text, number| text + "word " + &number.to_string() + "\n");
    let script = "echo $RANK $(cksum | cut -d' ' -f2)";
    let hosts =
        ["--stdin", "--nodes", "alpha,beta", "--ranks-per-node", "2", "--address", "127.0.0.1", "sh", "-c", script];
    let ended = over_ssh(hosts).input(&words).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let all = format!("[0] 0 {}", words.len());
    assert_eq!(ranks_lines(&ended.stdout()), [all.as_str(), "[1] 1 0", "[2] 2 0", "[3] 3 0"]);
    // A rank that reads nothing, and ends, keeps nobody waiting.
    let ended = over_ssh([&hosts[..7], &["true"]].concat()).input(&words).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn this_host_needs_no_ssh() {
    let ended = over_ssh(["--hostfile", "/dev/stdin", "sh", "-c", "echo $EIRENE_TRAIN_RANK"]).end();
    assert_eq!(ended.code, 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "localhost slots=2\nbeta:1\n").unwrap();
    let run = over_ssh([
        "--hostfile",
        file.path().to_str().unwrap(),
        "--address",
        "127.0.0.1",
        "sh",
        "-c",
        "echo $RANK ${HOST:-here}",
    ]);
    let ended = run.env("HOST", "").end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ranks_lines(&ended.stdout()), ["[0] 0 here", "[1] 1 here", "[2] 2 beta"]);
    assert_eq!(std::fs::read_to_string(ended.base.path().join("ssh.log")).unwrap().lines().count(), 1);
}

/// An sshd of the test's own, with a key that is thrown away.
struct Sshd {
    directory: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Sshd {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(name))
                .status()
                .unwrap();
            assert!(made.success());
        }
        std::fs::copy(path("user.pub"), path("authorized")).unwrap();
        let _ = std::fs::create_dir_all("/run/sshd");
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPidFile none\nPermitRootLogin yes\n",
            path("host").display(),
            path("authorized").display()
        );
        std::fs::write(path("config"), config).unwrap();
        let log = std::fs::File::create(path("log")).unwrap();
        let program = sshd().expect("sshd is installed");
        let child = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(path("config"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { directory, child, port }
    }

    fn client(&self) -> String {
        let key = self.directory.path().join("user");
        format!(
            "ssh -p {} -i {} -T -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -F none",
            self.port,
            key.display()
        )
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sshd() -> Option<PathBuf> {
    ["/usr/sbin/sshd", "/usr/bin/sshd"].iter().map(Path::new).find(|path| path.exists()).map(Path::to_owned)
}

#[test]
#[ignore = "needs sshd; part of the deep tests"]
fn a_real_sshd_carries_a_run_and_its_end() {
    let sshd = Sshd::start();
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let file = sshd.directory.path().join("hosts");
    std::fs::write(&file, format!("{user}@127.0.0.1 slots=1\n")).unwrap();
    let file = file.to_str().unwrap();
    let run = |script: &str| {
        Run::new(["--hostfile", file, "--env", "BASE", "sh", "-c", script]).env("EIRENE_TRAIN_RSH", sshd.client())
    };

    let ended = run("echo $RANK/$WORLD_SIZE; echo \"it's\" >&2; test -n \"$SSH_CONNECTION\"").end();
    assert_eq!((ended.code, ended.stdout().as_str(), ended.stderr.as_str()), (0, "[0] 0/1\n", "[0] it's\n"));
    assert_eq!(run("exit 5").end().code, 5);

    // The launcher dies; sshd closes the node's input; nothing is left.
    let started = run(": > $BASE/pid-$$; trap '' TERM HUP; : > $BASE/ready; while :; do :; done").start();
    started.wait_for_marks("ready", 1);
    started.signal(Signal::SIGKILL);
    let ended = started.end();
    wait_until("all processes are gone", || living(ended.base.path()).is_empty());
}
