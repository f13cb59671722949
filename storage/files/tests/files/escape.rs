//! Attempts to have the file process read, list, count or name what is not in its space.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{create_dir, create_dir_all, hard_link, write};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use eirene_files_protocol::{
    Answer, Code, EntryKind, FromFiles, HostileText, Link, Outcome, Part, RequestNumber, Stat, ToFiles, Verb,
};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::bench::{
    Ends, PERSON, SECRET, SECRET_NAME, SPACE, Way, World, archive, is_root, open, preview, read, relative, unpack,
};

#[test]
fn dot_dot_is_no_component() {
    for path in ["..", "../outside", "a/../../outside", "a/..", "/etc/passwd", "./a", "a//b", "a\\u0000b"] {
        let world = World::new();
        create_dir(world.at("a")).unwrap();
        let portal = world.portal(Way::Program);
        let good = ToFiles::Request(RequestNumber(1), Verb::Stat(Stat { space: SPACE, path: relative(b"a") }));
        let evil = String::from_utf8_lossy(&good.encode().unwrap()[12..]).replace(r#""a""#, &format!("\"{path}\""));
        let frame = [&good.encode().unwrap()[..12], evil.as_bytes()].concat();
        portal.channel.send(&frame, None).unwrap();
        assert!(
            portal.channel.receive(&mut Vec::new()).unwrap().is_none(),
            "{path}: whoever says this is not answered"
        );
    }
}

#[test]
fn links_that_leave_are_named_and_not_followed() {
    for way in Way::BOTH {
        let world = World::new();
        let secret = world.secret();
        write(world.at("own"), "own").unwrap();
        let targets = [
            secret.to_str().unwrap().to_owned(),
            format!("../outside/{SECRET_NAME}"),
            format!("../space/../outside/{SECRET_NAME}"),
            world.path("outside").to_str().unwrap().to_owned(),
            "../outside".to_owned(),
            "..".to_owned(),
            "/".to_owned(),
            "../other".to_owned(),
            format!("/proc/self/root{}", secret.display()),
            format!("/proc/self/fd/0/../../../..{}", secret.display()),
            "/proc/self/cwd".to_owned(),
            // Leads back in, by a way through the outside.
            "../space/own".to_owned(),
            world.at("own").to_str().unwrap().to_owned(),
        ];
        let mut portal = world.portal(way);
        for (number, target) in targets.iter().enumerate() {
            let name = format!("link{number}");
            symlink(target, world.at(&name)).unwrap();
            symlink(&name, world.at(format!("chain{number}"))).unwrap();
            for path in [name, format!("chain{number}")] {
                let heard = portal.every_verb(path.as_bytes());
                for verb in ["list", "read", "archive"] {
                    assert_eq!(heard[verb].code(), Some(Code::LeadsOut), "{way:?} {verb} {path} -> {target}");
                }
                let Outcome::Done(Answer::Stated(stated)) = &heard["stat"].outcome else { panic!("a link is there") };
                assert_eq!(stated.kind, EntryKind::Link);
                assert_eq!(stated.link.as_ref().unwrap().leads_to, None, "{target}");
                for below in [SECRET_NAME, "own", "etc/passwd"] {
                    let heard = portal.every_verb(format!("{path}/{below}").as_bytes());
                    for (verb, heard) in heard {
                        assert!(
                            matches!(heard.code(), Some(Code::LeadsOut | Code::NotADirectory)),
                            "{way:?} {verb} {path}/{below} -> {target}: {:?}",
                            heard.outcome
                        );
                    }
                }
            }
        }
        // As they are in an archive, their text and no more.
        let heard = portal.archive(b"");
        assert!(!String::from_utf8_lossy(&heard.stream).contains(SECRET));
        let archived = unpack(&heard.stream);
        for (number, target) in targets.iter().enumerate() {
            assert_eq!(archived[format!("top/link{number}").as_bytes()], format!("-> {target}").into_bytes());
        }
        assert_eq!(archived.len(), 2 * targets.len() + 2);
    }
}

#[test]
fn links_that_stay_are_followed() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at("a/b")).unwrap();
        write(world.at("a/file"), "text").unwrap();
        symlink("../file", world.at("a/b/up")).unwrap();
        symlink("a/b", world.at("down")).unwrap();
        symlink("loop", world.at("loop")).unwrap();
        symlink("nowhere", world.at("broken")).unwrap();
        let mut portal = world.portal(way);
        assert_eq!(portal.read(b"down/up").stream, b"text");
        let Outcome::Done(Answer::Stated(stated)) = portal.stat(b"down/up").outcome else { panic!("a link is there") };
        let link = Link { target: HostileText(b"../file".to_vec()), leads_to: Some(EntryKind::File) };
        assert_eq!(stated.link, Some(link));
        assert_eq!(portal.read(b"loop").code(), Some(Code::TooManyLinks));
        assert_eq!(portal.read(b"broken").code(), Some(Code::NotFound));
        let names: Vec<_> =
            portal.list(b"down").entries().into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
        assert_eq!(names, [b"up"]);
    }
}

