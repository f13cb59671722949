//! What people type for a thing that has an id: the id, how it begins, or the thing's name. Which one is meant is decided here,
//! from what the portal lists; nothing that was typed gets into an address unless it is an id.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::output::printable;

/// Longest text: no name is longer.
const MAX_CHARS: usize = 100;
/// Shortest beginning of an id, so that a slip of the finger hits nothing.
const MIN_PREFIX: usize = 4;
/// Most things named in an error.
const MAX_NAMED: usize = 10;

/// What was typed for a thing with an id of type `I`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference<I> {
    /// A whole id.
    Id(I),
    /// A name, or how an id begins.
    Text(String),
}

/// Text that can be no name.
#[derive(Debug, thiserror::Error)]
#[error("neither a name nor an id")]
pub(crate) struct NoReference;

impl<I: FromStr> FromStr for Reference<I> {
    type Err = NoReference;
    fn from_str(text: &str) -> Result<Self, NoReference> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let well = !text.trim().is_empty() && text.chars().count() <= MAX_CHARS && !text.chars().any(char::is_control);
        if well { Ok(Self::Text(text.to_owned())) } else { Err(NoReference) }
    }
}

/// A thing that may be meant.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<I> {
    pub(crate) id: I,
    pub(crate) name: String,
    /// What tells it from others of its name.
    pub(crate) remark: String,
}

/// Why a text names no single thing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReferenceError {
    /// Nothing is called that.
    #[error("no {kind} of yours is called `{text}` or has an id that begins so")]
    None { kind: &'static str, text: String },
    /// More than one is.
    #[error("`{text}` can mean more than one {kind}; give the id:{named}")]
    Ambiguous { kind: &'static str, text: String, named: String },
}

/// All candidates of that very name.
pub(crate) fn named<'a, I>(text: &str, candidates: &'a [Candidate<I>]) -> Vec<&'a Candidate<I>> {
    candidates.iter().filter(|candidate| candidate.name == text).collect()
}

/// All candidates whose ids begin so.
pub(crate) fn prefixed<'a, I: Display>(text: &str, candidates: &'a [Candidate<I>]) -> Vec<&'a Candidate<I>> {
    let long_enough = text.len() >= MIN_PREFIX;
    candidates.iter().filter(|candidate| long_enough && candidate.id.to_string().starts_with(text)).collect()
}

/// The one that is meant: of that name, else with an id that begins so.
pub(crate) fn choose<I: Display + Copy>(
    kind: &'static str,
    text: &str,
    candidates: &[Candidate<I>],
) -> Result<I, ReferenceError> {
    let mut meant = named(text, candidates);
    if meant.is_empty() {
        meant = prefixed(text, candidates);
    }
    only(kind, text, &meant)
}

/// The only one, or an error that names them all.
pub(crate) fn only<I: Display + Copy>(
    kind: &'static str,
    text: &str,
    meant: &[&Candidate<I>],
) -> Result<I, ReferenceError> {
    match meant {
        [] => Err(ReferenceError::None { kind, text: text.to_owned() }),
        [one] => Ok(one.id),
        many => Err(ReferenceError::Ambiguous { kind, text: text.to_owned(), named: list(many).to_string() }),
    }
}

fn list<I: Display>(many: &[&Candidate<I>]) -> impl Display {
    fmt::from_fn(move |f| {
        for candidate in many.iter().take(MAX_NAMED) {
            write!(f, "\n  {}  {} ({})", candidate.id, one_line(&candidate.name), one_line(&candidate.remark))?;
        }
        match many.len().checked_sub(MAX_NAMED) {
            Some(more) if more > 0 => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    })
}

/// Names come from other programs too: none may look like a line of its own.
fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use eirene_core::SessionId;

    const A: &str = "0190d2a4c3f87b1e8f0e6d2f4b5a6978";
    const B: &str = "0190d2a4ffff7b1e8f0e6d2f4b5a6978";
    const C: &str = "0190e000c3f87b1e8f0e6d2f4b5a6978";

    fn candidates() -> Vec<Candidate<SessionId>> {
        [(A, "maps"), (B, "maps"), (C, "0190d2a4f")]
            .map(|(id, name)| Candidate { id: id.parse().unwrap(), name: name.into(), remark: "running".into() })
            .to_vec()
    }

    #[test]
    fn a_name_goes_before_the_beginning_of_an_id() {
        let choose = |text| choose("session", text, &candidates()).map(|id| id.to_string());
        assert_eq!(choose("0190d2a4f").unwrap(), C);
        assert_eq!(choose("0190d2a4c").unwrap(), A);
        assert_eq!(choose("0190d2a4ff").unwrap(), B);
    }

    #[test]
    fn what_is_not_clear_is_not_guessed() {
        for text in ["maps", "0190d2a4"] {
            let error = choose("session", text, &candidates()).unwrap_err();
            assert!(matches!(error, ReferenceError::Ambiguous { .. }));
            assert!(error.to_string().contains(A) && error.to_string().contains(B), "{error}");
            assert!(!error.to_string().contains(C), "{error}");
        }
        for text in ["map", "019", "0190d2a4c3f87b1e8f0e6d2f4b5a69780", ""] {
            assert!(matches!(choose("session", text, &candidates()), Err(ReferenceError::None { .. })), "{text}");
        }
    }

    #[test]
    fn many_candidates_are_not_all_named() {
        let one = &candidates()[0];
        let error = only("session", "maps", &[one; 13]).unwrap_err().to_string();
        assert!(error.ends_with("and 3 more") && error.lines().count() == 12, "{error}");
    }

    #[test]
    fn a_whole_id_is_an_id() {
        assert_eq!(A.parse::<Reference<SessionId>>().unwrap(), Reference::Id(A.parse().unwrap()));
        assert_eq!("maps".parse::<Reference<SessionId>>().unwrap(), Reference::Text("maps".into()));
        assert!(" ".parse::<Reference<SessionId>>().is_err());
        assert!("x".repeat(101).parse::<Reference<SessionId>>().is_err());
    }
}
