//! `eirene fs cp` in all directions: what is copied is what lies there, also after a break, and nothing else is touched.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::portal::{Done, Home, Portal};
use crate::space::{Space, portal};

const PIECE: usize = 8 * 1024 * 1024;

/// Every file below a directory, by its path in bytes; no link, and nothing that is removed meanwhile.
pub(crate) fn tree(top: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(directory) = todo.pop() {
        for entry in still_there(fs::read_dir(directory)).into_iter().flatten() {
            let entry = entry.unwrap();
            let path = entry.path();
            let Some(kind) = still_there(entry.file_type()) else { continue };
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
                let Some(content) = still_there(fs::read(&path)) else { continue };
                found.insert(name, content);
            }
        }
    }
    found
}

fn still_there<T>(looked: std::io::Result<T>) -> Option<T> {
    match looked {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        looked => Some(looked.unwrap()),
    }
}

pub(crate) fn remembered(home: &Home) -> usize {
    fs::read_dir(home.directory.path().join(".local/state/eirene/transfers")).map_or(0, Iterator::count)
}

/// Names that are hard: newlines, no text, the order of letters turned, the longest there is.
fn hard_names() -> Vec<Vec<u8>> {
    let long = [b'x'; 255];
    [&b"plain"[..], b"a\nb", b"caf\xe9\xff", "\u{202e}gpj.exe".as_bytes(), b" ", b"-r", b"a:b", b"100%", &long]
        .map(<[u8]>::to_vec)
        .to_vec()
}

