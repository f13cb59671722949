//! `eirene fs`, without the bytes: listing, moving, removing, measuring.

use std::io::Read as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::portal::{Done, Home, Portal};

const ID: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";

fn operation(state: &str, more: &Value) -> Value {
    let mut operation = json!({
        "id": ID, "space_id": ID, "kind": "delete", "state": state, "request": {}, "progress": {"entries": 3, "bytes": 4096},
        "created_at": "2026-01-02T23:30:00Z",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        operation[key] = value.clone();
    }
    operation
}

fn lines(done: &Done) -> Vec<Value> {
    done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn nobody() -> Portal {
    Portal::new(|_, reply| reply.problem(500, "internal"))
}

#[test]
fn a_listing_is_printed_page_by_page_and_its_names_act_on_no_terminal() {
    let portal = Portal::new(|request, reply| {
        let file =
            |name: &str, kind: &str| json!({"name": name, "path": format!("data/{name}"), "kind": kind, "mine": true});
        if request.line.contains("cursor=2") {
            let mut raw = file("caf\u{fffd}", "link");
            raw["raw_path"] = json!("ZGF0YS9jYWbp");
            return reply.json(200, &json!({"directory": {}, "items": [raw], "next": null}));
        }
        let mut evil = file("a\n\u{1b}[2J\u{9b}1m\u{202e}b", "file");
        evil["size_bytes"] = json!(1_048_576);
        evil["mode"] = json!("rw-r-----");
        evil["uid"] = json!(2001);
        evil["modified_at"] = json!("2026-01-02T23:30:00Z");
        reply.json(200, &json!({"directory": {}, "items": [evil, file("d", "directory")], "next": "2"}));
    });
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "ls", "home:data/"]);
    assert_eq!(done.out, "a\\n\\u{1b}[2J\\u{9b}1m\\u{202e}b\nd/\ncaf\u{fffd}@\n", "{done:?}");
    assert_eq!(
        portal.lines(),
        [
            "GET /api/v1/spaces/home/files?path=data&limit=1000&hidden=false",
            "GET /api/v1/spaces/home/files?path=data&limit=1000&hidden=false&cursor=2"
        ]
    );
    let done = home.run(&["fs", "ls", "-la", "home:data"]);
    let first = done.out.lines().next().unwrap();
    assert!(first.starts_with("-rw-r-----  2001 ") && first.contains("1.00 MiB  2026-01-03 00:30 CET"), "{first}");
    assert!(portal.lines().last().unwrap().contains("hidden=true"));
    let done = home.run(&["fs", "ls", "--json", "home:data"]);
    assert!(!done.out.contains('\u{202e}') && !done.out.contains('\u{9b}'), "{done:?}");
    assert_eq!(lines(&done)[0]["name"], "a\n\u{1b}[2J\u{9b}1m\u{202e}b");
    assert_eq!(lines(&done).len(), 3);
}

#[test]
fn a_file_is_listed_as_itself() {
    let portal = Portal::new(|request, reply| {
        if request.line.contains("/files/entry?raw_path=_w") {
            return reply.json(200, &json!({"name": "\u{fffd}", "path": "\u{fffd}", "raw_path": "_w", "kind": "file"}));
        }
        reply.problem(409, "not_a_directory");
    });
    let home = Home::signed_in(&portal);
    let name = std::os::unix::ffi::OsStringExt::from_vec(b"home:\xff".to_vec());
    let name: std::ffi::OsString = name;
    let done = Done::from(home.eirene(&["fs", "ls"]).arg(name).output().unwrap());
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\u{fffd}\n"), "{done:?}");
}

