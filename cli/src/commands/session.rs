//! `eirene session`: start, list, show, open, logs, stop.

use std::process::Stdio;
use std::time::Duration;

use eirene_core::SessionId;
use futures_util::StreamExt as _;
use reqwest::{Response, Url};
use serde_json::{Value, json};

use super::logs::logs;
use super::{SessionFailed, done};
use crate::api::{Api, NodeDetail, Session, Step, may_pass};
use crate::arguments::{self, Start};
use crate::patience::Patience;
use crate::reference::{Candidate, Reference, choose, named, only};
use crate::{output, times};

/// Pause before an event stream that has ended is opened again.
const RECONNECT: Duration = Duration::from_millis(500);

pub(super) async fn run(api: &Api, verb: arguments::Session, as_json: bool) -> anyhow::Result<()> {
    use arguments::Session as Verb;
    match verb {
        Verb::Start(start) => self::start(api, start, as_json).await,
        Verb::List { all } => list(api, all, false, as_json).await,
        Verb::Show { session } => show(api, find(api, &session).await?, as_json).await,
        Verb::Open { session, print } => open(api, find(api, &session).await?, print, as_json).await,
        Verb::Logs { session, follow } => logs(api, find(api, &session).await?, follow, as_json).await,
        Verb::Stop { session, no_wait } => stop(api, find(api, &session).await?, no_wait, as_json).await,
    }
}

/// The session that is meant. A name is first sought among those that are not over: names are given again.
async fn find(api: &Api, session: &Reference<SessionId>) -> anyhow::Result<SessionId> {
    let text = match session {
        Reference::Id(id) => return Ok(*id),
        Reference::Text(text) => text,
    };
    let live = candidates(api, "sessions?live=true&limit=200").await?;
    let of_that_name = named(text, &live);
    if !of_that_name.is_empty() {
        return Ok(only("session", text, &of_that_name)?);
    }
    Ok(choose("session", text, &candidates(api, "sessions?limit=200").await?)?)
}

