//! Apptainer (and Singularity): a typed description of one container process becomes an argument vector.
//!
//! The options are those of apptainer-exec(1), version 1.4. Everything that could change the number or the meaning of an argument is
//! refused when the description is made: paths are absolute and hold no `:`, `,`, quote, line end or backslash, because Apptainer
//! itself splits bind specifications at colons and commas. Starting the process is left to the caller.

use std::fmt::Write as _;

/// Why a description is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is no path that can be handed to Apptainer safely.
    #[error("`{0}` is not an absolute path without `:`, `,`, quotes, backslashes and control characters")]
    Path(String),
    /// The text is no name of an environment variable.
    #[error("`{0}` is not a name of an environment variable")]
    Variable(String),
    /// The value of a variable holds a byte no environment can hold, or a line end.
    #[error("the value of `{0}` holds a line end or a NUL")]
    Value(String),
}

/// An absolute path that is one argument and one part of a bind specification, whatever is done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPath(String);

impl ContainerPath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for ContainerPath {
    type Error = SpecError;
    fn try_from(text: &str) -> Result<Self, SpecError> {
        let hostile = |c: char| c.is_control() || matches!(c, ':' | ',' | '"' | '\'' | '\\' | '`' | '$');
        let climbs = text.split('/').any(|part| part == "..");
        if !text.starts_with('/') || text.contains(hostile) || climbs {
            return Err(SpecError::Path(text.escape_debug().collect()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A directory or file of the node that is seen in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// Path on the node.
    pub source: ContainerPath,
    /// Path in the container.
    pub target: ContainerPath,
    /// Whether it may be written to.
    pub writable: bool,
}

/// One process in a container of its own: private file system, PID and IPC namespaces and environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// SIF file.
    pub image: ContainerPath,
    /// The person's home, seen at the same path.
    pub home: ContainerPath,
    /// What else of the node is seen.
    pub binds: Vec<BindMount>,
    /// File of environment variables, see [`environment_file`]; without one the process gets what the caller's own variables say.
    pub environment: Option<ContainerPath>,
    /// Whether NVIDIA's libraries and devices are brought in.
    pub nvidia: bool,
    /// Whether the image's own directories can be written to; what is written is lost at the end. It takes a second FUSE layer, which
    /// doubles the time Python needs to start.
    pub writable_image: bool,
    /// Working directory in the container.
    pub directory: ContainerPath,
    /// Program and arguments in the container.
    pub command: Vec<String>,
}

impl Exec {
    /// The arguments after the program name (`apptainer`, or `singularity` where that is what the node has).
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--silent", "exec", "--containall", "--no-eval"].map(ToOwned::to_owned).to_vec();
        if self.writable_image {
            arguments.push("--writable-tmpfs".to_owned());
        }
        arguments.push(format!("--home={}", self.home.as_str()));
        arguments.push(format!("--pwd={}", self.directory.as_str()));
        for bind in &self.binds {
            let mode = if bind.writable { "rw" } else { "ro" };
            arguments.push(format!("--bind={}:{}:{mode}", bind.source.as_str(), bind.target.as_str()));
        }
        if let Some(file) = &self.environment {
            arguments.push(format!("--env-file={}", file.as_str()));
        }
        if self.nvidia {
            arguments.push("--nv".to_owned());
        }
        arguments.push(self.image.as_str().to_owned());
        arguments.extend(self.command.iter().cloned());
        arguments
    }
}

/// Text of an environment file. Apptainer reads it with a shell's eyes, so every value is quoted.
pub fn environment_file(variables: &[(String, String)]) -> Result<String, SpecError> {
    let mut text = String::new();
    for (name, value) in variables {
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(SpecError::Variable(name.escape_debug().collect()));
        }
        if value.contains(['\n', '\r', '\0']) {
            return Err(SpecError::Value(name.clone()));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}='{}'", value.replace('\'', r"'\''"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> ContainerPath {
        ContainerPath::try_from(text).unwrap()
    }

    fn exec() -> Exec {
        Exec {
            image: path("/srv/images/x.sif"),
            home: path("/home/ada"),
            binds: vec![BindMount { source: path("/tmp/r"), target: path("/run/eirene"), writable: true }],
            environment: Some(path("/tmp/r/environment")),
            nvidia: true,
            writable_image: true,
            directory: path("/home/ada"),
            command: vec!["jupyter".into(), "lab".into()],
        }
    }

    #[test]
    fn the_vector_is_as_the_manual_says() {
        assert_eq!(
            exec().arguments(),
            [
                "--silent",
                "exec",
                "--containall",
                "--no-eval",
                "--writable-tmpfs",
                "--home=/home/ada",
                "--pwd=/home/ada",
                "--bind=/tmp/r:/run/eirene:rw",
                "--env-file=/tmp/r/environment",
                "--nv",
                "/srv/images/x.sif",
                "jupyter",
                "lab"
            ]
        );
    }

    #[test]
    fn paths_that_mean_something_else_are_refused() {
        for bad in
            ["", "x", "--nv", "/a:/b", "/a,b", "/a\nb", "/a'b", "/a\"b", "/a\\b", "/$(id)", "/`id`", "/a/../b", "/a\0"]
        {
            assert!(ContainerPath::try_from(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "1A", "A B", "A=B", "A-B", "$A"] {
            assert!(environment_file(&[(bad.into(), "x".into())]).is_err(), "{bad:?}");
        }
        assert!(environment_file(&[("A".into(), "x\ny".into())]).is_err());
    }

    proptest! {
        #[test]
        fn no_path_changes_the_number_or_the_beginning_of_arguments(text in "\\PC{0,40}") {
            if let Ok(hostile) = ContainerPath::try_from(text.as_str()) {
                let plain = exec().arguments();
                let mut changed = exec();
                changed.home = hostile.clone();
                changed.binds[0].target = hostile;
                let arguments = changed.arguments();
                prop_assert_eq!(arguments.len(), plain.len());
                prop_assert_eq!(arguments[7].matches(':').count(), 2);
                prop_assert!(!arguments[7].contains(','));
            }
        }

        #[test]
        fn a_shell_reads_back_what_was_written(value in "[^\n\r\0]{0,60}") {
            let text = environment_file(&[("VALUE".into(), value.clone())]).unwrap();
            let output = std::process::Command::new("sh")
                .args(["-c", "eval \"$1\"; printf %s \"$VALUE\"", "sh", &text])
                .output()
                .unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }
}
