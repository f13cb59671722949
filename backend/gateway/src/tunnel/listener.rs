//! The listener: a connection has little time and little room until it has proven itself, and the newest come first.
//!
//! Many processes of many people share a node's address, so a full house does not keep newcomers out: it drops one that has not proven
//! itself yet, by chance, first of the same address. Proving oneself takes milliseconds, so who stalls loses its own place.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use eirene_services::agents::admission::{Admission, Refusal};
use eirene_tunnel::handshake::{self, Confirm, Greeting, Hello};
use eirene_tunnel::{Limits, Opener};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::TunnelContext;
use super::control;
use super::identity::TunnelIdentity;
use super::pace::Pace;

/// Seconds between two heartbeats.
pub(super) const HEARTBEAT_S: u32 = 10;
/// Time to prove oneself, TLS included.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Connections that have not proven themselves, at once.
const MOST_PENDING: usize = 128;
/// The same, from one address.
const MOST_PENDING_PER_ADDRESS: usize = 32;
/// Handshakes begun for one address in a second, and at once; more have to wait.
const HANDSHAKES: (u32, u32) = (50, 200);
/// … but no longer than this: the agents of a whole node share an address, and one of them must not keep the others out.
const LONGEST_WAIT: Duration = Duration::from_millis(300);
/// Refusals in the log, in a minute and at once.
const REFUSALS_LOGGED: (u32, u32) = (10, 20);
/// Addresses whose pace is remembered.
const MOST_ADDRESSES: usize = 4096;
/// Pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Messages waiting to be sent to one agent.
const CONTROL_QUEUE: usize = 8;

