//! What is to be done to a space whose time is over. This only says what would be right; [`policing`](super::policing) carries it out.
//!
//! A step needs a reason that was seen, and everything that could make the reason a mistake looked at: the same directory of the same file
//! system, a clock that went on as clocks do, a user database that knows the others. Whatever is missing makes the answer *undetermined*, and
//! then nothing is done. The age of files is no reason here, and when they were last read is not even asked.
//!
//! The steps: warn → retire (restorable) → wait → remove. A warning that did not reach its owner holds up what comes after it.
//!
//! Time that was promised is counted and not subtracted: each look adds what has passed since the one before, if that is what passes between two
//! looks. So a clock that jumps, and a portal that was down, make nobody wait less. Where nothing was promised yet there is nothing to count: there
//! the first step waits until looks have come in time for some hours, so that a clock that is set right again meanwhile has told nobody anything.

use eirene_core::space::{Evidence, EvidenceKind, MadeAt, Policy, PolicyStep, SpaceDesired, Warned};
use eirene_core::storage::Identity;
use eirene_core::{Space, SpaceKind, SpaceOwner, SpaceState};
use jiff::{SignedDuration, Timestamp};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Days on which somebody has to be missing, and so many days from the first to the last.
const ABSENT_TIMES: u32 = 7;
const ABSENT_FOR: SignedDuration = SignedDuration::from_hours(6 * 24);
/// What was seen longer ago is not so any more.
const FRESH: SignedDuration = SignedDuration::from_hours(2 * 24);
/// How long looks have to have come in time before the first step with a space of which nobody was told anything. It is shorter than the time between
/// two restarts of a portal that is restarted every night.
const STEADY: SignedDuration = SignedDuration::from_hours(6);
/// How far the clocks of the portal and of the storage may be apart.
const CLOCKS_APART: SignedDuration = SignedDuration::from_mins(5);

/// What a look saw of the place where a space should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceSeen {
    /// The file system.
    pub identity: Identity,
    /// Inode of the space's directory.
    pub inode: u64,
    /// What the storage took for the time when a file was made there just now.
    pub file_time: Timestamp,
}

/// What the user database answered just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeopleSeen {
    /// It knows the account that is always there.
    pub canary: bool,
    /// People who may sign in here and whom it was asked for. Whoever was disabled here has often gone there, and says nothing of its health.
    pub asked: u32,
    /// Of these it knows.
    pub found: u32,
}

impl PeopleSeen {
    /// Whether it can be a healthy one: a database that has lost many people is more likely to be ill than they are to have gone.
    pub fn is_plausible(self) -> bool {
        self.canary && self.asked > 0 && u64::from(self.found) * 10 >= u64::from(self.asked) * 9
    }
}

/// Everything a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The space.
    pub space: &'a Space,
    /// Its root's policy.
    pub policy: &'a Policy,
    /// What was seen of it before.
    pub evidence: &'a [Evidence],
    /// The place now; none when the storage did not answer.
    pub place: Option<&'a PlaceSeen>,
    /// The user database now; none when it did not answer.
    pub people: Option<PeopleSeen>,
    /// When the last look began; none after a start.
    pub last_look: Option<Timestamp>,
    /// Since when looks have come in time, the last one included; none after a start.
    pub steady_since: Option<Timestamp>,
    /// Time between two looks.
    pub interval: SignedDuration,
    /// Now.
    pub now: Timestamp,
}

/// What is right to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is due.
    Nothing,
    /// This step.
    Do(Step),
    /// This step, if the policy were not on trial.
    Would(Step),
    /// Something is due, and it cannot be known whether it is right: do nothing.
    Undetermined(Doubt),
}

/// A step and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Tell the owner that the space ends within so many days.
    Warn {
        /// Days.
        days: u32,
    },
    /// Take it away.
    Retire(Cause),
    /// Remove it for good.
    Remove,
}

impl Step {
    /// The step's word.
    pub fn word(self) -> PolicyStep {
        match self {
            Self::Warn { .. } => PolicyStep::Warn,
            Self::Retire(_) => PolicyStep::Retire,
            Self::Remove => PolicyStep::Remove,
        }
    }
}

