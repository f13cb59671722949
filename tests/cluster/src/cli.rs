//! The command line as one person uses it, built by `make demo`.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::demo::{Demo, root};
use crate::portal::NOTICE;

/// One person's `eirene`, with a config directory of its own.
pub struct Cli {
    portal: String,
    config: PathBuf,
}

/// How a command ended and what it said.
pub struct Said {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Standard output as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {} {}", self.out, self.err))
    }
}

impl Cli {
    /// Signs in; `more` are further arguments of `eirene login`.
    pub async fn sign_in(username: &str, more: &[&str]) -> anyhow::Result<Self> {
        let demo = Demo::load()?;
        let config = std::env::temp_dir().join(format!("eirene-cli-{}", uuid::Uuid::now_v7()));
        let cli = Self { portal: demo.portal_url.clone(), config };
        let words = [&["login", "--username", username, "--password-stdin"], more].concat();
        cli.good_with(&words, &demo.account(username)?.password).await?;
        Ok(cli)
    }

    /// The command with these words, to be changed further and started.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(root().join("var/bin/eirene"));
        command.args(words).env_clear().env("EIRENE_URL", &self.portal).env("XDG_CONFIG_HOME", &self.config);
        command.env("HOME", &self.config).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs it with `input`, however it ends.
    pub async fn run(&self, words: &[&str], input: &str) -> anyhow::Result<Said> {
        let mut child = self.command(words).spawn().context("var/bin/eirene is made by `make demo`")?;
        let mut stdin = child.stdin.take().context("piped")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        let output = tokio::time::timeout(NOTICE * 2, child.wait_with_output()).await??;
        Ok(Said {
            code: output.status.code().context("ended by a signal")?,
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Runs it with `input`; another exit status than 0 is an error.
    pub async fn good_with(&self, words: &[&str], input: &str) -> anyhow::Result<Said> {
        let said = self.run(words, input).await?;
        ensure!(said.code == 0, "{words:?} ended with {}: {}{}", said.code, said.out, said.err);
        Ok(said)
    }

    /// Like [`Cli::good_with`], without input.
    pub async fn good(&self, words: &[&str]) -> anyhow::Result<Said> {
        self.good_with(words, "").await
    }

    /// What it answers with `--json`.
    pub async fn json(&self, words: &[&str]) -> anyhow::Result<Value> {
        self.good(&[words, &["--json"]].concat()).await?.json()
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        // What is left is a directory of a few bytes below the temporary one.
        let _ = std::fs::remove_dir_all(&self.config);
    }
}