#[test]
fn what_moves_within_spaces_is_asked_for_one_by_one() {
    let portal = Portal::new(|request, reply| {
        assert_eq!(request.line, "POST /api/v1/spaces/home/files/move");
        match request.json()["items"][0]["path"].as_str() {
            Some("taken") => reply.problem(409, "exists"),
            _ => reply.json(200, &json!({"items": [{"path": "old/a (2)"}], "refused": []})),
        }
    });
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "mv", "--on-conflict", "keep_both", "home:a", "scratch:old/"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), "Moved home:a to scratch:old/a (2).\n"), "{done:?}");
    assert_eq!(
        portal.seen()[0].json(),
        json!({"items": [{"path": "a", "to": "old/a"}], "to_space": "scratch", "on_conflict": "keep_both"})
    );
    let done = home.run(&["fs", "mv", "home:taken", "scratch:taken"]);
    assert!(done.code == Some(1) && done.err.contains("`home:taken` was not moved"), "{done:?}");
    let seen = portal.seen().len();
    for words in [
        ["fs", "mv", "./a", "./b"].as_slice(),
        &["fs", "mv", "home:", "scratch:"],
        &["fs", "mv", "home:", "./a"],
        &["fs", "mv", "..", "home:"],
        &["fs", "mv", "home:a", "./a", "scratch:"],
        &["fs", "mv", "home:a", "home:b", "home:c"],
        &["fs", "mv", "./a", "./b", "home:c"],
        &["fs", "mv", "home:a", "home:b", "./no/such/directory"],
    ] {
        let done = home.run(words);
        assert_eq!(done.code, Some(2), "{done:?}");
    }
    assert_eq!(portal.seen().len(), seen, "nothing was asked for");
}

/// A portal where all lies on another file system than where it is to go, and an operation ends so.
fn moving_far(ended: Value) -> Portal {
    Portal::new(move |request, reply| match request.line.split_once(' ').unwrap().0 {
        "POST" if request.json()["as_operation"] == true => reply.json(202, &operation("running", &json!({}))),
        "POST" => reply.problem(409, "other_file_system"),
        _ => reply.json(200, &operation(ended["state"].as_str().unwrap(), &ended)),
    })
}

#[test]
fn a_move_to_another_file_system_is_an_operation_that_is_waited_for() {
    let items = json!([{"path": "old/d (2)", "raw_path": null, "original": ID}]);
    let portal =
        moving_far(json!({"state": "done", "progress": {"entries": 3, "bytes": 9, "items": items, "refused": []}}));
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "mv", "--on-conflict", "keep_both", "home:d", "scratch:old/"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), "Moved home:d to scratch:old/d (2).\n"), "{done:?}");
    let body = json!({"items": [{"path": "d", "to": "old/d"}], "to_space": "scratch", "on_conflict": "keep_both"});
    let mut later = body.clone();
    later["as_operation"] = json!(true);
    let asked = portal.seen().into_iter();
    let asked = asked.filter_map(|request| request.line.starts_with("POST").then(|| request.json()));
    assert_eq!(asked.collect::<Vec<_>>(), [body, later]);
    let done = home.run(&["fs", "mv", "--json", "home:d", "scratch:old/"]);
    assert_eq!((&done.json()["state"], &done.json()["to"]), (&json!("moved"), &json!("scratch:old/d (2)")), "{done:?}");

    let kept = "it was copied, but the original stays where it is as well: `d/x` was changed meanwhile";
    for (ended, says) in [
        (json!({"state": "failed", "problem": {"code": "original_kept", "text": kept}}), kept),
        (json!({"state": "interrupted"}), "give the same command again"),
        (json!({"state": "cancelled"}), "it was cancelled"),
        (json!({"state": "done"}), "not understood"),
    ] {
        let portal = moving_far(ended);
        let done = Home::signed_in(&portal).run(&["fs", "mv", "home:d", "scratch:d"]);
        assert!(done.code == Some(1) && done.err.contains(says), "{done:?}");
    }
}

