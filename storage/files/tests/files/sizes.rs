//! Searching and measuring.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{create_dir_all, hard_link, write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use eirene_files_protocol::{
    Answer, Code, EntryKind, Found, KnownDirectory, Measured, Part, Scan, Search, ToFiles, Verb,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::ask::{scan, search};
use crate::bench::{Ends, Heard, Portal, Way, World, relative};

fn found(portal: &mut Portal, search: Search) -> (BTreeSet<String>, bool) {
    let heard = portal.ask(Verb::Search(search));
    assert_eq!(heard.code(), None);
    let found = heard.parts.iter().flat_map(|part| match part {
        Part::Found(found) => found.clone(),
        other => panic!("{other:?}"),
    });
    let names: BTreeSet<_> =
        found.map(|Found { path, .. }| String::from_utf8_lossy(path.as_bytes()).into_owned()).collect();
    let Answer::Searched(searched) = heard.done() else { panic!("a search") };
    assert_eq!(searched.found, names.len() as u64);
    (names, searched.more)
}

#[test]
fn a_search_finds_by_name_kind_size_and_time() {
    let world = World::new();
    create_dir_all(world.at("a/deep/er")).unwrap();
    create_dir_all(world.at(".eirene/results")).unwrap();
    create_dir_all(world.at(".eirene-trash/1/files/results")).unwrap();
    for (path, bytes) in [("a/Results.csv", 10), ("a/deep/er/results.txt", 5_000), ("a/.eirene-upload-results", 1)] {
        write(world.at(path), vec![0; bytes]).unwrap();
    }
    symlink("deep", world.at("a/results")).unwrap();
    let mut portal = world.portal(Way::Library);
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let all = set(&["a/Results.csv", "a/deep/er/results.txt", "a/results"]);
    assert_eq!(found(&mut portal, search(b"", "RESULTS")), (all, false));
    assert_eq!(found(&mut portal, search(b"a", "*.csv")).0, set(&["Results.csv"]));
    assert_eq!(
        found(&mut portal, search(b"a/results", "er")).0,
        set(&["er"]),
        "a link that stays is followed at the top"
    );
    let files = Search { kind: Some(EntryKind::File), ..search(b"", "") };
    assert_eq!(
        found(&mut portal, Search { least_bytes: Some(11), ..files.clone() }).0,
        set(&["a/deep/er/results.txt"])
    );
    assert_eq!(found(&mut portal, Search { most_bytes: Some(11), ..files.clone() }).0, set(&["a/Results.csv"]));
    assert_eq!(found(&mut portal, Search { since: Some(1 << 40), ..files.clone() }).0, set(&[]));
    let (one, more) = found(&mut portal, Search { limit: 1, ..files });
    assert_eq!((one.len(), more), (1, true));
    for wrong in [Search { limit: 0, ..search(b"", "") }, Search { limit: 1001, ..search(b"", "") }] {
        assert_eq!(portal.code(Verb::Search(wrong)), Some(Code::Invalid));
    }
    assert_eq!(portal.code(Verb::Search(search(b"a/Results.csv", ""))), Some(Code::NotADirectory));
}

#[test]
fn a_search_finds_names_in_both_forms_and_gives_them_as_they_lie_there() {
    let world = World::new();
    for name in [&b"Caf\xc3\xa9"[..], b"cafe\xcc\x81.txt", b"\xff caf\xc3\xa9", b"caf\xe9", b"cafe"] {
        write(world.at(OsStr::from_bytes(name)), "").unwrap();
    }
    let mut portal = world.portal(Way::Library);
    let both = BTreeSet::from(["Caf\u{e9}", "cafe\u{301}.txt", "\u{fffd} caf\u{e9}"].map(str::to_owned));
    for name in ["CAF\u{c9}", "cafe\u{301}", "*f\u{e9}*"] {
        assert_eq!(found(&mut portal, search(b"", name)), (both.clone(), false), "{name:?}");
    }
}

fn measured(heard: &Heard) -> BTreeMap<String, Measured> {
    let parts = heard.parts.iter().flat_map(|part| match part {
        Part::Measured(measured) => measured.clone(),
        other => panic!("{other:?}"),
    });
    parts.map(|one| (String::from_utf8_lossy(one.directory.path.as_bytes()).into_owned(), one)).collect()
}

/// A tree with files of several names, holes and links; what `du` would say of it, by walking it in another way.
fn tree(world: &World) -> u64 {
    for directory in 0..10 {
        create_dir_all(world.at(format!("d{directory}/a/b/c/d/e"))).unwrap();
        for file in 0..20 {
            write(world.at(format!("d{directory}/a/file{file}")), vec![1; file * 1_000]).unwrap();
        }
        write(world.at(format!("d{directory}/a/b/c/d/e/deep")), vec![1; 300_000]).unwrap();
    }
    hard_link(world.at("d0/a/file19"), world.at("d1/again")).unwrap();
    std::fs::File::create(world.at("hole")).unwrap().set_len(1 << 40).unwrap();
    symlink("/", world.at("d2/root")).unwrap();
    let mut seen = BTreeSet::new();
    let mut left = vec![world.path("space")];
    let mut bytes = 0;
    while let Some(path) = left.pop() {
        for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
            let looked = entry.metadata().unwrap();
            if seen.insert(looked.ino()) {
                bytes += looked.blocks() * 512;
            }
            if looked.is_dir() {
                left.push(entry.path());
            }
        }
    }
    bytes
}

