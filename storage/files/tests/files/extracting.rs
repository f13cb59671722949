//! Archives that become directories, and all that archives try.

use std::collections::BTreeMap;
use std::fs::{create_dir, create_dir_all, read, read_link, set_permissions, symlink_metadata, write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use eirene_files_protocol::{Answer, Code, Extracted, OnConflict, ToFiles};
use proptest::prelude::*;

use crate::ask::{PART_NAME, extract};
use crate::bench::{Portal, Way, World, zip as zipped};
use crate::making::{Kind, Lies, Member, file, gzip, head, hole, link, lying_zip, member, tar, zip};

const REFUSE: OnConflict = OnConflict::Refuse;

fn extracted(portal: &mut Portal, from: &str, to: &str) -> Extracted {
    match portal.ask(extract(from.as_bytes(), to.as_bytes(), REFUSE)).done() {
        Answer::Extracted(extracted) => extracted,
        other => panic!("{other:?}"),
    }
}

/// What was refused, and why.
fn refused(extracted: &Extracted) -> BTreeMap<Vec<u8>, Code> {
    assert_eq!(extracted.refused_in_all, extracted.refused.len() as u64);
    extracted.refused.iter().map(|one| (one.name.0.clone(), one.why)).collect()
}

/// All that lies in a directory: text of files and links, nothing of directories.
fn tree(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let looked = symlink_metadata(&path).unwrap();
        let text = if looked.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if looked.is_symlink() {
            format!("-> {}", read_link(&path).unwrap().display())
        } else {
            String::from_utf8_lossy(&read(&path).unwrap()).into_owned()
        };
        found.insert(path.strip_prefix(directory).unwrap().to_owned(), text);
    }
    found
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_was_archived_comes_back() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("d/sub/empty")).unwrap();
        write(world.at("d/text"), "text").unwrap();
        write(world.at("d/script"), "#!/bin/sh").unwrap();
        write(world.at("d/sub/large"), "0123456789".repeat(200_000)).unwrap();
        write(world.at(Path::new("d").join("n".repeat(255))), "long").unwrap();
        set_permissions(world.at("d/script"), std::fs::Permissions::from_mode(0o700)).unwrap();
        set_permissions(world.at("d/text"), std::fs::Permissions::from_mode(0o604)).unwrap();
        let long_ago = std::fs::File::open(world.at("d/text")).unwrap();
        long_ago.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let archives = [
            ("a.tar", portal.archive(b"d").stream),
            ("a.zip", portal.ask(zipped(b"d")).stream),
            ("a.tgz", gzip(&portal.archive(b"d").stream)),
        ];
        for (name, bytes) in archives {
            write(world.at(name), bytes).unwrap();
            let to = format!("from {name}");
            let Extracted { moved, entries, bytes, refused_in_all, .. } = extracted(&mut portal, name, &to);
            assert_eq!((moved.path.as_bytes(), entries, refused_in_all), (to.as_bytes(), 7, 0), "{name}");
            assert_eq!(bytes, 2_000_000 + 4 + 9 + 4, "{name}");
            let top = world.at(&to).join("top");
            assert!(tree(&top) == tree(&world.at("d")), "{name}");
            let looked = |path: &str| symlink_metadata(top.join(path)).unwrap();
            assert_eq!(looked("script").mode() & 0o777, 0o700, "{name}");
            assert_eq!((looked("text").mode() & 0o777, looked("text").mtime()), (0o604, 1_000_000_000), "{name}");
        }
        let names = names(&world.at(""));
        assert_eq!(names, ["a.tar", "a.tgz", "a.zip", "d", "from a.tar", "from a.tgz", "from a.zip"]);
    }
}

