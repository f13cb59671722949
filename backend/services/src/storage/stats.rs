//! What the storage's servers do now, and who asks how much of them: for admins.
//!
//! Servers say themselves what they did in their last second. Users and clients are *counted* since the servers were started, so a rate is the
//! difference of two counts by the time between them, and there is none before the second count. Counts are sums over servers: where one of
//! them fell, or somebody is not counted any more, a server was started anew, and no difference of that time is a rate of anybody.
//!
//! A server that does not answer is left out of the sums without a word, by BeeGFS's tool of 7 at least. So counts are doubted while a target of
//! that role was silent at the last look, and a count that is doubtful gives no rates.
//!
//! Counts are asked of the storage when somebody looks, and not oftener than every few seconds however many look; users are counted with every
//! look of the portal's own, too, for their history.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use eirene_core::Clock;
use eirene_core::storage::{
    Ability, Bytes, Doubt, DoubtAbout, Known, OperationCounts, OperationsKind, OperationsOf, Partial, Reach, Role,
    ServerSample, StorageError, Target, Why,
};
use eirene_database::{Db, DbError};
use eirene_words::{say, say_with};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, OnceCell};

use super::history::{History, KEPT, Load, Look, MOST, Point, UsersPoint};
use super::judge::{role_word, target_name};
use super::{Storage, away};
use crate::actor::Actor;
use crate::error::AppError;

/// Counts this young are good enough for whoever looks next.
const FRESH: SignedDuration = SignedDuration::from_secs(5);
/// Over a longer time a rate says nothing of now.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// Roles whose servers have a history.
const ROLES: [Role; 2] = [Role::Metadata, Role::Storage];
/// Users or clients that are kept and shown: those with the most operations.
const MOST_ROWS: usize = 2000;

/// What an answer is about when there is none: why, and a sentence.
pub type Missing = (Why, String);

/// What the servers of a role did in their last second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// One for each server; none where the storage does not say.
    pub answer: Partial<Vec<ServerSample>>,
    /// Why nothing came.
    pub missing: Option<Missing>,
}

/// What users or clients had done since the servers of a role were started, and how fast it grows.
#[derive(Debug, Clone, PartialEq)]
pub struct Operations {
    /// When it was counted.
    pub at: Timestamp,
    /// Seconds between the two counts that rates come from; none without rates.
    pub over_s: Option<f64>,
    /// A server was started anew since the count before, so there are no rates this time.
    pub restarted: bool,
    /// Most operations first.
    pub rows: Vec<Row>,
    /// Rows that are not shown.
    pub left_out: usize,
    /// What is doubtful.
    pub doubts: Vec<String>,
    /// Why nothing came.
    pub missing: Option<Missing>,
}

/// One user or client.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Counts since the servers were started.
    pub counts: OperationCounts,
    /// The same by the second, where there is a rate.
    pub per_s: Option<Rates>,
}

/// By the second.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// Operations.
    pub total: f64,
    /// Each of them that was not 0.
    pub by_name: Vec<(String, f64)>,
    /// Bytes read.
    pub read: Option<f64>,
    /// Bytes written.
    pub written: Option<f64>,
}

/// One count.
#[derive(Debug, Clone, PartialEq)]
struct Counted {
    at: Timestamp,
    rows: Vec<OperationCounts>,
    left_out: usize,
    /// Of everybody, also of who is left out.
    sum: Sum,
    doubts: Vec<String>,
}

/// What everybody had done together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sum {
    total: u128,
    read: Option<u128>,
    written: Option<u128>,
}

impl Sum {
    fn of(rows: &[OperationCounts]) -> Self {
        let bytes = |of: fn(&OperationCounts) -> Known<Bytes>| {
            rows.iter().map(|row| of(row).value().map(|bytes| u128::from(bytes.0))).sum::<Option<u128>>()
        };
        Self {
            total: rows.iter().map(|row| u128::from(row.total)).sum(),
            read: bytes(|row| row.read),
            written: bytes(|row| row.written),
        }
    }
}

impl Counted {
    fn new(at: Timestamp, answer: Partial<Vec<OperationCounts>>) -> Self {
        let Partial { value: mut rows, doubts } = answer;
        let sum = Sum::of(&rows);
        rows.sort_by_key(|row| std::cmp::Reverse(row.total));
        let left_out = rows.len().saturating_sub(MOST_ROWS);
        rows.truncate(MOST_ROWS);
        Self { at, rows, left_out, sum, doubts: doubts.into_iter().map(|doubt| doubt.text).collect() }
    }

