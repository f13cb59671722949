//! SLURM tokens from the launcher, kept until most of their life is over and dropped when one is not accepted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use eirene_core::clock::Clock;
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherRequest};
use eirene_core::scheduler::{CallAs, SchedulerError, SchedulerResult};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;

use crate::calls::ask;

/// Part of a token's life after which a new one is asked for, per cent.
const USE_UP_TO_PER_CENT: i64 = 80;

pub(crate) struct Tokens {
    launcher: Arc<dyn Launcher>,
    clock: Arc<dyn Clock>,
    held: Mutex<HashMap<CallAs, Held>>,
}

struct Held {
    token: SecretString,
    until: Timestamp,
}

impl Tokens {
    pub(crate) fn new(launcher: Arc<dyn Launcher>, clock: Arc<dyn Clock>) -> Self {
        Self { launcher, clock, held: Mutex::default() }
    }

    /// A token for `as_`.
    pub(crate) async fn get(&self, as_: &CallAs) -> SchedulerResult<SecretString> {
        let now = self.clock.now();
        if let Some(held) = self.held().get(as_).filter(|held| now < held.until) {
            return Ok(held.token.clone());
        }
        let request = match as_ {
            CallAs::Service => LauncherRequest::SignServiceToken {},
            CallAs::Person(person) => LauncherRequest::SignToken { person: person.clone() },
        };
        let LauncherAnswer::Token { token, expires_in_s } =
            ask(self.launcher.as_ref(), request, "ask for a token").await?
        else {
            return Err(SchedulerError::Malformed {
                what: "ask for a token: the launcher answered something else".into(),
            });
        };
        let life_s = i64::try_from(expires_in_s.min(86_400)).unwrap_or(0);
        let token = SecretString::from(token);
        let until = now + SignedDuration::from_secs(life_s * USE_UP_TO_PER_CENT / 100);
        let mut held = self.held();
        held.retain(|_, held| now < held.until);
        held.insert(as_.clone(), Held { token: token.clone(), until });
        Ok(token)
    }

    /// Forgets the token of `as_`.
    pub(crate) fn forget(&self, as_: &CallAs) {
        self.held().remove(as_);
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<CallAs, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use eirene_core::clock::MockClock;
    use eirene_core::launcher::LauncherError;
    use secrecy::ExposeSecret as _;

    use super::*;

    struct Counting(AtomicU32);

    #[async_trait]
    impl Launcher for Counting {
        async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            let who = match request {
                LauncherRequest::SignToken { person } => person.to_string(),
                LauncherRequest::SignServiceToken {} => "service".to_owned(),
                other => panic!("{other:?}"),
            };
            let token = format!("{who}-{}", self.0.fetch_add(1, Ordering::SeqCst));
            Ok(LauncherAnswer::Token { token, expires_in_s: 100 })
        }
    }

    #[tokio::test]
    async fn a_token_is_used_for_four_fifths_of_its_life_and_by_one_person_only() {
        let clock = MockClock::new(Timestamp::UNIX_EPOCH);
        let tokens = Tokens::new(Arc::new(Counting(AtomicU32::new(0))), Arc::new(clock.clone()));
        let (service, ada) = (CallAs::Service, CallAs::Person("ada".parse().unwrap()));
        let text = async |as_: &CallAs| tokens.get(as_).await.unwrap().expose_secret().to_owned();
        assert_eq!(text(&service).await, "service-0");
        assert_eq!(text(&ada).await, "ada-1");
        clock.advance_s(79);
        assert_eq!(text(&service).await, "service-0");
        clock.advance_s(1);
        assert_eq!(text(&service).await, "service-2");
        tokens.forget(&service);
        assert_eq!(text(&service).await, "service-3");
        assert_eq!(tokens.held().len(), 1, "the token that is used up is not kept");
    }
}
