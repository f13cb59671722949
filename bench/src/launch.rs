//! From `POST /api/v1/sessions` to the first page of the app through the proxy, against bare `sbatch` and `apptainer exec` of the
//! same image, on the demo cluster. The measuring itself happens in the portal container: [`crate::probe`].

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::demo::{Demo, docker};
use crate::probe::{Launch, Task, Way};
use crate::process::root;
use crate::results;
use crate::stats::median;
use crate::summary::Goal;
use crate::table::table;

/// How much longer than bare a start may take.
const GOAL: Goal = Goal::AtMost(1.15);
/// The person who starts.
const PERSON: &str = "ada";
/// Where this program lies in the container meanwhile.
const PROBE: &str = "/tmp/eirene-bench";

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds; each starts both ways once.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    launches: Vec<Launch>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let demo = Demo::load()?;
    let jobs = docker(&["exec", "head", "squeue", "--noheader", "--format=%A %u %j"]).await?;
    ensure!(jobs.trim().is_empty(), "the demo cluster is not empty, its jobs would be measured too:\n{jobs}");
    let token = demo.token(PERSON).await?;
    let launches = measure(options, &demo, token.secret.clone()).await;
    demo.forget(&token).await?;
    docker(&["exec", "portal", "rm", "-f", PROBE]).await?;
    let launches = launches?;

    let figures = serde_json::to_value(Figures { launches })?;
    results::write("launch", &figures)?;
    show(&figures)
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let Figures { launches } = Figures::deserialize(figures)?;
    let of = |way: Way, figure: fn(&Launch) -> f64| -> Vec<f64> {
        launches.iter().filter(|launch| launch.way == way && launch.round > 0).map(figure).collect()
    };
    let mut table = table(&["start to first 200", "median", "fastest", "slowest", "submit answered"]);
    for (way, title) in [(Way::Bare, "bare sbatch + apptainer exec"), (Way::Eirene, "Eirene, through the proxy")] {
        let ready = of(way, |launch| launch.ready_ms);
        let (fastest, slowest) = ready.iter().fold((f64::MAX, 0.0_f64), |(f, s), &v| (f.min(v), s.max(v)));
        let submitted = median(&of(way, |launch| launch.submitted_ms));
        let ms = |value: f64| format!("{value:.0} ms");
        table.add_row([title.to_owned(), ms(median(&ready)), ms(fastest), ms(slowest), ms(submitted)]);
    }
    println!("{table}");
    let ratio = median(&of(Way::Eirene, |launch| launch.ready_ms)) / median(&of(Way::Bare, |launch| launch.ready_ms));
    println!("Eirene / bare: {} (goal {GOAL})", GOAL.mark(ratio));
    Ok(())
}

async fn measure(options: &Options, demo: &Demo, token: String) -> anyhow::Result<Vec<Launch>> {
    let built = std::fs::read_to_string(root().join("var/images/jupyter.built"))
        .context("no jupyter image in var/images: bring the demo cluster up with `make demo`")?;
    let sif = built.split_whitespace().nth(1).context("var/images/jupyter.built names a file")?;
    let task = Task {
        rounds: options.rounds,
        portal: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
        portal_host: demo.portal_host()?.to_owned(),
        apps_domain: demo.apps_domain.clone(),
        token,
        image: format!("/srv/eirene/images/{sif}"),
        node: "c1".to_owned(),
        bare_command: ["jupyter", "lab", "--no-browser", "--ServerApp.ip=@NODE@", "--ServerApp.port=@PORT@"]
            .map(ToOwned::to_owned)
            .to_vec(),
        cpus: 2,
        memory_mib: 2048,
    };
    let me = std::env::current_exe()?;
    docker(&["cp", &me.display().to_string(), &format!("portal:{PROBE}")]).await?;
    let mut child = Command::new("docker")
        .args(["exec", "-i", "-u", PERSON, "-w", &format!("/home/{PERSON}"), "portal", PROBE, "probe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("piped")?;
    input.write_all(serde_json::to_string(&task)?.as_bytes()).await?;
    drop(input);
    let mut lines = BufReader::new(child.stdout.take().context("piped")?).lines();
    let mut launches = Vec::new();
    while let Some(line) = lines.next_line().await? {
        let launch: Launch = serde_json::from_str(&line)?;
        let kind = if launch.round == 0 { "warm-up".to_owned() } else { format!("round {:2}", launch.round) };
        println!("{kind}  {:8}  {:6.0} ms", format!("{:?}", launch.way).to_lowercase(), launch.ready_ms);
        launches.push(launch);
    }
    let status = child.wait().await?;
    ensure!(status.success(), "the probe ended with {status}");
    Ok(launches)
}
