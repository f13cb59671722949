//! One program on one node, as ssh would start it.
//!
//! SLURM carries its input, output and status: a step of its own on that node hands them to the container's first program, which starts the
//! shell. So what a program leaves running belongs to the container there and not to this step: it outlives the connection, as with ssh, and
//! ends with the session.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eirene_steps::{Answer, Descriptors, RemoteRequest, Request, Word};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::process::Child;
use tokio::sync::oneshot;

use super::{Asker, READY, Refusal, ask_to_end, listen, shown};
use crate::helper::{FromHelper, say};
use crate::helpers::{Helpers, NodeState, Nodes, STEP_FILE};
use crate::job::{digest, write_private};
use crate::remote::{HANG_UP, RemoteFile, ended};
use crate::rsh::{EXIT_FAILED, NO_SUCH_NODE};
use crate::srun::Srun;

/// How long a task may take to end by itself.
const QUIETLY: Duration = Duration::from_secs(2);

/// Who starts programs on the session's nodes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Remotes(Arc<Inner>);

struct Inner {
    way: Way,
    srun: Option<Srun>,
    directory: PathBuf,
    name: String,
    last: AtomicU32,
}

/// How a host is found.
pub(crate) enum Way {
    /// The agent knows all nodes.
    Agent {
        /// The nodes.
        helpers: Helpers,
        /// Its own.
        here: String,
    },
    /// The helper of a node asks it.
    Helper(Questions),
}

/// What the agent says of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Where {
    /// It is a node that is ready.
    Found(Found),
    /// It is not.
    Refused {
        /// Whether it is a node of the session at all.
        is_node: bool,
        /// One sentence.
        text: String,
    },
}

/// Questions of a helper that the agent has not answered yet. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Where>>,
}

impl Questions {
    /// The agent has answered.
    pub(crate) fn answer(&self, number: u64, answer: Where) {
        if let Some(asker) = self.open().waiting.remove(&number) {
            // It may have gone.
            let _ = asker.send(answer);
        }
    }

    async fn ask(&self, host: &str) -> Where {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut open = self.open();
            open.last += 1;
            let number = open.last;
            open.waiting.insert(number, sender);
            number
        };
        let gone = || Where::Refused { is_node: true, text: "the session's agent is gone".to_owned() };
        if say(&FromHelper::Where { question: number, host: host.to_owned() }).is_err() {
            return gone();
        }
        receiver.await.unwrap_or_else(|_| gone())
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node that was asked for by any of its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Found {
    /// Its name.
    pub(crate) node: String,
    /// Its runtime directory.
    pub(crate) directory: PathBuf,
}

impl Remotes {
    /// Leaves word for its tasks in `directory`, which all nodes see; `name` tells its files from those of others.
    pub(crate) fn new(way: Way, srun: Option<Srun>, directory: &Path, name: &str) -> Self {
        let (directory, name) = (directory.to_owned(), name.to_owned());
        Self(Arc::new(Inner { way, srun, directory, name, last: AtomicU32::new(0) }))
    }

    /// Starts a program and stays with it to its end, or the asker's. What `begun` gives, once it
    /// has been started on a node of this name, is kept for as long.
    pub(crate) async fn start<T>(
        &self,
        asker: &mut Asker,
        request: RemoteRequest,
        standard: Descriptors,
        begun: impl FnOnce(&str) -> T,
    ) -> Result<Answer, Refusal> {
        let failed =
            |error: io::Error| Refusal("not_started", format!("`{}` cannot be reached: {error}", request.node));
        let found = tokio::select! {
            found = self.find(&request.node) => found?,
            () = asker.gone() => return Err(Refusal("gone", "the asker has gone".to_owned())),
        };
        let Some(srun) = &self.0.srun else {
            return Err(Refusal("no_srun", "this node has no `srun` in the PATH of jobs".to_owned()));
        };
        let number = self.0.last.fetch_add(1, Ordering::Relaxed);
        let file = RemoteFile { node: found.node.clone(), directory: found.directory, program: request.program };
        let text = serde_json::to_string(&file).map_err(|error| failed(error.into()))?;
        let path = self.0.directory.join(format!("{STEP_FILE}{}-ssh-{number}.json", self.0.name));
        let _file = Written::new(&path, &text).map_err(failed)?;
        let options = [
            format!("--nodelist={}", found.node),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            "--mpi=none".to_owned(),
            "--cpu-bind=none".to_owned(),
        ];
        let uid = nix::unistd::geteuid().as_raw();
        let digest = digest(&text).into();
        let words = ["remote".into(), "--file".into(), path.clone().into_os_string(), "--digest".into(), digest];
        let Descriptors([input, output, errors]) = standard;
        let mut command = srun.step(&options, &words.each_ref());
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        // Ctrl-C in the asker's terminal is the asker's.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        // The descriptors are the step's alone now.
        drop(command);
        let _begun = begun(&found.node);
        let _ = asker.say(&Answer::Starting { text: format!("on {}", found.node) }).await;
        loop {
            tokio::select! {
                // Without a status SLURM has failed, or the task, and has said why.
                _ = child.wait() => return Ok(Answer::Ended { status: ended(&path, uid).unwrap_or(EXIT_FAILED) }),
                heard = asker.hear::<Word>() => if !matches!(heard, Ok(Some(Word::Signal { .. }))) {
                    // It is gone, or wants to be. With its task the program over there is hung up.
                    if !asked_quietly(&mut child).await {
                        ask_to_end(&child);
                        let _ = child.wait().await;
                    }
                    return Ok(Answer::Ended { status: EXIT_FAILED });
                },
            }
        }
    }

