//! The demo cluster: its log-ins from `var/demo.json`, its containers through `docker`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::http::Ask;
use crate::process::root;

#[derive(Deserialize)]
struct Account {
    username: String,
    password: String,
}

/// `var/demo.json`.
#[derive(Deserialize)]
pub(crate) struct Demo {
    portal_url: String,
    /// Host and port under which session origins lie.
    pub(crate) apps_domain: String,
    users: BTreeMap<String, Account>,
}

/// An API token of somebody, deleted by [`Demo::forget`].
pub(crate) struct Token {
    id: String,
    /// The secret.
    pub(crate) secret: String,
}

impl Demo {
    /// Reads the file; without it the cluster is not up.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(root().join("var/demo.json"))
            .context("no var/demo.json: bring the demo cluster up with `make demo`")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Host and port of the portal.
    pub(crate) fn portal_host(&self) -> anyhow::Result<&str> {
        Ok(self.portal_url.split_once("://").context("portal_url has a scheme")?.1)
    }

    fn address(&self) -> anyhow::Result<SocketAddr> {
        let port = self.portal_host()?.rsplit_once(':').context("portal_url has a port")?.1;
        Ok((Ipv4Addr::LOCALHOST, port.parse()?).into())
    }

    /// Makes an API token for `username`.
    pub(crate) async fn token(&self, username: &str) -> anyhow::Result<Token> {
        let account = self.users.get(username).with_context(|| format!("no `{username}` in var/demo.json"))?;
        let basic = format!("Basic {}", STANDARD.encode(format!("{}:{}", account.username, account.password)));
        let scopes = ["read", "sessions:read", "sessions:write", "sessions:connect", "tokens"];
        let body = json!({"name": "bench", "scopes": scopes, "expires_in_s": 7200}).to_string();
        let ask = Ask {
            address: self.address()?,
            host: self.portal_host()?,
            method: "POST",
            path: "/api/v1/tokens",
            authorization: Some(&basic),
            body: Some(body),
        };
        let (status, body) = ask.send().await?;
        ensure!(status == StatusCode::CREATED, "token for {username}: {status} {}", String::from_utf8_lossy(&body));
        let body: Value = serde_json::from_slice(&body)?;
        let text = |name: &str| body[name].as_str().map(ToOwned::to_owned).with_context(|| format!("no {name}"));
        Ok(Token { id: text("id")?, secret: text("token")? })
    }

    /// Asks the API as the token's person.
    pub(crate) async fn ask(
        &self,
        token: &Token,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let ask = Ask {
            address: self.address()?,
            host: self.portal_host()?,
            method,
            path,
            authorization: Some(&format!("Bearer {}", token.secret)),
            body: body.map(ToString::to_string),
        };
        let (status, body) = ask.send().await?;
        // Some answers have nothing in them.
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Deletes a token.
    pub(crate) async fn forget(&self, token: &Token) -> anyhow::Result<()> {
        self.ask(token, "DELETE", &format!("/api/v1/tokens/{}", token.id), None).await.map(drop)
    }
}

/// Runs `docker` with these arguments and gives what it printed.
pub(crate) async fn docker(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("docker").args(arguments).stdin(Stdio::null()).output().await.context("docker")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docker {}: {} {said}", arguments.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
