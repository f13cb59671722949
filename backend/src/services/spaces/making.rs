//! Making spaces, taking them away and bringing them back. A wish is a row and is written first; the launcher carries it out, one step a time,
//! from the rows alone, and whatever was begun and not written down is found done the next time.
//!
//! Nothing here touches a file system: the launcher does, in the roots that its own configuration names, by names and never by paths.

use std::sync::Arc;

use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest, SpaceFor};
use eirene_core::space::{HintState, LimitState, MadeAt, SpaceDesired, StripeHint};
use eirene_core::storage::{Limit, Place};
use eirene_core::{
    Clock, Reason, RootName, Scope, Sentence, Space, SpaceId, SpaceKind, SpaceName, SpaceOwner, SpaceState, SpaceTitle,
    User, UserState,
};
use eirene_database::{Db, DbError};
use eirene_words::{say, say_with};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::groups::GroupSource;
use super::{NOT_SHARED, lasting, people};
use crate::config::{Config, Per, Root};
use crate::error::{AppError, FieldError};
use crate::services::actor::Actor;
use crate::services::audit::{Audit, by_system};
use crate::services::events::{EventKind, Events};
use crate::services::nudge::Nudges;
use crate::services::storage::Storage;
use crate::services::storage::stripe::Stripes;

mod hinting;
mod limiting;
mod owner_limits;
mod waits;
mod wishes;

pub use limiting::NewLimits;
pub(crate) use owner_limits::OwnerWaits;
pub(crate) use waits::Waits;
pub use wishes::{ChangeSpace, End, NewSpace, Title};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Somebody else may change the row in between, so often.
const TRIES: u32 = 5;
/// Seconds after which it is worth asking a user database again that did not answer.
const RETRY_AFTER_S: u64 = 10;

/// Makes spaces. Cheap to clone.
#[derive(Clone)]
pub struct Making {
    inner: Arc<Parts>,
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

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// It was done.
    Done,
    /// A part of it was: the same goes on at once.
    More,
    /// It was refused, or somebody did not answer: later.
    Later,
}

impl Making {
    /// Makes spaces in the roots of `config`.
    pub fn new(parts: Parts, config: &Arc<Config>) -> Self {
        Self { inner: Arc::new(parts), config: Arc::clone(config) }
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
        let space = self.inner.db.insert_space(space).await?;
        self.inner.audit.record(actor.audit("space.create", space.name.as_str(), "ok", details(&space))).await;
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
        let space = self.edit(actor, name, edit).await?;
        if space.limit_state == LimitState::Wanted || space.hint_state == HintState::Wanted {
            self.inner.nudges.spaces().notify_one();
        }
        self.inner.audit.record(actor.audit("space.change", space.name.as_str(), "ok", details(&space))).await;
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
        let space = self.edit(actor, name, retire).await?;
        self.inner.audit.record(actor.audit("space.retire", space.name.as_str(), "ok", details(&space))).await;
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
        let space = self.edit(actor, name, restore).await?;
        self.inner.audit.record(actor.audit("space.restore", space.name.as_str(), "ok", details(&space))).await;
        self.inner.nudges.spaces().notify_one();
        Ok(space)
    }

