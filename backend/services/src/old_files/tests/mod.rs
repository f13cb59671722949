//! Old files are listed, told of, and removed by what was listed; and whatever is not as it should be makes nothing happen.

mod doubt;
mod looks;
mod removal;
mod shared;

use std::fs::FileTimes;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use eirene_core::{Role, SystemClock, Username};
use eirene_files_protocol::Channel;
use jiff::SignedDuration;

use super::*;
use crate::config;
use crate::testing::{FilesStandIn, StorageMood, TestApp};

/// How far the portal's clock is ahead of what files are made by: nobody can set when a file's attributes last changed.
const AHEAD: SignedDuration = SignedDuration::from_hours(60 * 24);

/// The real file process, in a thread of its own, which it confines.
fn real() -> FilesStandIn {
    Arc::new(|_: Username, channel: Channel| {
        let _ = eirene_files::serve(channel, &eirene_files::Settings { least_uid: 0, landlock: true });
    })
}

/// Ada's scratch, of which files go that are 30 days old and were told of 14 days before, and nineteen others who have nothing in theirs.
struct World {
    test: TestApp,
    ada: Actor,
    directory: PathBuf,
}

impl World {
    async fn new() -> Self {
        Self::with(false).await
    }

    async fn with(dry_run: bool) -> Self {
        let mut test = TestApp::new().await;
        test.clock.advance_s((SystemClock.now().duration_since(test.clock.now()) + AHEAD).as_secs());
        let ada = test.person("ada", rustix::process::geteuid().as_raw(), Role::Researcher).await;
        for number in 0..19 {
            test.person(&format!("p{number}"), 4000 + number, Role::Researcher).await;
        }
        *test.launcher.files.lock().unwrap() = Some(real());
        let directory = test.directory.path().join("spaces/scratch-ada");
        std::fs::create_dir_all(&directory).unwrap();
        mark(&directory);
        let rule = config::OldFiles { days: 30, warn_days: 14, dry_run };
        test.rebuild(with_rule(&test, Some(rule)));
        test.app.making.add_personal(50).await.unwrap();
        for _ in 0..4 {
            for space in test.app.making.to_do().await.unwrap() {
                test.app.making.step(&space).await.unwrap();
            }
        }
        // The others have no process and no directory here: nothing becomes of their files.
        for number in 0..19 {
            let name = format!("scratch-p{number}").parse().unwrap();
            let space = test.app.db.space_by_name(&name).await.unwrap().unwrap();
            let exempt = OldFilesState { exempt: true, ..OldFilesState::new(space.id) };
            assert!(test.app.db.put_old_files(&exempt, &[]).await.unwrap());
        }
        Self { test, ada, directory }
    }

    async fn space(&self) -> Space {
        self.test.app.db.space_by_name(&"scratch-ada".parse().unwrap()).await.unwrap().unwrap()
    }

    async fn report(&self) -> OldFilesReport {
        self.test.app.old_files.report(&self.ada, &"scratch".parse().unwrap()).await.unwrap()
    }

    /// Waits until nothing is under way.
    async fn idle(&self) {
        while !self.test.app.old_files.inner.running().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn look(&self) {
        self.test.app.old_files.run().await.unwrap();
        self.idle().await;
    }

    /// Looks every two hours.
    async fn days(&self, days: u32) {
        for _ in 0..days * 12 {
            self.test.clock.advance_s(2 * 3600);
            self.look().await;
        }
    }

    fn write(&self, name: &str, modified: SignedDuration) {
        let path = self.directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, name).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified.as_secs().unsigned_abs());
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_times(FileTimes::new().set_modified(modified).set_accessed(SystemTime::UNIX_EPOCH + SECOND)).unwrap();
    }

    /// A file whose content is as old as the portal's clock says.
    fn old(&self, name: &str) {
        self.write(name, (self.test.clock.now() - AHEAD).as_duration());
    }

    fn is_there(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }

    /// A list that its owner was told of, so that in 14 days a file is removed.
    async fn told() -> Self {
        let world = Self::new().await;
        world.look().await;
        world.old("old");
        world.days(1).await;
        assert!(world.report().await.state.list.unwrap().told_at.is_some());
        world
    }

    async fn notices(&self) -> Vec<serde_json::Value> {
        let events = self.test.app.db.events_after(0, 1000).await.unwrap();
        let notices = events.into_iter().filter(|event| event.kind == "notice");
        notices.filter(|event| event.owner == Some(self.ada.user.id)).map(|event| event.data).collect()
    }
}

/// Writes the marker that the storage in memory tells of into the root of this directory: its inode is not what the launcher in memory said.
fn mark(directory: &Path) {
    std::fs::write(directory.parent().unwrap().join(".eirene-root"), "00ff").unwrap();
}

/// After 2000, so that it can be.
const SECOND: Duration = Duration::from_secs(1_000_000_000);

fn with_rule(test: &TestApp, rule: Option<config::OldFiles>) -> Config {
    let mut config = (*test.app.config).clone();
    let root = config.spaces.roots.iter_mut().find(|root| root.name.as_str() == "scratch").unwrap();
    root.path = test.directory.path().join("spaces");
    root.old_files = rule;
    config
}
