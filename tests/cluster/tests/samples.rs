//! What is sampled of a job, against what the job itself reads of the kernel.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{exec, exec_with_input};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, RUN};
use eirene_cluster_tests::until;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Computes on one core, holds memory, writes, reads, reports; and says what the kernel counted of it. It rests at both ends, so that all of it
/// lies between two samples. Before it reads what it has written, that is taken out of the page cache: only storage is counted.
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
    os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
now = lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
begun, read = now(), count("/proc/self/io", "read_bytes:")
with open("samples.bin", "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
read, done = count("/proc/self/io", "read_bytes:") - read, now()
teller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
end, step = cpu() + 25, 0
while cpu() < end:
    sum(range(2_000_000))
    step += 1
    teller.sendto(json.dumps({"step": step, "loss": 1 / step}).encode(), os.environ["EIRENE_REPORT_SOCKET"])
spent, rss = cpu() - before, count("/proc/self/status", "VmRSS:") * 1024
written = count("/proc/self/io", "write_bytes:") - written
time.sleep(7)
os.unlink("samples.bin")
print("kernel says", json.dumps({"cpu": spent, "rss": rss, "written": written, "read": read, "begun": begun, "done": done, "step": step}), flush=True)
"#;

/// So much of it, at least, is read from storage, bytes.
const READ: u32 = 60 << 20;
/// The agent, its srun and what else of ours is on the first node alone takes no more than this, bytes.
const OURS: u32 = 100 << 20;

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
    for node in [first, second] {
        let watching = number(one(&all, "probe_cpu_seconds", node)?, "total")?;
        ensure!(watching > 0.0 && watching < 0.1 * cpu, "{watching} s to watch {node}, and {cpu} s were watched");
    }
    let written = number(one(&all, "io_written_bytes", first)?, "total")?;
    ensure!(near(written, number(&said, "written")?), "{written} bytes of {said}");
    let by_mount = all.iter().filter(|line| line["metric"] == "io_read_bytes" && !line["device"].is_null()).count();
    assert_eq!(by_mount, 0, "nothing counts a job's bytes by mount where it has no control group");
    let read = number(&said, "read")?;
    ensure!(read >= f64::from(READ), "it was read from storage: {said}");
    let (begun, done) = (said["begun"].as_str().context("begun")?, said["done"].as_str().context("done")?);
    // Reading an image and its libraries counts, too: those lie before. What was read last is counted by the sample after it.
    let later = done.parse::<jiff::Timestamp>()? + jiff::SignedDuration::from_secs(5);
    let meanwhile = lines(&ada, &id, &format!("?group=io&points=2000&from={begun}&to={later}")).await?;
    let seen = number(one(&meanwhile, "io_read_bytes", first)?, "total")?;
    ensure!(near(seen, read), "{seen} bytes of {said}");
    ensure!(number(one(&all, "io_read_bytes", first)?, "total")? >= 0.95 * read, "all of it is in the whole");
    let steps = all.iter().find(|line| line["metric"] == "report" && line["device"] == "step").context("reports")?;
    ensure!(near(number(steps, "highest")?, number(&said, "step")?), "{steps} of {said}");

    let processes = lines(&ada, &id, "?group=processes&points=2000").await?;
    let largest = processes.iter().filter(|line| line["metric"] == "memory_process_bytes" && line["node"] == first);
    let rss = largest.filter_map(|line| line["highest"].as_f64()).fold(0.0, f64::max);
    ensure!(near(rss, number(&said, "rss")?), "{rss} bytes of {said}");
    let memory = number(one(&all, "memory_bytes", first)?, "highest")?;
    ensure!(memory >= 0.95 * rss, "{memory} bytes of the job, {rss} of its process");
    // The other node has the same programs of ours but for the agent and what it starts.
    let beside = number(one(&all, "memory_bytes", second)?, "highest")?;
    let most = 1.05 * rss + beside + f64::from(OURS);
    ensure!(memory <= most, "{memory} bytes of the job, {rss} of its process, {beside} where nothing runs");
    let limit = number(one(&all, "memory_limit_bytes", first)?, "highest")?;
    assert_eq!(limit.to_string(), (1024 * 1024 * run["resources"]["memory_mib"].as_u64().context("MiB")?).to_string());

    let (status, usage) = ada.call(Method::GET, &format!("runs/{id}/efficiency"), None).await?;
    ensure!(status == StatusCode::OK, "{status} {usage}");
    let sum = |name: &str| usage.pointer(name).and_then(Value::as_f64).with_context(|| format!("{name}: {usage}"));
    let cpus = run["resources"]["cpus"].as_f64().context("cpus")?;
    ensure!(near(sum("/cpu_s/used")?, number(&said, "cpu")? + idle), "{usage} of {said}");
    assert_eq!(sum("/cpu_s/held")?.to_string(), (2.0 * cpus * sum("/wall_s")?).to_string(), "{usage}");
    let mib = f64::from(1024 * 1024);
    ensure!(near(sum("/memory_mib/used")?, (memory + beside) / mib), "{usage} of {memory} and {beside} bytes");
    assert_eq!(sum("/memory_mib/held")?.to_string(), (2.0 * limit / mib).to_string(), "{usage}");

    for what in ["samples", "efficiency"] {
        let (status, _) = grace.call(Method::GET, &format!("runs/{id}/{what}"), None).await?;
        assert_eq!(status, StatusCode::NOT_FOUND, "{what}");
    }
    Ok(())
}

