//! `eirene-train run`: starts ranks here or on other hosts, shows what they say, and ends all when one fails.
//!
//! One loop waits for everything: ranks' outputs, their ends, signals, room to print. What differs between ranks of this node
//! ([`crew`]) and ranks of other hosts ([`fleet`]) is behind [`Workers`].

mod crew;
mod event;
mod feed;
mod fleet;
mod hosts;
mod keeper;
mod labelled;
mod lines;
mod node;
mod options;
mod orders;
mod printer;
mod report;
mod session;
mod share;
mod shell;
mod signals;
mod wire;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use eirene_train_mesh::Secret;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::error::Error;
use crew::Crew;
use event::Event;
use fleet::Fleet;
use hosts::Placed;
use keeper::Keeper;
use orders::{Orders, Rendezvous};
use printer::{Printer, Target};
use report::{Look, Report};
use share::Share;
use signals::Signals;

pub use event::BECAUSE_OF_ANOTHER;
pub use node::serve as node;
pub use options::{Bind, Hosts, Options};
pub use printer::Output;
pub use session::{SessionOptions, in_session, session_nodes};

/// How long ranks that were killed may take to be gone before they are given up.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);

/// How long a run looks for the rank that failed when others end because of it.
const ANOTHER_WITHIN: Duration = Duration::from_secs(3);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Every rank ended with 0.
    Well,
    /// A rank, or a host, failed first: with this code.
    Failed(u8),
    /// Somebody sent this signal to the run.
    Interrupted(i32),
}

impl Ending {
    /// What the command exits with.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::Failed(code) => code,
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

/// Runs ranks until all have ended.
///
/// Call it in a thread that lives as long as the run (the ranks die with it), once at a time in a process: it listens for SIGINT,
/// SIGTERM, SIGHUP and SIGCHLD meanwhile.
///
/// # Errors
/// When nothing could be run: wrong options, a program that is not there, a host that does not answer. What happens to ranks once
/// they run is no error but an [`Ending`].
pub fn run(options: &Options, stdout: Output, stderr: Output) -> Result<Ending, Error> {
    let placed = hosts::place(options)?;
    let look = Look { labels: options.labels, color: options.color, files: options.output.is_some() };
    let names: Vec<String> = placed.iter().map(|placed| placed.name.clone()).collect();
    let host_of = placed.iter().enumerate().flat_map(|(host, placed)| std::iter::repeat_n(host, placed.count as usize));
    let report = Report::new(look, names, host_of);
    let size = placed.iter().map(|placed| placed.count).sum();
    let input = input(options)?;
    let mut events = VecDeque::new();

    // The keeper is forked before there are threads, and ranks are started once somebody listens for their ends.
    let (workers, signals, printer) = match placed.as_slice() {
        [only] if only.here => {
            let mut share = Share::new()?;
            let mut keeper = Keeper::fork(share.directory())?;
            let signals = Signals::listen()?;
            let printer = Printer::start(stdout, stderr, options.output.as_deref(), size)?;
            let orders = orders_here(options, only)?;
            share.prepare(&orders)?;
            let crew = Crew::start(&orders, &share, None, input, &mut keeper, &mut events)?;
            (Workers::Here { crew, _share: share, keeper }, signals, printer)
        }
        _ => {
            let signals = Signals::listen()?;
            let printer = Printer::start(stdout, stderr, options.output.as_deref(), size)?;
            (Workers::There(Box::new(Fleet::call(options, placed, input)?)), signals, printer)
        }
    };
    let limit = options.limit.map(|limit| Instant::now() + limit);
    Run { workers, signals, printer, report, events, grace: options.grace, limit, stop: Stop::Not, suspecting: None }
        .until_ended()
}

fn orders_here(options: &Options, placed: &Placed) -> Result<Orders, Error> {
    Ok(Orders {
        world: world()?,
        size: placed.count,
        first: 0,
        count: placed.count,
        node: 0,
        hosts: vec![placed.name.clone()],
        secret: new_secret()?,
        meeting: Rendezvous::Here,
        master: ("127.0.0.1".to_owned(), free_port()?),
        program: options.program.clone(),
        environment: options.environment.clone(),
        directory: None,
        bind: options.bind,
        bars: options.shows_bars(),
        stdin: options.stdin,
    })
}

/// What rank 0 reads, where that is asked for.
fn input(options: &Options) -> Result<Option<OwnedFd>, Error> {
    if !options.stdin {
        return Ok(None);
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        // Ranks are groups of their own, and whoever reads a terminal in the background is stopped.
        return Err(Error::Usage("`--stdin` takes a pipe or a file, and standard input is a terminal".to_owned()));
    }
    stdin.as_fd().try_clone_to_owned().map(Some).map_err(Error::system("cannot pass standard input on"))
}

fn new_secret() -> Result<Secret, Error> {
    Secret::new_random()
        .map_err(|error| Error::Secret { place: "the system's randomness".to_owned(), problem: error.to_string() })
}

/// A name for a run that no other run on any of its hosts has. It is no secret.
fn world() -> Result<String, Error> {
    let random = new_secret()?;
    let [number, _] = random.expose().as_chunks::<8>().0 else { return Ok("run".to_owned()) };
    Ok(format!("run-{:016x}", u64::from_le_bytes(*number)))
}

/// A port that is free now, for programs that meet in torch's own way; nothing of ours listens on it.
fn free_port() -> Result<u16, Error> {
    let failed = "cannot find a free port";
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(Error::system(failed))?;
    Ok(listener.local_addr().map_err(Error::system(failed))?.port())
}

/// The ranks, wherever they are.
enum Workers {
    Here { crew: Crew, _share: Share, keeper: Keeper },
    There(Box<Fleet>),
}

impl Workers {
    /// What can be waited for; without outputs when there is no room for them.
    fn descriptors(&self, with_outputs: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        match self {
            Self::Here { crew, .. } if with_outputs => {
                crew.descriptors().map(|descriptor| (descriptor, PollFlags::POLLIN)).collect()
            }
            Self::Here { .. } => Vec::new(),
            Self::There(fleet) => fleet.descriptors(with_outputs),
        }
    }

