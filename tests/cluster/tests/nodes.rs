//! A real node out of service and back, as an admin does it from a terminal: SLURM has it with who asked, nothing starts there, and its past is kept.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::{Restore, exec};
use eirene_cluster_tests::portal::{NOTICE, Person, START, job_id};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const REASON: &str = "cluster test: $(id); the \"fan\"";

/// The word for the node `c2`, and the reason, as everybody is shown them.
async fn shown(cli: &Cli) -> anyhow::Result<(String, String)> {
    let nodes = cli.json(&["node", "list"]).await?;
    let node = nodes.as_array().into_iter().flatten().find(|node| node["name"] == "c2").context("c2")?;
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
    Ok((text("state"), text("reason")))
}

/// What became of `c2`, newest first.
async fn past(admin: &Cli) -> anyhow::Result<Vec<(String, String)>> {
    let changes = admin.json(&["admin", "node", "history", "c2"]).await?;
    let text = |change: &Value, key: &str| change[key].as_str().unwrap_or_default().to_owned();
    let changes = changes.as_array().into_iter().flatten();
    Ok(changes.map(|change| (text(change, "state"), text(change, "reason"))).collect())
}

#[tokio::test]
async fn a_drained_node_starts_nothing_until_it_is_resumed() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let user = Cli::sign_in("ada", &[]).await?;
    for words in [&["drain", "c2", "--reason", "x"][..], &["resume", "c2"], &["history", "c2"]] {
        let said = user.run(&[&["admin", "node"], words].concat(), "").await?;
        assert_eq!(said.code, 1, "an ordinary person may not {words:?}: {}{}", said.out, said.err);
    }
    let admin = Cli::sign_in("admin", &["--admin"]).await?;
    assert_eq!(admin.run(&["admin", "node", "drain", "all", "--reason", "x"], "").await?.code, 1);

    let _restore = Restore::with(&[&["exec", "head", "scontrol", "update", "nodename=c2", "state=resume"]]);
    admin.good(&["admin", "node", "drain", "c2", "--reason", REASON]).await?;
    let signed = format!("{REASON} (eirene: admin)");
    let slurms = exec("head", "root", &["scontrol", "--oneliner", "show", "node", "c2"]).await?;
    ensure!(slurms.contains("DRAIN") && slurms.contains(&signed), "{slurms}");
    ensure!(!exec("head", "root", &["scontrol", "--oneliner", "show", "node", "c1"]).await?.contains("DRAIN"));
    until("everybody sees that it is drained", NOTICE, || async {
        let (state, reason) = shown(&user).await?;
        Ok((state.starts_with("drain") && reason.contains("(eirene: admin)")).then_some(()))
    })
    .await?;
    until("it is in its past", NOTICE, || async {
        let past = past(&admin).await?;
        Ok(past.first().is_some_and(|(state, reason)| state.starts_with("drain") && *reason == signed).then_some(()))
    })
    .await?;

    // Only c2 has such a GPU.
    let id = ada.start(&json!({"gpus": 1, "gpu_type": "h100"})).await?;
    let waits = ada
        .wait(&id, "it waits for a reason", NOTICE, |s| s["state"] == "queued" && s["reason"]["code"].is_string())
        .await?;
    let job = job_id(&waits)?;
    let state = exec("head", "root", &["squeue", "--noheader", "--format=%T", &format!("--jobs={job}")]).await?;
    assert_eq!(state.trim(), "PENDING");

    admin.good(&["admin", "node", "resume", "c2"]).await?;
    let runs = ada.wait_state(&id, "running", START).await?;
    assert_eq!(runs["nodes"], json!(["c2"]));
    until("its past says that it is back", NOTICE, || async {
        Ok(past(&admin).await?.first().is_some_and(|(state, _)| state == "in_service").then_some(()))
    })
    .await?;
    ada.stop(&id).await?;
    Ok(())
}

/// What is known of the GPUs of a type.
async fn supply(person: &Person, gpu_type: &str) -> anyhow::Result<Value> {
    let (status, cluster) = person.call(Method::GET, "cluster", None).await?;
    ensure!(status == StatusCode::OK, "{status} {cluster}");
    ensure!(!cluster.to_string().contains("not-for-ada"), "the name of another's job: {cluster}");
    let all = cluster["gpu_types"].as_array().into_iter().flatten();
    all.into_iter().find(|gpus| gpus["gpu_type"] == gpu_type).cloned().context("the type")
}

#[tokio::test]
async fn jobs_from_outside_the_platform_count_without_a_name() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    grace.stop_all().await?;
    let _restore = Restore::with(&[&["exec", "head", "scancel", "--user=grace"]]);
    let sbatch = async |options: &[&str]| {
        let job = ["sbatch", "--parsable", "--account=research", "--job-name=not-for-ada", "--mem=100M"];
        let rest = ["--chdir=/home/grace", "--output=/dev/null", "--wrap=sleep 600"];
        exec("head", "grace", &[&job[..], options, &rest[..]].concat()).await
    };
    let waited = supply(&ada, "h100").await?["waiting"].as_u64().context("waiting")?;
    sbatch(&["--hold", "--array=1-24%4", "--gres=gpu:h100:1"]).await?;
    until("each task of the array waits for a GPU", NOTICE, || async {
        Ok((supply(&ada, "h100").await?["waiting"] == waited + 24).then_some(()))
    })
    .await?;
    let job = sbatch(&["--gres=gpu:h100:2", "--time=9"]).await?;
    let gpus = until("both GPUs are taken, and come free with the job", NOTICE, || async {
        let gpus = supply(&ada, "h100").await?;
        let last = gpus["forecast"].as_array().and_then(|steps| steps.last()).cloned();
        Ok(last.filter(|last| gpus["free"] == 0 && last["free"] == 2))
    })
    .await?;
    let end = exec("head", "root", &["squeue", "--noheader", "--format=%e", &format!("--jobs={}", job.trim())]).await?;
    let at: jiff::Timestamp = gpus["at"].as_str().context("at")?.parse()?;
    let end = exec("head", "root", &["date", "--utc", "--date", end.trim(), "+%FT%TZ"]).await?;
    let later = at.duration_since(end.trim().parse()?).as_secs();
    ensure!((0..60).contains(&later), "its time limit, rounded up to a whole minute: {end} {gpus}");
    Ok(())
}
