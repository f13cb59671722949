//! The storage as admins see it in a terminal.

use serde_json::json;

use crate::portal::{Home, Portal};

#[test]
fn what_nobody_said_is_a_dash_and_what_is_wrong_comes_with_its_cure() {
    let portal = Portal::new(|request, reply| {
        let answer = match request.line.as_str() {
            "GET /api/v1/storage" => json!({
                "adapter": "beegfs7", "version": "7.4.7", "roots": [{"name": "scratch"}], "pools": [],
                "targets": [
                    {"id": "storage:1", "reach": "online", "consistency": "good", "total_bytes": 1_u64 << 40, "free_bytes": 1_u64 << 39},
                    {"id": "storage:2", "reach": "offline", "consistency": "unknown"}
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
    assert!(row(&status.out, "storage:1").ends_with(&["1.00".into(), "TiB".into(), "512.00".into(), "GiB".into()]));
    assert!(row(&status.out, "storage:2").ends_with(&["–".into(), "–".into()]), "{}", status.out);
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
