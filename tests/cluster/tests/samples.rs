//! What is sampled of a job, against what the job itself reads of the kernel.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{exec, exec_with_input};
use eirene_cluster_tests::portal::{NOTICE, Person};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Computes on one core, holds memory, writes, reports; and says what the kernel counted of it. It rests at both ends, so that all of it lies
/// between two samples.
const SCRIPT: &str = r#"
import json, os, socket, time
def count(path, key):
    with open(path) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key))
def cpu():
    times = os.times()
    return times.user + times.system
time.sleep(7)
before, written = cpu(), count("/proc/self/io", "write_bytes:")
held = os.urandom(1 << 20) * 300
with open("samples.bin", "wb") as out:
    for _ in range(64):
        out.write(os.urandom(1 << 20))
    out.flush()
    os.fsync(out.fileno())
teller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
end, step = time.monotonic() + 30, 0
while time.monotonic() < end:
    sum(range(2_000_000))
    step += 1
    teller.sendto(json.dumps({"step": step, "loss": 1 / step}).encode(), os.environ["EIRENE_REPORT_SOCKET"])
spent, rss = cpu() - before, count("/proc/self/status", "VmRSS:") * 1024
written = count("/proc/self/io", "write_bytes:") - written
time.sleep(7)
os.unlink("samples.bin")
print("kernel says", json.dumps({"cpu": spent, "rss": rss, "written": written, "step": step, "pid": os.getpid()}), flush=True)
"#;

/// The lines of a run's chart.
async fn lines(ada: &Person, id: &str, query: &str) -> anyhow::Result<Vec<Value>> {
    let (status, chart) = ada.call(Method::GET, &format!("runs/{id}/samples{query}"), None).await?;
    ensure!(status == StatusCode::OK, "{status} {chart}");
    Ok(chart["lines"].as_array().context("lines")?.clone())
}

fn number(line: &Value, what: &str) -> anyhow::Result<f64> {
    line[what].as_f64().with_context(|| format!("no {what}: {line}"))
}

fn one<'a>(lines: &'a [Value], metric: &str, node: &str) -> anyhow::Result<&'a Value> {
    let of = |line: &&Value| line["metric"] == metric && line["node"] == node && line["device"].is_null();
    lines.iter().find(of).with_context(|| format!("no {metric} of {node}"))
}

#[tokio::test]
async fn a_job_s_samples_are_what_the_kernel_says_of_it() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    let path = "/home/ada/tests/samples.py";
    exec_with_input("c1", "ada", &["sh", "-c", "mkdir -p \"$(dirname \"$0\")\" && cat > \"$0\"", path], SCRIPT).await?;
    let id = ada.start_run("tests/samples.py", &json!({"nodes": 2})).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "ended", "{run}");
    let log = ada.logged(&id, "kernel says").await?;
    let said = log.lines().find_map(|line| line.split_once("kernel says ")).context("the script's own figures")?.1;
    let said: Value = serde_json::from_str(said)?;

    let all = lines(&ada, &id, "?points=2000").await?;
    let nodes: Vec<&str> = run["nodes"].as_array().context("nodes")?.iter().filter_map(Value::as_str).collect();
    let [first, second] = nodes[..] else { anyhow::bail!("two nodes: {run}") };
    let near = |seen: f64, said: f64| (seen / said - 1.0).abs() <= 0.05;

    let cpu = number(one(&all, "cpu_seconds", first)?, "total")?;
    ensure!(near(cpu, number(&said, "cpu")?), "{cpu} s of {said}");
    let idle = number(one(&all, "cpu_seconds", second)?, "total")?;
    ensure!(idle < 0.05 * cpu, "{idle} s where nothing runs");
    let written = number(one(&all, "io_written_bytes", first)?, "total")?;
    ensure!(near(written, number(&said, "written")?), "{written} bytes of {said}");
    let steps = all.iter().find(|line| line["metric"] == "report" && line["device"] == "step").context("reports")?;
    ensure!(near(number(steps, "highest")?, number(&said, "step")?), "{steps} of {said}");

    let processes = lines(&ada, &id, "?group=processes&points=2000").await?;
    let largest = processes.iter().filter(|line| line["metric"] == "memory_process_bytes" && line["node"] == first);
    let rss = largest.filter_map(|line| line["highest"].as_f64()).fold(0.0, f64::max);
    ensure!(near(rss, number(&said, "rss")?), "{rss} bytes of {said}");
    let memory = number(one(&all, "memory_bytes", first)?, "highest")?;
    ensure!(memory >= 0.95 * rss, "{memory} bytes of the job, {rss} of its process");
    let limit = number(one(&all, "memory_limit_bytes", first)?, "highest")?;
    assert_eq!(limit.to_string(), (1024 * 1024 * run["resources"]["memory_mib"].as_u64().context("MiB")?).to_string());

    let (status, usage) = ada.call(Method::GET, &format!("runs/{id}/efficiency"), None).await?;
    ensure!(status == StatusCode::OK, "{status} {usage}");
    let sum = |name: &str| usage.pointer(name).and_then(Value::as_f64).with_context(|| format!("{name}: {usage}"));
    let cpus = run["resources"]["cpus"].as_f64().context("cpus")?;
    ensure!(near(sum("/cpu_s/used")?, number(&said, "cpu")? + idle), "{usage} of {said}");
    assert_eq!(sum("/cpu_s/held")?.to_string(), (2.0 * cpus * sum("/wall_s")?).to_string(), "{usage}");

    for what in ["samples", "efficiency"] {
        let (status, _) = grace.call(Method::GET, &format!("runs/{id}/{what}"), None).await?;
        assert_eq!(status, StatusCode::NOT_FOUND, "{what}");
    }
    Ok(())
}

