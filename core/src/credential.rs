//! What proves who asks: tokens of programs and sign-ins of browsers. The secrets themselves are stored only hashed.

use jiff::Timestamp;

use crate::account::Scope;
use crate::id::{LoginId, TokenId, UserId};

/// A token for programs. The token itself is stored only hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Id.
    pub id: TokenId,
    /// Whose it is.
    pub user: UserId,
    /// What its user calls it.
    pub name: String,
    /// What it may be used for.
    pub scopes: Vec<Scope>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires; none means never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute or so.
    pub last_used_at: Option<Timestamp>,
}

/// One browser that is signed in to the portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Id.
    pub id: LoginId,
    /// Who signed in.
    pub user: UserId,
    /// When.
    pub created_at: Timestamp,
    /// When it was last used, to the minute or so: callers need not touch it at every request.
    pub last_seen_at: Timestamp,
    /// When it expires, however often it is used.
    pub expires_at: Timestamp,
    /// The browser's address when it signed in.
    pub address: Option<String>,
    /// What the browser called itself: hostile text.
    pub user_agent: Option<String>,
}
