//! Old files in spaces: listed, told of, and removed when they were listed for long and are still what they were.
//!
//! Here is what is asked and told of them; what looks is in [`looking`]. Every look is one step for each space, by [`decide`], and none in any
//! doubt: what could make it a mistake is what [`policing`] looks at before it ends a space. What is done is done by the owner's own process
//! ([`work`]), as an operation of theirs, because it may take hours; a list is kept in a file ([`list`]) and counts once that is whole. Whatever
//! is killed is begun again by the next look, and what had been removed by then is not there any more. A look that takes too long leaves the
//! other spaces to the next one.
//!
//! In a space of a group each member's files are looked at apart, by that member's process: each has a row, a list and days of their own, and
//! is told of what is theirs. Whoever is no member any more is asked for nothing: what is left of theirs is counted for admins, and stays.
//!
//! [`policing`]: super::spaces::policing

mod decide;
mod list;
mod looking;
mod standing;
#[cfg(test)]
mod tests;
mod work;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_core::audit::NewAuditEvent;
use eirene_core::old_files::{OldFilesDoubt, OldFilesOf, OldFilesRule, OldFilesState};
use eirene_core::space::SpaceDesired;
use eirene_core::{
    Clock, GroupName, OperationId, Space, SpaceName, SpaceOwner, SpaceState, SpaceTitle, User, UserId, UserState,
    Username,
};
use eirene_database::{Db, DbError};
use eirene_words::{say, say_count, say_with};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::decide::{goes_at, rule_of};
pub use self::standing::Standing;
use self::work::Task;
use super::actor::{Actor, Via};
use super::audit::Audit;
use super::events::{EventKind, Events};
use super::files::Files;
use super::operations::Operations;
use super::spaces::policing::{Members, People, Policing};
use super::spaces::{SpaceSeen, Spaces};
use crate::cause;
use crate::config::{Config, OLD_DAYS};
use crate::error::{AppError, FieldError};
use crate::shared::Shared;

/// How often a row is changed anew where somebody else was faster.
const TRIES: u32 = 5;
/// Spaces, or members' shares of one, in which something is done at once: each is a process that walks through everything, and a storage has other
/// things to do.
const MOST_AT_ONCE: usize = 8;
/// How long a turn is waited for. Then what made this certain was seen too long ago: the next look begins it anew.
const LONGEST_WAIT: Duration = Duration::from_mins(50);
/// How old what the user database said may be where something is being removed, and where a look goes on with what the last one left.
const PEOPLE_FRESH: Duration = Duration::from_mins(10);
/// Seconds after which it is worth asking a user database again that did not answer.
const RETRY_AFTER_S: u64 = 10;
/// Who the audit log says it was.
const WHO: &str = "old_files";

/// What [`OldFiles`] is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Audit log.
    pub audit: Audit,
    /// Events for open pages.
    pub events: Events,
    /// Who may know of which space.
    pub spaces: Spaces,
    /// Whether a space is beyond doubt what it was.
    pub policing: Policing,
    /// People's processes.
    pub files: Files,
    /// What takes long.
    pub operations: Operations,
}

/// Old files. Cheap to clone.
#[derive(Clone)]
pub struct OldFiles {
    inner: Shared<Inner>,
}

struct Inner {
    parts: Parts,
    config: Arc<Config>,
    directory: PathBuf,
    /// Of which files something is under way, and as which operation; none for the moment in which it is begun.
    running: Mutex<HashMap<OldFilesOf, Option<OperationId>>>,
    /// Held by what is done by itself.
    turns: Arc<Semaphore>,
    /// Held by it for each person, too: who is in many groups has one thing at a time done, and keeps their own operations.
    turns_of_one: Mutex<HashMap<UserId, Arc<Semaphore>>>,
    /// What the user database said last, and when: to ask it for everybody takes its time.
    people: AsyncMutex<Option<(Instant, Arc<People>)>>,
    /// The same of who is in which group.
    members: AsyncMutex<Option<(Instant, Arc<Members>)>>,
    /// The space behind which the next look goes on; none where it begins with the first.
    after: Mutex<Option<SpaceName>>,
}