async fn candidates(api: &Api, path: &str) -> anyhow::Result<Vec<Candidate<SessionId>>> {
    let mut candidates = Vec::new();
    for item in api.list(path).await? {
        let session: Session = serde_json::from_value(item)?;
        let remark = format!("{}, asked for {}", session.state, times::local(session.created_at));
        candidates.push(Candidate { id: session.id, name: session.name, remark });
    }
    Ok(candidates)
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
        return if as_json { output::json(&answer) } else { output::line(&session.id.to_string()) };
    }
    let (session, answer) = wait(api, session.id, as_json, |s| s.state == "running" || s.is_over()).await?;
    if session.is_over() {
        let why = session.reason.map_or_else(|| "no reason is known".to_owned(), |reason| reason.text);
        return Err(SessionFailed(format!("session `{}` did not start: {why}", session.id)).into());
    }
    if as_json {
        output::json(&answer)?;
    } else {
        output::say(&format!("`{}` runs on {}.", session.name, session.nodes.join(", ")));
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
    let now = times::now();
    let mut rows = Vec::new();
    for item in items {
        let session: Session = serde_json::from_value(item)?;
        let mut row = vec![session.id.to_string(), session.name.clone()];
        if everybody {
            row.push(session.owner.clone());
        }
        row.extend([
            state_of(&session),
            session.image.clone(),
            session.nodes.join(","),
            end_of(&session).map_or_else(|| "–".to_owned(), |at| times::relative(at, now)),
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

async fn show(api: &Api, id: SessionId, as_json: bool) -> anyhow::Result<()> {
    let value = api.session_json(id).await?;
    if as_json {
        return output::json(&value);
    }
    let session: Session = serde_json::from_value(value)?;
    let dash = || "–".to_owned();
    let now = times::now();
    let rows = [
        ("Session", session.id.to_string()),
        ("Name", session.name.clone()),
        ("Owner", session.owner.clone()),
        ("State", state_of(&session)),
        ("Reason", session.reason.clone().map_or_else(dash, |reason| reason.text)),
        ("App", format!("{} in {}", session.app, session.image)),
        ("Nodes", if session.nodes.is_empty() { dash() } else { session.nodes.join(", ") }),
        ("SLURM job", session.slurm_job_id.map_or_else(dash, |id| id.to_string())),
        ("Asked for", times::in_full(session.created_at, now)),
        (
            if session.is_over() { "Ended" } else { "Ends" },
            end_of(&session).map_or_else(dash, |at| times::in_full(at, now)),
        ),
    ];
    for (label, value) in rows {
        output::line(&format!("{label:<10} {value}"))?;
    }
    for node in &session.node_details {
        output::line(&output::printable(&format!("  {}", describe_node(node, &session.app))))?;
    }
    Ok(())
}

/// A node, how it is, and what runs there, in one line.
fn describe_node(node: &NodeDetail, app: &str) -> String {
    let state = node.state.as_deref().unwrap_or("not known");
    let why = node.text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
    let step = |step: &Step| {
        let ranks = if step.ranks == 1 { "rank" } else { "ranks" };
        format!("step {}: {} ({} {ranks} in all)", step.number, step.command, step.ranks)
    };
    let runs: Vec<String> = node.app.then(|| app.to_owned()).into_iter().chain(node.steps.iter().map(step)).collect();
    let runs = if runs.is_empty() { "nothing runs".to_owned() } else { runs.join("; ") };
    format!("{}: {state}{why}: {runs}", node.name)
}

async fn open(api: &Api, id: SessionId, print: bool, as_json: bool) -> anyhow::Result<()> {
    let session = api.session(id).await?;
    if session.is_over() {
        return Err(SessionFailed(format!("session `{id}` is over")).into());
    }
    let address = address(api, id)?;
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

pub(super) async fn stop(api: &Api, id: SessionId, no_wait: bool, as_json: bool) -> anyhow::Result<()> {
    let answer = api.delete(&format!("sessions/{id}")).await?;
    if no_wait {
        return done(&answer, as_json, "It is being stopped.");
    }
    let (session, answer) = wait(api, id, as_json, Session::is_over).await?;
    done(&answer, as_json, &format!("`{}` is over.", session.name))
}

/// When a session's walltime is over, or when it was over itself.
fn end_of(session: &Session) -> Option<jiff::Timestamp> {
    if session.is_over() { session.ended_at } else { session.ends_at }
}

fn state_of(session: &Session) -> String {
    if session.undetermined { format!("{} (cluster does not answer)", session.state) } else { session.state.clone() }
}

/// Waits until the session is as wanted, told by the portal's event stream, and gives it with all that the portal says of it. A
/// stream that broke is opened again, and a portal that is away for a while is waited for.
async fn wait(
    api: &Api,
    id: SessionId,
    quiet: bool,
    wanted: impl Fn(&Session) -> bool,
) -> anyhow::Result<(Session, Value)> {
    let bar = output::spinner(quiet);
    let mut patience = Patience::new();
    let mut away = false;
    loop {
        // The stream is opened before the state is read, so that no change falls between the two.
        let stream = api.events(id).await;
        let answer = match api.session_json(id).await {
            Ok(answer) => answer,
            Err(error) => {
                if may_pass(&error) {
                    bar.set_message("the portal does not answer; trying again");
                    if !away && !quiet && bar.is_hidden() {
                        output::say("The portal does not answer; trying again.");
                    }
                    away = true;
                }
                patience.bear(error).await?;
                continue;
            }
        };
        patience.restore();
        away = false;
        let session: Session = serde_json::from_value(answer.clone())?;
        bar.set_message(describe(&session));
        if wanted(&session) {
            bar.finish_and_clear();
            return Ok((session, answer));
        }
        let told = match stream {
            Ok(response) => {
                until_told(response, |session| {
                    bar.set_message(describe(session));
                    wanted(session)
                })
                .await
            }
            Err(_) => false,
        };
        if !told {
            tokio::time::sleep(RECONNECT).await;
        }
    }
}

/// Reads events until one shows a session as wanted; false when they end before.
async fn until_told(response: Response, wanted: impl Fn(&Session) -> bool) -> bool {
    let mut body = response.bytes_stream();
    let mut buffer = Vec::new();
    while let Some(Ok(chunk)) = body.next().await {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            if serde_json::from_slice::<Session>(data.trim_ascii()).is_ok_and(|session| wanted(&session)) {
                return true;
            }
        }
    }
    false
}

fn describe(session: &Session) -> String {
    match &session.reason {
        Some(reason) => output::printable(&format!("{}: {}", state_of(session), reason.text)),
        None => state_of(session),
    }
}
