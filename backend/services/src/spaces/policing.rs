//! Carries policies out: gathers what [`policy`](super::policy) decides on, and does the one step it finds right, or writes down what would be done.
//!
//! Gathering is careful on one side only. Whatever did not answer, answered oddly or was not looked at regularly is left out, and then nothing is
//! done; nothing here makes up for what is missing. A step is a changed wish in the space's row, so what takes a space away or removes it is what
//! does so for an admin, and can be brought back as long.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherRequest, SpaceAt};
use eirene_core::space::{EvidenceKind, PolicyOutcome, PolicyRun, PolicyStep, SpaceDesired, Warned};
use eirene_core::storage::{Identity, Place};
use eirene_core::{
    Clock, GroupName, RootName, Scope, Space, SpaceKind, SpaceName, SpaceOwner, SpaceState, User, UserId, UserState,
    Username,
};
use eirene_database::Db;
use eirene_words::say_with;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::groups::GroupSource;
use super::people;
use super::policy::{
    Cause, Decision, Doubt, PeopleSeen, PlaceSeen, Situation, Step, check, check_file_system, decide, is_in_time,
    is_waited_for, watch,
};
use crate::actor::Actor;
use crate::audit::{Audit, by_system};
use crate::config::Config;
use crate::error::AppError;
use crate::events::{EventKind, Events};
use crate::nudge::Nudges;
use crate::shared::Shared;
use crate::storage::Storage;

/// Time between two looks.
pub const INTERVAL: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// How long it is kept what policies did, or would have done.
const KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Rows that are read at once.
const PAGE: u32 = 200;
/// Runs that are shown.
const SHOWN: u32 = 20;
/// An account that every host has. A user database that does not know it is none.
const CANARY: &str = "root";

/// Carries policies out. Cheap to clone.
#[derive(Clone)]
pub struct Policing {
    inner: Shared<Parts>,
    config: Arc<Config>,
    /// None after a start.
    looks: Arc<Mutex<Option<Looks>>>,
}

/// When it was looked.
#[derive(Debug, Clone, Copy)]
struct Looks {
    /// When the last look began.
    last: Timestamp,
    /// When the first of those began of which each came in time after the one before.
    steady_since: Timestamp,
}

impl Looks {
    /// With a look that begins `now`, after those of `before`.
    fn with(before: Option<Self>, now: Timestamp) -> Self {
        let in_time = before.filter(|before| is_in_time(now.duration_since(before.last), INTERVAL));
        Self { last: now, steady_since: in_time.map_or(now, |before| before.steady_since) }
    }
}

/// What [`Policing`] is made of.
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
    /// The user database.
    pub groups: Arc<dyn GroupSource>,
}

/// What a policy would do to a space now, and what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyReport {
    /// The step that is due; none where nothing is.
    pub step: Option<PolicyStep>,
    /// What would come of it.
    pub outcome: PolicyOutcome,
    /// One sentence.
    pub why: String,
    /// The last looks, newest first.
    pub runs: Vec<PolicyRun>,
}

/// What a step does to a row, and how the audit log calls it.
struct Change {
    action: &'static str,
    space: Space,
}

/// What a look saw where a space should be. It holds for all who have files there, so that one look asks once.
pub struct Looked {
    /// None where somebody did not answer.
    place: Option<PlaceSeen>,
    /// When, by the portal's clock: the storage's is compared with it.
    at: Timestamp,
}

/// The people of the portal, and what the user database says of them.
pub struct People {
    users: Vec<User>,
    /// None where it did not answer for one of them.
    seen: Option<PeopleSeen>,
    absent: BTreeSet<UserId>,
}

impl People {
    /// Whether the answers can be those of a healthy database: only then is somebody's absence one.
    pub(crate) fn are_plausible(&self) -> bool {
        self.seen.is_some_and(PeopleSeen::is_plausible)
    }

    /// One of them, unless the user database does not know them.
    pub fn known(&self, id: UserId) -> Option<&User> {
        self.users.iter().find(|user| user.id == id && !self.absent.contains(&id))
    }

    /// Whose a number is, or was, as far as it is one of these people's.
    pub(crate) fn with_uid(&self, uid: u32) -> Option<&User> {
        self.users.iter().find(|user| user.uid == Some(uid))
    }
}

/// Who is in which group, of the people whom the user database knows.
pub struct Members {
    of: HashMap<GroupName, BTreeSet<UserId>>,
}