    /// Whether all servers are in it.
    fn is_sure(&self) -> bool {
        self.doubts.is_empty()
    }

    /// Whether who is not in it had done nothing.
    fn is_whole(&self) -> bool {
        self.left_out == 0 && self.is_sure()
    }
}

/// The last two counts of a role's users or clients.
#[derive(Default)]
struct Kept {
    earlier: Option<Arc<Counted>>,
    latest: Option<Arc<Counted>>,
    /// The count at which the next point of the history begins.
    sampled: Option<Arc<Counted>>,
}

/// Statistics of the storage. Cheap to clone.
#[derive(Clone)]
pub struct StorageStats {
    storage: Storage,
    clock: Arc<dyn Clock>,
    db: Db,
    /// Users and clients, of metadata and storage servers.
    kept: Arc<[Mutex<Kept>; 4]>,
    history: Arc<History>,
    /// Whether what an earlier process had seen is in the history.
    recalled: Arc<OnceCell<()>>,
}

impl StorageStats {
    /// Statistics of `storage`, whose history is also in `db`.
    pub fn new(storage: Storage, clock: Arc<dyn Clock>, db: Db) -> Self {
        Self { storage, clock, db, kept: Arc::default(), history: Arc::default(), recalled: Arc::default() }
    }

    /// What the servers of a role did in their last second; for admins.
    pub async fn servers(&self, actor: &Actor, role: Role) -> Result<Servers, AppError> {
        actor.require_admin()?;
        match self.storage.port().server_stats(role, 0).await {
            Ok(mut answer) => {
                let silent = self.silence(role).map(|text| Doubt { about: DoubtAbout::Whole, text });
                answer.doubts.extend(silent);
                Ok(Servers { answer, missing: None })
            }
            Err(error) => {
                let missing = Some(missing(error)?);
                Ok(Servers { answer: Partial { value: vec![], doubts: vec![] }, missing })
            }
        }
    }

    /// The last minutes of a role's servers together, oldest first, as far as the portal has seen them; for admins.
    pub fn history(&self, actor: &Actor, role: Role, minutes: u32) -> Result<Vec<Point>, AppError> {
        actor.require_admin()?;
        let since = self.clock.now() - SignedDuration::from_mins(minutes.into());
        Ok(self.history.since(role, since))
    }

    /// Who asked how much of a role's servers in the last minutes, oldest first, as far as the portal has counted it; for admins.
    pub fn history_of_users(&self, actor: &Actor, role: Role, minutes: u32) -> Result<Vec<UsersPoint>, AppError> {
        actor.require_admin()?;
        let since = self.clock.now() - SignedDuration::from_mins(minutes.into());
        Ok(self.history.users_since(role, since))
    }

    /// Users or clients of a role's servers, with rates since they were last counted; for admins.
    pub async fn operations(&self, actor: &Actor, role: Role, of: OperationsKind) -> Result<Operations, AppError> {
        actor.require_admin()?;
        let mut kept = self.kept[slot(role, of)].lock().await;
        let nobody = Counted::new(self.clock.now(), nobody());
        if let Err(error) = self.count(&mut kept, role, of).await {
            let missing = Some(missing(error)?);
            return Ok(Operations { missing, ..compare(None, &nobody) });
        }
        Ok(compare(kept.earlier.as_deref(), kept.latest.as_deref().unwrap_or(&nobody)))
    }

    /// Reads once what was seen in the last day before the portal was started. Where that cannot be read now, it can be later.
    pub async fn recall(&self) {
        if let Err(error) = self.recalled.get_or_try_init(|| self.read_history()).await {
            tracing::warn!(%error, "What the servers did before was not read; the next look tries again");
        }
    }

    async fn read_history(&self) -> Result<(), DbError> {
        let now = self.clock.now();
        for role in ROLES {
            let looks = self.db.storage_looks(role_word(role), now - KEPT, now, MOST).await?;
            self.history.recall(role, &looks);
        }
        Ok(())
    }

    /// Adds what the servers did in the last `seconds`, and who asked how much since the last time, to the history, where the storage tells it.
    pub async fn sample(&self, seconds: u32) {
        let snapshot = self.storage.snapshot();
        let Some(can) = snapshot.capabilities.as_ref() else { return };
        let is_away = snapshot.nodes.away().is_some();
        for role in ROLES {
            // The sum of the others is no sum.
            let is_silent = is_away || self.silence(role).is_some();
            let mut look = Look::default();
            if can.server_stats == Ability::Yes && !is_silent {
                look.servers = self.sample_servers(role, seconds).await;
            }
            if can.user_stats == Ability::Yes {
                look.users = self.sample_users(role, is_silent).await;
            }
            self.keep(role, look).await;
        }
    }

