//! `create-admin` and `create-user`: the first accounts, and those a script makes. Doing it again changes nothing.

use std::io::Read as _;

use anyhow::Context as _;
use clap::Args;
use eirene_core::{Role, Username};
use eirene_services::accounts::{NewAccount, Uid};
use eirene_services::error::AppError;
use secrecy::SecretString;

use super::{ConfigFile, open, say};

/// Longest password read, bytes.
const MAX_INPUT: u64 = 4096;

/// Who to make.
#[derive(Debug, Args)]
pub(super) struct NewPerson {
    #[command(flatten)]
    file: ConfigFile,
    /// Name; the person's POSIX name on the cluster.
    #[arg(long, value_name = "NAME")]
    username: Username,
    /// Read the password from the first line of standard input; without it one is made and printed.
    #[arg(long)]
    password_stdin: bool,
    /// Set the password of an account that exists already.
    #[arg(long)]
    reset: bool,
}

impl NewPerson {
    /// Makes the account, or leaves it as it is.
    pub(super) async fn create(self, role: Role) -> anyhow::Result<()> {
        let password = if self.password_stdin { Some(read_password()?) } else { None };
        let offline = open::offline(&self.file.load()?).await?;
        if let Some(known) = offline.db.user_by_name(&self.username).await? {
            anyhow::ensure!(known.role == role, "`{}` exists already and is no {role}", self.username);
            if !self.reset {
                say(&format!("`{}` exists already.", self.username));
                return Ok(());
            }
            let made = offline.accounts.reset_password(&offline.operator, &self.username, password).await?;
            say(&format!("`{}` has a new password.", self.username));
            show(made.as_ref());
            return Ok(());
        }
        let new = NewAccount { username: self.username, role, uid: Uid::FromSystem, password };
        match offline.accounts.create(&offline.operator, new).await {
            Ok((user, made)) => {
                say(&format!("`{}` was made, as {role}.", user.username));
                show(made.as_ref());
                Ok(())
            }
            Err(error @ AppError::Invalid(_)) => Err(error.into()),
            Err(error) => Err(error).context("the account was not made"),
        }
    }
}

fn show(made: Option<&SecretString>) {
    use secrecy::ExposeSecret as _;
    if let Some(made) = made {
        say(&format!("Its password, shown this once: {}", made.expose_secret()));
    }
}

fn read_password() -> anyhow::Result<SecretString> {
    let mut text = String::new();
    std::io::stdin().take(MAX_INPUT).read_to_string(&mut text).context("the password could not be read")?;
    let line = text.lines().next().unwrap_or_default();
    anyhow::ensure!(!line.is_empty(), "no password on standard input");
    Ok(SecretString::from(line))
}
