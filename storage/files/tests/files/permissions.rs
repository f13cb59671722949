//! Permissions in words, as bits and as lists, of one entry and of all below it.

use std::fs::{create_dir_all, set_permissions, write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use eirene_files_protocol::{
    AclEntry, Answer, Code, OnConflict, PermissionChange, Permissions, Rights, Share, SpaceNumber, Verb, Who,
};
use rustix::fs::XattrFlags;

use crate::ask::{copy, look_at_permissions, permissions};
use crate::bench::{Ends, PERSON, Portal, Way, World, is_root, relative};

fn look(portal: &mut Portal, path: &str) -> Permissions {
    match portal.ask(look_at_permissions(path.as_bytes())).done() {
        Answer::Permissions(permissions) => permissions,
        other => panic!("{other:?}"),
    }
}

fn mode(world: &World, path: &str) -> u32 {
    std::fs::symlink_metadata(world.at(path)).unwrap().permissions().mode() & 0o7777
}

fn line(who: Who, bits: u16) -> AclEntry {
    AclEntry { who, may: Rights::from_bits(bits) }
}

fn tree(way: Way) -> World {
    let world = World::new();
    create_dir_all(world.at("tree/sub")).unwrap();
    for (path, mode) in [("tree/data", 0o644), ("tree/sub/script", 0o755), ("tree/own", 0o600)] {
        write(world.at(path), "text").unwrap();
        set_permissions(world.at(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("data", world.at("tree/link")).unwrap();
    world.hand_over(way);
    set_permissions(world.at("tree/sub"), std::fs::Permissions::from_mode(0o2755)).unwrap();
    world
}

#[test]
fn a_word_is_what_its_bits_say_and_the_other_way_round() {
    for way in Way::BOTH {
        let world = tree(way);
        let mut portal = world.portal(way);
        assert_eq!(look(&mut portal, "tree/own").share, Some(Share::Private));
        assert_eq!(look(&mut portal, "tree/data").share, None, "everybody may read it");
        let words = [
            (Share::Private, 0o600, 0o700, 0o2700),
            (Share::GroupReads, 0o640, 0o750, 0o2750),
            (Share::GroupWrites, 0o660, 0o770, 0o2770),
        ];
        for (share, data, script, directory) in words {
            let change = PermissionChange::Share(share);
            let walked = portal.ask(permissions(b"tree", change.clone(), true)).walked();
            assert_eq!((walked.entries, walked.skipped_in_all), (5, 0));
            for (path, expected) in
                [("tree/data", data), ("tree/sub/script", script), ("tree/own", data), ("tree/sub", directory)]
            {
                assert_eq!(mode(&world, path), expected, "{share:?} {path}");
                assert_eq!(look(&mut portal, path).share, Some(share), "{path}");
            }
            assert!(look(&mut portal, "tree").mine);
            assert_eq!(portal.ask(permissions(b"tree/own", change, false)).walked().entries, 1);
        }
        assert_eq!(
            portal.code(permissions(b"tree/link", PermissionChange::Mode(0o600), false)),
            Some(Code::NotSupported)
        );
        assert_eq!(portal.code(permissions(b"tree", PermissionChange::Mode(0o4755), false)), Some(Code::Invalid));
        assert_eq!(portal.code(permissions(b"", PermissionChange::Mode(0o755), false)), Some(Code::Reserved));
    }
}

#[test]
fn bits_below_run_no_data_and_close_no_directory() {
    let world = tree(Way::Program);
    set_permissions(world.at("tree/sub/script"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut portal = world.portal(Way::Program);
    portal.ask(permissions(b"tree", PermissionChange::Mode(0o640), true)).done();
    for (path, expected) in [("tree", 0o750), ("tree/data", 0o640), ("tree/sub", 0o2750)] {
        assert_eq!(mode(&world, path), expected, "{path}");
    }
    assert_eq!(mode(&world, "tree/sub/script"), 0o640, "nothing that gives rights stays");
    portal.ask(permissions(b"tree", PermissionChange::Mode(0), true)).done();
    assert_eq!(mode(&world, "tree"), 0);
    // Its owner may still open it again, from above down.
    let walked = portal.ask(permissions(b"tree", PermissionChange::Share(Share::GroupReads), true)).walked();
    assert_eq!((walked.entries, walked.skipped_in_all), (5, 0));
    assert_eq!(mode(&world, "tree/data"), 0o640);
    portal.ask(permissions(b"tree/data", PermissionChange::Mode(0o711), false)).done();
    assert_eq!(mode(&world, "tree/data"), 0o711, "what is asked for alone is as asked");
}

#[test]
fn lists_are_set_read_handed_on_and_taken_away() {
    for way in Way::BOTH {
        let world = tree(way);
        let mut portal = world.portal(way);
        let least = [line(Who::Owner, 7), line(Who::OwningGroup, 5), line(Who::Other, 0)];
        let access = [least.as_slice(), &[line(Who::User(4711), 7), line(Who::Group(4712), 5)]].concat();
        let change = PermissionChange::Acl { access: access.clone(), default: access.clone() };
        let walked = portal.ask(permissions(b"tree", change, true)).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (5, 0), "{walked:?}");
        let now = look(&mut portal, "tree");
        for list in [now.access.unwrap(), now.default.unwrap()] {
            assert!(access.iter().all(|entry| list.contains(entry)), "{list:?}");
            assert!(list.contains(&line(Who::Mask, 7)), "the mask that is needed");
        }
        assert_eq!((now.share, now.lists), (None, true));
        let data = look(&mut portal, "tree/data");
        assert!(data.access.unwrap().contains(&line(Who::User(4711), 6)), "nobody runs what was not run before");
        assert_eq!(data.default, None);
        assert!(look(&mut portal, "tree/sub/script").access.unwrap().contains(&line(Who::User(4711), 7)));
        // What is made there from now on has it too.
        portal.ask(crate::ask::make(b"tree/new", false)).done();
        assert!(look(&mut portal, "tree/new").access.unwrap().contains(&line(Who::User(4711), 7)));
        // A word takes the place of it all.
        portal.ask(permissions(b"tree", PermissionChange::Share(Share::Private), true)).done();
        for path in ["tree", "tree/sub", "tree/data", "tree/new"] {
            let now = look(&mut portal, path);
            assert_eq!((now.access, now.default, now.share), (None, None, Some(Share::Private)), "{path}");
        }
        let twice = [least.as_slice(), &[line(Who::Other, 1)]].concat();
        for access in [Vec::new(), least[..2].to_vec(), twice] {
            let change = PermissionChange::Acl { access, default: Vec::new() };
            assert_eq!(portal.code(permissions(b"tree", change, false)), Some(Code::Invalid));
        }
    }
}

#[test]
fn the_mask_of_a_list_that_gives_way_is_the_groups_in_no_moment() {
    let list = [line(Who::Owner, 6), line(Who::User(4711), 6), line(Who::OwningGroup, 0), line(Who::Other, 0)];
    gives_way(&list, 0o660, Share::Private, 0o600);
}

#[test]
fn who_is_named_to_have_less_has_no_more_in_the_moment_a_list_gives_way() {
    // Where the list has gone they are of everybody else.
    let list = [line(Who::Owner, 6), line(Who::User(4711), 0), line(Who::OwningGroup, 4), line(Who::Other, 4)];
    gives_way(&list, 0o644, Share::GroupReads, 0o640);
}

/// Puts a word in the place of this list, whose bits are `before`, of many files: in no moment there are more bits alone than `then`.
fn gives_way(access: &[AclEntry], before: u32, share: Share, then: u32) {
    const FILES: usize = 500;
    let world = World::new();
    for number in 0..FILES {
        write(world.at(number.to_string()), "text").unwrap();
    }
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    for number in 0..FILES {
        let change = PermissionChange::Acl { access: access.into(), default: Vec::new() };
        portal.ask(permissions(number.to_string().as_bytes(), change, false)).done();
    }
    assert_eq!(mode(&world, "0"), before, "with the mask");
    let (changing, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let opened = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut opened = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let number = changing.load(Ordering::Relaxed);
                let file = number.to_string();
                // What has no list any more gets none again: bits that are looked at then stand alone.
                let list = rustix::fs::getxattr(world.at(&file), "system.posix_acl_access", &mut [0_u8; 256][..]);
                if list.is_err() && mode(&world, &file) & !then != 0 {
                    opened.push(number);
                }
            }
            opened
        });
        let ends = Ends(&over);
        for number in 0..FILES {
            changing.store(number, Ordering::Relaxed);
            portal.ask(permissions(number.to_string().as_bytes(), PermissionChange::Share(share), false)).done();
        }
        drop(ends);
        watching.join().unwrap()
    });
    assert_eq!(opened, Vec::<usize>::new());
    assert_eq!(mode(&world, "0"), then);
}

/// The program in a mount namespace where the space is a file system of bits alone, with one file in it.
fn without_lists(world: &World) -> Command {
    const MOUNT: &str = r#"mount --make-rprivate / && mount -t ramfs -o mode=0777 none "$1" && umask 077 && echo text >"$1/file" &&
        chown "$2" "$1/file" && shift 2 && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(if is_root() { ["--mount"].as_slice() } else { ["--user", "--map-root-user", "--mount"].as_slice() });
    command.args(["--", "sh", "-c", MOUNT, "sh"]).arg(world.at(""));
    if is_root() {
        command.arg(PERSON.to_string());
        command.args(["setpriv", &format!("--reuid={PERSON}"), &format!("--regid={PERSON}"), "--clear-groups"]);
    } else {
        command.args(["0", "unshare", "--user", &format!("--map-user={PERSON}"), &format!("--map-group={PERSON}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_eirene-files"));
    command
}

#[test]
fn a_file_system_without_lists_says_so_and_takes_bits() {
    let world = World::new();
    let mut portal = world.portal_with(without_lists(&world));
    let now = look(&mut portal, "file");
    assert_eq!((now.lists, now.mode, now.access), (false, 0o600, None));
    let access = [line(Who::Owner, 6), line(Who::User(4711), 4), line(Who::OwningGroup, 0), line(Who::Other, 0)];
    let change = PermissionChange::Acl { access: access.into(), default: Vec::new() };
    assert_eq!(portal.code(permissions(b"file", change, false)), Some(Code::NotSupported));
    portal.ask(permissions(b"file", PermissionChange::Mode(0o640), false)).done();
    assert_eq!(look(&mut portal, "file").mode, 0o640);
}

#[test]
fn a_copy_has_its_originals_lists_and_lets_in_nobody_for_where_it_lies() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("from/sub")).unwrap();
        create_dir_all(world.at("shared")).unwrap();
        for (path, mode) in [("from/named", 0o600), ("from/plain", 0o640), ("from/sub/private", 0o600)] {
            write(world.at(path), "text").unwrap();
            set_permissions(world.at(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        world.hand_over(way);
        let mut portal = world.portal(way);
        let named = [line(Who::Owner, 6), line(Who::User(4711), 6), line(Who::OwningGroup, 0), line(Who::Other, 0)];
        let top = [line(Who::Owner, 7), line(Who::User(4711), 5), line(Who::OwningGroup, 0), line(Who::Other, 0)];
        let group = [line(Who::Owner, 7), line(Who::OwningGroup, 7), line(Who::Group(4712), 7), line(Who::Other, 0)];
        let lists = [("from/named", named, None), ("from", top, Some(top)), ("shared", group, Some(group))];
        for (path, access, default) in lists {
            let default = default.map(Vec::from).unwrap_or_default();
            let change = PermissionChange::Acl { access: access.into(), default };
            portal.ask(permissions(path.as_bytes(), change, false)).done();
        }
        assert_eq!(mode(&world, "from/named"), 0o660, "the mask is no right of the group's");
        let walked = portal.ask(copy(b"from", b"shared/to", OnConflict::Refuse)).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (5, 0), "{way:?} {walked:?}");
        portal.ask(copy(b"from/named", b"shared/one", OnConflict::Refuse)).done();
        for (original, copied) in [
            ("from", "shared/to"),
            ("from/named", "shared/to/named"),
            ("from/plain", "shared/to/plain"),
            ("from/sub", "shared/to/sub"),
            ("from/sub/private", "shared/to/sub/private"),
            ("from/named", "shared/one"),
        ] {
            let (original, is) = (look(&mut portal, original), look(&mut portal, copied));
            assert_eq!((is.access, is.mode & 0o777), (original.access, original.mode & 0o777), "{way:?} {copied}");
        }
        let handed_on = |portal: &mut Portal, path| look(portal, path).default.unwrap();
        assert_eq!(handed_on(&mut portal, "shared/to"), handed_on(&mut portal, "from"), "{way:?}");
        // What hands nothing on itself goes on with what it found: the group is to write what is made in it.
        assert!(handed_on(&mut portal, "shared/to/sub").contains(&line(Who::Group(4712), 7)), "{way:?}");
    }
}

/// The id of a line of a list that has none.
const NOBODY: u32 = u32::MAX;

/// Sets a list as the kernel has it.
fn set_list(path: &Path, attribute: &str, lines: &[(u16, u16, u32)]) {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in lines {
        bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(path, attribute, &bytes, XattrFlags::empty()).unwrap();
}

#[test]
fn where_there_are_no_lists_a_copy_lets_in_nobody_more_and_says_what_is_lost() {
    let world = World::new();
    let tree = world.path("other").join("tree");
    create_dir_all(&tree).unwrap();
    for (name, mode) in [("named", 0o600), ("ours", 0o600), ("plain", 0o640)] {
        write(tree.join(name), "text").unwrap();
        set_permissions(tree.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    world.hand_over(Way::Program);
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    // Nobody else is known in the process's namespace.
    let found = std::fs::metadata(tree.join("ours")).unwrap();
    let (uid, gid) = (found.uid(), found.gid());
    let named =
        |own: u16| [(0x01, own, NOBODY), (0x02, 6, uid), (0x04, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    set_list(&tree.join("named"), access, &named(6));
    set_list(&tree, default, &named(7));
    // As in a group's space, which names the group that all of it belongs to.
    let ours = [(0x01, 6, NOBODY), (0x04, 7, NOBODY), (0x08, 7, gid), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    set_list(&tree.join("ours"), access, &ours);
    if is_root() {
        // It belongs to another group than its copy will, and denies that one what its own has.
        let denied = world.path("other").join("denied");
        write(&denied, "text").unwrap();
        std::os::unix::fs::chown(&denied, Some(uid), Some(1)).unwrap();
        let lines = [(0x01, 6, NOBODY), (0x04, 6, NOBODY), (0x08, 0, gid), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
        set_list(&denied, access, &lines);
    }
    let mut portal = world.portal_with(without_lists(&world));
    let from_other = |path: &[u8], to: &[u8]| match copy(path, to, OnConflict::Refuse) {
        Verb::Copy(mut wanted) => {
            wanted.from.space = SpaceNumber(2);
            Verb::Copy(wanted)
        }
        other => other,
    };
    let walked = portal.ask(from_other(b"tree", b"copied")).walked();
    let lost: Vec<_> = walked.skipped.iter().map(|skipped| (&skipped.path, skipped.why)).collect();
    assert_eq!(lost, [(&relative(b"named"), Code::ListLost), (&relative(b""), Code::ListLost)]);
    assert_eq!(walked.entries, 4, "all of it is there");
    for (path, expected) in [("copied/named", 0o600), ("copied/ours", 0o660), ("copied/plain", 0o640)] {
        assert_eq!(look(&mut portal, path).mode, expected, "{path}");
    }
    let walked = portal.ask(from_other(b"tree/named", b"one")).walked();
    assert_eq!((walked.skipped[0].path.clone(), walked.skipped[0].why), (relative(b""), Code::ListLost));
    if is_root() {
        portal.ask(from_other(b"denied", b"denied")).done();
        assert_eq!(look(&mut portal, "denied").mode, 0o600);
    }
}

#[test]
fn a_directory_whose_list_cannot_be_copied_is_copied_closed_and_named() {
    for way in Way::BOTH {
        // Other file systems have no room for so many lines.
        let world = World::on(Path::new("/dev/shm"));
        create_dir_all(world.at("from/long")).unwrap();
        for path in ["from/long/file", "from/other"] {
            write(world.at(path), "text").unwrap();
        }
        world.hand_over(way);
        let named = (0..600).map(|number| (0x02, 7, 1_000 + number));
        let rest = [(0x04, 7, NOBODY), (0x10, 7, NOBODY), (0x20, 5, NOBODY)];
        let lines: Vec<_> = std::iter::once((0x01, 7, NOBODY)).chain(named).chain(rest).collect();
        set_list(&world.at("from/long"), "system.posix_acl_access", &lines);
        let walked = world.portal(way).ask(copy(b"from", b"to", OnConflict::Refuse)).walked();
        let skipped: Vec<_> = walked.skipped.iter().map(|skipped| (&skipped.path, skipped.why)).collect();
        assert_eq!(skipped, [(&relative(b"long"), Code::NotSupported)], "{way:?}");
        assert_eq!(walked.entries, 4, "{way:?}");
        assert_eq!(mode(&world, "to/long"), 0o700, "{way:?}");
        for path in ["to/long/file", "to/other"] {
            assert_eq!(std::fs::read_to_string(world.at(path)).unwrap(), "text", "{way:?}");
        }
    }
}

#[test]
fn what_is_anothers_stays_as_it_is_and_is_named() {
    if is_root() {
        let world = tree(Way::Program);
        std::os::unix::fs::chown(world.at("tree/data"), Some(1), Some(1)).unwrap();
        let before = mode(&world, "tree/data");
        let mut portal = world.portal(Way::Program);
        assert!(!look(&mut portal, "tree/data").mine);
        let walked = portal.ask(permissions(b"tree", PermissionChange::Share(Share::GroupWrites), true)).walked();
        assert_eq!((walked.entries, walked.skipped_in_all), (4, 1));
        assert_eq!((walked.skipped[0].path.clone(), walked.skipped[0].why), (relative(b"data"), Code::Forbidden));
        assert_eq!(mode(&world, "tree/data"), before);
    }
}
