//! Limits of spaces on BeeGFS, which counts by person and group and never by directory. Where the space's root says so (`owner_limits`), what an
//! owner's spaces in a pool may hold together is what the owner may use there; only while each of them has a limit, or it would hold for those
//! that have none. Elsewhere the limit is not held, and says why.
//!
//! What was set is written down with the spaces it was judged by. Whenever those are other ones it is judged anew, by a reconciler, from the rows
//! alone; and what nobody wrote down is not taken back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use eirene_core::space::{LimitState, LimitedOwner, OwnerLimit};
use eirene_core::storage::{
    Bytes, Known, Limit, Partial, Place, PoolId, Quota, QuotaId, SharedStorage, StorageError, Why,
};
use eirene_core::{GroupName, RootName, Sentence, Space, SpaceName, SpaceOwner, SpaceState};
use eirene_words::{say, say_with};

use super::Making;
use super::limiting::Limited;
use super::steps::Trouble;
use super::waits::Waits;
use crate::error::AppError;
use crate::spaces::look::{BEEGFS, place_of};
use crate::storage::judge::MOUNTED;
use crate::storage::snapshot::{self, TroubleKind};

/// Nobody else is judged in a run after this time, so that spaces are made meanwhile.
const JUDGING: Duration = Duration::from_secs(35);
/// Longest wait for one owner. They may have a hundred spaces, and each that is there is asked for its pool.
const JUDGING_ONE: Duration = Duration::from_secs(30);
/// Longest wait for all of them in a run, which has its own end.
const JUDGING_ALL: Duration = Duration::from_secs(50);

/// What a limit that is being set says before what may be there until then.
const FROM: &str = "from ";

/// Owners who could not be judged, and by what they would have been.
pub type OwnerWaits = Waits<(QuotaId, PoolId), String>;

/// What an owner is limited to in a pool.
enum Judged {
    /// To what the limits of these spaces are together.
    Limited(Vec<Space>),
    /// To nothing: this space has no limit that could hold for its owner.
    Free(SpaceName),
    /// That is not known, because where this space lies is not.
    Unknown { space: SpaceName, said: String },
    /// The storage would not.
    Refused(String),
}

impl Making {
    /// Has the storage limit a space's owner, where that is how the space is limited; `said` is why its directory is not.
    pub(super) async fn limit_owner(&self, space: &Space, said: String) -> Result<Limited, Trouble> {
        let nothing = matches!((space.limit_bytes, space.limit_files), (Limit::Unlimited, Limit::Unlimited));
        let not_held = |text: String| {
            // There was nothing to take back.
            Ok(if nothing { (LimitState::Unset, None) } else { (LimitState::NotHeld, Some(text)) })
        };
        if !self.is_limited_by_owner(space) {
            return not_held(if self.lies_on_beegfs(space) { say("space.limit_by_owner").into() } else { said });
        }
        let pool = match pool_of(self.inner.storage.port(), &place_of(space)).await {
            Ok(Some(pool)) => pool,
            Ok(None) => return not_held(said),
            Err(trouble) => return not_held(away_or(trouble)?),
        };
        let id = match self.owner_id(space).await? {
            Ok(id) => id,
            Err(text) => return not_held(text.into()),
        };
        let Some(owner) = limited_owner(space) else { return not_held(say("space.limit_of_nobody").into()) };
        let others = match self.judge(&owner, id, pool, Some(space)).await? {
            Judged::Limited(spaces) => spaces.into_iter().filter(|other| other.id != space.id).collect::<Vec<_>>(),
            Judged::Free(other) if other == space.name => vec![],
            Judged::Free(other) => {
                return not_held(say_with("space.limit_shared", &[("other", other.as_str())]).into());
            }
            Judged::Unknown { space: other, said } => {
                let values = [("other", other.as_str()), ("said", said.as_str())];
                return not_held(say_with("space.limit_perhaps_shared", &values).into());
            }
            Judged::Refused(text) => return not_held(text),
        };
        let names: Vec<String> = others.iter().map(|other| format!("`{}`", other.name)).collect();
        Ok(match space.limit_files {
            _ if nothing => (LimitState::Unset, None),
            // What BeeGFS counts are pieces of files: a limit of those is another one.
            Limit::At(_) => (LimitState::NotHeld, Some(say("space.limit_of_files").into())),
            Limit::Unlimited if names.is_empty() => (LimitState::Held, None),
            Limit::Unlimited => {
                let text = say_with("space.limit_together", &[("others", &names.join(", "))]);
                (LimitState::NotHeld, Some(text.into()))
            }
        })
    }

