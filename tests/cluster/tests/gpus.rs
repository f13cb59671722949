//! What is told of a session's GPUs, from a driver's library to the API and to alerts: on the real cluster, with a double of that library on its
//! nodes. It says that a node has eight GPUs, of which SLURM gives the session one, or the first two.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::exec;
use eirene_cluster_tests::driver::Driver;
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, RUN};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// A GPU; of which number is seen in all its figures.
fn gpu(number: u64) -> Value {
    json!({
        "uuid": format!("GPU-{number:08x}-0000"), "name": "NVIDIA A100", "util": [40 + number, 5], "memory": [80 * GIB, (10 + number) * GIB],
        "power": 300_000, "temperature": 60 + number, "ecc": [4, 0], "reasons": 1,
    })
}

/// Eight of them, of which the second is divided.
fn node() -> Value {
    let mut all: Vec<Value> = (0..8).map(gpu).collect();
    all[1]["parts"] = json!([
        {"uuid": "MIG-a", "name": "A100 MIG 3g.40gb", "memory": [40 * GIB, GIB], "processes": []},
        {"uuid": "MIG-b", "name": "A100 MIG 3g.40gb", "memory": [40 * GIB, 2 * GIB]},
    ]);
    json!({"gpus": all})
}

/// The lines of a session's chart of one group.
async fn lines(ada: &Person, id: &str, group: &str) -> anyhow::Result<Vec<Value>> {
    let (status, chart) =
        ada.call(Method::GET, &format!("sessions/{id}/samples?group={group}&points=2000"), None).await?;
    ensure!(status == StatusCode::OK, "{status} {chart}");
    Ok(chart["lines"].as_array().context("lines")?.clone())
}

/// The line of a metric and a device that begins like this.
fn line<'a>(lines: &'a [Value], metric: &str, device: &str) -> Option<&'a Value> {
    let is_of = |line: &&Value| line["device"].as_str().is_some_and(|name| name.starts_with(device));
    lines.iter().filter(|line| line["metric"] == metric).find(is_of)
}

fn last(line: &Value) -> Option<f64> {
    line["values"].as_array()?.iter().rev().find_map(Value::as_f64)
}

/// Waits until the last value of a metric of a GPU is this one, to three digits.
async fn becomes(ada: &Person, id: &str, metric: &str, gpu: &str, wanted: f64) -> anyhow::Result<()> {
    until(&format!("{metric} of GPU {gpu} is {wanted}"), NOTICE, || async {
        let all = lines(ada, id, "gpu").await?;
        let value = line(&all, metric, gpu).and_then(last);
        Ok(value.filter(|value| (value - wanted).abs() <= 0.001 * wanted.max(1.0)).map(drop))
    })
    .await
}

/// Waits until ada is told of this about a GPU of her session.
async fn is_told(ada: &Person, id: &str, rule: &str, gpu: &str) -> anyhow::Result<Value> {
    let subject = format!("{id}/c1/{gpu}");
    until(&format!("{rule} about {subject}"), RUN, || async {
        let (status, list) = ada.call(Method::GET, "alerts?open=true", None).await?;
        ensure!(status == StatusCode::OK, "{status} {list}");
        let about = |alert: &&Value| alert["rule"] == rule && alert["subject"] == subject.as_str();
        Ok(list["items"].as_array().into_iter().flatten().find(about).cloned())
    })
    .await
}

