//! `eirene-agent`: what the batch script of a session starts. It parses, reads its environment once and hands over.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use eirene_agent::{Environment, Log};

/// The job's side of an Eirene session.
#[derive(Debug, Parser)]
#[command(name = "eirene-agent", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the session's app and connect it to the portal
    Run {
        /// The session's job file
        #[arg(long)]
        job_file: PathBuf,
    },
    /// Start an app in its container and end it with the agent
    #[command(hide = true)]
    Guard {
        /// The app's program and arguments
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let log = Log::new(std::io::stdout());
    // One thread: the agent moves bytes, and the cores belong to the person.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            log.say(&format!("no runtime: {error}"));
            return ExitCode::from(eirene_agent::EXIT_NOT_STARTED);
        }
    };
    let code = runtime.block_on(async {
        match command {
            Command::Run { job_file } => {
                let environment = Environment::from_pairs(std::env::vars_os());
                eirene_agent::run(&job_file, &environment, &log).await
            }
            Command::Guard { command } => eirene_agent::guard(&command, &log).await,
        }
    });
    // What still runs in the background has nothing left to say.
    runtime.shutdown_background();
    ExitCode::from(code)
}
