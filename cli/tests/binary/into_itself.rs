//! `eirene fs cp -r` and `mv` where a space is mounted on this machine: no directory is copied into itself, which would have no end.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;

use crate::carried::{mount, uploads};
use crate::copies::{by_way_of, is_root, tree};
use crate::portal::{Done, Home, Portal};
use crate::space::{Space, portal};

/// A directory, and where it really is.
fn a_directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn made(portal: &Portal) -> usize {
    portal.lines().iter().filter(|line| line.ends_with("/files/directories")).count()
}

#[test]
fn a_directory_goes_neither_up_nor_down_into_itself() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let (_mounted, here) = a_directory();
    fs::create_dir_all(here.join("d/sub")).unwrap();
    fs::write(here.join("d/a"), "a").unwrap();
    let had = tree(&here);
    mount(&portal, &space, &here);
    let [d, sub, new, all] = ["d", "d/sub/", "d/new", ""].map(|path| here.join(path).display().to_string());
    for (from, to) in [
        (d.as_str(), "home:d/sub/"),
        (d.as_str(), "home:d/new"),
        (d.as_str(), "home:d/sub/no/such/"),
        (d.as_str(), "home:"),
        ("home:d", sub.as_str()),
        ("home:d", new.as_str()),
        ("home:d", all.as_str()),
        ("home:", sub.as_str()),
    ] {
        for on_conflict in ["refuse", "keep_both"] {
            let mut commands = vec![vec!["fs", "cp", "-r", "--parents"], vec!["fs", "cp", "-r"], vec!["fs", "mv"]];
            // A whole space is not moved.
            commands.truncate(if from == "home:" { 2 } else { 3 });
            for mut words in commands {
                words.extend(["--on-conflict", on_conflict, from, to]);
                let done = home.run(&words);
                assert_eq!(done.code, Some(1), "{words:?}: {done:?}");
                assert!(done.err.contains("it cannot be copied into itself"), "{words:?}: {done:?}");
                assert!(tree(&here) == had && !here.join("d/new").exists(), "{words:?}");
                assert_eq!(fs::read_dir(here.join("d/sub")).unwrap().count(), 0, "{words:?}");
            }
        }
    }
    assert_eq!((uploads(&portal), made(&portal), space.lock().unwrap().sent), (0, 0, 0));
}

#[test]
fn what_lies_beside_where_it_goes_is_copied() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let (_mounted, here) = a_directory();
    for path in ["d/sub", "other/d"] {
        fs::create_dir_all(here.join(path)).unwrap();
    }
    fs::write(here.join("d/a"), "a").unwrap();
    mount(&portal, &space, &here);
    let done = home.run(&["fs", "cp", "-r", here.join("d").to_str().unwrap(), "home:other/d/"]);
    assert_eq!((done.code, uploads(&portal)), (Some(0), 1), "{done:?}");
    let done = home.run(&["fs", "cp", "-r", "home:d", here.join("other/d/").to_str().unwrap()]);
    assert_eq!((done.code, fs::read(here.join("other/d/d/a")).unwrap()), (Some(0), b"a".to_vec()), "{done:?}");
    let hidden = tree(&here).into_keys().filter(|path| path.ends_with(b"probe")).count();
    assert_eq!(hidden, 0);
}

/// The directory is not in the space: the space is in the directory.
#[test]
fn a_copy_is_not_copied_where_it_goes_to_a_space_that_is_mounted_below() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let (_directory, here) = a_directory();
    let top = here.file_name().unwrap().to_str().unwrap();
    fs::create_dir_all(here.join("mounted").join(top)).unwrap();
    fs::write(here.join("a"), "a").unwrap();
    // What another command looks around with is nothing of what is copied.
    fs::write(here.join(".0190d2a4c3f87b1e8f0e6d2f4b5a6978.eirene-probe"), "").unwrap();
    mount(&portal, &space, &here.join("mounted"));
    let done = home.run(&["fs", "cp", "-r", here.to_str().unwrap(), "home:"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let says = format!("`{}` and `home:{top}` are the same directory", here.join("mounted").join(top).display());
    assert!(done.err.contains(&says) && done.err.contains("1 of 2 were not copied"), "{done:?}");
    assert_eq!((uploads(&portal), made(&portal)), (1, 2), "all else is copied");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_known_by_its_owner_and_time() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let (_mounted, here) = a_directory();
    let d = here.join("d");
    fs::create_dir_all(d.join("sub")).unwrap();
    fs::write(d.join("a"), "a").unwrap();
    fs::set_permissions(&d, fs::Permissions::from_mode(0o555)).unwrap();
    let found = fs::metadata(&d).unwrap();
    let modified = jiff::Timestamp::try_from(found.modified().unwrap()).unwrap();
    let copy = |modified: jiff::Timestamp| {
        let (space, uid) = (Arc::clone(&space), found.uid());
        portal.answer(move |request, reply| {
            if request.line.ends_with("/entry?path=d") {
                return reply.json(
                    200,
                    &json!({"path": "d", "kind": "directory", "uid": uid, "modified_at": modified.to_string()}),
                );
            }
            space.lock().unwrap().answer(request, reply);
        });
        let mut eirene = home.eirene(&["fs", "cp", "-r", d.to_str().unwrap(), "home:d/sub/"]);
        // Root may everything, unless it has laid that down.
        if is_root(&home) {
            eirene = by_way_of("setpriv", &["--bounding-set=-dac_override,-dac_read_search", "--"], &eirene);
        }
        Done::from(eirene.output().unwrap())
    };
    let done = copy(modified);
    assert!(done.code == Some(1) && done.err.contains("it cannot be copied into itself"), "{done:?}");
    assert_eq!((uploads(&portal), made(&portal)), (0, 0));
    let done = copy(modified + jiff::SignedDuration::from_nanos(1));
    assert_eq!((done.code, uploads(&portal)), (Some(0), 1), "{done:?}");
    fs::set_permissions(&d, fs::Permissions::from_mode(0o755)).unwrap();
}
