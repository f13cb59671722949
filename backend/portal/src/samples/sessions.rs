//! Sessions in every state, and the pages about them.

use eirene_core::account::Role;
use eirene_core::alert::{AlertRule, AlertSeverity};
use eirene_core::id::{SessionId, UserId};
use eirene_core::name::NodeName;
use eirene_core::scheduler::JobIdentity;
use eirene_core::session::{Desired, Reason, Resources, Session, SessionState};
use eirene_monitoring::Metric;
use eirene_monitoring_store::Resolution;
use eirene_services::efficiency::advice;
use eirene_services::nodes::{NodeStatus, RunningStep};
use eirene_services::samples::{Chart, LeftOut, Line, Source, WrongClock};
use eirene_tunnel::message::NodeState;
use eirene_words::{say, words};
use jiff::SignedDuration;

use super::efficiency::measured;
use super::{HOSTILE, Result, Samples};
use crate::views::alerts;
use crate::views::charts::{self, ChartsPage};
use crate::views::layout::{Layout, Place};
use crate::views::session::{
    HandoverPage, HistoryPage, SessionFragment, SessionPage, SessionView, WaitingFragment, WaitingPage,
};
use crate::views::start::SessionsFragment;
use crate::views::usage::{UsageFragment, UsageView};

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
    pub(crate) fn session(&self, name: &str, state: SessionState) -> Result<Session> {
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

    /// What a session in this state uses, on so many nodes with two GPUs each: some figures are missing for a while, and a name is hostile.
    pub(super) fn usage(&self, state: &str, nodes: usize) -> Result<UsageView> {
        let spans = 120;
        let over = matches!(state, "ended" | "failed");
        let mut session = self.session("x", if over { SessionState::Ended } else { SessionState::Running })?;
        session.resources.cpus = 4;
        if matches!(state, "queued" | "starting") {
            let chart = (state == "starting").then(|| self.chart(spans, Vec::new()));
            return Ok(UsageView::new(words(), &session, chart.as_ref(), &[]));
        }
        let value = |seed: usize, at: usize| {
            let wave = (at as f64 / 9.0 + seed as f64).sin().abs();
            (!(50..60).contains(&at)).then_some(wave * if seed.is_multiple_of(3) { 1.0 } else { 0.6 })
        };
        let line = |metric: Metric, node: usize, device: Option<&str>, most: f64| {
            let values: Vec<_> =
                (0..spans).map(|at| value(node + metric as usize, at).map(|value| value * most)).collect();
            let highest = values.iter().flatten().copied().reduce(f64::max);
            let device = device.map(ToOwned::to_owned);
            Line {
                metric,
                node: format!("c{}", node + 1),
                device,
                values,
                most: None,
                least: None,
                total: None,
                highest,
            }
        };
        let mut lines = Vec::new();
        for node in 0..nodes {
            lines.push(line(Metric::Cpu, node, None, 3.7));
            lines.push(line(Metric::ProbeCpu, node, None, 0.002));
            lines.push(line(Metric::Memory, node, None, 7.0e9));
            lines.push(line(Metric::MemoryLimit, node, None, 8_589_934_592.0));
            lines.push(line(Metric::IoRead, node, None, 2.0e8));
            lines.push(line(Metric::IoWritten, node, None, 4.0e7));
            lines.push(line(Metric::NetReceived, node, Some("ib0"), 3.0e9));
            lines.push(line(Metric::NetSent, node, Some("ib0"), 2.0e9));
            for gpu in ["0", "1"] {
                lines.push(line(Metric::GpuUtil, node, Some(gpu), 1.0));
                lines.push(line(Metric::GpuMemory, node, Some(gpu), 7.9e10));
            }
        }
        lines.push(line(Metric::Report, 0, Some("loss"), -2.5));
        lines.push(line(Metric::Report, 0, Some(HOSTILE), 12_000.0));
        let advice = if over { advice(&measured(&session, 3)?, &session.resources) } else { Vec::new() };
        let usage = UsageView::new(words(), &session, Some(&self.chart(spans, lines)), &advice);
        Ok(if over { usage.of_prometheus(words(), 60) } else { usage })
    }

    /// The page of charts: without its module's answers it shows what the server draws.
    fn charts(&mut self) -> Result<()> {
        let running = self.session("Thesis, chapter 3", SessionState::Running)?;
        let over = self.run(HOSTILE, SessionState::Failed, Some(16))?;
        let others =
            [self.run("train.py", SessionState::Running, Some(8))?, self.session(HOSTILE, SessionState::Ended)?];
        let happened = [self.alert(AlertRule::GpuLost, AlertSeverity::Critical, &[])];
        let pages = [("charts", &running, &others[..]), ("charts-clocks", &running, &[]), ("charts-over", &over, &[])];
        for (name, session, others) in pages {
            let title = words().fill("charts.page_title", &[("name", session.name.as_str())]);
            let page = ChartsPage {
                layout: self.layout(Place::Elsewhere, &title, Role::Researcher)?,
                name: session.name.to_string(),
                back_href: format!("/{}", charts::below(session)),
                about: charts::about(words(), session, &[], &happened, others, (0, self.now)),
                clocks: if name == "charts-clocks" { Self::wrong_clocks(session) } else { Vec::new() },
                left_out: if session.state.is_final() { charts::left_out(words(), &LeftOut::ALL) } else { Vec::new() },
                usage: self.usage(session.state.as_str(), 2)?.without_charts(),
            };
            self.add(name, &page)?;
        }
        Ok(())
    }

    /// What is said where more of them are wrong than are named.
    fn wrong_clocks(session: &Session) -> Vec<String> {
        let clock = |number: i64| WrongClock {
            session: session.id,
            node: format!("a-long-name-of-a-node-on-purpose-{number}"),
            ahead: SignedDuration::from_mins(6 - 90 * number),
            is_common: false,
        };
        charts::clocks(words(), &(0..9).map(clock).collect::<Vec<_>>())
    }

    fn chart(&self, spans: usize, lines: Vec<Line>) -> Chart {
        let from_ms = self.now.as_millisecond() - 600_000;
        Chart {
            from_ms,
            step_ms: 5000,
            spans,
            resolution: Resolution::Raw,
            source: Source::BuiltIn,
            every_ms: 5000,
            broken: 0,
            lines,
        }
    }

    pub(super) fn sessions(&mut self) -> Result<()> {
        let words = words();
        let (live, earlier) = self.views()?;
        let layout = |samples: &Self, title: &str| -> Result<Layout> {
            Ok(samples.layout(Place::Elsewhere, title, Role::Researcher)?.live("/live/events", 10))
        };
        for view in live.iter().chain(&earlier) {
            let name = format!("session-{}{}", view.state, if view.doubt.is_empty() { "" } else { "-undetermined" });
            let alarms = [
                self.alert(AlertRule::MemoryNearlyFull, AlertSeverity::Warning, &[("node", "n1")]),
                self.alert(AlertRule::GpuLost, AlertSeverity::Critical, &[("node", HOSTILE), ("gpu", "3")]),
            ];
            let goes_well = view.state != "running" || !view.doubt.is_empty();
            let alerts = if goes_well { Vec::new() } else { alerts::lines(&alarms) };
            let log = if view.state == "queued" { "" } else { "[I] Serving at unix:///…\nline 2 <b>not bold</b>\n" };
            let page = SessionPage {
                layout: layout(self, &view.name)?,
                session: view.clone().with_alerts(alerts),
                usage: self.usage(view.state, 2)?,
                usage_href: String::new(),
                log: log.to_owned(),
                log_href: String::new(),
                foreign: view.state == "stopping",
            };
            self.add(&name, &page)?;
        }
        self.add("fragment-usage", &UsageFragment { usage: self.usage("running", 24)? })?;
        let many = SessionPage {
            layout: layout(self, "Many GPUs")?,
            session: live[0].clone(),
            usage: self.usage("running", 24)?,
            usage_href: String::new(),
            log: String::new(),
            log_href: String::new(),
            foreign: false,
        };
        self.add("session-many-gpus", &many)?;
        self.charts()?;
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