/// Accepts agents until eirened ends.
pub fn listen(
    context: &TunnelContext,
    listener: TcpListener,
    identity: &TunnelIdentity,
    tracker: &TaskTracker,
) -> anyhow::Result<()> {
    let address = listener.local_addr().context("the tunnel's listener has no address")?;
    let acceptor = TlsAcceptor::from(identity.server_config());
    let (context, tracker_inside) = (context.clone(), tracker.clone());
    tracker.spawn(async move {
        let pending = Pending::default();
        loop {
            let accepted = tokio::select! {
                () = context.shutdown.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let place = pending.enter(peer.ip().to_canonical());
                    let (agent_context, acceptor, tracker) =
                        (context.clone(), acceptor.clone(), tracker_inside.clone());
                    let carry = |stream| welcome(agent_context, acceptor, stream, place, tracker);
                    let workers = &context.workers;
                    if let Err(error) = workers.hand_over(workers.next_for_session(), &tracker_inside, stream, carry) {
                        tracing::warn!(%error, "An agent's connection could not be handed over");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "An agent's connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    tracing::info!(%address, "Agents are awaited");
    Ok(())
}

async fn welcome(context: TunnelContext, acceptor: TlsAcceptor, stream: TcpStream, place: Place, tracker: TaskTracker) {
    let prove = async {
        tokio::time::sleep(place.wait).await;
        tokio::time::timeout(HANDSHAKE_WAIT, prove(&context, acceptor, stream, &place.pending)).await
    };
    let proven = tokio::select! {
        () = context.shutdown.cancelled() => return,
        () = place.dropped.cancelled() => return,
        proven = prove => proven,
    };
    let address = place.address;
    drop(place);
    match proven {
        Ok(Ok(Some(agent))) => carry(context, agent, &tracker).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%address, error = format!("{error:#}"), "An agent did not get in"),
        Err(_) => tracing::debug!(%address, "An agent took too long to prove itself"),
    }
}

/// An agent that has proven itself.
struct Agent {
    io: TlsStream<BufReader<TcpStream>>,
    hello: Hello,
}

/// Agents that are refused come again every few seconds, and anybody can be refused: what that may write into the log is bounded. All are counted.
fn tell_refusal(pending: &Pending, hello: &Hello, refusal: Refusal) {
    metrics::counter!("eirene_agent_connections_refused_total", "reason" => refusal.code).increment(1);
    let session = hello.session;
    let wait = pending.lock().refusals.would_wait(Instant::now());
    if wait {
        tracing::debug!(session.id = %session, code = refusal.code, "An agent of session {session} was refused");
    } else {
        tracing::info!(session.id = %session, code = refusal.code, "An agent of session {session} was refused");
    }
}

async fn prove(
    context: &TunnelContext,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    pending: &Pending,
) -> anyhow::Result<Option<Agent>> {
    stream.set_nodelay(true)?;
    let mut io = acceptor.accept(eirene_tunnel::read_ahead(stream)).await?;
    anyhow::ensure!(io.get_ref().1.alpn_protocol() == Some(eirene_tunnel::ALPN), "it does not speak our protocol");
    let hello: Hello = handshake::receive(&mut io).await?;
    // While the database is away nothing is said: a refusal would say that the credential is not good.
    let key = match context.admission.admit(&hello).await? {
        Admission::Refused(refusal) => {
            tell_refusal(pending, &hello, refusal);
            handshake::send(&mut io, &refusal.greeting()).await?;
            return Ok(None);
        }
        Admission::Welcome { session, key } => {
            tracing::debug!(session.id = %session.id, agent = hello.agent_version, "An agent is let in");
            key
        }
    };
    let tunnel_key = key.as_ref().map(|key| key.expose().to_owned());
    handshake::send(&mut io, &Greeting::Welcome { tunnel_key, heartbeat_s: HEARTBEAT_S }).await?;
    let confirmed: Confirm = handshake::receive(&mut io).await?;
    anyhow::ensure!(confirmed.confirmed, "it does not confirm");
    anyhow::ensure!(context.admission.confirm(&hello, key.as_ref()).await?, "another exchange came in between");
    Ok(Some(Agent { io, hello }))
}

/// Runs one tunnel to its end.
async fn carry(context: TunnelContext, agent: Agent, tracker: &TaskTracker) {
    let Agent { io, hello } = agent;
    let session = hello.session;
    let (opener, driver) = match Opener::start(io, Limits::default()).await {
        Ok(started) => started,
        Err(error) => {
            tracing::debug!(session.id = %session, %error, "A tunnel did not begin");
            return;
        }
    };
    let (sender, receiver) = mpsc::channel(CONTROL_QUEUE);
    let registration =
        context.tunnels.insert(session, (hello.slurm_job_id, hello.restart_count), opener.clone(), sender);
    let closing = registration.closing.clone();
    // The connection moves while anything is said on it, and ends with this token.
    let moving = closing.clone();
    tracker.spawn(async move {
        tokio::select! {
            () = moving.cancelled() => {}
            result = driver => if let Err(error) = result {
                tracing::debug!(session.id = %session, %error, "A tunnel broke");
            },
        }
    });
    tracing::info!(session.id = %session, "The agent of session {session} is connected");
    let why = tokio::select! {
        () = context.shutdown.cancelled() => "the portal ends",
        () = closing.cancelled() => "closed",
        () = opener.closed() => control::BROKEN_OFF,
        why = control::converse(&context, &opener, &hello, receiver) => why,
    };
    drop(registration);
    if control::is_loss(why) {
        metrics::counter!("eirene_agent_connections_lost_total").increment(1);
    }
    // Its job may be over, or about to be.
    context.tunnels.nudge_poll(session, &context.nudges);
    tracing::info!(session.id = %session, why, "The agent of session {session} is no longer connected");
}

/// Connections that have not proven themselves.
#[derive(Clone, Default)]
struct Pending {
    hall: Arc<Mutex<Hall>>,
}

struct Hall {
    places: VecDeque<(IpAddr, CancellationToken)>,
    paces: HashMap<IpAddr, Pace>,
    refusals: Pace,
}

impl Default for Hall {
    fn default() -> Self {
        let refusals = Pace::per_minute(REFUSALS_LOGGED.0, REFUSALS_LOGGED.1);
        Self { places: VecDeque::new(), paces: HashMap::new(), refusals }
    }
}

struct Place {
    pending: Pending,
    address: IpAddr,
    /// How long its turn is away.
    wait: Duration,
    dropped: CancellationToken,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, address: IpAddr) -> Place {
        let dropped = CancellationToken::new();
        let mut hall = self.lock();
        let Hall { places, paces, .. } = &mut *hall;
        if paces.len() >= MOST_ADDRESSES {
            paces.clear();
        }
        let pace = paces.entry(address).or_insert_with(|| Pace::new(HANDSHAKES.0, HANDSHAKES.1));
        let wait = pace.take(1, Instant::now()).min(LONGEST_WAIT);
        places.retain(|(_, dropped)| !dropped.is_cancelled());
        let same: Vec<usize> = (0..places.len()).filter(|index| places[*index].0 == address).collect();
        // By chance: whoever floods the house cannot time it so that only others are dropped.
        let unlucky = if same.len() >= MOST_PENDING_PER_ADDRESS {
            same.choose(&mut rand::rng()).copied()
        } else {
            (places.len() >= MOST_PENDING).then(|| rand::rng().random_range(0..places.len()))
        };
        if let Some((_, unlucky)) = unlucky.and_then(|index| places.remove(index)) {
            unlucky.cancel();
        }
        places.push_back((address, dropped.clone()));
        Place { pending: self.clone(), address, wait, dropped }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.dropped.cancel();
        self.pending.lock().places.retain(|(_, dropped)| !dropped.is_cancelled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knocks_too_often_waits_and_others_do_not() {
        let pending = Pending::default();
        let (hostile, honest): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let knocks = (0..HANDSHAKES.1 + 20).map(|_| pending.enter(hostile).wait);
        assert!(knocks.max().unwrap() > Duration::from_millis(100));
        assert_eq!(pending.enter(honest).wait, Duration::ZERO);
    }

    #[test]
    fn a_full_house_drops_some_of_the_same_address() {
        let pending = Pending::default();
        let (hostile, honest): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let patient = pending.enter(honest);
        let flood: Vec<Place> = (0..MOST_PENDING_PER_ADDRESS + 3).map(|_| pending.enter(hostile)).collect();
        let dropped = || flood.iter().filter(|place| place.dropped.is_cancelled()).count();
        assert_eq!(dropped(), 3);
        assert!(!patient.dropped.is_cancelled(), "another address is not touched");
        let newcomer = pending.enter(hostile);
        assert!(!newcomer.dropped.is_cancelled());
        assert_eq!(dropped(), 4);
        drop((flood, newcomer, patient));
        assert!(pending.hall.lock().unwrap().places.is_empty());
    }
}
