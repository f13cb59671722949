//! Jobs that carry our mark and that no row claims: what a restored database has forgotten.
//!
//! A row that has lost its job finds it again by the mark. A job whose row is gone is written down and shown to admins, and never
//! cancelled. Only where one session has two jobs, because a submit that was believed lost arrived late, the one without the agent is.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use eirene_core::Session;
use eirene_core::scheduler::Job;
use eirene_database::AdoptedJob;
use eirene_services::app::App;
use eirene_services::audit::by_system;
use eirene_services::sessions::start::MARKER_PREFIX;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::driver::Reconciler;
use super::job_files::JobFiles;
use super::lookup::{is_ours, pick};
use super::stop;

/// Anybody may give jobs names like ours: so many are looked up in one run …
const MOST_LOOKED_UP: usize = 50;
/// … and so many are kept.
const MOST_ADOPTED: usize = 1000;
/// How often it is written down that one is still there.
const SEEN_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The reconciler.
pub(super) struct Adopt {
    app: App,
    job_files: JobFiles,
}

impl Adopt {
    pub(super) fn new(app: App, job_files: JobFiles) -> Self {
        Self { app, job_files }
    }
}

#[async_trait]
impl Reconciler for Adopt {
    fn name(&self) -> &'static str {
        "adopt"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let snapshot = self.app.cluster.snapshot();
        if !snapshot.reachable {
            return Ok(());
        }
        let live = self.app.db.live_sessions().await?;
        // Jobs that bring back what others left are their sessions' too.
        let left = self.app.db.sessions_with_scratch_left(u32::MAX).await?;
        let rescues: HashSet<&str> = left.iter().flat_map(rescues).collect();
        let by_marker: HashMap<&str, &Session> =
            live.iter().map(|session| (session.marker.as_str(), session)).collect();
        let marked = snapshot.jobs.iter().filter(|job| !job.state.is_final() && job.name.starts_with(MARKER_PREFIX));
        let mut unclaimed = Vec::new();
        for job in marked {
            match by_marker.get(job.name.as_str()) {
                Some(session) if is_ours(job, session) => self.relink(session, job, &snapshot.jobs).await?,
                // Somebody else's job under a copied name: neither ours nor lost.
                Some(_) => {}
                None if rescues.contains(job.name.as_str()) => {}
                None => unclaimed.push(job),
            }
        }
        self.adopt(&unclaimed).await
    }
}

impl Adopt {
    /// A row whose job is another one than the one that lives: it is older than what happened.
    async fn relink(&self, session: &Session, job: &Job, jobs: &[Job]) -> anyhow::Result<()> {
        let Some(known) = &session.job else {
            // The reconcilers `submit` and `stop` find it by the same mark; one who has not begun cannot have a job, so the row is old.
            if session.submit_begun_at.is_none() {
                self.link(session, job).await?;
            }
            return Ok(());
        };
        let live =
            |id: u32| jobs.iter().any(|job| job.identity.id == id && is_ours(job, session) && !job.state.is_final());
        if known.id != job.identity.id && live(known.id) {
            return match one_too_many(known.id, job.identity.id, self.app.tunnels.job_of(session.id)) {
                Double::Unsure => Ok(()),
                Double::KeepKnown => self.cancel_extra(session, job.identity.id).await,
                Double::KeepOther => self.link(session, job).await,
            };
        }
        if live(known.id) || pick(jobs, session).is_none_or(|newest| newest.identity.id != job.identity.id) {
            return Ok(());
        }
        self.link(session, job).await
    }

    async fn cancel_extra(&self, session: &Session, id: u32) -> anyhow::Result<()> {
        stop::cancel(&self.app, session, id).await?;
        let event = by_system("adopt", "job.cancel_extra", &session.id.to_string(), "ok", json!({"job_id": id}));
        self.app.sessions.record(event).await;
        Ok(())
    }

