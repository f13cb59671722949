//! Connections for the runtime's data between ranks of different nodes, proven like all others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::call::{Endpoint, Outcome};
use crate::channel::Channel;
use crate::cipher::{Opening, Sealing};
use crate::door::{Door, DoorToken};
use crate::error::Error;
use crate::link::Link;
use crate::member::attempt;
use crate::mesh::{Mesh, Shared};
use crate::place;
use crate::proof::{Prover, Purpose, Verdict, Wish};
use crate::seal::Kind;
use crate::secret::random_u64;
use crate::socket::{self, Way};
use crate::wire::{Reader, Writer};

/// How often somebody who waits looks for trouble.
const LOOK: Duration = Duration::from_millis(20);

/// Whether others on the network may see what goes over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// They may not: everything is to be sealed.
    Sealed,
    /// There is nobody else on that network.
    Clear,
}

impl Secrecy {
    fn purpose(self) -> Purpose {
        match self {
            Self::Sealed => Purpose::Data,
            Self::Clear => Purpose::Clear,
        }
    }
}

/// A connection between two ranks that have proven themselves.
#[derive(Debug)]
pub struct Connection {
    /// It blocks, and small pieces leave at once.
    pub stream: TcpStream,
    /// What its users seal with and what they open with; nothing for a connection in the clear.
    pub ends: Option<(Sealing, Opening)>,
}

impl Mesh {
    /// A fresh connection to another rank over the network; both call it, with the same topic and secrecy, which the proof
    /// covers: nobody can talk them out of sealing. The lower rank listens for just that long. While idle the connection
    /// breaks within four seconds when the other machine is gone. Both ends have proven themselves; what then goes over it
    /// is for the caller to seal.
    ///
    /// # Errors
    /// [`Error::Invalid`] on the higher rank when the other wants another secrecy.
    pub fn connect(&self, with: u32, topic: u64, secrecy: Secrecy, deadline: Instant) -> Result<Connection, Error> {
        let shared = self.shared();
        let link = shared.link(with)?;
        let Some(prover) = &shared.prover else { return Err(Error::invalid("a world of one rank has no connections")) };
        let channel = if shared.rank < with {
            shared.await_call(prover, link, topic, secrecy, deadline)?
        } else {
            shared.call(prover, link, topic, secrecy, deadline)?
        };
        let (fd, ours, theirs) = channel.into_parts();
        let stream = TcpStream::from(fd);
        stream.set_nonblocking(false).map_err(Error::system("set up the data connection"))?;
        let ends = (secrecy == Secrecy::Sealed).then(|| (Sealing::of(ours), Opening::of(theirs)));
        Ok(Connection { stream, ends })
    }

    /// A key that only the ranks of this world have, for a use of its own; the same on all of them. It says nothing about
    /// the secret or about keys for other uses.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a world of one rank, which shares nothing with anybody.
    pub fn derive(&self, purpose: &str) -> Result<Zeroizing<[u8; 32]>, Error> {
        let shared = self.shared();
        shared.present()?;
        let prover = shared.prover.as_ref();
        prover.map(|prover| prover.derive(purpose)).ok_or_else(|| Error::invalid("a world of one rank has no secret"))
    }
}

impl Shared {
    /// Fails if waiting for this rank has become pointless.
    fn still(&self, link: &Link) -> Result<(), Error> {
        self.present()?;
        match self.trouble() {
            Some(trouble) => Err(trouble.into()),
            None if link.inbox().left => Err(Error::Left { rank: link.rank }),
            None => Ok(()),
        }
    }

    /// Listens where the other rank reaches us, for this one connection.
    fn listen_for(&self, link: &Link) -> Result<(OwnedFd, Vec<SocketAddr>), Error> {
        let what = "listen for a data connection";
        let same_host = self.table[self.rank as usize].host == self.table[link.rank as usize].host;
        let known = match link.way {
            Way::Tcp => socket::local(link.fd()).map(|address| address.ip()),
            Way::Unix if same_host => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Way::Unix => None,
        };
        let (listener, ips) = match known {
            Some(ip) => (socket::listen_tcp(SocketAddr::new(ip, 0)).map_err(Error::system(what))?, vec![ip]),
            None => (socket::listen_everywhere(0).map_err(Error::system(what))?, place::reachable(&self.interfaces)?),
        };
        let port = socket::local(listener.as_fd()).map_or(0, |address| address.port());
        Ok((listener, ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()))
    }

