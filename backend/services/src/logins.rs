//! Log-ins: one browser each that is signed in to the portal.
//!
//! A log-in is a 256-bit secret in a cookie, stored as a hash. It ends after twelve hours without a request or seven
//! days after it was made, whichever comes first, at log-out, and when the account is disabled or its password changes.

use std::net::IpAddr;
use std::sync::Arc;

use eirene_core::secret::Secret;
use eirene_core::text::one_line;
use eirene_core::{Clock, Login, LoginId, User};
use eirene_database::{Counting, Db};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::json;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::access::Access;
use crate::accounts::{Accounts, Attempt};
use crate::actor::{Actor, Via};
use crate::audit::Audit;
use crate::error::AppError;

/// A log-in ends this long after it was made, used or not.
pub const ABSOLUTE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A log-in ends this long after its last request.
pub const IDLE: SignedDuration = SignedDuration::from_hours(12);
/// The last request is written down at most this often.
const TOUCH_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// The log-ins that count at `now`.
pub(crate) fn counting(now: Timestamp) -> Counting {
    Counting { now, used_after: now - IDLE }
}

/// Whether the use of a log-in at `now` is to be written down; it was used last at `last_seen_at`.
pub(crate) fn is_news(last_seen_at: Timestamp, now: Timestamp) -> bool {
    last_seen_at + TOUCH_EVERY <= now
}

/// Longest `User-Agent` that is kept.
const MAX_USER_AGENT: usize = 256;

/// A log-in just made; the secret goes into the cookie and is kept nowhere.
pub struct NewLogin {
    /// The log-in.
    pub login: Login,
    /// Whose it is.
    pub user: User,
    /// The cookie's value.
    pub secret: Secret,
}

/// The log-ins.
#[derive(Clone)]
pub struct Logins {
    db: Db,
    clock: Arc<dyn Clock>,
    audit: Audit,
    accounts: Accounts,
    access: Access,
}

impl Logins {
    /// Log-ins kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, audit: Audit, accounts: Accounts, access: Access) -> Self {
        Self { db, clock, audit, accounts, access }
    }

    /// Signs a browser in.
    pub async fn log_in(
        &self,
        username: &str,
        password: SecretString,
        address: Option<IpAddr>,
        user_agent: &str,
        request_id: Option<&str>,
    ) -> Result<NewLogin, AppError> {
        let attempt = Attempt { username, password, address, request_id, purpose: "login" };
        let user = self.accounts.authenticate(attempt).await?;
        let now = self.clock.now();
        let secret = Secret::generate();
        let login = Login {
            id: LoginId::generate(),
            user: user.id,
            created_at: now,
            last_seen_at: now,
            expires_at: now + ABSOLUTE,
            address: address.map(|a| a.to_string()),
            user_agent: Some(one_line(user_agent, MAX_USER_AGENT)),
        };
        let actor =
            Actor { user: user.clone(), via: Via::Login(login.id), address, request_id: request_id.map(str::to_owned) };
        let entry = self.audit.entry(actor.audit("login", user.username.as_str(), "ok", json!({})));
        if !self.db.insert_login(user.access_epoch, &login, &secret.hash(), &entry).await? {
            // The password was changed, or the account disabled, while it was being checked.
            return Err(AppError::Unauthenticated);
        }
        Ok(NewLogin { login, user, secret })
    }

    /// Whose cookie this is, when it is still good.
    pub async fn by_secret(&self, secret: &Secret) -> Result<Option<(Login, User)>, AppError> {
        let now = self.clock.now();
        let Some((login, user)) = self.db.login_by_hash(&secret.hash(), counting(now)).await? else { return Ok(None) };
        if is_news(login.last_seen_at, now) {
            self.db.touch_login(login.id, now).await?;
        }
        Ok(Some((login, user)))
    }

    /// Signs a browser out: its log-in ends, and with it every app log-in made from it and every open stream.
    pub async fn log_out(&self, actor: &Actor, login: LoginId) -> Result<(), AppError> {
        let entry = self.audit.entry(actor.audit("logout", actor.user.username.as_str(), "ok", json!({})));
        self.db.delete_login(login, &entry).await?;
        self.access.recheck(actor.user.id).await;
        Ok(())
    }
}

/// The token every form of a log-in carries: made from the cookie's secret, so that it needs no store of its own.
pub fn form_token(secret: &Secret) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) else { return String::new() };
    mac.update(b"eirene form token");
    data_encoding::BASE64URL_NOPAD.encode(&mac.finalize().into_bytes())
}

/// Whether `given` is the form token of the log-in with `secret`, in constant time.
pub fn form_token_matches(secret: &Secret, given: &str) -> bool {
    let expected = form_token(secret);
    !expected.is_empty() && bool::from(expected.as_bytes().ct_eq(given.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_token_belongs_to_one_login() {
        let (a, b) = (Secret::generate(), Secret::generate());
        assert!(form_token_matches(&a, &form_token(&a)));
        assert!(!form_token_matches(&a, &form_token(&b)));
        assert!(!form_token_matches(&a, ""));
        assert!(!form_token(&a).contains(a.expose()));
    }
}
