//! Makes spaces that are wanted, takes away those that are not, brings back those that are again, and removes what is to be gone. What does not
//! succeed is tried again, ever more rarely, and at once when somebody changes the wish. Looks at what is new before its turn comes, as at a home
//! whose person is there for the first time.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use eirene_core::{Space, SpaceId};
use eirene_services::app::App;
use eirene_services::spaces::making::{OwnerWaits, Stepped, Waits};

use super::driver::Reconciler;

/// Rows that are added of each root in a run.
const ROWS: u32 = 200;
/// A run begins nothing after this time, so that it ends before it is ended.
const LONGEST: Duration = Duration::from_mins(1);

/// Makes spaces as they are wanted.
pub(super) struct SpaceMake {
    app: App,
    /// Spaces that did not come to be as they are wanted, by the version of the row that was tried.
    spaces: Waits<SpaceId, i64>,
    owners: OwnerWaits,
}

impl SpaceMake {
    pub(super) fn new(app: App) -> Self {
        Self { app, spaces: Waits::default(), owners: OwnerWaits::default() }
    }

    fn waits(&self, space: &Space) -> bool {
        self.spaces.has(&space.id, &space.version, self.app.clock.now())
    }

    /// Takes spaces towards what is wanted of them; false where the time was too short for all of them.
    async fn take_steps(&self, begun: Instant) -> anyhow::Result<bool> {
        let making = &self.app.making;
        loop {
            let listed = making.to_do().await?;
            self.spaces.keep(|id| listed.iter().any(|space| space.id == *id));
            let mut goes_on = false;
            for space in listed.iter().filter(|space| !self.waits(space)) {
                if begun.elapsed() > LONGEST {
                    return Ok(false);
                }
                match making.step(space).await? {
                    // People see at once what it uses and may use.
                    Stepped::Done => {
                        self.spaces.remove(&space.id);
                        self.app.spaces.look_again(space.id).await?;
                    }
                    Stepped::More => goes_on = true,
                    Stepped::Later => {
                        let version = making.version(space.id).await?;
                        self.spaces.add(space.id, version, self.app.clock.now());
                    }
                }
            }
            if !goes_on {
                return Ok(true);
            }
        }
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
        // Spaces first: no storage that is away keeps those from being made that lie on another.
        if self.take_steps(begun).await? && making.judge_owners(&self.owners).await? {
            self.take_steps(begun).await?;
        }
        self.app.spaces.look_at_new().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::space::{LimitedOwner, OwnerLimit};
    use eirene_core::storage::{Bytes, Limit, PoolId, QuotaId};
    use eirene_core::{Role, SpaceKind, SpaceState};
    use eirene_services::spaces::making::{NewLimits, NewSpace};
    use eirene_services::testing::{PATIENCE, StorageMood, TestApp};

    use super::*;

    #[tokio::test]
    async fn a_home_that_is_new_is_looked_at_once_its_person_has_asked_for_it() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let home = test.app.spaces.list(&ada).await.unwrap().remove(0);
        assert_eq!((home.space.kind, home.seen), (SpaceKind::Home, None));
        tokio::time::timeout(PATIENCE, test.app.nudges.spaces().notified()).await.unwrap();
        SpaceMake::new(test.app.clone()).run().await.unwrap();
        assert!(test.app.db.usage(home.space.id).await.unwrap().is_some());
        let looks = test.storage.state().looks.len();
        SpaceMake::new(test.app.clone()).run().await.unwrap();
        assert_eq!(test.storage.state().looks.len(), looks, "and then in its turn");
    }

    #[tokio::test]
    async fn a_home_that_cannot_be_looked_at_waits_for_its_turn() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        test.app.spaces.list(&ada).await.unwrap();
        test.person("grace", 2002, Role::Researcher).await;
        test.app.spaces.add_homes(9).await.unwrap();
        test.storage.state().mood = StorageMood::Away;
        SpaceMake::new(test.app.clone()).run().await.unwrap();
        assert_eq!(test.storage.state().looks, ["~grace"], "the newest, and nobody's after it");
        SpaceMake::new(test.app.clone()).run().await.unwrap();
        SpaceMake::new(test.app.clone()).run().await.unwrap();
        assert_eq!(test.storage.state().looks, ["~grace", "~ada"], "each is tried once");
    }

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

    #[tokio::test]
    async fn a_space_is_made_while_the_storage_is_away_that_limits_owners_and_that_is_asked_once_for_all_of_them() {
        let mut test = TestApp::new().await;
        let mut config = (*test.app.config).clone();
        for root in &mut config.spaces.roots {
            root.owner_limits = true;
        }
        test.rebuild(config);
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        test.launcher.spaces.lock().unwrap().counts = true;
        for number in 0..10 {
            let new = NewSpace {
                root: "project".parse().unwrap(),
                name: Some(format!("stars-{number}").parse().unwrap()),
                title: None,
                owner: None,
                group: Some(format!("group-{number}").parse().unwrap()),
                hint: None,
                expires_at: None,
                limits: NewLimits { bytes: Some(Limit::At(Bytes(1 << 30))), files: None },
            };
            test.app.making.create(&admin, new).await.unwrap();
        }
        let make = SpaceMake::new(test.app.clone());
        make.run().await.unwrap();
        // Each of the groups is limited by what is not so any more.
        for number in 0..10 {
            let limit = OwnerLimit {
                owner: LimitedOwner::Group(format!("group-{number}").parse().unwrap()),
                id: QuotaId::Group(6000 + number),
                pool: PoolId(1),
                bytes: Bytes(1),
                judged_by: "by what was".into(),
            };
            test.app.db.put_owner_limit(&limit).await.unwrap();
        }
        {
            let mut storage = test.storage.state();
            storage.away_root = Some("project");
            storage.looks.clear();
        }
        test.ada().await;
        make.run().await.unwrap();
        let made = test.app.db.space_by_name(&"scratch-ada".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(made.state, SpaceState::Present);
        let asked = || {
            let looks = test.storage.state().looks.clone();
            looks.into_iter().filter(|name| name.starts_with("stars-")).collect::<Vec<_>>()
        };
        assert_eq!(asked(), ["stars-0"]);
        make.run().await.unwrap();
        assert_eq!(asked(), ["stars-0", "stars-1"], "who could not be judged does not stand in the others' way");
    }
}