#[test]
fn a_link_swapped_in_while_every_verb_runs_leads_nowhere() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir(world.at("place")).unwrap();
        write(world.at("place").join(SECRET_NAME), "harmless").unwrap();
        symlink("../outside", world.at("link")).unwrap();
        let mut portal = world.portal(way);
        let (place, link) = (world.at("place"), world.at("link"));
        let over = AtomicBool::new(false);
        let mut outcomes = BTreeMap::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &place, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let _ends = Ends(&over);
            let path = format!("place/{SECRET_NAME}").into_bytes();
            let mut rounds = 0;
            // Both must have been met by each verb, or nothing was tried.
            while rounds < 500 || outcomes.values().any(|(inside, outside)| *inside == 0 || *outside == 0) {
                rounds += 1;
                assert!(rounds < 100_000, "{way:?}: the race was not met: {outcomes:?}");
                let heard = [
                    ("list", portal.list(b"place")),
                    ("stat", portal.stat(&path)),
                    ("read", portal.read(&path)),
                    ("archive", portal.archive(b"place")),
                    ("preview", portal.ask(preview(&path))),
                ];
                for (verb, heard) in heard {
                    let met = outcomes.entry(verb).or_insert((0, 0));
                    let content = heard.stream.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes());
                    assert!(!content, "{way:?} {verb}: the secret came out");
                    assert!(!format!("{:?}", heard.parts).contains(SECRET), "{way:?} {verb}: the secret came out");
                    match &heard.outcome {
                        Outcome::Done(Answer::Stated(stated)) => {
                            assert_eq!(stated.version.bytes, 8, "the harmless one");
                        }
                        Outcome::Done(_) => {}
                        Outcome::Problem(problem) => {
                            assert!(matches!(problem.code, Code::LeadsOut | Code::Busy), "{verb}: {problem:?}");
                        }
                    }
                    if heard.code().is_none() { met.0 += 1 } else { met.1 += 1 }
                }
            }
        });
    }
}

#[test]
fn a_hard_link_to_anothers_file_gives_no_more_than_the_person_has() {
    let world = World::new();
    std::fs::set_permissions(world.secret(), std::fs::Permissions::from_mode(0o000)).unwrap();
    hard_link(world.secret(), world.at("linked")).unwrap();
    let mut portal = world.portal(Way::Program);
    let heard = portal.every_verb(b"linked");
    assert_eq!(heard["read"].code(), Some(Code::Forbidden));
    assert_eq!(heard["archive"].code(), Some(Code::Forbidden));
    let heard = portal.archive(b"");
    let Outcome::Done(Answer::Written { skipped, skipped_in_all: 1, .. }) = heard.outcome else {
        panic!("one is left out")
    };
    assert_eq!((skipped[0].path.as_bytes(), skipped[0].why), (b"linked".as_slice(), Code::Forbidden));
    assert_eq!(unpack(&heard.stream).len(), 1);
}

/// The program in a mount namespace where the secret's directory and an empty file system are mounted in the space.
pub(crate) fn with_mounts(world: &World) -> Command {
    with_mounts_at(world, "bound")
}

