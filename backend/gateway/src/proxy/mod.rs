//! The proxy: each session's app on an origin of its own.
//!
//! Every request is decided about ([`guard`]), made fit for the app ([`headers`]), sent over a kept connection
//! ([`link`]) through the session's tunnel ([`upstream`]), and its answer passed on as it comes ([`body`]). Nothing is
//! buffered, nothing waits for the database when the same browser was just here, and nothing is logged per request.
//! What the origin says itself is in [`pages`], by which id it and the log say it in [`asked`]; what of it is told in the session's trace, in [`firsts`].

mod apps;
mod asked;
mod body;
mod firsts;
mod guard;
mod headers;
mod link;
mod pages;
mod upstream;

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use eirene_core::SessionId;
use eirene_http::crowd::Standing;
use eirene_http::problem::{HttpError, Problem};
use eirene_http::request::client_address;
use eirene_services::access::Grant;
use eirene_services::app::App;
use eirene_services::workers::WorkerId;
use eirene_words::say;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use self::asked::Asked;
use self::body::AppBody;
use self::firsts::MaybeFirst;
use self::guard::Decision;
use self::link::{Link, Over, Pool, Unsent};
#[cfg(test)]
pub(super) use self::pages::ROUTES;
pub(super) use self::pages::unknown_host;
pub use self::upstream::{ByteStream, Upstreams};

/// How often what is no longer used is dropped, and open streams are checked again.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// A WebSocket's hand-over on both sides takes at most this long.
const UPGRADE_WAIT: Duration = Duration::from_secs(10);
/// Buffer of each direction of a WebSocket.
const SOCKET_BUFFER: usize = 8 * 1024;

/// The proxy. Cheap to clone.
#[derive(Clone)]
pub struct Proxy {
    app: App,
    upstreams: Arc<dyn Upstreams>,
    /// One a worker: a kept connection is moved by the thread that made it.
    pools: Arc<[Arc<Pool>]>,
    tracker: TaskTracker,
    scheme: &'static str,
    requests: metrics::Counter,
    sockets: metrics::Gauge,
}

/// Why the app gave no answer.
enum NoAnswer {
    /// There is no way to it at the moment.
    Away,
    /// The right to it ended while it was asked.
    Revoked,
    /// It broke off while it was asked.
    Broken(hyper::Error),
}

impl Proxy {
    /// A proxy to the apps behind `upstreams`.
    pub fn new(app: App, upstreams: Arc<dyn Upstreams>) -> Self {
        let scheme = if app.config.apps_scheme() == "https" { "https" } else { "http" };
        // Where the portal's connections are, hardly any of a session's is.
        let (count, sharing) = (app.workers.count(), app.workers.for_sessions());
        let pools = (0..count).map(|_| Arc::new(Pool::one_of(sharing))).collect();
        let proxy = Self {
            app,
            upstreams,
            pools,
            tracker: TaskTracker::new(),
            scheme,
            requests: metrics::counter!("eirene_proxy_requests_total"),
            sockets: metrics::gauge!("eirene_proxy_websockets"),
        };
        proxy.tracker.spawn(sweep(proxy.clone()));
        proxy
    }

    /// The kept connections of this thread.
    fn pool(&self) -> &Arc<Pool> {
        &self.pools[WorkerId::here().index()]
    }

    /// Answers one request to a session's origin.
    pub(super) async fn answer(&self, session: SessionId, peer: IpAddr, request: Request<Incoming>) -> Response {
        self.requests.increment(1);
        let asked = Asked::of(session);
        if request.uri().path().starts_with(pages::OURS) {
            return pages::own(&self.app, &asked, request).instrument(asked.span()).await;
        }
        let navigation = guard::is_navigation(request.method(), request.headers());
        let (grant, by_browser) = match guard::decide(&self.app, &asked, request.method(), request.headers()).await {
            Ok(Decision::Pass { grant, by_browser }) => (grant, by_browser),
            Ok(Decision::Nobody) if navigation => return pages::to_portal(&self.app, session),
            Ok(Decision::Nobody) => return pages::not_found(&asked),
            Ok(Decision::Foreign) => return pages::foreign(&asked),
            Err(error) => return pages::finish(&asked, HttpError::from(error).problem().clone()),
        };
        if let Some(standing) = request.extensions().get::<Standing>() {
            standing.signed_in(grant.user);
        }
        let first = MaybeFirst::of(&self.app, session, by_browser, &request);
        match self.forward(&asked, peer, request, grant).await {
            Ok(response) => {
                if let Some(first) = first {
                    first.answered(&self.app, response.status());
                }
                response
            }
            Err(NoAnswer::Away) => pages::not_there(&self.app, &asked, navigation).instrument(asked.span()).await,
            Err(NoAnswer::Revoked) => pages::not_found(&asked),
            Err(NoAnswer::Broken(error)) if error.is_user() => {
                let problem = Problem::new(StatusCode::BAD_REQUEST, "broken_body", say("problem.broken_body"));
                pages::finish(&asked, problem)
            }
            Err(NoAnswer::Broken(error)) => {
                tracing::debug!(request.id = %asked.id(), session.id = %session, %error, "An app broke off");
                let problem = Problem::new(StatusCode::BAD_GATEWAY, "app_broke_off", say("problem.app_broke_off"));
                pages::finish(&asked, Problem { retry_after_s: Some(1), ..problem })
            }
        }
    }

