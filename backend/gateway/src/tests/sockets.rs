//! WebSockets through the proxy, and what closes them and other streams.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;

type Socket = WebSocketStream<TcpStream>;

impl Server {
    /// Opens a WebSocket with these headers; the status when it is refused.
    async fn socket(&self, session: SessionId, headers: &[(&str, String)]) -> Result<Socket, u16> {
        let mut request = format!("ws://{}/ws", host(session)).into_client_request().unwrap();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }
}

fn browser(session: SessionId, cookie: &Secret) -> [(&'static str, String); 2] {
    [("cookie", format!("__Host-eirene_app={}", cookie.expose())), ("origin", format!("http://{}", host(session)))]
}

async fn echo(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
}

async fn ends(socket: &mut Socket) {
    let end = timeout(PATIENCE, async { while let Some(Ok(_)) = socket.next().await {} }).await;
    assert!(end.is_ok(), "the socket is still open");
}

#[tokio::test]
async fn a_websocket_passes_and_the_app_sees_no_secret() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    for headers in [browser(session, &cookie).to_vec(), vec![("authorization", format!("Bearer {}", ada.token))]] {
        let mut socket = server.socket(session, &headers).await.unwrap();
        let seen = socket.next().await.unwrap().unwrap().into_text().unwrap();
        assert!(!seen.contains("cookie") && !seen.contains("authorization"), "{seen}");
        echo(&mut socket, "6*7").await;
        echo(&mut socket, &"x".repeat(1_000_000)).await;
    }
}

#[tokio::test]
async fn a_websocket_is_refused_like_a_request() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let pair = |cookie: &Secret| ("cookie", format!("__Host-eirene_app={}", cookie.expose()));
    let origin = |text: &str| ("origin", text.to_owned());
    let own = format!("http://{}", host(session));
    for (headers, status) in [
        (vec![], 404),
        (vec![origin(&own)], 404),
        (vec![pair(&Secret::generate()), origin(&own)], 404),
        (vec![("authorization", format!("Bearer {}", grace.token))], 404),
        (vec![("cookie", format!("__Host-eirene={}", ada.cookie.expose())), origin(&own)], 404),
        (vec![pair(&cookie)], 403),
        (vec![pair(&cookie), origin(PORTAL_ORIGIN)], 403),
        (vec![pair(&cookie), origin(&format!("http://{}", host(SessionId::generate())))], 403),
        (vec![pair(&cookie), origin("null")], 403),
        (vec![pair(&cookie), origin(&format!("{own}.evil.example"))], 403),
        (vec![("authorization", format!("Bearer {}", ada.token)), origin("http://evil.example")], 403),
    ] {
        let got = server.socket(session, &headers).await.err();
        assert_eq!(got, Some(status), "{headers:?}");
    }
    assert_eq!(server.apps.opened(), 0, "the app was never asked");
}

#[tokio::test]
async fn logging_out_closes_what_was_opened_from_that_log_in_only() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let elsewhere = server.sign_in(ada.actor.user.clone()).await;
    let session = server.session(&ada).await.id;
    let (first, second) = (server.enter(&ada, session).await, server.enter(&elsewhere, session).await);
    let mut here = server.socket(session, &browser(session, &first)).await.unwrap();
    let mut there = server.socket(session, &browser(session, &second)).await.unwrap();
    let answer = server.portal(Ask::new("POST", "/logout").form(&ada, &[])).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    ends(&mut here).await;
    assert_eq!(server.socket(session, &browser(session, &first)).await.err(), Some(404));
    there.next().await.unwrap().unwrap();
    echo(&mut there, "still here").await;
}