pub(crate) fn interrupt(child: &mut std::process::Child) {
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn directories_go_up_and_come_down_byte_for_byte_whatever_they_are_called() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    for (number, name) in hard_names().iter().enumerate() {
        let directory = top.join(OsStr::from_bytes(name));
        fs::create_dir_all(&directory).unwrap();
        for name in hard_names() {
            fs::write(directory.join(OsStr::from_bytes(&name)), format!("{number}").repeat(number)).unwrap();
        }
    }
    fs::create_dir(top.join("empty")).unwrap();
    let before = tree(&top);
    let done = home.run(&["fs", "cp", "-r", top.to_str().unwrap(), "home:up"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("Copied 81 files"), "{done:?}");
    let there: BTreeMap<_, _> =
        space.lock().unwrap().files.iter().map(|(path, bytes)| (path[3..].to_vec(), bytes.clone())).collect();
    assert!(there == before, "what is there is what is here");
    assert!(space.lock().unwrap().directories.contains(&b"up/empty"[..]));

    let down = home.directory.path().join("down/");
    let words = ["fs", "cp", "-r", "--parents", "--checksum", "home:up", down.to_str().unwrap()];
    let done = home.run(&words);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(tree(&down.join("up")) == before);
    assert!(down.join("up/empty").is_dir());
    assert_eq!(remembered(&home), 0);
    // The same command again has nothing to do, in both directions.
    let (sent, made) =
        (space.lock().unwrap().sent, portal.lines().iter().filter(|line| line.ends_with("/uploads")).count());
    let again = home.run(&words);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("Copied 0 files") && again.err.contains("81 were the same already"), "{again:?}");
    let again = home.run(&["fs", "cp", "-r", top.join(".").to_str().unwrap(), "home:"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let up = home.run(&["fs", "cp", "-r", down.join("up").to_str().unwrap(), "home:"]);
    assert!(up.err.contains("81 were the same already"), "{up:?}");
    assert_eq!(space.lock().unwrap().sent, sent);
    assert_eq!(portal.lines().iter().filter(|line| line.ends_with("/uploads")).count(), made + 81);
}

#[test]
fn a_download_that_breaks_off_goes_on_where_it_was() {
    let content = "0123456789abcdef".repeat(200_000);
    let space = Space::with(&[(b"big", content.as_bytes())]);
    space.lock().unwrap().cut = Some(1_000_000);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let target = home.directory.path().join("big");
    let done = home.run(&["fs", "cp", "--json", "home:big", target.to_str().unwrap()]);
    assert_eq!(done.json()["bytes"], content.len());
    assert!(fs::read_to_string(&target).unwrap() == content);
    assert_eq!(fs::metadata(&target).unwrap().mtime(), 1_767_396_600, "2026-01-02T23:30:00Z");
    let ranges: Vec<String> = portal.seen().iter().map(|request| request.header("range").to_owned()).collect();
    assert!(
        ranges.contains(&"bytes=1000000-".to_owned()) && ranges.contains(&"bytes=3000000-".to_owned()),
        "{ranges:?}"
    );
    assert_eq!(remembered(&home), 0);
}

#[test]
fn an_upload_whose_connection_breaks_goes_on_where_the_portal_says() {
    let content = "0123456789abcdef".repeat((2 * PIECE + PIECE / 2) / 16);
    let space = Space::with(&[]);
    space.lock().unwrap().silent = 2;
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let file = home.directory.path().join("a b");
    fs::write(&file, &content).unwrap();
    let done = home.run(&["fs", "cp", "--checksum", file.to_str().unwrap(), "home:"]);
    assert_eq!(
        (done.code, done.err.as_str()),
        (Some(0), &*format!("Copied {} to home:a b.\n", file.display())),
        "{done:?}"
    );
    assert!(space.lock().unwrap().files[&b"a b"[..]] == content.as_bytes());
    let sent =
        portal.seen().into_iter().filter(|request| request.line.starts_with("PATCH")).map(|request| request.body.len());
    let sent: Vec<usize> = sent.collect();
    assert_eq!(sent.iter().sum::<usize>(), content.len(), "no byte is sent twice");
    assert_eq!(sent[..3], [PIECE, PIECE / 2, PIECE / 4], "the line may be too slow for large pieces");
    assert_eq!(remembered(&home), 0);
}

/// Has a download begun and interrupted by Ctrl-C, with some of it there.
fn interrupted_download(home: &Home, portal: &Portal, target: &Path, content: &'static str) {
    portal.answer(move |request, reply| {
        if request.line.contains("/entry") {
            let entry = json!({"path": "big", "kind": "file", "size_bytes": content.len(), "modified_at": "2026-01-02T23:30:00Z"});
            return reply.json(200, &entry);
        }
        let tag = crate::space::etag(content.as_bytes());
        reply.bytes(200, &[("etag", tag)], content.len(), &content.as_bytes()[..content.len() / 2]);
        reply.hold();
    });
    let mut child = home.eirene(&["fs", "cp", "home:big", target.to_str().unwrap()]).spawn().unwrap();
    let part = target.with_file_name(".big.eirene-part");
    while fs::metadata(&part).map_or(0, |found| found.len()) < content.len() as u64 / 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(child.try_wait().unwrap().is_none(), "it is still on its way");
    }
    interrupt(&mut child);
    let done = Done::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("the same command goes on where it stopped"), "{done:?}");
    assert!(!target.exists() && remembered(home) == 1);
    for entry in fs::read_dir(home.directory.path().join(".local/state/eirene/transfers")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(entry.path()).unwrap().contains(crate::portal::TOKEN));
    }
}

#[test]
fn what_ctrl_c_interrupts_goes_on_by_the_same_command_and_anew_if_the_file_changed() {
    const CONTENT: &str = "first version, first half; first version, second half.";
    for changed in [false, true] {
        let home = {
            let nobody = Portal::new(|_, reply| reply.problem(500, "internal"));
            let home = Home::signed_in(&nobody);
            let target = home.directory.path().join("big");
            interrupted_download(&home, &nobody, &target, CONTENT);
            let now: &[u8] = if changed { b"second version" } else { CONTENT.as_bytes() };
            let space = Space::with(&[(b"big", now)]);
            let at = std::sync::Arc::clone(&space);
            nobody.answer(move |request, reply| at.lock().unwrap().answer(request, reply));
            let done = home.run(&["fs", "cp", "home:big", target.to_str().unwrap()]);
            assert_eq!(done.code, Some(0), "{done:?}");
            assert_eq!(fs::read(&target).unwrap(), now, "changed: {changed}");
            let asked = nobody.seen().into_iter().rfind(|request| request.line.contains("/content")).unwrap();
            assert_eq!(asked.header("range"), format!("bytes={}-", CONTENT.len() / 2));
            assert_eq!(asked.header("if-range"), crate::space::etag(CONTENT.as_bytes()));
            home
        };
        assert_eq!(remembered(&home), 0);
        assert!(!home.directory.path().join(".big.eirene-part").exists());
    }
}

