//! Old files: what goes is old by all its times, and nothing outside is ever touched.

use std::collections::BTreeMap;
use std::fs::{create_dir_all, hard_link, write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use eirene_files_protocol::{Answer, Code, OnConflict, Part, TrashOld, TrashedOld, Verb};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::ask::restore;
use crate::bench::{Heard, SECRET_NAME, SPACE, Way, World, relative};

/// Nobody can set when attributes last changed: what is old here is so in a while.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

/// Sets both times that can be set, of a link its own.
pub(crate) fn set_times(path: &Path, modified: i64, accessed: i64) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn old(path: &[u8], before: i64, now: i64, act: bool) -> Verb {
    Verb::TrashOld(TrashOld { space: SPACE, path: relative(path), before, now, act })
}

fn trashed_old(heard: Heard) -> TrashedOld {
    match heard.done() {
        Answer::TrashedOld(old) => old,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_nobody_touched_goes_to_the_trash_and_comes_back() {
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
    write(world.at("data/two-names"), "x").unwrap();
    hard_link(world.at("data/two-names"), world.at("data/second")).unwrap();
    symlink("two-names", world.at("data/link")).unwrap();
    let mut portal = world.portal(Way::Library);
    let heard = portal.ask(old(b"data", before, later, false));
    let Some(Part::Found(found)) = heard.parts.first() else { panic!("two are old") };
    let mut names: Vec<_> = found.iter().map(|found| found.path.clone()).collect();
    names.sort();
    assert_eq!(names, [relative(b"file"), relative(b"old/deep/file")]);
    let said = trashed_old(heard);
    assert_eq!((said.walked.entries, said.walked.bytes, said.saved, said.directories), (2, 8, 2, 0));
    assert_eq!(portal.trashed(), [], "nothing is done yet");
    let done = trashed_old(portal.ask(old(b"data", before, later, true)));
    assert_eq!((done.walked, done.saved, done.directories), (said.walked, 2, 1));
    assert!(!world.at("data/old/deep").exists() && world.at("data/old").exists());
    for path in ["data/of-the-past", "data/link", "data/second", "elsewhere", "data/old/read-lately"] {
        assert!(world.at(path).symlink_metadata().is_ok(), "{path}");
    }
    let trashed = portal.trashed();
    assert_eq!(trashed.len(), 2);
    let file = trashed.iter().find(|one| one.origin == Some(relative(b"data/file"))).unwrap();
    portal.ask(restore(file.id, None, OnConflict::Refuse)).done();
    assert_eq!(std::fs::read_to_string(world.at("data/file")).unwrap(), "text");
    assert_eq!(portal.code(old(b"data", later + 1, later, true)), Some(Code::Invalid));
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
                    kept.insert(path, number);
                    kept.insert(second, number);
                }
                Made::LinkOut(which) => symlink(&outside[*which], &path).unwrap(),
                Made::LinkIn(which) => symlink(&directories[which % directories.len()], &path).unwrap(),
            }
        }
        let links = tree.iter().filter(|(_, made)| matches!(made, Made::LinkOut(_) | Made::LinkIn(_))).count();
        let before_it = world.outside();
        let mut portal = world.portal(Way::Library);
        let dry = trashed_old(portal.ask(old(b"", before, latest, false)));
        let done = trashed_old(portal.ask(old(b"", before, latest, true)));
        prop_assert_eq!(world.outside(), before_it);
        prop_assert_eq!((dry.walked.entries, done.walked.entries), (expected, expected));
        prop_assert_eq!(portal.trashed().len() as u64, expected);
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
