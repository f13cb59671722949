//! Old files in people's spaces: listed, told of, and removed when they were listed for long and are still what they were.
//!
//! Every look is one step for each space, by [`decide`], and none in any doubt: what could make it a mistake is what [`policing`] looks at before
//! it ends a space. What is done is done by the owner's own process ([`work`]), as an operation of theirs, because it may take hours; a list
//! is kept in a file ([`list`]) and counts once that is whole. Whatever is killed is begun again by the next look, and what had been removed by
//! then is not there any more.
//!
//! [`policing`]: super::spaces::policing

mod decide;
mod list;
mod standing;
#[cfg(test)]
mod tests;
mod work;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_core::old_files::{OldFilesDoubt, OldFilesRule, OldFilesState};
use eirene_core::space::SpaceDesired;
use eirene_core::storage::Identity;
use eirene_core::{Clock, OperationId, Space, SpaceId, SpaceName, SpaceState, User, UserState};
use eirene_database::{Db, DbError};
use eirene_words::{say, say_count, say_with};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use self::decide::{Due, due, goes_at, rule_of, watch};
pub use self::standing::Standing;
use self::work::Task;
use super::actor::{Actor, Via};
use super::audit::Audit;
use super::events::{EventKind, Events};
use super::files::Files;
use super::operations::Operations;
use super::spaces::Spaces;
use super::spaces::policing::{INTERVAL, People, Policing};
use super::spaces::policy::Doubt;
use crate::config::{Config, OLD_DAYS};
use crate::error::{AppError, FieldError};

/// Rows that are read at once.
const PAGE: u32 = 200;
/// How often a row is changed anew where somebody else was faster.
const TRIES: u32 = 5;
/// Spaces in which something is done at once: each is a process that walks through everything, and a storage has other things to do.
const MOST_AT_ONCE: usize = 8;
/// How old what the user database said may be where something is being removed.
const PEOPLE_FRESH: Duration = Duration::from_mins(10);
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
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    config: Arc<Config>,
    directory: PathBuf,
    /// In which spaces something is under way, and as which operation; none for the moment in which it is begun.
    running: Mutex<HashMap<SpaceId, Option<OperationId>>>,
    /// Held by what is done by itself.
    turns: Arc<Semaphore>,
    /// What the user database said last, and when: to ask it for everybody takes its time.
    people: AsyncMutex<Option<(Instant, Arc<People>)>>,
}

/// That something is under way in a space, for as long as anything of it is left.
struct Line {
    inner: Arc<Inner>,
    space: SpaceId,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.inner.running().remove(&self.space);
    }
}

