//! A portal made of one closure, and the program with a home of its own.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and target: `GET /api/v1/me`.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

/// The connection an answer goes out on.
pub(crate) struct Reply(TcpStream);

impl Reply {
    pub(crate) fn json(&mut self, status: u16, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        self.send(&format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"));
    }

    pub(crate) fn problem(&mut self, status: u16, code: &str) {
        self.json(status, &json!({"title": "no", "detail": "it is refused", "status": status, "code": code}));
    }

    /// An answer that is said in headers.
    pub(crate) fn headers(&mut self, status: u16, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(key, value)| format!("{key}: {value}\r\n")).collect::<Vec<_>>().concat();
        let length = if status == 204 { "" } else { "content-length: 0\r\n" };
        self.send(&format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{length}{headers}\r\n"));
    }

    /// Bytes, of which fewer may come than are said to.
    pub(crate) fn bytes(&mut self, status: u16, headers: &[(&str, String)], length: usize, body: &[u8]) {
        let headers = headers.iter().map(|(key, value)| format!("{key}: {value}\r\n")).collect::<Vec<_>>().concat();
        self.send(&format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"));
        let _ = self.0.write_all(body);
    }

    /// An answer in pieces; without `end` it breaks off.
    pub(crate) fn pieces(&mut self, pieces: &[&str]) {
        self.send("HTTP/1.1 200 X\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n");
        self.pieces_on(pieces);
    }

    /// More pieces of an answer.
    pub(crate) fn pieces_on(&mut self, pieces: &[&str]) {
        for piece in pieces {
            self.send(&format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
    }

    /// Says nothing until the other side is gone.
    pub(crate) fn hold(&mut self) {
        let _ = self.0.read_to_end(&mut Vec::new());
    }

    pub(crate) fn end(&mut self) {
        self.send("0\r\n\r\n");
    }

    fn send(&mut self, text: &str) {
        // The program may have gone already.
        let _ = self.0.write_all(text.as_bytes());
    }
}

type Handler = Arc<dyn Fn(&Request, &mut Reply) + Send + Sync>;

/// Answers on a port of its own until it is dropped.
pub(crate) struct Portal {
    pub(crate) port: u16,
    seen: Arc<(Mutex<Vec<Request>>, Condvar)>,
    handler: Arc<Mutex<Handler>>,
    running: Mutex<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

impl Portal {
    pub(crate) fn new(handler: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let portal = Self {
            port,
            seen: Arc::default(),
            handler: Arc::new(Mutex::new(Arc::new(handler))),
            running: Mutex::default(),
        };
        portal.run(listener);
        portal
    }

    pub(crate) fn url(&self) -> String {
        format!("http://portal.localhost:{}", self.port)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.0.lock().expect("no panic").clone()
    }

    /// Their first lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|request| request.line).collect()
    }

    /// Waits until the requests' first lines are as wanted.
    pub(crate) fn until(&self, wanted: impl Fn(&[String]) -> bool) {
        let lines = |seen: &Vec<Request>| seen.iter().map(|request| request.line.clone()).collect::<Vec<_>>();
        let seen = self.seen.0.lock().expect("no panic");
        let (seen, waited) = self
            .seen
            .1
            .wait_timeout_while(seen, Duration::from_secs(30), |seen| !wanted(&lines(seen)))
            .expect("no panic");
        assert!(!waited.timed_out(), "{:?}", lines(&seen));
    }

    /// Answers otherwise from now on.
    pub(crate) fn answer(&self, handler: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) {
        *self.handler.lock().expect("no panic") = Arc::new(handler);
    }

    fn run(&self, listener: TcpListener) {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, seen, handler) = (Arc::clone(&stop), Arc::clone(&self.seen), Arc::clone(&self.handler));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (seen, handler) = (Arc::clone(&seen), Arc::clone(&handler));
                std::thread::spawn(move || {
                    let stream = stream.expect("a connection");
                    let Some(request) = read(&stream) else { return };
                    seen.0.lock().expect("no panic").push(request.clone());
                    seen.1.notify_all();
                    let handler = Arc::clone(&handler.lock().expect("no panic"));
                    handler(&request, &mut Reply(stream));
                });
            }
        });
        *self.running.lock().expect("no panic") = Some((stop, thread));
    }

    /// Refuses connections from now on.
    pub(crate) fn go_away(&self) {
        if let Some((stop, thread)) = self.running.lock().expect("no panic").take() {
            stop.store(true, Ordering::SeqCst);
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
            thread.join().expect("no panic");
        }
    }

    /// Is back, on the same port.
    pub(crate) fn come_back(&self) {
        self.run(TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).expect("the port is free"));
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.go_away();
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    reader.read_line(&mut text).ok().filter(|length| *length > 0)?;
    let line = text.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers = Vec::new();
    loop {
        let mut text = String::new();
        reader.read_line(&mut text).ok()?;
        let Some((key, value)) = text.trim_end().split_once(':') else { break };
        headers.push((key.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(key, _)| key == "content-length").map_or(Ok(0), |(_, value)| value.parse());
    let mut body = vec![0; length.ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line, headers, body: String::from_utf8(body).ok()? })
}

/// Somebody's home directory.
pub(crate) struct Home {
    pub(crate) directory: TempDir,
}

/// The token in [`Home::signed_in`].
pub(crate) const TOKEN: &str = "eir_first-secret";
/// Its id.
pub(crate) const TOKEN_ID: &str = "0190aaaac3f87b1e8f0e6d2f4b5a6978";

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    /// The home of somebody who is signed in.
    pub(crate) fn signed_in(portal: &Portal) -> Self {
        let home = Self::new();
        let path = home.credentials();
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).expect("a file");
        let url = portal.url();
        write!(file, "url = \"{url}\"\nusername = \"ada\"\ntoken_id = \"{TOKEN_ID}\"\ntoken = \"{TOKEN}\"\n")
            .expect("written");
        home
    }

    pub(crate) fn credentials(&self) -> PathBuf {
        self.directory.path().join("config/eirene/credentials.toml")
    }

    /// An executable of that name, found before all others.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.directory.path().join("bin");
        fs::create_dir_all(&path).expect("a directory");
        let path = path.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// The program, in this home and nothing else's environment.
    pub(crate) fn eirene(&self, arguments: &[&str]) -> Command {
        let home = self.directory.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_eirene"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("PATH", format!("{}:/usr/bin:/bin", home.join("bin").display()))
            .env("TZ", "CET-1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::from(self.eirene(arguments).output().expect("it runs"))
    }

    /// Runs it with something on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Done {
        let mut child = self.eirene(arguments).stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
        Done::from(child.wait_with_output().expect("it runs"))
    }
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    /// Standard output as JSON, which must be all there is.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.out).expect("one JSON value")
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A session as the portal shows it.
pub(crate) fn session(id: &str, name: &str, state: &str) -> Value {
    let mut session = json!({
        "id": id, "name": name, "owner": "ada", "app": "jupyterlab", "image": "jupyter", "state": state,
        "undetermined": false, "nodes": ["c1"], "resources": {"nodes": 1}, "restart_count": 0,
        "created_at": "2026-01-02T23:30:00Z", "version": 1, "ends_at": "2099-01-02T23:30:00Z",
    });
    if matches!(state, "ended" | "failed") {
        session["ended_at"] = json!("2026-01-03T10:00:00Z");
        session["reason"] = json!({"code": "x", "text": "the node went away"});
    }
    session
}
