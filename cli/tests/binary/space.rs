//! A space in memory, behind a portal: directories, files with versions, uploads. As much of the real one as the program sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::portal::{Portal, Reply, Request};

const MODIFIED: &str = "2026-01-02T23:30:00.5Z";

#[derive(Default)]
pub(crate) struct Space {
    pub(crate) files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) directories: BTreeSet<Vec<u8>>,
    /// What a listing has besides, with no regard for what is true.
    pub(crate) lies: Vec<Value>,
    /// Contents are sent this far and no further.
    pub(crate) cut: Option<usize>,
    /// How many contents were begun.
    pub(crate) sent: usize,
    /// How many checksums were asked for.
    pub(crate) summed: usize,
    /// Uploads take this many more requests with bytes.
    pub(crate) takes: Option<usize>,
    /// So many requests with bytes are taken without a word.
    pub(crate) silent: usize,
    /// What was put into the trash.
    pub(crate) trashed: Vec<Vec<u8>>,
    /// Nothing is put there.
    pub(crate) without_trash: bool,
    uploads: BTreeMap<String, Upload>,
    modified: BTreeMap<Vec<u8>, String>,
}

struct Upload {
    path: Vec<u8>,
    length: usize,
    bytes: Vec<u8>,
    modified: String,
}

pub(crate) type Shared = Arc<Mutex<Space>>;

/// A portal with this space, called `home`.
pub(crate) fn portal(space: &Shared) -> Portal {
    let space = Arc::clone(space);
    Portal::new(move |request, reply| space.lock().unwrap().answer(request, reply))
}

pub(crate) fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", HEXLOWER.encode(&Sha256::digest(bytes)[..16]))
}

fn shown(path: &[u8]) -> Value {
    match std::str::from_utf8(path) {
        Ok(text) => json!({"path": text}),
        Err(_) => json!({"path": String::from_utf8_lossy(path), "raw_path": BASE64URL_NOPAD.encode(path)}),
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
                rest = &after[2..];
            }
            _ => bytes.push(*first),
        }
    }
    bytes
}

/// The path in a query.
fn asked(target: &str) -> Vec<u8> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("path", path)) => return unescaped(path),
            Some(("raw_path", raw)) => return BASE64URL_NOPAD.decode(raw.as_bytes()).unwrap(),
            _ => {}
        }
    }
    Vec::new()
}

fn is_in(path: &[u8], directory: &[u8]) -> bool {
    let below = if directory.is_empty() {
        Some(path)
    } else {
        path.strip_prefix(directory).and_then(|rest| rest.strip_prefix(b"/"))
    };
    below.is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
}

impl Space {
    pub(crate) fn with(files: &[(&[u8], &[u8])]) -> Shared {
        let mut space = Self::default();
        for (path, bytes) in files {
            space.put(path, bytes);
        }
        Arc::new(Mutex::new(space))
    }

    pub(crate) fn put(&mut self, path: &[u8], bytes: &[u8]) {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        self.directories.extend(ends.map(|end| path[..end].to_vec()));
        self.files.insert(path.to_vec(), bytes.to_vec());
    }

    fn entry(&self, path: &[u8]) -> Option<Value> {
        let mut entry = shown(path);
        if let Some(bytes) = self.files.get(path) {
            entry["kind"] = json!("file");
            entry["size_bytes"] = json!(bytes.len());
            entry["mode"] = json!("rw-r-----");
            entry["modified_at"] = json!(self.modified.get(path).map_or(MODIFIED, String::as_str));
        } else if path.is_empty() || self.directories.contains(path) {
            entry["kind"] = json!("directory");
        } else {
            return None;
        }
        entry["name"] = json!("not to be believed");
        Some(entry)
    }

    pub(crate) fn answer(&mut self, request: &Request, reply: &mut Reply) {
        let (method, target) = request.line.split_once(' ').unwrap();
        let target = target.strip_prefix("/api/v1/").unwrap();
        let path = asked(target);
        match (method, target.split('?').next().unwrap()) {
            ("GET", "spaces/home/files/entry") => match self.entry(&path) {
                Some(mut entry) => {
                    if target.contains("checksum=sha256") {
                        self.summed += 1;
                        entry["sha256"] = json!(HEXLOWER.encode(&Sha256::digest(&self.files[&path])));
                    }
                    reply.json(200, &entry);
                }
                None => reply.problem(404, "no_such_path"),
            },
            ("GET", "spaces/home/files") => self.list(target, &path, reply),
            (_, "spaces/home/files/content") => self.content(method, &path, request, reply),
            ("POST", "spaces/home/files/directories") => {
                let body = request.json();
                let path = match body["raw_path"].as_str() {
                    Some(raw) => BASE64URL_NOPAD.decode(raw.as_bytes()).unwrap(),
                    None => body["path"].as_str().unwrap().as_bytes().to_vec(),
                };
                let made = self.directories.insert(path.clone());
                if !made && body["parents"] == false {
                    return reply.problem(409, "exists");
                }
                let mut answer = shown(&path);
                answer["made"] = json!(made);
                reply.json(201, &answer);
            }
            ("POST", "spaces/home/files/trash") => self.throw_away(request, reply),
            ("POST", "spaces/home/uploads") => self.begin(request, reply),
            (_, upload) => self.upload(method, upload.strip_prefix("uploads/").unwrap(), request, reply),
        }
    }

