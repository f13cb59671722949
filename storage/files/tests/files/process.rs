//! Beginning, staying within bounds, and ending.

use std::collections::HashSet;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use eirene_files::{Settings, StartError, serve};
use eirene_files_protocol::{Channel, Code, MOST_REQUESTS, MadeAt, Outcome, ToFiles};

use crate::ask::make;
use crate::bench::{PERSON, Way, World, is_root, list, program, read};

#[test]
fn it_says_who_it_is_and_which_spaces_it_has() {
    let world = World::new();
    std::fs::remove_dir(world.path("other")).unwrap();
    let portal = world.portal(Way::Program);
    let uid = if is_root() { PERSON } else { rustix::process::geteuid().as_raw() };
    assert_eq!(portal.hello.uid, uid);
    let problems: Vec<_> = portal.hello.spaces.iter().map(|space| space.problem.map(|problem| problem.code)).collect();
    assert_eq!(problems, [None, Some(Code::NotFound)]);
}

#[test]
fn a_directory_that_is_not_the_one_that_was_made_is_no_space_and_is_not_written_to() {
    let world = World::new();
    let inode = std::fs::metadata(world.path("space")).unwrap().ino();
    let tried = |inode: u64, marker: Option<&str>| {
        let mut portal = world.portal_that_knows(MadeAt { inode, marker: marker.map(str::to_owned) });
        let opened = portal.hello.spaces[0].problem.map(|problem| problem.code);
        let made = portal.code(make(b"new", false));
        assert_eq!(opened, made, "whoever asks all the same hears the same");
        assert_eq!(std::fs::remove_dir(world.at("new")).is_ok(), made.is_none());
        made
    };
    assert_eq!(tried(inode, None), None);
    assert_eq!(tried(inode, Some("00ff")), None, "the marker was lost, the directory was not");
    // What lies below a mount point while nothing is mounted there.
    assert_eq!(tried(inode + 1, None), Some(Code::NoSuchSpace));
    assert_eq!(tried(inode + 1, Some("00ff")), Some(Code::NoSuchSpace));
    for (marker, problem) in [("00ff\n", None), ("ff00", Some(Code::NoSuchSpace)), ("", Some(Code::NoSuchSpace))] {
        std::fs::write(world.path(".eirene-root"), marker).unwrap();
        assert_eq!(tried(inode + 1, Some("00ff")), problem, "{marker:?}");
    }
    std::fs::remove_file(world.path(".eirene-root")).unwrap();
    std::fs::create_dir(world.path(".eirene-root")).unwrap();
    assert_eq!(tried(inode + 1, Some("00ff")), Some(Code::NoSuchSpace));
}

#[test]
fn nobody_but_a_person_is_served() {
    let (_near, far) = Channel::pair().unwrap();
    let settings = Settings { least_uid: u32::MAX, landlock: false };
    assert!(matches!(serve(far, &settings), Err(StartError::NotAPerson(_))));
    if is_root() {
        for uid in [0, 999] {
            let (near, far) = Channel::pair().unwrap();
            // The command goes, and the far end with it.
            let output = program().uid(uid).stdin(Stdio::from(far.into_descriptor())).output().unwrap();
            assert!(!output.status.success(), "{uid}");
            assert!(near.receive(&mut Vec::new()).unwrap().is_none(), "{uid}: nothing is said");
        }
    }
}

#[test]
fn an_argument_and_another_kind_of_input_are_refused() {
    let refused = |output: std::process::Output, word: &str| {
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{output:?}");
    };
    refused(program().arg("--least-uid=0").stdin(Stdio::null()).output().unwrap(), "no arguments");
    refused(program().stdin(Stdio::null()).output().unwrap(), "not a packet socket");
}

#[test]
fn it_ends_with_its_channel_though_nobody_reads_what_it_sends() {
    let world = World::new();
    std::fs::File::create(world.at("large")).unwrap().set_len(64 << 20).unwrap();
    let mut portal = world.portal(Way::Program);
    let (number, stream) = portal.begin(read(b"large"));
    portal.hear(number).unwrap();
    let mut child = portal.child.take().unwrap();
    drop(portal);
    assert!(child.wait().unwrap().success());
    drop(stream);
}

#[test]
fn a_stream_that_is_closed_or_cancelled_is_not_written_to_any_longer() {
    for way in Way::BOTH {
        let world = World::new();
        std::fs::File::create(world.at("large")).unwrap().set_len(64 << 20).unwrap();
        let mut portal = world.portal(way);
        let (number, stream) = portal.begin(read(b"large"));
        portal.hear(number).unwrap();
        drop(stream);
        assert_eq!(portal.finish(number, None).code(), Some(Code::CutOff));

        let (number, stream) = portal.begin(read(b"large"));
        portal.hear(number).unwrap();
        portal.channel.send(&ToFiles::Cancel(number).encode().unwrap(), None).unwrap();
        // Nobody reads: the request ends though its stream is full.
        assert_eq!(portal.finish(number, None).code(), Some(Code::Cancelled));
        let mut rest = Vec::new();
        stream.unwrap().read_to_end(&mut rest).unwrap();
        assert!(rest.len() < 64 << 20);
    }
}

#[test]
fn metadata_does_not_wait_behind_streams_and_there_are_only_so_many_requests() {
    let world = World::new();
    std::fs::File::create(world.at("large")).unwrap().set_len(64 << 20).unwrap();
    let mut portal = world.portal(Way::Program);
    // Nobody reads these: they fill every thread and the queue.
    let mut begun: Vec<_> = (0..10).map(|_| portal.begin(read(b"large"))).collect();
    // Each has a thread of its own: they begin in any order.
    let begins: HashSet<_> =
        begun.iter().map(|_| portal.hear_any()).map(|(number, said)| said.map(|_| number).unwrap()).collect();
    assert_eq!(begins, begun.iter().map(|(number, _)| *number).collect());
    assert_eq!(portal.list(b"").entries().len(), 1);
    begun.extend((0..MOST_REQUESTS - 10).map(|_| portal.begin(read(b"large"))));
    let (number, _) = portal.begin(eirene_files_protocol::Verb::List(list(b"")));
    assert!(matches!(portal.hear(number), Err(Outcome::Problem(problem)) if problem.code == Code::TooMany));
}
