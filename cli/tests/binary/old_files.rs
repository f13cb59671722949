//! Old files in a space, as admins see and change them from a terminal.

use serde_json::json;

use crate::portal::{Home, Portal};

#[test]
fn what_is_old_is_told_looked_at_and_exempted() {
    let portal = Portal::new(|request, reply| {
        let found = json!({"as_of": "2026-01-02T03:04:05Z", "days": 30, "files": 12, "bytes": 1_u64 << 30, "saved": 1,
            "skipped": 2, "more": false, "examples": [{"path": "a\u{1b}[2Jb", "size_bytes": 2048}]});
        let mut answer = json!({"state": "waiting", "text": "12 files are old.", "days": 30, "warn_days": 14,
            "dry_run": false, "running": false, "list": found, "goes_at": "2026-01-16T03:04:05Z"});
        match request.line.as_str() {
            "GET /api/v1/spaces/scratch-ada/old-files" => reply.json(200, &answer),
            "POST /api/v1/spaces/scratch-ada/old-files?dry_run=true" if request.json() == json!({}) => {
                answer["running"] = json!(true);
                reply.json(202, &answer);
            }
            "PATCH /api/v1/spaces/scratch-ada/old-files" => {
                let said = request.json();
                let expected = [json!({"exempt": true, "days": null}), json!({"exempt": false}), json!({"days": 60})];
                assert!(expected.contains(&said), "{said}");
                reply.json(200, &json!({"state": "exempt", "text": "It is exempt.", "running": false}));
            }
            _ => reply.problem(404, "not_found"),
        }
    });
    let home = Home::signed_in(&portal);
    let run = |arguments: &[&str]| home.run(&[&["admin", "space", "old-files"], arguments].concat());
    let shown = run(&["scratch-ada"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(
        shown.out.contains("listed") && shown.out.contains("12") && shown.out.contains("1.00 GiB"),
        "{}",
        shown.out
    );
    assert!(shown.err.contains("12 files are old."), "{}", shown.err);
    assert!(!shown.out.contains('\u{1b}'), "what others have named moves no cursor");
    let looked = run(&["scratch-ada", "--dry-run"]);
    assert!(looked.code == Some(0) && looked.err.contains("being looked at"), "{}", looked.err);
    assert_eq!(run(&["scratch-ada", "--json"]).json()["list"]["files"], 12);
    for rule in [&["--exempt", "--usual-days"][..], &["--not-exempt"], &["--days", "60"]] {
        let changed = run(&[&["scratch-ada"], rule].concat());
        assert!(changed.code == Some(0) && changed.err.contains("exempt"), "{rule:?}: {}", changed.err);
    }
    assert_eq!(run(&["scratch-grace"]).code, Some(1));
}

#[test]
fn in_a_group_s_space_each_member_s_are_shown_and_what_is_of_nobody_who_is_one() {
    let portal = Portal::new(|_, reply| {
        let list = json!({"as_of": "2026-01-02T03:04:05Z", "days": 30, "files": 12, "bytes": 1_u64 << 30, "saved": 0,
            "skipped": 0, "more": false, "examples": []});
        let ada = json!({"person": "ada", "state": "waiting", "text": "", "running": false, "list": list,
            "goes_at": "2026-01-16T03:04:05Z"});
        let mut look = list.clone();
        (look["as_of"], look["files"]) = (json!("2026-01-02T04:04:05.5Z"), json!(34));
        let grace = json!({"person": "grace", "state": "not_listed", "text": "", "running": false, "look": look});
        // What was listed since says more.
        look["files"] = json!(56);
        let mut later = list.clone();
        later["as_of"] = json!("2026-01-02T04:04:06Z");
        let marie = json!({"person": "marie", "state": "untold", "text": "", "running": false, "look": look,
            "list": later});
        let linus = json!({"person": "linus", "state": "not_listed", "text": "", "running": false});
        reply.json(
            200,
            &json!({"state": "by_member", "text": "Each member's are theirs.", "running": false,
            "members": [ada, grace, marie, linus], "others": [{"uid": 2009, "person": "tove", "files": 3, "bytes": 2048,
                "seen_at": "2025-07-08T12:00:00Z"},
                {"uid": 65534, "files": 1, "bytes": 1}]}),
        );
    });
    let home = Home::signed_in(&portal);
    let shown = home.run(&["admin", "space", "old-files", "stars"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    for expected in ["1.00 GiB", "not listed", "tove", "2009", "2025-07-08", "65534"] {
        assert!(shown.out.contains(expected), "{expected}: {}", shown.out);
    }
    for (person, what, files) in
        [("ada", "listed", "12"), ("grace", "looked at", "34"), ("marie", "listed", "12"), ("linus", "–", "0")]
    {
        let lines: Vec<&str> = shown.out.lines().filter(|line| line.trim_start().starts_with(person)).collect();
        assert!(lines.len() == 1 && lines[0].contains(what) && lines[0].contains(files), "{person}: {}", shown.out);
    }
    assert!(shown.err.contains("Undetermined, and not removed"), "{}", shown.err);
}

#[test]
fn what_is_no_rule_is_not_sent() {
    let portal = Portal::new(|_, reply| reply.problem(500, "sent"));
    let home = Home::signed_in(&portal);
    for arguments in [
        &["--exempt"][..],
        &["scratch-ada", "--days", "6"],
        &["scratch-ada", "--days", "3651"],
        &["scratch-ada", "--days", "60", "--usual-days"],
        &["scratch-ada", "--exempt", "--not-exempt"],
        &["scratch-ada", "--exempt", "--dry-run"],
        &["../users"],
    ] {
        assert_eq!(home.run(&[&["admin", "space", "old-files"], arguments].concat()).code, Some(2), "{arguments:?}");
    }
}
