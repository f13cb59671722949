//! What watching a session takes of a core: a real agent and its GPU helper sample a job of many processes on a node with eight GPUs, which are a double of
//! NVML. What the agent says that this has taken, as eirened exposes it, stands beside what both processes have computed in all.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hyper::StatusCode;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::http::Ask;
use crate::process::{Server, stop};
use crate::results;
use crate::rig::{AgentProgram, Rig, job_number, program};
use crate::stats::median;
use crate::summary::Goal;
use crate::table::table;

/// Per cent of one core.
const GOAL: Goal = Goal::AtMost(0.5);
const GPUS: usize = 8;
/// What the agent says that sampling has taken, as Prometheus is told.
const COST: &str = "eirene_probe_cpu_seconds_total";
/// Batches that pass before anything is measured: what is looked for once has been found then.
const SETTLE: usize = 3;
/// Longest wait for a batch.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two looks at what has come.
const PAUSE: Duration = Duration::from_millis(100);

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Processes of the job.
    #[arg(long, default_value_t = 64)]
    processes: usize,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a round, at least: it ends with a batch.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// One round, per cent of one core.
#[derive(Serialize, Deserialize)]
struct Round {
    /// What the agent says.
    said: f64,
    /// All that the agent has computed: its connection too.
    agent: f64,
    /// All that its helper has, the double of NVML included.
    helper: f64,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    processes: usize,
    gpus: usize,
    rounds: Vec<Round>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(options.processes > 0 && options.rounds > 0 && options.seconds > 0, "at least one of each");
    let dir = tempfile::Builder::new().prefix("eirene-bench-").tempdir()?;
    let (path, environment) = (agent_with_helper(dir.path())?, node_with_gpus(dir.path())?);
    let rig =
        Rig::start_agents(1, &dir.path().join("one"), None, &AgentProgram { path, environment: &environment }).await?;
    let job = (0..options.processes).map(|_| sleeper()).collect::<anyhow::Result<Vec<Child>>>()?;
    let watched = Watched::find(&rig, options.processes).await?;
    let mut rounds = Vec::with_capacity(options.rounds);
    for number in 1..=options.rounds {
        let round = watched.round(Duration::from_secs(options.seconds)).await?;
        println!("round {number}: {:.3} % of a core, as the agent says", round.said);
        rounds.push(round);
    }
    drop(job);
    stop(rig.into_servers()).await?;
    let figures = serde_json::to_value(Figures { processes: options.processes, gpus: GPUS, rounds })?;
    results::write("sampling", &figures)?;
    show(&figures)
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let figures = Figures::deserialize(figures)?;
    let of = |figure: fn(&Round) -> f64| median(&figures.rounds.iter().map(figure).collect::<Vec<_>>());
    let mut table = table(&["watching a session", "% of one core", "goal", "reached"]);
    let said = of(|round| round.said);
    table.add_row(["as the agent says".to_owned(), format!("{said:.3}"), GOAL.to_string(), GOAL.mark(said)]);
    let (agent, helper) = (of(|round| round.agent), of(|round| round.helper));
    for (what, percent) in [("all that the agent does", agent), ("all that its helper for GPUs does", helper)] {
        table.add_row([what.to_owned(), format!("{percent:.3}"), String::new(), String::new()]);
    }
    println!("{table}");
    println!("{} processes of the job, {} GPUs of a double of NVML", figures.processes, figures.gpus);
    Ok(())
}

/// The agent with its helper beside it, as they are installed.
fn agent_with_helper(dir: &Path) -> anyhow::Result<PathBuf> {
    let programs = dir.join("programs");
    std::fs::create_dir(&programs)?;
    for name in ["eirene-agent", "eirene-gpu"] {
        std::fs::copy(program(name)?, programs.join(name))?;
    }
    Ok(programs.join("eirene-agent"))
}

/// A driver of eight busy GPUs, where the dynamic loader finds it.
fn node_with_gpus(dir: &Path) -> anyhow::Result<[(&'static str, PathBuf); 2]> {
    let (libraries, state) = (dir.join("lib"), dir.join("gpus.json"));
    std::fs::create_dir(&libraries)?;
    std::os::unix::fs::symlink(program("examples/libnvml_double.so")?, libraries.join("libnvidia-ml.so.1"))?;
    let gpu = |number: usize| {
        json!({
            "uuid": format!("GPU-{number:08x}"), "name": "NVIDIA H200", "util": [90 + number, 40], "power": 500_000 + number,
            "memory": [150_000_000_000_u64, 90_000_000_000_u64], "temperature": 60, "ecc": [0, 0], "reasons": 0,
            "processes": [[std::process::id(), 90_000_000_000_u64]],
        })
    };
    std::fs::write(&state, json!({"gpus": (0..GPUS).map(gpu).collect::<Vec<_>>()}).to_string())?;
    Ok([("LD_LIBRARY_PATH", libraries), ("NVML_DOUBLE", state)])
}

/// A process of the session's job.
fn sleeper() -> anyhow::Result<Child> {
    let mut command = Command::new("sleep");
    command.arg("infinity").env("SLURM_JOB_ID", job_number(0).to_string()).stdin(Stdio::null());
    Ok(command.kill_on_drop(true).spawn()?)
}

/// A session that is watched, and who does it.
struct Watched<'a> {
    rig: &'a Rig,
    agent: Pid,
    helper: Pid,
}

