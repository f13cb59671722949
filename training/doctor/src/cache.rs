//! Where measured choices are kept from run to run.

use std::fs;
use std::path::PathBuf;

use eirene_train_launch::Environment;
use serde_json::json;

use crate::finding::{Finding, Section, bytes, count};
use crate::used::writable;

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The directory; none where nothing says where it could be.
    pub(crate) directory: Option<PathBuf>,
    /// Whether it is there, or can be made, and may be written in.
    pub(crate) writable: Result<(), String>,
    /// Its files, and their bytes.
    pub(crate) entries: (usize, u64),
}

impl Facts {
    pub(crate) fn look(environment: &Environment) -> Self {
        let Some(directory) = directory(environment) else {
            return Self { directory: None, writable: Ok(()), entries: (0, 0) };
        };
        // What is not there yet is made below the nearest directory that is.
        let nearest = directory.ancestors().find(|path| path.exists());
        let can = match nearest {
            Some(path) if !path.is_dir() => Err(format!("{} is no directory", path.display())),
            Some(path) => writable(path),
            None => Err("nothing of it is there".to_owned()),
        };
        let files = fs::read_dir(&directory).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
        let entries =
            files.filter(fs::Metadata::is_file).fold((0, 0), |(number, size), file| (number + 1, size + file.len()));
        Self { directory: Some(directory), writable: can, entries }
    }
}

/// `$EIRENE_TRAIN_CACHE`, else `$XDG_CACHE_HOME/eirene-train`, else `~/.cache/eirene-train`.
fn directory(environment: &Environment) -> Option<PathBuf> {
    let path = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path("EIRENE_TRAIN_CACHE")
        .or_else(|| path("XDG_CACHE_HOME").map(|base| base.join("eirene-train")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/eirene-train")))
}

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    const ID: &str = "cache.directory";
    const CURE: &str =
        "set EIRENE_TRAIN_CACHE to a directory of your own; without one, runs measure anew or choose by rules";
    let (number, size) = facts.entries;
    let finding = match (&facts.directory, &facts.writable) {
        (None, _) => Finding::note(ID, "there is no place for measured choices: HOME is not set", CURE),
        (Some(path), Err(problem)) => {
            Finding::warning(ID, format!("{} cannot be written in: {problem}", path.display()), CURE)
        }
        (Some(path), Ok(())) => {
            let fact =
                format!("measured choices are kept in {}: {}, {}", path.display(), count(number, "file"), bytes(size));
            Finding::ok(ID, fact).with(json!({"directory": path, "files": number, "bytes": size}))
        }
    };
    Section { name: "cache", title: "cache", findings: vec![finding] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn look(variables: &[(&str, &str)]) -> Facts {
        Facts::look(&Environment::new(variables.iter().copied(), "c1", 1000))
    }

    #[test]
    fn the_directory_is_found_in_its_order() {
        let all = [("EIRENE_TRAIN_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        let at = |from: usize| look(&all[from..]).directory.unwrap();
        assert_eq!([at(0), at(1), at(2)], ["/a", "/b/eirene-train", "/c/.cache/eirene-train"].map(PathBuf::from));
    }

    #[test]
    fn without_a_home_it_is_a_note_and_without_rights_a_warning() {
        let level = |facts: &Facts| judge(facts).findings[0].level;
        assert_eq!(level(&look(&[])), Level::Note);
        assert_eq!(level(&look(&[("HOME", "relative")])), Level::Note);
        assert_eq!(level(&look(&[("EIRENE_TRAIN_CACHE", "/proc/version/x")])), Level::Warning);
        assert_eq!(level(&look(&[("EIRENE_TRAIN_CACHE", &std::env::temp_dir().display().to_string())])), Level::Ok);
    }
}
