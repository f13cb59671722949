//! `doctor`: looks at everything the portal depends on, one line each, with the cure where it knows one.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use eirene_core::confinement::Confinement;
use eirene_core::launcher::Launcher;
use eirene_core::{Clock, Space, SystemClock};
use eirene_database::Db;
use jiff::Timestamp;
use reqwest::tls::TlsInfo;
use reqwest::{Client, Url, redirect};
use rustix::fs::{Access, access, statvfs};
use secrecy::ExposeSecret as _;
use tokio::net::TcpStream;

use super::{open, say, serve};
use crate::config::Config;
use crate::launcher_client::LauncherClient;
use crate::outward;
use crate::server::read_certificate;
use crate::services::alerts::platform;
use crate::services::samples::{History as _, Prometheus};
use crate::services::spaces::NOT_SHARED;
use crate::services::storage::Storage;
use crate::services::storage::judge::{Finding as JudgedFinding, Severity};
use crate::services::storage::remembered::Remembered;
use crate::services::storage::snapshot::Asked;
use crate::services::zabbix;
use crate::shared_storage::shared_storage;
use crate::traces::Traces;
use crate::tunnel::TunnelIdentity;

/// Longest wait for one of them.
const WAIT: Duration = Duration::from_secs(15);
/// The same for the storage: a parallel one is asked a dozen questions, of which each asks its servers in turn.
const STORAGE_WAIT: Duration = Duration::from_mins(2);
/// Longest wait for whoever shows the portal's certificate, and for the webhook's host.
const HOST_WAIT: Duration = Duration::from_secs(5);
/// Days before its end from which a certificate is doubtful, as the alert `certificate_ends` has it.
const CERTIFICATE_DAYS: i64 = 14;
const MIB: u64 = 1024 * 1024;
/// Nodes that are called by their names.
const MOST_NAMED: usize = 5;

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
        ("state", state_dir(&config.server.state_dir)),
        ("samples", samples(&config)),
        ("tunnel", tunnel(&config)),
        ("tls", tls(&config)),
        ("apps domain", apps_domain(&config)),
    ];
    if config.server.tls_cert.is_none() && config.portal_origin().starts_with("https:") {
        findings.push(("certificate", bounded_finding(shown_certificate(config.portal_origin())).await));
    }
    let database = bounded(open_database(&config)).await;
    findings.push(("images", bounded_finding(images(database.as_ref().ok())).await));
    findings.push(("confinement", bounded_finding(confinement(database.as_ref().ok())).await));
    findings.push(("sharing", bounded_finding(sharing(database.as_ref().ok())).await));
    let db = database.as_ref().ok().map(|(db, _)| db.clone());
    findings.push(("database", Finding::from_result(database.map(|(_, text)| text))));
    let client = Arc::new(LauncherClient::new(&config.launcher.socket));
    let launcher: Arc<dyn Launcher> = Arc::clone(&client) as Arc<dyn Launcher>;
    let reached = bounded(async { Ok(client.reach().await?) }).await;
    let reached = reached.map(|()| format!("listens on `{}`", config.launcher.socket.display()));
    findings.push(("launcher", Finding::from_result(reached)));
    if let Some(url) = &config.prometheus.url {
        let asked = bounded(prometheus(&config)).await;
        findings.push(("prometheus", Finding::from_result(asked.map(|()| format!("`{url}` answers")))));
    }
    let scheduled = bounded(scheduler(&config, Arc::clone(&launcher))).await;
    findings.push(("scheduler", Finding::from_result(scheduled)));
    findings.push(("zabbix", bounded_finding(site_zabbix(&config)).await));
    findings.push(("webhook", bounded_finding(webhook(&config)).await));
    findings.push(("traces", bounded_finding(traces(&config)).await));
    let stored = bounded_findings(storage(&config, &launcher, db.as_ref())).await;
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

/// Whether the Prometheus that charts are read from answers us, by the same question that `/readyz` asks.
async fn prometheus(config: &Config) -> anyhow::Result<()> {
    if let Some(prometheus) = Prometheus::new(&config.prometheus)? {
        prometheus.reach().await?;
    }
    Ok(())
}