    /// Changes a row, again where somebody else was faster.
    async fn edit(
        &self,
        actor: &Actor,
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
            if self.inner.db.update_space(&space).await? {
                space.version += 1;
                return Ok(space);
            }
        }
        Err(DbError::Conflict { what: "space" }.into())
    }

    /// Adds rows for people who have none in a root of which everybody has one; at most so many of each root.
    pub(crate) async fn add_personal(&self, most: u32) -> Result<(), AppError> {
        for root in self.config.spaces.roots.iter().filter(|root| root.per == Per::Person) {
            for person in self.inner.db.people_without_space_in(&root.name, most).await? {
                let Some(user) = self.inner.db.user(person).await? else { continue };
                let Some(mut space) = personal(root, &user, self.inner.clock.now()) else { continue };
                NewLimits::of_root(root).wish(&mut space);
                space.expires_at = end_of_life(root, space.created_at);
                match self.inner.db.insert_space(space).await {
                    // Somebody was faster, or another space is called so: then this person has none, and that is seen in the list.
                    Ok(_) | Err(DbError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// The spaces that are not as they are wanted.
    pub(crate) async fn to_do(&self) -> Result<Vec<Space>, AppError> {
        Ok(self.inner.db.spaces_to_change().await?)
    }

    /// The version of a space's row now.
    pub(crate) async fn version(&self, space: SpaceId) -> Result<i64, AppError> {
        Ok(self.inner.db.space(space).await?.map_or(0, |space| space.version))
    }

    /// Takes a space one step towards what is wanted of it.
    pub(crate) async fn step(&self, space: &Space) -> Result<Stepped, AppError> {
        let stepped = match (space.state, space.desired) {
            (SpaceState::Gone, _) | (SpaceState::Retired, SpaceDesired::Retired) => return Ok(Stepped::Done),
            (SpaceState::Present, SpaceDesired::Present) => self.adjust(space).await,
            // Also what is not wanted any more: it may have been made without that being written down.
            (SpaceState::Wanted, _) => self.make(space).await,
            (SpaceState::Present, SpaceDesired::Retired | SpaceDesired::Gone) => self.take_away(space).await,
            (SpaceState::Retired, SpaceDesired::Present) => self.bring_back(space).await,
            (SpaceState::Retired, SpaceDesired::Gone) => self.remove(space).await,
        };
        match stepped {
            Err(Trouble::Failed(error)) => Err(error),
            Err(Trouble::Refused { code, text }) => {
                let never_made =
                    matches!(code.as_str(), "conflict" | "unknown_person" | "unknown_group" | "bad_request");
                if space.state == SpaceState::Wanted && space.desired != SpaceDesired::Present && never_made {
                    // There is nothing of ours there, and nothing is wanted there.
                    self.write(Space { state: SpaceState::Gone, ..space.clone() }).await?;
                    return Ok(Stepped::Done);
                }
                tracing::info!(space = %space.name, code, text, "A space is not as it is wanted");
                let reason = Reason::new(reason_code(space), say_with(reason_key(space), &[("said", &text)]));
                if space.reason.as_ref() != Some(&reason) {
                    self.write(Space { reason: Some(reason), ..space.clone() }).await?;
                }
                Ok(Stepped::Later)
            }
            Err(Trouble::Away(error)) => {
                tracing::info!(space = %space.name, error, "A space is not as it is wanted yet");
                Ok(Stepped::Later)
            }
            Ok(stepped) => Ok(stepped),
        }
    }

    async fn make(&self, space: &Space) -> Result<Stepped, Trouble> {
        let of = match &space.owner {
            SpaceOwner::Person { name, .. } => SpaceFor::Person(name.clone()),
            SpaceOwner::Group(group) => SpaceFor::Group { group: group.clone(), writable: space.writable },
            SpaceOwner::Everybody => SpaceFor::Everybody,
        };
        let request = LauncherRequest::MakeSpace { root: space.root.clone(), name: space.name.clone(), of };
        let LauncherAnswer::Space { inode, unshared, .. } = self.ask(request).await? else {
            return Err(Trouble::odd());
        };
        // Of the root, because that is also there while the space is not.
        let place = Place::Root(space.root.clone());
        let seen = self.inner.storage.port().file_system(&place).await;
        let identity = seen.map_err(|error| Trouble::Away(error.to_string()))?.identity;
        // Before anybody can fill it, because it holds for what is made afterwards.
        let (hint_state, hint_said) = self.spread(space).await?;
        let made_at = Some(MadeAt { inode, identity });
        let state = SpaceState::Present;
        let reason = unshared.then(|| Reason::new(NOT_SHARED, say("space.not_shared")));
        let made = Space { state, made_at, reason, hint_state, hint_said, ..space.clone() };
        if made.limit_state == LimitState::Unset {
            self.prepare_for_limits(&made).await;
        }
        self.write(made.clone()).await?;
        self.inner.audit.record(by_system("space_make", "space.made", space.name.as_str(), "ok", details(space))).await;
        if unshared {
            tracing::warn!(space = %space.name, root = %space.root, "A group's space has no default access list: its file system keeps none");
            let event = by_system("space_make", "space.not_shared", space.name.as_str(), "refused", details(space));
            self.inner.audit.record(event).await;
        }
        self.note_hint(space, &made).await;
        let is_done = space.desired == SpaceDesired::Present && space.limit_state != LimitState::Wanted;
        Ok(if is_done { Stepped::Done } else { Stepped::More })
    }

    /// Has a space that is there limited and spread as it is wanted. What somebody would not do is written down with the reason, and tried again later.
    async fn adjust(&self, space: &Space) -> Result<Stepped, Trouble> {
        let (limit_state, limit_said) = self.limit(space).await?;
        let (mut now, mut away) = (Space { limit_state, limit_said, ..space.clone() }, None);
        match self.spread(space).await {
            Ok(hinted) => (now.hint_state, now.hint_said) = hinted,
            // What became of the limit is written down all the same.
            Err(Trouble::Away(error)) => away = Some(error),
            Err(trouble) => return Err(trouble),
        }
        if now != *space {
            self.write(now.clone()).await?;
            self.note_limit(space, &now).await;
            self.note_hint(space, &now).await;
        }
        if let Some(error) = away {
            return Err(Trouble::Away(error));
        }
        Ok(if limiting::is_due(&now) || hinting::is_due(&now) { Stepped::Later } else { Stepped::Done })
    }

    async fn take_away(&self, space: &Space) -> Result<Stepped, Trouble> {
        let inode = inode(space)?;
        let (root, name) = (space.root.clone(), space.name.clone());
        self.ask(LauncherRequest::RetireSpace { root, name, inode, id: space.id }).await?;
        let now = self.inner.clock.now();
        let days = self.root(&space.root).map_or(i32::MAX, |root| i32::try_from(root.grace_days).unwrap_or(i32::MAX));
        let remove_after = now.checked_add(DAY * days).unwrap_or(Timestamp::MAX);
        let retired = Space {
            state: SpaceState::Retired,
            retired_at: Some(now),
            remove_after: Some(remove_after),
            kept_s: 0,
            watched_at: Some(now),
            undetermined: false,
            reason: lasting(space),
            ..space.clone()
        };
        self.write(retired).await?;
        self.tell(space, "space_retired", "space.retired").await;
        self.inner
            .audit
            .record(by_system("space_make", "space.retired", space.name.as_str(), "ok", details(space)))
            .await;
        Ok(if space.desired == SpaceDesired::Retired { Stepped::Done } else { Stepped::More })
    }

    async fn bring_back(&self, space: &Space) -> Result<Stepped, Trouble> {
        let inode = inode(space)?;
        let (root, name) = (space.root.clone(), space.name.clone());
        self.ask(LauncherRequest::RestoreSpace { root, name, inode, id: space.id }).await?;
        let mut back = Space {
            state: SpaceState::Present,
            retired_at: None,
            remove_after: None,
            kept_s: 0,
            watched_at: Some(self.inner.clock.now()),
            reason: lasting(space),
            ..space.clone()
        };
        if back.limit_state != LimitState::Unset {
            // What its owner may use was judged without it meanwhile.
            (back.limit_state, back.limit_said) = (LimitState::Wanted, None);
        }
        let is_done = back.limit_state == LimitState::Unset;
        self.write(back).await?;
        self.tell(space, "space_restored", "space.restored").await;
        self.inner
            .audit
            .record(by_system("space_make", "space.restored", space.name.as_str(), "ok", details(space)))
            .await;
        Ok(if is_done { Stepped::Done } else { Stepped::More })
    }

    async fn remove(&self, space: &Space) -> Result<Stepped, Trouble> {
        let (root, inode, id, serial) = (space.root.clone(), inode(space)?, space.id, space.serial);
        let request = LauncherRequest::RemoveRetired { root, inode, id, serial };
        let LauncherAnswer::Removed { done } = self.ask(request).await? else { return Err(Trouble::odd()) };
        if !done {
            return Ok(Stepped::More);
        }
        self.write(Space { state: SpaceState::Gone, reason: None, ..space.clone() }).await?;
        self.inner
            .audit
            .record(by_system("space_make", "space.removed", space.name.as_str(), "ok", details(space)))
            .await;
        Ok(Stepped::Done)
    }

    async fn ask(&self, request: LauncherRequest) -> Result<LauncherAnswer, Trouble> {
        self.inner.launcher.call(request).await.map_err(|error| match error {
            LauncherError::Refused { code, text } if code != "away" => Trouble::Refused { code, text },
            error => Trouble::Away(error.to_string()),
        })
    }

    /// Writes what was done. Where somebody changed the row meanwhile the next run finds it done, and goes on from what is wanted then.
    async fn write(&self, space: Space) -> Result<(), AppError> {
        if !self.inner.db.update_space(&space).await? {
            tracing::info!(space = %space.name, "A space was changed by somebody else meanwhile; the next run goes on");
        }
        Ok(())
    }

    /// Tells the space's people, as far as it can be known now who they are: what became of it is seen in its state, too.
    async fn tell(&self, space: &Space, code: &str, key: &str) {
        let text = say_with(key, &[("name", space.title.as_str())]);
        let data = json!({"code": code, "text": text.as_str(), "space": space.name});
        let whom = match &space.owner {
            SpaceOwner::Person { id, .. } => vec![Some(*id)],
            SpaceOwner::Everybody => vec![None],
            SpaceOwner::Group(group) => match people::of_the_cluster(&self.inner.db).await {
                Ok(all) => {
                    let active = all.iter().filter(|user| user.state == UserState::Active);
                    let (members, _) = people::in_group(&*self.inner.groups, active, group).await;
                    members.into_iter().map(Some).collect()
                }
                Err(error) => {
                    tracing::warn!(space = %space.name, %error, "A space's people were not told what became of it");
                    return;
                }
            },
        };
        for person in whom {
            self.inner.events.publish(EventKind::Notice, None, person, data.clone()).await;
        }
    }
}

/// Admins, by a means that also shows them what comes of it.
fn may(actor: &Actor) -> Result<(), AppError> {
    actor.require_admin()?;
    actor.require(Scope::FilesRead)
}

/// Why a step was not taken.
enum Trouble {
    /// The launcher will not, until somebody changes something.
    Refused { code: String, text: String },
    /// Somebody did not answer.
    Away(String),
    /// The database, or a fault of ours.
    Failed(AppError),
}

impl Trouble {
    fn odd() -> Self {
        Self::Away("the launcher gave another answer".into())
    }
}

impl From<AppError> for Trouble {
    fn from(error: AppError) -> Self {
        Self::Failed(error)
    }
}

/// Inode of the directory that was made.
fn inode(space: &Space) -> Result<u64, Trouble> {
    let made = space.made_at.as_ref().map(|made| made.inode);
    made.ok_or_else(|| Trouble::Refused { code: "missing".into(), text: "it was never noted where it was made".into() })
}

fn reason_code(space: &Space) -> &'static str {
    match space.state {
        SpaceState::Wanted => "not_made",
        SpaceState::Present | SpaceState::Retired | SpaceState::Gone => "not_moved",
    }
}

fn reason_key(space: &Space) -> &'static str {
    match space.state {
        SpaceState::Wanted => "space.not_made",
        SpaceState::Present | SpaceState::Retired | SpaceState::Gone => "space.not_moved",
    }
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
