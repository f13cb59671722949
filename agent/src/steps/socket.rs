//! The socket itself: connections, how many at once, whose, and what is said over them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eirene_steps::{Answer, Descriptors, Receiver, Request, StepSignal, Word, frame, parse};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::plan::Refusal;

/// How long a request may take to arrive.
const REQUEST: Duration = Duration::from_secs(10);
/// Programs that may ask at once; a launcher asks once for every node.
const ASKERS: usize = 256;
/// Pause before the next connection is taken where none could be.
const AGAIN: Duration = Duration::from_millis(100);

/// Listens, and hands every request to `serve`, as long as the runtime lives.
pub(crate) fn listen<F>(
    path: &Path,
    uid: u32,
    serve: impl Fn(Asker, Request, Descriptors) -> F + Clone + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send,
{
    let listener = UnixListener::bind(path)?;
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(ASKERS));
        loop {
            // Too many files are open, by whomever: that passes.
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            if !socket.peer_cred().is_ok_and(|peer| peer.uid() == uid) {
                continue;
            }
            let mut asker = Asker::new(socket);
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let text = format!("{ASKERS} programs of this session wait for theirs on other nodes already");
                asker.end(Err(Refusal("too_many", text))).await;
                continue;
            };
            let serve = serve.clone();
            tokio::spawn(async move {
                // Whoever does not say what it wants, or goes, wants nothing.
                if let Some((request, descriptors)) = asker.request().await {
                    serve(asker, request, descriptors).await;
                }
                drop(place);
            });
        }
    });
    Ok(())
}

/// The other end.
pub(crate) struct Asker {
    socket: UnixStream,
    receiver: Receiver,
}

impl Asker {
    /// Whoever has connected.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, receiver: Receiver::default() }
    }

    /// What it asks for, with its standard input, output and error.
    pub(crate) async fn request(&mut self) -> Option<(Request, Descriptors)> {
        let request = tokio::time::timeout(REQUEST, self.hear::<Request>()).await.ok()?.ok()??;
        Some((request, self.receiver.descriptors().ok()?))
    }

    /// The next message; none at the end. Can be cancelled.
    pub(super) async fn hear<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, eirene_steps::WireError> {
        loop {
            if let Some(message) = parse(&mut self.receiver.bytes)? {
                return Ok(Some(message));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        loop {
            self.socket.ready(Interest::READABLE).await?;
            match self.socket.try_io(Interest::READABLE, || self.receiver.receive(&self.socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Waits until the asker has gone, or wants nothing any more.
    pub(crate) async fn gone(&mut self) {
        while let Ok(Some(Word::Signal { signal: StepSignal::User1 | StepSignal::User2 })) = self.hear().await {}
    }

    /// Says something.
    pub(crate) async fn say(&mut self, answer: &Answer) -> io::Result<()> {
        let bytes = frame(answer).map_err(io::Error::other)?;
        self.socket.write_all(&bytes).await
    }

    /// Says how it went.
    pub(super) async fn end(&mut self, outcome: Result<Answer, Refusal>) {
        let last = outcome.unwrap_or_else(|Refusal(code, text)| Answer::Refused { code: code.to_owned(), text });
        // Who has gone needs no answer.
        let _ = self.say(&last).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use eirene_steps::{Program, RemoteRequest, WireError};

    use super::*;

    /// Asks, as this process's own user, at a socket that is `uid`'s. The answer, and whether anything was done for it.
    async fn ask(uid: u32) -> (Result<Answer, WireError>, bool) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("steps.sock");
        let served = Arc::new(AtomicBool::new(false));
        let serves = Arc::clone(&served);
        let serve = move |mut asker: Asker, _: Request, _: Descriptors| {
            serves.store(true, Ordering::Relaxed);
            async move { asker.end(Ok(Answer::Ended { status: 7 })).await }
        };
        listen(&path, uid, serve).unwrap();
        let asks = move || {
            let null = std::fs::File::open("/dev/null").unwrap();
            let request = Request::Remote(RemoteRequest { node: "c2".into(), program: Program::default() });
            eirene_steps::Asker::ask(&path, &request, &[null.as_fd(); 3])?.hear()
        };
        let answer = tokio::task::spawn_blocking(asks).await.unwrap();
        (answer, served.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn nobody_but_the_session_s_own_user_is_heard() {
        let own = nix::unistd::geteuid().as_raw();
        assert!(matches!(ask(own).await, (Ok(Answer::Ended { status: 7 }), true)));
        // Without a word.
        assert!(matches!(ask(own + 1).await, (Err(WireError::Broken(_)), false)));
    }
}
