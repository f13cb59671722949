//! Making spaces, taking them away and bringing them back. A wish is a row and is written first; the launcher carries it out, one step a time,
//! from the rows alone, and whatever was begun and not written down is found done the next time.
//!
//! Nothing here touches a file system: the launcher does, in the roots that its own configuration names, by names and never by paths.

use std::sync::Arc;

use eirene_core::launcher::Launcher;
use eirene_core::space::{HintState, LimitState, SpaceDesired, StripeHint};
use eirene_core::storage::Limit;
use eirene_core::{
    Clock, RootName, Scope, Sentence, Space, SpaceId, SpaceKind, SpaceName, SpaceOwner, SpaceState, SpaceTitle, User,
};
use eirene_database::{Db, DbError};
use eirene_words::{say, say_with};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::groups::GroupSource;
use crate::actor::Actor;
use crate::audit::Audit;
use crate::config::{Config, Per, Root};
use crate::error::{AppError, FieldError};
use crate::events::Events;
use crate::nudge::Nudges;
use crate::shared::Shared;
use crate::storage::Storage;
use crate::storage::stripe::Stripes;

mod hinting;
mod limiting;
mod owner_limits;
mod steps;
mod waits;
mod wishes;

pub use limiting::NewLimits;
pub use owner_limits::OwnerWaits;
pub use steps::Stepped;
pub use waits::Waits;
pub use wishes::{ChangeSpace, End, NewSpace, Title};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Somebody else may change the row in between, so often.
const TRIES: u32 = 5;
/// Seconds after which it is worth asking a user database again that did not answer.
const RETRY_AFTER_S: u64 = 10;

/// Makes spaces. Cheap to clone.
#[derive(Clone)]
pub struct Making {
    inner: Shared<Parts>,
    config: Arc<Config>,
}

/// What [`Making`] is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Audit log.
    pub audit: Audit,
    /// Events for open pages.
    pub events: Events,
    /// The privileged process.
    pub launcher: Arc<dyn Launcher>,
    /// Bells of the reconcilers.
    pub nudges: Nudges,
    /// The storage.
    pub storage: Storage,
    /// How files are spread over targets.
    pub stripes: Stripes,
    /// The user database's groups.
    pub groups: Arc<dyn GroupSource>,
}

impl Making {
    /// Makes spaces in the roots of `config`.
    pub fn new(parts: Parts, config: &Arc<Config>) -> Self {
        Self { inner: Shared::new(parts), config: Arc::clone(config) }
    }

    /// The roots that spaces can lie in.
    pub fn roots(&self) -> &[Root] {
        &self.config.spaces.roots
    }

    fn root(&self, name: &RootName) -> Option<&Root> {
        self.config.spaces.roots.iter().find(|root| root.name == *name)
    }

    /// Wishes for a space; for admins. It is made within seconds.
    pub async fn create(&self, actor: &Actor, new: NewSpace) -> Result<Space, AppError> {
        may(actor)?;
        let space = self.check(new).await?;
        let audit = self.inner.audit.entry(actor.audit("space.create", space.name.as_str(), "ok", details(&space)));
        let space = self.inner.db.insert_space(space, &[audit]).await?;
        self.inner.nudges.spaces().notify_one();
        Ok(space)
    }