/// Takes memory in two leaps and then 5 MiB a second, and touches it: between two samples it grows by less than a tenth of what it may have.
/// It never holds a second copy, which SLURM might see.
const GREEDY: &str = r#"
import time
held = []
for leap in (150, 200):
    held.append(b"x" * (leap << 20))
    time.sleep(11)
while True:
    held.append(b"x" * (5 << 20))
    time.sleep(1)
"#;

#[tokio::test]
async fn a_memory_kill_is_called_one_and_its_chart_shows_what_led_there() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let path = "/home/ada/tests/greedy.py";
    exec_with_input("c1", "ada", &["sh", "-c", "mkdir -p \"$(dirname \"$0\")\" && cat > \"$0\"", path], GREEDY).await?;
    let id = ada.start_run("tests/greedy.py", &json!({"memory_mib": 512, "preflight": false})).await?;
    let run = ada.over(&id).await?;
    assert_eq!((&run["state"], &run["reason"]["code"]), (&json!("failed"), &json!("out_of_memory")), "{run}");
    let all = lines(&ada, &id, "?group=memory&points=2000").await?;
    let node = run["nodes"][0].as_str().context("node")?;
    let (memory, limit) = (one(&all, "memory_bytes", node)?, one(&all, "memory_limit_bytes", node)?);
    let limit = number(limit, "highest")?;
    assert_eq!(limit.to_string(), (512 << 20).to_string());
    ensure!(number(memory, "highest")? > 0.95 * limit, "{memory}");
    let values: Vec<f64> = memory["values"].as_array().context("values")?.iter().filter_map(Value::as_f64).collect();
    let rising = values.windows(2).filter(|two| two[1] > two[0]).count();
    ensure!(rising >= 4 && values.first().is_some_and(|first| *first < 0.6 * limit), "{values:?}");
    Ok(())
}

#[tokio::test]
async fn a_session_s_chart_grows_while_it_runs_and_outlives_the_portal() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session = ada.running(&json!({})).await?;
    let id = session["id"].as_str().context("id")?;
    let spans = || async {
        let (status, chart) = ada.call(Method::GET, &format!("sessions/{id}/samples?group=memory"), None).await?;
        ensure!(status == StatusCode::OK, "{status} {chart}");
        let lines = chart["lines"].as_array().cloned().unwrap_or_default();
        let memory = lines.iter().find(|line| line["metric"] == "memory_bytes");
        let values = memory.and_then(|line| line["values"].as_array().cloned()).unwrap_or_default();
        anyhow::Ok(values.iter().filter(|value| !value.is_null()).count())
    };
    until("three samples", NOTICE, || async { Ok(spans().await?.ge(&3).then_some(())) }).await?;
    let before = spans().await?;
    exec("portal", "root", &["pkill", "-KILL", "-x", "eirened"]).await?;
    // While it is away there is no answer.
    until("they are there, and more", NOTICE, || async { Ok((spans().await.unwrap_or(0) > before + 2).then_some(())) })
        .await?;
    ada.stop_all().await
}
