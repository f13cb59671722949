//! A session's life and its isolation, on the real cluster.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{exec, jobs_named};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, START, job_id, node};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn a_cell_runs_on_a_compute_node_as_the_person_in_an_allocation_of_the_size_asked_for() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session =
        ada.running(&json!({"cpus": 3, "memory_mib": 2000, "gpus": 1, "gpu_type": "a100", "walltime_min": 45})).await?;
    let (id, job, node) = (session["id"].as_str().context("id")?, job_id(&session)?, node(&session)?);

    let kernel = Kernel::start(&ada, &session).await?;
    let said = kernel
        .run("import os, platform; print(platform.node(), os.getuid(), 6*7, os.path.exists('/.singularity.d'), os.environ['HOME'])")
        .await?;
    assert_eq!(said.trim(), format!("{node} 2001 42 True /home/ada"));

    let shown = exec("head", "root", &["scontrol", "--oneliner", "show", "job", &job]).await?;
    for part in [
        "UserId=ada(2001)",
        "NumNodes=1",
        "CPUs/Task=3",
        "TimeLimit=00:45:00",
        "Account=research",
        "QOS=normal",
        "MinMemoryNode=2000M",
    ] {
        ensure!(shown.contains(part), "no `{part}` in {shown}");
    }
    ensure!(shown.contains("gres/gpu:a100=1"), "the GPU is allocated: {shown}");

    let over = ada.stop(id).await?;
    assert_eq!(over["state"], "ended", "{over}");
    until("the job is gone", NOTICE, || async {
        let shown = exec("head", "root", &["scontrol", "--oneliner", "show", "job", &job]).await?;
        Ok((!shown.contains("JobState=RUNNING") && !shown.contains("JobState=COMPLETING")).then_some(()))
    })
    .await?;
    until("nothing outlives the session", NOTICE, || async {
        let left = exec(&node, "root", &["sh", "-c", "ps -o args= -u ada || :"]).await?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(Some(()))
    })
    .await?;
    let (status, _) = ada.call(Method::DELETE, &format!("sessions/{id}"), None).await?;
    assert_eq!(status, StatusCode::ACCEPTED, "deleting again is the same");
    Ok(())
}

#[tokio::test]
async fn two_identical_starts_at_once_with_one_key_are_one_session() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let key = format!("once-{}", uuid::Uuid::now_v7());
    let body = json!({"app": "jupyterlab", "image": "jupyter", "nodes": 1, "cpus": 1, "memory_mib": 512, "gpus": 0, "walltime_min": 10});
    let start = || ada.call_with(Method::POST, "sessions", Some(&body), Some(&key));
    let (first, second) = tokio::join!(start(), start());
    let (first, second) = (first?, second?);
    for (status, answer) in [&first, &second] {
        ensure!(status.is_success(), "{status} {answer}");
    }
    assert_eq!(first.1["id"], second.1["id"]);
    let mut other = body.clone();
    other["cpus"] = json!(2);
    let (status, problem) = ada.call_with(Method::POST, "sessions", Some(&other), Some(&key)).await?;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let id = first.1["id"].as_str().context("id")?;
    ada.wait_state(id, "running", START).await?;
    let queue =
        exec("head", "root", &["squeue", "--noheader", "--format=%A", "--user=ada", "--states=PD,R,CF"]).await?;
    assert_eq!(queue.split_whitespace().count(), 1, "one job: {queue}");
    ada.stop(id).await?;
    Ok(())
}

#[tokio::test]
async fn another_person_finds_nothing_of_a_session_anywhere() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    let session = ada.running(&json!({})).await?;
    let (id, node) = (session["id"].as_str().context("id")?.to_owned(), node(&session)?);
    let kernel = Kernel::start(&ada, &session).await?;
    assert_eq!(kernel.run("print(1)").await?.trim(), "1");

    for path in ["", "/logs", "/events"] {
        let (status, _) = grace.call(Method::GET, &format!("sessions/{id}{path}"), None).await?;
        assert_eq!(status, StatusCode::NOT_FOUND, "GET {path}");
    }
    let (status, _) = grace.call(Method::DELETE, &format!("sessions/{id}"), None).await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (_, list) = grace.call(Method::GET, "sessions", None).await?;
    ensure!(!list.to_string().contains(&id), "not in her list");

    // HTTP and WebSocket on the session's origin, with her own good token.
    let (client, origin, host) = ada.app(&session)?;
    for path in ["/lab", "/api/kernels", "/api/contents"] {
        let answer = client.get(format!("{origin}{path}")).bearer_auth(&grace.token).send().await?;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(
            client.get(format!("{origin}{path}")).send().await?.status(),
            StatusCode::NOT_FOUND,
            "{path} with nothing"
        );
    }
    let upgrade = client
        .get(format!("{origin}/api/kernels/{}/channels", kernel.id))
        .bearer_auth(&grace.token)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("host", &host)
        .send()
        .await?;
    assert_eq!(upgrade.status(), StatusCode::NOT_FOUND);

    // From a shell on the same node.
    let looked = exec(&node, "grace", &["cat", "/proc/net/tcp", "/proc/net/tcp6"]).await?;
    let listening: Vec<&str> = looked
        .lines()
        .filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(3) == Some(&"0A") && words.get(7) == Some(&"2001")
        })
        .collect();
    ensure!(listening.is_empty(), "TCP sockets of ada's uid listen: {listening:?}");
    // Abstract names are seen by everybody in the network namespace; the file of a named one lies in a private directory.
    let inodes = exec(&node, "root", &["sh", "-c", "for p in $(pgrep -u ada); do ls -l /proc/$p/fd 2>/dev/null; done | grep -o 'socket:\\[[0-9]*' | grep -o '[0-9]*' | sort -u"]).await?;
    let table = exec(&node, "root", &["cat", "/proc/net/unix"]).await?;
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let (Some(inode), Some(name)) = (words.get(6), words.get(7)) {
            let hers = inodes.split_whitespace().any(|i| i == *inode);
            ensure!(!(hers && name.starts_with('@')), "an abstract socket of ada: {line}");
        }
    }
    let runtime = exec(&node, "root", &["find", "/tmp", "-maxdepth", "1", "-user", "ada"]).await?;
    ensure!(!runtime.trim().is_empty(), "the runtime directory is where it is expected");
    for directory in runtime.split_whitespace() {
        let seen = exec(&node, "grace", &["ls", directory]).await;
        ensure!(seen.is_err(), "grace can look into {directory}");
    }
    let socket = exec(&node, "root", &["find", "/tmp", "-name", "app.sock", "-user", "ada"]).await?;
    let connect = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die $!";
    for (who, may) in [("ada", true), ("grace", false)] {
        let connected = exec(&node, who, &["perl", "-e", connect, socket.trim()]).await;
        ensure!(connected.is_ok() == may, "{who} at ada's socket: {connected:?}");
    }
    let secret = exec("portal", "grace", &["ls", "/home/ada/.eirene"]).await;
    ensure!(secret.is_err(), "grace can look into ada's home");
    let environment = exec(&node, "grace", &["sh", "-c", "cat /proc/$(pgrep -u ada | head -1)/environ"]).await;
    ensure!(environment.is_err(), "grace can read the environment of ada's processes");
    ada.stop(&id).await?;
    Ok(())
}

