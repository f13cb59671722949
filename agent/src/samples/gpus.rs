//! What `eirene-gpu` says, where that lies beside the agent: a program of its own, because NVIDIA's library is loaded from the node and the agent
//! loads nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eirene_monitoring::{GpuSaid, MOST_BYTES, MOST_SAMPLES, Sample, Series};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{ChildStdout, Command};

use super::Shared;
use super::cost::{Cost, Process};
use crate::log::Log;

/// Its name.
const PROGRAM: &str = "eirene-gpu";
/// Pause before one that has ended is started again.
const AGAIN: Duration = Duration::from_mins(1);

/// The last figures of this node's GPUs.
#[derive(Debug, Clone, Default)]
pub(super) struct Gpus {
    figures: Shared<Figures>,
    /// The helper, while it runs.
    helper: Shared<Option<Process>>,
    cost: Cost,
}

/// What was said, and what of it was taken.
#[derive(Debug, Default)]
struct Figures {
    /// Said since the last time that somebody took them.
    new: HashMap<Series, f64>,
    /// What was taken then.
    taken: HashMap<Series, f64>,
}

impl Figures {
    /// What is new. Once, where nothing is, what was taken last: a look that comes a moment late is no gap, and a second one that is missing is.
    fn take(&mut self) -> Vec<Sample> {
        let taken = std::mem::replace(&mut self.taken, std::mem::take(&mut self.new));
        let figures = if self.taken.is_empty() { &taken } else { &self.taken };
        figures.iter().map(|(series, value)| Sample { series: series.clone(), value: *value }).collect()
    }
}

impl Gpus {
    /// Has the program that lies beside the agent run as long as the agent does. Where it is missing and the job `has_gpus`, that is said.
    pub(super) fn start(node: &str, has_gpus: bool, log: &Log, cost: Cost) -> Self {
        let beside = std::env::current_exe().ok().map(|agent| agent.with_file_name(PROGRAM));
        Self::start_program(beside.filter(|program| program.is_file()), node, has_gpus, log, cost)
    }

    fn start_program(program: Option<PathBuf>, node: &str, has_gpus: bool, log: &Log, cost: Cost) -> Self {
        let gpus = Self { cost, ..Self::default() };
        match program {
            Some(program) => {
                tokio::spawn(keep(program, node.to_owned(), gpus.clone(), log.clone()));
            }
            None if has_gpus => {
                log.say(&format!("node {node}: GPUs are not sampled, {PROGRAM} does not lie beside the agent there"));
            }
            None => {}
        }
        gpus
    }

    /// What was said since the last time, or, for one time, what was said before.
    pub(super) fn take(&self) -> Vec<Sample> {
        self.figures.lock().take()
    }

    /// Counts what the helper has computed since the last time.
    pub(super) fn count(&self) {
        if let Some(helper) = self.helper.lock().as_mut() {
            helper.count(&self.cost);
        }
    }

    /// Takes in a line of the helper's. What is not understood is passed over: a later version may say more.
    fn hear(&self, line: &[u8], node: &str, log: &Log) {
        match GpuSaid::read(line) {
            Ok(GpuSaid::Gpus { gpus }) => {
                // One that is not there any more has no last figures.
                *self.figures.lock() = Figures::default();
                let names: Vec<_> = gpus.iter().map(|gpu| format!("{} ({})", gpu.id, gpu.name)).collect();
                if !names.is_empty() {
                    log.say(&format!("node {node}: GPUs {}", names.join(", ")));
                }
            }
            Ok(GpuSaid::Samples { samples }) => {
                let mut figures = self.figures.lock();
                // Nobody has taken them for long.
                if figures.new.len() > MOST_SAMPLES {
                    figures.new.clear();
                }
                figures.new.extend(samples.into_iter().map(|sample| (sample.series, sample.value)));
            }
            Ok(GpuSaid::Trouble { text }) => log.say(&format!("node {node}: GPUs: {text}")),
            Ok(GpuSaid::Hello { .. }) | Err(_) => {}
        }
    }
}

async fn keep(program: PathBuf, node: String, gpus: Gpus, log: Log) {
    let mut said = String::new();
    loop {
        let why = match run(&program, &node, &gpus, &log).await {
            Ok(()) => format!("node {node}: {PROGRAM} has ended, and is started again every minute"),
            Err(error) => format!("node {node}: {PROGRAM} cannot be started: {error}"),
        };
        tokio::time::sleep(AGAIN).await;
        // At the session's end it has ended too, and that is nothing to tell. And one line for an outage, not one for an attempt.
        if said != why {
            log.say(&why);
            said = why;
        }
    }
}

