//! Password hashing: Argon2id, away from the async threads, a bounded number at a time.
//!
//! Who may try a password, and how often, is decided in [`super::accounts`] before anything is hashed here.

use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use eirene_core::secret::Secret;
use eirene_words::say;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;

use crate::error::AppError;
use crate::shared::Shared;

/// How long a request waits for its turn to hash.
const WAIT: Duration = Duration::from_secs(10);

/// What became of a comparison.
#[derive(Debug)]
pub enum Verdict {
    /// The password is right; `rehash` holds a new hash when the stored one was made with other parameters.
    Right {
        /// A new hash to store.
        rehash: Option<String>,
    },
    /// The password is wrong, or there was no hash to compare with.
    Wrong,
}

/// Hashes and compares passwords.
#[derive(Clone)]
pub struct Passwords {
    inner: Shared<Inner>,
}

struct Inner {
    params: Params,
    permits: Semaphore,
    /// Hash of a password nobody knows: compared with when there is no such user, so that both cases cost the same.
    nobody: String,
}

impl Passwords {
    /// With the parameters used in production: 19 MiB, two passes, one lane.
    pub fn new() -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with(Params::DEFAULT, (cores / 2).max(1))
    }

    /// With parameters that cost next to nothing; only tests may use it.
    #[doc(hidden)]
    pub fn for_tests() -> anyhow::Result<Self> {
        Self::with(Params::new(Params::MIN_M_COST, 1, 1, None).map_err(anyhow::Error::msg)?, 2)
    }

    fn with(params: Params, at_once: usize) -> anyhow::Result<Self> {
        let nobody = hash_with(&params, Secret::generate().expose()).map_err(anyhow::Error::msg)?;
        Ok(Self { inner: Shared::new(Inner { params, permits: Semaphore::new(at_once), nobody }) })
    }

    /// Hashes a new password.
    pub async fn hash(&self, password: SecretString) -> Result<String, AppError> {
        self.blocking(move |inner| hash_with(&inner.params, password.expose_secret())).await?.map_err(internal)
    }

    /// Compares `password` with the stored hash; without one it costs the same and is wrong.
    pub async fn verify(&self, password: SecretString, stored: Option<String>) -> Result<Verdict, AppError> {
        self.blocking(move |inner| {
            let known = stored.is_some();
            let stored = stored.unwrap_or_else(|| inner.nobody.clone());
            let parsed = PasswordHash::new(&stored).map_err(|e| e.to_string())?;
            let right = argon2(&inner.params).verify_password(password.expose_secret().as_bytes(), &parsed).is_ok();
            if !(known && right) {
                return Ok(Verdict::Wrong);
            }
            let current = Params::try_from(&parsed).is_ok_and(|p| {
                (p.m_cost(), p.t_cost(), p.p_cost())
                    == (inner.params.m_cost(), inner.params.t_cost(), inner.params.p_cost())
            });
            let rehash = if current { None } else { Some(hash_with(&inner.params, password.expose_secret())?) };
            Ok(Verdict::Right { rehash })
        })
        .await?
        .map_err(internal)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, String> + Send + 'static,
    ) -> Result<Result<T, String>, AppError> {
        let Ok(permit) = tokio::time::timeout(WAIT, self.inner.permits.acquire()).await else {
            return Err(AppError::Unavailable { what: say("away.login"), retry_after_s: 5 });
        };
        let _permit = permit.map_err(|e| AppError::Internal(e.into()))?;
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || work(&inner)).await.map_err(|e| AppError::Internal(e.into()))
    }
}

fn argon2(params: &Params) -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone())
}

fn hash_with(params: &Params, password: &str) -> Result<String, String> {
    let hash: PasswordHash = argon2(params).hash_password(password.as_bytes()).map_err(|e| e.to_string())?;
    Ok(hash.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "called with the error that `map_err` gives")]
fn internal(what: String) -> AppError {
    AppError::Internal(anyhow::anyhow!("password hashing: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn right_and_wrong_passwords_are_told_apart() {
        let passwords = Passwords::for_tests().unwrap();
        let hash = passwords.hash("correct horse".into()).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$"));
        let verdict = passwords.verify("correct horse".into(), Some(hash.clone())).await.unwrap();
        assert!(matches!(verdict, Verdict::Right { rehash: None }));
        assert!(matches!(passwords.verify("wrong".into(), Some(hash)).await.unwrap(), Verdict::Wrong));
        assert!(matches!(passwords.verify("wrong".into(), None).await.unwrap(), Verdict::Wrong));
    }

    #[tokio::test]
    async fn a_hash_with_old_parameters_is_made_anew() {
        let old = Passwords::for_tests().unwrap();
        let new = Passwords::with(Params::new(64, 2, 1, None).unwrap(), 1).unwrap();
        let hash = old.hash("correct horse".into()).await.unwrap();
        let Verdict::Right { rehash: Some(better) } = new.verify("correct horse".into(), Some(hash)).await.unwrap()
        else {
            panic!("the old hash should have been replaced")
        };
        let again = new.verify("correct horse".into(), Some(better)).await.unwrap();
        assert!(matches!(again, Verdict::Right { rehash: None }));
    }
}