/// What is wrong with the shared storage, by the same looks that eirened takes: the launcher's, and the tool that it runs. What is known
/// from before is the database's.
async fn storage(config: &Config, launcher: &Arc<dyn Launcher>, db: Option<&Db>) -> Vec<Finding> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let storage = Storage::new(shared_storage(config, launcher), clock, config);
    // That it does not answer is said already.
    if let Some(db) = db
        && let Ok(remembered) = Remembered::of(db).await
    {
        storage.remember(remembered).await;
    }
    storage.look().await;
    let findings = storage.findings();
    if findings.is_empty() {
        let snapshot = storage.snapshot();
        let version = snapshot.capabilities.as_ref().and_then(|can| can.version.value());
        let version = version.map(|version| format!(" {version}")).unwrap_or_default();
        let roots = snapshot.roots.len();
        let homes = match snapshot.homes {
            Asked::Unsupported => "nobody's home was seen yet, so none was looked at",
            Asked::Got(()) | Asked::Failed(_) => "homes answer",
        };
        let name = storage.port().name();
        return vec![Finding::Good(format!("{name}{version}; {roots} roots of spaces answer; {homes}"))];
    }
    let text = |finding: JudgedFinding| match finding.severity {
        Severity::Warning => Finding::Doubtful(finding.text.into()),
        Severity::Broken => Finding::Broken(finding.text.into()),
    };
    findings.into_iter().map(text).collect()
}

fn state_dir(path: &Path) -> Finding {
    let name = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Finding::Broken(format!("`{name}`: {error}")),
    };
    let mode = metadata.permissions().mode() & 0o777;
    if !metadata.is_dir() {
        return Finding::Broken(format!("`{name}` is no directory"));
    }
    if mode & 0o077 != 0 {
        return Finding::Broken(format!("`{name}` is open to others (mode {mode:o}): chmod 0700 {name}"));
    }
    Finding::Good(format!("`{name}` is private"))
}

/// Samples of sessions, from outside: eirened has them to itself, and `/readyz` says whether it writes them.
fn samples(config: &Config) -> Finding {
    let path = config.server.state_dir.join("samples");
    let name = path.display();
    let files = match std::fs::read_dir(&path) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Finding::Doubtful(format!("`{name}` is not there yet; `serve` makes it"));
        }
        Err(error) => return Finding::Broken(format!("`{name}`: {error}; charts stay empty")),
    };
    if let Err(error) = access(&path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        return Finding::Broken(format!("`{name}` cannot be written: {error}; charts stay empty"));
    }
    let used: u64 = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let most = config.samples.disk_mib.saturating_mul(MIB);
    let free = match statvfs(&path) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => return Finding::Broken(format!("`{name}`: {error}")),
    };
    let says = format!("{} of {} MiB are in use", used / MIB, most / MIB);
    if free < most.saturating_sub(used) {
        let left = free / MIB;
        return Finding::Doubtful(format!(
            "{says}, and the disk has only {left} MiB left: make room, or set `[samples] disk_mib` lower"
        ));
    }
    Finding::Good(says)
}

fn tunnel(config: &Config) -> Finding {
    let key = config.server.state_dir.join("tunnel.key");
    let Ok(metadata) = std::fs::metadata(&key) else {
        return Finding::Doubtful("no certificate yet; `serve` makes it at its first start".into());
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Finding::Broken(format!("`{}` is open to others (mode {mode:o})", key.display()));
    }
    let loaded = TunnelIdentity::load(&config.server.state_dir);
    Finding::from_result(loaded.map(|identity| format!("certificate {}…", &identity.pin()[..12])))
}

fn tls(config: &Config) -> Finding {
    match (&config.server.tls_cert, &config.server.tls_key) {
        (Some(certificate), Some(key)) => {
            let ends = read_certificate(certificate, key).and_then(|_| platform::certificate_ends(certificate));
            match ends {
                Ok(ends) => {
                    let belong = format!("`{}` and its key belong together", certificate.display());
                    lasts(&belong, ends, SystemClock.now())
                }
                Err(error) => Finding::Broken(format!("{error:#}")),
            }
        }
        _ if config.server.listen.ip().is_loopback() => {
            Finding::Good("plain HTTP on loopback, for a proxy in front".into())
        }
        _ => Finding::Doubtful("plain HTTP on an address others may reach: only behind a proxy, or for a demo".into()),
    }
}

/// What is said of a certificate that is over at `ends`.
fn lasts(what: &str, ends: Timestamp, now: Timestamp) -> Finding {
    if ends <= now {
        return Finding::Broken(format!("{what}, but it is over since {ends}: browsers refuse it; renew it"));
    }
    let days = ends.duration_since(now).as_hours() / 24;
    if days < CERTIFICATE_DAYS {
        return Finding::Doubtful(format!("{what}, but it is over in {days} days, at {ends}: renew it"));
    }
    Finding::Good(format!("{what}, until {ends}"))
}

