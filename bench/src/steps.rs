//! How long a step takes that does nothing: `eirene-train run` in a session, against bare `srun` and `apptainer exec` of the same image in the
//! same allocation, on the demo cluster. The clock is read on the session's first node, by the same shell for both.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::demo::{Demo, Token, docker};
use crate::process::root;
use crate::results;
use crate::stats::median;
use crate::summary::Goal;
use crate::table::table;

/// How much longer than bare a step may take.
const GOAL: Goal = Goal::AtMost(1.2);
/// Ranks of a step.
const RANKS: [u32; 3] = [2, 8, 16];
/// The person.
const PERSON: &str = "ada";
/// The session's first node.
const NODE: &str = "c1";
/// Where the program lies on it meanwhile.
const PROGRAM: &str = "/tmp/eirene-train-bench";
/// How long a session may take to start or end.
const PATIENCE: Duration = Duration::from_mins(2);

/// An image, and what its ranks meet by.
struct Way {
    image: &'static str,
    /// `srun --mpi=` of the bare step.
    mpi: &'static str,
    /// What one round asks Eirene by: a shell function that takes the number of ranks.
    ask: &'static str,
}

const WAYS: [Way; 2] = [
    // Without an MPI; asked by the program itself, for the image has none.
    Way { image: "jupyter", mpi: "none", ask: r#"ask() { EIRENE_TRAIN_STEPS=$socket "$program" run -n "$1" true; }"# },
    // By PMIx; asked in the session's container by the command that people have there, Python's start and all.
    Way {
        image: "pytorch",
        mpi: "pmix",
        ask: r#"
# Not this shell, whose words have the name too.
app=$(pgrep -n -u "$(id -u)" -f "[j]upyter-lab") || exit 1
mapfile -d "" inside <"/proc/$app/environ"
ask() {
    nsenter --target "$app" --user --preserve-credentials --mount --pid --ipc \
        env --ignore-environment --chdir=/tmp "${inside[@]}" eirene-train run -n "$1" true
}"#,
    },
];

/// One round for one number of ranks: both ways in turns, and how many microseconds each took.
const ROUND: &str = r#"
job=$1 ranks=$2 image=$3 socket=$4 program=$5 mpi=$6
clock() { date +%s%N; }
a=$(clock); srun --jobid="$job" --overlap --overcommit --quiet --input=none --mpi="$mpi" --nodes=2 --ntasks="$ranks" apptainer --silent exec "$image" true || exit 1
b=$(clock); ask "$ranks" 2>/dev/null || exit 1
c=$(clock); echo $(((b - a) / 1000)) $(((c - b) / 1000))
"#;

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds; each starts a step both ways for every number of ranks.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

#[derive(Serialize, Deserialize)]
struct Step {
    image: String,
    ranks: u32,
    bare_ms: f64,
    eirene_ms: f64,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    steps: Vec<Step>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let demo = Demo::load()?;
    let token = demo.token(PERSON).await?;
    let measured = async {
        let mut steps = Vec::new();
        for way in &WAYS {
            let more = in_a_session(options, way, &demo, &token).await;
            steps.extend(more.with_context(|| format!("image `{}`", way.image))?);
        }
        anyhow::Ok(steps)
    }
    .await;
    demo.forget(&token).await?;
    docker(&["exec", NODE, "rm", "-f", PROGRAM]).await?;
    let steps = measured?;
    let figures = serde_json::to_value(Figures { steps })?;
    results::write("steps", &figures)?;
    show(&figures)
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let Figures { steps } = Figures::deserialize(figures)?;
    let mut table = table(&["a step that does nothing", "bare srun + apptainer exec", "Eirene", "ratio"]);
    for way in &WAYS {
        for ranks in RANKS {
            let of = |figure: fn(&Step) -> f64| {
                let rounds = steps.iter().filter(|step| step.image == way.image && step.ranks == ranks);
                median(&rounds.map(figure).collect::<Vec<f64>>())
            };
            let (bare, eirene) = (of(|step| step.bare_ms), of(|step| step.eirene_ms));
            let ms = |value: f64| format!("{value:.0} ms");
            let what = format!("{ranks} ranks on 2 nodes, {}, --mpi={}", way.image, way.mpi);
            table.add_row([what, ms(bare), ms(eirene), GOAL.mark(eirene / bare)]);
        }
    }
    println!("{table}");
    println!("goal {GOAL}");
    Ok(())
}

async fn in_a_session(options: &Options, way: &Way, demo: &Demo, token: &Token) -> anyhow::Result<Vec<Step>> {
    let body = json!({"app": "jupyterlab", "image": way.image, "nodes": 2, "cpus": 8, "memory_mib": 4000, "gpus": 0, "walltime_min": 30});
    let (status, session) = demo.ask(token, "POST", "/api/v1/sessions", Some(&body)).await?;
    ensure!(status == StatusCode::CREATED, "start: {status} {session}");
    let path = format!("/api/v1/sessions/{}", session["id"].as_str().context("no id")?);
    let steps = match wait_for(demo, token, &path, "running").await {
        Ok(session) => measure(options, way, &session).await,
        Err(error) => Err(error),
    };
    demo.ask(token, "DELETE", &path, None).await?;
    wait_for(demo, token, &path, "ended").await?;
    steps
}

async fn wait_for(demo: &Demo, token: &Token, path: &str, state: &str) -> anyhow::Result<Value> {
    let waiting = async {
        loop {
            let (_, session) = demo.ask(token, "GET", path, None).await?;
            if session["state"] == state {
                return Ok(session);
            }
            ensure!(session["state"] != "failed", "the session failed: {session}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("the session is not {state} in time"))?
}

async fn measure(options: &Options, way: &Way, session: &Value) -> anyhow::Result<Vec<Step>> {
    let note = root().join(format!("var/images/{}.built", way.image));
    let built = std::fs::read_to_string(&note)
        .with_context(|| format!("no `{}`: bring the demo cluster up with `make demo`", note.display()))?;
    let sif = built.split_whitespace().nth(1).with_context(|| format!("`{}` names no file", note.display()))?;
    let image = format!("/srv/eirene/images/{sif}");
    let job = session["slurm_job_id"].to_string();
    let id = session["id"].as_str().context("no id")?;
    let program = root().join("target/release/eirene-train");
    docker(&["cp", &program.display().to_string(), &format!("{NODE}:{PROGRAM}")]).await?;
    let socket = docker(&["exec", NODE, "sh", "-c", &format!("ls -d /tmp/eirene-*/{id}.0/inside/steps.sock")]).await?;
    let script = format!("{}\n{ROUND}", way.ask);
    let mut steps = Vec::new();
    for round in 0..=options.rounds {
        for ranks in RANKS {
            let count = ranks.to_string();
            let words = ["exec", "-u", PERSON, "-w", "/tmp", NODE, "bash", "-c", &script, "round"];
            let values = [job.as_str(), &count, &image, socket.trim(), PROGRAM, way.mpi];
            let said = docker(&[&words[..], &values].concat()).await?;
            let us: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
            let [bare, eirene] = us.try_into().ok().context("two figures")?;
            // The first one warms up.
            if round > 0 {
                let (bare_ms, eirene_ms) = (bare / 1e3, eirene / 1e3);
                let image = way.image.to_owned();
                println!("{image}, round {round:2}  {ranks:2} ranks  bare {bare_ms:5.0} ms  Eirene {eirene_ms:5.0} ms");
                steps.push(Step { image, ranks, bare_ms, eirene_ms });
            }
        }
    }
    Ok(steps)
}
