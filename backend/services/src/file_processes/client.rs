//! One channel: requests go out under numbers, and what comes back is given to whoever asked, within bounds.
//!
//! Two tasks serve it. One sends, so that a request is sent whole or not at all, whatever becomes of the one who asked; one receives. A request
//! that nobody waits for any more is cancelled, and keeps its place until the process has said its last word on it.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eirene_files_protocol::{
    Answer, AsyncChannel, Channel, ChannelError, Code, FromFiles, Hello, MOST_ENTRIES, MOST_PIECES, MOST_PREVIEW_BYTES,
    Open, Outcome, Packet, Part, Piece, Problem, Progress, RequestNumber, SpaceNumber, ToFiles, Verb,
};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::file_processes::{FilesError, Limits, MOST_AT_ONCE};
use crate::shared::Shared;

/// Bytes that may be on their way in a stream: enough for one side to fetch more while the other works, instead of taking turns. (The kernel
/// counts twice as many, for what it needs itself.)
const STREAM_ROOM: usize = 2 * 1024 * 1024;
/// Bytes that the parts of one answer have in their frames: the longest page of the longest names.
const MOST_PART_BYTES: usize = 4 * 1024 * 1024;
/// The same of a scan, which tells of every directory near the top, and of a list of old files. Whoever asks takes them as they come.
const MOST_WALK_BYTES: usize = 256 * 1024 * 1024;
/// How often in a second a process may say how far it is with one request; ours says so once.
const MOST_PROGRESS: u32 = 20;
/// What a process that does not answer is given before it is asked again, seconds.
const RETRY_AFTER_S: u64 = 10;

/// A channel to a person's file process; cheap to clone.
#[derive(Debug, Clone)]
pub struct FilesChannel {
    inner: Shared<Inner>,
}

#[derive(Debug)]
struct Inner {
    hello: Hello,
    opened: Instant,
    limits: Limits,
    places: Arc<Semaphore>,
    outgoing: mpsc::UnboundedSender<Frame>,
    state: Mutex<State>,
    ended: CancellationToken,
}

/// What is to be sent; at most a request and a cancellation for each place.
type Frame = (Vec<u8>, Option<OwnedFd>);

#[derive(Debug)]
struct State {
    next: u64,
    running: HashMap<RequestNumber, Running>,
    last_used: Instant,
    /// To be closed when nothing runs any more.
    retired: bool,
    /// Whether it has answered that a storage is away, or that it has no such space.
    away: bool,
    end: Option<(End, Instant)>,
}

#[derive(Debug)]
struct Running {
    events: mpsc::UnboundedSender<Event>,
    bytes_left: usize,
    entries_left: usize,
    /// Since when how often it said how far it is.
    progress: (Instant, u32),
    _place: OwnedSemaphorePermit,
}

/// Why a channel was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Silent,
    Gone,
    Broken(&'static str),
    Closed,
}

impl From<End> for FilesError {
    fn from(end: End) -> Self {
        match end {
            End::Silent => Self::Away { retry_after_s: RETRY_AFTER_S },
            End::Gone | End::Closed => Self::Ended,
            End::Broken(what) => Self::Broken(what),
        }
    }
}

/// What is heard of a request.
#[derive(Debug)]
pub enum Event {
    /// A part of the answer.
    Part(Part),
    /// How far it is.
    Progress(Progress),
    /// The last word.
    Outcome(Outcome),
}

/// A whole answer.
#[derive(Debug)]
pub struct Heard {
    /// What came before the last word.
    pub parts: Vec<Part>,
    /// What was done, or why not.
    pub outcome: Result<Answer, Problem>,
}

/// A request under way; dropped, it is cancelled.
#[derive(Debug)]
pub struct Request {
    inner: Shared<Inner>,
    number: RequestNumber,
    events: mpsc::UnboundedReceiver<Event>,
    done: bool,
    /// Whether it is cancelled only where that is said.
    outlives: bool,
}