/// The certificate that browsers are shown where somebody in front of the portal does TLS: no file of ours says when it is over.
async fn shown_certificate(origin: &str) -> Finding {
    match shown_until(origin).await {
        Ok(ends) => lasts(&format!("`{origin}` shows one"), ends, SystemClock.now()),
        // The way from here to the proxy may be closed, though it is open for people.
        Err(error) => Finding::Doubtful(format!("`{origin}`: {error:#}; look yourself when its certificate is over")),
    }
}

/// When it is over. Whether it is believed is for browsers to say: one that is over would not be, and then nothing were known of it.
async fn shown_until(origin: &str) -> anyhow::Result<Timestamp> {
    let client = Client::builder().redirect(redirect::Policy::none()).timeout(HOST_WAIT);
    let client = client.tls_info(true).tls_danger_accept_invalid_certs(true).build()?;
    let answer = client.get(format!("{origin}/healthz")).send().await;
    let answer = answer.map_err(|error| anyhow::anyhow!(outward::why(error)))?;
    let shown = answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
    platform::ends(shown.context("no certificate is shown")?)
}

/// Without a list of public suffixes the last two labels have to do.
fn apps_domain(config: &Config) -> Finding {
    let site = |authority: &str| -> Vec<String> {
        let host = authority.split(':').next().unwrap_or_default();
        host.rsplit('.').take(2).map(str::to_owned).collect()
    };
    let apps = &config.server.apps_domain;
    if site(config.portal_authority()) == site(apps) {
        return Finding::Doubtful(format!(
            "`{apps}` seems to be of the same site as the portal; a domain of its own is safer"
        ));
    }
    Finding::Good(format!("`{apps}` is a site of its own"))
}

async fn open_database(config: &Config) -> anyhow::Result<(Db, String)> {
    let url = config.database_url()?;
    if let Some(path) = url.expose_secret().strip_prefix("sqlite://") {
        let path = path.split('?').next().unwrap_or(path);
        anyhow::ensure!(Path::new(path).exists(), "`{path}` is not there yet: eirened migrate");
    }
    let db = open::database(config).await?;
    db.ping().await?;
    let (found, newest) = (db.schema_version().await?, Db::newest_schema_version());
    anyhow::ensure!(found == Some(newest), "its form is {found:?}, this version's is {newest}: eirened migrate");
    Ok((db, format!("answers; form {newest}")))
}

