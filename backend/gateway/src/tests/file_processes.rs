//! Files over HTTP where the process lies, is silent or somebody else's, where there is too much at once, and where a right ends.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use eirene_api::tus::CHUNK_TYPE;
use eirene_core::file_work::{Operation, OperationKind, OperationState};
use eirene_core::{Clock as _, OperationId, UserState, Username};
use eirene_files_protocol::{
    Answer as Said, Channel, Code, FromFiles, Moment, Outcome, Part, Problem, ReadBegins, ToFiles, UploadState, Verb,
    Version,
};
use eirene_services::files::Need;
use eirene_services::operations::part_of;
use eirene_services::testing::FilesStandIn;
use serde_json::json;

use super::files::{HOME, about, euid, opened, real};
use super::*;

/// A process that reads `bytes` for a file of `size`, and says in the end what `outcome` says.
fn lies(size: u64, bytes: &'static [u8], outcome: Option<Outcome>) -> FilesStandIn {
    Arc::new(move |_: Username, channel: Channel| serve_lies(&channel, size, bytes, outcome.as_ref()))
}

fn serve_lies(channel: &Channel, size: u64, bytes: &[u8], outcome: Option<&Outcome>) {
    let mut buffer = Vec::new();
    let say = |frame: FromFiles| {
        let _ = channel.send(&frame.encode().unwrap(), None);
    };
    while let Ok(Some(packet)) = channel.receive(&mut buffer) {
        match ToFiles::decode(packet.bytes).unwrap() {
            ToFiles::Open(open) => say(opened(&open)),
            ToFiles::Request(number, Verb::Read(read)) => {
                let moment = Moment { seconds: 1, nanoseconds: 0 };
                let version = Version { device: 1, inode: 2, bytes: size, modified: moment, changed: moment };
                let to = read.to.unwrap_or(size).min(size);
                say(FromFiles::More(number, Part::ReadBegins(ReadBegins { version, from: read.from, to })));
                if let Some(stream) = packet.descriptor {
                    let _ = UnixStream::from(stream).write_all(bytes);
                }
                let Some(outcome) = outcome else { return };
                say(FromFiles::Reply(number, outcome.clone()));
            }
            ToFiles::Request(number, _) => {
                say(FromFiles::Reply(number, Outcome::Done(Said::Made { made: true })));
            }
            ToFiles::Cancel(_) => {}
        }
    }
}

/// A process on a disk that is in this trouble: an upload that is to be called `begun` begins, and nothing else is done.
fn in_trouble(code: Code) -> FilesStandIn {
    Arc::new(move |_: Username, channel: Channel| {
        let mut buffer = Vec::new();
        let say = |frame: FromFiles| {
            let _ = channel.send(&frame.encode().unwrap(), None);
        };
        while let Ok(Some(packet)) = channel.receive(&mut buffer) {
            match ToFiles::decode(packet.bytes).unwrap() {
                ToFiles::Open(open) => say(opened(&open)),
                ToFiles::Request(number, verb) => {
                    let outcome = match verb {
                        Verb::CreateUpload(new) if new.name.as_bytes() == b"begun" => {
                            let state = UploadState { offset: 0, length: new.length, created: 0, finished: None };
                            Outcome::Done(Said::Upload(state))
                        }
                        Verb::WriteUpload(_) => Outcome::Problem(Problem { code, bytes: Some(2) }),
                        _ => Outcome::Problem(code.into()),
                    };
                    say(FromFiles::Reply(number, outcome));
                }
                ToFiles::Cancel(_) => {}
            }
        }
    })
}