    /// Judges anew what owners are limited to where their spaces are not any more what that was judged by: one came, went or was changed, or its
    /// root says something else. True where anybody was: what their spaces say of their limits may be due then.
    ///
    /// It ends after a while, and where the storage is away: it is for the others as well, and each question costs its whole patience. Who could not be
    /// judged waits, so that nobody stands in the way of those behind them. That one of them takes too long says nothing of the others: they may have
    /// fewer spaces, or ones that lie elsewhere.
    pub async fn judge_owners(&self, waits: &OwnerWaits) -> Result<bool, AppError> {
        let (begun, db) = (Instant::now(), &self.inner.db);
        let limits = db.owner_limits().await?;
        waits.keep(|(id, pool)| limits.iter().any(|limit| (limit.id, limit.pool) == (*id, *pool)));
        // For all groups at once: who is judged is read anew.
        let has_groups = limits.iter().any(|limit| matches!(limit.owner, LimitedOwner::Group(_)));
        let of_groups = if has_groups { db.spaces_of_groups().await? } else { vec![] };
        let mut is_anybody = false;
        for limit in limits {
            let judged_by = match &limit.owner {
                LimitedOwner::Person(id) => self.judged_by(&db.spaces_of_person(*id).await?),
                LimitedOwner::Group(group) => self.judged_by(of_groups.iter().filter(|space| is_of(space, group))),
            };
            let (who, now) = ((limit.id, limit.pool), self.inner.clock.now());
            if judged_by == limit.judged_by {
                // Perhaps by a step of one of their spaces.
                waits.remove(&who);
                continue;
            }
            if waits.has(&who, &judged_by, now) {
                continue;
            }
            if begun.elapsed() > JUDGING {
                break;
            }
            let judged = self.judge(&limit.owner, limit.id, limit.pool, None);
            let patience = JUDGING_ONE.min(JUDGING_ALL.saturating_sub(begun.elapsed()));
            let (said, is_away) = match tokio::time::timeout(patience, judged).await {
                Ok(Ok(Judged::Limited(_) | Judged::Free(_))) => {
                    waits.remove(&who);
                    is_anybody = true;
                    continue;
                }
                Ok(
                    Ok(Judged::Unknown { said, .. } | Judged::Refused(said)) | Err(Trouble::Refused { text: said, .. }),
                ) => (said, false),
                Ok(Err(Trouble::Away(said))) => (said, true),
                Ok(Err(Trouble::Failed(error))) => return Err(error),
                Err(_) => ("the storage took too long".to_owned(), false),
            };
            tracing::debug!(owner = ?limit.owner, said, "What an owner of spaces may use is not judged anew yet");
            waits.add(who, judged_by, now);
            if is_away {
                break;
            }
        }
        Ok(is_anybody)
    }