async fn run(program: &Path, node: &str, gpus: &Gpus, log: &Log) -> std::io::Result<()> {
    let mut command = Command::new(program);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
    let input = child.stdin.take();
    *gpus.helper.lock() = child.id().and_then(Process::new);
    let heard = match child.stdout.take() {
        Some(output) => listen(output, node, gpus, log).await,
        None => Ok(()),
    };
    // Once it has been waited for its number is somebody else's.
    gpus.count();
    *gpus.helper.lock() = None;
    heard?;
    drop(input);
    child.wait().await?;
    Ok(())
}

/// Listens to its end.
async fn listen(output: ChildStdout, node: &str, gpus: &Gpus, log: &Log) -> std::io::Result<()> {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX);
    loop {
        line.clear();
        if (&mut output).take(most).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        gpus.cost.of(|| gpus.hear(&line, node, log));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn hear_of(gpus: &Gpus, figures: &[(&str, f64)]) {
        gpus.figures.lock().new.extend(figures.iter().map(|(name, value)| (name.parse::<Series>().unwrap(), *value)));
    }

    #[tokio::test]
    async fn the_last_figures_are_taken_and_nonsense_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(PROGRAM);
        let script = r#"#!/bin/sh
echo '{"kind":"hello","version":1}'
echo '{"kind":"gpus","gpus":[{"id":"0","uuid":"GPU-x","name":"H200"}]}'
echo '{"kind":"samples","samples":[["gpu_util/0",0.5]]}'
echo 'nonsense'
echo '{"kind":"samples","samples":[["gpu_util/0",0.75],["gpu_up/0",1]]}'
echo '{"kind":"trouble","text":"one is lost"}'
"#;
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let log = Log::new(std::io::sink());
        let gpus = Gpus::default();
        run(&program, "c1", &gpus, &log).await.unwrap();
        let take = || {
            let text = |sample: &Sample| (sample.series.to_string(), sample.value.to_string());
            let mut taken: Vec<_> = gpus.take().iter().map(text).collect();
            taken.sort();
            taken
        };
        let said = [("gpu_up/0".to_owned(), "1".to_owned()), ("gpu_util/0".to_owned(), "0.75".to_owned())];
        assert_eq!(take(), said);
        assert_eq!(take(), said, "a look that comes late is no gap");
        assert!(take().is_empty(), "of what is older nobody knows");
        hear_of(&gpus, &[("gpu_util/0", 0.25)]);
        assert_eq!(take().len(), 1, "what is new stands alone: one that is lost has no figures but that it is");
        hear_of(&gpus, &[("gpu_up/0", 0.0)]);
        assert_eq!(take(), [("gpu_up/0".to_owned(), "0".to_owned())]);
        let (_, _, text) = log.piece(0).unwrap();
        assert!(text.contains("node c1: GPUs 0 (H200)") && text.contains("GPUs: one is lost"), "{text}");
        let nowhere = run(&directory.path().join("nowhere"), "c1", &gpus, &log).await;
        assert_eq!(nowhere.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert!(
            gpus.helper.lock().is_none(),
            "nobody is asked what a number has computed that is not the helper's any more"
        );
    }

    #[test]
    fn a_helper_that_is_missing_is_told_of_where_there_are_gpus() {
        for (has_gpus, lines) in [(true, 1), (false, 0)] {
            let log = Log::new(std::io::sink());
            let gpus = Gpus::start_program(None, "c1", has_gpus, &log, Cost::default());
            assert!(gpus.take().is_empty());
            let text = log.piece(0).map(|(_, _, text)| text).unwrap_or_default();
            assert_eq!(text.matches("node c1: GPUs are not sampled").count(), lines, "{text}");
        }
    }

    #[tokio::test]
    async fn what_the_helper_computes_is_counted_too() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(PROGRAM);
        // Computes and says nothing.
        let script = "#!/bin/sh\nwhile kill -0 $PPID; do :; done\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let gpus = Gpus::default();
        let counted = async {
            while gpus.cost.so_far() < Duration::from_millis(20) {
                gpus.count();
                tokio::task::yield_now().await;
            }
        };
        let log = Log::new(std::io::sink());
        // Dropped with its future, the helper is killed.
        tokio::select! {
            ended = run(&program, "c1", &gpus, &log) => panic!("{ended:?}"),
            () = counted => {}
        }
    }
}
