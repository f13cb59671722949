//! The shared storage, as eirened itself looks at it.

use std::sync::Arc;

use eirene_core::launcher::Launcher;
use eirene_core::{Clock, SystemClock};
use eirene_database::Db;
use eirene_services::config::Config;
use eirene_services::shared_storage::shared_storage;
use eirene_services::storage::Storage;
use eirene_services::storage::judge::{Finding as JudgedFinding, Severity};
use eirene_services::storage::remembered::Remembered;
use eirene_services::storage::snapshot::Asked;

use super::Finding;

/// What is wrong with the shared storage, by the same looks that eirened takes: the launcher's, and the tool that it runs. What is known
/// from before is the database's.
pub(super) async fn storage(config: &Config, launcher: &Arc<dyn Launcher>, db: Option<&Db>) -> Vec<Finding> {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use async_trait::async_trait;
    use eirene_core::launcher::{LauncherAnswer, LauncherError, LauncherRequest};
    use eirene_core::space::MadeAt;
    use eirene_core::storage::Identity;
    use eirene_core::{Role, Space, SpaceOwner};
    use eirene_services::spaces::testing::a_space;
    use eirene_services::testing::TestApp;
    use eirene_storage::Seen;
    use eirene_storage::posix::look_at;

    use super::*;
    use crate::commands::testing::config;

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
        test.app.db.insert_space(space, &[]).await.unwrap();
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
}
