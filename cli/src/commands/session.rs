//! `eirene session`: start, list, show, open, logs, stop.

use std::io::Write as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::SessionFailed;
use crate::api::{Api, Session};
use crate::arguments::{self, Start};
use crate::output;

/// Pause before a broken event stream is opened again.
const RECONNECT: Duration = Duration::from_millis(500);

pub(super) async fn run(api: &Api, verb: arguments::Session, as_json: bool) -> anyhow::Result<()> {
    use arguments::Session as Verb;
    match verb {
        Verb::Start(start) => self::start(api, start, as_json).await,
        Verb::List { all } => list(api, all, false, as_json).await,
        Verb::Show { session } => show(api, &session.to_string(), as_json).await,
        Verb::Open { session, print } => open(api, &session.to_string(), print).await,
        Verb::Logs { session, follow } => logs(api, &session.to_string(), follow).await,
        Verb::Stop { session, no_wait } => stop(api, &session.to_string(), no_wait, as_json).await,
    }
}

async fn start(api: &Api, start: Start, as_json: bool) -> anyhow::Result<()> {
    let mut body = json!({
        "app": start.app, "image": start.image, "nodes": start.nodes, "cpus": start.cpus,
        "memory_mib": start.memory, "gpus": start.gpus.count, "walltime_min": start.walltime,
    });
    let optional = [
        ("name", start.name.map(String::from)),
        ("project", start.project.map(String::from)),
        ("partition", start.partition.map(String::from)),
        ("gpu_type", start.gpus.gpu_type.map(String::from)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            body[key] = Value::String(value);
        }
    }
    // Without a key of the caller's, each command is a start of its own; an answer that was lost is not asked for again.
    let answer = match &start.idempotency_key {
        Some(key) => api.post_once("sessions", &body, key).await?,
        None => api.post("sessions", &body).await?,
    };
    let session: Session = serde_json::from_value(answer.clone())?;
    if start.no_wait {
        return if as_json { output::json(&answer) } else { output::line(&session.id) };
    }
    let session = wait(api, &session.id, as_json, |s| s.state == "running" || s.is_over()).await?;
    if session.is_over() {
        let why = session.reason.map_or_else(|| "no reason is known".to_owned(), |reason| reason.text);
        return Err(SessionFailed(format!("session `{}` did not start: {why}", session.id)).into());
    }
    if as_json {
        output::json(&api.get(&format!("sessions/{}", session.id)).await?)?;
    } else {
        output::say(&format!("`{}` runs on {}.", session.name, session.nodes.join(", ")));
        output::line(&session.id)?;
    }
    if start.open { open(api, &session.id, false).await } else { Ok(()) }
}

pub(super) async fn list(api: &Api, all: bool, everybody: bool, as_json: bool) -> anyhow::Result<()> {
    let path = match (everybody, all) {
        (false, false) => "sessions?live=true",
        (false, true) => "sessions",
        (true, false) => "sessions?all=true&live=true",
        (true, true) => "sessions?all=true",
    };
    let items = api.list(path).await?;
    if as_json {
        return output::json(&Value::Array(items));
    }
    let mut rows = Vec::new();
    for item in items {
        let session: Session = serde_json::from_value(item)?;
        let mut row = vec![session.id.clone(), session.name.clone()];
        if everybody {
            row.push(session.owner.clone());
        }
        row.extend([
            state_of(&session),
            session.image.clone(),
            session.nodes.join(","),
            session.ends_at.clone().unwrap_or_else(|| "–".to_owned()),
            session.reason.as_ref().map_or_else(String::new, |reason| reason.text.clone()),
        ]);
        rows.push(row);
    }
    let header: &[&str] = if everybody {
        &["SESSION", "NAME", "OWNER", "STATE", "IMAGE", "NODES", "ENDS", "REASON"]
    } else {
        &["SESSION", "NAME", "STATE", "IMAGE", "NODES", "ENDS", "REASON"]
    };
    output::table(header, rows, "No sessions. Start one with `eirene session start`.")
}

