//! Spaces: who has which, how full they are, how they grow. The rules are pure functions beside this file; this is what puts the rows, the
//! storage and the user database before them.
//!
//! A person's home is a space like any other and gets its row when the person is first seen. Nothing here but [`making`] makes or removes anything,
//! as an admin or [`policing`] wishes, and nothing opens anything: what is in a space is read by nobody but its people's own processes.

pub mod access;
pub mod census;
pub mod group_limits;
pub mod groups;
pub mod hint;
pub mod in_sessions;
pub mod level;
pub mod look;
mod looking;
pub mod making;
mod people;
pub mod policing;
pub mod policy;
pub mod quotas;
#[cfg(any(test, feature = "testing"))]
#[expect(missing_docs, clippy::unwrap_used, reason = "arrangements of tests")]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod trend;

use std::path::PathBuf;
use std::sync::Arc;

use eirene_core::space::{HintState, Level, LimitState, SeenUsage, SpaceDesired, StripeHint, Usage, UsageSample};
use eirene_core::storage::Limit;
use eirene_core::{
    Clock, GroupName, Reason, RootName, Scope, Space, SpaceId, SpaceKind, SpaceName, SpaceOwner, SpaceState, User,
    UserId, Username,
};
use eirene_database::{Db, DbError};
use eirene_words::say;
use jiff::SignedDuration;

use self::access::{Groups, GroupsAway, Reach, reach};
use self::group_limits::GroupQuotas;
use self::groups::{GroupSource, KnownGroups};
use self::level::{Thresholds, holding, level};
use self::trend::{Trend, WINDOW_DAYS, trend};
use super::Page;
use super::actor::Actor;
use super::events::Events;
use super::nudge::Nudges;
use super::storage::Storage;
use crate::config::{Config, Per, Root};
use crate::error::AppError;
use crate::shared::Shared;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// What was seen longer ago says nothing of whether an app starts now.
const LOOK_HOLDS: SignedDuration = SignedDuration::from_hours(1);
/// Seconds after which it is worth asking a user database again that did not answer.
const RETRY_AFTER_S: u64 = 10;

/// The reason of a group's space that is there and whose file system keeps no default access list for it.
pub const NOT_SHARED: &str = "not_shared";

/// Spaces. Cheap to clone.
#[derive(Clone)]
pub struct Spaces {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    events: Events,
    storage: Storage,
    groups: KnownGroups,
    group_quotas: GroupQuotas,
    thresholds: Thresholds,
    /// Roots of which everybody has one space at most.
    personal: Vec<RootName>,
    roots: Vec<Root>,
    nudges: Nudges,
}

/// What [`Spaces`] is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Events for open pages.
    pub events: Events,
    /// The storage.
    pub storage: Storage,
    /// The user database's groups.
    pub groups: Arc<dyn GroupSource>,
    /// Who looks at a home that is new.
    pub nudges: Nudges,
}

/// A space as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceSeen {
    /// The space.
    pub space: Space,
    /// The last look; none before the first.
    pub seen: Option<SeenUsage>,
    /// How it grows.
    pub trend: Trend,
    /// How full it is by what it uses itself, whatever the file system has left for everybody.
    pub own_level: Level,
    /// Where sessions see it while it is there; none where they do not, and of a home, which is where its person has it everywhere.
    pub mounted_at: Option<PathBuf>,
}

/// What may keep an app from starting, because it writes into the home when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeTrouble {
    /// Nothing more can be written.
    Full,
    /// Little more can be written.
    NearlyFull,
    /// The same of the whole file system, which is everybody's to mend.
    StorageFull,
    /// The same of the whole file system.
    StorageNearlyFull,
}

impl Spaces {
    /// Spaces with the thresholds and roots of `config`.
    pub fn new(parts: Parts, config: &Config) -> Self {
        let Parts { db, clock, events, storage, groups, nudges } = parts;
        let personal = config.spaces.roots.iter().filter(|root| root.per == Per::Person);
        let inner = Inner {
            groups: KnownGroups::new(groups, Arc::clone(&clock)),
            group_quotas: GroupQuotas::default(),
            thresholds: Thresholds { used: config.spaces.warn_percent, free: config.storage.near_full_percent },
            personal: personal.map(|root| root.name.clone()).collect(),
            roots: config.spaces.roots.clone(),
            db,
            clock,
            events,
            storage,
            nudges,
        };
        Self { inner: Shared::new(inner) }
    }

    /// The spaces a person can use, by name, the home first.
    pub async fn list(&self, actor: &Actor) -> Result<Vec<SpaceSeen>, AppError> {
        let (spaces, are_all) = self.listed(actor).await?;
        are_all.map_err(away)?;
        self.show_all(spaces).await
    }

