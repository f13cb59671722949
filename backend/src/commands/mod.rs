//! The command line of `eirened`: `serve`, and what an operator does on the portal's own machine, without the network and without a log-in.
//!
//! Exit codes: 0 done, 1 refused or something is broken, 2 wrong usage.

mod accounts;
mod backup;
mod config;
mod doctor;
mod image;
mod open;
mod owner;
mod serve;
mod support;
#[cfg(test)]
mod testing;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use eirene_services::config::Config;

/// Eirene's portal.
#[derive(Debug, Parser)]
#[command(name = "eirened", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Where the configuration lies.
#[derive(Debug, Clone, Args)]
struct ConfigFile {
    /// Configuration file.
    #[arg(long, env = "EIRENE_CONFIG", default_value = "/etc/eirene/eirened.toml", value_name = "FILE")]
    config: PathBuf,
}

impl ConfigFile {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.config)?)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the portal.
    Serve(ConfigFile),
    /// Bring the database to this version's form; `serve` does it by itself.
    Migrate(ConfigFile),
    /// Look at everything the portal depends on, one line each.
    Doctor(ConfigFile),
    /// Write what somebody who helps needs to know into one file, without secrets.
    SupportBundle(support::SupportBundle),
    /// Make an account that runs the platform.
    CreateAdmin(accounts::NewPerson),
    /// Make an account for a person of the cluster.
    CreateUser(accounts::NewPerson),
    /// Copy the database of a running portal into a new file.
    Backup(backup::Backup),
    /// Put a backup in the place of the database; the portal must not be running.
    Restore(backup::Restore),
    /// The configuration.
    #[command(subcommand)]
    Config(config::Action),
    /// The catalogue of images.
    #[command(subcommand)]
    Image(image::Action),
    /// Completions for a shell.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refused(&error.into()),
    };
    let result = runtime.block_on(run(cli.command));
    // Whatever still runs on a blocking thread must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result.unwrap_or_else(|error| refused(&error))
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(file) => serve::serve(file.load()?).await?,
        Command::Migrate(file) => {
            let db = open::own_database(&file.load()?).await?;
            db.migrate().await?;
            say("The database is up to date.");
        }
        Command::Doctor(file) => return doctor::doctor(&file.config).await,
        Command::SupportBundle(bundle) => {
            serve::install_tls_provider()?;
            bundle.run().await?;
        }
        Command::CreateAdmin(person) => person.create(eirene_core::Role::Admin).await?,
        Command::CreateUser(person) => person.create(eirene_core::Role::Researcher).await?,
        Command::Backup(backup) => backup.run().await?,
        Command::Restore(restore) => restore.run().await?,
        Command::Config(action) => action.run()?,
        Command::Image(action) => action.run().await?,
        Command::Completions { shell } => {
            let mut command = <Cli as clap::CommandFactory>::command();
            clap_complete::generate(shell, &mut command, "eirened", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One line for whoever typed the command; a closed pipe is their business.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn refused(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "eirened: {error:#}");
    ExitCode::from(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
        for line in [
            "eirened create-admin --config /c --username admin --password-stdin",
            "eirened image add jupyter --sif /a.sif --config /c",
            "eirened image build dir --name jupyter --builder-image b --output out",
            "eirened backup --config=/c /b.db",
            "eirened restore --config=/c /b.db",
            "eirened support-bundle --config=/c /s.tar.gz",
            "eirened config sample",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(Cli::try_parse_from(["eirened", "create-admin", "--username", "../x", "--password-stdin"]).is_err());
    }
}
