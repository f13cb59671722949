//! One request to a session's origin, as the log and whoever sent it are told of it.
//!
//! Nearly every request passes without a word. So its id, and the span that names request and session in every line logged on its way, are made only
//! where something may have to be said: for none that a known right lets in and a kept connection takes to the app.

use std::sync::OnceLock;

use eirene_core::{RequestId, SessionId};
use tracing::Span;

/// One request to a session's origin.
pub(super) struct Asked {
    /// To whose.
    pub(super) session: SessionId,
    id: OnceLock<RequestId>,
}

impl Asked {
    /// A request to the origin of `session`.
    pub(super) fn of(session: SessionId) -> Self {
        Self { session, id: OnceLock::new() }
    }

    /// Its id, the same whoever is told.
    pub(super) fn id(&self) -> RequestId {
        *self.id.get_or_init(RequestId::generate)
    }

    /// What every line that is logged within says, as on the portal's origin; nothing is made where no such line would be logged.
    pub(super) fn span(&self) -> Span {
        tracing::info_span!("request", request.id = %self.id(), session.id = %self.session)
    }
}
