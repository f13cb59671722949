//! Runs: jobs without a browser. A run is a session's row with a program in the app's place, so queue, agent and log are the sessions';
//! here is what is a run's own: what may be asked for, being like a session, doing it again, and whose lines of the log are whose.

mod rank_log;
mod size;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use eirene_core::run::{FileKind, RunError};
use eirene_core::scratch::HOME_SPACE;
use eirene_core::session::RUN_APP;
use eirene_core::{
    AppName, ImageName, JobKind, ProjectName, Resources, RunProgram, Scope, ScratchSpec, Session, SessionId,
    SessionName,
};
use eirene_files_protocol::EntryKind;
use eirene_words::{say, say_with};
use futures_util::future;
use futures_util::stream::{BoxStream, StreamExt as _};
use tokio::time::timeout;

use self::rank_log::RankLines;
pub use self::size::{RunSize, SizeParts};
use crate::Page;
use crate::actor::Actor;
use crate::authorize::visible;
use crate::error::files::Kind;
use crate::error::{AppError, FieldError};
use crate::files::Files;
use crate::files::path::AskedPath;
use crate::logs::Logs;
use crate::sessions::start::{NewJob, already_requeued};
use crate::sessions::{IdempotencyKey, ListSessions, Sessions, defaults};

/// Longest wait for what a person's file process sees of a run's file.
const FILE_WAIT: Duration = Duration::from_secs(2);
/// Longest name that is made of a file's, characters.
const MAX_NAME: usize = 80;

/// What a run should be. What is left open is as in the session that it is like, else the usual.
#[derive(Debug, Clone)]
pub struct StartRun {
    /// What its owner calls it; the file's name when nothing is given.
    pub name: Option<SessionName>,
    /// What it carries out.
    pub program: RunProgram,
    /// The session that it is like: one of the same person's, live or over.
    pub like: Option<SessionId>,
    /// Image, with the file that the catalogue has for it now; left open, the very file of that session.
    pub image: Option<ImageName>,
    /// Project.
    pub project: Option<ProjectName>,
    /// What it asks the cluster for.
    pub size: RunSize,
    /// The fast scratch it wants; that of a session is never taken over.
    pub scratch: Option<ScratchSpec>,
}

/// The runs.
#[derive(Clone)]
pub struct Runs {
    sessions: Sessions,
    logs: Logs,
    files: Files,
}

impl Runs {
    /// Runs among the rows of `sessions`, of programs among `files`.
    pub fn new(sessions: Sessions, logs: Logs, files: Files) -> Self {
        Self { sessions, logs, files }
    }

    /// Newest first.
    pub async fn list(&self, actor: &Actor, query: ListSessions) -> Result<Page<Session>, AppError> {
        self.sessions.page(actor, JobKind::Run, query).await
    }

    /// One run.
    pub async fn get(&self, actor: &Actor, id: SessionId) -> Result<Session, AppError> {
        self.sessions.one(actor, JobKind::Run, id).await
    }

    /// Asks a run to end. One that is over, or was asked already, stays as it is.
    pub async fn cancel(&self, actor: &Actor, id: SessionId) -> Result<Session, AppError> {
        self.sessions.end(actor, JobKind::Run, id).await
    }

    /// Starts a run, or finds the one that was started with the same key; says whether it is new.
    pub async fn start(
        &self,
        actor: &Actor,
        wanted: StartRun,
        key: Option<IdempotencyKey>,
    ) -> Result<(Session, bool), AppError> {
        actor.require(Scope::SessionsWrite)?;
        let like = match wanted.like {
            Some(id) => self.own_session(actor, id).await?,
            None => None,
        };
        let is_like_none = wanted.like.is_some() && like.is_none();
        let rest = like.as_ref().map_or_else(size::usual, |session| session.resources.clone());
        let resources = wanted.size.or(rest);
        let project = wanted.project.or(like.as_ref().and_then(|session| session.project.clone()));
        let checked = async {
            if is_like_none {
                return Err(AppError::Invalid(vec![no_session()]));
            }
            let mut errors = wrong_program(&wanted.program, &resources);
            errors.extend(self.wrong_elsewhere(actor, &wanted.program, project.as_ref(), &resources).await);
            errors.extend(self.sessions.wrong_scratch(actor, wanted.scratch.as_ref()).await?);
            let (image, image_path) = self.image(actor, wanted.image, like.as_ref(), &resources, errors).await?;
            Ok(NewJob {
                action: "run.start",
                name: wanted.name.unwrap_or_else(|| name_of(&wanted.program)),
                app: run_app()?,
                program: Some(wanted.program),
                requeue_of: None,
                image,
                image_path,
                project,
                resources,
                scratch: wanted.scratch,
            })
        };
        self.sessions.add(actor, key, checked).await
    }

    /// The session that a run of this person's is to be like. Others' are not there, for admins neither: they look at them, and start nothing of them.
    pub async fn model(&self, actor: &Actor, id: SessionId) -> Result<Session, AppError> {
        actor.require(Scope::SessionsRead)?;
        self.own_session(actor, id).await?.ok_or(AppError::NotFound)
    }