impl Members {
    /// The members of a group; of one that the user database does not know, nobody.
    pub fn of(&self, group: &GroupName) -> impl Iterator<Item = UserId> {
        self.of.get(group).into_iter().flatten().copied()
    }

    /// Whether somebody is a member of a group.
    pub fn has(&self, group: &GroupName, person: UserId) -> bool {
        self.of.get(group).is_some_and(|members| members.contains(&person))
    }
}

impl Policing {
    /// Carries out the policies of the roots of `config`.
    pub fn new(parts: Parts, config: &Arc<Config>) -> Self {
        Self { inner: Shared::new(parts), config: Arc::clone(config), looks: Arc::default() }
    }

    /// What would be done to a space now, without doing it; for admins.
    pub async fn report(&self, actor: &Actor, name: &SpaceName) -> Result<PolicyReport, AppError> {
        actor.require_admin()?;
        actor.require(Scope::FilesRead)?;
        let space = self.inner.db.space_by_name(name).await?.ok_or(AppError::NotFound)?;
        let people = self.people().await?;
        let looks = *self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        // The hours that a first step waits for are of no matter here: nothing is done.
        let looks = looks.map(|looks| Looks { steady_since: Timestamp::MIN, ..looks });
        let decision = self.decide(&space, &people, looks).await?;
        let (step, outcome, why) = match decision {
            Decision::Nothing => (None, PolicyOutcome::Nothing, nothing_due(&space)),
            Decision::Do(step) | Decision::Would(step) => (Some(step.word()), PolicyOutcome::WouldDo, sentence(step)),
            Decision::Undetermined(doubt) => (None, PolicyOutcome::Undetermined, doubt.to_string()),
        };
        Ok(PolicyReport { step, outcome, why, runs: self.inner.db.policy_runs(space.id, SHOWN).await? })
    }

