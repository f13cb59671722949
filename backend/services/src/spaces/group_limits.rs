//! What a person's groups may use on the storage itself: whoever fills a group's limit hits it wherever they write, so its members see it, also
//! where no space tells them. Only groups that the user database says the person is in are asked for; who of a group uses how much is told nobody.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use eirene_core::space::{Level, SpaceState, Usage, UsageSource};
use eirene_core::storage::{Known, Limit, PoolId, Quota, QuotaId, Why};
use eirene_core::{GroupName, Scope, SpaceOwner};
use eirene_words::say;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use super::level::level;
use super::quotas::{Answer, QuotaRound};
use super::{LOOK_HOLDS, RETRY_AFTER_S, Spaces, away};
use crate::actor::Actor;
use crate::cause;
use crate::error::AppError;

/// How long an answer is kept: as long as lies between two looks at spaces.
const HOLDS: SignedDuration = SignedDuration::from_mins(5);
/// How long it is that the storage has just not answered.
const FAILURE_HOLDS: SignedDuration = SignedDuration::from_secs(30);
/// How long one asks after another: a storage that hangs has no queue before it.
const TURN: Duration = Duration::from_secs(5);

/// What the storage last said of groups.
#[derive(Default)]
pub(super) struct GroupQuotas {
    told: std::sync::Mutex<HashMap<GroupName, Told>>,
    asking: Mutex<()>,
}

/// What the storage said of a group, and when; nothing where it did not answer.
#[derive(Clone)]
struct Told {
    at: Timestamp,
    quotas: Option<Vec<Quota>>,
}

impl Told {
    fn holds(&self, now: Timestamp) -> bool {
        now.duration_since(self.at).abs() < if self.quotas.is_some() { HOLDS } else { FAILURE_HOLDS }
    }
}

/// What a group uses and may use, in one pool where there are several.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupLimit {
    /// The group.
    pub group: GroupName,
    /// The pool, or what has a number in a pool's place.
    pub pool: Option<PoolId>,
    /// What it uses and may use, wherever that lies.
    pub usage: Usage,
    /// How full that is, by the rules of spaces.
    pub level: Level,
}

impl Spaces {
    /// The limits of a person's groups, by name. One that a space of the group shows already is left out. Whoever asks waits for the storage as long
    /// as `wait`; what it says later is there for whoever asks next.
    pub async fn group_limits(&self, actor: &Actor, wait: Duration) -> Result<Vec<GroupLimit>, AppError> {
        actor.require(Scope::FilesRead)?;
        if !self.inner.storage.may_tell_quotas() {
            return Ok(vec![]);
        }
        let groups = self.groups(&actor.user).await.map_err(away)?;
        let mut limits = Vec::new();
        for (group, quotas) in self.asked_for(groups, wait).await? {
            let limited: Vec<&Quota> = quotas.iter().filter(|quota| is_limited(quota)).collect();
            // Of several pools a space tells one, and nobody knows here which.
            if !limited.is_empty() && quotas.len() == 1 && self.is_told_by_a_space(actor, &group).await? {
                continue;
            }
            limits.extend(limited.into_iter().map(|quota| self.group_limit(&group, quota)));
        }
        limits.sort_by(|a, b| (&a.group, a.pool).cmp(&(&b.group, b.pool)));
        // A user database may name a group twice.
        limits.dedup();
        Ok(limits)
    }

    fn group_limit(&self, group: &GroupName, quota: &Quota) -> GroupLimit {
        let usage = Usage {
            source: UsageSource::BeegfsGroup,
            used_bytes: quota.used.value().copied(),
            limit_bytes: quota.limit.value().copied(),
            used_files: quota.files_used.value().copied(),
            limit_files: quota.files_limit.value().copied(),
            total_bytes: None,
            total_files: None,
            free_bytes: None,
            free_files: None,
            missing: None,
            measured: None,
        };
        let level = level(&usage, self.inner.thresholds);
        GroupLimit { group: group.clone(), pool: quota.pool, usage, level }
    }