async fn images(database: Option<&(Db, String)>) -> Finding {
    let Some((db, _)) = database else { return Finding::Doubtful("not looked at without the database".into()) };
    let images = match db.images().await {
        Ok(images) => images,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    for image in &images {
        let looked = tokio::fs::metadata(&image.path).await;
        let problem = match looked {
            Err(error) => error.to_string(),
            Ok(metadata) if i64::try_from(metadata.len()).ok() != Some(image.size_bytes) => {
                "another size than when it was added".into()
            }
            Ok(_) => continue,
        };
        return Finding::Broken(format!("`{}` ({}): {problem}", image.name, image.path));
    }
    match images.len() {
        0 => Finding::Doubtful("the catalogue is empty: eirened image add".into()),
        count => Finding::Good(format!("{count} in the catalogue, files in place")),
    }
}

/// What holds jobs to what they have asked for, as agents on the nodes have last said.
async fn confinement(database: Option<&(Db, String)>) -> Finding {
    let Some((db, _)) = database else { return Finding::Doubtful("not looked at without the database".into()) };
    let nodes = match db.confined_nodes().await {
        Ok(nodes) => nodes,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    let all = nodes.len();
    let free: Vec<&str> =
        nodes.iter().filter(|node| node.by == Confinement::Nothing).map(|node| node.node.as_str()).collect();
    if all == 0 {
        return Finding::Good("not known yet: the first session on a node tells".into());
    }
    if free.is_empty() {
        return Finding::Good(format!(
            "jobs have control groups of their own on {all} of {all} nodes; `ConstrainCores` and `ConstrainRAMSpace` in \
             cgroup.conf say what these hold them to"
        ));
    }
    let named = free.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if free.len() > MOST_NAMED { " and others" } else { "" };
    Finding::Doubtful(format!(
        "nothing holds jobs to the CPUs and memory they have asked for on {} of {all} nodes ({named}{more}): \
         `TaskPlugin=task/cgroup` in slurm.conf, `ConstrainCores` and `ConstrainRAMSpace` in cgroup.conf",
        free.len()
    ))
}

/// Spaces of groups whose file system keeps no access lists, as was found when they were made.
async fn sharing(database: Option<&(Db, String)>) -> Finding {
    let Some((db, _)) = database else { return Finding::Doubtful("not looked at without the database".into()) };
    let spaces = match db.spaces_of_groups().await {
        Ok(spaces) => spaces,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    let is_unshared = |space: &&Space| space.reason.as_ref().is_some_and(|reason| reason.code == NOT_SHARED);
    let unshared: Vec<&str> = spaces.iter().filter(is_unshared).map(|space| space.name.as_str()).collect();
    if unshared.is_empty() {
        return Finding::Good("no group's space was found without a default access list when it was made".into());
    }
    let named = unshared.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if unshared.len() > MOST_NAMED { " and others" } else { "" };
    Finding::Doubtful(format!(
        "{} spaces of groups have no default access list ({named}{more}), because their file system keeps none: what one makes \
         in them the others can write only with `umask 002`; turn access lists on (BeeGFS: `sysACLsEnabled`), or set that umask for all",
        unshared.len()
    ))
}

async fn scheduler(config: &Config, launcher: Arc<dyn Launcher>) -> anyhow::Result<String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let scheduler = serve::scheduler(config, &launcher, &clock)?;
    let version = scheduler.ping().await?;
    let (nodes, jobs) = (scheduler.nodes().await?.len(), scheduler.jobs().await?.len());
    Ok(format!("{version}; {nodes} nodes, {jobs} jobs seen"))
}

/// The site's Zabbix: whether values can be sent, and problems read.
async fn site_zabbix(config: &Config) -> Finding {
    let zabbix = &config.zabbix;
    let secrets = [&zabbix.psk_file, &zabbix.tls_key, &zabbix.api_token_file];
    for path in secrets.into_iter().flatten() {
        let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o777);
        if let Ok(mode) = mode
            && mode & 0o007 != 0
        {
            return Finding::Broken(format!("everybody may read `{}` (mode {mode:o})", path.display()));
        }
    }
    let found = match zabbix::examine(zabbix).await {
        Ok(Some(found)) => found,
        Ok(None) => return Finding::Good("not configured".into()),
        Err(error) => return Finding::Broken(format!("{error:#}")),
    };
    if zabbix.api_url.as_deref().is_some_and(|url| url.starts_with("http://")) {
        return Finding::Doubtful(format!("{found}; the API's token goes over plain HTTP"));
    }
    Finding::Good(found)
}

/// Whether the host that takes alerts takes connections. Nothing is sent: an alert that is none would be told to people.
async fn webhook(config: &Config) -> Finding {
    let alerts = &config.alerts;
    let address = match alerts.webhook_secret().and_then(|_| alerts.webhook_address()) {
        Ok(Some(address)) => address,
        Ok(None) => return Finding::Good("not configured".into()),
        Err(error) => return Finding::Broken(format!("{error:#}")),
    };
    // Neither the address nor the error of whoever parses it: both may hold a secret.
    let url = Url::parse(address.expose_secret()).ok();
    let Some((host, port)) = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?))) else {
        return Finding::Broken("its address is not understood".into());
    };
    // An address of IPv6 stands in brackets.
    let reached = tokio::time::timeout(HOST_WAIT, TcpStream::connect((host.trim_matches(['[', ']']), port))).await;
    let why = match reached {
        Ok(Ok(_)) => return Finding::Good("its host takes connections; nothing was sent".into()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", HOST_WAIT.as_secs()),
    };
    // Alerts may have to go through a proxy, which takes this one's place.
    Finding::Doubtful(format!("its host takes no connection from here: {why}; alerts are kept for a day"))
}

