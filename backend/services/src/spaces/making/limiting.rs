//! How much a space may hold: a wish like the others, that the launcher carries out where the file system counts by directory. Where it does not,
//! its owner may be limited (`owner_limits`); else the limit is shown as not held, and never pretended.

use eirene_core::audit::NewAuditEvent;
use eirene_core::launcher::{LauncherAnswer, LauncherRequest};
use eirene_core::space::LimitState;
use eirene_core::storage::{Bytes, Files, Limit};
use eirene_core::{Sentence, Space};
use eirene_words::say;

use super::steps::{self, Trouble};
use super::{Making, details};
use crate::audit::by_system;
use crate::config::{LIMIT_BYTES, LIMIT_FILES, Root, Size};
use crate::error::{AppError, FieldError};

/// What a limit is to be; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Bytes.
    pub bytes: Option<Limit<Bytes>>,
    /// Files and directories.
    pub files: Option<Limit<Files>>,
}

impl NewLimits {
    /// What a space gets that is made in `root` by itself.
    pub(super) fn of_root(root: &Root) -> Self {
        Self {
            bytes: root.limit.map(|Size(bytes)| Limit::At(Bytes(bytes))),
            files: root.limit_files.map(|files| Limit::At(Files(files))),
        }
    }

    /// Refuses what no space can have.
    pub(super) fn check(self) -> Result<(), AppError> {
        let wrong =
            |field: &'static str, message: Sentence| Err(AppError::Invalid(vec![FieldError::new(field, message)]));
        match self.bytes {
            Some(Limit::At(Bytes(bytes))) if !LIMIT_BYTES.contains(&bytes) => {
                wrong("limit_bytes", say("wrong.limit_bytes"))
            }
            _ => match self.files {
                Some(Limit::At(Files(files))) if !LIMIT_FILES.contains(&files) => {
                    wrong("limit_files", say("wrong.limit_files"))
                }
                _ => Ok(()),
            },
        }
    }

    /// Writes the wish into a row.
    pub(super) fn wish(self, space: &mut Space) {
        let before = (space.limit_bytes, space.limit_files);
        space.limit_bytes = self.bytes.unwrap_or(space.limit_bytes);
        space.limit_files = self.files.unwrap_or(space.limit_files);
        if (space.limit_bytes, space.limit_files) != before {
            (space.limit_state, space.limit_said) = (LimitState::Wanted, None);
        }
    }
}

/// What a row wants of the launcher.
fn most(space: &Space) -> (Option<u64>, Option<u64>) {
    let at = |limit: Limit<u64>| match limit {
        Limit::At(most) => Some(most),
        Limit::Unlimited => None,
    };
    (at(space.limit_bytes.map(|bytes| bytes.0)), at(space.limit_files.map(|files| files.0)))
}

/// What became of a limit, and why the storage does not hold it.
pub(super) type Limited = (LimitState, Option<String>);

/// Whether the launcher is to be asked, for the first time or again.
pub(super) fn is_due(space: &Space) -> bool {
    matches!(space.limit_state, LimitState::Wanted | LimitState::NotHeld)
}

/// What the audit log says of the outcome of a limit, where that is new.
pub(super) fn audited(before: &Space, now: &Space) -> Option<NewAuditEvent> {
    if (before.limit_state, &before.limit_said) == (now.limit_state, &now.limit_said) {
        return None;
    }
    let (target, details) = (now.name.as_str(), details(now));
    Some(match now.limit_said {
        None => by_system("space_make", "space.limited", target, "ok", details),
        Some(_) => by_system("space_make", "space.not_limited", target, "refused", details),
    })
}

impl Making {
    /// Has the launcher set what a space may hold, where that is due.
    pub(super) async fn limit(&self, space: &Space) -> Result<Limited, Trouble> {
        if !is_due(space) {
            return Ok((space.limit_state, space.limit_said.clone()));
        }
        let limits = most(space);
        let unlimited = limits == (None, None);
        match self.ask_for_limits(space, limits).await {
            Ok(()) if unlimited => Ok((LimitState::Unset, None)),
            Ok(()) => Ok((LimitState::Held, None)),
            Err(Trouble::Refused { code, text }) if code == "not_supported" => self.limit_owner(space, text).await,
            Err(Trouble::Refused { text, .. }) => Ok((LimitState::NotHeld, Some(text))),
            Err(trouble) => Err(trouble),
        }
    }

    /// Prepares a space that was made just now for a limit that somebody may want later, when it is not empty any more.
    pub(super) async fn prepare_for_limits(&self, space: &Space) {
        if let Err(Trouble::Refused { text, .. } | Trouble::Away(text)) = self.ask_for_limits(space, (None, None)).await
        {
            tracing::debug!(space = %space.name, text, "A space was not prepared for limits");
        }
    }

    async fn ask_for_limits(&self, space: &Space, (bytes, files): (Option<u64>, Option<u64>)) -> Result<(), Trouble> {
        let (root, name, inode) = (space.root.clone(), space.name.clone(), steps::inode(space)?);
        let request = LauncherRequest::LimitSpace { root, name, inode, serial: space.serial, bytes, files };
        match self.ask(request).await? {
            LauncherAnswer::Done => Ok(()),
            _ => Err(Trouble::odd()),
        }
    }
}
