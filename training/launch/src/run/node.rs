//! A node's side of a run on several hosts: gets its orders on stdin, runs its ranks, says on stdout what happens to them.
//!
//! It decides nothing. When its stdin ends, the launcher is gone, and so are the ranks.

use std::collections::VecDeque;
use std::io::Read as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::environment::Environment;
use crate::error::Error;
use crate::run::crew::Crew;
use crate::run::event::Event;
use crate::run::feed::Feed;
use crate::run::keeper::Keeper;
use crate::run::orders::Orders;
use crate::run::printer::{Output, Printer, Target};
use crate::run::share::Share;
use crate::run::signals::Signals;
use crate::run::wire::{Frame, Message, Ready, VERSION};

/// How long ranks may go on after somebody told the node itself to end.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until all ranks of this node have ended, or until the launcher is gone.
///
/// # Errors
/// When nothing can be run on this host, or the launcher says what cannot be understood.
pub fn serve(orders: OwnedFd, stdout: Output, environment: &Environment) -> Result<(), Error> {
    let share = Share::new()?;
    let keeper = Keeper::fork(share.directory())?;
    let signals = Signals::listen()?;
    let printer = Printer::start(stdout, Box::new(std::io::sink()), None, 0)?;
    let node = Node {
        crew: None,
        share,
        keeper,
        listener: None,
        feed: None,
        signals,
        printer,
        input: Some(std::fs::File::from(orders)),
        buffer: Vec::new(),
        kill_at: None,
    };
    node.serve(environment)
}

struct Node {
    crew: Option<Crew>,
    share: Share,
    keeper: Keeper,
    listener: Option<TcpListener>,
    /// Rank 0's standard input, where it has one.
    feed: Option<Feed>,
    signals: Signals,
    printer: Printer,
    /// None once the launcher is gone.
    input: Option<std::fs::File>,
    buffer: Vec<u8>,
    kill_at: Option<Instant>,
}

impl Node {
    fn serve(mut self, environment: &Environment) -> Result<(), Error> {
        let mut events = VecDeque::new();
        loop {
            if let Some(crew) = self.crew.as_mut() {
                crew.look(&mut self.keeper, &mut events);
            }
            self.tell(&mut events);
            let is_done = self.crew.as_ref().map_or(self.input.is_none(), Crew::is_done);
            if is_done {
                break;
            }
            let has_orders = self.wait()?;
            self.hear_signals();
            self.printer.heard();
            if let Some(feed) = self.feed.as_mut() {
                feed.pass_on();
            }
            if has_orders {
                self.read_orders(environment, &mut events)?;
            }
            if let Some(crew) = self.crew.as_mut().filter(|_| !self.printer.is_full()) {
                crew.read(&mut events);
            }
        }
        let Self { crew, share, keeper, signals, printer, input, .. } = self;
        drop((crew, share, keeper));
        if input.is_some() {
            printer.print(Target::Stdout, Frame::Done.encode());
        }
        while !printer.is_written(Duration::from_millis(100)) && input.is_some() {}
        drop(signals);
        Ok(())
    }

