//! The reconcilers against a scheduler and a launcher in memory: everything a session must survive, step by step and on a clock that is moved.

mod adopting;
mod ending;
mod rescuing;
mod runs;
mod submitting;
mod tracing;
mod watching;

use eirene_core::{Session, SessionId};
use eirene_services::actor::Actor;
use eirene_services::testing::TestApp;
use tokio_util::task::TaskTracker;

use super::JobFiles;
use super::adopt::Adopt;
use super::driver::Reconciler as _;
use super::observe::Observe;
use super::poller::Poller;
use super::ready::{Ready, Silence};
use super::scratch_rescue::ScratchRescue;
use super::stop::Stop;
use super::submit::Submit;

/// One process of eirened: its reconcilers and what they remember.
struct Engine {
    test: TestApp,
    ada: Actor,
    poller: Poller,
    submit: Submit,
    observe: Observe,
    stop: Stop,
    adopt: Adopt,
    ready: Ready,
    silence: Silence,
    rescue: ScratchRescue,
}

impl Engine {
    async fn new() -> Self {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        Self::over(test, ada)
    }

    fn over(test: TestApp, ada: Actor) -> Self {
        let app = &test.app;
        let files = JobFiles::new(app, "pin");
        let submit = Submit::new(app.clone(), files.clone(), TaskTracker::new());
        let stop = Stop::new(app.clone(), files.clone(), submit.busy());
        Self {
            poller: Poller::new(app),
            observe: Observe::new(app.clone(), files.clone()),
            adopt: Adopt::new(app.clone(), files.clone()),
            ready: Ready::new(app.clone()),
            silence: Silence::new(app.clone()),
            rescue: ScratchRescue::new(app.clone(), files.clone()),
            submit,
            stop,
            ada,
            test,
        }
    }

    /// Everything that is not in the database is forgotten, as after a kill.
    fn restarted(self) -> Self {
        Self::over(self.test, self.ada)
    }

    async fn start(&self) -> SessionId {
        self.test.app.sessions.start(&self.ada, TestApp::wish(), None).await.unwrap().0.id
    }

    async fn submit(&self) {
        self.submit.run().await.unwrap();
        while !self.submit.busy().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// A second passes, then the scheduler is looked at and everybody who watches has a run.
    async fn tick(&mut self) {
        self.pass(1).await;
    }

    async fn pass(&mut self, seconds: i64) {
        self.test.clock.advance_s(seconds);
        self.poller.look().await;
        self.observe.run().await.unwrap();
    }

    /// A session with a job that has begun and an agent that said so.
    async fn running(&mut self) -> SessionId {
        let id = self.start().await;
        self.submit().await;
        self.test.scheduler.job_becomes(eirene_core::scheduler::JobState::Running);
        self.tick().await;
        self.test.app.sessions.agent_ready(id).await.unwrap();
        id
    }

    async fn row(&self, id: SessionId) -> Session {
        self.test.row(id).await
    }

    async fn reason(&self, id: SessionId) -> String {
        self.row(id).await.reason.map(|reason| reason.code).unwrap_or_default()
    }
}
