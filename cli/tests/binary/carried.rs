//! `eirene fs mv` between this machine and a space: nothing is removed that does not lie at its new place, byte for byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::copies::{interrupt, remembered, tree};
use crate::portal::{Done, Home, Portal, Reply, Request};
use crate::space::{Shared, Space, portal};

const PIECE: usize = 8 * 1024 * 1024;

/// Has the portal do this with each request before it answers.
fn before(portal: &Portal, space: &Shared, does: impl Fn(&Request) + Send + Sync + 'static) {
    let space = Arc::clone(space);
    portal.answer(move |request, reply| {
        does(request);
        space.lock().unwrap().answer(request, reply);
    });
}

/// An answer with the sum of something else.
fn other_sum(reply: &mut Reply) {
    let sum = HEXLOWER.encode(&Sha256::digest(b"something else"));
    reply.json(200, &json!({"path": "a", "kind": "file", "size_bytes": 3, "sha256": sum}));
}

fn asks_for_sum(request: &Request) -> bool {
    request.line.contains("checksum=")
}

pub(crate) fn uploads(portal: &Portal) -> usize {
    portal.lines().iter().filter(|line| line.ends_with("/uploads")).count()
}

fn files(space: &Shared) -> BTreeMap<Vec<u8>, Vec<u8>> {
    space.lock().unwrap().files.clone()
}

/// A directory of three files and an empty one; what is in it.
fn a_tree(top: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    fs::create_dir_all(top.join("d")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(top.join("a"), "one").unwrap();
    fs::write(top.join("d/b"), "two").unwrap();
    fs::write(top.join(OsStr::from_bytes(b"d/caf\xe9\n")), "three").unwrap();
    tree(top)
}

fn below(top: &str, tree: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    tree.iter().map(|(path, bytes)| ([top.as_bytes(), path].concat(), bytes.clone())).collect()
}

#[test]
fn what_is_moved_into_a_space_lies_there_and_not_here() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    let had = a_tree(&top);
    let done = home.run(&["fs", "mv", &format!("{}/", top.display()), "home:up"]);
    assert_eq!((done.code, done.err), (Some(0), format!("Moved {} to home:up.\n", top.display())));
    assert!(!top.exists());
    assert_eq!(files(&space), below("up/", &had));
    {
        let space = space.lock().unwrap();
        assert!(space.directories.contains(&b"up/empty"[..]));
        assert_eq!(space.summed, 3, "each was compared");
    }
    assert_eq!(remembered(&home), 0);

    let (one, two) = (home.directory.path().join("1"), home.directory.path().join("2"));
    fs::write(&one, "1").unwrap();
    fs::create_dir(&two).unwrap();
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let done = home.run(&["fs", "mv", "--json", one, two, "home:up/"]);
    let said: Vec<serde_json::Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        said,
        [
            json!({"from": one, "to": "home:up/1", "state": "moved"}),
            json!({"from": two, "to": "home:up/2", "state": "moved"})
        ]
    );
    assert_eq!((done.code, Path::new(one).exists(), Path::new(two).exists()), (Some(0), false, false));
}

#[test]
fn what_is_moved_out_of_a_space_lies_here_and_in_the_trash() {
    let space = Space::with(&[(b"d/a", b"one"), (b"d/e/caf\xe9", b"two"), (b"d/e/c", b"three"), (b"f", b"four")]);
    space.lock().unwrap().directories.insert(b"d/empty".to_vec());
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let down = home.directory.path().canonicalize().unwrap().join("down");
    let done = home.run(&["fs", "mv", "home:d", down.to_str().unwrap()]);
    assert_eq!((done.code, done.err), (Some(0), format!("Moved home:d to {}.\n", down.display())));
    let expected = [(&b"a"[..], &b"one"[..]), (b"e/caf\xe9", b"two"), (b"e/c", b"three")];
    let expected = BTreeMap::from(expected.map(|(path, bytes)| (path.to_vec(), bytes.to_vec())));
    assert_eq!(tree(&down), expected);
    assert!(down.join("empty").is_dir());
    {
        let space = space.lock().unwrap();
        assert_eq!(space.trashed, [b"d"], "as one, which can be restored as one");
        assert_eq!((space.files.len(), space.summed), (1, 3));
    }
    let into = format!("{}/", down.display());
    let done = home.run(&["fs", "mv", "--json", "home:f", &into]);
    assert_eq!(done.json(), json!({"from": "home:f", "to": format!("{into}f"), "state": "moved"}));
    assert_eq!(fs::read(down.join("f")).unwrap(), b"four");
    assert_eq!((space.lock().unwrap().trashed.len(), remembered(&home)), (2, 0));
}

