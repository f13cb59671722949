//! `config check` and `config sample`.

use clap::Subcommand;
use eirene_services::config::SAMPLE;

use super::{ConfigFile, say};

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Say whether a file is understood and can work.
    Check(ConfigFile),
    /// Print a configuration with every key and what it is for.
    Sample,
}

impl Action {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check(file) => {
                file.load()?;
                say(&format!("`{}` is good.", file.config.display()));
            }
            Self::Sample => say(SAMPLE.trim_end()),
        }
        Ok(())
    }
}