    async fn own_session(&self, actor: &Actor, id: SessionId) -> Result<Option<Session>, AppError> {
        let found = self.sessions.parts.db.session(id).await?;
        Ok(found.filter(|found| found.owner == actor.user.id && found.kind() == JobKind::Session))
    }

    /// The image and its file: those of the session that the run is like, as a requeue has those of its run, else what the catalogue has. All that
    /// is wrong by then, and a size that the cluster could never give, is refused.
    async fn image(
        &self,
        actor: &Actor,
        named: Option<ImageName>,
        like: Option<&Session>,
        resources: &Resources,
        mut errors: Vec<FieldError>,
    ) -> Result<(ImageName, String), AppError> {
        let name = match (named, like) {
            (None, Some(session)) => {
                errors.extend(self.sessions.wrong_size(actor, resources).await?);
                if !errors.is_empty() {
                    return Err(AppError::Invalid(errors));
                }
                return Ok((session.image.clone(), session.image_path.clone()));
            }
            (Some(name), _) => name,
            (None, None) => usual_image()?,
        };
        let image = self.sessions.image_for(actor, &name, None, resources, errors).await?;
        Ok((image.name, image.path))
    }

    /// Starts a run anew with everything as it was, its image's file too. One that is not over is asked to end, and what repeats it waits until
    /// it has: two never write the same checkpoint. For the same reason a run is repeated once, and then what repeats it is.
    pub async fn requeue(
        &self,
        actor: &Actor,
        id: SessionId,
        key: Option<IdempotencyKey>,
    ) -> Result<(Session, bool), AppError> {
        actor.require(Scope::SessionsWrite)?;
        let db = &self.sessions.parts.db;
        let earlier = visible(db, actor, JobKind::Run, id).await?;
        if earlier.owner != actor.user.id {
            return Err(AppError::Forbidden { code: "not_owner", text: say("problem.requeue_not_owner") });
        }
        let checked = async {
            if let Some(later) = db.requeued_as(id).await? {
                return Err(already_requeued(later.id));
            }
            let mut errors = self.sessions.wrong_size(actor, &earlier.resources).await?;
            errors.extend(self.sessions.wrong_scratch(actor, earlier.scratch.as_ref()).await?);
            if let Some(program) = &earlier.program {
                let project = earlier.project.as_ref();
                errors.extend(self.wrong_elsewhere(actor, program, project, &earlier.resources).await);
            }
            if !errors.is_empty() {
                return Err(AppError::Invalid(errors));
            }
            // Read again: what was not over may be by now.
            let earlier = visible(db, actor, JobKind::Run, id).await?;
            Ok(NewJob {
                action: "run.requeue",
                name: earlier.name.clone(),
                app: earlier.app.clone(),
                program: earlier.program.clone(),
                image: earlier.image.clone(),
                image_path: earlier.image_path.clone(),
                project: earlier.project.clone(),
                resources: earlier.resources.clone(),
                scratch: earlier.scratch.clone(),
                requeue_of: Some(earlier),
            })
        };
        let made = self.sessions.add(actor, key, checked).await?;
        // Killed before this line, the reconciler that lets the new one wait does it.
        if made.1 {
            self.sessions.ask_to_end(id, None).await?;
        }
        Ok(made)
    }

    /// What is wrong with a run by what others say: the accounting database of its project, the person's file process of its file.
    async fn wrong_elsewhere(
        &self,
        actor: &Actor,
        program: &RunProgram,
        project: Option<&ProjectName>,
        resources: &Resources,
    ) -> Vec<FieldError> {
        let project = self.sessions.wrong_project(actor, project, resources);
        let file = timeout(FILE_WAIT, self.wrong_file(actor, program));
        let (project, file) = future::join(project, file).await;
        project.into_iter().chain(file.ok().flatten()).collect()
    }

    /// What is wrong with the file, where it is in the home and the person's file process sees it. What leads elsewhere, by a link or to another
    /// place of the container, and whatever a token may not read, is the agent's to find out.
    async fn wrong_file(&self, actor: &Actor, program: &RunProgram) -> Option<FieldError> {
        program.check().ok()?;
        let home = self.sessions.parts.spaces.home_of(&actor.user.username).await.ok()?;
        let path = program.file.strip_prefix("~/").unwrap_or(&program.file);
        let path = Path::new(path).strip_prefix(&home).unwrap_or(Path::new(path)).to_str()?.to_owned();
        if path.starts_with('/') {
            return None;
        }
        let asked = AskedPath::new("file", Some(path.clone()), None);
        let key = match self.files.look(actor, &HOME_SPACE.parse().ok()?, &asked).await {
            Ok(found) => match found.stated.kind {
                EntryKind::File if program.kind() == FileKind::Program && found.stated.mode & 0o111 == 0 => {
                    "wrong.run_not_executable"
                }
                EntryKind::Directory => "wrong.run_directory",
                _ => return None,
            },
            Err(AppError::Files(trouble)) if trouble.kind == Kind::NotThere => "wrong.run_no_file",
            Err(_) => return None,
        };
        Some(FieldError::new("file", say_with(key, &[("file", &path)])))
    }

