//! Zip archives, as somebody else's reader sees them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{create_dir_all, set_permissions, write};
use std::io::{Cursor, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use eirene_files_protocol::{Answer, ArchiveFormat, Code, MOST_ARCHIVED, Outcome, ToFiles};

use crate::bench::{SECRET, Way, World, archive_of, unpack, zip};

/// What a zip has: content, and permissions.
fn unzip(bytes: &[u8]) -> BTreeMap<Vec<u8>, (Vec<u8>, u32)> {
    let mut archive = ::zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut found = BTreeMap::new();
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).unwrap();
        let mut content = Vec::new();
        // It compares the checksum, too.
        entry.read_to_end(&mut content).unwrap();
        let mode = entry.unix_mode().unwrap() & 0o7777;
        assert!(found.insert(entry.name_raw().to_vec(), (content, mode)).is_none(), "a name comes once");
    }
    found
}

#[test]
fn a_directory_comes_as_a_zip_that_others_read() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("d/sub/empty")).unwrap();
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        write(world.at("d/sub/large"), &content).unwrap();
        write(world.at("d/none"), "").unwrap();
        write(world.at("d/script"), "#!/bin/sh").unwrap();
        set_permissions(world.at("d/script"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        let mut portal = world.portal(way);
        let heard = portal.ask(zip(b"d"));
        let Outcome::Done(Answer::Written { entries: 6, skipped_in_all: 0, bytes, .. }) = heard.outcome else {
            panic!("{:?}", heard.outcome)
        };
        assert_eq!(bytes, heard.stream.len() as u64);
        let archived = unzip(&heard.stream);
        let names: Vec<_> = archived.keys().map(|name| String::from_utf8(name.clone()).unwrap()).collect();
        assert_eq!(names, ["top/", "top/none", "top/script", "top/sub/", "top/sub/empty/", "top/sub/large"]);
        assert!(archived[b"top/sub/large".as_slice()].0 == content);
        assert_eq!(archived[b"top/script".as_slice()], (b"#!/bin/sh".to_vec(), 0o755), "nothing that gives rights");
        let one = unzip(&portal.ask(zip(b"d/sub/large")).stream);
        assert!(one[b"top".as_slice()].0 == content);
    }
}

#[test]
fn an_archive_of_evil_names_has_none() {
    let world = World::new();
    let names: [&[u8]; 6] =
        [b"..\\..\\windows", b"C:\\x", b"new\nline", b"caf\xe9", "\u{1f980}".as_bytes(), &[b'n'; 255]];
    for name in names {
        write(world.at(OsStr::from_bytes(name)), name).unwrap();
    }
    symlink(world.secret(), world.at("link")).unwrap();
    write(world.at("SKIPPED.txt"), "a person's own").unwrap();
    let mut portal = world.portal(Way::Program);
    let heard = portal.ask(zip(b""));
    assert!(!heard.stream.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()));
    let archived = unzip(&heard.stream);
    let expected: [&[u8]; 6] = [
        b"top/.._.._windows",
        b"top/C:_x",
        b"top/new_line",
        b"top/caf\xe9",
        "top/\u{1f980}".as_bytes(),
        b"top/SKIPPED.txt",
    ];
    for name in expected {
        assert!(archived.contains_key(name), "{}", name.escape_ascii());
    }
    let said = String::from_utf8(archived[b"top/SKIPPED by the portal.txt".as_slice()].0.clone()).unwrap();
    assert_eq!(said, "1 left out\nlink: not_supported\n");
    let Outcome::Done(Answer::Written { skipped, .. }) = heard.outcome else { panic!("it is there") };
    assert_eq!(skipped[0].why, Code::NotSupported);
    assert!(
        archived
            .keys()
            .all(|name| !name.contains(&b'\\') && !name.split(|byte| *byte == b'/').any(|part| part == b".."))
    );
}

