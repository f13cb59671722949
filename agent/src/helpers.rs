//! The agent's side of the [helpers](crate::helper): starts one on every other node, believes those that prove themselves, starts again what has
//! gone, and knows where ranks may be started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eirene_core::secret::Secret;
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{broadcast, mpsc, watch};

use crate::container::Spec;
use crate::ends::{self, Clock, RankEnd};
use crate::helper::{BEAT, FromHelper, HelperFile, ToHelper, is_proven};
use crate::job::{Job, digest, write_private};
use crate::log::Log;
use crate::names;
use crate::samples::{Outbox, Sampled};
use crate::scratch::{Assignment, Standing, Trouble};
use crate::srun::Srun;
use crate::steps::{Running, Told, where_is};

/// Pauses before a helper that has gone is started again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How the names of files for helpers and for ranks begin, in the session's directory.
const HELPER_FILE: &str = "helper-";
pub(crate) const STEP_FILE: &str = "step-";
/// How long SLURM may take to end a helper's step.
const GONE: Duration = Duration::from_secs(5);
/// Orders that a helper may be behind.
const ORDERS: usize = 64;

/// Ends of ranks that a step may be behind.
const ENDS: usize = 1024;
/// Answers about ports that whoever has asked may be behind.
const PORTS: usize = 64;
/// Programs of one node's launchers that are told of at once.
const PROGRAMS: usize = 1024;
/// How long a node may take to name a free port.
const PORT: Duration = Duration::from_secs(2);

/// How a node of the session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// The container is being started.
    Starting,
    /// Ranks can be started there.
    Ready,
    /// Not now, and why.
    Lost(String),
}

/// A node of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// How it is.
    pub(crate) state: NodeState,
    /// Its runtime directory, once known.
    pub(crate) directory: Option<PathBuf>,
    /// What else it is called: full names and addresses.
    pub(crate) names: Vec<String>,
}

/// All nodes by name.
pub(crate) type Nodes = BTreeMap<String, Node>;

/// How a node's own scratch is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filling {
    /// It is being filled.
    Waiting,
    /// It is filled.
    Filled,
    /// It could not be.
    Failed(Trouble),
    /// The program has ended, and what was to be kept is out, or is not.
    Emptied(Option<Trouble>),
}

/// The session's nodes, and the way to those behind the first. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Helpers {
    nodes: watch::Sender<Nodes>,
    orders: broadcast::Sender<ToHelper>,
    ends: broadcast::Sender<(String, RankEnd)>,
    /// The last beat that each other node's helper has answered.
    beats: watch::Sender<BTreeMap<String, u64>>,
    /// Free ports, each with the number of the question.
    ports: broadcast::Sender<(u64, Option<u16>)>,
    over: watch::Sender<bool>,
    scratches: watch::Sender<BTreeMap<String, Filling>>,
    /// Whether containers may start, where they wait for all nodes' scratches.
    begun: watch::Sender<bool>,
    /// Whether the program has ended well, once it has ended and scratches are being emptied.
    succeeded: watch::Sender<Option<bool>>,
    standing: Standing,
    samples: Outbox,
    running: Running,
}

impl Helpers {
    /// Knows the nodes; the first one's runtime directory is the agent's own.
    pub(crate) fn new(job: &Job, directory: &Path) -> Self {
        let node = |name: &String| {
            let directory = (*name == job.node).then(|| directory.to_owned());
            let names = if *name == job.node { names::own() } else { Vec::new() };
            (name.clone(), Node { state: NodeState::Starting, directory, names })
        };
        let (nodes, _) = watch::channel(job.allocation.names().iter().map(node).collect());
        let (orders, ends) = (broadcast::channel(ORDERS).0, broadcast::channel(ENDS).0);
        let ports = broadcast::channel(PORTS).0;
        let (beats, scratches) = (watch::channel(BTreeMap::new()).0, watch::channel(BTreeMap::new()).0);
        let (over, begun, succeeded) = (watch::channel(false).0, watch::channel(false).0, watch::channel(None).0);
        let samples = Outbox::new(job.allocation.nodes.len());
        let (standing, running) = (Standing::default(), Running::default());
        Self { nodes, orders, ends, beats, ports, over, scratches, begun, succeeded, standing, samples, running }
    }

