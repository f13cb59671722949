//! Purging, by every verb that does it (old files, deleting for good, emptying the trash) and by the program that the launcher starts in a space
//! whose time is over. Over trees made at random, of files, hard links, links in and out, pipes and mounts, and while somebody exchanges their
//! directories for links. `old.rs` says which files are old.

use std::collections::BTreeMap;
use std::fs::{create_dir, create_dir_all, hard_link, write};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use eirene_files_protocol::{MOST_REMOVED_OLD, Which};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::ask::{delete, empty_trash};
use crate::bench::{Ends, Portal, SECRET, Way, World, program};
use crate::escape::with_mounts_at;
use crate::old::{listed, now, remove_old, set_times};

/// How something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purge {
    Old,
    Delete,
    EmptyTrash,
}

/// What a tree is made of; each lies in a directory that was made before.
#[derive(Debug, Clone)]
enum Made {
    Directory,
    Old,
    Young,
    /// Another name of a file that lies outside.
    NameOfOutside,
    Pipe,
    LinkOut(usize),
    LinkIn(usize),
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        5 => Just(Made::Directory),
        4 => Just(Made::Old),
        3 => Just(Made::Young),
        1 => Just(Made::NameOfOutside),
        1 => Just(Made::Pipe),
        3 => (0..5_usize).prop_map(Made::LinkOut),
        2 => any::<usize>().prop_map(Made::LinkIn),
    ]
}

fn tree() -> impl Strategy<Value = Vec<(prop::sample::Index, Made)>> {
    prop::collection::vec((any::<prop::sample::Index>(), made()), 1..40)
}

fn purge() -> impl Strategy<Value = Purge> {
    prop_oneof![Just(Purge::Old), Just(Purge::Delete), Just(Purge::EmptyTrash)]
}

/// A tree, `space/tree`, in a world whose outside is old by all its times, and may be changed by anybody.
struct Planted {
    world: World,
    before: i64,
    directories: Vec<PathBuf>,
    young: BTreeMap<PathBuf, String>,
}

