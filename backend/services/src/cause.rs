//! For which request, and about which session, something is done. It goes along with the work, as the span of its lines does, and the launcher's
//! client tells the launcher with each call. It is for logs alone: whoever decides something asks an actor or a row.
//!
//! Work that goes on in a task of its own leaves both behind, unless it is begun by [`spawn`].

use eirene_core::SessionId;
use eirene_core::launcher::Cause;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

tokio::task_local! {
    static CAUSE: Cause;
}

/// For what the work at hand is done.
pub fn present() -> Cause {
    CAUSE.try_with(|cause| *cause).unwrap_or_default()
}

/// Does `work` for `cause`.
pub fn of<F: Future>(cause: Cause, work: F) -> impl Future<Output = F::Output> {
    CAUSE.scope(cause, work)
}

/// Does `work` about this session, for whichever request there is.
pub fn about<F: Future>(session: SessionId, work: F) -> impl Future<Output = F::Output> {
    of(Cause { session: Some(session), ..present() }, work)
}

/// Begins `work` in a task of its own, for the same cause and with the same words in its lines.
pub fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(of(present(), work.in_current_span()))
}

#[cfg(test)]
mod tests {
    use eirene_core::RequestId;
    use tracing::Level;

    use super::*;
    use crate::testing::Logged;

    #[tokio::test]
    async fn it_goes_along_with_the_work_and_ends_with_it() {
        let (request, session) = (RequestId::generate(), SessionId::generate());
        let cause = Cause { request: Some(request), session: None };
        assert_eq!(present(), Cause::default());
        of(cause, async {
            assert_eq!(present(), cause);
            about(session, async { assert_eq!(present(), Cause { session: Some(session), ..cause }) }).await;
            assert_eq!(tokio::spawn(async { present() }).await.unwrap(), Cause::default());
            assert_eq!(spawn(async { present() }).await.unwrap(), cause);
        })
        .await;
        about(session, async { assert_eq!(present(), Cause { session: Some(session), request: None }) }).await;
        assert_eq!(present(), Cause::default());
    }

    #[tokio::test]
    async fn what_is_logged_in_a_task_of_its_own_says_the_same() {
        let logged = Logged::down_to(Level::INFO);
        let span = tracing::info_span!("request", request.id = "7");
        async { spawn(async { tracing::warn!("something happened") }).await.unwrap() }.instrument(span).await;
        assert_eq!(logged.line("something happened")["span"]["request.id"], "7");
    }
}
