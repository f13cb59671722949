//! Makes spaces that are wanted, takes away those that are not, brings back those that are again, and removes what is to be gone. What does not
//! succeed is tried again, ever more rarely, and at once when somebody changes the wish.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use eirene_core::{Space, SpaceId};
use jiff::{SignedDuration, Timestamp};

use super::driver::Reconciler;
use crate::app::App;
use crate::services::spaces::making::Stepped;

/// Rows that are added of each root in a run.
const ROWS: u32 = 200;
/// A run begins nothing after this time, so that it ends before it is ended.
const LONGEST: Duration = Duration::from_mins(1);
/// The first wait after a failure, and the longest.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(1);

/// Makes spaces as they are wanted.
pub(super) struct SpaceMake {
    app: App,
    waits: Mutex<HashMap<SpaceId, Wait>>,
}

/// A space that did not come to be as it is wanted.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// The row that was tried.
    version: i64,
    until: Timestamp,
    pause: SignedDuration,
}

impl SpaceMake {
    pub(super) fn new(app: App) -> Self {
        Self { app, waits: Mutex::default() }
    }

    fn waits(&self, space: &Space) -> bool {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.get(&space.id).is_some_and(|wait| wait.version == space.version && self.app.clock.now() < wait.until)
    }

    fn wait(&self, space: SpaceId, version: i64) {
        let now = self.app.clock.now();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waits.get(&space).filter(|before| before.version == version);
        let pause = before.map_or(FIRST_WAIT, |before| (before.pause * 2).min(LONGEST_WAIT));
        waits.insert(space, Wait { version, until: now + pause, pause });
    }

    fn forget(&self, listed: &[Space]) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|id, _| listed.iter().any(|space| space.id == *id));
    }
}

#[async_trait]
impl Reconciler for SpaceMake {
    fn name(&self) -> &'static str {
        "space_make"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let (begun, making) = (Instant::now(), &self.app.making);
        making.add_personal(ROWS).await?;
        loop {
            let listed = making.to_do().await?;
            self.forget(&listed);
            let mut goes_on = false;
            for space in listed.iter().filter(|space| !self.waits(space)) {
                if begun.elapsed() > LONGEST {
                    return Ok(());
                }
                match making.step(space).await? {
                    // People see at once what it uses and may use.
                    Stepped::Done => self.app.spaces.look_again(space.id).await?,
                    Stepped::More => goes_on = true,
                    Stepped::Later => self.wait(space.id, making.version(space.id).await?),
                }
            }
            if !goes_on {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;

    use super::*;
    use crate::services::spaces::making::{NewLimits, NewSpace};
    use crate::testing::TestApp;

    #[tokio::test]
    async fn what_was_made_is_looked_at_before_anybody_waits_for_it() {
        let test = TestApp::new().await;
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        let new = NewSpace {
            root: "project".parse().unwrap(),
            name: Some("stars".parse().unwrap()),
            title: None,
            owner: None,
            group: Some("physics".parse().unwrap()),
            hint: None,
            expires_at: None,
            limits: NewLimits::default(),
        };
        let space = test.app.making.create(&admin, new).await.unwrap();
        assert_eq!(test.app.db.usage(space.id).await.unwrap(), None);
        SpaceMake::new(test.app.clone()).run().await.unwrap();
        assert!(test.app.db.usage(space.id).await.unwrap().is_some());
    }
}
