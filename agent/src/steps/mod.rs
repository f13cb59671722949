//! The step socket: who in the container may have ranks started, what is started for whom, and that it ends with the asker.
//!
//! The socket lies in the runtime directory, which only this person can enter and only this session's container sees; the peer's user is
//! checked all the same. A request is typed, and what it starts is an argument vector from beginning to end.

mod account;
mod plan;
mod remote;
mod running;
mod socket;
mod turns;

use eirene_core::text::one_line;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use eirene_steps::{Answer, Descriptors, Program, Request, StepRequest, StepSignal, Word};
use eirene_tunnel::message::StepReport;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::sync::{OnceCell, broadcast};

use crate::allocation::Allocation;
use crate::container::Spec;
use crate::ends;
use crate::helpers::{Helpers, NodeState, Nodes, STEP_FILE};
use crate::job::{Job, digest, write_private};
use crate::log::Log;
use crate::ranks::{self, Step};
use crate::runtime_directory::inside;
use crate::srun::Srun;

pub(crate) use remote::{Questions, Remotes, Way, Where, where_is};
pub(crate) use running::{Running, Told};
pub(crate) use socket::{Asker, listen};

use account::Account;
pub(crate) use plan::Refusal;
use plan::{Plan, plan, wanted};
use turns::{Turn, Turns};

/// Name of the socket in the runtime directory.
pub(crate) const STEPS_SOCKET: &str = "steps.sock";

/// How long SLURM may take to say what it offers.
const WAYS: Duration = Duration::from_secs(10);
/// How long a step waits for containers that are being started.
const READY: Duration = Duration::from_mins(1);
/// How long SLURM may take to end a step it was told to end.
const END: Duration = Duration::from_secs(40);
/// How long word of a rank's end may take after SLURM's end of the step.
const WORD: Duration = Duration::from_millis(500);
/// How long the other nodes may take to say what they know of ranks that have ended.
const GATHER: Duration = Duration::from_secs(2);
/// How long a wait for the end of the step before may be without a word.
const SILENCE: Duration = Duration::from_secs(1);
/// How long who reads a step's errors may take for the last line, until it is left to it.
const LAST_LINE: Duration = Duration::from_secs(1);
/// Warnings that a step may be behind.
const WARNINGS: usize = 8;

/// Everything steps need to know of their session. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Steps {
    inner: Arc<Inner>,
}

struct Inner {
    allocation: Allocation,
    own_directory: PathBuf,
    own_node: String,
    home_directory: PathBuf,
    name: String,
    uid: u32,
    container: Spec,
    srun: Option<Srun>,
    helpers: Helpers,
    remotes: Remotes,
    ways: OnceCell<Vec<String>>,
    log: Log,
    turns: Turns,
    warnings: broadcast::Sender<Signal>,
}

