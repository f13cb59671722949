//! What detection looks at: the variables, the host's name and the user. A value, so that rules can be tested.

use std::collections::BTreeMap;

/// The environment a process finds itself in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    hostname: String,
    uid: u32,
    /// The launcher's process that all ranks of this node descend from, as far as it can be seen.
    parent: Option<u32>,
}

impl Environment {
    /// The environment of this very process. The only place that reads it.
    pub fn of_this_process() -> Self {
        let hostname = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        let parent = common_ancestor();
        Self { variables, hostname, uid: nix::unistd::getuid().as_raw(), parent }
    }

    /// An environment of one's own making: variables, the host's name, the user's number.
    pub fn new<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
        hostname: &str,
        uid: u32,
    ) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { variables, hostname: hostname.to_owned(), uid, parent: None }
    }

    /// The same, with a variable more (or another value for it).
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same, without a variable.
    pub fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self
    }

    /// A variable's value; one that is empty counts as not there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All variables, in the order of their names.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The host's name, empty when the system would not say.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The launcher's process that all ranks of this node descend from, as far as it can be seen.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.parent
    }
}

/// The nearest ancestor with the name of MPICH's proxy (there may be shells in between); else the parent.
fn common_ancestor() -> Option<u32> {
    const MOST_BETWEEN: usize = 16;
    let own_parent = u32::try_from(nix::unistd::getppid().as_raw()).ok().filter(|parent| *parent > 1)?;
    let mut ancestor = own_parent;
    for _ in 0..MOST_BETWEEN {
        // `12 (name) S 7 …`: the name may hold anything but ends with the last bracket; the parent is the second word behind it.
        let stat = std::fs::read_to_string(format!("/proc/{ancestor}/stat")).unwrap_or_default();
        let Some((before, behind)) = stat.rsplit_once(')') else { break };
        if before.contains("(hydra_pmi_proxy") || before.contains("(pmi_proxy") {
            return Some(ancestor);
        }
        match behind.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) {
            Some(parent) if parent > 1 => ancestor = parent,
            Some(_) | None => break,
        }
    }
    Some(own_parent)
}
