//! Wakes a reconciler, bounds its run, notes how it went.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tracing::Instrument as _;

use crate::app::App;

/// Longest run.
const RUN_WAIT: Duration = Duration::from_mins(2);

/// Something that repairs what is, towards what is wanted.
#[async_trait]
pub(super) trait Reconciler: Send + Sync + 'static {
    /// Its name in status and log.
    fn name(&self) -> &'static str;

    /// One run, from the rows and the snapshot alone.
    async fn run(&self) -> anyhow::Result<()>;
}

/// What wakes it besides the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Nothing.
    Timer,
    /// Somebody waits to be submitted, or there is a new snapshot.
    Submit,
    /// Somebody waits to be stopped, or there is a new snapshot.
    Stop,
    /// There is a new snapshot.
    Snapshot,
    /// A space is not as it is wanted.
    Spaces,
}

/// Runs it until eirened ends.
pub(super) async fn drive(app: App, reconciler: impl Reconciler, every: Duration, wake: Wake) {
    let mut snapshots = app.cluster.watch();
    loop {
        run_once(&app, &reconciler).await;
        let bell = async {
            match wake {
                Wake::Submit => app.nudges.submit().notified().await,
                Wake::Stop => app.nudges.stop().notified().await,
                Wake::Spaces => app.nudges.spaces().notified().await,
                Wake::Timer | Wake::Snapshot => std::future::pending().await,
            }
        };
        let snapshot = async {
            if matches!(wake, Wake::Timer | Wake::Spaces) || snapshots.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = bell => {}
            () = snapshot => {}
            () = tokio::time::sleep(every) => {}
        }
    }
}

async fn run_once(app: &App, reconciler: &impl Reconciler) {
    let begun = Instant::now();
    // A panic is a fault of ours in one run; the others must not stop for ever because of it.
    let span = tracing::info_span!("run", reconciler = reconciler.name());
    let run = AssertUnwindSafe(reconciler.run().instrument(span)).catch_unwind();
    let trouble = match tokio::time::timeout(RUN_WAIT, run).await {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(error))) => Some(format!("{error:#}")),
        Ok(Err(_)) => Some("the run ended in a panic".into()),
        Err(_) => Some("the run took too long and was ended".into()),
    };
    let failures = app.status.note(reconciler.name(), app.clock.now(), begun.elapsed(), trouble.clone());
    if let Some(trouble) = trouble
        && failures == 1
    {
        tracing::warn!(reconciler = reconciler.name(), error = trouble, "A run failed; the next one goes on");
    }
}
