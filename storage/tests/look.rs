//! The program that looks for others.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use eirene_core::storage::StorageError;
use eirene_storage::Seen;
use eirene_storage::posix::Project;

fn look(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_eirene-look")).args(arguments).output().unwrap()
}

fn seen(arguments: &[&str]) -> Seen {
    serde_json::from_slice(&look(arguments).stdout).unwrap()
}

#[test]
fn what_it_sees_is_what_a_look_from_here_sees() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    std::fs::create_dir(folder.path().join("home")).unwrap();
    std::fs::write(folder.path().join(".eirene-root"), "0123456789abcdef\n").unwrap();
    let here = eirene_storage::posix::look_at(folder.path(), "home".as_ref(), true).unwrap();
    let there = seen(&["root", root, "home"]).into_look().unwrap();
    assert_eq!((&there.path, &there.mount_point, &there.identity), (&here.path, &here.mount_point, &here.identity));
    assert_eq!(there.identity.marker.as_deref(), Some("0123456789abcdef"));
    assert_eq!(there.directory.total, here.directory.total);
    let home = seen(&["home", root]).into_look().unwrap();
    assert_eq!((home.identity.marker, home.path.as_str()), (None, root), "homes have no marker");
    let own = seen(&["own", root, "home"]).into_look().unwrap();
    assert_eq!((&own.path, own.own.is_some()), (&here.path, !nix::unistd::geteuid().is_root()), "one's own space");
    let inside = seen(&["home", root, "home"]).into_look().unwrap();
    assert_eq!((&inside.path, inside.identity.marker), (&here.path, None));
    assert_eq!(inside.own, None, "what is counted for somebody is told of their home itself");
    // Whether it is told is the disk's affair; `contract/disks.rs` has one that does.
    assert_eq!(home.own.is_some(), !nix::unistd::geteuid().is_root());
    assert_eq!(there.own, None, "of a space it is nobody's");
}

#[test]
fn a_directory_that_may_not_be_listed_is_looked_at_all_the_same_and_one_out_of_reach_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let close = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let seen = |told: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eirene-look"));
        command.arg("root").arg(folder.path()).arg("home").args(told);
        // Root may list everything.
        if nix::unistd::geteuid().is_root() {
            command.uid(12_345).gid(12_345);
        }
        serde_json::from_slice::<Seen>(&command.output().unwrap().stdout).unwrap()
    };
    close(folder.path(), 0o755);
    close(&home, 0o000);
    let look = seen(&[]).into_look().unwrap();
    assert!(look.directory.total > 0 && look.project.is_none(), "{look:?}");
    for (told, inherited) in [("7", false), ("7+", true)] {
        let look = seen(&[told]).into_look().unwrap();
        assert_eq!(look.project, Some(Project { id: 7, inherited }), "what it may not see it is told");
    }
    close(folder.path(), 0o000);
    let refused = seen(&["7"]);
    close(folder.path(), 0o700);
    assert!(matches!(refused, Seen::Refused { .. }), "{refused:?}");
}

#[test]
fn what_is_not_there_or_leads_out_is_said_and_is_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    std::os::unix::fs::symlink("/", folder.path().join("out")).unwrap();
    assert!(matches!(seen(&["root", root, "none"]).into_look(), Err(StorageError::NoSuchPlace { .. })));
    for beneath in ["out", "out/etc", "..", "/etc"] {
        for kind in ["root", "home", "own"] {
            let seen = seen(&[kind, root, beneath]);
            assert!(matches!(seen, Seen::Refused { .. }), "{kind} {beneath}: {seen:?}");
        }
    }
    for wrong in [
        &[][..],
        &["home"],
        &["root"],
        &["own", root],
        &["home", root, "x", "7"],
        &["disk", root],
        &["root", root, "x", "-1"],
        &["root", root, "x", "+7"],
        &["root", root, "x", "7++"],
    ] {
        let output = look(wrong);
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong:?}");
    }
}
