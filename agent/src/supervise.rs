//! From start to exit: the container and the connection begin at the same time, then signals, the portal, the app itself or the
//! deadline for becoming ready decide how it ends.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eirene_tunnel::message::StopCause;
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::app::{self, AppContext, SOCKET};
use crate::container::{self, Announcement, Container, Content, Spec};
use crate::dial::Dialer;
use crate::helpers::{self, Helpers, NodeState, Nodes};
use crate::job::{Environment, Job};
use crate::launchers;
use crate::link::{Link, Order, Phase};
use crate::log::Log;
use crate::processes;
use crate::report::Report;
use crate::run::content;
use crate::runtime_directory::RuntimeDirectory;
use crate::srun::Srun;
use crate::steps::Steps;

/// Exit status when the app could not be started.
pub const EXIT_NOT_STARTED: u8 = 3;
/// Exit status when the portal refused this job for good.
const EXIT_REFUSED: u8 = 4;
/// Exit status when a signal ended the app.
const EXIT_SIGNAL: u8 = 5;

/// Time between asking the app to end and killing it, when SLURM does the asking: well below its `KillWait` of 30 s.
const GRACE: Duration = Duration::from_secs(5);
/// The same for a run, whose ranks write a checkpoint in it; still below `KillWait`.
const RUN_GRACE: Duration = Duration::from_secs(25);
/// The last words may take so long.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Pause between two looks whether the app answers.
const LOOK: Duration = Duration::from_millis(15);
/// A signal this close before the time limit is the time limit's, seconds.
const LIMIT_IS_NEAR_S: u64 = 10;
/// So is a warning this close: it comes up to two minutes before, and SLURM may be up to a minute early. Any other is of a preemption.
const WARNED_OF_LIMIT_S: u64 = 180;
/// A program that made room for another job waits this long to be put back into the queue, longer than the grace that clusters give.
const TAKEN_WITHIN: Duration = Duration::from_mins(10);

