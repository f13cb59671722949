//! Looks at file systems through the launcher: homes are hidden from the portal, its mounts are its own, and a mount that hangs must hang
//! none of its threads.
//!
//! What the launcher's configuration does not have (no `look_program`, or no `space_root` of that name) is looked at from this process, which
//! sees what eirened may see. A launcher that is away is no reason for that: two lookers who take turns would tell two stories.

use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest};
use eirene_core::name::RootName;
use eirene_core::storage::{KernelQuotas, Place, QuotaRange, StorageError, Why};
use eirene_storage::{LocalProbe, Look, Probe, Seen};

/// A look is a few hundred bytes and three paths.
const LONGEST_BYTES: usize = 64 * 1024;
/// After this time a place that was away is looked at again, seconds.
const RETRY_AFTER_S: u64 = 10;

/// Looks as the launcher has them done.
pub struct LauncherProbe {
    launcher: Arc<dyn Launcher>,
    local: LocalProbe,
}

impl LauncherProbe {
    /// Looks through `launcher`, and by `local` at what that is not configured for.
    pub fn new(launcher: Arc<dyn Launcher>, local: LocalProbe) -> Self {
        Self { launcher, local }
    }
}

#[async_trait]
impl Probe for LauncherProbe {
    async fn look(&self, place: &Place) -> Result<Look, StorageError> {
        let malformed = || StorageError::Malformed { what: "a look at a file system".into() };
        match self.launcher.call(LauncherRequest::Measure { place: place.clone() }).await {
            // A home's look was written by a process that is the person: what it says is bounded, and only about her own home.
            Ok(LauncherAnswer::Ran { status: 0, stdout, .. }) if stdout.len() <= LONGEST_BYTES => {
                serde_json::from_str::<Seen>(&stdout).map_err(|_| malformed())?.into_look()
            }
            Ok(_) => Err(malformed()),
            Err(LauncherError::Refused { code, .. }) if code == "not_configured" => self.local.look(place).await,
            Err(LauncherError::Refused { code, text }) if code != "away" => {
                Err(StorageError::Refused { why: Why::Refused, text })
            }
            Err(error) => Err(StorageError::Away { source: Some(error.into()), retry_after_s: RETRY_AFTER_S }),
        }
    }

    fn roots(&self) -> Vec<RootName> {
        self.local.roots()
    }

