//! Disks that are full, have limits for a directory, become read-only or go: an XFS and an ext4 of their own, with project quotas.
//!
//! `storage/tests/with-xfs` makes them and runs these tests, as root and one after the other. What needs no disk of its own is in `uploads.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use eirene_files_protocol::{Code, CreateUpload, OnConflict, Verb, WriteUpload};

use crate::ask::{copy, delete, make, move_to, part, upload, write_upload};
use crate::bench::{Way, World};
use crate::uploads::{MIB, a_copy_without_room_leaves_nothing, content, fills_and_goes_on, offset, sha256};

/// A disk that is mounted for these tests.
struct Disk {
    device: PathBuf,
    point: PathBuf,
    kind: &'static str,
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// `<device>:<mount point>` in the variable of each.
fn disks() -> [Disk; 2] {
    [("EIRENE_TEST_XFS", "xfs"), ("EIRENE_TEST_EXT4", "ext4")].map(|(variable, kind)| {
        let said = std::env::var(variable).expect("storage/tests/with-xfs runs this");
        let (device, point) = said.split_once(':').unwrap();
        Disk { device: device.into(), point: point.into(), kind }
    })
}

impl Disk {
    /// Gives a directory a project of its own with a limit; 0 is none.
    fn limit(&self, directory: &Path, project: u32, mebibytes: u32, files: u32) {
        let own = format!("project -s -p {} {project}", text(directory));
        let limit = format!("limit -p bhard={mebibytes}m ihard={files} {project}");
        run("xfs_quota", &["-f", "-x", "-c", &own, "-c", &limit, text(&self.point)]);
    }

    fn remount(&self, how: &str) {
        run("mount", &["-o", &format!("remount,{how}"), text(&self.point)]);
    }

    fn mount(&self) {
        run("mount", &["-t", self.kind, "-o", "usrquota,prjquota", text(&self.device), text(&self.point)]);
    }

