//! Starting ranks in nodes.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use eirene_train_lab::{Nodes, Owner};

/// The lab's command.
pub(crate) const TOOL: &str = env!("CARGO_BIN_EXE_eirene-train-nodes");

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Nodes that go with the test.
pub(crate) fn lab(count: u32) -> Nodes {
    Nodes::up(count, "1gbit", Owner::this().unwrap()).unwrap()
}

/// An example program of this package.
pub(crate) fn program(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples").join(name)
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `eirene-train run` on the lab's nodes, as people call it; `slots` ranks on each.
pub(crate) fn launcher(nodes: &Nodes, slots: &[usize], directory: &Path, rank: &[&str]) -> Command {
    let file = directory.join("hosts");
    let lines = (1..).zip(slots).map(|(node, slots)| format!("node{node} slots={slots}\n"));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let mut command = Command::new(program("lab_launcher"));
    command.args(["run", "--no-labels", "--hostfile"]).arg(file).arg(program("lab_rank")).args(rank);
    command.env("EIRENE_TRAIN_RSH", format!("{TOOL} rsh")).env("EIRENE_TRAIN_LAB", nodes.name());
    command.stdin(Stdio::null());
    command
}

/// What a run said, which has ended well.
pub(crate) fn said(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

/// A rank without a launcher over it, which would end it before it can say what is wrong.
pub(crate) struct Rank {
    child: Child,
    lines: Receiver<String>,
}

impl Rank {
    /// Two ranks on each of two nodes that reduce without end. They meet by a file.
    pub(crate) fn two_by_two(nodes: &Nodes, directory: &Path, elements: &str) -> Vec<Self> {
        let start = |rank: usize| {
            let mut command = Command::new(TOOL);
            command.args(["exec", "--lab", &nodes.name(), &format!("node{}", rank / 2 + 1), "--"]);
            command.arg(program("lab_rank")).args(["endless", elements]);
            let place = [("RANK", rank), ("SIZE", 4), ("LOCAL_RANK", rank % 2), ("LOCAL_SIZE", 2), ("NODE", rank / 2)];
            command.envs(place.map(|(name, value)| (format!("EIRENE_TRAIN_{name}"), value.to_string())));
            command.env("EIRENE_TRAIN_NODES", "node[1-2]").env("EIRENE_TRAIN_WORLD", nodes.name());
            command.env("EIRENE_TRAIN_MEETING", directory).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let (tell, lines) = channel();
            let stdout = BufReader::new(child.stdout.take().unwrap());
            std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
            Self { child, lines }
        };
        (0..4).map(start).collect()
    }

    /// The next line that it says.
    pub(crate) fn hear(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the rank says nothing"),
            Err(RecvTimeoutError::Disconnected) => panic!("the rank ended without a word"),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) {
        until("the rank ends", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
