//! What is made, moved, copied and deleted, where nobody means any harm.

use std::collections::BTreeSet;
use std::fs::{create_dir, create_dir_all, hard_link, read, read_to_string, set_permissions, write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use eirene_files_protocol::{Answer, Code, OnConflict, ToFiles, Verb};

use crate::ask::{PART_NAME, compare, copy, delete, find_unfinished, make, move_to, part, upload, write_upload};
use crate::bench::{Way, World, relative};

fn names(directory: &Path) -> BTreeSet<Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.as_bytes().to_vec()).collect()
}

fn set_modified(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    std::fs::File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn directories_are_made_one_by_one_or_all_at_once() {
    for way in Way::BOTH {
        let world = World::new();
        write(world.at("file"), "").unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        assert_eq!(portal.ask(make(b"a", false)).done(), Answer::Made { made: true });
        assert_eq!(portal.code(make(b"a", false)), Some(Code::Exists));
        assert_eq!(portal.code(make(b"b/c/d", false)), Some(Code::NotFound));
        assert_eq!(portal.ask(make(b"b/c/d", true)).done(), Answer::Made { made: true });
        assert_eq!(portal.ask(make(b"b/c/d", true)).done(), Answer::Made { made: false });
        assert!(world.at("b/c/d").is_dir());
        for (path, code) in [
            (b"file".as_slice(), Code::Exists),
            (b"file/x", Code::NotADirectory),
            (b".eirene", Code::Reserved),
            (b".eirene/x", Code::Reserved),
            (b".eirene-trash", Code::Reserved),
            (b"a/.eirene-upload-x", Code::Reserved),
        ] {
            for parents in [false, true] {
                let told = portal.code(make(path, parents));
                assert!(told == Some(code) || told == Some(Code::Exists), "{}: {told:?}", path.escape_ascii());
                assert!(parents || told == Some(code), "{}: {told:?}", path.escape_ascii());
            }
        }
        assert_eq!(portal.code(make(b"", false)), Some(Code::Reserved));
        assert_eq!(portal.ask(make(b"", true)).done(), Answer::Made { made: false });
        assert_eq!(portal.code(make(b"a/.eirene", false)), None, "only the space's own are the platform's");
        assert_eq!(names(&world.path("space")).len(), 3);
    }
}

#[test]
fn a_move_refuses_keeps_both_or_replaces() {
    for way in Way::BOTH {
        let world = World::new();
        write(world.at("new.txt"), "new").unwrap();
        write(world.at("old.txt"), "old").unwrap();
        create_dir_all(world.at("d/in")).unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let (refuse, both, replace) = (OnConflict::Refuse, OnConflict::KeepBoth, OnConflict::Replace);

        assert_eq!(portal.code(move_to(b"new.txt", b"old.txt", refuse)), Some(Code::Exists));
        assert_eq!(read_to_string(world.at("old.txt")).unwrap(), "old");
        let moved = portal.ask(move_to(b"new.txt", b"old.txt", both)).moved();
        assert_eq!((moved.path, moved.trashed), (relative(b"old (2).txt"), None));
        assert_eq!(read_to_string(world.at("old (2).txt")).unwrap(), "new");
        let moved = portal.ask(move_to(b"old (2).txt", b"old.txt", replace)).moved();
        let id = moved.trashed.unwrap();
        assert_eq!(read_to_string(world.at("old.txt")).unwrap(), "new");
        assert!(!world.at("old (2).txt").exists());
        let trashed = portal.trashed();
        assert_eq!((trashed[0].id, trashed[0].origin.clone()), (id, Some(relative(b"old.txt"))));

        // A file in a directory's place, and the other way round.
        assert!(portal.ask(move_to(b"old.txt", b"d", replace)).moved().trashed.is_some());
        assert_eq!(read_to_string(world.at("d")).unwrap(), "new");
        create_dir_all(world.at("e/in")).unwrap();
        world.hand_over(way);
        assert!(portal.ask(move_to(b"e", b"d", replace)).moved().trashed.is_some());
        assert!(world.at("d/in").is_dir());

        // Onto itself, into itself, of what is not there, and of the space.
        for conflict in [refuse, replace] {
            assert_eq!(portal.code(move_to(b"d", b"d", conflict)), Some(Code::Exists));
            assert_eq!(portal.code(move_to(b"d", b"d/in/d", conflict)), Some(Code::IntoItself));
        }
        write(world.at("f"), "f").unwrap();
        for conflict in [refuse, replace] {
            assert_eq!(portal.code(move_to(b"f", b"f", conflict)), Some(Code::Exists));
        }
        assert_eq!(portal.code(move_to(b"none", b"x", refuse)), Some(Code::NotFound));
        assert_eq!(portal.code(move_to(b"", b"x", refuse)), Some(Code::Reserved));
        assert_eq!(portal.code(move_to(b"f", b"", refuse)), Some(Code::Reserved));
        assert_eq!(portal.code(move_to(b"f", b".eirene/f", refuse)), Some(Code::Reserved));
        assert_eq!(portal.code(move_to(b"f", b".eirene", refuse)), Some(Code::Reserved));
        assert_eq!(read_to_string(world.at("f")).unwrap(), "f");
        assert_eq!(portal.trashed().len(), 3);
    }
}

#[test]
fn two_names_of_one_file_stay_two() {
    let world = World::new();
    write(world.at("a"), "text").unwrap();
    hard_link(world.at("a"), world.at("b")).unwrap();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    assert_eq!(portal.code(move_to(b"a", b"b", OnConflict::Replace)), Some(Code::Exists));
    assert_eq!(names(&world.path("space")).len(), 2);
}

#[test]
fn names_of_255_bytes_are_made_moved_copied_and_trashed() {
    for name in [vec![b'n'; 255], "\u{1f980}".repeat(63).into_bytes(), vec![0xff; 255]] {
        let world = World::new();
        world.hand_over(Way::Program);
        let mut portal = world.portal(Way::Program);
        portal.ask(make(&name, false)).done();
        let below = [name.as_slice(), b"/", &name].concat();
        portal.ask(make(&below, false)).done();
        let both = OnConflict::KeepBoth;
        let copied = portal.ask(copy(&name, &name, both)).moved().path;
        assert!(copied.as_bytes().ends_with(b" (2)") && copied.as_bytes().len() <= 255);
        let id = portal.trash(&name);
        portal.ask(move_to(copied.as_bytes(), &name, OnConflict::Refuse)).done();
        assert_eq!(names(&world.at(std::ffi::OsStr::from_bytes(&name))), BTreeSet::from([name.clone()]));
        assert_eq!(portal.trashed()[0].origin, Some(relative(&name)));
        assert_eq!(portal.trashed()[0].id, id);
    }
}

#[test]
fn a_copy_keeps_content_times_permissions_links_and_holes() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("from/sub")).unwrap();
        write(world.at("from/script"), "#!/bin/sh").unwrap();
        set_permissions(world.at("from/script"), std::fs::Permissions::from_mode(0o4750)).unwrap();
        let content: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 251) as u8).collect();
        write(world.at("from/sub/one"), &content).unwrap();
        hard_link(world.at("from/sub/one"), world.at("from/two")).unwrap();
        symlink("../nowhere", world.at("from/link")).unwrap();
        let sparse = std::fs::File::create(world.at("from/sparse")).unwrap();
        sparse.set_len(64 << 20).unwrap();
        sparse.write_all_at(b"middle", 32 << 20).unwrap();
        create_dir(world.at("from/closed")).unwrap();
        set_permissions(world.at("from/closed"), std::fs::Permissions::from_mode(0o500)).unwrap();
        for (path, seconds) in [("from/script", 1_000), ("from/sub/one", 2_000), ("from/sub", 3_000), ("from", 4_000)] {
            set_modified(&world.at(path), seconds);
        }
        world.hand_over(way);
        // A change of owner takes this right away.
        set_permissions(world.at("from/script"), std::fs::Permissions::from_mode(0o4750)).unwrap();
        let mut portal = world.portal(way);
        let walked = portal.ask(copy(b"from", b"to", OnConflict::Refuse)).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (8, 0), "{walked:?}");
        assert_eq!(walked.bytes, 9 + 2_000_000 + (64 << 20), "what has two names is copied once");
        assert_eq!(read(world.at("to/sub/one")).unwrap(), content);
        let look = |path: &str| std::fs::symlink_metadata(world.at(path)).unwrap();
        assert_eq!((look("to/sub/one").ino(), look("to/sub/one").nlink()), (look("to/two").ino(), 2));
        assert_ne!(look("to/two").ino(), look("from/two").ino());
        for (path, seconds) in [("to/script", 1_000), ("to/sub/one", 2_000), ("to/sub", 3_000), ("to", 4_000)] {
            assert_eq!(look(path).mtime(), seconds, "{path}");
        }
        assert_eq!(look("to/script").mode() & 0o7777, 0o750, "nothing that gives rights");
        assert_eq!(look("to/closed").mode() & 0o777, 0o500);
        assert_eq!(std::fs::read_link(world.at("to/link")).unwrap(), Path::new("../nowhere"));
        assert_eq!(look("to/sparse").len(), 64 << 20);
        assert!(look("to/sparse").blocks() * 512 < 1 << 20, "holes stay holes");
        let mut middle = [0; 6];
        std::fs::File::open(world.at("to/sparse")).unwrap().read_exact_at(&mut middle, 32 << 20).unwrap();
        assert_eq!(&middle, b"middle");

        assert_eq!(portal.code(copy(b"from", b"from/sub/copy", OnConflict::Refuse)), Some(Code::IntoItself));
        assert_eq!(portal.code(copy(b"from", b"to", OnConflict::Refuse)), Some(Code::Exists));
        assert_eq!(portal.ask(copy(b"two", b"x", OnConflict::Refuse)).code(), Some(Code::NotFound));
        assert_eq!(portal.ask(copy(b"from/two", b"x", OnConflict::Refuse)).walked().bytes, 2_000_000);
        assert_eq!(names(&world.path("space")), ["from", "to", "x"].map(|name| name.as_bytes().to_vec()).into());
    }
}

