//! The ranks of one node: started, listened to, signalled and buried.
//!
//! Each rank leads a process group of its own, so that its helpers can be signalled with it; it dies with its launcher (the kernel
//! sees to that), and what it leaves behind is ended shortly after it.

#![expect(unsafe_code, reason = "there is no safe way to run code between fork and exec")]

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sched::CpuSet;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::error::Error;
use crate::run::event::{End, Event, Stream};
use crate::run::keeper::Keeper;
use crate::run::lines::Lines;
use crate::run::orders::Orders;
use crate::run::share::{self, Share};

/// How long a rank's helpers may go on after it, to clean up behind it.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// The ranks of this node.
pub(crate) struct Crew {
    members: Vec<Member>,
    bars: bool,
    buffer: Vec<u8>,
}

struct Member {
    rank: u32,
    pid: Pid,
    child: Child,
    stdout: Option<Pipe<ChildStdout>>,
    stderr: Option<Pipe<ChildStderr>>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// Ended, but not yet buried: its number is still its own, so its group can be signalled.
    Ended(Instant),
    Buried,
}

struct Pipe<P> {
    end: P,
    lines: Lines,
}

impl Crew {
    /// Starts the ranks that `orders` name, in their order.
    ///
    /// # Errors
    /// [`Error::NotStarted`]; those started before are gone then.
    pub(crate) fn start(
        orders: &Orders,
        share: &Share,
        mut listener: Option<OwnedFd>,
        mut input: Option<OwnedFd>,
        keeper: &mut Keeper,
        events: &mut VecDeque<Event>,
    ) -> Result<Self, Error> {
        let mut crew = Self { members: Vec::new(), bars: orders.bars, buffer: vec![0; PIECE] };
        for local in 0..orders.count {
            // Only rank 0 listens and is spoken to; the descriptors are closed here once it has them.
            let is_first = orders.first + local == 0;
            let listener = if is_first { listener.take() } else { None };
            let input = if is_first { input.take() } else { None };
            match Member::start(orders, share, local, listener.as_ref(), input) {
                Ok(member) => {
                    keeper.watch(member.pid);
                    events.push_back(Event::Started { rank: member.rank, pid: member.pid.as_raw().unsigned_abs() });
                    crew.members.push(member);
                }
                Err(error) => {
                    crew.signal(Signal::SIGKILL);
                    for member in &mut crew.members {
                        member.bury(keeper);
                    }
                    return Err(error);
                }
            }
        }
        Ok(crew)
    }

    /// Everything that can be waited for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.members.iter().flat_map(|member| {
            let stdout = member.stdout.as_ref().map(|pipe| pipe.end.as_fd());
            let stderr = member.stderr.as_ref().map(|pipe| pipe.end.as_fd());
            stdout.into_iter().chain(stderr)
        })
    }

    /// Reads a piece from every rank that has something to say.
    pub(crate) fn read(&mut self, events: &mut VecDeque<Event>) {
        for member in &mut self.members {
            member.read(&mut self.buffer, events);
        }
    }

    /// Looks who has ended, and buries those who are quite done.
    pub(crate) fn look(&mut self, keeper: &mut Keeper, events: &mut VecDeque<Event>) {
        for member in &mut self.members {
            if self.bars {
                member.show_bars(events);
            }
            if member.state == State::Running
                && let Some(end) = member.ended()
            {
                // What it wrote before it ended comes before its end.
                member.drain(&mut self.buffer, events);
                member.state = State::Ended(Instant::now());
                events.push_back(Event::Ended { rank: member.rank, end });
            }
            if let State::Ended(since) = member.state
                && (member.is_silent() || since.elapsed() >= LINGER)
            {
                let _ = killpg(member.pid, Signal::SIGKILL);
                member.drain(&mut self.buffer, events);
                member.finish_lines(events);
                member.bury(keeper);
            }
        }
    }

    /// When [`Self::look`] has something to do without anybody saying so.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let ends = self.members.iter().filter_map(|member| match member.state {
            State::Ended(since) => Some(since + LINGER),
            State::Running | State::Buried => None,
        });
        let bars = self.members.iter().filter_map(Member::next_bar);
        ends.chain(bars).min()
    }

    /// Sends a signal to every rank and its helpers; what programs may take for a warning, to the rank alone: its helpers would die of it.
    pub(crate) fn signal(&self, signal: Signal) {
        let send = if matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) { kill } else { killpg };
        for member in self.members.iter().filter(|member| member.state != State::Buried) {
            let _ = send(member.pid, signal);
        }
    }

    /// Whether all have ended and been buried.
    pub(crate) fn is_done(&self) -> bool {
        self.members.iter().all(|member| member.state == State::Buried)
    }
}

impl Member {
    fn start(
        orders: &Orders,
        share: &Share,
        local: u32,
        listener: Option<&OwnedFd>,
        input: Option<OwnedFd>,
    ) -> Result<Self, Error> {
        let rank = orders.first + local;
        let (program, arguments) = orders.program.split_first().ok_or_else(|| Error::Usage("no program".to_owned()))?;
        let secret = share::secret_descriptor(&orders.secret)?;
        let mut command = Command::new(program);
        let stdin = input.map_or_else(Stdio::null, Stdio::from);
        command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some(directory) = orders.directory.as_ref() {
            command.current_dir(directory);
        }
        command.env_clear();
        command.envs(share::variables(orders, share, local, secret.as_raw_fd(), listener.map(AsRawFd::as_raw_fd)));
        let inherited = [Some(secret.as_raw_fd()), listener.map(AsRawFd::as_raw_fd)];
        prepare(&mut command, inherited, share.cpus(local));
        let mut child = command.spawn().map_err(|error| not_started(orders, program, &error))?;
        let stdout = child.stdout.take().map(Pipe::new);
        let stderr = child.stderr.take().map(Pipe::new);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        Ok(Self { rank, pid, child, stdout, stderr, state: State::Running })
    }

