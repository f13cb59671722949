//! The agent's side of the [helpers](crate::helper): starts one on every other node, believes those that prove themselves, starts again what has
//! gone, and knows where ranks may be started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eirene_core::secret::Secret;
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{broadcast, watch};

use crate::container::Spec;
use crate::helper::{FromHelper, HelperFile, ToHelper, is_proven};
use crate::job::{Job, write_private};
use crate::log::Log;
use crate::srun::Srun;

/// Pauses before a helper that has gone is started again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Orders that a helper may be behind.
const ORDERS: usize = 64;

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
}

/// All nodes by name.
pub(crate) type Nodes = BTreeMap<String, Node>;

/// The session's nodes, and the way to those behind the first. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Helpers {
    nodes: watch::Sender<Nodes>,
    orders: broadcast::Sender<ToHelper>,
}

impl Helpers {
    /// Knows the nodes; the first one's runtime directory is the agent's own.
    pub(crate) fn new(job: &Job, directory: &Path) -> Self {
        let node = |name: &String| {
            let directory = (*name == job.node).then(|| directory.to_owned());
            (name.clone(), Node { state: NodeState::Starting, directory })
        };
        let (nodes, _) = watch::channel(job.allocation.names().iter().map(node).collect());
        Self { nodes, orders: broadcast::channel(ORDERS).0 }
    }

    /// Starts a helper on every node behind the first. They live as long as the job's side does.
    pub(crate) fn start(&self, job: &Job, container: &Spec, srun: &Srun, log: &Log) {
        for (node, _) in job.allocation.others() {
            let keeper = Keeper {
                helpers: self.clone(),
                node: node.clone(),
                name: job.name(),
                directory: job.home_directory().to_owned(),
                container: container.clone(),
                srun: srun.clone(),
                log: log.clone(),
            };
            tokio::spawn(keeper.keep());
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
            let new = Node { state, directory: directory.or(known.directory.clone()) };
            let changed = *known != new;
            *known = new;
            changed
        });
    }

    /// Hands a signal to the ranks of a step, on all nodes behind the first.
    pub(crate) fn signal(&self, step: u32, signal: Signal) {
        // Without other nodes nobody listens.
        let _ = self.orders.send(ToHelper::Signal { step, signal: signal as i32 });
    }
}

/// Keeps the helper of one node.
struct Keeper {
    helpers: Helpers,
    node: String,
    name: String,
    directory: PathBuf,
    container: Spec,
    srun: Srun,
    log: Log,
}

impl Keeper {
    async fn keep(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let why = match self.start() {
                Ok((child, secret)) => {
                    let was_ready = self.attend(child, &secret).await;
                    if was_ready {
                        pause = FIRST_PAUSE;
                    }
                    "its helper has ended".to_owned()
                }
                Err(error) => error.to_string(),
            };
            self.log.say(&format!("node {}: {why}; trying again", self.node));
            self.helpers.set(&self.node, NodeState::Lost(why), None);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn start(&self) -> std::io::Result<(Child, String)> {
        let secret = Secret::generate().expose().to_owned();
        let file = HelperFile {
            name: self.name.clone(),
            node: self.node.clone(),
            secret: secret.clone(),
            container: self.container.clone(),
        };
        let path = self.directory.join(format!("helper-{}.json", self.node));
        write_private(&path, &serde_json::to_string(&file)?)?;
        let options =
            [format!("--nodelist={}", self.node), "--nodes=1".into(), "--ntasks=1".into(), "--mpi=none".into()];
        let words = ["helper".into(), "--file".into(), path.into_os_string()];
        let mut command = self.srun.step(&options, &words.each_ref());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok((child, secret))
    }

    /// Listens to it until it ends; whether it was ready once.
    async fn attend(&self, mut child: Child, secret: &str) -> bool {
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return false;
        };
        let log = self.log.clone();
        let node = self.node.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(errors).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.say(&format!("node {node}: {line}"));
            }
        });
        let orders = tokio::spawn(pass_on(self.helpers.orders.subscribe(), input));
        let was_ready = self.listen(output, secret).await;
        orders.abort();
        // Its process goes with it: nothing of a helper that is not believed stays.
        drop(child);
        was_ready
    }

    async fn listen(&self, output: ChildStdout, secret: &str) -> bool {
        let (mut lines, mut proven, mut was_ready) = (BufReader::new(output).lines(), false, false);
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(FromHelper::Hello { proof, directory }) if is_proven(&proof, secret, &self.name, &self.node) => {
                    proven = true;
                    self.helpers.set(&self.node, NodeState::Starting, Some(directory));
                }
                Ok(FromHelper::Ready) if proven => {
                    was_ready = true;
                    self.helpers.set(&self.node, NodeState::Ready, None);
                }
                Ok(FromHelper::Lost { text }) if proven => self.helpers.set(&self.node, NodeState::Lost(text), None),
                Ok(_) => {
                    self.log
                        .say(&format!("node {}: somebody who could not prove to be its helper was refused", self.node));
                    return was_ready;
                }
                // The container's own words.
                Err(_) => self.log.say(&format!("node {}: {line}", self.node)),
            }
        }
        was_ready
    }
}

async fn pass_on(mut orders: broadcast::Receiver<ToHelper>, mut input: ChildStdin) {
    loop {
        let order = match orders.recv().await {
            Ok(order) => order,
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let Ok(mut line) = serde_json::to_vec(&order) else { continue };
        line.push(b'\n');
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}
