//! The session on its other nodes: a step of its own holds the container ready there, hands signals to ranks, and leaves nothing.
//!
//! A helper proves to the agent that it can read the file that was written for it: its node's own secret, used once. It ends when its standard
//! input does, which is when the agent ends, however it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::app;
use crate::container::{Announcement, Container, Content, Place, Spec};
use crate::ends::{self, RankEnd};
use crate::job::{Environment, read_exactly};
use crate::launchers;
use crate::log::Log;
use crate::names;
use crate::processes;
use crate::ranks;
use crate::runtime_directory::RuntimeDirectory;
use crate::samples::{self, Sampled};
use crate::scratch::{self, Amounts, Assignment, Held, Meter, Trouble};
use crate::srun::Srun;
use crate::steps::{Questions, Remotes, STEPS_SOCKET, Way, Where, free_port};

/// Longest file for a helper, bytes.
const MOST_BYTES: u64 = 256 * 1024;
/// Time between asking the container to end and killing it.
const GRACE: Duration = Duration::from_secs(2);
/// How often the agent says that it is there, and after how long without a word it is taken for gone.
pub(crate) const BEAT: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_mins(3);
/// Pause before a container that has ended is started again.
const AGAIN: Duration = Duration::from_secs(2);

/// What a helper finds in its private file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HelperFile {
    /// What names this start of the session on nodes.
    pub(crate) name: String,
    /// The node it is for.
    pub(crate) node: String,
    /// What proves it.
    pub(crate) secret: String,
    /// The container.
    pub(crate) container: Spec,
    /// All nodes of the session with their processors.
    pub(crate) nodes: Vec<(String, u32)>,
    /// Whose samples it takes.
    pub(crate) sampled: Sampled,
    /// The session's scratch on this node, if it has one.
    pub(crate) scratch: Option<Assignment>,
}

/// A helper's words, one JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum FromHelper {
    /// First of all.
    Hello {
        /// What shows that it knows its secret.
        proof: String,
        /// Its runtime directory.
        directory: PathBuf,
        /// What else its node is called.
        names: Vec<String>,
    },
    /// The node's scratch is filled, or cannot be. The container waits for [`ToHelper::Begin`].
    Filled {
        /// Why not.
        trouble: Option<Trouble>,
    },
    /// So much has been copied to the node's scratch, or from it.
    Copied {
        /// How much, of how much.
        amounts: Amounts,
    },
    /// Samples of its node, for the portal.
    Samples {
        /// A batch.
        batch: String,
    },
    /// What was to be kept of the node's scratch is out, or cannot be.
    Emptied {
        /// Why not.
        trouble: Option<Trouble>,
    },
    /// The container is ready.
    Ready,
    /// Which node is meant by a host's name, once it is ready?
    Where {
        /// The question's number.
        question: u64,
        /// As a program has called it.
        host: String,
    },
    /// A port of its node that is free.
    Port {
        /// The question's number.
        question: u64,
        /// None where there is none.
        port: Option<u16>,
    },
    /// A rank of its node has not ended well.
    Ended {
        /// Which, and how.
        end: RankEnd,
    },
    /// A launcher on its node has begun a program.
    Began {
        /// The helper's own number for it.
        number: u32,
        /// Where the program runs.
        node: String,
        /// What it is, for people.
        command: String,
    },
    /// That program is over.
    Over {
        /// Its number.
        number: u32,
    },
    /// It has heard that the agent is there, and said all that it knew before.
    Beat {
        /// Which of the agent's words.
        number: u64,
        /// When that was said by the agent's clock, and heard by its own: microseconds since 1970.
        said: i64,
        /// See `said`.
        heard: i64,
    },
    /// The container has ended, and is started again.
    Lost {
        /// One sentence.
        text: String,
    },
}

