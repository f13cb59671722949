//! Training that is killed, requeued, moved or out of time, on the real cluster: it goes on from its newest checkpoint, and its loss is that of a
//! training nobody disturbed. One of the disturbances, another for another `EIRENE_TEST_SEED`; all of them with `EIRENE_TEST_DEEP=1`.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, begin_now, exec, give_back, lose_node, step_of, take_the_nodes};
use eirene_cluster_tests::portal::{NOTICE, Person, job_id, node};
use eirene_cluster_tests::training::{Learned, began_at, losses, prepare, requeue, same_curve, stopped_at, train};
use eirene_cluster_tests::{sample, until};
use reqwest::{Method, StatusCode};
use serde_json::json;

/// What happens to a training.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    RankKilled,
    StepCancelled,
    PutBackByOwner,
    NodeLost,
    PutBackByScheduler,
    FirstNodeLost,
    Preempted,
    OutOfTime,
}

const ALL: [Disturbance; 8] = [
    Disturbance::RankKilled,
    Disturbance::StepCancelled,
    Disturbance::PutBackByOwner,
    Disturbance::NodeLost,
    Disturbance::PutBackByScheduler,
    Disturbance::FirstNodeLost,
    Disturbance::Preempted,
    Disturbance::OutOfTime,
];
/// Of which so many at a time: each takes a minute, those that lose a node three.
const SAMPLE: usize = 1;

#[tokio::test]
async fn a_training_that_is_disturbed_ends_up_where_an_undisturbed_one_does() -> anyhow::Result<()> {
    let ada = prepare("ada").await?;
    // Work of the account that gives way is hers, where ada's takes the nodes.
    let grace = prepare("grace").await?;
    let mut undisturbed = Learned::new();
    let id = train(&ada, "undisturbed", json!({})).await?;
    ended(&ada, &id, &mut undisturbed).await?;
    shows_its_speed(&ada, &id).await?;

    for disturbance in sample(&ALL, SAMPLE) {
        let learned = match disturbance {
            Disturbance::RankKilled => rank_killed(&ada).await,
            Disturbance::StepCancelled => step_cancelled(&ada).await,
            Disturbance::PutBackByOwner => put_back_by_owner(&ada).await,
            Disturbance::NodeLost => node_lost(&ada).await,
            Disturbance::PutBackByScheduler => put_back_by_scheduler(&ada).await,
            Disturbance::FirstNodeLost => first_node_lost(&ada).await,
            Disturbance::Preempted => preempted(&grace).await,
            Disturbance::OutOfTime => out_of_time(&grace).await,
        };
        let same = learned.and_then(|learned| same_curve(&undisturbed, &learned));
        same.with_context(|| format!("{disturbance:?}"))?;
    }
    for (node, user) in [("c1", "ada"), ("c2", "ada"), ("c1", "grace"), ("c2", "grace")] {
        until("nothing is left on any node", NOTICE, || async {
            let look = format!("ps -o args= -u {user}; ls -A /tmp/eirene-$(id -u {user}) 2>/dev/null || :");
            Ok(exec(node, "root", &["sh", "-c", &look]).await?.trim().is_empty().then_some(()))
        })
        .await
        .with_context(|| format!("{user} on {node}"))?;
    }
    Ok(())
}

/// Waits for a run's good end; gives its log.
async fn ended(person: &Person, run: &str, learned: &mut Learned) -> anyhow::Result<String> {
    let over = person.over(run).await?;
    let log = losses(person, run, learned).await?;
    ensure!(over["state"] == "ended", "{over} {log}");
    Ok(log)
}

