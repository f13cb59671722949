//! What commands about sessions and commands about runs have in common: which one is meant, what is asked for, lists, waiting.

use std::time::Duration;

use eirene_core::SessionId;
use futures_util::StreamExt as _;
use reqwest::Response;
use serde_json::{Value, json};

use super::done;
use crate::api::{Api, Job, KeptOn, NodeDetail, Noun, ScratchState, Step, Target, may_pass};
use crate::arguments::Size;
use crate::patience::Patience;
use crate::reference::{Candidate, Reference, choose, named, only};
use crate::{output, times};

/// Pause before an event stream that has ended is opened again.
const RECONNECT: Duration = Duration::from_millis(500);

/// The one that is meant. A name is first sought among those that are not over: names are given again.
pub(super) async fn find(api: &Api, noun: Noun, what: &Reference<SessionId>) -> anyhow::Result<Target> {
    let text = match what {
        Reference::Id(id) => return Ok(Target { noun, id: *id }),
        Reference::Text(text) => text,
    };
    let (word, path) = (noun.word(), noun.path());
    let live = candidates(api, &format!("{path}?live=true&limit=200")).await?;
    let of_that_name = named(text, &live);
    let id = if of_that_name.is_empty() {
        choose(word, text, &candidates(api, &format!("{path}?limit=200")).await?)?
    } else {
        only(word, text, &of_that_name)?
    };
    Ok(Target { noun, id })
}

async fn candidates(api: &Api, path: &str) -> anyhow::Result<Vec<Candidate<SessionId>>> {
    let mut candidates = Vec::new();
    for item in api.list(path).await? {
        let job: Job = serde_json::from_value(item)?;
        let remark = format!("{}, asked for {}", job.state, times::local(job.created_at));
        candidates.push(Candidate { id: job.id, name: job.name, remark });
    }
    Ok(candidates)
}

/// What a start asks the portal for, beside what is its kind's own.
pub(super) fn body(size: Size, name: Option<String>) -> Value {
    let usual = json!({"image": "jupyter", "nodes": 1, "cpus": 2, "memory_mib": 2048, "gpus": 0, "walltime_min": 60});
    with_given(usual, size, name)
}

/// The same where `session` says what was not given.
pub(super) fn body_like(session: SessionId, size: Size, name: Option<String>) -> Value {
    with_given(json!({"like": session}), size, name)
}

fn with_given(mut body: Value, size: Size, name: Option<String>) -> Value {
    let (gpus, gpu_type) = size.gpus.map(|gpus| (gpus.count, gpus.gpu_type)).unzip();
    let given = [
        ("name", name.map(Value::String)),
        ("image", size.image.map(|image| json!(image))),
        ("project", size.project.map(|project| json!(project))),
        ("partition", size.partition.map(|partition| json!(partition))),
        ("nodes", size.nodes.map(|nodes| json!(nodes))),
        ("cpus", size.cpus.map(|cpus| json!(cpus))),
        ("memory_mib", size.memory.map(|memory| json!(memory))),
        ("gpus", gpus.map(|gpus| json!(gpus))),
        ("gpu_type", gpu_type.flatten().map(|gpu_type| json!(gpu_type))),
        ("walltime_min", size.walltime.map(|walltime| json!(walltime))),
        ("scratch", size.scratch.asked().map(|scratch| json!(scratch))),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            body[key] = value;
        }
    }
    body
}

/// Without a key of the caller's, each command is a start of its own; an answer that was lost is not asked for again.
pub(super) async fn post(api: &Api, path: &str, body: &Value, key: Option<&str>) -> anyhow::Result<Value> {
    match key {
        Some(key) => api.post_once(path, body, key).await,
        None => api.post(path, body).await,
    }
}

