//! Who may reach a session's app, and the hand-over of a browser from the portal to a session's own origin.
//!
//! Every proxied request asks [`Access::admit`]. The answer is remembered for a second or two, so that the database is
//! not asked thousands of times a second; whatever takes rights away (log-out, a disabled account, a deleted token)
//! calls [`Access::recheck`], which forgets the answers that no longer hold and closes the streams opened on them. A
//! sweep does the same for changes made behind our back. A session that stops closes its streams through the tunnel
//! registry, not here. A person who may no longer sign in loses the file process at the same moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use data_encoding::HEXLOWER;
use eirene_core::secret::{Secret, SecretHash};
use eirene_core::{AppName, Clock, JobKind, LoginId, Scope, Session, SessionId, User, UserId, UserState};
use eirene_database::{Db, NewAppLogin};
use eirene_words::say;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::actor::{Actor, Via};
use crate::audit::Audit;
use crate::error::AppError;
use crate::file_processes::FilesPool;
use crate::logins;
use crate::shared::Shared;

/// An answer is used without asking again for this long.
const FRESH_MS: i64 = 1_000;
/// While one request asks again, others use the old answer up to this age.
const STALE_MS: i64 = 2_000;
/// A one-time code is good for this long.
const HANDOVER: SignedDuration = SignedDuration::from_secs(60);
/// From this many remembered answers on, those nobody uses are dropped first.
const MANY: usize = 10_000;

/// What a request shows to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ticket {
    /// The app cookie of one session's origin.
    AppCookie(SessionId, Digest),
    /// An API token, at one session's origin.
    AppToken(SessionId, Digest),
    /// The portal's cookie.
    Login(Digest),
    /// An API token, at the API.
    Token(Digest),
}

/// SHA-256 of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of the secret's text.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    fn stored(&self) -> SecretHash {
        SecretHash::from_stored(HEXLOWER.encode(&self.0))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// That somebody was let in; whoever holds a stream open watches [`Grant::revoked`].
#[derive(Debug)]
pub struct Grant {
    /// Who.
    pub user: UserId,
    /// The app that a program with a token reaches; none for a browser, and where there is no app.
    pub app: Option<AppName>,
    /// Cancelled when the right is gone.
    pub revoked: CancellationToken,
    checked_ms: AtomicI64,
    checking: AtomicBool,
}

/// What is known of a ticket that is good.
struct Verified {
    user: UserId,
    /// The log-in behind it, and when that was used last.
    used: Option<(LoginId, Timestamp)>,
    app: Option<AppName>,
}

/// The rights to sessions' apps.
#[derive(Clone)]
pub struct Access {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    audit: Audit,
    grants: RwLock<HashMap<Ticket, Arc<Grant>>>,
    files: Option<Arc<FilesPool>>,
}

impl Access {
    /// Rights as `db` has them; `files` of whoever loses them are closed, where this process has any.
    pub fn new(db: Db, clock: Arc<dyn Clock>, audit: Audit, files: Option<Arc<FilesPool>>) -> Self {
        Self { inner: Shared::new(Inner { db, clock, audit, grants: RwLock::default(), files }) }
    }

    /// Lets the holder of `ticket` in, or does not.
    pub async fn admit(&self, ticket: Ticket) -> Result<Option<Arc<Grant>>, AppError> {
        self.admit_within(ticket, Span::current).await
    }

    /// The same; `span` is made, and what is logged is logged within it, only where the database has to be asked.
    pub async fn admit_within(
        &self,
        ticket: Ticket,
        span: impl FnOnce() -> Span,
    ) -> Result<Option<Arc<Grant>>, AppError> {
        let now_ms = self.inner.clock.now().as_millisecond();
        let known = self.inner.grants.read().unwrap_or_else(PoisonError::into_inner).get(&ticket).map(Arc::clone);
        if let Some(grant) = &known {
            let age = now_ms - grant.checked_ms.load(Ordering::Relaxed);
            if age < FRESH_MS || (age < STALE_MS && grant.checking.swap(true, Ordering::AcqRel)) {
                return Ok(known);
            }
        }
        let checked = self.admitted(ticket).instrument(span()).await;
        if let Some(grant) = &known {
            grant.checking.store(false, Ordering::Release);
        }
        match checked? {
            None => {
                self.forget(&ticket);
                Ok(None)
            }
            Some(known) => Ok(Some(self.remember(ticket, known, now_ms))),
        }
    }

