//! Waiting and following, through a portal that is away for a while.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::portal::{Home, Portal, Request, TOKEN, session};

const ID: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";

fn is_events(request: &Request) -> bool {
    request.line.ends_with("/events")
}

fn event(state: &str) -> String {
    format!("event: session\ndata: {}\n\n", session(ID, "maps", state))
}

/// Waits until it says `words` on standard error.
fn until_said(child: &mut Child, words: &str) -> BufReader<std::process::ChildStderr> {
    let mut reader = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "it never said: {words}");
    }
    reader
}

#[test]
fn a_start_waits_for_the_event_that_says_it_runs() {
    let told = AtomicUsize::new(0);
    let portal = Portal::new(move |request, reply| {
        if is_events(request) {
            reply.pieces(&["retry: 1000\n\n", &event("starting")]);
            told.store(1, Ordering::SeqCst);
            reply.pieces_on(&[&event("running")]);
            return reply.end();
        }
        let running = told.load(Ordering::SeqCst) == 1;
        reply.json(200, &session(ID, "maps", if running { "running" } else { "queued" }));
    });
    let done = Home::signed_in(&portal).run(&["session", "start", "--name", "maps"]);
    assert_eq!((done.code, done.out), (Some(0), format!("{ID}\n")), "{}", done.err);
    assert!(done.err.contains("`maps` runs on c1."), "{}", done.err);
}

#[test]
fn a_start_names_no_node_before_the_scheduler_has_said_which() {
    let mut nowhere = session(ID, "maps", "running");
    nowhere["nodes"] = json!([]);
    let portal = Portal::new(move |_, reply| reply.json(200, &nowhere));
    let done = Home::signed_in(&portal).run(&["session", "start"]);
    assert_eq!((done.code, done.out), (Some(0), format!("{ID}\n")), "{}", done.err);
    assert!(done.err.contains("`maps` runs."), "{}", done.err);
}

#[test]
fn a_start_waits_through_a_portal_that_answers_503() {
    let asked = AtomicUsize::new(0);
    let portal = Portal::new(move |request, reply| match request.line.split(' ').next() {
        Some("POST") => reply.json(201, &session(ID, "maps", "queued")),
        _ if is_events(request) => reply.problem(503, "unavailable"),
        _ => match asked.fetch_add(1, Ordering::SeqCst) {
            0 => reply.json(200, &session(ID, "maps", "queued")),
            1 => reply.problem(503, "unavailable"),
            2 => reply.problem(502, ""),
            // Closed without a word.
            3 => {}
            _ => reply.json(200, &session(ID, "maps", "running")),
        },
    });
    let done = Home::signed_in(&portal).run(&["session", "start", "--json"]);
    assert_eq!(done.json()["state"], "running");
    let posts = portal.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(posts, 1);
}

#[test]
fn a_start_waits_through_a_portal_that_is_gone_with_its_port() {
    let portal = Portal::new(|request, reply| match request.line.split(' ').next() {
        Some("POST") => reply.json(201, &session(ID, "maps", "queued")),
        _ if is_events(request) => {
            reply.pieces(&[&event("queued")]);
            reply.end();
        }
        _ => reply.json(200, &session(ID, "maps", "queued")),
    });
    let home = Home::signed_in(&portal);
    let mut child = home.eirene(&["session", "start"]).spawn().unwrap();
    portal.until(|lines| lines.iter().any(|line| line.ends_with(ID)));

    // What others on this machine see of it.
    let seen = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    assert!(seen.ends_with(b"session\0start\0"), "{}", String::from_utf8_lossy(&seen));
    assert!(!String::from_utf8_lossy(&seen).contains(TOKEN));

    portal.go_away();
    let mut stderr = until_said(&mut child, "does not answer; trying again");
    portal.answer(|request, reply| {
        if is_events(request) {
            return reply.problem(503, "unavailable");
        }
        reply.json(200, &session(ID, "maps", "running"));
    });
    portal.come_back();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert!(rest.contains("`maps` runs on c1."), "{rest}");
}

