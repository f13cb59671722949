//! What the tests of this crate are arranged with: a scheduler and a launcher in memory, a clock that is moved, a database in a temporary
//! directory.

mod cluster;
mod storage;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use eirene_core::clock::MockClock;
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest, SpaceAt, SpaceFor};
use eirene_core::scheduler::{
    CallAs, Job, JobIdentity, JobSpec, JobState, Node, Partition, Scheduler, SchedulerError, SchedulerResult,
    signed_reason,
};
use eirene_core::{
    Clock as _, Desired, DrainReason, Image, ImageId, NodeName, Reason, Resources, Role, RunProgram, Sentence, Session,
    SessionId, SessionState, User, UserId, UserState, Username,
};
use eirene_database::Db;
use eirene_files_protocol::Channel;
use jiff::Timestamp;

use crate::app::{App, Ports};
use crate::config::Config;
use crate::services::actor::{Actor, Via};
use crate::services::cluster::Snapshot;
use crate::services::passwords::Passwords;
use crate::services::runs::{RunSize, StartRun};
use crate::services::samples::{History, Prometheus};
use crate::services::sessions::StartSession;
use crate::traces::Traces;

use cluster::{nodes, partitions};
pub(crate) use storage::{FakeGroups, FakeStorage, StorageMood};

/// Where the clock of every test begins.
pub(crate) fn start_time() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// A small wish.
pub(crate) fn small() -> Resources {
    Resources { partition: None, nodes: 1, cpus: 2, memory_mib: 2048, gpus: 0, gpu_type: None, walltime_min: 60 }
}

/// A session of `owner` that was just asked for.
pub(crate) fn session(owner: &str) -> Session {
    Session {
        id: SessionId::generate(),
        owner: UserId::generate(),
        owner_name: owner.parse().unwrap(),
        owner_uid: 2001,
        name: "a session".parse().unwrap(),
        app: "jupyterlab".parse().unwrap(),
        image: "jupyter".parse().unwrap(),
        image_path: "/images/a.sif".into(),
        project: None,
        resources: small(),
        desired: Desired::Running,
        state: SessionState::Queued,
        undetermined: false,
        reason: None,
        marker: "eirene-mark".into(),
        submit_begun_at: None,
        job: None,
        restart_count: 0,
        nodes: vec![],
        start_estimate: None,
        created_at: start_time(),
        started_at: None,
        ends_at: None,
        ended_at: None,
        program: None,
        requeue_of: None,
        exit_status: None,
        scratch_state: None,
        scratch: None,
        version: 1,
    }
}

/// What most tests run: two ranks of a script.
pub(crate) fn program() -> RunProgram {
    RunProgram {
        file: "work/train.py".into(),
        arguments: vec!["--lr".into(), "0.1".into()],
        ranks: Some(2),
        preflight: true,
    }
}

/// What the scheduler of a test says.
fn said(text: &str) -> Sentence {
    Sentence::from_elsewhere(text.to_owned())
}

/// The job of `session` in some state.
pub(crate) fn job(session: &Session, id: u32, state: JobState) -> Job {
    let allocated = state != JobState::Pending;
    Job {
        identity: JobIdentity { cluster: "demo".into(), id, submitted_at: start_time() },
        name: session.marker.clone(),
        uid: session.owner_uid,
        state,
        word: format!("{state:?}"),
        reason: (!allocated).then(|| Reason::new("waiting_for_resources", said("waits"))),
        partition: "main".into(),
        nodes: if allocated { vec!["c1".parse().unwrap()] } else { vec![] },
        restart_count: 0,
        started_at: allocated.then(start_time),
        ends_at: None,
        preempted_at: None,
        exit_code: None,
        gpus: vec![],
    }
}

/// The demo cluster, with these jobs on it.
pub(crate) fn snapshot(jobs: Vec<Job>) -> Snapshot {
    Snapshot {
        asked_at: Some(start_time()),
        good_since: Some(start_time()),
        reachable: true,
        trouble: None,
        jobs: Arc::new(jobs),
        nodes: Arc::new(nodes()),
        partitions: Arc::new(partitions()),
        forecasts: Arc::default(),
    }
}

/// What the next submit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubmitMood {
    /// Makes a job and says so.
    Good,
    /// Makes a job; the answer is lost.
    AnswerLost,
    /// Makes no job; there is no answer.
    NothingHappens,
    /// Refuses.
    Refuses,
}

