//! Uploads: in pieces, cut off, killed, and with something else put in their place.

use std::fs::{create_dir, hard_link, read, read_to_string, remove_file, rename, write};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use eirene_files_protocol::{
    Checksum, Code, CreateUpload, Digest, Moment, OnConflict, PartId, PartSpot, Verb, WriteUpload,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::Digest as _;

use crate::ask::{PART, PART_NAME, delete, part, upload, write_upload};
use crate::bench::{PERSON, Portal, SECRET, SECRET_NAME, Way, World, is_root, relative};

pub(crate) const MIB: usize = 1024 * 1024;

pub(crate) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest<32> {
    Digest(sha2::Sha256::digest(bytes).into())
}

pub(crate) fn offset(portal: &mut Portal, directory: &[u8]) -> u64 {
    portal.ask(Verb::LookAtUpload(part(directory))).upload().offset
}

fn names(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.path("space")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_upload_in_pieces_gets_its_name_when_it_is_whole() {
    for way in Way::BOTH {
        let world = World::new();
        world.hand_over(way);
        let bytes = content(3 * MIB + 7);
        let mut portal = world.portal(way);
        let modified = Some(Moment { seconds: 1_000_000, nanoseconds: 5 });
        let wanted = CreateUpload {
            sha256: Some(sha256(&bytes)),
            modified,
            parents: true,
            ..upload(b"a/b/file", Some(bytes.len() as u64), OnConflict::Refuse)
        };
        let begun = portal.ask(Verb::CreateUpload(wanted.clone())).upload();
        assert_eq!((begun.offset, begun.length, begun.finished), (0, Some(bytes.len() as u64), None));
        assert_eq!(portal.code(Verb::CreateUpload(wanted)), Some(Code::Exists), "an id is one upload");
        for (from, to) in [(0, 100), (100, 2 * MIB), (2 * MIB, bytes.len())] {
            assert_eq!(portal.ask(Verb::FinishUpload(part(b"a/b"))).problem().bytes, Some(from as u64));
            let state = portal.send(write_upload(b"a/b", from as u64), &bytes[from..to]).upload();
            assert_eq!(state.offset, to as u64);
            assert_eq!(offset(&mut portal, b"a/b"), to as u64);
            assert_eq!(portal.list(b"a/b").entries(), [], "nothing is to be seen of it");
        }
        let moved = portal.ask(Verb::FinishUpload(part(b"a/b"))).moved();
        assert_eq!((moved.path.clone(), moved.trashed), (relative(b"a/b/file"), None));
        assert_eq!(read(world.at("a/b/file")).unwrap(), bytes);
        let found = std::fs::metadata(world.at("a/b/file")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000, 5));
        assert_eq!(found.mode() & 0o111, 0);
        // Whoever did not hear the answer asks again.
        assert_eq!(portal.ask(Verb::FinishUpload(part(b"a/b"))).moved(), moved);
        let state = portal.ask(Verb::LookAtUpload(part(b"a/b"))).upload();
        assert_eq!((state.offset, state.finished), (bytes.len() as u64, Some(moved)));
        assert_eq!(portal.code(Verb::WriteUpload(write_upload(b"a/b", 0))), Some(Code::UploadGone));
        portal.ask(Verb::RemovePart(part(b"a/b"))).done();
        assert_eq!(std::fs::read_dir(world.at("a/b")).unwrap().count(), 1);
        assert_eq!(read(world.at("a/b/file")).unwrap(), bytes);
        assert_eq!(portal.code(Verb::LookAtUpload(part(b"a/b"))), Some(Code::UploadGone));
    }
}

#[test]
fn an_empty_file_and_one_of_unknown_length_are_uploads_too() {
    let world = World::new();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    portal.ask(Verb::CreateUpload(upload(b"empty", Some(0), OnConflict::Refuse))).done();
    portal.ask(Verb::FinishUpload(part(b""))).done();
    portal.ask(Verb::RemovePart(part(b""))).done();
    portal.ask(Verb::CreateUpload(upload(b"later", None, OnConflict::Refuse))).done();
    portal.send(write_upload(b"", 0), b"four").done();
    assert_eq!(portal.code(Verb::FinishUpload(part(b""))), Some(Code::OffsetDiffers));
    let too_short = WriteUpload { length: Some(3), ..write_upload(b"", 4) };
    assert_eq!(portal.send(too_short, b"").code(), Some(Code::Invalid));
    portal.send(WriteUpload { length: Some(6), ..write_upload(b"", 4) }, b"six").done();
    portal.ask(Verb::FinishUpload(part(b""))).done();
    assert_eq!(read_to_string(world.at("later")).unwrap(), "foursi", "no more than its length is taken");
    assert_eq!(read_to_string(world.at("empty")).unwrap(), "");
}

#[test]
fn offset_never_exceeds_what_lies_there() {
    let world = World::new();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    portal.ask(Verb::CreateUpload(upload(b"file", Some(10), OnConflict::Refuse))).done();
    for wrong in [1, u64::MAX] {
        let problem = portal.send(write_upload(b"", wrong), b"x").problem();
        assert_eq!((problem.code, problem.bytes), (Code::OffsetDiffers, Some(0)));
    }
    let too_many = WriteUpload { bytes: Some(11), ..write_upload(b"", 0) };
    assert_eq!(portal.send(too_many, b"x").code(), Some(Code::Invalid));
    portal.send(write_upload(b"", 0), b"01234").done();
    // Somebody shortens it: what is gone has to come again.
    let file = std::fs::OpenOptions::new().write(true).open(world.at(PART_NAME)).unwrap();
    file.set_len(3).unwrap();
    assert_eq!(offset(&mut portal, b""), 3);
    // Somebody makes it longer: what nobody uploaded does not count.
    file.set_len(0).unwrap();
    (&file).write_all(b"012XXXXXXXXXXXXXX").unwrap();
    portal.send(write_upload(b"", 5), b"").done();
    file.set_len(3).unwrap();
    portal.send(write_upload(b"", 3), b"3456789").done();
    (&file).write_all(b"XXXX").unwrap();
    portal.ask(Verb::FinishUpload(part(b""))).done();
    assert_eq!(read(world.at("file")).unwrap().len(), 10);
    assert_eq!(&read(world.at("file")).unwrap()[3..], b"3456789");
}

#[test]
fn two_writers_one_wins() {
    for way in Way::BOTH {
        let world = World::new();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let mut other = world.portal(way);
        portal.ask(Verb::CreateUpload(upload(b"file", Some(10), OnConflict::Refuse))).done();
        let (number, stream) = portal.begin(Verb::WriteUpload(write_upload(b"", 0)));
        let mut stream = stream.unwrap();
        stream.write_all(b"01234").unwrap();
        // As soon as something lies there, the first has it.
        while std::fs::metadata(world.at(PART_NAME)).unwrap().len() < 5 {
            std::thread::yield_now();
        }
        for second in [&mut portal, &mut other] {
            assert_eq!(second.send(write_upload(b"", 0), b"XXXXXXXXXX").code(), Some(Code::Locked));
        }
        assert_eq!(other.code(Verb::FinishUpload(part(b""))), Some(Code::Locked));
        stream.write_all(b"56789").unwrap();
        drop(stream);
        assert_eq!(portal.finish(number, None).upload().offset, 10);
        portal.ask(Verb::FinishUpload(part(b""))).done();
        assert_eq!(read_to_string(world.at("file")).unwrap(), "0123456789");
    }
}

#[test]
fn an_upload_goes_on_after_the_process_was_killed() {
    let world = World::new();
    world.hand_over(Way::Program);
    let bytes = content(96 * MIB);
    let wanted =
        CreateUpload { sha256: Some(sha256(&bytes)), ..upload(b"file", Some(bytes.len() as u64), OnConflict::Refuse) };
    let mut portal = world.portal(Way::Program);
    portal.ask(Verb::CreateUpload(wanted)).done();
    let mut at = 0;
    for round in 1..=4 {
        let (_, stream) = portal.begin(Verb::WriteUpload(write_upload(b"", at)));
        let mut stream = stream.unwrap();
        // Killed in the middle of a write, with bytes of it in the socket and bytes that nobody wrote down.
        let until = (round * 21 * MIB).min(bytes.len());
        stream.write_all(&bytes[at as usize..until]).unwrap();
        drop(portal);
        drop(stream);
        portal = world.portal(Way::Program);
        let now = offset(&mut portal, b"");
        assert!(now <= std::fs::metadata(world.at(PART_NAME)).unwrap().len());
        assert!(now <= until as u64 && now >= at, "{round}: {now}");
        at = now;
    }
    assert!(at > 0, "what was written down counts");
    assert_eq!(portal.send(write_upload(b"", at), &bytes[at as usize..]).upload().offset, bytes.len() as u64);
    portal.ask(Verb::FinishUpload(part(b""))).done();
    assert!(read(world.at("file")).unwrap() == bytes);
}

#[test]
fn a_piece_with_a_checksum_counts_whole_or_not_at_all() {
    let world = World::new();
    world.hand_over(Way::Program);
    let bytes = content(MIB);
    let mut portal = world.portal(Way::Program);
    let wanted =
        CreateUpload { sha256: Some(sha256(&bytes)), ..upload(b"file", Some(bytes.len() as u64), OnConflict::Refuse) };
    portal.ask(Verb::CreateUpload(wanted)).done();
    let (half, rest) = bytes.split_at(MIB / 2);
    let with = |checksum, offset, bytes: &[u8]| WriteUpload {
        checksum: Some(checksum),
        bytes: Some(bytes.len() as u64),
        ..write_upload(b"", offset)
    };
    for wrong in [Checksum::Sha256(sha256(b"")), Checksum::Sha1(Digest([0; 20])), Checksum::Crc32(Digest([0; 4]))] {
        let problem = portal.send(with(wrong, 0, half), half).problem();
        assert_eq!((problem.code, problem.bytes), (Code::ChecksumDiffers, Some(0)));
        assert_eq!(std::fs::metadata(world.at(PART_NAME)).unwrap().len(), 0, "nothing of it stays");
    }
    let right = Checksum::Sha256(sha256(half));
    assert_eq!(portal.send(with(right, 0, half), &half[1..]).code(), Some(Code::CutOff));
    assert_eq!(offset(&mut portal, b""), 0);
    portal.send(with(right, 0, half), half).done();
    portal.send(with(Checksum::Sha256(sha256(rest)), half.len() as u64, rest), rest).done();
    portal.ask(Verb::FinishUpload(part(b""))).done();
    assert!(read(world.at("file")).unwrap() == bytes);
}

/// Sums of pieces of this size are made beside the writing.
#[test]
fn a_large_piece_and_the_whole_have_their_own_sums() {
    for way in Way::BOTH {
        let world = World::new();
        world.hand_over(way);
        let bytes = content(9 * MIB + 7);
        let mut portal = world.portal(way);
        let length = Some(bytes.len() as u64);
        let wanted = CreateUpload { sha256: Some(sha256(&bytes)), ..upload(b"file", length, OnConflict::Refuse) };
        portal.ask(Verb::CreateUpload(wanted)).done();
        let mut at = 0;
        for piece in bytes.chunks(4 * MIB) {
            let with = |sum| WriteUpload {
                checksum: Some(Checksum::Sha256(sum)),
                bytes: Some(piece.len() as u64),
                ..write_upload(b"", at)
            };
            let mut turned = piece.to_vec();
            turned.reverse();
            let problem = portal.send(with(sha256(piece)), &turned).problem();
            assert_eq!((problem.code, problem.bytes), (Code::ChecksumDiffers, Some(at)));
            portal.send(with(sha256(piece)), piece).done();
            at += piece.len() as u64;
        }
        portal.ask(Verb::FinishUpload(part(b""))).done();
        assert!(read(world.at("file")).unwrap() == bytes);
    }
}

#[test]
fn a_whole_that_is_not_what_was_meant_gets_no_name() {
    for way in Way::BOTH {
        let world = World::new();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let wanted = CreateUpload { sha256: Some(sha256(b"meant")), ..upload(b"file", Some(5), OnConflict::Refuse) };
        portal.ask(Verb::CreateUpload(wanted)).done();
        portal.send(write_upload(b"", 0), b"other").done();
        assert_eq!(portal.code(Verb::FinishUpload(part(b""))), Some(Code::ChecksumDiffers));
        assert!(!world.at("file").exists());
        // What was changed on disk behind the sum is not found by it, what was shortened and sent again is.
        let file = std::fs::OpenOptions::new().write(true).open(world.at(PART_NAME)).unwrap();
        file.set_len(0).unwrap();
        portal.send(write_upload(b"", 0), b"meant").done();
        portal.ask(Verb::FinishUpload(part(b""))).done();
        assert_eq!(read_to_string(world.at("file")).unwrap(), "meant");
    }
}

#[test]
fn a_name_that_is_taken_is_refused_kept_beside_or_replaced() {
    let world = World::new();
    write(world.at("file.txt"), "old").unwrap();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let refused = upload(b"file.txt", Some(3), OnConflict::Refuse);
    assert_eq!(portal.code(Verb::CreateUpload(refused)), Some(Code::Exists));
    assert_eq!(names(&world), ["file.txt"]);
    for (on_conflict, path) in [(OnConflict::KeepBoth, "file (2).txt"), (OnConflict::Replace, "file.txt")] {
        portal.ask(Verb::CreateUpload(upload(b"file.txt", Some(3), on_conflict))).done();
        portal.send(write_upload(b"", 0), b"new").done();
        let before = read(world.at(format!("{PART_NAME}.json"))).unwrap();
        let moved = portal.ask(Verb::FinishUpload(part(b""))).moved();
        assert_eq!(moved.path, relative(path.as_bytes()));
        assert_eq!(read_to_string(world.at(path)).unwrap(), "new");
        // Killed before it was written down: it is found again.
        write(world.at(format!("{PART_NAME}.json")), before).unwrap();
        assert_eq!(offset(&mut portal, b""), 3);
        assert_eq!(portal.ask(Verb::FinishUpload(part(b""))).moved().path, moved.path);
        portal.ask(Verb::RemovePart(part(b""))).done();
    }
    assert_eq!(portal.trashed().len(), 1);

    // Killed after the two changed places, before the old one was in the trash.
    portal.ask(Verb::CreateUpload(upload(b"file.txt", Some(5), OnConflict::Replace))).done();
    portal.send(write_upload(b"", 0), b"newer").done();
    renameat_with(CWD, world.at(PART_NAME), CWD, world.at("file.txt"), RenameFlags::EXCHANGE).unwrap();
    let moved = portal.ask(Verb::FinishUpload(part(b""))).moved();
    assert_eq!(portal.trashed()[0].id, moved.trashed.unwrap());
    assert_eq!(read_to_string(world.at("file.txt")).unwrap(), "newer");
    assert_eq!(portal.trashed().len(), 2);
    // Taken in the meantime: the upload stays, for another name or another rule.
    portal.ask(Verb::RemovePart(part(b""))).done();
    portal.ask(Verb::CreateUpload(upload(b"late", Some(1), OnConflict::Refuse))).done();
    portal.send(write_upload(b"", 0), b"x").done();
    write(world.at("late"), "quicker").unwrap();
    assert_eq!(portal.code(Verb::FinishUpload(part(b""))), Some(Code::Exists));
    assert_eq!(offset(&mut portal, b""), 1);
    assert_eq!(read_to_string(world.at("late")).unwrap(), "quicker");
}

#[test]
fn an_upload_whose_file_was_swapped_for_a_link_ends() {
    for way in Way::BOTH {
        let world = World::new();
        std::fs::set_permissions(world.path("outside"), std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::set_permissions(world.secret(), std::fs::Permissions::from_mode(0o666)).unwrap();
        write(world.at("own"), "own").unwrap();
        create_dir(world.at("directory")).unwrap();
        world.hand_over(way);
        let before = world.outside();
        let mut portal = world.portal(way);
        let swaps: [(&str, &dyn Fn()); 6] = [
            ("a link out", &|| symlink(world.secret(), world.at(PART_NAME)).unwrap()),
            ("a link within", &|| symlink("own", world.at(PART_NAME)).unwrap()),
            ("another name of a file", &|| hard_link(world.at("own"), world.at(PART_NAME)).unwrap()),
            ("another file", &|| write(world.at(PART_NAME), "other").unwrap()),
            ("a directory", &|| create_dir(world.at(PART_NAME)).unwrap()),
            ("nothing", &|| {}),
        ];
        for (what, swap) in swaps {
            portal.ask(Verb::CreateUpload(upload(b"file", Some(5), OnConflict::Refuse))).done();
            portal.send(write_upload(b"", 0), b"01").done();
            // Kept, so that its inode is not used again.
            rename(world.at(PART_NAME), world.at("kept")).unwrap();
            swap();
            for verb in [Verb::LookAtUpload(part(b"")), Verb::FinishUpload(part(b""))] {
                assert_eq!(portal.code(verb), Some(Code::UploadGone), "{what}");
            }
            let heard = portal.send(write_upload(b"", 2), b"234");
            assert_eq!(heard.code(), Some(Code::UploadGone), "{what}");
            // With another name of its own, it could be read or written to by that.
            portal.ask(Verb::RemovePart(part(b""))).assert_innocent(what);
            assert_eq!(read_to_string(world.at("kept")).unwrap(), "01");
            remove_file(world.at("kept")).unwrap();
            assert_eq!(names(&world), ["directory", "own"], "{what}");
            assert_eq!(read_to_string(world.at("own")).unwrap(), "own");
        }
        assert_eq!(world.outside(), before, "{way:?}");
    }
}

#[test]
fn a_forged_sidecar_opens_nothing() {
    for way in Way::BOTH {
        let world = World::new();
        std::fs::set_permissions(world.secret(), std::fs::Permissions::from_mode(0o666)).unwrap();
        write(world.at("own"), "own").unwrap();
        world.hand_over(way);
        let sidecar = world.at(format!("{PART_NAME}.json"));
        let mut portal = world.portal(way);
        portal.ask(Verb::CreateUpload(upload(b"file", Some(5), OnConflict::Refuse))).done();
        let good = read(&sidecar).unwrap();
        let forgeries: [(&str, &dyn Fn()); 5] = [
            ("noise", &|| write(&sidecar, vec![b'{'; 8192]).unwrap()),
            ("nothing", &|| write(&sidecar, "").unwrap()),
            ("changed", &|| {
                let text = String::from_utf8(good.clone()).unwrap().replace("\"offset\":0", "\"offset\":4");
                write(&sidecar, text).unwrap();
            }),
            ("a link", &|| {
                rename(&sidecar, world.at("sidecar")).unwrap();
                symlink("sidecar", &sidecar).unwrap();
            }),
            ("two names", &|| hard_link(&sidecar, world.at("second")).unwrap()),
        ];
        for (what, forge) in forgeries {
            forge();
            for verb in [Verb::LookAtUpload(part(b"")), Verb::FinishUpload(part(b""))] {
                assert_eq!(portal.code(verb), Some(Code::UploadGone), "{way:?} {what}");
            }
            assert_eq!(portal.send(write_upload(b"", 0), b"01234").code(), Some(Code::UploadGone), "{what}");
            for name in [sidecar.clone(), world.at("sidecar"), world.at("second")] {
                let _ = remove_file(name);
            }
            write(&sidecar, &good).unwrap();
            if is_root() && way == Way::Program {
                assert_eq!(portal.code(Verb::LookAtUpload(part(b""))), Some(Code::UploadGone), "another person's");
                std::os::unix::fs::chown(&sidecar, Some(PERSON), Some(PERSON)).unwrap();
            }
            assert_eq!(offset(&mut portal, b""), 0, "the good one is good");
        }
        // What is only another upload's id is no upload.
        let other = PartSpot { id: PartId([0; 16]), ..part(b"") };
        assert_eq!(portal.code(Verb::LookAtUpload(other)), Some(Code::UploadGone));
        assert_eq!(read_to_string(world.secret()).unwrap(), SECRET, "{SECRET_NAME}");
    }
}

/// The program in a mount namespace where the space is a small file system of its own, read-only if wanted.
fn on_small(world: &World, read_only: bool) -> Command {
    const MOUNT: &str = r#"mount --make-rprivate / && mount -t tmpfs -o "size=4m,mode=0777" none "$1" &&
        if [ "$2" = ro ]; then mount -o remount,ro "$1"; fi && shift 2 && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(if is_root() { ["--mount"].as_slice() } else { ["--user", "--map-root-user", "--mount"].as_slice() });
    command.args(["--", "sh", "-c", MOUNT, "sh"]).arg(world.path("space")).arg(if read_only { "ro" } else { "rw" });
    if is_root() {
        command.args(["setpriv", &format!("--reuid={PERSON}"), &format!("--regid={PERSON}"), "--clear-groups"]);
    } else {
        command.args(["unshare", "--user", &format!("--map-user={PERSON}"), &format!("--map-group={PERSON}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_eirene-files"));
    command
}

/// Uploads to a place where so many bytes have room, where nothing lies yet: what does not fit is said by its code, and goes on where it stopped
/// once there is room.
pub(crate) fn fills_and_goes_on(portal: &mut Portal, room: usize, full: Code) {
    let too_large = upload(b"file", Some(50 << 30), OnConflict::Refuse);
    assert_eq!(portal.code(Verb::CreateUpload(too_large)), Some(full), "that is seen at once");
    let in_the_way = PartSpot { id: PartId([1; 16]), ..part(b"") };
    let half = room as u64 / 2;
    let other = CreateUpload { part: in_the_way.clone(), ..upload(b"other", Some(half), OnConflict::Refuse) };
    portal.ask(Verb::CreateUpload(other)).done();
    portal.send(WriteUpload { part: in_the_way.clone(), ..write_upload(b"", 0) }, &content(room / 2)).done();
    portal.ask(Verb::FinishUpload(in_the_way.clone())).done();
    let bytes = content(room / 4 * 3);
    let wanted = CreateUpload { sha256: Some(sha256(&bytes)), ..upload(b"file", None, OnConflict::Refuse) };
    portal.ask(Verb::CreateUpload(wanted)).done();
    let problem = portal.send(write_upload(b"", 0), &bytes).problem();
    assert_eq!(problem.code, full);
    let at = problem.bytes.unwrap();
    assert!(at > half / 2 && at <= half, "what went in counts: {at}");
    assert_eq!(offset(portal, b""), at);
    assert_eq!(portal.send(write_upload(b"", at), &bytes[at as usize..]).code(), Some(full));
    // Room is made, and it goes on.
    portal.ask(delete(b"other")).done();
    let at = offset(portal, b"");
    let last = WriteUpload { length: Some(bytes.len() as u64), ..write_upload(b"", at) };
    portal.send(last, &bytes[at as usize..]).done();
    portal.ask(Verb::FinishUpload(part(b""))).done();
    assert!(portal.read(b"file").stream == bytes);
    portal.ask(Verb::RemovePart(part(b""))).done();
    portal.ask(Verb::RemovePart(in_the_way)).done();
}

/// Copies what does not fit, into a place that `fills_and_goes_on` left: what was copied so far is gone, and the original is as it was.
pub(crate) fn a_copy_without_room_leaves_nothing(portal: &mut Portal, full: Code) {
    let before = portal.read(b"file").stream;
    portal.ask(crate::ask::make(b"tree", false)).done();
    portal.ask(crate::ask::move_to(b"file", b"tree/file", OnConflict::Refuse)).done();
    for (from, to) in [(b"tree".as_slice(), b"second".as_slice()), (b"tree/file", b"tree/second")] {
        assert_eq!(portal.code(crate::ask::copy(from, to, OnConflict::Refuse)), Some(full));
    }
    let names = |listed: Vec<eirene_files_protocol::Entry>| -> Vec<Vec<u8>> {
        listed.into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect()
    };
    assert_eq!(names(portal.list(b"").entries()), [b"tree"]);
    assert_eq!(names(portal.list(b"tree").entries()), [b"file"]);
    assert!(portal.read(b"tree/file").stream == before);
    // What is full lets itself be emptied.
    portal.ask(delete(b"tree")).done();
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let world = World::new();
    let mut portal = world.portal_with(on_small(&world, false));
    fills_and_goes_on(&mut portal, 4 * MIB, Code::NoSpace);
    a_copy_without_room_leaves_nothing(&mut portal, Code::NoSpace);
    assert_eq!(portal.list(b"").entries(), []);
}

#[test]
fn a_read_only_file_system_is_said() {
    let world = World::new();
    let mut portal = world.portal_with(on_small(&world, true));
    for verb in [
        Verb::CreateUpload(upload(b"file", Some(5), OnConflict::Refuse)),
        crate::ask::make(b"directory", false),
        crate::ask::make(b"a/b", true),
    ] {
        assert_eq!(portal.code(verb), Some(Code::ReadOnly));
    }
    assert_eq!(PART.file_name().as_bytes(), PART_NAME.as_bytes());
}
