//! From a plan to connections with every other rank, leaving nothing behind.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::door::inherited;
use crate::error::Error;
use crate::floor::Floor;
use crate::judge::Judge;
use crate::member::{FIRST, Member, NOTICE, find};
use crate::notice::{Notice, Posted, remove_dead, remove_drafts};
use crate::place;
use crate::plan::{Meeting, Phase, Plan};
use crate::proof::Prover;
use crate::room::{self, Room};
use crate::seal::Kind;
use crate::secret::{Secret, random_u64};
use crate::socket::{self, Way};
use crate::wire::{Entry, write_error};

/// How long rank 0 has to hear why this rank cannot take part.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long somebody who lives has to take a call.
const CALL: Duration = Duration::from_millis(300);

/// A world that has met.
pub(crate) struct Joined {
    pub(crate) prover: Prover,
    pub(crate) links: Vec<Option<Channel>>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) table: Vec<Entry>,
}

/// Joins a world of at least two ranks.
pub(crate) fn join(plan: &mut Plan) -> Result<Joined, Error> {
    let began = Instant::now();
    plan.tell(Phase::Meeting);
    let host = place::host()?;
    let mut own = Entry { host, node: place::node(host, plan.node.as_deref()), ..Entry::default() };
    own.name = room::fresh_name(plan.rank)?;
    let directory = match (&plan.meeting, &plan.directory) {
        (Meeting::Directory(path), _) => path.clone(),
        (_, Some(path)) => Room::open(path).and_then(|room| absolute(room.path().into()))?,
        (_, None) => room::fresh()?,
    };
    own.directory = directory.as_os_str().as_bytes().to_vec();
    let joined = if plan.rank == 0 { as_first(plan, own) } else { as_member(plan, own, began) };
    if joined.is_ok() {
        plan.tell(Phase::Joined);
    }
    joined
}

fn absolute(path: PathBuf) -> Result<PathBuf, Error> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(Error::invalid(format!("`{}` must be an absolute path", path.display())))
    }
}

fn as_first(plan: &mut Plan, mut own: Entry) -> Result<Joined, Error> {
    let handed = plan.secret.is_none();
    let secret = match &plan.secret {
        Some(secret) => secret.clone(),
        None => Secret::new_random()?,
    };
    let prover = Prover::new(secret.clone(), &plan.world);
    let mut floor = Floor::new(prover.clone(), plan.rank, plan.size);
    let post = |path: &PathBuf, addresses: &[SocketAddr]| {
        let secret = handed.then(|| secret.clone());
        Posted::write(path, &Notice::new(&plan.world, own.host, addresses.to_vec(), secret))
    };
    match std::mem::replace(&mut plan.meeting, Meeting::Nobody) {
        Meeting::Nobody => return Err(Error::invalid("a world of several ranks needs a way to find rank 0")),
        Meeting::Directory(path) => {
            let mut room = Room::open(&path)?;
            let listener = room.listen(FIRST).map_err(|error| match error.kind() {
                std::io::ErrorKind::AddrInUse => Error::Duplicate { rank: 0 },
                _ => Error::System { what: "listen in the meeting directory", source: error },
            })?;
            floor.door.add(listener, Way::Unix);
            floor.rooms.push(room);
            if handed {
                floor.posted = Some(post(&path.join(NOTICE), &[])?);
            }
            own.name = FIRST.into();
            plan.meeting = Meeting::Directory(path);
        }
        Meeting::File(path) => {
            own.addresses = listen_outside(&mut floor, plan, 0)?;
            floor.posted = Some(post(&path, &own.addresses)?);
        }
        Meeting::Address { port, .. } => own.addresses = listen_outside(&mut floor, plan, port)?,
        Meeting::Listener(listener) => {
            let way = inherited(&listener)?;
            let port = socket::local(listener.as_fd()).map(|address| address.port());
            own.addresses = match port {
                Some(port) => {
                    place::reachable(&plan.interfaces)?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
                }
                None => listen_outside(&mut floor, plan, 0)?,
            };
            floor.door.add(listener, way);
        }
    }
    let mut judge = Judge::new(plan, floor, own.clone());
    let result = judge.preside();
    let (floor, table) = (judge.floor, judge.table);
    match result {
        Ok(nodes) => Ok(Joined { prover, links: floor.into_links(), nodes, table }),
        Err(error) => {
            clear_after(&table, &own);
            Err(error)
        }
    }
}

