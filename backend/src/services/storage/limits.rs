//! Limits of users and groups on the storage itself, as an admin sets them. The storage enforces them; what was set is read back and written down.

use eirene_core::Sentence;
use eirene_core::storage::{Bytes, DefaultQuota, Files, Limit, PoolId, QuotaOf, StorageError};
use eirene_words::{say, say_with};
use serde_json::{Value, json};

use super::{Quotas, Storage, away};
use crate::error::{AppError, FieldError};
use crate::services::actor::Actor;
use crate::services::audit::Audit;

/// Limits to be set; what is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewLimits {
    /// Bytes.
    pub bytes: Option<Limit<Bytes>>,
    /// Files, as the storage counts them.
    pub files: Option<Limit<Files>>,
}

/// Sets limits. Cheap to clone.
#[derive(Clone)]
pub struct StorageLimits {
    storage: Storage,
    audit: Audit,
}

impl StorageLimits {
    /// Limits on `storage`.
    pub fn new(storage: Storage, audit: Audit) -> Self {
        Self { storage, audit }
    }

    /// Sets the limits of one user or group, in one pool or in the storage's default one, and gives them as they are then.
    pub async fn set(
        &self,
        actor: &Actor,
        of: QuotaOf,
        number: u32,
        pool: Option<PoolId>,
        limits: NewLimits,
    ) -> Result<Quotas, AppError> {
        actor.require_admin()?;
        limits.check()?;
        let id = of.id(number);
        let target = format!("{}:{number}", word(of));
        let set = self.storage.port().set_quota(id, pool, limits.bytes, limits.files).await;
        self.note(actor, &target, pool, limits, set.is_ok()).await;
        set.map_err(|error| refused(&error))?;
        self.storage.quotas_of(id).await
    }

    /// The limits of those who have none of their own, in one pool.
    pub async fn defaults(&self, actor: &Actor, pool: PoolId) -> Result<DefaultQuota, AppError> {
        actor.require_admin()?;
        self.storage.port().default_quota(pool).await.map_err(|error| refused(&error))
    }

    /// Sets the limits of users or groups who have none of their own, and gives them as they are then.
    pub async fn set_defaults(
        &self,
        actor: &Actor,
        pool: PoolId,
        of: QuotaOf,
        limits: NewLimits,
    ) -> Result<DefaultQuota, AppError> {
        actor.require_admin()?;
        limits.check()?;
        let target = format!("{}:default", word(of));
        let set = self.storage.port().set_default_quota(pool, of, limits.bytes, limits.files).await;
        self.note(actor, &target, Some(pool), limits, set.is_ok()).await;
        set.map_err(|error| refused(&error))?;
        self.defaults(actor, pool).await
    }

    /// Written down also when it failed: an answer that was lost may have been carried out.
    async fn note(&self, actor: &Actor, target: &str, pool: Option<PoolId>, limits: NewLimits, good: bool) {
        let details = json!({
            "pool": pool.map(|pool| pool.0),
            "limit_bytes": shown(limits.bytes.map(|limit| limit.map(|bytes| bytes.0))),
            "limit_files": shown(limits.files.map(|limit| limit.map(|files| files.0))),
        });
        let outcome = if good { "ok" } else { "failed" };
        self.audit.record(actor.audit("storage.set_limits", target, outcome, details)).await;
    }
}

impl NewLimits {
    fn check(self) -> Result<(), AppError> {
        if self == Self::default() {
            return Err(AppError::Invalid(vec![FieldError::new("limit_bytes", say("wrong.no_limits"))]));
        }
        Ok(())
    }
}

fn word(of: QuotaOf) -> &'static str {
    match of {
        QuotaOf::User => "user",
        QuotaOf::Group => "group",
    }
}

fn shown(limit: Option<Limit<u64>>) -> Value {
    match limit {
        None => Value::Null,
        Some(Limit::Unlimited) => "unlimited".into(),
        Some(Limit::At(most)) => most.into(),
    }
}

/// Why a limit was not set, or not told.
fn refused(error: &StorageError) -> AppError {
    match error {
        StorageError::Unsupported(_) => AppError::Conflict { code: "not_supported", text: say("problem.no_quotas") },
        StorageError::Refused { text, .. } => {
            AppError::Conflict { code: "storage_refuses", text: say_with("problem.storage_refuses", &[("said", text)]) }
        }
        StorageError::Malformed { what } => {
            AppError::Conflict { code: "not_understood", text: say_with("problem.not_kept", &[("said", what)]) }
        }
        StorageError::Invalid(text) => {
            AppError::Invalid(vec![FieldError::new("limit_bytes", Sentence::from_elsewhere(text.clone()))])
        }
        StorageError::NoSuchPlace { .. } => AppError::NotFound,
        StorageError::Away { .. } => away(error),
    }
}
