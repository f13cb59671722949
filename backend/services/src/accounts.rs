//! Accounts: making them, disabling them, and checking a password.
//!
//! Attempts are limited by address and by name *before* anything is hashed, so that neither guessing nor a flood of
//! log-ins costs more than a look into a table. What a right password leads to (a log-in, an API token) is decided in
//! [`super::logins`] and [`super::tokens`].

use std::collections::BTreeMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use eirene_core::audit::NewAuditEvent;
use eirene_core::secret::Secret;
use eirene_core::{Clock, Role, Sentence, User, UserId, UserState, Username};
use eirene_database::Db;
use eirene_words::{say, say_with};
use governor::clock::Clock as _;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::access::Access;
use crate::actor::Actor;
use crate::audit::Audit;
use crate::error::{AppError, FieldError};
use crate::passwords::{Passwords, Verdict};
use crate::shared::Shared;

/// Shortest password a person may choose, in characters.
pub const MIN_PASSWORD: usize = 10;
/// Longest password, in characters: longer ones only cost time.
pub const MAX_PASSWORD: usize = 256;
/// Longest text that is looked at, or written down, as the user name of an attempt.
const MAX_TYPED_NAME: usize = 64;
/// Length of a generated password: 120 bits.
const GENERATED_PASSWORD: usize = 20;
/// From this many remembered addresses or names on, old ones are swept out.
const SWEEP_FROM: usize = 10_000;
/// Most users in one answer.
const PAGE: u32 = 200;

/// Where a new account's POSIX user id comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uid {
    /// The system's user database, by name.
    FromSystem,
    /// None: an account of the platform alone, which runs nothing.
    None,
    /// This one.
    Given(u32),
}

/// An account about to be made.
#[derive(Debug)]
pub struct NewAccount {
    /// Name; also the POSIX log-in name.
    pub username: Username,
    /// Role.
    pub role: Role,
    /// Where the user id comes from.
    pub uid: Uid,
    /// Password; one is generated when there is none.
    pub password: Option<SecretString>,
}

/// One attempt to prove who one is.
pub struct Attempt<'a> {
    /// User name as typed.
    pub username: &'a str,
    /// Password as typed.
    pub password: SecretString,
    /// Client's address.
    pub address: Option<IpAddr>,
    /// Request's id.
    pub request_id: Option<&'a str>,
    /// What a right password is wanted for, as an audit action: `login` or `token.create`.
    pub purpose: &'static str,
}

/// The accounts.
#[derive(Clone)]
pub struct Accounts {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    audit: Audit,
    passwords: Passwords,
    access: Access,
    by_address: DefaultKeyedRateLimiter<IpAddr>,
    /// Tight, so that nobody guesses from one place …
    by_name_and_address: DefaultKeyedRateLimiter<(String, IpAddr)>,
    /// … and loose, so that others' attempts do not lock out whom the name belongs to.
    by_name: DefaultKeyedRateLimiter<String>,
}