    /// A database that is away costs the look when the portal is started anew, and nothing before.
    async fn keep(&self, role: Role, look: Look) {
        let stored = look.to_stored(self.clock.now());
        self.history.add(role, look);
        let written = match stored {
            Ok(Some(stored)) => self.db.put_storage_look(role_word(role), &stored).await.map_err(anyhow::Error::from),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "What the servers did was not written down, and ends with this process");
        }
    }

    async fn sample_servers(&self, role: Role, seconds: u32) -> Option<Point> {
        match self.storage.port().server_stats(role, seconds).await {
            Ok(answer) => Point::of(self.clock.now(), seconds, &answer),
            Err(error) => {
                tracing::debug!(%error, "What the servers do was not told");
                None
            }
        }
    }

    /// A point reaches from one round to the next; where one of them was not told, there is none.
    async fn sample_users(&self, role: Role, is_silent: bool) -> Option<UsersPoint> {
        let mut kept = self.kept[slot(role, OperationsKind::Users)].lock().await;
        let before = kept.sampled.take();
        if is_silent {
            return None;
        }
        if let Err(error) = self.count(&mut kept, role, OperationsKind::Users).await {
            tracing::debug!(%error, "Who asks how much was not told");
            return None;
        }
        let kept = &mut *kept;
        kept.sampled.clone_from(&kept.latest);
        asked(before?.as_ref(), kept.latest.as_deref()?)
    }
}

impl StorageStats {
    /// Counts users or clients, unless that was done a moment ago.
    async fn count(&self, kept: &mut Kept, role: Role, of: OperationsKind) -> Result<(), StorageError> {
        let now = self.clock.now();
        let is_fresh = |counted: &Counted| now.duration_since(counted.at).abs() < FRESH;
        if kept.latest.as_deref().is_some_and(is_fresh) {
            return Ok(());
        }
        let mut counted = Counted::new(now, self.storage.port().operations(role, of).await?);
        counted.doubts.extend(self.silence(role));
        let before = kept.latest.replace(Arc::new(counted));
        kept.earlier = before.filter(|before| now.duration_since(before.at).abs() < LONGEST);
        Ok(())
    }

    /// That a target of a role said nothing at the last look: whatever its server counted is in no sum.
    fn silence(&self, role: Role) -> Option<String> {
        let snapshot = self.storage.snapshot();
        let silent = |target: &&Target| {
            let reach = matches!(target.reach, Reach::Offline | Reach::ProbablyOffline);
            target.id.role == role && (reach || target.total.value().is_none())
        };
        let target = snapshot.targets.got()?.value.iter().find(silent)?;
        Some(say_with("finding.silent", &[("what", &target_name(target.id))]).into())
    }
}

fn nobody() -> Partial<Vec<OperationCounts>> {
    Partial { value: vec![], doubts: vec![] }
}

fn slot(role: Role, of: OperationsKind) -> usize {
    let role = usize::from(role == Role::Storage);
    let of = match of {
        OperationsKind::Users => 0,
        OperationsKind::Clients => 2,
    };
    role + of
}

/// Why nothing came, where that is an answer.
fn missing(error: StorageError) -> Result<Missing, AppError> {
    match error {
        StorageError::Unsupported(_) => Ok((Why::NotSupported, say("problem.no_stats").into())),
        StorageError::Refused { why, text } => Ok((why, text)),
        error => Err(away(&error)),
    }
}

/// The rates between two counts.
fn compare(earlier: Option<&Counted>, latest: &Counted) -> Operations {
    let over_s = earlier.map(|earlier| latest.at.duration_since(earlier.at).as_secs_f64()).filter(|over| *over > 0.0);
    let before = earlier.map(|earlier| by(earlier.rows.iter(), |row| row.of.clone()));
    let whole = earlier.is_some_and(|earlier| earlier.is_whole() && latest.is_whole());
    let sure = latest.is_sure() && earlier.is_some_and(Counted::is_sure);
    let restarted = match (earlier, &before) {
        (Some(earlier), Some(before)) => sure && fell(earlier, before, latest),
        _ => false,
    };
    let over_s = over_s.filter(|_| sure && !restarted);
    let rates = |row: &OperationCounts| {
        let (over_s, before) = (over_s?, before.as_ref()?);
        match before.get(&row.of) {
            Some(before) => rates(Some(before), row, over_s),
            // Somebody new, if the count before had everybody.
            None if whole => rates(None, row, over_s),
            None => None,
        }
    };
    let rows = latest.rows.iter().map(|row| Row { counts: row.clone(), per_s: rates(row) }).collect();
    Operations {
        at: latest.at,
        over_s,
        restarted,
        rows,
        left_out: latest.left_out,
        doubts: latest.doubts.clone(),
        missing: None,
    }
}

