//! The prolog and epilog for BeeOND (`deploy/slurm/`), with programs in the place of BeeOND and SLURM: what they call, for whom, and that nothing
//! makes them fail. What is brought out before the end is so by the real agent.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use eirene_core::scratch::{brought_out, not_brought_out};

/// Notes how it was called; makes and removes what BeeOND would; fails or hangs as a file beside it says.
const BEEOND: &str = r#"#!/bin/bash
cd "$(dirname "$0")" || exit
echo "$*" >>called
[ ! -e "$1-hangs" ] || sleep 1000
[ ! -e "$1-fails" ] || { echo "ERROR: no such luck"; exit 1; }
while [ $# -gt 1 ]; do [ "$1" != -c ] || [ "${2#/}" = "$2" ] || mkdir -p "$2"; shift; done
"#;
/// Brings out what it is called for; fails or hangs as a file beside it says.
const AGENT: &str = r#"#!/bin/bash
cd "$(dirname "$0")" || exit
echo "agent $*" >>called
[ ! -e rescue-hangs ] || sleep 1000
[ ! -e rescue-fails ] || { echo "no room left"; exit 1; }
"#;
/// Becomes nobody else, which takes root, and notes who it should.
const SETPRIV: &str = r#"#!/bin/bash
echo "$*" | head -n 1 >>"$(dirname "$0")/became"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"#;
/// Knows whoever it is asked for.
const GETENT: &str = "#!/bin/bash\necho \"ada:x:$2:4711::/home/ada:/bin/sh\"\n";
const PROGRAMS: [(&str, &str); 7] = [
    ("beeond", BEEOND),
    ("squeue", SQUEUE),
    ("scontrol", SCONTROL),
    ("logger", LOGGER),
    ("agent", AGENT),
    ("setpriv", SETPRIV),
    ("getent", GETENT),
];
/// Answers for one job.
const SQUEUE: &str = "#!/bin/bash\ncd \"$(dirname \"$0\")\" || exit\necho \"$*\" >>asked\ncat -- \"${!#}\"\n";
const SCONTROL: &str = "#!/bin/bash\ncat \"$(dirname \"$0\")/hostnames\"\n";
const LOGGER: &str = "#!/bin/bash\necho \"$*\" >>\"$(dirname \"$0\")/log\"\n";

/// What is owed of a scratch whose agent was killed.
const JOURNAL: &str = r#"{"session":"s","node":null,"spaces":{"home":"HOME"},"stage_in":[],
    "stage_out":[[{"from":"log","to":"home:kept/log","on":"always"},"waiting"]],"phase":"used","succeeded":false}"#;

struct Node {
    directory: tempfile::TempDir,
    owner: u32,
}

impl Node {
    fn new() -> Self {
        let uid = nix::unistd::geteuid().as_raw();
        // Only root can give a directory to somebody else.
        let node = Self { directory: tempfile::tempdir().unwrap(), owner: if uid == 0 { 12345 } else { uid } };
        for (name, text) in PROGRAMS {
            std::fs::write(node.at(name), text).unwrap();
            std::fs::set_permissions(node.at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        node.write("--format=%j", "eirene-Ab_9-x\n");
        node.write("--format=%N", "c[1-2]\n");
        node.write("hostnames", "c1\nc2\n");
        node.set("");
        node
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at(name), text).unwrap();
    }

    /// Writes the settings, with `more` at their end.
    fn set(&self, more: &str) {
        let here = self.directory.path().display();
        let programs = PROGRAMS.map(|(name, _)| format!("{name}={here}/{name}\n")).concat();
        let places = ["data", "mount", "state", "logs"].map(|name| format!("{name}={here}/{name}\n")).concat();
        self.write("settings", &format!("# A comment.\n\n{programs}{places}{more}"));
        std::fs::set_permissions(self.at("settings"), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Calls one as slurmd does, with these variables changed; it must never fail.
    fn call(&self, script: &str, changed: &[(&str, &str)]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm").join(script);
        let owner = self.owner.to_string();
        let usual = [
            ("SLURM_JOB_ID", "17"),
            ("SLURM_JOB_UID", owner.as_str()),
            ("SLURM_JOB_CONSTRAINTS", "beeond"),
            ("SLURMD_NODENAME", "c1"),
        ];
        let mut command = Command::new(&script);
        command
            .env_clear()
            .env("EIRENE_BEEOND_SETTINGS", self.at("settings"))
            .envs(usual)
            .envs(changed.iter().copied());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&said).as_ref()), (Some(0), ""), "{changed:?}");
    }

    fn prolog(&self, changed: &[(&str, &str)]) {
        self.call("eirene-beeond-prolog", changed);
    }

