//! `eirene login`, `logout` and `whoami`.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::{done, password, text_of};
use crate::api::{Api, ApiError};
use crate::arguments::Login;
use crate::credentials::{self, Credentials};
use crate::output;

const SCOPES: [&str; 7] =
    ["read", "sessions:read", "sessions:write", "sessions:connect", "files:read", "files:write", "tokens"];
/// Longest time to wait for the old token's end.
const RETIRING: Duration = Duration::from_secs(10);

pub(super) async fn login(url: Option<String>, login: &Login, as_json: bool) -> anyhow::Result<()> {
    let old = match credentials::load() {
        Ok(old) => old,
        // What is wrong with the old credentials is repaired by new ones.
        Err(error) if url.is_some() => {
            output::say(&format!("{error:#}; new credentials take its place."));
            None
        }
        Err(error) => return Err(error),
    };
    let url = match (url, &old) {
        (Some(url), _) => url,
        (None, Some(old)) => old.url.clone(),
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
    if let Some(old) = old.filter(|old| old.token_id != stored.token_id) {
        retire(&old, &url).await;
    }
    if as_json {
        return output::json(&json!({"url": url, "username": username, "credentials": path}));
    }
    output::say(&format!("Signed in to {url} as {username} for {} days.", login.days));
    Ok(())
}

/// Deletes the token that a new one has replaced, so that it does not live on unknown to anybody. That it cannot be deleted, because
/// it has expired or the portal is busy, is no reason to fail.
async fn retire(old: &Credentials, url: &str) {
    if old.url != url {
        output::say(&format!("Your token for {} is forgotten here; it lives on there until it expires.", old.url));
        return;
    }
    let gone = tokio::time::timeout(RETIRING, delete(old)).await.is_ok_and(|deleted| deleted.is_ok());
    if !gone {
        output::say("Your old token could not be deleted; it ends by itself (see `eirene token list`).");
    }
}

/// Deletes a token, with itself. One that the portal does not take is gone already.
async fn delete(stored: &Credentials) -> anyhow::Result<()> {
    let api = Api::new(&stored.url, Some(stored.token.clone()))?;
    match api.delete(&format!("tokens/{}", stored.token_id)).await {
        Err(error) if !matches!(error.downcast_ref(), Some(ApiError::Refused(p)) if p.code == "unauthenticated") => {
            Err(error)
        }
        _ => Ok(()),
    }
}

pub(super) async fn logout(url: Option<String>, as_json: bool) -> anyhow::Result<()> {
    let Some(stored) = credentials::load()? else {
        return done(&json!({"logged_out": false}), as_json, "You were not signed in.");
    };
    if let Some(url) = url {
        anyhow::ensure!(
            url.trim_end_matches('/') == stored.url,
            "you are signed in to `{}`, not to `{url}`",
            stored.url
        );
    }
    let deleted = delete(&stored).await;
    credentials::forget()?;
    if let Err(error) = deleted {
        output::say(&format!("The portal could not be told ({error}); the token ends by itself."));
    }
    done(&json!({"logged_out": true}), as_json, "Signed out.")
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