#[test]
fn a_copy_is_compared_with_what_has_become_of_its_original() {
    type Change = fn(&World);
    let changes: [(&str, Change, &[u8], Code); 8] = [
        ("longer", |world| write(world.at("from/sub/one"), "more text").unwrap(), b"sub/one", Code::ChangedMeanwhile),
        (
            "a copy that lost its end",
            |world| {
                write(world.at("to/sub/one"), "te").unwrap();
                set_modified(&world.at("to/sub/one"), 1_000);
            },
            b"sub/one",
            Code::NotWhole,
        ),
        ("another time", |world| set_modified(&world.at("from/sub/one"), 9), b"sub/one", Code::ChangedMeanwhile),
        ("new", |world| write(world.at("from/sub/new"), "x").unwrap(), b"sub/new", Code::NotFound),
        ("a new directory", |world| create_dir(world.at("from/new")).unwrap(), b"new", Code::NotFound),
        ("a link", |world| symlink("elsewhere", world.at("from/sub/link")).unwrap(), b"sub/link", Code::NotFound),
        (
            "a link that says something else",
            |world| {
                std::fs::remove_file(world.at("from/link")).unwrap();
                symlink("elsewhere", world.at("from/link")).unwrap();
            },
            b"link",
            Code::ChangedMeanwhile,
        ),
        (
            "a file where a directory was",
            |world| {
                std::fs::remove_dir(world.at("from/empty")).unwrap();
                write(world.at("from/empty"), "").unwrap();
            },
            b"empty",
            Code::ChangedMeanwhile,
        ),
    ];
    for way in Way::BOTH {
        for (what, change, path, why) in changes {
            let world = World::new();
            create_dir_all(world.at("from/sub")).unwrap();
            create_dir(world.at("from/empty")).unwrap();
            write(world.at("from/sub/one"), "text").unwrap();
            set_modified(&world.at("from/sub/one"), 1_000);
            hard_link(world.at("from/sub/one"), world.at("from/two")).unwrap();
            symlink("../nowhere", world.at("from/link")).unwrap();
            world.hand_over(way);
            let mut portal = world.portal(way);
            portal.ask(copy(b"from", b"to", OnConflict::Refuse)).done();
            let walked = portal.ask(compare(b"from", b"to")).walked();
            assert_eq!((walked.entries, walked.bytes, walked.skipped_in_all), (6, 8, 0), "{walked:?}");
            // What the copy alone has is no loss.
            write(world.at("to/more"), "x").unwrap();
            assert_eq!(portal.ask(compare(b"from", b"to")).walked().skipped_in_all, 0);
            change(&world);
            let walked = portal.ask(compare(b"from", b"to")).walked();
            let first = walked.skipped.iter().find(|skipped| skipped.path == relative(path));
            assert_eq!(first.map(|skipped| skipped.why), Some(why), "{way:?} {what}: {walked:?}");
            assert!(world.at("from").exists() && world.at("to").exists());
        }
        let world = World::new();
        write(world.at("a"), "one").unwrap();
        write(world.at("b"), "other").unwrap();
        create_dir(world.at("d")).unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let walked = portal.ask(compare(b"a", b"b")).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (0, 1));
        for name in ["a", "b"] {
            set_modified(&world.at(name), 1_000);
        }
        for (from, to, why) in [(b"a", b"b", Code::ChangedMeanwhile), (b"b", b"a", Code::NotWhole)] {
            let walked = portal.ask(compare(from, to)).walked();
            assert_eq!((walked.skipped[0].path.clone(), walked.skipped[0].why), (relative(b""), why), "{way:?}");
        }
        assert_eq!(portal.ask(compare(b"d", b"a")).walked().skipped_in_all, 1);
        assert_eq!(portal.code(compare(b"none", b"a")), Some(Code::NotFound));
        assert_eq!(portal.code(compare(b"a", b"none")), Some(Code::NotFound));
        assert_eq!(portal.code(compare(b"a", b".eirene-trash/x")), Some(Code::Reserved));
    }
}