/// The agent's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ToHelper {
    /// Hand a signal to this node's ranks of a step.
    Signal {
        /// The step.
        step: u32,
        /// The signal's number.
        signal: i32,
    },
    /// The answer to a question.
    There {
        /// Its number.
        question: u64,
        /// What is known of the host.
        answer: Where,
    },
    /// Which port of this node is free?
    Port {
        /// The question's number.
        question: u64,
        /// Who is asked.
        node: String,
    },
    /// All nodes' scratches are filled: start the container.
    Begin,
    /// The program has ended: end the container, and bring out what is to be kept of the scratch.
    Empty {
        /// Whether it ended well.
        succeeded: bool,
    },
    /// The agent is there.
    Beat {
        /// Counts them.
        number: u64,
        /// When, microseconds since 1970 by the agent's clock.
        said: i64,
    },
}

/// What shows that one knows a helper's secret, without saying it: HMAC-SHA-256 (RFC 2104), in hexadecimal.
pub(crate) fn proof(secret: &str, name: &str, node: &str) -> String {
    data_encoding::HEXLOWER.encode(&mac(secret, name, node).finalize().into_bytes())
}

/// Whether that is shown, in constant time.
pub(crate) fn is_proven(said: &str, secret: &str, name: &str, node: &str) -> bool {
    let said = data_encoding::HEXLOWER.decode(said.as_bytes());
    said.is_ok_and(|said| mac(secret, name, node).verify_slice(&said).is_ok())
}

#[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
fn mac(secret: &str, name: &str, node: &str) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.chain_update(format!("eirene helper\n{name}\n{node}"))
}

