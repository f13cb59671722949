//! Permissions in words, as bits and as lists, of one entry and of all below it.

use std::fs::{create_dir_all, set_permissions, write};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use eirene_files_protocol::{AclEntry, Answer, Code, PermissionChange, Permissions, Rights, Share, Who};

use crate::ask::{look_at_permissions, permissions};
use crate::bench::{PERSON, Portal, Way, World, is_root, relative};

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
