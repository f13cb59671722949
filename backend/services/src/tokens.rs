//! API tokens: what programs send as `Authorization: Bearer`. Shown once, stored hashed, with scopes and an end.

use std::net::IpAddr;
use std::sync::Arc;

use eirene_core::secret::Secret;
use eirene_core::text::is_printable;
use eirene_core::{ApiToken, Clock, Scope, Sentence, TokenId, User};
use eirene_database::Db;
use eirene_words::{say, say_with};
use jiff::SignedDuration;
use secrecy::SecretString;
use serde_json::json;

use crate::access::Access;
use crate::accounts::{Accounts, Attempt};
use crate::actor::{Actor, Via};
use crate::audit::Audit;
use crate::error::{AppError, FieldError};

/// What every token begins with, so that a leaked one is recognised.
pub const PREFIX: &str = "eir_";
/// Longest life of a token, seconds: a year.
pub const MAX_EXPIRES_IN_S: u64 = 366 * 86_400;
/// Longest name, in characters.
pub const MAX_NAME: usize = 100;
/// Most tokens one person may have.
const MAX_TOKENS: usize = 100;
/// The last use is written down at most this often.
const TOUCH_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// A token about to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// What its owner calls it.
    pub name: String,
    /// What it may be used for; the default when none is given.
    pub scopes: Option<Vec<Scope>>,
    /// Seconds until it ends; none is never.
    pub expires_in_s: Option<u64>,
}

/// A token just made; the secret is shown once.
pub struct MadeToken {
    /// The token.
    pub token: ApiToken,
    /// What the program sends.
    pub secret: Secret,
}

/// The API tokens.
#[derive(Clone)]
pub struct Tokens {
    db: Db,
    clock: Arc<dyn Clock>,
    audit: Audit,
    accounts: Accounts,
    access: Access,
}

impl Tokens {
    /// Tokens kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, audit: Audit, accounts: Accounts, access: Access) -> Self {
        Self { db, clock, audit, accounts, access }
    }

    /// Makes a token for whoever knows the password.
    pub async fn create_with_password(
        &self,
        username: &str,
        password: SecretString,
        address: Option<IpAddr>,
        request_id: Option<&str>,
        new: NewToken,
    ) -> Result<MadeToken, AppError> {
        let attempt = Attempt { username, password, address, request_id, purpose: "token.create" };
        let user = self.accounts.authenticate(attempt).await?;
        self.make(user, address, request_id, new).await
    }

    /// Makes a token for somebody who is signed in.
    pub async fn create(&self, actor: &Actor, new: NewToken) -> Result<MadeToken, AppError> {
        actor.require(Scope::Tokens)?;
        self.make(actor.user.clone(), actor.address, actor.request_id.as_deref(), new).await
    }

    async fn make(
        &self,
        user: User,
        address: Option<IpAddr>,
        request_id: Option<&str>,
        new: NewToken,
    ) -> Result<MadeToken, AppError> {
        let mut scopes = new.scopes.unwrap_or_else(|| Scope::DEFAULT.to_vec());
        scopes.sort_unstable();
        scopes.dedup();
        check(&new.name, new.expires_in_s, &scopes)?;
        if scopes.contains(&Scope::Admin) && !user.is_admin() {
            return Err(AppError::Forbidden { code: "not_admin", text: say("problem.admin_scope") });
        }
        if self.db.tokens_of(user.id).await?.len() >= MAX_TOKENS {
            let text = say_with("problem.too_many_tokens", &[("n", &MAX_TOKENS.to_string())]);
            return Err(AppError::Conflict { code: "too_many_tokens", text });
        }
        let now = self.clock.now();
        let expires_in = new.expires_in_s.map(|s| SignedDuration::from_secs(i64::try_from(s).unwrap_or(i64::MAX)));
        let secret = Secret::from_text(format!("{PREFIX}{}", Secret::generate().expose()));
        let token = ApiToken {
            id: TokenId::generate(),
            user: user.id,
            name: new.name,
            scopes,
            created_at: now,
            expires_at: expires_in.and_then(|s| now.checked_add(s).ok()),
            last_used_at: None,
        };
        let actor = Actor {
            user,
            via: Via::Token { id: token.id, scopes: token.scopes.clone() },
            address,
            request_id: request_id.map(str::to_owned),
        };
        let details = json!({"scopes": token.scopes, "expires_at": token.expires_at});
        let entry = self.audit.entry(actor.audit("token.create", &token.id.to_string(), "ok", details));
        if !self.db.insert_token(actor.user.access_epoch, &token, &secret.hash(), &entry).await? {
            // What the caller came in with was voided in between.
            return Err(AppError::Unauthenticated);
        }
        Ok(MadeToken { token, secret })
    }

    /// Whose token this is, when it is still good.
    pub async fn by_secret(&self, secret: &Secret) -> Result<Option<(ApiToken, User)>, AppError> {
        if !secret.expose().starts_with(PREFIX) {
            return Ok(None);
        }
        let now = self.clock.now();
        let Some((token, user)) = self.db.token_by_hash(&secret.hash(), now).await? else { return Ok(None) };
        if token.last_used_at.is_none_or(|at| at + TOUCH_EVERY <= now) {
            self.db.touch_token(token.id, now).await?;
        }
        Ok(Some((token, user)))
    }

    /// One's own tokens, newest first.
    pub async fn list(&self, actor: &Actor) -> Result<Vec<ApiToken>, AppError> {
        actor.require(Scope::Tokens)?;
        Ok(self.db.tokens_of(actor.user.id).await?)
    }

    /// One of one's own tokens. A token may always see itself.
    pub async fn get(&self, actor: &Actor, id: TokenId) -> Result<ApiToken, AppError> {
        let itself = matches!(&actor.via, Via::Token { id: own, .. } if *own == id);
        if !itself {
            actor.require(Scope::Tokens)?;
        }
        let tokens = self.db.tokens_of(actor.user.id).await?;
        tokens.into_iter().find(|token| token.id == id).ok_or(AppError::NotFound)
    }

    /// Ends one of one's own tokens. A token may always end itself.
    pub async fn delete(&self, actor: &Actor, id: TokenId) -> Result<(), AppError> {
        let itself = matches!(&actor.via, Via::Token { id: own, .. } if *own == id);
        if !itself {
            actor.require(Scope::Tokens)?;
        }
        let entry = self.audit.entry(actor.audit("token.delete", &id.to_string(), "ok", json!({})));
        if !self.db.delete_token(actor.user.id, id, &entry).await? {
            return Err(AppError::NotFound);
        }
        self.access.recheck(actor.user.id).await;
        Ok(())
    }
}

fn check(name: &str, expires_in_s: Option<u64>, scopes: &[Scope]) -> Result<(), AppError> {
    let mut errors = Vec::new();
    let mut wrong = |field: &str, message: Sentence| errors.push(FieldError::new(field, message));
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME || name.trim() != name || !name.chars().all(is_printable) {
        wrong("name", say_with("wrong.printable", &[("n", &MAX_NAME.to_string())]));
    }
    if expires_in_s.is_some_and(|s| s == 0 || s > MAX_EXPIRES_IN_S) {
        wrong("expires_in_s", say_with("wrong.expires_in", &[("most", &MAX_EXPIRES_IN_S.to_string())]));
    }
    if scopes.is_empty() {
        wrong("scopes", say("wrong.no_scopes"));
    }
    if errors.is_empty() { Ok(()) } else { Err(AppError::Invalid(errors)) }
}
