//! To which trace something belongs, and below what in it: W3C Trace Context (w3.org/TR/trace-context), version 00.
//!
//! Ids are made of ids that there are anyway: a session's is its trace's, so that whoever sees a part of its start knows where it belongs, after
//! any restart and without a word between them. Nothing in a context is secret, and nothing is decided by one.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;

use crate::SessionId;

/// Where something belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; not all zero.
    pub trace: [u8; 16],
    /// What it is a part of; not all zero.
    pub span: [u8; 8],
    /// Whether the trace is kept.
    pub sampled: bool,
}

/// A text that is no context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a `traceparent` as W3C Trace Context writes it")]
pub struct NoTraceContext;

impl TraceContext {
    /// The start of a session, below which lies all that is a part of it.
    pub fn of_session(session: SessionId, sampled: bool) -> Self {
        let trace = session.to_bytes();
        Self { trace, span: tail(&trace), sampled }
    }
}

/// The half of an id that is random, as the id of its first span.
pub fn tail(id: &[u8; 16]) -> [u8; 8] {
    let mut tail = [0; 8];
    tail.copy_from_slice(&id[8..]);
    tail
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (HEXLOWER.encode(&self.trace), HEXLOWER.encode(&self.span));
        write!(formatter, "00-{trace}-{span}-{:02x}", u8::from(self.sampled))
    }
}

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    fn from_str(text: &str) -> Result<Self, NoTraceContext> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(NoTraceContext);
        let (version, trace, span, flags) =
            (bytes::<1>(next()?)?, bytes(next()?)?, bytes(next()?)?, bytes::<1>(next()?)?);
        // A later version may say more, behind another dash.
        let is_whole = version[0] != 0 || parts.next().is_none();
        if version[0] == 0xff || !is_whole || trace == [0; 16] || span == [0; 8] {
            return Err(NoTraceContext);
        }
        Ok(Self { trace, span, sampled: flags[0] & 1 == 1 })
    }
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], NoTraceContext> {
    let read = HEXLOWER.decode(text.as_bytes()).map_err(|_| NoTraceContext)?;
    read.try_into().map_err(|_| NoTraceContext)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_own_example_is_read_and_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = text.parse().unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), text);
        assert!(!text.replace("-01", "-00").parse::<TraceContext>().unwrap().sampled);
        assert!(format!("cc{}-what-the-future-will-be-like", &text[2..]).parse::<TraceContext>().is_ok());
    }

    #[test]
    fn what_is_no_context_is_refused() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for wrong in [
            "",
            "00",
            &good.replace('4', "G"),
            &good.to_uppercase(),
            &good.replace("00-4", "ff-4"),
            &format!("{good}-more"),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replace("b7-01", "b7-1"),
        ] {
            assert_eq!(wrong.parse::<TraceContext>(), Err(NoTraceContext), "{wrong}");
        }
    }

    #[test]
    fn a_sessions_trace_is_its_id() {
        let session = SessionId::generate();
        let text = TraceContext::of_session(session, true).to_string();
        assert_eq!(text, format!("00-{session}-{}-01", &session.to_string()[16..]));
        assert_eq!(text.parse(), Ok(TraceContext::of_session(session, true)));
    }
}
