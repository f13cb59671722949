//! Files over HTTP, against the real file process over a directory of the test: what they share; the tests lie by what is asked for.

mod changing;
mod reading;
mod whose;

use std::path::PathBuf;
use std::time::Duration;

use eirene_core::Username;
use eirene_core::launcher::LauncherRequest;
use eirene_files_protocol::{Channel, FromFiles, Hello, Open, OpenedSpace};
use eirene_services::testing::FilesStandIn;
use serde_json::json;

use super::*;

pub(super) const HOME: &str = "/api/v1/spaces/home";

/// Whoever the file process of a test is.
pub(super) fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The real file process, in a thread of its own, which it confines.
pub(super) fn real() -> FilesStandIn {
    Arc::new(|_: Username, channel: Channel| {
        let _ = eirene_files::serve(channel, &eirene_files::Settings { least_uid: 0, landlock: true });
    })
}

/// What a stand-in of a file process says first: that it is whoever runs the tests, and that each space is there.
pub(super) fn opened(open: &Open) -> FromFiles {
    let spaces = open.spaces.iter().map(|space| OpenedSpace { number: space.number, problem: None }).collect();
    FromFiles::Hello(Hello { uid: euid(), landlock: None, spaces })
}

impl Server {
    /// Ada, with a home of the test's and this as its file process.
    pub(super) async fn ada_at_home(&self, process: FilesStandIn) -> (Person, PathBuf) {
        let home = self.test.directory.path().join("home/ada");
        std::fs::create_dir_all(&home).unwrap();
        *self.test.launcher.files.lock().unwrap() = Some(process);
        (self.person("ada", euid(), Role::Researcher).await, home)
    }

    /// A program of this person's with these scopes alone.
    pub(super) async fn with_scopes(&self, person: &Person, scopes: &[Scope]) -> Person {
        let new = NewToken { name: "some".into(), scopes: Some(scopes.to_vec()), expires_in_s: None };
        let token = self.test.app.tokens.create(&person.actor, new).await.unwrap().secret.expose().to_owned();
        Person { actor: person.actor.clone(), cookie: Secret::generate(), token }
    }

    pub(super) async fn get(&self, person: &Person, path: &str) -> Answer {
        self.portal(Ask::get(&format!("{HOME}{path}")).bearer(person)).await
    }

    pub(super) async fn send_json(&self, person: &Person, method: &str, path: &str, body: &Value) -> Answer {
        self.portal(Ask::new(method, &format!("{HOME}{path}")).bearer(person).json(body)).await
    }

    /// The operation that was accepted, once it is over.
    pub(super) async fn over(&self, person: &Person, accepted: &Answer) -> Value {
        assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.body);
        let place = accepted.header("location").to_owned();
        loop {
            let answer = self.portal(Ask::get(&place).bearer(person)).await;
            let operation = answer.json();
            if !matches!(operation["state"].as_str(), Some("waiting" | "running")) {
                return operation;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How often a file process was asked for.
    pub(super) fn started(&self) -> usize {
        let calls = self.test.launcher.calls.lock().unwrap();
        calls.iter().filter(|call| matches!(call, LauncherRequest::OpenFiles { .. })).count()
    }
}

/// Every request about a path, with that path in it.
pub(super) fn about(path: &str) -> Vec<(&'static str, String, Value)> {
    let query = serde_html_form::to_string([("path", path)]).unwrap();
    let get = |place: &str| ("GET", format!("/files{place}?{query}"), json!({}));
    vec![
        get(""),
        get("/entry"),
        get("/content"),
        get("/archive"),
        ("GET", format!("/files/archive?{query}&path=b"), json!({})),
        ("GET", format!("/files/entry?{query}&checksum=sha256"), json!({})),
        get("/preview"),
        get("/permissions"),
        ("POST", "/files/directories".into(), json!({"path": path})),
        ("POST", "/files/move".into(), json!({"items": [{"path": path, "to": "b"}]})),
        ("POST", "/files/move".into(), json!({"items": [{"path": "a", "to": path}]})),
        ("POST", "/files/copy".into(), json!({"items": [{"path": path, "to": "b"}]})),
        ("POST", "/files/copy".into(), json!({"items": [{"path": "a", "to": path}]})),
        ("POST", "/files/extract".into(), json!({"path": path, "to": "e"})),
        ("POST", "/files/extract".into(), json!({"path": "a", "to": path})),
        ("POST", "/files/trash".into(), json!({"paths": [path]})),
        ("POST", "/files/delete".into(), json!({"paths": [path], "sure": true})),
        ("POST", "/files/search".into(), json!({"path": path, "name": "x"})),
        ("POST", "/scan".into(), json!({"path": path})),
        ("PUT", "/files/permissions".into(), json!({"path": path, "mode": "0600"})),
        ("POST", format!("/trash/{}/restore", "0".repeat(32)), json!({"to": path})),
    ]
}