    /// The same for where some are better than none: while the user database does not say which spaces of groups are among them, without those.
    pub async fn list_known(&self, actor: &Actor) -> Result<Vec<SpaceSeen>, AppError> {
        let (spaces, _) = self.listed(actor).await?;
        self.show_all(spaces).await
    }

    /// The spaces a person can use, and whether those are all.
    async fn listed(&self, actor: &Actor) -> Result<(Vec<Space>, Result<(), GroupsAway>), AppError> {
        actor.require(Scope::FilesRead)?;
        let mut spaces = self.own(&actor.user).await?;
        let shared = self.inner.db.spaces_of_groups().await?;
        // Where no space is a group's, nobody has to be asked.
        let groups = if shared.iter().any(|space| matches!(space.owner, SpaceOwner::Group(_))) {
            self.groups(&actor.user).await
        } else {
            Ok(Arc::default())
        };
        let mut are_all = Ok(());
        for space in shared {
            match reach(&space, actor.user.id, as_groups(&groups)) {
                Ok(Reach::Hidden) => {}
                Ok(Reach::Read | Reach::Write) => spaces.push(space),
                Err(error) => are_all = Err(error),
            }
        }
        spaces.sort_by(|a, b| {
            let order = |space: &Space| (space.kind != SpaceKind::Home, space.name.clone());
            order(a).cmp(&order(b))
        });
        Ok((spaces, are_all))
    }

    /// Everybody's spaces by name, from after the name `cursor` on; for admins.
    pub async fn all(&self, actor: &Actor, cursor: Option<String>, limit: u32) -> Result<Page<SpaceSeen>, AppError> {
        actor.require_admin()?;
        actor.require(Scope::FilesRead)?;
        let spaces = self.inner.db.spaces(cursor, limit).await?;
        let full = spaces.len() == limit as usize;
        let next = spaces.last().filter(|_| full).map(|space| space.name.to_string());
        Ok(Page { items: self.show_all(spaces).await?, next })
    }

    /// One space: of one's own also as `home` or by the name of a root of which everybody has one.
    pub async fn get(&self, actor: &Actor, name: &SpaceName) -> Result<SpaceSeen, AppError> {
        let space = self.visible(actor, name).await?;
        self.show(space).await
    }

    /// The samples of the last days, oldest first.
    pub async fn samples(&self, actor: &Actor, name: &SpaceName, days: u32) -> Result<Vec<UsageSample>, AppError> {
        let space = self.visible(actor, name).await?;
        let since = self.inner.clock.now() - DAY * i32::try_from(days).unwrap_or(i32::MAX);
        Ok(self.inner.db.samples(space.id, since).await?)
    }

    /// Whether the person may open what is in a space that they see: an admin sees more than that. While it cannot be told it is not said.
    pub async fn may_open(&self, actor: &Actor, space: &Space) -> bool {
        self.reached(&actor.user, space.clone()).await.is_ok()
    }

    /// Whether the home may keep an app from starting, by a look that is not old. What is not known is no trouble: nobody is kept from trying.
    pub async fn home_trouble(&self, actor: &Actor) -> Result<Option<HomeTrouble>, AppError> {
        let own = self.inner.db.spaces_of_person(actor.user.id).await?;
        let Some(home) = own.iter().find(|space| space.kind == SpaceKind::Home && !space.undetermined) else {
            return Ok(None);
        };
        let fresh = |seen: &SeenUsage| self.inner.clock.now().duration_since(seen.seen_at) < LOOK_HOLDS;
        let Some(seen) = self.inner.db.usage(home.id).await?.filter(fresh) else { return Ok(None) };
        let own = self.own_level(&seen) == seen.level;
        Ok(match (seen.level, own) {
            (Level::Full, true) => Some(HomeTrouble::Full),
            (Level::Full, false) => Some(HomeTrouble::StorageFull),
            (Level::Critical, true) => Some(HomeTrouble::NearlyFull),
            (Level::Critical, false) => Some(HomeTrouble::StorageNearlyFull),
            (Level::Warning | Level::Ok | Level::Unknown, _) => None,
        })
    }

    /// How full a space is by what it uses itself, whatever the file system has left for everybody.
    fn own_level(&self, seen: &SeenUsage) -> Level {
        let usage = holding(&seen.usage, seen.seen_at);
        level(&Usage { total_bytes: None, total_files: None, ..usage }, self.inner.thresholds)
    }