pub(super) async fn list(api: &Api, noun: Noun, all: bool, everybody: bool, as_json: bool) -> anyhow::Result<()> {
    let query = match (everybody, all) {
        (false, false) => "?live=true",
        (false, true) => "",
        (true, false) => "?all=true&live=true",
        (true, true) => "?all=true",
    };
    let items = api.list(&format!("{}{query}", noun.path())).await?;
    if as_json {
        return output::json(&Value::Array(items));
    }
    let now = times::now();
    let mut rows = Vec::new();
    for item in items {
        let job: Job = serde_json::from_value(item)?;
        let mut row = vec![job.id.to_string(), job.name.clone()];
        if everybody {
            row.push(job.owner.clone());
        }
        row.push(state_of(&job));
        row.push(match noun {
            Noun::Session => job.image.clone(),
            Noun::Run => job.ranks.map_or_else(|| "–".to_owned(), |ranks| ranks.to_string()),
        });
        row.extend([
            job.nodes.join(","),
            end_of(&job).map_or_else(|| "–".to_owned(), |at| times::relative(at, now)),
            job.reason.as_ref().map_or_else(String::new, |reason| reason.text.clone()),
        ]);
        rows.push(row);
    }
    let (first, own, empty) = match noun {
        Noun::Session => ("SESSION", "IMAGE", "No sessions. Start one with `eirene session start`."),
        Noun::Run => ("RUN", "RANKS", "No runs. Start one with `eirene run start`."),
    };
    let mut header = vec![first, "NAME"];
    if everybody {
        header.push("OWNER");
    }
    header.extend(["STATE", own, "NODES", "ENDS", "REASON"]);
    output::table(&header, rows, empty)
}

/// What `show` prints of a session or a run, with the rows of its kind in the middle.
pub(super) fn show(job: &Job, own: &[(&str, String)]) -> anyhow::Result<()> {
    let now = times::now();
    let first = [
        ("Name", job.name.clone()),
        ("Owner", job.owner.clone()),
        ("State", state_of(job)),
        ("Reason", job.reason.clone().map_or_else(dash, |reason| reason.text)),
    ];
    let last = [
        ("Nodes", if job.nodes.is_empty() { dash() } else { job.nodes.join(", ") }),
        ("SLURM job", job.slurm_job_id.map_or_else(dash, |id| id.to_string())),
        ("Asked for", times::in_full(job.created_at, now)),
        (if job.is_over() { "Ended" } else { "Ends" }, end_of(job).map_or_else(dash, |at| times::in_full(at, now))),
    ];
    let label = if job.file.is_some() { "Run" } else { "Session" };
    let id = [(label, job.id.to_string())];
    let scratch: Vec<_> = job.scratch_state.iter().map(|state| ("Scratch", describe_scratch(state))).collect();
    for (label, value) in id.iter().chain(&first).chain(own).chain(&scratch).chain(&last) {
        output::line(&format!("{label:<10} {value}"))?;
    }
    let program = job.app.as_ref().or(job.file.as_ref()).map_or("", String::as_str);
    for node in &job.node_details {
        output::line(&output::printable(&format!("  {}", describe_node(node, program))))?;
    }
    Ok(())
}

/// A node, how it is, and what runs there, in one line.
fn describe_node(node: &NodeDetail, program: &str) -> String {
    let state = node.state.as_deref().unwrap_or("not known");
    let why = node.text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
    let step = |step: &Step| {
        let ranks = if step.ranks == 1 { "rank" } else { "ranks" };
        format!("step {}: {} ({} {ranks} in all)", step.number, step.command, step.ranks)
    };
    let runs: Vec<String> =
        node.app.then(|| program.to_owned()).into_iter().chain(node.steps.iter().map(step)).collect();
    let runs = if runs.is_empty() { "nothing runs".to_owned() } else { runs.join("; ") };
    format!("{}: {state}{why}: {runs}", node.name)
}

/// How a scratch is, in one line.
fn describe_scratch(scratch: &ScratchState) -> String {
    let copied = scratch.copied.map(|copied| {
        let of = copied.total_bytes.map(|total| format!(" of {}", output::bytes(total))).unwrap_or_default();
        format!(", {}{of} copied", output::bytes(copied.bytes))
    });
    let kept = |kept: &KeptOn| {
        let why = kept.text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        format!("{}{why}", kept.node)
    };
    let kept: Vec<String> = scratch.kept_on.iter().map(kept).collect();
    let on = if kept.is_empty() { String::new() } else { format!(" on {}", kept.join(", ")) };
    format!("{}{}{on}", scratch.state, copied.unwrap_or_default())
}

