//! `backup` and `restore` of a SQLite database. PostgreSQL has tools of its own, and the answer says so.

use std::path::PathBuf;

use clap::Args;
use eirene_database::Db;
use secrecy::ExposeSecret as _;

use super::{ConfigFile, open, owner, say};

/// Where to.
#[derive(Debug, Args)]
pub(super) struct Backup {
    #[command(flatten)]
    file: ConfigFile,
    /// The new file.
    path: PathBuf,
}

/// Where from.
#[derive(Debug, Args)]
pub(super) struct Restore {
    #[command(flatten)]
    file: ConfigFile,
    /// A file that `backup` made.
    path: PathBuf,
}

impl Backup {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let db = open::own_database(&self.file.load()?).await?;
        db.backup_to(&self.path).await?;
        db.close().await;
        say(&format!("The database was copied to `{}`.", self.path.display()));
        Ok(())
    }
}

impl Restore {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = self.file.load()?;
        owner::check_maker(&config.server.state_dir, nix::unistd::geteuid())?;
        let url = config.database_url()?;
        let version = Db::restore_from(&self.path, url.expose_secret()).await?;
        let db = Db::open(url.expose_secret()).await?;
        db.migrate().await?;
        db.close().await;
        say(&format!(
            "`{}` was restored (form {version}). Sessions that run are found again by the portal.",
            self.path.display()
        ));
        Ok(())
    }
}
