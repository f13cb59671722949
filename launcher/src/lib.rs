//! The only privileged process: signs SLURM tokens and acts as the person.
//!
//! It serves one client, the portal's own user, over a unix socket, with the fixed verbs of [`eirene_core::launcher`]. What is
//! refused here is refused whatever the portal says: root, SLURM's user, system users, unknown people, unknown programs and
//! arguments, programs that others than root can write. Everything that touches a person's files or runs a program happens in a child that has
//! become that person first; the privileged process itself opens nothing but its configuration, the signing key and the audit log. Directories of
//! spaces are made, renamed and removed by a child that stays root and touches no file of anybody's. Each call leaves one line in the audit
//! log. Whether a person may do something at all is the portal's to decide.

mod acl;
pub mod as_person;
pub mod as_root;
pub mod audit;
pub mod beegfs;
pub mod child;
pub mod config;
pub mod files;
mod forms;
mod in_namespace;
mod kernel_quotas;
pub mod people;
pub mod places;
pub mod program;
mod project;
mod purge;
pub mod server;
pub mod slurm;
pub mod space_root;
pub mod token;
pub mod verbs;

/// Why a call was refused: the code is stable, the text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `unknown_person`, `forbidden_person`, `unknown_group`, `bad_request`, `conflict`, `missing`, `not_supported`, `not_enabled`, `failed`,
    /// `not_configured` or, when the same may be done later, `away`.
    pub code: &'static str,
    /// One sentence without secrets.
    pub text: String,
}

impl Refusal {
    /// As a child said it.
    fn said(code: &str, text: String) -> Self {
        const CODES: [&str; 10] = [
            "unknown_person",
            "forbidden_person",
            "unknown_group",
            "bad_request",
            "conflict",
            "missing",
            "not_supported",
            "not_enabled",
            "not_configured",
            "away",
        ];
        Self { code: CODES.into_iter().find(|known| *known == code).unwrap_or("failed"), text }
    }

    pub(crate) fn unknown_person(text: impl Into<String>) -> Self {
        Self { code: "unknown_person", text: text.into() }
    }

    pub(crate) fn forbidden_person(text: impl Into<String>) -> Self {
        Self { code: "forbidden_person", text: text.into() }
    }

    pub(crate) fn unknown_group(text: impl Into<String>) -> Self {
        Self { code: "unknown_group", text: text.into() }
    }

    /// Something else lies where a space is to be.
    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self { code: "conflict", text: text.into() }
    }

    /// A space is neither where it should be nor where it was to go.
    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self { code: "missing", text: text.into() }
    }

    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self { code: "bad_request", text: text.into() }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { code: "failed", text: text.into() }
    }

    /// The file system cannot do that.
    pub(crate) fn not_supported(text: impl Into<String>) -> Self {
        Self { code: "not_supported", text: text.into() }
    }

    /// The file system could, and it is not switched on.
    pub(crate) fn not_enabled(text: impl Into<String>) -> Self {
        Self { code: "not_enabled", text: text.into() }
    }

    /// The configuration does not have what is asked for: root may add it.
    pub(crate) fn not_configured(text: impl Into<String>) -> Self {
        Self { code: "not_configured", text: text.into() }
    }

    /// Something passes, and the same call may be answered later.
    pub(crate) fn away(text: impl Into<String>) -> Self {
        Self { code: "away", text: text.into() }
    }
}