    /// The job's agent was killed when its program had written something that is to be kept; gives the person's home.
    fn leave(&self) -> PathBuf {
        self.leave_in("")
    }

    /// The same where the name of the person's own directory was no use, and it has such a suffix.
    fn leave_in(&self, suffix: &str) -> PathBuf {
        let scratch = self.at(&format!("mount/17/eirene-scratch-{}{suffix}/s.0", self.owner));
        let home = self.at("home");
        std::fs::create_dir_all(home.join(".eirene/sessions/s")).unwrap();
        std::fs::write(home.join(".eirene/sessions/s/job.log"), "worked\n").unwrap();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(scratch.join("data")).unwrap();
        std::fs::write(scratch.join("data/log"), "owed").unwrap();
        let journal = scratch.join("journal.json");
        std::fs::write(&journal, JOURNAL.replace("HOME", home.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o600)).unwrap();
        home
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.at(name)).unwrap_or_default();
        text.lines().map(|line| line.replace(self.directory.path().to_str().unwrap(), "T")).collect()
    }
}

#[test]
fn a_job_that_asks_for_it_gets_its_file_system_and_loses_it_at_the_end() {
    let node = Node::new();
    node.prolog(&[]);
    assert_eq!(
        node.lines("called"),
        ["start -n T/state/17.nodes -i T/state/17.status -q -d T/data/17 -c T/mount/17 -L T/logs/17"]
    );
    assert_eq!(node.lines("state/17.nodes"), ["c1", "c2"]);
    let (mount, state) =
        (std::fs::metadata(node.at("mount/17")).unwrap(), std::fs::metadata(node.at("state")).unwrap());
    assert_eq!((mount.uid(), mount.mode() & 0o777, state.mode() & 0o777), (node.owner, 0o700, 0o700));
    assert!(node.lines("log")[0].contains("job 17: BeeOND is up on 2 nodes at T/mount/17"), "{:?}", node.lines("log"));
    node.call("eirene-beeond-epilog", &[("SLURM_JOB_CONSTRAINTS", "")]);
    assert_eq!(node.lines("called")[1..], ["stop -n T/state/17.nodes -i T/state/17.status -q -L -d -c"]);
    assert!(!node.at("state/17.nodes").exists());
    node.call("eirene-beeond-epilog", &[]);
    assert_eq!(node.lines("called").len(), 2, "once");
}

#[test]
fn what_a_killed_job_owed_is_brought_out_as_its_owner_before_the_stop() {
    let node = Node::new();
    node.prolog(&[]);
    node.leave();
    node.call("eirene-beeond-epilog", &[]);
    let owner = node.owner;
    assert_eq!(
        node.lines("called")[1..],
        [
            format!("agent rescue T/mount/17/eirene-scratch-{owner}/s.0"),
            "stop -n T/state/17.nodes -i T/state/17.status -q -L -d -c".to_owned()
        ]
    );
    let became = node.lines("became").join("\n");
    let wanted = format!("--reuid={owner} --regid=4711 --init-groups --no-new-privs bash -c");
    assert!(became.starts_with(&wanted), "{became}");
    let log = node.lines("log").join("\n");
    assert!(!log.contains("brought out") && !log.contains("ended with"), "{log}");
}

#[test]
fn the_agent_brings_it_out_and_leaves_word_of_it_in_the_jobs_own_log() {
    for suffix in ["", ".Ab3xYz"] {
        let node = Node::new();
        node.set(&format!("agent={}\n", env!("CARGO_BIN_EXE_eirene-agent")));
        node.prolog(&[]);
        let home = node.leave_in(suffix);
        node.call("eirene-beeond-epilog", &[]);
        assert_eq!(std::fs::read_to_string(home.join("kept/log")).unwrap(), "owed", "{:?}", node.lines("log"));
        let log = std::fs::read_to_string(home.join(".eirene/sessions/s/job.log")).unwrap();
        assert!(log.starts_with("worked\n") && log.trim_end().ends_with(&brought_out("s.0")), "{log}");
    }

    let node = Node::new();
    node.set(&format!("agent={}\n", env!("CARGO_BIN_EXE_eirene-agent")));
    node.prolog(&[]);
    let home = node.leave();
    std::fs::write(home.join("kept"), "in the way").unwrap();
    node.call("eirene-beeond-epilog", &[]);
    let log = std::fs::read_to_string(home.join(".eirene/sessions/s/job.log")).unwrap();
    assert!(log.contains("of another kind") && log.trim_end().ends_with(&not_brought_out("s.0")), "{log}");
    let log = node.lines("log").join("\n");
    assert!(log.contains("not all that was to be kept of it could be brought out"), "{log}");
}

