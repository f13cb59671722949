//! Runs: what is asked for, which one is meant, and that the exit status is the program's outcome.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::portal::{Home, Portal, Request, session};

const ID: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";
const OLD: &str = "0190d2a4ffff7b1e8f0e6d2f4b5a6978";

/// A run as the portal shows it.
fn run(id: &str, state: &str, code: &str) -> Value {
    json!({
        "id": id, "name": "train.py", "owner": "ada", "file": "work/train.py", "arguments": ["--lr", "a b"], "ranks": 8,
        "preflight": true, "image": "pytorch", "state": state, "undetermined": false, "nodes": ["c1", "c2"],
        "reason": {"code": code, "text": format!("because of {code}")}, "resources": {"nodes": 2}, "restart_count": 0,
        "created_at": "2026-01-02T23:30:00Z", "version": 1,
    })
}

fn is_events(request: &Request) -> bool {
    request.line.ends_with("/events")
}

/// A portal whose run is over with this code at the second look.
fn portal(code: &'static str) -> Portal {
    let looks = AtomicUsize::new(0);
    Portal::new(move |request, reply| match request.line.split_once(' ').expect("a target") {
        ("POST", _) => reply.json(201, &run(ID, "queued", "not_considered_yet")),
        ("DELETE", _) => reply.json(202, &run(ID, "stopping", "x")),
        _ if is_events(request) => {
            reply.pieces(&[]);
            reply.end();
        }
        (_, target) if target.contains("/logs") => {
            reply.pieces(&["[0] one\n", "[1] two\n"]);
            reply.end();
        }
        (_, target) if target.ends_with("/runs") || target.contains("/runs?") => {
            let mut items = vec![run(ID, "running", "x")];
            if !target.contains("live=true") {
                items.push(run(OLD, "failed", "program_failed"));
            }
            reply.json(200, &json!({"items": items, "next": null}));
        }
        _ => {
            let state = match (looks.fetch_add(1, Ordering::SeqCst), code) {
                (0, _) => "running",
                (_, "program_ended" | "stopped") => "ended",
                _ => "failed",
            };
            reply.json(200, &run(ID, state, code));
        }
    })
}

#[test]
fn a_list_of_runs_has_all_its_pages() {
    let portal = Portal::new(|request, reply| {
        let page = if request.line.contains("cursor=2") {
            json!({"items": [run(OLD, "running", "x")], "next": null})
        } else {
            json!({"items": [run(ID, "running", "x")], "next": "2"})
        };
        reply.json(200, &page);
    });
    let home = Home::signed_in(&portal);
    for arguments in [["run", "list"].as_slice(), &["run", "list", "--all"], &["admin", "run", "list"]] {
        let listed = home.run(&[arguments, &["--json"]].concat()).json();
        let ids: Vec<_> = listed.as_array().unwrap().iter().map(|run| run["id"].clone()).collect();
        assert_eq!(ids, [ID, OLD], "{arguments:?}");
    }
    let asked = ["runs?live=true", "runs?live=true&cursor=2", "runs", "runs?cursor=2"].into_iter();
    let asked = asked.chain(["runs?all=true&live=true", "runs?all=true&live=true&cursor=2"]);
    let asked: Vec<_> = asked.map(|query| format!("GET /api/v1/{query}")).collect();
    assert_eq!(portal.lines(), asked, "which runs, of each page");
}

#[test]
fn a_start_says_what_to_run_and_on_what_and_does_not_wait() {
    let portal = portal("program_ended");
    let home = Home::signed_in(&portal);
    let done = home.run(&[
        "run",
        "start",
        "work/train.py",
        "data set",
        "--ranks",
        "8",
        "--nodes",
        "2",
        "--cpus",
        "4",
        "--memory",
        "4G",
        "--image",
        "pytorch",
        "--no-preflight",
        "--name",
        "third try",
        "--idempotency-key",
        "k",
        "--",
        "--lr",
        "$(id)",
    ]);
    assert_eq!((done.code, done.out), (Some(0), format!("{ID}\n")), "{}", done.err);
    let seen = portal.seen();
    assert_eq!((seen.len(), seen[0].line.as_str()), (1, "POST /api/v1/runs"));
    assert_eq!(seen[0].header("idempotency-key"), "k");
    let expected = json!({
        "file": "work/train.py", "arguments": ["data set", "--lr", "$(id)"], "ranks": 8, "preflight": false,
        "name": "third try", "image": "pytorch", "nodes": 2, "cpus": 4, "memory_mib": 4096, "gpus": 0, "walltime_min": 60,
    });
    assert_eq!(seen[0].json(), expected);
    assert_eq!(home.run(&["run", "start", "a.ipynb", "--json"]).json()["id"], ID);
    let plain = portal.seen()[1].json();
    assert_eq!((&plain["arguments"], &plain["preflight"], plain.get("ranks")), (&json!([]), &json!(true), None));
}