#[test]
fn a_recursive_copy_that_ran_out_of_room_goes_on_by_the_same_command() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    fs::create_dir_all(top.join("d")).unwrap();
    for number in 0..8 {
        fs::write(top.join(format!("d/{number}")), format!("{number}").repeat(100)).unwrap();
    }
    fs::write(top.join("big"), "b".repeat(PIECE + 1)).unwrap();
    space.lock().unwrap().takes = Some(5);
    let command = ["fs", "cp", "-r", top.to_str().unwrap(), "home:up"];
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("make room") && done.err.contains("give the same command again"), "{done:?}");
    let first = space.lock().unwrap().files.len();
    assert!((1..9).contains(&first), "{first}");
    space.lock().unwrap().takes = None;
    let done = home.run(&command);
    assert_eq!(done.code, Some(0), "{done:?}");
    // What was on its way when the first one gave up may have arrived since.
    let numbers: Vec<usize> = done.err.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(done.err.contains("were the same already") && numbers.len() == 2, "{done:?}");
    assert!(numbers[0] + numbers[1] == 9 && numbers[1] >= first, "{first} of 9: {done:?}");
    assert_eq!(space.lock().unwrap().files.len(), 9);
    assert_eq!(remembered(&home), 0);
    // The command is over: now that name is somebody else's, and nothing is mixed into it.
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("`home:up` is there already: end it with `/`"), "{done:?}");
}

/// The same command by way of another program, as root or as anybody.
pub(crate) fn by_way_of(program: &str, words: &[&str], eirene: &Command) -> Command {
    let mut command = Command::new(program);
    let set = eirene.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.env_clear().envs(set).args(words).arg(eirene.get_program()).args(eirene.get_args());
    command
}

pub(crate) fn is_root(home: &Home) -> bool {
    fs::metadata(home.directory.path()).unwrap().uid() == 0
}

/// `$1` is the program, `$2` becomes a disk of a mebibyte that nobody else sees, `$3` is what is to be there in the end.
const ON_A_SMALL_DISK: &str = r#"mount --make-rprivate / && mount -t tmpfs -o size=1m none "$2" || exit 1
"$1" fs cp home:big "$2/big"; echo "full: $?" $(ls -A "$2")
mount -o remount,ro "$2" && "$1" fs cp home:big "$2/other"; echo "read-only: $?" $(ls -A "$2")
mount -o remount,rw,size=16m "$2" && "$1" fs cp home:big "$2/big"; echo "with room: $?" $(ls -A "$2")
cmp "$2/big" "$3" && echo same"#;

