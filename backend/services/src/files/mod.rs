//! What is in spaces. Who may use a space is said by the [spaces](super::spaces); what the file system lets them is said by their own process,
//! which is asked here. Nothing of a person's is opened in this process, and nothing that came from one is believed further than its type.

mod alike;
pub mod changing;
pub mod lists;
pub mod long;
pub mod outflow;
pub mod path;
pub mod preview;
pub mod reading;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eirene_core::{RootName, Scope, Space, SpaceId, SpaceKind, SpaceName, SpaceState, UserId};
use eirene_files_protocol::{Answer, Code, HostileText, MOST_SPACES, MadeAt, Name, OpenSpace, Part, SpaceNumber, Verb};
use eirene_words::say;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::actor::Actor;
use super::audit::Audit;
use super::spaces::Spaces;
use super::spaces::access::Reach;
use crate::config::Config;
use crate::error::AppError;
use crate::error::files::FilesTrouble;
use crate::file_processes::{FilesChannel, FilesError, FilesPool, Owner, Request};
use crate::places::{Place, Places};
use crate::shared::Shared;

/// What the platform keeps in a home: jobs' secrets among it, which are not for whoever has a token for files.
const RESERVED_AT_HOME: &[u8] = b".eirene";

/// Files. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    inner: Shared<Inner>,
}

struct Inner {
    pool: Arc<FilesPool>,
    spaces: Spaces,
    audit: Audit,
    roots: BTreeMap<RootName, PathBuf>,
    transfers_of_one: Places<UserId>,
    /// Previews under way: each is held whole for a moment.
    glances_of_one: Places<UserId>,
    transfers: Arc<Semaphore>,
}

/// What [`Files`] is made of.
pub struct Parts {
    /// People's processes.
    pub pool: Arc<FilesPool>,
    /// Who may use what.
    pub spaces: Spaces,
    /// The audit log.
    pub audit: Audit,
}

/// What is to be done in a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Read.
    Read,
    /// Change something.
    Write,
}

/// A space that somebody may use, before its files are asked for. Nothing has been started for it yet.
#[derive(Clone)]
pub struct Within {
    inner: Shared<Inner>,
    actor: Actor,
    owner: Owner,
    space: Space,
    opens: Vec<OpenSpace>,
}

/// What a verb came to.
#[derive(Debug)]
pub struct Done {
    /// What came before the last word.
    pub parts: Vec<Part>,
    /// The last word.
    pub answer: Answer,
}

/// A transfer's place, held as long as its bytes flow.
#[derive(Debug)]
pub struct Transfer {
    _of_one: Place<UserId>,
    _of_all: OwnedSemaphorePermit,
}

impl Files {
    /// The files in the spaces of `config`.
    pub fn new(parts: Parts, config: &Config) -> Self {
        let Parts { pool, spaces, audit } = parts;
        let inner = Inner {
            pool,
            spaces,
            audit,
            roots: config.spaces.roots.iter().map(|root| (root.name.clone(), root.path.clone())).collect(),
            transfers_of_one: Places::new(config.files.transfers_per_person as usize),
            glances_of_one: Places::new(preview::MOST_AT_ONCE),
            transfers: Arc::new(Semaphore::new(config.files.transfers as usize)),
        };
        Self { inner: Shared::new(inner) }
    }

    /// The space of this name, if the person may do with it what is needed. Whoever may not know of it hears nothing about the path either,
    /// so this comes before anything else; admins are asked as everybody.
    pub async fn within(&self, actor: &Actor, name: &SpaceName, need: Need) -> Result<Within, AppError> {
        actor.require(need.scope())?;
        let (space, reach) = self.inner.spaces.usable(&actor.user, name).await?;
        self.enter(actor, space, reach, need).await
    }

    /// The same for a space that something of the person's own names by its id.
    pub async fn within_id(&self, actor: &Actor, id: SpaceId, need: Need) -> Result<Within, AppError> {
        actor.require(need.scope())?;
        let (space, reach) = self.inner.spaces.usable_id(&actor.user, id).await?;
        self.enter(actor, space, reach, need).await
    }

    async fn enter(&self, actor: &Actor, space: Space, reach: Reach, need: Need) -> Result<Within, AppError> {
        let user = &actor.user;
        let uid = user
            .uid
            .ok_or_else(|| AppError::Forbidden { code: "no_cluster_user", text: say("problem.no_cluster_user") })?;
        if space.state != SpaceState::Present {
            return Err(FilesTrouble::not_present().into());
        }
        if need == Need::Write && reach != Reach::Write {
            return Err(FilesTrouble::read_only().into());
        }
        let mut opens = Vec::new();
        for (space, reach) in self.inner.spaces.all_usable(user).await? {
            let writable = reach == Reach::Write;
            // What has no place here is left out: asking for it says so.
            let root = if space.kind == SpaceKind::Home {
                Some(self.inner.spaces.home_of(&user.username).await?)
            } else {
                self.inner.roots.get(&space.root).map(|root| root.join(space.name.as_str()))
            };
            opens.extend(root.map(|root| opened(&space, &root, writable)));
        }
        // Whoever has more than a process opens has the oldest, and the one that is asked for.
        opens.sort_by_key(|open| (open.number.0 != space.serial, open.number));
        opens.truncate(MOST_SPACES);
        opens.sort_by_key(|open| open.number);
        let owner = Owner { id: user.id, name: user.username.clone(), uid };
        Ok(Within { inner: self.inner.clone(), actor: actor.clone(), owner, space, opens })
    }

