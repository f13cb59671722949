//! All spaces at once, for admins: how many are how full, which are short of room, and which take the most.

use std::collections::BTreeMap;

use eirene_core::space::{Level, SeenUsage};
use eirene_core::{Space, SpaceId, SpaceState};

use super::Spaces;
use crate::actor::Actor;
use crate::error::AppError;

/// Spaces read at once.
const BATCH: u32 = 200;
/// Spaces that are named of each kind.
const MOST_NAMED: usize = 20;

/// All spaces, counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Census {
    /// How many are how full; those that nobody has looked at are *unknown*.
    pub levels: BTreeMap<Level, u64>,
    /// Those that are there and short of room, the fullest first.
    pub short: Vec<(Space, SeenUsage)>,
    /// Those that are known to take the most.
    pub largest: Vec<(Space, SeenUsage)>,
}

impl Spaces {
    /// All spaces, counted; for admins.
    pub async fn census(&self, actor: &Actor) -> Result<Census, AppError> {
        actor.require_admin()?;
        let seen: BTreeMap<SpaceId, SeenUsage> = self.inner.db.usages().await?.into_iter().collect();
        let mut spaces = Vec::new();
        let mut cursor = None;
        loop {
            let batch = self.inner.db.spaces(cursor, BATCH).await?;
            let is_last = batch.len() < BATCH as usize;
            cursor = batch.last().map(|space| space.name.to_string());
            spaces.extend(batch);
            if is_last {
                break;
            }
        }
        Ok(count(spaces, &seen))
    }
}

fn count(spaces: Vec<Space>, seen: &BTreeMap<SpaceId, SeenUsage>) -> Census {
    let mut census = Census::default();
    let mut known = Vec::new();
    for space in spaces {
        let look = seen.get(&space.id).copied();
        // What was taken away is not looked at any more: how full it was then is no news.
        if space.state == SpaceState::Present {
            *census.levels.entry(look.map_or(Level::Unknown, |look| look.level)).or_default() += 1;
        }
        known.extend(look.map(|look| (space, look)));
    }
    // By name where the numbers are the same, as they came.
    let is_short =
        |(space, look): &&(Space, SeenUsage)| space.state == SpaceState::Present && look.level >= Level::Warning;
    let mut short: Vec<_> = known.iter().filter(is_short).cloned().collect();
    short.sort_by_key(|(_, look)| std::cmp::Reverse(look.level));
    short.truncate(MOST_NAMED);
    known.retain(|(_, look)| look.usage.used_bytes.is_some());
    known.sort_by_key(|(_, look)| std::cmp::Reverse(look.usage.used_bytes));
    known.truncate(MOST_NAMED);
    Census { short, largest: known, ..census }
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;
    use eirene_core::storage::Limit;

    use super::*;
    use crate::actor::Actor;
    use crate::spaces::quotas::QuotaRound;
    use crate::testing::TestApp;

    async fn look(test: &TestApp, actor: &Actor) {
        let home = test.app.spaces.get(actor, &"home".parse().unwrap()).await.unwrap();
        test.app.spaces.look_at(&home.space, &mut QuotaRound::default()).await.unwrap();
    }

    #[tokio::test]
    async fn spaces_are_counted_by_level_and_named_by_what_they_take_for_admins_alone() {
        let test = TestApp::new().await;
        let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        let katherine = test.person("katherine", 2004, Role::Researcher).await;
        for (actor, used) in [(&ada, 50), (&grace, 96), (&katherine, 81)] {
            test.storage.state().directory = Some((used, Limit::At(100)));
            look(&test, actor).await;
        }
        test.app.spaces.list(&admin).await.unwrap();
        assert!(matches!(test.app.spaces.census(&ada).await, Err(AppError::Forbidden { .. })));
        let census = test.app.spaces.census(&admin).await.unwrap();
        let names =
            |spaces: &[(Space, SeenUsage)]| spaces.iter().map(|(space, _)| space.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&census.short), ["home-grace", "home-katherine"]);
        assert_eq!(names(&census.largest), ["home-grace", "home-katherine", "home-ada"]);
        let mut away = test.app.spaces.get(&grace, &"home".parse().unwrap()).await.unwrap().space;
        away.state = SpaceState::Retired;
        assert!(test.app.db.update_space(&away, &[]).await.unwrap());
        let later = test.app.spaces.census(&admin).await.unwrap();
        assert_eq!(names(&later.short), ["home-katherine"], "nobody writes into what was taken away");
        assert_eq!(names(&later.largest), names(&census.largest), "and it takes its room");
        let levels: Vec<_> = census.levels.into_iter().collect();
        let one = |level| (level, 1);
        assert_eq!(levels, [Level::Unknown, Level::Ok, Level::Warning, Level::Critical].map(one));
    }
}
