//! What takes the room, over HTTP: kept, gone on with, and nobody else's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eirene_core::{Space, SpaceOwner, SpaceState, Username};
use eirene_files_protocol::{
    Answer as Said, Channel, FromFiles, KnownDirectory, Measured, Outcome, Part, RelativePath, Scan, Scanned, ToFiles,
    Verb, Walked,
};
use eirene_services::files::path::AskedPath;
use eirene_services::operations::Operations;
use eirene_services::scans::Scans;
use eirene_services::spaces::testing::a_space;
use eirene_services::testing::FilesStandIn;
use serde_json::json;

use super::files::{opened, real};
use super::*;

/// What a process answers to the scan of this number, which may be nothing.
type Answers = Arc<dyn Fn(usize, &Scan) -> Option<(Vec<Measured>, Scanned)> + Send + Sync>;

/// A process that does nothing but answer scans; what it was asked is kept.
fn measures(answers: Answers, asked: &Arc<Mutex<Vec<Scan>>>) -> FilesStandIn {
    let (asked, number) = (Arc::clone(asked), Arc::new(AtomicUsize::new(0)));
    Arc::new(move |_: Username, channel: Channel| {
        let mut buffer = Vec::new();
        let say = |frame: FromFiles| {
            let _ = channel.send(&frame.encode().unwrap(), None);
        };
        while let Ok(Some(packet)) = channel.receive(&mut buffer) {
            match ToFiles::decode(packet.bytes).unwrap() {
                ToFiles::Open(open) => say(opened(&open)),
                ToFiles::Request(request, Verb::Scan(scan)) => {
                    let answer = answers(number.fetch_add(1, Ordering::SeqCst), &scan);
                    asked.lock().unwrap().push(scan);
                    if let Some((measured, scanned)) = answer {
                        say(FromFiles::More(request, Part::Measured(measured)));
                        say(FromFiles::Reply(request, Outcome::Done(Said::Scanned(scanned))));
                    }
                }
                ToFiles::Request(..) => return,
                ToFiles::Cancel(request) => {
                    say(FromFiles::Reply(request, Outcome::Problem(eirene_files_protocol::Code::Cancelled.into())));
                }
            }
        }
    })
}

fn measured(text: &str, bytes: u64) -> Measured {
    let path = if text.is_empty() { RelativePath::default() } else { RelativePath::parse(text.as_bytes()).unwrap() };
    let directory = KnownDirectory { path, device: 1, inode: 100 + bytes };
    Measured { directory, bytes, entries: 1, own_bytes: 0, own_entries: 0 }
}

fn scanned(complete: bool, met: &[u32]) -> Scanned {
    Scanned { complete, met: met.to_vec(), approximate: false, walked: Walked::default() }
}

