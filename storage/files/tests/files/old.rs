//! Old files: what goes is old by all its times, and nothing outside is ever touched.

use std::collections::BTreeMap;
use std::fs::{Permissions, create_dir_all, hard_link, rename, write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use eirene_files_protocol::{
    Answer, Code, ListOld, ListedOld, MOST_REMOVED_OLD, Moment, OldFile, OldOfOther, Outcome, Part, RelativePath,
    RemoveOld, RemovedOld, Verb, Version,
};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::bench::{Heard, Portal, SECRET_NAME, SPACE, Way, World, is_root, relative};

/// Nobody can set when attributes last changed: what is old here is so in a while.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

/// Waits until the clock of the file system has moved on: it tells times of changes apart that lie a tick apart.
fn wait_for_tick(probe: &Path) {
    let changed = || {
        write(probe, "").unwrap();
        let metadata = probe.metadata().unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let before = changed();
    while changed() == before {}
}

/// Sets both times that can be set, of a link its own.
pub(crate) fn set_times(path: &Path, modified: i64, accessed: i64) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn list_old(path: &[u8], before: i64, now: i64) -> Verb {
    Verb::ListOld(ListOld { space: SPACE, path: relative(path), before, now })
}

pub(crate) fn remove_old(files: &[OldFile], before: i64, now: i64) -> Verb {
    Verb::RemoveOld(RemoveOld { space: SPACE, before, now, files: files.to_vec() })
}

/// What is listed, and what is said of it.
pub(crate) fn listed(portal: &mut Portal, path: &[u8], before: i64, now: i64) -> (Vec<OldFile>, ListedOld) {
    let Heard { parts, outcome, .. } = portal.ask(list_old(path, before, now));
    let files = parts.into_iter().flat_map(|part| match part {
        Part::Old(files) => files,
        other => panic!("{other:?}"),
    });
    match outcome {
        Outcome::Done(Answer::ListedOld(said)) => (files.collect(), said),
        other => panic!("{other:?}"),
    }
}

fn removed(portal: &mut Portal, files: &[OldFile], before: i64, now: i64) -> RemovedOld {
    match portal.ask(remove_old(files, before, now)).done() {
        Answer::RemovedOld(said) => said,
        other => panic!("{other:?}"),
    }
}

/// Which content a file has now.
pub(crate) fn version(path: &Path) -> Version {
    let found = std::fs::metadata(path).unwrap();
    let moment = |seconds, nanoseconds: i64| Moment { seconds, nanoseconds: nanoseconds.try_into().unwrap() };
    Version {
        device: found.dev(),
        inode: found.ino(),
        bytes: found.size(),
        modified: moment(found.mtime(), found.mtime_nsec()),
        changed: moment(found.ctime(), found.ctime_nsec()),
    }
}

fn paths(files: &[OldFile]) -> Vec<RelativePath> {
    let mut paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    paths.sort();
    paths
}

#[test]
fn what_nobody_touched_is_listed_and_goes_for_good() {
    let world = World::new();
    create_dir_all(world.at("data/old/deep")).unwrap();
    let (begin, later) = (now(), now() + 100_000);
    let before = begin + 50_000;
    let files = [
        ("data/old/deep/file", begin - 1000, begin - 1000),
        ("data/old/read-lately", begin - 1000, before + 1),
        ("data/old/written-lately", before + 1, begin - 1000),
        ("data/of-the-future", later + 1, begin - 1000),
        ("data/of-the-past", 1_000, begin - 1000),
        ("data/file", begin - 1000, begin - 1000),
    ];
    for (path, modified, accessed) in files {
        write(world.at(path), "text").unwrap();
        set_times(&world.at(path), modified, accessed);
    }
    write(world.at("elsewhere"), "x").unwrap();
    symlink("file", world.at("data/link")).unwrap();
    let mut portal = world.portal(Way::Library);
    let (files, said) = listed(&mut portal, b"data", before, later);
    assert_eq!(paths(&files), [relative(b"data/file"), relative(b"data/old/deep/file")], "paths are below the space");
    assert_eq!((said.walked.entries, said.walked.bytes, said.saved, said.more), (2, 8, 2, false));
    assert!(world.at("data/file").exists(), "nothing is done yet");
    let done = removed(&mut portal, &files, before, later);
    assert_eq!((done.walked.entries, done.walked.bytes, done.kept, done.gone), (2, 8, 0, 0));
    assert!(world.at("data/old/deep").is_dir(), "directories stay");
    for path in ["data/of-the-past", "data/link", "elsewhere", "data/old/read-lately"] {
        assert!(world.at(path).symlink_metadata().is_ok(), "{path}");
    }
    assert_eq!(portal.trashed(), []);
    let again = removed(&mut portal, &files, before, later);
    assert_eq!((again.walked.entries, again.kept, again.gone), (0, 0, 2), "a list may be gone through again");
    assert_eq!(portal.code(list_old(b"data", later + 1, later)), Some(Code::Invalid));
    assert_eq!(portal.code(remove_old(&files, later + 1, later)), Some(Code::Invalid));
    let many = vec![files[0].clone(); MOST_REMOVED_OLD + 1];
    assert_eq!(portal.code(remove_old(&many, before, later)), Some(Code::Invalid));
}

#[test]
fn what_others_have_that_is_old_is_counted_and_stays_also_where_it_is_named() {
    // Only root gives files away.
    if !is_root() {
        return;
    }
    let world = World::new();
    let (before, later) = (now() + 50_000, now() + 100_000);
    for (path, uid) in [("own", None), ("first", Some(70_001)), ("second", Some(70_001)), ("third", Some(70_002))] {
        write(world.at(path), "text").unwrap();
        set_times(&world.at(path), before - 100, before - 100);
        chown(world.at(path), uid, None).unwrap();
    }
    write(world.at("young"), "text").unwrap();
    set_times(&world.at("young"), before + 1, before - 100);
    chown(world.at("young"), Some(70_002), None).unwrap();
    let mut portal = world.portal(Way::Library);
    let (files, said) = listed(&mut portal, b"", before, later);
    assert_eq!(paths(&files), [relative(b"own")]);
    let other = |uid, files, bytes| OldOfOther { uid, files, bytes };
    assert_eq!(said.others, [other(70_001, 2, 8), other(70_002, 1, 4)]);
    // Given away since it was listed, it is not theirs to lose any more.
    chown(world.at("own"), Some(70_001), None).unwrap();
    set_times(&world.at("own"), before - 100, before - 100);
    let named: Vec<OldFile> = ["own", "first"]
        .map(|path| OldFile { path: relative(path.as_bytes()), version: version(&world.at(path)) })
        .to_vec();
    let done = removed(&mut portal, &named, before, later);
    assert_eq!((done.walked.entries, done.kept), (0, 2));
    assert!(world.at("own").exists() && world.at("first").exists());
}

#[test]
fn what_is_not_what_was_listed_stays() {
    type Change = fn(&World, &Path);
    let changes: [(&str, Change); 9] = [
        ("written", |_, path| write(path, "other").unwrap()),
        ("appended to and set back", |_, path| {
            let times = std::fs::metadata(path).unwrap();
            write(path, "longer than it was").unwrap();
            set_times(path, times.mtime(), times.atime());
        }),
        ("touched", |_, path| set_times(path, now(), now())),
        ("made another's to read", |_, path| std::fs::set_permissions(path, Permissions::from_mode(0o604)).unwrap()),
        ("replaced", |world, path| {
            write(world.at("other"), "text").unwrap();
            rename(world.at("other"), path).unwrap();
        }),
        ("a link out by now", |world, path| {
            std::fs::remove_file(path).unwrap();
            symlink(world.secret(), path).unwrap();
        }),
        ("a directory by now", |_, path| {
            std::fs::remove_file(path).unwrap();
            create_dir_all(path).unwrap();
        }),
        ("below a link by now", |world, path| {
            rename(path.parent().unwrap(), world.at("moved")).unwrap();
            symlink("moved", path.parent().unwrap()).unwrap();
        }),
        ("given one more name", |world, path| hard_link(path, world.path("outside").join("second")).unwrap()),
    ];
    for (what, change) in changes {
        let world = World::new();
        create_dir_all(world.at("data")).unwrap();
        let path = world.at("data/file");
        write(&path, "text").unwrap();
        let (before, later) = (now() + 50_000, now() + 100_000);
        set_times(&path, before - 100, before - 100);
        let mut portal = world.portal(Way::Library);
        let (files, _) = listed(&mut portal, b"", before, later);
        assert_eq!(files.len(), 1, "{what}");
        wait_for_tick(&world.path("outside").join("probe"));
        change(&world, &path);
        let done = removed(&mut portal, &files, before, later);
        assert_eq!((done.walked.entries, done.kept, done.gone), (0, 1, 0), "{what}");
        assert!(path.symlink_metadata().is_ok(), "{what}");
        assert_eq!(portal.trashed(), [], "{what}");
    }
}

#[test]
fn a_space_without_a_trash_loses_its_old_files_too() {
    let world = World::new();
    create_dir_all(world.at("data")).unwrap();
    write(world.at(".eirene-trash"), "in the way").unwrap();
    let (before, later) = (now() + 50_000, now() + 100_000);
    for path in ["data/old", "data/changed"] {
        write(world.at(path), "text").unwrap();
        set_times(&world.at(path), before - 100, before - 100);
    }
    let mut portal = world.portal(Way::Library);
    let (files, _) = listed(&mut portal, b"", before, later);
    write(world.at("data/changed"), "other text").unwrap();
    let done = removed(&mut portal, &files, before, later);
    assert_eq!((done.walked.entries, done.kept, done.walked.skipped_in_all), (1, 1, 0));
    let left: Vec<_> = std::fs::read_dir(world.at("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["changed"]);
}

#[test]
fn a_file_with_other_names_loses_only_the_one_that_was_listed() {
    let world = World::new();
    let outside = world.path("outside").join("other-name");
    write(&outside, "kept").unwrap();
    hard_link(&outside, world.at("name")).unwrap();
    let (before, later) = (now() + 50_000, now() + 100_000);
    set_times(&outside, before - 100, before - 100);
    let mut portal = world.portal(Way::Library);
    let (files, _) = listed(&mut portal, b"", before, later);
    let done = removed(&mut portal, &files, before, later);
    assert_eq!((done.walked.entries, done.walked.bytes), (1, 0), "nothing is freed by that");
    assert!(!world.at("name").exists());
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept");
}

#[test]
fn what_could_not_be_removed_where_it_lies_is_not_listed_and_so_promised_to_nobody() {
    let world = World::new();
    create_dir_all(world.at("locked/open")).unwrap();
    let (before, later) = (now() + 50_000, now() + 100_000);
    for (path, off) in [("free", -100), ("locked/old", -100), ("locked/young", 100), ("locked/open/old", -100)] {
        write(world.at(path), "text").unwrap();
        set_times(&world.at(path), before + off, before + off);
    }
    world.hand_over(Way::Program);
    std::fs::set_permissions(world.at("locked"), Permissions::from_mode(0o555)).unwrap();
    let mut portal = world.portal(Way::Program);
    let (files, said) = listed(&mut portal, b"", before, later);
    assert_eq!(paths(&files), [relative(b"free"), relative(b"locked/open/old")]);
    assert_eq!((said.walked.entries, said.walked.skipped_in_all), (2, 1));
    assert_eq!((&said.walked.skipped[0].path, said.walked.skipped[0].why), (&relative(b"locked/old"), Code::Forbidden));
    let (files, said) = listed(&mut portal, b"locked", before, later);
    assert_eq!((paths(&files), said.walked.skipped_in_all), (vec![relative(b"locked/open/old")], 1), "at the top, too");
    std::fs::set_permissions(world.at("locked"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(listed(&mut portal, b"", before, later).0.len(), 3);
}

#[test]
fn no_list_reaches_what_is_reserved_or_leads_out() {
    let world = World::new();
    create_dir_all(world.at(".eirene/sessions")).unwrap();
    write(world.at(".eirene/sessions/secret"), "job's own").unwrap();
    write(world.at("file"), "x").unwrap();
    symlink(world.path("outside"), world.at("out")).unwrap();
    let (before, later) = (now() + 50_000, now() + 100_000);
    let mut portal = world.portal(Way::Library);
    let (files, said) = listed(&mut portal, b"", before, later);
    assert_eq!((paths(&files), said.walked.entries), (vec![relative(b"file")], 1));
    let outside = world.outside();
    for (path, kept, skipped) in [
        (&b".eirene/sessions/secret"[..], 0, 1),
        (b".eirene-trash/1/files/a", 0, 1),
        (b".eirene-upload-a", 0, 1),
        (b"out/more", 1, 0),
        (format!("out/{SECRET_NAME}").as_bytes(), 1, 0),
    ] {
        let file = OldFile { path: relative(path), version: files[0].version };
        let done = removed(&mut portal, &[file], before, later);
        assert_eq!((done.walked.entries, done.kept, done.walked.skipped_in_all), (0, kept, skipped), "{path:?}");
    }
    assert_eq!(world.outside(), outside);
    assert!(world.at(".eirene/sessions/secret").exists());
}

/// What a tree is made of; each lies in a directory that was made before.
#[derive(Debug, Clone)]
enum Made {
    Directory,
    File { modified: i64, accessed: i64 },
    SecondName,
    LinkOut(usize),
    LinkIn(usize),
}

fn made() -> impl Strategy<Value = Made> {
    // Either side of the line, at it, and where no time can be.
    let time = || prop_oneof![4 => Just(-100), 1 => Just(0), 2 => Just(100), 1 => Just(1_000_000), 1 => Just(i64::MIN)];
    prop_oneof![
        3 => Just(Made::Directory),
        6 => (time(), time()).prop_map(|(modified, accessed)| Made::File { modified, accessed }),
        1 => Just(Made::SecondName),
        2 => (0..4_usize).prop_map(Made::LinkOut),
        2 => any::<usize>().prop_map(Made::LinkIn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn purge_touches_nothing_outside_and_no_young_file(tree in prop::collection::vec((any::<prop::sample::Index>(), made()), 0..40)) {
        let world = World::new();
        let before = now() + 50_000;
        let latest = before + 10_000;
        let outside = [world.path("outside"), world.secret(), PathBuf::from("../outside"), PathBuf::from("../../outside")];
        write(world.path("outside").join("old"), "old").unwrap();
        for name in ["old", SECRET_NAME] {
            set_times(&world.path("outside").join(name), before - 100, before - 100);
        }
        let mut directories = vec![world.path("space")];
        let mut kept = BTreeMap::new();
        let mut twice = Vec::new();
        let mut expected = 0;
        for (number, (place, made)) in tree.iter().enumerate() {
            let path = place.get(&directories).join(format!("n{number}"));
            match made {
                Made::Directory => {
                    create_dir_all(&path).unwrap();
                    directories.push(path);
                }
                Made::File { modified, accessed } => {
                    write(&path, format!("{number}")).unwrap();
                    let time = |off: i64| if off == i64::MIN { 1_000 } else { before + off };
                    set_times(&path, time(*modified), time(*accessed));
                    if *modified == -100 && *accessed == -100 {
                        expected += 1;
                    } else {
                        kept.insert(path, number);
                    }
                }
                Made::SecondName => {
                    // Of a file that is old by its times.
                    write(&path, format!("{number}")).unwrap();
                    set_times(&path, before - 100, before - 100);
                    let second = path.with_extension("second");
                    hard_link(&path, &second).unwrap();
                    twice.push((path, second));
                }
                Made::LinkOut(which) => symlink(&outside[*which], &path).unwrap(),
                Made::LinkIn(which) => symlink(&directories[which % directories.len()], &path).unwrap(),
            }
        }
        let links = tree.iter().filter(|(_, made)| matches!(made, Made::LinkOut(_) | Made::LinkIn(_))).count();
        let before_it = world.outside();
        let mut portal = world.portal(Way::Library);
        let (files, said) = listed(&mut portal, b"", before, latest);
        let (mut gone, mut saved) = (0, 0);
        for some in files.chunks(MOST_REMOVED_OLD) {
            let done = removed(&mut portal, some, before, latest);
            gone += done.walked.entries;
            saved += done.kept;
        }
        prop_assert_eq!(world.outside(), before_it);
        let names = 2 * twice.len() as u64;
        prop_assert_eq!((said.walked.entries, files.len() as u64), (expected + names, expected + names));
        // To lose a name is a change: the other stays until it is old again.
        prop_assert_eq!((gone, saved), (expected + names / 2, names / 2));
        prop_assert_eq!(portal.trashed(), []);
        for (one, other) in twice {
            prop_assert!(one.exists() != other.exists(), "{}", one.display());
        }
        for (path, number) in kept {
            prop_assert_eq!(std::fs::read_to_string(&path).unwrap(), number.to_string(), "{}", path.display());
        }
        let mut left = vec![world.path("space")];
        let mut links_now = 0;
        while let Some(path) = left.pop() {
            for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
                let kind = entry.file_type().unwrap();
                links_now += usize::from(kind.is_symlink());
                if kind.is_dir() && entry.file_name() != ".eirene-trash" {
                    left.push(entry.path());
                }
            }
        }
        prop_assert_eq!(links_now, links);
    }
}
