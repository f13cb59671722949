//! The portal's handlers on a whole application in memory: what they answer, to whom, and what they leave behind.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use eirene_core::secret::Secret;
use eirene_core::{Clock as _, Login, Role, Session, SessionState};
use eirene_database::Start;
use eirene_http::headers::FormTarget;
use eirene_services::actor::{Actor, Via};
use eirene_services::logins;
use eirene_services::spaces::quotas::QuotaRound;
use eirene_services::testing::{TestApp, entry};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::router;

/// Somebody's browser.
struct Browser<'a> {
    test: &'a TestApp,
    actor: Actor,
    secret: Secret,
}

/// What came back.
struct Answer {
    status: StatusCode,
    location: String,
    body: String,
    response: Response,
}

impl<'a> Browser<'a> {
    async fn of(test: &'a TestApp, name: &str, uid: u32, role: Role) -> Self {
        let actor = test.person(name, uid, role).await;
        let Via::Login(id) = actor.via else { panic!("a person signs in with a browser") };
        let secret = Secret::generate();
        let now = test.clock.now();
        let login = Login {
            id,
            user: actor.user.id,
            created_at: now,
            last_seen_at: now,
            expires_at: now + jiff::SignedDuration::from_hours(24),
            address: None,
            user_agent: None,
        };
        test.app.db.insert_login(0, &login, &secret.hash(), &entry()).await.unwrap();
        Self { test, actor, secret }
    }

    async fn ada(test: &'a TestApp) -> Self {
        Self::of(test, "ada", 2001, Role::Researcher).await
    }

    fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::COOKIE, format!("__Host-eirene={}", self.secret.expose()))
    }

    async fn get(&self, path: &str) -> Answer {
        send(self.test, self.request("GET", path).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = logins::form_token(&self.secret);
        let fields: Vec<_> = fields.iter().copied().chain([("csrf", token.as_str())]).collect();
        self.post_bare(path, &fields).await
    }

    async fn post_bare(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = serde_html_form::to_string(fields).unwrap();
        let request = self.request("POST", path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        send(self.test, request.body(Body::from(body)).unwrap()).await
    }

    async fn sessions(&self) -> Vec<Session> {
        let ask = eirene_services::sessions::ListSessions { all: false, live_only: false, cursor: None, limit: 50 };
        self.test.app.sessions.list(&self.actor, ask).await.unwrap().items
    }

    /// Starts one and says where it is.
    async fn start(&self) -> Session {
        let answer = self.post("/sessions", &form("first", "2")).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        self.sessions().await.remove(0)
    }

    async fn becomes(&self, session: &Session, state: SessionState) {
        let mut row = self.test.row(session.id).await;
        row.state = state;
        assert!(self.test.app.db.update_session(&row, None).await.unwrap());
    }
}

async fn send(test: &TestApp, request: Request<Body>) -> Answer {
    let response = router().with_state(test.app.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let location = parts.headers.get(header::LOCATION).map(|value| value.to_str().unwrap().to_owned());
    let response = Response::from_parts(parts, Body::empty());
    Answer { status: response.status(), location: location.unwrap_or_default(), body, response }
}

/// The start form as the page sends it.
fn form<'a>(key: &'a str, cpus: &'a str) -> [(&'a str, &'a str); 11] {
    [
        ("name", "My thesis"),
        ("app", "jupyterlab"),
        ("image", "jupyter"),
        ("partition", ""),
        ("nodes", "1"),
        ("cpus", cpus),
        ("memory_gib", "1.5"),
        ("gpus", "1"),
        ("gpu_type", "none"),
        ("hours", "1"),
        ("key", key),
    ]
}

#[tokio::test]
async fn the_form_starts_what_it_says_and_twice_is_once() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let first = ada.post("/sessions", &form("k", "2")).await;
    let second = ada.post("/sessions", &form("k", "2")).await;
    assert_eq!((first.status, second.status), (StatusCode::SEE_OTHER, StatusCode::SEE_OTHER));
    assert_eq!(first.location, second.location);
    let sessions = ada.sessions().await;
    assert_eq!(sessions.len(), 1);
    let resources = &sessions[0].resources;
    assert_eq!((resources.cpus, resources.memory_mib, resources.gpus, resources.walltime_min), (2, 1536, 0, 60));
    assert_eq!(first.location, format!("/sessions/{}", sessions[0].id));
    assert!(ada.get(&first.location).await.body.contains("My thesis"));

    let changed = ada.post("/sessions", &form("k", "1")).await;
    assert_eq!(changed.status, StatusCode::UNPROCESSABLE_ENTITY, "the same key for another form");
    assert_eq!(ada.sessions().await.len(), 1);
}