    fn remember(&self, ticket: Ticket, known: Verified, now_ms: i64) -> Arc<Grant> {
        let mut grants = self.inner.grants.write().unwrap_or_else(PoisonError::into_inner);
        if grants.len() >= MANY {
            grants.retain(|_, grant| {
                Arc::strong_count(grant) > 1 || now_ms - grant.checked_ms.load(Ordering::Relaxed) < STALE_MS
            });
        }
        let grant = grants.entry(ticket).or_insert_with(|| {
            Arc::new(Grant {
                user: known.user,
                app: known.app,
                revoked: CancellationToken::new(),
                checked_ms: AtomicI64::new(now_ms),
                checking: AtomicBool::new(false),
            })
        });
        grant.checked_ms.store(now_ms, Ordering::Relaxed);
        Arc::clone(grant)
    }

    fn forget(&self, ticket: &Ticket) {
        let gone = self.inner.grants.write().unwrap_or_else(PoisonError::into_inner).remove(ticket);
        if let Some(grant) = gone {
            grant.revoked.cancel();
        }
    }

    /// Verifies the ticket of a request. Work in an app is use of the log-in that its cookie came from.
    async fn admitted(&self, ticket: Ticket) -> Result<Option<Verified>, AppError> {
        let Some(known) = self.verify(ticket).await? else { return Ok(None) };
        let now = self.inner.clock.now();
        if let Some((login, _)) = known.used.filter(|(_, last_seen_at)| logins::is_news(*last_seen_at, now)) {
            // A database that cannot be written keeps nobody out.
            if let Err(error) = self.inner.db.touch_login(login, now).await {
                tracing::warn!(%error, "The use of a log-in was not written down");
            }
        }
        Ok(Some(known))
    }

    /// Whose the ticket is while it is good.
    async fn verify(&self, ticket: Ticket) -> Result<Option<Verified>, AppError> {
        let db = &self.inner.db;
        let now = self.inner.clock.now();
        let counting = logins::counting(now);
        let (mut used, mut app) = (None, None);
        let user = match ticket {
            Ticket::AppCookie(session, digest) => {
                let found = db.app_login(&digest.stored(), session, counting).await?;
                used = found.as_ref().map(|found| (found.login, found.last_seen_at));
                found.map(|found| found.user)
            }
            Ticket::Login(digest) => db.login_by_hash(&digest.stored(), counting).await?.map(|(_, user)| user),
            Ticket::Token(digest) => db.token_by_hash(&digest.stored(), now).await?.map(|(_, user)| user),
            Ticket::AppToken(session, digest) => {
                let found = db.token_by_hash(&digest.stored(), now).await?;
                let able = found.filter(|(token, _)| token.scopes.contains(&Scope::SessionsConnect));
                match able {
                    Some((_, user)) => {
                        app = self.connectable(&user, session).await?.map(|session| session.app);
                        app.is_some().then_some(user)
                    }
                    None => None,
                }
            }
        };
        let user = user.filter(|user| user.state == UserState::Active);
        Ok(user.map(|user| Verified { user: user.id, used, app }))
    }

    /// Asks the database again about everything `user` was let in with; what no longer holds is closed.
    pub async fn recheck(&self, user: UserId) {
        self.recheck_where(|grant| grant.user == user).await;
        self.close_files(&[user]).await;
    }

    /// Asks again about everything that is in use, and forgets what is not: for changes made behind our back.
    pub async fn sweep(&self) {
        let now_ms = self.inner.clock.now().as_millisecond();
        self.inner.grants.write().unwrap_or_else(PoisonError::into_inner).retain(|_, grant| {
            Arc::strong_count(grant) > 1 || now_ms - grant.checked_ms.load(Ordering::Relaxed) < STALE_MS
        });
        self.recheck_where(|_| true).await;
        self.close_files(&self.inner.files.as_ref().map(|files| files.owners()).unwrap_or_default()).await;
    }

