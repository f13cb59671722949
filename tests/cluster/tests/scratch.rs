//! Fast scratch on the real cluster: filled and emptied on two nodes, and brought back after a kill of everything that looked after it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::exec;
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, START};
use reqwest::{Method, StatusCode};
use serde_json::json;

const NODES: [&str; 2] = ["c1", "c2"];
/// Where the demo's nodes have scratch for who runs this; there is something behind it where another person has that name.
const OWN: &str = "/var/tmp/eirene-scratch-$(id -u)*";

async fn sh(node: &str, script: &str) -> anyhow::Result<String> {
    exec(node, "ada", &["sh", "-c", script]).await
}

/// A running session on both nodes, with what its home's `scratch-test/in` has in its scratch, and results in it on both.
async fn worked(ada: &Person) -> anyhow::Result<String> {
    sh("c1", "rm -rf ~/scratch-test && mkdir -p ~/scratch-test/in && echo alpha >~/scratch-test/in/a").await?;
    let scratch = json!({
        "kind": "node",
        "stage_in": [{"from": "home:scratch-test/in", "to": "in"}],
        "stage_out": [{"from": "results", "to": "home:scratch-test/out", "on": "always"}],
    });
    let session = ada.running(&json!({"nodes": 2, "cpus": 2, "memory_mib": 1000, "scratch": scratch})).await?;
    let id = session["id"].as_str().context("id")?.to_owned();
    for node in NODES {
        assert_eq!(sh(node, &format!("cat {OWN}/{id}.*/data/in/a")).await?, "alpha\n", "{node}");
    }
    let kernel = Kernel::start(ada, &session).await?;
    let cell = "import os\nos.makedirs('/local/results')\n\
                with open('/local/results/here', 'w') as file: file.write(open('/local/in/a').read() + os.environ['EIRENE_SCRATCH'])";
    kernel.run(cell).await?;
    sh("c2", &format!("cd {OWN}/{id}.*/data && mkdir results && echo second >results/here")).await?;
    Ok(id)
}

/// What was made on both nodes is in the home, and nothing else of it is anywhere.
async fn kept_and_nothing_left() -> anyhow::Result<()> {
    assert_eq!(sh("c1", "cat ~/scratch-test/out/node0/here").await?, "alpha\n/local");
    assert_eq!(sh("c1", "cat ~/scratch-test/out/node1/here").await?, "second\n");
    assert_eq!(sh("c1", "find ~/scratch-test -name '.eirene-*'").await?, "");
    for node in NODES {
        let left = format!("find /var/tmp -mindepth 2 -path \"{OWN}\" 2>/dev/null || true");
        assert_eq!(sh(node, &left).await?, "", "{node}");
    }
    sh("c1", "rm -r ~/scratch-test").await.map(drop)
}

#[tokio::test]
async fn scratch_on_two_nodes_is_filled_used_and_emptied() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let id = worked(&ada).await?;
    let session = ada.stop(&id).await?;
    assert_eq!(session["state"], "ended", "{session}");
    kept_and_nothing_left().await
}

/// A rescue waits for its turn, and one that came too early for a while more.
const RESCUED: Duration = Duration::from_mins(10);

#[tokio::test]
async fn what_a_kill_left_on_two_nodes_is_brought_back_by_itself_and_by_nobody_else() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    // Another person takes her name on one of the nodes.
    let name = sh("c2", "echo /var/tmp/eirene-scratch-$(id -u)").await?;
    let name = name.trim();
    exec("c2", "root", &["rm", "-rf", name]).await?;
    exec("c2", "grace", &["mkdir", "-m", "777", name]).await?;
    let id = worked(&ada).await?;
    ada.wait(&id, "its scratch is said to be ready", NOTICE, |session| session["scratch_state"]["state"] == "ready")
        .await?;
    // SLURM's own way would begin with SIGTERM, which the agent takes for the time to bring things out.
    let kill = ["pkill", "-KILL", "-u", "ada", "-f", "eirene-agent"];
    futures_util::future::try_join(exec("c1", "root", &kill), exec("c2", "root", &kill)).await?;
    ada.wait_state(&id, "failed", START).await?;
    let directory = format!("{name}/{id}.0");
    let rescue = ["/opt/eirene/bin/eirene-agent", "rescue", &directory];
    ensure!(exec("c1", "grace", &rescue).await.is_err(), "another person rescues it");
    // In a directory of theirs there is nothing to rescue.
    exec("c2", "grace", &rescue).await?;
    let grace = Person::sign_in("grace").await?;
    let (status, _) = grace.call(Method::GET, &format!("sessions/{id}"), None).await?;
    assert_eq!(status, StatusCode::NOT_FOUND, "how it is, is its owner's to know");
    let done = ada.wait(&id, "all of it is back", RESCUED, |session| session["scratch_state"]["state"] == "done");
    assert_eq!(done.await?["state"], "failed", "that it was killed is as true as before");
    kept_and_nothing_left().await?;
    exec("c2", "grace", &["rmdir", name]).await.map(drop)
}