/// Why a space is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is past its end, and its owner was told.
    Expired,
    /// Its owner is not in the user database, and has not been for days.
    PersonAbsent,
}

/// Why it cannot be known what is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// The storage did not answer, or was not asked.
    #[error("the storage did not answer")]
    StorageAway,
    /// It is not known where the space was made.
    #[error("it was never noted where the space was made")]
    PlaceUnknown,
    /// Another file system lies there, or none of which anything is known.
    #[error("the file system is not the one the space was made on, or its root has no marker")]
    OtherFileSystem,
    /// Another directory lies there.
    #[error("the directory is not the one that was made")]
    OtherDirectory,
    /// It was not looked at before, too long ago, or not regularly for long enough.
    #[error("it was not looked at regularly, or not for six hours yet")]
    NotWatched,
    /// The clock went back, or the storage's is another.
    #[error("the clock of the portal or of the storage is wrong")]
    Clock,
    /// The user database does not answer, or does not know those it should.
    #[error("the user database does not answer as it should")]
    People,
}

/// Whether somebody waits for what was promised of a space, so that time is counted.
pub(super) fn is_waited_for(space: &Space) -> bool {
    space.state == SpaceState::Retired || !space.warned.is_empty()
}

/// Whether this is what passes between two looks.
pub(super) fn is_in_time(since: SignedDuration, interval: SignedDuration) -> bool {
    !since.is_negative() && since <= interval * 2
}

/// Notes that a space is looked at now, and counts the time since the last look, if nothing is wrong with that.
pub(super) fn watch(space: &mut Space, now: Timestamp, interval: SignedDuration) {
    // What was told by a clock that was ahead is told again when it is time.
    space.warned.retain(|warned| warned.at <= now);
    let Some(before) = space.watched_at.replace(now) else { return };
    let since = now.duration_since(before);
    if !is_in_time(since, interval) {
        return;
    }
    let passed = since.as_secs();
    // Only whole seconds are counted: the rest is left to the next look.
    space.watched_at = Some(before + SignedDuration::from_secs(passed));
    let passed = passed.unsigned_abs();
    match space.state {
        SpaceState::Retired => space.kept_s = space.kept_s.saturating_add(passed),
        SpaceState::Present => {
            for warned in &mut space.warned {
                warned.waited_s = warned.waited_s.saturating_add(passed);
            }
        }
        SpaceState::Wanted | SpaceState::Gone => {}
    }
}

/// What is right to do now.
pub fn decide(situation: &Situation<'_>) -> Decision {
    let Some(step) = due(situation) else { return Decision::Nothing };
    if let Err(doubt) = check(situation).and_then(|()| check_first(situation, step)) {
        return Decision::Undetermined(doubt);
    }
    if situation.policy.dry_run { Decision::Would(step) } else { Decision::Do(step) }
}

/// The step that is due by the row and the evidence alone.
fn due(situation: &Situation<'_>) -> Option<Step> {
    let Situation { space, now, .. } = *situation;
    if space.kind == SpaceKind::Home {
        return None;
    }
    match (space.state, space.desired) {
        (SpaceState::Present, SpaceDesired::Present) => expiry(situation).or_else(|| absence(situation)),
        (SpaceState::Retired, SpaceDesired::Retired) => {
            let grace = DAY * i32::try_from(situation.policy.grace_days).unwrap_or(i32::MAX);
            let (since, promised) = (space.retired_at?, space.remove_after?);
            let over = now >= promised && now >= since.checked_add(grace).ok()?;
            (over && seconds(space.kept_s) >= grace.max(promised.duration_since(since))).then_some(Step::Remove)
        }
        _ => None,
    }
}