#[test]
fn a_move_that_ran_out_of_room_removes_nothing_and_goes_on() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    a_tree(&top);
    fs::write(top.join("big"), "b".repeat(PIECE + 1)).unwrap();
    let had = tree(&top);
    space.lock().unwrap().takes = Some(3);
    let command = ["fs", "mv", top.to_str().unwrap(), "home:up"];
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("was not moved") && done.err.contains("give the same command again"), "{done:?}");
    assert!(tree(&top) == had, "all of it is still here");
    space.lock().unwrap().takes = None;
    let done = home.run(&command);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(files(&space) == below("up/", &had) && !top.exists());
    assert_eq!(remembered(&home), 0);
}

#[test]
fn what_ctrl_c_interrupts_before_it_was_compared_stays_and_is_not_sent_again() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let file = home.directory.path().join("a");
    fs::write(&file, "one").unwrap();
    let at = Arc::clone(&space);
    portal.answer(move |request, reply| {
        if asks_for_sum(request) {
            return reply.hold();
        }
        at.lock().unwrap().answer(request, reply);
    });
    let command = ["fs", "mv", file.to_str().unwrap(), "home:"];
    let mut child = home.eirene(&command).spawn().unwrap();
    portal.until(|lines| lines.iter().any(|line| line.contains("checksum=")));
    interrupt(&mut child);
    let done = Done::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("the same command goes on where it stopped"), "{done:?}");
    assert_eq!(fs::read(&file).unwrap(), b"one");
    before(&portal, &space, |_| {});
    let done = home.run(&command);
    assert_eq!((done.code, file.exists(), uploads(&portal)), (Some(0), false, 1), "{done:?}");
    assert_eq!((files(&space)[&b"a"[..]].clone(), remembered(&home)), (b"one".to_vec(), 0));
}

#[test]
fn what_is_another_one_by_its_sum_stays_on_both_sides() {
    let space = Space::with(&[(b"f", b"four")]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    let had = a_tree(&top);
    let at = Arc::clone(&space);
    portal.answer(move |request, reply| {
        // The one that is called `b` and the one that is called `f`.
        let is = |end: &str| request.line.contains(end) && !request.line.contains("raw_path=");
        if is("b&checksum=") || is("path=f&checksum=") {
            return other_sum(reply);
        }
        at.lock().unwrap().answer(request, reply);
    });
    let command = ["fs", "mv", top.to_str().unwrap(), "home:up"];
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    for says in ["SHA-256", "was not moved", "1 of 3 were not copied", "stays where it is"] {
        assert!(done.err.contains(says), "{says}: {done:?}");
    }
    assert!(tree(&top) == had && files(&space).len() == 4);
    // The other way.
    let down = home.directory.path().join("f");
    let done = home.run(&["fs", "mv", "home:f", down.to_str().unwrap()]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("SHA-256") && !down.exists(), "{done:?}");
    assert!(space.lock().unwrap().trashed.is_empty());

    // What lies there with its size and time counts only if it is the same.
    before(&portal, &space, |_| {});
    space.lock().unwrap().files.insert(b"up/a".to_vec(), b"eno".to_vec());
    let done = home.run(&command);
    assert!(done.code == Some(1) && done.err.contains("`home:up/a` is there, but is another one"), "{done:?}");
    assert!(tree(&top) == had);
    space.lock().unwrap().files.insert(b"up/a".to_vec(), b"one".to_vec());
    let sent = uploads(&portal);
    let done = home.run(&command);
    assert_eq!((done.code, top.exists(), uploads(&portal)), (Some(0), false, sent), "{done:?}");
}

#[test]
fn what_appears_or_changes_here_meanwhile_stays_here() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("a"), "one").unwrap();
    let new = top.join("new");
    let made = new.clone();
    before(&portal, &space, move |request| {
        if asks_for_sum(request) {
            fs::write(&made, "new").unwrap();
        }
    });
    let command = ["fs", "mv", top.to_str().unwrap(), "home:up"];
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    let says = format!("it was copied to `home:up`, but `{}` stays here: it appeared meanwhile", new.display());
    assert!(done.err.contains(&says), "{done:?}");
    assert_eq!(tree(&top), BTreeMap::from([(b"new".to_vec(), b"new".to_vec())]));
    before(&portal, &space, |_| {});
    let done = home.run(&command);
    assert_eq!((done.code, top.exists()), (Some(0), false), "{done:?}");
    assert_eq!(files(&space).keys().collect::<Vec<_>>(), [&b"up/a"[..], b"up/new"]);

    // Somebody writes to it when it was sent, and before it is compared.
    let file = home.directory.path().join("file");
    fs::write(&file, "one").unwrap();
    let written = file.clone();
    before(&portal, &space, move |request| {
        if asks_for_sum(request) {
            fs::write(&written, "longer").unwrap();
        }
    });
    let done = home.run(&["fs", "mv", file.to_str().unwrap(), "home:file"]);
    assert!(done.code == Some(1) && done.err.contains("it changed while it was sent"), "{done:?}");
    assert_eq!(fs::read(&file).unwrap(), b"longer");
}

