//! Power cuts in the middle of an upload: what was not on the disk is lost, in whichever way, and what is known of the upload is as its file has it.

use std::fs::{read, rename, write};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use eirene_files_protocol::{Code, CreateUpload, OnConflict, Problem, Verb};
use serde_json::{Value, json};

use crate::ask::{PART_NAME, part, upload, write_upload};
use crate::bench::{Way, World};
use crate::uploads::{MIB, content, offset, sha256};

/// Bytes of a slot of what is known of an upload.
const SLOT: usize = 4096;
/// Hex digits of its checksum, before the text.
const CHECK: usize = 16;
/// After so long without what is waited for a test has failed.
const PATIENCE: Duration = Duration::from_mins(1);
/// So often an upload is begun anew whose rest did not stay in memory.
const TRIES: usize = 5;

fn check(text: &[u8]) -> String {
    HEXLOWER.encode(&sha256(text).0[..CHECK / 2])
}

/// What is known of an upload, the newest last.
fn known(sidecar: &[u8]) -> Vec<Value> {
    let whole = |slot: &&[u8]| slot.len() == SLOT && check(&slot[CHECK..]).as_bytes() == &slot[..CHECK];
    let slots = sidecar.chunks(SLOT).filter(whole);
    let mut known: Vec<Value> = slots.map(|slot| serde_json::from_slice(&slot[CHECK..]).unwrap()).collect();
    known.sort_by_key(|known| known["sequence"].as_u64());
    known
}

/// The same after the system has started anew; where the newest never reached the disk there is only the one before it.
fn after_a_start(sidecar: &[u8], is_newest_lost: bool) -> Vec<u8> {
    let mut known = known(sidecar);
    assert_eq!(known.len(), 2);
    if is_newest_lost {
        known.pop();
    }
    let mut bytes = vec![0; 2 * SLOT];
    for mut known in known {
        known["boot"] = json!("the start before");
        let mut text = serde_json::to_vec(&known).unwrap();
        text.resize(SLOT - CHECK, b'\n');
        let at = usize::from(known["sequence"].as_u64().unwrap() % 2 == 1) * SLOT;
        bytes[at..at + SLOT].copy_from_slice(&[check(&text).as_bytes(), &text].concat());
    }
    bytes
}

/// An upload of which so many bytes are certain and the rest is in memory alone, and what is known of it. None where the second piece stood still
/// for so long that more of it was made certain, as on a machine that has too much to do.
fn partly_certain(bytes: &[u8], certain: usize) -> Option<(World, Vec<u8>)> {
    // Memory is not waited for at the end of a piece, as a disk of this machine is not.
    let world = World::on(Path::new("/dev/shm"));
    world.hand_over(Way::Program);
    let sidecar = world.at(format!("{PART_NAME}.json"));
    let whole = bytes.len();
    let wanted =
        CreateUpload { sha256: Some(sha256(bytes)), ..upload(b"file", Some(whole as u64), OnConflict::Refuse) };
    let mut portal = world.portal(Way::Program);
    portal.ask(Verb::CreateUpload(wanted)).done();
    // Nothing more comes for a while: what is there is made certain.
    let (number, stream) = portal.begin(Verb::WriteUpload(write_upload(b"", 0)));
    let mut stream = stream.unwrap();
    stream.write_all(&bytes[..certain]).unwrap();
    let begun = Instant::now();
    while known(&read(&sidecar).unwrap()).last().is_none_or(|newest| newest["synced"] != certain) {
        assert!(begun.elapsed() < PATIENCE, "what was sent is not made certain");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(stream);
    assert_eq!(portal.finish(number, None).upload().offset, certain as u64);
    assert_eq!(portal.send(write_upload(b"", certain as u64), &bytes[certain..]).upload().offset, whole as u64);
    drop(portal);
    let said = read(&sidecar).unwrap();
    let newest = known(&said).pop().unwrap();
    assert!(newest["offset"] == whole, "all of it has come: {newest}");
    (newest["synced"] == certain).then_some((world, said))
}

#[test]
fn after_a_power_cut_what_was_not_certain_is_asked_for_again_and_the_whole_comes_right() {
    let bytes = content(5 * MIB);
    let (certain, whole) = (3 * MIB, bytes.len());
    let (world, said) = (0..TRIES).find_map(|_| partly_certain(&bytes, certain)).expect("the rest is in memory alone");
    let sidecar = world.at(format!("{PART_NAME}.json"));

    let (there, page) = (&bytes[..certain], 4096);
    let mut with_a_hole = bytes.clone();
    with_a_hole[certain + page..certain + 9 * page].fill(0);
    let losses = [
        ("zeros instead of the rest", [there, vec![0; whole - certain].as_slice()].concat(), certain),
        ("some pages in between are lost", with_a_hole, certain),
        ("the file ends there", there.to_vec(), certain),
        ("what lay on the disk before, and more of it", [there, vec![0xa5; 4 * MIB].as_slice()].concat(), certain),
        ("a disk that had said it too early", bytes[..MIB].to_vec(), MIB),
        ("all is there, and nobody can know it", bytes.clone(), certain),
    ];
    for (what, lies, at) in &losses {
        for is_newest_lost in [false, true] {
            let what = format!("{what}, the newest slot lost: {is_newest_lost}");
            if world.at("file").exists() {
                rename(world.at("file"), world.at(PART_NAME)).unwrap();
            }
            write(world.at(PART_NAME), lies).unwrap();
            write(&sidecar, after_a_start(&said, is_newest_lost)).unwrap();
            let mut portal = world.portal(Way::Program);
            assert_eq!(offset(&mut portal, b""), *at as u64, "{what}");
            // Whoever goes on as if nothing had been, or takes it for whole, hears from where to send again.
            let is_asked_again = |problem: Problem| {
                assert_eq!((problem.code, problem.bytes), (Code::OffsetDiffers, Some(*at as u64)), "{what}");
            };
            is_asked_again(portal.send(write_upload(b"", whole as u64), b"").problem());
            is_asked_again(portal.ask(Verb::FinishUpload(part(b""))).problem());
            assert!(!world.at("file").exists(), "{what}");
            let state = portal.send(write_upload(b"", *at as u64), &bytes[*at..]).upload();
            assert_eq!(state.offset, whole as u64, "{what}");
            portal.ask(Verb::FinishUpload(part(b""))).done();
            assert!(read(world.at("file")).unwrap() == bytes, "{what}");
        }
    }
}
