//! The threads that carry connections: browsers' and agents'.
//!
//! Each worker is one thread with a runtime of its own, and a connection stays on the worker it was given to: nothing it
//! does wakes another thread. A session's browsers are given to the worker that has its agent's tunnel, so that bytes go
//! from one to the other without leaving the thread. Those that came before the tunnel did, or through a proxy that mixes
//! sessions, are served where they are. Everything else (reconcilers, accepting, maintenance) runs beside them on the
//! runtime that started them.
//!
//! Sessions and the portal's own pages have workers of their own. A transfer of files moves bytes as long as both sides keep
//! up, milliseconds at a time, and on one thread with it a keystroke waits for all transfers there; from another thread the
//! kernel lets it in between (`bench/files` has the figures).

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long blocking work that a connection has begun may go on after the end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time between two of a worker's ticks.
const TICK: Duration = Duration::from_secs(1);

thread_local! {
    static HERE: Cell<WorkerId> = const { Cell::new(WorkerId(0)) };
}

/// Which worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerId(usize);

impl WorkerId {
    /// The worker whose thread this is; the first one on any other thread.
    pub fn here() -> Self {
        HERE.get()
    }

    /// From 0, below [`Workers::count`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// The workers; cheap to clone.
#[derive(Clone)]
pub struct Workers {
    /// Those for sessions, then as many for the portal.
    handles: Arc<[Handle]>,
    next_for_session: Arc<AtomicUsize>,
    next_for_portal: Arc<AtomicUsize>,
}

impl Workers {
    /// No threads: every connection stays on the runtime it was accepted on.
    pub fn none() -> Self {
        Self { handles: Arc::new([]), next_for_session: Arc::default(), next_for_portal: Arc::default() }
    }

    /// Starts two workers for each CPU: one for sessions, one for the portal. They run until their threads are ended.
    pub fn start() -> io::Result<(Self, Threads)> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let mut started = Threads { end: CancellationToken::new(), threads: Vec::new() };
        let handles = (0..2 * count).map(|index| started.add(index)).collect::<io::Result<_>>()?;
        Ok((Self { handles, ..Self::none() }, started))
    }

    /// How many places a connection can be in.
    pub fn count(&self) -> usize {
        self.handles.len().max(1)
    }

    /// How many of them are for sessions.
    pub fn for_sessions(&self) -> usize {
        self.count().div_ceil(2)
    }

    /// Of those for sessions, the one whose turn it is.
    pub fn next_for_session(&self) -> WorkerId {
        WorkerId(self.next_for_session.fetch_add(1, Ordering::Relaxed) % self.for_sessions())
    }

    /// Of those for the portal, the one whose turn it is.
    pub fn next_for_portal(&self) -> WorkerId {
        let of_portal = self.handles.len() / 2;
        let turn = self.next_for_portal.fetch_add(1, Ordering::Relaxed);
        WorkerId(turn.checked_rem(of_portal).map_or(0, |turn| self.for_sessions() + turn))
    }

    /// Gives a connection to a worker, which runs what `task` makes of it.
    pub fn hand_over<F>(
        &self,
        worker: WorkerId,
        tracker: &TaskTracker,
        stream: TcpStream,
        task: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(handle) = self.handles.get(worker.0) else {
            tracker.spawn(task(stream));
            return Ok(());
        };
        // A stream is woken by the runtime it was made on: it is made again on the worker's.
        let stream = stream.into_std()?;
        let moved = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => task(stream).await,
                Err(error) => tracing::warn!(%error, "A connection could not be taken over"),
            }
        };
        tracker.spawn_on(moved, handle);
        Ok(())
    }
}

/// The workers' threads.
pub struct Threads {
    end: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn add(&mut self, index: usize) -> io::Result<Handle> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), self.end.clone());
        let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            HERE.set(WorkerId(index));
            runtime.block_on(end.run_until_cancelled(tick()));
            runtime.shutdown_timeout(LAST_WORDS);
        })?;
        self.threads.push(thread);
        Ok(handle)
    }

    /// Ends them, with whatever they still carry; what is being written to disk is waited for. Blocks.
    pub fn end(self) {
        self.end.cancel();
        for thread in self.threads {
            // One that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

/// Keeps a timer running that is due sooner than those of requests. Without one, each request's timer would be the next
/// to be due, and setting that makes tokio interrupt its own wait: a system call and an event for every request.
async fn tick() -> ! {
    loop {
        tokio::time::sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::PATIENCE;

    #[tokio::test]
    async fn a_connection_is_carried_where_it_was_given_to() {
        let (workers, threads) = Workers::start().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tracker = TaskTracker::new();
        for _ in 0..=workers.count() {
            let mut client = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let worker = workers.next_for_session();
            let echo = move |mut stream: TcpStream| async move {
                assert_eq!(WorkerId::here(), worker);
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                assert_eq!(WorkerId::here(), worker);
                stream.write_all(&byte).await.unwrap();
            };
            workers.hand_over(worker, &tracker, stream, echo).unwrap();
            client.write_all(b"x").await.unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).await.unwrap();
            assert_eq!(&byte, b"x");
        }
        tracker.close();
        tracker.wait().await;
        threads.end();
    }

    #[tokio::test]
    async fn what_the_portal_does_holds_up_no_session() {
        let (workers, threads) = Workers::start().unwrap();
        let (tracker, listener) = (TaskTracker::new(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let address = listener.local_addr().unwrap();
        let (busy, mut is_busy) = tokio::sync::mpsc::unbounded_channel();
        let mut ends = Vec::new();
        // A thread of the portal's each, that goes on with nothing else until it is told to.
        for _ in 0..workers.for_sessions() {
            let _client = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            ends.push(end);
            let busy = busy.clone();
            let hold = move |_| async move {
                busy.send(WorkerId::here()).unwrap();
                let _ = ended.recv();
            };
            workers.hand_over(workers.next_for_portal(), &tracker, stream, hold).unwrap();
        }
        let mut held = std::collections::HashSet::new();
        for _ in 0..workers.for_sessions() {
            held.insert(is_busy.recv().await.unwrap().index());
        }
        assert_eq!(held.len(), workers.for_sessions(), "each took its turn");
        for _ in 0..workers.for_sessions() {
            let mut client = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let answer = |mut stream: TcpStream| async move { stream.write_all(b"x").await.unwrap() };
            workers.hand_over(workers.next_for_session(), &tracker, stream, answer).unwrap();
            let mut byte = [0];
            let answered = tokio::time::timeout(PATIENCE, client.read_exact(&mut byte)).await;
            answered.expect("a session waits for the portal").unwrap();
        }
        drop(ends);
        tracker.close();
        tracker.wait().await;
        threads.end();
    }
}