#[test]
fn a_scan_says_what_each_directory_holds() {
    let world = World::new();
    let expected = tree(&world);
    let mut portal = world.portal(Way::Library);
    let heard = portal.ask(Verb::Scan(scan(b"")));
    let all = measured(&heard);
    let Answer::Scanned(scanned) = heard.done() else { panic!("a scan") };
    assert!(scanned.complete && !scanned.approximate);
    assert_eq!(scanned.walked.bytes, expected);
    assert_eq!((all[""].bytes, all[""].entries), (expected, scanned.walked.entries));
    assert_eq!(all[""].own_entries, 11);
    assert_eq!(all.iter().filter(|(path, _)| path.matches('/').count() == 0 && !path.is_empty()).count(), 10);
    let below: u64 = (0..10).map(|directory| all[&format!("d{directory}")].bytes).sum();
    assert_eq!(below + all[""].own_bytes, expected);
    assert!(all.contains_key("d3/a/b/c/d/e"), "large ones however deep");
    assert_eq!(portal.code(Verb::Scan(scan(b"hole"))), Some(Code::NotADirectory));
}

#[test]
fn what_goes_while_a_scan_is_under_way_keeps_nothing_else_from_being_measured() {
    let world = World::new();
    tree(&world);
    let mut portal = world.portal(Way::Library);
    let over = AtomicBool::new(false);
    let heard: Vec<Heard> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for number in 0..200 {
                    create_dir_all(world.at(format!("busy/{number}/d"))).unwrap();
                    write(world.at(format!("busy/{number}/f")), "f").unwrap();
                }
                std::fs::remove_dir_all(world.at("busy")).unwrap();
            }
        });
        let _ends = Ends(&over);
        (0..50).map(|_| portal.ask(Verb::Scan(scan(b"")))).collect()
    });
    for heard in heard {
        let all = measured(&heard);
        let Answer::Scanned(scanned) = heard.done() else { panic!("a scan") };
        assert!(scanned.complete && scanned.walked.skipped_in_all == 0, "{:?}", scanned.walked);
        assert!(all.contains_key("") && all.contains_key("d9"), "{:?}", all.keys());
    }
}

#[test]
fn a_scan_in_parts_comes_to_the_same_sum() {
    let world = World::new();
    tree(&world);
    std::fs::remove_file(world.at("d1/again")).unwrap();
    let mut portal = world.portal(Way::Library);
    let heard = portal.ask(Verb::Scan(scan(b"")));
    let whole = measured(&heard);
    // Nothing but the top is begun without time: it is not whole, and nothing is said of it.
    let heard = portal.ask(Verb::Scan(Scan { budget_ms: 0, ..scan(b"") }));
    assert_eq!(heard.parts, []);
    let Answer::Scanned(scanned) = heard.done() else { panic!("a scan") };
    assert!(!scanned.complete);
    // With all but one known, the rest is that one.
    let known = |path: &str| whole[path].directory.clone();
    let most: Vec<_> = (0..9).map(|directory| known(&format!("d{directory}"))).collect();
    let heard = portal.ask(Verb::Scan(Scan { known: most.clone(), ..scan(b"") }));
    let part = measured(&heard);
    let sum: u64 = (0..9).map(|directory| whole[&format!("d{directory}")].bytes).sum();
    let entries: u64 = (0..9).map(|directory| whole[&format!("d{directory}")].entries).sum();
    assert_eq!((part[""].bytes + sum, part[""].entries + entries), (whole[""].bytes, whole[""].entries));
    assert_eq!(part[""].own_bytes, whole[""].own_bytes);
    let Answer::Scanned(scanned) = heard.done() else { panic!("a scan") };
    assert_eq!(scanned.met.into_iter().collect::<BTreeSet<_>>(), (0..9).collect());
    assert_eq!(part["d9"], whole["d9"]);
    // What is another directory now is measured again.
    let other = KnownDirectory { inode: 1, ..known("d0") };
    let heard = portal
        .ask(Verb::Scan(Scan { known: [other].into_iter().chain(most.into_iter().skip(1)).collect(), ..scan(b"") }));
    assert_eq!(measured(&heard)["d0"], whole["d0"]);
    let Answer::Scanned(scanned) = heard.done() else { panic!("a scan") };
    assert_eq!(scanned.met.into_iter().collect::<BTreeSet<_>>(), (1..9).collect());
    let too_many = vec![known("d0"); 1001];
    assert_eq!(portal.code(Verb::Scan(Scan { known: too_many, ..scan(b"") })), Some(Code::Invalid));
    assert_eq!(relative(b"d0"), known("d0").path);
}