    /// One look at all spaces.
    pub async fn run(&self) -> Result<(), AppError> {
        let now = self.inner.clock.now();
        let before = {
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            let with_this_one = Looks::with(*looks, now);
            looks.replace(with_this_one)
        };
        self.inner.db.prune_policy_runs(now - KEPT).await?;
        let people = self.people().await?;
        let mut cursor = None;
        loop {
            let page = self.inner.db.spaces(cursor, PAGE).await?;
            cursor = page.last().map(|space| space.name.to_string());
            let last = page.len() < PAGE as usize;
            for space in page.into_iter().filter(|space| space.kind != SpaceKind::Home) {
                self.note_absence(&space, &people).await?;
                let space = self.watch(space).await?;
                let decision = self.decide(&space, &people, before).await?;
                self.carry_out(&space, decision, &people).await?;
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Counts the time that passes while somebody waits for what was promised of a space.
    async fn watch(&self, mut space: Space) -> Result<Space, AppError> {
        if is_waited_for(&space) {
            watch(&mut space, self.inner.clock.now(), INTERVAL);
            if !self.inner.db.note_watched(&space).await? {
                // Nor can a step be done with a row that is not so any more.
                tracing::info!(space = %space.name, "A space was changed meanwhile: this look counts no time of it");
            }
        }
        Ok(space)
    }

    /// Looks where a space should be, for [`Self::be_certain`].
    pub(crate) async fn look_for(&self, space: &Space) -> Looked {
        let place = self.place(space).await;
        Looked { place, at: self.inner.clock.now() }
    }

    /// That nothing could make it a mistake to change what is in a space that is there, by what was `looked` for just now; `last_look` is when
    /// it was looked at before. For whoever has rules of its own for that.
    pub(crate) fn be_certain(
        &self,
        space: &Space,
        looked: &Looked,
        people: &People,
        last_look: Option<Timestamp>,
    ) -> Result<(), Doubt> {
        let root = self.config.spaces.roots.iter().find(|root| root.name == space.root).ok_or(Doubt::PlaceUnknown)?;
        check(&Situation {
            space,
            policy: &root.policy(),
            evidence: &[],
            place: looked.place.as_ref(),
            people: people.seen,
            last_look,
            steady_since: last_look,
            interval: INTERVAL,
            now: looked.at,
        })
    }

    /// The file system of a root now; none where it does not answer.
    pub async fn file_system(&self, root: &RootName) -> Option<Identity> {
        Some(self.inner.storage.port().file_system(&Place::Root(root.clone())).await.ok()?.identity)
    }

    /// That a space's file system is the one it was made on, by what [`Self::file_system`] has said of its root. It says nothing of the space's
    /// own directory, and costs nothing.
    pub(crate) fn be_there(space: &Space, seen: Option<&Identity>) -> Result<(), Doubt> {
        check_file_system(space, seen).map(drop)
    }

    /// Asks the user database for everybody it should know.
    pub async fn people(&self) -> Result<People, AppError> {
        let users = people::of_the_cluster(&self.inner.db).await?;
        let (seen, absent) = self.ask_for(&users).await.unzip();
        Ok(People { users, seen, absent: absent.unwrap_or_default() })
    }

    /// Who of these people is in which group; none where the user database did not answer for one of them.
    pub async fn members(&self, people: &People) -> Option<Members> {
        if !people.are_plausible() {
            return None;
        }
        let mut of: HashMap<GroupName, BTreeSet<UserId>> = HashMap::new();
        for user in people.users.iter().filter(|user| !people.absent.contains(&user.id)) {
            for group in self.inner.groups.groups_of(&user.username).await.ok()? {
                of.entry(group).or_default().insert(user.id);
            }
        }
        Some(Members { of })
    }

    /// Whether somebody is in a group now; none where the user database does not answer.
    pub(crate) async fn is_member(&self, person: &User, group: &GroupName) -> Option<bool> {
        let groups = self.inner.groups.groups_of(&person.username).await.ok()?;
        Some(groups.contains(group))
    }

    /// What the user database says of these people, and whom it does not know; none where it did not answer for one of them.
    async fn ask_for(&self, users: &[User]) -> Option<(PeopleSeen, BTreeSet<UserId>)> {
        let canary: Username = CANARY.parse().ok()?;
        let canary = self.inner.groups.knows(&canary).await.ok()?;
        let (mut seen, mut absent) = (PeopleSeen { canary, asked: 0, found: 0 }, BTreeSet::new());
        for user in users {
            let is_known = self.inner.groups.knows(&user.username).await.ok()?;
            if user.state == UserState::Active {
                seen.asked += 1;
                seen.found += u32::from(is_known);
            }
            if !is_known {
                absent.insert(user.id);
            }
        }
        Some((seen, absent))
    }

    /// Counts once a day that a space's owner is missing, and forgets it when they are there.
    async fn note_absence(&self, space: &Space, people: &People) -> Result<(), AppError> {
        let Some(owner) = space.owner_id().filter(|_| people.are_plausible()) else { return Ok(()) };
        let what = EvidenceKind::PersonAbsent;
        if people.absent.contains(&owner) {
            self.inner.db.note_evidence(space.id, what, self.inner.clock.now(), DAY).await?;
        } else if people.users.iter().any(|user| user.id == owner) {
            self.inner.db.forget_evidence(space.id, what).await?;
        }
        Ok(())
    }

    /// What is right to do. The storage is asked only where something is due.
    async fn decide(&self, space: &Space, people: &People, looks: Option<Looks>) -> Result<Decision, AppError> {
        let Some(root) = self.config.spaces.roots.iter().find(|root| root.name == space.root) else {
            return Ok(Decision::Nothing);
        };
        let (policy, evidence) = (root.policy(), self.inner.db.evidence(space.id).await?);
        let mut situation = Situation {
            space,
            policy: &policy,
            evidence: &evidence,
            place: None,
            people: people.seen,
            last_look: looks.map(|looks| looks.last),
            steady_since: looks.map(|looks| looks.steady_since),
            interval: INTERVAL,
            now: self.inner.clock.now(),
        };
        if decide(&situation) == Decision::Nothing {
            return Ok(Decision::Nothing);
        }
        let place = self.place(space).await;
        // The storage may have taken its time, and its clock is compared with this one.
        (situation.place, situation.now) = (place.as_ref(), self.inner.clock.now());
        Ok(decide(&situation))
    }

    /// Looks where a space should be; none where somebody did not answer.
    async fn place(&self, space: &Space) -> Option<PlaceSeen> {
        let at = match space.state {
            SpaceState::Present => SpaceAt::Present(space.name.clone()),
            SpaceState::Retired => SpaceAt::Retired(space.id),
            SpaceState::Wanted | SpaceState::Gone => return None,
        };
        let identity = self.file_system(&space.root).await?;
        let request = LauncherRequest::LookForSpace { root: space.root.clone(), at };
        let Ok(LauncherAnswer::SpaceSeen { inode, file_time_s }) = self.inner.launcher.call(request).await else {
            return None;
        };
        // A directory that is not there is another one, and no number of an inode is 0.
        Some(PlaceSeen { identity, inode: inode.unwrap_or(0), file_time: Timestamp::from_second(file_time_s).ok()? })
    }

    async fn carry_out(&self, space: &Space, decision: Decision, people: &People) -> Result<(), AppError> {
        let (step, outcome, why) = match decision {
            Decision::Nothing => return Ok(()),
            Decision::Would(step) => (Some(step.word()), PolicyOutcome::WouldDo, sentence(step)),
            Decision::Undetermined(doubt) => (None, PolicyOutcome::Undetermined, doubt.to_string()),
            Decision::Do(step) => {
                let (done, why) = self.do_step(space, step, people).await?;
                let outcome = match (done, step) {
                    (false, _) => PolicyOutcome::Undetermined,
                    (true, Step::Warn { .. }) => PolicyOutcome::Warned,
                    (true, Step::Retire(_) | Step::Remove) => PolicyOutcome::Did,
                };
                (Some(step.word()), outcome, why)
            }
        };
        let said = self.inner.db.policy_runs(space.id, 1).await?;
        // What was the same the last time is written down once.
        if said.first().is_some_and(|last| (last.step, last.outcome, &last.why) == (step, outcome, &why)) {
            return Ok(());
        }
        let run = PolicyRun { step, outcome, why, at: self.inner.clock.now() };
        Ok(self.inner.db.record_policy_run(space.id, &run).await?)
    }

    /// Does a step; gives whether it was done, and a sentence about it.
    async fn do_step(&self, space: &Space, step: Step, people: &People) -> Result<(bool, String), AppError> {
        let change = match step {
            Step::Warn { days } => {
                if !self.warn(space, days, people).await {
                    return Ok((false, "the warning reached nobody".to_owned()));
                }
                let (mut warned, now) = (space.warned.clone(), self.inner.clock.now());
                warned.push(Warned { days, at: now, waited_s: 0 });
                // Counting begins with the warning, and not with the look before.
                Change { action: "space.warn", space: Space { warned, watched_at: Some(now), ..space.clone() } }
            }
            Step::Retire(_) => {
                Change { action: "space.retire", space: Space { desired: SpaceDesired::Retired, ..space.clone() } }
            }
            Step::Remove => {
                Change { action: "space.remove", space: Space { desired: SpaceDesired::Gone, ..space.clone() } }
            }
        };
        let details = json!({"why": sentence(step)});
        let event = by_system("space_policy", change.action, space.name.as_str(), "ok", details);
        if !self.inner.db.update_space(&change.space, &[self.inner.audit.entry(event)]).await? {
            // Somebody has changed it since it was looked at: the next look sees what is right then.
            return Ok((false, "somebody else changed the space meanwhile".to_owned()));
        }
        self.inner.nudges.spaces().notify_one();
        Ok((true, sentence(step)))
    }

    /// Tells whoever it is for that a space ends; whether somebody was told and that is kept.
    async fn warn(&self, space: &Space, days: u32, people: &People) -> bool {
        let count = days.to_string();
        let text = say_with("space.expires", &[("name", space.title.as_str()), ("days", &count)]);
        let data = json!({"code": "space_expires", "text": text.as_str(), "space": space.name, "days": days});
        let whom: Vec<Option<UserId>> = match &space.owner {
            SpaceOwner::Person { id, .. } => vec![Some(*id)],
            SpaceOwner::Everybody => vec![None],
            SpaceOwner::Group(group) => {
                let there = people.users.iter().filter(|user| !people.absent.contains(&user.id));
                let (members, true) = people::in_group(&*self.inner.groups, there, group).await else { return false };
                members.into_iter().map(Some).collect()
            }
        };
        let mut all_told = !whom.is_empty();
        for person in whom {
            all_told &= self.inner.events.publish(EventKind::Notice, None, person, data.clone()).await;
        }
        all_told
    }
}

/// That nothing is due, and of what was taken away until when that is so at least.
fn nothing_due(space: &Space) -> String {
    match space.kept_until().filter(|_| space.desired == SpaceDesired::Retired) {
        Some(until) => format!("nothing is due: it is kept until {} at least", until.strftime("%-d %b %Y, %H:%M UTC")),
        None => "nothing is due".into(),
    }
}

fn sentence(step: Step) -> String {
    match step {
        Step::Warn { days } => format!("it ends in {days} days or less, and its people are told"),
        Step::Retire(Cause::Expired) => "it is past its end, and its people were told".into(),
        Step::Retire(Cause::PersonAbsent) => "its owner has not been in the user database for days".into(),
        Step::Remove => "it was taken away, and the time it is kept is over".into(),
    }
}

#[cfg(test)]
mod tests;
