//! Making, taking away, bringing back and removing directories of spaces: as whom, open to whom, and where never.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use eirene_core::SpaceId;
use eirene_core::launcher::{LauncherAnswer, LauncherRequest, SpaceAt, SpaceFor};

use crate::bench::{Launcher, init_root};

fn make(root: &str, name: &str, of: SpaceFor) -> LauncherRequest {
    LauncherRequest::MakeSpace { root: root.parse().unwrap(), name: name.parse().unwrap(), of }
}

fn for_person(name: &str) -> SpaceFor {
    SpaceFor::Person(name.parse().unwrap())
}

fn for_group(name: &str, writable: bool) -> SpaceFor {
    SpaceFor::Group { group: name.parse().unwrap(), writable }
}

fn retire(name: &str, inode: u64, id: SpaceId) -> LauncherRequest {
    LauncherRequest::RetireSpace { root: "scratch".parse().unwrap(), name: name.parse().unwrap(), inode, id }
}

fn restore(name: &str, inode: u64, id: SpaceId) -> LauncherRequest {
    LauncherRequest::RestoreSpace { root: "scratch".parse().unwrap(), name: name.parse().unwrap(), inode, id }
}

fn remove(inode: u64, id: SpaceId) -> LauncherRequest {
    LauncherRequest::RemoveRetired { root: "scratch".parse().unwrap(), inode, id, serial: 7 }
}

fn inode(launcher: &Launcher, request: &LauncherRequest) -> (bool, u64) {
    match launcher.ask(request) {
        LauncherAnswer::Space { made, inode, unshared: false } => (made, inode),
        other => panic!("{other:?}"),
    }
}

