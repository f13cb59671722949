//! The launcher's port over its unix socket: a few connections that are kept and used again, one request at a time on each.
//!
//! An answer with a descriptor has a connection of its own, on which nothing else is asked: the kernel gives descriptors to whoever reads the
//! bytes they came with.
//!
//! A call says for which request and about which session it is made. Launchers that are older than that do not understand it, and have then done
//! nothing: they are asked again without.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::Username;
use eirene_core::launcher::{
    Cause, Launcher, LauncherAnswer, LauncherCall, LauncherError, LauncherRequest, MAX_REQUEST_BYTES, NOT_UNDERSTOOD,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;

use crate::cause;

/// Requests at once.
const CONNECTIONS: usize = 16;
/// Longest answer: 16 MiB of output, in which nearly every character may be escaped.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;
/// Longest answer that comes with a descriptor: a word, or a sentence.
const MAX_SHORT_ANSWER_BYTES: usize = 4096;
/// How long a SLURM program may take.
const SLURM_WAIT: Duration = Duration::from_mins(1);
/// How long everything else may take; home directories may lie on a slow network.
const WAIT: Duration = Duration::from_secs(20);
/// How long a request waits for a free connection.
const TURN: Duration = Duration::from_secs(30);

/// The launcher behind a socket.
pub struct LauncherClient {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
    turns: Semaphore,
}

struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// Whether the launcher at its other end is older than causes.
    is_older: bool,
}

/// What is asked, as it may be written.
struct Lines {
    /// As every launcher understands it.
    plain: Vec<u8>,
    /// With what it is for, where there is anything to say.
    whole: Option<Vec<u8>>,
}

impl Lines {
    fn of(request: LauncherRequest) -> Result<Self, serde_json::Error> {
        let mut call = LauncherCall { cause: cause::present(), request };
        let whole = if call.cause == Cause::default() { None } else { Some(line(&call)?) };
        call.cause = Cause::default();
        // What fits only without is asked without.
        Ok(Self { plain: line(&call)?, whole: whole.filter(|line| line.len() <= MAX_REQUEST_BYTES) })
    }
}

fn line(call: &LauncherCall) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(call)?;
    line.push(b'\n');
    Ok(line)
}

/// Whether the launcher has not understood a line, and so has not done anything.
fn is_not_understood(answer: &LauncherAnswer) -> bool {
    matches!(answer, LauncherAnswer::Refused { code, text } if code == "bad_request" && text.starts_with(NOT_UNDERSTOOD))
}

