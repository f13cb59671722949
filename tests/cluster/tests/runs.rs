//! Runs on the real cluster: scripts and notebooks without a browser, their logs, their ends, and starting them again.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{begin_now, exec, exec_with_input, is_accounted, root};
use eirene_cluster_tests::portal::{NOTICE, Person, job_id};
use eirene_cluster_tests::{ASKER, sample, until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Puts a file into a person's home, which all nodes see.
async fn put(user: &str, name: &str, text: &str) -> anyhow::Result<()> {
    let path = format!("/home/{user}/{name}");
    exec_with_input("c1", user, &["sh", "-c", "mkdir -p \"$(dirname \"$0\")\" && cat > \"$0\"", &path], text)
        .await
        .map(drop)
}

#[tokio::test]
async fn a_script_runs_as_the_person_and_its_end_is_the_run_s() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    put(
        "ada",
        "tests/run.py",
        "import getpass, os, sys\nprint(getpass.getuser(), os.getcwd(), sys.argv[1:])\nsys.exit(int(sys.argv[1]))\n",
    )
    .await?;
    let good = ada.start_run("tests/run.py", &json!({"arguments": ["0", "a b; $(id)"]})).await?;
    let bad = ada.start_run("tests/run.py", &json!({"arguments": ["3"]})).await?;
    let gone = ada.start_run("tests/gone.py", &json!({})).await?;

    let run = ada.over(&good).await?;
    assert_eq!(run["state"], "ended", "{run}");
    let log = ada.logged(&good, "ada /home/ada/tests").await?;
    ensure!(log.contains("ada /home/ada/tests ['0', 'a b; $(id)']"), "{log}");
    let run = ada.over(&bad).await?;
    assert_eq!((&run["state"], &run["reason"]["code"]), (&json!("failed"), &json!("program_failed")), "{run}");
    ensure!(run["reason"]["text"].as_str().is_some_and(|text| text.contains("status 3")), "{run}");
    let run = ada.over(&gone).await?;
    assert_eq!(run["state"], "failed");
    ensure!(
        run["reason"]["text"].as_str().is_some_and(|text| text.contains("there is no file `tests/gone.py`")),
        "{run}"
    );

    // What the image has not is named, and not only by a status.
    put("ada", "tests/strange", "#!/opt/none/python3\nprint(1)\n").await?;
    exec("c1", "ada", &["chmod", "755", "/home/ada/tests/strange"]).await?;
    let strange = ada.over(&ada.start_run("tests/strange", &json!({})).await?).await?;
    assert_eq!(
        (&strange["state"], &strange["reason"]["code"]),
        (&json!("failed"), &json!("agent_failed")),
        "{strange}"
    );
    let text = strange["reason"]["text"].as_str().unwrap_or_default();
    ensure!(text.contains("`/home/ada/tests/strange` could not be started: it, or the interpreter"), "{text}");

    // A run has no app, and nobody else's it is.
    let (status, _) = ada.call(Method::GET, &format!("sessions/{good}"), None).await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    for path in [format!("runs/{good}"), format!("runs/{good}/logs")] {
        assert_eq!(grace.call(Method::GET, &path, None).await?.0, StatusCode::NOT_FOUND, "{path}");
    }
    for (method, path) in [(Method::DELETE, format!("runs/{good}")), (Method::POST, format!("runs/{good}/requeue"))] {
        assert_eq!(grace.call(method, &path, None).await?.0, StatusCode::NOT_FOUND, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn a_run_on_two_nodes_starts_ranks_on_both() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let rank = r#"echo "rank $SLURM_PROCID of $SLURM_NTASKS on $(hostname)""#;
    let script = format!("{ASKER}\nlast, text = step(4, 'sh', '-c', {rank:?})\nprint(last, text, flush=True)\n");
    put("ada", "tests/ranks.py", &script).await?;
    let id = ada.start_run("tests/ranks.py", &json!({"nodes": 2, "cpus": 2})).await?;
    let run = ada.over(&id).await?;
    assert_eq!((&run["state"], &run["nodes"]), (&json!("ended"), &json!(["c1", "c2"])), "{run}");
    let log = ada.logged(&id, "'status'").await?;
    ensure!(log.contains("{'kind': 'ended', 'status': 0}"), "{log}");
    for (rank, node) in [(0, "c1"), (1, "c1"), (2, "c2"), (3, "c2")] {
        ensure!(log.contains(&format!("rank {rank} of 4 on {node}\n")), "{log}");
    }
    Ok(())
}

/// A notebook with these cells.
fn notebook(sources: &[&str]) -> String {
    let cell = |(number, source)| json!({"cell_type": "code", "id": format!("c{number}"), "metadata": {}, "source": source, "outputs": [], "execution_count": null});
    let cells: Vec<Value> = sources.iter().enumerate().map(cell).collect();
    json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).to_string()
}

#[tokio::test]
async fn a_notebook_is_executed_and_left_with_its_outputs() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    put("ada", "tests/run.ipynb", &notebook(&["print('the', 6 * 7)", "1 / 0", "print('never')"])).await?;
    let id = ada.start_run("tests/run.ipynb", &json!({})).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    let log = ada.logged(&id, "failed").await?;
    ensure!(log.contains("the 42") && log.contains("ZeroDivisionError") && log.contains("cell 2 of 3 failed"), "{log}");
    ensure!(!log.contains("never"), "{log}");
    let executed = run["executed_notebook"].as_str().unwrap_or_default().to_owned();
    let left: Value = serde_json::from_str(&exec("c1", "ada", &["cat", &format!("/home/ada/{executed}")]).await?)?;
    assert_eq!(left["cells"][0]["outputs"][0]["text"], json!(["the 42\n"]));
    assert_eq!(left["cells"][1]["outputs"][0]["ename"], "ZeroDivisionError");
    Ok(())
}

