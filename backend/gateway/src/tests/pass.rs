//! What passes the proxy, how, and what does not.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn own_origin(session: SessionId) -> String {
    format!("http://{}", host(session))
}

#[tokio::test]
async fn the_owner_reaches_the_app_and_it_sees_nothing_of_ours() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let ask = Ask::get("/api?x=1")
        .with("cookie", &format!("_xsrf=2; __Host-eirene_app={}", cookie.expose()))
        .with("x-forwarded-for", "6.6.6.6");
    let answer = server.app(session, ask).await;
    assert_eq!(answer.status, StatusCode::OK);
    let seen = answer.json();
    assert_eq!(seen["uri"], "/api?x=1");
    assert_eq!(seen["headers"]["cookie"], "_xsrf=2");
    assert_eq!(seen["headers"]["host"], host(session));
    assert_eq!(seen["headers"]["x-forwarded-host"], host(session));
    assert_eq!(seen["headers"]["x-forwarded-for"], "127.0.0.1");
    assert_eq!(seen["headers"]["x-forwarded-proto"], "http");

    let answer = server.app(session, Ask::get("/api").bearer(&ada)).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["headers"]["authorization"], Value::Null);
    assert!(!answer.body.contains(&ada.token));
}

#[tokio::test]
async fn a_program_with_a_token_may_do_what_the_app_s_own_pages_do() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let token = ("authorization", format!("token {}", ada.token));
    for by_token in [Ask::new("POST", "/api").bearer(&ada), Ask::new("POST", "/api").with(token.0, &token.1)] {
        let answer = server.app(session, by_token.with("cookie", "a=1; _xsrf=old")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let headers = &answer.json()["headers"];
        let value = headers["x-xsrftoken"].as_str().unwrap();
        assert_eq!(headers["cookie"], format!("a=1; _xsrf={value}"));
        assert_eq!(headers["authorization"], Value::Null);
    }
    // A browser brings what JupyterLab's page knows, and a token in an address is none.
    let by_browser = Ask::new("POST", "/api").app_cookie(&cookie).with("origin", &own_origin(session));
    assert_eq!(server.app(session, by_browser).await.json()["headers"]["x-xsrftoken"], Value::Null);
    let in_address = Ask::new("POST", &format!("/api?token={}", ada.token));
    assert_eq!(server.app(session, in_address).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn everybody_else_gets_404_and_a_page_is_sent_to_the_portal() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let session = server.session(&ada).await.id;
    let other = server.session(&grace).await.id;
    let for_other = server.enter(&grace, other).await;
    let unknown = SessionId::generate();
    let asks = [
        Ask::get("/api"),
        Ask::get("/api").bearer(&grace),
        Ask::get("/api").bearer(&admin),
        Ask::get("/api").app_cookie(&for_other),
        Ask::get("/api").app_cookie(&Secret::generate()),
        // The portal's cookie is good for the portal alone.
        Ask::get("/api").cookie(&ada),
        Ask::get("/api").with("cookie", &format!("__Host-eirene_app={}", ada.cookie.expose())),
        Ask::get("/api").with("cookie", &format!("__Host-eirene_app={}", ada.token)),
        Ask::get("/api").with("authorization", "Bearer eir_wrong"),
        Ask::get("/api").with("authorization", &format!("Basic {}", ada.token)),
        Ask::new("POST", "/api").bearer(&grace),
    ];
    for ask in asks {
        let shown = format!("{} {:?}", ask.path, ask.headers.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let (here, nowhere) = (server.app(session, ask.clone()).await, server.app(unknown, ask).await);
        assert_eq!((here.status, nowhere.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND), "{shown}");
        let untraced = |answer: &Answer| answer.body.replace(answer.json()["request_id"].as_str().unwrap(), "");
        assert_eq!(untraced(&here), untraced(&nowhere), "{shown}");
    }
    for id in [session, unknown] {
        let answer = server.app(id, Ask::get("/lab").page()).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER);
        assert_eq!(answer.header("location"), format!("{PORTAL_ORIGIN}/open?session={id}"));
    }
    // A program's page request with a wrong token is no browser's.
    let answer = server.app(session, Ask::get("/lab").with("accept", "text/html").bearer(&grace)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(server.apps.opened(), 0, "the app was never asked");
}

#[tokio::test]
async fn a_token_needs_the_scope_to_connect() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let new =
        NewToken { name: "read".into(), scopes: Some(vec![Scope::Read, Scope::SessionsRead]), expires_in_s: None };
    let reader = server.test.app.tokens.create(&ada.actor, new).await.unwrap().secret;
    let ask = Ask::get("/api").with("authorization", &format!("Bearer {}", reader.expose()));
    assert_eq!(server.app(session, ask).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_hand_over_is_used_once_from_the_portal_for_its_session_and_in_time() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let access = &server.test.app.access;
    let ask = |code: &Secret, origin: &str| {
        let body = serde_html_form::to_string([("code", code.expose())]).unwrap();
        Ask::new("POST", "/.eirene/enter").with("content-type", FORM).with("origin", origin).body(body)
    };
    let code = access.begin_handover(&ada.actor, session).await.unwrap();
    for wrong in [own_origin(session).as_str(), "null", "http://evil.localhost:8080"] {
        assert_eq!(server.app(session, ask(&code, wrong)).await.status, StatusCode::FORBIDDEN, "{wrong}");
    }
    let elsewhere = server.session(&ada).await.id;
    assert_eq!(server.app(elsewhere, ask(&code, PORTAL_ORIGIN)).await.status, StatusCode::NOT_FOUND);

    let code = access.begin_handover(&ada.actor, session).await.unwrap();
    let answer = server.app(session, ask(&code, PORTAL_ORIGIN)).await;
    assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, "/lab"));
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["__Host-eirene_app=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap();
    let page =
        server.app(session, Ask::get("/lab").page().with("sec-fetch-site", "same-site").with("cookie", pair)).await;
    assert_eq!(page.status, StatusCode::OK);
    // Used up.
    assert_eq!(server.app(session, ask(&code, PORTAL_ORIGIN)).await.status, StatusCode::NOT_FOUND);

    let code = access.begin_handover(&ada.actor, session).await.unwrap();
    server.test.clock.advance_s(61);
    assert_eq!(server.app(session, ask(&code, PORTAL_ORIGIN)).await.status, StatusCode::NOT_FOUND);
    let grace = server.grace().await;
    assert!(access.begin_handover(&grace.actor, session).await.is_err());
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing_for_a_page_of_another_origin() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let neighbour = own_origin(SessionId::generate());
    let own = own_origin(session);
    let post = |headers: &[(&str, &str)]| {
        headers.iter().fold(Ask::new("POST", "/api").app_cookie(&cookie), |ask, (name, value)| ask.with(name, value))
    };
    for (headers, status) in [
        (vec![("origin", own.as_str())], 200),
        (vec![("sec-fetch-site", "same-origin")], 200),
        (vec![("origin", neighbour.as_str())], 403),
        (vec![("origin", PORTAL_ORIGIN)], 403),
        (vec![("origin", "null")], 403),
        (vec![("sec-fetch-site", "same-site")], 403),
        (vec![], 403),
    ] {
        assert_eq!(server.app(session, post(&headers)).await.status.as_u16(), status, "{headers:?}");
    }
    let picture =
        Ask::get("/api").app_cookie(&cookie).with("sec-fetch-site", "same-site").with("sec-fetch-mode", "no-cors");
    assert_eq!(server.app(session, picture).await.status, StatusCode::FORBIDDEN);
    let frame = Ask::get("/lab")
        .app_cookie(&cookie)
        .with("sec-fetch-site", "same-site")
        .with("sec-fetch-mode", "navigate")
        .with("sec-fetch-dest", "iframe");
    assert_eq!(server.app(session, frame).await.status, StatusCode::FORBIDDEN);
    let script = Ask::get("/api").app_cookie(&cookie).with("sec-fetch-site", "same-origin");
    assert_eq!(server.app(session, script).await.status, StatusCode::OK);
    // A program has a token and no origin.
    assert_eq!(server.app(session, Ask::new("POST", "/api").bearer(&ada)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_app_does_not_reach_beyond_its_origin() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let answer = server.app(session, Ask::get("/overreach").bearer(&ada)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let cookies: Vec<&str> = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(cookies, ["a=1"]);
    for name in ["access-control-allow-origin", "service-worker-allowed"] {
        assert_eq!(answer.header(name), "", "{name}");
    }
}

#[tokio::test]
async fn connections_are_kept_and_bodies_of_any_size_pass() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    for path in ["/api", "/empty", "/api", "/large", "/api"] {
        let answer = server.app(session, Ask::get(path).bearer(&ada)).await;
        assert!(answer.status.is_success(), "{path}");
        assert_eq!(answer.body.len() == 3_000_000, path == "/large");
    }
    let answer = server.app(session, Ask::new("HEAD", "/large").bearer(&ada)).await;
    assert_eq!(answer.header("content-length"), "3000000");
    let upload = server.app(session, Ask::new("PUT", "/api").bearer(&ada).body(vec![b'x'; 2_000_000])).await;
    assert_eq!(upload.json()["length"], 2_000_000);
    assert_eq!(server.apps.opened(), 1, "one after another they share a connection");
}

#[tokio::test]
async fn what_is_logged_on_the_way_says_of_which_session_and_the_id_that_is_shown() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let code = server.test.app.access.begin_handover(&ada.actor, session).await.unwrap();
    let body = serde_html_form::to_string([("code", code.expose())]).unwrap();
    let enter = Ask::new("POST", "/.eirene/enter").with("content-type", FORM).with("origin", PORTAL_ORIGIN).body(body);
    server.test.app.db.close().await;
    for ask in [Ask::get("/api").bearer(&ada), enter] {
        let logged = testing::Logged::down_to(tracing::Level::INFO);
        let answer = server.app(session, ask).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
        let shown = answer.json()["request_id"].as_str().unwrap().to_owned();
        assert_eq!((shown.len(), answer.header("x-request-id")), (32, shown.as_str()));
        let line = logged.line("The database did not answer");
        assert_eq!(line["span"]["request.id"], shown, "{line}");
        assert_eq!(line["span"]["session.id"], session.to_string(), "{line}");
    }
}

#[tokio::test]
async fn half_an_answer_is_not_taken_for_a_whole_one() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let mut body = server.open(Ask::get("/endless").bearer(&ada).to(&host(session))).await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    server.apps.stop(session);
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn while_the_app_is_away_pages_wait_and_programs_are_told_when_to_come_back() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let mut session = server.session(&ada).await;
    let cookie = server.enter(&ada, session.id).await;
    server.apps.stop(session.id);
    let page = server.app(session.id, Ask::get("/lab").page().app_cookie(&cookie)).await;
    assert_eq!((page.status, page.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "2"));
    assert!(page.body.contains("http-equiv=\"refresh\"") && page.body.contains("Its work goes on"), "{}", page.body);
    let data = server.app(session.id, Ask::get("/api").app_cookie(&cookie)).await;
    assert_eq!((data.status, data.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "2"));
    assert_eq!(data.json()["code"], "not_ready");

    server.apps.run(session.id);
    assert_eq!(server.app(session.id, Ask::get("/api").app_cookie(&cookie)).await.status, StatusCode::OK);

    server.apps.stop(session.id);
    session.state = eirene_core::SessionState::Ended;
    assert!(server.test.app.db.update_session(&session, None).await.unwrap());
    let page = server.app(session.id, Ask::get("/lab").page().app_cookie(&cookie)).await;
    assert_eq!(page.header("location"), format!("{PORTAL_ORIGIN}/sessions/{}", session.id));
    assert_eq!(server.app(session.id, Ask::get("/api").app_cookie(&cookie)).await.status, StatusCode::GONE);
}

#[tokio::test]
async fn only_our_own_host_names_are_answered_for() {
    let server = Server::start().await;
    let id = SessionId::generate();
    for (host, status) in [
        ("evil.example".to_owned(), 421),
        ("eirene.localhost".to_owned(), 421),
        ("eirene.localhost:8080.evil.example".to_owned(), 421),
        (format!("{id}.apps.eirene.localhost"), 421),
        (format!("x{id}.apps.eirene.localhost:8080"), 421),
        ("apps.eirene.localhost:8080".to_owned(), 421),
        (format!("{id}.apps.eirene.localhost:8080"), 404),
        (format!("{id}.APPS.eirene.localhost.:8080"), 404),
        (PORTAL.to_owned(), 200),
        ("EIRENE.localhost:8080".to_owned(), 200),
        ("eirene.localhost.:8080".to_owned(), 200),
    ] {
        let answer = server.send(Ask::get("/login").to(&host)).await;
        assert_eq!(answer.status.as_u16(), status, "{host}");
    }
    let page = server.send(Ask::get("/lab").page().to("gone.apps.eirene.localhost:8080")).await;
    assert_eq!((page.status, page.header("content-type")), (StatusCode::NOT_FOUND, "text/html; charset=utf-8"));
    assert!(page.body.contains("Page not found") && page.body.contains(PORTAL_ORIGIN), "{}", page.body);
    // Load balancers ask by address.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.send(Ask::get(path).to("192.0.2.7:8080")).await.status, StatusCode::OK, "{path}");
    }
    let twice = Ask::get("/healthz").with("host", "evil.example");
    assert_eq!(server.portal(twice).await.status, StatusCode::BAD_REQUEST);
    let mut absolute = Ask::get("/healthz").to(PORTAL);
    *absolute.uri_mut() = "http://evil.example/healthz".parse().unwrap();
    assert_eq!(server.send(absolute).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn nothing_below_our_own_path_reaches_the_app() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    for path in ["/.eirene/", "/.eirene/enter", "/.eirene/anything"] {
        let answer = server.app(session, Ask::get(path).app_cookie(&cookie)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(server.app(session, Ask::get("/.eirene/style.css")).await.status, StatusCode::OK);
    assert_eq!(server.apps.opened(), 0);
}

#[tokio::test]
async fn a_broken_body_is_the_fault_of_who_sent_it() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    for body in ["zz\r\nnot a chunk", "5\r\nhello\r\nzz\r\n", "5\r\nhello world\r\n0\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /api HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n{body}",
            host(session),
            ada.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let many = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..many]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("broken_body"), "{body:?}: {answer}");
    }
    assert_eq!(server.app(session, Ask::get("/api").bearer(&ada)).await.status, StatusCode::OK);
}
