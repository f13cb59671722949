//! Work that outlives its request: waiting for it, with how far it is, and cancelling it.

use std::time::Duration;

use anyhow::Context as _;
use eirene_core::file_work::OperationState;
use indicatif::ProgressBar;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::api::Api;
use crate::api::files::Operation;
use crate::output;
use crate::patience::persist;

/// How soon it is asked again; twice as late each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// It was interrupted by the person.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Interrupted(pub(crate) &'static str);

/// The operation came to no good end.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct OperationFailed {
    /// The portal's code.
    pub(crate) code: String,
    text: String,
}

/// Waits until what was begun is over, and says how far it is. Ctrl-C cancels it: what it has done is done.
///
/// # Errors
/// It failed, was cancelled, or the portal is away for too long.
pub(crate) async fn wait(api: &Api, begun: Value, bar: &ProgressBar, doing: &str) -> anyhow::Result<Operation> {
    let mut operation: Operation = serde_json::from_value(begun).context("the portal's answer was not understood")?;
    let (id, mut pause, mut asked_to_end) = (operation.id, FIRST_PAUSE, false);
    let mut interrupts = signal(SignalKind::interrupt())?;
    while !operation.state.is_final() {
        let (entries, bytes) = (operation.progress.entries, output::bytes(operation.progress.bytes));
        bar.set_message(format!("{doing}: {entries} entries, {bytes}"));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = interrupts.recv() => {
                if asked_to_end {
                    return Err(Interrupted("not waited for any more; it was asked to end").into());
                }
                asked_to_end = true;
                api.delete(&format!("operations/{id}")).await?;
                pause = FIRST_PAUSE;
            }
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        operation = persist(async || api.operation(id).await).await?;
    }
    bar.finish_and_clear();
    let failed = |code: &str, text: String| Err(OperationFailed { code: code.to_owned(), text }.into());
    match (operation.state, &operation.problem) {
        (OperationState::Done, _) => Ok(operation),
        (OperationState::Cancelled, _) if asked_to_end => Err(Interrupted("cancelled; what was done is done").into()),
        (OperationState::Cancelled, _) => failed("cancelled", "it was cancelled; what was done is done".to_owned()),
        (_, Some(problem)) => failed(&problem.code, problem.text.clone()),
        (_, None) => failed(
            "interrupted",
            "it was cut off meanwhile; give the same command again: a copy of a directory goes on where it stopped"
                .to_owned(),
        ),
    }
}
