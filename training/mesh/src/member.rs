//! The part of every rank but 0 in a meeting: find rank 0, say who and where one is, call the lower ranks, be called by
//! the higher ones, and believe rank 0's word on how it ended.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::call::{Call, Dial, Endpoint, Outcome};
use crate::channel::Channel;
use crate::error::Error;
use crate::floor::{Event, Floor};
use crate::join::listen_inside;
use crate::notice::Notice;
use crate::plan::{Meeting, Phase, Plan};
use crate::proof::{Prover, Purpose, Verdict, Wish};
use crate::seal::{Kind, Message};
use crate::secret::Secret;
use crate::socket::{self, Way};
use crate::wire::{Entry, Reader, Writer, read_error, read_table, write_error};

/// The name of rank 0's socket in a meeting directory.
pub(crate) const FIRST: &str = "rank0";
/// The name of the meeting file in a meeting directory.
pub(crate) const NOTICE: &str = "meeting";

/// How long to wait before rank 0 is looked for again.
const AGAIN: Duration = Duration::from_millis(20);
/// Names are asked for again after this long.
const NAMES: Duration = Duration::from_secs(5);
/// So many refusals over so long a time are no accident.
const REFUSALS: (u32, Duration) = (20, Duration::from_secs(2));
/// How much longer than for the others to wait for rank 0's word about them.
const GRACE: Duration = Duration::from_secs(3);

/// How long rank 0's word that it is over may be on its way when somebody else has heard it.
const SOON: Duration = Duration::from_secs(1);

/// Where rank 0 was found, and who proves there.
pub(crate) struct Found {
    pub(crate) channel: Channel,
    pub(crate) prover: Prover,
}

struct Search<'a> {
    plan: &'a Plan,
    host: [u8; 16],
    names: Option<(Instant, Vec<SocketAddr>)>,
}

impl Search<'_> {
    /// Where rank 0 may be, as far as it is known now.
    fn look(&mut self) -> Result<Option<(Vec<Endpoint>, Secret)>, Error> {
        let plan = self.plan;
        let notice = |path: &Path| Notice::read(path, &plan.world);
        match &plan.meeting {
            Meeting::Nobody | Meeting::Listener(_) => Ok(None),
            Meeting::Directory(path) => {
                let directory = path.as_os_str().as_bytes().to_vec();
                let secret = match &plan.secret {
                    Some(secret) => Some(secret.clone()),
                    None => notice(&path.join(NOTICE))?.and_then(|notice| notice.secret),
                };
                Ok(secret.map(|secret| (vec![Endpoint::Unix { directory, name: FIRST.into() }], secret)))
            }
            Meeting::File(path) => {
                let Some(notice) = notice(path)? else { return Ok(None) };
                let Some(secret) = plan.secret.clone().or(notice.secret) else { return Ok(None) };
                Ok(Some((network_endpoints(&notice.addresses, notice.host == self.host), secret)))
            }
            Meeting::Address { host, port } => {
                let Some(secret) = plan.secret.clone() else { return Ok(None) };
                if self.names.as_ref().is_none_or(|(asked, found)| found.is_empty() || asked.elapsed() > NAMES) {
                    let found = (host.as_str(), *port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
                    self.names = Some((Instant::now(), found));
                }
                let found = self.names.iter().flat_map(|(_, found)| found).copied();
                Ok(Some((found.map(Endpoint::Tcp).collect(), secret)))
            }
        }
    }
}

/// Addresses as endpoints; on the same host its own loopback leads there most surely.
pub(crate) fn network_endpoints(addresses: &[SocketAddr], same_host: bool) -> Vec<Endpoint> {
    let mut all = Vec::new();
    if same_host && let Some(first) = addresses.first() {
        all.push(SocketAddr::from(([127, 0, 0, 1], first.port())));
    }
    all.extend_from_slice(addresses);
    all.into_iter().map(Endpoint::Tcp).collect()
}

