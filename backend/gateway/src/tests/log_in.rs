//! Signing in: passwords, their limits, and what a log-in is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eirene_core::{Sentence, UserId, UserState};
use eirene_services::accounts::{NewAccount, Uid};
use serde_json::json;

use super::*;

const PASSWORD: &str = "correct horse battery";

impl Server {
    async fn account(&self, name: &str, role: Role) -> User {
        let admin = Actor {
            user: User {
                id: UserId::generate(),
                username: "console".parse().unwrap(),
                role: Role::Admin,
                state: UserState::Active,
                uid: None,
                created_at: self.test.clock.now(),
                access_epoch: 0,
            },
            via: Via::Cli,
            address: None,
            request_id: None,
        };
        let new = NewAccount {
            username: name.parse().unwrap(),
            role,
            uid: Uid::Given(2001),
            password: Some(PASSWORD.into()),
        };
        self.test.app.accounts.create(&admin, new).await.unwrap().0
    }

    async fn log_in(&self, name: &str, password: &str) -> Answer {
        let body = serde_html_form::to_string([("username", name), ("password", password)]).unwrap();
        let ask = Ask::new("POST", "/login").with("content-type", FORM).with("origin", PORTAL_ORIGIN).body(body);
        self.portal(ask).await
    }
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

#[tokio::test]
async fn a_right_password_makes_a_log_in_that_ends() {
    let server = Server::start().await;
    server.account("ada", Role::Researcher).await;
    let answer = server.log_in("ada", PASSWORD).await;
    assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, "/"));
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    let see = async |cookie: &str| server.portal(Ask::get("/").with("cookie", cookie)).await.status.as_u16();
    assert_eq!(see(&cookie).await, 200);
    assert_eq!(see("__Host-eirene=wrong").await, 303);
    // Its value is a secret of its own, and the database has only the hash.
    let file = std::fs::read(server.test.directory.path().join("test.db")).unwrap();
    let wal = std::fs::read(server.test.directory.path().join("test.db-wal")).unwrap_or_default();
    let value = cookie.split('=').nth(1).unwrap();
    let holds = |bytes: &[u8]| bytes.windows(value.len()).any(|window| window == value.as_bytes());
    assert!(!holds(&file) && !holds(&wal));

    // Used now and then it lasts a week; unused it ends after twelve hours.
    for _ in 0..3 {
        server.test.clock.advance_s(11 * 3600);
        assert_eq!(see(&cookie).await, 200);
    }
    server.test.clock.advance_s(12 * 3600);
    assert_eq!(see(&cookie).await, 303);
    let again = server.log_in("ada", PASSWORD).await;
    let cookie = again.header("set-cookie").split(';').next().unwrap().to_owned();
    for _ in 0..15 {
        server.test.clock.advance_s(11 * 3600);
        assert_eq!(see(&cookie).await, 200);
    }
    server.test.clock.advance_s(4 * 3600);
    assert_eq!(see(&cookie).await, 303, "seven days are over");
}