    fn await_call(
        &self,
        prover: &Prover,
        link: &Link,
        topic: u64,
        secrecy: Secrecy,
        deadline: Instant,
    ) -> Result<Channel, Error> {
        let purpose = secrecy.purpose();
        let began = Instant::now();
        let (listener, addresses) = self.listen_for(link)?;
        let mark = random_u64()?;
        let offer = Writer::default().u64(mark).u32(purpose as u32).addresses(&addresses).done();
        self.send(link, Kind::Offer, topic, &offer, &[])?;
        let wanted = Wish { purpose, from: link.rank, to: self.rank, size: self.size, mark };
        let mut door = Door::new(prover.clone());
        door.add(listener, Way::Tcp);
        loop {
            self.still(link)?;
            let now = Instant::now();
            if now >= deadline {
                let (waited, missing) = (began.elapsed(), vec![link.rank]);
                return Err(Error::Timeout { waited, missing, strangers: door.strangers });
            }
            door.tidy(now);
            for token in wait(&door, deadline.min(now + LOOK))? {
                let Some(guest) = door.serve(token, Instant::now())? else { continue };
                if guest.wish == wanted {
                    if let Some(channel) = guest.welcome() {
                        return Ok(channel);
                    }
                } else {
                    guest.refuse(Verdict::Unwanted);
                }
            }
        }
    }

    fn call(
        &self,
        prover: &Prover,
        link: &Link,
        topic: u64,
        secrecy: Secrecy,
        deadline: Instant,
    ) -> Result<Channel, Error> {
        let purpose = secrecy.purpose();
        let corrupt = || Error::Corrupt { rank: link.rank };
        let began = Instant::now();
        loop {
            let (offer, _) = self.receive(link, Kind::Offer, topic, deadline)?;
            let mut reader = Reader::new(&offer);
            let mark = reader.u64().ok_or_else(corrupt)?;
            let theirs = reader.u32().ok_or_else(corrupt)?;
            let addresses = reader.addresses().ok_or_else(corrupt)?;
            if theirs != purpose as u32 {
                let (ours, theirs) = match secrecy {
                    Secrecy::Sealed => ("sealed", "in the clear"),
                    Secrecy::Clear => ("in the clear", "sealed"),
                };
                return Err(Error::invalid(format!(
                    "rank {} wants a connection {ours}, and rank {} one {theirs}: both must ask for the same",
                    self.rank, link.rank
                )));
            }
            let wish = Wish { purpose, from: self.rank, to: link.rank, size: self.size, mark };
            // Until it works, or a later offer says that this one was given up.
            while !link.inbox().has(Kind::Offer, topic) {
                for address in &addresses {
                    if let Outcome::Connected(channel) = attempt(&Endpoint::Tcp(*address), wish, prover, deadline) {
                        return Ok(*channel);
                    }
                }
                self.still(link)?;
                let now = Instant::now();
                if now >= deadline {
                    let (waited, missing) = (began.elapsed(), vec![link.rank]);
                    return Err(Error::Timeout { waited, missing, strangers: 0 });
                }
                std::thread::sleep(LOOK.min(deadline - now));
            }
        }
    }
}

fn wait(door: &Door, until: Instant) -> Result<Vec<DoorToken>, Error> {
    let (mut tokens, mut fds) = (Vec::new(), Vec::new());
    door.watch(|token, fd| {
        tokens.push(token);
        fds.push(fd);
    });
    socket::wait(&mut fds, Some(until)).map_err(Error::system("wait for the other rank"))?;
    let ready = tokens.into_iter().zip(&fds).filter(|(_, fd)| !socket::found(fd).is_empty());
    Ok(ready.map(|(token, _)| token).collect())
}
