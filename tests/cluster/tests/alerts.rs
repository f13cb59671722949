//! Alerts on the real cluster: a node that its operator drains, and a program that is about to be killed for its memory.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::{Restore, exec, exec_with_input};
use eirene_cluster_tests::portal::{NOTICE, Person, RUN};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// The alert of this rule about what has this in its subject, as soon as it goes on or is over.
async fn becomes(admin: &Cli, rule: &str, subject: &str, over: bool) -> anyhow::Result<Value> {
    until(&format!("{rule} about {subject}, over: {over}"), RUN, || async {
        // A portal that was killed is away for a moment.
        let Ok(all) = admin.json(&["admin", "alert", "list", "--all"]).await else { return Ok(None) };
        let about = |alert: &&Value| {
            alert["rule"] == rule && alert["subject"].as_str().is_some_and(|found| found.contains(subject))
        };
        let found = all.as_array().context("a list")?.iter().find(about);
        Ok(found.filter(|alert| alert["ended_at"].is_string() == over).cloned())
    })
    .await
}

#[tokio::test]
async fn a_node_that_is_drained_is_told_to_admins_with_the_reason_until_it_is_back() -> anyhow::Result<()> {
    let admin = Cli::sign_in("admin", &["--admin"]).await?;
    let ada = Person::sign_in("ada").await?;
    let _back = Restore::with(&[&["exec", "head", "scontrol", "update", "NodeName=c2", "State=RESUME"]]);
    exec("head", "root", &["scontrol", "update", "NodeName=c2", "State=DRAIN", "Reason=loud fans"]).await?;
    let alert = becomes(&admin, "node_drained", "c2", false).await?;
    assert_eq!(alert["text"], "Node c2 takes no jobs: loud fans.");
    let id = alert["id"].as_str().context("id")?.to_owned();
    let (status, _) = ada.call(Method::GET, &format!("alerts/{id}"), None).await?;
    assert_eq!(status, StatusCode::NOT_FOUND, "it is the admins'");
    let (status, _) = ada.call(Method::GET, "alerts?all=true", None).await?;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let known = admin.json(&["admin", "alert", "acknowledge", &id]).await?;
    assert_eq!(known["acknowledged_by"], "admin");
    // A portal that is killed meanwhile goes on with the same alert.
    exec("portal", "root", &["pkill", "-KILL", "-x", "eirened"]).await?;
    let again = becomes(&admin, "node_drained", "c2", false).await?;
    assert_eq!(again["id"], alert["id"]);
    exec("head", "root", &["scontrol", "update", "NodeName=c2", "State=RESUME"]).await?;
    let over = becomes(&admin, "node_drained", "c2", true).await?;
    assert_eq!(over["id"], alert["id"]);
    Ok(())
}

/// Takes this many MiB of its memory, touches them, and stays so for a while. It takes them once: a copy would be a moment of twice as much, in
/// which SLURM may look and kill.
const NEARLY: &str = r#"
import sys, time
held = b"x" * (int(sys.argv[1]) << 20)
time.sleep(90)
"#;

#[tokio::test]
async fn memory_that_is_nearly_full_is_told_to_whose_run_it_is_before_it_is_killed() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    let admin = Cli::sign_in("admin", &["--admin"]).await?;
    ada.stop_all().await?;
    let path = "/home/ada/tests/nearly.py";
    exec_with_input("c1", "ada", &["sh", "-c", "mkdir -p \"$(dirname \"$0\")\" && cat > \"$0\"", path], NEARLY).await?;
    // Agent and container take some tens of MiB besides.
    let changes = json!({"memory_mib": 4000, "preflight": false, "arguments": ["3820"]});
    let id = ada.start_run("tests/nearly.py", &changes).await?;
    let alert = becomes(&admin, "memory_nearly_full", &id, false).await?;
    ensure!(alert["value"].as_f64().is_some_and(|share| (0.95..1.0).contains(&share)), "{alert}");
    assert_eq!((&alert["job"]["owner"], &alert["job"]["kind"]), (&json!("ada"), &json!("run")));
    let path = format!("alerts/{}", alert["id"].as_str().context("id")?);
    assert_eq!(ada.call(Method::GET, &path, None).await?.0, StatusCode::OK);
    assert_eq!(grace.call(Method::GET, &path, None).await?.0, StatusCode::NOT_FOUND);
    let acknowledge = format!("{path}/acknowledge");
    assert_eq!(grace.call(Method::POST, &acknowledge, Some(&json!({}))).await?.0, StatusCode::NOT_FOUND);
    assert_eq!(ada.call(Method::POST, &acknowledge, Some(&json!({}))).await?.0, StatusCode::OK);
    assert_eq!(ada.call(Method::DELETE, &format!("runs/{id}"), None).await?.0, StatusCode::ACCEPTED);
    ada.over(&id).await?;
    becomes(&admin, "memory_nearly_full", &id, true).await?;
    until("ada's list of what goes on is empty", NOTICE, || async {
        let (_, mine) = ada.call(Method::GET, "alerts?open=true", None).await?;
        Ok(mine["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })
    .await
}