#[test]
fn a_download_to_a_full_disk_goes_on_once_there_is_room_and_to_a_read_only_one_it_does_not_begin() {
    let content = "0123456789abcdef".repeat(200_000);
    let space = Space::with(&[(b"big", content.as_bytes())]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let (disk, wanted) = (home.directory.path().join("disk"), home.directory.path().join("wanted"));
    fs::create_dir(&disk).unwrap();
    fs::write(&wanted, &content).unwrap();
    let user: &[&str] = if is_root(&home) { &[] } else { &["--user", "--map-root-user"] };
    let words = [user, &["--mount", "--", "sh", "-c", ON_A_SMALL_DISK, "sh"]].concat();
    let mut command = by_way_of("unshare", &words, &home.eirene(&[]));
    let done = Done::from(command.arg(&disk).arg(&wanted).output().unwrap());
    let said: Vec<&str> = done.out.lines().collect();
    let expected = ["full: 1 .big.eirene-part", "read-only: 1 .big.eirene-part", "with room: 0 big", "same"];
    assert_eq!(said, expected, "{done:?}");
    let path = disk.display();
    for words in [
        &*format!("there is no room for `{path}/big` on this machine: make some, then give the same command again"),
        "No space left on device",
        &*format!("cannot write beside `{path}/other`"),
        "Read-only file system",
    ] {
        assert!(done.err.contains(words), "{words}: {done:?}");
    }
    // What came before is not fetched again.
    let requests = portal.seen();
    let from = requests.iter().find_map(|request| request.header("range").strip_prefix("bytes=")).unwrap();
    let from: usize = from.trim_end_matches('-').parse().unwrap();
    assert!(from > 512 * 1024 && from <= 1024 * 1024, "{from}");
    assert_eq!(remembered(&home), 0);
}

#[test]
fn a_directory_that_may_not_be_written_to_is_said_and_stays_as_it_was() {
    let space = Space::with(&[(b"d/a", b"one")]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let closed = home.directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("b"), "theirs").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Root may everything, unless it has laid that down.
    let run = |words: &[&str]| {
        let mut eirene = home.eirene(words);
        if is_root(&home) {
            let laid_down = ["--bounding-set=-dac_override,-dac_read_search", "--"];
            eirene = by_way_of("setpriv", &laid_down, &eirene);
        }
        Done::from(eirene.output().unwrap())
    };
    let closed = closed.to_str().unwrap();
    for (words, says) in [
        (["fs", "cp", "home:d/a", closed].as_slice(), "cannot write beside"),
        (&["fs", "cp", "--on-conflict", "replace", "home:d/a", &format!("{closed}/b")], "cannot write beside"),
        (&["fs", "cp", "-r", "home:d", &format!("{closed}/")], "is no directory that may be written to"),
    ] {
        let done = run(words);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.err.contains(says) && done.err.contains("Permission denied"), "{done:?}");
        assert_eq!(tree(Path::new(closed)), BTreeMap::from([(b"b".to_vec(), b"theirs".to_vec())]));
    }
    assert_eq!((space.lock().unwrap().sent, remembered(&home)), (0, 0), "nothing was asked for");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_hostile_listing_writes_nothing_elsewhere() {
    let space = Space::with(&[(b"good", b"good")]);
    let lie = |path: &str| json!({"name": "x", "path": path, "kind": "file", "size_bytes": 4, "modified_at": null});
    let raw = json!({"path": "x", "raw_path": "Li4vZXZpbA", "kind": "file"});
    let directory = json!({"path": "..", "kind": "directory"});
    let link = json!({"path": "l", "kind": "link", "link": {"target": "/etc", "inside": false}});
    let lies = vec![
        lie("../evil"),
        lie("/tmp/evil"),
        lie("a/b"),
        lie(".."),
        lie(""),
        lie("."),
        raw,
        directory,
        link,
        lie("planted"),
        lie("a\0b"),
    ];
    let count = lies.len();
    space.lock().unwrap().lies = lies;
    space.lock().unwrap().files.insert(b"planted/x".to_vec(), b"evil".to_vec());
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let (outside, down) = (home.directory.path().join("outside"), home.directory.path().join("outside/down"));
    fs::create_dir_all(&down).unwrap();
    // What lies here may be planted, too: a link where a directory is to be, and one where a part is to be.
    symlink(&outside, down.join("d")).unwrap();
    symlink(outside.join("evil"), down.join(".good.eirene-part")).unwrap();
    space.lock().unwrap().put(b"d/evil", b"evil");
    let done = home.run(&["fs", "cp", "-r", "--json", "home:", &format!("{}/.", outside.to_str().unwrap())]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let failed = |done: &Done| {
        let lines = done.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["state"] == "failed").count()
    };
    assert!(failed(&done) >= count, "{done:?}");
    let down = format!("{}/", down.to_str().unwrap());
    fs::rename(outside.join("home/good"), outside.join("was good")).unwrap();
    symlink(&outside, format!("{down}home")).unwrap();
    let done = home.run(&["fs", "cp", "-r", "home:", &down]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let done = home.run(&["fs", "cp", "home:good", &down]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let mut names: Vec<String> = tree(&outside).into_keys().map(|path| String::from_utf8(path).unwrap()).collect();
    names.retain(|name| !name.starts_with("down/"));
    assert_eq!(names, ["home/d/evil", "was good"], "nothing but what lies in the space, where it was wanted");
    assert!(!Path::new("/tmp/evil").exists());
}

#[test]
fn what_is_there_already_is_not_touched_unless_that_is_wanted() {
    let space = Space::with(&[(b"d/a", b"theirs"), (b"d/b", b"b")]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let here = home.directory.path().join("d");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("a"), "mine").unwrap();
    let top = format!("{}/", home.directory.path().to_str().unwrap());
    let done = home.run(&["fs", "cp", "-r", "home:d", &top]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("is there already") && done.err.contains("1 of 2 were not copied"), "{done:?}");
    assert_eq!(fs::read(here.join("a")).unwrap(), b"mine");
    assert_eq!(fs::read(here.join("b")).unwrap(), b"b");
    let done = home.run(&["fs", "cp", "-r", "-n", "home:d", &top]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("1 were there already"), "{done:?}");
    let done = home.run(&["fs", "cp", "--on-conflict", "keep_both", "home:d/a", here.to_str().unwrap()]);
    assert_eq!((done.code, fs::read(here.join("a (2)")).unwrap()), (Some(0), b"theirs".to_vec()), "{done:?}");
    let done = home.run(&["fs", "cp", "--on-conflict", "replace", "home:d/a", here.join("a").to_str().unwrap()]);
    assert_eq!((done.code, fs::read(here.join("a")).unwrap()), (Some(0), b"theirs".to_vec()), "{done:?}");
    // And in the other direction.
    fs::write(here.join("a"), "mine again").unwrap();
    let done = home.run(&["fs", "cp", here.join("a").to_str().unwrap(), "home:d/"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let done = home.run(&["fs", "cp", "-n", here.join("a").to_str().unwrap(), "home:d/"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), "home:d/a is there already.\n"), "{done:?}");
    assert_eq!(space.lock().unwrap().files[&b"d/a"[..]], b"theirs");
}

#[test]
fn links_and_pipes_are_left_alone_and_told() {
    let space = Space::with(&[]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let top = home.directory.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("a"), "a").unwrap();
    symlink("/etc/passwd", top.join("link")).unwrap();
    assert!(Command::new("mkfifo").arg(top.join("pipe")).status().unwrap().success());
    let done = home.run(&["fs", "cp", "-r", top.to_str().unwrap(), "home:"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("it is a link") && done.err.contains("neither a file nor a directory"), "{done:?}");
    assert!(done.err.contains("2 of 3 were not copied"), "{done:?}");
    assert_eq!(space.lock().unwrap().files.keys().collect::<Vec<_>>(), [b"top/a"]);
}

#[test]
fn a_download_is_read_again_where_it_is_to_be_sure() {
    let space = Space::with(&[(b"a", b"the bytes")]);
    let portal = portal(&space);
    let home = Home::signed_in(&portal);
    let target = home.directory.path().join("a");
    let target = target.to_str().unwrap();
    assert_eq!(home.run(&["fs", "cp", "--checksum", "home:a", target]).code, Some(0));
    {
        let space = space.lock().unwrap();
        assert_eq!((space.sent, space.summed), (1, 1), "it comes once, and is read twice");
    }
    // What comes is not what the portal reads where it lies. The first time that is read, the answer breaks off.
    let read = AtomicUsize::new(0);
    portal.answer(move |request, reply| {
        if request.line.contains("checksum=") {
            if read.fetch_add(1, Ordering::SeqCst) == 0 {
                return reply.bytes(200, &[], 3, b"   ");
            }
            let sum = HEXLOWER.encode(&Sha256::digest(b"abd"));
            return reply.json(200, &json!({"path": "a", "kind": "file", "size_bytes": 3, "sha256": sum}));
        }
        if request.line.contains("/entry") {
            return reply.json(200, &json!({"path": "a", "kind": "file", "size_bytes": 3}));
        }
        let sent: &[u8] = if request.line.starts_with("HEAD") { b"" } else { b"abc" };
        reply.bytes(200, &[("etag", "\"1\"".to_owned())], 3, sent);
    });
    let other = home.directory.path().join("b");
    let done = home.run(&["fs", "cp", "--checksum", "home:a", other.to_str().unwrap()]);
    assert!(done.code != Some(0) && done.err.contains("SHA-256"), "{done:?}");
    assert!(!other.exists() && !other.with_file_name(".b.eirene-part").exists() && remembered(&home) == 0);
}

#[test]
fn between_spaces_the_portal_copies() {
    const ID: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";
    let operation = |state: &str, problem: Value| json!({"id": ID, "state": state, "progress": {"entries": 2, "bytes": 2048}, "problem": problem, "kind": "copy"});
    let portal = Portal::new(move |request, reply| match request.line.split(' ').next() {
        Some("POST") if request.line.ends_with("/files/copy") => reply.json(202, &operation("running", Value::Null)),
        _ if request.line.contains("/entry") => reply.json(200, &json!({"path": "d", "kind": "directory"})),
        _ => reply.json(200, &operation("done", Value::Null)),
    });
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "cp", "home:d", "scratch:"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("give `-r`"), "{done:?}");
    let done = home.run(&["fs", "cp", "-r", "--json", "home:x/d", "scratch:old/"]);
    assert_eq!(done.json(), json!({"from": "home:x/d", "to": "scratch:old/d", "state": "copied", "bytes": 2048}));
    let asked = portal.seen().into_iter().find(|request| request.line.starts_with("POST")).unwrap();
    assert_eq!(
        asked.json(),
        json!({"items": [{"path": "x/d", "to": "old/d"}], "to_space": "scratch", "on_conflict": "refuse", "resume": true})
    );
    let done = home.run(&["fs", "cp", "-r", "--no-resume", "home:x/d", "scratch:old/"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let asked = portal.seen().into_iter().rfind(|request| request.line.starts_with("POST")).unwrap();
    assert_eq!(asked.json()["resume"], false, "it begins anew");
    for on_conflict in ["replace", "keep_both"] {
        let done = home.run(&["fs", "cp", "-r", "--on-conflict", on_conflict, "home:x/d", "scratch:old/"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let asked = portal.seen().into_iter().rfind(|request| request.line.starts_with("POST")).unwrap().json();
        assert_eq!((&asked["on_conflict"], &asked["resume"]), (&json!(on_conflict), &Value::Null));
    }
    portal.answer(move |request, reply| match request.line.split(' ').next() {
        Some("POST") => reply.json(202, &operation("running", Value::Null)),
        _ if request.line.contains("/entry") => reply.json(200, &json!({"path": "f", "kind": "file"})),
        _ => reply.json(200, &operation("interrupted", Value::Null)),
    });
    let done = home.run(&["fs", "cp", "home:f", "scratch:"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.err.contains("give the same command again: a copy of a directory goes on where it stopped"),
        "{done:?}"
    );
    let asked = portal.seen().into_iter().rfind(|request| request.line.starts_with("POST")).unwrap();
    assert_eq!(asked.json()["resume"], Value::Null, "a name that is taken is refused, whatever lies there");
    portal.answer(move |_, reply| {
        reply.json(202, &operation("failed", json!({"code": "exists", "text": "it is there"})));
    });
    assert_eq!(home.run(&["fs", "cp", "-r", "home:d", "scratch:"]).code, Some(1));
    let done = home.run(&["fs", "cp", "-r", "-n", "home:d", "scratch:"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), "scratch:d is there already.\n"), "{done:?}");
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_asked_for() {
    let portal = Portal::new(|_, reply| reply.problem(500, "internal"));
    let home = Home::signed_in(&portal);
    for words in [
        ["fs", "cp", "/etc/passwd", "./b"].as_slice(),
        &["fs", "cp", "/etc/passwd", "home:a", "home:b/"],
        &["fs", "cp", "home:a", "home:b", "./no/such/file"],
        &["fs", "cp", "--checksum", "home:a", "scratch:a"],
        &["fs", "cp", "-n", "--on-conflict", "replace", "home:a", "scratch:a"],
        &["fs", "cp", "home:", "scratch:"],
    ] {
        let done = home.run(words);
        assert_eq!(done.code, Some(2), "{words:?}: {done:?}");
    }
    assert!(portal.seen().is_empty());
}