    /// Fills it but for about so many bytes, by a file that lies outside of everything.
    fn fill_but(&self, room: u64) -> PathBuf {
        let ballast = self.point.join("ballast");
        let free = rustix::fs::statvfs(&self.point).map(|said| said.f_bavail * said.f_frsize).unwrap();
        run("fallocate", &["-l", &(free - room).to_string(), text(&ballast)]);
        ballast
    }
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn over_the_limit_of_a_directory_is_told_from_a_full_disk() {
    for disk in disks() {
        let world = World::on(&disk.point);
        disk.limit(&world.path("space"), 1001, 8, 0);
        world.hand_over(Way::Program);
        let mut portal = world.portal(Way::Program);
        fills_and_goes_on(&mut portal, 8 * MIB, Code::OverQuota);
        a_copy_without_room_leaves_nothing(&mut portal, Code::OverQuota);
        assert_eq!(portal.list(b"").entries(), [], "{}", disk.kind);
    }
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn a_full_disk_is_no_quota_and_loses_nothing() {
    for disk in disks() {
        let world = World::on(&disk.point);
        // With a limit that is far away.
        disk.limit(&world.path("space"), 1002, 200, 0);
        world.hand_over(Way::Program);
        let mut portal = world.portal(Way::Program);
        let ballast = disk.fill_but(12 * MIB as u64);
        let mut left = 12 * MIB;
        // What a file system keeps for itself is not to be had: as much as fits is what there is.
        let first = CreateUpload { length: None, ..upload(b"try", None, OnConflict::Refuse) };
        portal.ask(Verb::CreateUpload(first)).done();
        let problem = portal.send(write_upload(b"", 0), &content(left)).problem();
        assert_eq!(problem.code, Code::NoSpace, "{}", disk.kind);
        left = left.min(problem.bytes.unwrap() as usize) / MIB * MIB;
        portal.ask(Verb::RemovePart(part(b""))).done();
        assert!(left >= 6 * MIB, "{}: {left}", disk.kind);
        let file = content(left / 4 * 3);
        let wanted = CreateUpload { sha256: Some(sha256(&file)), ..upload(b"file", None, OnConflict::Refuse) };
        portal.ask(Verb::CreateUpload(wanted)).done();
        portal.send(WriteUpload { length: Some(file.len() as u64), ..write_upload(b"", 0) }, &file).done();
        portal.ask(Verb::FinishUpload(part(b""))).done();
        portal.ask(Verb::RemovePart(part(b""))).done();
        // On XFS a copy shares its blocks with the original, and fits.
        if disk.kind == "ext4" {
            a_copy_without_room_leaves_nothing(&mut portal, Code::NoSpace);
        }
        std::fs::remove_file(ballast).unwrap();
    }
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn a_limit_of_files_is_over_quota_too_and_what_lies_in_another_project_is_copied_not_moved() {
    for disk in disks() {
        let world = World::on(&disk.point);
        disk.limit(&world.path("space"), 1003, 0, 6);
        std::fs::write(world.path("other").join("file"), "text").unwrap();
        world.hand_over(Way::Program);
        let mut portal = world.portal(Way::Program);
        let from_other = |verb: Verb| match verb {
            Verb::Move(mut wanted) => {
                wanted.from.space = eirene_files_protocol::SpaceNumber(2);
                Verb::Move(wanted)
            }
            other => other,
        };
        let moved = portal.code(from_other(move_to(b"file", b"file", OnConflict::Refuse)));
        assert_eq!(moved, Some(Code::OtherFileSystem), "{}", disk.kind);
        assert_eq!(std::fs::read_to_string(world.path("other").join("file")).unwrap(), "text");
        let made = (0..8).map(|number| portal.code(make(format!("d{number}").as_bytes(), false)));
        let made: Vec<_> = made.collect();
        assert_eq!(made[0], None, "{}", disk.kind);
        assert_eq!(*made.last().unwrap(), Some(Code::OverQuota), "{}", disk.kind);
        assert_eq!(portal.code(copy(b"d0", b"second", OnConflict::Refuse)), Some(Code::OverQuota));
        let upload = Verb::CreateUpload(upload(b"file", Some(5), OnConflict::Refuse));
        assert_eq!(portal.code(upload.clone()), Some(Code::OverQuota));
        for number in 0..3 {
            portal.ask(delete(format!("d{number}").as_bytes())).done();
        }
        portal.ask(upload).done();
    }
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn what_becomes_read_only_meanwhile_is_said_and_goes_on_afterwards() {
    for disk in disks() {
        let world = World::on(&disk.point);
        world.hand_over(Way::Program);
        let mut portal = world.portal(Way::Program);
        let bytes = content(2 * MIB);
        let wanted = CreateUpload { sha256: Some(sha256(&bytes)), ..upload(b"file", None, OnConflict::Refuse) };
        portal.ask(Verb::CreateUpload(wanted)).done();
        portal.send(write_upload(b"", 0), &bytes[..MIB]).done();
        disk.remount("ro");
        let (made, written) = (portal.code(make(b"new", false)), portal.send(write_upload(b"", MIB as u64), &bytes));
        let listed = portal.list(b"").code();
        disk.remount("rw");
        assert_eq!((made, written.code(), listed), (Some(Code::ReadOnly), Some(Code::ReadOnly), None), "{}", disk.kind);
        assert_eq!(offset(&mut portal, b""), MIB as u64);
        let last = WriteUpload { length: Some(bytes.len() as u64), ..write_upload(b"", MIB as u64) };
        portal.send(last, &bytes[MIB..]).done();
        portal.ask(Verb::FinishUpload(part(b""))).done();
        assert!(portal.read(b"file").stream == bytes);
    }
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn a_disk_that_is_pulled_out_is_away_and_what_was_whole_is_there_again_and_an_upload_goes_on_from_what_is() {
    for disk in disks() {
        let world = World::on(&disk.point);
        world.hand_over(Way::Program);
        let mut portal = world.portal(Way::Program);
        let bytes = content(4 * MIB);
        for (name, length) in [(b"whole".as_slice(), 4), (b"half", 2)] {
            let wanted = CreateUpload { sha256: Some(sha256(&bytes)), ..upload(name, None, OnConflict::Refuse) };
            portal.ask(Verb::CreateUpload(wanted)).done();
            let length =
                WriteUpload { length: Some(bytes.len() as u64), ..write_upload(b"", 0) }.length.filter(|_| length == 4);
            let count = length.map_or(2 * MIB, |length| length as usize);
            portal.send(WriteUpload { length, ..write_upload(b"", 0) }, &bytes[..count]).done();
            if length.is_some() {
                portal.ask(Verb::FinishUpload(part(b""))).done();
                portal.ask(Verb::RemovePart(part(b""))).done();
            }
        }
        run("xfs_io", &["-x", "-c", "shutdown", text(&disk.point)]);
        let begun = offset_or_code(&mut portal);
        let written = portal.send(write_upload(b"", 2 * MIB as u64), &bytes[2 * MIB..]).code();
        let made = portal.code(make(b"new", false));
        drop(portal);
        run("umount", &[text(&disk.point)]);
        disk.mount();
        assert!(matches!(begun, Ok(_) | Err(Code::Away)), "{}: {begun:?}", disk.kind);
        assert_eq!((written, made), (Some(Code::Away), Some(Code::Away)), "{}", disk.kind);
        let mut portal = world.portal(Way::Program);
        assert!(portal.read(b"whole").stream == bytes, "{}", disk.kind);
        let at = offset(&mut portal, b"");
        // No piece is waited for until it is on a local disk: what is not there counts no more, and is asked for again.
        assert!(at <= 2 * MIB as u64, "{}: {at}", disk.kind);
        let last = WriteUpload { length: Some(bytes.len() as u64), ..write_upload(b"", at) };
        portal.send(last, &bytes[at as usize..]).done();
        portal.ask(Verb::FinishUpload(part(b""))).done();
        assert!(portal.read(b"half").stream == bytes, "{}", disk.kind);
    }
}

/// How far the upload is, or why that is not known.
fn offset_or_code(portal: &mut crate::bench::Portal) -> Result<u64, Code> {
    let heard = portal.ask(Verb::LookAtUpload(part(b"")));
    heard.code().map_or_else(|| Ok(heard.upload().offset), Err)
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn a_mount_that_vanished_is_said_when_a_process_starts_and_nothing_is_put_in_its_place() {
    for disk in disks() {
        let world = World::on(&disk.point);
        world.hand_over(Way::Program);
        let bytes = content(MIB);
        let mut early = world.portal(Way::Program);
        early.ask(Verb::CreateUpload(upload(b"file", Some(bytes.len() as u64), OnConflict::Refuse))).done();
        early.send(write_upload(b"", 0), &bytes[..MIB / 2]).done();
        // Gone from the tree, though whoever holds something in it may go on.
        run("umount", &["-l", text(&disk.point)]);
        let mut late = world.portal(Way::Program);
        let opened = late.hello.spaces.iter().map(|space| space.problem.as_ref().map(|problem| problem.code));
        let opened: Vec<_> = opened.collect();
        let (listed, made) = (late.list(b"").code(), late.code(make(b"new", false)));
        drop(late);
        let written = early.send(write_upload(b"", MIB as u64 / 2), &bytes[MIB / 2..]).code();
        let put_in_its_place = std::fs::read_dir(&disk.point).unwrap().count();
        drop(early);
        disk.mount();
        assert_eq!(opened, [Some(Code::NotFound), Some(Code::NotFound)], "{}", disk.kind);
        assert_eq!((listed, made), (Some(Code::NoSuchSpace), Some(Code::NoSuchSpace)), "{}", disk.kind);
        assert_eq!((written, put_in_its_place), (None, 0), "{}", disk.kind);
        let mut portal = world.portal(Way::Program);
        portal.ask(Verb::FinishUpload(part(b""))).done();
        assert!(portal.read(b"file").stream == bytes, "{}", disk.kind);
    }
}