impl Server {
    async fn sizes(&self, person: &Person, query: &str) -> Value {
        let answer = self.get(person, &format!("/scan{query}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.body);
        answer.json()
    }
}

fn listed(sizes: &Value) -> Vec<(&str, u64)> {
    let items = sizes["items"].as_array().unwrap();
    items.iter().map(|item| (item["path"].as_str().unwrap(), item["bytes"].as_u64().unwrap())).collect()
}

#[tokio::test]
async fn what_takes_the_room_is_measured_listed_and_measured_anew() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir_all(home.join("d/e")).unwrap();
    std::fs::create_dir_all(home.join("small")).unwrap();
    std::fs::write(home.join("d/e/large"), vec![1; 1 << 20]).unwrap();
    assert_eq!(server.sizes(&ada, "").await["state"], "never");

    let scan = server.send_json(&ada, "POST", "/scan", &json!({})).await;
    assert_eq!(server.over(&ada, &scan).await["state"], "done");
    let sizes = server.sizes(&ada, "").await;
    assert_eq!((&sizes["state"], &sizes["files_done"]), (&"done".into(), &4.into()), "{sizes}");
    assert!(sizes.get("operation").is_none() && sizes["as_of"].is_string());
    assert_eq!(listed(&sizes).iter().map(|(path, _)| *path).collect::<Vec<_>>(), ["d", "small"]);
    let below = server.sizes(&ada, "?path=d").await;
    assert_eq!(listed(&below)[0].0, "d/e");
    assert!(below["directory"]["bytes"].as_u64().unwrap() >= 1 << 20);
    assert_eq!(listed(&server.sizes(&ada, "?limit=1").await).len(), 1);

    // What went and what came; measured in a part alone, the whole holds it too.
    std::fs::remove_dir_all(home.join("d/e")).unwrap();
    server.test.clock.advance_s(60);
    let scan = server.send_json(&ada, "POST", "/scan", &json!({"path": "d"})).await;
    assert_eq!(server.over(&ada, &scan).await["state"], "done");
    let whole = server.sizes(&ada, "").await;
    assert!(whole["directory"]["bytes"].as_u64().unwrap() < 1 << 20, "{whole}");
    assert_eq!(listed(&server.sizes(&ada, "?path=d").await), []);
    std::fs::remove_dir_all(home.join("small")).unwrap();
    server.test.clock.advance_s(60);
    let scan = server.send_json(&ada, "POST", "/scan", &json!({})).await;
    assert_eq!(server.over(&ada, &scan).await["state"], "done");
    let whole = server.sizes(&ada, "").await;
    assert_eq!(listed(&whole).iter().map(|(path, _)| *path).collect::<Vec<_>>(), ["d"]);
    assert_eq!(whole["files_done"], 1, "d alone is left");
    for (query, field) in [("?limit=0", "limit"), ("?limit=1001", "limit"), ("?path=..", "path"), ("?x=y", "x")] {
        let answer = server.get(&ada, &format!("/scan{query}")).await;
        assert_eq!((answer.status.as_u16(), answer.fields()), (422, vec![field.to_owned()]), "{query}");
    }
}

#[tokio::test]
async fn a_minute_s_worth_is_asked_for_at_once_and_more_is_refreshed_from_its_oldest_piece_on() {
    let server = Server::start().await;
    let asked = Arc::default();
    let answers: Answers = Arc::new(|number, scan| {
        let all = || vec![measured("a", 30), measured("b", 20), measured("c", 10), measured("", 60)];
        Some(match (number, scan.path.as_bytes()) {
            (0 | 1, _) => (all(), scanned(true, &[])),
            // Too much for a minute now: one piece is done in it.
            (2, _) => (vec![measured("b", 21)], scanned(false, &[])),
            (_, b"") => (
                vec![measured("", 0)],
                scanned(true, &(0..u32::try_from(scan.known.len()).unwrap()).collect::<Vec<_>>()),
            ),
            (..) => (vec![measured("", 31)], scanned(true, &[])),
        })
    });
    let (ada, _) = server.ada_at_home(measures(answers, &asked)).await;
    for _ in 0..3 {
        let scan = server.send_json(&ada, "POST", "/scan", &json!({})).await;
        assert_eq!(server.over(&ada, &scan).await["state"], "done");
        server.test.clock.advance_s(3600);
    }
    let places: Vec<String> = asked
        .lock()
        .unwrap()
        .iter()
        .map(|scan: &Scan| String::from_utf8_lossy(scan.path.as_bytes()).into_owned())
        .collect();
    assert_eq!(places, ["", "", "", "a", "c", ""], "b was done in the minute");
    let sizes = server.sizes(&ada, "").await;
    assert_eq!(listed(&sizes), [("a", 31), ("c", 31), ("b", 21)]);
    assert_eq!(sizes["directory"]["bytes"], 83);
}

/// Nothing but the whole space, measured in one go and with all in it, is what the space uses.
#[tokio::test]
async fn only_a_whole_space_of_which_nothing_was_left_out_is_its_usage() {
    let server = Server::start().await;
    let asked = Arc::default();
    let left_out = |complete: bool| Scanned {
        walked: Walked { skipped_in_all: 1, ..Walked::default() },
        ..scanned(complete, &[])
    };
    let all_known = |scan: &Scan| (0..u32::try_from(scan.known.len()).unwrap()).collect::<Vec<_>>();
    let answers: Answers = Arc::new(move |number, scan| {
        Some(match number {
            // A directory in it alone.
            0 => (vec![measured("", 7)], scanned(true, &[])),
            // Something could not be looked at; and the process does not say of the whole that it is whole.
            1 => (vec![measured("a", 8), measured("", 9)], left_out(true)),
            2 => (vec![measured("a", 8)], scanned(true, &[])),
            // In two slices, of which the first left something out and the last was not there.
            3 => (vec![measured("a", 8)], left_out(false)),
            4 => (vec![measured("", 1)], scanned(true, &all_known(scan))),
            // All of it, in one and in two.
            5 => (vec![measured("a", 8), measured("", 20)], scanned(true, &[])),
            6 => (vec![measured("a", 8)], scanned(false, &[])),
            _ => (vec![measured("", 30)], scanned(true, &all_known(scan))),
        })
    });
    let (ada, _) = server.ada_at_home(measures(answers, &asked)).await;
    let usage = async || server.portal(Ask::get("/api/v1/spaces/home").bearer(&ada)).await.json()["usage"].clone();
    for (body, known) in [
        (json!({"path": "a"}), None),
        (json!({}), None),
        (json!({}), None),
        (json!({}), None),
        (json!({}), Some((20, false))),
        (json!({}), Some((38, true))),
    ] {
        server.test.clock.advance_s(60);
        let scan = server.send_json(&ada, "POST", "/scan", &body).await;
        assert_eq!(server.over(&ada, &scan).await["state"], "done");
        let usage = usage().await;
        match known {
            None => assert!(usage.get("used_bytes").is_none() && usage.get("measured_at").is_none(), "{body} {usage}"),
            Some((bytes, approximate)) => {
                assert_eq!((&usage["source"], &usage["used_bytes"]), (&"measured".into(), &bytes.into()), "{usage}");
                assert_eq!(usage["approximate"], approximate);
                assert_eq!(usage["measured_at"], server.test.app.clock.now().to_string());
            }
        }
    }
    let page = server.portal(Ask::get("/spaces/home-ada").cookie(&ada)).await.body;
    assert!(page.contains("Measured by you on"), "{page}");
    let other = server.grace().await;
    let answer = server.portal(Ask::get("/api/v1/spaces/home-ada").bearer(&other)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.body);
    let list = server.portal(Ask::get("/api/v1/spaces").bearer(&other)).await.body;
    assert!(!list.contains("measured"), "{list}");
}

#[tokio::test]
async fn what_somebody_had_measured_is_theirs_also_in_a_space_of_several() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(real()).await;
    let (grace, admin) = (server.grace().await, server.admin().await);
    let scan = server.send_json(&ada, "POST", "/scan", &json!({})).await;
    server.over(&ada, &scan).await;
    for other in [&grace, &admin] {
        for (method, path) in [
            ("GET", "/api/v1/spaces/home-ada/scan?path=.."),
            ("POST", "/api/v1/spaces/home-ada/scan"),
            ("GET", "/api/v1/spaces/not-there/scan?path=.."),
        ] {
            let answer = server.portal(Ask::new(method, path).bearer(other).json(&json!({}))).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {path}: {}", answer.body);
        }
        for path in ["/spaces/home-ada/sizes", "/fragments/spaces/home-ada/sizes?path=d"] {
            assert_eq!(server.portal(Ask::get(path).cookie(other)).await.status, StatusCode::NOT_FOUND, "{path}");
        }
        for path in ["/spaces/home-ada/sizes", "/spaces/home-ada/sizes/stop"] {
            let answer = server.portal(Ask::new("POST", path).form(other, &[])).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        }
    }
    // A space of everybody: each sees what their own process saw.
    let data = Space { name: "data".parse().unwrap(), ..a_space(SpaceOwner::Everybody) };
    let data = server.test.app.db.insert_space(data, &[]).await.unwrap();
    let kept = server.test.app.config.server.state_dir.join("scans");
    let of = |person: &Person| kept.join(format!("{}-{}.scan", data.id, person.actor.user.id));
    let adas = std::fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(adas, of(&ada)).unwrap();
    let state = async |person: &Person| {
        let answer = server.portal(Ask::get("/api/v1/spaces/data/scan").bearer(person)).await;
        answer.json()["state"].as_str().unwrap().to_owned()
    };
    assert_eq!((state(&ada).await, state(&grace).await), ("done".to_owned(), "never".to_owned()));
    let reads = server.with_scopes(&ada, Scope::DEFAULT).await;
    assert_eq!(server.get(&reads, "/scan").await.status, StatusCode::FORBIDDEN);

