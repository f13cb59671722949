//! The launcher's side of a run on several hosts: one remote shell a host (SLURM's `srun` within an allocation, `ssh` else), the same
//! conversation with each.
//!
//! No rank is started before every host has answered. The host of rank 0 opens the port at which all ranks meet; the launcher's own
//! host need not be reachable from the others.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::Error;
use crate::run::event::Event;
use crate::run::hosts::Placed;
use crate::run::lines::Lines;
use crate::run::options::Options;
use crate::run::orders::{Orders, Rendezvous};
use crate::run::shell::{Shell, bare, die_with_launcher, passed_on};
use crate::run::wire::{Frame, Message, Ready, VERSION};

/// A frame longer than this is none of ours.
const LONGEST_FRAME: usize = 8 * 1024 * 1024;

/// Lines of a remote shell's own that are shown when it fails.
const LAST_WORDS: usize = 5;

/// Pieces that are read of a host whose ranks were killed: a pipe's worth.
const LAST_PIECES: usize = 4;

/// Most that is on its way to rank 0's standard input before more is read here.
const MOST_INPUT: usize = 64 * 1024;

/// How long a remote shell may take to end once its node has.
const LINGER: Duration = Duration::from_secs(5);

/// All hosts of a run.
pub(crate) struct Fleet {
    hosts: Vec<Host>,
    plan: Plan,
    deadline: Option<Instant>,
    timeout: Duration,
    buffer: Vec<u8>,
    /// What rank 0 is to read, until its end.
    input: Option<File>,
}

/// What the orders are made of once all have answered.
struct Plan {
    placed: Vec<Placed>,
    template: Orders,
    address: Option<String>,
}

struct Host {
    /// What reaches it, for messages.
    shell: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    words: Lines,
    last_words: VecDeque<String>,
    state: State,
    /// Whether its ranks were killed: nobody waits for their last output then.
    killed: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It has not answered yet.
    Called,
    Ready(Ready),
    Running,
    /// It has said that nothing is left.
    Done(Instant),
    Gone,
}

impl Fleet {
    /// Calls all hosts.
    pub(crate) fn call(options: &Options, placed: Vec<Placed>, input: Option<OwnedFd>) -> Result<Self, Error> {
        let template = Orders {
            world: super::world()?,
            size: placed.iter().map(|placed| placed.count).sum(),
            first: 0,
            count: 0,
            node: 0,
            hosts: placed.iter().map(|placed| bare(&placed.name).to_owned()).collect(),
            secret: super::new_secret()?,
            meeting: Rendezvous::Here,
            master: (String::new(), 0),
            program: options.program.clone(),
            environment: passed_on(options),
            directory: std::env::current_dir().ok(),
            bind: options.bind,
            bars: options.shows_bars(),
            stdin: options.stdin,
        };
        let shell = Shell::of(options);
        let several = placed.len() > 1;
        let mut fleet = Self {
            hosts: Vec::with_capacity(placed.len()),
            deadline: Some(Instant::now() + options.timeout),
            timeout: options.timeout,
            buffer: vec![0; 64 * 1024],
            input: input.map(File::from),
            plan: Plan { placed: Vec::new(), template, address: options.address.clone() },
        };
        for (index, placed) in placed.iter().enumerate() {
            let mut host = Host::call(placed, &shell, options)?;
            host.tell(&Message::Prepare { listen: several && index == 0 });
            fleet.hosts.push(host);
        }
        fleet.plan.placed = placed;
        Ok(fleet)
    }

    pub(crate) fn descriptors(&self, with_outputs: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut all = Vec::new();
        for host in &self.hosts {
            if let Some(stdin) = host.stdin.as_ref().filter(|_| !host.outbox.is_empty()) {
                all.push((stdin.as_fd(), PollFlags::POLLOUT));
            }
            if with_outputs {
                all.extend(host.stdout.as_ref().map(|pipe| (pipe.as_fd(), PollFlags::POLLIN)));
                all.extend(host.stderr.as_ref().map(|pipe| (pipe.as_fd(), PollFlags::POLLIN)));
            }
        }
        all.extend(self.wanted_input().map(|input| (input.as_fd(), PollFlags::POLLIN)));
        all
    }

