//! The trash: in, out, emptied, and a process that is killed anywhere in between.

use std::collections::BTreeMap;
use std::fs::{
    Permissions, create_dir, create_dir_all, read_dir, read_to_string, remove_dir_all, remove_file, set_permissions,
    write,
};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use eirene_files_protocol::{Answer, Code, EntryKind, ListTrash, OnConflict, TrashId, Verb, Which};

use crate::ask::{empty_trash, list_trash, put_in_trash, restore};
use crate::bench::{Portal, SPACE, Way, World, is_root, relative};

/// A person's trash, as it lies on disk.
fn own(world: &World, way: Way) -> PathBuf {
    let uid = if is_root() && way == Way::Program { crate::bench::PERSON } else { rustix::process::geteuid().as_raw() };
    world.at(".eirene-trash").join(uid.to_string())
}

#[test]
fn what_is_trashed_comes_back_where_it_was_or_elsewhere() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("d/sub")).unwrap();
        write(world.at("d/file"), "text").unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let file = portal.trash(b"d/file");
        let directory = portal.trash(b"d");
        assert!(read_dir(world.path("space")).unwrap().count() == 1, "nothing but the trash");
        assert_eq!(std::fs::metadata(own(&world, way)).unwrap().mode() & 0o777, 0o700);
        let trashed = portal.trashed();
        let told: Vec<_> = trashed.iter().map(|one| (one.id, one.origin.clone(), one.kind, one.bytes)).collect();
        assert_eq!(
            told,
            [
                (directory, Some(relative(b"d")), EntryKind::Directory, None),
                (file, Some(relative(b"d/file")), EntryKind::File, Some(4)),
            ]
        );
        // Its directory is gone: somebody has to say where to.
        assert_eq!(portal.code(restore(file, None, OnConflict::Refuse)), Some(Code::NotFound));
        assert_eq!(portal.ask(restore(directory, None, OnConflict::Refuse)).moved().path, relative(b"d"));
        write(world.at("d/file"), "another").unwrap();
        assert_eq!(portal.code(restore(file, None, OnConflict::Refuse)), Some(Code::Exists));
        let moved = portal.ask(restore(file, None, OnConflict::KeepBoth)).moved();
        assert_eq!(moved.path, relative(b"d/file (2)"));
        assert_eq!(read_to_string(world.at("d/file (2)")).unwrap(), "text");
        assert!(world.at("d/sub").is_dir());
        assert_eq!(portal.trashed(), []);
        assert_eq!(read_dir(own(&world, way).join("info")).unwrap().count(), 0);
        assert_eq!(portal.code(restore(file, None, OnConflict::Refuse)), Some(Code::NotFound));
        let again = portal.trash(b"d/file (2)");
        assert_eq!(portal.ask(restore(again, Some(b"d/x"), OnConflict::Refuse)).moved().path, relative(b"d/x"));
    }
}

#[test]
fn the_trash_is_listed_page_by_page_and_emptied_by_age() {
    let world = World::new();
    for number in 0..10 {
        create_dir(world.at(format!("d{number}"))).unwrap();
        write(world.at(format!("d{number}/file")), "x").unwrap();
    }
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    assert_eq!(portal.trashed(), [], "there is none yet");
    assert_eq!(portal.ask(empty_trash(Which::Before(u64::MAX))).walked().entries, 0);
    let mut put: Vec<TrashId> = (0..10).map(|number| portal.trash(format!("d{number}").as_bytes())).collect();
    put.sort_unstable_by(|a, b| b.cmp(a));
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let heard = portal.ask(Verb::ListTrash(ListTrash { space: SPACE, after, limit: 3 }));
        let Some(eirene_files_protocol::Part::Trashed(page)) = heard.parts.first() else { panic!("a page") };
        seen.extend(page.iter().map(|one| one.id));
        let Answer::TrashListed { entries: 10, next } = heard.done() else { panic!("ten of them") };
        after = next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(seen, put);
    assert_eq!(portal.ask(empty_trash(Which::One(put[0]))).walked().entries, 2);
    assert_eq!(portal.code(empty_trash(Which::One(put[0]))), Some(Code::NotFound));
    assert_eq!(portal.ask(empty_trash(Which::Before(put[9].milliseconds()))).walked().entries, 0);
    assert_eq!(portal.trashed().len(), 9);
    assert_eq!(portal.ask(empty_trash(Which::Before(u64::MAX))).walked().entries, 18);
    assert_eq!(portal.trashed(), []);
    for directory in ["files", "info"] {
        assert_eq!(read_dir(own(&world, Way::Program).join(directory)).unwrap().count(), 0);
    }
}