#[tokio::test]
async fn wrong_names_and_passwords_look_alike_and_are_written_down() {
    let server = Server::start().await;
    server.account("ada", Role::Researcher).await;
    let flood = "x".repeat(5000);
    let mut bodies = Vec::new();
    for (name, password) in [("ada", "wrong"), ("nobody", "wrong"), ("'; DROP TABLE users; --", "x"), ("<script>", "x")]
    {
        let answer = server.log_in(name, password).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{name}");
        assert!(answer.headers.get("set-cookie").is_none());
        assert!(!answer.body.contains("<script>\""), "reflected unescaped");
        let mut words: Vec<String> =
            answer.body.replace(name, "").replace('>', " ").split_whitespace().map(str::to_owned).collect();
        words.sort();
        bodies.push(words);
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(server.log_in(&flood, "x").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.log_in("ada", &flood).await.status, StatusCode::UNAUTHORIZED);
    server.test.app.audit.record_all_refusals().await;
    let events = server.test.app.db.audit_events(None, 50, None, Some("login")).await.unwrap();
    assert_eq!(events.len(), 6);
    assert_eq!(
        (events[0].actor.as_str(), &events[0].details["times"]),
        ("ada", &json!(1)),
        "what is repeated is counted"
    );
    assert!(events.iter().all(|event| event.outcome == "refused" && event.actor.chars().count() <= 64));
    assert!(events.iter().all(|event| event.address.as_deref() == Some("127.0.0.1") && event.request_id.is_some()));
}

#[tokio::test]
async fn no_text_acts_once_it_is_written_down() {
    let server = Server::start().await;
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}\r\n\u{2028}b";
    let cleaned = "a\u{fffd}[2J\u{fffd}31m\u{fffd} b";
    assert_eq!(server.log_in(hostile, "x").await.status, StatusCode::UNAUTHORIZED);
    let events = server.test.app.db.audit_events(None, 1, None, Some("login")).await.unwrap();
    assert_eq!((events[0].actor.as_str(), events[0].target.as_str()), (cleaned, cleaned));

    let details = json!({"file": hostile, "nested": [{"text": hostile}], "n": 1});
    let event = eirene_services::audit::by_system("test", "test.write", hostile, "ok", details);
    server.test.app.audit.record(event).await;
    let events = server.test.app.db.audit_events(None, 1, None, Some("test.write")).await.unwrap();
    let expected = json!({"file": cleaned, "nested": [{"text": cleaned}], "n": 1});
    assert_eq!((events[0].target.as_str(), &events[0].details), (cleaned, &expected));

    server.account("ada", Role::Researcher).await;
    let ask = Ask::new("POST", "/api/v1/tokens").with("authorization", &basic("ada", PASSWORD));
    let token = server.portal(ask.json(&json!({"name": hostile}))).await;
    assert_eq!(token.status, StatusCode::UNPROCESSABLE_ENTITY);
    let reason = Sentence::from_elsewhere(hostile);
    assert_eq!(reason.as_str(), cleaned, "what agents and schedulers say");
    assert_eq!(eirene_services::nodes::clean(hostile), cleaned);
    assert_eq!(eirene_services::outward::short(hostile), cleaned);
}

#[tokio::test]
async fn too_many_tries_wait_even_with_the_right_password() {
    let server = Server::start().await;
    server.account("ada", Role::Researcher).await;
    server.account("grace", Role::Researcher).await;
    let mut limited = None;
    for _ in 0..20 {
        let answer = server.log_in("ada", "wrong").await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("tries are limited");
    assert!(limited.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(server.log_in("ada", PASSWORD).await.status, StatusCode::TOO_MANY_REQUESTS);
    let ask = Ask::new("POST", "/api/v1/tokens").with("authorization", &basic("ada", PASSWORD));
    let answer = server.portal(ask.json(&json!({"name": "x"}))).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.json()["code"], "rate_limited");
    assert!(!answer.header("retry-after").is_empty());
    assert_eq!(server.log_in("grace", PASSWORD).await.status, StatusCode::SEE_OTHER, "others are not held up");
}

#[tokio::test]
async fn a_password_is_traded_for_a_token_with_scopes_and_an_end() {
    let server = Server::start().await;
    server.account("ada", Role::Researcher).await;
    let ask = |password: &str, body: &Value| {
        Ask::new("POST", "/api/v1/tokens").with("authorization", &basic("ada", password)).json(body)
    };
    let refused = server.portal(ask("wrong", &json!({"name": "x"}))).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.header("www-authenticate").starts_with("Basic "));

    let made = server.portal(ask(PASSWORD, &json!({"name": "x", "scopes": ["read"], "expires_in_s": 60}))).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("eir_") && token.len() == 47);
    let with = |path: &str| Ask::get(path).with("authorization", &format!("Bearer {token}"));
    let me = server.portal(with("/api/v1/me")).await.json();
    assert_eq!((me["name"].as_str(), me["scopes"].to_string().as_str()), (Some("ada"), "[\"read\"]"));
    let narrow = server.portal(with("/api/v1/sessions")).await;
    assert_eq!((narrow.status, narrow.json()["code"].as_str()), (StatusCode::FORBIDDEN, Some("insufficient_scope")));
    server.test.clock.advance_s(60);
    let late = server.portal(with("/api/v1/me")).await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED);
    assert!(late.header("www-authenticate").starts_with("Bearer "));

    let grab = server.portal(ask(PASSWORD, &json!({"name": "x", "scopes": ["admin"]}))).await;
    assert_eq!((grab.status, grab.json()["code"].as_str()), (StatusCode::FORBIDDEN, Some("not_admin")));
    for (body, field) in [
        (json!({"name": ""}), "name"),
        (json!({"name": "a\u{0}b"}), "name"),
        (json!({"name": "x", "scopes": ["everything"]}), "scopes[0]"),
        (json!({"name": "x", "scopes": []}), "scopes"),
        (json!({"name": "x", "expires_in_s": 0}), "expires_in_s"),
        (json!({"name": "x", "expires_in_s": 1e18}), "expires_in_s"),
        (json!({"name": "x", "admin": true}), "admin"),
        (json!({}), "name"),
    ] {
        let answer = server.portal(ask(PASSWORD, &body)).await;
        assert_eq!((answer.status.as_u16(), answer.fields()), (422, vec![field.to_owned()]), "{body}");
    }
}