/// That something is under way, for as long as anything of it is left.
struct Line {
    inner: Shared<Inner>,
    of: OldFilesOf,
}

/// What has its turn, until it is done.
struct Turn {
    _of_one: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.inner.running().remove(&self.of);
    }
}

/// What is known of old files in a space, for whoever may know.
#[derive(Debug, Clone, PartialEq)]
pub struct OldFilesReport {
    /// The rule for this space; none where nothing becomes of old files.
    pub rule: Option<OldFilesRule>,
    /// What is known: in a space of a group, of the files of whoever asks. Examples are there for the owner alone, and what belongs to nobody who
    /// is a member for admins alone.
    pub state: OldFilesState,
    /// Whether the space is a group's.
    pub is_shared: bool,
    /// Whether it is the files of whoever asks that `state` is about.
    pub is_own: bool,
    /// In a space of a group, each member's files; for admins alone.
    pub members: Vec<OldFilesMember>,
    /// When what is listed goes at the earliest.
    pub goes_at: Option<Timestamp>,
    /// Whether it is being looked at, or something is being removed.
    pub running: bool,
    /// The operation that does so, for the owner alone.
    pub operation: Option<OperationId>,
    /// Whether whoever asks may have it looked at.
    pub may_look: bool,
}

/// Old files of whoever asks that are to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromisedRemoval {
    /// Where they are.
    pub space: SpaceName,
    /// The same as people say it.
    pub title: SpaceTitle,
    /// How many.
    pub files: u64,
    /// When they go at the earliest.
    pub goes_at: Timestamp,
}

/// What is known of a member's old files in a space of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct OldFilesMember {
    /// Who.
    pub name: Username,
    /// What is known, without a name of a file.
    pub state: OldFilesState,
    /// When what is listed goes at the earliest.
    pub goes_at: Option<Timestamp>,
    /// Whether it is being looked at, or something is being removed.
    pub running: bool,
}

/// What an admin may say of one space; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OldFilesChange {
    /// Whether nothing of it is to be listed or removed.
    pub exempt: Option<bool>,
    /// Days after which a file is old.
    pub days: Option<OldFilesDays>,
}

/// After how many days a file is old in a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldFilesDays {
    /// As its root says.
    OfRoot,
    /// So many.
    Own(u32),
}

impl OldFilesDays {
    fn own(self) -> Option<u32> {
        match self {
            Self::OfRoot => None,
            Self::Own(days) => Some(days),
        }
    }
}

impl OldFiles {
    /// Old files in the roots of `config`; lists are kept below `directory`, which is made when it is needed.
    pub fn new(parts: Parts, config: &Arc<Config>, directory: PathBuf) -> Self {
        let (running, turns) = (Mutex::default(), Arc::new(Semaphore::new(MOST_AT_ONCE)));
        let (config, turns_of_one, after) = (Arc::clone(config), Mutex::default(), Mutex::default());
        let (people, members) = (AsyncMutex::default(), AsyncMutex::default());
        let inner = Inner { parts, config, directory, running, turns, turns_of_one, people, members, after };
        Self { inner: Shared::new(inner) }
    }

    /// What is known of old files in a space.
    ///
    /// # Errors
    /// That the person may not know of the space.
    pub async fn report(&self, actor: &Actor, name: &SpaceName) -> Result<OldFilesReport, AppError> {
        let space = self.inner.parts.spaces.get(actor, name).await?.space;
        self.report_of(actor, &space).await
    }

    /// What of theirs is to be removed in these spaces: for where nobody misses it, since who was not there when it was told hears of it no more.
    /// It is said also while nothing is removed because something is in doubt: that may end at any time.
    ///
    /// # Errors
    /// That the database does not answer.
    pub async fn promised(&self, actor: &Actor, spaces: &[SpaceSeen]) -> Result<Vec<PromisedRemoval>, AppError> {
        let mut promised = Vec::new();
        for space in spaces.iter().map(|seen| &seen.space).filter(|space| self.inner.rule(space).is_some()) {
            let report = self.report_of(actor, space).await?;
            if let Some(goes_at) = report.goes_at.filter(|_| report.is_own) {
                promised.push(PromisedRemoval {
                    space: space.name.clone(),
                    title: space.title.clone(),
                    files: report.state.list.map_or(0, |list| list.found.files),
                    goes_at,
                });
            }
        }
        Ok(promised)
    }

