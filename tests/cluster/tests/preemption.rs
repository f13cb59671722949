//! Nodes that the scheduler takes back for a job with more right to them, on the real cluster: whoever works there is told, before and after. What
//! becomes of a training is in `training.rs`.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, give_back, take_the_nodes};
use eirene_cluster_tests::portal::{NOTICE, Person, START, job_id};
use serde_json::{Value, json};

/// So much memory a node, MB, that two jobs do not have room beside each other.
const MORE_THAN_HALF: u32 = 9000;

fn says(thing: &Value, state: &str, code: &str) -> bool {
    thing["state"] == state && thing["reason"]["code"] == code
}

#[tokio::test]
async fn a_session_that_gives_way_says_so_before_and_after_and_starts_anew() -> anyhow::Result<()> {
    let grace = Person::sign_in("grace").await?;
    grace.stop_all().await?;
    let session = grace.running(&json!({"project": "spare", "memory_mib": MORE_THAN_HALF})).await?;
    let (id, job) = (session["id"].as_str().context("id")?, job_id(&session)?);
    let taker = take_the_nodes("ada", MORE_THAN_HALF).await?;
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