    /// Whether one of the group's spaces that the person sees shows what the group has altogether.
    async fn is_told_by_a_space(&self, actor: &Actor, group: &GroupName) -> Result<bool, AppError> {
        let (spaces, _) = self.listed(actor).await?;
        let now = self.inner.clock.now();
        for space in spaces {
            let is_its = space.state == SpaceState::Present
                && matches!(&space.owner, SpaceOwner::Group(owner) if owner == group);
            let seen = if is_its { self.inner.db.usage(space.id).await? } else { None };
            let is_fresh = seen.as_ref().is_some_and(|seen| now.duration_since(seen.seen_at) < LOOK_HOLDS);
            if is_fresh && seen.is_some_and(|seen| seen.usage.source == UsageSource::BeegfsGroup) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The quotas of groups. They are asked for in a task of its own, which goes on when whoever asked waits no longer.
    async fn asked_for(
        &self,
        groups: Arc<[GroupName]>,
        wait: Duration,
    ) -> Result<Vec<(GroupName, Vec<Quota>)>, AppError> {
        if self.unknown(&groups).is_empty() {
            return self.told(&groups);
        }
        let (spaces, asked) = (self.clone(), Arc::clone(&groups));
        let asking = cause::spawn(async move { spaces.ask(&asked).await });
        match tokio::time::timeout(wait, asking).await {
            Ok(Ok(asked)) => asked.and_then(|()| self.told(&groups)),
            Ok(Err(error)) => Err(AppError::Internal(error.into())),
            Err(_) => Err(storage_away()),
        }
    }

    /// Those of the groups of which nobody asked of late.
    fn unknown(&self, groups: &[GroupName]) -> Vec<GroupName> {
        let now = self.inner.clock.now();
        let mut told = self.inner.group_quotas.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, told| told.holds(now));
        groups.iter().filter(|group| !told.contains_key(*group)).cloned().collect()
    }

    /// What is known of groups; that the storage is away where it did not answer of one.
    fn told(&self, groups: &[GroupName]) -> Result<Vec<(GroupName, Vec<Quota>)>, AppError> {
        let told = self.inner.group_quotas.told.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |group: &GroupName| Some((group.clone(), told.get(group)?.quotas.clone()?));
        groups.iter().map(|group| of(group).ok_or_else(storage_away)).collect()
    }

    fn note(&self, group: GroupName, quotas: Option<Vec<Quota>>) {
        let told = Told { at: self.inner.clock.now(), quotas };
        self.inner.group_quotas.told.lock().unwrap_or_else(PoisonError::into_inner).insert(group, told);
    }

    /// Asks the storage, by one at a time, for what nobody asked of late.
    async fn ask(&self, groups: &[GroupName]) -> Result<(), AppError> {
        let turn = tokio::time::timeout(TURN, self.inner.group_quotas.asking.lock()).await;
        let _turn = turn.map_err(|_| storage_away())?;
        let mut numbers = Vec::new();
        for group in self.unknown(groups) {
            match self.number_of_group(&group).await? {
                Some(number) => numbers.push((group, QuotaId::Group(number))),
                None => self.note(group, Some(vec![])),
            }
        }
        let mut round = QuotaRound::of(numbers.iter().map(|(_, id)| *id));
        for (group, id) in numbers {
            let quotas = match round.quotas(self.inner.storage.port(), id).await {
                Answer::Quotas(quotas) => {
                    // Half an answer without this group is none.
                    let is_half = (quotas.value.is_empty() && !quotas.doubts.is_empty())
                        || quotas.value.iter().any(did_not_answer);
                    (!is_half).then_some(quotas.value)
                }
                Answer::None(_) => Some(vec![]),
                Answer::Failed(_) => None,
            };
            self.note(group, quotas);
        }
        Ok(())
    }
}

fn did_not_answer(quota: &Quota) -> bool {
    matches!(quota.limit, Known::Missing(Why::DidNotAnswer))
        || matches!(quota.files_limit, Known::Missing(Why::DidNotAnswer))
}

fn is_limited(quota: &Quota) -> bool {
    matches!(quota.limit.value(), Some(Limit::At(_))) || matches!(quota.files_limit.value(), Some(Limit::At(_)))
}

fn storage_away() -> AppError {
    AppError::Unavailable { what: say("away.storage"), retry_after_s: RETRY_AFTER_S }
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::Bytes;
    use eirene_core::{Role, TokenId};

    use super::*;
    use crate::actor::Via;
    use crate::spaces::testing::a_space;
    use crate::testing::{StorageMood, TestApp};

    const LONG: Duration = Duration::from_mins(1);

    /// A portal whose storage tells that everybody, and every group, uses 8 of so many bytes; ada is in physics.
    async fn world(limit: Limit<u64>) -> (TestApp, Actor) {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        test.groups.add("ada", "physics");
        test.storage.state().users = Some((8, limit));
        look_at_the_storage(&test).await;
        (test, ada)
    }

    async fn look_at_the_storage(test: &TestApp) {
        test.clock.advance_s(11 * 60);
        test.app.storage.look().await;
    }

    fn told(limits: &[GroupLimit]) -> Vec<(&str, Option<u16>, Option<u64>, Level)> {
        let one = |limit: &GroupLimit| limit.usage.used_bytes.map(|bytes| bytes.0);
        limits
            .iter()
            .map(|limit| (limit.group.as_str(), limit.pool.map(|pool| pool.0), one(limit), limit.level))
            .collect()
    }

    #[tokio::test]
    async fn members_see_what_their_groups_may_use_and_nobody_else_does() {
        let (test, ada) = world(Limit::At(10)).await;
        let grace = test.person("grace", 2002, Role::Researcher).await;
        let spaces = &test.app.spaces;
        let hers = spaces.group_limits(&ada, LONG).await.unwrap();
        assert_eq!(told(&hers), [("physics", None, Some(8), Level::Warning)]);
        assert_eq!(hers[0].usage.limit_bytes, Some(Limit::At(Bytes(10))));
        assert_eq!(spaces.group_limits(&grace, LONG).await.unwrap(), []);
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        assert_eq!(spaces.group_limits(&admin, LONG).await.unwrap(), [], "admins are asked for by number, elsewhere");
        let via = Via::Token { id: TokenId::generate(), scopes: Scope::DEFAULT.to_vec() };
        let refused = spaces.group_limits(&Actor { via, ..ada }, LONG).await;
        assert!(matches!(refused, Err(AppError::Forbidden { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn the_storage_is_asked_once_for_all_members_and_again_when_that_is_old() {
        let (test, ada) = world(Limit::At(10)).await;
        let grace = test.person("grace", 2002, Role::Researcher).await;
        test.groups.add("grace", "physics");
        test.storage.state().questions.clear();
        for actor in [&ada, &grace, &ada] {
            assert_eq!(test.app.spaces.group_limits(actor, LONG).await.unwrap().len(), 1);
        }
        assert_eq!(test.storage.state().questions, [(5000, 5000)]);
        test.storage.state().users = Some((10, Limit::At(10)));
        test.clock.advance_s(5 * 60);
        let now = test.app.spaces.group_limits(&ada, LONG).await.unwrap();
        assert_eq!(told(&now), [("physics", None, Some(10), Level::Full)]);
    }

    #[tokio::test]
    async fn no_limit_is_none_and_what_is_not_known_is_no_limit_that_is_kept() {
        let (test, ada) = world(Limit::Unlimited).await;
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap(), []);
        let (test, ada) = world(Limit::At(10)).await;
        test.storage.state().mood = StorageMood::Away;
        let away = test.app.spaces.group_limits(&ada, LONG).await;
        assert!(matches!(away, Err(AppError::Unavailable { .. })), "{away:?}");
        test.storage.state().mood = StorageMood::Good;
        let away = test.app.spaces.group_limits(&ada, LONG).await;
        assert!(matches!(away, Err(AppError::Unavailable { .. })), "it is left alone for a moment: {away:?}");
        test.clock.advance_s(30);
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap().len(), 1, "no failure is kept");
        test.clock.advance_s(5 * 60);
        test.storage.state().limit_missing = Some(Why::DidNotAnswer);
        let half = test.app.spaces.group_limits(&ada, LONG).await;
        assert!(matches!(half, Err(AppError::Unavailable { .. })), "half an answer is no word of a limit: {half:?}");
        test.clock.advance_s(5 * 60);
        test.groups.go_away();
        let away = test.app.spaces.group_limits(&ada, LONG).await;
        assert!(matches!(away, Err(AppError::Unavailable { .. })), "{away:?}");
    }

    #[tokio::test]
    async fn a_storage_that_counts_for_nobody_is_not_asked() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        test.groups.add("ada", "physics");
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap(), [], "nobody has looked yet");
        look_at_the_storage(&test).await;
        test.storage.state().mood = StorageMood::Away;
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap(), []);
    }

    #[tokio::test]
    async fn what_a_space_of_the_group_tells_is_not_told_twice_but_other_pools_are() {
        let (test, ada) = world(Limit::At(10)).await;
        let owner = SpaceOwner::Group("physics".parse().unwrap());
        let space = test.app.db.insert_space(a_space(owner), &[]).await.unwrap();
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap().len(), 1, "nobody has looked at the space");
        test.storage.state().kind = "beegfs";
        test.app.spaces.look_at(&space, &mut QuotaRound::default()).await.unwrap();
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap(), []);
        test.clock.advance_s(60 * 60);
        assert_eq!(
            test.app.spaces.group_limits(&ada, LONG).await.unwrap().len(),
            1,
            "nobody has looked at it for long"
        );
        test.storage.state().quota_pools = vec![1, 2];
        test.clock.advance_s(5 * 60);
        let both = test.app.spaces.group_limits(&ada, LONG).await.unwrap();
        let expected = [("physics", Some(1), Some(8), Level::Warning), ("physics", Some(2), Some(16), Level::Full)];
        assert_eq!(told(&both), expected);
    }

    #[tokio::test]
    async fn who_waits_no_longer_leaves_the_answer_to_whoever_asks_next() {
        let (test, ada) = world(Limit::At(10)).await;
        let asking = test.app.spaces.inner.clone();
        let turn = asking.group_quotas.asking.lock().await;
        let none = test.app.spaces.group_limits(&ada, Duration::from_millis(1)).await;
        assert!(matches!(none, Err(AppError::Unavailable { .. })), "{none:?}");
        drop(turn);
        assert_eq!(test.app.spaces.group_limits(&ada, LONG).await.unwrap().len(), 1);
    }
}
