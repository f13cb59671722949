//! The account page: who I am, API tokens, password.

use serde::Serialize;

use super::format::Time;
use super::layout::Layout;
use super::{Choice, Field, FormError};
use crate::pages::Page;

/// An API token in the list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TokenView {
    /// What it is called.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) scopes: String,
    /// When it was made.
    pub(crate) created: Time,
    /// When it ends.
    pub(crate) expires: Option<Time>,
    /// When it was last used.
    pub(crate) last_used: Option<Time>,
    /// Where it is deleted.
    pub(crate) delete_href: String,
}

/// A scope to choose.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ScopeChoice {
    /// Its name.
    pub(crate) value: String,
    /// What it allows.
    pub(crate) label: String,
    /// Whether it is chosen.
    pub(crate) checked: bool,
}

/// My account.
#[derive(Debug, Serialize)]
pub(crate) struct AccountPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// Name.
    pub(crate) username: String,
    /// Role, in words.
    pub(crate) role: String,
    /// POSIX user id; empty for none.
    pub(crate) uid: String,
    /// Tokens.
    pub(crate) tokens: Vec<TokenView>,
    /// A token that was made just now; shown this once.
    pub(crate) new_token: String,
    /// Name of the token to make.
    pub(crate) token_name: Field,
    /// What it may do.
    pub(crate) scopes: Vec<ScopeChoice>,
    /// What was wrong with the choice of scopes; empty when nothing.
    pub(crate) scopes_error: String,
    /// How long it lasts.
    pub(crate) lifetimes: Vec<Choice>,
    /// What was wrong with the token form.
    pub(crate) token_errors: Vec<FormError>,
    /// What was wrong with the current password; the password itself is never sent back.
    pub(crate) current_password: Field,
    /// What was wrong with the new password.
    pub(crate) new_password: Field,
    /// What was wrong with the password form.
    pub(crate) password_errors: Vec<FormError>,
}

impl Page for AccountPage {
    const TEMPLATE: &'static str = "pages/account.html";
}