fn expiry(situation: &Situation<'_>) -> Option<Step> {
    let Situation { space, policy, now, .. } = *situation;
    let end = space.expires_at?;
    let before = |days: u32| end.checked_sub(DAY * i32::try_from(days).unwrap_or(i32::MAX)).ok();
    // Of several that are due the last one says it all.
    let warning = policy.warn_days.iter().copied().filter(|days| before(*days).is_some_and(|day| now >= day)).min();
    if let Some(days) = warning
        && !space.warned.iter().any(|warned| warned.days <= days)
    {
        return Some(Step::Warn { days });
    }
    let promised = |warned: &Warned| DAY * i32::try_from(warned.days).unwrap_or(i32::MAX);
    // Whoever was told "in three days" has three days, also when they were told late.
    let in_full = |warned: &Warned| {
        let until = warned.at.checked_add(promised(warned));
        until.is_ok_and(|until| now >= until) && seconds(warned.waited_s) >= promised(warned)
    };
    // And whoever was told in time has what there was until the end, however soon a later warning came.
    let until_the_end =
        |warned: &Warned| seconds(warned.waited_s) >= promised(warned).min(end.duration_since(warned.at));
    let told = space.warned.iter().any(in_full) && space.warned.iter().all(until_the_end);
    (now >= end && (told || policy.warn_days.is_empty())).then_some(Step::Retire(Cause::Expired))
}

/// Time that was counted.
fn seconds(counted: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(counted).unwrap_or(i64::MAX))
}

fn absence(situation: &Situation<'_>) -> Option<Step> {
    if !matches!(situation.space.owner, SpaceOwner::Person { .. }) {
        return None;
    }
    let seen = situation.evidence.iter().find(|evidence| evidence.what == EvidenceKind::PersonAbsent)?;
    let age = situation.now.duration_since(seen.last_at);
    let long = seen.times >= ABSENT_TIMES && seen.last_at.duration_since(seen.first_at) >= ABSENT_FOR;
    (long && !age.is_negative() && age <= FRESH).then_some(Step::Retire(Cause::PersonAbsent))
}

/// Everything that could make the reason for a step a mistake.
pub(super) fn check(situation: &Situation<'_>) -> Result<(), Doubt> {
    let Situation { space, now, interval, .. } = *situation;
    let place = situation.place.ok_or(Doubt::StorageAway)?;
    let made = check_file_system(space, Some(&place.identity))?;
    if made.inode != place.inode {
        return Err(Doubt::OtherDirectory);
    }
    let since = now.duration_since(situation.last_look.ok_or(Doubt::NotWatched)?);
    if since.is_negative() {
        return Err(Doubt::Clock);
    }
    if since > interval * 2 {
        return Err(Doubt::NotWatched);
    }
    if now.duration_since(place.file_time).abs() > CLOCKS_APART {
        return Err(Doubt::Clock);
    }
    if situation.people.is_some_and(PeopleSeen::is_plausible) { Ok(()) } else { Err(Doubt::People) }
}

/// That a step that nothing was counted for does not come of a clock that has just jumped. Who was missed was missed on several days.
fn check_first(situation: &Situation<'_>, step: Step) -> Result<(), Doubt> {
    if is_waited_for(situation.space) || step == Step::Retire(Cause::PersonAbsent) {
        return Ok(());
    }
    let is_steady = situation.steady_since.is_some_and(|since| situation.now.duration_since(since) >= STEADY);
    if is_steady { Ok(()) } else { Err(Doubt::NotWatched) }
}

/// That a space's file system is the one it was made on, by what was seen of it; none where it did not answer. Says what was made there.
pub(super) fn check_file_system<'a>(space: &'a Space, seen: Option<&Identity>) -> Result<&'a MadeAt, Doubt> {
    let seen = seen.filter(|_| !space.undetermined).ok_or(Doubt::StorageAway)?;
    let made = space.made_at.as_ref().ok_or(Doubt::PlaceUnknown)?;
    if same_place(&made.identity, seen) { Ok(made) } else { Err(Doubt::OtherFileSystem) }
}

/// Whether two looks were at the same file system, beyond doubt: both have seen the mount point and a marker.
fn same_place(made: &Identity, seen: &Identity) -> bool {
    made.root_inode.is_some()
        && made.marker.is_some()
        && (&made.kind, &made.source, made.root_inode, &made.marker)
            == (&seen.kind, &seen.source, seen.root_inode, &seen.marker)
}

#[cfg(test)]
mod tests;