#[tokio::test]
async fn disabling_a_person_closes_everything_of_theirs() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let mut by_cookie = server.socket(session, &browser(session, &cookie)).await.unwrap();
    let mut by_token = server.socket(session, &[("authorization", format!("Bearer {}", ada.token))]).await.unwrap();
    let endless = server.open(Ask::get("/endless").bearer(&ada).to(&host(session))).await;
    let events = server.open(Ask::get("/api/v1/events").bearer(&ada).to(PORTAL)).await;
    let live = server.open(Ask::get("/live/events").cookie(&ada).to(PORTAL)).await;
    assert_eq!((endless.status(), events.status(), live.status()), (StatusCode::OK, StatusCode::OK, StatusCode::OK));

    let disable = Ask::new("POST", "/api/v1/users/ada/disable").bearer(&admin).json(&serde_json::json!({}));
    assert_eq!(server.portal(disable).await.status, StatusCode::OK);
    ends(&mut by_cookie).await;
    ends(&mut by_token).await;
    for stream in [endless, events, live] {
        assert!(timeout(PATIENCE, stream.into_body().collect()).await.is_ok(), "a stream is still open");
    }
    assert_eq!(server.app(session, Ask::get("/api").bearer(&ada)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.portal(Ask::get("/api/v1/me").bearer(&ada)).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.portal(Ask::get("/").cookie(&ada)).await.header("location"), "/login");
}

#[tokio::test]
async fn deleting_a_token_closes_its_streams() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let mut socket = server.socket(session, &[("authorization", format!("Bearer {}", ada.token))]).await.unwrap();
    let list = server.portal(Ask::get("/api/v1/tokens").bearer(&ada)).await.json();
    let id = list["items"][0]["id"].as_str().unwrap();
    let gone = server.portal(Ask::new("DELETE", &format!("/api/v1/tokens/{id}")).bearer(&ada)).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    ends(&mut socket).await;
}

#[tokio::test]
async fn a_session_that_ends_closes_its_streams() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let mut socket = server.socket(session, &browser(session, &cookie)).await.unwrap();
    server.apps.stop(session);
    ends(&mut socket).await;
}

#[tokio::test]
async fn a_right_that_ended_behind_our_back_is_found_by_the_sweep() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let mut socket = server.socket(session, &browser(session, &cookie)).await.unwrap();
    socket.next().await.unwrap().unwrap();
    // Another process voids it, as `eirened` on the command line does.
    server.test.app.db.replace_password(ada.actor.user.id, "another", None, &entry()).await.unwrap();
    echo(&mut socket, "not yet noticed").await;
    server.test.app.access.sweep().await;
    ends(&mut socket).await;
}

#[tokio::test]
async fn what_is_idle_for_too_long_is_closed_everywhere() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let cookie = server.enter(&ada, session).await;
    let page = async || server.portal(Ask::get("/").cookie(&ada)).await.status;
    let app = async || server.app(session, Ask::get("/api").app_cookie(&cookie)).await.status;

    // Work in the app is use of the log-in, and so is the portal's.
    for _ in 0..3 {
        server.test.clock.advance_s(11 * 3600);
        assert_eq!(app().await, StatusCode::OK);
    }
    server.test.clock.advance_s(11 * 3600);
    assert_eq!(page().await, StatusCode::OK);
    server.test.clock.advance_s(11 * 3600);
    let mut socket = server.socket(session, &browser(session, &cookie)).await.unwrap();
    let live = server.open(Ask::get("/live/events").cookie(&ada).to(PORTAL)).await;
    assert_eq!(live.status(), StatusCode::OK);

    // What is only open is no use.
    server.test.clock.advance_s(6 * 3600);
    server.test.app.access.sweep().await;
    socket.next().await.unwrap().unwrap();
    echo(&mut socket, "still here").await;
    server.test.clock.advance_s(6 * 3600 - 30);
    let code = server.test.app.access.begin_handover(&ada.actor, session).await.unwrap();
    server.test.clock.advance_s(30);
    server.test.app.access.sweep().await;
    ends(&mut socket).await;
    assert!(timeout(PATIENCE, live.into_body().collect()).await.is_ok(), "the feed is still open");
    assert_eq!(app().await, StatusCode::NOT_FOUND);
    assert_eq!(server.socket(session, &browser(session, &cookie)).await.err(), Some(404));
    assert_eq!(page().await, StatusCode::SEE_OTHER);
    assert!(
        server.test.app.access.finish_handover(&code, session).await.is_err(),
        "the code is good, and its log-in is idle"
    );
}
