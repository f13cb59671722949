//! What detection looks at: the variables, the host's name and the user. A value, so that rules can be tested.

use std::collections::BTreeMap;

/// The environment a process finds itself in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    hostname: String,
    uid: u32,
    parent: u32,
}

impl Environment {
    /// The environment of this very process. The only place that reads it.
    pub fn of_this_process() -> Self {
        let hostname = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        let parent = u32::try_from(nix::unistd::getppid().as_raw()).unwrap_or_default();
        Self { variables, hostname, uid: nix::unistd::getuid().as_raw(), parent }
    }

    /// An environment of one's own making: variables, the host's name, the user's number.
    pub fn new<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
        hostname: &str,
        uid: u32,
    ) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { variables, hostname: hostname.to_owned(), uid, parent: 0 }
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

    /// The process that started this one.
    pub(crate) fn parent(&self) -> u32 {
        self.parent
    }
}