/// What the forms about a scratch send beside the rest.
fn with_scratch<'a>(rest: &[(&'a str, &'a str)], scratch: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let said = |field: &str| scratch.iter().find(|(name, _)| *name == field).map_or("", |(_, value)| *value);
    let fields = ["scratch", "scratch_gib", "stage_in", "stage_out", "stage_out_success"];
    rest.iter().copied().chain(fields.map(|field| (field, said(field)))).collect()
}

#[tokio::test]
async fn a_scratch_is_asked_for_by_both_forms_and_is_in_them_when_the_same_is_started_again() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let scratch = [
        ("scratch", "node"),
        ("scratch_gib", "200"),
        ("stage_in", "home:data/train=train\r\nhome:runs/lr=0.1=\r\n"),
        ("stage_out", "results=home:results/today"),
        ("stage_out_success", "model=home:best"),
    ];
    let wanted = serde_json::json!({
        "kind": "node", "size_mib": 200 << 10,
        "stage_in": [{"from": "home:data/train", "to": "train"}, {"from": "home:runs/lr=0.1", "to": ""}],
        "stage_out": [
            {"from": "results", "to": "home:results/today", "on": "always"},
            {"from": "model", "to": "home:best", "on": "success"},
        ],
    });
    let run = [
        ("file", "a.py"),
        ("image", "jupyter"),
        ("nodes", "1"),
        ("cpus", "2"),
        ("memory_gib", "2"),
        ("gpu_type", "none"),
        ("hours", "1"),
        ("key", "r"),
    ];
    for (path, rest) in [("/sessions", &form("k", "2")[..]), ("/runs", &run[..])] {
        let new = ada.get(&format!("{path}/new")).await.body;
        assert!(new.contains("name=\"scratch\"") && new.contains("name=\"stage_out_success\""), "{new}");
        assert!(new.contains("<option value=\"node\">") && !new.contains("value=\"beeond\""), "what is offered: {new}");
        assert!(new.contains("<details class=\"more\">"), "it is seldom needed: {new}");
        let made = ada.post(path, &with_scratch(rest, &scratch)).await;
        assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
        let id = made.location.rsplit('/').next().unwrap().parse().unwrap();
        assert_eq!(serde_json::to_value(test.row(id).await.scratch).unwrap(), wanted);
        let again = ada.get(&format!("{path}/new?from={id}")).await.body;
        for shown in [
            "<details class=\"more\" open>",
            "<option value=\"node\" selected>",
            "value=\"200\"",
            "\nhome:data/train=train\nhome:runs/lr=0.1=</textarea>",
            "\nresults=home:results/today</textarea>",
            "\nmodel=home:best</textarea>",
        ] {
            assert!(again.contains(shown), "{shown}: {again}");
        }
        let none = ada.post(path, &with_scratch(&with_key(rest, path), &[])).await;
        assert_eq!(none.status, StatusCode::SEE_OTHER, "{}", none.body);
        let id = none.location.rsplit('/').next().unwrap().parse().unwrap();
        assert_eq!(test.row(id).await.scratch, None);

        for (field, bad, named) in [
            ("scratch", "", "scratch"),
            ("scratch", "beeond", "scratch"),
            ("scratch_gib", "much", "scratch_gib"),
            ("stage_in", "data", "stage_in"),
            ("stage_in", "home:../grace=x", "stage_in"),
            ("stage_in", "project:x=x", "stage_in"),
            ("stage_out", "<script>alert(1)</script>", "stage_out"),
            ("stage_out", "a=home:x\nb=home:x", "stage_out"),
            ("stage_out_success", "a=nowhere:x", "stage_out"),
        ] {
            let changed: Vec<_> =
                scratch.iter().map(|(name, value)| (*name, if *name == field { bad } else { *value })).collect();
            let answer = ada.post(path, &with_scratch(&with_key(rest, "wrong"), &changed)).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{field} {bad}");
            assert!(answer.body.contains(&format!("id=\"e-{named}\"")), "{field} {bad}: {}", answer.body);
            assert!(answer.body.contains("<details class=\"more\" open>") && !answer.body.contains("<script>alert"));
            assert!(field == "stage_in" || answer.body.contains("home:runs/lr=0.1="), "what was typed is kept");
        }
    }
    let wrong = with_scratch(&form("", "2"), &[("scratch", "node"), ("stage_in", "data")]);
    let checked = ada.post("/sessions/check", &wrong).await.body;
    assert!(checked.contains("“data” does not say what goes where"), "{checked}");
}

