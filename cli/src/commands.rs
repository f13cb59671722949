//! The commands. Each reads its arguments, asks the portal and prints.

mod admin;
pub(crate) mod alert;
pub(crate) mod efficiency;
pub(crate) mod fs;
mod jobs;
mod login;
mod logs;
pub(crate) mod node;
mod run;
mod session;
mod space;
pub(crate) mod storage;
mod token;

use std::io::Read as _;

use anyhow::Context as _;
use clap::CommandFactory as _;
use serde_json::Value;

use crate::api::Api;
use crate::arguments::{Arguments, Command, Node};
use crate::{credentials, output};

/// The session or the run came to an end that was not asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SessionFailed(pub(crate) String);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { url, json, command } = arguments;
    match command {
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "eirene", &mut std::io::stdout());
            Ok(())
        }
        Command::Login(login) => login::login(url, &login, json).await,
        Command::Logout => login::logout(url, json).await,
        Command::Whoami => login::whoami(&connect(url)?, json).await,
        Command::Session(verb) => session::run(&connect(url)?, verb, json).await,
        Command::Run(verb) => run::run(&connect(url)?, verb, json).await,
        Command::Fs(verb) => fs::run(&connect(url)?, verb, json).await,
        Command::Node(Node::List) => node_list(&connect(url)?, json).await,
        Command::Alert(verb) => alert::run(&connect(url)?, verb, json).await,
        Command::Token(verb) => token::run(&connect(url)?, verb, json).await,
        Command::Admin(verb) => admin::run(&connect(url)?, verb, json).await,
    }
}

/// The portal with the stored token; `EIRENE_TOKEN` goes before it, for programs.
fn connect(url: Option<String>) -> anyhow::Result<Api> {
    let stored = credentials::load()?;
    let from_environment = std::env::var("EIRENE_TOKEN").ok().filter(|token| !token.is_empty());
    match (url, from_environment, stored) {
        (Some(url), Some(token), _) => Api::new(&url, Some(token)),
        (None, Some(token), Some(stored)) => Api::new(&stored.url, Some(token)),
        // A token is only ever sent to the portal that gave it.
        (Some(url), None, Some(stored)) if url.trim_end_matches('/') == stored.url => {
            Api::new(&stored.url, Some(stored.token))
        }
        (None, None, Some(stored)) => Api::new(&stored.url, Some(stored.token)),
        (Some(url), None, _) => anyhow::bail!("you are not signed in to `{url}`: run `eirene login --url {url}`"),
        (None, _, None) => anyhow::bail!("you are not signed in: run `eirene login --url https://…`"),
    }
}

/// A password: from standard input, or asked for without echo.
fn password(from_stdin: bool, prompt: &str) -> anyhow::Result<String> {
    if !from_stdin {
        return rpassword::prompt_password(prompt)
            .context("no terminal to ask for the password: use `--password-stdin`");
    }
    let mut text = String::new();
    std::io::stdin().take(4096).read_to_string(&mut text)?;
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    anyhow::ensure!(!text.is_empty(), "no password on standard input");
    Ok(text)
}

fn text_of(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "–".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Says that it is done; programs get the portal's answer.
fn done(answer: &Value, as_json: bool, sentence: &str) -> anyhow::Result<()> {
    if as_json {
        return output::json(answer);
    }
    output::say(sentence);
    Ok(())
}

async fn node_list(api: &Api, json: bool) -> anyhow::Result<()> {
    let cluster = api.get("cluster").await?;
    if json {
        return output::json(cluster.get("nodes").unwrap_or(&Value::Null));
    }
    let nodes = cluster.get("nodes").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = nodes
        .iter()
        .map(|node| {
            let used = |allocated: &str, total: &str| format!("{}/{}", text_of(node, allocated), text_of(node, total));
            let gpus: Vec<String> = node
                .get("gpus")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|gpu| {
                    format!("{} {}/{}", text_of(gpu, "gpu_type"), text_of(gpu, "allocated"), text_of(gpu, "total"))
                })
                .collect();
            vec![
                text_of(node, "name"),
                text_of(node, "state"),
                used("cpus_allocated", "cpus"),
                text_of(node, "cpu_load"),
                used("memory_allocated_mib", "memory_mib"),
                if gpus.is_empty() { "–".to_owned() } else { gpus.join(", ") },
                text_of(node, "reason"),
            ]
        })
        .collect();
    output::table(
        &["NODE", "STATE", "CPUS USED", "LOAD", "MEMORY USED (MiB)", "GPUS USED", "REASON"],
        rows,
        "The cluster has no nodes.",
    )
}
