//! The configuration of `eirened`: one TOML file, and environment variables over it (`EIRENE_SERVER__LISTEN` is `server.listen`).
//!
//! Unknown keys are refused, so that a typing mistake is found at the start. Secrets may lie in files of their own.

mod address;
mod alerts;
mod bind;
mod load;
mod network;
mod prometheus;
mod storage;
mod traces;
mod zabbix;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use eirene_core::scratch::ScratchKind;
use eirene_core::{AccountName, QosName, SessionId};
use secrecy::SecretString;
use serde::Deserialize;

pub use alerts::{AlertRuleChanges, Alerts};
pub use bind::{BindError, BindPath};
pub use load::{ConfigError, SAMPLE};
pub use network::{Network, NetworkError};
pub use prometheus::Prometheus;
pub use storage::{Files, OldFiles, Per, Root, Size, Spaces, Storage, StorageAdapter};
pub use storage::{LIMIT_BYTES, LIMIT_FILES, OLD_DAYS};
pub use traces::Traces;
pub use zabbix::{Zabbix, ZabbixTls};

/// Everything that is configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The portal's listener and names.
    pub server: Server,
    /// Where the data lies.
    #[serde(default)]
    pub database: Database,
    /// Where agents connect to.
    pub tunnel: Tunnel,
    /// The privileged process.
    #[serde(default)]
    pub launcher: Launcher,
    /// The scheduler.
    #[serde(default)]
    pub slurm: Slurm,
    /// The agent on the compute nodes.
    #[serde(default)]
    pub agent: Agent,
    /// What every image is run with.
    #[serde(default)]
    pub images: Images,
    /// The shared storage.
    #[serde(default)]
    pub storage: Storage,
    /// Spaces.
    #[serde(default)]
    pub spaces: Spaces,
    /// What goes in and out of spaces.
    #[serde(default)]
    pub files: Files,
    /// Fast scratch on the nodes.
    #[serde(default)]
    pub scratch: Scratch,
    /// What sessions use, kept for charts.
    #[serde(default)]
    pub samples: Samples,
    /// Prometheus metrics.
    #[serde(default)]
    pub metrics: Metrics,
    /// An existing Prometheus that charts are read from.
    #[serde(default)]
    pub prometheus: Prometheus,
    /// What somebody should know now.
    #[serde(default)]
    pub alerts: Alerts,
    /// The site's Zabbix.
    #[serde(default)]
    pub zabbix: Zabbix,
    /// What one person may have.
    #[serde(default)]
    pub limits: Limits,
    /// Logging.
    #[serde(default)]
    pub log: Log,
    /// OpenTelemetry traces.
    #[serde(default)]
    pub traces: Traces,
}

/// The portal's listener and names.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address the portal and the session origins are served on.
    #[serde(default = "defaults::listen")]
    pub listen: SocketAddr,
    /// The portal's address in the browser: scheme, host and port, nothing more.
    pub portal_url: String,
    /// Domain under which each session has an origin of its own, with the port where it is not the scheme's.
    pub apps_domain: String,
    /// Where eirened keeps its keys, its database and the logs of sessions.
    #[serde(default = "defaults::state_dir")]
    pub state_dir: PathBuf,
    /// Certificate chain, PEM; without it the portal speaks plain HTTP and belongs behind a proxy.
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM.
    pub tls_key: Option<PathBuf>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    #[serde(default)]
    pub trusted_proxies: Vec<Network>,
}

/// Where the data lies.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `sqlite:///path` or `postgres://…`; none is a SQLite file in the state directory.
    pub url: Option<SecretString>,
    /// File that holds the address, where it contains a password.
    pub url_file: Option<PathBuf>,
}

/// Where agents connect to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    /// Address agents are awaited on.
    #[serde(default = "defaults::tunnel_listen")]
    pub listen: SocketAddr,
    /// `host:port` under which compute nodes reach it.
    pub advertise: String,
}

/// The privileged process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Launcher {
    /// Its socket.
    pub socket: PathBuf,
}

