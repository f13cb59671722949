//! Copies of directories that were cut off, and what the next one takes over from them.

use std::collections::BTreeMap;
use std::fs::{
    Permissions, create_dir, create_dir_all, hard_link, metadata, read_dir, read_to_string, set_permissions,
    symlink_metadata, write,
};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use eirene_files_protocol::{Code, CopyFiles, OnConflict, PartId, Verb};
use serde_json::json;

use crate::ask::{PART, PART_NAME, copy_files, delete, part};
use crate::bench::{Way, World, is_root};

/// The copy that goes on.
const NEXT: PartId = PartId([0x6f; 16]);
/// So often a copy is begun anew that was whole before it could be cut off.
const TRIES: usize = 5;

fn next(on_conflict: OnConflict) -> Verb {
    Verb::Copy(CopyFiles { id: NEXT, earlier: vec![PartId([1; 16]), PART], ..copy_files(b"from", b"to", on_conflict) })
}

fn boot() -> String {
    read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// Copies content, mode and time, as the copy does.
fn whole(from: &Path, to: &Path) {
    let found = metadata(from).unwrap();
    write(to, std::fs::read(from).unwrap()).unwrap();
    let file = std::fs::File::options().write(true).open(to).unwrap();
    set_permissions(to, found.permissions()).unwrap();
    file.set_modified(found.modified().unwrap()).unwrap();
}

/// What a copy of `from` has left: `a`, `one` and `link` whole, `half` in part, and more that is not as its original.
fn left(world: &World, way: Way) {
    create_dir_all(world.at("from/sub")).unwrap();
    for (name, text) in [("a", "whole"), ("half", "half of it"), ("new", "newer than the copy"), ("sub/one", "in sub")]
    {
        write(world.at(format!("from/{name}")), text).unwrap();
    }
    set_permissions(world.at("from/a"), Permissions::from_mode(0o750)).unwrap();
    hard_link(world.at("from/sub/one"), world.at("from/two")).unwrap();
    symlink("a", world.at("from/link")).unwrap();
    let at = |name: &str| world.at(format!("{PART_NAME}/{name}"));
    create_dir_all(at("sub")).unwrap();
    create_dir(at("gone")).unwrap();
    for name in ["a", "new", "sub/one"] {
        whole(&world.at(format!("from/{name}")), &at(name));
    }
    // Written to since it was copied, of the same size.
    write(world.at("from/new"), "newer than the COPY").unwrap();
    let since = metadata(at("new")).unwrap().modified().unwrap() + std::time::Duration::from_secs(7);
    std::fs::File::options().write(true).open(world.at("from/new")).unwrap().set_modified(since).unwrap();
    write(at("half"), "half").unwrap();
    write(at("gone/x"), "not in the original any more").unwrap();
    symlink("a", at("link")).unwrap();
    // What was done with may be closed to writing.
    set_permissions(at("sub"), Permissions::from_mode(0o500)).unwrap();
    set_permissions(world.at(PART_NAME), Permissions::from_mode(0o700)).unwrap();
    note(world, &json!({"boot": boot(), "inode": metadata(world.at(PART_NAME)).unwrap().ino()}));
    world.hand_over(way);
}

fn note(world: &World, note: &serde_json::Value) {
    let at = world.at(format!("{PART_NAME}.copy"));
    write(&at, note.to_string()).unwrap();
    set_permissions(at, Permissions::from_mode(0o600)).unwrap();
}

fn inode(path: impl AsRef<Path>) -> u64 {
    symlink_metadata(path).unwrap().ino()
}

/// Whether the copy is what it was made of.
fn assert_whole(world: &World) {
    for name in ["a", "half", "new", "sub/one", "two"] {
        let (from, to) = (world.at(format!("from/{name}")), world.at(format!("to/{name}")));
        assert_eq!(read_to_string(&to).unwrap(), read_to_string(&from).unwrap(), "{name}");
        let look = |path: &Path| metadata(path).map(|found| (found.mode(), found.mtime(), found.mtime_nsec())).unwrap();
        assert_eq!(look(&to), look(&from), "{name}");
    }
    assert_eq!(std::fs::read_link(world.at("to/link")).unwrap(), Path::new("a"));
    assert_eq!(inode(world.at("to/two")), inode(world.at("to/sub/one")));
    assert_eq!(read_dir(world.at("to")).unwrap().count(), 6, "and nothing more");
    assert_eq!(read_dir(world.path("space")).unwrap().count(), 2, "nothing hidden is left");
}

#[test]
fn what_is_whole_and_the_same_is_taken_over_and_everything_else_is_copied() {
    for way in Way::BOTH {
        let world = World::new();
        left(&world, way);
        let before = ["a", "sub", "link"].map(|name| inode(world.at(format!("{PART_NAME}/{name}"))));
        // Held open: the number of a file that is gone may be another's at once.
        let held = ["half", "new"].map(|name| std::fs::File::open(world.at(format!("{PART_NAME}/{name}"))).unwrap());
        let replaced = held.each_ref().map(|file| file.metadata().unwrap().ino());
        let top = inode(world.at(PART_NAME));
        let mut portal = world.portal(way);
        let walked = portal.ask(next(OnConflict::Refuse)).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (8, 0), "{walked:?}");
        assert_eq!(walked.bytes, 5 + 10 + 19 + 6, "what was there already counts");
        assert_whole(&world);
        assert_eq!(inode(world.at("to")), top);
        let now = ["a", "sub", "link"].map(|name| inode(world.at(format!("to/{name}"))));
        assert_eq!(now, before, "not copied again");
        assert_eq!(read_to_string(world.at("to/new")).unwrap(), "newer than the COPY");
        assert_ne!(["half", "new"].map(|name| inode(world.at(format!("to/{name}")))), replaced);
    }
}

