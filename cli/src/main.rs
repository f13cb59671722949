//! `eirene`: the user's and the admin's commands, over the REST API alone.
//!
//! `main` parses and maps outcomes to exit codes; `api` speaks HTTP; `commands` hold one verb each; `output` prints. Nothing here
//! knows the database or the scheduler.

mod api;
mod arguments;
mod commands;
mod credentials;
mod download;
mod local;
mod operations;
mod output;
mod patience;
mod place;
mod reference;
mod terminal;
mod times;
mod transfers;
mod upload;

use std::process::ExitCode;

use clap::Parser as _;

use crate::api::ApiError;
use crate::arguments::Arguments;
use crate::reference::ReferenceError;

/// Refused by the portal, declined by the person, nothing of that name, or a session that failed.
const EXIT_REFUSED: u8 = 1;
/// Wrong usage, or the portal could not be asked.
const EXIT_FAILURE: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return output::fail("TLS could not be set up", EXIT_FAILURE);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::fail(&format!("no runtime: {error}"), EXIT_FAILURE),
    };
    let as_json = arguments.json;
    match runtime.block_on(commands::run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that went away (`| head`) is no failure; a connection that broke is one.
            let broken_pipe = error.chain().any(|cause| {
                cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            });
            if broken_pipe && error.downcast_ref::<ApiError>().is_none() {
                return ExitCode::SUCCESS;
            }
            let refused = error.is::<commands::fs::NotDone>()
                || error.chain().any(|cause| {
                    matches!(cause.downcast_ref::<ApiError>(), Some(ApiError::Refused(_)))
                    // There is no room: the portal works well.
                    || matches!(cause.downcast_ref(), Some(ApiError::Unavailable(problem)) if problem.status == 507)
                    || cause.is::<commands::fs::SomeFailed>()
                    || cause.is::<commands::fs::NotDone>()
                    || cause.is::<operations::OperationFailed>()
                    || cause.is::<operations::Interrupted>()
                    || cause.is::<commands::SessionFailed>()
                    || cause.is::<output::Declined>()
                    || matches!(cause.downcast_ref(), Some(ReferenceError::None { .. }))
                });
            let (message, code) = (format!("{error:#}"), if refused { EXIT_REFUSED } else { EXIT_FAILURE });
            if as_json {
                let problem = error.chain().find_map(|cause| match cause.downcast_ref() {
                    Some(ApiError::Refused(problem) | ApiError::Unavailable(problem)) => Some(problem.code.as_str()),
                    _ => None,
                });
                return output::fail_as_json(&message, problem, code);
            }
            output::fail(&message, code)
        }
    }
}