#[test]
fn an_upload_that_is_not_finished_is_in_no_copy_and_its_directory_is_named() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("from/sub")).unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        portal.ask(Verb::CreateUpload(upload(b"from/sub/new", Some(4), OnConflict::Refuse))).done();
        portal.send(write_upload(b"from/sub", 0), b"fo").done();
        assert_eq!(portal.ask(copy(b"from", b"to", OnConflict::Refuse)).walked().skipped_in_all, 0);
        assert_eq!(names(&world.at("to/sub")), BTreeSet::new());
        let mut compared = || {
            let walked = portal.ask(compare(b"from", b"to")).walked();
            let skipped = walked.skipped.into_iter().map(|skipped| (skipped.path, skipped.why));
            skipped.collect::<Vec<_>>()
        };
        assert_eq!(compared(), [(relative(b"sub"), Code::UploadUnfinished)], "{way:?}");
        // What other programs call so is nobody's upload.
        write(world.at("from/.eirene-upload-x"), "x").unwrap();
        write(world.at("from/.eirene-upload-x.json"), "x").unwrap();
        assert_eq!(compared().len(), 1, "{way:?}");
        portal.send(write_upload(b"from/sub", 2), b"ur").done();
        portal.ask(Verb::FinishUpload(part(b"from/sub"))).done();
        let walked = portal.ask(compare(b"from", b"to")).walked();
        let skipped: Vec<_> = walked.skipped.iter().map(|skipped| (&skipped.path, skipped.why)).collect();
        assert_eq!(skipped, [(&relative(b"sub/new"), Code::NotFound)], "{way:?}: what is finished is a file as any");
    }
}