impl Planted {
    fn new(made: &[(prop::sample::Index, Made)]) -> Self {
        let world = World::new();
        let before = now() + 50_000;
        let outside = world.path("outside");
        create_dir(outside.join("deep")).unwrap();
        for name in ["deep/file", "old", "shared"] {
            write(outside.join(name), SECRET).unwrap();
        }
        for (name, mode) in [("", 0o777), ("deep", 0o777), ("deep/file", 0o666), ("old", 0o666), ("shared", 0o666)] {
            std::fs::set_permissions(outside.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        for name in ["deep/file", "old", "shared"] {
            set_times(&outside.join(name), before - 100, before - 100);
        }
        let targets = [
            outside.clone(),
            outside.join("old"),
            PathBuf::from("../../outside"),
            PathBuf::from("../../../outside/deep"),
            Path::new("/proc/self/root").join(outside.strip_prefix("/").unwrap()),
        ];
        create_dir_all(world.at("tree/bound")).unwrap();
        create_dir(world.at("empty")).unwrap();
        write(world.at("file"), "covered").unwrap();
        let mut directories = vec![world.at("tree")];
        let mut young = BTreeMap::new();
        for (number, (place, made)) in made.iter().enumerate() {
            let path = place.get(&directories).join(format!("n{number}"));
            match made {
                Made::Directory => {
                    create_dir(&path).unwrap();
                    directories.push(path);
                }
                Made::Old => {
                    write(&path, "old").unwrap();
                    set_times(&path, before - 100, before - 100);
                }
                Made::Young => {
                    write(&path, format!("young {number}")).unwrap();
                    set_times(&path, before + 100, before - 100);
                    young.insert(path, format!("young {number}"));
                }
                Made::NameOfOutside => hard_link(outside.join("shared"), &path).unwrap(),
                Made::Pipe => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                Made::LinkOut(which) => symlink(&targets[*which], &path).unwrap(),
                Made::LinkIn(which) => symlink(&directories[which % directories.len()], &path).unwrap(),
            }
        }
        Self { world, before, directories, young }
    }

    /// All that lies outside; of the file that has names in the tree only what no unlink changes.
    fn outside(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u64, i64, i64)> {
        let mut found = self.world.outside();
        if let Some(shared) = found.get_mut(&self.world.path("outside").join("shared")) {
            (shared.2, shared.3, shared.4) = (0, 0, 0);
        }
        found
    }

    fn purge(&self, portal: &mut Portal, purge: Purge) {
        let heard = match purge {
            Purge::Old => {
                let (before, now) = (self.before, self.before + 10_000);
                let (files, _) = listed(portal, b"tree", before, now);
                for some in files.chunks(MOST_REMOVED_OLD) {
                    portal.ask(remove_old(some, before, now)).assert_innocent("old");
                }
                return;
            }
            Purge::Delete => portal.ask(delete(b"tree")),
            Purge::EmptyTrash => {
                portal.ask(crate::ask::put_in_trash(b"tree")).assert_innocent("trash");
                portal.ask(empty_trash(Which::Before(u64::MAX)))
            }
        };
        heard.assert_innocent(&format!("{purge:?}"));
    }
}

/// Every file of a directory, by its content.
fn contents(top: &Path) -> Vec<String> {
    let (mut left, mut found) = (vec![top.to_owned()], Vec::new());
    while let Some(path) = left.pop() {
        let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_file() {
            found.push(std::fs::read_to_string(&path).unwrap());
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn purge_stops_at_mounts_and_touches_nothing_outside(made in tree(), verb in purge()) {
        let planted = Planted::new(&made);
        planted.world.hand_over(Way::Program);
        // Looked at when what has a name in the tree has changed its owner.
        let before = planted.outside();
        let mut portal = planted.world.portal_with(with_mounts_at(&planted.world, "tree/bound"));
        planted.purge(&mut portal, verb);
        prop_assert_eq!(planted.outside(), before, "{:?}", verb);
        if verb == Purge::Old {
            for (path, text) in &planted.young {
                prop_assert_eq!(&std::fs::read_to_string(path).unwrap(), text);
            }
        } else {
            // All is gone but what leads to the mount.
            let rest = contents(&planted.world.path("space"));
            prop_assert!(!rest.iter().any(|text| text.starts_with("young") || text == "old"), "{:?}: {:?}", verb, rest);
        }
    }
}

proptest! {
    // Each of them is a race of some length.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn purge_touches_nothing_outside_while_directories_are_exchanged_for_links(made in tree(), verb in purge()) {
        let planted = Planted::new(&made);
        for number in 0..20 {
            let path = planted.world.at(format!("tree/s{number}"));
            create_dir_all(path.join("deep")).unwrap();
            for (name, time) in [("old", -100), ("deep/file", -100)] {
                write(path.join(name), "old").unwrap();
                set_times(&path.join(name), planted.before + time, planted.before + time);
            }
        }
        symlink(planted.world.path("outside"), planted.world.at("link")).unwrap();
        let before = planted.outside();
        let mut portal = planted.world.portal(Way::Library);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (planted, over) = (&planted, &over);
            scope.spawn(move || {
                let swapped = (0..20).map(|number| planted.world.at(format!("tree/s{number}")));
                let swapped: Vec<_> = swapped.chain(planted.directories.iter().skip(1).cloned()).collect();
                let link = planted.world.at("link");
                // A link to the outside where the directory was, and back: what is gone by then is passed over.
                while !over.load(Ordering::Relaxed) {
                    for directory in &swapped {
                        for _ in 0..2 {
                            let _ = renameat_with(CWD, directory, CWD, &link, RenameFlags::EXCHANGE);
                        }
                    }
                }
            });
            let _ends = Ends(over);
            for _ in 0..10 {
                planted.purge(&mut portal, verb);
            }
        });
        prop_assert_eq!(planted.outside(), before, "{:?}", verb);
        if verb == Purge::Old {
            // Wherever they are by now: no young file is gone, and none is in the trash.
            let left = contents(&planted.world.path("space").join("tree"));
            let there: Vec<_> = left.into_iter().chain(contents(&planted.world.at("link"))).collect();
            for text in planted.young.values() {
                prop_assert!(there.contains(text), "{}", text);
            }
        }
    }
}

/// What is left in the space.
fn left_in(planted: &Planted) -> usize {
    std::fs::read_dir(planted.world.path("space")).unwrap().count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_launchers_purge_empties_a_space_and_touches_nothing_outside(made in tree()) {
        let planted = Planted::new(&made);
        planted.world.hand_over(Way::Program);
        let before = planted.outside();
        let output = program().arg("purge").current_dir(planted.world.path("space")).output().unwrap();
        prop_assert!(output.status.success(), "{:?}", output);
        prop_assert_eq!((left_in(&planted), planted.outside()), (0, before));
    }

    #[test]
    fn the_launchers_purge_ends_at_mounts_and_touches_nothing_behind_them(made in tree()) {
        let planted = Planted::new(&made);
        planted.world.hand_over(Way::Program);
        let before = planted.outside();
        let mut mounted = with_mounts_at(&planted.world, "tree/bound");
        let output = mounted.arg("purge").current_dir(planted.world.path("space")).output().unwrap();
        prop_assert_eq!(output.status.code(), Some(1), "what is mounted cannot be removed: {:?}", output);
        prop_assert_eq!(planted.outside(), before);
        prop_assert!(left_in(&planted) > 0);
    }
}

proptest! {
    // Each of them is a race of some length.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_launchers_purge_touches_nothing_outside_while_directories_are_carried_away_for_links(made in tree()) {
        let planted = Planted::new(&made);
        let many = (0..40).map(|number| planted.world.at(format!("tree/s{number}")));
        let swapped: Vec<PathBuf> = many.chain(planted.directories.iter().skip(1).cloned()).collect();
        for path in &swapped[..40] {
            create_dir_all(path.join("deep")).unwrap();
            for number in 0..20 {
                write(path.join(format!("deep/{number}")), "x").unwrap();
            }
        }
        planted.world.hand_over(Way::Program);
        // Beside the space: what is exchanged for it is out of the space while it is away.
        let (outside, link) = (planted.world.path("outside"), planted.world.path("link"));
        symlink(&outside, &link).unwrap();
        let before = planted.outside();
        let purge = || program().arg("purge").current_dir(planted.world.path("space")).output().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for directory in &swapped {
                        for _ in 0..2 {
                            let _ = renameat_with(CWD, directory, CWD, &link, RenameFlags::EXCHANGE);
                        }
                        if !link.is_symlink() {
                            // The link was removed while it was in the space: a new one, for the next.
                            let _ = std::fs::remove_dir_all(&link);
                            let _ = symlink(&outside, &link);
                        }
                    }
                }
            });
            let _ends = Ends(&over);
            // It may well end at what was exchanged under its hands: the launcher asks again.
            for _ in 0..10 {
                purge();
            }
        });
        prop_assert_eq!(&planted.outside(), &before);
        let output = purge();
        prop_assert!(output.status.success(), "{:?}", output);
        prop_assert_eq!((left_in(&planted), planted.outside()), (0, before));
    }
}