#[tokio::test]
async fn a_disk_in_trouble_is_said_by_whatever_would_change_it() {
    for (trouble, status, code, words) in [
        (Code::NoSpace, 507, "no_space", "the storage is full"),
        (Code::OverQuota, 507, "over_quota", "the quota is used up"),
        (Code::ReadOnly, 403, "read_only", "nothing can be changed here: it is read-only"),
        (Code::Away, 503, "storage_away", "the storage does not answer at the moment"),
    ] {
        let server = Server::start().await;
        let (ada, _) = server.ada_at_home(in_trouble(trouble)).await;
        let said = |answer: &Answer, what: &str| {
            let told = answer.json();
            let told = (answer.status.as_u16(), told["code"].as_str(), told["detail"].as_str());
            assert_eq!(told, (status, Some(code), Some(words)), "{what}: {}", answer.body);
            assert_eq!(answer.header("retry-after"), if trouble == Code::Away { "10" } else { "" }, "{what}");
        };
        let items = json!({"items": [{"path": "a", "to": "b"}]});
        for (place, body) in [
            ("/files/directories", json!({"path": "d"})),
            ("/files/directories", json!({"path": "d/e", "parents": true})),
            ("/files/move", items.clone()),
            ("/files/trash", json!({"paths": ["a"]})),
        ] {
            said(&server.send_json(&ada, "POST", place, &body).await, place);
        }
        for (place, body) in [("/files/copy", items), ("/files/extract", json!({"path": "a.zip", "to": "a"}))] {
            let accepted = server.send_json(&ada, "POST", place, &body).await;
            let over = server.over(&ada, &accepted).await;
            // What does not answer cannot be cleared away either.
            let state = if trouble == Code::Away { "interrupted" } else { "failed" };
            assert_eq!((&over["state"], &over["problem"]["code"]), (&state.into(), &code.into()), "{place}: {over}");
            assert_eq!(over["problem"]["text"], words, "{place}");
        }
        let to_remove = server.test.app.db.interrupted_operations(9, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(to_remove.len(), if trouble == Code::Away { 2 } else { 0 }, "{code}");
        let to_go_on_with = server.test.app.db.interrupted_of(ada.actor.user.id, 9).await.unwrap();
        assert!(to_go_on_with.is_empty(), "{code}");

        let speaks = |method: &str, path: &str| Ask::new(method, path).with("tus-resumable", "1.0.0").bearer(&ada);
        let wish = |metadata: &str| {
            let wish = speaks("POST", &format!("{HOME}/uploads")).with("upload-length", "5");
            server.portal(wish.with("upload-metadata", metadata))
        };
        // `other` and `begun` in base64.
        said(&wish("path b3RoZXI=").await, "an upload");
        let begun = wish("path YmVndW4=").await;
        assert_eq!(begun.status, StatusCode::CREATED, "{}", begun.body);
        let chunk = speaks("PATCH", begun.header("location")).with("content-type", CHUNK_TYPE);
        let refused = server.portal(chunk.with("upload-offset", "0").body("abcde")).await;
        said(&refused, "bytes of an upload");
        assert_eq!(refused.header("upload-offset"), "2", "what came counts");
        let open = server.test.app.db.open_uploads(ada.actor.user.id).await.unwrap();
        assert_eq!(open.len(), 1, "the one that began can go on, of the other one nothing is left");
    }
}

fn written(bytes: u64) -> Outcome {
    Outcome::Done(Said::Written { bytes, entries: 1, skipped: vec![], skipped_in_all: 0 })
}

#[tokio::test]
async fn an_operation_is_its_owners_and_ends_as_asked_or_with_the_portal() {
    let server = Server::start().await;
    // A process that answers nothing but its first word.
    let silent: FilesStandIn = Arc::new(|_: Username, channel: Channel| {
        let mut buffer = Vec::new();
        while let Ok(Some(packet)) = channel.receive(&mut buffer) {
            let frame = match ToFiles::decode(packet.bytes).unwrap() {
                ToFiles::Open(open) => opened(&open),
                ToFiles::Cancel(number) => {
                    let code = eirene_files_protocol::Code::Cancelled;
                    FromFiles::Reply(number, Outcome::Problem(code.into()))
                }
                ToFiles::Request(..) => continue,
            };
            let _ = channel.send(&frame.encode().unwrap(), None);
        }
    });
    let (ada, _) = server.ada_at_home(silent).await;
    let grace = server.grace().await;
    let copy = json!({"items": [{"path": "a", "to": "b"}]});
    let accepted = server.send_json(&ada, "POST", "/files/copy", &copy).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.body);
    let place = accepted.header("location").to_owned();
    for method in ["GET", "DELETE"] {
        let answer = server.portal(Ask::new(method, &place).bearer(&grace)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    let none = server.portal(Ask::get(&format!("{place}/results")).bearer(&ada)).await;
    assert_eq!(none.json()["code"], "operation_not_over");
    let reads = server.with_scopes(&ada, &[Scope::FilesRead]).await;
    assert_eq!(server.portal(Ask::new("DELETE", &place).bearer(&reads)).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.portal(Ask::new("DELETE", &place).bearer(&ada)).await.status, StatusCode::ACCEPTED);
    assert_eq!(server.over(&ada, &accepted).await["state"], "cancelled");
    let none = server.portal(Ask::get(&format!("{place}/results")).bearer(&ada)).await;
    assert_eq!((none.status, &none.json()["code"]), (StatusCode::CONFLICT, &"nothing_found".into()));
    assert_eq!(server.portal(Ask::new("DELETE", &place).bearer(&ada)).await.status, StatusCode::ACCEPTED, "again");

    let left = server.send_json(&ada, "POST", "/files/copy", &copy).await;
    assert_eq!(server.test.app.operations.begin_anew().await.unwrap(), 1);
    assert_eq!(server.over(&ada, &left).await["state"], "interrupted");

    // As many as there may be, and then one more.
    let mut accepted = StatusCode::ACCEPTED;
    for _ in 0..16 {
        let answer = server.send_json(&ada, "POST", "/files/copy", &copy).await;
        accepted = answer.status;
        if accepted != StatusCode::ACCEPTED {
            assert_eq!(
                (answer.json()["code"].as_str(), answer.header("retry-after")),
                (Some("too_many_operations"), "5")
            );
            break;
        }
    }
    assert_eq!(accepted, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn what_a_cut_off_copy_left_is_removed_and_nothing_else() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let operations = &server.test.app.operations;
    let space = server.test.app.spaces.list(&ada.actor).await.unwrap()[0].space.id;
    std::fs::create_dir(home.join("d")).unwrap();
    let row = |kind, state, request| Operation {
        id: OperationId::generate(),
        user: ada.actor.user.id,
        space,
        kind,
        state,
        request,
        progress: json!({"entries": 1, "bytes": 2}),
        problem: None,
        created_at: server.test.clock.now(),
        ended_at: Some(server.test.clock.now()),
    };
    let items = json!({"to_space": "home-ada", "items": [{"path": "a", "to": "d/b"}, {"path": "a", "to": "c"}]});
    let copy = row(OperationKind::Copy, OperationState::Interrupted, items.clone());
    let extract =
        row(OperationKind::Extract, OperationState::Interrupted, json!({"path": "a", "to": "x", "raw_to": "d_8"}));
    let moved = row(OperationKind::Move, OperationState::Interrupted, json!({"items": [{"path": "a", "to": "d/m"}]}));
    let failed = row(OperationKind::Copy, OperationState::Failed, items);
    let away = row(OperationKind::Copy, OperationState::Interrupted, json!({"items": [{"path": "a", "to": "gone/b"}]}));
    let hidden = |directory: &str, operation: &Operation, number| {
        let name = part_of(operation.id, number).file_name();
        home.join(directory).join(std::str::from_utf8(name.as_bytes()).unwrap())
    };
    let parts = [hidden("d", &copy, 0), hidden("", &copy, 1), hidden("", &extract, 0), hidden("d", &moved, 0)];
    let others = [hidden("d", &failed, 0), hidden("", &copy, 7), home.join(".eirene-upload-own"), home.join("d/b")];
    for part in parts.iter().chain(&others) {
        std::fs::create_dir(part).unwrap();
        std::fs::write(part.join("half"), "x").unwrap();
    }
    for operation in [&copy, &extract, &moved, &failed, &away] {
        server.test.app.db.insert_operation(operation).await.unwrap();
    }
    let clear = async || operations.clear(&server.test.app.files, Duration::from_mins(1)).await.unwrap();
    clear().await;
    assert!(parts.iter().all(|part| part.exists()), "seen once is not enough");
    clear().await;
    let there = parts.iter().map(|part| part.exists()).collect::<Vec<_>>();
    assert_eq!(there, [true, true, false, true], "the same may be asked for again, but for an archive");
    server.test.clock.advance_s(3 * 24 * 3600 + 1);
    clear().await;
    clear().await;
    assert!(parts.iter().all(|part| !part.exists()) && others.iter().all(|other| other.join("half").exists()));
    let left = async || server.test.app.db.interrupted_operations(9, server.test.clock.now()).await.unwrap();
    assert_eq!(left().await.iter().map(|one| one.id).collect::<Vec<_>>(), [away.id], "its directory may come back");
    server.test.clock.advance_s(5 * 24 * 3600);
    clear().await;
    assert!(left().await.is_empty());
    assert_eq!(operations.get(&ada.actor, copy.id).await.unwrap().progress["cleared"], true);
}

#[tokio::test]
async fn a_person_has_so_many_transfers_and_no_more() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::File::create(home.join("large")).unwrap().set_len(1 << 30).unwrap();
    let ask = || Ask::get(&format!("{HOME}/files/content?path=large")).bearer(&ada);
    let mut open = Vec::new();
    for _ in 0..server.test.app.config.files.transfers_per_person {
        let response = server.open(ask().to(PORTAL)).await;
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    let refused = server.portal(ask()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "5"));
    assert_eq!(refused.json()["code"], "too_many_transfers");
    assert_eq!(server.get(&ada, "/files").await.status, StatusCode::OK, "what is no transfer goes on");
    drop(open.pop());
    loop {
        let again = server.open(ask().to(PORTAL)).await.status();
        if again == StatusCode::OK {
            break;
        }
        assert_eq!(again, StatusCode::TOO_MANY_REQUESTS);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_process_that_lies_gives_nobody_a_file_that_looks_whole() {
    let problem = Outcome::Problem(eirene_files_protocol::Code::ChangedMeanwhile.into());
    for (what, process) in [
        ("too much", lies(10, b"1234567890123", Some(written(10)))),
        ("all, and a problem", lies(10, b"1234567890", Some(problem.clone()))),
        ("all, and another word", lies(10, b"1234567890", Some(Outcome::Done(Said::Made { made: true })))),
        ("all, and nothing more", lies(10, b"1234567890", None)),
    ] {
        let server = Server::start().await;
        let (ada, _) = server.ada_at_home(process).await;
        let ask = Ask::get(&format!("{HOME}/files/content?path=a")).bearer(&ada).to(PORTAL);
        let answer = server.send(ask).await;
        let status = if what == "all, and a problem" { 409 } else { 503 };
        assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.body);
    }
    // Of a file that is longer than what is held of it, the answer has begun.
    let long: &[u8] = Box::leak(vec![b'x'; 4 << 20].into_boxed_slice());
    for (size, outcome) in [(8 << 20, written(8 << 20)), (4 << 20, problem)] {
        let server = Server::start().await;
        let (ada, _) = server.ada_at_home(lies(size, long, Some(outcome))).await;
        let response = server.open(Ask::get(&format!("{HOME}/files/content?path=a")).bearer(&ada).to(PORTAL)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.into_body().collect().await.is_err(), "{size}");
    }
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(lies(10, b"1234567890", Some(written(10)))).await;
    assert_eq!(server.get(&ada, "/files/content?path=a").await.body, "1234567890");
    for (method, place, body) in about("a") {
        if place.starts_with("/files/content") || place.starts_with("/files/directories") {
            continue;
        }
        let answer = server.send_json(&ada, method, &place, &body).await;
        if answer.status == StatusCode::ACCEPTED {
            assert_eq!(server.over(&ada, &answer).await["problem"]["code"], "files_failed", "{place}");
        } else {
            assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (500, &"files_failed".into()), "{place}");
        }
    }
}

#[tokio::test]
async fn a_process_that_is_somebody_else_or_not_there_is_the_storage_away() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(real()).await;
    let grace = server.grace().await;
    // The process is not grace.
    let wrong = server.portal(Ask::get("/api/v1/spaces/home/files").bearer(&grace)).await;
    assert_eq!((wrong.status, wrong.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "10"));
    assert_eq!(wrong.json()["code"], "storage_away");
    let query = eirene_services::audit::AuditQuery { limit: 20, ..Default::default() };
    let events = server.test.app.audit.list(&server.admin().await.actor, query).await.unwrap();
    assert!(events.iter().any(|event| event.action == "files.wrong_uid" && event.details["said"] == euid()));
    *server.test.launcher.files.lock().unwrap() = None;
    let none = server.get(&ada, "/files").await;
    assert_eq!((none.status, none.json()["code"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some("storage_away")));
}

#[tokio::test]
async fn whoever_loses_the_right_loses_the_rest_of_the_file() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::File::create(home.join("large")).unwrap().set_len(1 << 30).unwrap();
    let ask = Ask::get(&format!("{HOME}/files/content?path=large")).bearer(&ada);
    let response = server.open(ask.to(PORTAL)).await;
    assert_eq!(response.status(), StatusCode::OK);
    server.test.app.db.replace_password(ada.actor.user.id, "another", None, &entry()).await.unwrap();
    server.test.app.access.recheck(ada.actor.user.id).await;
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn whoever_is_disabled_has_no_file_process_any_more() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::File::create(home.join("large")).unwrap().set_len(1 << 30).unwrap();
    let space = "home".parse().unwrap();
    let within = server.test.app.files.within(&ada.actor, &space, Need::Read).await.unwrap();
    let channel = within.channel().await.unwrap();
    let admin = server.admin().await;
    let ada = "ada".parse().unwrap();
    server.test.app.accounts.set_state(&admin.actor, &ada, UserState::Disabled).await.unwrap();
    assert!(!channel.is_open());
}