#[test]
fn an_upload_that_is_not_finished_is_found_before_anything_is_copied() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("from/a/b")).unwrap();
        create_dir_all(world.at("from/c")).unwrap();
        write(world.at("from/file"), "x").unwrap();
        symlink("../outside", world.at("from/link")).unwrap();
        create_dir_all(world.at("outside")).unwrap();
        write(world.at(format!("from/{PART_NAME}")), "of a copy that was cut off").unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        // An upload that lies elsewhere is no matter.
        portal.ask(Verb::CreateUpload(upload(b"outside/new", Some(4), OnConflict::Refuse))).done();
        let find = |portal: &mut crate::bench::Portal, path: &[u8]| match portal.ask(find_unfinished(path)).done() {
            Answer::FoundUnfinished { directory } => directory,
            other => panic!("{other:?}"),
        };
        for path in [b"from".as_slice(), b"from/file", b"from/link"] {
            assert_eq!(find(&mut portal, path), None, "{way:?}");
        }
        portal.ask(Verb::RemovePart(part(b"outside"))).done();
        // Whoever's it is, and whether anybody will go on with it or not: what counts is what lies there.
        portal.ask(Verb::CreateUpload(upload(b"from/a/b/new", Some(4), OnConflict::Refuse))).done();
        portal.send(write_upload(b"from/a/b", 0), b"fo").done();
        for (path, below) in [(b"from".as_slice(), b"a/b".as_slice()), (b"from/a", b"b"), (b"from/a/b", b"")] {
            assert_eq!(find(&mut portal, path), Some(relative(below)), "{way:?}");
        }
        assert_eq!(find(&mut portal, b"from/c"), None);
        assert_eq!(find(&mut portal, b""), Some(relative(b"from/a/b")), "the whole space too");
        portal.send(write_upload(b"from/a/b", 2), b"ur").done();
        portal.ask(Verb::FinishUpload(part(b"from/a/b"))).done();
        assert_eq!(find(&mut portal, b"from"), None, "{way:?}: what is finished is a file as any");
        assert_eq!(portal.code(find_unfinished(b"none")), Some(Code::NotFound));
        assert_eq!(portal.code(find_unfinished(b".eirene-trash/x")), Some(Code::Reserved));
    }
}