/// How fast it was is in its chart, of which the script says nothing: it makes less than five steps a second, as it rests after each.
async fn shows_its_speed(person: &Person, run: &str) -> anyhow::Result<()> {
    until("its steps a second are in its chart", NOTICE, || async {
        let (status, chart) = person.call(Method::GET, &format!("runs/{run}/samples?points=2000"), None).await?;
        ensure!(status == StatusCode::OK, "{status} {chart}");
        let lines = chart["lines"].as_array().cloned().unwrap_or_default();
        let is_speed = |line: &&serde_json::Value| line["metric"] == "report" && line["device"] == "steps_per_second";
        let Some(speed) = lines.iter().find(is_speed) else { return Ok(None) };
        let most = speed["highest"].as_f64().with_context(|| format!("no highest: {speed}"))?;
        ensure!(most > 0.0 && most <= 5.0, "{speed}");
        Ok(Some(()))
    })
    .await
}

/// A run says which rank was killed, and a new one goes on, on fewer ranks.
async fn rank_killed(ada: &Person) -> anyhow::Result<Learned> {
    let mut learned = BTreeMap::new();
    let id = train(ada, "killed", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    exec("c2", "root", &["pkill", "-KILL", "-n", "-u", "ada", "-f", "learn.py"]).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    losses(ada, &id, &mut learned).await?;
    let log = ada.run_log(&id, "").await?;
    ensure!(log.contains("on c2 was killed by signal SIGKILL"), "{log}");
    let id = train(ada, "killed", json!({"nodes": 1, "ranks": 2})).await?;
    let log = ended(ada, &id, &mut learned).await?;
    ensure!(log.contains("from 10 on 2 ranks"), "{log}");
    Ok(learned)
}

/// Somebody cancels the ranks' step in SLURM: the run says so, and a new one goes on.
async fn step_cancelled(ada: &Person) -> anyhow::Result<Learned> {
    let mut learned = BTreeMap::new();
    let id = train(ada, "cancelled", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let step = step_of(&job_id(&ada.run(&id).await?)?, 4).await?;
    exec("head", "ada", &["scancel", &step]).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    losses(ada, &id, &mut learned).await?;
    let log = ada.run_log(&id, "").await?;
    // Whether a rank can still say how it ended, before SLURM kills who would say it, is a matter of moments.
    let says_why = ["was killed by signal SIGKILL", "the run failed: the step was cancelled in SLURM"];
    ensure!(says_why.iter().any(|why| log.contains(why)), "{log}");
    let id = requeue(ada, &id).await?;
    let log = ended(ada, &id, &mut learned).await?;
    ensure!(began_at(&log)? >= 10, "{log}");
    Ok(learned)
}

/// Ranks save when they are told to end, not only when the next checkpoint is due.
async fn put_back_by_owner(ada: &Person) -> anyhow::Result<Learned> {
    let mut learned = BTreeMap::new();
    let id = train(ada, "stopped", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let next = requeue(ada, &id).await?;
    ada.over(&id).await?;
    losses(ada, &id, &mut learned).await?;
    let log = ended(ada, &next, &mut learned).await?;
    ensure!(began_at(&log)? >= 12, "{log}");
    Ok(learned)
}

/// The scheduler takes the nodes away and gives them back: the same run goes on.
async fn put_back_by_scheduler(ada: &Person) -> anyhow::Result<Learned> {
    let mut learned = BTreeMap::new();
    let id = train(ada, "requeued", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let job = job_id(&ada.run(&id).await?)?;
    exec("head", "root", &["scontrol", "requeue", &job]).await?;
    losses(ada, &id, &mut learned).await?;
    begin_now(&job).await?;
    let log = ended(ada, &id, &mut learned).await?;
    assert_eq!(ada.run(&id).await?["restart_count"], 1, "{log}");
    // What was due counts, not what ranks would save when told to end: SIGTERM comes to all processes of the job alike, and `srun`, which gets it
    // too, has the ranks killed at once. Only SIGUSR1 gives them time, before a preemption and the time limit.
    ensure!(began_at(&log)? >= 10, "{log}");
    // Ranks of both nodes know it: by that a Checkpointer tells what its own job has left from what another one may still write.
    for rank in [0, 3] {
        let log = ada.run_log(&id, &format!("?rank={rank}")).await?;
        let restarts: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("restarts ")).collect();
        assert_eq!(restarts, ["0", "1"], "rank {rank}: {log}");
    }
    Ok(learned)
}

/// A node is lost with its ranks: the others notice at once, and SLURM a minute later. A new run goes on when the node is back.
async fn node_lost(ada: &Person) -> anyhow::Result<Learned> {
    let id = train(ada, "lost", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let restored = lose_node("c2", &job_id(&ada.run(&id).await?)?).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    goes_on(ada, &id, restored).await
}

/// The node is lost that agent and rank 0 are on: the portal ends what SLURM would let go on without them, and says why.
async fn first_node_lost(ada: &Person) -> anyhow::Result<Learned> {
    let id = train(ada, "headless", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let run = ada.run(&id).await?;
    let restored = lose_node(&node(&run)?, &job_id(&run)?).await?;
    let run = ada.over(&id).await?;
    assert_eq!((&run["state"], &run["reason"]["code"]), (&json!("failed"), &json!("node_failed")), "{run}");
    goes_on(ada, &id, restored).await
}

/// With its node back, a run that lost it is started again.
async fn goes_on(ada: &Person, lost: &str, node: Restore) -> anyhow::Result<Learned> {
    let mut learned = BTreeMap::new();
    losses(ada, lost, &mut learned).await?;
    drop(node);
    let id = requeue(ada, lost).await?;
    let log = ended(ada, &id, &mut learned).await?;
    ensure!(began_at(&log)? >= 10, "{log}");
    Ok(learned)
}

/// A job with more right to the nodes takes them: ranks save within the grace, and the same run goes on when there is room.
async fn preempted(grace: &Person) -> anyhow::Result<Learned> {
    let mut learned = BTreeMap::new();
    let changes = json!({"project": "spare", "memory_mib": 9000, "arguments": ["preempted", "1"]});
    let id = train(grace, "preempted", changes).await?;
    grace.logged(&id, "step 12 ").await?;
    let job = job_id(&grace.run(&id).await?)?;
    let taker = take_the_nodes("ada", 9000).await?;
    let _restore = Restore::with(&[&["exec", "head", "scancel", &taker]]);
    let reason = |run: &serde_json::Value| (run["state"].clone(), run["reason"]["code"].clone());
    let gives_way = |run: &serde_json::Value| reason(run) == (json!("running"), json!("giving_way"));
    grace.wait_run(&id, "it is about to give way", gives_way).await?;
    let waits = |run: &serde_json::Value| reason(run) == (json!("queued"), json!("preempted"));
    let run = grace.wait_run(&id, "it waits again", waits).await?;
    assert_eq!(run["restart_count"], 1, "{run}");
    let stopped = stopped_at(&losses(grace, &id, &mut learned).await?)?;
    give_back(&taker, &job).await?;
    // How often it was restarted says nothing any more: SLURM 24.11 puts a job that has used up its grace back once more when it is done.
    let log = ended(grace, &id, &mut learned).await?;
    ensure!(stopped >= 12 && began_at(&log)? == stopped, "stopped after {stopped}: {log}");
    Ok(learned)
}

/// Ranks are warned and save; each next run goes on from there, until one has enough of the minute that each gets.
async fn out_of_time(grace: &Person) -> anyhow::Result<Learned> {
    const MOST: u32 = 6;
    let mut learned = BTreeMap::new();
    let mut id = train(grace, "too-long", json!({"walltime_min": 1, "arguments": ["too-long", "1"]})).await?;
    let (mut from, mut runs) = (0, 0);
    loop {
        let run = grace.over(&id).await?;
        let log = losses(grace, &id, &mut learned).await?;
        assert_eq!(began_at(&log)?, from, "{log}");
        runs += 1;
        if run["state"] == "ended" {
            ensure!(runs > 1, "the time was enough: {log}");
            return Ok(learned);
        }
        assert_eq!((&run["state"], &run["reason"]["code"]), (&json!("failed"), &json!("time_too_short")), "{run}");
        from = stopped_at(&log)?;
        ensure!(runs < MOST && from > 0, "{run} {log}");
        id = requeue(grace, &id).await?;
    }
}