/// Runs the session of this job file to its end; gives the exit status.
pub async fn run(job_file: &Path, environment: &Environment, log: &Log) -> u8 {
    match prepare(job_file, environment, log).await {
        Ok(session) => session.supervise().await,
        Err(error) => {
            log.say(&chain(error.as_ref()));
            EXIT_NOT_STARTED
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

async fn prepare(job_file: &Path, environment: &Environment, log: &Log) -> Result<Session, AnyError> {
    processes::adopt_orphans()?;
    processes::reap_adopted()?;
    let job = Job::read(job_file, environment, log).await?;
    let directory = RuntimeDirectory::make(Path::new("/tmp"), job.uid, &job.name())?;
    // An agent that was killed could not.
    helpers::tidy(job.home_directory());
    launchers::furnish(&directory.inside(), &job.allocation.nodes)?;
    let container = Spec::new(&job.file.app, environment.get("HOME").unwrap_or("/"));
    let srun = Srun::find(job.id, environment);
    let helpers = Helpers::new(&job, directory.path());
    let steps = Steps::new(&job, directory.path(), container.clone(), srun.clone(), helpers.clone(), log.clone());
    let (phase, _) = watch::channel(Phase::Starting);
    let (orders, inbox) = mpsc::channel(4);
    let (told, _) = watch::channel(false);
    let link = Link {
        dialer: Dialer::new(&job)?,
        socket: directory.inside().join(SOCKET),
        nodes: job.allocation.names(),
        phase: phase.subscribe(),
        report: Report::new(helpers.watch(), steps.watch()),
        log: log.clone(),
        orders,
        told: told.clone(),
    };
    tokio::spawn(link.run());
    let environment = environment.clone();
    let log = log.clone();
    Ok(Session { job, environment, container, srun, helpers, steps, directory, phase, inbox, told, log })
}

struct Session {
    job: Job,
    environment: Environment,
    container: Spec,
    srun: Option<Srun>,
    helpers: Helpers,
    steps: Steps,
    directory: RuntimeDirectory,
    phase: watch::Sender<Phase>,
    inbox: mpsc::Receiver<Order>,
    told: watch::Sender<bool>,
    log: Log,
}

/// How it ended.
struct End {
    /// Why it was ended, if it did not end by itself.
    why: Option<StopCause>,
    status: Option<i32>,
    problem: Option<(&'static str, String)>,
    exit: u8,
}

impl Session {
    async fn supervise(mut self) -> u8 {
        let end = match self.start() {
            Ok((container, readiness)) => self.watch(container, readiness).await,
            Err(error) => {
                let text = chain(error.as_ref());
                self.log.say(&text);
                End { why: None, status: None, problem: Some(("not_started", text)), exit: EXIT_NOT_STARTED }
            }
        };
        self.helpers.end();
        processes::sweep().await;
        helpers::tidy(self.job.home_directory());
        let mut told = self.told.subscribe();
        self.phase.send_replace(Phase::Exited { why: end.why, status: end.status, problem: end.problem });
        if end.exit != EXIT_REFUSED {
            // A portal that is away learns it from the scheduler.
            let _ = tokio::time::timeout(LAST_WORDS, told.wait_for(|told| *told)).await;
        }
        end.exit
    }

    fn start(&self) -> Result<(Container, Readiness), AnyError> {
        let (content, ready) = match &self.job.file.app.run {
            Some(run) => (content(run, &self.environment, &self.job)?, Readiness::Started),
            None => self.app()?,
        };
        let announcement = Announcement::expect(&self.directory.inside())?;
        self.steps.listen()?;
        let container = Container::start(&self.container, content, &self.environment, &self.directory, &self.log)?;
        tokio::spawn(show(announcement, self.job.clone(), self.directory.path().to_owned(), self.helpers.clone()));
        match &self.srun {
            Some(srun) => self.helpers.start(&self.job, &self.container, srun, &self.log),
            None => self.helpers.none(&self.job),
        }
        Ok((container, ready))
    }

    fn app(&self) -> Result<(Content, Readiness), AnyError> {
        let name = &self.job.file.app.app;
        let app = app::find(name).ok_or_else(|| format!("this agent does not know the app `{name}`"))?;
        let context =
            AppContext { home: self.environment.get("HOME").unwrap_or("/"), origin: &self.job.file.app.origin };
        let content = Content {
            command: (app.command)(context),
            environment: app::environment((app.environment)(context), &self.environment, &self.job),
            writable_image: app.writable_image,
            directory: None,
        };
        Ok((content, Readiness::Answers(app.ready_path)))
    }

    /// What runs here, in words.
    fn noun(&self) -> &'static str {
        if self.job.file.app.run.is_some() { "program" } else { "app" }
    }

    /// Time between asking what runs to end and killing it, when SLURM does the asking.
    fn grace(&self) -> Duration {
        if self.job.file.app.run.is_some() { RUN_GRACE } else { GRACE }
    }

    async fn watch(&mut self, mut container: Container, readiness: Readiness) -> End {
        let socket = self.directory.inside().join(SOCKET);
        let limit = Duration::from_secs(u64::from(self.job.file.app.ready_within_s));
        let deadline = Instant::now() + limit;
        let mut ready = false;
        let (Ok(mut terminate), Ok(mut interrupt), Ok(mut warning)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::user_defined1()))
        else {
            let text = "signals cannot be received".to_owned();
            return End { why: None, status: None, problem: Some(("not_started", text)), exit: EXIT_NOT_STARTED };
        };
        let mut warned = false;
        let (why, grace) = loop {
            tokio::select! {
                // A signal to the whole job ends the app as well: what was asked for comes before what came of it.
                biased;
                _ = warning.recv() => {
                    warned = true;
                    self.log.say("the time limit is near: save your work");
                    self.steps.warn(Signal::SIGUSR1);
                    container.warn().await;
                }
                _ = terminate.recv() => {
                    let cause = if self.limit_is_near(LIMIT_IS_NEAR_S, warned) { StopCause::Walltime } else { StopCause::Signal };
                    self.phase.send_replace(Phase::Stopping(cause));
                    self.log.say(if cause == StopCause::Walltime { "the time limit is reached" } else { "asked to end by a signal" });
                    break (cause, self.grace());
                }
                _ = interrupt.recv() => {
                    self.phase.send_replace(Phase::Stopping(StopCause::Signal));
                    break (StopCause::Signal, self.grace());
                }
                order = self.inbox.recv() => match order {
                    Some(Order::Stop { grace }) => {
                        self.phase.send_replace(Phase::Stopping(StopCause::Request));
                        self.log.say("asked to stop");
                        break (StopCause::Request, grace);
                    }
                    Some(Order::Refused(text)) => {
                        self.log.say(&format!("the portal refuses this job: {text}"));
                        let _ = container.end(GRACE).await;
                        return End { why: None, status: None, problem: None, exit: EXIT_REFUSED };
                    }
                    None => break (StopCause::Signal, self.grace()),
                },
                ended = container.wait() => {
                    let status = ended.ok().and_then(container::code);
                    let noun = self.noun();
                    self.log.say(&status.map_or(format!("the {noun} was ended by a signal"), |s| format!("the {noun} ended with status {s}")));
                    let broke_off = warned && self.job.file.app.run.is_some() && status != Some(0);
                    let why = if broke_off { self.made_room(&mut terminate, &mut interrupt).await } else { None };
                    return End { why, status, problem: None, exit: status.map_or(EXIT_SIGNAL, |s| u8::try_from(s).unwrap_or(1)) };
                }
                () = is_ready(&socket, readiness, &self.helpers, &self.job.node), if !ready => {
                    ready = true;
                    self.phase.send_replace(Phase::Ready);
                }
                () = tokio::time::sleep_until(deadline), if !ready => {
                    let text = format!("the {} did not answer within {} seconds", self.noun(), limit.as_secs());
                    self.log.say(&text);
                    // Ending it is all that is left; how it takes that says nothing.
                    let _ = container.end(GRACE).await;
                    return End { why: None, status: None, problem: Some(("never_ready", text)), exit: EXIT_NOT_STARTED };
                }
            }
        };
        let status = container.end(grace).await.ok().and_then(container::code);
        End { why: Some(why), status, problem: None, exit: 0 }
    }

    /// A program that was warned and then ended before it was done has saved and made room. Its end must not be the job's own where SLURM is
    /// about to put the job back into the queue, because SLURM does so only with jobs that run. Gives why it ended; none: that is not known.
    async fn made_room(&mut self, terminate: &mut Signals, interrupt: &mut Signals) -> Option<StopCause> {
        if self.limit_is_near(WARNED_OF_LIMIT_S, true) {
            self.phase.send_replace(Phase::Stopping(StopCause::Walltime));
            self.log.say("the time limit is all but reached");
            return Some(StopCause::Walltime);
        }
        self.log.say("waits for the scheduler to take the nodes");
        let why = tokio::select! {
            _ = terminate.recv() => StopCause::Signal,
            _ = interrupt.recv() => StopCause::Signal,
            order = self.inbox.recv() => if matches!(order, Some(Order::Stop { .. })) { StopCause::Request } else { StopCause::Signal },
            () = tokio::time::sleep(TAKEN_WITHIN) => return None,
        };
        self.phase.send_replace(Phase::Stopping(why));
        Some(why)
    }

    fn limit_is_near(&self, within_s: u64, otherwise: bool) -> bool {
        match (self.job.ends_at, SystemTime::now().duration_since(UNIX_EPOCH)) {
            (Some(ends_at), Ok(now)) => now.as_secs() + within_s >= ends_at,
            _ => otherwise,
        }
    }
}

/// Lets ranks in once the app's container is there.
async fn show(announcement: Announcement, job: Job, directory: PathBuf, helpers: Helpers) {
    let shown = announcement.wait(job.uid).await.and_then(|place| place.write(&directory));
    let state = shown.map_or_else(|error| NodeState::Lost(error.to_string()), |()| NodeState::Ready);
    helpers.set(&job.node, state, None);
}

/// When what runs here is ready.
#[derive(Debug, Clone, Copy)]
enum Readiness {
    /// As soon as it answers on this path of its socket.
    Answers(&'static str),
    /// As soon as its container is there.
    Started,
}

async fn is_ready(socket: &Path, readiness: Readiness, helpers: &Helpers, node: &str) {
    match readiness {
        Readiness::Answers(path) => answers(socket, path).await,
        Readiness::Started => {
            let here = |nodes: &Nodes| nodes.get(node).is_some_and(|node| node.state != NodeState::Starting);
            // Its sender lives as long as this does.
            let _ = helpers.watch().wait_for(here).await;
        }
    }
}

/// Waits until the app answers 200 on its socket.
async fn answers(socket: &Path, path: &str) {
    while !asked(socket, path).await.unwrap_or(false) {
        tokio::time::sleep(LOOK).await;
    }
}

async fn asked(socket: &Path, path: &str) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status.starts_with(b"HTTP/1.") && status.ends_with(b" 200"))
}