    /// The space of this name, if `actor` may know of it: its people, and admins, who see the row and what it uses.
    async fn visible(&self, actor: &Actor, name: &SpaceName) -> Result<Space, AppError> {
        actor.require(Scope::FilesRead)?;
        if let Some(space) = self.own_called(&actor.user, name).await? {
            return Ok(space);
        }
        let space = self.inner.db.space_by_name(name).await?;
        if actor.acts_as_admin() {
            return space.ok_or(AppError::NotFound);
        }
        let groups = self.groups(&actor.user).await;
        let reached = space.as_ref().map(|space| reach(space, actor.user.id, as_groups(&groups)));
        match (space, reached, groups) {
            (Some(space), Some(Ok(Reach::Read | Reach::Write)), _) => Ok(space),
            // Also for what is not there: else one could tell what is, while groups cannot be told.
            (_, _, Err(error)) => Err(away(error)),
            (Some(_), _, Ok(_)) => Err(AppError::Hidden),
            (None, _, Ok(_)) => Err(AppError::NotFound),
        }
    }

    /// The space of this name and what the person may do with what is in it. Admins have no more of it than everybody.
    pub async fn usable(&self, user: &User, name: &SpaceName) -> Result<(Space, Reach), AppError> {
        let space = match self.own_called(user, name).await? {
            Some(own) => own,
            None => self.inner.db.space_by_name(name).await?.ok_or(AppError::NotFound)?,
        };
        self.reached(user, space).await
    }

    /// The same by the space's id.
    pub(crate) async fn usable_id(&self, user: &User, id: SpaceId) -> Result<(Space, Reach), AppError> {
        let there = self.inner.db.space(id).await?.filter(|space| space.state != SpaceState::Gone);
        self.reached(user, there.ok_or(AppError::NotFound)?).await
    }

    async fn reached(&self, user: &User, space: Space) -> Result<(Space, Reach), AppError> {
        let groups = self.groups(user).await;
        match reach(&space, user.id, as_groups(&groups)).map_err(away)? {
            Reach::Hidden => Err(AppError::Hidden),
            reach @ (Reach::Read | Reach::Write) => Ok((space, reach)),
        }
    }

    /// All spaces that are there and that the person may use. While the user database does not say whether those of groups are among them,
    /// they are not: whoever asks for one hears so.
    pub(crate) async fn all_usable(&self, user: &User) -> Result<Vec<(Space, Reach)>, AppError> {
        let mut spaces = self.own(user).await?;
        spaces.extend(self.inner.db.spaces_of_groups().await?);
        let groups = self.groups(user).await;
        let usable = spaces.into_iter().filter(|space| space.state == SpaceState::Present).filter_map(|space| {
            let reach = reach(&space, user.id, as_groups(&groups)).unwrap_or(Reach::Hidden);
            (reach > Reach::Hidden).then_some((space, reach))
        });
        Ok(usable.collect())
    }

    /// All spaces that are there and that the person may use, to be seen in a session: here a user database that does not say which groups the
    /// person is in is an error, because a session goes on for long with what it was started with.
    async fn all_seen(&self, person: UserId) -> Result<Vec<(Space, Reach)>, AppError> {
        let Some(user) = self.inner.db.user(person).await? else { return Ok(vec![]) };
        let mut spaces = self.inner.db.spaces_of_person(person).await?;
        spaces.extend(self.inner.db.spaces_of_groups().await?);
        spaces.retain(|space| space.state == SpaceState::Present);
        let groups = if spaces.iter().any(|space| matches!(space.owner, SpaceOwner::Group(_))) {
            self.groups(&user).await
        } else {
            Ok(Arc::default())
        };
        let reached = spaces.into_iter().map(|space| Ok((reach(&space, person, as_groups(&groups))?, space)));
        let reached = reached.collect::<Result<Vec<_>, GroupsAway>>().map_err(away)?;
        Ok(reached
            .into_iter()
            .filter(|(reach, _)| *reach > Reach::Hidden)
            .map(|(reach, space)| (space, reach))
            .collect())
    }

    /// A person's home directory.
    pub async fn home_of(&self, person: &Username) -> Result<PathBuf, AppError> {
        self.inner.groups.home_of(person).await.map_err(away)
    }

    /// A person's number, where the user database knows one of this name.
    pub(crate) async fn number_of_person(&self, person: &Username) -> Result<Option<u32>, AppError> {
        self.inner.groups.uid_of(person).await.map_err(away)
    }

    /// A group's number, where the user database knows one of this name.
    pub(crate) async fn number_of_group(&self, group: &GroupName) -> Result<Option<u32>, AppError> {
        self.inner.groups.number_of(group).await.map_err(away)
    }