#[test]
fn every_state_that_a_kill_can_leave_is_one_to_go_on_from() {
    let world = World::new();
    for name in ["a", "b"] {
        write(world.at(name), name).unwrap();
    }
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let (a, b) = (portal.trash(b"a"), portal.trash(b"b"));
    let (files, info) = (own(&world, Way::Program).join("files"), own(&world, Way::Program).join("info"));
    // Killed between announcement and rename, also within the announcement: nothing is there of it.
    let (left, torn) = ("00000000000000000000000000000000", "00000000000000000000000000000001");
    let text = std::fs::read(info.join(a.to_string())).unwrap();
    write(info.join(left), &text).unwrap();
    write(info.join(torn), &text[..10]).unwrap();
    let fresh = b.to_string().replace(&b.to_string()[12..], "00000000000000000000");
    write(info.join(&fresh), &text).unwrap();
    world.hand_over(Way::Program);
    assert_eq!(portal.trashed().len(), 2);
    assert_eq!(portal.code(restore(left.parse().unwrap(), None, OnConflict::Refuse)), Some(Code::NotFound));
    // Killed between the way back and the end of the announcement: the same.
    std::fs::rename(files.join(a.to_string()), world.at("a")).unwrap();
    assert_eq!(portal.trashed().len(), 1);
    // An announcement that was lost: what lies there is still there.
    remove_file(info.join(b.to_string())).unwrap();
    let trashed = portal.trashed();
    assert_eq!((trashed[0].id, trashed[0].origin.clone(), trashed[0].kind), (b, None, EntryKind::File));
    assert_eq!(portal.code(restore(b, None, OnConflict::Refuse)), Some(Code::NotFound));
    portal.ask(restore(b, Some(b"b"), OnConflict::Refuse)).done();
    assert_eq!(read_to_string(world.at("b")).unwrap(), "b");
    // What is left over goes, but not what somebody may be about to use.
    portal.ask(empty_trash(Which::Before(u64::MAX))).done();
    let mut names: Vec<_> =
        read_dir(&info).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut expected = [fresh, a.to_string()];
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn nothing_is_lost_whenever_the_process_is_killed() {
    let world = World::new();
    let content: BTreeMap<String, String> =
        (0..40).map(|number| (format!("f{number}"), format!("content {number}"))).collect();
    for (name, text) in &content {
        write(world.at(name), text).unwrap();
    }
    world.hand_over(Way::Program);
    let files = own(&world, Way::Program).join("files");
    let mut met_in_trash = 0;
    for round in 0..40_u32 {
        let mut portal = world.portal(Way::Program);
        // All at once, on several threads: some are done when it dies, some have not begun, some are on their way.
        let known: Vec<_> = portal.trashed();
        for one in &known {
            portal.begin(restore(one.id, None, OnConflict::Refuse));
        }
        for name in content.keys().filter(|name| world.at(name.as_str()).exists()).take(20) {
            portal.begin(put_in_trash(name.as_bytes()));
        }
        for _ in 0..round % 20 {
            portal.channel.receive(&mut Vec::new()).unwrap().unwrap();
        }
        drop(portal);
        let mut portal = world.portal(Way::Program);
        let trashed = portal.trashed();
        met_in_trash += trashed.len();
        let mut found = BTreeMap::new();
        for one in trashed {
            let origin = one.origin.expect("what lies there was announced");
            let text = std::fs::read_to_string(files.join(one.id.to_string())).unwrap();
            assert_eq!(found.insert(String::from_utf8(origin.as_bytes().to_vec()).unwrap(), text), None, "twice");
        }
        for name in content.keys().filter(|name| world.at(name.as_str()).exists()) {
            assert_eq!(found.insert(name.clone(), read_to_string(world.at(name)).unwrap()), None, "{name} lies twice");
        }
        assert_eq!(found, content, "round {round}");
    }
    assert!(met_in_trash > 0, "the kills came too early to try anything");
}

#[test]
fn whoever_does_not_own_a_space_makes_no_trash_in_it() {
    if is_root() {
        let world = World::new();
        create_dir(world.at("d")).unwrap();
        world.hand_over(Way::Program);
        std::os::unix::fs::chown(world.path("space"), Some(0), Some(0)).unwrap();
        set_permissions(world.path("space"), Permissions::from_mode(0o777)).unwrap();
        let mut portal = world.portal(Way::Program);
        assert_eq!(portal.code(put_in_trash(b"d")), Some(Code::NotSupported));
        assert!(world.at("d").is_dir());
        // Where the launcher made one, it is used.
        create_dir(world.at(".eirene-trash")).unwrap();
        set_permissions(world.at(".eirene-trash"), Permissions::from_mode(0o1777)).unwrap();
        portal.trash(b"d");
        assert!(!world.at("d").exists());
    }
}

/// The user who takes a person's name first, where the tests run as root.
const ANOTHER: u32 = 12_346;

/// Makes a directory with these permissions, whatever the umask is.
fn make_open(path: &Path) {
    create_dir(path).unwrap();
    set_permissions(path, Permissions::from_mode(0o777)).unwrap();
}

/// A trash as a person makes it, but with everything open to all.
fn make_open_trash(path: &Path) {
    for directory in [path.to_owned(), path.join("files"), path.join("info")] {
        make_open(&directory);
    }
}

fn give_all(path: &Path, uid: u32) {
    let status = std::process::Command::new("chown").arg("-Rh").arg(format!("{uid}:{uid}")).arg(path).status();
    assert!(status.unwrap().success());
}

/// A space where anybody may make a trash, with some files of the person's.
fn shared() -> World {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        write(world.at(name), name).unwrap();
    }
    world.hand_over(Way::Program);
    create_dir(world.at(".eirene-trash")).unwrap();
    set_permissions(world.at(".eirene-trash"), Permissions::from_mode(0o1777)).unwrap();
    world
}