/// A portal where `d` is a directory, and the rest are files.
fn removing(state: &'static str) -> Portal {
    Portal::new(move |request, reply| match request.line.split_once(' ').unwrap() {
        ("GET", path) if path.contains("/files/entry") => {
            let kind = if path.ends_with("path=d") { "directory" } else { "file" };
            reply.json(200, &json!({"path": "x", "kind": kind}));
        }
        ("POST", path) if path.ends_with("/files/trash") => {
            let items = [json!({"id": ID, "path": "a"})];
            let refused = [json!({"path": "b", "code": "permission_denied", "text": "you may not"})];
            reply.json(200, &json!({"items": items, "refused": refused}));
        }
        ("POST", _) => reply.json(202, &operation("running", &json!({}))),
        _ => reply.json(200, &operation(state, &json!({}))),
    })
}

#[test]
fn what_is_removed_goes_to_the_trash_and_each_that_does_not_is_told() {
    let portal = removing("done");
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "rm", "home:a", "home:b", "home:d"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for said in [
        &format!("home:a is in the trash (`eirene fs trash restore home {ID}`)"),
        "`home:b` was not removed: you may not",
        "`home:d` was not removed: it is a directory: give `-r`",
        "2 of 3 were not removed",
    ] {
        assert!(done.err.contains(said), "{said}: {done:?}");
    }
    let asked = portal.seen().into_iter().find(|request| request.line.starts_with("POST")).unwrap();
    assert_eq!(asked.json(), json!({"paths": ["a", "b"], "raw_paths": []}), "and no directory among them");
    let done = home.run(&["fs", "rm", "--json", "home:a"]);
    let said = lines(&done);
    assert_eq!(said[0], json!({"path": "home:a", "state": "trashed", "trash_id": ID}));
    assert_eq!((&said[1]["state"], &said[1]["code"]), (&json!("failed"), &json!("permission_denied")));
}

#[test]
fn what_is_deleted_for_good_is_asked_about() {
    let portal = removing("done");
    let home = Home::signed_in(&portal);
    let posts = || portal.lines().iter().filter(|line| line.starts_with("POST")).count();
    let done = home.run(&["fs", "rm", "--delete", "-r", "home:d"]);
    assert_eq!((done.code, posts()), (Some(2), 0), "{done:?}");
    assert!(done.err.contains("for good") && done.err.contains("--yes"), "{done:?}");
    let done = home.run(&["fs", "rm", "--delete", "-r", "--yes", "home:d"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), "Deleted home:d.\n"), "{done:?}");
    let asked = portal.seen().into_iter().find(|request| request.line.starts_with("POST")).unwrap();
    assert_eq!(asked.line, "POST /api/v1/spaces/home/files/delete");
    assert_eq!(asked.json(), json!({"paths": ["d"], "raw_paths": [], "sure": true}));
    assert_eq!(home.run(&["fs", "rm", "-r", "--delete", "--yes", "home:"]).code, Some(2), "not a whole space");
    assert_eq!(posts(), 1);
}

#[test]
fn an_operation_that_comes_to_no_good_end_says_why() {
    for (state, more, said) in [
        ("failed", json!({"problem": {"code": "permission_denied", "text": "you may not"}}), "you may not"),
        ("interrupted", json!({}), "give the same command again"),
        ("cancelled", json!({}), "it was cancelled"),
        (
            "done",
            json!({"progress": {"skipped": [{"path": "x\n", "code": "busy", "text": "it is used"}], "skipped_in_all": 2}}),
            "2 things in it were left alone, first of all `x\\n`: it is used",
        ),
    ] {
        let portal = Portal::new(move |request, reply| match request.line.split(' ').next() {
            Some("POST") => reply.json(202, &operation("waiting", &json!({}))),
            _ if request.line.contains("entry") => reply.json(200, &json!({"path": "a", "kind": "file"})),
            _ => reply.json(200, &operation(state, &more)),
        });
        let done = Home::signed_in(&portal).run(&["fs", "rm", "--delete", "--yes", "home:a"]);
        assert_eq!(done.code, Some(1), "{state}: {done:?}");
        assert!(done.err.contains(said), "{state}: {done:?}");
    }
}

