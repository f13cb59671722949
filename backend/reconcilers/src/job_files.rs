//! Issues the job file: a new secret for one restart of one job, known to the database as a hash and to the person's file alone.

use std::sync::Arc;

use eirene_core::job_file::{AppSpec, Bind, JobFile};
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest};
use eirene_core::scratch::{HOME_SPACE, JobScratch};
use eirene_core::secret::Secret;
use eirene_core::{Clock, Session, SpaceName};
use eirene_database::{Db, DbError};
use eirene_words::words;

use eirene_services::config::{BindPath, Config};
use eirene_services::error::AppError;
use eirene_services::sessions::scratch;
use eirene_services::spaces::Spaces;
use eirene_services::spaces::in_sessions::{InSessions, Named};
use eirene_services::traces::Traces;

/// Issues job files.
#[derive(Clone)]
pub struct JobFiles {
    db: Db,
    clock: Arc<dyn Clock>,
    launcher: Arc<dyn Launcher>,
    config: Arc<Config>,
    spaces: Spaces,
    traces: Traces,
    portal_pin: Arc<str>,
}

/// Why a job file could not be issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobFileError {
    /// The database could not note the secret.
    #[error(transparent)]
    Database(#[from] DbError),
    /// It is not known which spaces the person may use: the same again, later.
    #[error("the person's spaces are not known")]
    Spaces(#[source] AppError),
    /// The launcher did not answer: the same again, later.
    #[error("the launcher did not answer")]
    Away(#[source] LauncherError),
    /// There is no such person on the cluster, or not one that may run jobs.
    #[error("{0}")]
    Person(String),
    /// The person's home does not take the file.
    #[error("{0}")]
    Home(String),
}

impl JobFiles {
    /// `portal_pin` is the fingerprint of the tunnel's certificate.
    pub fn new(app: &eirene_services::app::App, portal_pin: &str) -> Self {
        Self {
            db: app.db.clone(),
            clock: Arc::clone(&app.clock),
            launcher: Arc::clone(&app.launcher),
            config: Arc::clone(&app.config),
            spaces: app.spaces.clone(),
            traces: app.traces.clone(),
            portal_pin: portal_pin.into(),
        }
    }

    /// Makes a new secret for this restart, notes its hash, then writes the file; the answer is the session's directory.
    pub(crate) async fn issue(&self, session: &Session, restart_count: u32) -> Result<String, JobFileError> {
        let secret = Secret::generate();
        let mut binds: Vec<Bind> = self.config.images.binds.iter().map(BindPath::to_bind).collect();
        let spaces = self.spaces.in_sessions(session.owner).await.map_err(JobFileError::Spaces)?;
        binds.extend(spaces.all().iter().map(|seen| seen.bind.clone()));
        let file = JobFile {
            session: session.id,
            restart_count,
            secret: secret.expose().to_owned(),
            portal: self.config.tunnel.advertise.clone(),
            portal_pin: self.portal_pin.to_string(),
            app: AppSpec {
                app: session.app.clone(),
                image_path: session.image_path.clone(),
                gpus: session.resources.gpus > 0,
                binds,
                origin: self.config.session_origin(session.id),
                ready_within_s: self.config.agent.ready_within_s,
                run: session.program.clone(),
                scratch: self.scratch(session, &spaces).await?,
            },
            // Only of the first start: those after it are not told.
            trace: self.traces.context(session.id).filter(|_| restart_count == 0).map(|context| context.to_string()),
        };
        let content = serde_json::to_string(&file).map_err(|error| JobFileError::Home(error.to_string()))?;
        self.db.set_job_secret(session.id, restart_count, &secret.hash()).await?;
        let request =
            LauncherRequest::WriteJobFile { person: session.owner_name.clone(), session: session.id, content };
        let begins = self.clock.now();
        match self.launcher.call(request).await {
            Ok(LauncherAnswer::Written { directory }) => {
                if restart_count == 0 {
                    self.traces.launcher_did(session.id, "write_job_file", begins, self.clock.now());
                }
                Ok(directory)
            }
            Ok(_) => Err(JobFileError::Home(words().get("reason.foreign_answer"))),
            Err(error @ LauncherError::Unreachable { .. }) => Err(JobFileError::Away(error)),
            Err(LauncherError::Refused { code, text }) => match code.as_str() {
                "unknown_person" | "forbidden_person" => Err(JobFileError::Person(text)),
                "away" => Err(JobFileError::Away(LauncherError::Refused { code, text })),
                _ => Err(JobFileError::Home(text)),
            },
        }
    }

    /// What its nodes have to know of its scratch.
    async fn scratch(&self, session: &Session, spaces: &InSessions) -> Result<Option<JobScratch>, JobFileError> {
        let Some(mut scratch) = scratch::for_job(session, &self.config.scratch) else { return Ok(None) };
        let names: Vec<SpaceName> = scratch.wanted.spaces().into_iter().cloned().collect();
        for name in names.into_iter().filter(|name| name.as_str() != HOME_SPACE) {
            let place = match scratch::named(&scratch.wanted, &name, spaces) {
                Some(Named::Home) => {
                    let home = self.spaces.home_of(&session.owner_name).await.map_err(JobFileError::Spaces)?;
                    home.to_string_lossy().into_owned()
                }
                Some(Named::Space(seen)) => seen.bind.source.clone(),
                // It was there when it was asked for, and is not any more: the node says so before anything is started.
                None => continue,
            };
            scratch.spaces.insert(name, place);
        }
        Ok(Some(scratch))
    }

    /// Removes the file of a session that is over. What is left behind otherwise is a secret that opens nothing any more.
    pub(crate) async fn remove(&self, session: &Session) {
        let request = LauncherRequest::RemoveJobFile { person: session.owner_name.clone(), session: session.id };
        if let Err(error) = self.launcher.call(request).await {
            tracing::info!(session.id = %session.id, %error, "The job file of session {} was not removed", session.id);
        }
    }

    /// The end of what the job itself wrote, SLURM's words and the agent's: all there is of a session whose agent never came.
    pub(crate) async fn job_log(&self, session: &Session) -> Option<String> {
        let request = LauncherRequest::ReadJobLog { person: session.owner_name.clone(), session: session.id };
        match self.launcher.call(request).await {
            Ok(LauncherAnswer::Log { text }) => Some(text),
            Ok(_) => None,
            Err(error) => {
                tracing::info!(session.id = %session.id, %error, "The job's own log of session {} was not read", session.id);
                None
            }
        }
    }
}
