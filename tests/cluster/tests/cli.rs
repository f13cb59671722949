//! The command line as a person and as an admin use it, against the real portal: everything by `eirene`, nothing by HTTP.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::{exec, exec_with_input, jobs_named};
use eirene_cluster_tests::portal::{NOTICE, Person};
use eirene_cluster_tests::until;
use serde_json::{Value, json};

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item["id"].as_str()).collect()
}

#[tokio::test]
async fn a_session_from_start_to_stop() -> anyhow::Result<()> {
    Person::sign_in("ada").await?.stop_all().await?;
    let ada = Cli::sign_in("ada", &[]).await?;
    let nodes = ada.good(&["node", "list"]).await?.out;
    ensure!(nodes.contains("c1") && nodes.contains("c2") && nodes.contains("h100"), "{nodes}");
    ensure!(ada.json(&["node", "list"]).await?.to_string().contains("a100"));

    let start = ["session", "start", "--name", "by hand", "--cpus", "1", "--memory", "512M", "--walltime", "10m"];
    let started = ada.json(&start).await?;
    assert_eq!(started["state"], "running", "it waits until the app is there: {started}");
    let id = started["id"].as_str().context("id")?;
    let listed = ada.good(&["session", "list"]).await?.out;
    ensure!(listed.contains("by hand") && listed.contains("running"), "{listed}");
    ensure!(ids(&ada.json(&["session", "list"]).await?).contains(&id));
    // A name or the beginning of an id is enough.
    assert_eq!(ada.json(&["session", "show", "by hand"]).await?["id"], id);
    ensure!(ada.good(&["session", "show", id]).await?.out.contains("running"));
    let url = ada.good(&["session", "open", id, "--print"]).await?.out;
    ensure!(url.contains(id) && url.starts_with("http"), "{url}");
    let job = until("its job is known", NOTICE, || async {
        Ok(ada.json(&["session", "show", id]).await?["slurm_job_id"].as_u64())
    })
    .await?
    .to_string();
    let shown = exec("head", "root", &["scontrol", "--oneliner", "show", "job", &job]).await?;
    ensure!(shown.contains("UserId=ada(2001)") && shown.contains("MinMemoryNode=512M"), "{shown}");
    until("the log has the app's first words", NOTICE, || async {
        Ok(ada.good(&["session", "logs", id]).await?.out.contains("Jupyter").then_some(()))
    })
    .await?;

    let stranger = Cli::sign_in("grace", &[]).await?;
    for words in [["session", "show", id], ["session", "logs", id], ["session", "stop", id]] {
        let said = stranger.run(&words, "").await?;
        assert_eq!(said.code, 1, "{words:?}: {}{}", said.out, said.err);
    }
    let said = stranger.run(&["session", "show", id, "--json"], "").await?;
    ensure!(serde_json::from_str::<Value>(&said.err)?["error"].is_string(), "errors are JSON too: {}", said.err);

    assert_eq!(ada.json(&["session", "stop", id]).await?["state"], "ended");
    let name = format!("--name={}", started["marker"].as_str().unwrap_or("none"));
    ensure!(jobs_named(&name).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_run_from_start_to_requeue() -> anyhow::Result<()> {
    let person = Person::sign_in("ada").await?;
    person.stop_all().await?;
    let ada = Cli::sign_in("ada", &[]).await?;
    let script =
        "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'says', sys.argv[1])\n";
    let put = ["sh", "-c", "mkdir -p /home/ada/tests && cat > /home/ada/tests/by-hand.py"];
    exec_with_input("c1", "ada", &put, script).await?;

    // A run that is over keeps its name.
    let name = format!("two ranks {}", uuid::Uuid::now_v7().simple());
    let size = ["--nodes", "2", "--cpus", "1", "--memory", "1G", "--ranks", "2", "--image", "pytorch"];
    let start =
        [&["run", "start", "tests/by-hand.py", "--follow", "--name", &name][..], &size, &["--", "a b"]].concat();
    let followed = ada.good(&start).await?;
    for line in ["[0] rank 0 of 2 says a b", "[1] rank 1 of 2 says a b"] {
        ensure!(followed.out.lines().any(|said| said == line), "{}{}", followed.out, followed.err);
    }
    let shown = ada.json(&["run", "show", &name]).await?;
    assert_eq!(
        (&shown["state"], &shown["exit_status"], &shown["ranks"]),
        (&json!("ended"), &json!(0), &json!(2)),
        "{shown}"
    );
    let id = shown["id"].as_str().context("id")?;
    assert_eq!(ada.good(&["run", "logs", id, "--rank", "1"]).await?.out.trim(), "rank 1 of 2 says a b");
    ensure!(ada.good(&["run", "list", "--all"]).await?.out.contains(&name));
    let stranger = Cli::sign_in("grace", &[]).await?;
    for verb in ["show", "logs", "cancel", "requeue"] {
        let said = stranger.run(&["run", verb, id], "").await?;
        assert_eq!(said.code, 1, "{verb}: {}{}", said.out, said.err);
    }
    let again = ada.json(&["run", "requeue", id, "--wait"]).await?;
    assert_eq!((&again["requeue_of"], &again["state"]), (&json!(id), &json!("ended")), "{again}");

    let gone = ada.run(&[&["run", "start", "tests/not-there.py", "--wait"][..], &size].concat(), "").await?;
    assert_eq!(gone.code, 1, "{}{}", gone.out, gone.err);
    ensure!(gone.err.contains("there is no file `tests/not-there.py`"), "{}", gone.err);
    Ok(())
}

#[tokio::test]
async fn bad_input_is_refused_in_words_and_starts_nothing() -> anyhow::Result<()> {
    let ada = Cli::sign_in("ada", &[]).await?;
    let before = ids(&ada.json(&["session", "list", "--all"]).await?).len();
    let long = "x".repeat(100_000);
    for more in [
        ["--gpus", "1000000000"],
        ["--cpus", "99999"],
        ["--cpus", "many"],
        ["--name", "'; $(touch /tmp/x) <script>\u{7}"],
        ["--name", long.as_str()],
        ["--image", "../../etc/passwd"],
        ["--memory", "99999999999999999999G"],
    ] {
        let said = ada.run(&[&["session", "start"][..], &more].concat(), "").await?;
        ensure!(matches!(said.code, 1 | 2), "{}: {}", more[0], said.code);
        ensure!(said.err.starts_with("error: ") && !said.err.contains('\u{7}'), "{}", said.err);
    }
    assert_eq!(ids(&ada.json(&["session", "list", "--all"]).await?).len(), before, "nothing was created");
    Ok(())
}

#[tokio::test]
async fn an_admin_runs_the_platform() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session = ada.running(&serde_json::json!({})).await?;
    let id = session["id"].as_str().context("id")?;

    let user = Cli::sign_in("ada", &[]).await?;
    assert_eq!(user.run(&["admin", "user", "list"], "").await?.code, 1, "an ordinary person may not");
    let admin = Cli::sign_in("admin", &["--admin"]).await?;
    let people = admin.good(&["admin", "user", "list"]).await?.out;
    ensure!(people.contains("ada") && people.contains("grace"), "{people}");
    let taken = admin.run(&["admin", "user", "add", "ada", "--json"], "").await?;
    assert_eq!(taken.code, 1, "{}{}", taken.out, taken.err);
    assert_eq!(serde_json::from_str::<Value>(&taken.err)?["code"], "username_taken");

    admin.good(&["admin", "user", "disable", "grace", "--yes"]).await?;
    let locked = Cli::sign_in("grace", &[]).await;
    admin.good(&["admin", "user", "enable", "grace"]).await?;
    ensure!(locked.is_err(), "a disabled person signed in");
    Cli::sign_in("grace", &[]).await?;
    let unasked = admin.run(&["admin", "user", "disable", "grace"], "").await?;
    assert_eq!(unasked.code, 2, "without a terminal it asks for --yes");

    ensure!(ids(&admin.json(&["admin", "session", "list"]).await?).contains(&id));
    admin.good(&["admin", "session", "stop", id, "--yes"]).await?;
    ada.wait(id, "ended", NOTICE, |s| s["state"] == "ended").await?;
    Ok(())
}
