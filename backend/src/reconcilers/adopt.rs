//! Jobs that carry our mark and that no row claims: what a restored database has forgotten.
//!
//! A row that has lost its job finds it again by the mark. A job whose row is gone is written down and shown to admins. Nothing is ever
//! cancelled here.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use eirene_core::Session;
use eirene_core::scheduler::Job;
use serde_json::json;

use super::driver::Reconciler;
use super::lookup::{is_ours, pick};
use crate::app::App;
use crate::services::audit::by_system;
use crate::services::sessions::start::MARKER_PREFIX;

/// Markers looked up in the database in one run.
const MOST_LOOKED_UP: usize = 200;

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
        let known_markers: HashSet<&str> = known.iter().map(|adopted| adopted.marker.as_str()).collect();
        let mut present = HashSet::new();
        for job in unclaimed.iter().take(MOST_LOOKED_UP) {
            // A session that began after the list of live ones was read is no lost one.
            let row = self.app.db.session_by_marker(&job.name).await?;
            if row.is_some_and(|session| !session.state.is_final()) {
                continue;
            }
            present.insert(job.name.as_str());
            let now = self.app.clock.now();
            let identity = &job.identity;
            self.app.db.upsert_adopted(&job.name, &identity.cluster, identity.id, job.uid, now).await?;
            if !known_markers.contains(job.name.as_str()) {
                let details = json!({"job_id": identity.id, "uid": job.uid});
                let event = by_system("adopt", "job.adopt", &identity.id.to_string(), "ok", details);
                self.app.sessions.record(event).await;
                tracing::warn!(job.id = identity.id, "Job {} carries our mark and belongs to no session", identity.id);
            }
        }
        for gone in known.iter().filter(|adopted| !present.contains(adopted.marker.as_str())) {
            if unclaimed.len() <= MOST_LOOKED_UP {
                self.app.db.delete_adopted(&gone.marker).await?;
            }
        }
        Ok(())
    }
}
