//! eirened and agents as they are, without SLURM: the portal gets a database with a person, a token and sessions whose jobs it
//! believes to exist, each session's agent is started by us instead of by a batch job, and instead of Apptainer it finds
//! [`stand_in`], which becomes the benchmark's own app. Proxy, tunnel, TLS and authorisation are the real ones. The scheduler is out of
//! reach, which changes no session.

use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use data_encoding::HEXLOWER;
use eirene_core::audit::{AuditEntry, NewAuditEvent};
use eirene_core::job_file::{AppSpec, JobFile};
use eirene_core::scheduler::JobIdentity;
use eirene_core::secret::Secret;
use eirene_core::{
    ApiToken, Clock as _, Desired, Resources, Role, Scope, Session, SessionId, SessionState, SystemClock, TokenId,
    User, UserId, UserState,
};
use eirene_database::{Db, Start};
use hyper::StatusCode;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use crate::http::Ask;
use crate::load::Target;
use crate::process::{Answers, Server, free_address};
use crate::upstream;

/// Longest wait for a session's app.
const PATIENCE: Duration = Duration::from_mins(1);

/// A portal with running sessions.
pub(crate) struct Rig {
    /// eirened.
    pub(crate) portal: Server,
    /// One a session.
    pub(crate) agents: Vec<Server>,
    address: SocketAddr,
    apps_domain: String,
    sessions: Vec<SessionId>,
    token: Secret,
    dir: PathBuf,
    /// eirene-launcher, where files are part of it.
    launcher: Option<Server>,
}

/// Whose files are reached, where files are part of the rig: both are in the user database, and this process is root's.
pub(crate) struct Accounts {
    /// Who the sessions and the files belong to.
    pub(crate) person: Account,
    /// Who eirened runs as.
    pub(crate) portal: Account,
}

/// A user.
pub(crate) struct Account {
    /// Name.
    pub(crate) name: &'static str,
    /// User id, and id of the only group.
    pub(crate) id: u32,
}

/// How agents are started.
pub(crate) struct AgentProgram<'a> {
    /// The program; what an agent looks for beside itself lies there.
    pub(crate) path: PathBuf,
    /// What it finds in its environment, but for what every job has.
    pub(crate) environment: &'a [(&'a str, PathBuf)],
}

/// A program under test, where `bench/lib.sh` builds it: beside this one.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe()?;
    let beside = me.parent().context("a program lies in a directory")?;
    let path = beside.join(name);
    path.canonicalize().with_context(|| format!("no `{}`: bench/lib.sh builds it", path.display()))
}

impl Rig {
    /// Starts the portal and `count` sessions, and waits until all of their apps answer through the proxy.
    pub(crate) async fn start(count: usize, dir: &Path) -> anyhow::Result<Self> {
        Self::start_with(count, dir, None).await
    }

    /// The same with a launcher, so that the person's files are reached too.
    pub(crate) async fn start_with(count: usize, dir: &Path, accounts: Option<&Accounts>) -> anyhow::Result<Self> {
        let agent = AgentProgram { path: program("eirene-agent")?, environment: &[] };
        Self::start_agents(count, dir, accounts, &agent).await
    }

    /// The same with agents of one's own.
    pub(crate) async fn start_agents(
        count: usize,
        dir: &Path,
        accounts: Option<&Accounts>,
        agent: &AgentProgram<'_>,
    ) -> anyhow::Result<Self> {
        let place = Place::make(dir)?;
        let person = accounts.map(|accounts| &accounts.person);
        let seeded = seed(count, SessionState::Starting, &place.state.join("eirene.db"), person).await?;
        let launcher = match accounts {
            Some(accounts) => Some(start_launcher(&place.dir, &place.launcher, accounts).await?),
            None => None,
        };
        let portal = place.start_portal(accounts).await?;
        let Place { dir, state, address, tunnel, apps_domain, .. } = place;
        stand_in_for_apptainer(&dir)?;
        let pin = pin(&state.join("tunnel.crt"))?;
        let mut agents = Vec::with_capacity(count);
        for (number, (session, secret)) in seeded.sessions.iter().enumerate() {
            let person = accounts.map(|accounts| &accounts.person);
            agents.push(start_agent(agent, number, *session, secret, tunnel, &pin, &apps_domain, &dir, person)?);
        }
        let sessions = seeded.sessions.into_iter().map(|(session, _)| session).collect();
        let rig = Self { portal, agents, address, apps_domain, sessions, token: seeded.token, dir, launcher };
        rig.wait().await?;
        Ok(rig)
    }

