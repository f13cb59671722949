//! Looks at spaces: what each gives is kept, told to whom it concerns, and passed on to whoever listens. What a look sees is worked out in [`look`].

use std::collections::BTreeSet;
use std::time::Duration;

use eirene_core::space::{Level, Measurement, SeenUsage, Usage, UsageSample, UsageSource};
use eirene_core::storage::{Limit, QuotaId};
use eirene_core::{Reason, Space, SpaceId, SpaceKind, SpaceOwner, SpaceState, UserId};
use eirene_words::{say, say_with};
use jiff::Timestamp;
use serde_json::json;

use super::access::Reach;
use super::level::{holding, level, told_next};
use super::quotas::QuotaRound;
use super::{Spaces, lasting, look, people};
use crate::error::AppError;
use crate::events::{EventKind, Fact};
use crate::storage::snapshot::{Trouble, TroubleKind};

const HOUR_S: i64 = 60 * 60;
/// How long a look at one space may ask who is in its group, so that the others are looked at too.
const LONGEST_QUESTION: Duration = Duration::from_secs(10);
/// New spaces that are looked at out of turn at once …
const MOST_NEW: u32 = 5;
/// … and how long a look at one may take, so that spaces that are to be made do not wait.
const LONGEST_NEW: Duration = Duration::from_secs(10);

impl Spaces {
    /// Spaces that are to be looked at, by name, from after the name `cursor` on.
    pub async fn to_look_at(&self, cursor: Option<String>, limit: u32) -> Result<Vec<Space>, AppError> {
        Ok(self.inner.db.spaces(cursor, limit).await?)
    }

    /// Looks at one space: keeps what was seen, tells its owner when it has come to a higher level, and its people who listen of any change. A look
    /// that saw nothing leaves what was seen before and says why; the word is given back, because others at the same place will hardly fare better.
    pub async fn look_at(&self, space: &Space, round: &mut QuotaRound) -> Result<Option<TroubleKind>, AppError> {
        if space.state != SpaceState::Present {
            return Ok(None);
        }
        let of = if self.inner.storage.reads_quotas() { self.quota_of(space).await? } else { None };
        match look::look(self.inner.storage.port(), space, of, round).await {
            Ok(usage) => {
                let measurement =
                    if look::nobody_counts(&usage) { self.inner.db.measurement(space.id).await? } else { None };
                let usage = with_own_limit(space, look::with_measured(usage, measurement));
                let is_other = self.note_state(space, None).await?;
                if self.note_usage(space, usage).await? || is_other {
                    self.pass_on(space.id).await?;
                }
                Ok(None)
            }
            Err(trouble) => {
                if self.note_state(space, Some(&trouble)).await? {
                    self.pass_on(space.id).await?;
                }
                Ok(Some(trouble.kind))
            }
        }
    }