    /// Starts a helper on every node behind the first. They live as long as the job's side does.
    pub(crate) fn start(&self, job: &Job, container: &Spec, scratch: Option<&Assignment>, srun: &Srun, log: &Log) {
        for (index, (node, cpus)) in job.allocation.others().iter().enumerate() {
            if scratch.is_some() {
                self.fill(node, Filling::Waiting);
            }
            let keeper = Keeper {
                helpers: self.clone(),
                node: node.clone(),
                name: job.name(),
                directory: job.home_directory().to_owned(),
                container: container.clone(),
                scratch: scratch.map(|scratch| scratch.of(node, index + 1)),
                nodes: job.allocation.nodes.clone(),
                sampled: job.sampled(node, *cpus),
                srun: srun.clone(),
                log: log.clone(),
            };
            let mut over = self.over.subscribe();
            tokio::spawn(async move {
                tokio::select! {
                    () = keeper.keep() => {}
                    // With its srun's input the helper ends; whoever is gone counts as that.
                    _ = over.wait_for(|over| *over) => {}
                }
            });
        }
    }

    /// Starts no helper any more; those that are there end.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Says that nothing can be started on the other nodes.
    pub(crate) fn none(&self, job: &Job) {
        for (node, _) in job.allocation.others() {
            self.set(node, NodeState::Lost("this cluster's jobs have no `srun` in their PATH".to_owned()), None);
        }
    }

    /// The nodes as they are, and as they become.
    pub(crate) fn watch(&self) -> watch::Receiver<Nodes> {
        self.nodes.subscribe()
    }

    /// Says how a node is.
    pub(crate) fn set(&self, node: &str, state: NodeState, directory: Option<PathBuf>) {
        self.nodes.send_if_modified(|nodes| {
            let Some(known) = nodes.get_mut(node) else { return false };
            let new = Node { state, directory: directory.or(known.directory.clone()), names: known.names.clone() };
            let changed = *known != new;
            *known = new;
            changed
        });
    }

    fn fill(&self, node: &str, filling: Filling) {
        self.scratches.send_modify(|scratches| drop(scratches.insert(node.to_owned(), filling)));
    }

    /// Waits until every other node's scratch is filled, or the node is lost: it may come later.
    pub(crate) async fn filled(&self) -> Result<(), Trouble> {
        self.until(|lost, filling| match filling {
            Filling::Failed(trouble) => Some(Err(trouble.clone())),
            Filling::Filled | Filling::Emptied(_) => Some(Ok(())),
            Filling::Waiting => lost.then_some(Ok(())),
        })
        .await
    }