#[test]
fn a_wait_ends_when_the_portal_refuses() {
    let portal = Portal::new(|request, reply| match request.line.split(' ').next() {
        Some("DELETE") => reply.json(202, &session(ID, "maps", "stopping")),
        _ => reply.problem(401, "unauthenticated"),
    });
    let done = Home::signed_in(&portal).run(&["session", "stop", ID]);
    assert_eq!(done.code, Some(1), "{done:?}");
}

#[test]
fn a_stop_waits_until_it_is_over() {
    let asked = AtomicUsize::new(0);
    let portal = Portal::new(move |request, reply| match request.line.split(' ').next() {
        Some("DELETE") => reply.json(202, &session(ID, "maps", "stopping")),
        _ if is_events(request) => {
            reply.pieces(&[]);
            reply.end();
        }
        _ => {
            let over = asked.fetch_add(1, Ordering::SeqCst) > 1;
            reply.json(200, &session(ID, "maps", if over { "ended" } else { "stopping" }));
        }
    });
    let done = Home::signed_in(&portal).run(&["session", "stop", ID, "--json"]);
    assert_eq!(done.json()["state"], "ended");
}

/// A portal whose log grows with every connection, most of which break; the session is over at the last one.
fn talker() -> Portal {
    let opened = Arc::new(AtomicUsize::new(0));
    Portal::new(move |request, reply| {
        if !request.line.contains("/logs") {
            let over = opened.load(Ordering::SeqCst) >= 4;
            return reply.json(200, &session(ID, "maps", if over { "ended" } else { "running" }));
        }
        match opened.fetch_add(1, Ordering::SeqCst) {
            // Broken off in the middle of a line.
            0 => reply.pieces(&["one\n", "tw"]),
            1 => reply.problem(503, "unavailable"),
            // The portal restarts: the answer ends well, but the session goes on.
            2 => {
                reply.pieces(&["one\ntwo\nth"]);
                reply.pieces_on(&["ree\n"]);
                reply.end();
            }
            3 => reply.pieces(&["one\n"]),
            _ => {
                reply.pieces(&["one\ntwo\nthree\nfour\n", "no end"]);
                reply.end();
            }
        }
    })
}

#[test]
fn a_followed_log_goes_on_where_it_was_and_ends_with_its_session() {
    let portal = talker();
    let done = Home::signed_in(&portal).run(&["session", "logs", "--follow", ID]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "one\ntwo\nthree\nfour\nno end"), "{}", done.err);
    let opened = portal.lines().iter().filter(|line| line.ends_with("/logs?follow=true")).count();
    assert_eq!(opened, 5);
}

#[test]
fn a_followed_log_is_a_line_of_json_each() {
    let portal = talker();
    let done = Home::signed_in(&portal).run(&["session", "logs", "-f", "--json", ID]);
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, ["one", "two", "three", "four", "no end"].map(|line| json!({"line": line})));
}

#[test]
fn what_comes_is_printed_at_once() {
    let portal = Portal::new(|request, reply| {
        if request.line.contains("/logs") {
            reply.pieces(&["first\n"]);
            // Silent until the program is gone.
            reply.hold();
        } else {
            reply.json(200, &session(ID, "maps", "running"));
        }
    });
    let home = Home::signed_in(&portal);
    let mut child = home.eirene(&["session", "logs", "--follow", ID]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn following_ends_when_the_portal_refuses() {
    let opened = AtomicUsize::new(0);
    let portal = Portal::new(move |request, reply| {
        if request.line.contains("/logs") {
            opened.fetch_add(1, Ordering::SeqCst);
            reply.pieces(&["one\n"]);
        } else if opened.load(Ordering::SeqCst) == 0 {
            reply.json(200, &session(ID, "maps", "running"));
        } else {
            reply.problem(401, "unauthenticated");
        }
    });
    let done = Home::signed_in(&portal).run(&["session", "logs", "--follow", ID]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), "one\n"), "{done:?}");
}
