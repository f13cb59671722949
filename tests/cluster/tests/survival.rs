//! Everything a session must survive, each done for real to the demo cluster.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, begin_now, daemon, database, exec, is_accounted};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, START, job_id, node};
use eirene_cluster_tests::{deep, sample, until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const SMALL: fn() -> Value = || json!({"cpus": 1, "memory_mib": 1024, "walltime_min": 30});

async fn ada() -> anyhow::Result<Person> {
    // A test that was ended by force has left what it halted.
    signal_slurm("-CONT").await?;
    for (container, name) in [("head", "slurmctld"), ("c1", "slurmd"), ("c2", "slurmd"), ("portal", "eirened")] {
        daemon(container, name, "start").await?;
    }
    let ada = until("the portal answers", NOTICE, || async { Ok(Person::sign_in("ada").await.ok()) }).await?;
    ada.stop_all().await?;
    Ok(ada)
}

async fn kill_portal() -> anyhow::Result<()> {
    exec("portal", "root", &["pkill", "-KILL", "-x", "eirened"]).await.map(drop)
}

async fn app_answers(person: &Person, session: &Value) -> anyhow::Result<bool> {
    let (client, origin, _) = person.app(session)?;
    let answer = client.get(format!("{origin}/api")).bearer_auth(&person.token).send().await?;
    Ok(answer.status() == StatusCode::OK)
}

async fn live_jobs_of_ada() -> anyhow::Result<usize> {
    let text = exec("head", "root", &["squeue", "--noheader", "--user=ada", "--states=PD,R,CF", "--format=%A"]).await?;
    Ok(text.split_whitespace().count())
}

/// Both of SLURM's daemons, for the portal may ask either way.
const SLURM: &str = "slurmrestd|slurmctld";

async fn signal_slurm(signal: &str) -> anyhow::Result<()> {
    exec("head", "root", &["pkill", signal, "-x", SLURM]).await.map(drop)
}

/// Starts a session whose submit hangs, because SLURM is halted.
async fn submit_in_flight(ada: &Person) -> anyhow::Result<String> {
    signal_slurm("-STOP").await?;
    let id = ada.start(&SMALL()).await?;
    let database = tokio::sync::Mutex::new(database().await?);
    until("the submit has begun and has no answer", NOTICE, || async {
        let query = sqlx::query_as("SELECT submit_begun_at, job_id FROM sessions WHERE id = ?").bind(&id);
        let row: (Option<i64>, Option<i64>) = query.fetch_one(&mut *database.lock().await).await?;
        Ok((row.0.is_some() && row.1.is_none()).then_some(()))
    })
    .await?;
    Ok(id)
}

async fn is_one_job_whose_app_answers(ada: &Person, id: &str) -> anyhow::Result<()> {
    let session = ada.wait_state(id, "running", START).await?;
    assert_eq!(live_jobs_of_ada().await?, 1, "one start is one job");
    ensure!(app_answers(ada, &session).await?, "the app answers");
    ada.stop(id).await?;
    Ok(())
}

#[tokio::test]
async fn kill_of_the_portal_while_a_submit_is_in_flight() -> anyhow::Result<()> {
    let ada = ada().await?;
    // The portal dies; SLURM goes on and may still carry it out.
    let _restore = Restore::with(&[&["exec", "head", "pkill", "-CONT", "-x", SLURM]]);
    let id = submit_in_flight(&ada).await?;
    kill_portal().await?;
    signal_slurm("-CONT").await?;
    until("the portal is back", NOTICE, || async { Ok(ada.session(&id).await.ok()) }).await?;
    is_one_job_whose_app_answers(&ada, &id).await
}

#[tokio::test]
async fn kill_of_the_portal_while_a_submit_is_in_flight_whose_app_runs_before_its_job_is_known() -> anyhow::Result<()> {
    let ada = ada().await?;
    let go_on = ["exec", "head", "pkill", "-CONT", "-x", SLURM];
    let _restore = Restore::with(&[&go_on, &["exec", "portal", "demo-ctl", "eirened", "start"]]);
    let mut tries = 0;
    let id = loop {
        let id = submit_in_flight(&ada).await?;
        exec("portal", "root", &["touch", "/run/demo/eirened.down"]).await?;
        kill_portal().await?;
        signal_slurm("-CONT").await?;
        let carried_out = until("the submit is carried out", Duration::from_secs(20), || async {
            Ok((live_jobs_of_ada().await? == 1).then_some(()))
        });
        match carried_out.await {
            Ok(()) => break id,
            // The portal died before it had sent it.
            Err(_) if tries < 3 => tries += 1,
            Err(error) => return Err(error),
        }
        daemon("portal", "eirened", "start").await?;
        until("the portal is back", NOTICE, || async { Ok(ada.session(&id).await.ok()) }).await?;
        ada.stop_all().await?;
    };
    until("the agent runs", START, || async {
        let agents = ["c1", "c2"].map(|node| exec(node, "root", &["pgrep", "-c", "-u", "ada", "eirene-agent"]));
        Ok(futures_util::future::join_all(agents).await.iter().any(Result::is_ok).then_some(()))
    })
    .await?;
    // Nobody tells the new portal of a job, but the agent.
    signal_slurm("-STOP").await?;
    daemon("portal", "eirened", "start").await?;
    until("the app runs, nobody knows where", START, || async {
        let Ok(session) = ada.session(&id).await else { return Ok(None) };
        ensure!(session["nodes"][0].is_null(), "SLURM is halted: {session}");
        Ok((session["state"] == "running").then_some(()))
    })
    .await?;
    signal_slurm("-CONT").await?;
    is_one_job_whose_app_answers(&ada, &id).await
}

#[tokio::test]
async fn kill_of_the_portal_while_a_cell_runs() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&SMALL()).await?;
    let kernel = Kernel::start(&ada, &session).await?;
    let mut channel = kernel.connect().await?;
    channel.send("import time\nfor i in range(60):\n    time.sleep(0.1)\nresult = 6*7").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    kill_portal().await?;
    let id = session["id"].as_str().context("id")?;
    until("the portal is back", NOTICE, || async { Ok(ada.session(id).await.ok()) }).await?;
    let back = Instant::now();
    until("the app answers again", NOTICE, || async { Ok(app_answers(&ada, &session).await?.then_some(())) }).await?;
    let mut channel =
        until("the kernel's channel opens again", NOTICE, || async { Ok(kernel.connect().await.ok()) }).await?;
    let away = back.elapsed();
    channel.send("again = 1").await?;
    assert_eq!(kernel.run("print(result)").await?.trim(), "42", "the cell finished and the kernel is the same");
    ensure!(!deep() || away < Duration::from_secs(5), "the app was away for {away:?} after the portal was back");
    ada.stop(id).await?;
    Ok(())
}

