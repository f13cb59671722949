//! One sample of every page, with hostile and with long content: a test renders them all, `cargo run --example preview` writes them to
//! disk to be looked at.

use jiff::Timestamp;

use eirene_core::account::{Role, User, UserState};
use eirene_core::audit::AuditEvent;
use eirene_core::id::{ImageId, SessionId, UserId};
use eirene_core::image::Image;
use eirene_core::name::NodeName;
use eirene_core::run::RunProgram;
use eirene_core::scheduler::{JobIdentity, Node, NodeGpus, Partition};
use eirene_core::session::{Desired, Reason, Resources, Session, SessionState};
use eirene_tunnel::message::NodeState;
use eirene_words::{say, say_with, words};

use super::pages::{Page, Pages, PagesError};
use super::views::account::{AccountPage, ScopeChoice, TokenView};
use super::views::admin::{
    AdoptedView, AllSessionsFragment, AllSessionsPage, AuditPage, AuditView, NewPassword, NodeView, NodesPage,
    PeoplePage, PersonView,
};
use super::views::cluster::{FreeFragment, FreeView};
use super::views::format::Time;
use super::views::layout::{Layout, Notice, Place, Tone};
use super::views::run::{
    AllRunsFragment, AllRunsPage, RunFragment, RunInput, RunPage, RunView, RunsFragment, RunsPage, StartRunPage,
};
use super::views::session::{
    Chip, HandoverPage, HistoryPage, SessionFragment, SessionPage, SessionView, WaitingFragment, WaitingPage,
};
use super::views::simple::{ConfirmPage, ErrorPage, LoginPage};
use super::views::start::{
    DashboardPage, Ground, HomeNotice, SessionsFragment, StartInput, StartPage, Verdict, VerdictFragment,
};
use super::views::{Choice, Field, FormError};
use crate::error::FieldError;
use crate::services::nodes::{NodeStatus, RunningStep};
use crate::services::spaces::HomeTrouble;

/// A name that would run as a script if anything forgot to escape it.
const HOSTILE: &str = "<script>alert(1)</script>'\"&";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Every sample page: its name and its HTML.
pub fn pages() -> Result<Vec<(String, String)>> {
    Samples::new()?.all()
}

/// Every static file: its address and its content.
pub fn files() -> Result<Vec<(String, Vec<u8>)>> {
    Ok(Pages::load()?.assets().all().collect())
}

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

/// Makes the samples; the tests take single ones.
pub(super) struct Samples {
    pub(super) pages: Pages,
    pub(super) now: Timestamp,
    out: Vec<(String, String)>,
}

