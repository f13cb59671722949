//! HTTP as a whole: a real listener in front of a whole application in memory, with an app of our own behind the proxy.

mod api;
mod app;
mod causes;
mod cluster_pages;
mod efficiency;
mod file_copies;
mod file_looks;
mod file_moves;
mod file_pages;
mod file_processes;
mod files;
mod health;
mod limits;
mod live_files;
mod log_in;
mod making;
mod metrics;
mod node_pages;
mod origins;
mod pass;
mod permission_pages;
mod refusals;
mod routes;
mod runs;
mod scans;
mod scratch;
mod silences;
mod sockets;
mod space_pages;
mod spaces;
mod starts;
mod storage;
mod traces;
mod uploads;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use eirene_core::secret::Secret;
use eirene_core::{Clock as _, Login, LoginId, Role, Scope, Session, SessionId, User};
use eirene_database::{Inserted, Start};
use eirene_services::actor::{Actor, Via};
use eirene_services::logins;
use eirene_services::testing::{self, PATIENCE, TestApp, entry};
use eirene_services::tokens::NewToken;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use self::app::FakeApps;

const PORTAL: &str = "eirene.localhost:8080";
const PORTAL_ORIGIN: &str = "http://eirene.localhost:8080";
const FORM: &str = "application/x-www-form-urlencoded";

/// A listener, and everything behind it.
struct Server {
    test: TestApp,
    apps: FakeApps,
    address: SocketAddr,
}

/// What came back.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The fields a problem names.
    fn fields(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }
}

/// Somebody: their browser's cookie and their program's token.
struct Person {
    actor: Actor,
    cookie: Secret,
    token: String,
}

impl Server {
    async fn start() -> Self {
        Self::serve(TestApp::new().await).await
    }

    async fn serve(test: TestApp) -> Self {
        test.app.cluster.publish(testing::snapshot(vec![]));
        // A second server on the same directory does without.
        let _ = test.app.samples.open();
        let apps = FakeApps::default();
        let service = super::service_with(test.app.clone(), Arc::new(apps.clone()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let connection = service.connection(peer.ip(), None);
                let served = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), connection)
                    .with_upgrades();
                tokio::spawn(served);
            }
        });
        Self { test, apps, address }
    }

    async fn person(&self, name: &str, uid: u32, role: Role) -> Person {
        let actor = self.test.person(name, uid, role).await;
        self.sign_in(actor.user).await
    }

    async fn ada(&self) -> Person {
        self.person("ada", 2001, Role::Researcher).await
    }

    async fn grace(&self) -> Person {
        self.person("grace", 2002, Role::Researcher).await
    }

    async fn admin(&self) -> Person {
        self.person("root-admin", 2003, Role::Admin).await
    }

    /// Another browser and another program of a person.
    async fn sign_in(&self, user: User) -> Person {
        // As of now: a test may have voided its access.
        let user = self.test.app.db.user(user.id).await.unwrap().unwrap();
        let now = self.test.clock.now();
        let cookie = Secret::generate();
        let login = Login {
            id: LoginId::generate(),
            user: user.id,
            created_at: now,
            last_seen_at: now,
            expires_at: now + logins::ABSOLUTE,
            address: None,
            user_agent: None,
        };
        self.test.app.db.insert_login(user.access_epoch, &login, &cookie.hash(), &entry()).await.unwrap();
        let actor = Actor { user, via: Via::Login(login.id), address: None, request_id: None };
        let admin = actor.user.is_admin();
        let scopes = Scope::ALL.iter().copied().filter(|scope| admin || *scope != Scope::Admin).collect();
        let new = NewToken { name: "all".into(), scopes: Some(scopes), expires_in_s: None };
        let token = self.test.app.tokens.create(&actor, new).await.unwrap().secret.expose().to_owned();
        Person { actor, cookie, token }
    }

    /// A session of this person; its app answers.
    async fn session(&self, owner: &Person) -> Session {
        let mut session = testing::session(owner.actor.user.username.as_str());
        session.owner = owner.actor.user.id;
        session.marker = Secret::generate().expose().to_owned();
        session.state = eirene_core::SessionState::Running;
        assert!(matches!(self.test.app.db.insert_session(&session, Start::default()).await.unwrap(), Inserted::New));
        self.apps.run(session.id);
        session
    }

    /// A run of this person, of two ranks.
    async fn run(&self, owner: &Person) -> Session {
        let mut run = testing::session(owner.actor.user.username.as_str());
        run.owner = owner.actor.user.id;
        run.marker = Secret::generate().expose().to_owned();
        run.state = eirene_core::SessionState::Running;
        run.program = Some(testing::program());
        assert!(matches!(self.test.app.db.insert_session(&run, Start::default()).await.unwrap(), Inserted::New));
        run
    }

    /// A browser that was handed over to this session: its app cookie.
    async fn enter(&self, person: &Person, session: SessionId) -> Secret {
        let code = self.test.app.access.begin_handover(&person.actor, session).await.unwrap();
        self.test.app.access.finish_handover(&code, session).await.unwrap().0
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.open(request).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Answer { status: head.status, headers: head.headers, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Sends, and leaves the body to be read.
    async fn open(&self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    async fn portal(&self, request: Ask) -> Answer {
        self.send(request.to(PORTAL)).await
    }

    async fn app(&self, session: SessionId, request: Ask) -> Answer {
        self.send(request.to(&host(session))).await
    }
}

/// The host of a session's origin.
fn host(session: SessionId) -> String {
    format!("{session}.apps.eirene.localhost:8080")
}

/// A request in the making.
#[derive(Clone)]
struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Ask {
    fn new(method: &str, path: &str) -> Self {
        let method = method.parse().unwrap();
        Self { method, path: path.to_owned(), headers: vec![], body: vec![] }
    }

    fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn bearer(self, person: &Person) -> Self {
        let value = format!("Bearer {}", person.token);
        self.with("authorization", &value)
    }

    fn cookie(self, person: &Person) -> Self {
        let value = format!("{}={}", eirene_http::cookies::LOGIN, person.cookie.expose());
        self.with("cookie", &value)
    }

    fn app_cookie(self, secret: &Secret) -> Self {
        let value = format!("{}={}", eirene_http::cookies::APP, secret.expose());
        self.with("cookie", &value)
    }

    /// As a browser's top-level navigation.
    fn page(self) -> Self {
        self.with("sec-fetch-mode", "navigate").with("sec-fetch-dest", "document").with("accept", "text/html")
    }

    fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self.with("content-type", "application/json")
    }

    /// A form as the portal's own page sends it.
    fn form(mut self, person: &Person, fields: &[(&str, &str)]) -> Self {
        let token = logins::form_token(&person.cookie);
        let fields: Vec<_> =
            fields.iter().copied().chain([(eirene_http::extract::FORM_TOKEN, token.as_str())]).collect();
        self.body = serde_html_form::to_string(fields).unwrap().into_bytes();
        self.with("content-type", FORM).with("origin", PORTAL_ORIGIN).cookie(person)
    }

    fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    fn to(self, host: &str) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri(self.path).header(header::HOST, host);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.into())).unwrap()
    }
}
