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
    /// Bring out what a session that was broken off left in its scratch on this node, and remove the scratch
    Rescue {
        /// The scratch's directory, as the session's log names it
        directory: PathBuf,
    },
    /// Start an app in its container and end it with the agent
    #[command(hide = true)]
    Guard {
        /// The app's program and arguments; without any, the container is held ready
        #[arg(trailing_var_arg = true)]
        command: Vec<OsString>,
    },
    /// Hold the session's container ready on another node
    #[command(hide = true)]
    Helper {
        /// What the agent wrote for this node
        #[arg(long)]
        file: PathBuf,
        /// Its SHA-256
        #[arg(long)]
        digest: String,
    },
    /// Run a program on this node, for a launcher on another one
    #[command(hide = true)]
    Remote {
        /// What the agent wrote for it
        #[arg(long)]
        file: PathBuf,
        /// Its SHA-256
        #[arg(long)]
        digest: String,
    },
    /// Run a rank's program, inside of the container
    #[command(hide = true)]
    Inside {
        /// Program and arguments
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<OsString>,
    },
    /// Run a rank of a step in the session's container
    #[command(hide = true)]
    Rank {
        /// What the agent wrote for this step
        #[arg(long)]
        step: PathBuf,
        /// Its SHA-256
        #[arg(long)]
        digest: String,
    },
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some((name, words)) = words.split_first().and_then(|(own, rest)| Some((eirene_agent::name(own)?, rest))) {
        return ExitCode::from(eirene_agent::rsh(name, words));
    }
    if words.first().is_some_and(|own| eirene_agent::is_server(own)) {
        let Err(error) = eirene_agent::serve_image(&words);
        Log::new(std::io::stderr()).say(&format!("the image cannot be served: {error}"));
        return ExitCode::from(eirene_agent::EXIT_NOT_STARTED);
    }
    let code = match Arguments::parse().command {
        Command::Run { job_file } => {
            let log = Log::new(std::io::stdout());
            let environment = Environment::from_pairs(std::env::vars_os());
            in_runtime(&log, eirene_agent::run(&job_file, &environment, &log))
        }
        Command::Rescue { directory } => eirene_agent::rescue(&directory, &Log::new(std::io::stdout())),
        Command::Guard { command } => {
            let log = Log::new(std::io::stdout());
            in_runtime(&log, eirene_agent::guard(&command, &log))
        }
        // Their standard output is the agent's, and the program's own.
        Command::Helper { file, digest } => {
            let log = Log::new(std::io::stderr());
            in_runtime(&log, eirene_agent::helper(&file, &digest, &log))
        }
        Command::Inside { command } => {
            let log = Log::new(std::io::stderr());
            in_runtime(&log, eirene_agent::inside(&command, &log))
        }
        // Enters the container before there is a second thread, or anything that wants one.
        Command::Rank { step, digest } => eirene_agent::rank(&step, &digest, &Log::new(std::io::stderr())),
        Command::Remote { file, digest } => eirene_agent::remote(&file, &digest, &Log::new(std::io::stderr())),
    };
    ExitCode::from(code)
}

fn in_runtime(log: &Log, work: impl Future<Output = u8>) -> u8 {
    // One thread: the agent moves bytes, and the cores belong to the person.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            log.say(&format!("no runtime: {error}"));
            return eirene_agent::EXIT_NOT_STARTED;
        }
    };
    let code = runtime.block_on(work);
    // What still runs in the background has nothing left to say.
    runtime.shutdown_background();
    code
}