impl FilesChannel {
    /// Has the process at the other end open the spaces. It must be the person's: `uid`.
    ///
    /// # Errors
    /// [`FilesError::Away`], [`FilesError::Ended`], [`FilesError::Broken`], [`FilesError::WrongUser`]; the channel is closed then.
    pub async fn open(channel: OwnedFd, uid: u32, open: &Open, limits: Limits) -> Result<Self, FilesError> {
        let channel = Channel::from_descriptor(channel).and_then(AsyncChannel::new).map_err(closing)?;
        let greeting = greet(&channel, open);
        let hello = timeout(limits.reply, greeting).await.unwrap_or(Err(End::Silent.into()))?;
        if hello.uid != uid {
            return Err(FilesError::WrongUser { said: hello.uid });
        }
        if !hello.spaces.iter().map(|space| space.number).eq(open.spaces.iter().map(|space| space.number)) {
            return Err(FilesError::Broken("it opened other spaces than it was told"));
        }
        let (outgoing, frames) = mpsc::unbounded_channel();
        let opened = Instant::now();
        let state =
            State { next: 1, running: HashMap::new(), last_used: opened, retired: false, away: false, end: None };
        let inner = Shared::new(Inner {
            hello,
            opened,
            limits,
            places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            outgoing,
            state: Mutex::new(state),
            ended: CancellationToken::new(),
        });
        let channel = Arc::new(channel);
        tokio::spawn(send(inner.clone(), Arc::clone(&channel), frames));
        tokio::spawn(receive(inner.clone(), channel));
        Ok(Self { inner })
    }

    /// What the process said of itself and of its spaces.
    pub fn hello(&self) -> &Hello {
        &self.inner.hello
    }

    /// Asks and waits for the whole answer; for verbs without a stream.
    ///
    /// # Errors
    /// As [`FilesError`] says. A process that says nothing for [`Limits::reply`] is given up, with whatever else was asked of it.
    pub async fn ask(&self, verb: Verb) -> Result<Heard, FilesError> {
        let mut request = self.request(verb, None).await?;
        let mut parts = Vec::new();
        loop {
            match request.next_in_time().await? {
                Event::Part(part) => parts.push(part),
                Event::Progress(_) => {}
                Event::Outcome(Outcome::Done(answer)) => return Ok(Heard { parts, outcome: Ok(answer) }),
                Event::Outcome(Outcome::Problem(problem)) => return Ok(Heard { parts, outcome: Err(problem) }),
            }
        }
    }

    /// Begins a request without a stream that may take long.
    ///
    /// # Errors
    /// As [`FilesError`] says.
    pub async fn start(&self, verb: Verb) -> Result<Request, FilesError> {
        self.request(verb, None).await
    }

    /// Begins a request that has a stream: what is heard of it, and this end of the stream. What came through the stream counts only once the
    /// outcome says so.
    ///
    /// # Errors
    /// As [`FilesError`] says.
    pub async fn begin(&self, verb: Verb) -> Result<(Request, UnixStream), FilesError> {
        let pair = StdUnixStream::pair().and_then(|(near, far)| {
            near.set_nonblocking(true)?;
            for end in [&near, &far] {
                // Where the kernel allows less, it is less.
                let _ = set_socket_send_buffer_size(end, STREAM_ROOM);
            }
            Ok((UnixStream::from_std(near)?, far))
        });
        let (near, far) = pair.map_err(|_| FilesError::Busy)?;
        Ok((self.request(verb, Some(far.into())).await?, near))
    }

    async fn request(&self, verb: Verb, stream: Option<OwnedFd>) -> Result<Request, FilesError> {
        let limits = self.inner.limits;
        // Places are held by requests that the process does not answer, too.
        let place = timeout(limits.reply, Arc::clone(&self.inner.places).acquire_owned()).await;
        let place = place.map_err(|_| FilesError::Busy)?.map_err(|_| self.inner.why())?;
        let (events, heard) = mpsc::unbounded_channel();
        let mut state = self.inner.state();
        if let Some((end, _)) = state.end {
            return Err(end.into());
        }
        let number = RequestNumber(state.next);
        let (bytes_left, entries_left) = match &verb {
            Verb::Scan(_) | Verb::ListOld(_) => (MOST_WALK_BYTES, MOST_ENTRIES as usize),
            Verb::Preview(_) => (MOST_PREVIEW_BYTES, MOST_PIECES),
            _ => (MOST_PART_BYTES, MOST_ENTRIES as usize),
        };
        let frame = ToFiles::Request(number, verb).encode()?;
        state.next += 1;
        state.last_used = Instant::now();
        let running = Running { events, bytes_left, entries_left, progress: (Instant::now(), 0), _place: place };
        state.running.insert(number, running);
        drop(state);
        // The sender goes only with the channel, whose end the request hears of.
        let _ = self.inner.outgoing.send((frame, stream));
        Ok(Request { inner: self.inner.clone(), number, events: heard, done: false, outlives: false })
    }