impl Steps {
    /// For a session whose containers the helpers hold ready.
    pub(crate) fn new(
        job: &Job,
        directory: &Path,
        container: Spec,
        srun: Option<Srun>,
        helpers: Helpers,
        log: Log,
    ) -> Self {
        let way = Way::Agent { helpers: helpers.clone(), here: job.node.clone() };
        let remotes = Remotes::new(way, srun.clone(), job.home_directory(), &job.file.restart_count.to_string());
        let inner = Inner {
            allocation: job.allocation.clone(),
            own_directory: directory.to_owned(),
            own_node: job.node.clone(),
            home_directory: job.home_directory().to_owned(),
            name: job.name(),
            uid: job.uid,
            container,
            srun,
            helpers,
            remotes,
            ways: OnceCell::new(),
            log,
            turns: Turns::default(),
            warnings: broadcast::channel(WARNINGS).0,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Listens, and serves until the agent ends.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let (helpers, node) = (self.inner.helpers.clone(), self.inner.own_node.clone());
        ends::listen(&inside(&self.inner.own_directory), move |end| helpers.ended(&node, end))?;
        let steps = self.clone();
        listen(
            &inside(&self.inner.own_directory).join(STEPS_SOCKET),
            self.inner.uid,
            move |asker, request, standard| steps.clone().serve(asker, request, standard),
        )
    }

    /// Tells all ranks early that the session is about to end.
    pub(crate) fn warn(&self, signal: Signal) {
        // Mostly no step runs.
        let _ = self.inner.warnings.send(signal);
    }

    /// What runs on the session's nodes.
    fn running(&self) -> &Running {
        self.inner.helpers.running()
    }

    /// Ways in which SLURM helps ranks find each other; nothing where it does not say in time, which is asked again the next time.
    async fn ways(&self) -> &[String] {
        let ask = || async {
            let srun = self.inner.srun.as_ref().ok_or(())?;
            let ways = tokio::time::timeout(WAYS, srun.ways()).await.unwrap_or_default();
            if ways.is_empty() { Err(()) } else { Ok(ways) }
        };
        self.inner.ways.get_or_try_init(ask).await.map_or(&[], Vec::as_slice)
    }

    async fn serve(self, mut asker: Asker, request: Request, standard: Descriptors) {
        let outcome = match request {
            Request::Step(request) => self.step(&mut asker, request, standard).await,
            Request::Remote(request) => {
                let command = shown(&request.program);
                let begun = |node: &str| self.running().program(node, command);
                self.inner.remotes.start(&mut asker, request, standard, begun).await
            }
        };
        asker.end(outcome).await;
    }

    /// Waits until the containers of wanted nodes that are being started are ready, as long as somebody waits for this.
    async fn nodes(&self, asker: &mut Asker, wanted: impl Fn(&str) -> bool) -> Result<Nodes, Refusal> {
        let mut nodes = self.inner.helpers.watch();
        let settled =
            |nodes: &Nodes| nodes.iter().all(|(name, node)| node.state != NodeState::Starting || !wanted(name));
        tokio::select! {
            // At the limit the plan names who is not ready.
            _ = tokio::time::timeout(READY, nodes.wait_for(settled)) => {}
            () = asker.gone() => return Err(gone()),
        }
        let now = nodes.borrow().clone();
        Ok(now)
    }

    /// The turn for a step, as long as somebody waits for this.
    async fn turn(&self, asker: &mut Asker, what: &str) -> Result<Turn, Refusal> {
        let turns = &self.inner.turns;
        let long = async {
            tokio::time::sleep(SILENCE).await;
            turns.ending()
        };
        let mut take = std::pin::pin!(turns.take(what));
        tokio::select! {
            turn = &mut take => return turn,
            Some(other) = long => {
                let text = format!("waiting until {other} has ended");
                let _ = asker.say(&Answer::Starting { text }).await;
            }
        }
        tokio::select! {
            turn = take => turn,
            () = asker.gone() => Err(gone()),
        }
    }

    async fn step(&self, asker: &mut Asker, request: StepRequest, standard: Descriptors) -> Result<Answer, Refusal> {
        let turn = self.turn(asker, &format!("`{}`", shown(&request.program))).await?;
        let wanted = wanted(&request, &self.inner.allocation)?;
        let nodes = self.nodes(asker, |name| wanted.has(name)).await?;
        let Plan { options, text, ranks, threads, nodes: used } = plan(&request, wanted, &nodes, self.ways().await)?;
        let _ = asker.say(&Answer::Starting { text }).await;
        let command = shown(&request.program);
        let number = self.running().next();
        let _told = self.running().tell(StepReport { number, command, ranks, nodes: used.clone() });
        let port = match used.first() {
            // Torch's own way to meet is a port of rank 0's node. One that is free here mostly is there, too.
            Some(first) if *first != self.inner.own_node => {
                self.inner.helpers.free_port(first).await.or_else(free_port)
            }
            _ => free_port(),
        };
        let step = Step {
            number,
            directories: directories(&nodes),
            container: self.inner.container.clone(),
            threads: self.threads(&request.program).then_some(threads),
            program: request.program,
            output: request.output,
            together: ranks > 1,
            master: used.into_iter().next().zip(port),
        };
        self.carry_out(asker, &step, &options, standard, &turn).await
    }

    /// Whether ranks get a number of threads of their own: not where the asker has chosen one.
    fn threads(&self, program: &Program) -> bool {
        let own = self.inner.allocation.nodes.first().map(|(_, processors)| processors.to_string());
        let chosen = program.environment.iter().find(|(name, _)| name == "OMP_NUM_THREADS").map(|(_, value)| value);
        chosen.is_none() || chosen == own.as_ref()
    }

    /// Starts a step and stays with it to its end.
    async fn carry_out(
        &self,
        asker: &mut Asker,
        step: &Step,
        options: &[String],
        standard: Descriptors,
        turn: &Turn,
    ) -> Result<Answer, Refusal> {
        let failed = |error: io::Error| Refusal("not_started", format!("the step could not be started: {error}"));
        let Some(srun) = &self.inner.srun else {
            let text = "this node has no `srun` in the PATH of jobs: `--here` starts the ranks in this container";
            return Err(Refusal("no_srun", text.to_owned()));
        };
        let file = StepFile::write(&self.inner, step).map_err(failed)?;
        let (path, digest) = (file.path.clone().into_os_string(), file.digest.clone().into());
        let words = ["rank".into(), "--step".into(), path, "--digest".into(), digest];
        let Descriptors([input, output, errors]) = standard;
        let labels = options.iter().any(|option| option == "--label");
        let mut first = First::new(step, labels, errors.try_clone().map_err(failed)?, &self.inner.helpers);
        let mut command = srun.step(options, &words.each_ref());
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        // Ctrl-C in the asker's terminal is the asker's to pass on.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        // The descriptors are the step's alone now.
        drop(command);
        self.running().count();
        let mut warnings = self.inner.warnings.subscribe();
        loop {
            tokio::select! {
                ended = child.wait() => {
                    turn.ends();
                    let status = ended.map_or(1, crate::guard::code);
                    return Ok(Answer::Ended { status: first.status(status).await });
                }
                () = first.hear() => {}
                heard = asker.hear::<Word>() => match heard {
                    Ok(Some(Word::Signal { signal })) => self.signal(step.number, of(signal)),
                    // It wants the end, is gone, or talks nonsense.
                    Ok(Some(Word::End {}) | None) | Err(_) => {
                        turn.ends();
                        self.end(child, step.number).await;
                        return Ok(Answer::Ended { status: ends::KILLED });
                    }
                },
                warning = warnings.recv() => if let Ok(signal) = warning {
                    self.signal(step.number, signal);
                }
            }
        }
    }

    fn signal(&self, step: u32, signal: Signal) {
        ranks::signal_all(&self.inner.own_directory, step, signal);
        self.inner.helpers.signal(step, signal);
    }

    async fn end(&self, mut child: Child, step: u32) {
        ask_to_end(&child);
        if tokio::time::timeout(END, child.wait()).await.is_err() {
            self.inner.log.say(&format!("step {step} does not end: SLURM is left to it"));
        }
    }
}

/// The rank that fails first: said among its lines, and its status is the step's.
struct First {
    account: Account,
    /// Whether there are others.
    together: bool,
    labels: bool,
    helpers: Helpers,
    ends: broadcast::Receiver<(String, ends::RankEnd)>,
    /// Asks all nodes for what they know.
    gathering: Option<tokio::task::JoinHandle<()>>,
    /// The step's standard error.
    errors: Option<OwnedFd>,
    line: Option<tokio::task::JoinHandle<()>>,
}

impl First {
    fn new(step: &Step, labels: bool, errors: OwnedFd, helpers: &Helpers) -> Self {
        Self {
            account: Account::of(step.number),
            together: step.together,
            labels,
            helpers: helpers.clone(),
            ends: helpers.ends(),
            gathering: None,
            errors: Some(errors),
            line: None,
        }
    }

