//! What is under way.

use std::time::{Duration, Instant};

use eirene_train_runtime::{Group, Manner};
use pyo3::prelude::*;

use crate::error::raised;

/// How long a wait goes on before it looks whether the interpreter wants to interrupt it.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Something under way.
#[pyclass(frozen, module = "eirene_train._native")]
pub(crate) struct Work {
    inner: eirene_train_runtime::Work,
    /// What it goes on in, so that it can end when Python lets go of the group first.
    _group: Group,
}

impl Work {
    pub(crate) fn new(inner: eirene_train_runtime::Work, group: &Group) -> Self {
        Self { inner, _group: group.clone() }
    }
}

#[pymethods]
impl Work {
    /// Waits until it is over.
    #[pyo3(signature = (timeout_ms = None))]
    fn wait(&self, py: Python<'_>, timeout_ms: Option<u64>) -> PyResult<()> {
        let deadline = timeout_ms.map(|milliseconds| Instant::now() + Duration::from_millis(milliseconds));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            let outcome = py.detach(|| self.inner.wait(Some(slice)));
            match outcome {
                Ok(()) => return Ok(()),
                Err(error) if self.inner.is_done() || left.is_some_and(|left| left <= slice) => {
                    // It may have ended just after the wait did; then what it says itself counts.
                    let error =
                        if self.inner.is_done() { self.inner.wait(Some(Duration::ZERO)).err() } else { Some(error) };
                    return error.map_or(Ok(()), |error| Err(raised(&error)));
                }
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// Whether it is over, well or badly.
    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    /// The group's rank that a message came from.
    fn source(&self) -> Option<u32> {
        self.inner.source()
    }

    /// How the ranks come to each other's data, and the rank of the world whose memory cannot be reached, if that is why.
    fn manner(&self) -> Option<(&'static str, Option<u32>)> {
        self.inner.manner().map(|manner| match manner {
            Manner::InPlace => ("in_place", None),
            Manner::Small => ("small", None),
            Manner::Chosen => ("chosen", None),
            Manner::Nodes => ("nodes", None),
            Manner::Unshared { rank } => ("unshared", Some(rank)),
        })
    }
}
