//! Starting a session or a run: one row that says what is wanted. The reconciler `submit` takes it from there.

use data_encoding::HEXLOWER;
use eirene_core::secret::Secret;
use eirene_core::{
    AppName, Desired, Image, ImageName, JobKind, ProjectName, Resources, RunProgram, Scope, ScratchSpec, Session,
    SessionId, SessionName, SessionState,
};
use eirene_database::{Inserted, Start};
use eirene_words::{say, say_with};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{Sessions, fits, reasons, scratch};
use crate::actor::Actor;
use crate::error::{AppError, FieldError};

/// What every marker begins with: so our jobs are known in the scheduler.
pub const MARKER_PREFIX: &str = "eirene-";

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
    /// The fast scratch it wants.
    pub scratch: Option<ScratchSpec>,
}

/// What makes a repeated request the same request.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    /// The client's key.
    pub key: String,
    /// SHA-256 of the body, lower-case hexadecimal.
    pub body_sha256: String,
}

/// A row about to be made, of a session or a run; what cannot be has been refused.
pub struct NewJob {
    /// What the audit log calls this start.
    pub(crate) action: &'static str,
    pub(crate) name: SessionName,
    pub(crate) app: AppName,
    pub(crate) program: Option<RunProgram>,
    pub(crate) requeue_of: Option<Session>,
    pub(crate) image: ImageName,
    pub(crate) image_path: String,
    pub(crate) project: Option<ProjectName>,
    pub(crate) resources: Resources,
    pub(crate) scratch: Option<ScratchSpec>,
}

impl Sessions {
    /// Starts a session, or finds the one that was started with the same key; says whether it is new.
    pub async fn start(
        &self,
        actor: &Actor,
        wanted: StartSession,
        key: Option<IdempotencyKey>,
    ) -> Result<(Session, bool), AppError> {
        let checked = async {
            let mut errors = self.wrong_scratch(actor, wanted.scratch.as_ref()).await?;
            errors.extend(self.wrong_project(actor, wanted.project.as_ref(), &wanted.resources).await);
            let image = self.image_for(actor, &wanted.image, Some(&wanted.app), &wanted.resources, errors).await?;
            let name = match wanted.name {
                Some(name) => name,
                None => wanted.app.as_str().parse().map_err(|e| AppError::Internal(anyhow::Error::new(e)))?,
            };
            Ok(NewJob {
                action: "session.start",
                name,
                app: wanted.app,
                program: None,
                requeue_of: None,
                image: image.name,
                image_path: image.path,
                project: wanted.project,
                resources: wanted.resources,
                scratch: wanted.scratch,
            })
        };
        self.add(actor, key, checked).await
    }

    /// Makes the row that `checked` has found possible, or finds the one that was made with the same key, whatever may be possible by now.
    ///
    /// `checked` may ask launcher and scheduler, and nobody waits meanwhile. What rests on other rows, the key and how many of its kind the person
    /// has, is decided in the transaction that adds it.
    pub async fn add(
        &self,
        actor: &Actor,
        key: Option<IdempotencyKey>,
        checked: impl Future<Output = Result<NewJob, AppError>> + Send,
    ) -> Result<(Session, bool), AppError> {
        actor.require(Scope::SessionsWrite)?;
        let Some(uid) = actor.user.uid else {
            return Err(AppError::Forbidden { code: "no_cluster_user", text: say("problem.no_cluster_user") });
        };
        let key = key.map(|key| (HEXLOWER.encode(&Sha256::digest(key.key.as_bytes())), key.body_sha256));
        let key = key.as_ref().map(|(key, body)| (key.as_str(), body.as_str()));
        if let Some(before) = self.made_before(actor, key).await? {
            return Ok((before, false));
        }
        let new = match checked.await {
            Ok(new) => new,
            // The same request may have succeeded meanwhile.
            Err(error) => return Ok((self.made_before(actor, key).await?.ok_or(error)?, false)),
        };
        let action = new.action;
        let session = self.row(actor, uid, new);
        let details = match &session.program {
            None => json!({"image": session.image, "app": session.app, "resources": session.resources}),
            // Arguments may be anything, a key of somebody's too: the log that is never changed does without them.
            Some(program) => json!({
                "image": session.image, "file": program.file, "ranks": program.ranks, "requeue_of": session.requeue_of,
                "resources": session.resources,
            }),
        };
        let entry = self.parts.audit.entry(actor.audit(action, &session.id.to_string(), "ok", details));
        let most = match session.kind() {
            JobKind::Session => self.parts.most_live,
            JobKind::Run => self.parts.most_runs,
        };
        let start = Start { idempotency: key, most_live: Some(most), audit: Some(&entry) };
        let inserted = {
            // Who starts much waits here, and not with a connection of the pool for each.
            let _turn = self.adding.lock().await;
            self.parts.db.insert_session(&session, start).await?
        };
        match inserted {
            Inserted::New => {}
            Inserted::TooMany => return Err(too_many(session.kind(), most)),
            Inserted::Requeued(later) => return Err(already_requeued(later)),
            before => return Ok((existing(before)?, false)),
        }
        self.parts.nudges.submit().notify_one();
        self.parts.traces.began(actor.request_id.as_deref(), session.id);
        self.publish(&session).await;
        Ok((session, true))
    }

