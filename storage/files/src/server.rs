//! The process's side of the channel: opens the spaces, confines itself, then hands requests to a fixed number of threads.
//!
//! Metadata, streams and long work have threads of their own, so a listing never waits behind a download or a copy. Nothing is queued beyond
//! what the protocol allows to be under way.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use eirene_files_protocol::{
    Channel, ChannelError, Code, FromFiles, Hello, MOST_REQUESTS, MOST_SPACES, Open, OpenedSpace, Outcome, Part,
    Problem, Progress, ProtocolError, RequestNumber, SpaceNumber, ToFiles, Verb,
};
use rustix::io::Errno;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::accounts::Directory;
use crate::beneath::{Descriptors, Space, can_resolve_beneath};
use crate::confine::confine;
use crate::verbs::{self, Lane};

/// Where the kernel says which start of the system this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Threads for what answers at once.
const METADATA_THREADS: usize = 4;
/// Threads for what fills a stream: eight transfers, and two more so that an archive does not keep the last file waiting.
const STREAM_THREADS: usize = 10;
/// Threads for what goes through directories and copies: a second one, so that what is short does not wait for what is long.
const WORK_THREADS: usize = 2;
/// Threads for what takes a moment.
const SHORT_THREADS: usize = 2;
/// The priority of what nobody waits for. On Linux it is a thread's own, and the disk's scheduler goes by it too.
const LEAST_PRIORITY: i32 = 19;
/// The process's data is limited; its threads need little.
pub(crate) const STACK_BYTES: usize = 512 * 1024;