#[test]
fn a_cancelled_copy_leaves_nothing_and_one_that_was_killed_looks_like_nothing() {
    let world = World::new();
    create_dir(world.at("from")).unwrap();
    for number in 0..3_000 {
        write(world.at(format!("from/{number}")), "x").unwrap();
    }
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let (number, _) = portal.begin(copy(b"from", b"to", OnConflict::Refuse));
    portal.channel.send(&ToFiles::Cancel(number).encode().unwrap(), None).unwrap();
    assert_eq!(portal.finish(number, None).code(), Some(Code::Cancelled));
    assert_eq!(names(&world.path("space")), BTreeSet::from([b"from".to_vec()]));

    // Killed as soon as something is there of it.
    portal.begin(copy(b"from", b"to", OnConflict::Refuse));
    while !world.at(PART_NAME).exists() {
        std::thread::yield_now();
    }
    drop(portal);
    let there = names(&world.path("space"));
    let whole = there.contains(b"to".as_slice());
    assert!(!whole || names(&world.at("to")).len() == 3_000, "what has its name is whole");
    let mut portal = world.portal(Way::Program);
    let listed: BTreeSet<_> =
        portal.list(b"").entries().into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
    assert!(listed.iter().all(|name| name == b"from" || name == b"to"), "{listed:?}");
}

#[test]
fn what_is_deleted_is_gone_with_all_in_it_and_what_may_not_be_is_named() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("tree/a/b")).unwrap();
        for number in 0..2_000 {
            write(world.at(format!("tree/a/{number}")), "x").unwrap();
        }
        write(world.at("tree/a/b/.eirene-upload-x"), "x").unwrap();
        symlink("../keep", world.at("tree/link")).unwrap();
        create_dir(world.at("keep")).unwrap();
        write(world.at("keep/file"), "kept").unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let walked = portal.ask(delete(b"tree")).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (2_000 + 5, 0), "{walked:?}");
        assert_eq!(names(&world.path("space")), BTreeSet::from([b"keep".to_vec()]));
        assert_eq!(read_to_string(world.at("keep/file")).unwrap(), "kept");
        assert_eq!(portal.code(delete(b"tree")), Some(Code::NotFound));
        assert_eq!(portal.code(delete(b"")), Some(Code::Reserved));
        assert_eq!(portal.code(delete(b".eirene-trash")), Some(Code::Reserved));
    }
    // What may not be removed stays, with the directories it is in; the rest goes.
    let world = World::new();
    create_dir_all(world.at("tree/locked")).unwrap();
    write(world.at("tree/locked/file"), "x").unwrap();
    write(world.at("tree/free"), "x").unwrap();
    world.hand_over(Way::Program);
    set_permissions(world.at("tree/locked"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut portal = world.portal(Way::Program);
    let walked = portal.ask(delete(b"tree")).walked();
    assert_eq!((walked.entries, walked.skipped_in_all), (1, 1));
    assert_eq!((walked.skipped[0].path.clone(), walked.skipped[0].why), (relative(b"locked/file"), Code::Forbidden));
    assert!(world.at("tree/locked/file").exists() && !world.at("tree/free").exists());
}

#[test]
fn nothing_is_changed_in_a_space_that_is_only_read() {
    let world = World::new();
    write(world.at("file"), "text").unwrap();
    world.hand_over(Way::Program);
    let mut portal = world.portal_read_only();
    let refuse = OnConflict::Refuse;
    for verb in [
        make(b"d", false),
        make(b"d/e", true),
        move_to(b"file", b"other", refuse),
        copy(b"file", b"other", refuse),
        delete(b"file"),
        crate::ask::put_in_trash(b"file"),
        crate::ask::empty_trash(eirene_files_protocol::Which::Before(u64::MAX)),
        Verb::CreateUpload(crate::ask::upload(b"up", None, refuse)),
        Verb::RemovePart(crate::ask::part(b"")),
        crate::ask::permissions(b"file", eirene_files_protocol::PermissionChange::Mode(0), false),
    ] {
        let what = format!("{verb:?}");
        assert_eq!(portal.code(verb), Some(Code::ReadOnly), "{what}");
    }
    assert_eq!(portal.read(b"file").stream, b"text");
    assert_eq!(names(&world.path("space")), BTreeSet::from([b"file".to_vec()]));
}