/// What the scheduler in memory knows.
pub(crate) struct SchedulerState {
    pub(crate) reachable: bool,
    pub(crate) mood: SubmitMood,
    pub(crate) jobs: Vec<Job>,
    pub(crate) accounted: Vec<Job>,
    pub(crate) accounting_reachable: bool,
    /// Whether there is such a thing.
    pub(crate) accounting: bool,
    pub(crate) submits: Vec<(Username, JobSpec)>,
    pub(crate) cancels: Vec<(CallAs, u32)>,
    pub(crate) person_may_cancel: bool,
    pub(crate) nodes: Vec<Node>,
    /// Whether the service account may drain and resume.
    pub(crate) may_change_nodes: bool,
    next_id: u32,
}

/// A scheduler in memory.
#[derive(Clone)]
pub(crate) struct FakeScheduler {
    state: Arc<Mutex<SchedulerState>>,
    clock: MockClock,
}

impl FakeScheduler {
    fn new(clock: MockClock) -> Self {
        let state = SchedulerState {
            reachable: true,
            mood: SubmitMood::Good,
            jobs: vec![],
            accounted: vec![],
            accounting_reachable: true,
            accounting: true,
            submits: vec![],
            cancels: vec![],
            person_may_cancel: true,
            nodes: nodes(),
            may_change_nodes: true,
            next_id: 100,
        };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap()
    }

    /// Changes the one job.
    pub(crate) fn change_job(&self, edit: impl FnOnce(&mut Job)) {
        let mut state = self.state();
        assert_eq!(state.jobs.len(), 1);
        edit(&mut state.jobs[0]);
    }

    /// Puts the one job into a state.
    pub(crate) fn job_becomes(&self, next: JobState) {
        let now = self.clock.now();
        self.change_job(|job| {
            job.state = next;
            if next != JobState::Pending {
                job.reason = None;
                job.nodes = vec!["c1".parse().unwrap()];
                job.started_at = job.started_at.or(Some(now));
            }
        });
    }

    fn asked(&self) -> SchedulerResult<MutexGuard<'_, SchedulerState>> {
        let state = self.state();
        if state.reachable { Ok(state) } else { Err(away()) }
    }
}

fn away() -> SchedulerError {
    SchedulerError::Unreachable { what: "a test".into(), source: None }
}

#[async_trait]
impl Scheduler for FakeScheduler {
    async fn ping(&self) -> SchedulerResult<String> {
        self.asked().map(|_| "fake".into())
    }

    async fn submit(&self, person: &Username, spec: &JobSpec) -> SchedulerResult<JobIdentity> {
        // Another task may run here, as with a real scheduler.
        tokio::task::yield_now().await;
        let now = self.clock.now();
        let mut state = self.asked()?;
        state.submits.push((person.clone(), spec.clone()));
        match state.mood {
            SubmitMood::Refuses => {
                return Err(SchedulerError::Refused { reason: Reason::new("no_account", said("no such account")) });
            }
            SubmitMood::NothingHappens => return Err(away()),
            SubmitMood::Good | SubmitMood::AnswerLost => {}
        }
        state.next_id += 1;
        let mut made = job(&session(person.as_str()), state.next_id, JobState::Pending);
        made.name.clone_from(&spec.name);
        made.identity.submitted_at = now;
        let identity = made.identity.clone();
        state.jobs.push(made);
        if state.mood == SubmitMood::AnswerLost { Err(away()) } else { Ok(identity) }
    }

    async fn jobs(&self) -> SchedulerResult<Vec<Job>> {
        Ok(self.asked()?.jobs.clone())
    }

    async fn job(&self, id: u32) -> SchedulerResult<Option<Job>> {
        Ok(self.asked()?.jobs.iter().find(|job| job.identity.id == id).cloned())
    }

    async fn accounted_jobs(&self, name: &str, _since: Timestamp) -> SchedulerResult<Vec<Job>> {
        let state = self.asked()?;
        if !state.accounting_reachable {
            return Err(away());
        }
        if !state.accounting {
            return Err(SchedulerError::NoAccounting);
        }
        Ok(state.accounted.iter().filter(|job| job.name == name).cloned().collect())
    }

    async fn cancel(&self, as_: &CallAs, id: u32) -> SchedulerResult<()> {
        let mut state = self.asked()?;
        if !state.person_may_cancel && matches!(as_, CallAs::Person(_)) {
            return Err(SchedulerError::Refused { reason: Reason::new("denied", said("denied")) });
        }
        state.cancels.push((as_.clone(), id));
        for job in state.jobs.iter_mut().filter(|job| job.identity.id == id && !job.state.is_final()) {
            job.state = JobState::Cancelled;
        }
        Ok(())
    }

    async fn nodes(&self) -> SchedulerResult<Vec<Node>> {
        self.asked().map(|state| state.nodes.clone())
    }