    /// What was made with this key before.
    async fn made_before(&self, actor: &Actor, key: Option<(&str, &str)>) -> Result<Option<Session>, AppError> {
        let Some((key_hash, body_hash)) = key else { return Ok(None) };
        let before = self.parts.db.session_by_key(actor.user.id, key_hash, body_hash).await?;
        before.map(existing).transpose()
    }

    /// What is wrong with the fast scratch that is wanted, as far as it can be known here.
    pub(crate) async fn wrong_scratch(
        &self,
        actor: &Actor,
        wanted: Option<&ScratchSpec>,
    ) -> Result<Vec<FieldError>, AppError> {
        let Some(wanted) = wanted else { return Ok(Vec::new()) };
        let mut errors = scratch::wrong(wanted, &self.parts.scratch);
        if scratch::names_others(wanted) {
            let spaces = self.parts.spaces.in_sessions(actor.user.id).await?;
            errors.extend(scratch::wrong_spaces(wanted, &spaces));
        }
        Ok(errors)
    }

    /// What is wrong with the project, as far as SLURM's accounting database is known.
    pub(crate) async fn wrong_project(
        &self,
        actor: &Actor,
        project: Option<&ProjectName>,
        resources: &Resources,
    ) -> Option<FieldError> {
        actor.require(Scope::SessionsWrite).ok()?;
        self.parts.projects.wrong(&actor.user.username, project?, resources.partition.as_ref()).await
    }

    /// What of this the cluster could never give, by what of it concerns the person: a partition that does not is none.
    pub(crate) async fn wrong_size(&self, actor: &Actor, resources: &Resources) -> Result<Vec<FieldError>, AppError> {
        let ground = self.parts.overview.ground(actor).await?;
        Ok(fits(resources, &ground).err().unwrap_or_default())
    }

    /// The image, where the cluster could ever give `resources`, the image has `app`, and `errors` has none yet.
    pub(crate) async fn image_for(
        &self,
        actor: &Actor,
        name: &ImageName,
        app: Option<&AppName>,
        resources: &Resources,
        mut errors: Vec<FieldError>,
    ) -> Result<Image, AppError> {
        errors.extend(self.wrong_size(actor, resources).await?);
        let image = self.parts.db.image_by_name(name).await?;
        match (&image, app) {
            (None, _) => {
                errors.push(FieldError::new("image", say_with("wrong.no_image", &[("image", name.as_str())])));
            }
            (Some(image), Some(app)) if !image.apps.contains(app) => {
                let names = [("image", name.as_str()), ("app", app.as_str())];
                errors.push(FieldError::new("app", say_with("wrong.no_app", &names)));
            }
            (Some(_), _) => {}
        }
        image.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))
    }

    fn row(&self, actor: &Actor, uid: u32, new: NewJob) -> Session {
        let waits = new.requeue_of.as_ref().is_some_and(|earlier| !earlier.state.is_final());
        Session {
            id: SessionId::generate(),
            owner: actor.user.id,
            owner_name: actor.user.username.clone(),
            owner_uid: uid,
            name: new.name,
            app: new.app,
            program: new.program,
            requeue_of: new.requeue_of.map(|earlier| earlier.id),
            exit_status: None,
            scratch_state: None,
            scratch: new.scratch,
            image: new.image,
            image_path: new.image_path,
            project: new.project,
            resources: new.resources,
            desired: Desired::Running,
            state: SessionState::Queued,
            undetermined: false,
            reason: waits.then(reasons::earlier_run),
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
        }
    }
}

fn existing(inserted: Inserted) -> Result<Session, AppError> {
    match inserted {
        Inserted::Existing(session) => Ok(session),
        Inserted::KeyConflict => {
            Err(AppError::Conflict { code: "idempotency_key_reused", text: say("problem.idempotency_key_reused") })
        }
        other => Err(AppError::Internal(anyhow::anyhow!("unexpected result of an insert: {other:?}"))),
    }
}

/// That a run has been repeated as `later`: once is all that it may be.
pub(crate) fn already_requeued(later: SessionId) -> AppError {
    let text = say_with("problem.already_requeued", &[("run", &later.to_string())]);
    AppError::Conflict { code: "already_requeued", text }
}

/// That the person has as many as they may.
fn too_many(kind: JobKind, most: u32) -> AppError {
    let count = [("n", &*most.to_string())];
    match kind {
        JobKind::Session => {
            AppError::Conflict { code: "too_many_sessions", text: say_with("problem.too_many_sessions", &count) }
        }
        JobKind::Run => AppError::Conflict { code: "too_many_runs", text: say_with("problem.too_many_runs", &count) },
    }
}