#[test]
fn ctrl_c_cancels_what_the_portal_does() {
    let cancelled = AtomicUsize::new(0);
    let portal = Portal::new(move |request, reply| match request.line.split(' ').next() {
        Some("POST") => reply.json(202, &operation("running", &json!({}))),
        Some("DELETE") => {
            cancelled.store(1, Ordering::SeqCst);
            reply.json(202, &operation("running", &json!({})));
        }
        _ if cancelled.load(Ordering::SeqCst) == 1 => reply.json(200, &operation("cancelled", &json!({}))),
        _ => reply.json(200, &operation("running", &json!({}))),
    });
    let home = Home::signed_in(&portal);
    let mut child = home.eirene(&["fs", "du", "home:"]).spawn().unwrap();
    portal.until(|lines| lines.iter().any(|line| line.ends_with(&format!("operations/{ID}"))));
    let signal = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(signal.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("cancelled; what was done is done"), "{said}");
    assert!(portal.lines().contains(&format!("DELETE /api/v1/operations/{ID}")));
}

#[test]
fn what_takes_the_room_is_measured_and_told_the_largest_first() {
    let (asked, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let portal = Portal::new(move |request, reply| match request.line.split_once(' ').unwrap() {
        ("POST", "/api/v1/spaces/home/scan") => {
            assert_eq!(request.json(), json!({"path": "data"}));
            // At first another directory is being measured.
            let of = if begun.fetch_add(1, Ordering::SeqCst) == 0 { "other" } else { "data" };
            let state = if of == "other" { "done" } else { "waiting" };
            reply.json(202, &operation(state, &json!({"request": {"path": of}})));
        }
        ("GET", path) if path.contains("/results") => {
            let one = |path: &str, bytes: u64| json!({"path": path, "bytes": bytes, "entries": 2, "own_bytes": 1, "own_entries": 1});
            let items = json!([one("data/x", 10), one("data", 4096), one("data/y\n", 2048), one("data/y\n/z", 2000)]);
            reply.json(200, &json!({"items": items, "next": null}));
        }
        _ => {
            let state = if asked.fetch_add(1, Ordering::SeqCst) > 0 { "done" } else { "running" };
            reply.json(200, &operation(state, &json!({"request": {"path": "data"}})));
        }
    });
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "du", "home:data"]);
    let shown: Vec<&str> = done.out.lines().map(str::trim_start).collect();
    assert_eq!(shown.len(), 3, "{done:?}");
    assert!(shown[0].starts_with("4.00 KiB") && shown[0].ends_with("  home:data"), "{shown:?}");
    assert!(shown[1].starts_with("2.00 KiB") && shown[1].ends_with("  home:data/y\\n"), "{shown:?}");
    let deep = lines(&home.run(&["fs", "du", "--json", "-d", "2", "home:data/"]));
    assert_eq!(deep[2], json!({"path": "home:data/y\n/z", "bytes": 2000, "entries": 2}));
}

#[test]
fn directories_are_made_and_the_trash_gives_back() {
    let portal = Portal::new(|request, reply| match request.line.as_str() {
        "POST /api/v1/spaces/home/files/directories" => {
            reply.json(201, &json!({"path": "a/b", "made": request.json()["parents"] == false}));
        }
        "GET /api/v1/spaces/home/trash?limit=200" => {
            reply.json(200, &json!({"items": [{"id": ID, "path": "a\u{202e}", "kind": "file", "size_bytes": 1024}]}));
        }
        line if line.ends_with("/restore") => {
            assert_eq!(request.json(), json!({"on_conflict": "refuse", "to": "back"}));
            reply.json(200, &json!({"path": "back"}));
        }
        "DELETE /api/v1/spaces/home/trash" => reply.json(202, &operation("done", &json!({}))),
        line => panic!("{line}"),
    });
    let home = Home::signed_in(&portal);
    assert_eq!(home.run(&["fs", "mkdir", "home:a/b"]).err, "Made home:a/b.\n");
    assert_eq!(home.run(&["fs", "mkdir", "-p", "home:a/b/"]).err, "home:a/b was there already.\n");
    let listed = home.run(&["fs", "trash", "ls"]);
    assert!(listed.out.contains("1.00 KiB") && listed.out.contains("a\\u{202e}"), "{listed:?}");
    assert_eq!(home.run(&["fs", "trash", "restore", "home", ID, "--to", "home:back"]).err, "Restored home:back.\n");
    assert_eq!(home.run(&["fs", "trash", "empty", "home"]).code, Some(2), "it asks");
    let emptied = home.run(&["fs", "trash", "empty", "home", "--yes", "--json"]);
    assert_eq!(emptied.json(), json!({"space": "home", "bytes": 4096, "entries": 3}));
    let seen = portal.seen().len();
    for words in [["fs", "trash", "restore", "home", "../../x"], ["fs", "trash", "restore", "../x", ID]] {
        assert_eq!(home.run(&words).code, Some(2));
    }
    assert_eq!(portal.seen().len(), seen);
}