    /// Closes the file processes of those who may no longer sign in; who only lost a token keeps hers.
    async fn close_files(&self, users: &[UserId]) {
        let Some(files) = &self.inner.files else { return };
        for id in users {
            match self.inner.db.user(*id).await {
                Ok(Some(user)) if user.state == UserState::Active => {}
                Ok(_) => files.revoke(*id),
                Err(error) => tracing::warn!(%error, "could not check a right again; it is asked for at its next use"),
            }
        }
    }

    async fn recheck_where(&self, concerned: impl Fn(&Grant) -> bool) {
        let tickets: Vec<Ticket> = {
            let grants = self.inner.grants.read().unwrap_or_else(PoisonError::into_inner);
            grants.iter().filter(|(_, grant)| concerned(grant)).map(|(ticket, _)| *ticket).collect()
        };
        for ticket in tickets {
            match self.verify(ticket).await {
                Ok(Some(_)) => {}
                Ok(None) => self.forget(&ticket),
                Err(error) => tracing::warn!(%error, "could not check a right again; it is asked for at its next use"),
            }
        }
    }

    /// Whether `user` may reach the app of `session`.
    pub async fn may_connect(&self, user: &User, session: SessionId) -> Result<bool, AppError> {
        Ok(self.connectable(user, session).await?.is_some())
    }

    /// The session, where `user` may reach its app: its owner may. A run has none.
    async fn connectable(&self, user: &User, session: SessionId) -> Result<Option<Session>, AppError> {
        let found = self.inner.db.session(session).await?;
        Ok(found.filter(|session| session.owner == user.id && session.kind() == JobKind::Session))
    }

    /// The session behind an origin, for the page that is shown while its app does not answer.
    pub async fn session(&self, session: SessionId) -> Result<Option<Session>, AppError> {
        Ok(self.inner.db.session(session).await?.filter(|session| session.kind() == JobKind::Session))
    }

    /// Makes the one-time code that takes a browser from the portal to the session's origin.
    pub async fn begin_handover(&self, actor: &Actor, session: SessionId) -> Result<Secret, AppError> {
        let Via::Login(login) = actor.via else {
            return Err(AppError::Forbidden { code: "browser_only", text: say("problem.browser_only") });
        };
        if !self.may_connect(&actor.user, session).await? {
            let is_anothers = self.session(session).await?.is_some();
            return Err(if is_anothers { AppError::Hidden } else { AppError::NotFound });
        }
        let code = Secret::generate();
        let now = self.inner.clock.now();
        let (until, counting) = (now + HANDOVER, logins::counting(now));
        self.inner.db.insert_handover(&code.hash(), session, actor.user.id, login, until, counting).await?;
        Ok(code)
    }

    /// Takes the one-time code back and makes the app cookie.
    pub async fn finish_handover(&self, code: &Secret, session: SessionId) -> Result<(Secret, User), AppError> {
        let now = self.inner.clock.now();
        let taken = self.inner.db.take_handover(&code.hash(), session, now).await?;
        let (user, login) = taken.ok_or(AppError::NotFound)?;
        let user = self.inner.db.user(user).await?.ok_or(AppError::NotFound)?;
        if user.state != UserState::Active || !self.may_connect(&user, session).await? {
            return Err(AppError::NotFound);
        }
        let secret = Secret::generate();
        let until = now + logins::ABSOLUTE;
        let counting = logins::counting(now);
        let actor = Actor { user: user.clone(), via: Via::Login(login), address: None, request_id: None };
        let audit = self.inner.audit.entry(actor.audit("session.connect", &session.to_string(), "ok", json!({})));
        let new = NewAppLogin { session, user: user.id, login, expires_at: until };
        if self.inner.db.insert_app_login(&secret.hash(), &new, counting, &audit).await? {
            Ok((secret, user))
        } else {
            Err(AppError::NotFound)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_the_database_stores() {
        let secret = Secret::generate();
        assert_eq!(Digest::of(secret.expose()).stored(), secret.hash());
    }
}
