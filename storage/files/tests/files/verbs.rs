//! What the verbs answer where nobody means any harm.

use std::collections::BTreeSet;
use std::fs::{create_dir, write};
use std::os::unix::fs::MetadataExt as _;

use eirene_files_protocol::{
    Answer, Code, Cursor, EntryKind, FromFiles, List, Outcome, Part, Problem, Read, Sort, SpaceNumber, Stat, ToFiles,
    Verb,
};

use crate::bench::{Portal, SPACE, Way, World, list, relative, sum_up};

fn page(portal: &mut Portal, list: List) -> (Vec<Vec<u8>>, u64, Option<Cursor>) {
    let heard = portal.ask(Verb::List(list));
    let Outcome::Done(Answer::Listed(listed)) = &heard.outcome else { panic!("{:?}", heard.outcome) };
    let (entries, next) = (listed.entries, listed.next);
    assert!(!listed.at_least);
    let names = heard.entries().into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
    (names, entries, next)
}

#[test]
fn a_hundred_thousand_entries_come_page_by_page_each_once() {
    let world = World::new();
    for number in 0..100_000 {
        std::fs::File::create(world.at(format!("file-{number}"))).unwrap();
    }
    let mut portal = world.portal(Way::Program);
    let mut wanted = List { limit: 5000, ..list(b"") };
    let (first, entries, _) = page(&mut portal, List { limit: 500, ..list(b"") });
    assert_eq!((first.len(), entries), (500, 100_000));
    let mut seen = Vec::new();
    loop {
        let (names, entries, next) = page(&mut portal, wanted.clone());
        assert_eq!(entries, 100_000);
        seen.extend(names);
        wanted.after = next;
        if next.is_none() {
            break;
        }
    }
    assert!(seen.is_sorted(), "in order over all pages");
    assert_eq!(seen.len(), 100_000);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 100_000);
    assert_eq!(seen[..500], first);
}

#[test]
fn a_page_goes_on_behind_its_last_name_though_others_came_and_went() {
    let world = World::new();
    for name in ["b", "d", "f", "h"] {
        write(world.at(name), "").unwrap();
    }
    let mut portal = world.portal(Way::Program);
    let wanted = List { limit: 2, ..list(b"") };
    let (names, _, next) = page(&mut portal, wanted.clone());
    assert_eq!(names, [b"b", b"d"]);
    write(world.at("a"), "").unwrap();
    write(world.at("e"), "").unwrap();
    let (names, _, _) = page(&mut portal, List { after: next, ..wanted.clone() });
    assert_eq!(names, [b"e", b"f"]);
    // Where it has gone itself, the offset is the best there is.
    std::fs::remove_file(world.at("d")).unwrap();
    let (names, _, next) = page(&mut portal, List { after: next, ..wanted });
    // Left are a, b, e, f and h, and two came before.
    assert_eq!(names, [b"e", b"f"]);
    assert_eq!(next.map(|next| next.offset), Some(4));
}

#[test]
fn a_page_of_the_longest_names_comes_in_as_many_frames_as_it_needs() {
    let world = World::new();
    // Each of these bytes is six in JSON.
    let evil = "\u{1}".repeat(250);
    for number in 0..500 {
        write(world.at(format!("{evil}{number:05}")), "").unwrap();
    }
    let mut portal = world.portal(Way::Program);
    let heard = portal.list(b"");
    assert!(heard.parts.len() > 1, "one frame cannot take them");
    assert_eq!(heard.entries().len(), 500);
}

#[test]
fn entries_are_sorted_filtered_and_hidden_as_asked() {
    let world = World::new();
    for (name, bytes) in [("small", 1), ("Large", 300), (".hidden", 20), ("\u{c4}pfel", 4000)] {
        write(world.at(name), vec![0; bytes]).unwrap();
    }
    let mut portal = world.portal(Way::Program);
    let names = |portal: &mut Portal, list: List| {
        let (names, ..) = page(portal, list);
        names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
    };
    let by_size = List { sort: Sort::Bytes, descending: true, ..list(b"") };
    assert_eq!(names(&mut portal, by_size.clone()), ["\u{c4}pfel", "Large", ".hidden", "small"]);
    assert_eq!(
        names(&mut portal, List { hidden: false, descending: false, ..by_size }),
        ["small", "Large", "\u{c4}pfel"]
    );
    assert_eq!(names(&mut portal, List { filter: Some("LL".into()), ..list(b"") }), ["small"]);
    assert_eq!(names(&mut portal, List { filter: Some("\u{e4}".into()), ..list(b"") }), ["\u{c4}pfel"]);
    let newest = List { sort: Sort::Modified, descending: true, limit: 1, ..list(b"") };
    std::fs::File::open(world.at("small"))
        .unwrap()
        .set_modified(std::time::SystemTime::now() + std::time::Duration::from_mins(1))
        .unwrap();
    assert_eq!(names(&mut portal, newest), ["small"]);
    for limit in [0, 5001] {
        assert_eq!(portal.ask(Verb::List(List { limit, ..list(b"") })).code(), Some(Code::Invalid));
    }
}