    fn read(&mut self, events: &mut VecDeque<Event>) {
        match self {
            Self::Here { crew, .. } => crew.read(events),
            Self::There(fleet) => fleet.read(events),
        }
    }

    fn look(&mut self, events: &mut VecDeque<Event>) {
        match self {
            Self::Here { crew, keeper, .. } => crew.look(keeper, events),
            Self::There(fleet) => fleet.look(events),
        }
    }

    fn next_look(&self) -> Option<Instant> {
        match self {
            Self::Here { crew, .. } => crew.next_look(),
            Self::There(fleet) => fleet.next_look(),
        }
    }

    fn signal(&mut self, signal: Signal) {
        match self {
            Self::Here { crew, .. } => crew.signal(signal),
            Self::There(fleet) => fleet.signal(signal),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Here { crew, .. } => crew.is_done(),
            Self::There(fleet) => fleet.is_done(),
        }
    }
}

/// How far the run's end has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Not,
    /// Ranks were asked to end; those that have not by then are killed.
    Asked(Instant),
    /// Ranks were killed; those that are not gone by then are given up.
    Killed(Instant),
}

struct Run {
    workers: Workers,
    signals: Signals,
    printer: Printer,
    report: Report,
    events: VecDeque<Event>,
    grace: Duration,
    /// When all is ended, however far it is.
    limit: Option<Instant>,
    stop: Stop,
    /// Until when to look for the rank that others blame.
    suspecting: Option<Instant>,
}

impl Run {
    fn until_ended(mut self) -> Result<Ending, Error> {
        let mut interrupted = None;
        loop {
            self.workers.look(&mut self.events);
            self.tell();
            if self.workers.is_done() {
                break;
            }
            self.wait()?;
            for signal in self.signals.take() {
                match signal {
                    Signal::SIGCHLD => {}
                    Signal::SIGUSR1 | Signal::SIGUSR2 => self.workers.signal(signal),
                    _ => {
                        interrupted.get_or_insert(signal);
                        self.interrupt(signal);
                    }
                }
            }
            self.printer.heard();
            if let Some(error) = self.printer.failure() {
                self.cannot_write(&error);
                interrupted.get_or_insert(Signal::SIGPIPE);
            }
            if !self.printer.is_full() {
                self.workers.read(&mut self.events);
            }
            if self.stop == Stop::Not && self.limit.is_some_and(|limit| Instant::now() >= limit) {
                interrupted.get_or_insert(Signal::SIGALRM);
                self.ask(Signal::SIGTERM);
            }
            if self.is_given_up() {
                break;
            }
        }
        Ok(self.end(interrupted))
    }