/// What a caller of the library may ask for otherwise; the program takes the default.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The smallest user id that is a person.
    pub least_uid: u32,
    /// Whether Landlock confines the process. Without it one wall is left, which tests try alone.
    pub landlock: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { least_uid: 1000, landlock: true }
    }
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Root, or a system account.
    #[error("user {0} is not a person: the launcher starts this as whoever the files belong to")]
    NotAPerson(u32),
    /// `/proc` is missing or something else.
    #[error("`/proc` is not there, and files cannot be opened safely without it")]
    NoProc(#[source] Errno),
    /// No openat2.
    #[error("this kernel cannot resolve paths beneath a directory: Linux 5.6 or newer is needed")]
    OldKernel,
    /// The portal began with something else.
    #[error("the channel did not begin with the spaces to open")]
    NoOpen,
    /// Too many spaces.
    #[error("more than {MOST_SPACES} spaces")]
    TooManySpaces,
    /// The channel cannot go on.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The portal said what it cannot say.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The portal used a number twice, or sent a descriptor where none belongs.
    #[error("the portal broke the protocol: {0}")]
    Broken(&'static str),
    /// Landlock is there and refused.
    #[error("the process could not be confined: {0}")]
    Confine(#[from] landlock::RulesetError),
    /// No thread.
    #[error("no thread could be started")]
    Threads(#[source] std::io::Error),
}

/// Whether a request is still wanted, and if not, whether it is because nobody is there any more who could want it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancelled(Arc<AtomicU8>);

/// What is in a [`Cancelled`].
const WANTED: u8 = 0;
const UNWANTED: u8 = 1;
const ALONE: u8 = 2;

impl Cancelled {
    /// Looked at for each buffer and each batch of entries.
    pub(crate) fn check(&self) -> Result<(), Code> {
        match self.0.load(Ordering::Relaxed) {
            WANTED => Ok(()),
            ALONE => Err(Code::CutOff),
            _ => Err(Code::Cancelled),
        }
    }

    pub(crate) fn cancel(&self) {
        self.0.store(UNWANTED, Ordering::Relaxed);
    }

    /// The channel is closed. What was cancelled before stays so.
    fn cut_off(&self) {
        let _ = self.0.compare_exchange(WANTED, ALONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A request on its way.
pub(crate) struct Job {
    pub(crate) verb: Verb,
    pub(crate) stream: Option<OwnedFd>,
    pub(crate) cancelled: Cancelled,
    number: RequestNumber,
    server: Arc<Server>,
}

impl Job {
    /// Sends a part of the answer.
    pub(crate) fn part(&self, part: Part) -> Result<(), Code> {
        self.tell(&FromFiles::More(self.number, part))
    }

    /// Says how far it is.
    pub(crate) fn progress(&self, progress: Progress) -> Result<(), Code> {
        self.tell(&FromFiles::Progress(self.number, progress))
    }

    /// Who finds the channel broken before whoever listens to it knows as much.
    fn tell(&self, frame: &FromFiles) -> Result<(), Code> {
        let told = self.server.send(frame);
        if told == Err(Code::CutOff) {
            self.cancelled.cut_off();
        }
        told
    }

    /// Which start of the system this is.
    pub(crate) fn boot(&self) -> &str {
        &self.server.boot
    }

    /// Who knows what users and groups are called.
    pub(crate) fn directory(&self) -> &Directory {
        &self.server.directory
    }

    /// The space of that number.
    pub(crate) fn space(&self, number: SpaceNumber) -> Result<&Space, Code> {
        self.server.spaces.iter().find(|space| space.number == number).ok_or(Code::NoSuchSpace)
    }

    fn run(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| verbs::run(&mut self)));
        // A mistake of ours costs the request, not the process.
        let outcome = match outcome.unwrap_or_else(|_| Err(Code::Failed.into())) {
            Ok(answer) => Outcome::Done(answer),
            Err(problem) => Outcome::Problem(problem),
        };
        // The stream ends before its last word comes.
        drop(self.stream.take());
        let outcome = FromFiles::Reply(self.number, outcome);
        self.server.running().remove(&self.number);
        if self.server.send(&outcome).is_err() {
            // The portal has gone, or a part of the answer is too long for a frame.
            let _ = self.server.send(&FromFiles::Reply(self.number, Outcome::Problem(Code::Failed.into())));
        }
    }
}

struct Server {
    channel: Channel,
    spaces: Vec<Space>,
    boot: String,
    directory: Directory,
    running: Mutex<HashMap<RequestNumber, Cancelled>>,
}

impl Server {
    fn send(&self, frame: &FromFiles) -> Result<(), Code> {
        let bytes = frame.encode().map_err(|_| Code::Failed)?;
        self.channel.send(&bytes, None).map_err(|_| Code::CutOff)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<RequestNumber, Cancelled>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the portal until it closes the channel.
///
/// Confines the calling thread for good, so a caller that wants to do something else afterwards gives it a thread of its own.
///
/// # Errors
/// Why it could not begin, or what the portal did that it must not.
pub fn serve(channel: Channel, settings: &Settings) -> Result<(), StartError> {
    let uid = rustix::process::geteuid().as_raw().min(rustix::process::getuid().as_raw());
    if uid < settings.least_uid {
        return Err(StartError::NotAPerson(uid));
    }
    let descriptors = Arc::new(Descriptors::open().map_err(StartError::NoProc)?);
    if !can_resolve_beneath(&descriptors) {
        return Err(StartError::OldKernel);
    }
    let mut buffer = Vec::new();
    let Some(packet) = channel.receive(&mut buffer)? else { return Ok(()) };
    let ToFiles::Open(Open { spaces: wanted }) = ToFiles::decode(packet.bytes)? else { return Err(StartError::NoOpen) };
    if wanted.len() > MOST_SPACES {
        return Err(StartError::TooManySpaces);
    }
    let mut spaces: Vec<Space> = Vec::new();
    let mut opened = Vec::new();
    for space in &wanted {
        let known = spaces.iter().any(|known| known.number == space.number);
        let result = if known { Err(Code::Invalid) } else { Space::open(space, descriptors.clone()) };
        let problem = result.map(|space| spaces.push(space)).err().map(Problem::from);
        opened.push(OpenedSpace { number: space.number, problem });
    }
    let boot = std::fs::read_to_string(BOOT_ID).map_err(|_| StartError::NoProc(Errno::NOENT))?.trim().to_owned();
    let directory = Directory::start(settings.landlock).map_err(StartError::Threads)?;
    // Before any other thread is started: a thread is confined as the one that started it.
    let landlock = if settings.landlock { confine(spaces.iter())? } else { None };
    let server = Arc::new(Server { channel, spaces, boot, directory, running: Mutex::default() });
    let lanes = Lanes {
        metadata: threads(METADATA_THREADS)?,
        streams: threads(STREAM_THREADS)?,
        short: threads(SHORT_THREADS)?,
        work: threads(WORK_THREADS)?,
        // Where it may not be made less, it has to share.
        idle: threads_with(1, || {
            let _ = setpriority_process(Some(gettid()), LEAST_PRIORITY);
        })?,
    };
    let hello = FromFiles::Hello(Hello { uid, landlock, spaces: opened });
    server.channel.send(&hello.encode()?, None)?;
    let ended = listen(&server, &lanes, &mut buffer);
    // Whatever is under way has nobody to answer to.
    server.running().values().for_each(Cancelled::cut_off);
    ended
}

/// Where requests wait for the threads that do them.
struct Lanes {
    metadata: SyncSender<Job>,
    streams: SyncSender<Job>,
    short: SyncSender<Job>,
    work: SyncSender<Job>,
    idle: SyncSender<Job>,
}

fn threads(many: usize) -> Result<SyncSender<Job>, StartError> {
    threads_with(many, || {})
}

/// Threads that do something each before they begin.
fn threads_with(many: usize, first: fn()) -> Result<SyncSender<Job>, StartError> {
    let (sender, receiver) = sync_channel::<Job>(MOST_REQUESTS);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..many {
        let receiver = receiver.clone();
        let work = move || {
            first();
            while let Some(job) = next(&receiver) {
                job.run();
            }
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).map_err(StartError::Threads)?;
    }
    Ok(sender)
}

fn next(receiver: &Mutex<Receiver<Job>>) -> Option<Job> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn listen(server: &Arc<Server>, lanes: &Lanes, buffer: &mut Vec<u8>) -> Result<(), StartError> {
    loop {
        let packet = match server.channel.receive(buffer) {
            Ok(Some(packet)) => packet,
            Ok(None) | Err(ChannelError::Broken(Errno::CONNRESET)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match ToFiles::decode(packet.bytes)? {
            ToFiles::Open(_) => return Err(StartError::Broken("spaces are opened once")),
            ToFiles::Cancel(number) => {
                // An answer may have crossed it.
                server.running().get(&number).inspect(|cancelled| cancelled.cancel());
            }
            ToFiles::Request(number, verb) => {
                if verb.has_stream() != packet.descriptor.is_some() {
                    return Err(StartError::Broken("a descriptor comes with each stream, and with nothing else"));
                }
                let cancelled = Cancelled::default();
                let mut running = server.running();
                if running.len() >= MOST_REQUESTS {
                    drop(running);
                    let _ = server.send(&FromFiles::Reply(number, Outcome::Problem(Code::TooMany.into())));
                    continue;
                }
                if running.insert(number, cancelled.clone()).is_some() {
                    return Err(StartError::Broken("a number is used twice at once"));
                }
                drop(running);
                let queue = match verbs::lane(&verb) {
                    Lane::Metadata => &lanes.metadata,
                    Lane::Streams => &lanes.streams,
                    Lane::Short => &lanes.short,
                    Lane::Work => &lanes.work,
                    Lane::Idle => &lanes.idle,
                };
                let job = Job { verb, stream: packet.descriptor, cancelled, number, server: server.clone() };
                // There is room: no more are running than the queue has places.
                let _ = queue.send(job);
            }
        }
    }
}
