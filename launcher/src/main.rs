//! `eirene-launcher --config FILE`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use eirene_core::SystemClock;
use eirene_launcher::as_person::{self, Identity};
use eirene_launcher::config::{Config, Log, LogFormat};
use eirene_launcher::verbs::Verbs;
use eirene_launcher::{as_root, server, space_root};
use tracing_subscriber::EnvFilter;

/// Signs SLURM tokens and acts as the person, for the portal's own user.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Configuration; must belong to root and be writable by nobody else.
    #[arg(long, default_value = "/etc/eirene/launcher.toml")]
    config: PathBuf,
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Subcommand)]
enum Mode {
    /// The child of a launcher: becomes the person, then does the one task it reads from its standard input.
    #[command(hide = true)]
    AsPerson {
        #[arg(long)]
        name: String,
        #[arg(long)]
        uid: u32,
        #[arg(long)]
        gid: u32,
        #[arg(long)]
        launcher: u32,
        #[arg(long)]
        purge: bool,
    },
    /// The child of a launcher that changes the names in a root of spaces, as it reads from its standard input.
    #[command(hide = true)]
    AsRoot {
        #[arg(long)]
        launcher: u32,
    },
    /// Marks a directory as a root of spaces, so that its file system is told from an empty mount point. Once for each; again does nothing.
    InitRoot {
        /// The directory; root's, as all that lead there, and writable by nobody else.
        path: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.mode {
        Some(Mode::AsPerson { name, uid, gid, launcher, purge }) => {
            return as_person::main(&Identity { name, uid, gid, launcher, purge });
        }
        Some(Mode::AsRoot { launcher }) => return as_root::main(launcher),
        Some(Mode::InitRoot { path }) => {
            return match space_root::init(&path) {
                Ok(()) => ExitCode::SUCCESS,
                Err(refusal) => {
                    let _ = writeln!(std::io::stderr(), "eirene-launcher: {}", refusal.text);
                    ExitCode::FAILURE
                }
            };
        }
        None => {}
    }
    let config = Config::load(&arguments.config);
    // What is wrong with a configuration is said as if it had chosen nothing.
    log_to_stderr(&config.as_ref().map(|config| config.log.clone()).unwrap_or_default());
    match config.map_err(anyhow::Error::from).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the launcher stopped: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr(log: &Log) {
    // Nobody gets here with a filter that is not understood.
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match log.format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

fn serve(config: Config) -> anyhow::Result<()> {
    let socket = config.socket.clone();
    let peer = config.peer()?;
    let verbs = Arc::new(Verbs::new(config, Arc::new(SystemClock)));
    server::serve(&socket, &peer, &verbs)?;
    Ok(())
}