#[tokio::test]
async fn a_session_s_gpus_are_told_with_its_processes_and_what_becomes_of_them() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    let mut state = node();
    let driver = Driver::install("c1", &state).await?;
    // Only c1 has such GPUs.
    let session = ada.running(&json!({"gpus": 2, "gpu_type": "a100"})).await?;
    let id = session["id"].as_str().context("id")?;
    assert_eq!(session["nodes"], json!(["c1"]));

    becomes(&ada, id, "gpu_util", "0", 0.4).await?;
    let all = lines(&ada, id, "gpu").await?;
    let mut known: Vec<&str> =
        all.iter().filter(|line| line["metric"] == "gpu_up").filter_map(|line| line["device"].as_str()).collect();
    known.sort_unstable();
    assert_eq!(
        known,
        ["0", "1.0", "1.1"],
        "those that SLURM gave it, the divided one by its parts, and none of the other six"
    );
    ensure!(all.iter().all(|line| line["node"] == "c1" && line["of"] == "job"), "{all:?}");
    let is = |metric: &str, gpu: &str| line(&all, metric, gpu).and_then(last).map(|value| value.to_string());
    for (metric, gpu, value) in [
        ("gpu_memory_bytes", "0", 10 * GIB),
        ("gpu_memory_limit_bytes", "0", 80 * GIB),
        ("gpu_power_watts", "0", 300),
        ("gpu_temperature_celsius", "0", 60),
        ("gpu_throttled", "0", 0),
        ("gpu_memory_bytes", "1.0", GIB),
        ("gpu_memory_bytes", "1.1", 2 * GIB),
        ("gpu_memory_limit_bytes", "1.1", 40 * GIB),
        ("gpu_processes", "1.0", 0),
        ("gpu_temperature_celsius", "1", 61),
    ] {
        assert_eq!(is(metric, gpu), Some(value.to_string()), "{metric} of {gpu}");
    }
    assert_eq!(is("gpu_util", "1."), None, "such a GPU does not tell it of a part");
    assert_eq!(is("gpu_processes", "1.1"), None, "what the driver does not tell is missing, and not 0");

    // Its own programs are told by name, those of others are not: init is root's.
    Kernel::start(&ada, &session).await?;
    let found = exec("c1", "root", &["pgrep", "-u", "ada", "-f", "eirene_kernel"]).await?;
    let kernel: u32 = found.lines().next().context("the kernel on the node")?.trim().parse()?;
    state["gpus"][0]["processes"] = json!([[kernel, 3 * GIB], [1, GIB]]);
    state["gpus"][0]["samples"] = json!([[kernel, 10, 80], [1, 11, 100]]);
    driver.says(&state).await?;
    becomes(&ada, id, "gpu_processes", "0", 1.0).await?;
    let name = format!("{kernel}:");
    let (util, held) = until("its kernel is told", NOTICE, || async {
        let all = lines(&ada, id, "processes").await?;
        let most = |metric| line(&all, metric, &name).and_then(|line| line["highest"].as_f64());
        Ok(most("gpu_util_process").zip(most("gpu_memory_process_bytes")).filter(|(util, _)| *util > 0.0))
    })
    .await?;
    assert_eq!((util.to_string(), held.to_string()), ("0.8".to_owned(), (3 * GIB).to_string()));
    let processes = lines(&ada, id, "processes").await?;
    ensure!(line(&processes, "gpu_memory_process_bytes", "1:").is_none(), "{processes:?}");

    // A newer one would: each part by its GPU instance.
    state["gpus"][1]["gpm"] = json!(true);
    for (part, busy) in [(0_usize, [62.5, 25.0]), (1, [0.0, 0.0])] {
        state["gpus"][1]["parts"][part]["instance"] = json!(part + 1);
        state["gpus"][1]["parts"][part]["busy"] = json!(busy);
    }
    driver.says(&state).await?;
    becomes(&ada, id, "gpu_util", "1.0", 0.625).await?;
    becomes(&ada, id, "gpu_memory_util", "1.0", 0.25).await?;
    becomes(&ada, id, "gpu_util", "1.1", 0.0).await?;

    // Memory errors: what was before it began is none of it.
    state["gpus"][0]["ecc"] = json!([7, 2]);
    driver.says(&state).await?;
    until("errors are counted", NOTICE, || async {
        let all = lines(&ada, id, "gpu").await?;
        let total = |metric| line(&all, metric, "0").and_then(|line| line["total"].as_f64());
        let both = (total("gpu_ecc_corrected"), total("gpu_ecc_uncorrected"));
        Ok((both == (Some(3.0), Some(2.0))).then_some(()))
    })
    .await?;
    let errors = is_told(&ada, id, "gpu_memory_errors", "0").await?;
    let text = errors["text"].as_str().context("text")?;
    ensure!(text.starts_with("GPU 0 on c1 has had 2 memory errors"), "{text}");

    // One falls off the bus, and then the divided one.
    state["gpus"][0]["lost"] = json!(true);
    driver.says(&state).await?;
    becomes(&ada, id, "gpu_up", "0", 0.0).await?;
    let lost = is_told(&ada, id, "gpu_lost", "0").await?;
    assert_eq!(lost["severity"], "critical");
    assert_eq!(lost["text"], "GPU 0 on c1 does not answer any more. Save what you can, and start again.");
    let path = format!("alerts/{}", lost["id"].as_str().context("id")?);
    assert_eq!(grace.call(Method::GET, &path, None).await?.0, StatusCode::NOT_FOUND, "it is ada's");
    let all = lines(&ada, id, "gpu").await?;
    assert_eq!(line(&all, "gpu_up", "1.0").and_then(last), Some(1.0), "the others go on");
    state["gpus"][1]["lost"] = json!(true);
    driver.says(&state).await?;
    for part in ["1.0", "1.1"] {
        becomes(&ada, id, "gpu_up", part, 0.0).await?;
        is_told(&ada, id, "gpu_lost", part).await?;
    }
    assert_eq!(ada.session(id).await?["state"], "running", "a GPU that is lost ends nobody's session");
    ada.stop(id).await?;
    Ok(())
}