/// Takes memory in two leaps and then some each second, MiB, and touches it: between two samples it grows by less than a tenth of what it may have.
/// It never holds a second copy, which SLURM might see.
fn greedy(leaps: [u32; 2], each_second: u32) -> String {
    const GREEDY: &str = r#"
import time
held = []
for leap in LEAPS:
    held.append(b"x" * (leap << 20))
    time.sleep(11)
while True:
    held.append(b"x" * (EACH_SECOND << 20))
    time.sleep(1)
"#;
    GREEDY.replace("LEAPS", &format!("{leaps:?}")).replace("EACH_SECOND", &each_second.to_string())
}

/// Sees to it that lines of memory show how a node came to `limit` bytes, all that it had; gives the values of its spans.
fn show_what_led_there(all: &[Value], node: &str, limit: u32) -> anyhow::Result<Vec<Option<f64>>> {
    let (memory, most) = (one(all, "memory_bytes", node)?, one(all, "memory_limit_bytes", node)?);
    assert_eq!(number(most, "highest")?.to_string(), limit.to_string());
    let limit = f64::from(limit);
    ensure!(number(memory, "highest")? > 0.95 * limit, "{memory}");
    let all: Vec<Option<f64>> = memory["values"].as_array().context("values")?.iter().map(Value::as_f64).collect();
    let values: Vec<f64> = all.iter().copied().flatten().collect();
    let rising = values.windows(2).filter(|two| two[1] > two[0]).count();
    ensure!(rising >= 4 && values.first().is_some_and(|first| *first < 0.6 * limit), "{values:?}");
    Ok(all)
}

#[tokio::test]
async fn a_memory_kill_is_called_one_and_its_chart_shows_what_led_there() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let path = "/home/ada/tests/greedy.py";
    let script = greedy([150, 200], 5);
    exec_with_input("c1", "ada", &["sh", "-c", "mkdir -p \"$(dirname \"$0\")\" && cat > \"$0\"", path], &script)
        .await?;
    let id = ada.start_run("tests/greedy.py", &json!({"memory_mib": 512, "preflight": false})).await?;
    let run = ada.over(&id).await?;
    assert_eq!((&run["state"], &run["reason"]["code"]), (&json!("failed"), &json!("out_of_memory")), "{run}");
    let all = lines(&ada, &id, "?group=memory&points=2000").await?;
    show_what_led_there(&all, run["nodes"][0].as_str().context("node")?, 512 << 20)?;
    Ok(())
}

#[tokio::test]
async fn a_session_whose_cell_outgrows_its_memory_says_so_and_keeps_its_chart_to_the_end() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session = ada.running(&json!({"memory_mib": 1024})).await?;
    let id = session["id"].as_str().context("id")?;
    let kernel = Kernel::start(&ada, &session).await?;
    // Nothing answers any more once it is killed, and its app takes some two hundred MiB besides.
    let mut channel = kernel.connect().await?;
    channel.send(&greedy([250, 250], 8)).await?;
    let over = ada
        .wait(id, "it is killed", RUN, |session| matches!(session["state"].as_str(), Some("ended" | "failed")))
        .await?;
    assert_eq!((&over["state"], &over["reason"]["code"]), (&json!("failed"), &json!("out_of_memory")), "{over}");
    let text = over["reason"]["text"].as_str().context("text")?;
    ensure!(text.contains("more memory than it asked for"), "{text}");

    let (status, chart) =
        ada.call(Method::GET, &format!("sessions/{id}/samples?group=memory&points=2000"), None).await?;
    ensure!(status == StatusCode::OK, "{status} {chart}");
    let all = chart["lines"].as_array().context("lines")?;
    let values = show_what_led_there(all, over["nodes"][0].as_str().context("node")?, 1024 << 20)?;
    let known = values.iter().rposition(Option::is_some).context("no value")?;
    let at =
        |time: &Value| Ok::<_, anyhow::Error>(time.as_str().context("a time")?.parse::<jiff::Timestamp>()?.as_second());
    let step = chart["step_s"].as_i64().context("step")?;
    let last = at(&chart["from"])? + step * i64::try_from(known + 1)?;
    let ended = at(&over["ended_at"])?;
    ensure!(ended - last <= 15, "the last one is {} s before its end", ended - last);
    Ok(())
}

#[tokio::test]
async fn a_session_s_chart_grows_while_it_runs_and_outlives_the_portal() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let session = ada.running(&json!({})).await?;
    let id = session["id"].as_str().context("id")?;
    // The values of its memory, by when their spans begin.
    let chart = || async {
        let (status, chart) = ada.call(Method::GET, &format!("sessions/{id}/samples?group=memory"), None).await?;
        ensure!(status == StatusCode::OK, "{status} {chart}");
        let from: Timestamp = chart["from"].as_str().context("from")?.parse()?;
        let step = SignedDuration::from_secs(chart["step_s"].as_i64().context("step_s")?);
        let lines = chart["lines"].as_array().cloned().unwrap_or_default();
        let memory = lines.iter().find(|line| line["metric"] == "memory_bytes");
        let values = memory.and_then(|line| line["values"].as_array().cloned()).unwrap_or_default();
        let begins = (0..).map(|span| from + step * span);
        anyhow::Ok(begins.zip(values).filter(|(_, value)| !value.is_null()).collect::<BTreeMap<_, _>>())
    };
    until("three samples", NOTICE, || async { Ok((chart().await?.len() >= 3).then_some(())) }).await?;
    let mut before = chart().await?;
    // Its span may not be over.
    before.pop_last();
    exec("portal", "root", &["pkill", "-KILL", "-x", "eirened"]).await?;
    let after = until("more of them", NOTICE, || async {
        // While it is away there is no answer.
        Ok(chart().await.ok().filter(|after| after.len() > before.len() + 3))
    })
    .await?;
    for (at, value) in &before {
        ensure!(after.get(at) == Some(value), "{at} was {value} before the kill: {after:?}");
    }
    ada.stop_all().await
}
