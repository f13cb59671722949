//! `eirene run`: start, list, show, logs, cancel, requeue.

use eirene_core::SessionId;
use serde_json::{Value, json};

use super::SessionFailed;
use super::efficiency;
use super::jobs::{self, dash, wait};
use super::logs::{Source, logs};
use crate::api::{Api, Job, Noun, Target};
use crate::arguments::{self, StartRun, Watch};
use crate::output;
use crate::reference::Reference;

pub(super) async fn run(api: &Api, verb: arguments::Run, as_json: bool) -> anyhow::Result<()> {
    use arguments::Run as Verb;
    match verb {
        Verb::Start(start) => self::start(api, *start, as_json).await,
        Verb::List { all } => jobs::list(api, Noun::Run, all, false, as_json).await,
        Verb::Show { run } => show(api, find(api, &run).await?, as_json).await,
        Verb::Efficiency { run } => efficiency::of(api, find(api, &run).await?, as_json).await,
        Verb::Logs { run, rank, follow } => {
            let source = Source { of: find(api, &run).await?, rank };
            logs(api, source, follow, as_json).await
        }
        Verb::Cancel { run, no_wait } => jobs::end(api, find(api, &run).await?, no_wait, as_json).await,
        Verb::Requeue { run, idempotency_key, watch } => {
            let path = format!("{}/requeue", find(api, &run).await?.path());
            let answer = jobs::post(api, &path, &Value::Null, idempotency_key.as_deref()).await?;
            stay_with(api, answer, watch, as_json).await
        }
    }
}

async fn find(api: &Api, run: &Reference<SessionId>) -> anyhow::Result<Target> {
    jobs::find(api, Noun::Run, run).await
}

async fn start(api: &Api, start: StartRun, as_json: bool) -> anyhow::Result<()> {
    let name = start.name.map(String::from);
    let mut body = match &start.like {
        Some(session) => {
            let session = jobs::find(api, Noun::Session, session).await?;
            jobs::body_like(session.id, start.size, name)
        }
        None => jobs::body(start.size, name),
    };
    body["file"] = Value::String(start.file);
    body["arguments"] = json!(start.arguments);
    body["preflight"] = json!(!start.no_preflight);
    if let Some(ranks) = start.ranks {
        body["ranks"] = json!(ranks);
    }
    let answer = jobs::post(api, "runs", &body, start.idempotency_key.as_deref()).await?;
    stay_with(api, answer, start.watch, as_json).await
}

/// Stays as long as was asked for with the run that the portal has just made. A run that did not go well is a failure.
async fn stay_with(api: &Api, answer: Value, watch: Watch, as_json: bool) -> anyhow::Result<()> {
    let run: Job = serde_json::from_value(answer.clone())?;
    if !watch.wait && !watch.follow {
        return if as_json { output::json(&answer) } else { output::line(&run.id.to_string()) };
    }
    let target = Target { noun: Noun::Run, id: run.id };
    if watch.follow {
        output::say(&format!("`{}` is run `{}`.", run.name, run.id));
        logs(api, target.into(), true, as_json).await?;
    }
    // A log that is followed ends with its run; asked once more, because only the run says how it went.
    let (run, answer) = wait(api, target, as_json || watch.follow, Job::is_over).await?;
    if as_json {
        output::json_line(&answer)?;
    } else if !watch.follow {
        output::line(&run.id.to_string())?;
    }
    let well = run.went_well();
    let why = run.reason.map_or_else(|| "no reason is known".to_owned(), |reason| reason.text);
    if !well {
        return Err(SessionFailed(format!("run `{}` did not end well: {why}", run.id)).into());
    }
    if !as_json {
        output::say(&format!("`{}` is over: {why}", run.name));
    }
    Ok(())
}

async fn show(api: &Api, target: Target, as_json: bool) -> anyhow::Result<()> {
    let value = api.job_json(target).await?;
    if as_json {
        return output::json(&value);
    }
    let run: Job = serde_json::from_value(value)?;
    let mut rows = vec![
        ("File", run.file.clone().unwrap_or_else(dash)),
        ("Arguments", if run.arguments.is_empty() { dash() } else { json!(run.arguments).to_string() }),
        ("Ranks", run.ranks.map_or_else(dash, |ranks| ranks.to_string())),
        ("Image", run.image.clone()),
        ("Status", run.exit_status.map_or_else(dash, |status| status.to_string())),
    ];
    if let Some(path) = &run.executed_notebook {
        rows.push(("Notebook", path.clone()));
    }
    if let Some(earlier) = &run.requeue_of {
        rows.push(("Repeats", earlier.to_string()));
    }
    jobs::show(&run, &rows)
}