    /// How it ended, where it has; it keeps its number until it is buried.
    fn ended(&self) -> Option<End> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::Exited(_, code)) => Some(End::Code(code.unsigned_abs().try_into().unwrap_or(u8::MAX))),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(End::Signal(signal as i32)),
            // Real-time signals are no signal that nix knows.
            Err(nix::errno::Errno::EINVAL) => Some(End::Signal(0)),
            Ok(_) | Err(_) => None,
        }
    }

    fn read(&mut self, buffer: &mut [u8], events: &mut VecDeque<Event>) {
        read_pipe(&mut self.stdout, self.rank, Stream::Stdout, buffer, events);
        read_pipe(&mut self.stderr, self.rank, Stream::Stderr, buffer, events);
    }

    /// Reads all that is there now. A helper that floods a dead rank's pipe is not waited for: a pipe's worth is enough.
    fn drain(&mut self, buffer: &mut [u8], events: &mut VecDeque<Event>) {
        for _ in 0..16 {
            let stdout = read_pipe(&mut self.stdout, self.rank, Stream::Stdout, buffer, events);
            let stderr = read_pipe(&mut self.stderr, self.rank, Stream::Stderr, buffer, events);
            if !stdout && !stderr {
                return;
            }
        }
    }

    fn show_bars(&mut self, events: &mut VecDeque<Event>) {
        let now = Instant::now();
        if let Some(pipe) = self.stdout.as_mut() {
            emit(self.rank, Stream::Stdout, pipe.lines.bar(now), events);
        }
        if let Some(pipe) = self.stderr.as_mut() {
            emit(self.rank, Stream::Stderr, pipe.lines.bar(now), events);
        }
    }

    fn next_bar(&self) -> Option<Instant> {
        let stdout = self.stdout.as_ref().and_then(|pipe| pipe.lines.next_bar());
        stdout.into_iter().chain(self.stderr.as_ref().and_then(|pipe| pipe.lines.next_bar())).min()
    }

    fn is_silent(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Lines without an end get one.
    fn finish_lines(&mut self, events: &mut VecDeque<Event>) {
        if let Some(mut pipe) = self.stdout.take() {
            emit(self.rank, Stream::Stdout, pipe.lines.finish(), events);
        }
        if let Some(mut pipe) = self.stderr.take() {
            emit(self.rank, Stream::Stderr, pipe.lines.finish(), events);
        }
    }

    fn bury(&mut self, keeper: &mut Keeper) {
        // Forgotten first: once it is buried, its number may become somebody else's.
        keeper.forget(self.pid);
        let _ = self.child.wait();
        self.state = State::Buried;
    }
}

impl<P: AsFd> Pipe<P> {
    fn new(end: P) -> Self {
        let _ = fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        Self { end, lines: Lines::default() }
    }
}

/// Reads a piece; whether there was one. A pipe at its end is dropped.
fn read_pipe<P: io::Read>(
    slot: &mut Option<Pipe<P>>,
    rank: u32,
    stream: Stream,
    buffer: &mut [u8],
    events: &mut VecDeque<Event>,
) -> bool {
    let Some(pipe) = slot.as_mut() else { return false };
    match pipe.end.read(buffer) {
        Ok(0) => {
            emit(rank, stream, pipe.lines.finish(), events);
            *slot = None;
            false
        }
        Ok(count) => {
            emit(rank, stream, pipe.lines.push(&buffer[..count]), events);
            true
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
        Err(_) => {
            *slot = None;
            false
        }
    }
}

fn emit(rank: u32, stream: Stream, lines: Vec<u8>, events: &mut VecDeque<Event>) {
    if !lines.is_empty() {
        events.push_back(Event::Lines { rank, stream, lines });
    }
}

/// What happens in the child before the program: it keeps the descriptors meant for it, its processors, and its launcher's fate.
fn prepare(command: &mut Command, inherited: [Option<RawFd>; 2], cpus: Option<CpuSet>) {
    let launcher = Pid::this();
    // SAFETY: only prctl(2), getppid(2), fcntl(2) and sched_setaffinity(2) are called, which are async-signal-safe, and nothing is
    // allocated. The descriptors are open in the parent until the command has been spawned.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The launcher may have died before the line above.
            if nix::unistd::getppid() != launcher {
                return Err(io::ErrorKind::NotConnected.into());
            }
            for descriptor in inherited.into_iter().flatten() {
                fcntl(BorrowedFd::borrow_raw(descriptor), FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            if let Some(cpus) = cpus.as_ref() {
                nix::sched::sched_setaffinity(Pid::from_raw(0), cpus)?;
            }
            Ok(())
        });
    }
}

fn not_started(orders: &Orders, program: &OsString, error: &io::Error) -> Error {
    let directory = orders.directory.as_ref().filter(|directory| !directory.is_dir());
    let problem = match directory {
        Some(directory) => format!("there is no directory {} there", directory.display()),
        None => error.to_string(),
    };
    let code = match error.kind() {
        io::ErrorKind::NotFound => 127,
        io::ErrorKind::PermissionDenied => 126,
        _ => 2,
    };
    Error::NotStarted { program: program.to_string_lossy().into_owned(), host: orders.host().to_owned(), problem, code }
}
