//! The watcher: one thread that reads every control connection, keeps the messages for who asks for them, and notices
//! when a rank is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::SigSet;

use crate::channel::{CHUNK, Ear, Hearing};
use crate::error::Trouble;
use crate::link::Link;
use crate::mesh::Shared;
use crate::seal::{Kind, Message};
use crate::socket::{self, Way};
use crate::wire::{Reader, Writer, short};

/// How often connections over the network are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// A machine that owes an answer for this long is gone.
const SILENCE: Duration = Duration::from_millis(3500);
/// So many reads from one rank before the others have their turn.
const AT_ONCE: usize = 32;

pub(crate) struct Watcher {
    shared: Arc<Shared>,
    /// By rank; none for ranks that are gone.
    ears: Vec<Option<Ear>>,
    chunk: Vec<u8>,
}

impl Watcher {
    pub(crate) fn new(shared: Arc<Shared>, ears: Vec<Option<Ear>>) -> Self {
        Self { shared, ears, chunk: vec![0; CHUNK] }
    }

    /// Watches until this rank leaves.
    pub(crate) fn run(mut self) {
        // Signals are for the program's own threads, whose waiting they are to end.
        let _ = SigSet::all().thread_block();
        self.deliver_early();
        let mut looked = Instant::now();
        while !self.shared.is_leaving() {
            let Some(mut ready) = self.wait(looked + LOOK) else { return };
            // Deaths first: what others say about them comes after.
            ready.sort_by_key(|(_, over)| !over);
            for (at, over) in ready {
                self.hear(at, over);
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look_for_silence();
            }
        }
    }

    /// Waits for something to read; whose it is, and whether it is the last. `None` if it cannot be waited for.
    fn wait(&self, look: Instant) -> Option<Vec<(usize, bool)>> {
        let shared = &self.shared;
        let mut ranks = Vec::new();
        let mut fds = vec![PollFd::new(shared.wake_fd(), PollFlags::POLLIN)];
        let mut network = false;
        for (at, link) in shared.links.iter().enumerate() {
            let (Some(link), Some(_)) = (link, &self.ears[at]) else { continue };
            let read = if link.inbox().paused { PollFlags::empty() } else { PollFlags::POLLIN };
            ranks.push(at);
            fds.push(PollFd::new(link.fd(), read | socket::CLOSING));
            network |= link.way == Way::Tcp;
        }
        socket::wait(&mut fds, network.then_some(look)).ok()?;
        if !socket::found(&fds[0]).is_empty() {
            shared.awake();
        }
        let found = ranks.into_iter().zip(&fds[1..]);
        let over = |flags: PollFlags| flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        let found = found.map(|(at, fd)| (at, socket::found(fd))).filter(|(_, flags)| !flags.is_empty());
        Some(found.map(|(at, flags)| (at, over(flags))).collect())
    }

    /// Messages that came right behind the last one of the meeting.
    fn deliver_early(&mut self) {
        for at in 0..self.ears.len() {
            if self.ears[at].is_some() {
                self.deliver(at);
            }
        }
    }

    /// Reads what a rank has sent; all of it, if nothing more can come.
    fn hear(&mut self, at: usize, over: bool) {
        let shared = Arc::clone(&self.shared);
        let Some(link) = &shared.links[at] else { return };
        for _ in 0..AT_ONCE {
            let Some(ear) = &mut self.ears[at] else { return };
            let heard = ear.listen(link.fd(), &mut self.chunk);
            self.deliver(at);
            match heard {
                Ok((Hearing::Open, 0)) => return,
                Ok((Hearing::Open, _)) if over || !link.inbox().paused => {}
                Ok((Hearing::Open, _)) => return,
                Ok((Hearing::Gone, _)) => return self.lose(at, link),
                Err(_) => return self.distrust(at, link),
            }
        }
    }

    /// Puts what was heard where it is asked for.
    fn deliver(&mut self, at: usize) {
        let shared = Arc::clone(&self.shared);
        let (Some(ear), Some(link)) = (&mut self.ears[at], &shared.links[at]) else { return };
        let mut foreign = false;
        for message in ear.heard.drain(..) {
            match message.kind {
                Kind::User | Kind::Offer => {
                    let mut inbox = link.inbox();
                    inbox.put(message);
                    inbox.paused = inbox.is_full();
                }
                Kind::Goodbye => link.inbox().left = true,
                Kind::Abort => match read_trouble(&message) {
                    Some(trouble) => {
                        link.inbox().left = true;
                        shared.raise(trouble);
                    }
                    None => foreign = true,
                },
                _ => foreign = true,
            }
            link.ring();
        }
        if foreign {
            self.distrust(at, link);
        }
    }

    /// The rank's connection has ended.
    fn lose(&mut self, at: usize, link: &Link) {
        self.ears[at] = None;
        let left = {
            let mut inbox = link.inbox();
            inbox.gone = true;
            inbox.left
        };
        if !left {
            self.shared.raise(Trouble::Died { rank: link.rank });
        }
        link.ring();
    }

    /// The rank's connection carried what the rank did not send: nothing more is taken from it.
    fn distrust(&mut self, at: usize, link: &Link) {
        self.ears[at] = None;
        link.inbox().gone = true;
        let trouble = Trouble::Corrupt { rank: link.rank };
        let reason = format!("the connection to rank {} carried bytes that it did not send", link.rank);
        let word = write_trouble(&Trouble::Aborted { rank: self.shared.rank, reason });
        let _ = link.send(Kind::Abort, 0, &word, &[], || true);
        link.finish();
        self.shared.raise(trouble);
        link.ring();
    }

    fn look_for_silence(&mut self) {
        let shared = Arc::clone(&self.shared);
        for link in shared.links.iter().flatten().filter(|link| link.way == Way::Tcp) {
            let at = link.rank as usize;
            if self.ears[at].is_some() && socket::silence(link.fd()).is_some_and(|silence| silence >= SILENCE) {
                self.lose(at, link);
            }
        }
    }
}

/// What an abort says.
pub(crate) fn write_trouble(trouble: &Trouble) -> Vec<u8> {
    let writer = Writer::default();
    match trouble {
        Trouble::Died { rank } => writer.u32(1).u32(*rank),
        Trouble::Aborted { rank, reason } => writer.u32(2).u32(*rank).bytes(short(reason).as_bytes()),
        Trouble::Corrupt { rank } => writer.u32(3).u32(*rank),
    }
    .done()
}

fn read_trouble(message: &Message) -> Option<Trouble> {
    let mut reader = Reader::new(&message.bytes);
    let (kind, rank) = (reader.u32()?, reader.u32()?);
    match kind {
        1 => Some(Trouble::Died { rank }),
        2 => Some(Trouble::Aborted { rank, reason: reader.text()? }),
        3 => Some(Trouble::Corrupt { rank }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn trouble_is_read_as_it_was_written(rank: u32, reason: String, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let message = |bytes| Message { kind: Kind::Abort, topic: 0, bytes, files: Vec::new() };
            for trouble in [Trouble::Died { rank }, Trouble::Aborted { rank, reason }, Trouble::Corrupt { rank }] {
                prop_assert_eq!(read_trouble(&message(write_trouble(&trouble))), Some(trouble));
            }
            let _ = read_trouble(&message(bytes));
        }
    }
}