/// What stands where there is nothing.
pub(super) fn dash() -> String {
    "–".to_owned()
}

/// Asks it to end, and waits until it has.
pub(super) async fn end(api: &Api, of: Target, no_wait: bool, as_json: bool) -> anyhow::Result<()> {
    let answer = api.delete(&of.path()).await?;
    if no_wait {
        let sentence = match of.noun {
            Noun::Session => "It is being stopped.",
            Noun::Run => "It is being cancelled.",
        };
        return done(&answer, as_json, sentence);
    }
    let (job, answer) = wait(api, of, as_json, Job::is_over).await?;
    done(&answer, as_json, &format!("`{}` is over.", job.name))
}

/// When a job's walltime is over, or when it was over itself.
fn end_of(job: &Job) -> Option<jiff::Timestamp> {
    if job.is_over() { job.ended_at } else { job.ends_at }
}

fn state_of(job: &Job) -> String {
    if job.undetermined { format!("{} (cluster does not answer)", job.state) } else { job.state.clone() }
}

/// Waits until it is as wanted, told by the portal's event stream, and gives it with all that the portal says of it. A
/// stream that broke is opened again, and a portal that is away for a while is waited for.
pub(super) async fn wait(
    api: &Api,
    of: Target,
    quiet: bool,
    wanted: impl Fn(&Job) -> bool,
) -> anyhow::Result<(Job, Value)> {
    let bar = output::spinner(quiet);
    let mut patience = Patience::new();
    let mut away = false;
    loop {
        // The stream is opened before the state is read, so that no change falls between the two.
        let stream = api.events(of).await;
        let answer = match api.job_json(of).await {
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
        let job: Job = serde_json::from_value(answer.clone())?;
        bar.set_message(describe(&job));
        if wanted(&job) {
            bar.finish_and_clear();
            return Ok((job, answer));
        }
        let told = match stream {
            Ok(response) => {
                until_told(response, |job| {
                    bar.set_message(describe(job));
                    wanted(job)
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

/// Reads events until one shows it as wanted; false when they end before.
async fn until_told(response: Response, wanted: impl Fn(&Job) -> bool) -> bool {
    let mut body = response.bytes_stream();
    let mut buffer = Vec::new();
    while let Some(Ok(chunk)) = body.next().await {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            if serde_json::from_slice::<Job>(data.trim_ascii()).is_ok_and(|job| wanted(&job)) {
                return true;
            }
        }
    }
    false
}

fn describe(job: &Job) -> String {
    // What takes long is what is said.
    let copies = |state: &&ScratchState| state.copied.is_some() && !job.is_over();
    if let Some(scratch) = job.scratch_state.as_ref().filter(copies) {
        return output::printable(&format!("{}: scratch {}", state_of(job), describe_scratch(scratch)));
    }
    match &job.reason {
        Some(reason) => output::printable(&format!("{}: {}", state_of(job), reason.text)),
        None => state_of(job),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_is_described_by_what_is_known_of_it() {
        let said = |text: &str| describe_scratch(&serde_json::from_str(text).unwrap());
        assert_eq!(said(r#"{"state":"ready"}"#), "ready");
        let copied =
            r#"{"state":"filling","copied":{"bytes":3221225472,"files":7,"total_bytes":12884901888,"total_files":9}}"#;
        assert_eq!(said(copied), "filling, 3.00 GiB of 12.00 GiB copied");
        assert_eq!(said(r#"{"state":"emptying","copied":{"bytes":1,"files":1}}"#), "emptying, 1 B copied");
        let kept = r#"{"state":"kept","kept_on":[{"node":"c1","text":"no room"},{"node":"c2"}]}"#;
        assert_eq!(said(kept), "kept on c1 (no room), c2");
    }
}
