//! What differs between releases of the tool: a flag, and what each prints about a licence beside an answer.
//!
//! 8.3 looks at the licence as its last step. Where it cannot, it ends with 1 and `unable to verify licensed status`, though the question was
//! answered and the change was made. 8.3 and later print warnings about the licence, too. Neither says anything about the rows, so both are taken
//! out of an answer before it is judged. That nothing is printed means nothing: other releases do not look.

use std::sync::{Mutex, PoisonError};

use eirene_core::storage::{Ability, Known, Ran, Why};

use crate::doubts::printable;
use crate::noise::{self, Trouble};

/// The first release that knows [`NO_ALERTS`](super::call::NO_ALERTS).
const KNOWS_NO_ALERTS: (u32, u32) = (8, 4);

/// What was learned about the tool and its file system. Asked again whenever the version is.
#[derive(Debug, Default)]
pub(super) struct Learned {
    no_alerts: Mutex<Option<bool>>,
    licence: Mutex<Option<bool>>,
}

impl Learned {
    /// Whether the tool knows the flag; `None` before anybody asked.
    pub(super) fn no_alerts(&self) -> Option<bool> {
        *self.no_alerts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_no_alerts(&self, knows: bool) {
        *self.no_alerts.lock().unwrap_or_else(PoisonError::into_inner) = Some(knows);
    }

    /// Whether the file system has a valid licence, by the last answer that could tell.
    pub(super) fn licence(&self) -> Ability {
        match *self.licence.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(true) => Ability::Yes,
            Some(false) => Ability::No(Why::Unlicensed),
            None => Ability::Unknown,
        }
    }

    fn set_licence(&self, valid: bool) {
        *self.licence.lock().unwrap_or_else(PoisonError::into_inner) = Some(valid);
    }

    /// Takes remarks about the licence out of an answer, and learns from them. An answer about quotas wants a licence.
    pub(super) fn judge(&self, ran: Ran, is_about_quotas: bool) -> Ran {
        let (ran, unlicensed) = without_licence(ran);
        let is_refused = matches!(noise::complaint(&ran.stderr), Some((Trouble::Unlicensed, _)));
        if unlicensed || is_refused {
            self.set_licence(false);
        } else if ran.status == 0 && is_about_quotas {
            self.set_licence(true);
        }
        ran
    }
}

/// The answer without remarks about the licence, and whether they say that there is no valid one.
fn without_licence(ran: Ran) -> (Ran, bool) {
    let mut unlicensed = false;
    let mut carried_out = false;
    let mut kept = String::new();
    for line in ran.stderr.split_inclusive('\n') {
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("error: unable to verify licensed status") {
            carried_out = true;
            // Else the question about the licence failed, which says nothing of the licence.
            unlicensed |= lower.contains("library not loaded");
        } else if lower.starts_with("warning: ") && lower.contains("license") {
            unlicensed |= lower.contains("not have a valid license");
        } else if !(unlicensed && (lower.starts_with("to avoid disruptions") || lower.starts_with("reason: "))) {
            kept.push_str(line);
        }
    }
    let status = if carried_out && ran.status == 1 { 0 } else { ran.status };
    (Ran { status, stderr: kept, stdout: ran.stdout }, unlicensed)
}

/// `Version: 8.4.0 | Commit …`, or `v8.4.0`; a tool built outside its project's releases has no number.
pub(super) fn version(ran: &Ran) -> Known<String> {
    let line = ran.stdout.lines().find_map(|line| line.trim().strip_prefix("Version: "));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.map_or(Known::Missing(Why::NotUnderstood), |word| Known::Known(printable(word.trim_start_matches('v'))))
}

/// Whether a release knows the flag; `None` where the version is no number.
pub(super) fn knows_no_alerts(version: &str) -> Option<bool> {
    let (major, rest) = version.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?) >= KNOWS_NO_ALERTS)
}