    /// The launcher alone is asked: from here nobody is told of others.
    async fn counted(&self, root: &RootName, range: QuotaRange) -> Result<KernelQuotas, StorageError> {
        let QuotaRange { of, first, last } = range;
        match self.launcher.call(LauncherRequest::ReadQuotas { root: root.clone(), of, first, last }).await {
            Ok(LauncherAnswer::Quotas(quotas)) => Ok(quotas),
            Ok(_) => Err(StorageError::Malformed { what: "what a file system counts".into() }),
            Err(LauncherError::Refused { code, text }) if code != "away" => Err(match code.as_str() {
                // One that is older than this question takes it for none.
                "not_supported" | "bad_request" => StorageError::Unsupported("quotas of users and groups"),
                "not_enabled" => StorageError::Refused { why: Why::NotEnabled, text },
                _ => StorageError::Refused { why: Why::Refused, text },
            }),
            Err(error) => Err(StorageError::Away { source: Some(error.into()), retry_after_s: RETRY_AFTER_S }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use eirene_core::storage::QuotaOf;

    use super::*;

    struct Says(Mutex<Option<Result<LauncherAnswer, LauncherError>>>);

    #[async_trait]
    impl Launcher for Says {
        async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            assert!(request == LauncherRequest::Measure { place: home() } || request == asked(), "{request:?}");
            self.0.lock().unwrap().take().unwrap()
        }
    }

    fn home() -> Place {
        // Somebody no host has, so that a look from here finds nobody.
        Place::Home("nobody.knows.them".parse().unwrap())
    }

    const RANGE: QuotaRange = QuotaRange { of: QuotaOf::User, first: 1000, last: 1009 };

    fn asked() -> LauncherRequest {
        let QuotaRange { of, first, last } = RANGE;
        LauncherRequest::ReadQuotas { root: "scratch".parse().unwrap(), of, first, last }
    }

    async fn counted(answer: Result<LauncherAnswer, LauncherError>) -> Result<KernelQuotas, StorageError> {
        let local = LocalProbe::new(BTreeMap::from([("scratch".parse().unwrap(), "/scratch".into())]));
        let probe = LauncherProbe::new(Arc::new(Says(Mutex::new(Some(answer)))), local);
        let roots = probe.roots();
        assert_eq!(roots.len(), 1);
        probe.counted(&roots[0], RANGE).await
    }

    async fn look(answer: Result<LauncherAnswer, LauncherError>) -> Result<Look, StorageError> {
        let local = LocalProbe::new(BTreeMap::new());
        LauncherProbe::new(Arc::new(Says(Mutex::new(Some(answer)))), local).look(&home()).await
    }

    async fn said(stdout: &str) -> Result<Look, StorageError> {
        look(Ok(LauncherAnswer::Ran { status: 0, stdout: stdout.to_owned(), stderr: String::new() })).await
    }

    fn refused(code: &str) -> Result<LauncherAnswer, LauncherError> {
        Err(LauncherError::Refused { code: code.into(), text: "a reason".into() })
    }

    #[tokio::test]
    async fn what_is_counted_for_others_comes_from_the_launcher_or_is_a_reason() {
        let quotas = KernelQuotas { device: 5, rows: vec![] };
        assert_eq!(counted(Ok(LauncherAnswer::Quotas(quotas.clone()))).await.unwrap(), quotas);
        assert!(matches!(counted(Ok(LauncherAnswer::Done)).await, Err(StorageError::Malformed { .. })));
        for code in ["not_supported", "bad_request"] {
            assert!(matches!(counted(refused(code)).await, Err(StorageError::Unsupported(_))), "{code}");
        }
        for (code, expected) in
            [("not_enabled", Why::NotEnabled), ("not_configured", Why::Refused), ("failed", Why::Refused)]
        {
            let answer = counted(refused(code)).await;
            assert!(
                matches!(&answer, Err(StorageError::Refused { why, text }) if *why == expected && text == "a reason"),
                "{code}: {answer:?}"
            );
        }
        assert!(matches!(counted(refused("away")).await, Err(StorageError::Away { .. })));
        let gone = LauncherError::Unreachable { what: "a test".into(), source: None };
        assert!(matches!(counted(Err(gone)).await, Err(StorageError::Away { .. })));
    }

    #[tokio::test]
    async fn a_look_comes_back_as_it_was_and_everything_else_as_what_it_means() {
        let here = eirene_storage::posix::look_at("/".as_ref(), "".as_ref(), false).unwrap();
        let seen = serde_json::to_string(&Seen::from(Ok(here.clone()))).unwrap();
        assert_eq!(said(&seen).await.unwrap(), here);
        let missing = said("{\"no_such_place\":{\"path\":\"/x\"}}").await;
        assert!(matches!(missing, Err(StorageError::NoSuchPlace { path }) if path == "/x"));
        let may_not = said("{\"refused\":{\"text\":\"no\"}}").await;
        assert!(matches!(may_not, Err(StorageError::Refused { text, .. }) if text == "no"));
        assert!(matches!(said("{\"away\":{\"text\":\"stale\"}}").await, Err(StorageError::Away { .. })));
        for odd in ["", "{}", &seen[..seen.len() - 1], &seen.replacen("\"path\"", "\"other\"", 1), &" ".repeat(100_000)]
        {
            assert!(matches!(said(odd).await, Err(StorageError::Malformed { .. })), "{odd:.40}");
        }
        let failed = Ok(LauncherAnswer::Ran { status: 1, stdout: seen, stderr: String::new() });
        assert!(matches!(look(failed).await, Err(StorageError::Malformed { .. })));
        assert!(matches!(look(refused("away")).await, Err(StorageError::Away { .. })), "a mount that hangs");
        assert!(matches!(look(refused("forbidden_person")).await, Err(StorageError::Refused { .. })));
        let here = look(refused("not_configured")).await;
        assert!(
            matches!(here, Err(StorageError::NoSuchPlace { ref path }) if path == "~nobody.knows.them"),
            "looked at from here: {here:?}"
        );
        let gone = LauncherError::Unreachable { what: "a test".into(), source: None };
        assert!(matches!(look(Err(gone)).await, Err(StorageError::Away { .. })));
    }
}