impl Accounts {
    /// Accounts kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, audit: Audit, passwords: Passwords, access: Access) -> Self {
        let per = |period_s: u64, burst: u32| {
            let quota = Quota::with_period(Duration::from_secs(period_s)).unwrap_or(Quota::per_second(NonZeroU32::MIN));
            quota.allow_burst(NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN))
        };
        Self {
            inner: Shared::new(Inner {
                db,
                clock,
                audit,
                passwords,
                access,
                by_address: RateLimiter::keyed(per(2, 30)),
                by_name_and_address: RateLimiter::keyed(per(5, 15)),
                by_name: RateLimiter::keyed(per(1, 300)),
            }),
        }
    }

    /// Who this is, if the password is right and the account may be used.
    ///
    /// An unknown name, a wrong password and a disabled account are one and the same answer, at the same cost.
    pub async fn authenticate(&self, attempt: Attempt<'_>) -> Result<User, AppError> {
        let typed: String = attempt.username.chars().take(MAX_TYPED_NAME).collect();
        let network = network_of(attempt.address);
        Self::limit(&self.inner.by_address, &network)?;
        Self::limit(&self.inner.by_name_and_address, &(typed.clone(), network))?;
        Self::limit(&self.inner.by_name, &typed)?;
        let name: Option<Username> = attempt.username.parse().ok();
        let found = match &name {
            Some(name) => self.inner.db.user_credentials(name).await?,
            None => None,
        };
        let (user, stored) = found.unzip();
        let too_long = attempt.password.expose_secret().chars().count() > MAX_PASSWORD;
        let password = if too_long { SecretString::from("") } else { attempt.password };
        let verdict = self.inner.passwords.verify(password, stored.clone()).await?;
        let right = matches!(verdict, Verdict::Right { .. }) && !too_long;
        let Some(user) = user.filter(|user| right && user.state == UserState::Active) else {
            let event = NewAuditEvent {
                actor: typed.clone(),
                action: attempt.purpose,
                target: typed,
                outcome: "refused",
                details: json!({"reason": "wrong name or password"}),
                address: attempt.address.map(|a| a.to_string()),
                request_id: attempt.request_id.map(str::to_owned),
            };
            self.inner.audit.refused(event).await;
            return Err(AppError::Unauthenticated);
        };
        if let (Verdict::Right { rehash: Some(hash) }, Some(stored)) = (verdict, stored) {
            self.inner.db.rehash_password(user.id, &stored, &hash).await?;
        }
        Ok(user)
    }

    fn limit<K: Hash + Eq + Clone>(limiter: &DefaultKeyedRateLimiter<K>, key: &K) -> Result<(), AppError> {
        if limiter.len() > SWEEP_FROM {
            limiter.retain_recent();
        }
        limiter.check_key(key).map_err(|until| {
            let wait = until.wait_time_from(limiter.clock().now());
            AppError::RateLimited { retry_after_s: wait.as_secs().saturating_add(1) }
        })
    }

    /// Makes an account. Gives the password back when it was generated; it is shown once.
    pub async fn create(&self, actor: &Actor, new: NewAccount) -> Result<(User, Option<SecretString>), AppError> {
        actor.require_admin()?;
        let uid = match new.uid {
            Uid::None => None,
            Uid::Given(uid) => Some(uid),
            Uid::FromSystem => system_uid(&new.username).await?,
        };
        if uid.is_none() && new.role == Role::Researcher && new.uid == Uid::FromSystem {
            return Err(invalid("username", say_with("wrong.unknown_person", &[("name", new.username.as_str())])));
        }
        if uid.is_some_and(|uid| uid < 1000) {
            return Err(invalid("username", say_with("wrong.system_account", &[("name", new.username.as_str())])));
        }
        let (password, generated) = given_or_generated(new.password)?;
        let hash = self.inner.passwords.hash(password).await?;
        let user = User {
            id: UserId::generate(),
            username: new.username,
            role: new.role,
            state: UserState::Active,
            uid,
            created_at: self.inner.clock.now(),
            access_epoch: 0,
        };
        if self.inner.db.user_by_name(&user.username).await?.is_some() {
            return Err(taken(&user.username));
        }
        let event =
            actor.audit("user.create", user.username.as_str(), "ok", json!({"role": user.role, "uid": user.uid}));
        match self.inner.db.insert_user(&user, &hash, &self.inner.audit.entry(event)).await {
            Ok(()) => {}
            Err(eirene_database::DbError::Conflict { .. }) => return Err(taken(&user.username)),
            Err(error) => return Err(error.into()),
        }
        Ok((user, generated))
    }

    /// All accounts, by name, from after `cursor` on; the second part is the next cursor.
    pub async fn list(
        &self,
        actor: &Actor,
        cursor: Option<String>,
        limit: u32,
    ) -> Result<(Vec<User>, Option<String>), AppError> {
        actor.require_admin()?;
        let limit = limit.clamp(1, PAGE);
        let mut users = self.inner.db.users(cursor, limit + 1).await?;
        let more = users.len() > limit as usize;
        users.truncate(limit as usize);
        let next = if more { users.last().map(|user| user.username.to_string()) } else { None };
        Ok((users, next))
    }

    /// The names of those of these POSIX user ids that have an account here; for admins.
    pub async fn names(&self, actor: &Actor, uids: &[u32]) -> Result<BTreeMap<u32, Username>, AppError> {
        actor.require_admin()?;
        Ok(self.inner.db.usernames(uids).await?)
    }

    /// Disables or enables an account. Disabling voids its log-ins and tokens and closes its open streams; its
    /// sessions go on.
    pub async fn set_state(&self, actor: &Actor, username: &Username, state: UserState) -> Result<User, AppError> {
        actor.require_admin()?;
        let mut user = self.inner.db.user_by_name(username).await?.ok_or(AppError::NotFound)?;
        if state == UserState::Disabled && user.state == UserState::Active {
            if user.id == actor.user.id {
                return Err(conflict("own_account", say("problem.own_account")));
            }
            if user.is_admin() && self.inner.db.count_admins().await? <= 1 {
                return Err(conflict("last_admin", say("problem.last_admin")));
            }
        }
        let action = match state {
            UserState::Active => "user.enable",
            UserState::Disabled => "user.disable",
        };
        let entry = self.inner.audit.entry(actor.audit(action, username.as_str(), "ok", json!({})));
        if !self.inner.db.set_user_state(user.id, state, &entry).await? {
            return Err(AppError::NotFound);
        }
        user.state = state;
        if state == UserState::Disabled {
            self.inner.access.recheck(user.id).await;
        }
        Ok(user)
    }

    /// Gives somebody a new password and voids all log-ins and tokens made with the old one.
    /// Gives the password back when it was generated.
    pub async fn reset_password(
        &self,
        actor: &Actor,
        username: &Username,
        password: Option<SecretString>,
    ) -> Result<Option<SecretString>, AppError> {
        actor.require_admin()?;
        let user = self.inner.db.user_by_name(username).await?.ok_or(AppError::NotFound)?;
        let (password, generated) = given_or_generated(password)?;
        let hash = self.inner.passwords.hash(password).await?;
        let entry = self.inner.audit.entry(actor.audit("user.reset_password", username.as_str(), "ok", json!({})));
        if !self.inner.db.replace_password(user.id, &hash, None, &entry).await? {
            return Err(AppError::NotFound);
        }
        self.inner.access.recheck(user.id).await;
        Ok(generated)
    }

    /// Changes one's own password; the present one has to be right. All other log-ins and all tokens become void,
    /// and so does the log-in that asked: the person signs in again.
    pub async fn change_own_password(
        &self,
        actor: &Actor,
        present: SecretString,
        new: SecretString,
    ) -> Result<(), AppError> {
        let attempt = Attempt {
            username: actor.user.username.as_str(),
            password: present,
            address: actor.address,
            request_id: actor.request_id.as_deref(),
            purpose: "user.change_password",
        };
        let user = match self.authenticate(attempt).await {
            Ok(user) => user,
            Err(AppError::Unauthenticated) => return Err(invalid("present", say("wrong.password"))),
            Err(error) => return Err(error),
        };
        check_password("new", &new)?;
        let hash = self.inner.passwords.hash(new).await?;
        let event = actor.audit("user.change_password", actor.user.username.as_str(), "ok", json!({}));
        let entry = self.inner.audit.entry(event);
        if !self.inner.db.replace_password(user.id, &hash, Some(user.access_epoch), &entry).await? {
            // An admin was faster.
            return Err(AppError::Unauthenticated);
        }
        self.inner.access.recheck(actor.user.id).await;
        Ok(())
    }
}