async fn scheduler_away_for_a_minute() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&SMALL()).await?;
    let id = session["id"].as_str().context("id")?;
    let _restore = Restore::with(&[&["exec", "head", "demo-ctl", "slurmctld", "start"]]);
    daemon("head", "slurmctld", "stop").await?;
    ada.wait(id, "flagged undetermined", NOTICE, |s| s["undetermined"] == true).await?;
    let until_then = Instant::now() + Duration::from_mins(1);
    while Instant::now() < until_then {
        let now = ada.session(id).await?;
        ensure!(now["state"] == "running", "still running as far as is known: {now}");
        ensure!(app_answers(&ada, &session).await?, "the app answers without the scheduler");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    daemon("head", "slurmctld", "start").await?;
    let back = ada.wait(id, "determined again", NOTICE, |s| s["undetermined"] == false).await?;
    assert_eq!(back["state"], "running");
    ada.stop(id).await?;
    Ok(())
}

#[tokio::test]
async fn agent_killed() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&SMALL()).await?;
    let (id, node) = (session["id"].as_str().context("id")?, node(&session)?);
    exec(&node, "root", &["pkill", "-KILL", "-u", "ada", "eirene-agent"]).await?;
    let over = ada.wait(id, "over", NOTICE, |s| matches!(s["state"].as_str(), Some("ended" | "failed"))).await?;
    assert_eq!(over["state"], "failed", "{over}");
    ensure!(over["reason"]["text"].as_str().is_some_and(|text| !text.is_empty()), "a reason: {over}");
    until("nothing of the session is left on the node", NOTICE, || async {
        let left =
            exec(&node, "root", &["sh", "-c", "ps -u ada -o pid=,ppid=,stat=,etimes=,wchan=,args= || :"]).await?;
        ensure!(left.trim().is_empty(), "left on {node}:\n{left}");
        Ok(Some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn cancelled_behind_our_back() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&SMALL()).await?;
    let id = session["id"].as_str().context("id")?;
    exec("head", "root", &["scancel", &job_id(&session)?]).await?;
    let over = ada.wait(id, "over", NOTICE, |s| matches!(s["state"].as_str(), Some("ended" | "failed"))).await?;
    ensure!(
        over["reason"]["code"].as_str().is_some_and(|code| code.contains("cancel")),
        "says it was cancelled: {over}"
    );
    Ok(())
}

async fn walltime_reached() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&json!({"cpus": 1, "memory_mib": 1024, "walltime_min": 1})).await?;
    let id = session["id"].as_str().context("id")?;
    // SLURM looks at time limits every half minute.
    let over = ada
        .wait(id, "over", Duration::from_mins(3), |s| matches!(s["state"].as_str(), Some("ended" | "failed")))
        .await?;
    assert_eq!(over["reason"]["code"], "walltime_reached", "{over}");
    is_accounted(&job_id(&session)?, &["TIMEOUT|0:0"]).await
}