#[tokio::test]
async fn a_new_password_ends_what_was_made_with_the_old_one() {
    let server = Server::start().await;
    let user = server.account("ada", Role::Researcher).await;
    let (ada, admin) = (server.sign_in(user).await, server.admin().await);
    let reset = Ask::new("POST", "/api/v1/users/ada/reset-password").bearer(&admin).json(&json!({}));
    let answer = server.portal(reset).await;
    assert_eq!(answer.status, StatusCode::OK);
    let password = answer.json()["password"].as_str().unwrap().to_owned();
    assert_eq!(server.portal(Ask::get("/api/v1/me").bearer(&ada)).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.portal(Ask::get("/").cookie(&ada)).await.status, StatusCode::SEE_OTHER);
    assert_eq!(server.log_in("ada", PASSWORD).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.log_in("ada", &password).await.status, StatusCode::SEE_OTHER);
    let chosen = Ask::new("POST", "/api/v1/users/ada/reset-password").bearer(&admin);
    let answer = server.portal(chosen.clone().json(&json!({"password": "my own choice"}))).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "{}"), "a given password is not shown");
    let short = server.portal(chosen.json(&json!({"password": "short"}))).await;
    assert_eq!(short.fields(), ["password"]);
    let events = server.test.audited().await;
    let all = format!("{events:?}");
    assert!(!all.contains(&password) && !all.contains("my own choice"), "no secret is written down");
}

#[tokio::test]
async fn the_last_admin_and_oneself_stay() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let disable = |name: &str| Ask::new("POST", &format!("/api/v1/users/{name}/disable")).json(&json!({}));
    let own = server.portal(disable("root-admin").bearer(&admin)).await;
    assert_eq!((own.status, own.json()["code"].as_str()), (StatusCode::CONFLICT, Some("own_account")));
    let second = server.person("second", 2009, Role::Admin).await;
    assert_eq!(server.portal(disable("second").bearer(&admin)).await.status, StatusCode::OK);
    assert_eq!(server.portal(Ask::get("/api/v1/users").bearer(&second)).await.status, StatusCode::UNAUTHORIZED);
    let enable = Ask::new("POST", "/api/v1/users/second/enable").json(&json!({})).bearer(&admin);
    assert_eq!(server.portal(enable).await.json()["state"], "active");
}