    /// The spaces into which the person may write, as far as is known now: where things can be moved or copied to.
    pub async fn writable(&self, actor: &Actor) -> Result<Vec<Space>, AppError> {
        actor.require(Need::Read.scope())?;
        let usable = self.inner.spaces.all_usable(&actor.user).await?;
        Ok(usable.into_iter().filter(|(_, reach)| *reach == Reach::Write).map(|(space, _)| space).collect())
    }

    /// A place for a transfer of this person's.
    ///
    /// # Errors
    /// `too_many_transfers`.
    pub fn transfer(&self, user: UserId) -> Result<Transfer, AppError> {
        self.inner.transfer(user)
    }
}

impl Inner {
    fn transfer(&self, user: UserId) -> Result<Transfer, AppError> {
        let of_one = self.transfers_of_one.take(user).ok_or_else(FilesTrouble::too_many_transfers)?;
        let of_all = Arc::clone(&self.transfers).try_acquire_owned();
        let of_all = of_all.map_err(|_| FilesTrouble::too_many_transfers())?;
        Ok(Transfer { _of_one: of_one, _of_all: of_all })
    }
}

impl Need {
    fn scope(self) -> Scope {
        match self {
            Self::Read => Scope::FilesRead,
            Self::Write => Scope::FilesWrite,
        }
    }
}

fn opened(space: &Space, root: &Path, writable: bool) -> OpenSpace {
    let reserved = if space.kind == SpaceKind::Home { Name::parse(RESERVED_AT_HOME).ok() } else { None };
    let made = space.made_at.as_ref();
    let made = made.map(|made| MadeAt { inode: made.inode, marker: made.identity.marker.clone() });
    OpenSpace {
        number: SpaceNumber(space.serial),
        root: HostileText(root.as_os_str().as_bytes().to_vec()),
        writable,
        reserved: reserved.into_iter().collect(),
        made,
    }
}

impl std::fmt::Debug for Within {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Within({})", self.space.name)
    }
}

impl Within {
    /// How the person's process knows the space.
    pub fn number(&self) -> SpaceNumber {
        SpaceNumber(self.space.serial)
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Whether the person may change anything in the space, as far as the file system lets them.
    pub fn writable(&self) -> bool {
        self.opens.iter().any(|open| open.number == self.number() && open.writable)
    }

    /// A place for a transfer of this person's.
    ///
    /// # Errors
    /// `too_many_transfers`.
    pub fn transfer(&self) -> Result<Transfer, AppError> {
        self.inner.transfer(self.owner.id)
    }

    /// Who asks.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Asks and waits for the whole answer; for verbs without a stream that answer at once.
    ///
    /// # Errors
    /// What the process said is wrong, or that it does not answer.
    pub async fn ask(&self, verb: Verb) -> Result<Done, AppError> {
        let heard = self.channel().await?.ask(verb).await?;
        Ok(Done { parts: heard.parts, answer: heard.outcome? })
    }

    /// Begins a request whose bytes come or go through a stream.
    ///
    /// # Errors
    /// That the process does not answer.
    pub async fn begin(&self, verb: Verb) -> Result<(Request, UnixStream), AppError> {
        Ok(self.channel().await?.begin(verb).await?)
    }

    /// The person's channel, opened now where it is not.
    ///
    /// # Errors
    /// That the process does not answer.
    pub async fn channel(&self) -> Result<FilesChannel, AppError> {
        match self.inner.pool.channel(&self.owner, &self.opens, self.number()).await {
            Ok(channel) => {
                let opened = channel.hello().spaces.iter().find(|opened| opened.number == self.number());
                match opened.map(|opened| opened.problem) {
                    // What the person may not open is theirs to know; whatever else there is, the space is not there.
                    Some(Some(problem)) if problem.code == Code::Forbidden => Err(problem.into()),
                    None | Some(Some(_)) => Err(FilesTrouble::from(Code::NoSuchSpace).into()),
                    Some(None) => Ok(channel),
                }
            }
            Err(error) => {
                if let FilesError::WrongUser { said } = &error {
                    let details = json!({"said": said});
                    let event = self.actor.audit("files.wrong_uid", self.space.name.as_str(), "failed", details);
                    self.inner.audit.record(event).await;
                }
                Err(error.into())
            }
        }
    }

    /// Writes down what was done in the space: by verb and number, never by name.
    pub async fn note(&self, action: &'static str, details: serde_json::Value) {
        let event = self.actor.audit(action, self.space.name.as_str(), "ok", details);
        self.inner.audit.record(event).await;
    }
}

/// What a verb answered, as the kind of answer it must be; another is a mistake of the process's.
macro_rules! answered {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => Ok($value),
            _ => Err($crate::files::wrong_answer()),
        }
    };
}
pub(crate) use answered;

/// The process answered something else than was asked.
pub fn wrong_answer() -> AppError {
    tracing::error!("a file process answered something else than it was asked");
    FilesTrouble::from(Code::Failed).into()
}
