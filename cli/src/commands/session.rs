//! `eirene session`: start, list, show, open, logs, stop.

use std::process::Stdio;

use eirene_core::SessionId;
use reqwest::Url;
use serde_json::{Value, json};

use super::SessionFailed;
use super::efficiency;
use super::jobs::{self, dash, wait};
use super::logs::logs;
use crate::api::{Api, Job, Noun, Target};
use crate::arguments::{self, Start};
use crate::output;
use crate::reference::Reference;

pub(super) async fn run(api: &Api, verb: arguments::Session, as_json: bool) -> anyhow::Result<()> {
    use arguments::Session as Verb;
    match verb {
        Verb::Start(start) => self::start(api, *start, as_json).await,
        Verb::List { all } => jobs::list(api, Noun::Session, all, false, as_json).await,
        Verb::Show { session } => show(api, find(api, &session).await?, as_json).await,
        Verb::Efficiency { session } => efficiency::of(api, find(api, &session).await?, as_json).await,
        Verb::Open { session, print } => open(api, find(api, &session).await?, print, as_json).await,
        Verb::Logs { session, follow } => logs(api, find(api, &session).await?.into(), follow, as_json).await,
        Verb::Stop { session, no_wait } => jobs::end(api, find(api, &session).await?, no_wait, as_json).await,
    }
}

async fn find(api: &Api, session: &Reference<SessionId>) -> anyhow::Result<Target> {
    jobs::find(api, Noun::Session, session).await
}

async fn start(api: &Api, start: Start, as_json: bool) -> anyhow::Result<()> {
    let mut body = jobs::body(start.size, start.name.map(String::from));
    body["app"] = Value::String(start.app.into());
    let answer = jobs::post(api, "sessions", &body, start.idempotency_key.as_deref()).await?;
    let session: Job = serde_json::from_value(answer.clone())?;
    if start.no_wait {
        return if as_json { output::json(&answer) } else { output::line(&session.id.to_string()) };
    }
    let target = Target { noun: Noun::Session, id: session.id };
    let (session, answer) = wait(api, target, as_json, |s| s.state == "running" || s.is_over()).await?;
    if session.is_over() {
        let why = session.reason.map_or_else(|| "no reason is known".to_owned(), |reason| reason.text);
        return Err(SessionFailed(format!("session `{}` did not start: {why}", session.id)).into());
    }
    if as_json {
        output::json(&answer)?;
    } else {
        // Its app may be there before the scheduler has said where.
        let place = if session.nodes.is_empty() { String::new() } else { format!(" on {}", session.nodes.join(", ")) };
        output::say(&format!("`{}` runs{place}.", session.name));
        output::line(&session.id.to_string())?;
    }
    if start.open {
        let address = address(api, session.id)?;
        if !as_json {
            output::line(address.as_str())?;
        }
        browse(&address).await;
    }
    Ok(())
}

async fn show(api: &Api, target: Target, as_json: bool) -> anyhow::Result<()> {
    let value = api.job_json(target).await?;
    if as_json {
        return output::json(&value);
    }
    let session: Job = serde_json::from_value(value)?;
    let app = session.app.clone().unwrap_or_else(dash);
    jobs::show(&session, &[("App", format!("{app} in {}", session.image))])
}

async fn open(api: &Api, target: Target, print: bool, as_json: bool) -> anyhow::Result<()> {
    let session = api.job(target).await?;
    if session.is_over() {
        return Err(SessionFailed(format!("session `{}` is over", target.id)).into());
    }
    let address = address(api, target.id)?;
    if as_json {
        output::json(&json!({"url": address.as_str()}))?;
    } else {
        output::line(address.as_str())?;
    }
    if !print {
        browse(&address).await;
    }
    Ok(())
}

/// Where a browser opens a session: the portal hands it over to the session's origin, and no secret is in this address.
fn address(api: &Api, id: SessionId) -> anyhow::Result<Url> {
    api.page(&format!("/open?session={id}"))
}

/// Opens an address in the browser, where there is one.
async fn browse(address: &Url) {
    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|key| std::env::var_os(key).is_some());
    if !display && !cfg!(target_os = "macos") {
        return;
    }
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = tokio::process::Command::new(opener).arg(address.as_str()).stdout(Stdio::null()).status().await;
    if !started.is_ok_and(|status| status.success()) {
        output::say("No browser could be opened: open the address yourself.");
    }
}