#[tokio::test]
async fn a_notebook_that_is_cancelled_or_loses_its_kernel_says_so_and_goes_no_further() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    // An interrupt that a cell swallows ends the notebook all the same.
    let stubborn = "try:\n    import time\n    print('it', 'waits', flush=True)\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('swallowed')";
    put("ada", "tests/stubborn.ipynb", &notebook(&[stubborn, "print('ne' + 'ver')"])).await?;
    let id = ada.start_run("tests/stubborn.ipynb", &json!({})).await?;
    ada.logged(&id, "it waits").await?;
    assert_eq!(ada.call(Method::DELETE, &format!("runs/{id}"), None).await?.0, StatusCode::ACCEPTED);
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "ended", "{run}");
    let log = ada.logged(&id, "cell 1 of 2 was ended by SIGTERM").await?;
    ensure!(log.contains("swallowed") && !log.contains("never") && !log.contains("Traceback"), "{log}");

    put("ada", "tests/killed.ipynb", &notebook(&["import os\nos.kill(os.getpid(), 9)", "print('ne' + 'ver')"])).await?;
    let id = ada.start_run("tests/killed.ipynb", &json!({})).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    let log = ada.logged(&id, "cell 1 of 2 lost its kernel").await?;
    ensure!(!log.contains("never"), "{log}");
    Ok(())
}

#[tokio::test]
async fn the_examples_run_on_two_nodes_as_they_are() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    // One of them, another for another `EIRENE_TEST_SEED`; all with `EIRENE_TEST_DEEP=1`. A browser runs the first one of all.
    for example in sample(&["ddp-digits", "fsdp2", "tensor-parallel", "pipeline-1f1b"], 1) {
        let text = std::fs::read_to_string(root().join(format!("training/examples/{example}.ipynb")))?;
        put("ada", &format!("tests/{example}.ipynb"), &text).await?;
        let wanted = json!({"image": "pytorch", "nodes": 2, "cpus": 2, "memory_mib": 3000});
        let id = ada.start_run(&format!("tests/{example}.ipynb"), &wanted).await?;
        let run = ada.over(&id).await?;
        let log = ada.run_log(&id, "").await?;
        ensure!(run["state"] == "ended", "{example}: {run} {log}");
        for node in ["c1", "c2"] {
            ensure!(log.matches(&format!(" on {node}\n")).count() == 2, "{example}: two ranks on {node}: {log}");
        }
        // The last cell asserts what was learned, and then says it.
        let executed = run["executed_notebook"].as_str().context("executed")?;
        let text = exec("c1", "ada", &["cat", &format!("/home/ada/{executed}")]).await?;
        ensure!(text.contains("by PMIx, for the image's Open MPI"), "{example}: {text}");
        let left: Value = serde_json::from_str(&text)?;
        let mut codes = left["cells"].as_array().context("cells")?.iter().filter(|cell| cell["cell_type"] == "code");
        let last = codes.next_back().context("a cell")?["outputs"][0]["text"].to_string();
        ensure!(last.contains("loss ") && last.contains(" -> "), "{example}: {last}");
    }
    Ok(())
}

#[tokio::test]
async fn a_run_is_cancelled_and_another_takes_its_place_only_then() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    // Whoever runs beside another one of these would see its mark.
    let script = r#"
import os, signal, sys, time
def end(*_):
    # SLURM and the container's first program may both say it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
mark = os.open("mark", os.O_CREAT | os.O_EXCL)
try:
    print("nobody", "else", flush=True)
    time.sleep(1000)
finally:
    os.unlink("mark")
