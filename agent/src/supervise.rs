//! From start to exit: the container and the connection begin at the same time, then signals, the portal, the app itself or the
//! deadline for becoming ready decide how it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eirene_tunnel::message::{ScratchWord, StopCause};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::app::{self, AppContext, SOCKET};
use crate::container::{self, Announcement, Container, Content, Spec};
use crate::dial::Dialer;
use crate::guard;
use crate::helpers::{self, Helpers, NodeState, Nodes};
use crate::job::{Environment, Job};
use crate::launchers;
use crate::link::{Link, Order, Phase};
use crate::log::Log;
use crate::processes;
use crate::report::Report;
use crate::run::content;
use crate::runtime_directory::RuntimeDirectory;
use crate::samples;
use crate::scratch::{self, Assignment, Code, Held, Meter, Trouble};
use crate::srun::Srun;
use crate::steps::Steps;
use crate::traced::{self, Traced};

/// Exit status when the app could not be started.
pub const EXIT_NOT_STARTED: u8 = 3;
/// Exit status when the portal refused this job for good.
const EXIT_REFUSED: u8 = 4;
/// Exit status when a signal ended the app.
const EXIT_SIGNAL: u8 = 5;

/// Exit status when something was to be kept of the scratch and could not be copied back.
const EXIT_NOT_KEPT: u8 = 6;

/// Time between asking the app to end and killing it, when SLURM does the asking: well below its `KillWait` of 30 s.
const GRACE: Duration = Duration::from_secs(5);
/// The same for a run, whose ranks write a checkpoint in it; still below `KillWait`.
const RUN_GRACE: Duration = Duration::from_secs(25);
/// The last words may take so long.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Time for the portal to cancel the job of a run that was stopped.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);
/// A signal that comes so soon after the app's end was sent before it.
const MOMENT: Duration = Duration::from_millis(50);
/// Pause between two looks whether the app answers.
const LOOK: Duration = Duration::from_millis(15);
/// A signal this close before the time limit is the time limit's, seconds.
const LIMIT_IS_NEAR_S: u64 = 10;
/// So is a warning this close: it comes up to two minutes before, and SLURM may be up to a minute early. Any other is of a preemption.
const WARNED_OF_LIMIT_S: u64 = 180;
/// A program that is ended early, so that something can be copied back, has this long at least to save after its warning.
const SAVED_WITHIN: Duration = Duration::from_secs(10);
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
    let began_ms = traced::now_ms();
    processes::adopt_orphans()?;
    processes::reap_adopted()?;
    let job = Job::read(job_file, environment, log).await?;
    let directory = RuntimeDirectory::make(Path::new("/tmp"), job.uid, &job.name(), log)?;
    // An agent that was killed could not.
    helpers::tidy(job.home_directory());
    launchers::furnish(&directory.inside(), &job.allocation.nodes)?;
    let home = environment.get("HOME").unwrap_or("/");
    let scratch = job.file.app.scratch.as_ref();
    let scratch = scratch.map(|scratch| Assignment::new(scratch, job.id, &job.name(), home, &job.allocation.names()));
    let container = Spec::new(&job.file.app, home, scratch.as_ref().map(|scratch| scratch.spot().clone()));
    let srun = Srun::find(job.id, environment);
    let helpers = Helpers::new(&job, directory.path());
    let steps = Steps::new(&job, directory.path(), container.clone(), srun.clone(), helpers.clone(), log.clone());
    let cpus = job.allocation.nodes.first().map_or(1, |(_, cpus)| *cpus);
    let outbox = helpers.samples().clone();
    let put = move |batch| {
        outbox.put(batch);
        true
    };
    samples::start(&job.sampled(&job.node, cpus), &directory.inside(), Some(helpers.running().clone()), log, put);
    let (phase, _) = watch::channel(Phase::Starting);
    let (orders, inbox) = mpsc::channel(4);
    let (told, _) = watch::channel(false);
    let link = Link {
        dialer: Dialer::new(&job)?,
        socket: directory.inside().join(SOCKET),
        nodes: job.allocation.names(),
        phase: phase.subscribe(),
        report: Report::new(helpers.watch(), helpers.running().watch()),
        scratch: helpers.standing().teller(),
        samples: helpers.samples().clone(),
        traced: Traced::new(job.file.trace.as_deref(), began_ms),
        log: log.clone(),
        orders,
        told: told.clone(),
    };
    tokio::spawn(link.run());
    let environment = environment.clone();
    let log = log.clone();
    Ok(Session { job, environment, container, scratch, srun, helpers, steps, directory, phase, inbox, told, log })
}