async fn show(api: &Api, id: &str, as_json: bool) -> anyhow::Result<()> {
    let value = api.get(&format!("sessions/{id}")).await?;
    if as_json {
        return output::json(&value);
    }
    let session: Session = serde_json::from_value(value)?;
    let dash = || "–".to_owned();
    let rows = [
        ("Session", session.id.clone()),
        ("Name", session.name.clone()),
        ("Owner", session.owner.clone()),
        ("State", state_of(&session)),
        ("Reason", session.reason.clone().map_or_else(dash, |reason| reason.text)),
        ("App", format!("{} in {}", session.app, session.image)),
        ("Nodes", if session.nodes.is_empty() { dash() } else { session.nodes.join(", ") }),
        ("SLURM job", session.slurm_job_id.map_or_else(dash, |id| id.to_string())),
        ("Asked for", session.created_at.clone()),
        ("Ends", session.ends_at.clone().unwrap_or_else(dash)),
    ];
    for (label, value) in rows {
        output::line(&format!("{label:<10} {value}"))?;
    }
    Ok(())
}

async fn open(api: &Api, id: &str, print: bool) -> anyhow::Result<()> {
    let session = api.session(id).await?;
    if session.is_over() {
        return Err(SessionFailed(format!("session `{id}` is over")).into());
    }
    // The portal hands the browser over to the session's origin; no secret is in this address.
    let address = api.page(&format!("/open?session={id}"))?;
    output::line(address.as_str())?;
    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|key| std::env::var_os(key).is_some());
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !print && (display || cfg!(target_os = "macos")) {
        let started = tokio::process::Command::new(opener).arg(address.as_str()).status().await;
        if !started.is_ok_and(|status| status.success()) {
            output::say("No browser could be opened: open the address above.");
        }
    }
    Ok(())
}

async fn logs(api: &Api, id: &str, follow: bool) -> anyhow::Result<()> {
    let path = if follow { format!("sessions/{id}/logs?follow=true") } else { format!("sessions/{id}/logs") };
    let mut body = api.stream(&path).await?.bytes_stream();
    let mut out = std::io::stdout();
    while let Some(chunk) = body.next().await {
        out.write_all(&chunk?)?;
        out.flush()?;
    }
    Ok(())
}

pub(super) async fn stop(api: &Api, id: &str, no_wait: bool, as_json: bool) -> anyhow::Result<()> {
    let answer = api.delete(&format!("sessions/{id}")).await?;
    if no_wait {
        return if as_json { output::json(&answer) } else { Ok(()) };
    }
    let session = wait(api, id, as_json, Session::is_over).await?;
    if as_json {
        return output::json(&api.get(&format!("sessions/{id}")).await?);
    }
    output::say(&format!("`{}` is over.", session.name));
    Ok(())
}

fn state_of(session: &Session) -> String {
    if session.undetermined { format!("{} (cluster does not answer)", session.state) } else { session.state.clone() }
}

/// Waits until the session is as wanted, told by the portal's event stream; a broken stream is opened again.
async fn wait(api: &Api, id: &str, quiet: bool, wanted: impl Fn(&Session) -> bool) -> anyhow::Result<Session> {
    let bar = output::spinner(quiet);
    loop {
        // The stream is opened before the state is read, so that no change falls between the two.
        let stream = api.stream(&format!("sessions/{id}/events")).await;
        let session = api.session(id).await?;
        bar.set_message(describe(&session));
        if wanted(&session) {
            bar.finish_and_clear();
            return Ok(session);
        }
        if let Ok(response) = stream {
            let mut body = response.bytes_stream();
            let mut buffer = Vec::new();
            while let Some(Ok(chunk)) = body.next().await {
                buffer.extend_from_slice(&chunk);
                while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let Some(data) = line.strip_prefix(b"data:") else { continue };
                    let Ok(session) = serde_json::from_slice::<Session>(data.trim_ascii()) else { continue };
                    bar.set_message(describe(&session));
                    if wanted(&session) {
                        bar.finish_and_clear();
                        return Ok(session);
                    }
                }
            }
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

fn describe(session: &Session) -> String {
    match &session.reason {
        Some(reason) => output::printable(&format!("{}: {}", state_of(session), reason.text)),
        None => state_of(session),
    }
}