    /// What a wish comes to, or what is wrong with it by field.
    async fn check(&self, new: NewSpace) -> Result<Space, AppError> {
        let wrong = |field: &'static str, message: Sentence| AppError::Invalid(vec![FieldError::new(field, message)]);
        new.limits.check()?;
        let root = self.root(&new.root).ok_or_else(|| wrong("root", say("wrong.no_root")))?;
        if new.expires_at.is_some_and(|end| end <= self.inner.clock.now()) {
            return Err(wrong("expires_at", say("wrong.past")));
        }
        let owner = match (root.per, &new.owner, &new.group) {
            (Per::Person, Some(owner), None) => {
                let user = self.inner.db.user_by_name(owner).await?;
                let user =
                    user.filter(|user| user.uid.is_some()).ok_or_else(|| wrong("owner", say("wrong.no_person")))?;
                let space = personal(root, &user, self.inner.clock.now());
                let space = space.ok_or_else(|| wrong("owner", say("wrong.no_person")))?;
                if new.name.is_some_and(|name| name != space.name) {
                    let expected = [("name", space.name.as_str())];
                    return Err(wrong("name", say_with("wrong.personal_name", &expected)));
                }
                let own = self.inner.db.spaces_of_person(user.id).await?;
                if own.iter().any(|own| own.root == root.name) {
                    return Err(DbError::Conflict { what: "space" }.into());
                }
                let (title, hint) = (new.title.unwrap_or(space.title), new.hint.unwrap_or(space.hint));
                let mut space = Space { title, expires_at: new.expires_at, ..space };
                hinting::wish(&mut space, hint);
                new.limits.wish(&mut space);
                return Ok(space);
            }
            (Per::Person, _, _) => return Err(wrong("owner", say("wrong.root_of_persons"))),
            (Per::Group, Some(_), _) => return Err(wrong("owner", say("wrong.root_of_groups"))),
            (Per::Group, None, Some(group)) => {
                let found = self.inner.groups.number_of(group).await;
                found
                    .map_err(|_| AppError::Unavailable { what: say("away.people"), retry_after_s: RETRY_AFTER_S })?
                    .ok_or_else(|| wrong("group", say("wrong.no_group")))?;
                SpaceOwner::Group(group.clone())
            }
            (Per::Group, None, None) => SpaceOwner::Everybody,
        };
        let name = new.name.ok_or_else(|| wrong("name", say("wrong.missing_field")))?;
        if self.is_taken_by_rule(&name) {
            return Err(wrong("name", say("wrong.taken_name")));
        }
        let title = new.title.map_or_else(|| usual_title(Some(root), &name), Ok)?;
        let writable = root.is_writable() && owner != SpaceOwner::Everybody;
        let mut space =
            Space { title, writable, expires_at: new.expires_at, ..wanted(root, name, owner, self.inner.clock.now()) };
        hinting::wish(&mut space, new.hint.unwrap_or(root.hint));
        new.limits.wish(&mut space);
        Ok(space)
    }

