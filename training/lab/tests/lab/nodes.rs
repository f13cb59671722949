//! The lab itself.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use eirene_train_lab::{Nodes, address};

use crate::common::{TOOL, lab, until};

/// All namespaces that `ip netns` knows, by whomever.
fn namespaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn of_lab(name: &str) -> Vec<String> {
    let begin = format!("eirene-lab.{name}");
    namespaces().into_iter().filter(|name| *name == begin || name.starts_with(&format!("{begin}."))).collect()
}

fn interfaces() -> BTreeSet<String> {
    std::fs::read_dir("/sys/class/net")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn nodes_have_names_of_their_own_reach_each_other_and_are_counted() {
    let outside = interfaces();
    let nodes = lab(2);
    assert_eq!(interfaces(), outside, "nothing is added to this machine's own network");
    let inside = |node: &str, command: &[&str]| {
        let output =
            Command::new(TOOL).args(["exec", "--lab", &nodes.name(), node, "--"]).args(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(inside("node2", &["uname", "-n"]), "node2\n");
    assert_eq!(inside("1", &["uname", "-n"]), "node1\n");
    let before = (nodes.bytes(1).unwrap(), nodes.bytes(2).unwrap());
    let knock = ["bash", "-c", "{ : > /dev/tcp/10.77.0.2/9; } 2>&1 || true"];
    assert!(inside("node1", &knock).contains("refused"), "somebody is there and says no");
    let after = (nodes.bytes(1).unwrap(), nodes.bytes(2).unwrap());
    assert!(after.0.sent > before.0.sent && after.0.received > before.0.received);
    assert!(after.1.sent > before.1.sent && after.1.received > before.1.received);
    assert_eq!(address(2).to_string(), "10.77.0.2");
    let name = nodes.name();
    nodes.down().unwrap();
    assert_eq!(of_lab(&name), Vec::<String>::new());
    assert!(Nodes::of(&name).unwrap_err().to_string().contains("there is no lab"));
}

#[test]
fn what_an_owner_leaves_behind_when_it_is_killed_goes_with_the_next_lab() {
    let foreign: BTreeSet<String> = namespaces().into_iter().filter(|name| !name.starts_with("eirene-lab.")).collect();
    let mut owner = Command::new(TOOL);
    owner.args(["with", "1", "--", "sh", "-c", "echo $EIRENE_TRAIN_LAB; exec \"$0\" exec node1 -- sleep 1000", TOOL]);
    let mut owner = owner.stdout(Stdio::piped()).spawn().unwrap();
    let mut name = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(owner.stdout.take().unwrap()), &mut name).unwrap();
    let name = name.trim();
    let sleeps = || {
        let output = Command::new("ip").args(["netns", "pids", &format!("eirene-lab.{name}.node1")]).output().unwrap();
        !output.stdout.is_empty()
    };
    until("something runs in the node", sleeps);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(of_lab(name).len(), 2);

    let mine = lab(1);
    let before = mine.bytes(1).unwrap().sent;
    let other = lab(1);
    assert_eq!(of_lab(name), Vec::<String>::new());
    assert!(!sleeps());
    assert_ne!(mine.name(), other.name());
    assert_eq!(of_lab(&mine.name()).len(), 2, "a lab that has an owner stays");
    // A wire made anew would count from nothing; the kernel itself may send something at any time.
    assert!(mine.bytes(1).unwrap().sent >= before, "and so do its wires");
    mine.down().unwrap();
    assert_eq!(of_lab(&other.name()).len(), 2);
    other.down().unwrap();
    let left: BTreeSet<String> = namespaces().into_iter().filter(|name| !name.starts_with("eirene-lab.")).collect();
    assert_eq!(left, foreign);
}

#[test]
fn a_command_with_nodes_ends_with_its_own_code_and_leaves_none() {
    let output =
        Command::new(TOOL).args(["with", "2", "--", "sh", "-c", "echo $EIRENE_TRAIN_LAB; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(of_lab(String::from_utf8(output.stdout).unwrap().trim()), Vec::<String>::new());
    let wrong = Command::new(TOOL).args(["exec", "--lab", "1.1.1", "node1", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("there is no lab `1.1.1`"));
}