    /// The run that repeats this one, if there is one.
    pub async fn later(&self, actor: &Actor, id: SessionId) -> Result<Option<Session>, AppError> {
        actor.require(Scope::SessionsRead)?;
        let db = &self.sessions.parts.db;
        visible(db, actor, JobKind::Run, id).await?;
        Ok(db.requeued_as(id).await?)
    }

    /// The whole log, or the lines of one rank without its label.
    pub async fn read_log(&self, actor: &Actor, id: SessionId, rank: Option<u32>) -> Result<String, AppError> {
        let lines = self.lines_of(actor, id, rank).await?;
        let whole = self.logs.read(actor, JobKind::Run, id).await?;
        Ok(match lines {
            Some(mut lines) => String::from_utf8_lossy(&lines.pass(whole.as_bytes())).into_owned(),
            None => whole,
        })
    }

    /// The same, then what is added, until the run is over.
    pub async fn follow_log(
        &self,
        actor: &Actor,
        id: SessionId,
        rank: Option<u32>,
    ) -> Result<BoxStream<'static, Bytes>, AppError> {
        let lines = self.lines_of(actor, id, rank).await?;
        let pieces = self.logs.follow(actor, JobKind::Run, id).await?;
        let Some(mut lines) = lines else { return Ok(pieces) };
        let of_rank = pieces.map(move |piece| Bytes::from(lines.pass(&piece)));
        Ok(of_rank.filter(|piece| future::ready(!piece.is_empty())).boxed())
    }

    /// What picks the lines of `rank`, where one is asked for and the run has it.
    async fn lines_of(&self, actor: &Actor, id: SessionId, rank: Option<u32>) -> Result<Option<RankLines>, AppError> {
        let Some(rank) = rank else { return Ok(None) };
        actor.require(Scope::SessionsRead)?;
        let run = visible(&self.sessions.parts.db, actor, JobKind::Run, id).await?;
        let message = match labelled_ranks(&run) {
            Some(ranks) if rank < ranks => return Ok(Some(RankLines::new(rank))),
            Some(ranks) => say_with("wrong.no_such_rank", &[("last", &ranks.saturating_sub(1).to_string())]),
            None => say("wrong.no_ranks"),
        };
        Err(AppError::Invalid(vec![FieldError::new("rank", message)]))
    }
}

fn run_app() -> Result<AppName, AppError> {
    RUN_APP.parse().map_err(|error| AppError::Internal(anyhow::Error::new(error)))
}

fn usual_image() -> Result<ImageName, AppError> {
    defaults::IMAGE.parse().map_err(|error| AppError::Internal(anyhow::Error::new(error)))
}

/// What is wrong where a run is to be like what is no session of the person's: the same whether there is such a one or not.
pub fn no_session() -> FieldError {
    FieldError::new("like", say("wrong.no_session"))
}

/// The file's name, as far as it is one for people.
fn name_of(program: &RunProgram) -> SessionName {
    let cut: String = program.name().chars().take(MAX_NAME).collect();
    let fallback = || match program.kind() {
        FileKind::Notebook => "notebook",
        FileKind::Python | FileKind::Program => "run",
    };
    cut.trim().parse().or_else(|_| fallback().parse()).unwrap_or_else(|_| unreachable!("these words are names"))
}

/// Most ranks at once on nodes and CPUs like these.
fn room(resources: &Resources) -> u64 {
    u64::from(resources.nodes) * u64::from(resources.cpus)
}

/// How many ranks the lines of a run's log may be of: its own, or those that a notebook's cells have room for. None where it is one process.
pub fn labelled_ranks(run: &Session) -> Option<u32> {
    let program = run.program.as_ref()?;
    match program.kind() {
        FileKind::Notebook => Some(u32::try_from(room(&run.resources)).unwrap_or(u32::MAX)),
        FileKind::Python | FileKind::Program => program.ranks,
    }
}

/// What is wrong with a program on this many nodes and CPUs.
fn wrong_program(program: &RunProgram, resources: &Resources) -> Vec<FieldError> {
    let broken = program.check().err().map(|error| match error {
        RunError::File => FieldError::new("file", say("wrong.run_file")),
        RunError::Arguments => FieldError::new("arguments", say("wrong.run_arguments")),
        RunError::NotebookArguments => FieldError::new("arguments", say("wrong.notebook_arguments")),
        RunError::NotebookRanks => FieldError::new("ranks", say("wrong.notebook_ranks")),
        RunError::NoRanks => FieldError::new("ranks", say("wrong.zero_ranks")),
    });
    let room = room(resources);
    let crowd = program.ranks.filter(|ranks| room > 0 && u64::from(*ranks) > room).map(|ranks| {
        let values = [
            ("ranks", &*ranks.to_string()),
            ("room", &*room.to_string()),
            ("nodes", &*resources.nodes.to_string()),
            ("cpus", &*resources.cpus.to_string()),
        ];
        FieldError::new("ranks", say_with("wrong.too_many_ranks", &values))
    });
    broken.into_iter().chain(crowd).collect()
}

#[cfg(test)]
mod tests;