impl Samples {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { pages: Pages::load()?, now: "2026-11-21T08:30:00Z".parse()?, out: Vec::new() })
    }

    fn add<P: Page>(&mut self, name: &str, page: &P) -> std::result::Result<(), PagesError> {
        self.out.push((name.to_owned(), self.pages.render(page)?.0));
        Ok(())
    }

    fn layout(&self, place: Place, title: &str, role: Role) -> Result<Layout> {
        let user = User {
            id: UserId::generate(),
            username: "ada".parse()?,
            role,
            state: UserState::Active,
            uid: Some(2001),
            created_at: self.now,
            access_epoch: 0,
        };
        Ok(Layout::for_user(words(), &user, "sample-csrf", place, title))
    }

    fn all(mut self) -> Result<Vec<(String, String)>> {
        self.simple()?;
        self.sessions()?;
        self.runs()?;
        self.starting()?;
        self.account()?;
        self.admin()?;
        Ok(self.out)
    }

    fn simple(&mut self) -> Result<()> {
        let words = words();
        let nobody = Layout::for_nobody(words, &words.get("login.page_title"));
        let login = |error: &str, tone, username: &str| LoginPage {
            layout: nobody.clone(),
            username: Field::new(username),
            error: error.to_owned(),
            tone,
            next: "/".to_owned(),
        };
        self.add("login", &login("", Tone::Bad, ""))?;
        self.add("login-wrong", &login(&words.get("login.wrong"), Tone::Bad, HOSTILE))?;
        self.add("login-limited", &login(&words.fill("login.limited", &[("seconds", "30")]), Tone::Wait, "ada"))?;
        for status in [404_u16, 403, 500, 503] {
            let text = words.find(&format!("error.text_{status}")).unwrap_or(HOSTILE).to_owned();
            let title = words.get(&format!("error.title_{status}"));
            let layout = Layout::for_nobody(words, &title);
            let request_id = "0198f3a2b4c67d1e8f90a1b2c3d4e5f6".to_owned();
            self.add(&format!("error-{status}"), &ErrorPage { layout, status, title, text, request_id })?;
        }
        let layout = self.layout(Place::Elsewhere, "Stop", Role::Researcher)?;
        let confirm = ConfirmPage {
            layout,
            title: words.fill("session.stop_title", &[("name", "Protein folding")]),
            text: words.get("session.stop_text"),
            action: "/sessions/x/stop".to_owned(),
            yes: words.get("session.stop_yes"),
            back_href: "/".to_owned(),
        };
        self.add("confirm", &confirm)?;
        Ok(())
    }

    pub(super) fn session(&self, name: &str, state: SessionState) -> Result<Session> {
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

    fn queued(&self) -> Result<Session> {
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

    fn views(&self) -> Result<(Vec<SessionView>, Vec<SessionView>)> {
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

    fn sessions(&mut self) -> Result<()> {
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

    /// A run of as many ranks; of a notebook without any.
    pub(super) fn run(&self, name: &str, state: SessionState, ranks: Option<u32>) -> Result<Session> {
        let file = if ranks.is_some() { "thesis/chapter 3/train.py" } else { "thesis/figures.ipynb" };
        let arguments = if ranks.is_some() { vec!["--name".to_owned(), HOSTILE.repeat(4)] } else { Vec::new() };
        let mut run = self.session(name, state)?;
        run.program = Some(RunProgram { file: file.to_owned(), arguments, ranks, preflight: true });
        run.resources.nodes = 2;
        Ok(run)
    }

    fn runs(&mut self) -> Result<()> {
        let words = words();
        let mut queued = self.run("train.py", SessionState::Queued, Some(8))?;
        queued.requeue_of = Some(SessionId::generate());
        queued.reason = Some(Reason::new("earlier_run", say("reason.earlier_run")));
        let running = self.run("train.py", SessionState::Running, Some(8))?;
        let mut failed = self.run(HOSTILE, SessionState::Failed, Some(16))?;
        failed.exit_status = Some(3);
        failed.reason = Some(Reason::new("program_failed", say_with("reason.program_failed", &[("status", "3")])));
        let mut ended = self.run("figures.ipynb", SessionState::Ended, None)?;
        ended.exit_status = Some(0);
        ended.reason = Some(Reason::new("program_ended", say("reason.program_ended")));
        let all = [queued, running, failed, ended];
        let view = |run: &Session| RunView::new(words, run, None, self.now);
        let runs: Vec<RunView> = all.iter().map(view).collect();
        let repeated = RunView::new(words, &all[2], Some(&all[0]), self.now);
        let layout = |samples: &Self, title: &str| -> Result<Layout> {
            Ok(samples.layout(Place::Runs, title, Role::Researcher)?.live("/live/events", 15))
        };
        for run in runs.iter().chain([&repeated]) {
            let name = format!("run-{}{}", run.job.state, if run.later_href.is_empty() { "" } else { "-repeated" });
            let page = RunPage {
                layout: layout(self, &run.job.name)?,
                rank: if run.job.state == "running" { "3".to_owned() } else { String::new() },
                log: "[0] epoch 1\n[1] <b>not bold</b>\n".to_owned(),
                log_href: String::new(),
                whole_href: format!("{}/log", run.job.href),
                foreign: run.job.state == "ended",
                run: if run.job.state == "ended" { run.clone().foreign() } else { run.clone() },
            };
            self.add(&name, &page)?;
        }
        self.add("fragment-run", &RunFragment { run: runs[0].clone(), foreign: false })?;
        for (name, runs, more) in [("runs", runs.clone(), true), ("runs-none", Vec::new(), false)] {
            let href = |href: &str| if more { href.to_owned() } else { String::new() };
            let page = RunsPage {
                layout: layout(self, &words.get("runs.title"))?,
                runs,
                fragment_href: "/fragments/runs".to_owned(),
                older_href: href("/runs?cursor=x"),
                newest_href: href("/runs"),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-runs", &RunsFragment { runs: runs.clone() })?;
        for (name, runs) in [("admin-runs", runs.clone()), ("admin-runs-none", Vec::new())] {
            let page = AllRunsPage {
                layout: self.layout(Place::AllRuns, &words.get("all_runs.title"), Role::Admin)?,
                live_only: runs.is_empty(),
                runs: runs.into_iter().map(RunView::foreign).collect(),
                next_href: "/admin/runs?cursor=x".to_owned(),
                fragment_href: "/fragments/admin/runs".to_owned(),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-all-runs", &AllRunsFragment { runs })?;
        Ok(())
    }

    pub(super) fn nodes() -> Result<Vec<Node>> {
        let node = |name: &str, gpu: &str, gpus_used: u32, cpus_used: u32| -> Result<Node> {
            Ok(Node {
                name: name.parse()?,
                available: true,
                state: "mixed".to_owned(),
                reason: None,
                cpus: 8,
                cpus_allocated: cpus_used,
                memory_mib: 16000,
                memory_allocated_mib: u64::from(cpus_used) * 2000,
                gpus: vec![NodeGpus { gpu_type: gpu.to_owned(), total: 2, allocated: gpus_used }],
                partitions: vec!["main".parse()?],
            })
        };
        let mut down = node("gpu-node-with-a-rather-long-name-017", "", 0, 0)?;
        down.available = false;
        "down".clone_into(&mut down.state);
        down.reason = Some("not responding since the power cut".to_owned());
        down.gpus = vec![NodeGpus { gpu_type: "h100".to_owned(), total: 40, allocated: 0 }];
        let mut plain = node("c3", "", 0, 0)?;
        plain.gpus.clear();
        plain.cpus = 128;
        "idle".clone_into(&mut plain.state);
        Ok(vec![node("c1", "a100", 2, 6)?, node("c2", "h100", 1, 2)?, plain, down])
    }

    pub(super) fn partitions() -> Result<Vec<Partition>> {
        let partition = |name: &str, is_default, longest| -> Result<Partition> {
            Ok(Partition {
                name: name.parse()?,
                is_default,
                available: true,
                max_walltime_min: longest,
                max_nodes: None,
                nodes: vec!["c1".parse()?, "c2".parse()?],
            })
        };
        Ok(vec![
            partition("main", true, Some(480))?,
            partition("long", false, Some(2880))?,
            partition("free", false, None)?,
        ])
    }

    fn starting(&mut self) -> Result<()> {
        let words = words();
        let (nodes, partitions) = (Self::nodes()?, Self::partitions()?);
        let images = [Image {
            id: ImageId::generate(),
            name: "jupyter".parse()?,
            description: "JupyterLab 4 with NumPy and Matplotlib".to_owned(),
            path: "/srv/eirene/images/jupyter.sif".to_owned(),
            sha256: "0".repeat(64),
            size_bytes: 1,
            apps: vec!["jupyterlab".parse()?],
            created_at: self.now,
        }];
        let ground = Ground { words, images: &images, nodes: &nodes, partitions: &partitions };
        let key = || "sample-key".to_owned();
        let free = FreeView::new(words, &nodes, Some(self.now), true);
        let (live, earlier) = self.views()?;
        for (name, role, live, earlier, notice) in [
            ("dashboard", Role::Researcher, live, earlier, Some("notice.stopping")),
            ("dashboard-empty", Role::Admin, Vec::new(), Vec::new(), None),
        ] {
            let notice = notice.map(|key| Notice { tone: Tone::Good, text: words.get(key) });
            let layout = self.layout(Place::Dashboard, &words.get("dashboard.title"), role)?.with_notice(notice);
            let presets = ground.presets("", &key);
            self.add(
                name,
                &DashboardPage { layout: layout.live("/live/events", 15), live, earlier, free: free.clone(), presets },
            )?;
        }

        let input = ground.with_defaults(StartInput::from_resources(&self.queued()?.resources));
        let errors = vec![
            FormError::from_service(
                words,
                &FieldError::new("cpus", say_with("fits.cpus", &[("partition", "main"), ("most", "8")])),
            ),
            FormError::new(words, "nodes", words.get("start.error.number")),
            FormError::new(words, "", HOSTILE),
        ];
        let resources = self.queued()?.resources;
        let cases = [
            ("start", Verdict::possible(words, true, &resources), Vec::new(), true),
            ("start-later", Verdict::possible(words, false, &resources), Vec::new(), true),
            ("start-errors", Verdict::impossible(words, Vec::new()), errors, true),
            ("start-unknown", Verdict::unknown(words), Vec::new(), true),
            ("start-no-images", Verdict::unknown(words), Vec::new(), false),
            ("start-home-full", Verdict::possible(words, true, &resources), Vec::new(), true),
        ];
        for (name, verdict, errors, has_images) in cases {
            let free = if name == "start-unknown" { FreeView::new(words, &[], None, false) } else { free.clone() };
            let page = StartPage {
                layout: self.layout(Place::Start, &words.get("start.page_title"), Role::Researcher)?,
                form: ground.form(&input, &errors),
                presets: ground.presets("gpu-a100", &key),
                free,
                verdict,
                errors,
                has_images,
                home: (name == "start-home-full").then(|| HomeNotice::new(words, HomeTrouble::Full)),
            };
            self.add(name, &page)?;
        }
        let run = RunInput::again(&self.run("train.py", SessionState::Ended, Some(8))?);
        let wrong = vec![
            FormError::from_service(words, &FieldError::new("file", say("wrong.run_file"))),
            FormError::from_service(words, &FieldError::new("arguments", say("wrong.run_arguments"))),
            FormError::from_service(words, &FieldError::new("ranks", say("wrong.notebook_ranks"))),
        ];
        let cases =
            [("run-new", Vec::new(), true), ("run-new-errors", wrong, true), ("run-new-no-images", vec![], false)];
        for (name, errors, has_images) in cases {
            let page = StartRunPage {
                layout: self.layout(Place::Runs, &words.get("start_run.page_title"), Role::Researcher)?,
                form: ground.form(&ground.with_defaults(run.size()), &errors),
                run: run.fields(&errors),
                free: free.clone(),
                errors,
                has_images,
            };
            self.add(name, &page)?;
        }
        self.add("fragment-verdict", &VerdictFragment { verdict: Verdict::possible(words, true, &resources) })?;
        self.add("fragment-free", &FreeFragment { free })?;
        Ok(())
    }

    fn account(&mut self) -> Result<()> {
        let words = words();
        let token = |name: &str, expires: Option<Time>, last_used: Option<Time>| TokenView {
            name: name.to_owned(),
            scopes: ["scope.read", "scope.sessions_read", "scope.sessions_write"].map(|key| words.get(key)).join(", "),
            created: Time::new(self.now),
            expires,
            last_used,
            delete_href: "/account/tokens/x/delete".to_owned(),
        };
        let tokens =
            vec![token("laptop", Some(Time::new(self.now)), Some(Time::new(self.now))), token(HOSTILE, None, None)];
        let scope = |value: &str, checked| ScopeChoice {
            value: format!("scope_{value}"),
            label: words.get(&format!("scope.{value}")),
            checked,
        };
        let scopes =
            vec![scope("read", true), scope("sessions_read", true), scope("tokens", false), scope("admin", false)];
        let account = |layout: Layout, new_token: &str, errors: Vec<FormError>| AccountPage {
            layout,
            username: "ada".to_owned(),
            role: words.get("role.researcher"),
            uid: "2001".to_owned(),
            tokens: tokens.clone(),
            new_token: new_token.to_owned(),
            token_name: Field::default(),
            scopes: scopes.clone(),
            scopes_error: String::new(),
            lifetimes: vec![
                Choice::new("30", words.get("account.days_30"), "90"),
                Choice::new("90", words.get("account.days_90"), "90"),
            ],
            token_errors: Vec::new(),
            current_password: Field {
                value: String::new(),
                error: errors.first().map(|error| error.text.clone()).unwrap_or_default(),
            },
            new_password: Field::default(),
            password_errors: errors,
        };
        let layout = self.layout(Place::Account, &words.get("account.title"), Role::Researcher)?;
        self.add("account", &account(layout.clone(), "", Vec::new()))?;
        self.add(
            "account-token",
            &account(layout.clone(), "eir_0000000000000000000000000000000000000000000", Vec::new()),
        )?;
        let wrong = vec![FormError::from_service(words, &FieldError::new("present", say("wrong.password")))];
        self.add("account-errors", &account(layout, "", wrong))?;
        Ok(())
    }

    fn admin(&mut self) -> Result<()> {
        let words = words();
        let person = |username: &str, active: bool| PersonView {
            username: username.to_owned(),
            role: words.get("role.researcher"),
            chip: Chip {
                label: words.get(if active { "people.active" } else { "people.disabled" }),
                tone: if active { Tone::Good } else { Tone::Still },
            },
            uid: if active { "2001".to_owned() } else { String::new() },
            created: Time::new(self.now),
            disable_href: if active { "/admin/users/ada/disable".to_owned() } else { String::new() },
            enable_href: if active { String::new() } else { "/admin/users/ada/enable".to_owned() },
            reset_href: "/admin/users/ada/reset-password".to_owned(),
        };
        let people = PeoplePage {
            layout: self.layout(Place::People, &words.get("people.title"), Role::Admin)?,
            people: vec![person("ada", true), person("a-very-long-user-name-on-purpose", false)],
            next_href: "/admin/users?cursor=x".to_owned(),
            new_password: Some(NewPassword {
                username: "grace".to_owned(),
                password: "correct-horse-battery".to_owned(),
            }),
            username: Field { value: HOSTILE.to_owned(), error: "1 to 32 of a–z, 0–9".to_owned() },
            roles: vec![Choice::new("researcher", words.get("role.researcher"), "researcher")],
            errors: vec![FormError::new(words, "username", "1 to 32 of a–z, 0–9")],
        };
        self.add("admin-people", &people)?;

        let (live, earlier) = self.views()?;
        let sessions: Vec<SessionView> = live.into_iter().chain(earlier).map(SessionView::without_app).collect();
        let page = AllSessionsPage {
            layout: self.layout(Place::Sessions, &words.get("all.title"), Role::Admin)?,
            sessions: sessions.clone(),
            live_only: true,
            next_href: "/admin/sessions?cursor=x".to_owned(),
            adopted: vec![AdoptedView { job: "12".to_owned(), uid: "2001".to_owned(), seen: Time::new(self.now) }],
            fragment_href: "/fragments/admin/sessions".to_owned(),
        };
        self.add("admin-sessions", &page)?;
        self.add("fragment-all-sessions", &AllSessionsFragment { sessions })?;

        let nodes = Self::nodes()?;
        for (name, nodes, reachable) in [("admin-nodes", nodes, true), ("admin-nodes-empty", Vec::new(), false)] {
            let page = NodesPage {
                layout: self.layout(Place::Nodes, &words.get("nodes.title"), Role::Admin)?,
                nodes: nodes.iter().map(|node| NodeView::new(words, node)).collect(),
                at: reachable.then(|| Time::new(self.now)),
                reachable,
            };
            self.add(name, &page)?;
        }

        let event = |outcome: &str, actor: &str, details: serde_json::Value| AuditEvent {
            id: 1,
            at: self.now,
            actor: actor.to_owned(),
            action: "session.start".to_owned(),
            target: SessionId::generate().to_string(),
            outcome: outcome.to_owned(),
            details,
            address: Some("192.0.2.7".to_owned()),
            request_id: None,
        };
        let events = [
            event("ok", "ada", serde_json::json!({"cpus": 4, "image": "jupyter"})),
            event("refused", HOSTILE, serde_json::json!({})),
            event("failed", "system:submit", serde_json::json!({})),
        ];
        let page = AuditPage {
            layout: self.layout(Place::Audit, &words.get("audit.title"), Role::Admin)?,
            events: events.iter().map(|event| AuditView::new(words, event)).collect(),
            actor: Field::new("ada"),
            action: Field::default(),
            older_href: "/admin/audit?before=1".to_owned(),
            newest_href: "/admin/audit".to_owned(),
        };
        self.add("admin-audit", &page)?;
        Ok(())
    }
}