    /// Names that are, or will be, those of homes and of what everybody has one of, and names that mean one's own.
    fn is_taken_by_rule(&self, name: &SpaceName) -> bool {
        let personal = self.config.spaces.roots.iter().filter(|root| root.per == Per::Person);
        let roots = std::iter::once(Space::HOME_ROOT).chain(personal.map(|root| root.name.as_str()));
        let mut begins = roots.filter_map(|root| name.as_str().strip_prefix(root));
        begins.any(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Changes what can be changed of a space; for admins.
    pub async fn change(&self, actor: &Actor, name: &SpaceName, change: &ChangeSpace) -> Result<Space, AppError> {
        let now = self.inner.clock.now();
        if change.expires_at.and_then(End::at).is_some_and(|end| end <= now) {
            return Err(AppError::Invalid(vec![FieldError::new("expires_at", say("wrong.past"))]));
        }
        change.limits.check()?;
        let edit = |space: &mut Space| {
            change.limits.wish(space);
            space.title = match &change.title {
                None => space.title.clone(),
                Some(Title::Usual) => usual_title(self.root(&space.root), &space.name)?,
                Some(Title::Is(title)) => title.clone(),
            };
            if let Some(hint) = change.hint {
                hinting::wish(space, hint);
            }
            if let Some(end) = change.expires_at.map(End::at)
                && end != space.expires_at
            {
                // Who was warned of another end was not warned of this one.
                (space.expires_at, space.warned) = (end, vec![]);
            }
            Ok(())
        };
        let space = self.edit(actor, "space.change", name, edit).await?;
        if space.limit_state == LimitState::Wanted || space.hint_state == HintState::Wanted {
            self.inner.nudges.spaces().notify_one();
        }
        Ok(space)
    }

    /// Wishes that a space be taken away, restorably; for admins.
    pub async fn retire(&self, actor: &Actor, name: &SpaceName) -> Result<Space, AppError> {
        let retire = |space: &mut Space| {
            if space.desired == SpaceDesired::Present {
                space.desired = SpaceDesired::Retired;
            }
            Ok(())
        };
        let space = self.edit(actor, "space.retire", name, retire).await?;
        self.inner.nudges.spaces().notify_one();
        Ok(space)
    }

    /// Wishes that a space come back that was taken away; for admins.
    pub async fn restore(&self, actor: &Actor, name: &SpaceName) -> Result<Space, AppError> {
        let now = self.inner.clock.now();
        let restore = |space: &mut Space| {
            if space.desired == SpaceDesired::Gone {
                // It is being removed: what is left of it is not what it was.
                return Err(AppError::Conflict { code: "being_removed", text: say("problem.being_removed") });
            }
            space.desired = SpaceDesired::Present;
            if space.expires_at.is_some_and(|end| end <= now) {
                // Else it would be taken away again at once.
                (space.expires_at, space.warned) = (None, vec![]);
            }
            Ok(())
        };
        let space = self.edit(actor, "space.restore", name, restore).await?;
        self.inner.nudges.spaces().notify_one();
        Ok(space)
    }

    /// Changes a row, again where somebody else was faster. Nothing is recorded where nothing changes.
    async fn edit(
        &self,
        actor: &Actor,
        action: &'static str,
        name: &SpaceName,
        edit: impl Fn(&mut Space) -> Result<(), AppError>,
    ) -> Result<Space, AppError> {
        may(actor)?;
        for _ in 0..TRIES {
            let mut space = self.inner.db.space_by_name(name).await?.ok_or(AppError::NotFound)?;
            if space.kind == SpaceKind::Home {
                return Err(AppError::Conflict { code: "is_a_home", text: say("problem.is_a_home") });
            }
            let before = space.clone();
            edit(&mut space)?;
            if space == before {
                return Ok(space);
            }
            let event = actor.audit(action, space.name.as_str(), "ok", details(&space));
            if self.inner.db.update_space(&space, &[self.inner.audit.entry(event)]).await? {
                space.version += 1;
                return Ok(space);
            }
        }
        Err(DbError::Conflict { what: "space" }.into())
    }

    /// Adds rows for people who have none in a root of which everybody has one; at most so many of each root.
    pub async fn add_personal(&self, most: u32) -> Result<(), AppError> {
        for root in self.config.spaces.roots.iter().filter(|root| root.per == Per::Person) {
            for person in self.inner.db.people_without_space_in(&root.name, most).await? {
                let Some(user) = self.inner.db.user(person).await? else { continue };
                let Some(mut space) = personal(root, &user, self.inner.clock.now()) else { continue };
                NewLimits::of_root(root).wish(&mut space);
                space.expires_at = end_of_life(root, space.created_at);
                match self.inner.db.insert_space(space, &[]).await {
                    // Somebody was faster, or another space is called so: then this person has none, and that is seen in the list.
                    Ok(_) | Err(DbError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// The spaces that are not as they are wanted.
    pub async fn to_do(&self) -> Result<Vec<Space>, AppError> {
        Ok(self.inner.db.spaces_to_change().await?)
    }

    /// The version of a space's row now.
    pub async fn version(&self, space: SpaceId) -> Result<i64, AppError> {
        Ok(self.inner.db.space(space).await?.map_or(0, |space| space.version))
    }
}

/// Admins, by a means that also shows them what comes of it.
fn may(actor: &Actor) -> Result<(), AppError> {
    actor.require_admin()?;
    actor.require(Scope::FilesRead)
}

/// What the audit log says of a space.
fn details(space: &Space) -> Value {
    let owner = match &space.owner {
        SpaceOwner::Person { name, .. } => name.to_string(),
        SpaceOwner::Group(group) => format!("group {group}"),
        SpaceOwner::Everybody => "everybody".into(),
    };
    let expires_at = space.expires_at.map(|end| end.to_string());
    json!({"root": space.root, "owner": owner, "hint": space.hint, "expires_at": expires_at, "limit_bytes": space.limit_bytes,
        "limit_files": space.limit_files})
}

/// The title of a space that was given none.
fn usual_title(root: Option<&Root>, name: &SpaceName) -> Result<SpaceTitle, AppError> {
    match root.filter(|root| root.per == Per::Person) {
        Some(root) => Ok(root.title.clone()),
        None => name.as_str().parse().map_err(|error| AppError::Invalid(vec![FieldError::no_name("title", error)])),
    }
}

/// A person's own space in a root of which everybody has one; none where that has no good name.
fn personal(root: &Root, user: &User, now: Timestamp) -> Option<Space> {
    let name = format!("{}-{}", root.name, user.username).parse().ok()?;
    let owner = SpaceOwner::Person { id: user.id, name: user.username.clone() };
    Some(wanted(root, name, owner, now))
}

/// When a space expires that is made in `root` by itself.
fn end_of_life(root: &Root, made: Timestamp) -> Option<Timestamp> {
    let days = i32::try_from(root.lifetime_days?).unwrap_or(i32::MAX);
    made.checked_add(DAY * days).ok()
}

fn wanted(root: &Root, name: SpaceName, owner: SpaceOwner, now: Timestamp) -> Space {
    let mut space = Space {
        id: SpaceId::generate(),
        serial: 0,
        name,
        kind: root.kind,
        title: root.title.clone(),
        root: root.name.clone(),
        owner,
        writable: root.is_writable(),
        hint: StripeHint::Usual,
        hint_state: HintState::Unset,
        hint_said: None,
        desired: SpaceDesired::Present,
        state: SpaceState::Wanted,
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
        created_at: now,
        version: 1,
    };
    hinting::wish(&mut space, root.hint);
    space
}

#[cfg(test)]
mod tests;
