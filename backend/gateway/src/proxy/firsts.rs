//! Requests that may be the first of something in their session, for its trace: the first that an app answers a browser, the first that starts a
//! kernel. Nearly no request is one, and what that costs is one look.

use eirene_core::SessionId;
use eirene_services::app::App;
use eirene_services::traces::Firsts;
use http::{Method, Request, StatusCode};
use jiff::Timestamp;

/// Where Jupyter starts kernels: at the root of the session's origin, as agents give it no `base_url`. Its sessions are documents with a kernel each.
const STARTS_KERNELS: [&str; 2] = ["/api/kernels", "/api/sessions"];

/// A request that may be the first of something.
pub(super) struct MaybeFirst {
    session: SessionId,
    firsts: Firsts,
    begins: Timestamp,
}

impl MaybeFirst {
    /// Of a request that goes to its app now; none of one that is certainly not the first of anything.
    pub(super) fn of<B>(app: &App, session: SessionId, by_browser: bool, request: &Request<B>) -> Option<Self> {
        let kernel = *request.method() == Method::POST && STARTS_KERNELS.contains(&request.uri().path());
        let firsts = app.traces.awaits(session, Firsts { response: by_browser, kernel });
        firsts.any().then(|| Self { session, firsts, begins: app.clock.now() })
    }

    /// The app has begun to answer it. After what was not done, the next one may be the first.
    pub(super) fn answered(self, app: &App, status: StatusCode) {
        if status.is_success() {
            app.traces.came(self.session, self.firsts, self.begins, app.clock.now());
        }
    }
}