/// Whether the collector takes traces.
async fn traces(config: &Config) -> Finding {
    let exporter = match Traces::new(&config.traces) {
        Ok((_, Some(exporter))) => exporter,
        Ok((_, None)) => return Finding::Good("not configured".into()),
        Err(error) => return Finding::Broken(format!("{error:#}")),
    };
    let reached = exporter.reach().await;
    Finding::from_result(reached.map(|()| "the collector takes them".to_owned()))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use eirene_core::confinement::ConfinedNode;
    use eirene_core::launcher::{LauncherAnswer, LauncherError, LauncherRequest};
    use eirene_core::space::MadeAt;
    use eirene_core::storage::Identity;
    use eirene_core::{Reason, Role, Space, SpaceOwner};
    use eirene_storage::Seen;
    use eirene_storage::posix::look_at;

    use super::*;
    use crate::services::spaces::testing::a_space;
    use crate::testing::TestApp;

    /// A launcher whose configuration names no storage: what is looked at is looked at from here.
    struct Bare;

    #[async_trait]
    impl Launcher for Bare {
        async fn call(&self, _: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            Err(not_configured())
        }
    }

    fn not_configured() -> LauncherError {
        LauncherError::Refused { code: "not_configured".into(), text: "nothing is".into() }
    }

    /// One that gives up on every look, as at mounts that do not answer.
    struct Waits;

    #[async_trait]
    impl Launcher for Waits {
        async fn call(&self, _: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            Err(LauncherError::Refused { code: "away".into(), text: "no answer in time".into() })
        }
    }

    /// One of a site with BeeGFS, whose tool says what that of 7.4.7 has said at ours.
    struct Site {
        /// The release of the client that has mounted everything.
        client: &'static str,
        /// What the targets have left.
        free: &'static str,
    }

    #[async_trait]
    impl Launcher for Site {
        async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            let stdout = match request {
                LauncherRequest::Measure { .. } => {
                    let mut look = look_at("/".as_ref(), "".as_ref(), false).unwrap();
                    (look.identity.kind, look.identity.marker) = ("beegfs".into(), Some("00ff".into()));
                    look.client_version = Some(self.client.into());
                    serde_json::to_string(&Seen::from(Ok(look))).unwrap()
                }
                LauncherRequest::RunBeegfs { arguments } => {
                    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    match words.as_slice() {
                        ["--version"] => capture("version"),
                        ["--listnodes", "--nodetype=meta", ..] => capture("listnodes-meta"),
                        ["--listnodes", ..] => capture("listnodes-storage"),
                        ["--listtargets", "--nodetype=meta", ..] => capture("listtargets-meta"),
                        ["--listtargets", ..] => capture("listtargets-storage").replace("227.7GiB  90%", self.free),
                        ["--liststoragepools"] => capture("liststoragepools"),
                        _ => return Err(not_configured()),
                    }
                }
                _ => return Err(not_configured()),
            };
            Ok(LauncherAnswer::Ran { status: 0, stdout, stderr: String::new() })
        }
    }

    /// What the tool has said, without the command before it and the status after it.
    fn capture(name: &str) -> String {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../storage/tests/fixtures/beegfs-7.4.7");
        let text = std::fs::read_to_string(format!("{fixtures}/{name}.txt")).unwrap();
        let (_, said) = text.split_once('\n').unwrap();
        said.rsplit_once("[exit ").unwrap().0.to_owned()
    }

    async fn seen_by(launcher: impl Launcher, config: &Config, db: Option<&Db>) -> Vec<Finding> {
        let launcher: Arc<dyn Launcher> = Arc::new(launcher);
        storage(config, &launcher, db).await
    }

    async fn seen(config: &Config) -> Vec<Finding> {
        seen_by(Bare, config, None).await
    }

    /// A configuration with a root of spaces, called `s`.
    fn with_root(path: &Path, adapter: &str) -> Config {
        let root = format!("[{{ name = \"s\", kind = \"scratch\", title = \"S\", path = {path:?} }}]");
        let text = format!(
            "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n\
             [storage]\nadapter = \"{adapter}\"\n[spaces]\nroots = {root}\n"
        );
        Config::from_text(&text).unwrap()
    }

    fn config(portal: &str, apps: &str) -> Config {
        let text =
            format!("[server]\nportal_url = \"{portal}\"\napps_domain = \"{apps}\"\n[tunnel]\nadvertise = \"a:1\"\n");
        Config::from_text(&text).unwrap()
    }

    #[test]
    fn an_apps_domain_of_the_same_site_is_doubtful() {
        let own = config("https://eirene.example.org", "apps.example.net");
        assert!(matches!(apps_domain(&own), Finding::Good(_)));
        let same = config("https://eirene.example.org:8443", "apps.example.org:8443");
        assert!(matches!(apps_domain(&same), Finding::Doubtful(_)));
    }

    #[tokio::test]
    async fn a_root_that_is_not_there_is_broken_and_one_without_a_marker_doubtful() {
        let dir = tempfile::tempdir().unwrap();
        let with_root = |path: &Path| with_root(path, "posix");
        let gone = seen(&with_root(&dir.path().join("none"))).await;
        assert!(matches!(&gone[..], [Finding::Broken(text)] if text.contains("`s`")), "{gone:?}");
        // A test's directory may lie on a disk that is nearly full; what is looked for is the marker.
        let unmarked = |found: &[Finding]| {
            found.iter().any(|finding| matches!(finding, Finding::Doubtful(text) if text.contains(".eirene-root")))
        };
        assert!(unmarked(&seen(&with_root(dir.path())).await));
        std::fs::write(dir.path().join(".eirene-root"), "00ff".repeat(8)).unwrap();
        assert!(!unmarked(&seen(&with_root(dir.path())).await));
        let none = seen(&config("https://eirene.example.org", "apps.example.net")).await;
        let said = "posix; 0 roots of spaces answer; nobody's home was seen yet, so none was looked at";
        assert_eq!(none, [Finding::Good(said.into())]);
    }

    #[tokio::test]
    async fn a_mount_that_does_not_answer_is_stale_and_homes_are_a_mount_as_well() {
        let test = TestApp::new().await;
        let config = with_root("/mnt/s".as_ref(), "posix");
        let stale = |found: &[Finding], what: &str| {
            let says =
                |text: &str| text.starts_with(what) && text.contains("no answer in time") && text.contains("stale");
            found.iter().any(|finding| matches!(finding, Finding::Broken(text) if says(text)))
        };
        let root_alone = seen_by(Waits, &config, Some(&test.app.db)).await;
        assert!(root_alone.len() == 1 && stale(&root_alone, "Root `s` does not answer"), "{root_alone:?}");
        test.person("ada", 3000, Role::Researcher).await;
        test.app.spaces.add_homes(10).await.unwrap();
        let mut round = test.app.spaces.begin_round().await.unwrap();
        for home in test.app.spaces.to_look_at(None, 10).await.unwrap() {
            test.app.spaces.look_at(&home, &mut round).await.unwrap();
        }
        let both = seen_by(Waits, &config, Some(&test.app.db)).await;
        assert!(both.len() == 2 && stale(&both, "Root `s`") && stale(&both, "Homes do not answer: ada"), "{both:?}");
    }

    #[tokio::test]
    async fn a_root_whose_file_system_is_not_mounted_is_told_by_its_spaces_to_whoever_was_just_started() {
        let test = TestApp::new().await;
        let dir = tempfile::tempdir().unwrap();
        let config = with_root(dir.path(), "posix");
        let identity = Identity {
            kind: "nfs4".into(),
            source: "nas:/scratch".into(),
            root_inode: Some(64),
            marker: Some("00ff".repeat(8)),
            fs_id: 1,
            mount_id: 2,
        };
        let made_at = Some(MadeAt { inode: 7, identity });
        let space = Space { root: "s".parse().unwrap(), made_at, ..a_space(SpaceOwner::Everybody) };
        test.app.db.insert_space(space).await.unwrap();
        let unmounted = seen_by(Bare, &config, Some(&test.app.db)).await;
        let [Finding::Broken(text)] = &unmounted[..] else { panic!("one thing is wrong: {unmounted:?}") };
        assert!(text.contains("`s` is not mounted") && text.contains("write no new marker"), "{text}");
        std::fs::write(dir.path().join(".eirene-root"), "00ff".repeat(8)).unwrap();
        let mounted = seen_by(Bare, &config, Some(&test.app.db)).await;
        let is_told = |finding: &Finding| matches!(finding, Finding::Broken(text) if text.contains("not mounted"));
        assert!(!mounted.iter().any(is_told), "{mounted:?}");
    }

    #[tokio::test]
    async fn a_client_of_another_release_is_doubtful_and_a_target_that_is_nearly_full_broken() {
        let config = with_root("/mnt/s".as_ref(), "beegfs7");
        let found = async |client, free| seen_by(Site { client, free }, &config, None).await;
        let says = "`storage:1` is nearly full: 3 %";
        let is_full = |finding: &Finding| matches!(finding, Finding::Broken(text) if text.starts_with(says));
        let is_other = |finding: &Finding| {
            let says =
                |text: &str| text.contains("client 7.3.4, and the tool is of 7.4.7") && text.contains("loaded again");
            matches!(finding, Finding::Doubtful(text) if says(text))
        };
        let well = found("7.4.6", "227.7GiB  90%").await;
        assert!(!well.iter().any(|finding| is_full(finding) || is_other(finding)), "{well:?}");
        let stale = found("7.3.4", "227.7GiB  90%").await;
        assert!(stale.iter().any(is_other), "{stale:?}");
        let full = found("7.4.7", "7.6GiB   3%").await;
        assert!(full.iter().any(is_full) && !full.iter().any(is_other), "{full:?}");
    }

    #[tokio::test]
    async fn beegfs_without_anybody_to_run_its_tool_is_broken_with_the_cure() {
        for adapter in ["beegfs7", "beegfs8"] {
            let text = format!(
                "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n[storage]\nadapter = \"{adapter}\"\n"
            );
            let found = seen(&Config::from_text(&text).unwrap()).await;
            let [Finding::Broken(said)] = &found[..] else { panic!("one cause, said once: {found:?}") };
            assert!(said.contains(adapter) && said.contains("nothing is") && said.contains("launcher"), "{said}");
        }
    }

    #[tokio::test]
    async fn nodes_on_which_nothing_holds_jobs_are_named() {
        let test = TestApp::new().await;
        let database = (test.app.db.clone(), String::new());
        let says = async |node: &str, by| {
            let confined = ConfinedNode { node: node.parse().unwrap(), by, at: SystemClock.now() };
            database.0.put_confined_node(&confined).await.unwrap();
            confinement(Some(&database)).await
        };
        assert!(matches!(confinement(None).await, Finding::Doubtful(_)));
        let unknown = confinement(Some(&database)).await;
        assert!(matches!(&unknown, Finding::Good(text) if text.contains("not known yet")), "{unknown:?}");
        let held = says("c1", Confinement::CgroupV2).await;
        assert!(matches!(&held, Finding::Good(text) if text.contains("on 1 of 1 nodes")), "{held:?}");
        let free = says("c2", Confinement::Nothing).await;
        assert!(matches!(&free, Finding::Doubtful(text) if text.contains("on 1 of 2 nodes (c2)")), "{free:?}");
        for node in ["d1", "d2", "d3", "d4", "d5"] {
            says(node, Confinement::Nothing).await;
        }
        let many = confinement(Some(&database)).await;
        let named = "on 6 of 7 nodes (c2, d1, d2, d3, d4 and others)";
        assert!(matches!(&many, Finding::Doubtful(text) if text.contains(named)), "{many:?}");
    }

    #[tokio::test]
    async fn a_zabbix_that_is_away_or_whose_secrets_are_open_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let with = |section: &str| {
            let text = format!(
                "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n[zabbix]\n{section}\n"
            );
            Config::from_text(&text).unwrap()
        };
        assert_eq!(site_zabbix(&with("")).await, Finding::Good("not configured".into()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("server = \"{}\"", listener.local_addr().unwrap());
        assert!(matches!(site_zabbix(&with(&server)).await, Finding::Good(text) if text.contains("takes connections")));
        drop(listener);
        let away = site_zabbix(&with(&server)).await;
        assert!(matches!(&away, Finding::Broken(text) if text.contains("no values can be sent")), "{away:?}");
        let key = dir.path().join("psk");
        std::fs::write(&key, "5ec2e7").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = site_zabbix(&with(&format!("{server}\npsk_file = {key:?}"))).await;
        assert!(matches!(&open, Finding::Broken(text) if text.contains("everybody may read")), "{open:?}");
    }

    /// A configuration with this besides.
    fn with(section: &str) -> Config {
        let text = format!(
            "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n{section}\n"
        );
        Config::from_text(&text).unwrap()
    }

    #[tokio::test]
    async fn a_webhook_is_reached_without_sending_it_anything_and_its_address_is_not_repeated() {
        assert_eq!(webhook(&with("")).await, Finding::Good("not configured".into()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = with(&format!("[alerts]\nwebhook_url = \"http://u:5ec2e7@{address}/hook?key=5ec2e7\""));
        let found = webhook(&config).await;
        assert!(matches!(&found, Finding::Good(text) if text.contains("takes connections")), "{found:?}");
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut sent = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut sent).await.unwrap();
        assert_eq!(sent, b"");
        drop(listener);
        let away = webhook(&config).await;
        assert!(matches!(&away, Finding::Doubtful(text) if text.contains("takes no connection")), "{away:?}");
        assert!(!format!("{found:?}{away:?}").contains("5ec2e7"), "{away:?}");
        let unread = webhook(&with("[alerts]\nwebhook_url_file = \"/none/of/this\"")).await;
        assert!(matches!(&unread, Finding::Broken(text) if text.contains("/none/of/this")), "{unread:?}");
    }

    #[tokio::test]
    async fn a_collector_that_is_away_is_broken() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert_eq!(traces(&with("")).await, Finding::Good("not configured".into()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = with(&format!("[traces]\nurl = \"http://{}\"", listener.local_addr().unwrap()));
        let takes = axum::Router::new().route("/v1/traces", axum::routing::post(|| async { "{}" }));
        let serving = tokio::spawn(async move { axum::serve(listener, takes).await });
        assert!(matches!(traces(&config).await, Finding::Good(text) if text.contains("takes them")));
        serving.abort();
        let _ = serving.await;
        assert!(matches!(traces(&config).await, Finding::Broken(_)));
    }

    #[test]
    fn a_certificate_is_doubtful_two_weeks_before_its_end_and_broken_afterwards() {
        let ends: Timestamp = "2031-05-01T00:00:00Z".parse().unwrap();
        let at = |now: &str| lasts("it", ends, now.parse().unwrap());
        assert!(matches!(at("2031-04-16T00:00:00Z"), Finding::Good(text) if text.contains("until 2031-05-01")));
        assert!(matches!(at("2031-04-20T00:00:00Z"), Finding::Doubtful(text) if text.contains("in 11 days")));
        assert!(matches!(at("2031-05-01T00:00:00Z"), Finding::Broken(text) if text.contains("over since 2031-05-01")));
    }

    #[tokio::test]
    async fn the_certificate_of_a_proxy_is_looked_at_whoever_has_signed_it() {
        let port = crate::commands::testing::tls_mirror().await;
        let origin = format!("https://127.0.0.1:{port}");
        assert_eq!(shown_until(&origin).await.unwrap(), "2031-05-01T00:00:00Z".parse().unwrap());
        let nobody = shown_certificate("https://127.0.0.1:1").await;
        assert!(matches!(&nobody, Finding::Doubtful(text) if text.contains("look yourself")), "{nobody:?}");
    }

    #[test]
    fn samples_that_cannot_be_kept_are_broken_and_those_that_are_there_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\nstate_dir = {:?}\n[tunnel]\nadvertise = \"a:1\"\n[samples]\ndisk_mib = 16\n",
            dir.path()
        );
        let config = Config::from_text(&text).unwrap();
        let store = dir.path().join("samples");
        assert!(matches!(samples(&config), Finding::Doubtful(text) if text.contains("not there yet")));
        std::fs::write(&store, "a file").unwrap();
        assert!(matches!(samples(&config), Finding::Broken(text) if text.contains("charts stay empty")));
        std::fs::remove_file(&store).unwrap();
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join("raw-1"), vec![0; 3 * 1024 * 1024]).unwrap();
        let (Finding::Good(said) | Finding::Doubtful(said)) = samples(&config) else { panic!("it is there") };
        assert!(said.starts_with("3 of 16 MiB are in use"), "{said}");
    }

    #[test]
    fn a_state_directory_that_others_may_read_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let open_to = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        open_to(0o755);
        assert!(matches!(state_dir(dir.path()), Finding::Broken(_)));
        open_to(0o700);
        assert!(matches!(state_dir(dir.path()), Finding::Good(_)));
        assert!(matches!(state_dir(&dir.path().join("none")), Finding::Broken(_)));
    }

    #[tokio::test]
    async fn spaces_in_which_a_group_cannot_write_what_its_people_make_are_named() {
        let test = TestApp::new().await;
        let database = (test.app.db.clone(), String::new());
        assert!(matches!(sharing(Some(&database)).await, Finding::Good(_)));
        assert!(matches!(sharing(None).await, Finding::Doubtful(_)));
        let space = a_space(SpaceOwner::Group("physics".parse().unwrap()));
        let unshared = Space { reason: Some(Reason::new(NOT_SHARED, eirene_words::say("space.not_shared"))), ..space };
        let unshared = test.app.db.insert_space(unshared).await.unwrap();
        let found = sharing(Some(&database)).await;
        let named = format!("({})", unshared.name);
        assert!(
            matches!(&found, Finding::Doubtful(text) if text.contains(&named) && text.contains("umask")),
            "{found:?}"
        );
    }
}