/// How SLURM is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adapter {
    /// Over slurmrestd.
    Slurmrestd,
    /// Over SLURM's own programs.
    Cli,
}

/// The scheduler.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// How it is spoken to.
    pub adapter: Adapter,
    /// Address of slurmrestd.
    pub slurmrestd_url: String,
    /// Account the poller reads as; SLURM operator level. The launcher's own config must name the same.
    pub service_account: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Account jobs are submitted with when a session names no project; none is the person's default.
    pub account: Option<AccountName>,
    /// Quality of service jobs are submitted with; none is the account's or partition's default.
    pub qos: Option<QosName>,
    /// Seconds between two looks at the scheduler.
    pub poll_interval_s: u64,
}

/// The agent on the compute nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    /// Path of `eirene-agent`, as the compute nodes see it.
    pub path: PathBuf,
    /// Seconds an app has to become ready once its allocation has begun.
    pub ready_within_s: u32,
    /// Seconds a session has to end by itself before its job is cancelled.
    pub stop_within_s: u32,
}

/// What every image is run with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Images {
    /// Directories and files of the compute nodes that every session sees besides the person's home.
    pub binds: Vec<BindPath>,
}

/// Fast scratch on the nodes. What has no directory is not offered.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scratch {
    /// Directory of every node, on its own disk, in which sessions' scratches are made.
    pub node: Option<PathBuf>,
    /// Directory of every node below which the site mounts a BeeOND for each job that has the constraint `beeond`.
    pub beeond: Option<PathBuf>,
    /// Seconds before the time limit that are kept for copying back, at most half of the time asked for.
    pub stage_out_reserve_s: u32,
}

impl Scratch {
    /// What is offered, as people choose among it.
    pub fn kinds(&self) -> Vec<ScratchKind> {
        let kinds = [(ScratchKind::Node, &self.node), (ScratchKind::Beeond, &self.beeond)];
        kinds.into_iter().filter(|(_, directory)| directory.is_some()).map(|(kind, _)| kind).collect()
    }
}

/// What sessions use, kept for charts in the state directory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Samples {
    /// Room on the disk for all of it, MiB; the oldest goes first.
    pub disk_mib: u64,
    /// Memory for what is not on the disk yet for good, MiB; an eighth of `disk_mib` at most.
    pub memory_mib: u64,
    /// Days samples are kept as they came.
    pub keep_days: u32,
    /// Days one value a minute is kept.
    pub keep_minutes_days: u32,
}

/// Prometheus metrics.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Address of a listener for metrics alone.
    pub listen: Option<SocketAddr>,
    /// Who may read `/metrics` on the portal's own listener.
    pub allow: Vec<Network>,
    /// Whether samples of sessions are there for Prometheus too, a target for each session.
    pub sessions: bool,
}

/// What one person may have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Sessions at once.
    pub live_sessions: u32,
    /// Runs at once, waiting ones among them.
    pub live_runs: u32,
    /// Days events are kept for browsers that come back.
    pub keep_events_days: u32,
    /// Days the log of a session is kept.
    pub keep_logs_days: u32,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Logging.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Which lines: `info`, or per module as `tracing` filters are written.
    pub filter: String,
    /// How they look.
    pub format: LogFormat,
}

/// A file of certificates that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFile<'a> {
    /// The key of the configuration that names it.
    pub key: &'static str,
    /// Where it is.
    pub path: &'a Path,
    /// Whether it says by what others are known: then it is good for as long as any of its certificates.
    pub is_ca: bool,
}

mod defaults {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::path::PathBuf;

    pub(super) fn listen() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 8080).into()
    }

    pub(super) fn tunnel_listen() -> SocketAddr {
        (Ipv6Addr::UNSPECIFIED, 7443).into()
    }

    pub(super) fn state_dir() -> PathBuf {
        "/var/lib/eirene".into()
    }
}

impl Default for Launcher {
    fn default() -> Self {
        Self { socket: "/run/eirene/launcher.sock".into() }
    }
}

