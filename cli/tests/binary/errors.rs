//! Exit codes, and what is said.

use serde_json::json;

use crate::portal::{Home, Portal, session};

const ID: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";

#[test]
fn a_refusal_is_1_and_no_answer_is_2() {
    for (status, code, exit) in [
        (401, "unauthenticated", 1),
        (403, "forbidden", 1),
        (404, "not_found", 1),
        (429, "too_many", 1),
        (500, "internal", 2),
        (503, "unavailable", 2),
        (504, "", 2),
    ] {
        let portal = Portal::new(move |_, reply| reply.problem(status, code));
        let home = Home::signed_in(&portal);
        let done = home.run(&["whoami"]);
        assert_eq!((done.code, done.out.as_str()), (Some(exit), ""), "{status}: {done:?}");
        assert!(done.err.starts_with("error: it is refused"), "{done:?}");
        let done = home.run(&["whoami", "--json"]);
        assert_eq!((done.code, done.out.as_str()), (Some(exit), ""), "{status}: {done:?}");
        let said: serde_json::Value = serde_json::from_str(&done.err).unwrap();
        assert!(said["error"].as_str().unwrap().starts_with("it is refused"), "{done:?}");
        assert_eq!(said["code"], code, "{done:?}");
    }
}

#[test]
fn what_helps_is_said() {
    for (status, code, help) in
        [(403, "insufficient_scope", "eirene login --admin"), (401, "unauthenticated", "sign in with `eirene login`")]
    {
        let portal = Portal::new(move |_, reply| reply.problem(status, code));
        let done = Home::signed_in(&portal).run(&["admin", "user", "list"]);
        assert!(done.err.contains(help), "{done:?}");
    }
}

#[test]
fn nobody_there_is_2() {
    let portal = Portal::new(|_, _| {});
    let home = Home::signed_in(&portal);
    // The connection is closed without a word.
    let done = home.run(&["session", "list"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    portal.go_away();
    let done = home.run(&["session", "list"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("does not answer"), "{done:?}");
}

#[test]
fn wrong_usage_is_2_and_asks_nobody() {
    let portal = Portal::new(|_, reply| reply.problem(500, "internal"));
    let home = Home::signed_in(&portal);
    for arguments in [
        &["session"][..],
        &["session", "stop"],
        &["session", "start", "--memory", "lots"],
        &["admin", "session", "stop", "../../users"],
        // Secrets are never given on the command line, where everybody sees them.
        &["login", "--password", "open sesame"],
        &["whoami", "--token", "eir_x"],
    ] {
        assert_eq!(home.run(arguments).code, Some(2), "{arguments:?}");
    }
    assert!(portal.lines().is_empty());
    assert_eq!(Home::new().run(&["whoami"]).code, Some(2));
}

#[test]
fn credentials_that_others_can_read_are_not_used() {
    let portal = Portal::new(|_, reply| reply.json(200, &json!({"name": "ada"})));
    let home = Home::signed_in(&portal);
    assert_eq!(home.run(&["whoami"]).code, Some(0));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(home.credentials(), open).unwrap();
    let done = home.run(&["whoami"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("chmod 600"), "{done:?}");
    assert_eq!(portal.lines().len(), 1);
}

#[test]
fn an_answer_that_is_no_portals_is_said_to_be_none() {
    let portal = Portal::new(|_, reply| {
        reply.pieces(&["<html>"]);
        reply.end();
    });
    let done = Home::signed_in(&portal).run(&["whoami"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("is this an Eirene portal?"), "{done:?}");
}

#[test]
fn a_session_that_fails_to_start_is_1() {
    let portal = Portal::new(|request, reply| {
        let state = if request.line.starts_with("POST") { "queued" } else { "failed" };
        reply.json(200, &session(ID, "maps", state));
    });
    let done = Home::signed_in(&portal).run(&["session", "start"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.err.contains("the node went away"), "{done:?}");
}
