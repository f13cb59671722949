//! `serve`: puts everything together, runs it, and ends it in order.

use std::io::IsTerminal as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use eirene_core::launcher::Launcher;
use eirene_core::scheduler::Scheduler;
use eirene_core::{Clock, SystemClock};
use eirene_gateway::server;
use eirene_gateway::tunnel::{self, TunnelContext, TunnelIdentity};
use eirene_reconcilers::JobFiles;
use eirene_services::app::{App, Ports};
use eirene_services::config::{Adapter, Config, LogFormat};
use eirene_services::launcher_client::LauncherClient;
use eirene_services::launcher_groups::LauncherGroups;
use eirene_services::passwords::Passwords;
use eirene_services::samples::{History, Prometheus};
use eirene_services::sessions::notices::Notices;
use eirene_services::shared_storage::shared_storage;
use eirene_services::spaces::groups::LocalGroups;
use eirene_services::traces::Traces;
use eirene_services::workers::Workers;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;
use tracing_subscriber::EnvFilter;

use super::{open, owner};

/// How long open connections and running work may take to end.
const GOODBYE: Duration = Duration::from_secs(8);

/// Runs the portal until it is told to end.
pub(super) async fn serve(config: Config) -> anyhow::Result<()> {
    log_to_stderr(&config)?;
    install_tls_provider()?;
    let config = Arc::new(config);
    prepare_state_dir(&config.server.state_dir)?;
    owner::check_files(&config.server.state_dir)?;
    let listener = bind(config.server.listen, "the portal").await?;
    let tunnel_listener = bind(config.tunnel.listen, "the tunnel").await?;
    let metrics_listener = match config.metrics.listen {
        Some(address) => Some(bind(address, "the metrics").await?),
        None => None,
    };
    let db = open::database(&config).await?;
    db.migrate().await.context("the database could not be brought up to date")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let launcher: Arc<dyn Launcher> = Arc::new(LauncherClient::new(&config.launcher.socket));
    let scheduler = scheduler(&config, &launcher, &clock)?;
    let identity = TunnelIdentity::load_or_make(&config.server.state_dir)?;
    let storage = shared_storage(&config, &launcher);
    let groups = Arc::new(LauncherGroups::new(Arc::clone(&launcher), LocalGroups::default()));
    let history = Prometheus::new(&config.prometheus)?.map(|prometheus| Arc::new(prometheus) as Arc<dyn History>);
    let (traces, exporter) = Traces::new(&config.traces)?;
    let ports = Ports { db, clock, scheduler, launcher, storage, groups, history, traces };
    let built = App::build(Arc::clone(&config), ports, Passwords::new()?);
    let (workers, threads) = Workers::start().context("the threads for connections could not be started")?;
    let app = built.with_workers(workers);

    let interrupted = app.operations.begin_anew().await.context("operations could not be looked through")?;
    if interrupted > 0 {
        tracing::warn!(
            interrupted,
            "Operations on files were under way when the portal ended, and are not gone on with"
        );
    }
    let tracker = TaskTracker::new();
    let scans = app.scans.clone();
    tracker.spawn(async move {
        // Those of them that only measured are begun again where they were.
        let many = scans.go_on().await;
        if many > 0 {
            tracing::info!(many, "Scans that were under way are gone on with");
        }
    });
    let job_files = JobFiles::new(&app, identity.pin());
    eirene_reconcilers::start(&app, &job_files, &tracker);
    tracker.spawn(Notices::new(app.sessions.clone()).run(app.shutdown.clone()));
    tracker.spawn(app.samples.clone().keep(app.shutdown.clone()));
    if let Some(exporter) = exporter {
        tracker.spawn(exporter.run(app.shutdown.clone()));
    }
    tunnel::listen(&TunnelContext::from(&app), tunnel_listener, &identity, &tracker)?;
    let tls = server::Tls::from_config(&config)?;
    if let Some(tls) = &tls {
        tracker.spawn(tls.clone().reload_until(app.shutdown.clone()));
    }
    tracker.spawn(server::serve(app.clone(), eirene_gateway::service(app.clone()), listener, tls, tracker.clone()));
    if let Some(listener) = metrics_listener {
        tracker.spawn(server::serve_metrics(app.clone(), listener));
    }
    tracing::info!(address = %config.server.listen, url = config.portal_origin(), "The portal answers");
    // Without a service manager there is nobody to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    wait_for_end().await?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("The portal ends; sessions go on");
    app.shutdown.cancel();
    tracker.close();
    if tokio::time::timeout(GOODBYE, tracker.wait()).await.is_err() {
        tracing::warn!(open = tracker.len(), "Some work did not end in time and is left to the next start");
    }
    tokio::task::spawn_blocking(|| threads.end()).await.context("the threads for connections did not end")?;
    app.audit.record_all_refusals().await;
    app.db.close().await;
    Ok(())
}

/// The scheduler the configuration names.
pub(super) fn scheduler(
    config: &Config,
    launcher: &Arc<dyn Launcher>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Scheduler>> {
    let slurm = &config.slurm;
    Ok(match slurm.adapter {
        Adapter::Slurmrestd => Arc::new(eirene_slurm_adapter::SlurmRestd::new(
            &slurm.slurmrestd_url,
            &slurm.service_account,
            &slurm.cluster,
            Arc::clone(launcher),
            Arc::clone(clock),
        )?),
        Adapter::Cli => {
            Arc::new(eirene_slurm_adapter::SlurmCli::new(&slurm.cluster, Arc::clone(launcher), Arc::clone(clock)))
        }
    })
}

/// rustls asks for its provider once per process.
pub(super) fn install_tls_provider() -> anyhow::Result<()> {
    let installed = rustls::crypto::ring::default_provider().install_default();
    anyhow::ensure!(installed.is_ok(), "another TLS provider is installed already");
    Ok(())
}

async fn bind(address: std::net::SocketAddr, what: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{what} cannot listen on {address}"))
}

/// The state directory holds keys: nobody else may look into it.
fn prepare_state_dir(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("the state directory `{name}` could not be made"))?;
    let mode = std::fs::metadata(path).with_context(|| format!("`{name}` cannot be read"))?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o700))
            .with_context(|| format!("the state directory `{name}` is open to others"))?;
    }
    Ok(())
}

fn log_to_stderr(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log.filter).context("`log.filter` is not understood")?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let done = match config.log.format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    done.map_err(|error| anyhow::anyhow!("the log could not be set up: {error}"))
}

async fn wait_for_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