#[test]
fn names_that_were_of_one_file_and_are_not_any_more_share_none() {
    for way in Way::BOTH {
        let world = World::new();
        left(&world, way);
        // The two are alike to the nanosecond.
        whole(&world.at("from/a"), &world.at("from/half"));
        std::fs::remove_file(world.at(format!("{PART_NAME}/half"))).unwrap();
        hard_link(world.at(format!("{PART_NAME}/a")), world.at(format!("{PART_NAME}/half"))).unwrap();
        world.portal(way).ask(next(OnConflict::Refuse)).done();
        assert_whole(&world);
        assert_ne!(inode(world.at("to/a")), inode(world.at("to/half")));
    }
}

#[test]
fn what_has_no_note_of_this_start_that_says_so_is_not_touched() {
    type Change = fn(&World);
    let changes: [(&str, Change); 7] = [
        ("no note", |world| std::fs::remove_file(world.at(format!("{PART_NAME}.copy"))).unwrap()),
        ("of another start", |world| {
            note(world, &json!({"boot": "another", "inode": inode(world.at(PART_NAME))}));
        }),
        ("of another directory", |world| note(world, &json!({"boot": boot(), "inode": 1}))),
        ("open to others", |world| set_permissions(world.at(PART_NAME), Permissions::from_mode(0o770)).unwrap()),
        ("a note that others could have written", |world| {
            set_permissions(world.at(format!("{PART_NAME}.copy")), Permissions::from_mode(0o660)).unwrap();
        }),
        ("a note with two names", |world| {
            hard_link(world.at(format!("{PART_NAME}.copy")), world.path("other").join("second")).unwrap();
        }),
        ("a link in the place of the note", |world| {
            let note = world.at(format!("{PART_NAME}.copy"));
            std::fs::rename(&note, world.at("elsewhere")).unwrap();
            symlink("elsewhere", note).unwrap();
        }),
    ];
    for (what, change) in changes {
        let world = World::new();
        left(&world, Way::Program);
        change(&world);
        let look = |name: &str| (inode(world.at(format!("{PART_NAME}/{name}"))), name.to_owned());
        let before: BTreeMap<_, _> = ["a", "half", "new", "gone/x"].map(look).into();
        let mut portal = world.portal(Way::Program);
        assert_eq!(portal.ask(next(OnConflict::Refuse)).walked().bytes, 40, "{what}");
        let now: BTreeMap<_, _> = ["a", "half", "new", "gone/x"].map(look).into();
        assert_eq!(now, before, "{what}");
        assert_eq!(read_to_string(world.at(format!("{PART_NAME}/half"))).unwrap(), "half", "{what}");
        assert_ne!(inode(world.at("to/a")), inode(world.at(format!("{PART_NAME}/a"))), "{what}");
    }
}

#[test]
fn a_link_in_what_was_left_is_replaced_and_never_followed() {
    for way in Way::BOTH {
        let world = World::new();
        left(&world, way);
        for name in ["half", "gone/x"] {
            std::fs::remove_file(world.at(format!("{PART_NAME}/{name}"))).unwrap();
        }
        symlink(world.secret(), world.at(format!("{PART_NAME}/half"))).unwrap();
        symlink(world.path("outside"), world.at(format!("{PART_NAME}/gone/x"))).unwrap();
        let outside = world.outside();
        world.portal(way).ask(next(OnConflict::Refuse)).done();
        assert_whole(&world);
        assert_eq!(world.outside(), outside);
    }
}