    async fn drain_node(&self, node: &NodeName, reason: &DrainReason, by: &Username) -> SchedulerResult<()> {
        self.change_node(node, "drained", Some(signed_reason(reason, by)))
    }

    async fn resume_node(&self, node: &NodeName) -> SchedulerResult<()> {
        self.change_node(node, "idle", None)
    }

    async fn partitions(&self) -> SchedulerResult<Vec<Partition>> {
        self.asked().map(|_| partitions())
    }
}

/// A launcher in memory: keeps what it was asked.
#[derive(Clone)]
pub(crate) struct FakeLauncher {
    pub(crate) calls: Arc<Mutex<Vec<LauncherRequest>>>,
    /// Refuses to write job files with this code.
    pub(crate) refusal: Arc<Mutex<Option<&'static str>>>,
    /// The log of every job.
    pub(crate) job_log: Arc<Mutex<String>>,
    /// What stands in for file processes: each gets its end of a channel, in a thread of its own. Without one none is started.
    pub(crate) files: Arc<Mutex<Option<FilesStandIn>>>,
    /// Directories of spaces.
    pub(crate) spaces: Arc<Mutex<FakeRoots>>,
    clock: MockClock,
}

/// Directories of spaces in memory, by their inodes.
#[derive(Debug, Default)]
pub(crate) struct FakeRoots {
    /// By root and name.
    pub(crate) present: BTreeMap<String, u64>,
    /// By id.
    pub(crate) retired: BTreeMap<String, u64>,
    /// Whether the file system counts by directory.
    pub(crate) counts: bool,
    /// Bytes and files that spaces may hold, by root and name.
    pub(crate) limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Whether the file system keeps no access lists.
    pub(crate) no_lists: bool,
    /// Refuses every change with this code.
    pub(crate) refusal: Option<&'static str>,
    /// Does the next thing and loses the answer, as when it is killed in between.
    pub(crate) loses_an_answer: bool,
    /// Calls it takes to remove something.
    pub(crate) removals_left: u32,
    /// How far the storage's clock is from the portal's, seconds.
    pub(crate) clock_is_off_by_s: i64,
    next: u64,
}

impl FakeRoots {
    fn change(&mut self, request: &LauncherRequest, now: Timestamp) -> Result<LauncherAnswer, LauncherError> {
        let refused = |code: &str| LauncherError::Refused { code: code.into(), text: "no".into() };
        if let Some(code) = self.refusal {
            return Err(refused(code));
        }
        let answer = match request {
            LauncherRequest::MakeSpace { root, name, of } => {
                let unshared = self.no_lists && matches!(of, SpaceFor::Group { writable: true, .. });
                let key = format!("{root}/{name}");
                let made = !self.present.contains_key(&key);
                self.next += 1;
                let inode = *self.present.entry(key).or_insert(self.next);
                LauncherAnswer::Space { made, inode, unshared }
            }
            LauncherRequest::LimitSpace { root, name, inode, bytes, files, .. } => {
                if !self.counts {
                    return Err(refused("not_supported"));
                }
                let key = format!("{root}/{name}");
                if self.present.get(&key) != Some(inode) {
                    return Err(refused("missing"));
                }
                self.limits.insert(key, (*bytes, *files));
                LauncherAnswer::Done
            }
            LauncherRequest::RetireSpace { root, name, inode, id } => {
                if self.retired.get(&id.to_string()) != Some(inode) {
                    let found = self.present.remove(&format!("{root}/{name}")).ok_or_else(|| refused("missing"))?;
                    self.retired.insert(id.to_string(), found);
                }
                LauncherAnswer::Space { made: false, inode: *inode, unshared: false }
            }
            LauncherRequest::RestoreSpace { root, name, inode, id } => {
                let key = format!("{root}/{name}");
                if self.present.get(&key) != Some(inode) {
                    let found = self.retired.remove(&id.to_string()).ok_or_else(|| refused("missing"))?;
                    self.present.insert(key, found);
                }
                LauncherAnswer::Space { made: false, inode: *inode, unshared: false }
            }
            LauncherRequest::RemoveRetired { id, .. } if self.removals_left == 0 => {
                self.retired.remove(&id.to_string());
                LauncherAnswer::Removed { done: true }
            }
            LauncherRequest::RemoveRetired { .. } => {
                self.removals_left -= 1;
                LauncherAnswer::Removed { done: false }
            }
            LauncherRequest::LookForSpace { root, at } => LauncherAnswer::SpaceSeen {
                inode: match at {
                    SpaceAt::Present(name) => self.present.get(&format!("{root}/{name}")).copied(),
                    SpaceAt::Retired(id) => self.retired.get(&id.to_string()).copied(),
                },
                file_time_s: now.as_second() + self.clock_is_off_by_s,
            },
            other => panic!("{other:?}"),
        };
        if std::mem::take(&mut self.loses_an_answer) {
            return Err(LauncherError::Unreachable { what: "a test".into(), source: None });
        }
        Ok(answer)
    }
}

