//! Connections for the runtime's data between ranks of different nodes, proven like all others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::call::{Endpoint, Outcome};
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

impl Mesh {
    /// A fresh connection to another rank over the network; both call it, with the same topic. The lower rank listens
    /// for just that long. Small pieces leave at once, and while idle the connection breaks within four seconds when the
    /// other machine is gone. Both ends have proven themselves; what then goes over it is neither encrypted nor checked.
    pub fn connect(&self, with: u32, topic: u64, deadline: Instant) -> Result<TcpStream, Error> {
        let shared = self.shared();
        let link = shared.link(with)?;
        let Some(prover) = &shared.prover else { return Err(Error::invalid("a world of one rank has no connections")) };
        let fd = if shared.rank < with {
            shared.await_call(prover, link, topic, deadline)?
        } else {
            shared.call(prover, link, topic, deadline)?
        };
        let stream = TcpStream::from(fd);
        stream.set_nonblocking(false).map_err(Error::system("set up the data connection"))?;
        Ok(stream)
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
            None => (socket::listen_everywhere(0).map_err(Error::system(what))?, place::addresses(&self.interfaces)?),
        };
        let port = socket::local(listener.as_fd()).map_or(0, |address| address.port());
        Ok((listener, ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()))
    }

    fn await_call(&self, prover: &Prover, link: &Link, topic: u64, deadline: Instant) -> Result<OwnedFd, Error> {
        let began = Instant::now();
        let (listener, addresses) = self.listen_for(link)?;
        let mark = random_u64()?;
        let offer = Writer::default().u64(mark).addresses(&addresses).done();
        self.send(link, Kind::Offer, topic, &offer, &[])?;
        let wanted = Wish { purpose: Purpose::Data, from: link.rank, to: self.rank, size: self.size, mark };
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
                    if let Some(fd) = guest.hand_over() {
                        return Ok(fd);
                    }
                } else {
                    guest.refuse(Verdict::Unwanted);
                }
            }
        }
    }

    fn call(&self, prover: &Prover, link: &Link, topic: u64, deadline: Instant) -> Result<OwnedFd, Error> {
        let corrupt = || Error::Corrupt { rank: link.rank };
        let began = Instant::now();
        loop {
            let (offer, _) = self.receive(link, Kind::Offer, topic, deadline)?;
            let mut reader = Reader::new(&offer);
            let mark = reader.u64().ok_or_else(corrupt)?;
            let addresses = reader.addresses().ok_or_else(corrupt)?;
            let wish = Wish { purpose: Purpose::Data, from: self.rank, to: link.rank, size: self.size, mark };
            // Until it works, or a later offer says that this one was given up.
            while !link.inbox().has(Kind::Offer, topic) {
                for address in &addresses {
                    if let Outcome::Connected(channel) = attempt(&Endpoint::Tcp(*address), wish, prover, deadline) {
                        return Ok(channel.fd);
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
