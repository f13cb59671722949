//! The spans there are, and all that is ever said in one.

use eirene_core::trace::TraceContext;
use eirene_core::{JobKind, Session, SessionId, SessionState};
use eirene_tunnel::message::{AgentSpan, AgentWork};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::Firsts;

/// An agent's clock may differ from ours by so much.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);
/// What an agent does before its app answers takes no longer.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// Requests that programs make all the time and nobody waits for.
const NOT_TOLD: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/static/"];

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// The portal.
    Portal,
    /// The session's agent.
    Agent,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Whole(i64),
}

/// A stretch of time in which something was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) service: Service,
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: String,
    /// Whether somebody outside has asked for it.
    pub(super) is_asked: bool,
    pub(super) begins: Timestamp,
    pub(super) ends: Timestamp,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) failed: bool,
}

/// A request that was answered.
pub struct Answered<'a> {
    /// Its id.
    pub request: &'a str,
    /// The verb, one of a few.
    pub method: &'static str,
    /// The route as it is written in the code, without what stands in its place.
    pub route: &'a str,
    /// Which session's or run's, where its address names one.
    pub session: Option<SessionId>,
    /// The status of the answer.
    pub status: StatusCode,
    /// When it came.
    pub begins: Timestamp,
    /// When the answer began.
    pub ends: Timestamp,
}

impl Answered<'_> {
    pub(super) fn is_told(&self) -> bool {
        !self.route.is_empty() && !NOT_TOLD.iter().any(|beginning| self.route.starts_with(beginning))
    }

    pub(super) fn span(&self, trace: [u8; 16], id: [u8; 8], parent: Option<[u8; 8]>) -> Span {
        let mut attributes = vec![
            ("http.request.method", Value::Text(self.method.to_owned())),
            ("http.route", Value::Text(self.route.to_owned())),
            ("http.response.status_code", Value::Whole(self.status.as_u16().into())),
            ("eirene.request.id", Value::Text(self.request.to_owned())),
        ];
        attributes.extend(self.session.map(|session| ("eirene.session.id", Value::Text(session.to_string()))));
        Span {
            service: Service::Portal,
            trace,
            id,
            parent,
            name: format!("{} {}", self.method, self.route),
            is_asked: true,
            begins: self.begins,
            ends: self.ends.max(self.begins),
            attributes,
            failed: self.status.is_server_error(),
        }
    }
}

/// A part of a session's start. Whoever sees it again, after a restart of the portal, says the same span.
fn part(session: SessionId, name: &str, service: Service, begins: Timestamp, ends: Timestamp) -> Span {
    let context = TraceContext::of_session(session, true);
    Span {
        service,
        trace: context.trace,
        id: id_of(context.trace, name, &[]),
        parent: Some(context.span),
        name: name.to_owned(),
        is_asked: false,
        begins,
        ends: ends.max(begins),
        attributes: vec![("eirene.session.id", Value::Text(session.to_string()))],
        failed: false,
    }
}

/// The id of a part, the same whenever it is said; `more` tells apart what there may be several of.
fn id_of(trace: [u8; 16], name: &str, more: &[u8]) -> [u8; 8] {
    let digest = Sha256::new().chain_update(trace).chain_update(name).chain_update(more).finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    id
}

/// What a change of a session ended. Only of its first start: whoever is put back into the queue was asked for long ago.
pub(super) fn of_change(before: &Session, after: &Session, now: Timestamp) -> Vec<Span> {
    let mut spans = Vec::new();
    if after.restart_count > 0 || !is_starting(before.state) {
        return spans;
    }
    let mut span = |name: &str, begins: Timestamp, ends: Timestamp| {
        spans.push(part(after.id, name, Service::Portal, begins, ends));
    };
    if before.job.is_none() && after.job.is_some() {
        span("session.submit", after.submit_begun_at.unwrap_or(after.created_at), now);
    }
    let began = after.started_at.unwrap_or(now);
    if before.state == SessionState::Queued && after.state != SessionState::Queued && after.started_at.is_some() {
        span("session.queued", after.created_at, began);
    }
    if before.state == SessionState::Starting && after.state != SessionState::Starting {
        span("session.starting", began, now);
    }
    if !is_starting(after.state) {
        spans.push(whole(after, now));
    }
    spans
}

fn is_starting(state: SessionState) -> bool {
    matches!(state, SessionState::Queued | SessionState::Starting)
}

/// The start of a session from the click on, for good or bad.
fn whole(session: &Session, now: Timestamp) -> Span {
    let kind = match session.kind() {
        JobKind::Session => "session",
        JobKind::Run => "run",
    };
    let mut span = part(session.id, &format!("{kind}.start"), Service::Portal, session.created_at, now);
    (span.id, span.parent) = (TraceContext::of_session(session.id, true).span, None);
    span.attributes.extend([
        ("eirene.app", Value::Text(session.app.to_string())),
        ("eirene.nodes", Value::Whole(session.resources.nodes.into())),
        ("eirene.gpus", Value::Whole(session.resources.gpus.into())),
    ]);
    span.attributes.extend(session.job.as_ref().map(|job| ("slurm.job.id", Value::Whole(job.id.into()))));
    if session.state != SessionState::Running {
        // Its code, which is one of ours; never its text.
        let reason = session.reason.as_ref().map(|reason| ("eirene.reason", Value::Text(reason.code.clone())));
        span.attributes.extend(reason);
        span.failed = session.state == SessionState::Failed;
    }
    span
}

/// What the launcher did for a start. It is asked again where a submit was lost, and each time is a span.
pub(super) fn of_launcher(session: SessionId, verb: &str, begins: Timestamp, ends: Timestamp) -> Span {
    let mut span = part(session, &format!("launcher.{verb}"), Service::Portal, begins, ends);
    span.id = id_of(span.trace, &span.name, &begins.as_nanosecond().to_be_bytes());
    span
}

/// What came for the first time, by the request that brought it.
pub(super) fn of_firsts(session: SessionId, firsts: Firsts, begins: Timestamp, ends: Timestamp) -> Vec<Span> {
    let named = [(firsts.response, "proxy.first_response"), (firsts.kernel, "kernel.start")];
    let came = named.into_iter().filter(|(came, _)| *came);
    came.map(|(_, name)| part(session, name, Service::Portal, begins, ends)).collect()
}

/// What an agent tells; none where it cannot be.
pub(super) fn of_agent(session: SessionId, told: &AgentSpan, now: Timestamp) -> Option<Span> {
    let name = match told.work {
        AgentWork::Prepare => "agent.prepare",
        AgentWork::Dial => "agent.dial",
        AgentWork::App => "agent.app",
        AgentWork::Unknown => return None,
    };
    let at = |ms: i64| Timestamp::from_millisecond(ms).ok();
    let (begins, ends) = (at(told.from_ms)?, at(told.to_ms)?);
    let (oldest, newest) = (now.checked_sub(LONGEST).ok()?, now.checked_add(CLOCKS).ok()?);
    (oldest <= begins && begins <= ends && ends <= newest).then(|| part(session, name, Service::Agent, begins, ends))
}