    /// Sees to it that an owner may use in a pool what the limits of their spaces there are together; nothing is set for them where one of those
    /// has none. Their other spaces than `of` are to say anew what became of their limits, if that is news.
    async fn judge(
        &self,
        owner: &LimitedOwner,
        id: QuotaId,
        pool: PoolId,
        of: Option<&Space>,
    ) -> Result<Judged, Trouble> {
        let (port, db) = (self.inner.storage.port(), &self.inner.db);
        let all = self.spaces_of(owner).await?;
        let before = db.owner_limit(id, pool).await.map_err(AppError::from)?;
        let has_limit = |space: &Space| self.is_limited_by_owner(space) && matches!(space.limit_bytes, Limit::At(_));
        if of.is_none() && !all.iter().any(has_limit) {
            // Wherever they lie: it may be that nobody finds some of them any more, as the home of who has left.
            return Ok(match self.end(before.as_ref(), &all, None).await? {
                Ok(()) => Judged::Limited(vec![]),
                Err(text) => Judged::Refused(text),
            });
        }
        let mut here: Vec<Space> = Vec::new();
        // Each root is asked once, however many were taken away in it.
        let mut of_roots: HashMap<&RootName, Option<PoolId>> = HashMap::new();
        for space in &all {
            // One that is not where people reach it is looked for in its root: what was taken away counts as well.
            let (place, known) = match space.state {
                SpaceState::Present => (place_of(space), None),
                SpaceState::Wanted | SpaceState::Retired | SpaceState::Gone => {
                    (Place::Root(space.root.clone()), of_roots.get(&space.root).copied())
                }
            };
            let its = match known {
                Some(its) => its,
                None => match pool_of(port, &place).await {
                    Ok(its) => its,
                    Err(trouble) => return Ok(Judged::Unknown { space: space.name.clone(), said: away_or(trouble)? }),
                },
            };
            if matches!(place, Place::Root(_)) {
                of_roots.insert(&space.root, its);
            }
            if its == Some(pool) {
                here.push(space.clone());
            }
        }
        let judged_by = self.judged_by(&all);
        let is_news = before.as_ref().is_none_or(|before| before.judged_by != judged_by);
        let mut sum = 0_u64;
        // Of its own spaces first the others: who has set no limit for one knows that.
        let (own, others): (Vec<&Space>, Vec<&Space>) =
            here.iter().partition(|space| of.is_some_and(|of| of.id == space.id));
        for space in others.into_iter().chain(own) {
            match space.limit_bytes {
                Limit::At(Bytes(bytes)) if self.is_limited_by_owner(space) => sum = sum.saturating_add(bytes),
                Limit::At(_) | Limit::Unlimited => {
                    return Ok(match self.end(before.as_ref(), &here, of).await? {
                        Ok(()) => Judged::Free(space.name.clone()),
                        Err(text) => Judged::Refused(text),
                    });
                }
            }
        }
        if here.is_empty() {
            return Ok(match self.end(before.as_ref(), &[], of).await? {
                Ok(()) => Judged::Limited(vec![]),
                Err(text) => Judged::Refused(text),
            });
        }
        // First that something is being set: whoever is killed then is followed by somebody who takes it for the platform's.
        let bytes = Bytes(sum);
        let being_set = being_set(before.as_ref());
        let mut limit = OwnerLimit { owner: owner.clone(), id, pool, bytes, judged_by: being_set };
        if is_news {
            db.put_owner_limit(&limit).await.map_err(AppError::from)?;
        }
        if let Err(NotSet { error, perhaps_it_is }) = set(port, id, pool, Limit::At(bytes)).await {
            let text = away_or(snapshot::Trouble::from(&error))?;
            // What may be set all the same is to be taken back one day; after a refusal everything is as it was.
            if is_news && !perhaps_it_is {
                let undone = match &before {
                    Some(before) => db.put_owner_limit(before).await,
                    None => db.forget_owner_limit(id, pool).await,
                };
                undone.map_err(AppError::from)?;
            }
            return Ok(Judged::Refused(text));
        }
        if is_news && self.say_anew(&here, of).await? {
            limit.judged_by = judged_by;
            db.put_owner_limit(&limit).await.map_err(AppError::from)?;
        }
        Ok(Judged::Limited(here))
    }

    /// Takes a limit back and forgets it, if there is one, and has these spaces say anew what became of theirs, but for one.
    async fn end(
        &self,
        limit: Option<&OwnerLimit>,
        spaces: &[Space],
        but: Option<&Space>,
    ) -> Result<Result<(), String>, Trouble> {
        let Some(limit) = limit else { return Ok(Ok(())) };
        if let Err(text) = self.take_back(limit).await? {
            return Ok(Err(text));
        }
        if self.say_anew(spaces, but).await? {
            self.inner.db.forget_owner_limit(limit.id, limit.pool).await.map_err(AppError::from)?;
        }
        Ok(Ok(()))
    }

