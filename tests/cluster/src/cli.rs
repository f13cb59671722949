//! One person's `eirene`, as they would run it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::demo::{Demo, root};
use crate::portal::NOTICE;

/// One person's `eirene`, with a home directory of its own.
pub struct Cli {
    portal: String,
    /// The home directory: what is remembered, and what tests put there.
    pub home: PathBuf,
}

/// What it said.
pub struct Said {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Standard output as one JSON value.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {} {}", self.out, self.err))
    }

    /// Standard output as JSON, a line each.
    pub fn json_lines(&self) -> anyhow::Result<Vec<Value>> {
        self.out.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))).collect()
    }
}

impl Cli {
    /// Signs in; `more` are options of `eirene login`.
    pub async fn sign_in(username: &str, more: &[&str]) -> anyhow::Result<Self> {
        let demo = Demo::load()?;
        let home = std::env::temp_dir().join(format!("eirene-cli-{}", uuid::Uuid::now_v7()));
        let cli = Self { portal: demo.portal_url.clone(), home };
        let words = [&["login", "--username", username, "--password-stdin"], more].concat();
        cli.good_with(&words, &demo.account(username)?.password).await?;
        Ok(cli)
    }

    /// The token it has, for what only HTTP can ask.
    pub fn token(&self) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(self.home.join("eirene/credentials.toml"))?;
        let token = text.lines().find_map(|line| line.strip_prefix("token = \"")?.strip_suffix('"'));
        token.map(ToOwned::to_owned).context("no token is kept")
    }

    /// The command with these words, to be changed further and started.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(root().join("var/bin/eirene"));
        command.args(words).env_clear().env("EIRENE_URL", &self.portal).env("XDG_CONFIG_HOME", &self.home);
        command.env("HOME", &self.home).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs it to its end.
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

    /// The same with something on standard input; another exit status than 0 is an error.
    pub async fn good_with(&self, words: &[&str], input: &str) -> anyhow::Result<Said> {
        let said = self.run(words, input).await?;
        ensure!(said.code == 0, "{words:?} ended with {}: {}{}", said.code, said.out, said.err);
        Ok(said)
    }

    /// The same with nothing on standard input.
    pub async fn good(&self, words: &[&str]) -> anyhow::Result<Said> {
        self.good_with(words, "").await
    }

    /// What it says with `--json`.
    pub async fn json(&self, words: &[&str]) -> anyhow::Result<Value> {
        self.good(&[words, &["--json"]].concat()).await?.json()
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        // What is left lies below the temporary directory.
        let _ = std::fs::remove_dir_all(&self.home);
    }
}
