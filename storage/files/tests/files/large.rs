//! Files of more bytes than 32 bits count, and of more than a tar's field of digits: sparse ones, which cost nothing but the counting.

use std::fs::{File, OpenOptions, create_dir, read};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use data_encoding::HEXLOWER;
use eirene_files_protocol::{Answer, Checksum, Code, OnConflict, Outcome, Part, Read, ToFiles, Verb, WriteUpload};
use sha2::{Digest as _, Sha256};

use crate::ask::{PART_NAME, part, upload, write_upload};
use crate::bench::{SPACE, Way, World, archive, relative, zip};
use crate::uploads::{MIB, content, offset, sha256};

const GIB: u64 = 1 << 30;

/// Whether there is time for all bytes of these files.
fn deep() -> bool {
    std::env::var("EIRENE_TEST_DEEP").is_ok_and(|deep| deep == "1")
}

/// A file of so many bytes that has this text at this place, and nothing anywhere else.
fn sparse(world: &World, name: &str, bytes: u64, text: &str, at: u64) {
    let file = File::create(world.at(name)).unwrap();
    file.set_len(bytes).unwrap();
    file.write_all_at(text.as_bytes(), at).unwrap();
}

#[test]
fn a_range_beyond_four_gibibytes_is_what_lies_there() {
    for way in Way::BOTH {
        let world = World::new();
        let whole = 50 * GIB;
        sparse(&world, "large", whole, "across the border", 4 * GIB - 6);
        let mut portal = world.portal(way);
        let Outcome::Done(Answer::Stated(stated)) = portal.stat(b"large").outcome else { panic!("it is there") };
        assert_eq!(stated.version.bytes, whole);
        for (from, to, text) in [
            (4 * GIB - 6, Some(4 * GIB + 11), "across the border"),
            (4 * GIB, Some(4 * GIB + 5), " the "),
            (8 * GIB - 6, Some(8 * GIB), "\0\0\0\0\0\0"),
            (whole - 3, None, "\0\0\0"),
            (whole, None, ""),
        ] {
            let heard = portal.ask(Verb::Read(Read { space: SPACE, path: relative(b"large"), from, to }));
            let Some(Part::ReadBegins(begins)) = heard.parts.first() else { panic!("{from} {to:?}") };
            assert_eq!((begins.from, begins.to, begins.version.bytes), (from, to.unwrap_or(whole), whole));
            assert_eq!(heard.stream, text.as_bytes(), "{from}");
        }
        let beyond = Read { space: SPACE, path: relative(b"large"), from: whole + 1, to: None };
        let problem = portal.ask(Verb::Read(beyond)).problem();
        assert_eq!((problem.code, problem.bytes), (Code::OutOfRange, Some(whole)));
    }
}

/// Writes into both slots of a sidecar that so many bytes have come, as if they had.
fn came(slots: &[u8], bytes: u64) -> Vec<u8> {
    const SLOT: usize = 4096;
    const CHECK: usize = 16;
    let slots = slots.chunks(SLOT).map(|slot| {
        let known = std::str::from_utf8(&slot[CHECK..]).unwrap().trim_end();
        let known = known.replace("\"offset\":0,", &format!("\"offset\":{bytes},"));
        let mut known = known.into_bytes();
        known.resize(SLOT - CHECK, b'\n');
        let sum: [u8; 32] = Sha256::digest(&known).into();
        [HEXLOWER.encode(&sum[..CHECK / 2]).as_bytes(), &known].concat()
    });
    slots.collect::<Vec<_>>().concat()
}

