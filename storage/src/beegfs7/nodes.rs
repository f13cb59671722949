//! Reads `--listnodes --details --reachable`: a line for each node, indented lines about it, and their number at the end.
//!
//! Nobody captured whether a node is reached; that line follows `ModeGetNodes.cpp` of branch 7.4.x.

use eirene_core::storage::{Known, NodeId, Partial, Role, ServerNode, Why};

use crate::doubts::{Doubts, printable};
use crate::noise;
use crate::units::digits;

/// The servers of a role.
pub(super) fn parse(text: &str, role: Role) -> Partial<Vec<ServerNode>> {
    let mut doubts = Doubts::default();
    let mut nodes: Vec<ServerNode> = Vec::new();
    let mut said = None;
    for (number, line) in noise::lines(text, &mut doubts) {
        if let Some(words) = line.trim_start().strip_prefix("Interfaces: ").filter(|_| line.starts_with(' ')) {
            if let Some(node) = nodes.last_mut() {
                node.addresses = words.split_whitespace().map(printable).collect();
            }
        } else if let Some(word) = line.trim_start().strip_prefix("Reachable: ").filter(|_| line.starts_with(' ')) {
            let reached = match word.trim() {
                "<yes>" => Known::Known(true),
                "<no>" => Known::Known(false),
                _ => Known::Missing(Why::NotUnderstood),
            };
            match nodes.last_mut() {
                Some(node) if node.reachable == Known::Missing(Why::NeverMeasured) && reached.value().is_some() => {
                    node.reachable = reached;
                }
                other => {
                    if let Some(node) = other {
                        node.reachable = Known::Missing(Why::NotUnderstood);
                    }
                    doubts.line(number, line);
                }
            }
        } else if let Some(count) = line.strip_prefix("Number of nodes: ") {
            said = digits(count.trim());
        } else if line.starts_with(' ') || line.starts_with("Root: ") {
            // Ports, and which node holds the root directory.
        } else if let Some(id) = node_id(line, role) {
            nodes.push(ServerNode { id, addresses: Vec::new(), reachable: Known::Missing(Why::NeverMeasured) });
        } else {
            doubts.line(number, line);
        }
    }
    let came = nodes.len() as u64;
    let mut nodes = doubts.unique(nodes, |node| node.id.number);
    if said != Some(came) {
        // What is said below a name that was lost is the next one's above it.
        for node in &mut nodes {
            node.reachable = Known::Missing(Why::NotUnderstood);
        }
        doubts.whole("the number of nodes is not what the list says");
    }
    doubts.with(nodes)
}

/// `vm [ID: 1]`, as everywhere in 7; a name may hold spaces.
pub(super) fn node_id(text: &str, role: Role) -> Option<NodeId> {
    let (name, id) = text.trim().strip_suffix(']')?.rsplit_once(" [ID: ")?;
    let number = u32::try_from(digits(id)?).ok()?;
    // Two nodes in one line are two lines that ran together.
    (!name.is_empty() && !name.contains(" [ID: ")).then(|| NodeId { role, number, alias: Some(printable(name)) })
}