    fn throw_away(&mut self, request: &Request, reply: &mut Reply) {
        let body = request.json();
        let path = match body["raw_paths"][0].as_str() {
            Some(raw) => BASE64URL_NOPAD.decode(raw.as_bytes()).unwrap(),
            None => body["paths"][0].as_str().unwrap().as_bytes().to_vec(),
        };
        let mut item = shown(&path);
        if self.without_trash {
            item["code"] = json!("not_supported");
            item["text"] = json!("there is no trash here");
            return reply.json(200, &json!({"items": [], "refused": [item]}));
        }
        let stays = |other: &[u8]| other != path && !other.starts_with(&[&path[..], b"/"].concat());
        self.files.retain(|other, _| stays(other));
        self.directories.retain(|other| stays(other));
        item["id"] = json!(format!("{:032x}", self.trashed.len()));
        self.trashed.push(path);
        reply.json(200, &json!({"items": [item], "refused": []}));
    }

    /// Two at a time, so that there are pages.
    fn list(&self, target: &str, directory: &[u8], reply: &mut Reply) {
        let paths = self.directories.iter().chain(self.files.keys()).filter(|path| is_in(path, directory));
        let mut items: Vec<Value> = paths.filter_map(|path| self.entry(path)).collect();
        items.extend(self.lies.iter().filter(|_| directory.is_empty()).cloned());
        let from = target.split("cursor=").nth(1).map_or(0, |at| at.parse().unwrap());
        let next = (from + 2 < items.len()).then(|| (from + 2).to_string());
        let page: Vec<&Value> = items.iter().skip(from).take(2).collect();
        reply.json(200, &json!({"directory": {}, "items": page, "next": next}));
    }

    fn content(&mut self, method: &str, path: &[u8], request: &Request, reply: &mut Reply) {
        let Some(bytes) = self.files.get(path) else { return reply.problem(404, "no_such_path") };
        let tag = etag(bytes);
        if !request.header("if-match").is_empty() && request.header("if-match") != tag {
            return reply.problem(412, "precondition_failed");
        }
        let modified: jiff::Timestamp = self.modified.get(path).map_or(MODIFIED, String::as_str).parse().unwrap();
        let modified = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&modified).unwrap();
        let mut headers = vec![("etag", tag.clone()), ("last-modified", modified)];
        let from: Option<usize> =
            request.header("range").strip_prefix("bytes=").map(|r| r.trim_end_matches('-').parse().unwrap());
        let from = from.filter(|_| request.header("if-range") == tag);
        if let Some(from) = from {
            headers.push(("content-range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())));
        }
        let part = &bytes[from.unwrap_or_default()..];
        if method == "HEAD" {
            return reply.bytes(200, &headers, part.len(), b"");
        }
        self.sent += 1;
        let sent = self.cut.map_or(part.len(), |cut| part.len().min(cut));
        reply.bytes(if from.is_some() { 206 } else { 200 }, &headers, part.len(), &part[..sent]);
    }

    fn begin(&mut self, request: &Request, reply: &mut Reply) {
        let metadata: BTreeMap<String, Vec<u8>> = request
            .header("upload-metadata")
            .split(',')
            .map(|pair| pair.split_once(' ').unwrap())
            .map(|(key, value)| (key.to_owned(), BASE64.decode(value.as_bytes()).unwrap()))
            .collect();
        let path = metadata["path"].clone();
        if self.files.contains_key(&path) && metadata["on_conflict"] == b"refuse" {
            return reply.problem(409, "exists");
        }
        let id = format!("{:032x}", self.uploads.len() + 1);
        let length = request.header("upload-length").parse().unwrap();
        let modified = String::from_utf8(metadata["modified"].clone()).unwrap();
        self.uploads.insert(id.clone(), Upload { path, length, bytes: Vec::new(), modified });
        self.stand(&id, 201, reply);
    }

    fn upload(&mut self, method: &str, id: &str, request: &Request, reply: &mut Reply) {
        let Some(upload) = self.uploads.get_mut(id) else { return reply.problem(404, "not_found") };
        match method {
            "HEAD" => self.stand(id, 200, reply),
            "DELETE" => {
                self.uploads.remove(id);
                reply.headers(204, &[]);
            }
            _ if self.takes == Some(0) => reply.problem(507, "no_space"),
            _ => {
                assert_eq!(request.header("upload-offset"), upload.bytes.len().to_string());
                upload.bytes.extend_from_slice(request.body.as_bytes());
                self.takes = self.takes.map(|takes| takes - 1);
                if self.silent > 0 {
                    self.silent -= 1;
                    return;
                }
                self.stand(id, 204, reply);
            }
        }
    }

    fn stand(&mut self, id: &str, status: u16, reply: &mut Reply) {
        let upload = &self.uploads[id];
        let (offset, location) = (upload.bytes.len().to_string(), format!("/api/v1/uploads/{id}"));
        let mut headers = vec![("upload-offset", offset.as_str()), ("location", &location)];
        let path = upload.path.iter().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        if upload.bytes.len() == upload.length {
            headers.push(("eirene-path", &path));
            self.files.insert(upload.path.clone(), upload.bytes.clone());
            self.modified.insert(upload.path.clone(), upload.modified.clone());
        }
        reply.headers(status, &headers);
    }
}