#[test]
fn an_upload_goes_on_across_four_gibibytes() {
    for way in Way::BOTH {
        let world = World::new();
        world.hand_over(way);
        let mut portal = world.portal(way);
        // The first bytes are a hole that nobody sent; of a length that is not known yet, so that the disk need not have room for them.
        let begin = 4 * GIB - MIB as u64 / 2;
        portal.ask(Verb::CreateUpload(upload(b"large", None, OnConflict::Refuse))).done();
        OpenOptions::new().write(true).open(world.at(PART_NAME)).unwrap().set_len(begin).unwrap();
        let sidecar = world.at(format!("{PART_NAME}.json"));
        std::fs::write(&sidecar, came(&read(&sidecar).unwrap(), begin)).unwrap();
        assert_eq!(offset(&mut portal, b""), begin, "{way:?}");

        let bytes = content(2 * MIB);
        let (across, beyond) = bytes.split_at(MIB);
        let end = begin + bytes.len() as u64;
        // What 32 bits make of it is another place.
        for wrong in [begin - 1, begin + 4 * GIB] {
            let problem = portal.send(write_upload(b"", wrong), across).problem();
            assert_eq!((problem.code, problem.bytes), (Code::OffsetDiffers, Some(begin)));
        }
        let first = WriteUpload { length: Some(end), bytes: Some(MIB as u64), ..write_upload(b"", begin) };
        assert_eq!(portal.send(first, across).upload().offset, begin + MIB as u64);
        let sum = |bytes| Some(Checksum::Sha256(sha256(bytes)));
        let second = WriteUpload { bytes: Some(MIB as u64), ..write_upload(b"", begin + MIB as u64) };
        let wrong = WriteUpload { checksum: sum(across), ..second.clone() };
        assert_eq!(portal.send(wrong, beyond).code(), Some(Code::ChecksumDiffers));
        assert_eq!(offset(&mut portal, b""), begin + MIB as u64);
        let second = WriteUpload { checksum: sum(beyond), ..second };
        assert_eq!(portal.send(second, beyond).upload().offset, end);
        portal.ask(Verb::FinishUpload(part(b""))).done();

        let file = File::open(world.at("large")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), end);
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, begin).unwrap();
        assert!(found == bytes, "{way:?}");
    }
}

#[test]
fn a_file_of_more_than_eight_gibibytes_is_as_long_in_a_tar_as_it_is() {
    let world = World::new();
    sparse(&world, "large", 50 * GIB, "", 0);
    let mut portal = world.portal(Way::Program);
    let (number, stream) = portal.begin(archive(b"large"));
    let mut stream = stream.unwrap();
    let mut head = [0; 512];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(tar::Header::from_byte_slice(&head).entry_size().unwrap(), 50 * GIB);
    // Its bytes are left alone.
    portal.channel.send(&ToFiles::Cancel(number).encode().unwrap(), None).unwrap();
    assert_eq!(portal.finish(number, None).code(), Some(Code::Cancelled));
}

/// Gibibytes by way of a socket: with `EIRENE_TEST_DEEP=1`.
#[test]
fn what_lies_behind_a_large_file_in_an_archive_is_found_there() {
    if !deep() {
        return;
    }
    let world = World::new();
    create_dir(world.at("d")).unwrap();
    let bytes = 8 * GIB + 7;
    sparse(&world, "d/large", bytes, "the end", bytes - 7);
    std::fs::write(world.at("d/small"), "small").unwrap();
    let mut portal = world.portal(Way::Program);

    let (number, stream) = portal.begin(archive(b"d"));
    let mut archive = tar::Archive::new(stream.unwrap());
    let found = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), entry.size())
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    assert_eq!(found, [("top/".to_owned(), 0), ("top/large".to_owned(), bytes), ("top/small".to_owned(), 5)]);
    assert_eq!(portal.finish(number, None).code(), None);

    // A zip is read from its end: what comes is kept, with a hole where there are zeros.
    let (number, stream) = portal.begin(zip(b"d"));
    let (mut stream, kept) = (stream.unwrap(), tempfile::tempfile().unwrap());
    let (mut buffer, zeros, mut at) = (vec![0; 256 * 1024], vec![0; 256 * 1024], 0);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        if buffer[..count] != zeros[..count] {
            kept.write_all_at(&buffer[..count], at).unwrap();
        }
        at += count as u64;
    }
    kept.set_len(at).unwrap();
    assert_eq!(portal.finish(number, None).code(), None);
    let mut archive = ::zip::ZipArchive::new(&kept).unwrap();
    let (start, sum) = {
        let large = archive.by_name("top/large").unwrap();
        assert_eq!((large.size(), large.compressed_size()), (bytes, bytes));
        (large.data_start().unwrap(), large.crc32())
    };
    let mut end = [0; 7];
    kept.read_exact_at(&mut end, start + bytes - 7).unwrap();
    assert_eq!(&end, b"the end");
    // The sum of that many zeros, made of the sums of fewer.
    let mut expected = crc32fast::Hasher::new();
    expected.update(&vec![0; MIB]);
    for _ in 0..13 {
        let same = expected.clone();
        expected.combine(&same);
    }
    expected.update(b"the end");
    assert_eq!(sum, expected.finalize());
    let mut small = String::new();
    archive.by_name("top/small").unwrap().read_to_string(&mut small).unwrap();
    assert_eq!(small, "small");
}