    /// Looks at spaces that are there and were never looked at, the newest first, because somebody may wait for them. Ends at the first whose
    /// storage does not answer: all of them have their turn as well.
    pub async fn look_at_new(&self) -> Result<(), AppError> {
        let mut round = QuotaRound::default();
        for space in self.inner.db.spaces_never_seen(MOST_NEW).await? {
            match tokio::time::timeout(LONGEST_NEW, self.look_at(&space, &mut round)).await {
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(error),
                Ok(Ok(Some(_))) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Looks at one space out of turn, because it was changed just now. What a look cannot see now, the next one in turn does.
    pub async fn look_again(&self, id: SpaceId) -> Result<(), AppError> {
        if let Some(space) = self.inner.db.space(id).await? {
            self.look_at(&space, &mut QuotaRound::default()).await?;
        }
        Ok(())
    }

    /// Keeps what measuring a whole space came to, and looks at the space, so that it counts at once where the storage counts nothing. It is what the
    /// person's own process said, which may say anything: of a space they may only read it is kept for them alone, and counts for nobody.
    pub(crate) async fn note_measurement(&self, id: SpaceId, measurement: &Measurement) -> Result<(), AppError> {
        let Some(space) = self.inner.db.space(id).await? else { return Ok(()) };
        if !self.is_believed(&space, measurement.measured.by).await? {
            return Ok(());
        }
        self.inner.db.note_measurement(id, measurement, self.inner.clock.now()).await?;
        self.look_again(id).await
    }

    /// Whether what this person measured in a space counts for all who see it: it is theirs, or they may write to it and could fill it as well. Where
    /// the user database does not answer it does not.
    async fn is_believed(&self, space: &Space, by: UserId) -> Result<bool, AppError> {
        if space.owner_id() == Some(by) {
            return Ok(true);
        }
        let Some(user) = self.inner.db.user(by).await? else { return Ok(false) };
        Ok(matches!(self.reached(&user, space.clone()).await, Ok((_, Reach::Write))))
    }

    /// Tells those of the space's people who listen what is known of it now. It is not kept: whoever comes later reads the space.
    async fn pass_on(&self, id: SpaceId) -> Result<(), AppError> {
        let listening = self.inner.events.listening();
        let Some(space) = self.inner.db.space(id).await?.filter(|_| !listening.is_empty()) else { return Ok(()) };
        let owner = space.owner_id();
        let fact = Fact::Space(Box::new(self.show(space.clone()).await?));
        for person in listening.into_iter().filter(|person| owner.is_none_or(|owner| owner == *person)) {
            let Some(user) = self.inner.db.user(person).await? else { continue };
            // Whose groups cannot be told now is told nothing: the next change is.
            if self.reached(&user, space.clone()).await.is_ok() {
                self.inner.events.publish_transient(EventKind::Space, None, person, fact.clone());
            }
        }
        Ok(())
    }

    /// A round of looks, in which quotas are asked for together. Groups whose numbers cannot be told now are asked for by themselves.
    pub async fn begin_round(&self) -> Result<QuotaRound, AppError> {
        if !self.inner.storage.reads_quotas() {
            return Ok(QuotaRound::default());
        }
        let mut ids: Vec<QuotaId> = Vec::new();
        ids.extend(people::of_the_cluster(&self.inner.db).await?.iter().filter_map(|user| user.uid).map(QuotaId::User));
        let mut groups = BTreeSet::new();
        for space in self.inner.db.spaces_of_groups().await? {
            if let SpaceOwner::Group(group) = space.owner {
                groups.insert(group);
            }
        }
        for group in groups {
            ids.extend(self.inner.groups.number_of(&group).await.ok().flatten().map(QuotaId::Group));
        }
        Ok(QuotaRound::of(ids))
    }

    async fn quota_of(&self, space: &Space) -> Result<Option<QuotaId>, AppError> {
        Ok(match &space.owner {
            SpaceOwner::Person { id, .. } => self.uid(*id).await?.map(QuotaId::User),
            // A group whose number cannot be told now is asked for at the next look.
            SpaceOwner::Group(group) => self.inner.groups.number_of(group).await.ok().flatten().map(QuotaId::Group),
            SpaceOwner::Everybody => None,
        })
    }

    async fn uid(&self, person: UserId) -> Result<Option<u32>, AppError> {
        Ok(self.inner.db.user(person).await?.and_then(|user| user.uid))
    }

    /// Writes down whether the space could be seen; only a change is written. Says whether it was one.
    async fn note_state(&self, space: &Space, trouble: Option<&Trouble>) -> Result<bool, AppError> {
        let lasts = lasting(space);
        let (undetermined, reason) = match trouble {
            None => (false, lasts),
            Some(trouble) => (true, Some(lasts.unwrap_or_else(|| reason(trouble)))),
        };
        if (space.undetermined, &space.reason) == (undetermined, &reason) {
            return Ok(false);
        }
        // Whoever changed it meanwhile has the say; the next look sees that.
        Ok(self.inner.db.update_space(&Space { undetermined, reason, ..space.clone() }, &[]).await?)
    }

    /// Keeps what was seen, and says whether that is news of the space.
    async fn note_usage(&self, space: &Space, usage: Usage) -> Result<bool, AppError> {
        let now = self.inner.clock.now();
        let last = self.inner.db.usage(space.id).await?;
        let before = last.map_or(Level::Ok, |seen| seen.told);
        let holds = holding(&usage, now);
        let seen = SeenUsage { usage, level: level(&holds, self.inner.thresholds), told: before, seen_at: now };
        self.inner.db.note_usage(space.id, &seen).await?;
        let own = !matches!(usage.source, UsageSource::FileSystem | UsageSource::Nothing);
        // What was measured was so when it was, and is no news at every look.
        let is_new = usage.measured.is_none() || usage.measured != last.and_then(|last| last.usage.measured);
        if let (Some(used_bytes), true) = (usage.used_bytes, own && is_new) {
            let limit_bytes = match usage.limit_bytes {
                Some(Limit::At(limit)) => Some(limit),
                Some(Limit::Unlimited) | None => None,
            };
            let at = usage.measured.map_or(now, |measured| measured.at);
            let sample = UsageSample { at: the_hour(at), used_bytes, used_files: usage.used_files, limit_bytes };
            self.inner.db.insert_sample(space.id, &sample).await?;
        }
        let told = told_next(before, &holds, self.inner.thresholds);
        if told > before {
            // First whom, because nobody is told twice: where that is not known now, the next look tells them.
            if let Some(whom) = self.whom(space).await?
                && self.inner.db.note_told(space.id, before, told).await?
            {
                self.tell(&whom, space, &seen, told).await;
            }
        } else if told < before {
            self.inner.db.note_told(space.id, before, told).await?;
        }
        Ok(last.map(own_part) != Some(own_part(seen)))
    }

    /// Who is told how full a space is: its person, or those of its group, where they may write into it. None where the user database does not say
    /// now who they are.
    async fn whom(&self, space: &Space) -> Result<Option<Vec<UserId>>, AppError> {
        let group = match &space.owner {
            SpaceOwner::Person { id, .. } => return Ok(Some(vec![*id])),
            SpaceOwner::Group(group) if space.writable => group,
            SpaceOwner::Group(_) | SpaceOwner::Everybody => return Ok(Some(vec![])),
        };
        let asked = people::members(&self.inner.db, &self.inner.groups, group);
        // What is known of each is remembered for a while, so the next look does not begin at the first again.
        tokio::time::timeout(LONGEST_QUESTION, asked).await.map_or(Ok(None), |members| Ok(members?))
    }

    async fn tell(&self, whom: &[UserId], space: &Space, seen: &SeenUsage, level: Level) {
        let title = [("name", space.title.as_str())];
        let (code, text) = match level {
            // What it uses itself is the owner's to change; the file system is everybody's.
            _ if self.own_level(seen) < level => ("storage_nearly_full", say_with("space.storage_nearly_full", &title)),
            Level::Full => ("space_full", say_with("space.full", &title)),
            _ => ("space_nearly_full", say_with("space.nearly_full", &title)),
        };
        let data = json!({"code": code, "text": text.as_str(), "space": space.name, "level": level});
        for person in whom {
            self.inner.events.publish(EventKind::Notice, None, Some(*person), data.clone()).await;
        }
    }
}

/// What a look saw of the space itself: what others write to the same file system is no news of it.
fn own_part(seen: SeenUsage) -> (Level, Usage) {
    let usage = Usage { total_bytes: None, total_files: None, free_bytes: None, free_files: None, ..seen.usage };
    (seen.level, usage)
}

fn reason(trouble: &Trouble) -> Reason {
    match trouble.kind {
        TroubleKind::Missing => Reason::new("place_missing", say("space.place_missing")),
        TroubleKind::Refused => Reason::new("place_refused", say("space.place_refused")),
        TroubleKind::Away => Reason::new("storage_away", say("space.storage_away")),
        TroubleKind::Half => Reason::new("storage_half", say("space.storage_half")),
        TroubleKind::NotUnderstood => Reason::new("storage_not_understood", say("space.storage_not_understood")),
    }
}

/// What was seen, with the limit that the platform sets where the storage told none: then it is warned of and not held.
fn with_own_limit(space: &Space, seen: Usage) -> Usage {
    if seen.source == UsageSource::UserQuota && space.kind != SpaceKind::Home {
        // What is counted is all that its person has there: more than what the space's own limit is about.
        return seen;
    }
    let told = |limit: Option<Limit<u64>>| matches!(limit, Some(Limit::At(_)));
    let mut usage = seen;
    if !told(seen.limit_bytes.map(|limit| limit.map(|bytes| bytes.0))) && matches!(space.limit_bytes, Limit::At(_)) {
        usage.limit_bytes = Some(space.limit_bytes);
    }
    if !told(seen.limit_files.map(|limit| limit.map(|files| files.0))) && matches!(space.limit_files, Limit::At(_)) {
        usage.limit_files = Some(space.limit_files);
    }
    usage
}

/// The hour of a time: there is one sample an hour.
fn the_hour(now: Timestamp) -> Timestamp {
    let second = now.as_second();
    Timestamp::from_second(second - second.rem_euclid(HOUR_S)).unwrap_or(now)
}
