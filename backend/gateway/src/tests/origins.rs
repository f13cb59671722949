//! What another site may cause in a signed-in browser: nothing. And what every answer of the portal says to the browser.

use super::*;

#[tokio::test]
async fn a_form_counts_only_from_our_own_page_and_with_its_token() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.session(&ada).await.id;
    let path = format!("/sessions/{session}/stop");
    let good = Ask::new("POST", &path).form(&ada, &[]);
    let body = good.body.clone();
    let ask = |origin: Option<&str>, body: Vec<u8>| {
        let ask = Ask::new("POST", &path).with("content-type", FORM).cookie(&ada).body(body);
        match origin {
            Some(origin) => ask.with("origin", origin),
            None => ask,
        }
    };
    let app_origin = format!("http://{}", host(session));
    for origin in
        [None, Some("null"), Some(app_origin.as_str()), Some("http://eirene.localhost"), Some("https://evil.example")]
    {
        let answer = server.portal(ask(origin, body.clone())).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{origin:?}");
    }
    let foreign_token = Ask::new("POST", &path).form(&grace, &[]).body;
    for body in [Vec::new(), b"csrf=".to_vec(), foreign_token, [body.clone(), b"&csrf=x".to_vec()].concat()] {
        let answer = server.portal(ask(Some(PORTAL_ORIGIN), body)).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(server.test.row(session).await.desired, eirene_core::Desired::Running, "nothing has happened");
    assert_eq!(server.portal(good).await.status, StatusCode::SEE_OTHER);
    assert_eq!(server.test.row(session).await.desired, eirene_core::Desired::Ended);
}

#[tokio::test]
async fn the_log_in_form_cannot_be_sent_from_elsewhere() {
    let server = Server::start().await;
    let ask = Ask::new("POST", "/login").with("content-type", FORM).body("username=ada&password=x");
    assert_eq!(server.portal(ask.clone()).await.status, StatusCode::FORBIDDEN);
    let elsewhere = ask.with("origin", "https://evil.example");
    assert_eq!(server.portal(elsewhere).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn credentials_of_one_audience_are_nothing_to_another() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let app_cookie = server.enter(&ada, session).await;
    // The API knows no cookie, the pages and the live feed know no token, and an app's cookie is for its app.
    assert_eq!(server.portal(Ask::get("/api/v1/me").cookie(&ada)).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.portal(Ask::get("/").bearer(&ada)).await.header("location"), "/login");
    assert_eq!(
        server.portal(Ask::get("/live/cluster").bearer(&ada)).await.header("location"),
        "/login?next=%2Flive%2Fcluster"
    );
    let with = |text: String| Ask::get("/").with("cookie", &text);
    for value in [app_cookie.expose(), &ada.token] {
        let answer = server.portal(with(format!("__Host-eirene={value}"))).await;
        assert_eq!(answer.header("location"), "/login");
    }
    let bearer = Ask::get("/api/v1/me").with("authorization", &format!("Bearer {}", ada.cookie.expose()));
    assert_eq!(server.portal(bearer).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn every_answer_carries_the_protections() {
    let server = Server::start().await;
    let ada = server.ada().await;
    for ask in [
        Ask::get("/login"),
        Ask::get("/").cookie(&ada),
        Ask::get("/nowhere"),
        Ask::get("/api/v1/me"),
        Ask::get("/api/v1/openapi.json"),
        Ask::new("POST", "/login"),
        Ask::new("TRACE", "/login"),
    ] {
        let shown = format!("{} {}", ask.method, ask.path);
        let answer = server.portal(ask).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{shown}: {policy}");
        for part in ["frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"] {
            assert!(policy.contains(part), "{shown}: {policy}");
        }
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{shown}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{shown}");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin", "{shown}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{shown}");
        assert_eq!(answer.header("cache-control"), "no-store", "{shown}");
        assert_eq!(answer.header("x-request-id").len(), 32, "{shown}");
    }
    let given = server.portal(Ask::get("/healthz").with("x-request-id", "mine")).await;
    assert_ne!(given.header("x-request-id"), "mine");
}

#[tokio::test]
async fn the_page_that_hands_over_may_send_its_form_to_that_one_origin() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let page = server.portal(Ask::get(&format!("/open?session={session}")).cookie(&ada)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    let policy = page.header("content-security-policy");
    assert!(policy.contains(&format!("form-action 'self' http://{};", host(session))), "{policy}");
    // Otherwise the browser would send `Origin: null`, and the other side would refuse.
    assert_eq!(page.header("referrer-policy"), "strict-origin");
    assert!(page.body.contains(&format!("action=\"http://{}/.eirene/enter\"", host(session))), "{}", page.body);
}
