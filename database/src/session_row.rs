//! A session as it is stored, and the way back.

use eirene_core::scheduler::JobIdentity;
use eirene_core::{Reason, Resources, Sentence, Session};
use sqlx::FromRow;

use crate::error::DbError;
use crate::row::Place;

/// The columns of a [`SessionRow`], from `sessions` joined with `users`.
macro_rules! session_columns {
    () => {
        "sessions.id, sessions.owner_id, users.username AS owner_name, sessions.owner_uid, sessions.name, sessions.app, \
         sessions.program, sessions.requeue_of, sessions.exit_status, sessions.scratch, sessions.scratch_state, sessions.image, \
         sessions.image_path, \
         sessions.project, sessions.partition_name, sessions.node_count, \
         sessions.cpus, sessions.memory_mib, sessions.gpus, sessions.gpu_type, sessions.walltime_min, sessions.desired, \
         sessions.state, sessions.undetermined, sessions.reason_code, sessions.reason_text, sessions.marker, \
         sessions.submit_begun_at, sessions.job_cluster, sessions.job_id, sessions.job_submitted_at, \
         sessions.restart_count, sessions.nodes, sessions.start_estimate, sessions.created_at, sessions.started_at, \
         sessions.ends_at, sessions.ended_at, sessions.version"
    };
}
pub(crate) use session_columns;

#[derive(FromRow)]
pub(crate) struct SessionRow {
    id: String,
    owner_id: String,
    owner_name: String,
    owner_uid: i64,
    name: String,
    app: String,
    program: Option<String>,
    requeue_of: Option<String>,
    exit_status: Option<i64>,
    scratch: Option<String>,
    scratch_state: Option<String>,
    image: String,
    image_path: String,
    project: Option<String>,
    partition_name: Option<String>,
    node_count: i64,
    cpus: i64,
    memory_mib: i64,
    gpus: i64,
    gpu_type: Option<String>,
    walltime_min: i64,
    desired: String,
    state: String,
    undetermined: bool,
    reason_code: Option<String>,
    reason_text: Option<String>,
    marker: String,
    submit_begun_at: Option<i64>,
    job_cluster: Option<String>,
    job_id: Option<i64>,
    job_submitted_at: Option<i64>,
    restart_count: i64,
    nodes: String,
    start_estimate: Option<i64>,
    created_at: i64,
    started_at: Option<i64>,
    ends_at: Option<i64>,
    ended_at: Option<i64>,
    version: i64,
}

impl SessionRow {
    pub(crate) fn into_session(self) -> Result<Session, DbError> {
        let place = Place { table: "sessions", row: &self.id };
        let resources = self.resources(&place)?;
        let job = self.job(&place)?;
        Ok(Session {
            id: place.text("id", &self.id)?,
            owner: place.text("owner_id", &self.owner_id)?,
            owner_name: place.text("owner_name", &self.owner_name)?,
            owner_uid: place.number("owner_uid", self.owner_uid)?,
            name: place.line("name", &self.name)?,
            app: place.text("app", &self.app)?,
            program: self.program.as_deref().map(|stored| place.json("program", stored)).transpose()?,
            requeue_of: place.maybe_text("requeue_of", self.requeue_of.as_deref())?,
            exit_status: self.exit_status.map(|stored| place.number("exit_status", stored)).transpose()?,
            scratch: self.scratch.as_deref().map(|stored| place.json("scratch", stored)).transpose()?,
            scratch_state: self
                .scratch_state
                .as_deref()
                .map(|stored| place.json("scratch_state", stored))
                .transpose()?,
            image: place.text("image", &self.image)?,
            project: place.maybe_text("project", self.project.as_deref())?,
            resources,
            desired: place.text("desired", &self.desired)?,
            state: place.text("state", &self.state)?,
            undetermined: self.undetermined,
            reason: match (self.reason_code, self.reason_text) {
                (Some(code), Some(text)) => Some(Reason::new(code, Sentence::from_elsewhere(&text))),
                (None, None) => None,
                (Some(_), None) => return Err(place.wrong("reason_text")),
                (None, Some(_)) => return Err(place.wrong("reason_code")),
            },
            submit_begun_at: place.maybe_time("submit_begun_at", self.submit_begun_at)?,
            job,
            restart_count: place.number("restart_count", self.restart_count)?,
            nodes: place.json("nodes", &self.nodes)?,
            start_estimate: place.maybe_time("start_estimate", self.start_estimate)?,
            created_at: place.time("created_at", self.created_at)?,
            started_at: place.maybe_time("started_at", self.started_at)?,
            ends_at: place.maybe_time("ends_at", self.ends_at)?,
            ended_at: place.maybe_time("ended_at", self.ended_at)?,
            version: self.version,
            image_path: self.image_path,
            marker: self.marker,
        })
    }

    fn resources(&self, place: &Place<'_>) -> Result<Resources, DbError> {
        Ok(Resources {
            partition: place.maybe_text("partition_name", self.partition_name.as_deref())?,
            nodes: place.number("node_count", self.node_count)?,
            cpus: place.number("cpus", self.cpus)?,
            memory_mib: place.number("memory_mib", self.memory_mib)?,
            gpus: place.number("gpus", self.gpus)?,
            gpu_type: place.maybe_text("gpu_type", self.gpu_type.as_deref())?,
            walltime_min: place.number("walltime_min", self.walltime_min)?,
        })
    }

    fn job(&self, place: &Place<'_>) -> Result<Option<JobIdentity>, DbError> {
        match (&self.job_cluster, self.job_id, self.job_submitted_at) {
            (Some(cluster), Some(id), Some(submitted_at)) => Ok(Some(JobIdentity {
                cluster: cluster.clone(),
                id: place.number("job_id", id)?,
                submitted_at: place.time("job_submitted_at", submitted_at)?,
            })),
            (None, None, None) => Ok(None),
            _ => Err(place.wrong("job_id")),
        }
    }
}
