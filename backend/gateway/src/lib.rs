//! The gateway: what comes from outside comes through here. [`server`] are the listeners with TLS, [`tunnel`] is where agents dial in, [`proxy`]
//! leads to them, and [`service`] is one HTTP service for the portal's origin and those of all sessions.
//!
//! The `Host` header decides, [compared](host) as DNS does: the portal's own name goes to the [router](portal_router) with the API, the pages
//! and the live feed; `<session id>.<apps domain>` goes to the [proxy]; anything else is answered 421, or to a browser by a
//! page, but for the health checks. Nothing here knows the database, and nothing decides what a service should decide.

mod health;
mod middleware;
pub mod proxy;
pub mod server;
#[cfg(test)]
mod tests;
pub mod tunnel;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use eirene_core::{Sentence, SessionId};
use eirene_http::crowd::Standing;
use eirene_http::host;
use eirene_http::problem::{HttpError, Problem};
use eirene_http::request::RequestInfo;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_words::say;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use tower::ServiceExt as _;

use self::proxy::{Proxy, Upstreams};

pub use self::health::metrics_router;

/// Answers the requests of all connections. Cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    inner: Arc<Inner>,
}

struct Inner {
    app: App,
    portal: Router,
    proxy: Proxy,
}

/// Answers the requests of one connection.
#[derive(Clone)]
pub struct Connection {
    service: HttpService,
    peer: IpAddr,
    standing: Option<Standing>,
}

/// Where a request belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Portal,
    Session(SessionId),
    Nowhere,
    Malformed,
}

/// The service for `app`, with the agents' tunnels behind the proxy.
pub fn service(app: App) -> HttpService {
    let upstreams: Arc<dyn Upstreams> = Arc::new(app.tunnels.clone());
    service_with(app, upstreams)
}

/// The service for `app`, with something else behind the proxy: for measuring it alone.
pub fn service_with(app: App, upstreams: Arc<dyn Upstreams>) -> HttpService {
    health::install();
    let portal = portal_router(app.clone());
    let proxy = Proxy::new(app.clone(), upstreams);
    HttpService { inner: Arc::new(Inner { app, portal, proxy }) }
}

/// Everything on the portal's own origin, with the middleware around it.
pub fn portal_router(app: App) -> Router {
    Router::new()
        .merge(eirene_portal::router())
        .merge(eirene_api::live::router(&app))
        .merge(eirene_api::router())
        .merge(health::router())
        .fallback(nothing_here)
        .layer(axum::middleware::from_fn_with_state(app.clone(), middleware::guard))
        .with_state(app)
}

async fn nothing_here() -> HttpError {
    AppError::NotFound.into()
}

impl HttpService {
    /// The service of one accepted connection from `peer`, whose place among the others may be told. The scheme is the configuration's, whether TLS
    /// ends here or before us.
    pub fn connection(&self, peer: IpAddr, standing: Option<Standing>) -> Connection {
        Connection { service: self.clone(), peer, standing }
    }

    fn place<B>(&self, request: &Request<B>) -> Place {
        let config = &self.inner.app.config;
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (host, more) = (hosts.next(), hosts.next());
        let (Some(host), None) = (host.map(http::HeaderValue::as_bytes), more) else { return Place::Malformed };
        if request.uri().authority().is_some_and(|authority| !host::same_authority(authority.as_str().as_bytes(), host))
        {
            return Place::Malformed;
        }
        if host::same_authority(host, config.portal_authority().as_bytes()) {
            return Place::Portal;
        }
        match host::session_of(host, &config.server.apps_domain) {
            Some(session) => Place::Session(session),
            // Load balancers ask by address; these answers hold nothing that a foreign page could use.
            None if matches!(request.uri().path(), "/healthz" | "/readyz") => Place::Portal,
            None => Place::Nowhere,
        }
    }

    async fn answer(self, peer: IpAddr, mut request: Request<Incoming>) -> Response {
        let inner = &self.inner;
        match self.place(&request) {
            Place::Session(session) => inner.proxy.answer(session, peer, request).await,
            Place::Portal => {
                let info = RequestInfo::of(peer, request.headers(), &inner.app.config.server.trusted_proxies)
                    .with_standing(request.extensions().get().cloned());
                request.extensions_mut().insert(info);
                let Ok(response) = inner.portal.clone().oneshot(request.map(Body::new)).await;
                response
            }
            Place::Nowhere => proxy::unknown_host(&inner.app, &request).unwrap_or_else(|| {
                problem(StatusCode::MISDIRECTED_REQUEST, "unknown_host", say("problem.unknown_host"))
            }),
            Place::Malformed => problem(StatusCode::BAD_REQUEST, "bad_host", say("problem.bad_host")),
        }
    }
}

fn problem(status: StatusCode, code: &'static str, text: Sentence) -> Response {
    Problem::new(status, code, text).into_json(&RequestInfo::new(None).id.to_string()).into_response()
}

impl hyper::service::Service<Request<Incoming>> for Connection {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (service, peer, standing) = (self.service.clone(), self.peer, self.standing.clone());
        let in_progress = standing.as_ref().map(Standing::begin);
        if let Some(standing) = standing {
            request.extensions_mut().insert(standing);
        }
        Box::pin(async move {
            let answer = service.answer(peer, request).await;
            if let Some(in_progress) = in_progress.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
                in_progress.upgrade();
            }
            Ok(answer)
        })
    }
}
