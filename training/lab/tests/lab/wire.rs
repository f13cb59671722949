//! What collectives send between nodes is counted on the nodes' interfaces, with everything: heads of messages, headers of packets, and
//! acknowledgements. Packets are counted as they leave the stack, so headers of large sends once for up to 64 KiB.

use eirene_train_lab::Nodes;

use crate::common::{lab, launcher, said};

/// How much more (or, never, less) than the least is allowed.
const TOLERANCE: f64 = 0.02;

/// Runs a collective of so many elements on `slots` ranks of each node; what each node has sent and received, in buffers.
fn moved(nodes: &Nodes, slots: &[usize], collective: &str, elements: usize, rounds: usize) -> Vec<(f64, f64)> {
    let directory = tempfile::tempdir().unwrap();
    let rank = ["wire", collective, &elements.to_string(), &rounds.to_string()];
    let output = launcher(nodes, slots, directory.path(), &rank).output().unwrap();
    let mut moved = vec![(0.0, 0.0); slots.len()];
    for line in said(&output).lines() {
        if let ["wire", node, sent, received] = line.split(' ').collect::<Vec<_>>()[..] {
            let buffers = |bytes: &str| bytes.parse::<f64>().unwrap() / (elements * 4 * rounds) as f64;
            moved[node.parse::<usize>().unwrap()] = (buffers(sent), buffers(received));
        }
    }
    moved
}

fn is_near(buffers: f64, least: f64) -> bool {
    (least..=least * (1.0 + TOLERANCE)).contains(&buffers)
}

#[test]
fn two_levels_move_no_more_between_nodes_than_they_must() {
    let cases: [(&[usize], usize, usize); 6] = [
        (&[2, 2], 256 << 10, 20),
        (&[2, 2], 4 << 20, 3),
        (&[2, 2], 1_000_003, 8),
        (&[1, 1], 1_000_003, 8),
        (&[1, 2, 1], 1_000_003, 8),
        (&[2, 2, 2], 1_000_003, 8),
    ];
    let nodes = lab(3);
    for (slots, elements, rounds) in cases {
        let least = 2.0 * (slots.len() - 1) as f64 / slots.len() as f64;
        for (node, (sent, received)) in moved(&nodes, slots, "allreduce", elements, rounds).into_iter().enumerate() {
            let case = format!("{slots:?}, {elements} elements, node {node}: {sent} sent, {received} received");
            assert!(is_near(sent, least) && is_near(received, least), "{case} times the buffer, least is {least}");
        }
    }
    nodes.down().unwrap();
}

#[test]
fn a_broadcast_enters_each_other_node_once_and_leaves_none_twice() {
    let nodes = lab(3);
    for slots in [&[2, 2][..], &[2, 1, 2]] {
        let moved = moved(&nodes, slots, "broadcast", 1_000_003, 8);
        let last = moved.len() - 1;
        for (node, (sent, received)) in moved.into_iter().enumerate() {
            // From node to node in a chain: the last sends, and the first receives, acknowledgements alone.
            let sends = if node == last { sent < TOLERANCE } else { is_near(sent, 1.0) };
            let receives = if node == 0 { received < TOLERANCE } else { is_near(received, 1.0) };
            assert!(sends && receives, "{slots:?}, node {node}: {sent} sent, {received} received");
        }
    }
    nodes.down().unwrap();
}