fn as_member(plan: &Plan, mut own: Entry, began: Instant) -> Result<Joined, Error> {
    let until = began + plan.timeout;
    let life = random_u64()?;
    let found = find(plan, own.host, life, until).inspect_err(|error| {
        if matches!(error, Error::Timeout { .. }) {
            clear_after_first(plan, &own, false);
        }
    })?;
    let mut floor = Floor::new(found.prover.clone(), plan.rank, plan.size);
    floor.talks[0] = Some(found.channel);
    if !matches!(plan.meeting, Meeting::Directory(_)) && plan.rank + 1 < plan.size {
        own.addresses = listen_outside(&mut floor, plan, 0).inspect_err(|error| {
            let word = write_error(error, plan.rank);
            floor.tell_all(Kind::Failed, &word, Instant::now() + FAREWELL);
        })?;
    }
    let mut member = Member { plan, floor, own, life, began, until, table: Vec::new() };
    let result = member.take_part();
    let Member { floor, own, table, .. } = member;
    match result {
        Ok(nodes) => Ok(Joined { prover: found.prover, links: floor.into_links(), nodes, table }),
        Err(error) => {
            if matches!(error, Error::Died { rank: 0 }) {
                clear_after_first(plan, &own, true);
            }
            clear_after(&table, &own);
            Err(error)
        }
    }
}

/// The world did not come about: what a killed rank of this node may have left goes with it.
fn clear_after(table: &[Entry], own: &Entry) {
    table.iter().filter(|entry| entry.node == own.node).for_each(room::clear);
}

/// Rank 0 may have been killed before it could clear away where it was to be found. It surely was if nobody listens
/// there, and it had been met or was to be found on this very host.
fn clear_after_first(plan: &Plan, own: &Entry, met: bool) {
    // A process that dies closes its sockets one after the other.
    let until = Instant::now() + if met { CALL } else { Duration::ZERO };
    while !clear_if_dead(plan, own, met) && Instant::now() < until {
        std::thread::sleep(CALL / 100);
    }
}

/// True if nothing is left to be cleared away.
fn clear_if_dead(plan: &Plan, own: &Entry, met: bool) -> bool {
    match &plan.meeting {
        Meeting::Directory(path) => {
            let called = Room::open(path).map(|room| room.call(FIRST));
            let is_dead = |error: std::io::Error| {
                matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound)
            };
            let dead = called.is_ok_and(|called| called.is_err_and(is_dead));
            if dead {
                room::clear(&Entry { name: FIRST.into(), ..own.clone() });
                remove_dead(&path.join(NOTICE));
            }
            dead
        }
        Meeting::File(path) => {
            let Ok(Some(notice)) = Notice::read(path, &plan.world) else {
                // Rank 0 may have been killed before it put the file in its place.
                remove_drafts(path, plan.timeout / 2);
                return true;
            };
            let alive = |endpoint: &SocketAddr| TcpStream::connect_timeout(endpoint, CALL).is_ok();
            let dead = (met || notice.host == own.host) && !notice.addresses.iter().any(alive);
            if dead {
                remove_dead(path);
            }
            dead
        }
        Meeting::Nobody | Meeting::Address { .. } | Meeting::Listener(_) => true,
    }
}

/// Makes this rank callable for the higher ranks of its node.
pub(crate) fn listen_inside(floor: &mut Floor, plan: &Plan, own: &Entry, table: &[Entry]) -> Result<(), Error> {
    let in_directory = matches!(plan.meeting, Meeting::Directory(_));
    let inside = |entry: &Entry| in_directory || entry.node == own.node;
    let (lower, higher) = table.split_at(plan.rank as usize + 1);
    if !higher.iter().any(inside) || (in_directory && plan.rank == 0) {
        return Ok(());
    }
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&own.directory));
    let mut room = if in_directory || plan.directory.is_some() {
        Room::open(&path)?
    } else {
        if lower.iter().filter(|entry| inside(entry)).count() == 1 {
            room::sweep();
        }
        Room::make(&path)?
    };
    let listener = room.listen(&own.name).map_err(Error::system("listen in the private directory"))?;
    floor.door.add(listener, Way::Unix);
    floor.rooms.push(room);
    Ok(())
}

/// Makes this rank callable over the network; gives the addresses to call, the likeliest first.
fn listen_outside(floor: &mut Floor, plan: &Plan, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let what = "listen on the network";
    let add = |floor: &mut Floor, listener: OwnedFd| {
        let port = socket::local(listener.as_fd()).map_or(0, |address| address.port());
        floor.door.add(listener, Way::Tcp);
        port
    };
    let addresses = place::reachable(&plan.interfaces)?;
    if plan.interfaces.is_empty() {
        let port = add(floor, socket::listen_everywhere(port).map_err(Error::system(what))?);
        return Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
    }
    let mut all = Vec::new();
    for ip in addresses {
        let listener = socket::listen_tcp(SocketAddr::new(ip, port)).map_err(Error::system(what))?;
        all.push(SocketAddr::new(ip, add(floor, listener)));
    }
    Ok(all)
}
