//! Runs: what a job without a browser carries out, and what may be asked of it.
//!
//! A run is a session's job with a program in the app's place: the same image, binds and resources, the same way through queue and agent.

use serde::{Deserialize, Serialize};

use crate::id::SessionId;

/// Longest path, bytes: `PATH_MAX` of Linux.
pub const MAX_PATH: usize = 4096;
/// Most arguments.
pub const MAX_ARGUMENTS: usize = 256;
/// Longest of all arguments together, bytes.
pub const MAX_ARGUMENT_BYTES: usize = 32 * 1024;

/// What a run carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunProgram {
    /// Script or notebook, as the container sees it: absolute, or relative to the person's home. Its directory is the working directory.
    pub file: String,
    /// Arguments of a script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Ranks on all nodes together; none is one process on the first node. A notebook starts ranks in its cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Whether nodes and links are tried before ranks start on several nodes.
    pub preflight: bool,
}

/// What a file is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// `.ipynb`: its cells are executed in order.
    Notebook,
    /// `.py`: run by the image's Python.
    Python,
    /// Anything else is run as it is.
    Program,
}

/// Why a run cannot be as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Empty, too long, a directory by its name, or with control characters.
    #[error("a run's file is a path of 1 to {MAX_PATH} printable characters")]
    File,
    /// Too many or too long, or with NUL.
    #[error("a run has at most {MAX_ARGUMENTS} arguments of {MAX_ARGUMENT_BYTES} bytes together")]
    Arguments,
    /// A notebook takes no arguments.
    #[error("a notebook takes no arguments")]
    NotebookArguments,
    /// A notebook is one process.
    #[error("a notebook is one process: its cells start ranks")]
    NotebookRanks,
    /// No ranks.
    #[error("there must be one rank at least")]
    NoRanks,
}

impl RunProgram {
    /// Whether this can be run at all.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), RunError> {
        if self.file.is_empty()
            || self.file.len() > MAX_PATH
            || self.file.ends_with('/')
            || self.file.chars().any(char::is_control)
        {
            return Err(RunError::File);
        }
        let bytes: usize = self.arguments.iter().map(String::len).sum();
        if self.arguments.len() > MAX_ARGUMENTS
            || bytes > MAX_ARGUMENT_BYTES
            || self.arguments.iter().any(|argument| argument.contains('\0'))
        {
            return Err(RunError::Arguments);
        }
        let is_notebook = self.kind() == FileKind::Notebook;
        match self.ranks {
            _ if is_notebook && !self.arguments.is_empty() => Err(RunError::NotebookArguments),
            Some(_) if is_notebook => Err(RunError::NotebookRanks),
            Some(0) => Err(RunError::NoRanks),
            _ => Ok(()),
        }
    }

    /// What the file is.
    pub fn kind(&self) -> FileKind {
        match self.file.rsplit_once('.') {
            Some((_, "ipynb")) => FileKind::Notebook,
            Some((_, "py")) => FileKind::Python,
            _ => FileKind::Program,
        }
    }

    /// Where a notebook's run leaves the executed notebook: beside it, under a name of the run's own.
    pub fn executed(&self, run: SessionId) -> Option<String> {
        let stem = self.file.strip_suffix(".ipynb")?;
        Some(format!("{stem}.run-{run}.ipynb"))
    }

    /// The file's own name.
    pub fn name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(file: &str) -> RunProgram {
        RunProgram { file: file.to_owned(), arguments: Vec::new(), ranks: None, preflight: true }
    }

    #[test]
    fn files_are_told_by_their_names() {
        assert_eq!(program("a/train.py").kind(), FileKind::Python);
        assert_eq!(program("a/train.ipynb").kind(), FileKind::Notebook);
        assert_eq!(program("/usr/bin/env").kind(), FileKind::Program);
        assert_eq!(program("a/train.ipynb").name(), "train.ipynb");
        let id = SessionId::generate();
        assert_eq!(program("a/train.ipynb").executed(id), Some(format!("a/train.run-{id}.ipynb")));
        assert_eq!(program("a/train.py").executed(id), None);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let check = |change: &dyn Fn(&mut RunProgram)| {
            let mut wanted = program("train.py");
            change(&mut wanted);
            wanted.check()
        };
        assert_eq!(check(&|_| ()), Ok(()));
        assert_eq!(check(&|wanted| wanted.ranks = Some(8)), Ok(()));
        for file in ["", "a\nb.py", "directory/", &"x".repeat(MAX_PATH + 1)] {
            assert_eq!(check(&|wanted| wanted.file = file.to_owned()), Err(RunError::File), "{file:.20}");
        }
        assert_eq!(check(&|wanted| wanted.arguments = vec!["a\0".into()]), Err(RunError::Arguments));
        assert_eq!(check(&|wanted| wanted.arguments = vec![String::new(); 257]), Err(RunError::Arguments));
        assert_eq!(check(&|wanted| wanted.arguments = vec!["x".repeat(40_000)]), Err(RunError::Arguments));
        assert_eq!(check(&|wanted| wanted.ranks = Some(0)), Err(RunError::NoRanks));
        let notebook = |change: &dyn Fn(&mut RunProgram)| {
            let mut wanted = program("train.ipynb");
            change(&mut wanted);
            wanted.check()
        };
        assert_eq!(notebook(&|_| ()), Ok(()));
        assert_eq!(notebook(&|wanted| wanted.ranks = Some(2)), Err(RunError::NotebookRanks));
        assert_eq!(notebook(&|wanted| wanted.arguments = vec!["x".into()]), Err(RunError::NotebookArguments));
    }
}