impl LauncherClient {
    /// The launcher that listens on `socket`. Connects when it is first needed.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), idle: Mutex::default(), turns: Semaphore::new(CONNECTIONS) }
    }

    /// Whether somebody listens on the socket.
    pub async fn reach(&self) -> Result<(), LauncherError> {
        let connection = connect(&self.socket).await?;
        self.put_back(connection);
        Ok(())
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    fn put_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

impl Connection {
    /// Between two requests nothing may come: a readable connection has been closed, or talks out of turn.
    fn is_open(&self) -> bool {
        let quiet = self.reader.get_ref().try_read(&mut [0_u8; 1]);
        matches!(quiet, Err(error) if error.kind() == io::ErrorKind::WouldBlock) && self.reader.buffer().is_empty()
    }

    /// Asks so that whoever is at the other end understands it.
    async fn ask(&mut self, lines: &Lines) -> io::Result<LauncherAnswer> {
        if let Some(whole) = lines.whole.as_ref().filter(|_| !self.is_older) {
            let answer = self.exchange(whole).await?;
            if !is_not_understood(&answer) {
                return Ok(answer);
            }
            self.is_older = true;
        }
        self.exchange(&lines.plain).await
    }

    async fn exchange(&mut self, line: &[u8]) -> io::Result<LauncherAnswer> {
        self.writer.write_all(line).await?;
        let mut answer = Vec::new();
        (&mut self.reader).take(MAX_ANSWER_BYTES).read_until(b'\n', &mut answer).await?;
        if answer.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off"));
        }
        serde_json::from_slice(&answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

async fn connect(socket: &Path) -> Result<Connection, LauncherError> {
    let stream = tokio::time::timeout(WAIT, UnixStream::connect(socket)).await.unwrap_or_else(|_| Err(timed_out()));
    let stream = stream.map_err(|source| LauncherError::Unreachable {
        what: format!("connecting to `{}`", socket.display()),
        source: Some(source),
    })?;
    let (reader, writer) = stream.into_split();
    Ok(Connection { reader: BufReader::new(reader), writer, is_older: false })
}

/// Asks for a descriptor; the answer, and the one that came with it.
async fn ask_for_descriptor(socket: &Path, lines: &Lines) -> io::Result<(LauncherAnswer, Option<OwnedFd>)> {
    if let Some(whole) = &lines.whole {
        let answered = exchange_for_descriptor(socket, whole).await?;
        if !is_not_understood(&answered.0) {
            return Ok(answered);
        }
    }
    exchange_for_descriptor(socket, &lines.plain).await
}

/// Asks on a connection of its own.
async fn exchange_for_descriptor(socket: &Path, line: &[u8]) -> io::Result<(LauncherAnswer, Option<OwnedFd>)> {
    let odd = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut stream = UnixStream::connect(socket).await?;
    if !is_launcher(stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw()) {
        return Err(odd("somebody else than the launcher listens there"));
    }
    stream.write_all(line).await?;
    let (mut answer, mut descriptors) = (Vec::new(), Vec::new());
    while answer.last() != Some(&b'\n') {
        let read = stream.async_io(Interest::READABLE, || receive(&stream, &mut answer, &mut descriptors)).await?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off"));
        }
        if answer.len() > MAX_SHORT_ANSWER_BYTES || descriptors.len() > 1 {
            return Err(odd("the answer is too long, or has too many descriptors"));
        }
    }
    let answer = serde_json::from_slice(&answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((answer, descriptors.pop()))
}

/// Root, or whoever the portal is itself, as in tests: nobody else can have made the socket's other end and be believed.
fn is_launcher(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

fn receive(stream: &UnixStream, bytes: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut buffer = [0; 1024];
    // One more than there may be, so that it is noticed.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(stream, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has too many descriptors"));
    }
    bytes.extend_from_slice(&buffer[..message.bytes]);
    Ok(message.bytes)
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

#[async_trait]
impl Launcher for LauncherClient {
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        let (verb, wait) = verb(&request);
        let failed = |source: io::Error| LauncherError::Unreachable { what: verb.into(), source: Some(source) };
        let lines = Lines::of(request).map_err(|error| failed(error.into()))?;
        if lines.plain.len() > MAX_REQUEST_BYTES {
            let text = "the request is too long".into();
            return Err(LauncherError::Refused { code: "bad_request".into(), text });
        }
        let turn = tokio::time::timeout(TURN, self.turns.acquire()).await.map_err(|_| failed(timed_out()))?;
        let _turn = turn.map_err(|error| failed(io::Error::other(error)))?;
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => connect(&self.socket).await?,
        };
        let answer = tokio::time::timeout(wait, connection.ask(&lines)).await;
        let answer = answer.unwrap_or_else(|_| Err(timed_out())).map_err(failed)?;
        self.put_back(connection);
        match answer {
            LauncherAnswer::Refused { code, text } => Err(LauncherError::Refused { code, text }),
            answer @ (LauncherAnswer::Token { .. }
            | LauncherAnswer::Written { .. }
            | LauncherAnswer::Log { .. }
            | LauncherAnswer::Done
            | LauncherAnswer::Files
            | LauncherAnswer::Groups { .. }
            | LauncherAnswer::Space { .. }
            | LauncherAnswer::SpaceSeen { .. }
            | LauncherAnswer::Removed { .. }
            | LauncherAnswer::Quotas(_)
            | LauncherAnswer::Ran { .. }) => Ok(answer),
        }
    }

    async fn open_files(&self, person: &Username) -> Result<OwnedFd, LauncherError> {
        let request = LauncherRequest::OpenFiles { person: person.clone() };
        let (verb, wait) = verb(&request);
        let failed = |source: io::Error| LauncherError::Unreachable { what: verb.into(), source: Some(source) };
        let lines = Lines::of(request).map_err(|error| failed(error.into()))?;
        let turn = tokio::time::timeout(TURN, self.turns.acquire()).await.map_err(|_| failed(timed_out()))?;
        let _turn = turn.map_err(|error| failed(io::Error::other(error)))?;
        let answer = tokio::time::timeout(wait, ask_for_descriptor(&self.socket, &lines)).await;
        match answer.unwrap_or_else(|_| Err(timed_out())).map_err(failed)? {
            (LauncherAnswer::Files, Some(channel)) => Ok(channel),
            (LauncherAnswer::Refused { code, text }, None) => Err(LauncherError::Refused { code, text }),
            _ => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "not an answer to this"))),
        }
    }
}