struct Session {
    job: Job,
    environment: Environment,
    container: Spec,
    scratch: Option<Assignment>,
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

impl End {
    /// It could not even begin.
    fn not_started(code: &'static str, text: String) -> Self {
        Self { why: None, status: None, problem: Some((code, text)), exit: EXIT_NOT_STARTED }
    }

    /// Whether it ended well: a run by itself with status 0, a session also by its owner's wish.
    fn succeeded(&self, is_run: bool) -> bool {
        let well = match self.why {
            None => self.status == Some(0),
            Some(StopCause::Request) => !is_run,
            Some(_) => false,
        };
        well && self.problem.is_none() && self.exit != EXIT_REFUSED
    }

    /// It was ended before it began.
    fn asked(why: StopCause) -> Self {
        Self { why: Some(why), status: None, problem: None, exit: 0 }
    }
}

/// What SLURM and the person send to the job.
struct Received {
    terminate: Signals,
    interrupt: Signals,
    warning: Signals,
}

impl Received {
    fn expect() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let (interrupt, warning) = (signal(SignalKind::interrupt())?, signal(SignalKind::user_defined1())?);
        Ok(Self { terminate, interrupt, warning })
    }
}

impl Session {
    async fn supervise(mut self) -> u8 {
        let mut received = Received::expect();
        let end = match &mut received {
            Ok(received) => self.live(received).await,
            Err(error) => End::not_started("not_started", format!("signals cannot be received: {error}")),
        };
        self.helpers.end();
        processes::sweep().await;
        helpers::tidy(self.job.home_directory());
        let mut told = self.told.subscribe();
        let has_problem = end.problem.is_some();
        self.phase.send_replace(Phase::Exited { why: end.why, status: end.status, problem: end.problem });
        if end.exit != EXIT_REFUSED {
            // A portal that is away learns it from the scheduler.
            let _ = tokio::time::timeout(LAST_WORDS, told.wait_for(|told| *told)).await;
        }
        let awaits_cancel = self.is_run() && end.why == Some(StopCause::Request) && !has_problem;
        if let (true, Ok(received)) = (awaits_cancel, &mut received) {
            // Nothing is left to be brought out. The portal cancels the job now, so that SLURM's accounting says what happened.
            let _ = tokio::time::timeout(CANCELLED_WITHIN, received.terminate.recv()).await;
        }
        // A session ends well by its owner's wish or its time limit; a run that did not come to its end must not count as completed, or jobs that
        // depend on it would begin.
        if self.is_run() && end.why.is_some() && end.exit == 0 { EXIT_SIGNAL } else { end.exit }
    }

    fn is_run(&self) -> bool {
        self.job.file.app.run.is_some()
    }

    /// From the first thing that is looked at to the last that is brought out.
    async fn live(&mut self, received: &mut Received) -> End {
        let (content, readiness) = match self.content() {
            Ok(content) => content,
            Err(error) => return self.not_started(error.as_ref()),
        };
        let mut held = None;
        if let Some(scratch) = self.scratch.clone() {
            self.start_helpers();
            match self.fill(&scratch, received).await {
                Ok(filled) => held = filled,
                Err(end) => return end,
            }
        }
        let mut end = match self.start(content) {
            Ok(container) => {
                if self.scratch.is_none() {
                    self.start_helpers();
                }
                self.watch(container, readiness, received).await
            }
            Err(error) => {
                held.iter_mut().for_each(Held::take_back);
                self.not_started(error.as_ref())
            }
        };
        if let Some(held) = held {
            self.empty(held, &mut end, received).await;
        }
        end
    }