    /// The portal with `count` sessions that run by its rows alone, with nobody behind them: for what depends on how many there are. Before it is
    /// started `prepare` gets the directory of its samples, and the sessions.
    pub(crate) async fn start_rows(
        count: usize,
        dir: &Path,
        prepare: impl FnOnce(&Path, &[SessionId]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let place = Place::make(dir)?;
        let seeded = seed(count, SessionState::Running, &place.state.join("eirene.db"), None).await?;
        let sessions: Vec<SessionId> = seeded.sessions.into_iter().map(|(session, _)| session).collect();
        prepare(&place.state.join("samples"), &sessions)?;
        let portal = place.start_portal(None).await?;
        let Place { dir, address, apps_domain, .. } = place;
        let (agents, token) = (Vec::new(), seeded.token);
        Ok(Self { portal, agents, address, apps_domain, sessions, token, dir, launcher: None })
    }

    /// The app of the first session, through the proxy.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        let headers = self.dir.join("headers");
        std::fs::write(&headers, format!("Host: {}\nAuthorization: {}\n", self.host(self.sessions[0]), self.bearer()))?;
        Ok(Target { address: self.address, headers })
    }

    /// All processes, agents first: an agent says goodbye to its portal.
    pub(crate) fn into_servers(self) -> Vec<Server> {
        self.agents.into_iter().chain([self.portal]).chain(self.launcher).collect()
    }

    /// The launcher's process.
    pub(crate) fn launcher(&self) -> Option<u32> {
        self.launcher.as_ref().and_then(Server::pid)
    }

    /// Where the portal listens, and what its pages are called.
    pub(crate) fn portal_at(&self) -> (SocketAddr, String) {
        (self.address, format!("bench.localhost:{}", self.address.port()))
    }

    /// Its sessions.
    pub(crate) fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    fn host(&self, session: SessionId) -> String {
        format!("{session}.{}", self.apps_domain)
    }