/// Serves one channel of a person's.
pub(crate) type FilesStandIn = Arc<dyn Fn(Username, Channel) + Send + Sync>;

impl Default for FakeLauncher {
    fn default() -> Self {
        Self {
            calls: Arc::default(),
            refusal: Arc::default(),
            job_log: Arc::new(Mutex::new("the last words\n".into())),
            files: Arc::default(),
            spaces: Arc::default(),
            clock: MockClock::new(start_time()),
        }
    }
}

impl FakeLauncher {
    /// Restart counts and secrets of the job files it wrote, oldest first.
    pub(crate) fn job_files(&self) -> Vec<eirene_core::job_file::JobFile> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter_map(|call| match call {
                LauncherRequest::WriteJobFile { content, .. } => Some(serde_json::from_str(content).unwrap()),
                _ => None,
            })
            .collect()
    }
}

#[async_trait]
impl Launcher for FakeLauncher {
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        let refusal = *self.refusal.lock().unwrap();
        let answer = match &request {
            LauncherRequest::WriteJobFile { person, session, .. } => match refusal {
                Some("away") => return Err(LauncherError::Unreachable { what: "a test".into(), source: None }),
                Some(code) => return Err(LauncherError::Refused { code: code.into(), text: "no space left".into() }),
                None => LauncherAnswer::Written { directory: format!("/home/{person}/.eirene/sessions/{session}") },
            },
            LauncherRequest::ReadJobLog { .. } => LauncherAnswer::Log { text: self.job_log.lock().unwrap().clone() },
            LauncherRequest::MakeSpace { .. }
            | LauncherRequest::LimitSpace { .. }
            | LauncherRequest::RetireSpace { .. }
            | LauncherRequest::RestoreSpace { .. }
            | LauncherRequest::RemoveRetired { .. }
            | LauncherRequest::LookForSpace { .. } => {
                self.calls.lock().unwrap().push(request.clone());
                return self.spaces.lock().unwrap().change(&request, self.clock.now());
            }
            _ => LauncherAnswer::Done,
        };
        self.calls.lock().unwrap().push(request);
        Ok(answer)
    }

    async fn open_files(&self, person: &Username) -> Result<OwnedFd, LauncherError> {
        self.calls.lock().unwrap().push(LauncherRequest::OpenFiles { person: person.clone() });
        let Some(serve) = self.files.lock().unwrap().clone() else {
            return Err(LauncherError::Refused { code: "failed".into(), text: "no file process".into() });
        };
        let (portals, theirs) = Channel::pair().unwrap();
        let person = person.clone();
        std::thread::spawn(move || serve(person, theirs));
        Ok(portals.into_descriptor())
    }
}

/// Everything, in memory and a temporary directory.
pub(crate) struct TestApp {
    pub(crate) app: App,
    pub(crate) clock: MockClock,
    pub(crate) scheduler: FakeScheduler,
    pub(crate) launcher: FakeLauncher,
    pub(crate) storage: FakeStorage,
    pub(crate) groups: FakeGroups,
    pub(crate) directory: tempfile::TempDir,
}

impl TestApp {
    /// With one image in the catalogue and nobody in it.
    pub(crate) async fn new() -> Self {
        Self::with_traces(Traces::default()).await
    }