#[test]
fn what_lies_at_the_target_is_in_the_way_as_ever() {
    for way in Way::BOTH {
        let world = World::new();
        left(&world, way);
        create_dir(world.at("to")).unwrap();
        write(world.at("to/theirs"), "theirs").unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        assert_eq!(portal.code(next(OnConflict::Refuse)), Some(Code::Exists));
        assert_eq!(read_dir(world.at("to")).unwrap().count(), 1);
        assert_eq!(read_to_string(world.at("to/theirs")).unwrap(), "theirs");
        assert_eq!(read_dir(world.path("space")).unwrap().count(), 2, "nothing hidden is left");
    }
}

#[test]
fn what_is_there_already_and_the_same_is_done_only_where_that_is_asked_for() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir(world.at("from")).unwrap();
        write(world.at("from/x"), "text").unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let wanted = |on_conflict, same_is_done| {
            Verb::Copy(CopyFiles { same_is_done, ..copy_files(b"from", b"to", on_conflict) })
        };
        portal.ask(wanted(OnConflict::Refuse, true)).done();
        let there = inode(world.at("to/x"));
        assert_eq!(portal.code(wanted(OnConflict::Refuse, false)), Some(Code::Exists));
        for on_conflict in [OnConflict::Refuse, OnConflict::Replace] {
            let walked = portal.ask(wanted(on_conflict, true)).walked();
            assert_eq!((walked.entries, walked.bytes), (2, 4), "it counts");
            assert_eq!(inode(world.at("to/x")), there);
        }
        assert_eq!(portal.trashed().len(), 0);
        let itself = CopyFiles { same_is_done: true, ..copy_files(b"from/x", b"from/x", OnConflict::Refuse) };
        assert_eq!(portal.code(Verb::Copy(itself)), Some(Code::Exists));
        portal.ask(wanted(OnConflict::KeepBoth, true)).done();
        assert!(world.at("to (2)/x").exists(), "one more was asked for");
        // Somebody has written to it: it stays, and is in the way.
        write(world.at("to/x"), "their").unwrap();
        assert_eq!(portal.code(wanted(OnConflict::Refuse, true)), Some(Code::Exists));
        assert_eq!(read_to_string(world.at("to/x")).unwrap(), "their");
        portal.ask(delete(b"to")).done();
        std::fs::remove_dir_all(world.at("to (2)")).unwrap();
        symlink("from", world.at("to")).unwrap();
        assert_eq!(portal.code(wanted(OnConflict::Refuse, true)), Some(Code::Exists), "a link is not what it leads to");
    }
}

#[test]
fn a_copy_goes_on_after_the_portal_or_the_process_has_ended() {
    const MANY: usize = 5_000;
    for is_killed in [false, true] {
        let mut was_cut_off = false;
        for _ in 0..TRIES {
            let world = World::new();
            create_dir(world.at("from")).unwrap();
            for number in 0..MANY {
                write(world.at(format!("from/{number}")), "x").unwrap();
            }
            world.hand_over(Way::Program);
            let mut portal = world.portal(Way::Program);
            portal.begin(Verb::Copy(copy_files(b"from", b"to", OnConflict::Refuse)));
            let note = world.at(format!("{PART_NAME}.copy"));
            let noted = || metadata(&note).is_ok_and(|note| note.len() > 0);
            while !(world.at("to").exists() || noted() && world.at(PART_NAME).exists()) {
                std::thread::yield_now();
            }
            let child = if is_killed { None } else { portal.child.take() };
            drop(portal);
            if let Some(mut child) = child {
                assert!(child.wait().unwrap().success(), "it ends with its portal");
            }
            if world.at("to").exists() {
                continue;
            }
            was_cut_off = true;
            let top = inode(world.at(PART_NAME));
            let walked = world.portal(Way::Program).ask(next(OnConflict::Refuse)).walked();
            assert_eq!((walked.entries, walked.bytes), (MANY as u64 + 1, MANY as u64));
            assert_eq!(inode(world.at("to")), top, "it went on in what was left");
            assert_eq!(read_dir(world.at("to")).unwrap().count(), MANY);
            assert_eq!(read_dir(world.path("space")).unwrap().count(), 2, "nothing hidden is left");
            break;
        }
        assert!(was_cut_off, "a copy is cut off before it is whole");
    }
}

