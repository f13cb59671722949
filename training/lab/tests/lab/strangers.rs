//! Somebody else on the nodes' network finds the port at which ranks meet, and gets nothing out of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use crate::common::{TOOL, lab, launcher, program, until};

#[test]
fn a_stranger_on_the_network_neither_joins_nor_disturbs() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = lab(3);
    let (go, place) = (directory.path().join("go"), directory.path().join("place"));
    // The last rank comes when the stranger has done his worst, so that the others still wait at the door.
    let (go_to, tell) = (go.to_str().unwrap(), place.to_str().unwrap());
    let rank = ["late", "3", go_to, tell, "wire", "allreduce", "1000003", "2"];
    let mut command = launcher(&nodes, &[2, 2], directory.path(), &rank);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the place is known", || std::fs::read_to_string(&place).is_ok_and(|text| text.ends_with('\n')));
    let meeting = std::fs::read_to_string(&place).unwrap();

    let mut stranger = std::process::Command::new(TOOL);
    stranger.args(["exec", "--lab", &nodes.name(), "node3", "--"]).arg(program("lab_stranger")).arg(meeting.trim());
    let mut stranger = stranger.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut words = BufReader::new(stranger.stdout.take().unwrap()).lines();
    // Connections without a word, with noise, and with what the door itself has said to somebody else: none was let in.
    assert_eq!(words.next().unwrap().unwrap(), "knocked 300, let in 0");
    std::fs::write(&go, "").unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    run.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    run.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(run.wait().unwrap().success(), "{stdout}{stderr}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with("wire ")).count(), 2, "{stdout}");
    // While the ranks were at work nobody listened any more.
    stranger.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(words.next().unwrap().unwrap(), "closed");
    assert!(stranger.wait().unwrap().success());
    nodes.down().unwrap();
}