    fn not_started(&self, error: &(dyn std::error::Error + 'static)) -> End {
        let text = chain(error);
        self.log.say(&text);
        End::not_started("not_started", text)
    }

    /// Fills the scratches of all nodes. Whatever ends the session meanwhile ends that too, and leaves nothing.
    async fn fill(&mut self, scratch: &Assignment, received: &mut Received) -> Result<Option<Held>, End> {
        self.log.say("preparing the session's scratch");
        let broken_off = Arc::new(AtomicBool::new(false));
        let (assignment, stop, log) = (scratch.clone(), Arc::clone(&broken_off), self.log.clone());
        let helpers = self.helpers.clone();
        helpers.standing().enter(ScratchWord::Filling);
        let (meter, standing, node) = (Meter::default(), helpers.standing().clone(), scratch.node().to_owned());
        meter.follow(move |amounts| standing.count(&node, amounts));
        let mut own = tokio::task::spawn_blocking(move || scratch::prepare(&assignment, &stop, &meter, &log));
        let others = helpers.filled();
        tokio::pin!(others);
        let (mut held, mut filled, mut all, mut warned) = (None, false, false, false);
        let end = loop {
            if filled && all {
                if let Some(Err(trouble)) = held.as_mut().map(Held::hand_over) {
                    break self.in_trouble(trouble);
                }
                self.helpers.standing().enter(ScratchWord::Ready);
                self.helpers.begin();
                return Ok(held);
            }
            tokio::select! {
                biased;
                // Nothing has begun that could be saved.
                _ = received.warning.recv() => warned = true,
                _ = received.terminate.recv() => break End::asked(self.ended_by_signal(warned)),
                _ = received.interrupt.recv() => break End::asked(self.interrupted()),
                order = self.inbox.recv() => break match order {
                    Some(Order::Stop { .. }) => End::asked(self.asked_to_stop()),
                    Some(Order::Refused(text)) => self.refused(&text),
                    None => End::asked(StopCause::Signal),
                },
                done = &mut own, if !filled => {
                    filled = true;
                    match done.unwrap_or_else(|error| Err(Trouble::new(Code::ScratchUnavailable, error))) {
                        Ok(scratch) => held = scratch,
                        Err(trouble) => break self.in_trouble(trouble),
                    }
                }
                done = &mut others, if !all => match done {
                    Ok(()) => all = true,
                    Err(trouble) => break self.in_trouble(trouble),
                },
            }
        };
        broken_off.store(true, Ordering::Relaxed);
        if !filled {
            held = own.await.ok().and_then(Result::ok).flatten();
        }
        if let Some(held) = held {
            // No program has had it: it is only removed.
            let _ = tokio::task::spawn_blocking(move || held.finish(false)).await;
        }
        self.helpers.standing().end(Vec::new());
        Err(end)
    }

    /// Brings out what is to be kept of all nodes' scratches. Nothing ends that but SLURM, and then somebody comes after.
    async fn empty(&mut self, held: Held, end: &mut End, received: &mut Received) {
        let succeeded = end.succeeded(self.job.file.app.run.is_some());
        self.helpers.standing().enter(ScratchWord::Emptying);
        let own = tokio::task::spawn_blocking(move || held.finish(succeeded));
        let helpers = self.helpers.clone();
        let both = async { tokio::join!(own, helpers.empty(succeeded)) };
        tokio::pin!(both);
        let (own, others) = loop {
            tokio::select! {
                done = &mut both => break done,
                _ = received.terminate.recv() => self.log.say("asked to end; the scratch is still being emptied"),
                _ = received.interrupt.recv() => {}
                _ = received.warning.recv() => {}
                // A stop was heard before, or ends nothing that still runs; without a link there is nothing to hear.
                order = self.inbox.recv(), if !self.inbox.is_closed() => drop(order),
            }
        };
        let own = own.unwrap_or_else(|error| Err(Trouble::new(Code::StageOutFailed, error)));
        let here = own.as_ref().err().map(|trouble| (self.job.node.clone(), Some(trouble.text.clone())));
        let each = self.scratch.as_ref().is_some_and(Assignment::is_of_nodes);
        let elsewhere = if each { self.helpers.not_emptied() } else { Vec::new() };
        self.helpers.standing().end(here.into_iter().chain(elsewhere).collect());
        if let Err(trouble) = own.and(others) {
            end.problem = end.problem.take().or(Some((trouble.code.as_str(), trouble.text)));
            end.exit = if end.exit == 0 { EXIT_NOT_KEPT } else { end.exit };
        }
    }

    fn in_trouble(&self, trouble: Trouble) -> End {
        self.log.say(&trouble.text);
        End::not_started(trouble.code.as_str(), trouble.text)
    }

    /// SLURM's signal to end.
    fn ended_by_signal(&self, warned: bool) -> StopCause {
        let cause = if self.limit_is_near(LIMIT_IS_NEAR_S, warned) { StopCause::Walltime } else { StopCause::Signal };
        self.phase.send_replace(Phase::Stopping(cause));
        self.log.say(if cause == StopCause::Walltime {
            "the time limit is reached"
        } else {
            "asked to end by a signal"
        });
        cause
    }

    /// Waits for a signal to end.
    async fn signalled(&self, received: &mut Received, warned: bool) -> StopCause {
        tokio::select! {
            _ = received.terminate.recv() => self.ended_by_signal(warned),
            _ = received.interrupt.recv() => self.interrupted(),
        }
    }

    fn interrupted(&self) -> StopCause {
        self.phase.send_replace(Phase::Stopping(StopCause::Signal));
        StopCause::Signal
    }

    fn asked_to_stop(&self) -> StopCause {
        self.phase.send_replace(Phase::Stopping(StopCause::Request));
        self.log.say("asked to stop");
        StopCause::Request
    }

    fn refused(&self, text: &str) -> End {
        self.log.say(&format!("the portal refuses this job: {text}"));
        End { why: None, status: None, problem: None, exit: EXIT_REFUSED }
    }

    fn start_helpers(&self) {
        match &self.srun {
            Some(srun) => self.helpers.start(&self.job, &self.container, self.scratch.as_ref(), srun, &self.log),
            None => self.helpers.none(&self.job),
        }
    }

    fn content(&self) -> Result<(Content, Readiness), AnyError> {
        match &self.job.file.app.run {
            Some(run) => Ok((content(run, &self.environment, &self.job)?, Readiness::Started)),
            None => self.app(),
        }
    }

    fn start(&self, content: Content) -> Result<Container, AnyError> {
        let announcement = Announcement::expect(&self.directory.inside())?;
        self.steps.listen()?;
        let container = Container::start(&self.container, content, &self.environment, &self.directory, &self.log)?;
        tokio::spawn(show(announcement, self.job.clone(), self.directory.path().to_owned(), self.helpers.clone()));
        Ok(container)
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
        if self.is_run() { "program" } else { "app" }
    }

    /// Time between asking what runs to end and killing it, when SLURM does the asking.
    fn grace(&self) -> Duration {
        if self.is_run() { RUN_GRACE } else { GRACE }
    }

    async fn watch(&mut self, mut container: Container, readiness: Readiness, received: &mut Received) -> End {
        let socket = self.directory.inside().join(SOCKET);
        let limit = Duration::from_secs(u64::from(self.job.file.app.ready_within_s));
        let deadline = Instant::now() + limit;
        let mut ready = false;
        let (mut warned, mut leave_at) = (false, None);
        let (why, grace) = loop {
            tokio::select! {
                // A signal to the whole job ends the app as well: what was asked for comes before what came of it.
                biased;
                _ = received.warning.recv() => {
                    warned = true;
                    leave_at = self.leave_at();
                    self.log.say("the time limit is near: save your work");
                    self.steps.warn(Signal::SIGUSR1);
                    container.warn().await;
                }
                _ = received.terminate.recv() => break (self.ended_by_signal(warned), self.grace()),
                _ = received.interrupt.recv() => break (self.interrupted(), self.grace()),
                () = until(leave_at) => {
                    self.phase.send_replace(Phase::Stopping(StopCause::Walltime));
                    self.log.say("the rest of the time is for what is to be kept of the scratch");
                    break (StopCause::Walltime, self.grace());
                }
                order = self.inbox.recv() => match order {
                    Some(Order::Stop { grace }) => break (self.asked_to_stop(), grace),
                    Some(Order::Refused(text)) => {
                        let end = self.refused(&text);
                        // Ending it is all that is left; how it takes that says nothing.
                        let _ = container.end(GRACE).await;
                        return end;
                    }
                    None => break (StopCause::Signal, self.grace()),
                },
                ended = container.wait() => {
                    // The kernel may say that the app has ended before it delivers the signal of which it ended.
                    if let Ok(cause) = tokio::time::timeout(MOMENT, self.signalled(received, warned)).await {
                        break (cause, self.grace());
                    }
                    let status = ended.ok().and_then(container::code);
                    let never_began = status == Some(guard::EXIT_NOT_FOUND.into());
                    if let Some(text) = never_began.then(|| guard::reason(&self.directory.inside())).flatten() {
                        return End::not_started("not_started", text);
                    }
                    let noun = self.noun();
                    self.log.say(&status.map_or(format!("the {noun} was ended by a signal"), |s| format!("the {noun} ended with status {s}")));
                    let broke_off = warned && self.is_run() && status != Some(0);
                    let why = if broke_off { self.made_room(received).await } else { None };
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
    async fn made_room(&mut self, received: &mut Received) -> Option<StopCause> {
        if self.limit_is_near(self.warned_of_limit_s(), true) {
            self.phase.send_replace(Phase::Stopping(StopCause::Walltime));
            self.log.say("the time limit is all but reached");
            return Some(StopCause::Walltime);
        }
        self.log.say("waits for the scheduler to take the nodes");
        let why = tokio::select! {
            _ = received.terminate.recv() => StopCause::Signal,
            _ = received.interrupt.recv() => StopCause::Signal,
            order = self.inbox.recv() => if matches!(order, Some(Order::Stop { .. })) { StopCause::Request } else { StopCause::Signal },
            () = tokio::time::sleep(TAKEN_WITHIN) => return None,
        };
        self.phase.send_replace(Phase::Stopping(why));
        Some(why)
    }

    /// Seconds before the time limit at which the program is ended, because something is to be copied back; none if nothing is.
    fn reserve_s(&self) -> Option<u64> {
        let brings_out = self.scratch.as_ref().is_some_and(Assignment::brings_out);
        self.job.file.app.scratch.as_ref().filter(|_| brings_out).map(|scratch| scratch.reserve_s.into())
    }

    /// A warning this close to the time limit is of that.
    fn warned_of_limit_s(&self) -> u64 {
        self.reserve_s().unwrap_or(0).saturating_add(WARNED_OF_LIMIT_S)
    }

    /// When a program that has just been warned of the time limit is ended so that what it made can be copied back in time. Of a preemption it is
    /// warned later, and its end leaves what time there is.
    fn leave_at(&self) -> Option<Instant> {
        let reserve_s = self.reserve_s().filter(|_| self.limit_is_near(self.warned_of_limit_s(), true))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let left_s = self.job.ends_at.unwrap_or(now).saturating_sub(now).saturating_sub(reserve_s);
        Some(Instant::now() + Duration::from_secs(left_s).max(SAVED_WITHIN))
    }

    fn limit_is_near(&self, within_s: u64, otherwise: bool) -> bool {
        match (self.job.ends_at, SystemTime::now().duration_since(UNIX_EPOCH)) {
            (Some(ends_at), Ok(now)) => now.as_secs() + within_s >= ends_at,
            _ => otherwise,
        }
    }
}

/// At that time, or never.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
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
