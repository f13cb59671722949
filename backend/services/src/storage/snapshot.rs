//! The storage as it was seen at one look: every question with its answer, or why there is none.

use std::collections::BTreeMap;

use eirene_core::RootName;
use eirene_core::storage::{
    Capabilities, FileSystem, Identity, Partial, Place, Pool, ServerNode, SharedStorage, StorageError, Target, Why,
};
use futures_util::future::{join, join_all};
use jiff::Timestamp;

use super::remembered::Remembered;

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Asked<T> {
    /// This storage has no such thing, or was not asked yet.
    #[default]
    Unsupported,
    /// It was answered.
    Got(T),
    /// It was not, or not so that anybody could read it.
    Failed(Trouble),
}

impl<T> Asked<T> {
    /// The answer, if there is one.
    pub fn got(&self) -> Option<&T> {
        match self {
            Self::Got(value) => Some(value),
            Self::Unsupported | Self::Failed(_) => None,
        }
    }

    /// That nobody answered.
    pub fn away(&self) -> Option<&Trouble> {
        match self {
            Self::Failed(trouble) if trouble.kind == TroubleKind::Away => Some(trouble),
            Self::Failed(_) | Self::Got(_) | Self::Unsupported => None,
        }
    }

    /// From what the port said.
    pub fn from_answer(answer: Result<T, StorageError>) -> Self {
        match answer {
            Ok(value) => Self::Got(value),
            Err(StorageError::Unsupported(_)) => Self::Unsupported,
            Err(error) => Self::Failed(Trouble::from(&error)),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub kind: TroubleKind,
    /// What the storage said: for logs and admins.
    pub text: String,
}

/// Why there is no answer, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// The place is not there.
    Missing,
    /// It refuses.
    Refused,
    /// It does not answer.
    Away,
    /// It answered, and what was asked about is in the half that is missing.
    Half,
    /// It answered something that cannot be read.
    NotUnderstood,
}

impl TroubleKind {
    /// The same for a number that was asked for.
    pub fn why(self) -> Why {
        match self {
            Self::Refused => Why::Refused,
            Self::Missing | Self::Away | Self::Half => Why::DidNotAnswer,
            Self::NotUnderstood => Why::NotUnderstood,
        }
    }
}

/// Why a number that was asked for is missing.
pub fn why_missing(error: &StorageError) -> Why {
    match error {
        StorageError::Refused { why, .. } => *why,
        error => Trouble::from(error).kind.why(),
    }
}

impl From<&StorageError> for Trouble {
    fn from(error: &StorageError) -> Self {
        let kind = match error {
            StorageError::NoSuchPlace { .. } | StorageError::NoSuchPool(_) => TroubleKind::Missing,
            StorageError::Refused { .. } => TroubleKind::Refused,
            StorageError::Away { .. } => TroubleKind::Away,
            StorageError::Unsupported(_)
            | StorageError::Malformed { .. }
            | StorageError::NotReadBack { .. }
            | StorageError::Invalid(_) => TroubleKind::NotUnderstood,
        };
        let text = match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        Self { kind, text }
    }
}

/// A root of spaces as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSeen {
    /// Which.
    pub name: RootName,
    /// Whether spaces in it are to be written to.
    pub writable: bool,
    /// The file system it lies on.
    pub file_system: Asked<FileSystem>,
    /// What was there when it was first seen, since the portal was started.
    pub first: Option<Identity>,
    /// What its newest space was made on.
    pub made: Option<Identity>,
}

/// The storage at one look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// When it was looked at; none before the first look.
    pub at: Option<Timestamp>,
    /// What it can.
    pub capabilities: Option<Capabilities>,
    /// Servers.
    pub nodes: Asked<Partial<Vec<ServerNode>>>,
    /// Targets.
    pub targets: Asked<Partial<Vec<Target>>>,
    /// Pools.
    pub pools: Asked<Partial<Vec<Pool>>>,
    /// Roots of spaces.
    pub roots: Vec<RootSeen>,
    /// Whether homes answer, by those of a few people; unsupported where nobody is known to have one.
    pub homes: Asked<()>,
}

/// A root that is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootToSee {
    /// Which.
    pub name: RootName,
    /// Whether spaces in it are to be written to.
    pub writable: bool,
}

/// Looks at everything once. `nodes` was asked before: where the whole storage does not answer, nothing else is asked of it, because each
/// question costs its whole patience. `first` holds what was seen at each root first, and gets what is seen now for the first time.
pub async fn take(
    storage: &dyn SharedStorage,
    capabilities: Option<Capabilities>,
    nodes: Asked<Partial<Vec<ServerNode>>>,
    roots: &[RootToSee],
    remembered: &Remembered,
    first: &mut BTreeMap<RootName, Identity>,
    at: Timestamp,
) -> Snapshot {
    // Each may take its whole patience.
    let at_roots = join_all(roots.iter().map(async |root| {
        let place = Place::Root(root.name.clone());
        Asked::from_answer(storage.file_system(&place).await)
    }));
    let at_homes = join_all(remembered.homes.iter().map(async |person| {
        let place = Place::Home(person.clone());
        match Asked::from_answer(storage.file_system(&place).await) {
            Asked::Failed(Trouble { kind, text }) => Asked::Failed(Trouble { kind, text: format!("{person}: {text}") }),
            seen => seen,
        }
    }));
    let (looks, homes) = join(at_roots, at_homes).await;
    let mut seen = Vec::new();
    for (root, file_system) in roots.iter().zip(looks) {
        if let Some(file_system) = file_system.got()
            && file_system.identity.root_inode.is_some()
        {
            first.entry(root.name.clone()).or_insert_with(|| file_system.identity.clone());
        }
        let first = first.get(&root.name).cloned();
        let made = remembered.made.get(&root.name).cloned();
        seen.push(RootSeen { name: root.name.clone(), writable: root.writable, file_system, first, made });
    }
    let (targets, pools) = match nodes.away() {
        Some(trouble) => (Asked::Failed(trouble.clone()), Asked::Failed(trouble.clone())),
        None => (Asked::from_answer(storage.targets().await), Asked::from_answer(storage.pools().await)),
    };
    Snapshot { at: Some(at), capabilities, nodes, targets, pools, roots: seen, homes: homes_answer(&homes) }
}

/// What looks at a few homes say of all. One that does not answer counts for more than others that do, for they may lie on other servers; one that
/// is not there, or may not be looked at, counts only where none is as it should be, for it may be its person who is gone.
fn homes_answer(looks: &[Asked<FileSystem>]) -> Asked<()> {
    if let Some(trouble) = looks.iter().find_map(Asked::away) {
        return Asked::Failed(trouble.clone());
    }
    if looks.iter().any(|look| look.got().is_some()) {
        return Asked::Got(());
    }
    let trouble = looks.iter().find_map(|look| match look {
        Asked::Failed(trouble) => Some(trouble.clone()),
        Asked::Got(_) | Asked::Unsupported => None,
    });
    trouble.map_or(Asked::Unsupported, Asked::Failed)
}