"#;
    put("ada", "tests/alone.py", script).await?;
    exec("c1", "ada", &["rm", "-f", "/home/ada/tests/mark"]).await?;
    let first = ada.start_run("tests/alone.py", &json!({})).await?;
    ada.logged(&first, "nobody else").await?;
    let (status, second) = ada.call(Method::POST, &format!("runs/{first}/requeue"), None).await?;
    assert_eq!(status, StatusCode::CREATED, "{second}");
    let second = second["id"].as_str().unwrap_or_default().to_owned();
    ensure!(second != first, "a new run");
    ada.over(&first).await?;
    ada.logged(&second, "nobody else").await?;
    assert_eq!(ada.call(Method::DELETE, &format!("runs/{second}"), None).await?.0, StatusCode::ACCEPTED);
    let run = ada.over(&second).await?;
    assert_eq!(run["state"], "ended", "{run}");
    until("nothing is left", NOTICE, || async {
        let left =
            exec("c1", "root", &["sh", "-c", "ps -o args= -u ada; ls -A /tmp/eirene-2001 2>/dev/null || :"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_run_that_slurm_puts_back_into_the_queue_starts_again() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let script = "import os, time\nfirst = not os.path.exists('again')\nopen('again', 'w').close()\nprint('first' if first else 'second', flush=True)\ntime.sleep(1000 if first else 0)\n";
    put("ada", "tests/again.py", script).await?;
    exec("c1", "ada", &["rm", "-f", "/home/ada/tests/again"]).await?;
    let id = ada.start_run("tests/again.py", &json!({})).await?;
    ada.logged(&id, "first").await?;
    let job = job_id(&ada.run(&id).await?)?;
    exec("head", "root", &["scontrol", "requeue", &job]).await?;
    begin_now(&job).await?;
    let run = ada.over(&id).await?;
    assert_eq!((&run["state"], &run["restart_count"]), (&json!("ended"), &json!(1)), "{run}");
    ada.logged(&id, "second").await.map(drop)
}

#[tokio::test]
async fn accounting_says_how_each_run_ended() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let script = r#"
import os, signal, sys, time
what = sys.argv[1]
again = what + "-again"
if what == "status":
    sys.exit(3)
if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "requeued" and os.path.exists(again):
    sys.exit()
held = bytearray(b"x") * (900 << 20) if what == "memory" else None
if what != "good":
    open(again, "w").close()
    print("runs", flush=True)
    time.sleep(1000)
"#;
    put("ada", "tests/ends.py", script).await?;
    exec("c1", "ada", &["sh", "-c", "rm -f /home/ada/tests/*-again"]).await?;
    let small =
        |what: &str, minutes: u32| json!({"cpus": 1, "memory_mib": 512, "walltime_min": minutes, "arguments": [what]});
    let mut all = Vec::new();
    for (what, state, expected) in [
        ("good", "ended", &["COMPLETED|0:0"][..]),
        ("status", "failed", &["FAILED|3:0"]),
        // 128 and the signal's number, of which SLURM shows the signal.
        ("killed", "failed", &["FAILED|9:0"]),
        // By `OverMemoryKill`, as here, where nothing is confined; with control groups SLURM says OUT_OF_MEMORY.
        ("memory", "failed", &["FAILED|0:9"]),
        ("stopped", "ended", &["CANCELLED|0:0"]),
        ("cancelled", "ended", &["CANCELLED|0:0"]),
        ("limit", "failed", &["TIMEOUT|0:0"]),
        ("requeued", "ended", &["REQUEUED|0:0", "COMPLETED|0:0"]),
    ] {
        let id = ada.start_run("tests/ends.py", &small(what, if what == "limit" { 1 } else { 10 })).await?;
        let run = if ["stopped", "cancelled", "requeued"].contains(&what) {
            ada.logged(&id, "runs").await?;
            ada.run(&id).await?
        } else {
            ada.wait_run(&id, "a job", |run| run["slurm_job_id"].is_number()).await?
        };
        let job = job_id(&run)?;
        match what {
            "stopped" => drop(ada.call(Method::DELETE, &format!("runs/{id}"), None).await?),
            "cancelled" => drop(exec("portal", "ada", &["scancel", &job]).await?),
            "requeued" => {
                exec("head", "root", &["scontrol", "requeue", &job]).await?;
                begin_now(&job).await?;
            }
            _ => {}
        }
        all.push((what, id, job, state, expected));
    }
    for (what, id, job, state, expected) in all {
        let run = ada.over(&id).await?;
        assert_eq!(run["state"], state, "{what}: {run}");
        is_accounted(&job, expected).await.context(what)?;
    }
    // A session ends well by its owner's wish.
    let session = ada.running(&json!({"cpus": 1, "memory_mib": 1024})).await?;
    ada.stop(session["id"].as_str().context("id")?).await?;
    is_accounted(&job_id(&session)?, &["COMPLETED|0:0"]).await
}
