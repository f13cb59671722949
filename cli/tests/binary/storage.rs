//! The storage as admins see it in a terminal.

use serde_json::json;

use crate::portal::{Home, Portal, Reply, Request};

#[test]
fn what_nobody_said_is_a_dash_and_what_is_wrong_comes_with_its_cure() {
    let portal = Portal::new(|request, reply| {
        let answer = match request.line.as_str() {
            "GET /api/v1/storage" => json!({
                "adapter": "beegfs7", "version": "7.4.7", "roots": [{"name": "scratch"}],
                "pools": [
                    {
                        "id": 1, "name": "Default", "targets": [1, 2], "total_bytes": 1_u64 << 40, "bytes_at_least": true,
                        "total_files": 1000, "free_files": 7, "files_at_least": false
                    },
                    {"id": 2, "name": "fast", "targets": [3], "bytes_at_least": true, "files_at_least": true}
                ],
                "targets": [
                    {
                        "id": "storage:1", "reach": "online", "consistency": "good", "total_bytes": 1_u64 << 40,
                        "free_bytes": 1_u64 << 39, "total_files": 1000, "free_files": 7
                    },
                    {"id": "storage:2", "reach": "offline", "consistency": "unknown"}
                ],
                "servers": [
                    {"id": "management:1", "addresses": []},
                    {"id": "metadata:1", "alias": "mds", "addresses": ["ib0(RDMA)", "eno1(TCP)"], "reachable": true}
                ],
                "findings": [{"severity": "broken", "text": "Target `storage:2` is offline. Look at its server."}]
            }),
            "GET /api/v1/storage/quotas?of=group&first=2000&last=2001" => json!({
                "items": [
                    {"id": 2000, "pool": 1, "used_bytes": 0, "unlimited": true, "used_files": 12, "files_at_least": true},
                    {"id": 2001, "pool": 1, "unlimited": false, "missing": "did_not_answer"}
                ],
                "doubts": ["half of it"]
            }),
            "GET /api/v1/storage/stats?of=users&role=metadata" => json!({
                "operations": [{"user": 2001, "total": 30, "operations": [{"name": "mkdir", "total": 1}, {"name": "stat", "total": 29}]}],
                "restarted": true, "doubts": []
            }),
            "GET /api/v1/storage/stats?of=servers&role=storage" => {
                json!({"servers": [], "text": "this storage tells no statistics"})
            }
            _ => return reply.problem(404, "not_found"),
        };
        reply.json(200, &answer);
    });
    let home = Home::signed_in(&portal);
    let said = |arguments: &[&str]| {
        let done = home.run(&[&["admin", "storage"], arguments].concat());
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.err);
        done
    };
    let row = |text: &str, of: &str| {
        let line = text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("no {of} in {text}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let status = said(&["status"]);
    assert_eq!(row(&status.out, "storage:1")[3..], ["1.00", "TiB", "512.00", "GiB", "1000", "7"]);
    assert_eq!(row(&status.out, "storage:2")[3..], ["–", "–", "–", "–"], "{}", status.out);
    let pool = row(&status.out, "pool:1 Default");
    assert_eq!(pool[2..], ["not", "all", "targets", "tell", "1.00", "TiB+", "–", "1000", "7"]);
    assert_eq!(row(&status.out, "pool:2 fast")[6..], ["–", "–", "–", "–"], "what nobody tells is not at least 0");
    assert_eq!(row(&status.out, "management:1")[1..], ["–", "not", "told", "–"]);
    assert_eq!(row(&status.out, "metadata:1")[1..], ["mds", "reached", "ib0(RDMA),", "eno1(TCP)"]);
    assert!(status.out.contains("broken: Target `storage:2` is offline."));
    let quota = said(&["quota", "2000", "2001", "--groups"]);
    assert_eq!(row(&quota.out, "2000")[2..], ["0", "B", "unlimited", "12+", "–", "–"]);
    assert_eq!(row(&quota.out, "2001")[2..], ["–", "–", "–", "–", "did_not_answer"]);
    assert!(quota.err.contains("Doubtful: half of it"));
    let users = said(&["stats", "users", "--metadata"]);
    assert_eq!(row(&users.out, "2001"), ["2001", "30", "–", "stat,", "mkdir"]);
    assert!(users.err.contains("started anew"));
    assert!(said(&["stats"]).err.contains("tells no statistics"));
    assert_eq!(said(&["status", "--json"]).json()["targets"][1]["id"], "storage:2");
}

/// Of user 2001, 3 GiB and 7 files are used in pool 1, and nothing is known of pool 2. What is set is what is there then.
fn quotas(request: &Request, reply: &mut Reply) {
    match request.line.as_str() {
        "GET /api/v1/storage/quotas?of=user&first=2001" => reply.json(
            200,
            &json!({
                "items": [
                    {"id": 2001, "pool": 1, "used_bytes": 3_u64 << 30, "used_files": 7, "unlimited": true},
                    {"id": 2001, "pool": 2, "unlimited": true, "missing": "never_measured"}
                ],
                "doubts": []
            }),
        ),
        "PUT /api/v1/storage/quotas/user/2001" | "PUT /api/v1/storage/quotas/group/7" => {
            let set = request.json();
            let quota = json!({"id": 2001, "pool": 1, "unlimited": false, "limit_bytes": set["limit_bytes"]});
            reply.json(200, &json!({"items": [quota], "doubts": []}));
        }
        _ => reply.problem(404, "not_found"),
    }
}

#[test]
fn limits_are_set_and_asked_about_where_somebody_uses_more_already_or_may() {
    let portal = Portal::new(quotas);
    let home = Home::signed_in(&portal);
    let set = |arguments: &[&str]| home.run(&[&["admin", "storage", "set-quota"], arguments].concat());
    let sent = || {
        let seen = portal.seen();
        seen.iter().filter(|request| request.line.starts_with("PUT")).map(Request::json).collect::<Vec<_>>()
    };

    let done = set(&["2001", "--limit", "4G", "--limit-files", "unlimited"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.contains("4.00 GiB"), "{}", done.out);
    let done = set(&["2001", "--limit-files", "7", "--pool", "1", "--json"]);
    assert_eq!((done.code, &done.json()["items"][0]["id"]), (Some(0), &json!(2001)), "{}", done.err);
    let expected =
        [json!({"limit_bytes": 4_u64 << 30, "limit_files": "unlimited"}), json!({"limit_files": 7, "pool": 1})];
    assert_eq!(sent(), expected);

    for (arguments, said) in [
        (&["2001", "--limit", "2G"][..], "uses 3.00 GiB and can write nothing more within 2.00 GiB"),
        (&["2001", "--limit-files", "6"][..], "uses 7 files"),
        (&["2001", "--limit", "4G", "--pool", "2"][..], "It is not known what user 2001 uses"),
    ] {
        let asked = set(arguments);
        assert_eq!(asked.code, Some(2), "{arguments:?}: {}", asked.err);
        assert!(asked.err.contains(said) && asked.err.contains("--yes"), "{arguments:?}: {}", asked.err);
        assert_eq!(sent().len(), 2, "{arguments:?}: nothing was set");
    }
    assert_eq!(set(&["2001", "--limit", "2G", "--yes"]).code, Some(0));
    assert_eq!(set(&["7", "--group", "--limit", "unlimited"]).code, Some(0), "of no limit nobody has to be asked");
    assert_eq!(sent()[2..], [json!({"limit_bytes": 2_u64 << 30}), json!({"limit_bytes": "unlimited"})]);
    for wrong in [&["2001"][..], &["2001", "--limit", "0G"], &["2001", "--limit", "x"], &["ada", "--limit", "1G"]] {
        assert_eq!(set(wrong).code, Some(2), "{wrong:?}");
    }
}

/// Of two pools the first has defaults for users, and of the second nothing is told but that groups have no limit.
fn defaults(request: &Request, reply: &mut Reply) {
    match request.line.as_str() {
        "GET /api/v1/storage" => reply.json(200, &json!({"pools": [{"id": 1, "name": "Default"}, {"id": 2}]})),
        "GET /api/v1/storage/default-quotas/1" => {
            reply
                .json(200, &json!({"user_bytes": 50_u64 << 30, "user_files": "unlimited", "group_bytes": "unlimited"}));
        }
        "GET /api/v1/storage/default-quotas/2" => reply.json(200, &json!({"group_bytes": "unlimited"})),
        "PUT /api/v1/storage/default-quotas/2" => {
            reply.json(200, &json!({"group_bytes": request.json()["limit_bytes"]}));
        }
        _ => reply.problem(404, "not_found"),
    }
}

#[test]
fn the_limits_of_who_has_none_are_shown_pool_by_pool_and_set_after_a_question() {
    let portal = Portal::new(defaults);
    let home = Home::signed_in(&portal);
    let run = |arguments: &[&str]| home.run(&[&["admin", "storage"], arguments].concat());
    let rows = |text: &str| {
        let lines = text.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        lines.filter(|cells| cells.first().is_some_and(|cell| cell.parse::<u16>().is_ok())).collect::<Vec<_>>()
    };
    let shown = run(&["default-quota"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert_eq!(
        rows(&shown.out),
        [vec!["1", "50.00", "GiB", "unlimited", "unlimited", "–"], vec!["2", "–", "–", "unlimited", "–"]]
    );
    let one = run(&["default-quota", "2", "--json"]);
    assert_eq!(one.json(), json!({"items": [{"group_bytes": "unlimited", "pool": 2}]}), "{}", one.err);
    assert_eq!(run(&["default-quota", "3"]).code, Some(1));

    let sent = || {
        let seen = portal.seen();
        seen.iter().filter(|request| request.line.starts_with("PUT")).map(Request::json).collect::<Vec<_>>()
    };
    let asked = run(&["set-default-quota", "2", "--groups", "--limit", "4G", "--limit-files", "7"]);
    assert_eq!(asked.code, Some(2), "{}", asked.err);
    assert!(
        asked.err.contains("Every group without a limit") && asked.err.contains("4.00 GiB and 7 files"),
        "{}",
        asked.err
    );
    assert!(sent().is_empty(), "nothing was set");
    let done = run(&["set-default-quota", "2", "--groups", "--limit", "4G", "--yes"]);
    assert_eq!(
        (done.code, rows(&done.out)),
        (Some(0), vec![vec!["2".into(), "–".into(), "–".into(), "4.00".into(), "GiB".into(), "–".into()]]),
        "{}",
        done.err
    );
    let free = run(&["set-default-quota", "2", "--limit", "unlimited", "--json"]);
    assert_eq!(
        (free.code, &free.json()["group_bytes"]),
        (Some(0), &json!("unlimited")),
        "of no limit nobody has to be asked"
    );
    let expected =
        [json!({"of": "group", "limit_bytes": 4_u64 << 30}), json!({"of": "user", "limit_bytes": "unlimited"})];
    assert_eq!(sent(), expected);
    for wrong in [&["2"][..], &["--limit", "1G"], &["x", "--limit", "1G"]] {
        assert_eq!(run(&[&["set-default-quota"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}