#[test]
fn what_cannot_be_brought_out_does_not_keep_it_from_being_stopped() {
    for (trouble, changed, words) in [
        ("rescue-fails", None, "no room left"),
        ("rescue-hangs", None, "bringing out what is owed ended with status 124"),
        ("nobody", Some(("SLURM_JOB_UID", "")), "does not know its owner"),
        ("getent", None, "does not know its owner"),
    ] {
        let node = Node::new();
        if trouble == "rescue-hangs" {
            node.set("rescue_s=1\n");
        }
        node.prolog(&[]);
        node.leave();
        node.write(trouble, "#!/bin/bash\nexit 2\n");
        node.call("eirene-beeond-epilog", changed.as_slice());
        assert!(node.lines("called").last().unwrap().starts_with("stop "), "{trouble}");
        let log = node.lines("log").join("\n");
        assert!(log.contains(words) && log.contains("BeeOND is stopped"), "{trouble}: {log}");
    }
}

#[test]
fn settings_are_followed() {
    let node = Node::new();
    node.set("pdsh=yes\nport_shift=2000\n");
    node.prolog(&[("SLURM_JOB_CONSTRAINTS", "[gpu&beeond]")]);
    let called = node.lines("called");
    assert!(called[0].contains(" -q -P -d ") && called[0].ends_with(" -p 2000"), "{called:?}");
}

#[test]
fn other_jobs_other_nodes_and_other_constraints_are_left_alone() {
    let node = Node::new();
    for constraints in ["", "gpu", "nobeeond", "beeond2", "x-beeond"] {
        node.prolog(&[("SLURM_JOB_CONSTRAINTS", constraints)]);
    }
    assert_eq!(node.lines("asked").len(), 0, "the controller is not asked about them");
    node.prolog(&[("SLURMD_NODENAME", "c2")]);
    node.prolog(&[("SLURM_JOB_UID", "0")]);
    for id in ["", "0", "-1", "17x", "17 18", "../17"] {
        node.prolog(&[("SLURM_JOB_ID", id)]);
        node.call("eirene-beeond-epilog", &[("SLURM_JOB_ID", id)]);
    }
    for name in ["train", "my-eirene-x", "eirene-", "eirene-x y", "eirene-x\neirene-y", "eirene-$(id)"] {
        node.write("--format=%j", name);
        node.prolog(&[]);
    }
    node.write("--format=%j", "eirene-x");
    for hosts in ["", "-oProxyCommand=x", "c1\n-x", "c1\na b"] {
        node.write("hostnames", hosts);
        node.prolog(&[("SLURMD_NODENAME", hosts.lines().next().unwrap_or_default())]);
    }
    assert_eq!(node.lines("called"), Vec::<String>::new());
    assert!(!node.at("mount").exists());
}

#[test]
fn what_cannot_be_started_is_stopped_and_said_and_nothing_waits_for_ever() {
    for trouble in ["start-fails", "start-hangs"] {
        let node = Node::new();
        if trouble == "start-hangs" {
            // What stops it has as long.
            node.set("limit_s=5\n");
        }
        node.write(trouble, "");
        node.prolog(&[]);
        let (called, log) = (node.lines("called"), node.lines("log").join("\n"));
        assert!(called.len() == 2 && called[1].starts_with("stop -n "), "{called:?}");
        assert!(log.contains("ended with status") && log.contains("could not be started"), "{log}");
        assert!(trouble == "start-hangs" || log.contains("no such luck"), "{log}");
        assert!(!node.at("state/17.nodes").exists());
    }
}

#[test]
fn what_cannot_be_stopped_everywhere_is_stopped_here_and_said() {
    let node = Node::new();
    node.prolog(&[]);
    node.write("stop-fails", "");
    node.write("stoplocal-fails", "");
    node.call("eirene-beeond-epilog", &[]);
    assert_eq!(node.lines("called")[2..], ["stoplocal -i T/state/17.status -L -d -c -q"]);
    let log = node.lines("log").join("\n");
    assert!(log.contains("could not be stopped on all of: c1 c2 - look there"), "{log}");
}

#[test]
fn settings_that_others_could_have_written_or_that_are_slips_are_not_followed() {
    let node = Node::new();
    std::fs::set_permissions(node.at("settings"), std::fs::Permissions::from_mode(0o622)).unwrap();
    node.prolog(&[]);
    for bad in [
        "dta=/x",
        "data=relative",
        "mount=/a b",
        "state=/a/../b",
        "data=/$(id)",
        "limit_s=soon",
        "rescue_s=0",
        "pdsh=maybe",
        "port_shift=-1",
    ] {
        node.set(&format!("{bad}\n"));
        node.prolog(&[]);
    }
    assert_eq!(node.lines("called"), Vec::<String>::new());
    assert_eq!(node.lines("log").len(), 9, "each is said, but for the file that nobody believes");
}
