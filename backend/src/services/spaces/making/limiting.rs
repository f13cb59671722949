//! How much a space may hold: a wish like the others, that the launcher carries out where the file system counts by directory. Where it does not,
//! the limit is shown as not held, and never pretended.

use eirene_core::launcher::{LauncherAnswer, LauncherRequest};
use eirene_core::space::LimitState;
use eirene_core::storage::{Bytes, Files, Limit};
use eirene_core::{Sentence, Space};
use eirene_words::say;

use super::{Making, Stepped, Trouble, details};
use crate::error::{AppError, FieldError};
use crate::services::audit::by_system;

/// The least limit of bytes: less would refuse the first file.
const LEAST_BYTES: u64 = 1 << 20;
/// The most: what 8-byte counters of blocks can hold with room to spare.
const MOST: u64 = 1 << 60;

/// What a limit is to be; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Bytes.
    pub bytes: Option<Limit<Bytes>>,
    /// Files and directories.
    pub files: Option<Limit<Files>>,
}

impl NewLimits {
    /// Refuses what no space can have.
    pub(super) fn check(self) -> Result<(), AppError> {
        let wrong =
            |field: &'static str, message: Sentence| Err(AppError::Invalid(vec![FieldError::new(field, message)]));
        match self.bytes {
            Some(Limit::At(Bytes(bytes))) if !(LEAST_BYTES..=MOST).contains(&bytes) => {
                wrong("limit_bytes", say("wrong.limit_bytes"))
            }
            _ => match self.files {
                Some(Limit::At(Files(files))) if !(1..=MOST).contains(&files) => {
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

impl Making {
    /// Has the launcher set what a space may hold. What cannot be held is written down with the reason, and tried again later.
    pub(super) async fn limit(&self, space: &Space) -> Result<Stepped, Trouble> {
        let limits = most(space);
        let unlimited = limits == (None, None);
        let (state, said) = match self.ask_for_limits(space, limits).await {
            Ok(()) if unlimited => (LimitState::Unset, None),
            Ok(()) => (LimitState::Held, None),
            // There was nothing to take back.
            Err(Trouble::Refused { code, .. }) if unlimited && code == "not_supported" => (LimitState::Unset, None),
            Err(Trouble::Refused { text, .. }) => (LimitState::NotHeld, Some(text)),
            Err(trouble) => return Err(trouble),
        };
        let stepped = if said.is_none() { Stepped::Done } else { Stepped::Later };
        if (space.limit_state, &space.limit_said) != (state, &said) {
            let (target, details) = (space.name.as_str(), details(space));
            let event = match said {
                None => by_system("space_make", "space.limited", target, "ok", details),
                Some(_) => by_system("space_make", "space.not_limited", target, "refused", details),
            };
            self.write(Space { limit_state: state, limit_said: said, ..space.clone() }).await?;
            self.inner.audit.record(event).await;
        }
        Ok(stepped)
    }

    /// Prepares a space that was made just now for a limit that somebody may want later, when it is not empty any more.
    pub(super) async fn prepare_for_limits(&self, space: &Space) {
        if let Err(Trouble::Refused { text, .. } | Trouble::Away(text)) = self.ask_for_limits(space, (None, None)).await
        {
            tracing::debug!(space = %space.name, text, "A space was not prepared for limits");
        }
    }

    async fn ask_for_limits(&self, space: &Space, (bytes, files): (Option<u64>, Option<u64>)) -> Result<(), Trouble> {
        let (root, name, inode) = (space.root.clone(), space.name.clone(), super::inode(space)?);
        let request = LauncherRequest::LimitSpace { root, name, inode, serial: space.serial, bytes, files };
        match self.ask(request).await? {
            LauncherAnswer::Done => Ok(()),
            _ => Err(Trouble::odd()),
        }
    }
}
