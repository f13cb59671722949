//! Wakes a reconciler, bounds its run, notes how it went.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tracing::Instrument as _;

use eirene_services::app::App;

/// Longest run.
const RUN_WAIT: Duration = Duration::from_mins(2);
/// Time to a run that goes on with what the last one had no time for.
const SOON: Duration = Duration::from_secs(5);

/// Something that repairs what is, towards what is wanted.
#[async_trait]
pub(super) trait Reconciler: Send + Sync + 'static {
    /// Its name in status and log.
    fn name(&self) -> &'static str;

    /// One run, from the rows and the snapshot alone.
    async fn run(&self) -> anyhow::Result<()>;

    /// Whether the last run left something to the next for want of time, also where it was ended for that.
    fn has_more(&self) -> bool {
        false
    }
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
        let may_go_on = run_once(&app, &reconciler).await;
        let pause = if may_go_on && reconciler.has_more() { every.min(SOON) } else { every };
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
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Whether nothing went wrong but that it took too long: then what it left is gone on with as if it had ended by itself.
async fn run_once(app: &App, reconciler: &impl Reconciler) -> bool {
    let begun = Instant::now();
    // A panic is a fault of ours in one run; the others must not stop for ever because of it.
    let span = tracing::info_span!("run", reconciler = reconciler.name());
    let run = AssertUnwindSafe(reconciler.run().instrument(span)).catch_unwind();
    let (trouble, may_go_on) = match tokio::time::timeout(RUN_WAIT, run).await {
        Ok(Ok(Ok(()))) => (None, true),
        Ok(Ok(Err(error))) => (Some(format!("{error:#}")), false),
        Ok(Err(_)) => (Some("the run ended in a panic".into()), false),
        Err(_) => (Some("the run took too long and was ended".into()), true),
    };
    let failures = app.status.note(reconciler.name(), app.clock.now(), begun.elapsed(), trouble.clone());
    if let Some(trouble) = trouble.filter(|_| failures == 1) {
        tracing::warn!(reconciler = reconciler.name(), error = trouble, "A run failed; the next one goes on");
    }
    may_go_on
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use eirene_services::testing::TestApp;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::time::Instant;

    use super::*;

    /// How a run ends.
    enum Ends {
        Well,
        Badly,
        Never,
    }

    /// Whose runs end in some way, and leave something or not, one after the other; says when each began.
    struct Told {
        runs: Mutex<VecDeque<(Ends, bool)>>,
        has_more: AtomicBool,
        began: UnboundedSender<Instant>,
    }

    #[async_trait]
    impl Reconciler for Told {
        fn name(&self) -> &'static str {
            "told"
        }

        async fn run(&self) -> anyhow::Result<()> {
            self.began.send(Instant::now())?;
            let (ends, has_more) = self.runs.lock().unwrap().pop_front().unwrap_or((Ends::Well, false));
            self.has_more.store(has_more, Ordering::Relaxed);
            match ends {
                Ends::Well => Ok(()),
                Ends::Badly => anyhow::bail!("a test"),
                Ends::Never => std::future::pending().await,
            }
        }

        fn has_more(&self) -> bool {
            self.has_more.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn what_a_run_had_no_time_for_is_gone_on_with_soon_unless_something_is_wrong() {
        let test = TestApp::new().await;
        tokio::time::pause();
        let (began, mut begun) = unbounded_channel();
        let runs = [
            (Ends::Well, true),
            (Ends::Never, true),
            (Ends::Never, false),
            (Ends::Well, true),
            (Ends::Well, false),
            (Ends::Badly, true),
        ];
        let told = Told { runs: Mutex::new(VecDeque::from(runs)), has_more: AtomicBool::new(false), began };
        let every = Duration::from_hours(1);
        let driven = tokio::spawn(drive(test.app.clone(), told, every, Wake::Timer));
        let mut before = begun.recv().await.unwrap();
        for pause in [SOON, RUN_WAIT + SOON, RUN_WAIT + every, SOON, every, every] {
            let next = begun.recv().await.unwrap();
            assert_eq!((next - before).as_secs(), pause.as_secs());
            before = next;
        }
        test.app.shutdown.cancel();
        driven.await.unwrap();
    }
}
