//! `eirene-files purge`: in the directory it is started in, and nowhere else.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::bench;

/// Purges a directory as an ordinary user, who owns what is in it.
fn purge(directory: &Path) -> Output {
    bench::program().arg("purge").current_dir(directory).output().unwrap()
}

fn give(path: &Path) {
    if bench::is_root() {
        std::os::unix::fs::lchown(path, Some(bench::PERSON), Some(bench::PERSON)).unwrap();
    }
}

#[test]
fn the_directory_it_is_started_in_is_emptied_and_stays() {
    let base = tempfile::tempdir().unwrap();
    let (space, other) = (base.path().join("space"), base.path().join("other"));
    for directory in [base.path(), &space, &space.join("a"), &other] {
        fs::create_dir_all(directory).unwrap();
        give(directory);
    }
    for file in [space.join("a/x"), space.join(".hidden"), other.join("kept")] {
        fs::write(&file, "x").unwrap();
        give(&file);
    }
    std::os::unix::fs::symlink(&other, space.join("link")).unwrap();
    give(&space.join("link"));
    let output = purge(&space);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(&space).unwrap().count(), 0);
    assert!(other.join("kept").exists());
}

#[test]
fn what_does_not_let_itself_be_removed_is_an_error_without_its_name() {
    if !bench::is_root() {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let space = base.path().join("space");
    fs::create_dir_all(space.join("roots")).unwrap();
    fs::write(space.join("roots/secret-name"), "x").unwrap();
    give(base.path());
    give(&space);
    let output = purge(&space);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(!said.is_empty() && !said.contains("secret-name"), "{said}");
    assert!(space.join("roots/secret-name").exists());
}