/// The directories of a person's own with a name of their own and a random one behind it.
fn beside(own: &Path) -> Vec<PathBuf> {
    let uid = own.file_name().unwrap().to_str().unwrap().to_owned();
    let entries = read_dir(own.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let suffix = name.strip_prefix(&uid).and_then(|rest| rest.strip_prefix('.'));
            suffix.is_some_and(|suffix| suffix.len() == 32)
        })
        .collect()
}

fn count(directory: &Path) -> usize {
    read_dir(directory).unwrap().count()
}

#[test]
fn a_person_whose_name_another_took_has_a_trash_beside_it() {
    type Squat = fn(&Path, &Path);
    let squats: [(&str, Squat); 6] = [
        ("a closed directory", |own, _| std::fs::DirBuilder::new().mode(0o700).create(own).unwrap()),
        ("an open trash", |own, _| make_open_trash(own)),
        ("a file", |own, _| write(own, "").unwrap()),
        ("a link", |own, outside| symlink(outside, own).unwrap()),
        ("a link to nothing", |own, _| symlink("nothing", own).unwrap()),
        ("a link to the space", |own, _| symlink("..", own).unwrap()),
    ];
    for (what, squat) in squats.into_iter().filter(|_| is_root()) {
        let world = shared();
        let own = own(&world, Way::Program);
        squat(&own, &world.path("outside"));
        give_all(&own, ANOTHER);
        // Names like the one that is made, and like another person's.
        let planted = own.with_extension("00000000000000000");
        make_open_trash(&planted);
        give_all(&planted, ANOTHER);
        symlink(world.path("outside"), own.with_extension("1")).unwrap();
        let of_next = world.at(".eirene-trash").join(format!("{}0.x", own.file_name().unwrap().to_str().unwrap()));
        make_open_trash(&of_next);
        let before = world.outside();

        let mut portal = world.portal(Way::Program);
        assert_eq!(portal.trashed(), [], "{what}");
        let (a, b) = (portal.trash(b"a"), portal.trash(b"b"));
        assert_eq!(portal.trashed().iter().map(|one| one.id).collect::<Vec<_>>(), [b, a], "{what}");
        let [made] = beside(&own).try_into().unwrap();
        let found = std::fs::metadata(&made).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (crate::bench::PERSON, 0o700), "{what}");
        assert_eq!((count(&planted.join("files")), count(&of_next.join("files"))), (0, 0), "{what}");
        portal.ask(restore(a, None, OnConflict::Refuse)).done();
        assert_eq!(read_to_string(world.at("a")).unwrap(), "a");

        // Once the administrator has removed it, the person's own name is used, and the other one still counts.
        let removed = if own.is_symlink() || own.is_file() { remove_file(&own) } else { remove_dir_all(&own) };
        removed.unwrap();
        let (c, d) = (portal.trash(b"c"), portal.trash(b"d"));
        assert_eq!((count(&own.join("files")), count(&made.join("files"))), (2, 1), "{what}");
        assert_eq!(portal.trashed().iter().map(|one| one.id).collect::<Vec<_>>(), [d, c, b], "{what}");
        let page = portal.ask(Verb::ListTrash(ListTrash { space: SPACE, after: Some(c), limit: 1 }));
        assert_eq!(page.done(), Answer::TrashListed { entries: 3, next: None });
        portal.ask(empty_trash(Which::One(c))).done();
        assert_eq!(portal.ask(restore(b, None, OnConflict::Refuse)).moved().path, relative(b"b"));
        portal.trash(b"b");
        std::fs::rename(own.join("files").join(d.to_string()), made.join("files").join(d.to_string())).unwrap();
        assert_eq!(portal.ask(empty_trash(Which::Before(u64::MAX))).walked().entries, 2, "of both");
        assert_eq!(portal.trashed(), []);
        assert_eq!(world.outside(), before, "{what}");
    }
}

