//! What the tests of this crate and of those above are arranged with: a scheduler and a launcher in memory, a clock that is moved, a database in a temporary
//! directory.

mod cluster;
mod launcher;
mod logged;
mod scheduler;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use eirene_core::audit::{AuditEntry, AuditEvent};
use eirene_core::clock::MockClock;
use eirene_core::scheduler::{Job, JobIdentity, JobState, Queue};
use eirene_core::{
    Clock as _, Desired, Image, ImageId, Reason, Resources, Role, RunProgram, Session, SessionId, SessionState, User,
    UserId, UserState,
};
use eirene_database::Db;
use jiff::Timestamp;

use crate::actor::{Actor, Via};
use crate::app::{App, Ports};
use crate::audit::by_system;
use crate::cluster::Snapshot;
use crate::config::Config;
use crate::passwords::Passwords;
use crate::runs::{RunSize, StartRun};
use crate::samples::{History, Prometheus};
use crate::sessions::StartSession;
use crate::traces::Traces;

pub use cluster::idle_node;
use cluster::{nodes, partitions};
pub use launcher::{FakeLauncher, FakeRoots, FilesStandIn};
pub use logged::Logged;
use scheduler::said;
pub use scheduler::{FakeScheduler, SchedulerState, SubmitMood};
pub use storage::{FakeGroups, FakeStorage, StorageMood, StorageState, server_sample};

/// A test that waits longer than this for one thing hangs. It says nothing about how soon the thing must come.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Where the clock of every test begins.
pub fn start_time() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// The line in the audit log of what a test arranges in the database.
pub fn entry() -> AuditEntry {
    AuditEntry::new(by_system("test", "test.arrange", "", "ok", serde_json::json!({})), start_time())
}

/// A small wish.
pub fn small() -> Resources {
    Resources { partition: None, nodes: 1, cpus: 2, memory_mib: 2048, gpus: 0, gpu_type: None, walltime_min: 60 }
}

/// A session of `owner` that was just asked for.
pub fn session(owner: &str) -> Session {
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
pub fn program() -> RunProgram {
    RunProgram {
        file: "work/train.py".into(),
        arguments: vec!["--lr".into(), "0.1".into()],
        ranks: Some(2),
        preflight: true,
    }
}

/// The job of `session` in some state.
pub fn job(session: &Session, id: u32, state: JobState) -> Job {
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

/// These jobs as numbers.
pub fn queue(jobs: &[Job]) -> Queue {
    let mut queue = Queue::default();
    for job in jobs {
        queue.count(job, 1, 0, 0);
    }
    queue
}

/// The demo cluster, with these jobs on it.
pub fn snapshot(jobs: Vec<Job>) -> Snapshot {
    Snapshot {
        asked_at: Some(start_time()),
        good_since: Some(start_time()),
        reachable: true,
        trouble: None,
        queue: Arc::new(queue(&jobs)),
        jobs: Arc::new(jobs),
        nodes: Arc::new(nodes()),
        partitions: Arc::new(partitions()),
        ..Snapshot::default()
    }
}

/// Everything, in memory and a temporary directory.
pub struct TestApp {
    pub app: App,
    pub clock: MockClock,
    pub scheduler: FakeScheduler,
    pub launcher: FakeLauncher,
    pub storage: FakeStorage,
    pub groups: FakeGroups,
    pub directory: tempfile::TempDir,
}

impl TestApp {
    /// With one image in the catalogue and nobody in it.
    pub async fn new() -> Self {
        Self::with_traces(Traces::default()).await
    }

    /// The same where traces go somewhere.
    pub async fn with_traces(traces: Traces) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nportal_url = \"http://eirene.localhost:8080\"\napps_domain = \"apps.eirene.localhost:8080\"\nstate_dir = \"{}\"\n\
             [launcher]\nsocket = \"{}\"\n[images]\nbinds = [\"/data:/data:ro\"]\n[tunnel]\nadvertise = \"portal:7443\"\n[scratch]\nnode = \"/local\"\n[limits]\nlive_sessions = 3\nlive_runs = 4\n\
             [spaces]\nroots = [{{ name = \"scratch\", kind = \"scratch\", per = \"person\", title = \"Scratch\", path = \"/b/scratch\", node_path = \"/n/scratch\", \
             mounted_at = \"/scratch\" }}, {{ name = \"project\", kind = \"project\", title = \"Projects\", path = \"/b/project\", mounted_at = \"/project\" }}]\n",
            directory.path().display(),
            directory.path().join("launcher.sock").display()
        );
        let config = Arc::new(Config::from_text(&text).unwrap());
        let db = Db::open(&format!("sqlite://{}", directory.path().join("test.db").display())).await.unwrap();
        db.migrate().await.unwrap();
        let clock = MockClock::new(start_time());
        let scheduler = FakeScheduler::new(clock.clone());
        let launcher = FakeLauncher { clock: clock.clone(), ..FakeLauncher::default() };
        let (storage, groups) = (FakeStorage::default(), FakeGroups::new(directory.path().join("home")));
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
        db.insert_image(&image, &entry()).await.unwrap();
        Self { app, clock, scheduler, launcher, storage, groups, directory }
    }

    /// Starts anew with another configuration: what is in the database, and what others know, stays.
    pub fn rebuild(&mut self, config: Config) {
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
    pub async fn replace_image(&self, path: &str) {
        let db = &self.app.db;
        let name = "jupyter".parse().unwrap();
        let known = db.image_by_name(&name).await.unwrap().unwrap();
        assert!(db.retire_image(&name, &entry()).await.unwrap());
        db.insert_image(&Image { id: ImageId::generate(), path: path.into(), ..known }, &entry()).await.unwrap();
    }

    /// A person who is signed in with a browser.
    pub async fn person(&self, name: &str, uid: u32, role: Role) -> Actor {
        let user = User {
            id: UserId::generate(),
            username: name.parse().unwrap(),
            role,
            state: UserState::Active,
            uid: Some(uid),
            created_at: self.clock.now(),
            access_epoch: 0,
        };
        self.app.db.insert_user(&user, "no hash", &entry()).await.unwrap();
        Actor { user, via: Via::Login(eirene_core::LoginId::generate()), address: None, request_id: None }
    }

    /// The one whose jobs the scheduler in memory makes.
    pub async fn ada(&self) -> Actor {
        self.person("ada", 2001, Role::Researcher).await
    }

    /// What most tests start.
    pub fn wish() -> StartSession {
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
    pub fn run_wish() -> StartRun {
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

    /// The newest lines of the audit log, but for what tests have arranged.
    pub async fn audited(&self) -> Vec<AuditEvent> {
        let mut events = self.app.db.audit_events(None, 200, None, None).await.unwrap();
        events.retain(|event| event.action != "test.arrange");
        events
    }

    /// That the API guide names what people were told until now, and all that belongs to it.
    pub async fn assert_notices_are_in_the_guide(&self) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api-guide.md");
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
    pub async fn row(&self, id: SessionId) -> Session {
        self.app.db.session(id).await.unwrap().unwrap()
    }
}
