//! Answers without an end: events as server-sent events, and a log that is followed. They end when the right they were
//! opened with is gone, and when eirened ends; browsers and programs come back by themselves.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use eirene_core::{JobKind, Session, SessionId, UserId};
use eirene_http::problem::{HttpError, Problem};
use eirene_services::access::{Grant, Ticket};
use eirene_services::actor::Actor;
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_services::events::{Event, EventKind, Fact};
use eirene_services::places::{Place, Places};
use eirene_words::say;
use futures_util::future::ready;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::view::{AlertView, OperationView, RunView, SessionView, SpaceView};

/// A comment is sent this often, so that nobody in between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a browser waits before it comes back.
const COME_BACK: Duration = Duration::from_secs(1);

/// When somebody who has as many is to try again.
const TRY_AGAIN_S: u64 = 10;

/// A place among the person's streams.
fn take(places: &Places<UserId>, user: UserId) -> Result<Place<UserId>, HttpError> {
    places.take(user).ok_or_else(|| {
        HttpError::from(Problem {
            retry_after_s: Some(TRY_AGAIN_S),
            ..Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", say("problem.too_many_streams"))
        })
    })
}

/// Which events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// The caller's own.
    Own,
    /// One session's or run's.
    One(JobKind, SessionId),
    /// Everybody's.
    All,
}

/// Whose log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogOf {
    /// A session's.
    Session(SessionId),
    /// A run's, or one rank's of it.
    Run(SessionId, Option<u32>),
}

/// Events as they happen, after those that happened since `last_id`.
pub(crate) async fn events(
    app: &App,
    actor: &Actor,
    ticket: Ticket,
    wanted: Wanted,
    last_id: Option<i64>,
) -> Result<Response, HttpError> {
    let grant = app.access.admit(ticket).await?.ok_or(AppError::Unauthenticated)?;
    let place = take(&app.streams, grant.user)?;
    let events = match wanted {
        Wanted::Own => app.events.subscribe(actor, None, last_id).await?,
        Wanted::One(kind, id) => app.events.subscribe(actor, Some((kind, id)), last_id).await?,
        Wanted::All => app.events.subscribe_all(actor, last_id).await?,
    };
    let first = stream::once(async { Ok::<_, Infallible>(sse::Event::default().retry(COME_BACK)) });
    let (shown, reader) = (app.clone(), actor.user.id);
    let rest = events.then(move |event| {
        let app = shown.clone();
        async move {
            let data = match data(&app, reader, &event).await {
                Err(error @ AppError::Unavailable { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, event = event.id, "An event cannot be shown");
                    None
                }
                Ok(data) => data,
            };
            Ok(data.map(|data| {
                let shown = sse::Event::default().event(event.kind.as_str()).data(data);
                match event.id {
                    Some(id) => shown.id(id.to_string()),
                    None => shown,
                }
            }))
        }
    });
    // Where the database is away the stream ends; the browser comes back and goes on after the last event that it has.
    let rest = rest.take_while(|shown| ready(shown.is_ok())).filter_map(|shown| ready(shown.ok().flatten())).map(Ok);
    let stream = first.chain(rest).take_until(end(app, grant, place));
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// What the API shows `reader` of an event; nothing where what it is about is gone.
async fn data(app: &App, reader: UserId, event: &Event) -> Result<Option<String>, AppError> {
    let view = match &event.fact {
        Fact::Session(session) => Some(job(app, session)?),
        Fact::Operation(operation) => Some(text(&OperationView::from((**operation).clone()))?),
        Fact::Space(seen) => Some(text(&SpaceView::from((**seen).clone()))?),
        Fact::Alert(listed) => Some(text(&AlertView::from(&**listed))?),
        Fact::Small(value) => Some(value.to_string()),
        Fact::Kept(id) => match event.kind {
            EventKind::State => match event.session {
                Some(id) => app.sessions.as_it_is(id).await?.map(|session| job(app, &session)).transpose()?,
                None => None,
            },
            EventKind::Operation => match id.parse() {
                Ok(id) => {
                    let operation = app.operations.as_it_is(id).await?.filter(|of| Some(of.user) == event.owner);
                    operation.map(|operation| text(&OperationView::from(operation))).transpose()?
                }
                Err(_) => None,
            },
            EventKind::Alert => match id.parse() {
                Ok(id) => {
                    app.alerts.as_it_is(id, reader).await?.map(|listed| text(&AlertView::from(&listed))).transpose()?
                }
                Err(_) => None,
            },
            // These are not kept, or are small.
            EventKind::Sample
            | EventKind::Log
            | EventKind::Nodes
            | EventKind::Scratch
            | EventKind::Space
            | EventKind::Notice => None,
        },
    };
    Ok(view)
}

fn job(app: &App, session: &Session) -> Result<String, AppError> {
    let copied = app.nodes.copied(session);
    match session.kind() {
        JobKind::Session => text(&SessionView::new(session, &app.config).with_copied(copied.as_ref())),
        JobKind::Run => text(&RunView::new(session).with_copied(copied.as_ref())),
    }
}

fn text(view: &impl Serialize) -> Result<String, AppError> {
    serde_json::to_string(view).map_err(|error| AppError::Internal(error.into()))
}

/// The log so far, and what is added to it.
pub(crate) async fn log(
    app: &App,
    actor: &Actor,
    ticket: Ticket,
    of: LogOf,
    follow: bool,
) -> Result<Response, HttpError> {
    let body = if follow {
        let grant = app.access.admit(ticket).await?.ok_or(AppError::Unauthenticated)?;
        let place = take(&app.streams, grant.user)?;
        let pieces = match of {
            LogOf::Session(id) => app.logs.follow(actor, JobKind::Session, id).await?,
            LogOf::Run(id, rank) => app.runs.follow_log(actor, id, rank).await?,
        };
        Body::from_stream(pieces.map(Ok::<_, Infallible>).take_until(end(app, grant, place)))
    } else {
        Body::from(match of {
            LogOf::Session(id) => app.logs.read(actor, JobKind::Session, id).await?,
            LogOf::Run(id, rank) => app.runs.read_log(actor, id, rank).await?,
        })
    };
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, text)], body).into_response())
}

/// What is sent, until the right is gone with which it is sent, or eirened ends.
pub(crate) async fn sent(
    app: &App,
    ticket: Ticket,
    body: Body,
) -> Result<impl Stream<Item = Result<Bytes, axum::Error>> + Send + Unpin + use<>, AppError> {
    let grant = app.access.admit(ticket).await?.ok_or(AppError::Unauthenticated)?;
    let shutdown = app.shutdown.clone();
    let end = async move {
        tokio::select! {
            () = grant.revoked.cancelled() => {}
            () = shutdown.cancelled() => {}
        }
    };
    Ok(body.into_data_stream().take_until(Box::pin(end)))
}

/// Waits until a stream has to end; its place is taken for as long.
fn end(app: &App, grant: Arc<Grant>, place: Place<UserId>) -> impl Future<Output = ()> + Send + 'static {
    let shutdown = app.shutdown.clone();
    async move {
        let _place = place;
        tokio::select! {
            () = grant.revoked.cancelled() => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// The number of the last event a client has: its header, else what its URL says.
pub(crate) fn last_id(headers: &HeaderMap, in_url: Option<i64>) -> Result<Option<i64>, HttpError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(in_url) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok()).filter(|id| *id >= 0);
    let wrong = || HttpError::invalid(vec![FieldError::new("Last-Event-ID", say("wrong.event"))]);
    number.map(Some).ok_or_else(wrong)
}
