//! What the scheduler takes back on the real cluster: nodes for a job with more right to them, and a job's time. Whoever works there is told, ranks
//! save before it happens, and a training goes on as if nobody had disturbed it.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, begin_now, exec};
use eirene_cluster_tests::portal::{NOTICE, Person, START, job_id};
use eirene_cluster_tests::training::{began_at, losses, prepare, requeue, same_curve, stopped_at, train};
use eirene_cluster_tests::until;
use serde_json::{Value, json};

/// So much memory a node, MB, that two jobs do not have room beside each other.
const MORE_THAN_HALF: u32 = 9000;

/// A job of ada's in the ordinary QOS that does not fit beside the one that is there.
async fn take_the_nodes() -> anyhow::Result<String> {
    let memory = format!("--mem={MORE_THAN_HALF}M");
    let job = ["sbatch", "--parsable", "--account=research", "--nodes=2", "--ntasks-per-node=1", &memory, "--time=5"];
    let rest = ["--chdir=/home/ada", "--output=/dev/null", "--wrap=sleep 240"];
    Ok(exec("head", "ada", &[&job[..], &rest[..]].concat()).await?.trim().to_owned())
}

/// Ends the job that took the nodes, and lets the one that gave way begin again.
async fn give_back(taker: &str, job: &str) -> anyhow::Result<()> {
    until("the nodes were taken", NOTICE, || async {
        let state = exec("head", "root", &["squeue", "--noheader", "--format=%T", &format!("--jobs={taker}")]).await?;
        Ok((state.trim() == "RUNNING").then_some(()))
    })
    .await?;
    exec("head", "root", &["scancel", taker]).await?;
    begin_now(job).await
}

fn says(thing: &Value, state: &str, code: &str) -> bool {
    thing["state"] == state && thing["reason"]["code"] == code
}

/// What the training learns if nobody disturbs it.
async fn undisturbed(person: &Person) -> anyhow::Result<BTreeMap<u32, f64>> {
    let mut learned = BTreeMap::new();
    let id = train(person, "calm", json!({})).await?;
    let run = person.over(&id).await?;
    let log = losses(person, &id, &mut learned).await?;
    ensure!(run["state"] == "ended", "{run} {log}");
    Ok(learned)
}

#[tokio::test]
async fn a_training_goes_on_after_a_preemption_as_if_undisturbed() -> anyhow::Result<()> {
    let grace = prepare("grace", "calm preempted").await?;
    let undisturbed = undisturbed(&grace).await?;
    let mut preempted = BTreeMap::new();
    let changes = json!({"project": "spare", "memory_mib": MORE_THAN_HALF, "arguments": ["preempted", "1"]});
    let id = train(&grace, "preempted", changes).await?;
    grace.logged(&id, "step 12 ").await?;
    let job = job_id(&grace.run(&id).await?)?;
    let taker = take_the_nodes().await?;
    let _restore = Restore::with(&[&["exec", "head", "scancel", &taker]]);
    grace.wait_run(&id, "it is about to give way", |run| says(run, "running", "giving_way")).await?;
    let run = grace.wait_run(&id, "it waits again", |run| says(run, "queued", "preempted")).await?;
    assert_eq!(run["restart_count"], 1, "{run}");
    let stopped = stopped_at(&losses(&grace, &id, &mut preempted).await?)?;
    give_back(&taker, &job).await?;
    let run = grace.over(&id).await?;
    let log = losses(&grace, &id, &mut preempted).await?;
    // How often it was restarted says nothing any more: SLURM 24.11 puts a job that has used up its grace back once more when it is done.
    ensure!(says(&run, "ended", "program_ended"), "{run} {log}");
    ensure!(stopped >= 12 && began_at(&log)? == stopped, "stopped after {stopped}: {log}");
    same_curve(&undisturbed, &preempted)
}

#[tokio::test]
async fn a_training_whose_time_is_over_says_so_and_goes_on_in_the_next_run_as_if_undisturbed() -> anyhow::Result<()> {
    let grace = prepare("grace", "calm too-long").await?;
    let undisturbed = undisturbed(&grace).await?;
    let mut too_long = BTreeMap::new();
    let id = train(&grace, "too-long", json!({"walltime_min": 1, "arguments": ["too-long", "1"]})).await?;
    let run = grace.over(&id).await?;
    let stopped = stopped_at(&losses(&grace, &id, &mut too_long).await?)?;
    ensure!(says(&run, "failed", "time_too_short"), "{run}");
    let id = requeue(&grace, &id).await?;
    let run = grace.over(&id).await?;
    let log = losses(&grace, &id, &mut too_long).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    assert_eq!(began_at(&log)?, stopped, "{log}");
    same_curve(&undisturbed, &too_long)
}

#[tokio::test]
async fn a_session_that_gives_way_says_so_before_and_after_and_starts_anew() -> anyhow::Result<()> {
    let grace = Person::sign_in("grace").await?;
    grace.stop_all().await?;
    let session = grace.running(&json!({"project": "spare", "memory_mib": MORE_THAN_HALF})).await?;
    let (id, job) = (session["id"].as_str().context("id")?, job_id(&session)?);
    let taker = take_the_nodes().await?;
    let _restore = Restore::with(&[&["exec", "head", "scancel", &taker]]);
    let warned = grace.wait(id, "it is about to give way", NOTICE, |s| says(s, "running", "giving_way")).await?;
    ensure!(warned["reason"]["text"].as_str().is_some_and(|text| text.contains("Save your work now")), "{warned}");
    let waits = grace.wait(id, "it waits again", NOTICE, |s| says(s, "queued", "preempted")).await?;
    ensure!(waits["reason"]["text"].as_str().is_some_and(|text| text.contains("starts anew")), "{waits}");
    give_back(&taker, &job).await?;
    let back = grace.wait_state(id, "running", START).await?;
    assert_eq!((&back["restart_count"], &back["reason"]), (&json!(1), &Value::Null), "{back}");
    grace.stop(id).await?;
    Ok(())
}
