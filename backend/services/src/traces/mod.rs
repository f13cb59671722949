//! Traces from a click to an app that answers and its first kernel, for a collector of OpenTelemetry. Off unless the site has named one.
//!
//! Few sorts of spans, each with a fixed list of attributes: no name, path, address or word of anybody's is in one. A session's start is one trace,
//! whose id is the session's ([`eirene_core::trace`]): the request that asked for it, what the launcher and the scheduler did, what its agent tells
//! over the tunnel, and what its person's browser gets first of its app; agents need no way to the collector, and no credential of it. What is sent
//! waits in a queue that is bounded, and nobody ever waits for it: without a collector spans are lost, and nothing else is.
//!
//! Written here instead of taken from the `opentelemetry` crates: those are ten more, which change their interface together with each release, and
//! they send whatever fields `tracing` spans have. Here the list of what leaves the house is short and closed, ids follow from ids there are, and a
//! span may be told after the fact, by whichever process saw its end. What is needed of the protocol is one JSON document ([`otlp`]).

mod exporter;
mod firsts;
mod otlp;
mod spans;
#[cfg(any(test, feature = "testing"))]
#[expect(missing_docs, clippy::unwrap_used, reason = "arrangements of tests")]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use eirene_core::trace::{TraceContext, tail};
use eirene_core::{Session, SessionId};
use eirene_tunnel::message::AgentSpan;
use jiff::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::config;
use crate::health::problem::Trouble;

pub use exporter::Exporter;
use firsts::Awaited;
pub use firsts::Firsts;
pub use spans::Answered;
use spans::Span;

/// Spans that wait to be sent; more are lost.
const MOST_WAITING: usize = 4096;
/// Requests of which is remembered which session they began; each is forgotten when it is answered.
const MOST_BEGUN: usize = 1024;
/// A request that is older than this is not answered any more, as its client is gone: it makes room for others.
const BEGUN_FOR: Duration = Duration::from_mins(1);
/// Spans of an agent that one connection may tell.
pub(crate) const MOST_AGENT_SPANS: usize = 8;

/// Where spans go. Cheap to clone; without a collector it does nothing.
#[derive(Clone, Default)]
pub struct Traces {
    inner: Option<Arc<Inner>>,
}

struct Inner {
    queue: mpsc::Sender<Span>,
    /// Which part of all traces is kept.
    sample: f64,
    begun: Mutex<Begun>,
    awaited: Awaited,
    /// Whether the collector has not taken the last ones.
    away: Arc<AtomicBool>,
}

/// Requests that began a session, while they last: which, and since when.
#[derive(Default)]
struct Begun(HashMap<String, (SessionId, Instant)>);

impl Begun {
    fn add(&mut self, request: &str, session: SessionId, now: Instant) {
        if self.0.len() >= MOST_BEGUN {
            self.0.retain(|_, (_, since)| now.saturating_duration_since(*since) < BEGUN_FOR);
        }
        if self.0.len() < MOST_BEGUN {
            self.0.insert(request.to_owned(), (session, now));
        }
    }

    fn take(&mut self, request: &str) -> Option<SessionId> {
        self.0.remove(request).map(|(session, _)| session)
    }
}

impl Traces {
    /// As it is configured, and who sends what is said, where there is somebody to send it to.
    ///
    /// # Errors
    /// A file of the configuration cannot be read, or holds no certificates.
    pub fn new(config: &config::Traces) -> anyhow::Result<(Self, Option<Exporter>)> {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let away = Arc::new(AtomicBool::new(false));
        let exporter = Exporter::new(config, waiting, Arc::clone(&away))?;
        let Some(exporter) = exporter else { return Ok((Self::default(), None)) };
        let inner = Inner { queue, sample: config.sample, begun: Mutex::default(), awaited: Awaited::default(), away };
        Ok((Self { inner: Some(Arc::new(inner)) }, Some(exporter)))
    }