    /// Waits until something can be done.
    fn wait(&self) -> Result<(), Error> {
        let deadline = match self.stop {
            Stop::Not => self.limit,
            Stop::Asked(at) | Stop::Killed(at) => Some(at),
        };
        let next = deadline.into_iter().chain(self.workers.next_look()).chain(self.suspecting).min();
        let timeout = next.map_or(PollTimeout::NONE, |next| {
            let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let own = [self.signals.as_fd(), self.printer.as_fd()].map(|descriptor| (descriptor, PollFlags::POLLIN));
        let all = own.into_iter().chain(self.workers.descriptors(!self.printer.is_full()));
        let mut polled: Vec<PollFd<'_>> = all.map(|(descriptor, flags)| PollFd::new(descriptor, flags)).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(Error::system("cannot wait for ranks")(errno.into())),
        }
    }

    /// Prints what happened, and asks all ranks to end after the first failure.
    fn tell(&mut self) {
        let events: Vec<Event> = self.events.drain(..).collect();
        for event in &events {
            if let Some((target, bytes)) = self.report.note(event) {
                self.printer.print(target, bytes);
            }
        }
        // What the failing rank said stands before the headline; what its failure does to the others stands behind it.
        let headline = match self.stop {
            Stop::Not => self.report.first_failure(&events).or_else(|| self.blame_suspect()),
            Stop::Asked(_) | Stop::Killed(_) => None,
        };
        if let Some(headline) = headline {
            self.say(&headline);
            self.ask(Signal::SIGTERM);
        }
    }

    /// When nobody else failed for a while, or nobody is left, the rank that blamed another is all that is known.
    fn blame_suspect(&mut self) -> Option<String> {
        if !self.report.has_suspect() {
            self.suspecting = None;
            return None;
        }
        let until = *self.suspecting.get_or_insert_with(|| Instant::now() + ANOTHER_WITHIN);
        if Instant::now() < until && !self.workers.is_done() {
            return None;
        }
        self.suspecting = None;
        self.report.blame_suspect()
    }

    fn say(&self, text: &str) {
        self.printer.print(Target::Stderr, format!("eirene-train: {text}\n").into_bytes());
    }

    /// Asks all ranks to end.
    fn ask(&mut self, signal: Signal) {
        self.workers.signal(signal);
        self.stop = Stop::Asked(Instant::now() + self.grace);
    }

    fn kill(&mut self) {
        self.workers.signal(Signal::SIGKILL);
        self.stop = Stop::Killed(Instant::now() + GIVEN_UP_AFTER);
    }

    /// Somebody wants the run to end: the first time it is passed on, the second time it is not waited for.
    fn interrupt(&mut self, signal: Signal) {
        match self.stop {
            Stop::Not => {
                self.say(&format!("{signal}: passed on to all ranks; once more kills them"));
                self.ask(signal);
            }
            Stop::Asked(_) => self.kill(),
            Stop::Killed(_) => {}
        }
    }

    fn cannot_write(&mut self, error: &std::io::Error) {
        if self.stop == Stop::Not {
            self.say(&format!("cannot write output: {error}; ending all ranks"));
            self.ask(Signal::SIGTERM);
        }
    }

    /// Keeps the time limits; whether there is nothing left to wait for.
    fn is_given_up(&mut self) -> bool {
        match self.stop {
            Stop::Asked(at) if Instant::now() >= at => {
                let late = self.report.unended();
                if !late.is_empty() {
                    let (ranks, verb) = if late.len() == 1 { ("rank", "was") } else { ("ranks", "were") };
                    let seconds = self.grace.as_secs_f64();
                    self.say(&format!("{ranks} {} did not end within {seconds} s and {verb} killed", list(&late)));
                }
                self.kill();
                false
            }
            Stop::Killed(at) if Instant::now() >= at => {
                self.say(&format!("ranks {} cannot be ended; left behind", list(&self.report.unended())));
                true
            }
            Stop::Not | Stop::Asked(_) | Stop::Killed(_) => false,
        }
    }

    /// Says the last word, once everything before it is written.
    fn end(mut self, interrupted: Option<Signal>) -> Ending {
        let ending = match (interrupted, self.report.failure()) {
            (Some(signal), None) => Ending::Interrupted(signal as i32),
            (_, Some(failure)) => Ending::Failed(failure.exit_code()),
            (None, None) => Ending::Well,
        };
        if let Some(last) = self.report.last() {
            self.printer.print(Target::Stderr, last);
        }
        // Ranks and directories go first: what follows may wait for a reader.
        drop(self.workers);
        while !self.printer.is_written(Duration::from_millis(100)) {
            let is_impatient = self.signals.take().into_iter().any(|signal| signal != Signal::SIGCHLD);
            if is_impatient || interrupted.is_some() {
                break;
            }
        }
        ending
    }
}

/// Ranks for people: the first few of them.
fn list(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut text = ranks.iter().take(SHOWN).map(u32::to_string).collect::<Vec<_>>().join(", ");
    if ranks.len() > SHOWN {
        let _ = write!(text, " and {} more", ranks.len() - SHOWN);
    }
    text
}
