//! Jobs that carry our mark and that no row claims: what a restored database has forgotten.
//!
//! A row that has lost its job finds it again by the mark. A job whose row is gone is written down and shown to admins. Nothing is ever
//! cancelled here.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use eirene_core::Session;
use eirene_core::scheduler::Job;
use eirene_database::AdoptedJob;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::driver::Reconciler;
use super::lookup::{is_ours, pick};
use crate::app::App;
use crate::services::audit::by_system;
use crate::services::sessions::start::MARKER_PREFIX;

/// Anybody may give jobs names like ours: so many are looked up in one run …
const MOST_LOOKED_UP: usize = 50;
/// … and so many are kept.
const MOST_ADOPTED: usize = 1000;
/// How often it is written down that one is still there.
const SEEN_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The reconciler.
pub(super) struct Adopt {
    app: App,
}

impl Adopt {
    pub(super) fn new(app: App) -> Self {
        Self { app }
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
        let by_marker: HashMap<&str, &Session> =
            live.iter().map(|session| (session.marker.as_str(), session)).collect();
        let marked = snapshot.jobs.iter().filter(|job| !job.state.is_final() && job.name.starts_with(MARKER_PREFIX));
        let mut unclaimed = Vec::new();
        for job in marked {
            match by_marker.get(job.name.as_str()) {
                Some(session) if is_ours(job, session) => self.relink(session, job, &snapshot.jobs).await?,
                // Somebody else's job under a copied name: neither ours nor lost.
                Some(_) => {}
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
        let known_lives = jobs
            .iter()
            .any(|other| other.identity.id == known.id && is_ours(other, session) && !other.state.is_final());
        if known_lives || pick(jobs, session).is_none_or(|newest| newest.identity.id != job.identity.id) {
            return Ok(());
        }
        self.link(session, job).await
    }

    async fn link(&self, session: &Session, job: &Job) -> anyhow::Result<()> {
        let before = session.job.clone();
        let now = self.app.clock.now();
        self.app
            .sessions
            .change(session.id, |session| {
                if session.job == before && !session.state.is_final() {
                    session.job = Some(job.identity.clone());
                    session.submit_begun_at = session.submit_begun_at.or(Some(now));
                }
            })
            .await?;
        let details = json!({"job_id": job.identity.id});
        let event = by_system("adopt", "session.relink", &session.id.to_string(), "ok", details);
        self.app.sessions.record(event).await;
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
