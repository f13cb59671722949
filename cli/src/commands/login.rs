//! `eirene login`, `logout` and `whoami`.

use std::io::Write as _;

use anyhow::Context as _;
use serde_json::json;

use super::{password, text_of};
use crate::api::Api;
use crate::arguments::Login;
use crate::credentials::{self, Credentials};
use crate::output;

const SCOPES: [&str; 5] = ["read", "sessions:read", "sessions:write", "sessions:connect", "tokens"];

pub(super) async fn login(url: Option<String>, login: &Login, as_json: bool) -> anyhow::Result<()> {
    let url = match (url, credentials::load()?) {
        (Some(url), _) => url,
        (None, Some(stored)) => stored.url,
        (None, None) => anyhow::bail!("which portal? Run `eirene login --url https://…`"),
    };
    let url = url.trim_end_matches('/').to_owned();
    let username = match &login.username {
        Some(username) => username.to_string(),
        None => ask("User name: ")?,
    };
    let password = password(login.password_stdin, "Password: ")?;
    let mut scopes: Vec<&str> = SCOPES.to_vec();
    if login.admin {
        scopes.push("admin");
    }
    let body = json!({
        "name": format!("eirene on {}", machine()),
        "scopes": scopes,
        "expires_in_s": u64::from(login.days) * 86_400,
    });
    let answer = Api::new(&url, None)?.post_basic("tokens", &body, &username, &password).await?;
    let token = answer.get("token").and_then(|t| t.as_str()).context("the portal sent no token")?;
    let stored = Credentials {
        url: url.clone(),
        username: username.clone(),
        token_id: text_of(&answer, "id"),
        token: token.to_owned(),
    };
    let path = credentials::store(&stored)?;
    if as_json {
        return output::json(&json!({"url": url, "username": username, "credentials": path}));
    }
    output::say(&format!("Signed in to {url} as {username} for {} days.", login.days));
    Ok(())
}

pub(super) async fn logout(url: Option<String>) -> anyhow::Result<()> {
    let Some(stored) = credentials::load()? else {
        output::say("You were not signed in.");
        return Ok(());
    };
    if let Some(url) = url {
        anyhow::ensure!(
            url.trim_end_matches('/') == stored.url,
            "you are signed in to `{}`, not to `{url}`",
            stored.url
        );
    }
    let deleted =
        Api::new(&stored.url, Some(stored.token.clone()))?.delete(&format!("tokens/{}", stored.token_id)).await;
    credentials::forget()?;
    match deleted {
        Ok(_) => output::say("Signed out."),
        Err(error) => {
            output::say(&format!("Signed out here; the portal could not be told ({error}). The token ends by itself."));
        }
    }
    Ok(())
}

pub(super) async fn whoami(api: &Api, as_json: bool) -> anyhow::Result<()> {
    let me = api.get("me").await?;
    if as_json { output::json(&me) } else { output::line(&text_of(&me, "name")) }
}

fn ask(prompt: &str) -> anyhow::Result<String> {
    write!(std::io::stderr(), "{prompt}")?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    let answer = answer.trim().to_owned();
    anyhow::ensure!(!answer.is_empty(), "no user name");
    Ok(answer)
}

fn machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "this machine".to_owned(), |name| name.trim().chars().take(40).collect())
}