    /// Serves on another node than the first, at the socket of this path; the agent is told what runs.
    pub(crate) fn listen(self, path: &Path, uid: u32, first: &str) -> io::Result<()> {
        let first = first.to_owned();
        listen(path, uid, move |mut asker, request, standard| {
            let (remotes, first) = (self.clone(), first.clone());
            async move {
                let outcome = match request {
                    Request::Remote(request) => {
                        let command = shown(&request.program);
                        let begun = |node: &str| Said::begun(node, command);
                        remotes.start(&mut asker, request, standard, begun).await
                    }
                    Request::Step(_) => {
                        let text = format!("steps are started on the session's first node, {first}, alone");
                        Err(Refusal("not_here", text))
                    }
                };
                asker.end(outcome).await;
            }
        })
    }

    async fn find(&self, host: &str) -> Result<Found, Refusal> {
        match &self.0.way {
            Way::Agent { helpers, here } => found(helpers, here, host).await,
            Way::Helper(questions) => match questions.ask(host).await {
                Where::Found(found) => Ok(found),
                Where::Refused { is_node, text } => Err(Refusal(if is_node { NOT_READY } else { NO_SUCH_NODE }, text)),
            },
        }
    }
}

/// Answers the helper of `here`.
pub(crate) async fn where_is(helpers: &Helpers, here: &str, host: &str) -> Where {
    match found(helpers, here, host).await {
        Ok(found) => Where::Found(found),
        Err(Refusal(code, text)) => Where::Refused { is_node: code != NO_SUCH_NODE, text },
    }
}

/// The code with which a node is refused that is one.
const NOT_READY: &str = "node_not_ready";

/// The node that is meant by `host`, once its container is ready. `here` is the asker's.
async fn found(helpers: &Helpers, here: &str, host: &str) -> Result<Found, Refusal> {
    let mut nodes = helpers.watch();
    let node = named(&nodes.borrow(), here, host)?;
    let settled = |nodes: &Nodes| nodes.get(&node).is_none_or(|node| node.state != NodeState::Starting);
    // At the limit it is refused as it is then.
    let _ = tokio::time::timeout(READY, nodes.wait_for(settled)).await;
    let now = nodes.borrow().get(&node).cloned();
    let refused = |text: String| Err(Refusal(NOT_READY, text));
    match now.map(|now| (now.state, now.directory)) {
        Some((NodeState::Ready, Some(directory))) => Ok(Found { node, directory }),
        Some((NodeState::Lost(why), _)) => refused(format!("node {node} cannot be used now: {why}")),
        _ => refused(format!("node {node} is still getting the session's container ready: try again in a moment")),
    }
}

/// The node of this name, or one of its other names or addresses.
fn named(nodes: &Nodes, here: &str, host: &str) -> Result<String, Refusal> {
    let is_here = matches!(host, "localhost" | "127.0.0.1" | "::1");
    let host = if is_here { here } else { host };
    let other = || nodes.iter().find(|(_, node)| node.names.iter().any(|name| name.eq_ignore_ascii_case(host)));
    let node = nodes.get_key_value(host).or_else(other).map(|(name, _)| name.clone());
    node.ok_or_else(|| {
        let own: Vec<&str> = nodes.keys().map(String::as_str).collect();
        Refusal(NO_SUCH_NODE, format!("`{host}` is not a node of this session, which has {}", own.join(", ")))
    })
}

/// Has the task end by itself, by a signal that `srun` hands on: a step that is ended says so on its standard error. False where that takes too
/// long, as with a task that does not listen yet.
async fn asked_quietly(child: &mut Child) -> bool {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // It may have ended in between.
        let _ = kill(Pid::from_raw(pid), HANG_UP);
    }
    tokio::time::timeout(QUIETLY, child.wait()).await.is_ok()
}

/// A program that the agent knows of, until this is dropped.
struct Said(u32);

impl Said {
    fn begun(node: &str, command: String) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        // Whoever cannot tell the agent has nobody left to tell.
        let _ = say(&FromHelper::Began { number, node: node.to_owned(), command });
        Self(number)
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        let _ = say(&FromHelper::Over { number: self.0 });
    }
}

/// What a task reads, removed when it has ended.
struct Written(PathBuf);

impl Written {
    fn new(path: &Path, text: &str) -> io::Result<Self> {
        write_private(path, text)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // What cannot be removed lies in the person's own directory, and is tidied away by the session's next agent.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helpers::Node;

    #[test]
    fn a_node_is_known_by_each_of_its_names_and_nobody_else_is() {
        let node = |names: &[&str]| Node {
            state: NodeState::Ready,
            directory: Some("/tmp/x".into()),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let nodes: Nodes = [
            ("c1".to_owned(), node(&["c1.cluster", "10.0.0.1"])),
            ("c2".to_owned(), node(&["c2.cluster", "10.0.0.2"])),
        ]
        .into();
        for (host, expected) in [
            ("c2", "c2"),
            ("c2.cluster", "c2"),
            ("C2.Cluster", "c2"),
            ("10.0.0.2", "c2"),
            ("localhost", "c1"),
            ("127.0.0.1", "c1"),
        ] {
            assert_eq!(named(&nodes, "c1", host).unwrap(), expected, "{host}");
        }
        assert_eq!(named(&nodes, "c2", "localhost").unwrap(), "c2");
        for stranger in ["c3", "c2.elsewhere.org", "10.0.0.3", "", "c", "c2\n", "--nodelist=c2"] {
            let Refusal(code, text) = named(&nodes, "c1", stranger).unwrap_err();
            assert_eq!(code, NO_SUCH_NODE);
            assert!(text.ends_with("is not a node of this session, which has c1, c2"), "{text}");
        }
    }
}