/// Looks for rank 0 until it is found.
pub(crate) fn find(plan: &Plan, host: [u8; 16], life: u64, until: Instant) -> Result<Found, Error> {
    if let Meeting::Directory(path) = &plan.meeting {
        crate::room::Room::open(path)?;
    }
    let began = Instant::now();
    let mut search = Search { plan, host, names: None };
    let wish = Wish { purpose: Purpose::Meet, from: plan.rank, to: 0, size: plan.size, mark: life };
    let mut refusals: Option<(u32, Instant)> = None;
    loop {
        if let Some((endpoints, secret)) = search.look()? {
            let prover = Prover::new(secret, &plan.world);
            for endpoint in endpoints {
                match attempt(&endpoint, wish, &prover, until) {
                    Outcome::Connected(channel) => return Ok(Found { channel: *channel, prover }),
                    Outcome::Denied(Verdict::WrongSize(ours)) => {
                        return Err(Error::WorldSize { rank: plan.rank, theirs: plan.size, ours });
                    }
                    Outcome::Denied(Verdict::Taken) => return Err(Error::Duplicate { rank: plan.rank }),
                    Outcome::Refused => {
                        let (count, since) = refusals.unwrap_or((0, Instant::now()));
                        refusals = Some((count + 1, since));
                    }
                    Outcome::Denied(Verdict::Unwanted | Verdict::Welcome) | Outcome::Nobody | Outcome::Pending => {}
                }
            }
        }
        // A file may still be an earlier world's, at whose address somebody else now listens.
        let late = Instant::now() >= until;
        let sure = |(count, since): (u32, Instant)| {
            let long = since.elapsed() >= REFUSALS.1 && !matches!(plan.meeting, Meeting::File(_));
            count >= REFUSALS.0 && (long || late)
        };
        if refusals.is_some_and(sure) {
            return Err(Error::Refused { world: plan.world.clone() });
        }
        if late {
            return Err(Error::Timeout { waited: began.elapsed(), missing: vec![0], strangers: 0 });
        }
        std::thread::sleep(AGAIN.min(until.saturating_duration_since(Instant::now())));
    }
}

/// One attempt, to its end.
pub(crate) fn attempt(endpoint: &Endpoint, wish: Wish, prover: &Prover, until: Instant) -> Outcome {
    let Ok(mut call) = Call::start(endpoint, wish, Instant::now()) else { return Outcome::Nobody };
    loop {
        let end = call.until().min(until);
        if socket::wait(&mut [call.watch()], Some(end)).is_err() {
            return Outcome::Nobody;
        }
        let now = Instant::now();
        match call.step(prover, now) {
            (Some(_), Outcome::Pending) if now >= until => return Outcome::Nobody,
            (Some(pending), Outcome::Pending) => call = pending,
            (_, outcome) => return outcome,
        }
    }
}

pub(crate) struct Member<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) floor: Floor,
    pub(crate) own: Entry,
    pub(crate) life: u64,
    pub(crate) began: Instant,
    pub(crate) until: Instant,
    /// What rank 0 has told of everybody.
    pub(crate) table: Vec<Entry>,
}

