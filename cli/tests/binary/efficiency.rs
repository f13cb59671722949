//! What sessions and runs held and used, as admins see it from a terminal.

use serde_json::{Value, json};

use crate::portal::{Home, Portal};

fn sums(name: &str) -> Value {
    let nothing = json!({"held": 0, "used": 0});
    let gpu = json!({"held_s": 7200, "known_s": 7200, "busy_s": 0, "idle_s": 7200, "empty_s": 0});
    json!({"name": name, "jobs": 1, "unknown_jobs": 0, "cpu_s": nothing, "memory_mib_s": nothing, "gpu": gpu})
}

#[test]
fn a_report_says_how_many_it_does_not_list() {
    let portal = Portal::new(|request, reply| {
        let Some(query) = request.line.strip_prefix("GET /api/v1/efficiency?") else {
            return reply.problem(404, "not_found");
        };
        let unlisted = if query.contains("by=person") { 3 } else { 0 };
        let report = json!({"total": sums(""), "groups": [sums("ada")], "unlisted": unlisted, "examples": []});
        reply.json(200, &report);
    });
    let home = Home::signed_in(&portal);
    let run = |arguments: &[&str]| home.run(&[&["admin", "efficiency"], arguments].concat());
    let cut = run(&[]);
    assert_eq!(cut.code, Some(0), "{}", cut.err);
    assert!(cut.out.contains("ada") && cut.out.contains("Not listed, but in (all): 3."), "{}", cut.out);
    let whole = run(&["--by", "partition"]);
    assert!(whole.out.contains("ada") && !whole.out.contains("Not listed"), "{}", whole.out);
    assert_eq!(run(&["--json"]).json()["unlisted"], 3);
}