    /// What rank 0 is to read, where its host has room for it.
    fn wanted_input(&self) -> Option<&File> {
        let first = self.hosts.first().filter(|host| host.state == State::Running && host.outbox.len() < MOST_INPUT)?;
        self.input.as_ref().filter(|_| first.stdin.is_some())
    }

    /// Sends rank 0's host a piece of what is there to be read.
    fn pass_input_on(&mut self) {
        let Some(mut input) = self.wanted_input() else { return };
        let mut asked = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        // It is shared with whoever started this process, so it must not be made one that never waits.
        if !matches!(poll(&mut asked, PollTimeout::ZERO), Ok(1..)) {
            return;
        }
        let mut piece = vec![0; MOST_INPUT];
        let count = input.read(&mut piece).unwrap_or(0);
        piece.truncate(count);
        if count == 0 {
            self.input = None;
        }
        if let Some(first) = self.hosts.first_mut() {
            first.tell(&Message::Input(piece));
        }
    }

    pub(crate) fn read(&mut self, events: &mut VecDeque<Event>) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            host.read(index, &mut self.buffer, events);
        }
    }

    /// Sends what could not be sent before, starts the ranks once all hosts have answered, and sees who is gone.
    pub(crate) fn look(&mut self, events: &mut VecDeque<Event>) {
        self.pass_input_on();
        for (index, host) in self.hosts.iter_mut().enumerate() {
            host.send();
            if host.killed && host.state != State::Gone && matches!(host.child.try_wait(), Ok(Some(_))) {
                // Also where there is no room to print more: otherwise nobody would see that it is gone.
                for _ in 0..LAST_PIECES {
                    host.read(index, &mut self.buffer, events);
                }
                (host.stdout, host.stderr) = (None, None);
            }
            host.look(index, events);
        }
        if self.deadline.is_some() && self.hosts.iter().all(|host| matches!(host.state, State::Ready(_))) {
            self.deadline = None;
            self.start();
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.deadline = None;
            for (index, host) in self.hosts.iter_mut().enumerate().filter(|(_, host)| host.state == State::Called) {
                let seconds = self.timeout.as_secs_f64();
                let problem = format!("did not answer within {seconds} s ({}){}", host.shell, host.said());
                host.lose(index, problem, 2, events);
            }
        }
    }

    pub(crate) fn next_look(&self) -> Option<Instant> {
        let ends = self.hosts.iter().filter_map(|host| match host.state {
            State::Done(since) => Some(since + LINGER),
            State::Called | State::Ready(_) | State::Running | State::Gone => None,
        });
        ends.chain(self.deadline).min()
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        for host in &mut self.hosts {
            match host.state {
                State::Running => {
                    host.tell(&Message::Signal(signal as i32));
                    if signal == Signal::SIGKILL {
                        host.killed = true;
                        // A node that still hears sees the end of its orders; one that does not is cut off.
                        host.outbox_then_close();
                    }
                }
                // Nothing runs there yet.
                State::Called | State::Ready(_) => host.cut(),
                State::Done(_) | State::Gone => {}
            }
        }
        self.deadline = None;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.hosts.iter().all(|host| host.state == State::Gone)
    }

    /// Gives every host its orders.
    fn start(&mut self) {
        let Plan { placed, template, address } = &self.plan;
        let Some(State::Ready(first)) = self.hosts.first().map(|host| &host.state) else { return };
        let reached = match (&address, &first.address, placed.first()) {
            (Some(address), ..) => (*address).clone(),
            (None, Some(address), _) => address.clone(),
            (None, None, Some(placed)) if !placed.here => bare(&placed.name).to_owned(),
            (None, None, _) => first.hostname.clone(),
        };
        let meeting = match first.port {
            0 => Rendezvous::Here,
            port => Rendezvous::Address { host: reached.clone(), port },
        };
        let master = if first.port == 0 { "127.0.0.1".to_owned() } else { reached };
        let master = (master, first.master_port);
        let mut begin = 0;
        for (node, (host, placed)) in self.hosts.iter_mut().zip(placed).enumerate() {
            let orders = Orders {
                first: begin,
                count: placed.count,
                node: node as u32,
                meeting: meeting.clone(),
                master: master.clone(),
                ..template.clone()
            };
            begin += placed.count;
            host.tell(&Message::Start(Box::new(orders)));
            host.state = State::Running;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            host.cut();
            let _ = host.child.wait();
        }
    }
}

