//! The preflight over wires that are good, slow or cut.

use std::process::{Command, Stdio};

use eirene_train_lab::{INTERFACE, Nodes};

use crate::common::{TOOL, lab, program};
use crate::deep::deep;

/// `eirene-train preflight --json` on all nodes: its exit code, its verdict, and what it has written to stderr.
fn preflight(nodes: &Nodes) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let list = format!("node[1-{}]", nodes.count());
    let mut command = Command::new(program("lab_launcher"));
    command.args(["preflight", "--json", "--nodes", &list]).env("HOME", directory.path());
    command.env("EIRENE_TRAIN_RSH", format!("{TOOL} rsh")).env("EIRENE_TRAIN_LAB", nodes.name());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // White space is for people.
    let verdict: String = text(&output.stdout).split_whitespace().collect();
    (output.status.code(), verdict, text(&output.stderr))
}

/// Gives what a node sends another discipline than its wire's rate.
fn shape(nodes: &Nodes, node: u32, discipline: &[&str]) {
    let mut command = Command::new("tc");
    command.args(["-n", &nodes.namespace(node), "qdisc", "replace", "dev", INTERFACE, "root"]).args(discipline);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn wires_are_as_quick_as_they_are() {
    let nodes = lab(3);
    let (code, verdict, errors) = preflight(&nodes);
    assert_eq!(code, Some(0), "{verdict}{errors}");
    assert!(verdict.contains(r#""exclude":[]"#) && !verdict.contains("sick"), "{verdict}");
    assert_eq!(verdict.matches(r#""latency_us":"#).count(), 3, "{verdict}");
    let speeds: Vec<f64> = verdict
        .split(r#""there_gb_per_s":"#)
        .skip(1)
        .map(|rest| rest.split(',').next().unwrap().parse().unwrap())
        .collect();
    // A gigabit is 0.125 GB; a bucket may be full when a transfer begins. Only the deep tests measure it.
    let expected = if deep() { 0.002..0.25 } else { 0.0..f64::INFINITY };
    assert!(speeds.iter().all(|speed| expected.contains(speed)), "{speeds:?}");
}

#[test]
fn a_wire_that_is_slow_is_named() {
    let nodes = lab(3);
    shape(&nodes, 3, &["tbf", "rate", "20mbit", "burst", "100kb", "latency", "100ms"]);
    let (code, verdict, errors) = preflight(&nodes);
    assert_eq!(code, Some(0), "{verdict}{errors}");
    // Either all its links together, or each of them, where the machine is too busy for the third to be better.
    assert!(verdict.contains(r#""node3"],"link":"#) && verdict.contains(r#""exclude":[]"#), "{verdict}");
}

#[test]
fn a_cut_wire_is_named() {
    let nodes = lab(3);
    nodes.plug(2, false).unwrap();
    let (code, verdict, errors) = preflight(&nodes);
    assert_eq!(code, Some(1), "{verdict}{errors}");
    assert!(verdict.contains(r#""exclude":["node2"]"#), "{verdict}");
}