#[test]
fn a_scan_is_cancelled_and_holds_up_nobody() {
    let world = World::new();
    for directory in 0..300 {
        create_dir_all(world.at(format!("{directory}/a/b/c"))).unwrap();
        for file in 0..20 {
            write(world.at(format!("{directory}/{file}")), "x").unwrap();
        }
    }
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let begun: Vec<_> = (0..20).map(|_| portal.begin(Verb::Scan(scan(b""))).0).collect();
    for number in &begun {
        portal.channel.send(&ToFiles::Cancel(*number).encode().unwrap(), None).unwrap();
    }
    let cancelled = begun.iter().filter(|number| portal.finish(**number, None).code() == Some(Code::Cancelled)).count();
    assert!(cancelled >= 18, "one runs at a time, the others wait: {cancelled}");
    assert_eq!(portal.ask(Verb::Scan(scan(b""))).walked().entries, 300 * 24);
}

#[test]
fn each_sum_of_a_scan_comes_after_those_in_it_and_is_theirs_together() {
    let world = World::new();
    tree(&world);
    std::fs::remove_file(world.at("d1/again")).unwrap();
    for directory in 0..200 {
        create_dir_all(world.at(format!("many/{directory}/in"))).unwrap();
        write(world.at(format!("many/{directory}/in/file")), "x").unwrap();
    }
    let mut portal = world.portal(Way::Library);
    for _ in 0..3 {
        let heard = portal.ask(Verb::Scan(scan(b"")));
        let mut sums: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
        let mut said = 0;
        for part in &heard.parts {
            let Part::Measured(measured) = part else { panic!("{part:?}") };
            for one in measured.iter().filter(|one| one.directory.path.components().count() <= 4) {
                let below = sums.remove(one.directory.path.as_bytes()).unwrap_or_default();
                // What lies deeper than what is always said is in its sum alone.
                if one.directory.path.components().count() < 4 {
                    let own = (one.own_bytes, one.own_entries);
                    assert_eq!((one.bytes, one.entries), (below.0 + own.0, below.1 + own.1), "{one:?}");
                }
                if let Some((above, _)) = one.directory.path.split_last() {
                    let sum = sums.entry(above.as_bytes().to_vec()).or_default();
                    *sum = (sum.0 + one.bytes, sum.1 + one.entries);
                }
                said += 1;
            }
        }
        assert_eq!(said, 1 + 10 * 4 + 1 + 2 * 200, "the top, ten with four levels each, and many");
        assert_eq!(sums, BTreeMap::new(), "each comes once, after all in it");
    }
}

#[test]
fn a_directory_that_is_exchanged_while_it_is_measured_leads_a_scan_nowhere() {
    let world = World::new();
    for directory in ["tree/place", "tree/other"] {
        create_dir_all(world.at(directory)).unwrap();
    }
    for file in 0..50 {
        write(world.at(format!("tree/place/{file}")), "harmless").unwrap();
    }
    for file in 0..100 {
        write(world.path(&format!("outside/{file}")), "not to be counted").unwrap();
    }
    symlink("../../outside", world.at("tree/link")).unwrap();
    let mut portal = world.portal(Way::Library);
    let (place, link) = (world.at("tree/place"), world.at("tree/link"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &place, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let _ends = Ends(&over);
        let (mut rounds, mut met) = (0, 0);
        // What was a directory and is a link once it is gone into has to be met, or nothing was tried.
        while rounds < 20 || met == 0 {
            rounds += 1;
            assert!(rounds < 100_000, "the race was not met");
            let walked = portal.ask(Verb::Scan(scan(b"tree"))).walked();
            // Exchanged while the names are read, the directory may be met under both.
            assert!(walked.entries <= 3 + 2 * 50, "{walked:?}");
            met += walked.skipped_in_all;
        }
    });
}

#[test]
fn both_threads_of_a_scan_have_the_least_priority() {
    let world = World::new();
    for directory in 0..300 {
        create_dir_all(world.at(format!("{directory}/a"))).unwrap();
    }
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let tasks = format!("/proc/{}/task", portal.child.as_ref().unwrap().id());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                for task in std::fs::read_dir(&tasks).unwrap().flatten() {
                    // It may have ended.
                    let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
                    let (name, fields) = stat.rsplit_once(") ").unwrap();
                    let nice: i32 = fields.split(' ').nth(16).unwrap().parse().unwrap();
                    if name.ends_with("(scan") && seen.insert(nice) {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            }
            seen
        });
        let _ends = Ends(&over);
        let mut rounds = 0;
        while !over.load(Ordering::Relaxed) {
            rounds += 1;
            assert!(rounds < 10_000, "no second thread was seen");
            assert_eq!(portal.ask(Verb::Scan(scan(b""))).walked().entries, 600);
        }
        assert_eq!(seen.join().unwrap(), BTreeSet::from([19]));
    });
}