#[test]
fn what_lies_there_is_kept_or_gives_way_as_asked() {
    let world = World::new();
    write(world.at("a.zip"), zip(&[file("new", "new")])).unwrap();
    create_dir(world.at("to")).unwrap();
    write(world.at("to/old"), "old").unwrap();
    let mut portal = world.portal(Way::Library);
    assert_eq!(portal.ask(extract(b"a.zip", b"to", REFUSE)).code(), Some(Code::Exists));
    portal.ask(extract(b"a.zip", b"to", OnConflict::KeepBoth)).done();
    assert_eq!((names(&world.at("to")), names(&world.at("to (2)"))), (vec!["old".into()], vec!["new".into()]));
    let Answer::Extracted(replaced) = portal.ask(extract(b"a.zip", b"to", OnConflict::Replace)).done() else {
        panic!("it was extracted")
    };
    assert_eq!(names(&world.at("to")), ["new"]);
    assert!(replaced.moved.trashed.is_some(), "nothing is written over");
    for (from, to, code) in [
        ("none", "x", Code::NotFound),
        ("to", "x", Code::IsADirectory),
        ("a.zip", "none/x", Code::NotFound),
        ("a.zip", ".eirene/x", Code::Reserved),
        ("a.zip", ".eirene-upload-x", Code::Reserved),
    ] {
        assert_eq!(portal.ask(extract(from.as_bytes(), to.as_bytes(), REFUSE)).code(), Some(code), "{from} {to}");
    }
    let mut portal = world.portal_read_only();
    assert_eq!(portal.ask(extract(b"a.zip", b"x", REFUSE)).code(), Some(Code::ReadOnly));
}

/// Members that are refused in any archive, and why.
fn evil(outside: &Path) -> Vec<(Member, Code)> {
    let outside = outside.as_os_str().as_bytes();
    let below = |name: &str| [outside, b"/", name.as_bytes()].concat();
    vec![
        (file("../evil", "x"), Code::Unsafe),
        (file("../../outside/evil", "x"), Code::Unsafe),
        (file("a/../../evil", "x"), Code::Unsafe),
        (file("a/..", "x"), Code::Unsafe),
        (file(below("evil"), "x"), Code::Unsafe),
        (file("C:\\evil", "x"), Code::Unsafe),
        (file("..\\evil", "x"), Code::Unsafe),
        (file("a//evil", "x"), Code::Unsafe),
        (file("n".repeat(256), "x"), Code::NameTooLong),
        (file(".eirene-upload-evil", "x"), Code::Reserved),
        (member("../evil-directory/", Kind::Directory), Code::Unsafe),
        (link("absolute", outside), Code::LeadsOut),
        (link("up", "../outside"), Code::LeadsOut),
        (link("deep/up", "../../outside"), Code::LeadsOut),
        (link("through", "deep/../../outside"), Code::LeadsOut),
        (member("device", Kind::Device), Code::NotSupported),
        (member("pipe", Kind::Pipe), Code::NotSupported),
        (member("setuid", Kind::Setuid), Code::NotSupported),
    ]
}

