//! Every variable of ours that code reads has its name in one list and its line in one table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const START: &str = "EIRENE_TRAIN_";

fn training() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files below a directory whose names end so.
fn files(directory: &Path, endings: &[&str], into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, endings, into);
        } else if endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
            into.push(path);
        }
    }
}

/// The names in a text; what only begins like one (`EIRENE_TRAIN_*`) is none.
fn names(text: &str) -> impl Iterator<Item = String> {
    text.match_indices(START).filter_map(|(at, _)| {
        let rest = &text[at + START.len()..];
        let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('_');
        (!name.is_empty()).then(|| format!("{START}{name}"))
    })
}

/// What the sources of all crates and of the Python package say, but for the list itself.
fn sources() -> Vec<String> {
    let mut found = Vec::new();
    for crate_ in std::fs::read_dir(training()).unwrap() {
        let source = crate_.unwrap().path().join("src");
        if source.is_dir() {
            files(&source, &["rs"], &mut found);
        }
    }
    files(&training().join("python/eirene_train"), &["py", "pyi"], &mut found);
    let list = |path: &PathBuf| path.ends_with("launch/src/variables.rs");
    assert!(found.iter().any(list) && found.len() > 100, "{found:?}");
    found.iter().filter(|path| !list(path)).map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// The list: each constant's own name and the variable's.
fn listed() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(training().join("launch/src/variables.rs")).unwrap();
    let constants = text.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = "));
    constants.map(|(constant, value)| (constant.to_owned(), value.trim_matches(['"', ';']).to_owned())).collect()
}

/// The first column of the table.
fn explained() -> Vec<String> {
    let text = std::fs::read_to_string(training().join("README.md")).unwrap();
    let first = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned());
    text.lines().filter_map(first).filter(|name| name.starts_with(START)).collect()
}

#[test]
fn names_are_read_out_of_texts() {
    let text = "`EIRENE_TRAIN_A=1`, EIRENE_TRAIN_*, \"EIRENE_TRAIN_\", EIRENE_TRAIN_B_C";
    assert_eq!(names(text).collect::<Vec<_>>(), ["EIRENE_TRAIN_A", "EIRENE_TRAIN_B_C"]);
}

#[test]
fn every_variable_in_the_code_is_in_the_list_and_every_one_in_the_list_is_in_the_code() {
    let (sources, listed) = (sources(), listed());
    let known: BTreeSet<&String> = listed.iter().map(|(_, name)| name).collect();
    let used: BTreeSet<String> = sources.iter().flat_map(|text| names(text)).collect();
    let unknown: Vec<&String> = used.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in launch/src/variables.rs");
    for (constant, name) in &listed {
        let constant = format!("variables::{constant}");
        assert!(used.contains(name) || sources.iter().any(|text| text.contains(&constant)), "nobody reads {name}");
    }
}

#[test]
fn every_variable_has_its_line_in_the_table() {
    let mut listed: Vec<String> = listed().into_iter().map(|(_, name)| name).collect();
    let mut explained = explained();
    listed.sort();
    explained.sort();
    assert_eq!(explained, listed, "the table in training/README.md (left) and launch/src/variables.rs differ");
}