    /// Lets containers start on the other nodes.
    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
        // Without other nodes nobody listens.
        let _ = self.orders.send(ToHelper::Begin);
    }

    /// Ends the containers of the other nodes, and has what is to be kept of their scratches brought out; waits until that is done. Where a helper
    /// is gone, its next one does it, or a rescue.
    pub(crate) async fn empty(&self, succeeded: bool) -> Result<(), Trouble> {
        // A helper that is being started again hears it when its scratch is filled.
        self.succeeded.send_replace(Some(succeeded));
        let _ = self.orders.send(ToHelper::Empty { succeeded });
        // One that has trouble does not keep the others from it.
        self.until(|_, filling| (*filling != Filling::Filled).then_some(Ok(()))).await?;
        let trouble = |filling: &Filling| if let Filling::Emptied(trouble) = filling { trouble.clone() } else { None };
        self.scratches.borrow().values().find_map(trouble).map_or(Ok(()), Err)
    }

    /// How far the scratches of all nodes are.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Samples of all nodes, on their way to the portal.
    pub(crate) fn samples(&self) -> &Outbox {
        &self.samples
    }

    /// What runs on all nodes.
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// The other nodes whose own scratch has not been emptied, and why, where that is known.
    pub(crate) fn not_emptied(&self) -> Vec<(String, Option<String>)> {
        let scratches = self.scratches.borrow();
        let kept = |(node, filling): (&String, &Filling)| match filling {
            Filling::Emptied(None) | Filling::Failed(_) => None,
            Filling::Emptied(Some(trouble)) => Some((node.clone(), Some(trouble.text.clone()))),
            // Its helper is gone, and nobody has said what became of it.
            Filling::Waiting | Filling::Filled => Some((node.clone(), None)),
        };
        scratches.iter().filter_map(kept).collect()
    }

    /// Waits until there is an answer for each node with a scratch, by whether it is lost and how its scratch is; gives the first trouble.
    async fn until(&self, answer: impl Fn(bool, &Filling) -> Option<Result<(), Trouble>>) -> Result<(), Trouble> {
        let (mut nodes, mut scratches) = (self.nodes.subscribe(), self.scratches.subscribe());
        loop {
            let all: Vec<_> = {
                let (nodes, scratches) = (nodes.borrow_and_update(), scratches.borrow_and_update());
                let lost = |node| nodes.get(node).is_some_and(|node: &Node| matches!(node.state, NodeState::Lost(_)));
                scratches.iter().map(|(node, filling)| answer(lost(node), filling)).collect()
            };
            if let Some(trouble) = all.iter().flatten().find_map(|answer| answer.as_ref().err()) {
                return Err(trouble.clone());
            }
            if all.iter().all(Option::is_some) {
                return Ok(());
            }
            // Their senders live as long as this does.
            let _ = tokio::select! {
                changed = nodes.changed() => changed,
                changed = scratches.changed() => changed,
            };
        }
    }

    /// A node's helper is gone, and with it what it was about to say of the scratch.
    fn gone(&self, node: &str) {
        self.scratches.send_modify(|scratches| {
            if let Some(filling @ Filling::Filled) = scratches.get_mut(node) {
                *filling = Filling::Waiting;
            }
        });
    }

    /// Says what else a node is called.
    fn call(&self, node: &str, names: Vec<String>) {
        self.nodes.send_modify(|nodes| {
            if let Some(known) = nodes.get_mut(node) {
                known.names = names;
            }
        });
    }

    /// Says how a rank on a node has ended.
    pub(crate) fn ended(&self, node: &str, end: RankEnd) {
        // Mostly no step runs any more where a word comes late.
        let _ = self.ends.send((node.to_owned(), end));
    }

    fn answered(&self, node: &str, beat: u64) {
        self.beats.send_modify(|beats| {
            let last = beats.entry(node.to_owned()).or_default();
            *last = beat.max(*last);
        });
    }

    /// Ends of ranks from now on, each with its node.
    pub(crate) fn ends(&self) -> broadcast::Receiver<(String, RankEnd)> {
        self.ends.subscribe()
    }

    /// Waits until the other nodes have said all they know of ranks that have ended by now; those that are lost do not.
    pub(crate) async fn gather(&self) {
        let (mut nodes, mut beats) = (self.nodes.subscribe(), self.beats.subscribe());
        let number = next_beat();
        // Without other nodes nobody listens.
        let _ = self.orders.send(beat(number));
        loop {
            let here = {
                let (nodes, beats) = (nodes.borrow_and_update(), beats.borrow_and_update());
                beats.iter().all(|(node, answered)| {
                    let lost = nodes.get(node).is_none_or(|node| matches!(node.state, NodeState::Lost(_)));
                    *answered >= number || lost
                })
            };
            if here {
                return;
            }
            // Their senders live as long as this does.
            let _ = tokio::select! {
                changed = nodes.changed() => changed,
                changed = beats.changed() => changed,
            };
        }
    }

    /// A port that is free on one of the other nodes now; none where it does not say.
    pub(crate) async fn free_port(&self, node: &str) -> Option<u16> {
        let (mut ports, question) = (self.ports.subscribe(), next_beat());
        // A node that is not there does not answer.
        let _ = self.orders.send(ToHelper::Port { question, node: node.to_owned() });
        let answered = async {
            loop {
                match ports.recv().await {
                    Ok((number, port)) if number == question => return port,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        };
        tokio::time::timeout(PORT, answered).await.ok().flatten()
    }

    /// Hands a signal to the ranks of a step, on all nodes behind the first.
    pub(crate) fn signal(&self, step: u32, signal: Signal) {
        // Without other nodes nobody listens.
        let _ = self.orders.send(ToHelper::Signal { step, signal: signal as i32 });
    }
}

/// Numbers beats and questions, of all sessions of this process alike.
fn next_beat() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn beat(number: u64) -> ToHelper {
    ToHelper::Beat { number, said: ends::now() }
}

/// Removes what was written for helpers and ranks that never read it, from the session's directory.
pub(crate) fn tidy(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".json") && (name.starts_with(HELPER_FILE) || name.starts_with(STEP_FILE)) {
            // What cannot be removed opens nothing any more.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Keeps the helper of one node.
struct Keeper {
    helpers: Helpers,
    node: String,
    name: String,
    directory: PathBuf,
    container: Spec,
    scratch: Option<Assignment>,
    nodes: Vec<(String, u32)>,
    sampled: Sampled,
    srun: Srun,
    log: Log,
}

impl Keeper {
    async fn keep(self) {
        let (mut pause, mut said) = (FIRST_PAUSE, String::new());
        for attempt in 0_u32.. {
            let why = match self.start(attempt) {
                Ok((child, secret)) => {
                    let end = self.attend(child, &secret, attempt).await;
                    if end.was_ready {
                        pause = FIRST_PAUSE;
                    }
                    end.why.unwrap_or_else(|| "its helper has ended".to_owned())
                }
                Err(error) => error.to_string(),
            };
            // One line for an outage, not one for an attempt.
            if said != why {
                self.log.say(&format!("node {}: {why}; trying again", self.node));
                said.clone_from(&why);
            }
            self.helpers.set(&self.node, NodeState::Lost(why), None);
            self.helpers.gone(&self.node);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Names what an attempt leaves: an earlier one may still be on its way to its end.
    fn attempt_name(&self, attempt: u32) -> String {
        format!("{}.{attempt}", self.name)
    }

    fn start(&self, attempt: u32) -> std::io::Result<(Child, String)> {
        let secret = Secret::generate().expose().to_owned();
        let file = HelperFile {
            name: self.attempt_name(attempt),
            node: self.node.clone(),
            secret: secret.clone(),
            container: self.container.clone(),
            nodes: self.nodes.clone(),
            sampled: self.sampled.clone(),
            scratch: self.scratch.clone(),
        };
        // A name of its own: nodes may remember for a while that an earlier one is not there any more.
        let path = self.directory.join(format!("{HELPER_FILE}{}-{attempt}.json", self.node));
        let text = serde_json::to_string(&file)?;
        write_private(&path, &text)?;
        // Programs of other nodes' launchers are below it, with all processors.
        let options = [
            format!("--nodelist={}", self.node),
            "--nodes=1".into(),
            "--ntasks=1".into(),
            "--mpi=none".into(),
            "--cpu-bind=none".into(),
        ];
        let digest = digest(&text).into();
        let words = ["helper".into(), "--file".into(), path.into_os_string(), "--digest".into(), digest];
        let mut command = self.srun.step(&options, &words.each_ref());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok((child, secret))
    }

    /// Listens to it until it ends.
    async fn attend(&self, mut child: Child, secret: &str, attempt: u32) -> End {
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return End::default();
        };
        let log = self.log.clone();
        let node = self.node.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(errors).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.say(&format!("node {node}: {line}"));
            }
        });
        let (answers, answered) = mpsc::channel(ORDERS);
        let orders = tokio::spawn(pass_on(self.helpers.orders.subscribe(), answered, input));
        let end = self.listen(output, secret, attempt, &answers).await;
        orders.abort();
        // SLURM ends the step when its srun is asked to: nothing of a helper that is not believed stays.
        if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = tokio::time::timeout(GONE, child.wait()).await;
        end
    }

    async fn listen(&self, output: ChildStdout, secret: &str, attempt: u32, answers: &mpsc::Sender<ToHelper>) -> End {
        let name = self.attempt_name(attempt);
        let (mut lines, mut proven, mut end) = (BufReader::new(output).lines(), false, End::default());
        let mut clock: Option<Clock> = None;
        // Whatever becomes of them without this helper, nobody will say when they are over.
        let mut programs: BTreeMap<u32, Told> = BTreeMap::new();
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(FromHelper::Hello { proof, directory, names }) if is_proven(&proof, secret, &name, &self.node) => {
                    proven = true;
                    self.helpers.answered(&self.node, 0);
                    self.helpers.call(&self.node, names);
                    self.helpers.set(&self.node, NodeState::Starting, Some(directory));
                }
                Ok(FromHelper::Filled { trouble }) if proven => {
                    let filling = trouble.map_or(Filling::Filled, Filling::Failed);
                    // The other nodes may have begun long ago.
                    if filling == Filling::Filled && *self.helpers.begun.borrow() {
                        let _ = answers.send(ToHelper::Begin).await;
                    }
                    let succeeded = *self.helpers.succeeded.borrow();
                    if let Some(succeeded) = succeeded {
                        let _ = answers.send(ToHelper::Empty { succeeded }).await;
                    }
                    self.helpers.fill(&self.node, filling);
                }
                Ok(FromHelper::Copied { amounts }) if proven => self.helpers.standing.count(&self.node, amounts),
                Ok(FromHelper::Samples { batch }) if proven => self.helpers.samples.put(batch),
                Ok(FromHelper::Emptied { trouble }) if proven => {
                    self.helpers.fill(&self.node, Filling::Emptied(trouble));
                }
                Ok(FromHelper::Ready) if proven => {
                    end.was_ready = true;
                    end.why = None;
                    self.helpers.set(&self.node, NodeState::Ready, None);
                }
                Ok(FromHelper::Where { question, host }) if proven => {
                    let (helpers, here, answers) = (self.helpers.clone(), self.node.clone(), answers.clone());
                    tokio::spawn(async move {
                        let answer = where_is(&helpers, &here, &host).await;
                        // It may have ended in between.
                        let _ = answers.send(ToHelper::There { question, answer }).await;
                    });
                }
                Ok(FromHelper::Port { question, port }) if proven => {
                    // Who has asked may have gone.
                    let _ = self.helpers.ports.send((question, port));
                }
                Ok(FromHelper::Ended { mut end }) if proven => {
                    end.at = clock.map_or(end.at, |clock| clock.here(end.at));
                    self.helpers.ended(&self.node, end);
                }
                Ok(FromHelper::Began { number, node, command }) if proven => {
                    if programs.len() < PROGRAMS {
                        programs.insert(number, self.helpers.running.program(&node, command));
                    }
                }
                Ok(FromHelper::Over { number }) if proven => drop(programs.remove(&number)),
                Ok(FromHelper::Beat { number, said, heard }) if proven => {
                    let seen = Clock::new(said, heard, ends::now());
                    clock = Some(clock.map_or(seen, |clock| clock.then(seen)));
                    self.helpers.answered(&self.node, number);
                }
                Ok(FromHelper::Lost { text }) => {
                    end.why = Some(text.clone());
                    self.helpers.set(&self.node, NodeState::Lost(text), None);
                }
                Ok(_) => {
                    self.log
                        .say(&format!("node {}: somebody who could not prove to be its helper was refused", self.node));
                    return end;
                }
                // The container's own words.
                Err(_) => self.log.say(&format!("node {}: {line}", self.node)),
            }
        }
        end
    }
}

/// How a helper has ended.
#[derive(Default)]
struct End {
    was_ready: bool,
    /// In its own words.
    why: Option<String>,
}

async fn pass_on(
    mut orders: broadcast::Receiver<ToHelper>,
    mut answers: mpsc::Receiver<ToHelper>,
    mut input: ChildStdin,
) {
    let mut pulse = tokio::time::interval(BEAT);
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                Ok(order) => order,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            },
            Some(answer) = answers.recv() => answer,
            _ = pulse.tick() => beat(next_beat()),
        };
        let Ok(mut line) = serde_json::to_vec(&order) else { continue };
        line.push(b'\n');
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