    async fn report_of(&self, actor: &Actor, space: &Space) -> Result<OldFilesReport, AppError> {
        let inner = &self.inner;
        let own = self.own_of(actor, space).await;
        let of = own.unwrap_or_else(|| space.id.into());
        let mut state = inner.parts.db.old_files(of).await?;
        let (is_own, is_admin) = (own.is_some(), actor.acts_as_admin());
        let is_shared = matches!(space.owner, SpaceOwner::Group(_));
        if !is_own {
            // Admins see how much there is, and no name of anybody's file.
            forget_names(&mut state);
        }
        let of_root = inner.rule(space);
        let rule = of_root.map(|of_root| rule_of(&state, of_root));
        let mut members = vec![];
        if let Some(rule) = rule.filter(|_| is_shared && is_admin) {
            if of.member.is_some() {
                state.strangers = inner.parts.db.old_files(space.id).await?.strangers;
            }
            for (name, mut state) in inner.parts.db.old_files_of_members(space.id).await? {
                forget_names(&mut state);
                let (goes_at, running) = (goes_at(&state, rule), inner.running().contains_key(&state.of));
                members.push(OldFilesMember { name, state, goes_at, running });
            }
        }
        if !is_admin {
            state.strangers.clear();
        }
        let running = inner.running().get(&of).copied();
        let goes_at = rule.and_then(|rule| goes_at(&state, rule));
        let may_look = rule.is_some() && (is_own || is_admin);
        let operation = running.flatten().filter(|_| is_own);
        let running = running.is_some() || !is_own && members.iter().any(|member| member.running);
        Ok(OldFilesReport { rule, state, is_shared, is_own, members, goes_at, running, operation, may_look })
    }

    /// The files of a space that are those of whoever asks; none where it is not theirs, nor their group's.
    async fn own_of(&self, actor: &Actor, space: &Space) -> Option<OldFilesOf> {
        match &space.owner {
            SpaceOwner::Person { id, .. } => (*id == actor.user.id).then(|| space.id.into()),
            SpaceOwner::Group(_) => {
                let is_member = actor.user.uid.is_some() && self.inner.parts.spaces.may_open(actor, space).await;
                is_member.then_some(OldFilesOf { space: space.id, member: Some(actor.user.id) })
            }
            SpaceOwner::Everybody => None,
        }
    }

    /// Looks now what is old, as the owner's process sees it; in a space of a group as that of the member who asks, and for an admin who is none
    /// as every member's, one after the other. Nothing is done to anything, and no list is changed.
    ///
    /// # Errors
    /// That the space is not the person's and they are no admin, that nothing becomes of old files there, or that the owner's process cannot be asked.
    pub async fn look(&self, actor: &Actor, name: &SpaceName) -> Result<OldFilesReport, AppError> {
        let space = self.inner.parts.spaces.get(actor, name).await?.space;
        let own = self.own_of(actor, &space).await;
        if own.is_none() {
            actor.require_admin()?;
        }
        let no_rule = || AppError::Conflict { code: "no_old_files", text: say("problem.no_old_files") };
        let of_root = self.inner.rule(&space).ok_or_else(no_rule)?;
        let rule = rule_of(&self.inner.parts.db.old_files(space.id).await?, of_root);
        let has_begun = match (&space.owner, own) {
            (SpaceOwner::Group(group), None) => self.look_for_all(&space, group, rule).await?,
            (SpaceOwner::Group(_), Some(of)) => self.look_for(of, actor.user.id, rule).await?,
            (SpaceOwner::Person { id, .. }, _) => self.look_for(space.id.into(), *id, rule).await?,
            (SpaceOwner::Everybody, _) => return Err(no_rule()),
        };
        if has_begun {
            let event = actor.audit("space.old_files_look", space.name.as_str(), "ok", json!({}));
            self.inner.parts.audit.record(event).await;
        }
        self.report_of(actor, &space).await
    }

