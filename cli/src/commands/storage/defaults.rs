//! `eirene admin storage default-quota|set-default-quota`: the limits of users and groups who have none of their own, pool by pool.

use clap::Args;
use serde_json::{Value, json};

use super::{Most, bytes, items, most_bytes, most_files};
use crate::api::Api;
use crate::commands::text_of;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct SetDefaultQuota {
    /// Number of the pool
    pool: u16,
    /// Of groups, in place of users
    #[arg(long)]
    groups: bool,
    /// How much each may use: `500G`, or `unlimited`; what is left out stays
    #[arg(long, value_name = "SIZE", value_parser = most_bytes, required_unless_present = "limit_files")]
    limit: Option<Most>,
    /// How many files each may have, as the storage counts files: a number, or `unlimited`
    #[arg(long, value_name = "N", value_parser = most_files)]
    limit_files: Option<Most>,
    /// Do not ask, though some may use more already
    #[arg(long)]
    yes: bool,
}

/// Shows the defaults of a pool, or of every pool the storage tells.
pub(super) async fn show(api: &Api, pool: Option<u16>, as_json: bool) -> anyhow::Result<()> {
    let pools = match pool {
        Some(pool) => vec![json!({"id": pool})],
        None => items(&api.get("storage").await?, "pools").cloned().collect(),
    };
    let mut all = Vec::new();
    for pool in &pools {
        let number = pool.get("id").and_then(Value::as_u64).unwrap_or_default();
        let mut limits = api.get(&format!("storage/default-quotas/{number}")).await?;
        limits["pool"] = number.into();
        all.push(limits);
    }
    if as_json {
        return output::json(&json!({"items": all}));
    }
    table(&all)
}

/// Sets the defaults of a pool, and shows them as the storage has them then.
pub(super) async fn set(api: &Api, wish: &SetDefaultQuota, as_json: bool) -> anyhow::Result<()> {
    let whom = if wish.groups { "group" } else { "user" };
    if !wish.yes
        && let Some(question) = question(wish, whom)
    {
        output::confirm(&question)?;
    }
    let mut body = json!({"of": whom});
    for (key, value) in [("limit_bytes", wish.limit), ("limit_files", wish.limit_files)] {
        if let Some(most) = value {
            body[key] = most.word();
        }
    }
    let mut now = api.put(&format!("storage/default-quotas/{}", wish.pool), &body).await?;
    if as_json {
        return output::json(&now);
    }
    now["pool"] = wish.pool.into();
    table(&[now])
}

/// What is to be asked before everybody gets a limit; none where they are let have what they like.
fn question(wish: &SetDefaultQuota, whom: &str) -> Option<String> {
    let most = |limit: Option<Most>, shown: fn(u64) -> String| match limit {
        Some(Most::At(most)) => Some(shown(most)),
        Some(Most::Unlimited) | None => None,
    };
    let limits = [most(wish.limit, output::bytes), most(wish.limit_files, |files| format!("{files} files"))];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    (!limits.is_empty()).then(|| {
        format!(
            "Every {whom} without a limit of their own can write nothing more in pool {} beyond {}, also who uses more already. Set it?",
            wish.pool,
            limits.join(" and ")
        )
    })
}

fn table(all: &[Value]) -> anyhow::Result<()> {
    let size = |pool: &Value, key: &str| match pool.get(key) {
        Some(Value::String(word)) => word.clone(),
        _ => bytes(pool, key),
    };
    let rows = all.iter().map(|pool| {
        vec![
            text_of(pool, "pool"),
            size(pool, "user_bytes"),
            text_of(pool, "user_files"),
            size(pool, "group_bytes"),
            text_of(pool, "group_files"),
        ]
    });
    let header = ["POOL", "A USER'S LIMIT", "FILES", "A GROUP'S LIMIT", "FILES"];
    output::table(&header, rows.collect(), "The storage tells no pools.")
}
