//! `eirene-launcher --config FILE`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use eirene_core::SystemClock;
use eirene_launcher::as_person::{self, Identity};
use eirene_launcher::config::Config;
use eirene_launcher::server;
use eirene_launcher::verbs::Verbs;

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
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Mode::AsPerson { name, uid, gid, launcher }) = arguments.mode {
        return as_person::main(&Identity { name, uid, gid, launcher });
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    match serve(&arguments.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the launcher stopped: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: &std::path::Path) -> anyhow::Result<()> {
    let config = Config::load(config)?;
    let socket = config.socket.clone();
    let peer = config.peer()?;
    let verbs = Arc::new(Verbs::new(config, Arc::new(SystemClock)));
    server::serve(&socket, &peer, &verbs)?;
    Ok(())
}