async fn node_set_down() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&SMALL()).await?;
    let (id, node) = (session["id"].as_str().context("id")?, node(&session)?);
    let name = format!("nodename={node}");
    let _restore = Restore::with(&[&["exec", "head", "scontrol", "update", &name, "state=resume"]]);
    exec("head", "root", &["scontrol", "update", &name, "state=down", "reason=test"]).await?;
    ada.wait(id, "left running", NOTICE, |s| s["state"] != "running").await?;
    // SLURM requeues what a failed node ran and holds it back for two minutes, in which the old run ends; let go earlier, it can meet
    // that on a node that has come back by itself, and is held then. Which node it is given is SLURM's to say.
    let back = ada.wait_state(id, "running", Duration::from_mins(5)).await?;
    ensure!(back["restart_count"].as_u64() > session["restart_count"].as_u64(), "it was started anew: {back}");
    ensure!(app_answers(&ada, &back).await?, "the app answers");
    ada.stop(id).await?;
    is_accounted(&job_id(&session)?, &["NODE_FAIL|1:0", "COMPLETED|0:0"]).await
}

#[tokio::test]
async fn database_file_locked_for_five_seconds() -> anyhow::Result<()> {
    let ada = ada().await?;
    let running = ada.running(&SMALL()).await?;
    let mut lock = database().await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut lock).await?;
    let begun = Instant::now();
    let small = SMALL();
    let start = ada.start(&small);
    let release = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        sqlx::query("ROLLBACK").execute(&mut lock).await.map(drop)
    };
    let (started, released) = tokio::join!(start, release);
    released?;
    let id = started.context("a start waits for the lock")?;
    ensure!(begun.elapsed() >= Duration::from_secs(4), "the file was locked");
    ada.wait_state(&id, "running", START).await?;
    assert_eq!(ada.session(running["id"].as_str().context("id")?).await?["state"], "running");
    ada.stop_all().await
}

