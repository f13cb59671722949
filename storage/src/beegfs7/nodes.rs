//! Reads `--listnodes --details`: a line for each node, indented lines about it, and their number at the end.

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
        } else if let Some(count) = line.strip_prefix("Number of nodes: ") {
            said = digits(count.trim());
        } else if line.starts_with(' ') || line.starts_with("Root: ") {
            // Ports, and which node holds the root directory.
        } else if let Some(id) = node_id(line, role) {
            nodes.push(ServerNode { id, addresses: Vec::new(), reachable: Known::Missing(Why::NotSupported) });
        } else {
            doubts.line(number, line);
        }
    }
    let came = nodes.len() as u64;
    let nodes = doubts.unique(nodes, |node| node.id.number);
    if said != Some(came) {
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