/// The same with another key.
fn with_key<'a>(fields: &[(&'a str, &'a str)], key: &'a str) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, if *name == "key" { key } else { *value })).collect()
}

#[tokio::test]
async fn what_the_form_cannot_say_of_an_earlier_scratch_is_said_and_not_passed_over() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let odd = r#"{"kind": "node", "stage_in": [{"from": "home:a", "to": "b=c"}]}"#;
    let wish =
        eirene_services::sessions::StartSession { scratch: serde_json::from_str(odd).unwrap(), ..TestApp::wish() };
    let (session, _) = test.app.sessions.start(&ada.actor, wish, None).await.unwrap();
    let page = ada.get(&format!("/sessions/new?from={}", session.id)).await.body;
    assert!(page.contains("id=\"e-stage_in\"") && page.contains("Something was left out"), "{page}");
}

#[tokio::test]
async fn the_start_forms_say_that_the_home_is_full_and_start_all_the_same() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let words = eirene_words::words();
    let notices = ["start.home_full", "start.home_nearly_full", "start.storage_full", "start.storage_nearly_full"];
    let shown = async |form: &str| {
        let page = ada.get(form).await.body;
        notices.into_iter().filter(|key| page.contains(&words.get(key))).collect::<Vec<_>>()
    };
    let forms = ["/sessions/new", "/runs/new"];
    for form in forms {
        assert_eq!(shown(form).await, Vec::<&str>::new(), "{form}");
    }
    let home = test.app.spaces.get(&ada.actor, &"home".parse().unwrap()).await.unwrap().space;
    test.storage.state().directory = Some((100, eirene_core::storage::Limit::At(100)));
    test.app.spaces.look_at(&home, &mut QuotaRound::default()).await.unwrap();
    for form in forms {
        assert_eq!(shown(form).await, ["start.home_full"], "{form}");
    }
    assert_eq!(ada.post("/sessions", &form("k", "2")).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn what_cannot_be_is_said_at_its_field_and_leaves_nothing_behind() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    for (field, bad, named) in [
        ("cpus", "1000000000", "e-cpus"),
        ("cpus", "two", "e-cpus"),
        ("memory_gib", "much", "e-memory_gib"),
        ("hours", "99999999999", "e-hours"),
        ("partition", "'; $(id)", "e-partition"),
        ("image", "<script>", "e-image"),
        ("name", "<script>alert(1)</script>\u{0}", "e-name"),
    ] {
        let mut fields = form("k", "2");
        fields.iter_mut().find(|(name, _)| *name == field).unwrap().1 = bad;
        let answer = ada.post("/sessions", &fields).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{field} {bad}");
        assert!(answer.body.contains(&format!("id=\"{named}\"")), "{field} {bad} names {named}");
        assert!(!answer.body.contains("<script>alert"), "{field} {bad}");
    }
    let unknown = ada.post("/sessions", &[("colour", "blue")]).await;
    assert!(unknown.status.is_client_error());
    assert!(ada.sessions().await.is_empty());
    let check = ada.post("/fragments/check", &form("", "1000000000")).await;
    assert_eq!(check.status, StatusCode::OK);
    assert!(check.body.contains("This cannot run here") || check.body.contains("does not answer"), "{}", check.body);
}

#[tokio::test]
async fn a_form_without_its_token_does_nothing() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let session = ada.start().await;
    for fields in [&[][..], &[("csrf", "forged")]] {
        for path in
            [&format!("/sessions/{}/stop", session.id), "/sessions", "/account/tokens", "/account/password", "/logout"]
        {
            assert_eq!(ada.post_bare(path, fields).await.status, StatusCode::FORBIDDEN, "{path}");
        }
    }
    assert_eq!(test.row(session.id).await.state, SessionState::Queued);
}

