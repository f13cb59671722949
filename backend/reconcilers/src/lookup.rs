//! Finds the job of a submit whose answer was lost, by its marker: in the snapshot, then in the accounting database.
//!
//! A marker is believed only on a job of the owner's uid, because anybody may give a job any name. *Absent* is concluded late and only
//! from answers: the lost submit may still be on its way inside the scheduler when we first look.

use eirene_core::Session;
use eirene_core::scheduler::{Job, JobIdentity, Scheduler, SchedulerError};
use eirene_services::cluster::Snapshot;
use jiff::{SignedDuration, Timestamp};

use super::SCHEDULER_WAIT;

/// A lost submit shows itself within this time after we have stopped waiting for its answer …
const SETTLE: SignedDuration = SignedDuration::from_secs(15);
/// … and within this time after the scheduler began to answer again.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(4);
/// Where there is no accounting to ask, the scheduler must have answered without a break for this long.
const ALONE: SignedDuration = SignedDuration::from_mins(1);
/// Clocks of portal and scheduler may differ.
const CLOCKS: SignedDuration = SignedDuration::from_hours(1);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The job.
    Job(JobIdentity),
    /// Surely nothing: it may be submitted again.
    Absent,
    /// It cannot be said yet.
    Unknown,
}

/// Whether a job is the session's: its mark, and its owner's.
pub(super) fn is_ours(job: &Job, session: &Session) -> bool {
    job.name == session.marker && job.uid == session.owner_uid
}

/// The session's job among `jobs`: one that still lives before one that is over, then the newest.
pub(super) fn pick<'a>(jobs: impl IntoIterator<Item = &'a Job>, session: &Session) -> Option<&'a Job> {
    jobs.into_iter()
        .filter(|job| is_ours(job, session))
        .max_by_key(|job| (!job.state.is_final(), job.identity.submitted_at, job.identity.id))
}

/// When a job of `session` may have been submitted first; none when surely none was. A row that is older than this process (which began
/// at `process`) may come from a backup that knows nothing of the submit.
pub(super) fn may_have_begun(session: &Session, process: Timestamp) -> Option<Timestamp> {
    session.submit_begun_at.or((session.created_at < process).then_some(session.created_at))
}

/// Looks for the job of `session`. What an earlier process had under way ended with it, when this one began at `process`, and not before.
pub(super) async fn find(
    session: &Session,
    process: Timestamp,
    snapshot: &Snapshot,
    scheduler: &dyn Scheduler,
) -> Found {
    let Some(begun) = may_have_begun(session, process) else { return Found::Absent };
    if let Some(job) = pick(snapshot.jobs.iter(), session) {
        return Found::Job(job.identity.clone());
    }
    if !settled(snapshot, begun.max(process)) {
        return Found::Unknown;
    }
    let accounted =
        tokio::time::timeout(SCHEDULER_WAIT, scheduler.accounted_jobs(&session.marker, begun - CLOCKS)).await;
    match accounted {
        Ok(Ok(jobs)) => pick(&jobs, session).map_or(Found::Absent, |job| Found::Job(job.identity.clone())),
        // Without accounting the scheduler's own list is all there is; it remembers jobs for minutes after their end.
        Ok(Err(SchedulerError::NoAccounting)) if good_for(snapshot, ALONE) => Found::Absent,
        Ok(Err(error)) => {
            tracing::debug!(session.id = %session.id, %error, "Accounting was not asked");
            Found::Unknown
        }
        Err(_) => Found::Unknown,
    }
}

fn good_for(snapshot: &Snapshot, time: SignedDuration) -> bool {
    matches!((snapshot.asked_at, snapshot.good_since), (Some(asked), Some(good)) if asked >= good + time)
}

fn settled(snapshot: &Snapshot, begun: Timestamp) -> bool {
    let old = snapshot.asked_at.is_some_and(|asked| asked >= begun + SETTLE);
    snapshot.reachable && old && good_for(snapshot, GOOD_FOR)
}
