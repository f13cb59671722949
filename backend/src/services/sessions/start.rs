//! Starting a session: one row that says what is wanted. The reconciler `submit` takes it from there.

use data_encoding::HEXLOWER;
use eirene_core::secret::Secret;
use eirene_core::{
    AppName, Desired, Image, ImageName, ProjectName, Resources, Scope, Session, SessionId, SessionName, SessionState,
};
use eirene_database::{Inserted, StateFilter};
use eirene_words::{say, say_with};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{Sessions, fits};
use crate::error::{AppError, FieldError};
use crate::services::actor::Actor;

/// What every marker begins with: so our jobs are known in the scheduler.
pub(crate) const MARKER_PREFIX: &str = "eirene-";

/// What is started when a request does not say; the command line and the start form begin with the same.
pub mod defaults {
    /// App.
    pub const APP: &str = "jupyterlab";
    /// Image.
    pub const IMAGE: &str = "jupyter";
    /// Nodes.
    pub const NODES: u32 = 1;
    /// CPUs per node.
    pub const CPUS: u32 = 2;
    /// Memory per node, MiB.
    pub const MEMORY_MIB: u64 = 2048;
    /// Longest time, minutes.
    pub const WALLTIME_MIN: u32 = 60;
}

/// What a session should be.
#[derive(Debug, Clone)]
pub struct StartSession {
    /// What its owner calls it; the app's name when nothing is given.
    pub name: Option<SessionName>,
    /// App.
    pub app: AppName,
    /// Image.
    pub image: ImageName,
    /// Project.
    pub project: Option<ProjectName>,
    /// What it asks the cluster for.
    pub resources: Resources,
}

/// What makes a repeated request the same request.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    /// The client's key.
    pub key: String,
    /// SHA-256 of the body, lower-case hexadecimal.
    pub body_sha256: String,
}

impl Sessions {
    /// Starts a session, or finds the one that was started with the same key; says whether it is new.
    pub async fn start(
        &self,
        actor: &Actor,
        wanted: StartSession,
        key: Option<IdempotencyKey>,
    ) -> Result<(Session, bool), AppError> {
        actor.require(Scope::SessionsWrite)?;
        let Some(uid) = actor.user.uid else {
            return Err(AppError::Forbidden { code: "no_cluster_user", text: say("problem.no_cluster_user") });
        };
        let key = key.map(|key| (HEXLOWER.encode(&Sha256::digest(key.key.as_bytes())), key.body_sha256));
        let key = key.as_ref().map(|(key, body)| (key.as_str(), body.as_str()));
        let _turn = self.starting.lock().await;
        if let Some((key_hash, body_hash)) = key
            && let Some(answer) = self.parts.db.session_by_key(actor.user.id, key_hash, body_hash).await?
        {
            return existing(answer);
        }
        let image = self.check(actor, &wanted).await?;
        let session = self.row(actor, uid, wanted, image)?;
        match self.parts.db.insert_session(&session, key).await? {
            Inserted::New => {}
            other => return existing(other),
        }
        self.parts.nudges.submit().notify_one();
        let details = json!({"image": session.image, "app": session.app, "resources": session.resources});
        self.parts.audit.record(actor.audit("session.start", &session.id.to_string(), "ok", details)).await;
        self.publish(&session).await;
        Ok((session, true))
    }

    /// Whether the cluster could ever give this.
    pub fn fits(&self, resources: &Resources) -> Result<(), Vec<FieldError>> {
        fits(resources, &self.parts.cluster.snapshot())
    }

    async fn check(&self, actor: &Actor, wanted: &StartSession) -> Result<Image, AppError> {
        let mut errors = self.fits(&wanted.resources).err().unwrap_or_default();
        let image = self.parts.db.image_by_name(&wanted.image).await?;
        match &image {
            None => {
                let names = [("image", wanted.image.as_str())];
                errors.push(FieldError::new("image", say_with("wrong.no_image", &names)));
            }
            Some(image) if !image.apps.contains(&wanted.app) => {
                let names = [("image", wanted.image.as_str()), ("app", wanted.app.as_str())];
                errors.push(FieldError::new("app", say_with("wrong.no_app", &names)));
            }
            Some(_) => {}
        }
        let Some(image) = image.filter(|_| errors.is_empty()) else { return Err(AppError::Invalid(errors)) };
        let most = self.parts.most_live;
        let live = self.parts.db.sessions_of(Some(actor.user.id), StateFilter::Live, None, most).await?;
        if live.len() >= most as usize {
            let text = say_with("problem.too_many_sessions", &[("n", &most.to_string())]);
            return Err(AppError::Conflict { code: "too_many_sessions", text });
        }
        Ok(image)
    }

    fn row(&self, actor: &Actor, uid: u32, wanted: StartSession, image: Image) -> Result<Session, AppError> {
        let name = match wanted.name {
            Some(name) => name,
            None => wanted.app.as_str().parse().map_err(|e| AppError::Internal(anyhow::Error::new(e)))?,
        };
        Ok(Session {
            id: SessionId::generate(),
            owner: actor.user.id,
            owner_name: actor.user.username.clone(),
            owner_uid: uid,
            name,
            app: wanted.app,
            image: image.name,
            image_path: image.path,
            project: wanted.project,
            resources: wanted.resources,
            desired: Desired::Running,
            state: SessionState::Queued,
            undetermined: false,
            reason: None,
            marker: format!("{MARKER_PREFIX}{}", Secret::generate().expose()),
            submit_begun_at: None,
            job: None,
            restart_count: 0,
            nodes: Vec::new(),
            start_estimate: None,
            created_at: self.parts.clock.now(),
            started_at: None,
            ends_at: None,
            ended_at: None,
            version: 1,
        })
    }
}

fn existing(inserted: Inserted) -> Result<(Session, bool), AppError> {
    match inserted {
        Inserted::Existing(session) => Ok((session, false)),
        Inserted::KeyConflict => {
            Err(AppError::Conflict { code: "idempotency_key_reused", text: say("problem.idempotency_key_reused") })
        }
        Inserted::New => Err(AppError::Internal(anyhow::anyhow!("a new session was taken for an old one"))),
    }
}
