//! The looks at all spaces: whoever has old files, what is right for them now, and what makes that certain or doubtful.
//!
//! Everybody is asked once for a look, and what is said holds for all of its spaces. Before something is removed all of it is asked again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_core::old_files::{
    OldFilesDoubt, OldFilesOf, OldFilesOfOther, OldFilesOfStranger, OldFilesRule, OldFilesState,
};
use eirene_core::storage::Identity;
use eirene_core::{GroupName, Space, SpaceId, SpaceOwner, User, UserId, UserState};
use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::decide::{Due, due, rule_of, watch};
use super::work::{self, Task};
use super::{Inner, OldFiles, PEOPLE_FRESH, as_owner};
use crate::error::AppError;
use crate::spaces::policing::{INTERVAL, Looked, Members, People, Policing};
use crate::spaces::policy::Doubt;

/// Rows that are read at once.
const PAGE: u32 = 200;
/// How long one look goes on, once everybody was asked, before it leaves the other spaces to the next.
const LONGEST_LOOK: Duration = Duration::from_mins(1);
/// How long it goes on with the questions before it: a run of two minutes is ended in the middle of something (`backend/reconcilers/src/driver.rs`).
const LONGEST_RUN: Duration = Duration::from_secs(90);

/// A space that is being looked at, and what holds there for all whose files are.
struct Looking<'a> {
    space: &'a Space,
    /// What its root says.
    rule: OldFilesRule,
    people: &'a People,
    /// The root's file system; none where it did not answer.
    file_system: Option<&'a Identity>,
    /// Looked for once something is due.
    looked: OnceCell<Looked>,
}

impl OldFiles {
    /// One look at all spaces, or at as many as there is time for: see [`Self::has_more`].
    pub async fn run(&self) -> Result<(), AppError> {
        self.run_for(LONGEST_LOOK).await
    }

    /// Whether the last look had no time for all spaces. The next one goes on with the others; it should begin soon, because time counts only
    /// where it is looked regularly.
    pub fn has_more(&self) -> bool {
        self.inner.after().is_some()
    }

    pub(super) async fn run_for(&self, longest: Duration) -> Result<(), AppError> {
        if self.inner.config.spaces.roots.iter().any(|root| root.old_files().is_some()) {
            self.look_at_all(longest).await?;
        }
        if !self.has_more() {
            self.clear().await;
        }
        Ok(())
    }

    /// Looks at one space at least, and at others for so long.
    async fn look_at_all(&self, longest: Duration) -> Result<(), AppError> {
        let asking = Instant::now();
        // Everybody is asked once for all spaces, and not again for each part of them: that may take longer than to look at them.
        let within = if self.has_more() { PEOPLE_FRESH } else { Duration::ZERO };
        let people = self.inner.people(within).await?;
        let (mut file_systems, mut members) = (HashMap::new(), None);
        for root in self.inner.config.spaces.roots.iter().filter(|root| root.old_files().is_some()) {
            file_systems.insert(root.name.clone(), self.inner.parts.policing.file_system(&root.name).await);
            if members.is_none() && !root.is_personal() {
                members = self.inner.members(&people, within).await;
            }
        }
        let looking_since = Instant::now();
        let is_late = || looking_since.elapsed() >= longest || asking.elapsed() >= LONGEST_RUN;
        let mut cursor = self.inner.after().as_ref().map(ToString::to_string);
        let mut has_begun = false;
        loop {
            let page = self.inner.parts.db.spaces(cursor, PAGE).await?;
            cursor = page.last().map(|space| space.name.to_string());
            let last = page.len() < PAGE as usize;
            for space in &page {
                let Some(rule) = self.inner.rule(space) else { continue };
                if has_begun && is_late() {
                    return Ok(());
                }
                has_begun = true;
                // Before it is looked at: one that takes more time than there is does not keep the others from theirs for ever.
                *self.inner.after() = Some(space.name.clone());
                let file_system = file_systems.get(&space.root).and_then(Option::as_ref);
                let looking = Looking { space, rule, people: &people, file_system, looked: OnceCell::new() };
                let looked = match &space.owner {
                    SpaceOwner::Group(group) => self.look_at_members(&looking, group, members.as_deref()).await,
                    SpaceOwner::Person { id, .. } => {
                        self.look_at(&looking, space.id.into(), *id, looking.hindrance(*id)).await
                    }
                    SpaceOwner::Everybody => Ok(()),
                };
                // One that cannot be looked at keeps no other from that.
                if let Err(error) = looked {
                    tracing::warn!(space = %space.name, %error, "Old files could not be looked at");
                }
            }
            if last {
                *self.inner.after() = None;
                return Ok(());
            }
        }
    }