    /// Whether it may still be asked.
    pub fn is_open(&self) -> bool {
        self.inner.state().end.is_none()
    }

    /// Whether another process may reach what this one does not: the wanted space, which it could not open, or a storage that it says is away.
    /// It holds on to what it opened, so it never sees what was mounted since. For [`Limits::pause`] another would find no more than it did.
    pub fn is_stale(&self, wanted: SpaceNumber) -> bool {
        if self.inner.opened.elapsed() < self.inner.limits.pause {
            return false;
        }
        // What the person may not open no other process of theirs opens.
        let beyond_reach = |problem: Problem| problem.code != Code::Forbidden;
        let mut spaces = self.inner.hello.spaces.iter();
        self.inner.state().away || spaces.any(|space| space.number == wanted && space.problem.is_some_and(beyond_reach))
    }

    /// Notes that somebody is about to use it, so that it is not closed as idle in between.
    pub fn touch(&self) {
        self.inner.state().last_used = Instant::now();
    }

    /// How many requests it answers now.
    #[cfg(any(test, feature = "testing"))]
    pub fn running(&self) -> usize {
        self.inner.state().running.len()
    }

    /// When it was last used; none while it is in use.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.inner.state();
        state.running.is_empty().then_some(state.last_used)
    }

    /// When the process failed, if it did.
    pub fn failed_at(&self) -> Option<Instant> {
        self.inner.state().end.filter(|(end, _)| *end != End::Closed).map(|(_, at)| at)
    }

    /// Closes it now: whatever is under way ends.
    pub fn close(&self) {
        self.inner.end(End::Closed);
    }

    /// Closes it as soon as nothing is under way.
    pub fn retire(&self) {
        let mut state = self.inner.state();
        state.retired = true;
        let over = state.running.is_empty();
        drop(state);
        if over {
            self.close();
        }
    }
}

impl Request {
    /// What is heard next; nothing is heard after the outcome. For as long as it takes: whoever waits for bytes knows whether they come.
    ///
    /// # Errors
    /// Why the channel was closed.
    pub async fn next(&mut self) -> Result<Event, FilesError> {
        match self.events.recv().await {
            Some(event) => {
                self.done |= matches!(event, Event::Outcome(_));
                Ok(event)
            }
            None => Err(self.inner.why()),
        }
    }

    /// The same, but the channel is given up when nothing is heard in time.
    ///
    /// # Errors
    /// As [`Request::next`]; [`FilesError::Away`].
    pub async fn next_in_time(&mut self) -> Result<Event, FilesError> {
        let patience = self.inner.limits.reply;
        if let Ok(event) = timeout(patience, self.next()).await {
            return event;
        }
        self.inner.end(End::Silent);
        Err(self.inner.why())
    }

    /// From now on only [`Request::cancel`] cancels it. Where it is dropped because the portal ends, the process hears of that by the end of the
    /// channel, and can tell the one from the other.
    pub fn outlive(&mut self) {
        self.outlives = true;
    }