    async fn look_for(&self, of: OldFilesOf, person: UserId, rule: OldFilesRule) -> Result<bool, AppError> {
        let person = self.inner.parts.db.user(person).await?.filter(|user| user.state == UserState::Active);
        let person = person.ok_or_else(|| AppError::Conflict { code: "no_owner", text: say("problem.no_owner") })?;
        let Some(line) = self.claim(of) else { return Ok(false) };
        work::begin(line, as_owner(person), rule, Task::Look, None).await?;
        Ok(true)
    }

    async fn look_for_all(&self, space: &Space, group: &GroupName, rule: OldFilesRule) -> Result<bool, AppError> {
        let people = self.inner.people(PEOPLE_FRESH).await?;
        let away = || AppError::Unavailable { what: say("away.people"), retry_after_s: RETRY_AFTER_S };
        let members = self.inner.parts.policing.members(&people).await.ok_or_else(away)?;
        let mut has_begun = false;
        for member in members.of(group).filter_map(|member| people.known(member)) {
            let of = OldFilesOf { space: space.id, member: Some(member.id) };
            if member.state == UserState::Active
                && let Some(line) = self.claim(of)
            {
                cause::spawn(work::begin_in_turn(line, as_owner(member.clone()), rule, Task::Look));
                has_begun = true;
            }
        }
        Ok(has_begun)
    }

    /// Changes what becomes of old files in one space; for admins.
    ///
    /// # Errors
    /// That there is no such space, nothing becomes of old files there, or a number is none of days.
    pub async fn change(
        &self,
        actor: &Actor,
        name: &SpaceName,
        change: OldFilesChange,
    ) -> Result<OldFilesReport, AppError> {
        actor.require_admin()?;
        let space = self.inner.parts.spaces.get(actor, name).await?.space;
        if self.inner.rule(&space).is_none() {
            return Err(AppError::Conflict { code: "no_old_files", text: say("problem.no_old_files") });
        }
        if change.days.and_then(OldFilesDays::own).is_some_and(|days| !OLD_DAYS.contains(&days)) {
            let (least, most) = (OLD_DAYS.start().to_string(), OLD_DAYS.end().to_string());
            let text = say_with("wrong.between", &[("least", &least), ("most", &most)]);
            return Err(AppError::Invalid(vec![FieldError::new("days", text)]));
        }
        let db = &self.inner.parts.db;
        // Exempting is two writes: what the second of them left is gone before anybody may go on with it.
        if change.exempt == Some(false) && db.old_files(space.id).await?.exempt {
            db.clear_old_files(space.id).await?;
        }
        let recorded = |state: &OldFilesState| {
            let details = json!({"exempt": state.exempt, "days": state.days});
            Some(actor.audit("space.old_files_rule", space.name.as_str(), "ok", details))
        };
        let state = self
            .inner
            .edit_and_record(space.id.into(), recorded, |state| {
                state.exempt = change.exempt.unwrap_or(state.exempt);
                state.days = change.days.map_or(state.days, OldFilesDays::own);
                if state.exempt {
                    state.list = None;
                }
            })
            .await?;
        if state.exempt {
            db.clear_old_files(space.id).await?;
        }
        self.report_of(actor, &space).await
    }

    /// Notes that something is under way; none where it is already.
    fn claim(&self, of: OldFilesOf) -> Option<Line> {
        let mut running = self.inner.running();
        if running.contains_key(&of) {
            return None;
        }
        running.insert(of, None);
        Some(Line { inner: self.inner.clone(), of })
    }
}