    /// Hears one word of the ranks' ends, or that all have come; and says who failed first once that is certain. Can be cancelled.
    async fn hear(&mut self) {
        let gathered = async {
            match &mut self.gathering {
                Some(gathering) => drop(gathering.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // What was said before all had come is heard before.
            biased;
            end = self.ends.recv() => match end {
                Ok((node, end)) => {
                    self.account.note(node, &end);
                    if self.account.is_failed() {
                        self.gather();
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                // Its sender lives as long as this does.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            },
            () = gathered => {
                self.gathering = None;
                self.account.gathered();
            }
        }
        let sentence = self.account.sentence(false);
        self.say(sentence);
    }

    /// Asks the other nodes, once.
    fn gather(&mut self) {
        if self.gathering.is_none() && !self.account.is_gathered() {
            let helpers = self.helpers.clone();
            self.gathering = Some(tokio::spawn(async move {
                // One that takes longer is not waited for.
                let _ = tokio::time::timeout(GATHER, helpers.gather()).await;
            }));
        }
    }

    /// The step's status, where SLURM's is this.
    async fn status(mut self, status: u8) -> u8 {
        if status == 0 {
            return status;
        }
        // Word may be on its way still.
        let _ = tokio::time::timeout(WORD, async {
            while !self.account.is_failed() {
                self.hear().await;
            }
        })
        .await;
        self.gather();
        while !self.account.is_gathered() {
            self.hear().await;
        }
        let _ = tokio::time::timeout(WORD, async {
            while self.account.is_awaited() {
                self.hear().await;
            }
        })
        .await;
        let sentence = self.account.sentence(true);
        self.say(sentence);
        if let Some(line) = self.line.take() {
            let _ = tokio::time::timeout(LAST_LINE, line).await;
        }
        self.account.status().unwrap_or(status)
    }

    fn say(&mut self, sentence: Option<(u32, String)>) {
        let Some((rank, sentence)) = sentence.filter(|_| self.together) else { return };
        let label = if self.labels { format!("{rank}: ") } else { String::new() };
        if let Some(errors) = self.errors.take() {
            // Whoever does not read keeps a thread waiting, and not the agent.
            self.line = Some(tokio::task::spawn_blocking(move || {
                // Who has gone needs no line.
                let _ = std::fs::File::from(errors).write_all(format!("{label}[eirene] {sentence}\n").as_bytes());
            }));
        }
    }
}

/// SLURM's step ends when its `srun` is asked to: all ranks are killed.
fn ask_to_end(child: &Child) {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // It may have ended in between.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

fn gone() -> Refusal {
    Refusal("gone", "the asker has gone".to_owned())
}

fn of(signal: StepSignal) -> Signal {
    match signal {
        StepSignal::Interrupt => Signal::SIGINT,
        StepSignal::Terminate => ranks::TERMINATE,
        StepSignal::User1 => Signal::SIGUSR1,
        StepSignal::User2 => Signal::SIGUSR2,
    }
}

fn directories(nodes: &Nodes) -> std::collections::BTreeMap<String, PathBuf> {
    nodes.iter().filter_map(|(name, node)| Some((name.clone(), node.directory.clone()?))).collect()
}

/// A port that is free here now, for programs that meet in torch's own way; nothing of ours listens on it.
pub(crate) fn free_port() -> Option<u16> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    Some(listener.local_addr().ok()?.port())
}

/// A program as people know it again.
fn shown(program: &Program) -> String {
    const MOST: usize = 60;
    let text = program.command.join(" ");
    let short = one_line(&text, MOST);
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// What the ranks of a step read, removed at its end.
struct StepFile {
    path: PathBuf,
    digest: String,
}

impl StepFile {
    fn write(inner: &Inner, step: &Step) -> io::Result<Self> {
        let restart = inner.name.rsplit('.').next().unwrap_or("0");
        let path = inner.home_directory.join(format!("{STEP_FILE}{restart}-{}.json", step.number));
        let text = serde_json::to_string(step)?;
        write_private(&path, &text)?;
        Ok(Self { path, digest: digest(&text) })
    }
}

impl Drop for StepFile {
    fn drop(&mut self) {
        // What cannot be removed holds no secret of the session's, and lies in the person's own directory.
        let _ = std::fs::remove_file(&self.path);
    }
}
