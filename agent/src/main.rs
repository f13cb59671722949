//! `eirene-agent`: what the batch script of a session starts. It parses, reads its environment once and hands over.

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
}

fn main() -> ExitCode {
    let Command::Run { job_file } = Arguments::parse().command;
    let log = Log::new(std::io::stdout());
    // One thread: the agent moves bytes, and the cores belong to the person.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            log.say(&format!("no runtime: {error}"));
            return ExitCode::from(eirene_agent::EXIT_NOT_STARTED);
        }
    };
    let environment = Environment::from_pairs(std::env::vars());
    let code = runtime.block_on(eirene_agent::run(&job_file, &environment, &log));
    // What still runs in the background has nothing left to say.
    runtime.shutdown_background();
    ExitCode::from(code)
}
