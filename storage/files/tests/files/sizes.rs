//! Searching and measuring.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{create_dir_all, hard_link, write};
use std::os::unix::fs::{MetadataExt as _, symlink};

use eirene_files_protocol::{
    Answer, Code, EntryKind, Found, KnownDirectory, Measured, Part, Scan, Search, ToFiles, Verb,
};

use crate::ask::{scan, search};
use crate::bench::{Heard, Portal, Way, World, relative};

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