    fn tell(&self, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            self.say(&Frame::Event(event));
        }
    }

    fn say(&self, frame: &Frame) {
        self.printer.print(Target::Stdout, frame.encode());
    }

    /// Waits until something can be done; whether the launcher said something.
    fn wait(&self) -> Result<bool, Error> {
        let crew = self.crew.as_ref();
        let next = self.kill_at.into_iter().chain(crew.and_then(Crew::next_look)).min();
        let timeout = next.map_or(PollTimeout::NONE, |next| {
            let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let input = self.input.as_ref().map(AsFd::as_fd);
        let outputs: Vec<BorrowedFd<'_>> =
            crew.filter(|_| !self.printer.is_full()).map(|crew| crew.descriptors().collect()).unwrap_or_default();
        let all = input.into_iter().chain([self.signals.as_fd(), self.printer.as_fd()]).chain(outputs);
        let mut polled: Vec<PollFd<'_>> = all.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        let feed = self.feed.as_ref().and_then(Feed::descriptor);
        polled.extend(feed.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLOUT)));
        match poll(&mut polled, timeout) {
            Ok(_) => Ok(input.is_some() && polled.first().and_then(PollFd::any).unwrap_or(false)),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(Error::system("cannot wait for ranks")(errno.into())),
        }
    }

    /// Somebody on this host (SLURM, an administrator) may want the node to end.
    fn hear_signals(&mut self) {
        let wanted = self.signals.take().into_iter().find(|signal| *signal != Signal::SIGCHLD);
        match (wanted, self.crew.as_ref()) {
            (Some(_), None) => self.input = None,
            (Some(signal), Some(crew)) => {
                crew.signal(if self.kill_at.is_some() { Signal::SIGKILL } else { signal });
                self.kill_at.get_or_insert(Instant::now() + GRACE);
            }
            (None, _) => {}
        }
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.end();
        }
    }

    fn end(&mut self) {
        self.kill_at = None;
        if let Some(crew) = self.crew.as_ref() {
            crew.signal(Signal::SIGKILL);
        }
    }

    fn read_orders(&mut self, environment: &Environment, events: &mut VecDeque<Event>) -> Result<(), Error> {
        let Some(input) = self.input.as_mut() else { return Ok(()) };
        let mut piece = [0; 16 * 1024];
        match input.read(&mut piece) {
            Ok(0) | Err(_) => {
                self.input = None;
                self.end();
                return Ok(());
            }
            Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
        }
        loop {
            let message = Message::take(&mut self.buffer).map_err(|problem| Error::Host {
                host: environment.hostname().to_owned(),
                problem: problem.to_owned(),
            })?;
            match message {
                None => return Ok(()),
                Some(Message::Prepare { listen }) => self.prepare(listen, environment)?,
                Some(Message::Start(orders)) => self.start(&orders, events),
                Some(Message::Signal(signal)) => {
                    if let (Some(crew), Ok(signal)) = (self.crew.as_ref(), Signal::try_from(signal)) {
                        crew.signal(signal);
                    }
                }
                Some(Message::Input(bytes)) => {
                    if let Some(feed) = self.feed.as_mut() {
                        feed.take(&bytes);
                    }
                }
            }
        }
    }

    fn prepare(&mut self, listen: bool, environment: &Environment) -> Result<(), Error> {
        let mut port = 0;
        if listen {
            let failed = "cannot open a port to meet at";
            let any: [SocketAddr; 2] = [(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()];
            let listener = TcpListener::bind(&any[..]).map_err(Error::system(failed))?;
            port = listener.local_addr().map_err(Error::system(failed))?.port();
            self.listener = Some(listener);
        }
        self.say(&Frame::Ready(Ready {
            version: VERSION.to_owned(),
            port,
            master_port: super::free_port()?,
            address: reached_at(environment),
            hostname: environment.hostname().to_owned(),
        }));
        Ok(())
    }

    fn start(&mut self, orders: &Orders, events: &mut VecDeque<Event>) {
        if self.crew.is_some() {
            return;
        }
        let listener = self.listener.take().map(OwnedFd::from);
        let started = self.share.prepare(orders).and_then(|()| {
            let mut input = None;
            if orders.stdin && orders.first == 0 {
                let (feed, reader) = Feed::new()?;
                (self.feed, input) = (Some(feed), Some(reader));
            }
            Crew::start(orders, &self.share, listener, input, &mut self.keeper, events)
        });
        match started {
            Ok(crew) => self.crew = Some(crew),
            Err(error) => {
                self.say(&Frame::Failed { code: error.exit_code(), problem: error.to_string() });
                self.input = None;
            }
        }
    }
}

/// The address by which ssh reached this host: the one that other hosts will reach it by, too.
fn reached_at(environment: &Environment) -> Option<String> {
    let address = environment.get("SSH_CONNECTION")?.split(' ').nth(2)?;
    let ip: std::net::IpAddr = address.parse().ok()?;
    (!ip.is_loopback()).then(|| ip.to_string())
}