#[tokio::test]
async fn a_database_restored_while_sessions_run() -> anyhow::Result<()> {
    let (ada, admin) = (ada().await?, Person::sign_in("admin").await?);
    let before = ada.running(&SMALL()).await?;
    let config = "--config=/etc/eirene/eirened.toml";
    let backup = "/var/lib/eirene/test-backup.db";
    exec("portal", "root", &["rm", "-f", backup]).await?;
    exec("portal", "eirene", &["/opt/eirene/bin/eirened", "backup", config, backup]).await?;
    let after = ada.running(&SMALL()).await?;
    let (kept, lost) = (before["id"].as_str().context("id")?, after["id"].as_str().context("id")?);
    let _restore = Restore::with(&[&["exec", "portal", "demo-ctl", "eirened", "start"]]);
    daemon("portal", "eirened", "stop").await?;
    exec("portal", "eirene", &["/opt/eirene/bin/eirened", "restore", config, backup]).await?;
    daemon("portal", "eirened", "start").await?;

    let ada = until("the portal is back", NOTICE, || async { Ok(Person::sign_in("ada").await.ok()) }).await?;
    let session = ada.wait_state(kept, "running", NOTICE).await?;
    ensure!(
        until("the kept session's app answers", NOTICE, || async {
            Ok(app_answers(&ada, &session).await?.then_some(()))
        })
        .await
        .is_ok()
    );
    let (status, _) = ada.call(Method::GET, &format!("sessions/{lost}"), None).await?;
    assert_eq!(status, StatusCode::NOT_FOUND, "the row is gone");
    let job = job_id(&after)?;
    until("the job without a row is shown to the admin", NOTICE, || async {
        let (_, list) = admin.call(Method::GET, "adopted-jobs", None).await?;
        Ok(list["items"].to_string().contains(&job).then_some(()))
    })
    .await?;
    let state = exec("head", "root", &["squeue", "--noheader", "--format=%T", &format!("--jobs={job}")]).await?;
    assert_eq!(state.trim(), "RUNNING", "it is never cancelled by itself");
    exec("head", "root", &["scancel", &job]).await?;
    ada.stop(kept).await?;
    Ok(())
}

#[tokio::test]
async fn a_requeued_job_comes_back_with_a_new_secret() -> anyhow::Result<()> {
    let ada = ada().await?;
    let session = ada.running(&SMALL()).await?;
    let (id, job) = (session["id"].as_str().context("id")?, job_id(&session)?);
    exec("head", "root", &["scontrol", "requeue", &job]).await?;
    ada.wait(id, "left running", NOTICE, |s| s["state"] != "running").await?;
    begin_now(&job).await?;
    let back = ada.wait_state(id, "running", START).await?;
    assert_eq!(job_id(&back)?, job, "the same job");
    ensure!(app_answers(&ada, &back).await?, "the app answers");
    ada.stop(id).await?;
    Ok(())
}

async fn a_session_that_never_becomes_ready() -> anyhow::Result<()> {
    let ada = ada().await?;
    // Her own Jupyter config hangs: the app starts and never answers.
    let _restore = Restore::with(&[&["exec", "-u", "ada", "portal", "rm", "-rf", "/home/ada/.jupyter"]]);
    exec("portal", "ada", &["mkdir", "-p", "/home/ada/.jupyter"]).await?;
    exec(
        "portal",
        "ada",
        &["sh", "-c", "echo 'import time; time.sleep(100000)' > /home/ada/.jupyter/jupyter_server_config.py"],
    )
    .await?;
    let id = ada.start(&SMALL()).await?;
    let over = ada
        .wait(&id, "over", Duration::from_mins(4), |s| matches!(s["state"].as_str(), Some("ended" | "failed")))
        .await?;
    assert_eq!(over["state"], "failed", "{over}");
    ensure!(over["reason"]["code"].as_str().is_some_and(|code| code.contains("ready")), "a clear reason: {over}");
    until("the allocation is released", NOTICE, || async { Ok((live_jobs_of_ada().await? == 0).then_some(())) })
        .await?;
    Ok(())
}

/// One of those that disturb and take minutes, another one for another `EIRENE_TEST_SEED`; both with `EIRENE_TEST_DEEP=1`.
#[tokio::test]
async fn what_is_away_for_minutes_is_back_afterwards() -> anyhow::Result<()> {
    for what in sample(&["slurmctld", "a node"], 1) {
        match what {
            "slurmctld" => scheduler_away_for_a_minute().await,
            _ => node_set_down().await,
        }
        .context(what)?;
    }
    Ok(())
}

/// The same of ends that are waited for.
#[tokio::test]
async fn a_session_that_waits_for_minutes_ends_with_its_reason() -> anyhow::Result<()> {
    for what in sample(&["its time limit", "its app"], 1) {
        match what {
            "its time limit" => walltime_reached().await,
            _ => a_session_that_never_becomes_ready().await,
        }
        .context(what)?;
    }
    Ok(())
}