    /// One of a person's own spaces by what they call it: the home is `home`, and what everybody has one of goes by its root's name.
    async fn own_called(&self, user: &User, name: &SpaceName) -> Result<Option<Space>, AppError> {
        let called = |space: &Space| match name.as_str() {
            Space::HOME_ROOT => space.kind == SpaceKind::Home,
            root => space.root.as_str() == root && self.inner.personal.contains(&space.root),
        };
        Ok(self.own(user).await?.into_iter().find(called))
    }

    /// A person's own spaces; the home has a row from now on.
    async fn own(&self, user: &User) -> Result<Vec<Space>, AppError> {
        let own = self.inner.db.spaces_of_person(user.id).await?;
        if user.uid.is_none() || own.iter().any(|space| space.kind == SpaceKind::Home) {
            return Ok(own);
        }
        if self.add_home(user).await? {
            self.inner.nudges.spaces().notify_one();
        }
        Ok(self.inner.db.spaces_of_person(user.id).await?)
    }

    /// Whether it has a row that it had not.
    async fn add_home(&self, user: &User) -> Result<bool, AppError> {
        let (Ok(name), Ok(title), Ok(root)) = (
            format!("{}-{}", Space::HOME_ROOT, user.username).parse(),
            say("space.home").as_str().parse(),
            Space::HOME_ROOT.parse(),
        ) else {
            return Err(AppError::Internal(anyhow::anyhow!("a home has no good name")));
        };
        let home = Space {
            id: SpaceId::generate(),
            serial: 0,
            name,
            kind: SpaceKind::Home,
            title,
            root,
            owner: SpaceOwner::Person { id: user.id, name: user.username.clone() },
            writable: true,
            hint: StripeHint::Usual,
            hint_state: HintState::Unset,
            hint_said: None,
            desired: SpaceDesired::Present,
            state: SpaceState::Present,
            undetermined: false,
            reason: None,
            made_at: None,
            limit_bytes: Limit::Unlimited,
            limit_files: Limit::Unlimited,
            limit_state: LimitState::Unset,
            limit_said: None,
            expires_at: None,
            warned: vec![],
            retired_at: None,
            remove_after: None,
            kept_s: 0,
            watched_at: None,
            created_at: self.inner.clock.now(),
            version: 1,
        };
        match Box::pin(self.inner.db.insert_space(home, &[])).await {
            Ok(_) => Ok(true),
            // Somebody was faster, or an admin has called another space so; then this person's home has no row, and that is seen in the list.
            Err(DbError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds rows for the homes of people who have none yet; at most so many at once.
    pub async fn add_homes(&self, most: u32) -> Result<(), AppError> {
        for person in self.inner.db.people_without_home(most).await? {
            if let Some(user) = self.inner.db.user(person).await? {
                self.add_home(&user).await?;
            }
        }
        Ok(())
    }

    /// The person's groups; an account of the platform alone has none.
    async fn groups(&self, user: &User) -> Result<Arc<[GroupName]>, GroupsAway> {
        if user.uid.is_none() {
            return Ok(Arc::default());
        }
        self.inner.groups.of(&user.username).await
    }

    async fn show_all(&self, spaces: Vec<Space>) -> Result<Vec<SpaceSeen>, AppError> {
        let mut all = Vec::with_capacity(spaces.len());
        for space in spaces {
            all.push(self.show(space).await?);
        }
        Ok(all)
    }

    async fn show(&self, space: Space) -> Result<SpaceSeen, AppError> {
        let seen = self.inner.db.usage(space.id).await?;
        let now = self.inner.clock.now();
        let since = now - DAY * i32::try_from(WINDOW_DAYS).unwrap_or(i32::MAX);
        let samples = self.inner.db.samples(space.id, since).await?;
        let limit = match seen.and_then(|seen| seen.usage.limit_bytes) {
            Some(Limit::At(limit)) => Some(limit),
            Some(Limit::Unlimited) | None => None,
        };
        let own_level = seen.map_or(Level::Unknown, |seen| self.own_level(&seen));
        let root = self.inner.roots.iter().find(|root| root.name == space.root);
        let mounted_at = root.and_then(|root| root.seen_at(&space));
        Ok(SpaceSeen { trend: trend(&samples, limit, now), space, seen, own_level, mounted_at })
    }
}

/// What was found of a space when it was made, and is so as long as it is there: no look finds it again, so none takes it back.
fn lasting(space: &Space) -> Option<Reason> {
    space.reason.clone().filter(|reason| reason.code == NOT_SHARED)
}

fn as_groups(groups: &Result<Arc<[GroupName]>, GroupsAway>) -> Groups<'_> {
    groups.as_ref().map_or(Groups::Away, |groups| Groups::Known(groups))
}

fn away(_: GroupsAway) -> AppError {
    AppError::Unavailable { what: say("away.people"), retry_after_s: RETRY_AFTER_S }
}