/// Clients of one IPv6 network share a limit: one person has a whole /64.
fn network_of(address: Option<IpAddr>) -> IpAddr {
    match address {
        Some(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        },
        Some(v4) => v4,
        None => Ipv4Addr::UNSPECIFIED.into(),
    }
}

async fn system_uid(username: &Username) -> Result<Option<u32>, AppError> {
    let name = username.to_string();
    let found = tokio::task::spawn_blocking(move || nix::unistd::User::from_name(&name))
        .await
        .map_err(|e| AppError::Internal(e.into()))?
        .map_err(|e| {
            AppError::Internal(anyhow::Error::from(e).context("the system's user database does not answer"))
        })?;
    Ok(found.map(|user| user.uid.as_raw()))
}

fn given_or_generated(password: Option<SecretString>) -> Result<(SecretString, Option<SecretString>), AppError> {
    if let Some(password) = password {
        check_password("password", &password)?;
        return Ok((password, None));
    }
    let secret = Secret::generate();
    let text: String = secret.expose().chars().take(GENERATED_PASSWORD).collect();
    Ok((SecretString::from(text.clone()), Some(SecretString::from(text))))
}

fn check_password(field: &str, password: &SecretString) -> Result<(), AppError> {
    let text = password.expose_secret();
    let characters = text.chars().count();
    if characters < MIN_PASSWORD {
        return Err(invalid(field, say_with("wrong.too_short", &[("n", &MIN_PASSWORD.to_string())])));
    }
    if characters > MAX_PASSWORD || text.contains('\0') {
        return Err(invalid(field, say_with("wrong.too_long", &[("n", &MAX_PASSWORD.to_string())])));
    }
    Ok(())
}

fn invalid(field: &str, message: Sentence) -> AppError {
    AppError::Invalid(vec![FieldError::new(field, message)])
}

fn conflict(code: &'static str, text: Sentence) -> AppError {
    AppError::Conflict { code, text }
}

fn taken(username: &Username) -> AppError {
    conflict("username_taken", say_with("problem.username_taken", &[("name", username.as_str())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ipv6_network_shares_a_limit_and_mapped_addresses_are_ipv4() {
        let of = |text: &str| network_of(Some(text.parse().unwrap())).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
    }
}
