//! Names of namespaces, which say who owns the lab, and so whether anybody still does.

use std::fmt;
use std::fs;

/// Where `ip netns` keeps namespaces.
pub(crate) const DIRECTORY: &str = "/run/netns";
/// How host names begin; the node's number follows.
pub(crate) const HOST: &str = "node";

const PREFIX: &str = "eirene-lab.";

/// A process, and when it began, for numbers come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    process: u32,
    began: u64,
}

impl Owner {
    /// The running process of that number, if there is one.
    pub fn of(process: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name in parentheses may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let is_dead = matches!(fields.first(), Some(&"Z" | &"X"));
        let began = fields.get(19)?.parse().ok()?;
        (!is_dead).then_some(Self { process, began })
    }

    /// This process.
    pub fn this() -> Option<Self> {
        Self::of(std::process::id())
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.process) == Some(self)
    }
}

/// Which lab: its owner and a number among the owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lab {
    pub(crate) owner: Owner,
    pub(crate) number: u32,
}

impl fmt::Display for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.owner.process, self.owner.began, self.number)
    }
}

impl Lab {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let process = parts.next()?.parse().ok()?;
        let began = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { owner: Owner { process, began }, number })
    }

    pub(crate) fn switch(self) -> String {
        format!("{PREFIX}{self}")
    }

    pub(crate) fn node(self, node: u32) -> String {
        format!("{PREFIX}{self}.{HOST}{node}")
    }
}

/// The lab of a namespace, and which node of it; none for its switch.
fn parse(namespace: &str) -> Option<(Lab, Option<u32>)> {
    let name = namespace.strip_prefix(PREFIX)?;
    match name.rsplit_once(&format!(".{HOST}")) {
        Some((lab, node)) => Some((Lab::parse(lab)?, Some(node.parse().ok()?))),
        None => Some((Lab::parse(name)?, None)),
    }
}

/// All namespaces of all labs.
pub(crate) fn present() -> Vec<(Lab, Option<u32>)> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| parse(entry.file_name().to_str()?)).collect();
    found.sort_by_key(|(lab, node)| (lab.owner.process, lab.owner.began, lab.number, *node));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_nobody_elses_are() {
        let lab = Lab { owner: Owner::this().unwrap(), number: 3 };
        assert_eq!(parse(&lab.switch()), Some((lab, None)));
        assert_eq!(parse(&lab.node(12)), Some((lab, Some(12))));
        assert_eq!(Lab::parse(&lab.to_string()), Some(lab));
        for foreign in ["", "eirene-lab.", "cni-1234", "eirene-lab.1.2", "eirene-lab.1.2.3.4", "eirene-lab.1.2.3.nodex"]
        {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_process_is_told_from_a_later_one_of_the_same_number() {
        let owner = Owner::this().unwrap();
        assert!(owner.is_alive());
        assert!(!Owner { began: owner.began + 1, ..owner }.is_alive());
    }
}
