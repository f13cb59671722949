//! Attempts to have the file process change, move, copy, link or remove what is not in its space: every verb that changes something, by
//! every way out. What lies outside is looked at before and after: content, names, permissions, links and the time of the last change.

use std::fs::{create_dir, create_dir_all, hard_link, write};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use eirene_files_protocol::{
    AclEntry, Answer, Code, CreateUpload, ListOld, Moment, OldFile, OnConflict, Outcome, Part, PermissionChange,
    Rights, Share, TrashId, Verb, Version, Which, Who, WriteUpload,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::ask::{
    PART_NAME, compare, copy, delete, empty_trash, extract, find_unfinished, look_at_permissions, make, move_to, part,
    permissions, put_in_trash, restore, scan, search, upload, write_upload,
};
use crate::bench::{Ends, Heard, PERSON, SECRET_NAME, SPACE, Way, World, is_root, list, relative, sum_up, zip};
use crate::escape::{with_mounts, with_mounts_at};
use crate::old::{remove_old, set_times, version};

/// A verb, and how it is asked of a path.
type Attempt = (&'static str, fn(&[u8]) -> Verb);

/// Every verb that changes something, at every place that it takes a path. `own` is a harmless file of the space.
const VERBS: [Attempt; 32] = [
    ("make_directory", |path| make(path, false)),
    ("make_directory with parents", |path| make(path, true)),
    ("move from", |path| move_to(path, b"moved", OnConflict::Refuse)),
    ("move to, keeping both", |path| move_to(b"own", path, OnConflict::KeepBoth)),
    ("move to, replacing", |path| move_to(b"own", path, OnConflict::Replace)),
    ("copy from", |path| copy(path, b"copied", OnConflict::Refuse)),
    ("copy to", |path| copy(b"own", path, OnConflict::KeepBoth)),
    ("copy to, replacing", |path| copy(b"own", path, OnConflict::Replace)),
    ("compare", |path| compare(path, b"own")),
    ("compare with", |path| compare(b"own", path)),
    ("extract from", |path| extract(path, b"extracted", OnConflict::Refuse)),
    ("extract to", |path| extract(b"own.tar", path, OnConflict::KeepBoth)),
    ("extract to, replacing", |path| extract(b"own.tar", path, OnConflict::Replace)),
    ("trash", put_in_trash),
    ("restore to", |path| restore(TRASHED, Some(path), OnConflict::KeepBoth)),
    ("restore to, replacing", |path| restore(TRASHED, Some(path), OnConflict::Replace)),
    ("delete", delete),
    ("upload to", |path| Verb::CreateUpload(upload(path, None, OnConflict::KeepBoth))),
    ("upload to, making directories", |path| {
        Verb::CreateUpload(CreateUpload { parents: true, ..upload(path, Some(1), OnConflict::Replace) })
    }),
    ("write to an upload in", |path| {
        // Nothing is waited for.
        let part = upload(path, None, OnConflict::Refuse).part;
        Verb::WriteUpload(WriteUpload { part, bytes: Some(0), ..write_upload(b"", 0) })
    }),
    ("look at an upload in", |path| Verb::LookAtUpload(upload(path, None, OnConflict::Refuse).part)),
    ("finish an upload in", |path| Verb::FinishUpload(upload(path, None, OnConflict::Refuse).part)),
    ("look at permissions of", look_at_permissions),
    ("set permissions of", |path| permissions(path, PermissionChange::Mode(0), false)),
    ("set permissions below", |path| permissions(path, PermissionChange::Share(Share::Private), true)),
    ("set a list of", |path| {
        permissions(path, PermissionChange::Acl { access: everybody(), default: everybody() }, true)
    }),
    ("search", |path| Verb::Search(search(path, ""))),
    ("scan", |path| Verb::Scan(scan(path))),
    ("find an upload below", find_unfinished),
    ("list what is old in", list_old),
    ("remove as old", remove_as_old),
    ("remove a part in", |path| Verb::RemovePart(upload(path, None, OnConflict::Refuse).part)),
];

/// What everything is older than.
const LATER: i64 = 1 << 40;

fn list_old(path: &[u8]) -> Verb {
    Verb::ListOld(ListOld { space: SPACE, path: relative(path), before: LATER, now: LATER })
}

/// Of a file that was never there; [`as_it_lies`] says which one it is.
fn remove_as_old(path: &[u8]) -> Verb {
    let never = Moment { seconds: 0, nanoseconds: 0 };
    let version = Version { device: 0, inode: 0, bytes: 0, modified: never, changed: never };
    remove_old(&[OldFile { path: relative(path), version }], LATER, LATER)
}

/// The verb, which takes what it removes as old for the very file that lies there: nothing but the walls is in its way.
fn as_it_lies(verb: Verb, there: &Path) -> Verb {
    match verb {
        Verb::RemoveOld(mut wanted) => {
            wanted.files.iter_mut().for_each(|file| file.version = version(there));
            Verb::RemoveOld(wanted)
        }
        other => other,
    }
}

/// Whether it was refused for this. Of what is not removed as old only the number is said.
fn is_refused(heard: &Heard, why: Code) -> bool {
    match &heard.outcome {
        Outcome::Done(Answer::RemovedOld(said)) => said.walked.entries == 0 && said.gone == 0,
        _ => heard.code() == Some(why),
    }
}

/// A list that gives everything to everybody.
fn everybody() -> Vec<AclEntry> {
    let line = |who| AclEntry { who, may: Rights::from_bits(7) };
    [Who::Owner, Who::User(1), Who::OwningGroup, Who::Other].map(line).into()
}

/// Something that lies in the trash of each of these worlds.
const TRASHED: TrashId = TrashId([0x11; 16]);

/// A space with a file `own` and something in the trash.
fn world(way: Way) -> World {
    let world = World::new();
    write(world.at("own"), "own").unwrap();
    // A tar with nothing in it.
    write(world.at("own.tar"), [0; 1024]).unwrap();
    let uid = if is_root() && way == Way::Program { PERSON } else { rustix::process::geteuid().as_raw() };
    let trash = world.at(".eirene-trash").join(uid.to_string());
    create_dir_all(trash.join("files")).unwrap();
    create_dir_all(trash.join("info")).unwrap();
    write(trash.join("files").join(TRASHED.to_string()), "deleted").unwrap();
    write(world.path("outside").join("more"), "more").unwrap();
    create_dir(world.path("outside").join("empty")).unwrap();
    // Nothing but the walls is in the way.
    for (path, mode) in [("outside", 0o777), ("outside/empty", 0o777), ("outside/more", 0o666)] {
        std::fs::set_permissions(world.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(world.secret(), std::fs::Permissions::from_mode(0o666)).unwrap();
    world
}

#[test]
fn no_verb_goes_through_a_link_that_leaves() {
    for way in Way::BOTH {
        for (what, verb) in VERBS {
            let world = world(way);
            let outside = world.path("outside");
            let targets = [
                outside.to_str().unwrap().to_owned(),
                "../outside".to_owned(),
                "../space/../outside".to_owned(),
                format!("/proc/self/root{}", outside.display()),
            ];
            for (number, target) in targets.iter().enumerate() {
                symlink(target, world.at(format!("link{number}"))).unwrap();
            }
            symlink(world.secret(), world.at("file")).unwrap();
            world.hand_over(way);
            let before = world.outside();
            let mut portal = world.portal(way);
            for number in 0..targets.len() {
                for below in [SECRET_NAME, "more", "empty", "new", "empty/new"] {
                    let verb = as_it_lies(verb(format!("link{number}/{below}").as_bytes()), &world.secret());
                    let heard = portal.ask(verb);
                    heard.assert_innocent(what);
                    assert!(is_refused(&heard, Code::LeadsOut), "{way:?} {what} {below}: {:?}", heard.outcome);
                }
            }
            let heard = portal.ask(as_it_lies(verb(b"file/new"), &world.secret()));
            let refused = [Code::LeadsOut, Code::NotADirectory].into_iter().any(|why| is_refused(&heard, why));
            assert!(refused, "{way:?} {what}: {:?}", heard.outcome);
            // The link itself is the person's to move and to delete, with what it leads to left alone.
            for link in ["file", "link0", "link1"] {
                portal.ask(as_it_lies(verb(link.as_bytes()), &world.secret())).assert_innocent(what);
                let _ = std::fs::remove_file(world.at("moved"));
            }
            assert_eq!(world.outside(), before, "{way:?} {what}");
        }
    }
}

#[test]
fn no_verb_reaches_what_is_reserved() {
    for way in Way::BOTH {
        for (what, verb) in VERBS {
            let world = world(way);
            create_dir_all(world.at(".eirene/sessions")).unwrap();
            write(world.at(".eirene/sessions/secret"), "job's own").unwrap();
            create_dir(world.at("deep")).unwrap();
            symlink("../.eirene", world.at("deep/in")).unwrap();
            symlink("..", world.at("deep/up")).unwrap();
            world.hand_over(way);
            let mut portal = world.portal(way);
            for path in [
                ".eirene",
                ".eirene/sessions/secret",
                ".eirene/new",
                "deep/in/new",
                "deep/in/sessions",
                "deep/up/.eirene",
                "deep/up/.eirene/new",
                ".eirene-trash",
                ".eirene-trash/new",
                "deep/up/.eirene-trash/new",
            ] {
                let secret = world.at(".eirene/sessions/secret");
                let heard = portal.ask(as_it_lies(verb(path.as_bytes()), &secret));
                // These name a directory and an id only.
                let beside = what.ends_with(" in") && !path.trim_start_matches("deep/up/").contains('/');
                assert!(is_refused(&heard, Code::Reserved) || beside, "{way:?} {what} {path}: {:?}", heard.outcome);
            }
            assert_eq!(std::fs::read_to_string(world.at(".eirene/sessions/secret")).unwrap(), "job's own");
            assert_eq!(std::fs::read_dir(world.at(".eirene")).unwrap().count(), 1);
        }
    }
}

#[test]
fn what_a_verb_walks_through_is_never_left_by_a_link() {
    for way in Way::BOTH {
        let world = world(way);
        create_dir_all(world.at("tree/sub")).unwrap();
        symlink(world.path("outside"), world.at("tree/link")).unwrap();
        symlink("../../../outside", world.at("tree/sub/link")).unwrap();
        symlink(world.secret(), world.at("tree/sub/file")).unwrap();
        world.hand_over(way);
        let before = world.outside();
        let mut portal = world.portal(way);
        let copied = portal.ask(copy(b"tree", b"copied", OnConflict::Refuse));
        copied.assert_innocent("copy");
        assert_eq!(copied.walked().bytes, 0, "nothing of what the links lead to is counted");
        assert!(world.at("copied/link").is_symlink() && world.at("copied/sub/file").is_symlink());
        assert_eq!(portal.ask(permissions(b"copied", PermissionChange::Mode(0o700), true)).walked().entries, 2);
        let heard = portal.ask(permissions(b"copied", PermissionChange::Share(Share::GroupWrites), true));
        assert_eq!(heard.walked().entries, 2, "directories only: links have no permissions");
        let found = portal.ask(Verb::Search(search(b"tree", "")));
        found.assert_innocent("search");
        assert_eq!(found.walked().entries, 4);
        let scanned = portal.ask(Verb::Scan(scan(b"tree")));
        scanned.assert_innocent("scan");
        assert_eq!(scanned.walked().entries, 4);
        assert_eq!(portal.ask(delete(b"copied")).walked().entries, 5);
        portal.trash(b"tree");
        portal.ask(empty_trash(Which::Before(u64::MAX))).done();
        assert_eq!(world.outside(), before, "{way:?}");
    }
}

#[test]
fn a_link_swapped_in_while_anything_is_changed_leads_nowhere() {
    for way in Way::BOTH {
        let world = world(way);
        create_dir(world.at("place")).unwrap();
        symlink("../outside", world.at("link")).unwrap();
        write(world.at("place/file"), "harmless").unwrap();
        world.hand_over(way);
        let before = world.outside();
        let mut portal = world.portal(way);
        let (place, link) = (world.at("place"), world.at("link"));
        let over = AtomicBool::new(false);
        let (mut inside, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &place, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let _ends = Ends(&over);
            let secret = format!("place/{SECRET_NAME}");
            let mut rounds = 0;
            while rounds < 150 || inside < 100 || refused < 100 {
                rounds += 1;
                assert!(rounds < 20_000, "{way:?}: the race was not met: {inside} {refused}");
                let new = format!("place/new{rounds}");
                write(world.at("again"), "again").unwrap();
                let again = portal.trash(b"again");
                let old = portal.ask(as_it_lies(remove_as_old(secret.as_bytes()), &world.secret())).done();
                let none_went = matches!(&old, Answer::RemovedOld(said) if said.walked.entries == 0);
                assert!(none_went, "{way:?}: {old:?}");
                for verb in [
                    make(new.as_bytes(), false),
                    make(format!("place/deep{rounds}/er").as_bytes(), true),
                    move_to(b"own", b"place/own", OnConflict::Replace),
                    move_to(b"place/own", b"own", OnConflict::Replace),
                    copy(b"own", format!("{new}-copy").as_bytes(), OnConflict::Refuse),
                    copy(secret.as_bytes(), b"stolen", OnConflict::Refuse),
                    move_to(secret.as_bytes(), b"stolen", OnConflict::Refuse),
                    put_in_trash(secret.as_bytes()),
                    delete(secret.as_bytes()),
                    delete(b"place/more"),
                    delete(b"place/empty"),
                    Verb::CreateUpload(upload(b"place/up", None, OnConflict::Replace)),
                    Verb::WriteUpload(write_upload(b"place", 0)),
                    Verb::LookAtUpload(part(b"place")),
                    Verb::FinishUpload(part(b"place")),
                    Verb::RemovePart(part(b"place")),
                    extract(b"own.tar", format!("{new}-extracted").as_bytes(), OnConflict::Refuse),
                    restore(again, Some(format!("{new}-restored").as_bytes()), OnConflict::Refuse),
                    permissions(
                        b"place/empty",
                        PermissionChange::Acl { access: everybody(), default: everybody() },
                        true,
                    ),
                    permissions(secret.as_bytes(), PermissionChange::Mode(0o777), false),
                    permissions(b"place/empty", PermissionChange::Share(Share::Private), true),
                    Verb::Search(search(b"place", "")),
                    Verb::Scan(scan(b"place")),
                ] {
                    let what = format!("{verb:?}");
                    let heard = match verb {
                        Verb::WriteUpload(wanted) => portal.send(wanted, b"bytes"),
                        other => portal.ask(other),
                    };
                    heard.assert_innocent(&what);
                    match heard.code() {
                        None => inside += 1,
                        Some(Code::LeadsOut) => refused += 1,
                        Some(
                            Code::NotFound
                            | Code::Busy
                            | Code::Exists
                            | Code::NotADirectory
                            | Code::UploadGone
                            | Code::OffsetDiffers,
                        ) => {}
                        Some(other) => panic!("{what}: {other:?}"),
                    }
                }
            }
        });
        assert_eq!(world.outside(), before, "{way:?}");
        assert!(!world.at("stolen").exists());
    }
}

/// A verb that is asked of what gives way to a link out, and what is said of it where nothing is read but what belongs to the space.
type Reading = (&'static str, Verb, fn(&Heard) -> bool);

fn is_the_same(heard: &Heard) -> bool {
    matches!(&heard.outcome, Outcome::Done(Answer::Compared(walked)) if walked.skipped_in_all == 0)
}

#[test]
fn a_link_swapped_in_while_anything_is_looked_at_leads_nowhere() {
    for way in Way::BOTH {
        let world = world(way);
        for directory in ["place", "alike"] {
            create_dir_all(world.at(directory).join("empty")).unwrap();
            write(world.at(directory).join(SECRET_NAME), "harmless").unwrap();
            set_times(&world.at(directory).join(SECRET_NAME), 1_000_000_000, 1_000_000_000);
        }
        for name in ["more".to_owned(), PART_NAME.to_owned(), format!("{PART_NAME}.json")] {
            write(world.path("outside").join("empty").join(name), "not the space's").unwrap();
        }
        symlink("../outside", world.at("link")).unwrap();
        world.hand_over(way);
        let before = world.outside();
        let mut portal = world.portal(way);
        let (path, alike) = (format!("place/{SECRET_NAME}"), format!("alike/{SECRET_NAME}"));
        let list_of_all = PermissionChange::Acl { access: everybody(), default: Vec::new() };
        let readings: [Reading; 9] = [
            (
                "list",
                Verb::List(list(b"place")),
                |heard| matches!(heard.parts.as_slice(), [Part::Entries(entries)] if entries.len() == 2),
            ),
            (
                "list what is old",
                list_old(b"place"),
                |heard| matches!(heard.parts.as_slice(), [Part::Old(files)] if files.len() == 1 && files[0].version.bytes == 8),
            ),
            ("find an upload", find_unfinished(b"place/empty"), |heard| {
                matches!(&heard.outcome, Outcome::Done(Answer::FoundUnfinished { directory: None }))
            }),
            (
                "sum up",
                sum_up(path.as_bytes()),
                |heard| matches!(&heard.outcome, Outcome::Done(Answer::Summed { version, .. }) if version.bytes == 8),
            ),
            ("zip", zip(b"place"), |heard| !heard.stream.windows(4).any(|bytes| bytes == b"more")),
            ("compare", compare(path.as_bytes(), alike.as_bytes()), is_the_same),
            ("compare with", compare(alike.as_bytes(), path.as_bytes()), is_the_same),
            ("compare a directory", compare(b"place/empty", b"alike/empty"), is_the_same),
            ("set a list", permissions(path.as_bytes(), list_of_all, false), |_| true),
        ];
        let mut met = [(0_u32, 0_u32); 9];
        let (place, link) = (world.at("place"), world.at("link"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &place, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let _ends = Ends(&over);
            let mut rounds = 0;
            // Both must have been met by each, or nothing was tried.
            while rounds < 200 || met.iter().any(|(inside, refused)| *inside == 0 || *refused == 0) {
                rounds += 1;
                assert!(rounds < 20_000, "{way:?}: the race was not met: {met:?}");
                for ((what, verb, is_of_the_space), (inside, refused)) in readings.iter().zip(&mut met) {
                    let heard = portal.ask(verb.clone());
                    match heard.code() {
                        None => {
                            assert!(is_of_the_space(&heard), "{way:?} {what}: {:?} {:?}", heard.parts, heard.outcome);
                            *inside += 1;
                        }
                        Some(Code::LeadsOut | Code::Busy) => *refused += 1,
                        Some(other) => panic!("{way:?} {what}: {other:?}"),
                    }
                }
            }
        });
        assert_eq!(world.outside(), before, "{way:?}");
    }
}

#[test]
fn a_directory_swapped_while_it_is_walked_is_left_alone() {
    for way in Way::BOTH {
        let world = world(way);
        symlink("../../outside", world.at("link")).unwrap();
        let tree = |name: &str| {
            for number in 0..20 {
                create_dir_all(world.at(format!("{name}/{number}"))).unwrap();
                for file in ["more", SECRET_NAME, "empty"] {
                    write(world.at(format!("{name}/{number}/{file}")), "harmless").unwrap();
                }
            }
        };
        tree("source");
        world.hand_over(way);
        let before = world.outside();
        let mut portal = world.portal(way);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Each in turn: a link to the outside where a directory was, and the directory somewhere else.
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    for name in ["source", "copied"] {
                        let directory = world.at(format!("{name}/{}", number % 20));
                        let _ = renameat_with(CWD, &directory, CWD, world.at("link"), RenameFlags::EXCHANGE);
                        let _ = renameat_with(CWD, &directory, CWD, world.at("link"), RenameFlags::EXCHANGE);
                    }
                    number += 1;
                }
            });
            let _ends = Ends(&over);
            for _ in 0..15 {
                let heard = portal.ask(copy(b"source", b"copied", OnConflict::Refuse));
                heard.assert_innocent("copy");
                for verb in [
                    permissions(b"copied", PermissionChange::Mode(0o711), true),
                    Verb::Scan(scan(b"source")),
                    delete(b"copied"),
                ] {
                    let what = format!("{verb:?}");
                    portal.ask(verb).assert_innocent(&what);
                }
                // What it finds in its own tree is called so, too.
                assert_eq!(portal.ask(Verb::Search(search(b"source", "no such name"))).parts, []);
                portal.ask(delete(b"copied"));
            }
        });
        assert_eq!(world.outside(), before, "{way:?}");
    }
}