/// Eight of them that are all as busy: by this one knows of which node they are.
fn eight(util: u64) -> Value {
    let mut all: Vec<Value> = (0..8).map(gpu).collect();
    for one in &mut all {
        one["util"] = json!([util, 5]);
    }
    json!({"gpus": all})
}

#[tokio::test]
async fn the_gpus_of_every_node_are_told_and_on_each_the_session_s_own_alone() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let _drivers = (Driver::install("c1", &eight(30)).await?, Driver::install("c2", &eight(70)).await?);
    let session = ada.running(&json!({"nodes": 2, "gpus": 1})).await?;
    let id = session["id"].as_str().context("id")?;
    assert_eq!(session["nodes"], json!(["c1", "c2"]));
    for (node, util) in [("c1", 0.3), ("c2", 0.7)] {
        let told = until(&format!("the GPU of {node} is told"), NOTICE, || async {
            let mut all = lines(&ada, id, "gpu").await?;
            all.retain(|line| line["node"] == node);
            let is_known = |metric| line(&all, metric, "").and_then(last).is_some();
            Ok((is_known("gpu_up") && is_known("gpu_util")).then_some(all))
        })
        .await?;
        let known = told.iter().filter(|line| line["metric"] == "gpu_up").count();
        assert_eq!(known, 1, "SLURM gave the session one of the eight on {node}: {told:?}");
        let figure = |metric| line(&told, metric, "").and_then(last);
        assert_eq!(figure("gpu_up"), Some(1.0), "{told:?}");
        ensure!(figure("gpu_util").is_some_and(|value| (value - util).abs() < 0.001), "{node} tells {util}: {told:?}");
    }
    ada.stop(id).await?;
    Ok(())
}

#[tokio::test]
async fn where_there_is_no_driver_no_gpu_is_told_and_nothing_is_said_to_be_wrong() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session = ada.running(&json!({"gpus": 1, "gpu_type": "h100"})).await?;
    let id = session["id"].as_str().context("id")?;
    let beside = exec("c2", "root", &["pgrep", "-u", "ada", "-x", "eirene-gpu"]).await?;
    assert_eq!(beside.lines().count(), 1, "it runs beside the agent: {beside}");
    until("there are samples", NOTICE, || async { Ok((!lines(&ada, id, "memory").await?.is_empty()).then_some(())) })
        .await?;
    assert_eq!(lines(&ada, id, "gpu").await?, Vec::<Value>::new());
    ada.stop(id).await?;
    until("it ends with its agent", NOTICE, || async {
        let left = exec("c2", "root", &["sh", "-c", "pgrep -u ada -x eirene-gpu || :"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    })
    .await
}