/// What is known of old files in a space, for whoever may know.
#[derive(Debug, Clone, PartialEq)]
pub struct OldFilesReport {
    /// The rule for this space; none where nothing becomes of old files.
    pub rule: Option<OldFilesRule>,
    /// What is known. Examples are there for the owner alone.
    pub state: OldFilesState,
    /// When what is listed goes at the earliest.
    pub goes_at: Option<Timestamp>,
    /// Whether it is being looked at, or something is being removed.
    pub running: bool,
    /// The operation that does so, for the owner alone.
    pub operation: Option<OperationId>,
    /// Whether whoever asks may have it looked at.
    pub may_look: bool,
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
        let config = Arc::clone(config);
        let inner = Inner { parts, config, directory, running, turns, people: AsyncMutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// What is known of old files in a space.
    ///
    /// # Errors
    /// That the person may not know of the space.
    pub async fn report(&self, actor: &Actor, name: &SpaceName) -> Result<OldFilesReport, AppError> {
        let space = self.inner.parts.spaces.get(actor, name).await?.space;
        self.report_of(actor, &space).await
    }

    async fn report_of(&self, actor: &Actor, space: &Space) -> Result<OldFilesReport, AppError> {
        let mut state = self.inner.parts.db.old_files(space.id).await?;
        let is_owner = space.owner_id() == Some(actor.user.id);
        if !is_owner {
            // Admins see how much there is, and no name of anybody's file.
            let found = state.list.iter_mut().map(|list| &mut list.found);
            found.chain(state.look.iter_mut().map(|look| &mut look.found)).for_each(|found| found.examples.clear());
        }
        let rule = self.inner.rule(space).map(|rule| rule_of(&state, rule));
        let running = self.inner.running().get(&space.id).copied();
        let goes_at = rule.and_then(|rule| goes_at(&state, rule));
        let may_look = rule.is_some() && (is_owner || actor.acts_as_admin());
        let operation = running.flatten().filter(|_| is_owner);
        Ok(OldFilesReport { rule, state, goes_at, running: running.is_some(), operation, may_look })
    }

    /// Looks now what is old, as the owner's process sees it. Nothing is done to anything, and no list is changed.
    ///
    /// # Errors
    /// That the space is not the person's and they are no admin, that nothing becomes of old files there, or that the owner's process cannot be asked.
    pub async fn look(&self, actor: &Actor, name: &SpaceName) -> Result<OldFilesReport, AppError> {
        let space = self.inner.parts.spaces.get(actor, name).await?.space;
        if space.owner_id() != Some(actor.user.id) {
            actor.require_admin()?;
        }
        let rule = self.inner.rule(&space);
        let (Some(rule), Some(owner)) = (rule, space.owner_id()) else {
            return Err(AppError::Conflict { code: "no_old_files", text: say("problem.no_old_files") });
        };
        let owner = self.inner.parts.db.user(owner).await?.filter(|user| user.state == UserState::Active);
        let owner = owner.ok_or_else(|| AppError::Conflict { code: "no_owner", text: say("problem.no_owner") })?;
        let rule = rule_of(&self.inner.parts.db.old_files(space.id).await?, rule);
        if let Some(line) = self.claim(&space) {
            work::begin(line, as_owner(owner), rule, Task::Look, None).await?;
            self.inner
                .parts
                .audit
                .record(actor.audit("space.old_files_look", space.name.as_str(), "ok", json!({})))
                .await;
        }
        self.report_of(actor, &space).await
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
        let state = self
            .inner
            .edit(space.id, |state| {
                state.exempt = change.exempt.unwrap_or(state.exempt);
                state.days = change.days.map_or(state.days, OldFilesDays::own);
                if state.exempt {
                    state.list = None;
                }
            })
            .await?;
        let details = json!({"exempt": state.exempt, "days": state.days});
        self.inner.parts.audit.record(actor.audit("space.old_files_rule", space.name.as_str(), "ok", details)).await;
        self.report_of(actor, &space).await
    }

    /// One look at all spaces.
    pub(crate) async fn run(&self) -> Result<(), AppError> {
        if self.inner.config.spaces.roots.iter().any(|root| root.old_files().is_some()) {
            self.look_at_all().await?;
        }
        self.clear().await;
        Ok(())
    }

    async fn look_at_all(&self) -> Result<(), AppError> {
        let people = self.inner.people(Duration::ZERO).await?;
        let mut file_systems = HashMap::new();
        for root in self.inner.config.spaces.roots.iter().filter(|root| root.old_files().is_some()) {
            file_systems.insert(root.name.clone(), self.inner.parts.policing.file_system(&root.name).await);
        }
        let mut cursor = None;
        loop {
            let page = self.inner.parts.db.spaces(cursor, PAGE).await?;
            cursor = page.last().map(|space| space.name.to_string());
            let last = page.len() < PAGE as usize;
            for space in &page {
                let Some(rule) = self.inner.rule(space) else { continue };
                let file_system = file_systems.get(&space.root).and_then(Option::as_ref);
                let hindrance = hindrance(space, &people, file_system);
                // One that cannot be looked at keeps no other from that.
                if let Err(error) = self.look_at(space, rule, &people, hindrance).await {
                    tracing::warn!(space = %space.name, %error, "Old files could not be looked at");
                }
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Does what is right for one space now, or writes down why it cannot be known.
    async fn look_at(
        &self,
        space: &Space,
        of_root: OldFilesRule,
        people: &People,
        hindrance: Option<OldFilesDoubt>,
    ) -> Result<(), AppError> {
        let inner = &self.inner;
        let now = inner.parts.clock.now();
        let known = inner.parts.db.old_files(space.id).await?;
        if known.exempt {
            return Ok(());
        }
        let before = known.seen_at;
        let state = inner.edit(space.id, |state| watch(state, now, INTERVAL, hindrance)).await?;
        let rule = rule_of(&state, of_root);
        if state.exempt || state.doubt.is_some() || inner.running().contains_key(&space.id) {
            return Ok(());
        }
        let due = due(&state, rule);
        if due == Due::Nothing {
            return Ok(());
        }
        let owner = match inner.owner(space, people, before).await {
            Ok(owner) => owner,
            Err(doubt) => return inner.doubt(space.id, doubt).await,
        };
        let task = match due {
            Due::Nothing => return Ok(()),
            Due::Tell => return inner.tell(space).await,
            Due::List => Task::List,
            Due::Remove => Task::Remove,
        };
        if let Some(line) = self.claim(space) {
            tokio::spawn(work::begin_in_turn(line, as_owner(owner), rule, task));
        }
        Ok(())
    }

    /// Notes that something is under way in a space; none where it is already.
    fn claim(&self, space: &Space) -> Option<Line> {
        let mut running = self.inner.running();
        if running.contains_key(&space.id) {
            return None;
        }
        running.insert(space.id, None);
        Some(Line { inner: Arc::clone(&self.inner), space: space.id })
    }

    /// Removes lists that no row speaks of any more, or no rule: where there is one again, everything is listed and told anew.
    async fn clear(&self) {
        let directory = self.inner.directory.clone();
        let names = tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<String>>()
        });
        for name in names.await.unwrap_or_default() {
            let Some(space) = name.split('.').next().and_then(|id| id.parse::<SpaceId>().ok()) else { continue };
            if self.inner.running().contains_key(&space) || self.is_listed(space).await.unwrap_or(true) {
                continue;
            }
            if let Err(error) = tokio::fs::remove_file(self.inner.directory.join(name)).await {
                tracing::warn!(space.id = %space, %error, "A list of old files could not be removed");
            }
        }
    }

    async fn is_listed(&self, space: SpaceId) -> Result<bool, AppError> {
        let is_ruled = self.inner.parts.db.space(space).await?.is_some_and(|space| self.inner.rule(&space).is_some());
        let state = self.inner.edit(space, |state| state.list = state.list.take().filter(|_| is_ruled)).await?;
        Ok(state.list.is_some())
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<SpaceId, Option<OperationId>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, space: SpaceId) -> PathBuf {
        self.directory.join(format!("{space}.list"))
    }

    /// What its root says of old files in a space; none where nothing becomes of them.
    fn rule(&self, space: &Space) -> Option<OldFilesRule> {
        let is_there = space.state == SpaceState::Present && space.desired == SpaceDesired::Present;
        let root = self.config.spaces.roots.iter().find(|root| root.name == space.root)?;
        root.old_files().filter(|_| is_there && space.owner_id().is_some())
    }

    /// The people of the portal, and what the user database said of them less than `within` ago.
    async fn people(&self, within: Duration) -> Result<Arc<People>, AppError> {
        let mut kept = self.people.lock().await;
        if let Some((_, people)) = kept.as_ref().filter(|(at, _)| at.elapsed() < within) {
            return Ok(Arc::clone(people));
        }
        let people = Arc::new(self.parts.policing.people().await?);
        *kept = Some((Instant::now(), Arc::clone(&people)));
        Ok(people)
    }

    /// The owner, if everything is beyond doubt what it was.
    async fn owner(&self, space: &Space, people: &People, before: Option<Timestamp>) -> Result<User, OldFilesDoubt> {
        self.parts.policing.be_certain(space, people, before).await.map_err(of_policy)?;
        owner_of(space, people).cloned()
    }

    /// Changes what is known, again where somebody else was faster.
    async fn edit(&self, space: SpaceId, edit: impl Fn(&mut OldFilesState)) -> Result<OldFilesState, AppError> {
        for _ in 0..TRIES {
            let mut state = self.parts.db.old_files(space).await?;
            let before = state.clone();
            edit(&mut state);
            if state == before {
                return Ok(state);
            }
            if self.parts.db.put_old_files(&state).await? {
                state.version += 1;
                return Ok(state);
            }
        }
        Err(DbError::Conflict { what: "old files" }.into())
    }

    async fn doubt(&self, space: SpaceId, doubt: OldFilesDoubt) -> Result<(), AppError> {
        self.edit(space, |state| state.doubt = Some(doubt)).await.map(drop)
    }

    /// Tells the owner what was listed; that counts once it is kept.
    async fn tell(&self, space: &Space) -> Result<(), AppError> {
        let state = self.parts.db.old_files(space.id).await?;
        let Some(list) = &state.list else { return Ok(()) };
        let days = list.warn_days.to_string();
        let filled = [("name", space.title.as_str()), ("days", days.as_str())];
        let text = say_count("space.old_files", list.found.files, &filled);
        // Without a name of a file: admins read notices too.
        let data = json!({
            "code": "old_files", "text": text.as_str(), "space": space.name, "files": list.found.files,
            "bytes": list.found.bytes, "days": list.warn_days,
        });
        if !self.parts.events.publish(EventKind::Notice, None, space.owner_id(), data).await {
            return self.doubt(space.id, OldFilesDoubt::NotTold).await;
        }
        let (at, now) = (list.at, self.parts.clock.now());
        let told = |state: &mut OldFilesState| {
            if let Some(list) = state.list.as_mut().filter(|list| list.at == at) {
                (list.told_at, list.waited_s) = (Some(now), 0);
            }
        };
        self.edit(space.id, told).await.map(drop)
    }
}

/// What is done to a space's files is done as its owner.
fn as_owner(owner: User) -> Actor {
    Actor { user: owner, via: Via::Cli, address: None, request_id: None }
}

fn owner_of<'a>(space: &Space, people: &'a People) -> Result<&'a User, OldFilesDoubt> {
    let owner = space.owner_id().and_then(|owner| people.known(owner)).ok_or(OldFilesDoubt::OwnerUnknown)?;
    if owner.state == UserState::Active { Ok(owner) } else { Err(OldFilesDoubt::OwnerDisabled) }
}

/// What keeps the owner from their files now, as far as that is seen without asking for each space: their time does not go on then.
fn hindrance(space: &Space, people: &People, file_system: Option<&Identity>) -> Option<OldFilesDoubt> {
    let is_there = Policing::be_there(space, file_system).map_err(of_policy);
    let are_plausible = if people.are_plausible() { Ok(()) } else { Err(OldFilesDoubt::People) };
    is_there.and(are_plausible).and_then(|()| owner_of(space, people).map(drop)).err()
}

fn of_policy(doubt: Doubt) -> OldFilesDoubt {
    match doubt {
        Doubt::StorageAway => OldFilesDoubt::StorageAway,
        Doubt::PlaceUnknown => OldFilesDoubt::PlaceUnknown,
        Doubt::OtherFileSystem => OldFilesDoubt::OtherFileSystem,
        Doubt::OtherDirectory => OldFilesDoubt::OtherDirectory,
        Doubt::NotWatched => OldFilesDoubt::NotWatched,
        Doubt::Clock => OldFilesDoubt::Clock,
        Doubt::People => OldFilesDoubt::People,
    }
}