/// The same, with the secret's directory mounted somewhere else.
pub(crate) fn with_mounts_at(world: &World, bound: &str) -> Command {
    const MOUNT: &str = r#"mount --make-rprivate / && mount --bind "$1" "$2" && mount --bind "$3" "$4" &&
        mount -t tmpfs none "$5" && shift 5 && exec "$@""#;
    let mut command = Command::new("unshare");
    // Whoever is not root becomes root of a namespace to mount, and an ordinary user of another one then.
    command.args(if is_root() { ["--mount"].as_slice() } else { ["--user", "--map-root-user", "--mount"].as_slice() });
    command.args(["--", "sh", "-c", MOUNT, "sh"]);
    let (outside, secret) = (world.path("outside"), world.secret());
    command.arg(outside).arg(world.at(bound)).arg(secret).arg(world.at("file")).arg(world.at("empty"));
    if is_root() {
        command.args(["setpriv", &format!("--reuid={PERSON}"), &format!("--regid={PERSON}"), "--clear-groups"]);
    } else {
        command.args(["unshare", "--user", &format!("--map-user={PERSON}"), &format!("--map-group={PERSON}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_eirene-files"));
    command
}

#[test]
fn a_mount_inside_a_space_is_not_entered() {
    let world = World::new();
    for name in ["bound", "empty", "plain"] {
        create_dir(world.at(name)).unwrap();
    }
    write(world.at("file"), "covered").unwrap();
    symlink("bound", world.at("link")).unwrap();
    let mut portal = world.portal_with(with_mounts(&world));
    let entries: BTreeMap<_, _> =
        portal.list(b"").entries().into_iter().map(|entry| (entry.name.as_bytes().to_vec(), entry)).collect();
    assert_eq!(entries[b"plain".as_slice()].kind, EntryKind::Directory);
    for name in ["bound", "empty", "file"] {
        let entry = &entries[name.as_bytes()];
        assert_eq!(
            (entry.kind, entry.bytes, entry.modified, entry.owner),
            (EntryKind::Mount, None, None, None),
            "{name}"
        );
        for (verb, heard) in portal.every_verb(name.as_bytes()) {
            assert_eq!(heard.code(), Some(Code::CrossesAMount), "{verb} {name}");
        }
    }
    for (verb, heard) in portal.every_verb(format!("bound/{SECRET_NAME}").as_bytes()) {
        assert_eq!(heard.code(), Some(Code::CrossesAMount), "{verb}");
    }
    for verb in ["list", "read", "archive"] {
        assert!(portal.every_verb(b"link")[verb].code().is_some(), "{verb} through a link");
    }
    let heard = portal.archive(b"");
    heard.assert_innocent("archive");
    let Outcome::Done(Answer::Written { skipped, skipped_in_all: 3, .. }) = heard.outcome else {
        panic!("{:?}", heard.outcome)
    };
    assert!(skipped.iter().all(|skipped| skipped.why == Code::CrossesAMount));
    let archived: Vec<_> = unpack(&heard.stream).into_keys().collect();
    assert_eq!(archived, [b"top/".as_slice(), b"top/link", b"top/plain/"]);
}

#[test]
fn names_come_back_byte_for_byte() {
    let longest = [b'n'; 255];
    let longest_emoji = "\u{1f980}".repeat(63);
    let names: [&[u8]; 20] = [
        b"new\nline",
        b"<img src=x onerror=alert(1)>",
        b"\"><script>alert(1)<",
        b"quote'\"`",
        "\u{202e}gpj.exe".as_bytes(),
        b"\x1b[31mred\x1b[0m",
        b"\x01\x02\x7f",
        b"%00%2e%2e%2f",
        b"..\\..\\windows",
        b"...",
        b" ",
        b"-rf",
        b"caf\xe9 not utf-8 \xff\xfe",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        b"Case",
        b"case",
        "\u{1f980}\u{10ffff}".as_bytes(),
        longest_emoji.as_bytes(),
        &longest,
    ];
    for way in Way::BOTH {
        let world = World::new();
        for name in names {
            write(world.at(OsStr::from_bytes(name)), name).unwrap();
        }
        let mut portal = world.portal(way);
        let listed: BTreeSet<_> =
            portal.list(b"").entries().into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
        assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
        for name in names {
            assert_eq!(portal.read(name).stream, name, "{}", name.escape_ascii());
            assert_eq!(portal.stat(name).code(), None);
        }
        let mut archived = unpack(&portal.archive(b"").stream);
        assert_eq!(archived.remove(b"top/".as_slice()), Some(Vec::new()));
        let expected = names.iter().map(|name| ([b"top/", *name].concat(), name.to_vec()));
        assert_eq!(archived, expected.collect::<BTreeMap<_, _>>());
    }
}

#[test]
fn pipes_sockets_and_devices_are_never_opened() {
    for way in Way::BOTH {
        let world = World::new();
        mknodat(CWD, world.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        let _socket = UnixListener::bind(world.at("socket")).unwrap();
        let mut names = vec!["pipe", "socket"];
        if is_root() {
            let zero = rustix::fs::makedev(1, 5);
            mknodat(CWD, world.at("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), zero).unwrap();
            names.push("device");
        }
        let pipe = world.at("pipe");
        // Waits until somebody opens the other end, however shortly.
        let (opening, opened) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let opened = std::fs::OpenOptions::new().write(true).open(pipe);
            opening.send(()).unwrap();
            opened
        });
        let mut portal = world.portal(way);
        for name in &names {
            let heard = portal.every_verb(name.as_bytes());
            assert_eq!(heard["read"].code(), Some(Code::NotSupported), "{name}");
            assert_eq!(heard["archive"].code(), Some(Code::NotSupported), "{name}");
            assert_eq!(heard["list"].code(), Some(Code::NotADirectory), "{name}");
            let Outcome::Done(Answer::Stated(stated)) = &heard["stat"].outcome else { panic!("it is there") };
            assert_eq!(stated.kind, EntryKind::Special);
        }
        let heard = portal.archive(b"");
        let Outcome::Done(Answer::Written { skipped_in_all, .. }) = heard.outcome else {
            panic!("{:?}", heard.outcome)
        };
        assert_eq!(skipped_in_all, names.len() as u64);
        assert!(portal.list(b"").entries().iter().all(|entry| entry.kind == EntryKind::Special));
        assert!(opened.try_recv().is_err(), "{way:?}: the pipe was opened");
        drop(open(&world.at("pipe")));
        writer.join().unwrap().unwrap();
    }
}

#[test]
fn a_directory_swapped_during_the_walk_is_left_alone() {
    for way in Way::BOTH {
        let world = World::new();
        // Whichever comes first fills the stream: while nobody reads, the walk stands still before the other.
        for name in ["one", "two"] {
            create_dir(world.at(name)).unwrap();
            std::fs::File::create(world.at(name).join("large")).unwrap().set_len(8 << 20).unwrap();
            write(world.at(name).join(SECRET_NAME), "harmless").unwrap();
        }
        let mut portal = world.portal(way);
        let (number, stream) = portal.begin(archive(b""));
        let mut stream = stream.unwrap();
        let mut begin = vec![0; 1 << 20];
        stream.read_exact(&mut begin).unwrap();
        let one_comes_first = String::from_utf8_lossy(&begin).contains("top/one/");
        let (first, second) = if one_comes_first { ("one", "two") } else { ("two", "one") };
        // The one that is walked goes to another place, the one that is not gives way to a link; so does what lies in the first.
        std::fs::rename(world.at(first), world.path("other").join("moved")).unwrap();
        symlink("../outside", world.at(first)).unwrap();
        std::fs::rename(world.at(second), world.path("other").join("away")).unwrap();
        symlink("../outside", world.at(second)).unwrap();
        let heard = portal.finish(number, Some(stream));
        let bytes = [begin, heard.stream].concat();
        assert!(!bytes.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()), "{way:?}: the secret came out");
        assert!(matches!(heard.outcome, Outcome::Done(_)), "{:?}", heard.outcome);
        let archived = unpack(&bytes);
        assert_eq!(archived[format!("top/{second}").as_bytes()], b"-> ../outside");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_not_called_whole() {
    for way in Way::BOTH {
        let world = World::new();
        let file = std::fs::File::create(world.at("file")).unwrap();
        file.set_len(64 << 20).unwrap();
        let mut portal = world.portal(way);

        let (number, stream) = portal.begin(read(b"file"));
        let Ok(Part::ReadBegins(begins)) = portal.hear(number) else { panic!("it begins") };
        assert_eq!((begins.from, begins.to, begins.version.bytes), (0, 64 << 20, 64 << 20));
        file.set_len(1).unwrap();
        let heard = portal.finish(number, stream);
        assert_eq!(heard.code(), Some(Code::ChangedMeanwhile));
        assert!((heard.stream.len() as u64) < begins.to);

        // An archive has said how long it is, and stays readable.
        file.set_len(64 << 20).unwrap();
        let (number, stream) = portal.begin(archive(b""));
        let mut stream = stream.unwrap();
        let mut begin = vec![0; 4096];
        stream.read_exact(&mut begin).unwrap();
        file.set_len(1).unwrap();
        let heard = portal.finish(number, Some(stream));
        let Outcome::Done(Answer::Written { skipped, .. }) = &heard.outcome else { panic!("{:?}", heard.outcome) };
        assert_eq!((skipped[0].path.as_bytes(), skipped[0].why), (b"file".as_slice(), Code::ChangedMeanwhile));
        assert_eq!(unpack(&[begin, heard.stream].concat())[b"top/file".as_slice()].len(), 64 << 20);
    }
}

#[test]
fn what_is_the_platforms_is_reserved_by_name_by_link_and_in_archives() {
    for way in Way::BOTH {
        let world = World::new();
        create_dir_all(world.at(".eirene/sessions/1")).unwrap();
        create_dir_all(world.at(".eirene-trash/1000/files")).unwrap();
        create_dir(world.at("deep")).unwrap();
        write(world.at(".eirene/sessions/1").join(SECRET_NAME), SECRET).unwrap();
        write(world.at(".eirene-trash/1000/files").join(SECRET_NAME), SECRET).unwrap();
        write(world.at(".eirene-upload-1"), SECRET).unwrap();
        write(world.at("deep/.eirene"), "not the platform's").unwrap();
        symlink(".eirene/sessions", world.at("sessions")).unwrap();
        symlink(format!("../.eirene/sessions/1/{SECRET_NAME}"), world.at("deep/job")).unwrap();
        symlink(".", world.at("deep/here")).unwrap();
        symlink("../", world.at("deep/up")).unwrap();
        let mut portal = world.portal(way);
        let job = format!(".eirene/sessions/1/{SECRET_NAME}");
        for path in [".eirene", ".eirene/sessions", &job, ".eirene-trash", ".eirene-trash/1000", "deep/up/.eirene"] {
            for (verb, heard) in portal.every_verb(path.as_bytes()) {
                assert_eq!(heard.code(), Some(Code::Reserved), "{way:?} {verb} {path}");
            }
        }
        for path in ["sessions", "deep/job"] {
            let heard = portal.every_verb(path.as_bytes());
            for verb in ["list", "read", "archive"] {
                assert_eq!(heard[verb].code(), Some(Code::Reserved), "{way:?} {verb} {path}");
            }
        }
        for path in ["sessions/1", "deep/up/sessions/1", "deep/up/.eirene/sessions/1"] {
            for (verb, heard) in portal.every_verb(path.as_bytes()) {
                assert_eq!(heard.code(), Some(Code::Reserved), "{way:?} {verb} {path}");
            }
        }
        for root in ["", "deep/up"] {
            let names: Vec<_> = portal
                .list(root.as_bytes())
                .entries()
                .into_iter()
                .map(|entry| entry.name.as_bytes().to_vec())
                .collect();
            assert_eq!(names, [b"deep".as_slice(), b"sessions"], "{root}");
            let archived = portal.archive(root.as_bytes());
            archived.assert_innocent(root);
            let names: Vec<_> = unpack(&archived.stream).into_keys().collect();
            let expected = [
                "top/",
                "top/deep/",
                "top/deep/.eirene",
                "top/deep/here",
                "top/deep/job",
                "top/deep/up",
                "top/sessions",
            ];
            assert_eq!(names, expected.map(|name| name.as_bytes().to_vec()));
        }
    }
}

#[test]
fn a_deep_tree_is_archived_as_far_as_it_is_gone_into() {
    let world = World::new();
    let deep = "d/".repeat(100);
    create_dir_all(world.at(&deep)).unwrap();
    let mut portal = world.portal(Way::Program);
    let heard = portal.archive(b"");
    let Outcome::Done(Answer::Written { skipped, skipped_in_all: 1, .. }) = &heard.outcome else {
        panic!("{:?}", heard.outcome)
    };
    assert_eq!(skipped[0].why, Code::TooDeep);
    assert_eq!(unpack(&heard.stream).len(), 80);
}

#[test]
fn a_hostile_frame_ends_the_process_and_nothing_else() {
    let world = World::new();
    let mut portal = world.portal(Way::Program);
    portal.channel.send(b"noise", None).unwrap();
    assert!(portal.channel.receive(&mut Vec::new()).unwrap().is_none());
    assert!(!portal.child.as_mut().unwrap().wait().unwrap().success());
    // A stream with what has none, and none with what needs one.
    for (verb, stream) in [(Verb::Stat(Stat { space: SPACE, path: relative(b"") }), true), (read(b""), false)] {
        let portal = world.portal(Way::Program);
        let frame = ToFiles::Request(RequestNumber(1), verb).encode().unwrap();
        let (_far, near) = std::os::unix::net::UnixStream::pair().unwrap();
        portal.channel.send(&frame, stream.then_some(std::os::fd::AsFd::as_fd(&near))).unwrap();
        let mut buffer = Vec::new();
        let heard = portal.channel.receive(&mut buffer).unwrap();
        assert!(heard.is_none(), "{:?}", heard.map(|packet| FromFiles::decode(packet.bytes)));
    }
}