    /// Takes a limit back that was set for the sake of spaces. One that somebody else has set since is theirs.
    async fn take_back(&self, limit: &OwnerLimit) -> Result<Result<(), String>, Trouble> {
        let port = self.inner.storage.port();
        let away_or = |error: StorageError| away_or(snapshot::Trouble::from(&error));
        let now = match port.quota(limit.id).await {
            // The limit is another storage's, of which this one's numbers say nothing.
            Ok(_) if port.name() == MOUNTED => return Ok(Err(away_or(StorageError::Unsupported("storage pools"))?)),
            Ok(now) => now,
            Err(error) => return Ok(Err(away_or(error)?)),
        };
        let pool = limit.pool.0;
        let its = now.value.iter().find(|quota| quota.pool == Some(limit.pool)).map(|quota| quota.limit);
        let is_ours = match (its, now.doubts.first()) {
            (Some(Known::Known(its)), _) => {
                let earlier = earlier(&limit.judged_by);
                its == Limit::At(limit.bytes) || earlier.into_iter().any(|bytes| its == Limit::At(Bytes(bytes)))
            }
            // Who uses nothing may be left out of an answer: what was written down is all that is known then.
            (Some(Known::Missing(Why::NeverMeasured | Why::NotEnabled)), _) => true,
            (Some(Known::Missing(why)), _) => {
                return Err(Trouble::Away(format!("the limit in storage pool {pool} is not told: {why}")));
            }
            (None, Some(doubt)) => {
                return Err(Trouble::Away(format!("half an answer, without storage pool {pool}: {}", doubt.text)));
            }
            // The pool is no more, and its limits went with it.
            (None, None) => false,
        };
        if !is_ours {
            return Ok(Ok(()));
        }
        match port.set_quota(limit.id, Some(limit.pool), Some(Limit::Unlimited), None).await {
            // It was carried out, and is not told: as of who uses nothing. What is not understood is no such answer, and is tried again.
            Ok(()) | Err(StorageError::NotReadBack { .. }) => Ok(Ok(())),
            Err(error) => Ok(Err(away_or(error)?)),
        }
    }

    /// Has spaces say anew what became of their limits, those that have any. False where somebody else was faster with one of them: then it is
    /// not over, and is judged once more.
    async fn say_anew(&self, spaces: &[Space], but: Option<&Space>) -> Result<bool, AppError> {
        let has_said = |space: &&Space| matches!(space.limit_state, LimitState::Held | LimitState::NotHeld);
        let others = spaces.iter().filter(has_said).filter(|space| but.is_none_or(|but| but.id != space.id));
        let mut is_written = true;
        for space in others.filter(|space| space.state == SpaceState::Present) {
            let anew = Space { limit_state: LimitState::Wanted, limit_said: None, ..space.clone() };
            is_written &= self.inner.db.update_space(&anew, &[]).await?;
        }
        Ok(is_written)
    }

    /// What a limit is judged by, in words that are the same only where that is the same.
    fn judged_by<'a>(&self, spaces: impl IntoIterator<Item = &'a Space>) -> String {
        let one = |space: &Space| {
            let bytes = match space.limit_bytes {
                Limit::At(Bytes(bytes)) if self.is_limited_by_owner(space) => bytes.to_string(),
                Limit::At(_) | Limit::Unlimited => "none".to_owned(),
            };
            format!("{}:{}:{bytes}", space.serial, space.state)
        };
        let mut all: Vec<String> = spaces.into_iter().map(one).collect();
        all.sort();
        // A limit of nobody's spaces is judged by something, too: what is without this word is being set.
        format!("by {}", all.join(" "))
    }

    fn is_limited_by_owner(&self, space: &Space) -> bool {
        self.root(&space.root).is_some_and(|root| root.owner_limits)
    }

    /// The spaces of an owner that are not gone.
    async fn spaces_of(&self, owner: &LimitedOwner) -> Result<Vec<Space>, AppError> {
        Ok(match owner {
            LimitedOwner::Person(id) => self.inner.db.spaces_of_person(*id).await?,
            LimitedOwner::Group(group) => {
                let mut spaces = self.inner.db.spaces_of_groups().await?;
                spaces.retain(|space| is_of(space, group));
                spaces
            }
        })
    }

    /// Whether a space's root is on BeeGFS, by the last look: nobody is asked for the sake of a sentence.
    fn lies_on_beegfs(&self, space: &Space) -> bool {
        let snapshot = self.inner.storage.snapshot();
        let root = snapshot.roots.iter().find(|root| root.name == space.root);
        root.and_then(|root| root.file_system.got()).is_some_and(|system| system.identity.kind == BEEGFS)
    }

    /// Whose quota a space's is, or why it is nobody's.
    async fn owner_id(&self, space: &Space) -> Result<Result<QuotaId, Sentence>, Trouble> {
        match &space.owner {
            SpaceOwner::Person { id, .. } => {
                let user = self.inner.db.user(*id).await.map_err(AppError::from)?;
                Ok(user.and_then(|user| user.uid).map(QuotaId::User).ok_or_else(|| say("wrong.no_person")))
            }
            SpaceOwner::Group(group) => match self.inner.groups.number_of(group).await {
                Ok(number) => Ok(number.map(QuotaId::Group).ok_or_else(|| say("wrong.no_group"))),
                Err(_) => Err(Trouble::Away("the user database did not answer".into())),
            },
            SpaceOwner::Everybody => Ok(Err(say("space.limit_of_nobody"))),
        }
    }
}

