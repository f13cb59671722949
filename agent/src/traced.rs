//! How long the agent's own work took before its app answered, for the trace of the session's start: told once, where the job file says that
//! the trace is kept. The portal sends it on; the agent knows no collector.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use eirene_core::trace::TraceContext;
use eirene_tunnel::message::{AgentSpan, AgentWork, FromAgent};

/// The times, as they become known. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traced {
    /// None where nothing is to be told, or all has been.
    times: Arc<Mutex<Option<Times>>>,
}

#[derive(Debug)]
struct Times {
    began_ms: i64,
    prepared_ms: i64,
    /// The first dial that came to something.
    dialled: Option<(i64, i64)>,
}

/// Now, milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Traced {
    /// Of an agent that began then and has prepared everything by now. `traceparent` is what the job file says; what is no context is none.
    pub(crate) fn new(traceparent: Option<&str>, began_ms: i64) -> Self {
        let context: Option<TraceContext> = traceparent.and_then(|text| text.parse().ok());
        let kept = context.is_some_and(|context| context.sampled);
        let times = kept.then(|| Times { began_ms, prepared_ms: now_ms(), dialled: None });
        Self { times: Arc::new(Mutex::new(times)) }
    }

    /// The portal was reached, and the way there began then.
    pub(crate) fn dialled(&self, began_ms: i64) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = times.as_mut().filter(|times| times.dialled.is_none()) {
            times.dialled = Some((began_ms, now_ms()));
        }
    }

    /// The app answers now: what is to be told, once.
    pub(crate) fn ready(&self) -> Option<FromAgent> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let span = |work, from_ms, to_ms| AgentSpan { work, from_ms, to_ms };
        let mut spans = vec![span(AgentWork::Prepare, times.began_ms, times.prepared_ms)];
        spans.extend(times.dialled.map(|(from_ms, to_ms)| span(AgentWork::Dial, from_ms, to_ms)));
        spans.push(span(AgentWork::App, times.prepared_ms, now_ms()));
        Some(FromAgent::Traced { spans })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_way_to_an_app_that_answers_is_told_once() {
        let began_ms = now_ms() - 50;
        let traced = Traced::new(Some(KEPT), began_ms);
        traced.dialled(began_ms + 10);
        traced.dialled(began_ms + 40);
        let Some(FromAgent::Traced { spans }) = traced.clone().ready() else { panic!("nothing is told") };
        let works: Vec<_> = spans.iter().map(|span| span.work).collect();
        assert_eq!(works, [AgentWork::Prepare, AgentWork::Dial, AgentWork::App]);
        assert_eq!((spans[0].from_ms, spans[1].from_ms), (began_ms, began_ms + 10), "the first dial counts");
        assert!(spans.iter().all(|span| span.from_ms <= span.to_ms));
        assert_eq!(traced.ready(), None);
    }

    #[test]
    fn nothing_is_told_that_was_not_asked_for() {
        let dropped = KEPT.replace("-01", "-00");
        for text in [None, Some(dropped.as_str()), Some("garbage")] {
            assert_eq!(Traced::new(text, 0).ready(), None, "{text:?}");
        }
    }
}
