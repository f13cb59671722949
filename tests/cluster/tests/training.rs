//! Training that is killed, preempted and moved, on the real cluster: it goes on from its newest checkpoint, and its loss is that of a training
//! nobody disturbed.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, begin_now, exec, exec_with_input};
use eirene_cluster_tests::portal::{NOTICE, Person, job_id};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Learns a curve under FSDP2. Every step's batch is the same on any number of ranks, so that the loss of two trainings can be compared.
const SCRIPT: &str = r#"
import sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from eirene_train.checkpoint import Checkpointer, Training

dist.init_process_group("eirene")
torch.set_num_threads(1)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
state = {"training": Training(model, optimizer)}
with Checkpointer(sys.argv[1], every=5) as checkpointer:
    done = checkpointer.load_latest(state) or 0
    if rank == 0:
        print(f"from {done} on {ranks} ranks", flush=True)
    while done < 60:
        torch.manual_seed(done)
        places = (torch.rand(64, 1) * 6)[rank::ranks]
        optimizer.zero_grad()
        loss = (model(places) - places.sin()).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        done += 1
        if rank == 0:
            print(f"step {done} loss {mean.item() / ranks:.6f}", flush=True)
        time.sleep(0.2)
        if checkpointer.should_stop():
            checkpointer.save(done, state, wait=True)
            sys.exit(75)
        if checkpointer.due(done) or done == 60:
            checkpointer.save(done, state)
dist.destroy_process_group()
"#;

/// A run of the training on both nodes, with its checkpoints in a directory of this name.
async fn train(ada: &Person, directory: &str, changes: Value) -> anyhow::Result<String> {
    let mut wanted =
        json!({"image": "pytorch", "nodes": 2, "cpus": 2, "memory_mib": 2000, "ranks": 4, "arguments": [directory]});
    for (name, value) in changes.as_object().into_iter().flatten() {
        wanted[name] = value.clone();
    }
    ada.start_run("tests/learn.py", &wanted).await
}

async fn prepare() -> anyhow::Result<Person> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let fresh = "mkdir -p /home/ada/tests && cd /home/ada/tests && rm -rf undisturbed killed stopped requeued lost && cat > learn.py";
    exec_with_input("c1", "ada", &["sh", "-c", fresh], SCRIPT).await?;
    Ok(ada)
}

/// The loss after each step, as the log of a run tells it; what was learned twice has to be the same.
async fn losses(ada: &Person, run: &str, into: &mut BTreeMap<u32, f64>) -> anyhow::Result<String> {
    let log = ada.run_log(run, "?rank=0").await?;
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["step", step, "loss", loss] = words[..] else { continue };
        let (step, loss): (u32, f64) = (step.parse()?, loss.parse()?);
        let before = into.insert(step, loss).unwrap_or(loss);
        ensure!((before - loss).abs() < 1e-3, "step {step}: {before} and {loss}");
    }
    Ok(log)
}

/// The step from which a run went on the last time it began.
fn began_at(log: &str) -> anyhow::Result<u32> {
    let line = log.lines().filter_map(|line| line.strip_prefix("from ")).next_back();
    let step = line.and_then(|line| line.split(' ').next()).with_context(|| log.to_owned())?;
    Ok(step.parse()?)
}

fn same_curve(one: &BTreeMap<u32, f64>, other: &BTreeMap<u32, f64>) -> anyhow::Result<()> {
    ensure!(one.len() == 60 && other.len() == 60, "{} and {} steps", one.len(), other.len());
    for (step, loss) in one {
        ensure!((loss - other[step]).abs() < 1e-3, "step {step}: {loss} and {}", other[step]);
    }
    ensure!(one[&60] < 0.5 * one[&1], "nothing was learned: {} to {}", one[&1], one[&60]);
    Ok(())
}

async fn requeue(ada: &Person, run: &str) -> anyhow::Result<String> {
    let (status, next) = ada.call(Method::POST, &format!("runs/{run}/requeue"), None).await?;
    ensure!(status == StatusCode::CREATED, "{status} {next}");
    next["id"].as_str().map(ToOwned::to_owned).context("an id")
}

#[tokio::test]
async fn a_training_whose_rank_node_or_step_is_lost_ends_up_where_an_undisturbed_one_does() -> anyhow::Result<()> {
    let ada = prepare().await?;
    let mut undisturbed = BTreeMap::new();
    let id = train(&ada, "undisturbed", json!({})).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut undisturbed).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");

    // A rank is killed: the run says which one, and a new one goes on, on fewer ranks.
    let mut killed = BTreeMap::new();
    let id = train(&ada, "killed", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    exec("c2", "root", &["pkill", "-KILL", "-n", "-u", "ada", "-f", "learn.py"]).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    losses(&ada, &id, &mut killed).await?;
    let log = ada.run_log(&id, "").await?;
    // SLURM may end the task of a rank that was killed before its last line comes; the others have noticed too.
    ensure!(log.contains("on c2 was killed by signal SIGKILL") || log.contains("PeerDied: rank "), "{log}");
    let id = train(&ada, "killed", json!({"nodes": 1, "ranks": 2})).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut killed).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    ensure!(log.contains("from 10 on 2 ranks"), "{log}");
    same_curve(&undisturbed, &killed)?;

    // It is put into the queue by its owner: its ranks save when they are told to end, not only when the next checkpoint is due.
    let mut stopped = BTreeMap::new();
    let id = train(&ada, "stopped", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let next = requeue(&ada, &id).await?;
    ada.over(&id).await?;
    losses(&ada, &id, &mut stopped).await?;
    let run = ada.over(&next).await?;
    let log = losses(&ada, &next, &mut stopped).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    ensure!(began_at(&log)? >= 12, "{log}");
    same_curve(&undisturbed, &stopped)?;

    // The scheduler takes the nodes away and gives them back: the same run goes on.
    let mut requeued = BTreeMap::new();
    let id = train(&ada, "requeued", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let job = job_id(&ada.run(&id).await?)?;
    exec("head", "root", &["scontrol", "requeue", &job]).await?;
    losses(&ada, &id, &mut requeued).await?;
    begin_now(&job).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut requeued).await?;
    assert_eq!((&run["state"], &run["restart_count"]), (&json!("ended"), &json!(1)), "{run} {log}");
    ensure!(began_at(&log)? >= 10, "{log}");
    same_curve(&undisturbed, &requeued)?;

    // A node fails: the run ends and says so, and is started again when the node is back.
    let mut lost = BTreeMap::new();
    let id = train(&ada, "lost", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let restored = Restore::with(&[&["exec", "head", "scontrol", "update", "nodename=c2", "state=resume"]]);
    exec("head", "root", &["scontrol", "update", "nodename=c2", "state=down", "reason=test"]).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    losses(&ada, &id, &mut lost).await?;
    drop(restored);
    let id = requeue(&ada, &id).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut lost).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    ensure!(began_at(&log)? >= 10, "{log}");
    same_curve(&undisturbed, &lost)?;

    for node in ["c1", "c2"] {
        until("nothing is left on any node", NOTICE, || async {
            let left = exec(node, "root", &["sh", "-c", "ps -o args= -u ada; ls -A /tmp/eirene-2001 2>/dev/null || :"])
                .await?;
            Ok(left.trim().is_empty().then_some(()))
        })
        .await
        .with_context(|| format!("on {node}"))?;
    }
    Ok(())
}