impl Host {
    fn call(placed: &Placed, shell: &Shell, options: &Options) -> Result<Self, Error> {
        let words = shell.words(placed, options);
        let (program, arguments) = words.split_first().ok_or_else(|| Error::Usage("no remote shell".to_owned()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        die_with_launcher(&mut command);
        let mut child = command.spawn().map_err(|error| Error::NotStarted {
            program: program.to_string_lossy().into_owned(),
            host: options.launcher.hostname().to_owned(),
            problem: error.to_string(),
            code: 2,
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let ends =
            [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)];
        for end in ends.into_iter().flatten() {
            let _ = fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        }
        Ok(Self {
            shell: program.to_string_lossy().into_owned(),
            child,
            stdin,
            stdout,
            stderr,
            outbox: Vec::new(),
            inbox: Vec::new(),
            words: Lines::default(),
            last_words: VecDeque::new(),
            state: State::Called,
            killed: false,
        })
    }

    fn tell(&mut self, message: &Message) {
        if self.stdin.is_some() {
            self.outbox.extend(message.encode());
            self.send();
        }
    }

    /// Sends what the pipe takes.
    fn send(&mut self) {
        let Some(stdin) = self.stdin.as_mut() else { return };
        while !self.outbox.is_empty() {
            match stdin.write(&self.outbox) {
                Ok(sent) => {
                    self.outbox.drain(..sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Whoever does not read is about to be gone, which is seen elsewhere.
                    self.outbox.clear();
                    self.stdin = None;
                    return;
                }
            }
        }
    }

    fn outbox_then_close(&mut self) {
        self.send();
        self.stdin = None;
        self.outbox.clear();
    }

    /// Ends the remote shell; its node sees the end of its orders.
    fn cut(&mut self) {
        self.stdin = None;
        self.outbox.clear();
        if self.state != State::Gone {
            let _ = killpg(pid(&self.child), Signal::SIGKILL);
        }
    }

    fn read(&mut self, index: usize, buffer: &mut [u8], events: &mut VecDeque<Event>) {
        match self.stdout.as_mut().map(|pipe| pipe.read(buffer)) {
            Some(Ok(0)) => self.stdout = None,
            Some(Ok(count)) => {
                self.inbox.extend_from_slice(&buffer[..count]);
                self.frames(index, events);
            }
            Some(Err(error)) if is_later(&error) => {}
            Some(Err(_)) => self.stdout = None,
            None => {}
        }
        match self.stderr.as_mut().map(|pipe| pipe.read(buffer)) {
            Some(Ok(0)) => {
                let lines = self.words.finish();
                self.remember(&lines);
                Self::noise(index, lines, events);
                self.stderr = None;
            }
            Some(Ok(count)) => {
                let lines = self.words.push(&buffer[..count]);
                self.remember(&lines);
                Self::noise(index, lines, events);
            }
            Some(Err(error)) if is_later(&error) => {}
            Some(Err(_)) => self.stderr = None,
            None => {}
        }
    }

    fn frames(&mut self, index: usize, events: &mut VecDeque<Event>) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = inbox.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            match Frame::decode(line) {
                Ok(None) => Self::noise(index, rest[..=end].to_vec(), events),
                Ok(Some(frame)) => self.frame(index, frame, events),
                Err(problem) => self.lose(index, problem.to_owned(), 2, events),
            }
            rest = &rest[end + 1..];
        }
        self.inbox = rest.to_vec();
        if self.inbox.len() > LONGEST_FRAME {
            self.inbox.clear();
            self.lose(index, "sent a message without end".to_owned(), 2, events);
        }
    }

    fn frame(&mut self, index: usize, frame: Frame, events: &mut VecDeque<Event>) {
        match (frame, &self.state) {
            (Frame::Ready(ready), State::Called) if ready.version == VERSION => self.state = State::Ready(ready),
            (Frame::Ready(ready), State::Called) => {
                let problem =
                    format!("has eirene-train {}, this host has {VERSION}: install the same on both", ready.version);
                self.lose(index, problem, 2, events);
            }
            (Frame::Event(event), State::Running) => events.push_back(event),
            (Frame::Failed { code, problem }, State::Running) => {
                // It ends by itself, and removes what it made; killed now, that would be done after this run's end.
                let problem = format!("could not start its ranks: {problem}");
                events.push_back(Event::Lost { host: index, problem, code });
                self.end_well();
            }
            (Frame::Done, State::Running) => self.end_well(),
            // What comes after the end, or out of turn from a host that was given up, counts no more.
            (Frame::Ready(_) | Frame::Event(_) | Frame::Failed { .. } | Frame::Done, _) => {}
        }
    }

    /// What the remote shell says itself.
    fn noise(index: usize, lines: Vec<u8>, events: &mut VecDeque<Event>) {
        if !lines.is_empty() {
            events.push_back(Event::Noise { host: index, lines });
        }
    }

    /// Keeps what the remote shell complains about, for a message.
    fn remember(&mut self, lines: &[u8]) {
        for line in String::from_utf8_lossy(lines).lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            if self.last_words.len() == LAST_WORDS {
                self.last_words.pop_front();
            }
            self.last_words.push_back(line.to_owned());
        }
    }

    /// Its last words, for a message.
    fn said(&self) -> String {
        let words: Vec<&str> = self.last_words.iter().map(String::as_str).collect();
        if words.is_empty() { String::new() } else { format!(": {}", words.join("; ")) }
    }

    /// Nothing is left there; its shell is about to end.
    fn end_well(&mut self) {
        self.state = State::Done(Instant::now());
        self.stdin = None;
        self.outbox.clear();
    }

    fn lose(&mut self, index: usize, problem: String, code: u8, events: &mut VecDeque<Event>) {
        self.cut();
        events.push_back(Event::Lost { host: index, problem, code });
        // Its shell is waited for as after a good end.
        self.state = State::Done(Instant::now());
    }

    /// Sees whether the remote shell has ended.
    fn look(&mut self, index: usize, events: &mut VecDeque<Event>) {
        if self.state == State::Gone {
            return;
        }
        if let State::Done(since) = self.state
            && since.elapsed() >= LINGER
        {
            let _ = killpg(pid(&self.child), Signal::SIGKILL);
        }
        // What it said last comes before its end.
        if self.stdout.is_some() || self.stderr.is_some() {
            if !matches!(self.state, State::Done(since) if since.elapsed() >= LINGER) {
                return;
            }
            self.stdout = None;
            self.stderr = None;
        }
        let Ok(Some(status)) = self.child.try_wait() else { return };
        if !matches!(self.state, State::Done(_)) {
            let verb = if self.state == State::Running { "was lost" } else { "could not be reached" };
            let problem = format!("{verb}: {} ended with {}{}", self.shell, ended(status), self.said());
            events.push_back(Event::Lost { host: index, problem, code: 2 });
        }
        self.state = State::Gone;
        self.stdin = None;
    }
}

fn ended(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no code".to_owned(),
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}