/// What a limit that is being set is judged by: nothing yet. It says what may be there until it is set, so that this is taken back as well and
/// nobody else's is.
fn being_set(before: Option<&OwnerLimit>) -> String {
    let Some(before) = before else { return String::new() };
    let mut all = earlier(&before.judged_by);
    all.push(before.bytes.0);
    all.sort_unstable();
    all.dedup();
    let all: Vec<String> = all.iter().map(u64::to_string).collect();
    format!("{FROM}{}", all.join(" "))
}

/// The bytes that may be there while another limit is being set; none of one that was set.
fn earlier(judged_by: &str) -> Vec<u64> {
    let all = judged_by.strip_prefix(FROM).unwrap_or_default();
    all.split(' ').filter_map(|bytes| bytes.parse().ok()).collect()
}

fn is_of(space: &Space, group: &GroupName) -> bool {
    matches!(&space.owner, SpaceOwner::Group(its) if its == group)
}

/// Who may be limited for a space's sake; of everybody's space that is nobody.
fn limited_owner(space: &Space) -> Option<LimitedOwner> {
    match &space.owner {
        SpaceOwner::Person { id, .. } => Some(LimitedOwner::Person(*id)),
        SpaceOwner::Group(group) => Some(LimitedOwner::Group(group.clone())),
        SpaceOwner::Everybody => None,
    }
}

/// The pool of BeeGFS in which new files of a place lie; none where it lies elsewhere.
async fn pool_of(port: &dyn SharedStorage, place: &Place) -> Result<Option<PoolId>, snapshot::Trouble> {
    let system = port.file_system(place).await.map_err(|error| snapshot::Trouble::from(&error))?;
    if system.identity.kind != BEEGFS {
        return Ok(None);
    }
    let entry = match port.entry(place).await {
        Ok(entry) => entry,
        Err(StorageError::Unsupported(_)) => return Ok(None),
        Err(error) => return Err(snapshot::Trouble::from(&error)),
    };
    let pool = entry.stripe.value().and_then(|stripe| stripe.pool.value());
    pool.map(|(pool, _)| Some(*pool)).ok_or_else(|| snapshot::Trouble {
        kind: TroubleKind::NotUnderstood,
        text: "the storage does not tell in which pool its files lie".into(),
    })
}

/// Why somebody is not limited, as far as anybody knows.
struct NotSet {
    error: StorageError,
    /// It was asked for, and nobody could read what came of it.
    perhaps_it_is: bool,
}

/// Has somebody limited in a pool, where that is not so already.
async fn set(port: &dyn SharedStorage, id: QuotaId, pool: PoolId, bytes: Limit<Bytes>) -> Result<(), NotSet> {
    let now: Result<Partial<Vec<Quota>>, StorageError> = port.quota(id).await;
    let now = now.map_err(|error| NotSet { error, perhaps_it_is: false })?;
    let is_so = |quota: &Quota| quota.pool == Some(pool) && quota.limit.value() == Some(&bytes);
    if now.value.iter().any(is_so) {
        return Ok(());
    }
    let set = port.set_quota(id, Some(pool), Some(bytes), None).await;
    set.map_err(|error| {
        let perhaps_it_is = matches!(error, StorageError::Malformed { .. } | StorageError::NotReadBack { .. });
        NotSet { error, perhaps_it_is }
    })
}

/// What was said instead, or that nothing was and it is worth asking again.
fn away_or(trouble: snapshot::Trouble) -> Result<String, Trouble> {
    match trouble.kind {
        TroubleKind::Away | TroubleKind::Half => Err(Trouble::Away(trouble.text)),
        TroubleKind::Missing | TroubleKind::Refused | TroubleKind::NotUnderstood => Ok(trouble.text),
    }
}
