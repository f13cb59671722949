//! Python: which one, and whether its torch can use the backend. Asked in a child, for importing torch takes seconds and may fail in any way.

use std::ffi::OsString;
use std::time::Duration;

use serde::Deserialize;

use crate::child;
use crate::finding::{Finding, Section};

/// What Python says of itself: what `python -m eirene_train.facts` writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Python {
    pub(crate) version: String,
    pub(crate) executable: String,
    /// Version of the package `eirene_train`.
    pub(crate) package: Option<String>,
    /// torch's version, from its metadata or, where it was imported, from itself; none where it is not installed.
    pub(crate) torch: Option<String>,
    /// Whether torch was imported at all; not with `--quick`.
    pub(crate) imported: bool,
    /// Why torch cannot be imported.
    pub(crate) error: Option<String>,
    /// Whether torch has what backends in Python are built on.
    pub(crate) py_backend: bool,
    /// torch's own backends.
    pub(crate) backends: Vec<String>,
    /// The CUDA that torch was built for.
    pub(crate) cuda: Option<String>,
    pub(crate) mpi4py: Option<String>,
}

/// What was asked, and answered.
#[derive(Debug, Clone)]
pub(crate) enum Facts {
    /// This is the program without Python.
    NotAsked,
    /// It did not answer.
    Silent(String),
    /// It did.
    Answered(Python),
}

/// How long importing torch may take, from a slow file system.
const IMPORTING: Duration = Duration::from_mins(1);

impl Facts {
    pub(crate) fn look(command: Option<&[OsString]>, quick: bool) -> Self {
        let Some(command) = command else { return Self::NotAsked };
        let quick: &[OsString] = if quick { &["--quick".into()] } else { &[] };
        let ended = child::run(&[command, quick].concat(), &[], IMPORTING);
        match ended.answer().map(serde_json::from_value) {
            Some(Ok(python)) => Self::Answered(python),
            Some(Err(_)) | None => Self::Silent(format!("{} {}", ended.ending, ended.last_words()).trim().to_owned()),
        }
    }
}

const OLDEST: (u32, u32) = (2, 14);

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let findings = match facts {
        Facts::NotAsked => vec![Finding::ok(
            "python.none",
            "not asked: this is `eirene-train` without Python; `python -m eirene_train doctor` looks at Python and torch as well",
        )],
        Facts::Silent(why) => vec![Finding::warning(
            "python.silent",
            format!("Python does not answer: the process that was asked {why}"),
            "run `python -m eirene_train.facts` by hand; reinstall torch if importing it ends the process",
        )],
        Facts::Answered(python) => answered(python),
    };
    Section { name: "python", title: "Python", findings }
}

fn answered(python: &Python) -> Vec<Finding> {
    let package = python.package.as_deref().unwrap_or("of unknown version");
    let fact = format!("Python {}, {}; eirene_train {package}", python.version, python.executable);
    let mut findings = vec![Finding::ok("python.version", fact).with(python.version.as_str()), torch(python)];
    if let Some(version) = &python.mpi4py {
        let fact = format!("mpi4py {version} is installed: imported first, its MPI is the one that is taken");
        findings.push(Finding::ok("python.mpi4py", fact).with(version.as_str()));
    }
    findings
}

fn torch(python: &Python) -> Finding {
    const ID: &str = "python.torch";
    const CURE: &str = "`pip install 'torch>=2.14'`";
    let Some(version) = &python.torch else {
        let fact = "torch is not installed: `eirene_train.world()` works, the backend `eirene` does not";
        return Finding::note(ID, fact, CURE);
    };
    if let Some(error) = &python.error {
        let fact = format!("torch {version} is installed but cannot be imported: {error}");
        return Finding::problem(ID, fact, "reinstall torch in this environment, and what it needs")
            .with(version.as_str());
    }
    let mut parts = version.split(['.', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST {
        let fact = format!(
            "torch {version} has no backends in Python: `GradArena`, `comm_hook` beside gloo and `eirene_train.world()` work, \
             `init_process_group(\"eirene\")` does not"
        );
        return Finding::warning(ID, fact, CURE).with(version.as_str());
    }
    if !python.imported {
        return Finding::ok(ID, format!("torch {version} is installed; not imported, as asked")).with(version.as_str());
    }
    if !python.py_backend {
        let fact = format!("torch {version} lacks PyBackend, on which the backend `eirene` is built");
        let cure = "this build of torch was made without it, or without torch.distributed: `pip install torch` from PyPI has both";
        return Finding::problem(ID, fact, cure).with(version.as_str());
    }
    let cuda = python.cuda.as_ref().map_or_else(|| "without CUDA".to_owned(), |cuda| format!("for CUDA {cuda}"));
    let own = python.backends.join(", ");
    let fact =
        format!("torch {version} {cuda} has what the backend `eirene` needs (PyBackend); its own backends: {own}");
    Finding::ok(ID, fact).with(version.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn level(python: &Python) -> Level {
        torch(python).level
    }

    fn good() -> Python {
        Python {
            version: "3.11.2".into(),
            torch: Some("2.15.0+cpu".into()),
            imported: true,
            py_backend: true,
            backends: vec!["gloo".into()],
            ..Python::default()
        }
    }

    #[test]
    fn what_torch_can_do_is_said() {
        assert_eq!(level(&good()), Level::Ok);
        assert_eq!(level(&Python { torch: None, ..good() }), Level::Note);
        assert_eq!(level(&Python { torch: Some("2.9.1".into()), ..good() }), Level::Warning);
        assert_eq!(level(&Python { torch: Some("3.0.0a0+git1".into()), ..good() }), Level::Ok);
        assert_eq!(level(&Python { py_backend: false, ..good() }), Level::Problem);
        assert_eq!(level(&Python { py_backend: false, imported: false, ..good() }), Level::Ok);
        assert_eq!(level(&Python { error: Some("libc10.so".into()), ..good() }), Level::Problem);
    }

    #[test]
    fn a_python_that_dies_is_no_end_of_the_doctor() {
        let dies = ["sh", "-c", "echo oh no >&2; kill -11 $$"].map(OsString::from);
        let section = judge(&Facts::look(Some(&dies), true));
        assert_eq!(section.findings[0].level, Level::Warning);
        assert!(section.findings[0].fact.contains("signal 11 oh no"), "{section:?}");
        let talks = ["sh", "-c", "echo 'eirene-train-look: {\"version\": \"3.12.1\", \"new\": 1}'"].map(OsString::from);
        assert!(matches!(Facts::look(Some(&talks), false), Facts::Answered(python) if python.version == "3.12.1"));
        assert!(matches!(Facts::look(None, false), Facts::NotAsked));
    }
}