    /// Cancels it, if it is not over.
    pub fn cancel(&mut self) {
        if self.done || !self.inner.state().running.contains_key(&self.number) {
            return;
        }
        self.done = true;
        if let Ok(frame) = ToFiles::Cancel(self.number).encode() {
            let _ = self.inner.outgoing.send((frame, None));
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.outlives {
            self.cancel();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some((end, Instant::now()));
            state.running.clear();
            if let End::Broken(what) = end {
                tracing::error!(files.uid = self.hello.uid, what, "a file process broke the protocol and was cut off");
            }
        }
        drop(state);
        self.places.close();
        self.ended.cancel();
    }

    fn why(&self) -> FilesError {
        self.state().end.map_or(FilesError::Ended, |(end, _)| end.into())
    }

    /// Takes one packet to whoever asked.
    fn hear(&self, packet: &Packet<'_>) -> Result<(), &'static str> {
        if packet.descriptor.is_some() {
            return Err("it sent a descriptor");
        }
        let frame = FromFiles::decode(packet.bytes).map_err(|_| "it sent what is no frame of its own")?;
        let mut state = self.state();
        let under_way = "it spoke of a request that is not under way";
        match frame {
            FromFiles::Hello(_) => return Err("it said hello again"),
            FromFiles::More(number, part) => {
                let running = state.running.get_mut(&number).ok_or(under_way)?;
                let entries = match &part {
                    Part::Entries(entries) => entries.len(),
                    Part::Preview(pieces) => pieces.iter().map(weight).sum(),
                    _ => 1,
                };
                let too_much = "its answer has no end";
                running.bytes_left = running.bytes_left.checked_sub(packet.bytes.len()).ok_or(too_much)?;
                running.entries_left = running.entries_left.checked_sub(entries).ok_or(too_much)?;
                let _ = running.events.send(Event::Part(part));
            }
            FromFiles::Progress(number, progress) => {
                let running = state.running.get_mut(&number).ok_or(under_way)?;
                let (since, times) = &mut running.progress;
                if since.elapsed() >= Duration::from_secs(1) {
                    (*since, *times) = (Instant::now(), 0);
                }
                *times += 1;
                if *times > MOST_PROGRESS {
                    return Err("it says too often how far it is");
                }
                let _ = running.events.send(Event::Progress(progress));
            }
            FromFiles::Reply(number, outcome) => {
                let running = state.running.remove(&number).ok_or(under_way)?;
                state.last_used = Instant::now();
                if let Outcome::Problem(problem) = &outcome {
                    state.away |= matches!(problem.code, Code::Away | Code::NoSuchSpace);
                }
                let _ = running.events.send(Event::Outcome(outcome));
                let over = state.retired && state.running.is_empty();
                drop(state);
                if over {
                    self.end(End::Closed);
                }
            }
        }
        Ok(())
    }

    /// How long it may stay open yet; none: nobody has used it for long.
    fn may_stay(&self) -> Option<Duration> {
        let state = self.state();
        if !state.running.is_empty() {
            return Some(self.limits.idle);
        }
        self.limits.idle.checked_sub(state.last_used.elapsed()).filter(|left| !left.is_zero())
    }

    async fn idle(&self) {
        while let Some(left) = self.may_stay() {
            sleep(left).await;
        }
    }
}

/// What a piece of a preview takes, as [`MOST_PIECES`] counts.
fn weight(piece: &Piece) -> usize {
    if let Piece::Row(cells) = piece { 1 + cells.len() } else { 1 }
}

/// What became of the socket.
fn closing(error: ChannelError) -> FilesError {
    End::from(error).into()
}

impl From<ChannelError> for End {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Broken(_) => Self::Gone,
            ChannelError::NotAChannel => Self::Broken("it is no packet socket"),
            ChannelError::TooLong => Self::Broken("a packet is too long"),
            ChannelError::Descriptors => Self::Broken("it sent descriptors"),
        }
    }
}

async fn greet(channel: &AsyncChannel, open: &Open) -> Result<Hello, FilesError> {
    let frame = ToFiles::Open(open.clone()).encode()?;
    channel.send(&frame, None).await.map_err(closing)?;
    let mut buffer = Vec::new();
    let packet = channel.receive(&mut buffer).await.map_err(closing)?.ok_or(FilesError::Ended)?;
    match FromFiles::decode(packet.bytes) {
        Ok(FromFiles::Hello(hello)) if packet.descriptor.is_none() => Ok(hello),
        _ => Err(FilesError::Broken("its first word is not hello")),
    }
}

async fn send(inner: Shared<Inner>, channel: Arc<AsyncChannel>, mut frames: mpsc::UnboundedReceiver<Frame>) {
    let sending = async {
        while let Some((bytes, descriptor)) = frames.recv().await {
            let descriptor = descriptor.as_ref().map(|descriptor| descriptor.as_fd());
            match timeout(inner.limits.reply, channel.send(&bytes, descriptor)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return inner.end(error.into()),
                Err(_) => return inner.end(End::Silent),
            }
        }
    };
    tokio::select! {
        () = inner.ended.cancelled() => {}
        () = sending => {}
    }
}

async fn receive(inner: Shared<Inner>, channel: Arc<AsyncChannel>) {
    let receiving = async {
        let mut buffer = Vec::new();
        loop {
            let end = match channel.receive(&mut buffer).await {
                Ok(Some(packet)) => inner.hear(&packet).err().map(End::Broken),
                Ok(None) => Some(End::Gone),
                Err(error) => Some(error.into()),
            };
            if let Some(end) = end {
                return end;
            }
        }
    };
    let end = tokio::select! {
        () = inner.ended.cancelled() => End::Closed,
        () = inner.idle() => End::Closed,
        end = receiving => end,
    };
    inner.end(end);
}