#[test]
fn what_appears_or_changes_in_a_space_meanwhile_stays_there() {
    let space = Space::with(&[(b"d/a", b"one"), (b"f", b"four")]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let down = home.directory.path().canonicalize().unwrap().join("down");
    let at = Arc::clone(&space);
    before(&portal, &space, move |request| {
        if request.line.contains("/content?") {
            at.lock().unwrap().put(b"d/new", b"new");
        }
    });
    let command = ["fs", "mv", "home:d", down.to_str().unwrap()];
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    let says =
        format!("it was copied to `{}`, and stays where it is as well: `d/new` appeared meanwhile", down.display());
    assert!(done.err.contains(&says), "{done:?}");
    assert_eq!(tree(&down), BTreeMap::from([(b"a".to_vec(), b"one".to_vec())]));
    assert!(space.lock().unwrap().trashed.is_empty());
    assert_eq!(files(&space).len(), 3);
    let done = home.run(&command);
    assert_eq!((done.code, tree(&down).len()), (Some(0), 2), "{done:?}");
    assert_eq!(space.lock().unwrap().trashed, [b"d"]);

    // Somebody writes to it when it has come and was compared.
    let at = Arc::clone(&space);
    portal.answer(move |request, reply| {
        let mut space = at.lock().unwrap();
        space.answer(request, reply);
        if request.line.starts_with("HEAD") {
            space.put(b"f", b"longer");
        }
    });
    let done = home.run(&["fs", "mv", "home:f", home.directory.path().join("f").to_str().unwrap()]);
    assert!(done.code == Some(1) && done.err.contains("it was changed meanwhile"), "{done:?}");
    assert_eq!((files(&space)[&b"f"[..]].clone(), space.lock().unwrap().trashed.len()), (b"longer".to_vec(), 1));
}

#[test]
fn what_cannot_go_into_the_trash_stays_and_is_not_fetched_again() {
    let space = Space::with(&[(b"f", b"four")]);
    space.lock().unwrap().without_trash = true;
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let file = home.directory.path().join("f");
    let command = ["fs", "mv", "home:f", file.to_str().unwrap()];
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    for says in ["`home:f` was not moved", "stays where it is as well", "there is no trash here"] {
        assert!(done.err.contains(says), "{says}: {done:?}");
    }
    assert_eq!((fs::read(&file).unwrap(), files(&space).len()), (b"four".to_vec(), 1));
    space.lock().unwrap().without_trash = false;
    let done = home.run(&command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let space = space.lock().unwrap();
    assert_eq!((space.sent, space.trashed.len()), (1, 1), "it came once");
}

#[test]
fn links_are_not_moved_and_keep_the_directory_they_are_in() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    let had = a_tree(&top);
    let link = home.directory.path().join("link");
    symlink(&top, &link).unwrap();
    for name in [link.display().to_string(), format!("{}/", link.display())] {
        let done = home.run(&["fs", "mv", &name, "home:up"]);
        assert!(done.code == Some(1) && done.err.contains("it is a link"), "{done:?}");
    }
    assert!(portal.seen().is_empty());
    symlink("/etc/passwd", top.join("d/link")).unwrap();
    let done = home.run(&["fs", "mv", top.to_str().unwrap(), "home:up"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for says in ["it is a link", "1 of 4 were not copied", "stays where it is"] {
        assert!(done.err.contains(says), "{says}: {done:?}");
    }
    assert!(tree(&top) == had && top.join("d/link").is_symlink());
    assert_eq!(files(&space), below("up/", &had), "and what was said to lie there does");

    portal.answer(|_, reply| {
        reply.json(200, &json!({"path": "l", "kind": "link", "link": {"target": "a", "leads_to": "file"}}));
    });
    let done = home.run(&["fs", "mv", "home:l", home.directory.path().join("l").to_str().unwrap()]);
    assert!(done.code == Some(1) && done.err.contains("it is a link"), "{done:?}");
    assert!(!home.directory.path().join("l").exists());
}

/// Lets the space be this directory of this machine, as where it is mounted.
pub(crate) fn mount(portal: &Portal, space: &Shared, directory: &Path) {
    let (space, directory) = (Arc::clone(space), directory.to_owned());
    portal.answer(move |request, reply| {
        let mut space = space.lock().unwrap();
        space.files = tree(&directory);
        space.directories.insert(b"d".to_vec());
        space.answer(request, reply);
        for path in space.trashed.drain(..) {
            let path = directory.join(OsStr::from_bytes(&path));
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    });
}

#[test]
fn what_is_moved_onto_itself_where_a_space_is_mounted_stays() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let mounted = tempfile::tempdir().unwrap();
    let here = mounted.path().canonicalize().unwrap();
    fs::create_dir(here.join("d")).unwrap();
    for name in ["a", "d/b"] {
        fs::write(here.join(name), name).unwrap();
        // As the space says of each file.
        let at: jiff::Timestamp = "2026-01-02T23:30:00.5Z".parse().unwrap();
        fs::File::options().write(true).open(here.join(name)).unwrap().set_modified(at.into()).unwrap();
    }
    let had = tree(&here);
    mount(&portal, &space, &here);
    let (a, d, into) =
        (here.join("a").display().to_string(), here.join("d").display().to_string(), format!("{}/", here.display()));
    for (from, to) in [
        (a.as_str(), "home:"),
        (a.as_str(), "home:a"),
        (d.as_str(), "home:"),
        (d.as_str(), "home:d/"),
        ("home:a", into.as_str()),
        ("home:a", a.as_str()),
        ("home:d", into.as_str()),
    ] {
        for on_conflict in ["refuse", "replace", "keep_both"] {
            let done = home.run(&["fs", "mv", "--on-conflict", on_conflict, from, to]);
            assert!(done.code == Some(1) && done.err.contains("are the same directory"), "{from} {to}: {done:?}");
            assert!(tree(&here) == had, "{from} {to} {on_conflict}: {:?}", tree(&here));
        }
    }
    assert_eq!(uploads(&portal), 0);
}

#[test]
fn a_name_that_is_taken_is_left_to_who_has_it() {
    let space = Space::with(&[(b"a", b"theirs")]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let file = home.directory.path().canonicalize().unwrap().join("a");
    fs::write(&file, "mine").unwrap();
    let path = file.to_str().unwrap();
    for words in [["fs", "mv", path, "home:a"], ["fs", "mv", "home:a", path]] {
        let done = home.run(&words);
        assert!(done.code == Some(1) && done.err.contains("was not moved"), "{done:?}");
    }
    assert_eq!((fs::read(&file).unwrap(), files(&space)[&b"a"[..]].clone()), (b"mine".to_vec(), b"theirs".to_vec()));
    let done = home.run(&["fs", "mv", "--on-conflict", "keep_both", "home:a", path]);
    let beside = file.with_file_name("a (2)");
    assert_eq!((done.code, done.err), (Some(0), format!("Moved home:a to {}.\n", beside.display())));
    assert_eq!(fs::read(beside).unwrap(), b"theirs");
}
