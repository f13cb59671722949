//! The proxy alone, for `bench/proxy`: eirened's own HTTP service with real authorisation, and a unix socket where the tunnel would be.
//!
//! `bench_proxy ADDRESS APP_SOCKET DIRECTORY` listens, and writes `DIRECTORY/headers`: the session's host and a token that lets in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use eirene_core::audit::AuditEntry;
use eirene_core::launcher::Launcher;
use eirene_core::secret::Secret;
use eirene_core::{
    ApiToken, Clock, Desired, Resources, Role, Scope, Session, SessionId, SessionState, SystemClock, TokenId, User,
    UserId, UserState,
};
use eirene_database::{Db, Start};
use eirene_gateway::proxy::{ByteStream, Upstreams};
use eirene_gateway::{server, service_with};
use eirene_services::agents::NoTunnel;
use eirene_services::app::{App, Ports};
use eirene_services::config::Config;
use eirene_services::launcher_client::LauncherClient;
use eirene_services::passwords::Passwords;
use eirene_services::spaces::groups::LocalGroups;
use eirene_services::traces::Traces;
use eirene_services::workers::Workers;
use eirene_slurm_adapter::SlurmCli;
use eirene_storage::{LocalProbe, Posix};
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Every session's app is the one behind this socket.
struct UnixSocket(PathBuf);

impl Upstreams for UnixSocket {
    fn open(&self, _: SessionId) -> BoxFuture<'_, Result<Box<dyn ByteStream>, NoTunnel>> {
        Box::pin(async move {
            let stream: Box<dyn ByteStream> = Box::new(UnixStream::connect(&self.0).await.map_err(|_| NoTunnel)?);
            Ok(stream)
        })
    }

    fn revoked(&self, _: SessionId) -> CancellationToken {
        CancellationToken::new()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: bench_proxy ADDRESS APP_SOCKET DIRECTORY";
    let address: SocketAddr = arguments.next().context(usage)?.parse()?;
    let socket = PathBuf::from(arguments.next().context(usage)?);
    let directory = PathBuf::from(arguments.next().context(usage)?);

    let app = app(address, &directory).await?;
    let (session, token) = seed(&app.db).await?;
    let headers = format!("Host: {session}.{}\nAuthorization: Bearer {token}\n", app.config.server.apps_domain);
    let service = service_with(app.clone(), Arc::new(UnixSocket(socket)));
    let listener = TcpListener::bind(address).await?;
    std::fs::write(directory.join("headers"), headers)?;
    server::serve(app, service, listener, None, TaskTracker::new()).await;
    Ok(())
}

async fn app(address: SocketAddr, directory: &Path) -> anyhow::Result<App> {
    let port = address.port();
    let config = Config::from_text(&format!(
        "[server]\nlisten = \"{address}\"\nportal_url = \"http://bench.localhost:{port}\"\n\
         apps_domain = \"apps.bench.localhost:{port}\"\nstate_dir = \"{}\"\n\
         [tunnel]\nadvertise = \"127.0.0.1:1\"\n",
        directory.display()
    ))?;
    let db = Db::open(&format!("sqlite://{}", directory.join("bench.db").display())).await?;
    db.migrate().await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // None is asked: no reconciler runs.
    let launcher: Arc<dyn Launcher> = Arc::new(LauncherClient::new(directory.join("launcher.sock")));
    let storage = Arc::new(Posix::new(Arc::new(LocalProbe::new(BTreeMap::new()))));
    let scheduler = Arc::new(SlurmCli::new("bench", Arc::clone(&launcher), Arc::clone(&clock)));
    let groups = Arc::new(LocalGroups::default());
    let ports = Ports { db, clock, scheduler, launcher, storage, groups, history: None, traces: Traces::default() };
    let built = App::build(Arc::new(config), ports, Passwords::new()?);
    // Its threads run until the process is killed.
    let (workers, _threads) = Workers::start()?;
    Ok(built.with_workers(workers))
}

/// One person with a token and a running session.
async fn seed(db: &Db) -> anyhow::Result<(SessionId, String)> {
    let now = SystemClock.now();
    let user = User {
        id: UserId::generate(),
        username: "bench".parse()?,
        role: Role::Researcher,
        state: UserState::Active,
        uid: Some(2001),
        created_at: now,
        access_epoch: 0,
    };
    db.insert_user(&user, "no password", &entry()).await?;
    let secret = Secret::from_text(format!("eir_{}", Secret::generate().expose()));
    let token = ApiToken {
        id: TokenId::generate(),
        user: user.id,
        name: "bench".to_owned(),
        scopes: vec![Scope::SessionsConnect],
        created_at: now,
        expires_at: None,
        last_used_at: None,
    };
    db.insert_token(0, &token, &secret.hash(), &entry()).await?;
    let session = Session {
        id: SessionId::generate(),
        owner: user.id,
        owner_name: user.username,
        owner_uid: 2001,
        name: "bench".parse()?,
        app: "jupyterlab".parse()?,
        image: "jupyter".parse()?,
        image_path: "/bench.sif".to_owned(),
        project: None,
        resources: Resources {
            partition: None,
            nodes: 1,
            cpus: 1,
            memory_mib: 1024,
            gpus: 0,
            gpu_type: None,
            walltime_min: 60,
        },
        desired: Desired::Running,
        state: SessionState::Running,
        undetermined: false,
        reason: None,
        marker: "bench".to_owned(),
        submit_begun_at: Some(now),
        job: None,
        restart_count: 0,
        nodes: Vec::new(),
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
    };
    db.insert_session(&session, Start::default()).await?;
    Ok((session.id, secret.expose().to_owned()))
}

/// The line in the audit log of what is arranged.
fn entry() -> AuditEntry {
    let event = eirene_services::audit::by_system("bench", "bench.arrange", "", "ok", serde_json::json!({}));
    AuditEntry::new(event, SystemClock.now())
}
