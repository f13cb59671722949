//! Sessions in every state, and the pages about them.

use eirene_core::account::Role;
use eirene_core::id::{SessionId, UserId};
use eirene_core::name::NodeName;
use eirene_core::scheduler::JobIdentity;
use eirene_core::session::{Desired, Reason, Resources, Session, SessionState};
use eirene_tunnel::message::NodeState;
use eirene_words::{say, words};

use super::{HOSTILE, Result, Samples};
use crate::http::portal::views::layout::{Layout, Place};
use crate::http::portal::views::session::{
    HandoverPage, HistoryPage, SessionFragment, SessionPage, SessionView, WaitingFragment, WaitingPage,
};
use crate::http::portal::views::start::SessionsFragment;
use crate::services::nodes::{NodeStatus, RunningStep};

/// A step on all nodes of a session, the last of which has been lost.
fn on_nodes(session: &Session) -> Vec<NodeStatus> {
    let count = session.nodes.len();
    let step = RunningStep { number: 3, command: format!("python3 {HOSTILE}"), ranks: 4, nodes: 2 };
    let status = |(place, name): (usize, &NodeName)| NodeStatus {
        name: name.clone(),
        state: Some(if place + 1 == count { NodeState::Lost } else { NodeState::Ready }),
        text: (place + 1 == count).then(|| "its helper has ended".to_owned()),
        has_app: place == 0,
        steps: if count > 1 && place == 0 { vec![step.clone()] } else { Vec::new() },
    };
    session.nodes.iter().enumerate().map(status).collect()
}

impl Samples {
    pub(in crate::http::portal) fn session(&self, name: &str, state: SessionState) -> Result<Session> {
        let at = |minutes: i64| self.now + jiff::SignedDuration::from_mins(minutes);
        let placed = state != SessionState::Queued;
        Ok(Session {
            id: SessionId::generate(),
            owner: UserId::generate(),
            owner_name: "ada".parse()?,
            owner_uid: 2001,
            name: name.parse()?,
            app: "jupyterlab".parse()?,
            program: None,
            requeue_of: None,
            exit_status: None,
            scratch_state: None,
            scratch: None,
            image: "jupyter".parse()?,
            image_path: "/srv/eirene/images/jupyter.sif".to_owned(),
            project: None,
            resources: Resources {
                partition: None,
                nodes: 1,
                cpus: 4,
                memory_mib: 8192,
                gpus: 1,
                gpu_type: Some("a100".parse()?),
                walltime_min: 240,
            },
            desired: if state == SessionState::Stopping { Desired::Ended } else { Desired::Running },
            state,
            undetermined: false,
            reason: None,
            marker: String::new(),
            submit_begun_at: None,
            job: placed.then(|| JobIdentity { cluster: "demo".to_owned(), id: 4711, submitted_at: self.now }),
            restart_count: 0,
            nodes: if placed { vec!["c1".parse()?] } else { Vec::new() },
            start_estimate: None,
            created_at: at(-75),
            started_at: placed.then(|| at(-74)),
            ends_at: placed.then(|| at(166)),
            ended_at: state.is_final().then(|| at(-2)),
            version: 1,
        })
    }

    pub(super) fn queued(&self) -> Result<Session> {
        let mut session = self.session("Protein folding", SessionState::Queued)?;
        session.reason = Some(Reason::new("waiting_for_resources", say("job.waiting_for_resources")));
        session.start_estimate = Some(self.now + jiff::SignedDuration::from_mins(42));
        Ok(session)
    }

    fn failed(&self) -> Result<Session> {
        let mut session = self.session(HOSTILE, SessionState::Failed)?;
        session.reason = Some(Reason::new("out_of_memory", say("reason.out_of_memory")));
        Ok(session)
    }

    pub(super) fn views(&self) -> Result<(Vec<SessionView>, Vec<SessionView>)> {
        let words = words();
        let mut doubtful = self.session("Reading group", SessionState::Running)?;
        doubtful.undetermined = true;
        doubtful.resources.nodes = 2;
        doubtful.nodes = vec!["c1".parse()?, "c2".parse()?];
        doubtful.resources.gpus = 0;
        let live = [
            self.session("Thesis, chapter 3", SessionState::Running)?,
            self.session("Quick look", SessionState::Starting)?,
            self.queued()?,
            self.session("Yesterday's idea", SessionState::Stopping)?,
            doubtful,
        ];
        let mut ended = self.session("First steps", SessionState::Ended)?;
        ended.reason = Some(Reason::new("stopped", say("reason.stopped")));
        let earlier = [ended, self.failed()?];
        let view = |session: &Session| {
            SessionView::new(words, session, self.now).with_nodes(words, &on_nodes(session), "JupyterLab")
        };
        Ok((live.iter().map(view).collect(), earlier.iter().map(view).collect()))
    }

    pub(super) fn sessions(&mut self) -> Result<()> {
        let words = words();
        let (live, earlier) = self.views()?;
        let layout = |samples: &Self, title: &str| -> Result<Layout> {
            Ok(samples.layout(Place::Elsewhere, title, Role::Researcher)?.live("/live/events", 10))
        };
        for view in live.iter().chain(&earlier) {
            let name = format!("session-{}{}", view.state, if view.doubt.is_empty() { "" } else { "-undetermined" });
            let log = if view.state == "queued" { "" } else { "[I] Serving at unix:///…\nline 2 <b>not bold</b>\n" };
            let page = SessionPage {
                layout: layout(self, &view.name)?,
                session: view.clone(),
                log: log.to_owned(),
                log_href: String::new(),
                foreign: view.state == "stopping",
            };
            self.add(&name, &page)?;
        }
        self.add("fragment-session", &SessionFragment { session: live[0].clone(), foreign: false })?;
        for view in [&live[2], &earlier[1]] {
            let page = WaitingPage { layout: layout(self, &view.name)?, session: view.clone() };
            self.add(&format!("waiting-{}", view.state), &page)?;
        }
        self.add("fragment-waiting", &WaitingFragment { session: live[0].clone() })?;
        let handover = HandoverPage {
            layout: layout(self, &words.get("handover.page_title"))?,
            name: HOSTILE.to_owned(),
            action: "#".to_owned(),
            code: "one-time-code".to_owned(),
        };
        self.add("handover", &handover)?;
        for (name, sessions, more) in
            [("sessions", live.into_iter().chain(earlier).collect(), true), ("sessions-none", Vec::new(), false)]
        {
            let href = |href: &str| if more { href.to_owned() } else { String::new() };
            let page = HistoryPage {
                layout: layout(self, &words.get("history.title"))?,
                sessions,
                older_href: href("/sessions?cursor=x"),
                newest_href: href("/sessions"),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-sessions", &SessionsFragment { live: Vec::new(), earlier: Vec::new() })?;
        Ok(())
    }
}