fn verb(request: &LauncherRequest) -> (&'static str, Duration) {
    match request {
        LauncherRequest::SignToken { .. } => ("signing a token", WAIT),
        LauncherRequest::SignServiceToken {} => ("signing the service token", WAIT),
        LauncherRequest::WriteJobFile { .. } => ("writing a job file", WAIT),
        LauncherRequest::ReadJobLog { .. } => ("reading a job's log", WAIT),
        LauncherRequest::RemoveJobFile { .. } => ("removing a job file", WAIT),
        LauncherRequest::OpenFiles { .. } => ("starting a file process", WAIT),
        LauncherRequest::RunSlurm { .. } => ("running a SLURM program", SLURM_WAIT),
        LauncherRequest::RunBeegfs { .. } => ("running BeeGFS's tool", WAIT),
        LauncherRequest::GroupsOf { .. } => ("asking for somebody's groups", WAIT),
        LauncherRequest::Measure { .. } => ("looking at a file system", WAIT),
        LauncherRequest::ReadQuotas { .. } => ("asking what a file system counts", WAIT),
        LauncherRequest::MakeSpace { .. } => ("making a space", WAIT),
        LauncherRequest::LimitSpace { .. } => ("setting the limit of a space", WAIT),
        LauncherRequest::RetireSpace { .. } => ("taking a space away", WAIT),
        LauncherRequest::RestoreSpace { .. } => ("bringing a space back", WAIT),
        LauncherRequest::RemoveRetired { .. } => ("removing a space", WAIT),
        LauncherRequest::LookForSpace { .. } => ("looking for a space", WAIT),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use eirene_core::{RequestId, SessionId};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use tokio::net::UnixListener;

    use super::*;

    /// Answers each line with `answer`; hangs up after `per_connection` answers.
    fn serve(socket: &Path, answer: &'static str, per_connection: usize) -> Arc<AtomicU32> {
        let listener = UnixListener::bind(socket).unwrap();
        let connections = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let (reader, mut writer) = stream.into_split();
                    let mut lines = BufReader::new(reader).lines();
                    for _ in 0..per_connection {
                        let Ok(Some(_)) = lines.next_line().await else { return };
                        writer.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        connections
    }

    #[tokio::test]
    async fn a_connection_is_used_again_and_replaced_when_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let connections = serve(&socket, "{\"answer\":\"done\"}\n", 2);
        let client = LauncherClient::new(&socket);
        for asked in 1..=4_u32 {
            let answer = client.call(LauncherRequest::SignServiceToken {}).await.unwrap();
            assert_eq!(answer, LauncherAnswer::Done);
            if asked == 2 {
                // The other side has hung up; wait until that has arrived here.
                let gone = || client.idle.lock().unwrap().iter().all(|connection| !connection.is_open());
                while !gone() {
                    tokio::task::yield_now().await;
                }
            }
        }
        assert_eq!(connections.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn refused_and_unreachable_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let client = LauncherClient::new(&socket);
        let away = client.call(LauncherRequest::SignServiceToken {}).await;
        assert!(matches!(away, Err(LauncherError::Unreachable { .. })), "{away:?}");
        serve(&socket, "{\"answer\":\"refused\",\"code\":\"unknown_person\",\"text\":\"nobody\"}\n", 9);
        let refused = client.call(LauncherRequest::SignServiceToken {}).await;
        assert!(
            matches!(&refused, Err(LauncherError::Refused { code, .. }) if code == "unknown_person"),
            "{refused:?}"
        );
        let long = LauncherRequest::WriteJobFile {
            person: "ada".parse().unwrap(),
            session: eirene_core::SessionId::generate(),
            content: "x".repeat(MAX_REQUEST_BYTES),
        };
        assert!(matches!(client.call(long).await, Err(LauncherError::Refused { .. })));
    }

    const DONE: &str = "{\"answer\":\"done\"}\n";
    const NO_REQUEST: &str = "{\"answer\":\"refused\",\"code\":\"bad_request\",\"text\":\"no request, at column 9\"}\n";
    const OF_ADA: &str = "{\"verb\":\"sign_token\",\"person\":\"ada\"}";

    fn of_ada() -> LauncherRequest {
        LauncherRequest::SignToken { person: "ada".parse().unwrap() }
    }

    fn a_cause() -> Cause {
        Cause { request: Some(RequestId::generate()), session: Some(SessionId::generate()) }
    }

    fn whole_line(cause: Cause, request: LauncherRequest) -> String {
        serde_json::to_string(&LauncherCall { cause, request }).unwrap()
    }

    /// Answers each line as `answer` does, and keeps the lines.
    fn listen(socket: &Path, answer: impl Fn(&str) -> &'static str + Copy + Send + 'static) -> Arc<Mutex<Vec<String>>> {
        let listener = UnixListener::bind(socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let (reader, mut writer) = stream.into_split();
                    let mut lines = BufReader::new(reader).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        let answer = answer(&line);
                        kept.lock().unwrap().push(line);
                        writer.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        asked
    }

    #[tokio::test]
    async fn a_call_says_for_what_it_is_made_and_one_for_nothing_is_as_it_always_was() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let asked = listen(&socket, |_| DONE);
        let (client, cause) = (LauncherClient::new(&socket), a_cause());
        client.call(of_ada()).await.unwrap();
        cause::of(cause, client.call(of_ada())).await.unwrap();
        let session = SessionId::generate();
        let log = LauncherRequest::ReadJobLog { person: "ada".parse().unwrap(), session };
        cause::of(cause, client.call(log.clone())).await.unwrap();
        let expected = [OF_ADA.to_owned(), whole_line(cause, of_ada()), whole_line(cause, log)];
        assert_eq!(*asked.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_launcher_that_is_older_than_causes_is_asked_without_and_refuses_as_ever() {
        let dir = tempfile::tempdir().unwrap();
        let cause = a_cause();
        let socket = dir.path().join("older");
        let asked =
            listen(
                &socket,
                |line| {
                    if serde_json::from_str::<LauncherRequest>(line).is_ok() { DONE } else { NO_REQUEST }
                },
            );
        let client = LauncherClient::new(&socket);
        for _ in 0..3 {
            assert_eq!(cause::of(cause, client.call(of_ada())).await.unwrap(), LauncherAnswer::Done);
        }
        let expected = [whole_line(cause, of_ada()), OF_ADA.into(), OF_ADA.into(), OF_ADA.into()];
        assert_eq!(*asked.lock().unwrap(), expected, "it is tried once on a connection");

        // What it has understood and refuses is refused once; what it understands neither way is refused in the end.
        let not_these = "{\"answer\":\"refused\",\"code\":\"bad_request\",\"text\":\"not these\"}\n";
        for (name, answer, times) in [("understood", not_these, 1), ("neither way", NO_REQUEST, 2)] {
            let socket = dir.path().join(name);
            let asked = listen(&socket, move |_| answer);
            let refused = cause::of(cause, LauncherClient::new(&socket).call(of_ada())).await;
            assert!(matches!(refused, Err(LauncherError::Refused { .. })), "{name}: {refused:?}");
            assert_eq!(asked.lock().unwrap().len(), times, "{name}");
        }
    }

    #[tokio::test]
    async fn what_fits_only_without_its_cause_is_asked_without() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let asked = listen(&socket, |_| DONE);
        let write = |content: String| LauncherRequest::WriteJobFile {
            person: "ada".parse().unwrap(),
            session: SessionId::generate(),
            content,
        };
        let room = MAX_REQUEST_BYTES - 1 - serde_json::to_vec(&write(String::new())).unwrap().len();
        let client = LauncherClient::new(&socket);
        cause::of(a_cause(), client.call(write("x".repeat(room)))).await.unwrap();
        let read = |line: &String| serde_json::from_str::<LauncherCall>(line).unwrap().cause;
        assert_eq!(asked.lock().unwrap().iter().map(read).collect::<Vec<_>>(), [Cause::default()]);
        let refused = cause::of(a_cause(), client.call(write("x".repeat(room + 1)))).await;
        assert!(matches!(refused, Err(LauncherError::Refused { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn an_answer_that_is_none_is_unreachable() {
        let dir = tempfile::tempdir().unwrap();
        for (name, answer) in [("a", "nonsense\n"), ("b", "{\"answer\":\"done\"")] {
            let socket = dir.path().join(name);
            serve(&socket, answer, 1);
            let result = LauncherClient::new(&socket).call(LauncherRequest::SignServiceToken {}).await;
            assert!(matches!(result, Err(LauncherError::Unreachable { .. })), "{result:?}");
        }
    }

    /// Answers one connection with `answer` and so many descriptors, all of them for `far`; what was asked.
    fn answer_one(listener: &StdUnixListener, answer: &[u8], far: &StdUnixStream, many: usize) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 1024];
        let read = io::Read::read(&mut stream, &mut asked).unwrap();
        let rights = vec![far.as_fd(); many];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(many == 0 || control.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(&stream, &[io::IoSlice::new(answer)], &mut control, SendFlags::NOSIGNAL).unwrap();
        String::from_utf8(asked[..read].to_vec()).unwrap()
    }

    /// Answers one connection with `answer` and so many descriptors: all of them ends of streams whose other end is given back.
    fn hand_over(socket: &Path, answer: &'static [u8], many: usize) -> StdUnixStream {
        let listener = StdUnixListener::bind(socket).unwrap();
        let (near, far) = StdUnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        std::thread::spawn(move || drop(answer_one(&listener, answer, &far, many)));
        near
    }

    #[tokio::test]
    async fn a_file_process_is_asked_for_again_where_the_launcher_is_older_than_causes() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = StdUnixListener::bind(&socket).unwrap();
        let (_near, far) = StdUnixStream::pair().unwrap();
        let answers: [(&[u8], usize); 2] = [(NO_REQUEST.as_bytes(), 0), (b"{\"answer\":\"files\"}\n", 1)];
        let answering = std::thread::spawn(move || {
            answers.map(|(answer, many)| answer_one(&listener, answer, &far, many).trim_end().to_owned())
        });
        let (cause, person): (_, Username) = (a_cause(), "ada".parse().unwrap());
        cause::of(cause, LauncherClient::new(&socket).open_files(&person)).await.unwrap();
        let open = LauncherRequest::OpenFiles { person };
        let expected = [whole_line(cause, open.clone()), whole_line(Cause::default(), open)];
        assert_eq!(answering.join().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_file_process_comes_with_exactly_one_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let files = b"{\"answer\":\"files\"}\n".as_slice();
        let refused = b"{\"answer\":\"refused\",\"code\":\"away\",\"text\":\"later\"}\n".as_slice();
        let person: Username = "ada".parse().unwrap();
        let cases = [
            (files, 1, None),
            (refused, 0, Some("refused")),
            (files, 0, Some("unreachable")),
            (files, 2, Some("unreachable")),
            (files, 3, Some("unreachable")),
            (files, 64, Some("unreachable")),
            (refused, 1, Some("unreachable")),
            (b"{\"answer\":\"done\"}\n", 1, Some("unreachable")),
            (b"{\"answer\":\"files\"}", 1, Some("unreachable")),
        ];
        for (number, (answer, many, expected)) in cases.into_iter().enumerate() {
            let socket = dir.path().join(number.to_string());
            let mut near = hand_over(&socket, answer, many);
            let result = LauncherClient::new(&socket).open_files(&person).await;
            let outcome = match &result {
                Ok(_) => None,
                Err(LauncherError::Refused { .. }) => Some("refused"),
                Err(LauncherError::Unreachable { .. }) => Some("unreachable"),
            };
            assert_eq!(outcome, expected, "{number}");
            if let Ok(channel) = result {
                io::Write::write_all(&mut StdUnixStream::from(channel), b"x").unwrap();
            }
            // The other side's copy goes with its thread; then nobody has one, whatever was received.
            let mut gone = || match io::Read::read(&mut near, &mut [0; 9]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
            while !gone() {
                tokio::task::yield_now().await;
            }
        }
    }

    #[test]
    fn only_root_and_oneself_are_believed_to_be_the_launcher() {
        assert!(is_launcher(0, 990) && is_launcher(990, 990));
        assert!(!is_launcher(2001, 990) && !is_launcher(2001, 0));
    }
}
