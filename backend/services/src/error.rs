//! What a service answers when it does not do what it was asked. Each variant is a decision of the caller; HTTP gives each one
//! a status, the command line an exit code.

pub mod files;

use eirene_core::{NameError, Sentence};
use eirene_database::DbError;
use eirene_words::{say, say_with};
use serde::Serialize;

use self::files::FilesTrouble;

/// What is wrong with one field of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldError {
    /// Name of the field as the API calls it.
    pub field: String,
    /// One sentence, lower case, no full stop.
    pub message: String,
}

impl FieldError {
    /// From its two parts.
    pub fn new(field: impl Into<String>, message: Sentence) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// A field whose text is no name of the wanted kind.
    pub fn no_name(field: impl Into<String>, error: NameError) -> Self {
        Self::new(field, broken_rule(error))
    }
}

/// Why a service did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The input is wrong; each field is named.
    #[error("{}", fields(.0))]
    Invalid(Vec<FieldError>),
    /// Nobody is signed in, or the credentials are not good.
    #[error("not signed in")]
    Unauthenticated,
    /// The thing may be seen, but this may not be done to it.
    #[error("{text}")]
    Forbidden {
        /// Stable code.
        code: &'static str,
        /// One sentence.
        text: Sentence,
    },
    /// It does not exist, or may not be seen.
    #[error("not found")]
    NotFound,
    /// It exists, but the actor may not see it: answered like [`AppError::NotFound`], and recorded in the audit log.
    #[error("not found")]
    Hidden,
    /// It contradicts what is there.
    #[error("{text}")]
    Conflict {
        /// Stable code.
        code: &'static str,
        /// One sentence.
        text: Sentence,
    },
    /// More than may be sent at once.
    #[error("too large")]
    TooLarge,
    /// Too often.
    #[error("too many tries; wait {retry_after_s} s")]
    RateLimited {
        /// Seconds until it may be tried again.
        retry_after_s: u64,
    },
    /// Something it needs is away for now.
    #[error("{what} cannot be reached at the moment")]
    Unavailable {
        /// What is away, in plain words.
        what: Sentence,
        /// Seconds after which it is worth trying again.
        retry_after_s: u64,
    },
    /// Nothing came of a request about files.
    #[error("{}", .0.text)]
    Files(Box<FilesTrouble>),
    /// A fault of ours. The text is for the log, never for the caller.
    #[error("internal error")]
    Internal(#[source] anyhow::Error),
}

/// The rule of a name in the catalogue's words.
fn broken_rule(error: NameError) -> Sentence {
    let longest = |key: &str, longest: usize| say_with(key, &[("n", &longest.to_string())]);
    match error {
        NameError::Lower(most) => longest("wrong.name.lower", most),
        NameError::Dashed(most) => longest("wrong.name.dashed", most),
        NameError::Word(most) => longest("wrong.name.word", most),
        NameError::Slurm(most) => longest("wrong.name.slurm", most),
        NameError::Printable(most) => longest("wrong.printable", most),
        NameError::OneOf(words) => say_with("wrong.one_of", &[("words", words)]),
    }
}

fn fields(errors: &[FieldError]) -> String {
    let lines: Vec<String> = errors.iter().map(|e| format!("`{}`: {}", e.field, e.message)).collect();
    lines.join("; ")
}

impl From<DbError> for AppError {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Unavailable(source) => {
                tracing::warn!(error = %source, "The database did not answer");
                Self::Unavailable { what: say("away.database"), retry_after_s: 2 }
            }
            DbError::Conflict { what } => {
                Self::Conflict { code: "conflict", text: say_with("problem.conflict", &[("what", what)]) }
            }
            error @ (DbError::Inconsistent { .. } | DbError::Other(_)) => Self::Internal(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_names_reads_the_same_in_the_catalogue_and_in_logs() {
        let rules = [
            NameError::Lower(32),
            NameError::Dashed(32),
            NameError::Word(255),
            NameError::Slurm(64),
            NameError::Printable(80),
            NameError::OneOf("`a` `b`"),
        ];
        for rule in rules {
            assert_eq!(broken_rule(rule).as_str(), rule.to_string());
        }
    }
}
