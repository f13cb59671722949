//! `doctor`: looks at everything the portal depends on, one line each, with the cure where it knows one.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use eirene_core::confinement::Confinement;
use eirene_core::launcher::Launcher;
use eirene_core::{Clock, SystemClock};
use eirene_database::Db;
use rustix::fs::{Access, access, statvfs};
use secrecy::ExposeSecret as _;

use super::{open, say, serve};
use crate::config::Config;
use crate::launcher_client::LauncherClient;
use crate::server::read_certificate;
use crate::services::storage::Storage;
use crate::services::storage::judge::{Finding as JudgedFinding, Severity};
use crate::shared_storage::shared_storage;
use crate::tunnel::TunnelIdentity;

/// Longest wait for one of them.
const WAIT: Duration = Duration::from_secs(15);
/// The same for the storage: a parallel one is asked a dozen questions, of which each asks its servers in turn.
const STORAGE_WAIT: Duration = Duration::from_mins(2);
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
    let database = bounded(open_database(&config)).await;
    findings.push(("images", bounded_finding(images(database.as_ref().ok())).await));
    findings.push(("confinement", bounded_finding(confinement(database.as_ref().ok())).await));
    findings.push(("database", Finding::from_result(database.map(|(_, text)| text))));
    let client = Arc::new(LauncherClient::new(&config.launcher.socket));
    let launcher: Arc<dyn Launcher> = Arc::clone(&client) as Arc<dyn Launcher>;
    let reached = bounded(async { Ok(client.reach().await?) }).await;
    let reached = reached.map(|()| format!("listens on `{}`", config.launcher.socket.display()));
    findings.push(("launcher", Finding::from_result(reached)));
    let scheduled = bounded(scheduler(&config, Arc::clone(&launcher))).await;
    findings.push(("scheduler", Finding::from_result(scheduled)));
    let stored = bounded_findings(storage(&config, &launcher)).await;
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

/// What is wrong with the shared storage, by the same looks that eirened takes: the launcher's, and the tool that it runs.
async fn storage(config: &Config, launcher: &Arc<dyn Launcher>) -> Vec<Finding> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let storage = Storage::new(shared_storage(config, launcher), clock, config);
    storage.look().await;
    let findings = storage.findings();
    if findings.is_empty() {
        let snapshot = storage.snapshot();
        let version = snapshot.capabilities.as_ref().and_then(|can| can.version.value());
        let version = version.map(|version| format!(" {version}")).unwrap_or_default();
        let roots = snapshot.roots.len();
        return vec![Finding::Good(format!("{}{version}; {roots} roots of spaces answer", storage.port().name()))];
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
            let read = read_certificate(certificate, key);
            Finding::from_result(read.map(|_| format!("`{}` and its key belong together", certificate.display())))
        }
        _ if config.server.listen.ip().is_loopback() => {
            Finding::Good("plain HTTP on loopback, for a proxy in front".into())
        }
        _ => Finding::Doubtful("plain HTTP on an address others may reach: only behind a proxy, or for a demo".into()),
    }
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

async fn scheduler(config: &Config, launcher: Arc<dyn Launcher>) -> anyhow::Result<String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let scheduler = serve::scheduler(config, &launcher, &clock)?;
    let version = scheduler.ping().await?;
    let (nodes, jobs) = (scheduler.nodes().await?.len(), scheduler.jobs().await?.len());
    Ok(format!("{version}; {nodes} nodes, {jobs} jobs seen"))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use eirene_core::confinement::ConfinedNode;
    use eirene_core::launcher::{LauncherAnswer, LauncherError, LauncherRequest};

    use super::*;
    use crate::testing::TestApp;

    /// A launcher whose configuration names no storage: what is looked at is looked at from here.
    struct Bare;

    #[async_trait]
    impl Launcher for Bare {
        async fn call(&self, _: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            Err(LauncherError::Refused { code: "not_configured".into(), text: "nothing is".into() })
        }
    }

    async fn seen(config: &Config) -> Vec<Finding> {
        let launcher: Arc<dyn Launcher> = Arc::new(Bare);
        storage(config, &launcher).await
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
        let with_root = |path: &Path| {
            let root = format!("[{{ name = \"s\", kind = \"scratch\", title = \"S\", path = {path:?} }}]");
            let text = format!(
                "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n[spaces]\nroots = {root}\n"
            );
            Config::from_text(&text).unwrap()
        };
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
        assert_eq!(none, [Finding::Good("posix; 0 roots of spaces answer".into())]);
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
}
