//! Notebook runs that are disturbed, on the real cluster: put into the queue again, and warned. Their ordinary life is in `runs.rs`.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{exec, exec_with_input};
use eirene_cluster_tests::portal::{Person, job_id};
use eirene_cluster_tests::training::requeue;
use serde_json::{Value, json};

const FOLDER: &str = "/home/ada/tests/notebooks";

/// Ada with nothing running, and a notebook of these cells alone in a folder of hers.
async fn prepare(name: &str, cells: &[&str]) -> anyhow::Result<Person> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let cell = |(number, source): (usize, &&str)| json!({"cell_type": "code", "id": format!("c{number}"), "metadata": {}, "source": source, "outputs": [], "execution_count": null});
    let cells: Vec<Value> = cells.iter().enumerate().map(cell).collect();
    let notebook = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    let fresh = format!("rm -rf {FOLDER} && mkdir -p {FOLDER} && cat > {FOLDER}/{name}");
    exec_with_input("c1", "ada", &["sh", "-c", &fresh], &notebook.to_string()).await?;
    Ok(ada)
}

/// The cells of the notebook that a run of ada's has left.
async fn executed(run: &Value) -> anyhow::Result<Value> {
    let path = run["executed_notebook"].as_str().with_context(|| format!("no executed notebook: {run}"))?;
    let left: Value = serde_json::from_str(&exec("c1", "ada", &["cat", &format!("/home/ada/{path}")]).await?)?;
    Ok(left["cells"].clone())
}

#[tokio::test]
async fn a_notebook_that_is_requeued_leaves_what_was_done_and_begins_anew_beside_it() -> anyhow::Result<()> {
    let waits = "import os, time\nfirst = not os.path.exists('begun')\nopen('begun', 'w').close()\nprint(f'life {1 if first else 2}', flush=True)\ntime.sleep(1000 if first else 0)";
    let ada = prepare("twice.ipynb", &["print('the', 6 * 7)", waits]).await?;
    let first = ada.start_run("tests/notebooks/twice.ipynb", &json!({})).await?;
    ada.logged(&first, "life 1").await?;
    let second = requeue(&ada, &first).await?;
    let run = ada.over(&first).await?;
    ada.logged(&first, "cell 2 of 2 was ended by SIGTERM").await?;
    let cells = executed(&run).await?;
    assert_eq!(cells[0]["outputs"][0]["text"], json!(["the 42\n"]), "{cells}");
    assert_eq!(cells[1]["outputs"][0]["text"], json!(["life 1\n"]), "{cells}");
    assert_eq!(cells[1]["outputs"][1]["ename"], "KeyboardInterrupt", "{cells}");

    let again = ada.over(&second).await?;
    assert_eq!(again["state"], "ended", "{again}");
    ensure!(again["executed_notebook"] != run["executed_notebook"], "{again}");
    let anew = executed(&again).await?;
    assert_eq!(
        (&anew[0]["execution_count"], &anew[0]["outputs"][0]["text"]),
        (&json!(1), &json!(["the 42\n"])),
        "{anew}"
    );
    assert_eq!(anew[1]["outputs"][0]["text"], json!(["life 2\n"]), "{anew}");
    assert_eq!(executed(&run).await?, cells, "the first one's stays as it was");
    Ok(())
}

#[tokio::test]
async fn a_kernel_is_warned_if_it_has_a_handler_and_lives_if_it_has_none() -> anyhow::Result<()> {
    let waits = "import os, time\nprint('waits', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.1)";
    let listens = "import signal\nheard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(True))\nprint('listens', flush=True)\nwhile not heard:\n    time.sleep(0.1)\nprint('was told')";
    let ada = prepare("last.ipynb", &[waits, listens]).await?;
    let id = ada.start_run("tests/notebooks/last.ipynb", &json!({})).await?;
    ada.logged(&id, "waits").await?;
    // As SLURM does before a preemption and the time limit.
    let job = job_id(&ada.run(&id).await?)?;
    let warn = ["scancel", "--batch", "--signal=USR1", &job];
    exec("head", "root", &warn).await?;
    ada.logged(&id, "the time limit is near").await?;
    exec("c1", "ada", &["touch", &format!("{FOLDER}/go")]).await?;
    ada.logged(&id, "listens").await?;
    exec("head", "root", &warn).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "ended", "{run}");
    ada.logged(&id, "was told").await.map(drop)
}