#[tokio::test]
async fn stopping_asks_first_and_then_stops() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let session = ada.start().await;
    let path = format!("/sessions/{}/stop", session.id);
    let question = ada.get(&path).await;
    assert!(question.body.contains("Stop the session"));
    assert_eq!(test.row(session.id).await.state, SessionState::Queued);
    let answer = ada.post(&path, &[]).await;
    assert_eq!(answer.location, format!("/sessions/{}?done=stopping", session.id));
    assert_eq!(test.row(session.id).await.state, SessionState::Stopping);
    assert!(ada.get(&answer.location).await.body.contains("The session is being stopped."));
}

#[tokio::test]
async fn somebody_elses_session_is_not_there() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let grace = Browser::of(&test, "grace", 2002, Role::Researcher).await;
    let root = Browser::of(&test, "root", 2003, Role::Admin).await;
    let id = ada.start().await.id;
    let unknown = eirene_core::SessionId::generate();
    for id in [id.to_string(), unknown.to_string(), "nonsense".to_owned()] {
        let pages =
            ["/sessions/ID", "/sessions/ID/log", "/sessions/ID/open", "/sessions/ID/stop", "/fragments/sessions/ID"];
        for page in pages.iter().chain(&["/fragments/waiting/ID", "/open?session=ID", "/sessions/new?from=ID"]) {
            let answer = grace.get(&page.replace("ID", &id)).await;
            let expected = if *page == "/sessions/new?from=ID" && id == "nonsense" {
                StatusCode::OK
            } else {
                StatusCode::NOT_FOUND
            };
            assert_eq!(answer.status, expected, "{page}");
            assert!(!answer.body.contains("My thesis"));
        }
        assert_eq!(grace.post(&format!("/sessions/{id}/stop"), &[]).await.status, StatusCode::NOT_FOUND);
    }
    assert!(!grace.get("/").await.body.contains("My thesis"));

    let seen = root.get(&format!("/sessions/{id}")).await;
    assert!(seen.body.contains("This session belongs to ada."));
    ada.becomes(&test.row(id).await, SessionState::Running).await;
    for page in [format!("/sessions/{id}/open"), format!("/fragments/waiting/{id}"), format!("/open?session={id}")] {
        assert_eq!(root.get(&page).await.status, StatusCode::NOT_FOUND, "an admin does not open {page}");
    }
    assert!(!root.get(&format!("/sessions/{id}")).await.body.contains("/open\""));
}