#[test]
fn a_mount_is_not_changed_by_any_verb() {
    for (what, verb) in VERBS {
        let world = world(Way::Program);
        for name in ["bound", "empty", "around"] {
            create_dir(world.at(name)).unwrap();
        }
        write(world.at("file"), "covered").unwrap();
        world.hand_over(Way::Program);
        let before = world.outside();
        let mut portal = world.portal_with(with_mounts(&world));
        for path in [format!("bound/{SECRET_NAME}"), "bound/new".to_owned(), "empty/new".to_owned()] {
            let heard = portal.ask(as_it_lies(verb(path.as_bytes()), &world.secret()));
            assert!(is_refused(&heard, Code::CrossesAMount), "{what} {path}: {:?}", heard.outcome);
        }
        for path in ["bound", "file", "empty"] {
            portal.ask(as_it_lies(verb(path.as_bytes()), &world.secret())).assert_innocent(what);
        }
        assert_eq!(world.outside(), before, "{what}");
    }
}

#[test]
fn a_walk_stops_at_a_mount() {
    let world = world(Way::Program);
    create_dir_all(world.at("tree/bound")).unwrap();
    for name in ["bound", "empty"] {
        create_dir(world.at(name)).unwrap();
    }
    write(world.at("file"), "covered").unwrap();
    world.hand_over(Way::Program);
    let before = world.outside();
    let mut portal = world.portal_with(with_mounts_at(&world, "tree/bound"));
    let walked = portal.ask(copy(b"tree", b"copied", OnConflict::Refuse)).walked();
    assert_eq!((walked.entries, walked.skipped_in_all, walked.skipped[0].why), (1, 1, Code::CrossesAMount));
    let walked = portal.ask(delete(b"tree")).walked();
    assert_eq!((walked.entries, walked.skipped[0].why), (0, Code::CrossesAMount));
    assert!(world.at("tree/bound").is_dir());
    assert_eq!(world.outside(), before);
}

#[test]
fn another_persons_file_under_a_name_of_ones_own_stays_as_it_is() {
    let world = world(Way::Program);
    world.hand_over(Way::Program);
    std::fs::set_permissions(world.secret(), std::fs::Permissions::from_mode(0o600)).unwrap();
    hard_link(world.secret(), world.at("linked")).unwrap();
    let mut portal = world.portal(Way::Program);
    if is_root() {
        assert_eq!(portal.code(copy(b"linked", b"copied", OnConflict::Refuse)), Some(Code::Forbidden));
        assert!(!world.at("copied").exists());
    }
    portal.ask(move_to(b"linked", b"moved", OnConflict::Refuse)).assert_innocent("move");
    portal.ask(delete(b"moved")).assert_innocent("delete");
    assert_eq!(std::fs::read_to_string(world.secret()).unwrap(), crate::bench::SECRET);
    let found = std::fs::metadata(world.secret()).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&found) & 0o7777, 0o600);
}