    /// Does what is right for each member of a space's group, and counts what belongs to nobody who is one. Without `members` nobody knows who
    /// is: then time is counted for none of them.
    async fn look_at_members(
        &self,
        looking: &Looking<'_>,
        group: &GroupName,
        members: Option<&Members>,
    ) -> Result<(), AppError> {
        let (db, space) = (&self.inner.parts.db, looking.space);
        let known = db.old_files_of_members(space.id).await?.into_iter().filter_map(|(_, state)| state.of.member);
        let Some(members) = members else {
            for member in known {
                let of = OldFilesOf { space: space.id, member: Some(member) };
                self.look_at(looking, of, member, Some(OldFilesDoubt::People)).await?;
            }
            return Ok(());
        };
        for member in known.filter(|member| !members.has(group, *member)) {
            // What was listed of theirs is nobody's to remove. If they come back, it is listed and told anew.
            db.forget_old_files(space.id, member).await?;
        }
        let mut worst = Ok(());
        for member in members.of(group) {
            let of = OldFilesOf { space: space.id, member: Some(member) };
            let looked = self.look_at(looking, of, member, looking.hindrance(member)).await;
            worst = worst.and(looked);
        }
        self.count_strangers(space, group, looking.people, members).await?;
        worst
    }

    /// Writes down what is old and belongs to nobody who is a member, by what their processes have seen last.
    async fn count_strangers(
        &self,
        space: &Space,
        group: &GroupName,
        people: &People,
        members: &Members,
    ) -> Result<(), AppError> {
        let known = self.inner.parts.db.old_files_of_members(space.id).await?;
        let seen: Vec<(Timestamp, &[OldFilesOfOther])> =
            known.iter().filter_map(|(_, state)| last_seen(state)).collect();
        if seen.is_empty() {
            // Nobody has looked since: what was seen before is still the best that is known.
            return Ok(());
        }
        let mut strangers: BTreeMap<u32, OldFilesOfStranger> = BTreeMap::new();
        for (at, other) in seen.into_iter().flat_map(|(at, others)| others.iter().map(move |other| (at, other))) {
            let user = people.with_uid(other.uid);
            if user.is_some_and(|user| members.has(group, user.id)) {
                continue;
            }
            let OldFilesOfOther { uid, files, bytes } = *other;
            let name = user.map(|user| user.username.clone());
            let stranger = OldFilesOfStranger { uid, name, files, bytes, seen_at: Some(at) };
            // Not all see all of it, and what one of them saw is there twice if it is added.
            let how_much = |seen: &OldFilesOfStranger| (seen.files, seen.bytes, seen.seen_at);
            if strangers.get(&uid).is_none_or(|most| how_much(most) < how_much(&stranger)) {
                strangers.insert(uid, stranger);
            }
        }
        let strangers: Vec<OldFilesOfStranger> = strangers.into_values().collect();
        self.inner.edit(space.id.into(), |state| state.strangers.clone_from(&strangers)).await.map(drop)
    }

    /// Does what is right for one person's files in a space now, or writes down why it cannot be known. That they have a share in it was asked
    /// for this look; before anything is removed it is asked again.
    async fn look_at(
        &self,
        looking: &Looking<'_>,
        of: OldFilesOf,
        person: UserId,
        hindrance: Option<OldFilesDoubt>,
    ) -> Result<(), AppError> {
        let inner = &self.inner;
        let now = inner.parts.clock.now();
        let known = inner.parts.db.old_files(of).await?;
        if known.exempt {
            return Ok(());
        }
        let before = known.seen_at;
        let state = inner.edit(of, |state| watch(state, now, INTERVAL, hindrance)).await?;
        let rule = rule_of(&state, looking.rule);
        if state.exempt || state.doubt.is_some() || inner.running().contains_key(&of) {
            return Ok(());
        }
        let due = due(&state, rule);
        if due == Due::Nothing {
            return Ok(());
        }
        let policing = &inner.parts.policing;
        let looked = looking.looked.get_or_init(|| policing.look_for(looking.space)).await;
        let is_certain = policing.be_certain(looking.space, looked, looking.people, before).map_err(of_policy);
        let owner = match is_certain.and_then(|()| allowed(person, looking.people)) {
            Ok(owner) => owner.clone(),
            Err(doubt) => return inner.doubt(of, doubt).await,
        };
        let task = match due {
            Due::Nothing => return Ok(()),
            Due::Tell => return inner.tell(looking.space, of).await,
            Due::List => Task::List,
            Due::Remove => Task::Remove,
        };
        if let Some(line) = self.claim(of) {
            tokio::spawn(work::begin_in_turn(line, as_owner(owner), rule, task));
        }
        Ok(())
    }