#[tokio::test]
async fn all_ones_sessions_are_listed_page_by_page() {
    let test = TestApp::new().await;
    let (ada, grace) = (Browser::ada(&test).await, Browser::of(&test, "grace", 2002, Role::Researcher).await);
    assert!(!ada.get("/").await.body.contains("href=\"/sessions\""), "there is nothing to show");
    for number in 0..51 {
        let mut session = eirene_services::testing::session("ada");
        session.owner = ada.actor.user.id;
        session.marker = Secret::generate().expose().to_owned();
        session.name = format!("number {number}.").parse().unwrap();
        session.state = SessionState::Ended;
        session.ended_at = Some(test.clock.now());
        test.app.db.insert_session(&session, Start::default()).await.unwrap();
    }
    assert!(ada.get("/").await.body.contains("href=\"/sessions\""));
    let first = ada.get("/sessions").await;
    assert_eq!(first.status, StatusCode::OK);
    assert!(first.body.contains("number 50.") && first.body.contains("number 1.") && !first.body.contains("number 0."));
    let older = first.body.split("href=\"/sessions?cursor=").nth(1).unwrap().split('"').next().unwrap();
    let last = ada.get(&format!("/sessions?cursor={older}")).await;
    assert!(last.body.contains("number 0.") && !last.body.contains("number 1."));
    assert!(last.body.contains("href=\"/sessions\"") && !last.body.contains("/sessions?cursor="));
    assert!(last.body.contains("/sessions/new?from="), "each can be started again");
    assert!(!grace.get("/sessions").await.body.contains("number"));
    assert_eq!(ada.get("/sessions?cursor=nonsense").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn opening_waits_hands_over_and_ends() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let session = ada.start().await;
    let path = format!("/open?session={}", session.id);
    let waiting = ada.get(&path).await;
    assert!(waiting.body.contains("is getting ready"));
    assert!(!waiting.body.contains("data-go"));

    ada.becomes(&session, SessionState::Running).await;
    let fragment = ada.get(&format!("/fragments/waiting/{}", session.id)).await;
    assert!(fragment.body.contains(&format!("data-go=\"/sessions/{}/open\"", session.id)));
    let over = ada.get(&path).await;
    let origin = format!("http://{}.apps.eirene.localhost:8080", session.id);
    assert!(over.body.contains(&format!("action=\"{origin}/.eirene/enter\"")), "{}", over.body);
    assert_eq!(over.response.extensions().get::<FormTarget>().unwrap().0, origin);
    let code = over.body.split("name=\"code\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let (_, user) = test.app.access.finish_handover(&Secret::from_text(code), session.id).await.unwrap();
    assert_eq!(user.id, ada.actor.user.id);

    ada.becomes(&session, SessionState::Ended).await;
    assert_eq!(ada.get(&path).await.location, format!("/sessions/{}", session.id));
}

#[tokio::test]
async fn a_token_is_shown_once_and_deleted_after_a_question() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let made = ada
        .post("/account/tokens", &[("token_name", "laptop"), ("lifetime_days", "30"), ("scope_sessions_read", "on")])
        .await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let secret = made.body.split("id=\"new-token\">").nth(1).unwrap().split('<').next().unwrap();
    let (token, _) = test.app.tokens.by_secret(&Secret::from_text(secret)).await.unwrap().unwrap();
    assert_eq!(token.scopes, [eirene_core::Scope::SessionsRead]);
    let later = ada.get("/account").await;
    assert!(later.body.contains("laptop") && !later.body.contains(secret));

    let grace = Browser::of(&test, "grace", 2002, Role::Researcher).await;
    let path = format!("/account/tokens/{}/delete", token.id);
    assert_eq!(grace.get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(grace.post(&path, &[]).await.status, StatusCode::NOT_FOUND);
    assert!(ada.get(&path).await.body.contains("Delete the token “laptop”?"));
    assert_eq!(ada.post(&path, &[]).await.location, "/account?done=token_deleted");
    assert!(test.app.tokens.by_secret(&Secret::from_text(secret)).await.unwrap().is_none());

    for (bad, named) in [
        (&[("token_name", " "), ("lifetime_days", "30"), ("scope_read", "on")][..], "id=\"e-token_name\""),
        (&[("token_name", "x"), ("lifetime_days", "30")], "id=\"e-scopes\""),
    ] {
        let answer = ada.post("/account/tokens", bad).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(answer.body.contains(named), "{named}");
    }
    let forever =
        ada.post("/account/tokens", &[("token_name", "x"), ("lifetime_days", "99999"), ("scope_read", "on")]).await;
    assert_eq!(forever.status, StatusCode::UNPROCESSABLE_ENTITY);
    let too_much =
        ada.post("/account/tokens", &[("token_name", "x"), ("lifetime_days", "7"), ("scope_admin", "on")]).await;
    assert_eq!(too_much.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_admin_pages_are_for_admins() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let root = Browser::of(&test, "root", 2003, Role::Admin).await;
    ada.start().await;
    for page in ["/admin/users", "/admin/sessions", "/admin/nodes", "/admin/audit", "/fragments/admin/sessions"] {
        assert_eq!(ada.get(page).await.status, StatusCode::NOT_FOUND, "{page}");
        assert_eq!(root.get(page).await.status, StatusCode::OK, "{page}");
    }
    for (path, fields) in [
        ("/admin/users", &[("username", "eve"), ("role", "admin")][..]),
        ("/admin/users/root/disable", &[]),
        ("/admin/users/root/enable", &[]),
        ("/admin/users/root/reset-password", &[]),
    ] {
        assert_eq!(ada.post(path, fields).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert!(root.get("/admin/sessions").await.body.contains("My thesis"));
    assert!(root.get("/admin/audit?action=session.start").await.body.contains("session.start"));

    assert_eq!(root.post("/admin/users/ada/disable", &[]).await.location, "/admin/users?done=disabled");
    assert_eq!(ada.get("/").await.location, "/login", "disabled is out at once");
    let reset = root.post("/admin/users/ada/reset-password", &[]).await;
    assert!(reset.body.contains("Password of ada"));
    let bad = root.post("/admin/users", &[("username", "Not a Name"), ("role", "researcher")]).await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(bad.body.contains("id=\"e-username\"") && bad.body.contains("value=\"Not a Name\""));
    assert_eq!(root.post("/admin/users/nobody-there/disable", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_failed_log_in_keeps_the_name_and_never_the_password() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let body = "username=%3Cb%3Eada&password=my-secret-words&next=%2F%2Fevil.example";
    let request = Request::post("/login").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let answer = send(&test, request.body(Body::from(body)).unwrap()).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(
        answer.body.contains("value=\"&lt;b&gt;ada\"") || answer.body.contains("value=\"&lt;b>ada\""),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("my-secret-words"));
    assert!(answer.body.contains("name=\"next\" value=\"/\""));
    assert!(answer.response.headers().get(header::SET_COOKIE).is_none());
    // Whoever is signed in has no use for the form.
    assert_eq!(ada.get("/login?next=/account").await.location, "/account");
}

#[tokio::test]
async fn nobody_is_asked_to_log_in_and_comes_back() {
    let test = TestApp::new().await;
    let page = send(&test, Request::get("/sessions/new?size=small").body(Body::empty()).unwrap()).await;
    assert_eq!(page.location, "/login?next=%2Fsessions%2Fnew%3Fsize%3Dsmall");
    let posted = send(&test, Request::post("/sessions").body(Body::empty()).unwrap()).await;
    assert_eq!(posted.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn static_files_are_kept_for_ever_under_their_own_version_alone() {
    let test = TestApp::new().await;
    let page = send(&test, Request::get("/login").body(Body::empty()).unwrap()).await;
    let address = page.body.split("rel=\"stylesheet\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let get = async |path: &str| send(&test, Request::get(path).body(Body::empty()).unwrap()).await;
    let header_of = |answer: &Answer, name| answer.response.headers().get(name).unwrap().to_str().unwrap().to_owned();
    let now = get(address).await;
    assert_eq!(header_of(&now, header::CONTENT_TYPE), "text/css; charset=utf-8");
    assert!(header_of(&now, header::CACHE_CONTROL).contains("immutable"));
    let older = get("/static/0000000000000000/app.css").await;
    assert_eq!((older.body == now.body, header_of(&older, header::CACHE_CONTROL).as_str()), (true, "no-cache"));
    for missing in ["/static/x/nothing.css", "/static/x/../messages/en.toml", "/static/x/%2e%2e/templates/base.html"] {
        assert_eq!(get(missing).await.status, StatusCode::NOT_FOUND, "{missing}");
    }
}

#[tokio::test]
async fn charts_are_compared_with_ones_own_and_never_with_what_one_may_not_see() {
    let test = TestApp::new().await;
    let ada = Browser::ada(&test).await;
    let bob = Browser::of(&test, "bob", 2002, Role::Researcher).await;
    let admin = Browser::of(&test, "root", 2003, Role::Admin).await;
    let (first, theirs) = (ada.start().await, bob.start().await);
    assert_eq!(ada.post("/sessions", &form("second", "1")).await.status, StatusCode::SEE_OTHER);
    let second = ada.sessions().await.into_iter().find(|session| session.id != first.id).unwrap();
    for session in [&first, &second, &theirs] {
        let mut row = test.row(session.id).await;
        row.started_at = Some(test.clock.now());
        assert!(test.app.db.update_session(&row, None).await.unwrap());
    }
    let named = |session: &Session| format!("sessions/{}&quot;", session.id);
    let page = ada.get(&format!("/sessions/{}/charts?last=1h&with=sessions/{}", first.id, theirs.id)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    assert!(page.body.contains(&named(&second)) && !page.body.contains(&theirs.id.to_string()));
    let page = ada.get(&format!("/sessions/{}/charts?with=sessions/{}", first.id, second.id)).await;
    assert_eq!(page.body.matches(&named(&second)).count(), 1, "what a link names is in the list but once");

    let foreign = format!("/sessions/{}/charts?with=sessions/{}", first.id, second.id);
    assert_eq!(bob.get(&foreign).await.status, StatusCode::NOT_FOUND);
    let page = admin.get(&foreign).await;
    assert!(page.status == StatusCode::OK && page.body.contains(&named(&second)), "an admin follows a link");
    for path in [format!("/runs/{}/charts", first.id), "/sessions/x/charts".to_owned()] {
        assert_eq!(ada.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    for with in ["", "sessions", "sessions/x", "spaces/x", "runs/../x"] {
        let page = ada.get(&format!("/sessions/{}/charts?with={with}", first.id)).await;
        assert_eq!(page.status, StatusCode::OK, "{with}");
    }
}