    /// What says who asks.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.token.expose())
    }

    async fn wait(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        for (number, session) in self.sessions.iter().enumerate() {
            loop {
                let (host, bearer) = (self.host(*session), self.bearer());
                let ask = Ask {
                    address: self.address,
                    host: &host,
                    method: "GET",
                    path: "/small",
                    authorization: Some(&bearer),
                    body: None,
                };
                let answer = ask.send().await;
                if answer.as_ref().is_ok_and(|(status, body)| *status == StatusCode::OK && body == upstream::SMALL) {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    let answer = answer.map(|(status, body)| format!("{status} {}", String::from_utf8_lossy(&body)));
                    bail!(
                        "session {number} does not answer: {answer:?}\neirened: {}\nagent: {}",
                        self.portal.said(),
                        self.agents[number].said()
                    );
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

/// Where a portal has its files and its addresses.
struct Place {
    dir: PathBuf,
    state: PathBuf,
    address: SocketAddr,
    tunnel: SocketAddr,
    apps_domain: String,
    /// Socket of its launcher.
    launcher: PathBuf,
    config: PathBuf,
}

impl Place {
    fn make(dir: &Path) -> anyhow::Result<Self> {
        let dir = dir.join("rig");
        let state = dir.join("state");
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&dir)?;
        std::fs::DirBuilder::new().mode(0o700).create(&state)?;
        let (address, tunnel) = (free_address()?, free_address()?);
        let apps_domain = format!("apps.bench.localhost:{}", address.port());
        // Nobody answers at the first; a launcher is there where files are part of it.
        let (slurmrestd, launcher) = (free_address()?, dir.join("launcher.sock"));
        let text = format!(
            "[server]\nlisten = \"{address}\"\nportal_url = \"http://bench.localhost:{}\"\napps_domain = \"{apps_domain}\"\n\
             state_dir = \"{}\"\n[tunnel]\nlisten = \"{tunnel}\"\nadvertise = \"{tunnel}\"\n[launcher]\nsocket = \"{}\"\n\
             [slurm]\nslurmrestd_url = \"http://{slurmrestd}\"\ncluster = \"bench\"\n[metrics]\nsessions = true\n",
            address.port(),
            state.display(),
            launcher.display(),
        );
        let config = dir.join("eirened.toml");
        std::fs::write(&config, text)?;
        Ok(Self { dir, state, address, tunnel, apps_domain, launcher, config })
    }

    async fn start_portal(&self, accounts: Option<&Accounts>) -> anyhow::Result<Server> {
        let address = self.address;
        let mut command = Command::new(program("eirened")?);
        if let Some(Accounts { portal, .. }) = accounts {
            give(&self.state, portal)?;
            command.uid(portal.id).gid(portal.id);
        }
        command.arg("serve").arg("--config").arg(&self.config);
        let mut portal = Server::start("eirened", command, &self.dir)?;
        portal.wait(Answers::Tcp(address)).await?;
        // The port is open before the first request is answered.
        let host = format!("bench.localhost:{}", address.port());
        let ask = Ask { address, host: &host, method: "GET", path: "/healthz", authorization: None, body: None };
        ask.send().await.with_context(|| portal.said())?;
        Ok(portal)
    }
}

struct Seeded {
    token: Secret,
    sessions: Vec<(SessionId, Secret)>,
}

/// Hands a directory and all in it over.
fn give(path: &Path, to: &Account) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(path)? {
        std::os::unix::fs::chown(entry?.path(), Some(to.id), Some(to.id))?;
    }
    Ok(std::os::unix::fs::chown(path, Some(to.id), Some(to.id))?)
}

/// A launcher for file processes alone: SLURM's users do not exist, and no token is signed.
async fn start_launcher(dir: &Path, socket: &Path, accounts: &Accounts) -> anyhow::Result<Server> {
    // The launcher starts nothing that others could write to.
    let files = dir.join("eirene-files");
    std::fs::copy(program("eirene-files")?, &files)?;
    std::fs::set_permissions(&files, std::fs::Permissions::from_mode(0o755))?;
    let key = dir.join("jwt.key");
    std::fs::write(&key, Secret::generate().expose())?;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
    let config = format!(
        "socket = \"{}\"\npeer_user = \"{}\"\njwt_key = \"{}\"\nslurm_user = \"slurm\"\nservice_account = \"bench-op\"\n\
         audit_log = \"{}\"\nfiles_program = \"{}\"\n",
        socket.display(),
        accounts.portal.name,
        key.display(),
        dir.join("launcher-audit.log").display(),
        files.display(),
    );
    let file = dir.join("launcher.toml");
    std::fs::write(&file, config)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    let mut command = Command::new(program("eirene-launcher")?);
    command.arg("--config").arg(&file);
    let mut launcher = Server::start("launcher", command, dir)?;
    launcher.wait(Answers::Unix(socket)).await?;
    Ok(launcher)
}

/// A database with one person, a token and sessions in this state.
async fn seed(count: usize, state: SessionState, path: &Path, person: Option<&Account>) -> anyhow::Result<Seeded> {
    let db = Db::open(&format!("sqlite://{}", path.display())).await?;
    db.migrate().await?;
    let now = SystemClock.now();
    let own = std::fs::metadata("/proc/self")?.uid();
    let uid = person.map_or(own, |person| person.id);
    let user = User {
        id: UserId::generate(),
        username: person.map_or("bench", |person| person.name).parse()?,
        role: Role::Researcher,
        state: UserState::Active,
        uid: Some(uid),
        created_at: now,
        access_epoch: 0,
    };
    db.insert_user(&user, "no password", &entry()).await?;
    let token = Secret::from_text(format!("eir_{}", Secret::generate().expose()));
    let row = ApiToken {
        id: TokenId::generate(),
        user: user.id,
        name: "bench".to_owned(),
        scopes: vec![Scope::SessionsConnect, Scope::FilesRead, Scope::FilesWrite],
        created_at: now,
        expires_at: None,
        last_used_at: None,
    };
    db.insert_token(0, &row, &token.hash(), &entry()).await?;
    let mut sessions = Vec::with_capacity(count);
    for number in 0..count {
        let session = Session { state, ..session(number, &user, uid)? };
        db.insert_session(&session, Start::default()).await?;
        let secret = Secret::generate();
        db.set_job_secret(session.id, 0, &secret.hash()).await?;
        sessions.push((session.id, secret));
    }
    db.close().await;
    Ok(Seeded { token, sessions })
}

/// Number of the job a session believes in.
pub(crate) fn job_number(number: usize) -> u32 {
    1000 + number as u32
}

fn session(number: usize, user: &User, uid: u32) -> anyhow::Result<Session> {
    let now = SystemClock.now();
    Ok(Session {
        id: SessionId::generate(),
        owner: user.id,
        owner_name: user.username.clone(),
        owner_uid: uid,
        name: format!("bench {number}").parse()?,
        app: "jupyterlab".parse()?,
        image: "jupyter".parse()?,
        image_path: "/srv/eirene/images/bench.sif".to_owned(),
        project: None,
        resources: Resources {
            partition: None,
            nodes: 1,
            cpus: 1,
            memory_mib: 1024,
            gpus: 0,
            gpu_type: None,
            walltime_min: 600,
        },
        desired: Desired::Running,
        state: SessionState::Starting,
        undetermined: false,
        reason: None,
        marker: format!("eirene-{}", Secret::generate().expose()),
        submit_begun_at: Some(now),
        job: Some(JobIdentity { cluster: "bench".to_owned(), id: job_number(number), submitted_at: now }),
        restart_count: 0,
        nodes: vec!["c1".parse()?],
        start_estimate: None,
        created_at: now,
        started_at: Some(now),
        ends_at: None,
        ended_at: None,
        program: None,
        requeue_of: None,
        exit_status: None,
        scratch_state: None,
        scratch: None,
        version: 1,
    })
}

#[expect(clippy::too_many_arguments, reason = "all that a job file and its agent need")]
fn start_agent(
    agent: &AgentProgram<'_>,
    number: usize,
    session: SessionId,
    secret: &Secret,
    tunnel: SocketAddr,
    pin: &str,
    apps_domain: &str,
    dir: &Path,
    person: Option<&Account>,
) -> anyhow::Result<Server> {
    let home = dir.join(format!("home-{number}"));
    std::fs::DirBuilder::new().mode(0o700).create(&home)?;
    let file = JobFile {
        session,
        restart_count: 0,
        secret: secret.expose().to_owned(),
        portal: tunnel.to_string(),
        portal_pin: pin.to_owned(),
        app: AppSpec {
            app: "jupyterlab".parse()?,
            image_path: dir.join("bench.sif").display().to_string(),
            gpus: false,
            binds: Vec::new(),
            origin: format!("http://{session}.{apps_domain}"),
            ready_within_s: 60,
            run: None,
            scratch: None,
        },
        trace: None,
    };
    let path = home.join("job.json");
    std::fs::write(&path, serde_json::to_string(&file)?)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let mut command = Command::new(&agent.path);
    if let Some(person) = person {
        give(&home, person)?;
        command.uid(person.id).gid(person.id);
    }
    command
        .arg("run")
        .arg("--job-file")
        .arg(&path)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", dir.join("bin").display()))
        .env("HOME", &home)
        .env("USER", "bench")
        .env("SLURM_JOB_ID", job_number(number).to_string())
        .env("SLURMD_NODENAME", "c1")
        .env("SLURM_JOB_NODELIST", "c1")
        .env("SLURM_RESTART_COUNT", "0")
        .envs(agent.environment.iter().map(|(name, value)| (name, value)));
    Server::start(&format!("agent-{number}"), command, dir)
}

/// SHA-256 of a certificate, as job files carry it.
fn pin(certificate: &Path) -> anyhow::Result<String> {
    let der = CertificateDer::from_pem_file(certificate)
        .map_err(|error| anyhow::anyhow!("{}: {error}", certificate.display()))?;
    Ok(HEXLOWER.encode(&Sha256::digest(der.as_ref())))
}

/// A program `apptainer` that is this one, and a file for an image.
fn stand_in_for_apptainer(dir: &Path) -> anyhow::Result<()> {
    std::fs::write(dir.join("bench.sif"), "")?;
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin)?;
    let path = bin.join("apptainer");
    let me = std::env::current_exe()?;
    std::fs::write(&path, format!("#!/bin/sh\nexec '{}' stand-in -- \"$@\"\n", me.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// What the agent starts instead of Apptainer: finds the socket the app was told to listen on, as it is called outside the container,
/// and serves there.
pub(crate) async fn stand_in(arguments: &[String]) -> anyhow::Result<()> {
    let inside = arguments
        .iter()
        .rev()
        .flat_map(|argument| argument.split('='))
        .find(|word| word.starts_with('/') && Path::new(word).extension().is_some_and(|extension| extension == "sock"))
        .with_context(|| format!("no socket in {arguments:?}"))?;
    let binds = arguments.iter().filter_map(|argument| argument.strip_prefix("--bind="));
    let outside = binds
        .filter_map(|bind| bind.split_once(':'))
        .find_map(|(source, rest)| {
            let target = rest.split(':').next()?;
            Some(Path::new(source).join(Path::new(inside).strip_prefix(target).ok()?))
        })
        .unwrap_or_else(|| PathBuf::from(inside));
    upstream::serve(Some(&outside), None).await
}

/// The line in the audit log of what is arranged.
fn entry() -> AuditEntry {
    let event = NewAuditEvent {
        actor: "system:bench".to_owned(),
        action: "bench.arrange",
        target: String::new(),
        outcome: "ok",
        details: serde_json::json!({}),
        address: None,
        request_id: None,
    };
    AuditEntry::new(event, SystemClock.now())
}