impl Member<'_> {
    /// Takes part until rank 0 says how it ended, and gives each rank's node.
    pub(crate) fn take_part(&mut self) -> Result<Vec<u32>, Error> {
        let left = self.until.saturating_duration_since(Instant::now()).as_millis() as u64;
        let arrived = self.own.write(Writer::default().u64(left)).done();
        self.say(Kind::Arrived, &arrived);
        self.plan.tell(Phase::Arrived);

        let table = self.await_word(Kind::Table)?;
        self.table = read_table(&table.bytes, self.plan.size).ok_or(Error::Corrupt { rank: 0 })?;
        if let Err(error) = listen_inside(&mut self.floor, self.plan, &self.own, &self.table) {
            let error = match error {
                Error::System { ref source, .. } if source.kind() == ErrorKind::NotFound => self.reason(error)?,
                other => other,
            };
            let word = write_error(&error, self.plan.rank);
            self.floor.tell_all(Kind::Failed, &word, Instant::now() + GRACE);
            return Err(error);
        }
        self.plan.tell(Phase::Listening);
        self.say(Kind::Listening, &[]);

        self.await_word(Kind::Dial)?;
        self.plan.tell(Phase::Calling);
        self.dial_lower();
        while !self.floor.missing().is_empty() {
            self.word()?;
        }
        self.floor.shut();
        let failed = Writer::default().ranks(&self.floor.unix_failed).done();
        self.say(Kind::Linked, &failed);
        self.plan.tell(Phase::Linked);

        let go = self.await_word(Kind::Go)?;
        let nodes = Reader::new(&go.bytes).ranks().ok_or(Error::Corrupt { rank: 0 })?;
        if nodes.len() == self.table.len() { Ok(nodes) } else { Err(Error::Corrupt { rank: 0 }) }
    }

    fn say(&mut self, kind: Kind, bytes: &[u8]) {
        if let Some(talk) = &mut self.floor.talks[0] {
            talk.say(kind, bytes);
        }
    }

    /// Waits for rank 0 to say the next thing.
    fn await_word(&mut self, kind: Kind) -> Result<Message, Error> {
        loop {
            if let Some(word) = self.word()? {
                return if word.kind == kind { Ok(word) } else { Err(Error::Corrupt { rank: 0 }) };
            }
        }
    }

    /// Somebody has cleared away what this rank was making: the world has failed meanwhile, and why is on its way here, as the error. If nothing
    /// comes, the failure is this rank's own.
    fn reason(&mut self, own: Error) -> Result<Error, Error> {
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            self.round(end)?;
        }
        Ok(own)
    }

    /// One round; what rank 0 has said that this rank is to act on.
    fn word(&mut self) -> Result<Option<Message>, Error> {
        let end = self.until + GRACE;
        if Instant::now() >= end {
            return Err(Error::Timeout { waited: self.began.elapsed(), missing: vec![0], strangers: 0 });
        }
        self.round(end)
    }

    fn round(&mut self, end: Instant) -> Result<Option<Message>, Error> {
        let mut word = None;
        for event in self.floor.round(end)? {
            match event {
                Event::Said(_, message) => match message.kind {
                    Kind::Failed => return Err(read_error(&message.bytes).unwrap_or(Error::Corrupt { rank: 0 })),
                    Kind::Waiting => {
                        let missing = Writer::default().ranks(&self.floor.missing()).done();
                        self.say(Kind::Waiting, &missing);
                    }
                    _ if word.is_some() => return Err(Error::Corrupt { rank: 0 }),
                    _ => word = Some(message),
                },
                Event::Gone(_) if word.as_ref().is_none_or(|word| word.kind != Kind::Go) => {
                    return Err(Error::Died { rank: 0 });
                }
                Event::Gone(_) => {}
                Event::Corrupt(rank) => return Err(Error::Corrupt { rank }),
                Event::Guest(guest) => guest.refuse(Verdict::Unwanted),
            }
        }
        Ok(word)
    }

    fn dial_lower(&mut self) {
        let now = Instant::now();
        let met_at = self.floor.talks[0].as_ref().filter(|talk| talk.way == Way::Tcp);
        let met_at = met_at.and_then(|talk| socket::remote(talk.fd.as_fd()));
        for to in 0..self.plan.rank {
            let entry = &self.table[to as usize];
            let mut endpoints = Vec::new();
            let together = entry.node == self.own.node || matches!(self.plan.meeting, Meeting::Directory(_));
            if together && !entry.directory.is_empty() {
                endpoints.push(Endpoint::Unix { directory: entry.directory.clone(), name: entry.name.clone() });
            }
            if to == 0 {
                endpoints.extend(met_at.map(Endpoint::Tcp));
            }
            endpoints.extend(network_endpoints(&entry.addresses, entry.host == self.own.host));
            let wish = Wish { purpose: Purpose::Link, from: self.plan.rank, to, size: self.plan.size, mark: self.life };
            self.floor.dial(Dial::new(wish, endpoints, now));
        }
    }
}