#[tokio::test]
async fn no_secret_is_in_the_job_its_environment_or_its_log() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session = ada.running(&json!({})).await?;
    let (id, job, node) = (session["id"].as_str().context("id")?.to_owned(), job_id(&session)?, node(&session)?);
    let file =
        exec(&node, "ada", &["cat", &format!("/home/ada/.eirene/sessions/{id}/job.json")]).await.unwrap_or_default();
    let secret = serde_json::from_str::<Value>(&file).ok().and_then(|v| v["secret"].as_str().map(ToOwned::to_owned));
    let mode = exec(&node, "root", &["stat", "-c", "%a %U", &format!("/home/ada/.eirene/sessions/{id}")]).await?;
    assert_eq!(mode.trim(), "700 ada");
    let mut seen = exec("head", "root", &["scontrol", "show", "job", &job]).await?;
    seen += &exec("head", "root", &["scontrol", "write", "batch_script", &job, "-"]).await?;
    seen += &exec(&node, "root", &["sh", "-c", "for p in $(pgrep -u ada); do tr '\\0' '\\n' < /proc/$p/environ; tr '\\0' ' ' < /proc/$p/cmdline; done 2>/dev/null"]).await?;
    seen += &exec("portal", "root", &["sh", "-c", "cat /var/log/eirene/* 2>/dev/null"]).await?;
    seen += &ada.call(Method::GET, &format!("sessions/{id}/logs"), None).await?.1.to_string();
    ensure!(!seen.contains(&ada.token), "the API token is visible");
    if let Some(secret) = secret {
        ensure!(!seen.contains(&secret), "the job's secret is visible");
    }
    ada.stop(&id).await?;
    Ok(())
}

#[tokio::test]
async fn a_request_that_cannot_be_met_is_refused_and_leaves_nothing() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let good = json!({"app": "jupyterlab", "image": "jupyter", "nodes": 1, "cpus": 1, "memory_mib": 512, "gpus": 0, "walltime_min": 10});
    let cases = [
        ("gpus", json!(1_000_000_000)),
        ("cpus", json!(100_000)),
        ("memory_mib", json!(1_u64 << 50)),
        ("nodes", json!(0)),
        ("nodes", json!(-1)),
        ("nodes", json!("two")),
        ("walltime_min", json!(u32::MAX)),
        ("partition", json!("$(id)")),
        ("partition", json!("nowhere")),
        ("gpu_type", json!("<script>")),
        ("image", json!("'; drop table sessions; --")),
        ("image", json!("nothing-such")),
        ("name", json!("a\u{0}b")),
        ("name", json!("x".repeat(100_000))),
        ("surprise", json!(true)),
    ];
    let before = exec("head", "root", &["squeue", "--noheader", "--user=ada"]).await?;
    for (field, value) in cases {
        let mut body = good.clone();
        body[field] = value;
        let (status, problem) = ada.call(Method::POST, "sessions", Some(&body)).await?;
        ensure!(status.is_client_error(), "{field}: {status} {problem}");
        if status != StatusCode::PAYLOAD_TOO_LARGE {
            let named = problem["errors"].as_array().is_some_and(|errors| errors.iter().any(|e| e["field"] == field));
            ensure!(named, "`{field}` is not named in {problem}");
        }
    }
    let (_, list) = ada.call(Method::GET, "sessions?live=true", None).await?;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "{list}");
    assert_eq!(exec("head", "root", &["squeue", "--noheader", "--user=ada"]).await?, before);
    assert!(jobs_named("nothing-such").await?.is_empty());
    Ok(())
}