impl Inner {
    fn after(&self) -> MutexGuard<'_, Option<SpaceName>> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<OldFilesOf, Option<OperationId>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, of: OldFilesOf) -> PathBuf {
        let OldFilesOf { space, member } = of;
        self.directory.join(member.map_or_else(|| format!("{space}.list"), |member| format!("{space}.{member}.list")))
    }

    /// A turn for something that is done by itself as a person; none where that takes too long.
    async fn turn(&self, person: UserId) -> Option<Turn> {
        let of_one = {
            let mut turns = self.turns_of_one.lock().unwrap_or_else(PoisonError::into_inner);
            // Whom nobody waits for, and for whom nothing is done, is not kept.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(person).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let turn = async {
            let of_one = of_one.acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.turns).acquire_owned().await.ok()?;
            Some(Turn { _of_one: of_one, _of_all: of_all })
        };
        timeout(LONGEST_WAIT, turn).await.ok().flatten()
    }

    /// What its root says of old files in a space; none where nothing becomes of them.
    fn rule(&self, space: &Space) -> Option<OldFilesRule> {
        let is_there = space.state == SpaceState::Present && space.desired == SpaceDesired::Present;
        let root = self.config.spaces.roots.iter().find(|root| root.name == space.root)?;
        let is_somebodys = match space.owner {
            SpaceOwner::Person { .. } => true,
            SpaceOwner::Group(_) => space.writable,
            SpaceOwner::Everybody => false,
        };
        root.old_files().filter(|_| is_there && is_somebodys)
    }

    /// Changes what is known, again where somebody else was faster.
    async fn edit(&self, of: OldFilesOf, edit: impl Fn(&mut OldFilesState)) -> Result<OldFilesState, AppError> {
        self.edit_and_record(of, |_| None, edit).await
    }

    /// As [`Inner::edit`], with what the audit log is to say of the changed state. Nothing is recorded where nothing changes.
    async fn edit_and_record(
        &self,
        of: OldFilesOf,
        recorded: impl Fn(&OldFilesState) -> Option<NewAuditEvent>,
        edit: impl Fn(&mut OldFilesState),
    ) -> Result<OldFilesState, AppError> {
        for _ in 0..TRIES {
            let mut state = self.parts.db.old_files(of).await?;
            let before = state.clone();
            edit(&mut state);
            if state == before {
                return Ok(state);
            }
            let audit: Vec<_> = recorded(&state).into_iter().map(|event| self.parts.audit.entry(event)).collect();
            if self.parts.db.put_old_files(&state, &audit).await? {
                state.version += 1;
                return Ok(state);
            }
        }
        Err(DbError::Conflict { what: "old files" }.into())
    }

    async fn doubt(&self, of: OldFilesOf, doubt: OldFilesDoubt) -> Result<(), AppError> {
        self.edit(of, |state| state.doubt = Some(doubt)).await.map(drop)
    }

    /// Tells whose files they are what was listed; that counts once it is kept.
    async fn tell(&self, space: &Space, of: OldFilesOf) -> Result<(), AppError> {
        let state = self.parts.db.old_files(of).await?;
        let Some(list) = &state.list else { return Ok(()) };
        let days = list.warn_days.to_string();
        let filled = [("name", space.title.as_str()), ("days", days.as_str())];
        let key = if of.member.is_some() { "space.old_files_of_yours" } else { "space.old_files" };
        let text = say_count(key, list.found.files, &filled);
        // Without a name of a file: admins read notices too.
        let data = json!({
            "code": "old_files", "text": text.as_str(), "space": space.name, "files": list.found.files,
            "bytes": list.found.bytes, "days": list.warn_days,
        });
        let whom = of.member.or(space.owner_id());
        if !self.parts.events.publish(EventKind::Notice, None, whom, data).await {
            return self.doubt(of, OldFilesDoubt::NotTold).await;
        }
        let (at, now) = (list.at, self.parts.clock.now());
        let told = |state: &mut OldFilesState| {
            if let Some(list) = state.list.as_mut().filter(|list| list.at == at) {
                (list.told_at, list.waited_s) = (Some(now), 0);
            }
        };
        self.edit(of, told).await.map(drop)
    }
}

fn forget_names(state: &mut OldFilesState) {
    let found = state.list.iter_mut().map(|list| &mut list.found);
    found.chain(state.look.iter_mut().map(|look| &mut look.found)).for_each(|found| found.examples.clear());
}

/// What is done to a space's files is done as its owner.
fn as_owner(owner: User) -> Actor {
    Actor { user: owner, via: Via::Cli, address: None, request_id: None }
}
