//! Who may do what: users, roles and the scopes of API tokens.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::UserId;
use crate::name::Username;

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        // Not derived: the derive does not see through the macro and would publish the names of the variants.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .enum_values(Some([$($text,)*]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word used in the API, the database and the log.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::name::NameError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(crate::name::NameError::OneOf(concat!($("`", $text, "` ",)*).trim_ascii_end())),
                }
            }
        }
    };
}
pub(crate) use word_enum;

word_enum! {
    /// What a user is to the platform.
    Role {
        /// Uses the cluster.
        Researcher = "researcher",
        /// Runs the platform: people, images, all sessions, audit.
        Admin = "admin",
    }
}

word_enum! {
    /// Whether a user may sign in.
    UserState {
        /// May sign in.
        Active = "active",
        /// May not sign in; tokens and log-ins are void.
        Disabled = "disabled",
    }
}

word_enum! {
    /// What an API token may be used for. A token never allows more than its user may do.
    Scope {
        /// Read one's own account, images and the cluster.
        Read = "read",
        /// List and read sessions, their events and logs.
        SessionsRead = "sessions:read",
        /// Start and stop sessions.
        SessionsWrite = "sessions:write",
        /// Reach a session's app on its own origin.
        SessionsConnect = "sessions:connect",
        /// List spaces and read one's own files.
        FilesRead = "files:read",
        /// Change one's own files. Whoever can write a person's start-up files can become that person.
        FilesWrite = "files:write",
        /// Make and delete API tokens.
        Tokens = "tokens",
        /// Everything an admin may do; only for admins.
        Admin = "admin",
    }
}

impl Scope {
    /// What a token gets when nothing is asked for. Files are not in it: a token for sessions was never one for files.
    pub const DEFAULT: &'static [Self] = &[Self::Read, Self::SessionsRead, Self::SessionsWrite, Self::SessionsConnect];
}

/// A person with an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Id.
    pub id: UserId,
    /// POSIX log-in name and name in the portal.
    pub username: Username,
    /// Role.
    pub role: Role,
    /// Whether the user may sign in.
    pub state: UserState,
    /// POSIX user id; none for an account of the platform alone (an admin who runs nothing).
    pub uid: Option<u32>,
    /// When the account was made.
    pub created_at: Timestamp,
    /// How often all access was voided until this was read. What was authorised before the last time becomes no log-in and no token.
    pub access_epoch: i64,
}

impl User {
    /// Whether the user runs the platform.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_words_are_those_that_are_read_and_written() {
        let schema = serde_json::to_value(<Scope as utoipa::PartialSchema>::schema()).unwrap();
        assert_eq!(schema["enum"], serde_json::to_value(Scope::ALL).unwrap());
    }

    #[test]
    fn a_token_that_asks_for_nothing_gets_no_files() {
        assert!(!Scope::DEFAULT.contains(&Scope::FilesRead) && !Scope::DEFAULT.contains(&Scope::FilesWrite));
    }
}
