//! How ranks have ended, said at once: by who waits for the program, to the agent or helper of its node, which passes it on.
//!
//! SLURM's own account cannot tell. By PMIx it kills a whole step as soon as one rank's connection is gone, often before that rank's task has
//! ended, and `srun` then gives the largest status of all tasks. So the process that waits for the program says how it ended the moment it knows:
//! a datagram to a socket in the runtime directory, which arrives whatever becomes of its sender. Nothing of it happens before a rank ends. Who
//! failed first is the agent's to judge, by the time that is in the word: those of other nodes take longer.
//!
//! A process that ends lets go of its connections first, and its parent hears of its end last: on a busy machine PMIx has ended the other ranks
//! by then. So ranks inherit the end of a pipe that nobody writes to: it is let go of with their connections, and that is the time that counts.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// The socket's name, in the part of the runtime directory that the container sees.
pub(crate) const ENDS_SOCKET: &str = "ends.sock";

/// How long who listens may take to make room: the system keeps a few datagrams only.
const ROOM: Duration = Duration::from_millis(200);
/// Longest word, bytes.
const MOST_BYTES: usize = 512;

/// What has been ended by SIGKILL has for its status; so has a step that was told to end.
pub(crate) const KILLED: u8 = 128 + Signal::SIGKILL as u8;

/// How a rank has ended, or that it is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RankEnd {
    /// Of which step.
    pub(crate) step: u32,
    /// Which.
    pub(crate) rank: u32,
    /// Its status, 128 + N if signal N ended it. None as long as it has only let go of what it had, which is the beginning of its end.
    pub(crate) status: Option<u8>,
    /// Whether it was asked to.
    pub(crate) asked: Asked,
    /// When its end began, microseconds since 1970 by its node's clock; at the agent by the agent's.
    pub(crate) at: i64,
}

/// Microseconds since 1970 by this node's clock.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// What is known of another node's clock, by one question and its answer. Nodes of a cluster have the same time (authentication with munge needs
/// it), so a difference is believed only where the answer cannot be explained without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    ahead: i64,
    unsure: i64,
}

impl Clock {
    /// By a question that was asked at `asked` and whose answer came at `heard`, and was given at `there` by the other clock.
    pub(crate) fn new(asked: i64, there: i64, heard: i64) -> Self {
        let (least, most) = (there.saturating_sub(heard), there.saturating_sub(asked));
        let ahead = if least > 0 { least } else { most.min(0) };
        Self { ahead, unsure: most.saturating_sub(least) }
    }

    /// What is known with a later answer: clocks drift, so that is taken unless it is much less sure.
    pub(crate) fn then(self, later: Self) -> Self {
        if later.unsure <= self.unsure.saturating_mul(4) { later } else { self }
    }

    /// What this node's clock said when the other one said so.
    pub(crate) fn here(self, there: i64) -> i64 {
        there.saturating_sub(self.ahead)
    }
}

/// Whether a rank ended because it was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    /// No: it is the rank's own end.
    No,
    /// By SIGTERM, which may have been SLURM's to the whole step; that is said next.
    Perhaps,
    /// It was.
    Yes,
}

/// How a status came about, as people say it.
pub(crate) fn how(status: u8) -> String {
    let signal = status.checked_sub(128).and_then(|number| Signal::try_from(i32::from(number)).ok());
    signal.map_or(format!("ended with status {status}"), |signal| format!("was killed by signal {signal}"))
}

/// A rank's way to say it.
pub(crate) struct Teller {
    socket: Option<UnixDatagram>,
    step: u32,
    rank: u32,
}

impl Teller {
    /// To the socket in this directory. Where nobody listens nothing can be told.
    pub(crate) fn new(inside: &Path, step: u32, rank: u32) -> Self {
        let connect = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect(inside.join(ENDS_SOCKET))?;
            socket.set_write_timeout(Some(ROOM))?;
            io::Result::Ok(socket)
        };
        Self { socket: connect().ok(), step, rank }
    }

    /// Says how the rank has ended, or with no status that it is about to; whether it could.
    pub(crate) fn tell(&self, status: Option<u8>, asked: Asked, at: i64) -> bool {
        let word = serde_json::to_vec(&RankEnd { step: self.step, rank: self.rank, status, asked, at });
        self.socket.as_ref().zip(word.ok()).is_some_and(|(socket, word)| socket.send(&word).is_ok())
    }
}

/// Hears this node's ranks at the socket in this directory, as long as the runtime lives.
pub(crate) fn listen(inside: &Path, mut heard: impl FnMut(RankEnd) + Send + 'static) -> io::Result<()> {
    let socket = tokio::net::UnixDatagram::bind(inside.join(ENDS_SOCKET))?;
    tokio::spawn(async move {
        let mut word = [0; MOST_BYTES];
        while let Ok(length) = socket.recv(&mut word).await {
            // Whatever else comes is nobody's end.
            if let Ok(end) = serde_json::from_slice(&word[..length]) {
                heard(end);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rank_s_word_arrives_though_the_rank_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        listen(directory.path(), move |end| assert!(sender.send(end).is_ok())).unwrap();
        let stranger = UnixDatagram::unbound().unwrap();
        stranger.send_to(b"{\"step\": 1}", directory.path().join(ENDS_SOCKET)).unwrap();
        let teller = Teller::new(directory.path(), 7, 3);
        assert!(teller.tell(Some(137), Asked::No, now()));
        drop(teller);
        let end = receiver.recv().await.unwrap();
        assert_eq!((end.step, end.rank, end.status, end.asked), (7, 3, Some(137), Asked::No));
        assert!(end.at <= now() && now() - end.at < 60_000_000, "{}", end.at);
    }

    #[test]
    fn a_clock_is_wrong_only_where_its_answer_cannot_be_explained_otherwise() {
        for there in [1_000, 1_200, 2_000] {
            assert_eq!(Clock::new(1_000, there, 2_000).here(1_500), 1_500, "{there}");
        }
        assert_eq!(Clock::new(1_000, 902_000, 2_000).here(902_500), 2_500, "it is ahead, by 900000 at least");
        assert_eq!(Clock::new(1_000, 400, 2_000).here(900), 1_500, "it is behind, by 600 at least");
        let (fine, rough) = (Clock::new(0, 5_000, 10), Clock::new(0, 5_000, 1_000));
        let later = Clock::new(0, 5_100, 12);
        assert_eq!((rough.then(fine), fine.then(rough), fine.then(later)), (fine, fine, later));
    }

    #[test]
    fn where_nobody_listens_a_rank_knows_that_it_was_not_heard() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!Teller::new(directory.path(), 7, 3).tell(Some(1), Asked::No, now()));
    }

    #[test]
    fn an_end_is_said_as_people_say_it() {
        assert_eq!(how(137), "was killed by signal SIGKILL");
        assert_eq!(how(3), "ended with status 3");
        assert_eq!(how(255), "ended with status 255");
    }
}