impl Default for Slurm {
    fn default() -> Self {
        Self {
            adapter: Adapter::Slurmrestd,
            slurmrestd_url: "http://127.0.0.1:6820".into(),
            service_account: "eirene-op".into(),
            cluster: "cluster".into(),
            account: None,
            qos: None,
            poll_interval_s: 2,
        }
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self { path: "/opt/eirene/bin/eirene-agent".into(), ready_within_s: 120, stop_within_s: 15 }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self { node: None, beeond: None, stage_out_reserve_s: 600 }
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self { disk_mib: 2048, memory_mib: 256, keep_days: 7, keep_minutes_days: 400 }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let loopback = [std::net::IpAddr::from([127, 0, 0, 1]), std::net::Ipv6Addr::LOCALHOST.into()];
        Self { listen: None, allow: loopback.map(Network::from).to_vec(), sessions: false }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { live_sessions: 10, live_runs: 50, keep_events_days: 7, keep_logs_days: 90 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

impl Config {
    /// Files of certificates that are in use, each once: the portal's own, and those by which others are known.
    pub fn certificates(&self) -> Vec<CertificateFile<'_>> {
        let zabbix = &self.zabbix;
        let sends_by_certificate = zabbix.server.is_some() && zabbix.tls == ZabbixTls::Certificate;
        let all = [
            ("server.tls_cert", &self.server.tls_cert, true, false),
            ("zabbix.tls_cert", &zabbix.tls_cert, sends_by_certificate, false),
            ("zabbix.tls_ca", &zabbix.tls_ca, sends_by_certificate, true),
            ("zabbix.api_ca", &zabbix.api_ca, zabbix.api_url.is_some(), true),
            ("prometheus.ca_file", &self.prometheus.ca_file, true, true),
            ("traces.ca_file", &self.traces.ca_file, true, true),
        ];
        let mut files: Vec<CertificateFile<'_>> = Vec::new();
        for (key, path, is_used, is_ca) in all {
            let Some(path) = path.as_deref().filter(|_| is_used) else { continue };
            if files.iter().all(|file| file.path != path) {
                files.push(CertificateFile { key, path, is_ca });
            }
        }
        files
    }

    /// The portal's origin: scheme, host and port, no slash at the end.
    pub fn portal_origin(&self) -> &str {
        self.server.portal_url.trim_end_matches('/')
    }

    /// Scheme of the portal and of the session origins: `http` or `https`.
    pub fn apps_scheme(&self) -> &str {
        self.server.portal_url.split_once("://").map_or("https", |(scheme, _)| scheme)
    }

    /// Whether there is a proxy in front that does TLS.
    pub fn is_behind_proxy(&self) -> bool {
        self.server.tls_cert.is_none() && self.portal_origin().starts_with("https:")
    }

    /// Whether that proxy is not listed, so that all people have its address.
    pub fn has_unlisted_proxy(&self) -> bool {
        self.is_behind_proxy() && self.server.trusted_proxies.is_empty()
    }

    /// The portal's host with the port where one is written.
    pub fn portal_authority(&self) -> &str {
        self.portal_origin().split_once("://").map_or("", |(_, authority)| authority)
    }

    /// The origin of one session.
    pub fn session_origin(&self, session: SessionId) -> String {
        format!("{}://{session}.{}", self.apps_scheme(), self.server.apps_domain)
    }

    /// Address of the database.
    pub fn database_url(&self) -> Result<SecretString, ConfigError> {
        if let Some(path) = &self.database.url_file {
            return read_secret(path);
        }
        let beside = || SecretString::from(format!("sqlite://{}", self.server.state_dir.join("eirene.db").display()));
        Ok(self.database.url.clone().unwrap_or_else(beside))
    }
}

/// What a file holds that nobody else may read, without blanks around it.
fn read_secret(path: &Path) -> Result<SecretString, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
    Ok(SecretString::from(text.trim()))
}