    async fn link(&self, session: &Session, job: &Job) -> anyhow::Result<()> {
        if self.app.db.agent_credentials(session.id).await?.is_none() {
            // A row from before its job file: the agent reads the new one when its old secret is refused.
            self.job_files.issue(session, job.restart_count).await?;
        }
        let before = session.job.clone();
        let now = self.app.clock.now();
        let details = json!({"job_id": job.identity.id});
        let event = by_system("adopt", "session.relink", &session.id.to_string(), "ok", details);
        let edit = |session: &mut Session| {
            if session.job == before && !session.state.is_final() {
                session.restart_count = session.restart_count.max(job.restart_count);
                session.job = Some(job.identity.clone());
                session.submit_begun_at = session.submit_begun_at.or(Some(now));
            }
        };
        self.app.sessions.change_and_record(session.id, edit, event).await?;
        Ok(())
    }

    async fn adopt(&self, unclaimed: &[&Job]) -> anyhow::Result<()> {
        let known = self.app.db.adopted_jobs().await?;
        let known: HashMap<&str, &AdoptedJob> =
            known.iter().map(|adopted| (adopted.marker.as_str(), adopted)).collect();
        let now = self.app.clock.now();
        let present: HashSet<&str> = unclaimed.iter().map(|job| job.name.as_str()).collect();
        let mut looked_up = 0;
        for job in unclaimed {
            let before = known.get(job.name.as_str());
            if before.is_some_and(|adopted| adopted.job_id == job.identity.id && now < adopted.seen_at + SEEN_EVERY) {
                continue;
            }
            looked_up += 1;
            if looked_up > MOST_LOOKED_UP || (before.is_none() && known.len() + looked_up > MOST_ADOPTED) {
                break;
            }
            self.adopt_one(job, before.is_none(), now).await?;
        }
        for gone in known.keys().filter(|marker| !present.contains(*marker)) {
            self.app.db.delete_adopted(gone).await?;
        }
        Ok(())
    }

    async fn adopt_one(&self, job: &Job, is_new: bool, now: Timestamp) -> anyhow::Result<()> {
        // A session that began after the list of live ones was read is no lost one.
        let row = self.app.db.session_by_marker(&job.name).await?;
        if row.is_some_and(|session| !session.state.is_final()) {
            return Ok(());
        }
        let identity = &job.identity;
        self.app.db.upsert_adopted(&job.name, &identity.cluster, identity.id, job.uid, now).await?;
        if is_new {
            let details = json!({"job_id": identity.id, "uid": job.uid});
            let event = by_system("adopt", "job.adopt", &identity.id.to_string(), "ok", details);
            self.app.sessions.record(event).await;
            tracing::warn!(job.id = identity.id, "Job {} carries our mark and belongs to no session", identity.id);
        }
        Ok(())
    }
}

/// The marks of the jobs that come for what is kept in a session's scratch.
fn rescues(session: &Session) -> impl Iterator<Item = &str> {
    let kept = session.scratch_state.iter().flat_map(|state| &state.kept);
    kept.filter_map(|kept| kept.rescue.job.as_ref()).map(|job| job.marker.as_str())
}

/// What to do about a second job of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Double {
    /// The job the row names has the agent: the other one goes.
    KeepKnown,
    /// The other job has the agent: the row is linked to it, and the next run cancels the one it named.
    KeepOther,
    /// Neither has an agent yet: both stay.
    Unsure,
}

fn one_too_many(known: u32, other: u32, connected: Option<u32>) -> Double {
    match connected {
        Some(job) if job == known => Double::KeepKnown,
        Some(job) if job == other => Double::KeepOther,
        Some(_) | None => Double::Unsure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_jobs_the_one_with_the_agent_stays() {
        assert_eq!(one_too_many(1, 2, Some(1)), Double::KeepKnown);
        assert_eq!(one_too_many(1, 2, Some(2)), Double::KeepOther);
        assert_eq!(one_too_many(1, 2, None), Double::Unsure);
        assert_eq!(one_too_many(1, 2, Some(3)), Double::Unsure);
    }
}