#[test]
fn members_that_climb_are_refused_and_named() {
    for way in Way::BOTH {
        let world = World::new();
        let outside = world.path("outside");
        for path in [&outside, &world.secret()] {
            set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let before = world.outside();
        let evil = evil(&outside);
        let mut members: Vec<Member> = evil.iter().map(|(member, _)| member.clone()).collect();
        // A link that leads out, and what would go through it; a link that stays is made when nothing is written any more.
        members.extend([link("gate", outside.as_os_str().as_bytes()), file("gate/evil", "through the gate")]);
        members.extend([link("inner", "fine"), file("inner/x", "x"), file("fine/file", "fine")]);
        for (name, bytes) in [("a.tar", tar(&members)), ("a.tgz", gzip(&tar(&members))), ("a.zip", zip(&members))] {
            write(world.at(name), bytes).unwrap();
        }
        world.hand_over(way);
        let mut portal = world.portal(way);
        for name in ["a.tar", "a.tgz", "a.zip"] {
            let to = format!("from {name}");
            let found = extracted(&mut portal, name, &to);
            let mut expected: BTreeMap<_, _> = evil
                .iter()
                .map(|((name, _), why)| (name[..name.len().min(255)].to_vec(), *why))
                .chain([(b"gate".to_vec(), Code::LeadsOut), (b"inner".to_vec(), Code::Exists)])
                .collect();
            let refused = refused(&found);
            for (name, why) in &refused {
                assert_eq!(expected.remove(name), Some(*why), "{}", name.escape_ascii());
            }
            assert!(expected.is_empty(), "{name}: {expected:?}");
            assert_eq!(names(&world.at(&to)), ["fine", "gate", "inner"], "{name}");
            assert_eq!(read(world.at(&to).join("gate/evil")).unwrap(), b"through the gate", "a directory of its own");
            assert_eq!(world.outside(), before, "{way:?} {name}");
        }
        assert_eq!(names(world.path("").as_path()), ["other", "outside", "space"]);
    }
}

#[test]
fn hard_links_lead_to_what_came_before_and_nowhere_else() {
    let world = World::new();
    let hard = |name: &str, target: &[u8]| member(name, Kind::HardLink(target.to_vec()));
    let secret = world.secret();
    let before = world.outside();
    write(world.at("own"), "own").unwrap();
    let archive = tar(&[
        file("d/file", "text"),
        hard("twin", b"./d/file"),
        link("link", "d/file"),
        hard("out", secret.as_os_str().as_bytes()),
        hard("up", b"../own"),
        hard("later", b"last"),
        hard("directory", b"d"),
        hard("of a link", b"link"),
        file("last", "last"),
    ]);
    write(world.at("a.tar"), archive).unwrap();
    let mut portal = world.portal(Way::Library);
    let found = extracted(&mut portal, "a.tar", "to");
    let out = Code::LeadsOut;
    let expected =
        [("directory", out), ("later", out), ("of a link", out), ("out", Code::Unsafe), ("up", Code::Unsafe)];
    let expected = expected.map(|(name, why)| (name.as_bytes().to_vec(), why));
    assert_eq!(refused(&found).into_iter().collect::<Vec<_>>(), expected);
    let inode = |path: &str| symlink_metadata(world.at(path)).unwrap().ino();
    assert_eq!(inode("to/twin"), inode("to/d/file"));
    assert_eq!(world.outside(), before);
    assert_eq!(symlink_metadata(world.at("own")).unwrap().nlink(), 1);
}

#[test]
fn links_that_stay_are_made_and_lead_nowhere_else() {
    let world = World::new();
    let members = [
        link("a/b/up", "../../file"),
        link("to", "a/b"),
        link("dangling", "nothing/there"),
        file("file", "text"),
        // Each stays by its text; together they would not, if it may climb behind a name.
        link("p/q/far", "../../a"),
        link("escape", "p/q/far/../../outside"),
    ];
    for (name, bytes) in [("a.tar", tar(&members)), ("a.zip", zip(&members))] {
        write(world.at(name), bytes).unwrap();
        let mut portal = world.portal(Way::Library);
        let to = format!("from {name}");
        let found = extracted(&mut portal, name, &to);
        assert_eq!(refused(&found), [(b"escape".to_vec(), Code::LeadsOut)].into(), "{name}");
        assert_eq!(read(world.at(&to).join("to/up")).unwrap(), b"text", "{name}");
        assert_eq!(names(&world.at(&to)), ["a", "dangling", "file", "p", "to"]);
    }
}

#[test]
fn a_zip_that_says_two_things_of_a_member_has_none() {
    let world = World::new();
    let members = [file("a", "one"), file("b", "two")];
    let fine = Lies::default();
    for (name, lies, why) in [
        ("other names", Lies { local: Some(b"../evil"), ..fine }, Code::Unsafe),
        ("one place", Lies { overlap: true, local: Some(b"a"), ..fine }, Code::Unsafe),
        ("encrypted", Lies { encrypted: true, ..fine }, Code::NotSupported),
    ] {
        write(world.at(name), lying_zip(&members, lies)).unwrap();
        let mut portal = world.portal(Way::Library);
        let found = extracted(&mut portal, name, &format!("from {name}"));
        let refused = refused(&found);
        assert_eq!(refused.get(b"b".as_slice()), Some(&why), "{name}: {refused:?}");
    }
    // The same bytes twice.
    let twice = [file("a", "one"), file("a", "one")];
    write(world.at("twice"), lying_zip(&twice, Lies { overlap: true, ..fine })).unwrap();
    let mut portal = world.portal(Way::Library);
    let found = extracted(&mut portal, "twice", "from twice");
    assert_eq!((found.entries, found.refused_in_all), (0, 2));
    assert!(names(&world.at("from twice")).is_empty());
}

#[test]
fn what_is_damaged_cut_off_or_none_leaves_nothing() {
    let world = World::new();
    let members = [file("a", &"text".repeat(10_000)), file("b", "two")];
    let (tar, zip) = (tar(&members), zip(&members));
    let gzipped = gzip(&tar);
    let lie = |lies| lying_zip(&members, lies);
    let surplus = [&zip[..zip.len() - 22], b"more", &zip[zip.len() - 22..]].concat();
    let archives: [(&str, Vec<u8>); 11] = [
        ("nothing", Vec::new()),
        ("text", b"no archive at all".to_vec()),
        ("long text", b"no archive at all".repeat(1000)),
        ("a cut tar", tar[..20_000].to_vec()),
        ("a cut head", tar[..700].to_vec()),
        ("a cut gzip", gzipped[..gzipped.len() - 20].to_vec()),
        ("gzip of text", gzip(b"no archive at all")),
        ("a cut zip", zip[..zip.len() - 30].to_vec()),
        ("bytes between", surplus),
        ("another checksum", lie(Lies { checksum: 1, ..Lies::default() })),
        ("members that are not there", lie(Lies { more: 1, ..Lies::default() })),
    ];
    let mut portal = world.portal(Way::Library);
    for (name, bytes) in archives {
        write(world.at("archive"), bytes).unwrap();
        let code = portal.ask(extract(b"archive", b"to", REFUSE)).code();
        assert_eq!(code, Some(Code::NotAnArchive), "{name}");
        assert_eq!(names(&world.at("")), ["archive"], "{name}");
    }
}

#[test]
fn what_grows_beyond_measure_leaves_nothing() {
    let world = World::new();
    let zeros = vec![0; 48 << 20];
    let one = |content: &[u8]| [member("zeros", Kind::File(content.to_vec()))];
    let long = [
        head(b"././@LongLink", tar::EntryType::GNULongName, 0o644, 4 << 20, b"").as_bytes().as_slice(),
        &zeros[..4 << 20],
    ]
    .concat();
    let bombs: [(&str, Vec<u8>); 6] = [
        ("a hole", hole(b"hole", 1 << 32)),
        ("a hole that is refused", hole(b"../hole", 1 << 32)),
        ("tar", gzip(&tar(&one(&zeros[..16 << 20])))),
        ("zip", zip(&one(&zeros[..16 << 20]))),
        ("a long name", gzip(&long)),
        ("what is refused", gzip(&tar(&[member("../zeros", Kind::File(zeros.clone()))]))),
    ];
    let mut portal = world.portal(Way::Library);
    for (name, bytes) in bombs {
        write(world.at("archive"), bytes).unwrap();
        let code = portal.ask(extract(b"archive", b"to", REFUSE)).code();
        assert_eq!(code, Some(Code::ArchiveTooLarge), "{name}");
        assert_eq!(names(&world.at("")), ["archive"], "{name}");
    }
    // What is small may be made of very little.
    write(world.at("archive"), gzip(&tar(&one(&zeros[..9 << 20])))).unwrap();
    assert_eq!(extracted(&mut portal, "archive", "to").bytes, 9 << 20);
}

#[test]
fn one_that_is_cancelled_leaves_nothing() {
    for way in Way::BOTH {
        let world = World::new();
        // A tar whose member is a hole of the archive: large, and quickly made.
        let mut archive = head(b"large", tar::EntryType::Regular, 0o644, 8 << 30, b"").as_bytes().to_vec();
        archive.resize(512, 0);
        write(world.at("a.tar"), archive).unwrap();
        std::fs::OpenOptions::new().write(true).open(world.at("a.tar")).unwrap().set_len(512 + (8 << 30)).unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let (number, _) = portal.begin(extract(b"a.tar", b"to", REFUSE));
        let part = world.at(PART_NAME).join("large");
        while !symlink_metadata(&part).is_ok_and(|looked| looked.len() > 0) {
            std::thread::yield_now();
        }
        portal.channel.send(&ToFiles::Cancel(number).encode().unwrap(), None).unwrap();
        assert_eq!(portal.finish(number, None).code(), Some(Code::Cancelled));
        assert_eq!(names(&world.at("")), ["a.tar"]);
    }
}

#[test]
fn nothing_goes_through_what_others_put_there_meanwhile() {
    let world = World::new();
    let outside = world.path("outside");
    let members: Vec<Member> = (0..400).map(|number| file(format!("d{number}/file"), "x")).collect();
    write(world.at("a.tar"), tar(&members)).unwrap();
    let before = world.outside();
    let mut portal = world.portal(Way::Library);
    let (number, _) = portal.begin(extract(b"a.tar", b"to", REFUSE));
    // Whoever can write there puts links in the way.
    let (part, to) = (world.at(PART_NAME), world.at("to"));
    let ours = std::thread::spawn(move || {
        while symlink_metadata(&part).is_err() && symlink_metadata(&to).is_err() {}
        (0..400).rev().filter(|number| symlink(&outside, part.join(format!("d{number}"))).is_ok()).count()
    });
    let outcome = portal.finish(number, None);
    let links = ours.join().unwrap();
    let Answer::Extracted(found) = outcome.done() else { panic!("it was extracted") };
    assert_eq!(world.outside(), before, "{links} links were put in the way");
    assert!(found.refused.iter().all(|one| one.why == Code::NotADirectory), "{:?}", found.refused);
}

fn any_member() -> impl Strategy<Value = Member> {
    let part = prop::sample::select(vec!["..", ".", "", "a", "b", "c", "\\", "C:", "\u{e9}"]);
    let path = prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/").into_bytes());
    let kind = prop_oneof![
        path.clone().prop_map(Kind::File),
        Just(Kind::Directory),
        path.clone().prop_map(Kind::Link),
        path.clone().prop_map(Kind::HardLink),
        Just(Kind::Setuid),
    ];
    (path, kind)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_archive_reaches_anything_outside_of_its_directory(
        members in prop::collection::vec(any_member(), 0..12), flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..3)
    ) {
        let world = World::new();
        let before = world.outside();
        write(world.at("own"), "own").unwrap();
        let mut portal = world.portal(Way::Library);
        for mut archive in [tar(&members), gzip(&tar(&members)), zip(&members)] {
            for (place, byte) in &flips {
                let place = place.index(archive.len());
                archive[place] ^= byte;
            }
            write(world.at("archive"), archive).unwrap();
            let heard = portal.ask(extract(b"archive", b"to", REFUSE));
            if heard.code().is_none() {
                let top = world.at("to");
                for (path, _) in tree(&top) {
                    // What leads anywhere leads to something in it.
                    if let Ok(real) = top.join(&path).canonicalize() {
                        prop_assert!(real.starts_with(top.canonicalize().unwrap()), "{}", path.display());
                    }
                    prop_assert_eq!(symlink_metadata(top.join(&path)).unwrap().mode() & 0o6000, 0);
                }
                std::fs::remove_dir_all(&top).unwrap();
            }
            prop_assert_eq!(names(&world.at("")), ["archive", "own"]);
            prop_assert_eq!(world.outside(), before.clone());
            prop_assert_eq!(read(world.at("own")).unwrap(), b"own");
        }
    }
}
