//! Nodes as admins change them from a terminal.

use serde_json::json;

use crate::portal::{Home, Portal};

#[test]
fn a_node_is_drained_with_a_reason_resumed_and_tells_its_past() {
    let portal = Portal::new(|request, reply| match request.line.as_str() {
        "POST /api/v1/nodes/c1/drain" if request.json() == json!({"reason": "fan 3; $(id)"}) => reply.headers(204, &[]),
        "POST /api/v1/nodes/c1/resume" => reply.headers(204, &[]),
        "POST /api/v1/nodes/c2/resume" => reply.problem(409, "node_not_permitted"),
        "GET /api/v1/nodes/c1/history" => reply.json(
            200,
            &json!({"items": [
                {"at": "2026-01-02T03:04:05Z", "state": "drained", "reason": "fan\u{1b}[2J (eirene: ada)"},
                {"at": "2026-01-01T03:04:05Z", "state": "in_service", "reason": null}
            ], "next": null}),
        ),
        _ => reply.problem(404, "not_found"),
    });
    let home = Home::signed_in(&portal);
    let run = |arguments: &[&str]| home.run(&[&["admin", "node"], arguments].concat());
    let drained = run(&["drain", "c1", "--reason", "fan 3; $(id)"]);
    assert_eq!(drained.code, Some(0), "{}", drained.err);
    assert_eq!(run(&["resume", "c1"]).code, Some(0));
    assert_eq!(run(&["resume", "c2"]).code, Some(1));
    let history = run(&["history", "c1"]);
    assert!(history.out.contains("drained") && history.out.contains("in service"), "{}", history.out);
    assert!(!history.out.contains('\u{1b}'), "what others have written moves no cursor");
    assert_eq!(run(&["history", "c1", "--json"]).json()[1]["state"], "in_service");
}

#[test]
fn what_cannot_be_a_node_or_a_reason_is_not_sent() {
    let portal = Portal::new(|_, reply| reply.problem(500, "sent"));
    let home = Home::signed_in(&portal);
    for arguments in [
        &["drain", "c1"][..],
        &["drain", "c1", "--reason", ""],
        &["drain", "c1", "--reason", "two\nlines"],
        &["drain", "c1", "--reason", " blank"],
        &["drain", "c[1-4]", "--reason", "x"],
        &["resume", "../users"],
        &["resume", "c1,c2"],
    ] {
        assert_eq!(home.run(&[&["admin", "node"], arguments].concat()).code, Some(2), "{arguments:?}");
    }
}
