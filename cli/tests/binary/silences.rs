//! Silences as admins, and people for themselves, make and end them from a terminal.

use serde_json::{Value, json};

use crate::portal::{Home, Portal};

const ONE: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";
const OTHER: &str = "0190d2b7c3f87b1e8f0e6d2f4b5a6978";

/// Two silences, as the portal lists them: one of a node, one of everything.
fn silences() -> Value {
    json!({"items": [
        {
            "id": ONE, "rule": "node_down", "subject": "n1", "until": "2036-01-02T03:04:05Z", "reason": "fans\u{1b}[2J",
            "by": "root", "created_at": "2026-01-02T03:04:05Z"
        },
        {
            "id": OTHER, "until": "2036-01-02T03:04:05Z", "reason": "move", "by": "root", "created_at": "2026-01-02T03:04:05Z"
        }
    ], "next": null})
}

#[test]
fn a_silence_is_made_for_hours_of_a_rule_a_subject_or_everything() {
    let portal = Portal::new(|request, reply| match request.line.as_str() {
        "POST /api/v1/alert-silences" if request.json()["reason"] == "" => reply.problem(422, "invalid"),
        "POST /api/v1/alert-silences" => reply.json(201, &silences()["items"][0]),
        _ => reply.problem(404, "not_found"),
    });
    let home = Home::signed_in(&portal);
    let silence = |arguments: &[&str]| home.run(&[&["admin", "alert", "silence"], arguments].concat());
    let made = silence(&["--rule", "node_down", "--subject", "n1", "--reason", "new fans; $(id)"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.err.contains("for 4 h") && made.err.contains("still listed"), "{made:?}");
    let of_node = json!({"rule": "node_down", "subject": "n1", "minutes": 240, "reason": "new fans; $(id)"});
    assert_eq!(portal.seen()[0].json(), of_node);
    assert_eq!(silence(&["--hours", "2", "--reason", "move", "--json"]).json()["id"], ONE);
    assert_eq!(
        portal.seen()[1].json(),
        json!({"minutes": 120, "reason": "move"}),
        "everything is neither rule nor subject"
    );
    let refused = silence(&["--reason", ""]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

#[test]
fn silences_are_listed_and_ended_by_id_by_its_beginning_or_by_their_reason() {
    let portal = Portal::new(|request, reply| match request.line.as_str() {
        "GET /api/v1/alert-silences" => reply.json(200, &silences()),
        line if line == format!("DELETE /api/v1/alert-silences/{ONE}") => reply.headers(204, &[]),
        line if line == format!("DELETE /api/v1/alert-silences/{OTHER}") => reply.headers(204, &[]),
        _ => reply.problem(404, "not_found"),
    });
    let home = Home::signed_in(&portal);
    let run = |arguments: &[&str]| home.run(&[&["admin", "alert"], arguments].concat());
    let listed = run(&["silences"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.contains(ONE) && listed.out.contains("node_down") && listed.out.contains("n1"), "{listed:?}");
    let everything = listed.out.lines().find(|line| line.contains(OTHER)).unwrap();
    assert_eq!(everything.matches("any").count(), 2, "{everything}");
    assert!(!listed.out.contains('\u{1b}'), "what others have written moves no cursor");
    assert_eq!(run(&["silences", "--json"]).json(), silences()["items"]);

    for (named, id) in [(ONE, ONE), ("0190d2b7", OTHER), ("move", OTHER)] {
        let ended = run(&["unsilence", named]);
        assert_eq!(ended.code, Some(0), "{named}: {ended:?}");
        assert!(ended.err.contains("told again"), "{named}: {ended:?}");
        assert_eq!(portal.lines().last().unwrap(), &format!("DELETE /api/v1/alert-silences/{id}"), "{named}");
    }
    assert_eq!(run(&["unsilence", ONE, "--json"]).json(), json!({"ended": ONE}));
    let unknown = "0190ffffc3f87b1e8f0e6d2f4b5a6978";
    assert_eq!(run(&["unsilence", unknown]).code, Some(1), "it is over already");
    assert_eq!(run(&["unsilence", "nothing"]).code, Some(1));
    let deleted = || portal.lines().iter().filter(|line| line.starts_with("DELETE")).count();
    let before = deleted();
    assert_eq!(run(&["unsilence", "0190d2"]).code, Some(2), "that may be either");
    assert_eq!(deleted(), before);
}

#[test]
fn what_can_be_no_silence_is_not_sent() {
    let portal = Portal::new(|_, reply| reply.problem(500, "sent"));
    let home = Home::signed_in(&portal);
    for arguments in [
        &["--rule", "node_down"][..],
        &["--rule", "node_up", "--reason", "x"],
        &["--hours", "0", "--reason", "x"],
        &["--hours", "745", "--reason", "x"],
    ] {
        assert_eq!(home.run(&[&["admin", "alert", "silence"], arguments].concat()).code, Some(2), "{arguments:?}");
    }
    assert_eq!(portal.lines(), Vec::<String>::new());
}

#[test]
fn one_silences_for_oneself_one_session_or_all_and_hears_of_them_again() {
    let own = |id: &str, job: Option<&str>| {
        let mut silence = json!({
            "id": id, "rule": "gpus_idle", "owner": "ada", "until": "2036-01-02T03:04:05Z", "reason": "", "by": "ada",
            "created_at": "2026-01-02T03:04:05Z"
        });
        if let Some(name) = job {
            silence["job"] = json!({"kind": "session", "id": ONE, "name": name});
        }
        silence
    };
    let listed = json!({"items": [own(ONE, Some("fit\u{1b}[2J")), own(OTHER, None)], "next": null});
    let first = own(ONE, Some("fit"));
    let portal = Portal::new(move |request, reply| match request.line.as_str() {
        "POST /api/v1/me/alert-silences" => reply.json(201, &first),
        "GET /api/v1/me/alert-silences" => reply.json(200, &listed),
        line if line == format!("DELETE /api/v1/me/alert-silences/{OTHER}") => reply.headers(204, &[]),
        _ => reply.problem(404, "not_found"),
    });
    let home = Home::signed_in(&portal);
    let run = |arguments: &[&str]| home.run(&[&["alert"], arguments].concat());
    let made = run(&["silence", "--rule", "gpus_idle", "--session", ONE, "--hours", "2", "--reason", "it loads data"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.err.contains("You are not told") && made.err.contains("for 2 h"), "{made:?}");
    let of_one = json!({"rule": "gpus_idle", "job": ONE, "minutes": 120, "reason": "it loads data"});
    assert_eq!(portal.seen()[0].json(), of_one);
    assert_eq!(run(&["silence", "--rule", "gpus_idle", "--run", OTHER]).code, Some(0));
    assert_eq!(portal.seen()[1].json()["job"], OTHER);
    assert_eq!(run(&["silence", "--rule", "gpus_idle"]).code, Some(0));
    assert_eq!(portal.seen()[2].json(), json!({"rule": "gpus_idle", "minutes": 240}), "all is no job");

    let shown = run(&["silences"]);
    assert!(shown.out.contains("all of ada") && shown.out.contains(" of ada"), "{shown:?}");
    assert!(!shown.out.contains('\u{1b}'), "what others have written moves no cursor");
    let ended = run(&["unsilence", "0190d2b7"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(portal.lines().last().unwrap(), &format!("DELETE /api/v1/me/alert-silences/{OTHER}"));
    assert_eq!(run(&["unsilence", ONE]).code, Some(1), "it is not one's own, or over already");

    let before = portal.lines().len();
    for arguments in [
        &["--session", ONE][..],
        &["--rule", "gpus_idle", "--session", ONE, "--run", ONE],
        &["--rule", "gpus_idle", "--hours", "0"],
    ] {
        assert_eq!(run(&[&["silence"], arguments].concat()).code, Some(2), "{arguments:?}");
    }
    assert_eq!(portal.lines().len(), before, "what can be no silence is not sent");
}
