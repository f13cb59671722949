//! A training on the cluster that may be disturbed, and what is compared afterwards: the loss after every step.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::demo::exec_with_input;
use crate::portal::Person;

/// Learns a curve under FSDP2. Every step's batch is the same on any number of ranks, so that the loss of two trainings can be compared. Its second
/// argument, if any, is the pause after a step of a training that begins from nothing, seconds: what is to be disturbed must not be over before.
pub const SCRIPT: &str = r#"
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from eirene_train.checkpoint import Checkpointer, Training

dist.init_process_group("eirene")
torch.set_num_threads(1)
rank, ranks = dist.get_rank(), dist.get_world_size()
print(f"restarts {os.environ.get('SLURM_RESTART_COUNT', 0)}", flush=True)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
state = {"training": Training(model, optimizer)}
with Checkpointer(sys.argv[1], every=5) as checkpointer:
    done = checkpointer.load_latest(state) or 0
    pause = float(sys.argv[2]) if done == 0 and len(sys.argv) > 2 else 0.2
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
        time.sleep(pause)
        if checkpointer.should_stop():
            checkpointer.save(done, state, wait=True)
            if rank == 0:
                print(f"told to stop after {done}", flush=True)
            sys.exit(75)
        if checkpointer.due(done) or done == 60:
            checkpointer.save(done, state)
dist.destroy_process_group()
"#;

/// The loss after each step.
pub type Learned = BTreeMap<u32, f64>;

/// A run of the training on both nodes, with its checkpoints in a directory of this name.
pub async fn train(person: &Person, directory: &str, changes: Value) -> anyhow::Result<String> {
    let mut wanted =
        json!({"image": "pytorch", "nodes": 2, "cpus": 2, "memory_mib": 2000, "ranks": 4, "arguments": [directory]});
    for (name, value) in changes.as_object().into_iter().flatten() {
        wanted[name] = value.clone();
    }
    person.start_run("tests/learn.py", &wanted).await
}

/// This person with nothing running, the script, and no checkpoints.
pub async fn prepare(username: &str) -> anyhow::Result<Person> {
    let person = Person::sign_in(username).await?;
    person.stop_all().await?;
    let tests = format!("/home/{username}/tests");
    let fresh = format!("rm -rf {tests} && mkdir {tests} && cd {tests} && cat > learn.py");
    exec_with_input("c1", username, &["sh", "-c", &fresh], SCRIPT).await?;
    Ok(person)
}

/// The loss after each step, as the log of a run tells it; what was learned twice has to be the same.
pub async fn losses(person: &Person, run: &str, into: &mut Learned) -> anyhow::Result<String> {
    let log = person.run_log(run, "?rank=0").await?;
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
pub fn began_at(log: &str) -> anyhow::Result<u32> {
    last_step(log, "from ")
}

/// The step after which a run was told to stop, and saved.
pub fn stopped_at(log: &str) -> anyhow::Result<u32> {
    last_step(log, "told to stop after ")
}

fn last_step(log: &str, before: &str) -> anyhow::Result<u32> {
    let line = log.lines().filter_map(|line| line.strip_prefix(before)).next_back();
    let step = line.and_then(|line| line.split(' ').next()).with_context(|| log.to_owned())?;
    Ok(step.parse()?)
}

/// Whether two trainings learned the same, and anything.
pub fn same_curve(one: &Learned, other: &Learned) -> anyhow::Result<()> {
    ensure!(one.len() == 60 && other.len() == 60, "{} and {} steps", one.len(), other.len());
    for (step, loss) in one {
        ensure!((loss - other[step]).abs() < 1e-3, "step {step}: {loss} and {}", other[step]);
    }
    ensure!(one[&60] < 0.5 * one[&1], "nothing was learned: {} to {}", one[&1], one[&60]);
    Ok(())
}

/// Puts a run into the queue again; gives the new one.
pub async fn requeue(person: &Person, run: &str) -> anyhow::Result<String> {
    let (status, next) = person.call(Method::POST, &format!("runs/{run}/requeue"), None).await?;
    ensure!(status == StatusCode::CREATED, "{status} {next}");
    next["id"].as_str().map(ToOwned::to_owned).context("an id")
}