/// What was asked between two counts. Of whom it is not known what they had asked before, that is among all others.
fn asked(earlier: &Counted, latest: &Counted) -> Option<UsersPoint> {
    let Operations { over_s, rows, .. } = compare(Some(earlier), latest);
    let over_s = over_s?;
    let by_the_second = |before: u128, now: u128| Some(now.checked_sub(before)? as f64 / over_s);
    let bytes = |before: Option<u128>, now: Option<u128>| by_the_second(before?, now?);
    let all = Load {
        // Where everybody's operations are fewer, one who is left out of the counts has seen a server start anew.
        operations: by_the_second(earlier.sum.total, latest.sum.total)?,
        read: bytes(earlier.sum.read, latest.sum.read),
        written: bytes(earlier.sum.written, latest.sum.written),
    };
    let load = |Row { counts, per_s }: Row| {
        let Rates { total, read, written, .. } = per_s?;
        Some((counts.of, Load { operations: total, read, written }))
    };
    Some(UsersPoint::new(latest.at, over_s, rows.into_iter().filter_map(load).collect(), &all))
}

fn by<'a, T: 'a, K: Eq + Hash>(all: impl Iterator<Item = &'a T>, key: impl Fn(&T) -> K) -> HashMap<K, &'a T> {
    all.map(|one| (key(one), one)).collect()
}

/// Whether a count is less than it was, which no server's is while it runs. Who is missing from a count that may not be whole has not fallen.
fn fell(earlier: &Counted, before: &HashMap<OperationsOf, &OperationCounts>, latest: &Counted) -> bool {
    let now = by(latest.rows.iter(), |row| row.of.clone());
    let vanished = latest.is_whole() && earlier.rows.iter().any(|row| row.total > 0 && !now.contains_key(&row.of));
    let less = latest.rows.iter().any(|row| before.get(&row.of).is_some_and(|before| is_less(before, row)));
    vanished || less
}

fn is_less(before: &OperationCounts, now: &OperationCounts) -> bool {
    let names = by(now.by_name.iter(), |(name, _)| name.clone());
    let of_name = |(name, count): &(String, u64)| names.get(name).map_or(0, |(_, now)| *now) < *count;
    let of_bytes = |before: u64, now: Option<u64>| now.is_some_and(|now| now < before);
    let read = before.read.value().is_some_and(|read| of_bytes(read.0, now.read.value().map(|now| now.0)));
    let written = before.written.value().is_some_and(|wr| of_bytes(wr.0, now.written.value().map(|now| now.0)));
    now.total < before.total || before.by_name.iter().any(of_name) || read || written
}

/// What grew from `before`, or from nothing, by the second. Nothing here fell.
fn rates(before: Option<&OperationCounts>, now: &OperationCounts, over_s: f64) -> Option<Rates> {
    #[expect(clippy::cast_precision_loss, reason = "a rate is no count")]
    let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 / over_s);
    let names = before.map(|before| by(before.by_name.iter(), |(name, _)| name.clone()));
    let of_name = |name: &String| names.as_ref().and_then(|names| names.get(name)).map_or(0, |(_, count)| *count);
    let bytes = |before: Option<Known<Bytes>>, now: Known<Bytes>| {
        let before = match before {
            Some(before) => before.value()?.0,
            None => 0,
        };
        rate(before, now.value()?.0)
    };
    let by_name = now.by_name.iter().map(|(name, count)| Some((name.clone(), rate(of_name(name), *count)?)));
    let by_name: Option<Vec<_>> = by_name.collect();
    Some(Rates {
        total: rate(before.map_or(0, |before| before.total), now.total)?,
        by_name: by_name?.into_iter().filter(|(_, rate)| *rate > 0.0).collect(),
        read: bytes(before.map(|before| before.read), now.read),
        written: bytes(before.map(|before| before.written), now.written),
    })
}

#[cfg(test)]
mod tests;