/// Serves until the agent is gone; gives the exit status.
pub async fn helper(file: &Path, digest: &str, log: &Log) -> u8 {
    match serve(file, digest, log).await {
        Ok(()) => 0,
        Err(error) => {
            // Before it has proven itself nobody takes its word, but the log does.
            let _ = say(&FromHelper::Lost { text: error.to_string() });
            log.say(&error.to_string());
            1
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn serve(path: &Path, digest: &str, log: &Log) -> Result<(), AnyError> {
    processes::adopt_orphans()?;
    processes::reap_adopted()?;
    let uid = nix::unistd::geteuid().as_raw();
    let file: HelperFile = serde_json::from_str(&read_exactly(path, uid, MOST_BYTES, digest)?)?;
    // Its secret has served when it is proven.
    std::fs::remove_file(path)?;
    let environment = Environment::from_pairs(std::env::vars_os());
    if environment.get("SLURMD_NODENAME") != Some(&file.node) {
        return Err(format!("this is not the node `{}`", file.node).into());
    }
    let directory = RuntimeDirectory::make(Path::new("/tmp"), uid, &file.name, log)?;
    let proof = proof(&file.secret, &file.name, &file.node);
    launchers::furnish(&directory.inside(), &file.nodes)?;
    say(&FromHelper::Hello { proof, directory: directory.path().to_owned(), names: names::own() })?;
    let questions = Questions::default();
    // Whoever cannot tell the agent has nobody left to tell.
    ends::listen(&directory.inside(), |end| drop(say(&FromHelper::Ended { end })))?;
    samples::start(&file.sampled, &directory.inside(), None, log, |batch| say(&FromHelper::Samples { batch }).is_ok());
    serve_launchers(path, &file, &environment, &directory, questions.clone())?;
    let mut orders = Orders::new(&file.node, questions)?;
    let mut held = match &file.scratch {
        Some(scratch) => fill(scratch, directory.path(), log, &mut orders).await?,
        None => None,
    };
    if let Some(held) = held.as_mut().filter(|_| !orders.over) {
        held.hand_over().map_err(|trouble| trouble.text)?;
    }
    while !orders.over {
        hold(&file, &environment, &directory, log, &mut orders).await?;
        processes::sweep().await;
        orders.follow(directory.path(), AGAIN).await;
    }
    match held {
        Some(held) => empty(held, orders.succeeded, log).await,
        None => Ok(()),
    }
}

/// Fills this node's scratch, and waits until all nodes have done so, or there is to be an end.
async fn fill(
    scratch: &Assignment,
    directory: &Path,
    log: &Log,
    orders: &mut Orders,
) -> Result<Option<Held>, AnyError> {
    let broken_off = Arc::new(AtomicBool::new(false));
    let (assignment, stop, own_log) = (scratch.clone(), Arc::clone(&broken_off), log.clone());
    let meter = Meter::default();
    // Whoever cannot tell the agent has nobody left to tell.
    meter.follow(|amounts| drop(say(&FromHelper::Copied { amounts })));
    let mut filling = tokio::task::spawn_blocking(move || scratch::prepare(&assignment, &stop, &meter, &own_log));
    let filled = tokio::select! {
        filled = &mut filling => filled?,
        () = orders.next(directory) => {
            broken_off.store(true, Ordering::Relaxed);
            filling.await?
        }
    };
    let (held, trouble) = match filled {
        Ok(held) => (held, None),
        Err(trouble) => (None, Some(trouble)),
    };
    say(&FromHelper::Filled { trouble })?;
    while !orders.over && !orders.begun {
        orders.next(directory).await;
    }
    Ok(held)
}

/// Brings out what is to be kept. Without the agent's word the program did not end well.
async fn empty(held: Held, succeeded: Option<bool>, log: &Log) -> Result<(), AnyError> {
    let emptied = tokio::task::spawn_blocking(move || held.finish(succeeded.unwrap_or(false))).await?;
    if let Err(trouble) = &emptied {
        log.say(&trouble.text);
    }
    // An agent that is gone does not hear it.
    let _ = say(&FromHelper::Emptied { trouble: emptied.err() });
    Ok(())
}

/// Listens to launchers in this node's container: some start programs on third nodes from here.
fn serve_launchers(
    path: &Path,
    file: &HelperFile,
    environment: &Environment,
    directory: &RuntimeDirectory,
    questions: Questions,
) -> Result<(), AnyError> {
    let job = environment.get("SLURM_JOB_ID").and_then(|job| job.parse().ok());
    let srun = job.and_then(|job| Srun::find(job, environment));
    let name = format!("{}-{}", file.name.split_once('.').map_or("0", |(_, start)| start), file.node);
    let remotes = Remotes::new(Way::Helper(questions), srun, path.parent().unwrap_or(Path::new("/")), &name);
    let first = file.nodes.first().map_or("", |(first, _)| first);
    Ok(remotes.listen(&directory.inside().join(STEPS_SOCKET), nix::unistd::geteuid().as_raw(), first)?)
}

/// One container, until it ends or the agent is gone.
async fn hold(
    file: &HelperFile,
    environment: &Environment,
    directory: &RuntimeDirectory,
    log: &Log,
    orders: &mut Orders,
) -> Result<(), AnyError> {
    let announcement = Announcement::expect(&directory.inside())?;
    Place::forget(directory.path());
    let content = Content { environment: variables(file, environment), ..Content::default() };
    let mut container = Container::start(&file.container, content, environment, directory, log)?;
    let uid = nix::unistd::geteuid().as_raw();
    let shown = announcement.wait(uid);
    tokio::pin!(shown);
    let mut ready = false;
    loop {
        tokio::select! {
            place = &mut shown, if !ready => {
                place?.write(directory.path())?;
                ready = true;
                say(&FromHelper::Ready)?;
            }
            ended = container.wait() => {
                let text = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                return Ok(say(&FromHelper::Lost { text: format!("the container has ended: {text}") })?);
            }
            () = orders.next(directory.path()) => {
                // How the container takes it says nothing.
                let _ = container.end(GRACE).await;
                return Ok(());
            }
        }
    }
}

/// What programs in the container find: the app's variables, as far as they are not about its node.
fn variables(file: &HelperFile, environment: &Environment) -> Vec<(String, String)> {
    let session = file.name.split('.').next().unwrap_or_default().to_owned();
    let mut all = app::session(environment, &file.nodes, &file.node);
    // What SLURM says here is about the helper's own step.
    all.retain(|(name, _)| {
        !matches!(name.as_str(), "SLURM_JOB_NODELIST" | "SLURM_JOB_NUM_NODES" | "SLURM_JOB_CPUS_PER_NODE")
    });
    let processors: Vec<String> = file.nodes.iter().map(|(_, processors)| processors.to_string()).collect();
    all.push(("SLURM_JOB_CPUS_PER_NODE".to_owned(), processors.join(",")));
    let names: Vec<&str> = file.nodes.iter().map(|(name, _)| name.as_str()).collect();
    all.push(("SLURM_JOB_NODELIST".to_owned(), names.join(",")));
    all.push(("SLURM_JOB_NUM_NODES".to_owned(), names.len().to_string()));
    all.push((app::SESSION.to_owned(), session));
    all.extend(file.scratch.as_ref().map(|_| app::scratch()));
    all
}

/// What comes on standard input, and signals to this process.
struct Orders {
    /// The node that this is.
    node: String,
    lines: tokio::io::Lines<BufReader<tokio::net::unix::pipe::Receiver>>,
    terminate: tokio::signal::unix::Signal,
    heard: Instant,
    over: bool,
    /// Whether the container may start.
    begun: bool,
    /// How the program has ended, once the agent has said so.
    succeeded: Option<bool>,
    questions: Questions,
}

impl Orders {
    fn new(node: &str, questions: Questions) -> std::io::Result<Self> {
        use std::os::fd::AsFd as _;
        let input = std::io::stdin().as_fd().try_clone_to_owned()?;
        let input = tokio::net::unix::pipe::Receiver::from_owned_fd(input)?;
        let terminate = signal(SignalKind::terminate())?;
        let (lines, heard) = (BufReader::new(input).lines(), Instant::now());
        Ok(Self {
            node: node.to_owned(),
            lines,
            terminate,
            heard,
            over: false,
            begun: false,
            succeeded: None,
            questions,
        })
    }

    /// Follows what comes until there is to be an end, or a beginning. Can be cancelled.
    async fn next(&mut self, directory: &Path) {
        let begun = self.begun;
        while !self.over && self.begun == begun {
            tokio::select! {
                _ = self.terminate.recv() => self.over = true,
                line = self.lines.next_line() => match line {
                    Ok(Some(line)) => {
                        self.heard = Instant::now();
                        match serde_json::from_str(&line) {
                            Ok(ToHelper::Signal { step, signal }) => if let Ok(signal) = Signal::try_from(signal) {
                                ranks::signal_all(directory, step, signal);
                            },
                            Ok(ToHelper::There { question, answer }) => self.questions.answer(question, answer),
                            Ok(ToHelper::Port { question, node }) => if node == self.node {
                                // Whoever cannot tell the agent has nobody left to tell.
                                let _ = say(&FromHelper::Port { question, port: free_port() });
                            },
                            Ok(ToHelper::Begin) => self.begun = true,
                            Ok(ToHelper::Empty { succeeded }) => (self.succeeded, self.over) = (Some(succeeded), true),
                            Ok(ToHelper::Beat { number, said }) => {
                                let heard = ends::now();
                                // What has come from ranks by now is passed on first.
                                tokio::task::yield_now().await;
                                // Whoever cannot tell the agent has nobody left to tell.
                                let _ = say(&FromHelper::Beat { number, said, heard });
                            }
                            Err(_) => {}
                        }
                    }
                    Ok(None) | Err(_) => self.over = true,
                },
                // An srun that was killed does not end this pipe, nor does a first node that is gone.
                () = tokio::time::sleep_until(self.heard + SILENCE) => self.over = true,
            }
        }
    }

    /// The same for so long.
    async fn follow(&mut self, directory: &Path, time: Duration) {
        let _ = tokio::time::timeout(time, self.next(directory)).await;
    }
}

/// Tells the agent.
pub(crate) fn say(words: &FromHelper) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_secret_one_start_and_one_node() {
        let said = proof("s", "n.0", "c2");
        assert!(is_proven(&said, "s", "n.0", "c2"));
        for (secret, name, node) in [("t", "n.0", "c2"), ("s", "n.1", "c2"), ("s", "n.0", "c3")] {
            assert!(!is_proven(&said, secret, name, node));
        }
        assert!(!is_proven("", "s", "n.0", "c2") && !is_proven("zz", "s", "n.0", "c2"));
    }
}