    /// The same where traces go somewhere.
    pub(crate) async fn with_traces(traces: Traces) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nportal_url = \"http://eirene.localhost:8080\"\napps_domain = \"apps.eirene.localhost:8080\"\nstate_dir = {:?}\n\
             [launcher]\nsocket = {:?}\n[images]\nbinds = [\"/data:/data:ro\"]\n[tunnel]\nadvertise = \"portal:7443\"\n[scratch]\nnode = \"/local\"\n[limits]\nlive_sessions = 3\nlive_runs = 4\n\
             [spaces]\nroots = [{{ name = \"scratch\", kind = \"scratch\", per = \"person\", title = \"Scratch\", path = \"/b/scratch\", node_path = \"/n/scratch\", \
             mounted_at = \"/scratch\" }}, {{ name = \"project\", kind = \"project\", title = \"Projects\", path = \"/b/project\", mounted_at = \"/project\" }}]\n",
            directory.path(),
            directory.path().join("launcher.sock")
        );
        let config = Arc::new(Config::from_text(&text).unwrap());
        let db = Db::open(&format!("sqlite://{}", directory.path().join("test.db").display())).await.unwrap();
        db.migrate().await.unwrap();
        let clock = MockClock::new(start_time());
        let scheduler = FakeScheduler::new(clock.clone());
        let launcher = FakeLauncher { clock: clock.clone(), ..FakeLauncher::default() };
        let (storage, groups) = (FakeStorage::new(), FakeGroups::new(directory.path().join("home")));
        let ports = Ports {
            db: db.clone(),
            clock: Arc::new(clock.clone()),
            scheduler: Arc::new(scheduler.clone()),
            launcher: Arc::new(launcher.clone()),
            storage: Arc::new(storage.clone()),
            groups: Arc::new(groups.clone()),
            history: None,
            traces,
        };
        let app = App::build(config, ports, Passwords::for_tests().unwrap());
        let image = Image {
            id: ImageId::generate(),
            name: "jupyter".parse().unwrap(),
            description: "JupyterLab".into(),
            path: "/images/a.sif".into(),
            sha256: "0".repeat(64),
            size_bytes: 1,
            apps: vec!["jupyterlab".parse().unwrap()],
            created_at: clock.now(),
        };
        db.insert_image(&image).await.unwrap();
        Self { app, clock, scheduler, launcher, storage, groups, directory }
    }

    /// Starts anew with another configuration: what is in the database, and what others know, stays.
    pub(crate) fn rebuild(&mut self, config: Config) {
        let history = Prometheus::new(&config.prometheus).unwrap();
        let ports = Ports {
            db: self.app.db.clone(),
            clock: Arc::new(self.clock.clone()),
            scheduler: Arc::new(self.scheduler.clone()),
            launcher: Arc::new(self.launcher.clone()),
            storage: Arc::new(self.storage.clone()),
            groups: Arc::new(self.groups.clone()),
            history: history.map(|prometheus| Arc::new(prometheus) as Arc<dyn History>),
            traces: self.app.traces.clone(),
        };
        self.app = App::build(Arc::new(config), ports, Passwords::for_tests().unwrap());
    }

    /// The name of the image goes on to another file.
    pub(crate) async fn replace_image(&self, path: &str) {
        let db = &self.app.db;
        let name = "jupyter".parse().unwrap();
        let known = db.image_by_name(&name).await.unwrap().unwrap();
        assert!(db.retire_image(&name).await.unwrap());
        db.insert_image(&Image { id: ImageId::generate(), path: path.into(), ..known }).await.unwrap();
    }

    /// A person who is signed in with a browser.
    pub(crate) async fn person(&self, name: &str, uid: u32, role: Role) -> Actor {
        let user = User {
            id: UserId::generate(),
            username: name.parse().unwrap(),
            role,
            state: UserState::Active,
            uid: Some(uid),
            created_at: self.clock.now(),
            access_epoch: 0,
        };
        self.app.db.insert_user(&user, "no hash").await.unwrap();
        Actor { user, via: Via::Login(eirene_core::LoginId::generate()), address: None, request_id: None }
    }

    /// The one whose jobs the scheduler in memory makes.
    pub(crate) async fn ada(&self) -> Actor {
        self.person("ada", 2001, Role::Researcher).await
    }

    /// What most tests start.
    pub(crate) fn wish() -> StartSession {
        StartSession {
            name: None,
            app: "jupyterlab".parse().unwrap(),
            image: "jupyter".parse().unwrap(),
            project: None,
            resources: small(),
            scratch: None,
        }
    }

    /// What most tests run.
    pub(crate) fn run_wish() -> StartRun {
        StartRun {
            name: None,
            program: program(),
            like: None,
            image: Some("jupyter".parse().unwrap()),
            project: None,
            size: RunSize::Whole(small()),
            scratch: None,
        }
    }

    /// That the API guide names what people were told until now, and all that belongs to it.
    pub(crate) async fn assert_notices_are_in_the_guide(&self) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api-guide.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let row = guide.lines().find(|line| line.starts_with("| `notice` |")).unwrap();
        let events = self.app.db.events_after(0, 1000).await.unwrap();
        for notice in events.into_iter().filter(|event| event.kind == "notice").map(|event| event.data) {
            let fields = notice.as_object().unwrap().keys().map(String::as_str);
            for word in fields.chain(notice["code"].as_str()) {
                assert!(row.contains(&format!("`{word}`")), "{word} of {notice}");
            }
        }
    }

    /// The row now.
    pub(crate) async fn row(&self, id: SessionId) -> Session {
        self.app.db.session(id).await.unwrap().unwrap()
    }
}
