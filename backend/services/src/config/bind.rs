//! Bind mounts as an admin writes them, `source[:target][:ro]`: what of the compute nodes every session sees.
//!
//! The paths obey the rules of whoever hands them to Apptainer, so that a mistake is found when the configuration is read and not on a
//! node. Whether a path exists there cannot be known here.

use std::fmt;
use std::str::FromStr;

use eirene_containers::apptainer::ContainerPath;
use eirene_core::job_file::Bind;
use serde::{Deserialize, Serialize};

/// What the container has of its own, where a bind mount would break the app.
const TAKEN: [&str; 7] = ["/", "/dev", "/proc", "/run/eirene", "/run/eirene-guard", "/sys", "/tmp"];

/// A directory or file of the node that sessions see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BindPath {
    source: String,
    target: String,
    writable: bool,
}

/// Text that is no bind mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// It has other parts than it should have.
    #[error("`{0}` is not `source`, `source:target` or one of them with `:ro`")]
    Parts(String),
    /// One of the paths.
    #[error(transparent)]
    Path(#[from] eirene_containers::apptainer::SpecError),
    /// The container has something of its own there.
    #[error("`{0}` belongs to the container itself and cannot be a target")]
    Taken(String),
}

impl BindPath {
    /// Path on the node.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Path in the container.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Whether sessions may write to it, as far as the person may.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// As the job file says it.
    pub fn to_bind(&self) -> Bind {
        Bind { source: self.source.clone(), target: self.target.clone(), writable: self.writable, optional: false }
    }
}

/// A path without a slash at its end, so that one place has one name.
fn path(text: &str) -> Result<String, BindError> {
    let path = ContainerPath::try_from(text)?;
    let trimmed = path.as_str().trim_end_matches('/');
    Ok(if trimmed.is_empty() { "/" } else { trimmed }.to_owned())
}

impl FromStr for BindPath {
    type Err = BindError;
    fn from_str(text: &str) -> Result<Self, BindError> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, writable) = match parts[..] {
            [source] => (source, source, true),
            [source, "ro"] => (source, source, false),
            [source, target] => (source, target, true),
            [source, target, "ro"] => (source, target, false),
            _ => return Err(BindError::Parts(text.escape_debug().collect())),
        };
        let (source, target) = (path(source)?, path(target)?);
        if TAKEN.contains(&target.as_str()) {
            return Err(BindError::Taken(target));
        }
        Ok(Self { source, target, writable })
    }
}

impl TryFrom<String> for BindPath {
    type Error = BindError;
    fn try_from(text: String) -> Result<Self, BindError> {
        text.parse()
    }
}

impl fmt::Display for BindPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.writable { "" } else { ":ro" };
        write!(f, "{}:{}{mode}", self.source, self.target)
    }
}

impl From<BindPath> for String {
    fn from(bind: BindPath) -> Self {
        bind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_a_source_perhaps_a_target_perhaps_read_only() {
        for (text, source, target, writable) in [
            ("/scratch", "/scratch", "/scratch", true),
            ("/scratch/", "/scratch", "/scratch", true),
            ("/data:ro", "/data", "/data", false),
            ("/mnt/data:/data", "/mnt/data", "/data", true),
            ("/mnt/my data:/data:ro", "/mnt/my data", "/data", false),
        ] {
            let bind: BindPath = text.parse().unwrap();
            let expected = Bind { source: source.into(), target: target.into(), writable, optional: false };
            assert_eq!(bind.to_bind(), expected, "{text}");
            assert_eq!(bind.to_string().parse::<BindPath>().unwrap(), bind, "{text}");
        }
    }

    #[test]
    fn what_apptainer_would_read_otherwise_is_refused() {
        for bad in [
            "",
            ":",
            "scratch",
            "./x",
            "/a:b",
            "/a:/b:rw",
            "/a:/b:/c",
            "/a:/b:ro:ro",
            "/a,/b",
            "/a:/b,/c",
            "/a\n",
            "/a\0",
            "/$(id)",
            "/a/../b",
            "ro",
            ":ro",
            "/a:",
        ] {
            assert!(bad.parse::<BindPath>().is_err(), "{bad:?}");
        }
        for taken in ["/", "/:ro", "/a:/", "/a:/tmp/", "/proc", "/a:/run/eirene"] {
            assert!(matches!(taken.parse::<BindPath>(), Err(BindError::Taken(_))), "{taken:?}");
        }
    }
}