#[test]
fn what_an_entry_is_comes_as_the_file_system_has_it() {
    let world = World::new();
    write(world.at("file"), "twelve bytes").unwrap();
    let found = std::fs::metadata(world.at("file")).unwrap();
    let mut portal = world.portal(Way::Program);
    let Outcome::Done(Answer::Stated(stated)) = portal.stat(b"file").outcome else { panic!("it is there") };
    assert_eq!((stated.kind, stated.version.bytes, stated.link), (EntryKind::File, 12, None));
    assert_eq!((u32::from(stated.mode), stated.owner, stated.group), (found.mode() & 0o7777, found.uid(), found.gid()));
    assert_eq!((stated.version.inode, stated.version.device), (found.ino(), found.dev()));
    assert_eq!((stated.version.modified.seconds, u64::from(stated.links)), (found.mtime(), found.nlink()));
    assert_eq!(stated.on_disk, found.blocks() * 512);
    let Outcome::Done(Answer::Stated(space)) = portal.stat(b"").outcome else { panic!("the space is there") };
    assert_eq!(space.kind, EntryKind::Directory);
    let entry = portal.list(b"").entries().remove(0);
    assert_eq!((entry.kind, entry.bytes, entry.modified), (EntryKind::File, Some(12), Some(stated.version.modified)));
    let nowhere = Stat { space: SpaceNumber(9), path: relative(b"") };
    assert_eq!(portal.ask(Verb::Stat(nowhere)).code(), Some(Code::NoSuchSpace));
    assert_eq!(portal.stat(b"none").code(), Some(Code::NotFound));
    assert_eq!(portal.stat(b"file/below").code(), Some(Code::NotADirectory));
}

#[test]
fn any_range_of_a_file_is_read_and_no_other() {
    let world = World::new();
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    write(world.at("file"), &content).unwrap();
    write(world.at("empty"), "").unwrap();
    create_dir(world.at("directory")).unwrap();
    let mut portal = world.portal(Way::Program);
    let whole = content.len() as u64;
    for (from, to, got) in [
        (0, None, 0..whole),
        (0, Some(0), 0..0),
        (5, Some(6), 5..6),
        (1_234_567, None, 1_234_567..whole),
        (whole - 1, Some(u64::MAX), whole - 1..whole),
        (whole, None, whole..whole),
    ] {
        let heard = portal.ask(Verb::Read(Read { space: SPACE, path: relative(b"file"), from, to }));
        let Some(Part::ReadBegins(begins)) = heard.parts.first() else { panic!("{from} {to:?}") };
        assert_eq!((begins.from..begins.to, begins.version.bytes), (got.clone(), whole));
        assert_eq!(heard.stream, content[got.start as usize..got.end as usize]);
        assert!(matches!(heard.outcome, Outcome::Done(Answer::Written { bytes, .. }) if bytes == got.end - got.start));
    }
    let mut asked = |path: &[u8], from, to| {
        let heard = portal.ask(Verb::Read(Read { space: SPACE, path: relative(path), from, to }));
        assert!(heard.stream.is_empty());
        heard.outcome
    };
    let out_of_range = Problem { code: Code::OutOfRange, bytes: Some(whole) };
    assert_eq!(asked(b"file", whole + 1, None), Outcome::Problem(out_of_range));
    assert_eq!(asked(b"file", 5, Some(4)), Outcome::Problem(Code::Invalid.into()));
    assert_eq!(asked(b"directory", 0, None), Outcome::Problem(Code::IsADirectory.into()));
    assert!(matches!(asked(b"empty", 0, None), Outcome::Done(_)));
}

#[test]
fn a_checksum_is_that_of_the_whole_file_and_of_one_content() {
    for way in Way::BOTH {
        let world = World::new();
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        write(world.at("file"), &content).unwrap();
        write(world.at("empty"), "").unwrap();
        create_dir(world.at("directory")).unwrap();
        let mut portal = world.portal(way);
        for (name, bytes) in [(&b"file"[..], &content[..]), (b"empty", b"")] {
            let Answer::Summed { version, sha256 } = portal.ask(sum_up(name)).done() else { panic!("it is there") };
            assert_eq!((version.bytes, sha256.0), (bytes.len() as u64, crate::uploads::sha256(bytes).0));
        }
        assert_eq!(portal.code(sum_up(b"directory")), Some(Code::IsADirectory));
        assert_eq!(portal.code(sum_up(b"none")), Some(Code::NotFound));
    }
}

#[test]
fn a_file_that_changes_while_it_is_summed_up_has_no_checksum() {
    let world = World::new();
    let file = std::fs::File::create(world.at("file")).unwrap();
    file.set_len(1 << 40).unwrap();
    let mut portal = world.portal(Way::Library);
    let begun = |portal: &mut Portal| {
        let (number, _) = portal.begin(sum_up(b"file"));
        // It says how far it is once it has begun.
        let mut buffer = Vec::new();
        let packet = portal.channel.receive(&mut buffer).unwrap().unwrap();
        assert!(matches!(FromFiles::decode(packet.bytes).unwrap(), FromFiles::Progress(of, _) if of == number));
        number
    };
    let number = begun(&mut portal);
    file.set_len(1).unwrap();
    assert_eq!(portal.finish(number, None).code(), Some(Code::ChangedMeanwhile));
    // And one that nobody waits for any more ends.
    file.set_len(1 << 40).unwrap();
    let number = begun(&mut portal);
    portal.channel.send(&ToFiles::Cancel(number).encode().unwrap(), None).unwrap();
    assert_eq!(portal.finish(number, None).code(), Some(Code::Cancelled));
}
