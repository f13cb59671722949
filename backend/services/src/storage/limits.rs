//! Limits of users and groups on the storage itself, as an admin sets them. The storage enforces them; what was set is read back and written down,
//! also where whoever asked for it has not waited.

use std::time::Duration;

use eirene_core::Sentence;
use eirene_core::storage::{Bytes, DefaultQuota, Files, Limit, PoolId, QuotaOf, StorageError};
use eirene_words::{say, say_with};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{Quotas, Storage, away};
use crate::actor::Actor;
use crate::audit::Audit;
use crate::error::{AppError, FieldError};

/// A page waits so long for the defaults of all pools.
const WAIT: Duration = Duration::from_secs(4);

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
        let storage = self.storage.clone();
        let set = async move { storage.port().set_quota(id, pool, limits.bytes, limits.files).await };
        self.set_and_note(actor, target, pool, limits, set).await?;
        self.storage.quotas_of(id).await
    }

    /// The limits of those who have none of their own, in one pool.
    pub async fn defaults(&self, actor: &Actor, pool: PoolId) -> Result<DefaultQuota, AppError> {
        actor.require_admin()?;
        self.storage.port().default_quota(pool).await.map_err(|error| match &error {
            StorageError::Malformed { what } => {
                let text = say_with("problem.storage_not_understood", &[("said", what)]);
                AppError::Conflict { code: "not_understood", text }
            }
            _ => refused(&error),
        })
    }

    /// The same of several pools, in their order. What the storage does not tell within [`WAIT`] counts as away.
    pub async fn defaults_of_all(&self, actor: &Actor, pools: &[PoolId]) -> Vec<Result<DefaultQuota, AppError>> {
        let until = Instant::now() + WAIT;
        let mut all = Vec::new();
        for pool in pools {
            let late = || Err(refused(&StorageError::Away { source: None, retry_after_s: WAIT.as_secs() }));
            let is_late = Instant::now() >= until;
            all.push(if is_late {
                late()
            } else {
                timeout_at(until, self.defaults(actor, *pool)).await.unwrap_or_else(|_| late())
            });
        }
        all
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
        let storage = self.storage.clone();
        let set = async move { storage.port().set_default_quota(pool, of, limits.bytes, limits.files).await };
        self.set_and_note(actor, target, Some(pool), limits, set).await?;
        self.defaults(actor, pool).await
    }

    /// Sets limits, see [`Audit::around`].
    async fn set_and_note(
        &self,
        actor: &Actor,
        target: String,
        pool: Option<PoolId>,
        limits: NewLimits,
        set: impl Future<Output = Result<(), StorageError>> + Send + 'static,
    ) -> Result<(), AppError> {
        let details = json!({
            "pool": pool.map(|pool| pool.0),
            "limit_bytes": shown(limits.bytes.map(|limit| limit.map(|bytes| bytes.0))),
            "limit_files": shown(limits.files.map(|limit| limit.map(|files| files.0))),
        });
        let set = self.audit.around(actor.audit("storage.set_limits", &target, "begun", details), set).await?;
        set.map_err(|error| match &error {
            StorageError::NoSuchPool(pool) => {
                let text = say_with("wrong.no_such_pool", &[("pool", &pool.0.to_string())]);
                AppError::Invalid(vec![FieldError::new("pool", text)])
            }
            _ => refused(&error),
        })
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

/// Why a limit was not set, or why it is not certain that it was.
fn refused(error: &StorageError) -> AppError {
    match error {
        StorageError::Unsupported(_) => {
            AppError::Conflict { code: "not_supported", text: say("problem.sets_no_quotas") }
        }
        StorageError::Refused { text, .. } => {
            AppError::Conflict { code: "storage_refuses", text: say_with("problem.storage_refuses", &[("said", text)]) }
        }
        StorageError::Malformed { what } | StorageError::NotReadBack { what } => {
            AppError::Conflict { code: "not_understood", text: say_with("problem.not_kept", &[("said", what)]) }
        }
        StorageError::Invalid(text) => {
            AppError::Invalid(vec![FieldError::new("limit_bytes", Sentence::from_elsewhere(text))])
        }
        StorageError::NoSuchPlace { .. } | StorageError::NoSuchPool(_) => AppError::NotFound,
        StorageError::Away { .. } => away(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eirene_core::Role;
    use tokio::sync::Notify;

    use super::*;
    use crate::testing::{PATIENCE, StorageMood, TestApp};

    /// Lets go of a request as soon as the storage has carried it out, and has the storage answer then; gives what is in the log in the end.
    async fn written_of(test: &TestApp, request: impl Future<Output = ()>, is_set: impl Fn() -> bool) -> Vec<String> {
        let bell = Arc::new(Notify::new());
        test.storage.state().answers_at = Some(Arc::clone(&bell));
        let set = async {
            while !is_set() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = request => panic!("there was no answer yet"),
            () = set => {}
        }
        bell.notify_one();
        let written = async {
            loop {
                let events = test.app.db.audit_events(None, 10, None, Some("storage.set_limits")).await.unwrap();
                if events.len() == 2 {
                    return events.into_iter().map(|event| format!("{} {}", event.target, event.outcome)).collect();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.expect("nothing was written down")
    }

    #[tokio::test]
    async fn what_was_set_is_written_down_though_nobody_waits_for_it() {
        let most = Limit::At(Bytes(100));
        let limits = NewLimits { bytes: Some(most), files: None };
        for is_default in [false, true] {
            let test = TestApp::new().await;
            let admin = test.person("root-admin", 2003, Role::Admin).await;
            {
                let mut storage = test.storage.state();
                (storage.users, storage.defaults) = (Some((3, Limit::Unlimited)), Some(Limit::Unlimited));
            }
            let service = &test.app.storage_limits;
            let request = async {
                if is_default {
                    drop(service.set_defaults(&admin, PoolId(1), QuotaOf::User, limits).await);
                } else {
                    drop(service.set(&admin, QuotaOf::User, 2001, None, limits).await);
                }
            };
            let is_set = || {
                let storage = test.storage.state();
                let now = if is_default { storage.defaults } else { storage.users.map(|(_, limit)| limit) };
                now == Some(Limit::At(100))
            };
            let whose = if is_default { "user:default" } else { "user:2001" };
            let expected = [format!("{whose} ok"), format!("{whose} begun")];
            assert_eq!(written_of(&test, request, is_set).await, expected);
        }
    }

    #[tokio::test]
    async fn a_storage_that_hangs_holds_up_no_page() {
        let test = TestApp::new().await;
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        test.storage.state().defaults_hang = true;
        tokio::time::pause();
        let pools: Vec<PoolId> = (1..=9).map(PoolId).collect();
        let said =
            tokio::time::timeout(WAIT * 2, test.app.storage_limits.defaults_of_all(&admin, &pools)).await.unwrap();
        assert!(
            said.len() == 9 && said.iter().all(|said| matches!(said, Err(AppError::Unavailable { .. }))),
            "{said:?}"
        );
    }

    #[tokio::test]
    async fn limits_that_cannot_be_recorded_are_not_set() {
        let test = TestApp::new().await;
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        let before = (3, Limit::Unlimited);
        test.storage.state().users = Some(before);
        test.app.db.close().await;
        let limits = NewLimits { bytes: Some(Limit::At(Bytes(100))), files: None };
        let set = test.app.storage_limits.set(&admin, QuotaOf::User, 2001, None, limits).await;
        assert!(matches!(set, Err(AppError::Unavailable { .. })), "{set:?}");
        assert_eq!(test.storage.state().users, Some(before));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_understood_is_told_as_what_was_asked() {
        let test = TestApp::new().await;
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        test.storage.state().mood = StorageMood::Mumbles;
        let limits = NewLimits { bytes: Some(Limit::Unlimited), files: None };
        let set = test.app.storage_limits.set(&admin, QuotaOf::User, 2001, None, limits).await.unwrap_err();
        let read = test.app.storage_limits.defaults(&admin, PoolId(1)).await.unwrap_err();
        for (error, expected) in [(set, "may have"), (read, "answer")] {
            let AppError::Conflict { code: "not_understood", text } = error else { panic!("{error:?}") };
            assert!(text.as_str().contains(expected) && text.as_str().contains("mumbles"), "{}", text.as_str());
        }
    }
}