#[test]
fn quotas_are_a_table_or_a_line_of_json_each() {
    let space = json!({
        "name": "home-ada", "title": "Home", "state": "present", "undetermined": false,
        "usage": {"level": "ok", "used_bytes": 1024, "limit_bytes": 2048}, "trend": {"days_of_samples": 1},
    });
    let limit = json!({"group": "physics", "level": "full", "used_bytes": 2048, "limit_bytes": 2048});
    let (spaces, limits) = (json!({"items": [space], "next": null}), json!({"items": [limit], "next": null}));
    let portal = Portal::new(move |request, reply| {
        let is_of_groups = request.line.starts_with("GET /api/v1/me/group-limits");
        reply.json(200, if is_of_groups { &limits } else { &spaces });
    });
    let home = Home::signed_in(&portal);
    let done = home.run(&["fs", "quota"]);
    let row = |at: usize| done.out.lines().nth(at).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row(1), ["home-ada", "Home", "1.00", "KiB", "2.00", "KiB", "ok", "–"], "{done:?}");
    assert_eq!(row(2), ["–", "Group", "physics", "2.00", "KiB", "2.00", "KiB", "full", "–"], "{done:?}");
    assert_eq!(lines(&home.run(&["fs", "quota", "--json"])), [space, limit]);
}

#[test]
fn spaces_are_shown_though_nobody_tells_what_groups_may_use() {
    for (status, is_said) in [(404, false), (503, true)] {
        let spaces = json!({"items": [{"name": "home-ada", "title": "Home", "state": "present"}], "next": null});
        let portal = Portal::new(move |request, reply| {
            if request.line.starts_with("GET /api/v1/spaces") {
                reply.json(200, &spaces);
            } else {
                reply.problem(status, "unavailable");
            }
        });
        let done = Home::signed_in(&portal).run(&["fs", "quota"]);
        assert_eq!((done.code, done.out.contains("home-ada")), (Some(0), true), "{done:?}");
        assert_eq!(done.err.contains("your groups"), is_said, "{done:?}");
    }
}

#[test]
fn what_helps_is_said_and_no_place_asks_nobody() {
    let portal = Portal::new(|_, reply| {
        let detail = "this token lacks the scope `files:read`";
        reply.json(403, &json!({"title": "no", "detail": detail, "status": 403, "code": "insufficient_scope"}));
    });
    let done = Home::signed_in(&portal).run(&["fs", "ls", "home:"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("`eirene login`") && !done.err.contains("--admin"), "{done:?}");
    let portal = nobody();
    let home = Home::signed_in(&portal);
    for words in [
        ["fs", "ls", "./local"],
        ["fs", "du", "/tmp"],
        ["fs", "rm", "data"],
        ["fs", "mkdir", "../x:y"],
        ["fs", "ls", "Home:x"],
    ] {
        let done = home.run(&words);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains("not a place in a space"), "{done:?}");
    }
    assert!(portal.seen().is_empty());
}
