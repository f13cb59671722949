//! `doctor`: looks at everything the portal depends on, one line each, with the cure where it knows one.
//!
//! Here is in what order it is looked at, for how long at most, and what is made of it; each kind of thing is looked at in a module of its own.

mod agent;
mod database;
mod origins;
mod outside;
mod state;
mod storage;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use eirene_core::launcher::Launcher;
use eirene_services::config::Config;
use eirene_services::launcher_client::LauncherClient;

use super::{say, serve};

/// Longest wait for one of them.
const WAIT: Duration = Duration::from_secs(15);
/// The same for the storage: a parallel one is asked a dozen questions, of which each asks its servers in turn.
const STORAGE_WAIT: Duration = Duration::from_mins(2);
/// Longest wait for whoever shows the portal's certificate, and for the webhook's host.
const HOST_WAIT: Duration = Duration::from_secs(5);

/// What one look gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    Good(String),
    Doubtful(String),
    Broken(String),
}

impl Finding {
    fn from_result<E: Into<anyhow::Error>>(result: Result<String, E>) -> Self {
        match result {
            Ok(text) => Self::Good(text),
            Err(error) => Self::Broken(format!("{:#}", error.into())),
        }
    }

    fn line(&self, what: &str) -> String {
        let (word, text) = match self {
            Self::Good(text) => ("ok", text),
            Self::Doubtful(text) => ("warning", text),
            Self::Broken(text) => ("BROKEN", text),
        };
        format!("{word:<8} {what:<13} {text}")
    }
}

/// Looks; exit code 1 when something is broken.
pub(super) async fn doctor(path: &Path) -> anyhow::Result<ExitCode> {
    serve::install_tls_provider()?;
    let found = findings(path).await?;
    for line in lines(&found) {
        say(&line);
    }
    let broken = found.iter().any(|(_, finding)| matches!(finding, Finding::Broken(_)));
    Ok(ExitCode::from(u8::from(broken)))
}

/// A line each.
pub(super) fn lines(found: &[(&'static str, Finding)]) -> Vec<String> {
    found.iter().map(|(what, finding)| finding.line(what)).collect()
}

/// What everything looks like that the portal depends on.
pub(super) async fn findings(path: &Path) -> anyhow::Result<Vec<(&'static str, Finding)>> {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => return Ok(vec![("config", Finding::Broken(error.to_string()))]),
    };
    let mut findings = vec![
        ("config", Finding::Good(format!("`{}` is understood", path.display()))),
        ("state", state::state_dir(&config.server.state_dir)),
        ("samples", state::samples(&config)),
        ("tunnel", state::tunnel(&config)),
        ("tls", origins::tls(&config)),
        ("apps domain", origins::apps_domain(&config)),
    ];
    findings.extend(origins::proxy(&config).map(|finding| ("proxy", finding)));
    if config.is_behind_proxy() {
        findings.push(("certificate", bounded_finding(origins::shown_certificate(config.portal_origin())).await));
    }
    let database = bounded(database::open_database(&config)).await;
    findings.push(("images", bounded_finding(database::images(database.as_ref().ok())).await));
    findings.push(("confinement", bounded_finding(database::confinement(database.as_ref().ok())).await));
    findings.push(("sharing", bounded_finding(database::sharing(database.as_ref().ok())).await));
    let db = database.as_ref().ok().map(|(db, _)| db.clone());
    findings.push(("database", Finding::from_result(database.map(|(_, text)| text))));
    let client = Arc::new(LauncherClient::new(&config.launcher.socket));
    let launcher: Arc<dyn Launcher> = Arc::clone(&client) as Arc<dyn Launcher>;
    let reached = bounded(async { Ok(client.reach().await?) }).await;
    let reached = reached.map(|()| format!("listens on `{}`", config.launcher.socket.display()));
    findings.push(("launcher", Finding::from_result(reached)));
    if let Some(url) = &config.prometheus.url {
        let asked = bounded(outside::prometheus(&config)).await;
        findings.push(("prometheus", Finding::from_result(asked.map(|()| format!("`{url}` answers")))));
    }
    let scheduled = bounded(outside::scheduler(&config, Arc::clone(&launcher))).await;
    let has_gpus = scheduled.as_ref().ok().map(|(_, has_gpus)| *has_gpus);
    findings
        .push(("scheduler", scheduled.map_or_else(|error| Finding::from_result(Err(error)), |(finding, _)| finding)));
    findings.push(("agent", bounded_finding(agent::agent(&config, has_gpus)).await));
    findings.push(("zabbix", bounded_finding(outside::site_zabbix(&config)).await));
    findings.push(("webhook", bounded_finding(outside::webhook(&config)).await));
    findings.push(("traces", bounded_finding(outside::traces(&config)).await));
    let stored = bounded_findings(storage::storage(&config, &launcher, db.as_ref())).await;
    findings.extend(stored.into_iter().map(|finding| ("storage", finding)));
    Ok(findings)
}

async fn bounded<T>(look: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(WAIT, look)
        .await
        .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {} s", WAIT.as_secs())))
}

async fn bounded_finding(look: impl Future<Output = Finding>) -> Finding {
    let late = || Finding::Broken(format!("no answer within {} s", WAIT.as_secs()));
    tokio::time::timeout(WAIT, look).await.unwrap_or_else(|_| late())
}

async fn bounded_findings(look: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    let late = || vec![Finding::Broken(format!("no answer within {} s", STORAGE_WAIT.as_secs()))];
    tokio::time::timeout(STORAGE_WAIT, look).await.unwrap_or_else(|_| late())
}