    /// How sending goes, for the health page; none where nothing is sent.
    pub fn sending(&self) -> Option<Result<(), Trouble>> {
        let away = self.inner.as_ref()?.away.load(Ordering::Relaxed);
        Some(if away { Err(Trouble::TracesAway) } else { Ok(()) })
    }

    /// What a session's agent is told of its trace; nothing where it is not kept.
    pub fn context(&self, session: SessionId) -> Option<TraceContext> {
        let context = TraceContext::of_session(session, true);
        self.keeps(&context.trace).then_some(context)
    }

    /// Whether a trace is kept: by the part of its id that is random, so that everybody who asks is told the same.
    fn keeps(&self, trace: &[u8; 16]) -> bool {
        let Some(inner) = &self.inner else { return false };
        // Its last 32 bits: what stands before them in an id of ours is a time and a counter, alike in all of one millisecond.
        let random = trace[12..].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        (random as f64) < inner.sample * (1_u64 << 32) as f64
    }

    /// A request has begun a session: it is a part of that session's trace.
    pub fn began(&self, request: Option<&str>, session: SessionId) {
        let (Some(inner), Some(request)) = (&self.inner, request) else { return };
        inner.begun.lock().unwrap_or_else(PoisonError::into_inner).add(request, session, Instant::now());
    }

    /// A request was answered. Its trace is its own id, or that of the session it has begun.
    pub fn answered(&self, answered: &Answered<'_>) {
        let Some(inner) = &self.inner else { return };
        let session = inner.begun.lock().unwrap_or_else(PoisonError::into_inner).take(answered.request);
        let Ok(id) = Uuid::parse_str(answered.request) else { return };
        let id = id.into_bytes();
        let context = session.map(|session| TraceContext::of_session(session, true));
        let (trace, parent) = context.map_or((id, None), |context| (context.trace, Some(context.span)));
        if self.keeps(&trace) && answered.is_told() {
            self.say(answered.span(trace, tail(&id), parent));
        }
    }

    /// What a change of a session ended: waiting, starting, or its whole start. From its end on the first of what an app does is awaited.
    pub fn changed(&self, before: &Session, after: &Session, now: Timestamp) {
        if let Some(inner) = &self.inner
            && self.context(after.id).is_some()
        {
            inner.awaited.changed(before, after, Instant::now());
            for span in spans::of_change(before, after, now) {
                self.say(span);
            }
        }
    }

    /// What a session's agent tells of its own work: an agent is its person's, so times that cannot be are passed over.
    pub fn told(&self, session: SessionId, told: &[AgentSpan], now: Timestamp) {
        if self.context(session).is_some() {
            let told = told.iter().take(MOST_AGENT_SPANS);
            told.filter_map(|told| spans::of_agent(session, told, now)).for_each(|span| self.say(span));
        }
    }

    /// The launcher has done something for a session's start.
    pub fn launcher_did(&self, session: SessionId, verb: &str, begins: Timestamp, ends: Timestamp) {
        if self.context(session).is_some() {
            self.say(spans::of_launcher(session, verb, begins, ends));
        }
    }

    /// Which of these are awaited of a session: asked before each request to an app, and nearly always none.
    pub fn awaits(&self, session: SessionId, firsts: Firsts) -> Firsts {
        self.inner.as_ref().map(|inner| inner.awaited.of(session, firsts)).unwrap_or_default()
    }

    /// These came, by one request. Each is told once, however many requests were under way.
    pub fn came(&self, session: SessionId, firsts: Firsts, begins: Timestamp, ends: Timestamp) {
        if let Some(inner) = &self.inner {
            for span in spans::of_firsts(session, inner.awaited.take(session, firsts), begins, ends) {
                self.say(span);
            }
        }
    }

    fn say(&self, span: Span) {
        if let Some(inner) = &self.inner
            && inner.queue.try_send(span).is_err()
        {
            metrics::counter!("eirene_trace_spans_lost_total").increment(1);
        }
    }
}
