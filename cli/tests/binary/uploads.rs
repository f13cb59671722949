//! `eirene fs cp`: what is sent, and what happens when that is interrupted.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use serde_json::json;

use crate::portal::{Home, Portal, Reply, Request, TOKEN};

const ID: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";
const PIECE: usize = 8 * 1024 * 1024;

/// What the portal has of the upload.
#[derive(Default)]
struct Storage {
    bytes: String,
    length: usize,
    full: bool,
    /// Refuses the name once all is there.
    taken: bool,
}

/// A portal that takes uploads.
fn portal(storage: &Arc<Mutex<Storage>>) -> Portal {
    let storage = Arc::clone(storage);
    Portal::new(move |request, reply| answer(&mut storage.lock().unwrap(), request, reply))
}

fn answer(storage: &mut Storage, request: &Request, reply: &mut Reply) {
    assert_eq!(request.header("tus-resumable"), "1.0.0");
    match request.line.split(' ').next() {
        Some("POST") => {
            storage.length = request.header("upload-length").parse().unwrap();
            reply.headers(201, &[("location", &format!("/api/v1/uploads/{ID}")), ("upload-offset", "0")]);
        }
        Some("DELETE") => reply.headers(204, &[]),
        Some("PATCH") if storage.full => reply.problem(507, "no_space"),
        Some("PATCH") => {
            assert_eq!(request.header("upload-offset"), storage.bytes.len().to_string());
            let sum = BASE64.encode(&crc32fast::hash(request.body.as_bytes()).to_be_bytes());
            assert_eq!(request.header("upload-checksum"), format!("crc32 {sum}"));
            storage.bytes.push_str(&request.body);
            if storage.taken {
                return reply.problem(409, "exists");
            }
            standing(storage, 204, reply);
        }
        _ => standing(storage, 200, reply),
    }
}

fn standing(storage: &Storage, status: u16, reply: &mut Reply) {
    let offset = storage.bytes.len().to_string();
    let mut headers = vec![("upload-offset", offset.as_str())];
    if storage.bytes.len() == storage.length {
        headers.push(("eirene-path", "data/a%20b"));
    }
    reply.headers(status, &headers);
}

fn remembered(home: &Home) -> Vec<PathBuf> {
    let directory = home.directory.path().join(".local/state/eirene/transfers");
    fs::read_dir(directory).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

fn verbs(portal: &Portal) -> Vec<String> {
    portal.lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_copy_that_was_interrupted_goes_on_where_it_stopped() {
    let storage = Arc::new(Mutex::new(Storage::default()));
    let portal = portal(&storage);
    let home = Home::signed_in(&portal);
    let file = home.directory.path().join("a b");
    let content = "0123456789abcdef".repeat((2 * PIECE + PIECE / 2) / 16);
    fs::write(&file, &content).unwrap();
    let file = file.to_str().unwrap();
    let command = ["fs", "cp", "--json", "--parents", file, "home:data/"];

    storage.lock().unwrap().full = true;
    let done = home.run(&command);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("it is refused") && done.err.contains("give the same command again"), "{done:?}");
    let kept = remembered(&home);
    assert_eq!(kept.len(), 1);
    let text = fs::read_to_string(&kept[0]).unwrap();
    assert_eq!(text, json!({"upload": ID}).to_string(), "nothing that opens a door");
    assert!(!text.contains(TOKEN));

    {
        let mut storage = storage.lock().unwrap();
        storage.full = false;
        storage.bytes = content[..PIECE].to_owned();
    }
    let done = home.run(&command);
    assert_eq!(done.json(), json!({"from": file, "to": "home:data/a b", "state": "copied", "bytes": content.len()}));
    assert!(storage.lock().unwrap().bytes == content);
    assert_eq!(verbs(&portal), ["POST", "PATCH", "HEAD", "PATCH", "PATCH"]);
    assert!(remembered(&home).is_empty());
    let made = &portal.seen()[0];
    assert_eq!(made.line, "POST /api/v1/spaces/home/uploads");
    // data/a b; true
    let metadata = made.header("upload-metadata");
    assert!(metadata.starts_with("path ZGF0YS9hIGI=") && metadata.contains("parents dHJ1ZQ=="), "{metadata}");
}

#[test]
fn what_cannot_go_on_leaves_nothing() {
    let storage = Arc::new(Mutex::new(Storage { taken: true, ..Storage::default() }));
    let portal = portal(&storage);
    let home = Home::signed_in(&portal);
    let file = home.directory.path().join("a");
    fs::write(&file, "new").unwrap();
    let done = home.run(&["fs", "cp", file.to_str().unwrap(), "home:a"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("was not copied") && done.err.contains("it is refused"), "{done:?}");
    assert_eq!(verbs(&portal), ["POST", "PATCH", "DELETE"]);
    assert!(remembered(&home).is_empty());
}

#[test]
fn what_is_no_file_or_no_place_is_not_sent() {
    let portal = portal(&Arc::default());
    let home = Home::signed_in(&portal);
    let directory = home.directory.path().to_str().unwrap().to_owned();
    for command in [
        ["fs", "cp", &directory, "home:"].as_slice(),
        &["fs", "cp", "/no/such/file", "home:"],
        &["fs", "cp", "/etc/passwd", "./local"],
        &["fs", "cp", "/etc/passwd", "/etc/group", "home:one"],
    ] {
        assert_eq!(home.run(command).code, Some(2), "{command:?}");
    }
    assert!(portal.seen().is_empty());
}
