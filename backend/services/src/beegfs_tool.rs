//! BeeGFS's tool behind the launcher, as the storage adapters ask for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest};
use eirene_core::storage::{BeegfsTool, Ran, StorageError, Why};
use tokio::sync::Semaphore;

use crate::cause;

/// Runs at the same time; the launcher takes no more.
const AT_ONCE: usize = 2;
/// A question waits so long for others to end. With the 16 s that the launcher gives the tool, that is less than the 30 s within which the portal
/// answers a request.
const TURN: Duration = Duration::from_secs(12);
/// Where the launcher cuts the tool's output: what is that long may have lost its end.
const CUT_AT_BYTES: usize = 16 * 1024 * 1024;
/// After this time a tool that was away is asked again, seconds.
const RETRY_AFTER_S: u64 = 10;

/// The tool the launcher's configuration names.
pub struct LauncherTool {
    launcher: Arc<dyn Launcher>,
    turns: Arc<Semaphore>,
}

impl LauncherTool {
    /// Runs it through `launcher`.
    pub fn new(launcher: Arc<dyn Launcher>) -> Self {
        Self { launcher, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

#[async_trait]
impl BeegfsTool for LauncherTool {
    async fn run(&self, arguments: &[String]) -> Result<Ran, StorageError> {
        let away = |source| StorageError::Away { source: Some(source), retry_after_s: RETRY_AFTER_S };
        let turn = tokio::time::timeout(TURN, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn
            .map_err(|_| away("other questions to BeeGFS's tool have not been answered yet".into()))?
            .map_err(|error| away(error.into()))?;
        let request = LauncherRequest::RunBeegfs { arguments: arguments.to_vec() };
        // The tool runs on in the launcher where nobody waits for it any more, and so its turn lasts.
        let launcher = Arc::clone(&self.launcher);
        let running = cause::spawn(async move {
            let answer = launcher.call(request).await;
            drop(turn);
            answer
        });
        match running.await.map_err(|error| away(error.into()))? {
            Ok(LauncherAnswer::Ran { stdout, .. }) if stdout.len() >= CUT_AT_BYTES => {
                Err(StorageError::Malformed { what: "the answer of BeeGFS's tool is too long".into() })
            }
            Ok(LauncherAnswer::Ran { status, stdout, stderr }) => Ok(Ran { status, stdout, stderr }),
            Ok(_) => Err(StorageError::Malformed { what: "the launcher's answer is none to this".into() }),
            Err(LauncherError::Refused { code, text }) => Err(match code.as_str() {
                "away" => away(text.into()),
                "bad_request" => StorageError::Invalid(text),
                _ => StorageError::Refused { why: Why::Refused, text },
            }),
            Err(error @ LauncherError::Unreachable { .. }) => Err(away(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Gives one answer, and keeps what it was asked.
    struct Says(Mutex<Option<Result<LauncherAnswer, LauncherError>>>, Mutex<Vec<LauncherRequest>>);

    #[async_trait]
    impl Launcher for Says {
        async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            self.1.lock().unwrap().push(request);
            self.0.lock().unwrap().take().unwrap()
        }
    }

    async fn run(answer: Result<LauncherAnswer, LauncherError>) -> Result<Ran, StorageError> {
        let launcher = Arc::new(Says(Mutex::new(Some(answer)), Mutex::default()));
        let arguments = ["--version".to_owned()];
        let ran = LauncherTool::new(launcher.clone()).run(&arguments).await;
        let asked = LauncherRequest::RunBeegfs { arguments: arguments.to_vec() };
        assert_eq!(*launcher.1.lock().unwrap(), [asked]);
        ran
    }

    fn refused(code: &str) -> Result<LauncherAnswer, LauncherError> {
        Err(LauncherError::Refused { code: code.into(), text: "a reason".into() })
    }

    #[tokio::test]
    async fn what_the_tool_says_comes_back_and_what_went_wrong_is_told_apart() {
        let said = |stdout: String| Ok(LauncherAnswer::Ran { status: 2, stdout, stderr: "e".into() });
        let ran = run(said("o".into())).await.unwrap();
        assert_eq!(ran, Ran { status: 2, stdout: "o".into(), stderr: "e".into() });
        let long = run(said("x".repeat(CUT_AT_BYTES))).await;
        assert!(matches!(long, Err(StorageError::Malformed { .. })), "what was cut is not believed");
        assert!(matches!(run(Ok(LauncherAnswer::Done)).await, Err(StorageError::Malformed { .. })));
        assert!(matches!(run(refused("away")).await, Err(StorageError::Away { .. })));
        assert!(matches!(run(refused("bad_request")).await, Err(StorageError::Invalid(text)) if text == "a reason"));
        assert!(matches!(run(refused("failed")).await, Err(StorageError::Refused { why: Why::Refused, .. })));
        let gone = LauncherError::Unreachable { what: "a test".into(), source: None };
        assert!(matches!(run(Err(gone)).await, Err(StorageError::Away { .. })));
    }

    /// Never answers.
    struct Hangs;

    #[async_trait]
    impl Launcher for Hangs {
        async fn call(&self, _: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_that_hangs_keeps_its_turn_and_others_do_not_wait_for_ever() {
        let tool = LauncherTool::new(Arc::new(Hangs));
        let arguments = ["version".to_owned()];
        for _ in 0..AT_ONCE {
            let given_up = tokio::time::timeout(Duration::from_secs(1), tool.run(&arguments)).await;
            assert!(given_up.is_err(), "{given_up:?}");
        }
        let late = tokio::time::timeout(TURN * 2, tool.run(&arguments)).await.expect("it waits for ever");
        let Err(StorageError::Away { source: Some(source), .. }) = late else { panic!("{late:?}") };
        assert!(source.to_string().contains("other questions"), "{source}");
    }
}
