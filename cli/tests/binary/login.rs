//! Signing in and out, and tokens.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::portal::{Home, Portal, TOKEN, TOKEN_ID};

const NEW_ID: &str = "0190bbbbc3f87b1e8f0e6d2f4b5a6978";
const NEW: &str = "eir_second-secret";

/// Gives tokens; deletes them as told.
fn portal(delete: u16) -> Portal {
    Portal::new(move |request, reply| match request.line.split(' ').next() {
        Some("POST") => reply.json(201, &json!({"id": NEW_ID, "name": "x", "scopes": [], "token": NEW})),
        Some("DELETE") if delete == 204 => reply.json(204, &json!(null)),
        Some("DELETE") if delete == 401 => reply.problem(401, "unauthenticated"),
        Some("DELETE") => reply.problem(delete, "unavailable"),
        _ => reply.json(
            200,
            &json!({"next": null, "items": [
                {"id": TOKEN_ID, "name": "laptop", "scopes": ["read", "tokens"], "created_at": "2026-01-02T23:30:00Z",
                 "expires_at": "2099-01-01T00:00:00Z", "last_used_at": null},
                {"id": NEW_ID, "name": "old laptop", "scopes": ["read"], "created_at": "2026-01-02T23:30:00Z",
                 "expires_at": null, "last_used_at": "2026-01-02T23:30:00Z"},
            ]}),
        ),
    })
}

#[test]
fn a_login_keeps_the_token_in_a_private_file_and_shows_it_nowhere() {
    let (portal, home) = (portal(204), Home::new());
    let url = portal.url();
    let done =
        home.run_with(&["login", "--json", "--url", &url, "--username", "ada", "--password-stdin"], "open sesame\n");
    assert_eq!(done.json()["username"], "ada");
    assert!(!format!("{done:?}").contains(NEW), "{done:?}");

    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.credentials()), 0o600);
    assert_eq!(mode(home.credentials().parent().unwrap()), 0o700);
    assert!(fs::read_to_string(home.credentials()).unwrap().contains(NEW));

    let seen = portal.seen();
    assert_eq!(portal.lines(), ["POST /api/v1/tokens"]);
    // `ada:open sesame`, and the password nowhere else.
    assert_eq!(seen[0].header("authorization"), "Basic YWRhOm9wZW4gc2VzYW1l");
    assert_eq!(seen[0].json()["expires_in_s"], 30 * 86_400);
    assert!(!seen[0].body.contains("sesame"));
}

#[test]
fn a_name_under_localhost_is_this_machine_and_never_a_proxy() {
    let (portal, home) = (Portal::new(|_, reply| reply.json(200, &json!({"name": "ada"}))), Home::new());
    let url = format!("http://deep.below.portal.localhost:{}", portal.port);
    for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy"] {
        let done = home
            .eirene(&["whoami", "--url", &url])
            .env("EIRENE_TOKEN", TOKEN)
            .env(proxy, "http://127.0.0.1:1")
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "ada\n", "{proxy}: {done:?}");
    }
    let seen = portal.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].header("host"), format!("deep.below.portal.localhost:{}", portal.port));
    assert_eq!(seen[0].header("authorization"), format!("Bearer {TOKEN}"));
}

#[test]
fn a_second_login_deletes_the_first_token() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    let done = home.run_with(&["login", "--username", "ada", "--password-stdin"], "open sesame");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(portal.lines(), ["POST /api/v1/tokens".to_owned(), format!("DELETE /api/v1/tokens/{TOKEN_ID}")]);
    assert_eq!(portal.seen()[1].header("authorization"), format!("Bearer {TOKEN}"));
    assert!(fs::read_to_string(home.credentials()).unwrap().contains(NEW));
}

#[test]
fn an_old_token_that_cannot_be_deleted_does_not_stop_a_login() {
    for (status, remark) in [(503, true), (401, false)] {
        let portal = portal(status);
        let home = Home::signed_in(&portal);
        let done = home.run_with(&["login", "--username", "ada", "--password-stdin"], "open sesame");
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.err.contains("old token could not be deleted"), remark, "{done:?}");
        assert!(fs::read_to_string(home.credentials()).unwrap().contains(NEW));
    }
}

#[test]
fn a_token_is_never_sent_to_another_portal() {
    let (first, second) = (portal(204), portal(204));
    let home = Home::signed_in(&first);
    let done = home.run(&["whoami", "--url", &second.url()]);
    assert_eq!(done.code, Some(2), "{done:?}");
    let login = ["login", "--url", &second.url(), "--username", "ada", "--password-stdin"];
    let done = home.run_with(&login, "open sesame");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(first.lines().is_empty());
    assert_eq!(second.lines(), ["POST /api/v1/tokens"]);
}

#[test]
fn damaged_credentials_are_repaired_by_a_login() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    fs::write(home.credentials(), "url = ").unwrap();
    assert_eq!(home.run(&["whoami"]).code, Some(2));
    let done =
        home.run_with(&["login", "--url", &portal.url(), "--username", "ada", "--password-stdin"], "open sesame");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(fs::read_to_string(home.credentials()).unwrap().contains(NEW));
}

#[test]
fn signing_out_deletes_the_token_here_and_there() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    assert_eq!(home.run(&["logout", "--json"]).json(), json!({"logged_out": true}));
    assert_eq!(portal.lines(), [format!("DELETE /api/v1/tokens/{TOKEN_ID}")]);
    assert!(!home.credentials().exists());
    assert_eq!(home.run(&["logout", "--json"]).json(), json!({"logged_out": false}));
}

#[test]
fn signing_out_works_without_the_portal() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    portal.go_away();
    let done = home.run(&["logout", "--json"]);
    assert_eq!(done.json(), json!({"logged_out": true}));
    assert!(done.err.contains("does not answer"), "{done:?}");
    assert!(!home.credentials().exists());
}

#[test]
fn tokens_are_listed_for_people_and_for_programs() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    let done = home.run(&["token", "list"]);
    assert_eq!(done.code, Some(0));
    assert!(done.out.contains("laptop (this one)") && done.out.contains("days ago"), "{done:?}");
    assert!(!done.out.contains("2026-01-02T"), "{done:?}");
    assert_eq!(home.run(&["token", "list", "--json"]).json()[1]["last_used_at"], "2026-01-02T23:30:00Z");
}

#[test]
fn tokens_are_revoked_by_name_or_id_and_the_own_one_last() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    let done = home.run(&["token", "revoke", "--json", "old laptop"]);
    assert_eq!(done.json(), json!({"revoked": [NEW_ID]}));
    assert!(home.credentials().exists());

    let done = home.run(&["token", "revoke", "laptop", &NEW_ID[..10]]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines = portal.lines();
    let deleted = [format!("DELETE /api/v1/tokens/{NEW_ID}"), format!("DELETE /api/v1/tokens/{TOKEN_ID}")];
    assert_eq!(lines[lines.len() - 2..], deleted);
    assert!(!home.credentials().exists());
}

#[test]
fn nothing_is_revoked_when_one_of_the_names_is_wrong() {
    let portal = portal(204);
    let home = Home::signed_in(&portal);
    let done = home.run(&["token", "revoke", NEW_ID, "no such"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_eq!(portal.lines(), ["GET /api/v1/tokens"]);
}
