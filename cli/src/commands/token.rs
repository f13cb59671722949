//! `eirene token`: your tokens at the portal.

use std::collections::BTreeSet;

use eirene_core::TokenId;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::arguments::Token as Verb;
use crate::reference::{Candidate, Reference, choose};
use crate::{credentials, output, times};

#[derive(Debug, Deserialize)]
struct Token {
    id: TokenId,
    name: String,
    scopes: Vec<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

pub(super) async fn run(api: &Api, verb: Verb, as_json: bool) -> anyhow::Result<()> {
    match verb {
        Verb::List => list(api, as_json).await,
        Verb::Revoke { token } => revoke(api, &token, as_json).await,
    }
}

async fn list(api: &Api, as_json: bool) -> anyhow::Result<()> {
    let items = api.list("tokens").await?;
    if as_json {
        return output::json(&Value::Array(items));
    }
    let own = own_token(api)?;
    let now = times::now();
    let mut rows = Vec::new();
    for item in items {
        let token: Token = serde_json::from_value(item)?;
        let name = if own == Some(token.id) { format!("{} (this one)", token.name) } else { token.name };
        rows.push(vec![
            token.id.to_string(),
            name,
            token.scopes.join(" "),
            token.last_used_at.map_or_else(|| "never".to_owned(), |at| times::relative(at, now)),
            token.expires_at.map_or_else(|| "never".to_owned(), |at| times::relative(at, now)),
        ]);
    }
    output::table(&["TOKEN", "NAME", "SCOPES", "USED", "EXPIRES"], rows, "You have no tokens.")
}

async fn revoke(api: &Api, wanted: &[Reference<TokenId>], as_json: bool) -> anyhow::Result<()> {
    let mut candidates = Vec::new();
    if wanted.iter().any(|one| matches!(one, Reference::Text(_))) {
        for item in api.list("tokens").await? {
            let token: Token = serde_json::from_value(item)?;
            let remark = format!("made {}", times::local(token.created_at));
            candidates.push(Candidate { id: token.id, name: token.name, remark });
        }
    }
    // All are found before the first is revoked.
    let mut ids = BTreeSet::new();
    for one in wanted {
        ids.insert(match one {
            Reference::Id(id) => *id,
            Reference::Text(text) => choose("token", text, &candidates)?,
        });
    }
    // The one in use goes last: without it, nothing more could be revoked.
    let own = own_token(api)?.filter(|own| ids.remove(own));
    for id in ids.iter().chain(&own) {
        api.delete(&format!("tokens/{id}")).await?;
    }
    if own.is_some() {
        credentials::forget()?;
    }
    if as_json {
        return output::json(&json!({"revoked": ids.iter().chain(&own).collect::<Vec<_>>()}));
    }
    output::say(&format!("Revoked {}.", if ids.len() + usize::from(own.is_some()) == 1 { "it" } else { "them" }));
    if own.is_some() {
        output::say("The token of this machine was among them: you are signed out.");
    }
    Ok(())
}

/// The stored token, where it is one of this portal's.
fn own_token(api: &Api) -> anyhow::Result<Option<TokenId>> {
    let stored = credentials::load()?.filter(|stored| api.is_at(&stored.url));
    Ok(stored.and_then(|stored| stored.token_id.parse().ok()))
}
