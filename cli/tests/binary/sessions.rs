//! Sessions: which one is meant, and how they are shown.

use serde_json::{Value, json};

use crate::portal::{Home, Portal, TOKEN, session};

const MAPS: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";
const OLD_MAPS: &str = "0190d2a4ffff7b1e8f0e6d2f4b5a6978";
const FIRST_PLOTS: &str = "0190e000c3f87b1e8f0e6d2f4b5a6978";
const OTHER_PLOTS: &str = "0190e001c3f87b1e8f0e6d2f4b5a6978";

fn all() -> Vec<Value> {
    vec![
        session(MAPS, "maps", "running"),
        session(OLD_MAPS, "maps", "ended"),
        session(FIRST_PLOTS, "plots", "running"),
        session(OTHER_PLOTS, "plots", "running"),
    ]
}

/// Lists two sessions a page, shows each, and stops at once.
fn portal() -> Portal {
    Portal::new(|request, reply| {
        let (method, target) = request.line.split_once(' ').expect("a target");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/api/v1/sessions" {
            let over = |session: &Value| session["state"] == "ended";
            let wanted: Vec<Value> = all().into_iter().filter(|s| !query.contains("live=true") || !over(s)).collect();
            return if query.contains("cursor=2") {
                reply.json(200, &json!({"items": wanted[2..], "next": null}));
            } else {
                reply.json(200, &json!({"items": wanted[..2], "next": "2"}));
            };
        }
        let rest = path.strip_prefix("/api/v1/sessions/").unwrap_or_default();
        let id = rest.split('/').next().unwrap_or_default();
        let Some(found) = all().into_iter().find(|session| session["id"] == id) else {
            return reply.problem(404, "not_found");
        };
        if rest.ends_with("/logs") {
            reply.pieces(&["one\n", "two \u{1b}[1m\"\n"]);
            return reply.end();
        }
        reply.json(if method == "DELETE" { 202 } else { 200 }, &found);
    })
}

#[test]
fn a_session_is_found_by_name_or_by_how_its_id_begins() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    // The one that is over does not make the name of a live one unclear.
    for (text, id) in [("maps", MAPS), (MAPS, MAPS), (&MAPS[..9], MAPS), (&OLD_MAPS[..9], OLD_MAPS)] {
        assert_eq!(home.run(&["session", "show", "--json", text]).json()["id"], id, "{text}");
    }
    let done = home.run(&["session", "stop", "--no-wait", "--json", "maps"]);
    assert_eq!(done.json()["id"], MAPS);
    assert!(portal.lines().contains(&format!("DELETE /api/v1/sessions/{MAPS}")));
}

#[test]
fn a_whole_id_is_used_as_it_is() {
    let portal = portal();
    assert_eq!(Home::signed_in(&portal).run(&["session", "show", MAPS]).code, Some(0));
    assert_eq!(portal.lines(), [format!("GET /api/v1/sessions/{MAPS}")]);
}

#[test]
fn an_unclear_name_is_wrong_usage_and_its_candidates_are_named() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    for verb in ["show", "open", "logs", "stop"] {
        let done = home.run(&["session", verb, "plots"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
        assert!(done.err.contains(FIRST_PLOTS) && done.err.contains(OTHER_PLOTS), "{done:?}");
        assert!(!done.err.contains(MAPS), "{done:?}");
    }
    assert_eq!(home.run(&["session", "show", "0190d2a4"]).code, Some(2));
    assert!(portal.lines().iter().all(|line| line.starts_with("GET /api/v1/sessions?")), "{:?}", portal.lines());
}

#[test]
fn what_is_no_session_is_refused_and_never_part_of_an_address() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    for text in ["nothing", "../../users", "?all=true", "019", "0190D2A4C"] {
        let done = home.run(&["session", "stop", text]);
        assert_eq!(done.code, Some(1), "{text}: {done:?}");
        assert!(done.err.contains(text), "{done:?}");
    }
    assert!(portal.lines().iter().all(|line| line.starts_with("GET /api/v1/sessions?")), "{:?}", portal.lines());
}

#[test]
fn people_read_times_of_their_own_and_programs_the_portals() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    let done = home.run(&["session", "list", "--all"]);
    assert!(done.out.contains("in 2") && done.out.contains(" days"), "{done:?}");
    assert!(done.out.contains("days ago") && !done.out.contains("T23:30"), "{done:?}");
    let shown = home.run(&["session", "show", OLD_MAPS]).out;
    assert!(shown.contains("Asked for  2026-01-03 00:30 CET ("), "{shown}");
    assert!(shown.contains("Ended      2026-01-03 11:00 CET ("), "{shown}");
    assert_eq!(home.run(&["session", "list", "--json"]).json()[0]["ends_at"], "2099-01-02T23:30:00Z");
}

#[test]
fn an_address_and_a_log_are_json_when_asked_for() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    let url = format!("{}/open?session={MAPS}", portal.url());
    assert_eq!(home.run(&["session", "open", "maps", "--json"]).json(), json!({"url": url}));
    assert_eq!(home.run(&["session", "open", "maps", "--print"]).out, format!("{url}\n"));
    assert_eq!(home.run(&["session", "open", OLD_MAPS]).code, Some(1));

    let log = "one\ntwo \u{1b}[1m\"\n";
    assert_eq!(home.run(&["session", "logs", "maps"]).out, log);
    assert_eq!(home.run(&["session", "logs", "maps", "--json"]).json(), json!({"session": MAPS, "log": log}));
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = home.eirene(&["session", "logs", MAPS]).stdout(writer).output().unwrap();
    assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0), "{done:?}");
}

#[test]
fn a_browser_is_opened_without_the_token_and_says_nothing_on_standard_output() {
    let portal = portal();
    let home = Home::signed_in(&portal);
    let given = home.directory.path().join("given");
    home.program("xdg-open", &format!("echo noise; echo \"$@\" > '{}'", given.display()));
    let done = home.eirene(&["session", "open", "--json", "maps"]).env("DISPLAY", ":0").output().unwrap();
    let url = format!("{}/open?session={MAPS}", portal.url());
    assert_eq!(serde_json::from_slice::<Value>(&done.stdout).unwrap(), json!({"url": url}), "{done:?}");
    let given = std::fs::read_to_string(given).unwrap();
    assert_eq!(given.trim(), url);
    assert!(!given.contains(TOKEN));
}