    // It goes with the space.
    server.test.app.scans.clear().await.unwrap();
    assert!(of(&ada).exists());
    let gone = Space { state: SpaceState::Gone, ..data.clone() };
    assert!(server.test.app.db.update_space(&gone, &[]).await.unwrap());
    server.test.app.scans.clear().await.unwrap();
    assert!(!of(&ada).exists());
    assert_eq!(server.sizes(&ada, "").await["state"], "done", "and her home's is kept");
}

#[tokio::test]
async fn what_was_measured_when_the_portal_ended_is_gone_on_with_and_not_measured_again() {
    let server = Server::start().await;
    let asked = Arc::default();
    let answers: Answers = Arc::new(|number, _| match number {
        0 => Some((vec![measured("a/b", 5), measured("a", 10)], scanned(false, &[]))),
        1 => None,
        _ => Some((vec![measured("c", 3), measured("", 4)], scanned(true, &[0]))),
    });
    let (ada, _) = server.ada_at_home(measures(answers, &asked)).await;
    let accepted = server.send_json(&ada, "POST", "/scan", &json!({})).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    let again = server.send_json(&ada, "POST", "/scan", &json!({"path": "a"})).await;
    assert_eq!(again.header("location"), accepted.header("location"), "one at a time");
    while asked.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let sizes = server.sizes(&ada, "").await;
    assert_eq!((&sizes["state"], listed(&sizes)), (&"running".into(), vec![("a", 10)]));
    assert_eq!((&sizes["dirs_done"], &sizes["bytes_done"]), (&2.into(), &10.into()));

    // Another portal finds what the first has left, as after a kill: nothing told it to end.
    let app = &server.test.app;
    let clock: Arc<dyn eirene_core::Clock> = Arc::clone(&app.clock);
    let operations = Operations::new(app.db.clone(), Arc::clone(&clock), app.events.clone());
    let kept = app.config.server.state_dir.join("scans");
    let next = Scans::new(app.db.clone(), clock, app.files.clone(), app.spaces.clone(), operations, kept);
    assert_eq!(next.go_on().await, 1);
    let sizes = loop {
        let sizes = next.sizes(&ada.actor, &"home".parse().unwrap(), &AskedPath::default(), 9).await.unwrap();
        if sizes.as_of.is_some() && sizes.operation.is_none() {
            break sizes;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let known: Vec<_> = asked.lock().unwrap()[2].known.iter().map(|known| known.path.as_bytes().to_vec()).collect();
    assert_eq!(known, [b"a".to_vec()]);
    assert_eq!(sizes.here.unwrap().bytes, 14, "with what was known");
    assert_eq!(sizes.items.iter().map(|item| item.bytes).collect::<Vec<_>>(), [10, 3]);
    assert_eq!(next.go_on().await, 0, "it is over");
}

#[tokio::test]
async fn measuring_can_be_ended_and_gone_on_with_on_its_page() {
    let server = Server::start().await;
    let asked = Arc::default();
    let answers: Answers = Arc::new(|number, _| match number {
        0 => Some((vec![measured("a", 10)], scanned(false, &[]))),
        1 => None,
        _ => Some((vec![measured("", 1)], scanned(true, &[0]))),
    });
    let (ada, _) = server.ada_at_home(measures(answers, &asked)).await;
    let page = || async { server.portal(Ask::get("/spaces/home-ada/sizes").cookie(&ada)).await };
    let until = async |text: &str| loop {
        let shown = page().await;
        assert_eq!(shown.status, StatusCode::OK);
        if shown.body.contains(text) {
            break shown;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let words = eirene_words::words();
    let before = page().await.body;
    assert!(before.contains(&words.get("my_spaces.sizes_page.never")));
    assert!(!before.contains(&words.get("my_spaces.sizes_page.unknown")), "what was never measured is not too small");
    let begin = server.portal(Ask::new("POST", "/spaces/home-ada/sizes").form(&ada, &[])).await;
    assert_eq!((begin.status, begin.header("location")), (StatusCode::SEE_OTHER, "/spaces/home-ada/sizes"));
    let shown = until("?path=a\"").await;
    assert!(shown.body.contains("/spaces/home-ada/sizes/stop") && shown.body.contains("http-equiv=\"refresh\""));
    let stop = server.portal(Ask::new("POST", "/spaces/home-ada/sizes/stop").form(&ada, &[])).await;
    assert_eq!(stop.status, StatusCode::SEE_OTHER);
    let shown = until(&words.get("my_spaces.sizes_page.go_on")).await;
    assert!(!shown.body.contains("http-equiv=\"refresh\""));
    // What was ended is not gone on with by itself.
    assert_eq!(server.test.app.scans.go_on().await, 0);
    server.portal(Ask::new("POST", "/spaces/home-ada/sizes").form(&ada, &[])).await;
    until(&words.get("my_spaces.sizes_page.again")).await;
    assert_eq!(asked.lock().unwrap()[2].known.len(), 1);
    assert_eq!(server.sizes(&ada, "").await["directory"]["bytes"], 11);
}

#[tokio::test]
async fn what_is_not_there_any_more_is_not_gone_on_with() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("d")).unwrap();
    let scan = server.send_json(&ada, "POST", "/scan", &json!({"path": "d"})).await;
    assert_eq!(server.over(&ada, &scan).await["state"], "done");
    for (file, code) in [(false, "no_such_path"), (true, "not_a_directory")] {
        let _ = std::fs::remove_dir(home.join("d"));
        if file {
            std::fs::write(home.join("d"), "").unwrap();
        }
        server.test.clock.advance_s(60);
        let scan = server.send_json(&ada, "POST", "/scan", &json!({"path": "d"})).await;
        let over = server.over(&ada, &scan).await;
        assert_eq!((&over["state"], &over["problem"]["code"]), (&"failed".into(), &code.into()), "{over}");
        let sizes = server.sizes(&ada, "").await;
        assert_eq!((&sizes["state"], listed(&sizes)), (&"done".into(), vec![]), "{code}");
        // The page measures what one looks at, not what has gone.
        let page = server.portal(Ask::get("/spaces/home-ada/sizes").cookie(&ada)).await.body;
        assert!(page.contains("Measure again") && !page.contains("Go on measuring"), "{page}");
    }
}