    /// Removes lists that no row speaks of any more, or no rule: where there is one again, everything is listed and told anew.
    async fn clear(&self) {
        let directory = self.inner.directory.clone();
        let names = tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<String>>()
        });
        for name in names.await.unwrap_or_default() {
            let Some(of) = named(&name) else { continue };
            if self.inner.running().contains_key(&of) || self.is_listed(of).await.unwrap_or(true) {
                continue;
            }
            if let Err(error) = tokio::fs::remove_file(self.inner.directory.join(name)).await {
                tracing::warn!(space.id = %of.space, %error, "A list of old files could not be removed");
            }
        }
    }

    async fn is_listed(&self, of: OldFilesOf) -> Result<bool, AppError> {
        let is_ruled =
            self.inner.parts.db.space(of.space).await?.is_some_and(|space| self.inner.rule(&space).is_some());
        let state = self.inner.edit(of, |state| state.list = state.list.take().filter(|_| is_ruled)).await?;
        Ok(state.list.is_some())
    }
}

impl Looking<'_> {
    /// What keeps somebody from their files in the space now, as far as that is seen without asking for each space: their time does not go on
    /// then.
    fn hindrance(&self, person: UserId) -> Option<OldFilesDoubt> {
        let is_there = Policing::be_there(self.space, self.file_system).map_err(of_policy);
        let are_plausible = if self.people.are_plausible() { Ok(()) } else { Err(OldFilesDoubt::People) };
        is_there.and(are_plausible).and_then(|()| allowed(person, self.people).map(drop)).err()
    }
}

impl Inner {
    /// The people of the portal, and what the user database said of them less than `within` ago. Where that was no good answer it is asked again.
    pub(super) async fn people(&self, within: Duration) -> Result<Arc<People>, AppError> {
        let mut kept = self.people.lock().await;
        if let Some((_, people)) = kept.as_ref().filter(|(at, people)| at.elapsed() < within && people.are_plausible())
        {
            return Ok(Arc::clone(people));
        }
        let people = Arc::new(self.parts.policing.people().await?);
        *kept = Some((Instant::now(), Arc::clone(&people)));
        Ok(people)
    }

    /// Who of these people is in which group, as the user database said it less than `within` ago; none where nobody can tell.
    async fn members(&self, people: &People, within: Duration) -> Option<Arc<Members>> {
        let mut kept = self.members.lock().await;
        if let Some((_, members)) = kept.as_ref().filter(|(at, _)| at.elapsed() < within && people.are_plausible()) {
            return Some(Arc::clone(members));
        }
        let members = Arc::new(self.parts.policing.members(people).await?);
        *kept = Some((Instant::now(), Arc::clone(&members)));
        Some(members)
    }

    /// That everything is beyond doubt what it was, and whose files they are still has a share in the space. All of it is asked now.
    pub(super) async fn certain(
        &self,
        space: &Space,
        person: UserId,
        people: &People,
        before: Option<Timestamp>,
    ) -> Result<(), OldFilesDoubt> {
        let policing = &self.parts.policing;
        let looked = policing.look_for(space).await;
        policing.be_certain(space, &looked, people, before).map_err(of_policy)?;
        let person = allowed(person, people)?;
        if let SpaceOwner::Group(group) = &space.owner {
            match policing.is_member(person, group).await {
                Some(true) => {}
                Some(false) => return Err(OldFilesDoubt::NoMember),
                None => return Err(OldFilesDoubt::People),
            }
        }
        Ok(())
    }
}

/// Whose list a file is by its name.
fn named(file: &str) -> Option<OldFilesOf> {
    let mut parts = file.split('.');
    let space = parts.next()?.parse::<SpaceId>().ok()?;
    // Behind the last point stands how far it is.
    let member = parts.next().and_then(|part| part.parse::<UserId>().ok());
    Some(OldFilesOf { space, member })
}

/// When this member's process looked last, and what others had in the space then; none where it has not.
fn last_seen(state: &OldFilesState) -> Option<(Timestamp, &[OldFilesOfOther])> {
    let list = state.list.as_ref().map(|list| (list.at, &list.found));
    let look = state.look.as_ref().map(|look| (look.at, &look.found));
    list.into_iter().chain(look).max_by_key(|(at, _)| *at).map(|(at, found)| (at, found.others.as_slice()))
}

/// Somebody, if something may be done as them.
fn allowed(person: UserId, people: &People) -> Result<&User, OldFilesDoubt> {
    let person = people.known(person).ok_or(OldFilesDoubt::OwnerUnknown)?;
    if person.state == UserState::Active { Ok(person) } else { Err(OldFilesDoubt::OwnerDisabled) }
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