#[test]
fn what_nobody_goes_on_with_is_removed_with_its_note() {
    let world = World::new();
    left(&world, Way::Program);
    // A directory that is closed to writing is in it, and one in that.
    let sub = world.at(format!("{PART_NAME}/sub"));
    set_permissions(&sub, Permissions::from_mode(0o700)).unwrap();
    create_dir(sub.join("deeper")).unwrap();
    write(sub.join("deeper/x"), "x").unwrap();
    world.hand_over(Way::Program);
    for closed in [sub.join("deeper"), sub] {
        set_permissions(closed, Permissions::from_mode(0o555)).unwrap();
    }
    world.portal(Way::Program).ask(Verb::RemovePart(part(b""))).done();
    assert_eq!(read_dir(world.path("space")).unwrap().count(), 1);
}

#[test]
fn a_directory_that_somebody_gave_the_name_of_what_was_left_is_not_removed() {
    for way in Way::BOTH {
        let world = World::new();
        left(&world, way);
        let lies = world.at(PART_NAME);
        std::fs::rename(&lies, world.at("elsewhere")).unwrap();
        create_dir(&lies).unwrap();
        write(lies.join("theirs"), "theirs").unwrap();
        world.hand_over(way);
        world.portal(way).ask(Verb::RemovePart(part(b""))).done();
        assert_eq!(read_to_string(lies.join("theirs")).unwrap(), "theirs");
        assert!(!world.at(format!("{PART_NAME}.copy")).exists(), "nothing is known of it any more");
    }
}

#[test]
fn what_cannot_be_removed_is_said_and_is_not_forgotten() {
    // Where the tests are nobody's in particular there is nobody else.
    if !is_root() {
        return;
    }
    let world = World::new();
    left(&world, Way::Program);
    for theirs in ["gone", "gone/x"] {
        chown(world.at(format!("{PART_NAME}/{theirs}")), Some(0), Some(0)).unwrap();
    }
    let mut portal = world.portal(Way::Program);
    assert_eq!(portal.code(Verb::RemovePart(part(b""))), Some(Code::Forbidden));
    assert!(world.at(format!("{PART_NAME}/gone/x")).exists());
    assert!(world.at(format!("{PART_NAME}.copy")).exists(), "it can be asked for again");
}

#[test]
fn what_was_copied_stays_where_its_original_cannot_be_looked_at_and_that_is_said() {
    let world = World::new();
    left(&world, Way::Program);
    // Its names can be read, and nothing of them.
    set_permissions(world.at("from/sub"), Permissions::from_mode(0o400)).unwrap();
    let theirs = is_root();
    if theirs {
        for theirs in ["gone", "gone/x"] {
            chown(world.at(format!("{PART_NAME}/{theirs}")), Some(0), Some(0)).unwrap();
        }
    }
    let walked = world.portal(Way::Program).ask(next(OnConflict::Refuse)).walked();
    let skipped: Vec<_> = walked.skipped.iter().map(|skipped| (skipped.path.as_bytes(), skipped.why)).collect();
    for path in [b"sub/one".as_slice(), b"sub"] {
        assert!(skipped.contains(&(path, Code::Forbidden)), "{skipped:?}");
    }
    assert_eq!(skipped.contains(&(b"".as_slice(), Code::Forbidden)), theirs, "what stays is said: {skipped:?}");
    assert_eq!(world.at("to/gone/x").exists(), theirs);
    for closed in ["from/sub", "to/sub"] {
        set_permissions(world.at(closed), Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(read_to_string(world.at("to/sub/one")).unwrap(), "in sub");
}

#[test]
fn a_copy_that_fails_leaves_nothing_of_a_directory_that_is_closed_to_writing() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("from/closed/deeper")).unwrap();
        write(world.at("from/closed/deeper/x"), "x").unwrap();
        create_dir(world.at("to")).unwrap();
        world.hand_over(way);
        for closed in ["from/closed/deeper", "from/closed"] {
            set_permissions(world.at(closed), Permissions::from_mode(0o555)).unwrap();
        }
        let mut portal = world.portal(way);
        assert_eq!(portal.code(Verb::Copy(copy_files(b"from", b"to", OnConflict::Refuse))), Some(Code::Exists));
        assert_eq!(read_dir(world.path("space")).unwrap().count(), 2, "nothing hidden is left");
        for closed in ["from/closed", "from/closed/deeper"] {
            set_permissions(world.at(closed), Permissions::from_mode(0o755)).unwrap();
        }
    }
}