#[test]
fn several_things_are_in_an_archive_by_their_own_names() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("d/sub")).unwrap();
        write(world.at("d/sub/a"), "in it").unwrap();
        symlink("a", world.at("d/sub/link")).unwrap();
        write(world.at("d/one\n"), "one").unwrap();
        write(world.at("SKIPPED.txt"), "a person's own").unwrap();
        symlink(world.secret(), world.at("out")).unwrap();
        let mut portal = world.portal(way);
        let items: [(&[u8], &[u8]); 5] = [
            (b"d/sub", b"sub"),
            (b"d/one\n", b"one\n"),
            (b"SKIPPED.txt", b"SKIPPED.txt"),
            (b"gone", b"gone"),
            (b"out", b"out"),
        ];
        let heard = portal.ask(archive_of(&items, ArchiveFormat::Tar));
        heard.assert_innocent("archive");
        let Outcome::Done(Answer::Written { skipped, skipped_in_all: 2, .. }) = heard.outcome else {
            panic!("{:?}", heard.outcome)
        };
        let skipped: Vec<_> = skipped.iter().map(|one| (one.path.as_bytes(), one.why)).collect();
        assert_eq!(skipped, [(b"gone".as_slice(), Code::NotFound), (b"out", Code::LeadsOut)]);
        let found = unpack(&heard.stream);
        let names: Vec<_> = found.keys().map(Vec::as_slice).collect();
        assert_eq!(names, [b"SKIPPED.txt".as_slice(), b"one\n", b"sub/", b"sub/a", b"sub/link"]);
        assert_eq!(found[b"sub/a".as_slice()], b"in it");

        let found = unzip(&portal.ask(archive_of(&items, ArchiveFormat::Zip)).stream);
        assert_eq!(found[b"SKIPPED.txt".as_slice()].0, b"a person's own");
        let said = String::from_utf8(found[b"SKIPPED by the portal.txt".as_slice()].0.clone()).unwrap();
        assert_eq!(said, "3 left out\nsub/link: not_supported\ngone: not_found\nout: leads_out\n");
    }
}

#[test]
fn what_cannot_be_one_archive_is_none() {
    let world = World::new();
    write(world.at("a"), "a").unwrap();
    let mut portal = world.portal(Way::Program);
    let many: Vec<Vec<u8>> = (0..=MOST_ARCHIVED).map(|number| number.to_string().into_bytes()).collect();
    let many: Vec<(&[u8], &[u8])> = many.iter().map(|name| (b"a".as_slice(), name.as_slice())).collect();
    for items in [&[][..], &[(b"a".as_slice(), b"a".as_slice()), (b"b", b"a")], &many[..]] {
        let heard = portal.ask(archive_of(items, ArchiveFormat::Tar));
        assert_eq!(heard.code(), Some(Code::Invalid), "{}", items.len());
        assert!(heard.stream.is_empty());
    }
    assert_eq!(portal.ask(archive_of(&many[..MOST_ARCHIVED], ArchiveFormat::Tar)).code(), None);
}

#[test]
fn a_file_that_shrinks_is_filled_up_and_named() {
    let world = World::new();
    let file = std::fs::File::create(world.at("file")).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut portal = world.portal(Way::Library);
    let (number, stream) = portal.begin(zip(b""));
    let mut stream = stream.unwrap();
    let mut begin = vec![0; 1 << 20];
    stream.read_exact(&mut begin).unwrap();
    file.set_len(0).unwrap();
    let heard = portal.finish(number, Some(stream));
    let archived = unzip(&[begin, heard.stream].concat());
    assert_eq!(archived[b"top/file".as_slice()].0.len(), 64 << 20);
    assert_eq!(archived[b"top/SKIPPED.txt".as_slice()].0, b"1 left out\nfile: changed_meanwhile\n");
    // And one that nobody reads any more ends.
    file.set_len(64 << 20).unwrap();
    let (number, stream) = portal.begin(zip(b""));
    portal.channel.send(&ToFiles::Cancel(number).encode().unwrap(), None).unwrap();
    assert_eq!(portal.finish(number, None).code(), Some(Code::Cancelled));
    drop(stream);
}