/// Owner, group and mode.
fn closed(path: &Path) -> (u32, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a shell says, run as this user and group.
fn shell(uid: u32, gid: u32, script: &str, at: &Path) -> String {
    let output = Command::new("setpriv")
        .arg(format!("--reuid={uid}"))
        .arg(format!("--regid={gid}"))
        .args(["--clear-groups", "/bin/sh", "-c", script])
        .arg("sh")
        .arg(at)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_space_is_its_peoples_and_closed_to_others_from_its_first_moment() {
    let Some(launcher) = Launcher::start() else { return };
    let scratch = launcher.path().join("scratch");
    let (made, first) = inode(&launcher, &make("scratch", "scratch-ada", for_person("ada")));
    assert!(made);
    assert_eq!(closed(&scratch.join("scratch-ada")), (2001, 2001, 0o700));
    assert_eq!(fs::metadata(scratch.join("scratch-ada")).unwrap().ino(), first);
    assert_eq!(inode(&launcher, &make("scratch", "scratch-ada", for_person("ada"))), (false, first), "again");

    let project = launcher.path().join("project");
    inode(&launcher, &make("project", "stars", for_group("research", true)));
    assert_eq!(closed(&project.join("stars")), (0, 2000, 0o2770));
    assert_eq!(closed(&project.join("stars/.eirene-trash")), (0, 2000, 0o1770));
    inode(&launcher, &make("project", "data", for_group("research", false)));
    assert_eq!(closed(&project.join("data")), (0, 2000, 0o2750));
    inode(&launcher, &make("project", "public", SpaceFor::Everybody));
    assert_eq!(closed(&project.join("public")), (0, 0, 0o755));
    assert_eq!(names(&project), [".eirene-root", "data", "public", "stars"], "nothing unfinished is left");

    // What one of the group makes the others may write, whatever the umask; others come to nothing.
    let made = "umask 077; mkdir \"$1/d\" && echo x > \"$1/d/f\" && stat -c %g \"$1/d/f\"";
    assert_eq!(shell(2001, 2000, made, &project.join("stars")), "2000");
    let write = "echo y >> \"$1/d/f\" && echo written";
    assert_eq!(shell(3000, 2000, write, &project.join("stars")), "written");
    assert!(!shell(2002, 2002, "ls \"$1\" 2>&1 && echo seen", &project.join("stars")).contains("seen"));
    assert_eq!(shell(2002, 2002, "ls -A \"$1\" && echo seen", &project.join("public")), "seen");
    assert_eq!(shell(2001, 2000, "touch \"$1/x\" 2>/dev/null && echo made", &project.join("data")), "");

    let lines = launcher.audit();
    let first = &lines[0];
    assert_eq!((&first["verb"], &first["person"]), (&"make_space".into(), &"ada".into()));
    assert_eq!(first["target"], "scratch/scratch-ada");
}

#[test]
fn no_space_is_made_for_those_it_cannot_be_for() {
    let Some(mut launcher) = Launcher::start() else { return };
    for (root, of, code) in [
        ("scratch", for_person("root"), "forbidden_person"),
        ("scratch", for_person("sweep-again"), "forbidden_person"),
        ("scratch", for_person("nosuch"), "unknown_person"),
        ("project", for_group("root", true), "unknown_group"),
        ("project", for_group("wheel", true), "unknown_group"),
        ("project", for_group("nosuch", true), "unknown_group"),
        ("scratch", for_group("research", true), "bad_request"),
        ("scratch", SpaceFor::Everybody, "bad_request"),
        ("project", for_person("ada"), "bad_request"),
        ("etc", for_person("ada"), "not_configured"),
    ] {
        assert_eq!(launcher.code(&make(root, "new", of.clone())), code, "{root} {of:?}");
    }
    for name in ["..", ".", "", "a/b", "../etc", "/etc", ".retired", ".new-a", "-a", "A"] {
        let line = format!(
            "{{\"verb\":\"make_space\",\"root\":\"scratch\",\"name\":\"{name}\",\"of\":{{\"person\":\"ada\"}}}}\n"
        );
        let answers = launcher.say(line.as_bytes());
        assert!(matches!(&answers[..], [LauncherAnswer::Refused { code, .. }] if code == "bad_request"), "{name}");
    }
    launcher.configure(|text| text.replace("per = \"person\"", "# a root that is only looked at"));
    assert_eq!(launcher.code(&make("scratch", "new", for_person("ada"))), "bad_request");
    assert_eq!(names(&launcher.path().join("scratch")), [".eirene-root"]);
    assert_eq!(names(&launcher.path().join("project")), [".eirene-root"]);
}

#[test]
fn no_space_is_made_below_a_link_in_a_directory_others_write_or_without_the_marker() {
    let Some(mut launcher) = Launcher::start() else { return };
    let base = launcher.path().join("deep");
    let root = base.join("spaces");
    fs::create_dir_all(&root).unwrap();
    for directory in [&base, &root] {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    assert!(init_root(&root).status.success());
    assert!(init_root(&root).status.success(), "again it does nothing");
    let marker = fs::read_to_string(root.join(".eirene-root")).unwrap();
    assert_eq!((marker.trim().len(), closed(&root.join(".eirene-root"))), (32, (0, 0, 0o444)));
    let mut named = root.display().to_string();
    let mut point = |launcher: &mut Launcher, path: &Path| {
        let (old, new) = (format!("path = {named:?}"), format!("path = {:?}", path.display().to_string()));
        let scratch = format!("path = \"{}/scratch\"", launcher.path().display());
        launcher.configure(|text| text.replace(&scratch, &old).replace(&old, &new));
        named = path.display().to_string();
    };
    point(&mut launcher, &root);
    let wanted = make("scratch", "new", for_person("ada"));
    let refused = |launcher: &Launcher, why: &str| {
        assert_eq!(launcher.code(&wanted), "failed", "{why}");
        assert!(!root.join("new").exists(), "{why}");
    };
    for (directory, mode) in [(&root, 0o775), (&root, 0o757), (&root, 0o1777), (&base, 0o775), (&base, 0o777)] {
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        refused(&launcher, &format!("{} {mode:o}", directory.display()));
        assert!(!init_root(&root).status.success());
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    for directory in [&root, &base] {
        chown(directory, Some(2001), None).unwrap();
        refused(&launcher, "somebody else's");
        chown(directory, Some(0), None).unwrap();
    }
    fs::rename(root.join(".eirene-root"), root.join("away")).unwrap();
    refused(&launcher, "no marker: perhaps nothing is mounted there");
    symlink("away", root.join(".eirene-root")).unwrap();
    refused(&launcher, "a link for a marker");
    fs::remove_file(root.join(".eirene-root")).unwrap();
    fs::rename(root.join("away"), root.join(".eirene-root")).unwrap();
    chown(root.join(".eirene-root"), Some(2001), None).unwrap();
    refused(&launcher, "somebody else's marker");
    chown(root.join(".eirene-root"), Some(0), None).unwrap();
    let link = launcher.path().join("link");
    symlink(&base, &link).unwrap();
    point(&mut launcher, &link.join("spaces"));
    refused(&launcher, "a link on the way");
    assert!(!init_root(&link.join("spaces")).status.success());
    symlink(&root, launcher.path().join("last")).unwrap();
    let last = launcher.path().join("last");
    point(&mut launcher, &last);
    refused(&launcher, "the root is a link");
    point(&mut launcher, &root);
    assert_eq!(
        launcher.ask(&wanted),
        LauncherAnswer::Space { made: true, inode: fs::metadata(root.join("new")).unwrap().ino(), unshared: false }
    );
}

#[test]
fn what_lies_there_already_and_is_not_theirs_stays_as_it_is() {
    let Some(launcher) = Launcher::start() else { return };
    let scratch = launcher.path().join("scratch");
    let secret = launcher.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::create_dir(scratch.join("graces")).unwrap();
    chown(scratch.join("graces"), Some(2002), Some(2002)).unwrap();
    fs::create_dir(scratch.join("roots")).unwrap();
    symlink(&secret, scratch.join("link")).unwrap();
    fs::write(scratch.join("file"), "x").unwrap();
    chown(scratch.join("file"), Some(2001), Some(2001)).unwrap();
    for name in ["graces", "roots", "link", "file"] {
        let before = closed(&scratch.join(name));
        assert_eq!(launcher.code(&make("scratch", name, for_person("ada"))), "conflict", "{name}");
        assert_eq!(closed(&scratch.join(name)), before, "{name}");
    }
    assert_eq!(closed(&secret).0, 0);

    // What a child that was killed left is begun anew.
    fs::create_dir_all(scratch.join(".new-mine/.eirene-trash")).unwrap();
    assert!(inode(&launcher, &make("scratch", "mine", for_person("ada"))).0);
    // What is not empty was not left by one.
    fs::create_dir_all(scratch.join(".new-other/full")).unwrap();
    assert_eq!(launcher.code(&make("scratch", "other", for_person("ada"))), "failed");
    assert!(scratch.join(".new-other/full").exists() && !scratch.join("other").exists());
}

#[test]
fn a_space_that_is_taken_away_is_reached_by_nobody_and_comes_back_whole() {
    let Some(launcher) = Launcher::start() else { return };
    let scratch = launcher.path().join("scratch");
    let (_, there) = inode(&launcher, &make("scratch", "one", for_person("ada")));
    fs::write(scratch.join("one/file"), "text").unwrap();
    let id = SpaceId::generate();
    let kept = scratch.join(".retired").join(id.to_string());

    assert_eq!(launcher.code(&retire("one", there + 1, id)), "conflict", "another directory");
    assert_eq!(launcher.code(&retire("two", there, id)), "missing");
    assert_eq!(launcher.code(&restore("two", there, id)), "missing", "never taken away");
    for _ in 0..2 {
        inode(&launcher, &retire("one", there, id));
        assert_eq!(closed(&scratch.join(".retired")), (0, 0, 0o700));
        assert!(kept.join("file").exists() && !scratch.join("one").exists());
    }
    assert_eq!(shell(2001, 2001, "cat \"$1/file\" 2>&1 | grep -c text", &kept), "0");

    // Another one of the name, meanwhile.
    let (_, other) = inode(&launcher, &make("scratch", "one", for_person("grace")));
    assert_eq!(launcher.code(&restore("one", there, id)), "conflict");
    assert_eq!(launcher.code(&retire("one", other, id)), "conflict", "one is kept under this id");
    fs::remove_dir(scratch.join("one")).unwrap();
    assert_eq!(launcher.code(&restore("one", there + 1, id)), "conflict");
    for _ in 0..2 {
        inode(&launcher, &restore("one", there, id));
        assert_eq!(fs::read_to_string(scratch.join("one/file")).unwrap(), "text");
        assert_eq!(closed(&scratch.join("one")), (2001, 2001, 0o700));
    }
    fs::set_permissions(scratch.join(".retired"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(launcher.code(&retire("one", there, id)), "failed", "where others look in nothing is kept");
}

#[test]
fn a_look_says_where_a_space_is_and_what_the_time_is_there() {
    let Some(launcher) = Launcher::start() else { return };
    let (_, there) = inode(&launcher, &make("scratch", "one", for_person("ada")));
    let id = SpaceId::generate();
    let look = |at: SpaceAt| match launcher.ask(&LauncherRequest::LookForSpace { root: "scratch".parse().unwrap(), at })
    {
        LauncherAnswer::SpaceSeen { inode, file_time_s } => (inode, file_time_s),
        other => panic!("{other:?}"),
    };
    let present = || look(SpaceAt::Present("one".parse().unwrap()));
    let (inode, time) = present();
    assert_eq!(inode, Some(there));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(u64::try_from(time).unwrap()) < 60, "{time}");
    assert_eq!(look(SpaceAt::Retired(id)).0, None);
    launcher.ask(&retire("one", there, id));
    assert_eq!((present().0, look(SpaceAt::Retired(id)).0), (None, Some(there)));
}

/// In the place of the program that removes stands a shell, which takes its argument for a script of the directory it is started in.
fn script(space: &Path, text: &str) {
    fs::write(space.join("purge"), text).unwrap();
}

#[test]
fn what_was_taken_away_is_removed_by_an_account_that_may_nothing_else() {
    let Some(mut launcher) = Launcher::start() else { return };
    let scratch = launcher.path().join("scratch");
    let (_, there) = inode(&launcher, &make("scratch", "one", for_person("ada")));
    let said = launcher.path().join("said");
    fs::create_dir(&said).unwrap();
    fs::set_permissions(&said, Permissions::from_mode(0o777)).unwrap();
    let report = format!(
        "{{ id -u; id -g; id -G; grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t'; \
         ls /proc/self/fd | wc -l; pwd -P; env | grep -v -e PWD -e '^_' | wc -l; }} > {}/report\n",
        said.display()
    );
    script(&scratch.join("one"), &format!("{report}exit 3\n"));
    let id = SpaceId::generate();
    let kept: PathBuf = scratch.join(".retired").join(id.to_string());
    assert_eq!(launcher.ask(&remove(there, id)), LauncherAnswer::Removed { done: true }, "nothing is kept");
    assert!(scratch.join("one/purge").exists(), "what was not taken away is not removed");
    inode(&launcher, &retire("one", there, id));

    assert_eq!(launcher.ask(&remove(there, id)), LauncherAnswer::Removed { done: false }, "there is more");
    let report = fs::read_to_string(said.join("report")).unwrap();
    let report: Vec<&str> = report.lines().collect();
    assert_eq!(report[..3], ["1970"; 3]);
    let two = "000000000000000a";
    assert_eq!(report[3..5], [format!("CapPrm:{two}"), format!("CapEff:{two}")]);
    assert!(report.contains(&"NoNewPrivs:1"), "{report:?}");
    assert!(report.contains(&kept.to_str().unwrap()), "{report:?}");
    assert_eq!(report.last(), Some(&"0"), "{report:?}");

    assert_eq!(launcher.code(&remove(there + 1, id)), "conflict", "another directory");
    script(&kept, "echo EACCES >&2; exit 1\n");
    let LauncherAnswer::Refused { code, text } = launcher.ask(&remove(there, id)) else { panic!() };
    assert!(code == "failed" && text.contains("EACCES"), "{text}");
    script(&kept, "exit 0\n");
    assert_eq!(launcher.ask(&remove(there, id)), LauncherAnswer::Removed { done: false }, "it said so, and it is not");
    script(&kept, "rm purge\n");
    assert_eq!(launcher.ask(&remove(there, id)), LauncherAnswer::Removed { done: true });
    assert!(!kept.exists());
    assert_eq!(launcher.ask(&remove(there, id)), LauncherAnswer::Removed { done: true }, "again");

    launcher.configure(|text| text.replace("purge_account", "# purge_account"));
    assert_eq!(launcher.code(&remove(there, id)), "not_configured", "no account is named");
}

#[test]
fn a_file_of_somebody_elses_can_be_removed_and_a_sticky_directory_emptied_and_nothing_else_opened_up() {
    let Some(launcher) = Launcher::start() else { return };
    let scratch = launcher.path().join("scratch");
    let (_, there) = inode(&launcher, &make("scratch", "one", for_person("ada")));
    let sticky = scratch.join("one/sticky");
    fs::create_dir(&sticky).unwrap();
    fs::write(sticky.join("graces"), "x").unwrap();
    chown(sticky.join("graces"), Some(2002), Some(2002)).unwrap();
    fs::set_permissions(&sticky, Permissions::from_mode(0o1700)).unwrap();
    chown(&sticky, Some(2001), Some(2001)).unwrap();
    // Signals, identities and devices are not this account's.
    script(
        &scratch.join("one"),
        "rm sticky/graces && rmdir sticky && chown 0 purge 2>/dev/null && echo x >&2 && exit 1\n\
         kill -0 1 2>/dev/null && exit 1\nrm purge\n",
    );
    let id = SpaceId::generate();
    inode(&launcher, &retire("one", there, id));
    assert_eq!(launcher.ask(&remove(there, id)), LauncherAnswer::Removed { done: true });
}

#[test]
fn a_child_that_keeps_roots_rights_does_only_what_it_is_for() {
    let Some(_launcher) = Launcher::start() else { return };
    for extra in [&["--purge"][..], &[]] {
        let mut child = Command::new(crate::bench::PROGRAM)
            .args(["as-person", "--name=sweep", "--uid=1970", "--gid=1970"])
            .arg(format!("--launcher={}", std::process::id()))
            .args(extra)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let task = if extra.is_empty() {
            "{\"purge\":{\"program\":\"/bin/true\"}}"
        } else {
            "{\"run\":{\"program\":\"/bin/true\",\"arguments\":[],\"environment\":[]}}"
        };
        let message = [&(task.len() as u64).to_be_bytes(), task.as_bytes()].concat();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), &message).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&output.stderr).contains("not this account's"), "{output:?}");
    }
}

#[test]
fn a_limit_needs_a_file_system_that_counts_a_number_in_the_range_and_the_right_directory() {
    let Some(launcher) = Launcher::start() else { return };
    let (_, inode) = inode(&launcher, &make("scratch", "scratch-ada", for_person("ada")));
    let limit = |name: &str, inode, serial| LauncherRequest::LimitSpace {
        root: "scratch".parse().unwrap(),
        name: name.parse().unwrap(),
        inode,
        serial,
        bytes: Some(1 << 30),
        files: None,
    };
    for (request, expected) in [
        // The directory of the tests is on no file system with project quotas; `storage/tests/with-xfs` shows one.
        (limit("scratch-ada", inode, 7), "not_supported"),
        (limit("scratch-ada", inode + 1, 7), "conflict"),
        (limit("scratch-grace", inode, 7), "missing"),
        (limit("scratch-ada", inode, 900_000), "not_configured"),
        (limit("scratch-ada", inode, u32::MAX), "not_configured"),
    ] {
        match launcher.ask(&request) {
            LauncherAnswer::Refused { code, text } => assert_eq!(code, expected, "{text}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(closed(&launcher.path().join("scratch/scratch-ada")), (2001, 2001, 0o700), "nothing was changed");
}