#[test]
fn a_trash_that_others_could_open_is_closed_or_left_alone() {
    if is_root() {
        // Members of a group can move a directory of the person's that they may write to.
        let world = shared();
        let own = own(&world, Way::Program);
        make_open_trash(&own);
        give_all(&own, crate::bench::PERSON);
        let mut portal = world.portal(Way::Program);
        portal.trash(b"a");
        for part in [own.clone(), own.join("files"), own.join("info")] {
            assert_eq!(std::fs::metadata(&part).unwrap().mode() & 0o777, 0o700, "{}", part.display());
        }
        assert_eq!((count(&own.join("files")), beside(&own).len()), (1, 0));

        // What they made in it is still theirs.
        for part in ["files", "info"] {
            let world = shared();
            make_open_trash(&self::own(&world, Way::Program));
            give_all(&self::own(&world, Way::Program), crate::bench::PERSON);
            give_all(&self::own(&world, Way::Program).join(part), ANOTHER);
            let mut portal = world.portal(Way::Program);
            portal.trash(b"a");
            assert_eq!(portal.trashed().len(), 1);
            assert_eq!(count(&self::own(&world, Way::Program).join("files")), 0, "{part}");
        }
    }
}

#[test]
fn where_no_trash_can_be_made_nothing_is_moved_and_the_reason_is_given() {
    if is_root() {
        let world = shared();
        make_open_trash(&own(&world, Way::Program));
        set_permissions(world.at(".eirene-trash"), Permissions::from_mode(0o1755)).unwrap();
        let mut portal = world.portal(Way::Program);
        assert_eq!(portal.code(put_in_trash(b"a")), Some(Code::Forbidden));
        assert_eq!(portal.trashed(), []);
        assert_eq!(read_to_string(world.at("a")).unwrap(), "a");
        assert_eq!(count(&own(&world, Way::Program).join("files")), 0);
    }
}

#[test]
fn no_link_leads_to_another_trash() {
    for link in [".eirene-trash", ".eirene-trash/ID", ".eirene-trash/ID/files", ".eirene-trash/ID/info"] {
        let world = World::new();
        write(world.at("file"), "text").unwrap();
        let own = own(&world, Way::Program);
        let path = world.at(link.replace("ID", own.file_name().unwrap().to_str().unwrap()));
        create_dir_all(path.parent().unwrap()).unwrap();
        symlink(world.path("outside"), &path).unwrap();
        world.hand_over(Way::Program);
        for directory in [world.at(".eirene-trash"), own.clone()] {
            if directory.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
            }
        }
        let before = world.outside();
        let mut portal: Portal = world.portal(Way::Program);
        let is_outer = link == ".eirene-trash";
        let expected = is_outer.then_some(Code::NotADirectory);
        for verb in [list_trash(), empty_trash(Which::Before(u64::MAX)), put_in_trash(b"file")] {
            let heard = portal.ask(verb);
            heard.assert_innocent("trash");
            assert_eq!(heard.code(), expected, "{link}: {:?}", heard.outcome);
        }
        assert_eq!(world.at("file").exists(), is_outer, "{link}");
        if !is_outer {
            assert_eq!((portal.trashed().len(), beside(&own).len()), (1, 1), "{link}");
        }
        assert_eq!(world.outside(), before);
    }
}