impl<'a> Watched<'a> {
    /// Waits until all of the job is sampled.
    async fn find(rig: &'a Rig, processes: usize) -> anyhow::Result<Self> {
        let agent = rig.agents.first().and_then(Server::pid).context("an agent")?;
        let watched = Self { rig, agent: pid(agent)?, helper: pid(child_of(agent, "eirene-gpu")?)? };
        watched.until(|told| told.of("eirene_processes").is_some_and(|count| count >= processes as f64)).await?;
        watched.until(|told| told.lines("eirene_gpu_up").count() == GPUS).await?;
        for _ in 0..SETTLE {
            watched.next().await?;
        }
        Ok(watched)
    }

    /// Shares of a core in at least so much time, from one batch to another.
    async fn round(&self, length: Duration) -> anyhow::Result<Round> {
        let begin = self.now().await?;
        let mut end = self.now().await?;
        while end.at.duration_since(begin.at) < length {
            end = self.now().await?;
        }
        let passed = end.at.duration_since(begin.at).as_secs_f64();
        let percent = |begin: f64, end: f64| 100.0 * (end - begin) / passed;
        Ok(Round {
            said: percent(begin.said, end.said),
            agent: percent(begin.agent, end.agent),
            helper: percent(begin.helper, end.helper),
        })
    }

    /// What was taken so far, right after the next batch.
    async fn now(&self) -> anyhow::Result<Moment> {
        let said = self.next().await?;
        let computed = |pid: Pid| anyhow::Ok(Duration::from(clock_getcpuclockid(pid)?.now()?).as_secs_f64());
        Ok(Moment { at: Instant::now(), said, agent: computed(self.agent)?, helper: computed(self.helper)? })
    }

    /// Waits for the next batch, and gives what it says that sampling has taken.
    async fn next(&self) -> anyhow::Result<f64> {
        let before = self.told().await?.of(COST);
        let told = self.until(|told| told.of(COST) != before && told.of(COST).is_some()).await?;
        told.of(COST).context("what sampling takes")
    }

    async fn until(&self, wanted: impl Fn(&Told) -> bool) -> anyhow::Result<Told> {
        let begun = Instant::now();
        loop {
            let told = self.told().await?;
            if wanted(&told) {
                return Ok(told);
            }
            if begun.elapsed() > PATIENCE {
                bail!("this is told of the session:\n{}\neirened: {}", told.0, self.rig.portal.said());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn told(&self) -> anyhow::Result<Told> {
        let (address, host) = self.rig.portal_at();
        let session = self.rig.sessions().first().context("a session")?;
        let path = format!("/metrics/sessions/{session}");
        let ask = Ask { address, host: &host, method: "GET", path: &path, authorization: None, body: None };
        let (status, body) = ask.send().await?;
        let text = String::from_utf8(body.to_vec())?;
        ensure!(status == StatusCode::OK, "{path}: {status} {text}");
        Ok(Told(text))
    }
}

/// Seconds of processor time so far.
struct Moment {
    at: Instant,
    said: f64,
    agent: f64,
    helper: f64,
}

/// What Prometheus is told of the session.
struct Told(String);

impl Told {
    /// Values of a metric.
    fn lines(&self, metric: &str) -> impl Iterator<Item = f64> {
        let lines = self.0.lines().filter_map(move |line| line.strip_prefix(metric)?.strip_prefix('{'));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
    }

    /// The value of a metric of the one node.
    fn of(&self, metric: &str) -> Option<f64> {
        self.lines(metric).next()
    }
}

fn pid(number: u32) -> anyhow::Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(number)?))
}

/// The child with this name.
fn child_of(parent: u32, name: &str) -> anyhow::Result<u32> {
    for thread in std::fs::read_dir(format!("/proc/{parent}/task"))? {
        let children = std::fs::read_to_string(thread?.path().join("children"))?;
        for child in children.split_whitespace() {
            let known = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if known.trim_end() == name {
                return Ok(child.parse()?);
            }
        }
    }
    bail!("the agent has started no `{name}`")
}