#[test]
fn a_run_like_a_session_asks_for_what_was_given_alone() {
    let portal = Portal::new(|request, reply| match request.line.split_once(' ').expect("a target") {
        ("POST", _) => reply.json(201, &run(ID, "queued", "not_considered_yet")),
        (_, target) if target.starts_with("/api/v1/sessions?") => {
            reply.json(200, &json!({"items": [session(OLD, "maps", "running")], "next": null}));
        }
        _ => reply.problem(404, "not_found"),
    });
    let home = Home::signed_in(&portal);
    let body = |words: &[&str]| {
        let done = home.run(&[&["run", "start", "train.py"][..], words].concat());
        assert_eq!((done.code, done.out), (Some(0), format!("{ID}\n")), "{}", done.err);
        portal.seen().last().expect("a request").json()
    };
    let plain = json!({"file": "train.py", "arguments": [], "preflight": true, "like": OLD});
    for like in ["maps", OLD, &OLD[..9]] {
        assert_eq!(body(&["--like", like]), plain, "{like}");
    }
    let mut given = plain.clone();
    for (key, value) in [
        ("name", json!("as one sees it")),
        ("image", json!("jupyter")),
        ("project", json!("optics")),
        ("partition", json!("long")),
        ("nodes", json!(1)),
        ("cpus", json!(2)),
        ("memory_mib", json!(2048)),
        ("gpus", json!(1)),
        ("gpu_type", json!("a100")),
        ("walltime_min", json!(60)),
        ("scratch", json!({"kind": "node"})),
    ] {
        given[key] = value;
    }
    let size = ["--image", "jupyter", "--project", "optics", "--partition", "long", "--nodes", "1", "--cpus", "2"];
    let more = ["--memory", "2G", "--gpus", "a100:1", "--walltime", "1h", "--scratch", "node"];
    let name = ["--name", "as one sees it", "--like", OLD];
    assert_eq!(body(&[&size[..], &more, &name].concat()), given, "also where it is the usual");
    let mut none = plain;
    none["gpus"] = json!(0);
    assert_eq!(body(&["--like", OLD, "--gpus", "0"]), none);

    let posts = || portal.lines().iter().filter(|line| line.starts_with("POST")).count();
    let before = posts();
    let nothing = home.run(&["run", "start", "train.py", "--like", "nothing"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.err.contains("no session of yours"), "{nothing:?}");
    assert_eq!(posts(), before);
}

#[test]
fn a_scratch_is_asked_for_in_words_and_slips_are_wrong_usage() {
    let portal = portal("program_ended");
    let home = Home::signed_in(&portal);
    let scratch =
        ["--scratch", "node", "--scratch-size", "10G", "--stage-in", "home:data=1/x=in", "--stage-out", "out=home:a=b"];
    let more = ["--stage-out-on-success", "model=home:model"];
    let done = home.run(&[&["run", "start"][..], &scratch, &more, &["train.py"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    let expected = json!({
        "kind": "node", "size_mib": 10240,
        "stage_in": [{"from": "home:data=1/x", "to": "in"}],
        "stage_out": [
            {"from": "out", "to": "home:a=b", "on": "always"},
            {"from": "model", "to": "home:model", "on": "success"},
        ],
    });
    assert_eq!(portal.seen()[0].json()["scratch"], expected);
    for bad in [
        &["--stage-in", "home:a=b"][..],
        &["--scratch", "disk"],
        &["--scratch", "node", "--stage-in", "home:a"],
        &["--scratch", "node", "--stage-in", "a=b"],
        &["--scratch", "node", "--stage-in", "home:../a=b"],
        &["--scratch", "node", "--stage-out", "/a=home:b"],
    ] {
        let done = home.run(&[&["run", "start"][..], bad, &["train.py"]].concat());
        assert_eq!(done.code, Some(2), "{bad:?}: {}", done.err);
    }
    assert_eq!(portal.seen().len(), 1);
}

#[test]
fn the_exit_status_of_waiting_is_the_programs_outcome() {
    for (code, status) in [("program_ended", 0), ("program_failed", 1), ("stopped", 1), ("time_too_short", 1)] {
        for verb in [&["run", "start", "train.py", "--wait"][..], &["run", "requeue", ID, "--wait"]] {
            let done = Home::signed_in(&portal(code)).run(verb);
            assert_eq!((done.code, done.out), (Some(status), format!("{ID}\n")), "{code}: {}", done.err);
            assert!(done.err.contains(&format!("because of {code}")), "{}", done.err);
        }
        let done = Home::signed_in(&portal(code)).run(&["run", "start", "train.py", "--wait", "--json"]);
        assert_eq!(done.code, Some(status));
        assert_eq!(serde_json::from_str::<Value>(&done.out).unwrap()["reason"]["code"], code, "programs see how");
    }
}

#[test]
fn following_prints_the_log_and_then_says_how_it_went() {
    for (code, status) in [("program_ended", 0), ("program_failed", 1)] {
        let done = Home::signed_in(&portal(code)).run(&["run", "start", "train.py", "--follow"]);
        assert_eq!((done.code, done.out.as_str()), (Some(status), "[0] one\n[1] two\n"), "{}", done.err);
        assert!(done.err.contains(ID) && done.err.contains(&format!("because of {code}")), "{}", done.err);
    }
}

#[test]
fn a_run_is_found_by_its_name_and_never_among_sessions() {
    let portal = portal("program_ended");
    let home = Home::signed_in(&portal);
    assert_eq!(home.run(&["run", "show", "train.py", "--json"]).json()["id"], ID);
    let done = home.run(&["run", "cancel", "train.py", "--no-wait", "--json"]);
    assert_eq!(done.json()["state"], "stopping");
    assert!(portal.lines().contains(&format!("DELETE /api/v1/runs/{ID}")));
    assert!(!portal.lines().iter().any(|line| line.contains("/sessions")), "{:?}", portal.lines());
    let nothing = home.run(&["run", "logs", "nothing"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.err.contains("no run of yours"), "{nothing:?}");
}

#[test]
fn the_log_of_one_rank_is_asked_of_the_portal() {
    let portal = portal("program_ended");
    let home = Home::signed_in(&portal);
    let log = "[0] one\n[1] two\n";
    assert_eq!(home.run(&["run", "logs", ID, "--rank", "3"]).out, log);
    assert_eq!(home.run(&["run", "logs", ID, "--json"]).json(), json!({"run": ID, "log": log}));
    assert_eq!(home.run(&["run", "logs", ID, "--rank", "3", "--follow"]).out, log);
    let logs: Vec<String> = portal.lines().into_iter().filter(|line| line.contains("/logs")).collect();
    let of = |query: &str| format!("GET /api/v1/runs/{ID}/logs{query}");
    assert_eq!(logs[..2], [of("?rank=3"), of("")]);
    assert!(logs[2..].iter().all(|line| *line == of("?follow=true&rank=3")), "{logs:?}");
    assert_eq!(home.run(&["run", "logs", ID, "--rank", "-1"]).code, Some(2));
}

#[test]
fn lists_and_what_is_shown_are_for_people_and_programs() {
    let portal = portal("program_ended");
    let home = Home::signed_in(&portal);
    let list = home.run(&["run", "list", "--all"]).out;
    assert!(list.contains("RUN") && list.contains("RANKS") && list.contains(OLD) && list.contains(" 8 "), "{list}");
    assert_eq!(home.run(&["run", "list", "--json"]).json().as_array().unwrap().len(), 1);
    let shown = home.run(&["run", "show", ID]).out;
    assert!(shown.contains("File       work/train.py\n"), "{shown}");
    assert!(shown.contains("Arguments  [\"--lr\",\"a b\"]\n"), "where one ends and the next begins: {shown}");
    let everybody = home.run(&["admin", "run", "list"]).out;
    assert!(everybody.contains("OWNER"), "{everybody}");
    assert!(portal.lines().iter().any(|line| line.contains("/runs?all=true&live=true")), "{:?}", portal.lines());
    assert_eq!(home.run(&["admin", "run", "cancel", ID]).code, Some(2), "nobody is there to be asked");
    assert_eq!(home.run(&["admin", "run", "cancel", ID, "--yes", "--json"]).json()["state"], "ended");
}