    async fn forward(
        &self,
        asked: &Asked,
        peer: IpAddr,
        mut request: Request<Incoming>,
        grant: Arc<Grant>,
    ) -> Result<Response, NoAnswer> {
        let websocket = request.method() == Method::GET && headers::wants_websocket(request.headers());
        let browser_side = websocket.then(|| hyper::upgrade::on(&mut request));
        let client = client_address(peer, request.headers(), &self.app.config.server.trusted_proxies);
        headers::for_app(request.headers_mut(), websocket, client, self.scheme);
        if let Some(app) = grant.app.as_ref().filter(|_| !request.method().is_safe()) {
            apps::by_token(app, request.headers_mut());
        }
        if request.uri().authority().is_some() {
            let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
            *request.uri_mut() = Uri::from(path);
        }
        *request.version_mut() = Version::HTTP_11;

        let (response, link) = self.send(asked, request, grant).await?;
        let (mut head, body) = response.into_parts();
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            headers::for_browser(&mut head.headers, false);
            let body = AppBody::new(body, link, Arc::clone(self.pool()), asked.session).await;
            return Ok(Response::from_parts(head, Body::new(body)));
        }
        let Some(browser_side) = browser_side else {
            // An app that changes the protocol unasked is broken.
            return Err(NoAnswer::Away);
        };
        let app_side = hyper::upgrade::on(Response::from_parts(head.clone(), body));
        headers::for_browser(&mut head.headers, true);
        self.tracker.spawn(join(asked.session, link, browser_side, app_side, self.sockets.clone()));
        Ok(Response::from_parts(head, Body::empty()))
    }

    /// Sends over a kept connection, or a new one.
    async fn send(
        &self,
        asked: &Asked,
        mut request: Request<Incoming>,
        grant: Arc<Grant>,
    ) -> Result<(http::Response<Incoming>, Link), NoAnswer> {
        let session = asked.session;
        while let Some(mut link) = self.pool().take(session).await {
            match link.send(request, &grant).await {
                Ok(response) => return Ok((response, link)),
                Err(Unsent::Back(back)) => request = *back,
                Err(Unsent::Over(over)) => return Err(over.into()),
                Err(Unsent::Lost(error)) => return Err(NoAnswer::Broken(error)),
            }
        }
        let gone = self.upstreams.revoked(session);
        let stream = self.upstreams.open(session).instrument(asked.span()).await.map_err(|_| NoAnswer::Away)?;
        let mut link = Link::start(stream, gone).await.map_err(|_| NoAnswer::Away)?;
        match link.send(request, &grant).await {
            Ok(response) => Ok((response, link)),
            // A new connection that breaks at once leads to an app that does not listen (any more).
            Err(Unsent::Back(_)) => Err(NoAnswer::Away),
            Err(Unsent::Over(over)) => Err(over.into()),
            Err(Unsent::Lost(error)) if error.is_incomplete_message() || error.is_canceled() => Err(NoAnswer::Away),
            Err(Unsent::Lost(error)) => Err(NoAnswer::Broken(error)),
        }
    }
}

impl From<Over> for NoAnswer {
    fn from(over: Over) -> Self {
        match over {
            Over::Revoked => Self::Revoked,
            Over::Gone => Self::Away,
        }
    }
}

/// Passes a WebSocket's bytes both ways until one side or the right to it is gone.
async fn join(
    session: SessionId,
    mut link: Link,
    browser_side: OnUpgrade,
    app_side: OnUpgrade,
    sockets: metrics::Gauge,
) {
    let both = async { tokio::join!(link.finish_upgrade(), app_side, browser_side) };
    let (app, browser) = match tokio::time::timeout(UPGRADE_WAIT, both).await {
        Ok(((), Ok(app), Ok(browser))) => (app, browser),
        Ok(((), app, browser)) => {
            let (app, browser) = (app.is_ok(), browser.is_ok());
            tracing::debug!(session.id = %session, app, browser, "A WebSocket was not handed over");
            return;
        }
        Err(_) => return,
    };
    sockets.increment(1);
    let (mut app, mut browser) = (TokioIo::new(app), TokioIo::new(browser));
    let copy = tokio::io::copy_bidirectional_with_sizes(&mut browser, &mut app, SOCKET_BUFFER, SOCKET_BUFFER);
    tokio::select! {
        _ = copy => {}
        _ = poll_fn(|cx| link.poll_over(cx)) => {}
    }
    sockets.decrement(1);
}

/// Drops what is no longer used, and closes what was revoked behind our back.
async fn sweep(proxy: Proxy) {
    loop {
        tokio::select! {
            () = proxy.app.shutdown.cancelled() => return,
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
        for pool in &*proxy.pools {
            pool.sweep();
        }
        proxy.app.access.sweep().await;
    }
}
