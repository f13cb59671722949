//! The link to the portal: dialled again whenever it breaks, while the app goes on. What runs over it: the conversation about the
//! session, and bytes to and from the app's socket.

use std::path::PathBuf;
use std::time::Duration;

use eirene_tunnel::handshake::HandshakeError;
use eirene_tunnel::message::{self, FromAgent, FromPortal, StopCause};
use eirene_tunnel::{Acceptor, Limits, StreamKind, TunnelStream};
use tokio::io::{BufReader, copy_bidirectional_with_sizes};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::dial::{DialError, Dialer};
use crate::log::Log;
use crate::report::Report;
use crate::samples::Outbox;
use crate::scratch::Teller;
use crate::traced::{self, Traced};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A link that held so long was a good one: the next attempt comes at once.
const GOOD: Duration = Duration::from_secs(10);
/// Bytes of an app stream on their way, in each direction.
const COPY_BUFFER: usize = 64 * 1024;

/// Where the session is, as told to the portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The container is starting.
    Starting,
    /// The app answers.
    Ready,
    /// About to end.
    Stopping(StopCause),
    /// Over.
    Exited {
        /// Why it was ended, if it did not end by itself. Who missed [`Phase::Stopping`] must not take it for the app's own end.
        why: Option<StopCause>,
        /// Exit status; none when a signal ended the app.
        status: Option<i32>,
        /// What went wrong, as code and sentence.
        problem: Option<(&'static str, String)>,
    },
}

/// What comes from the portal for the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// End the app.
    Stop {
        /// Time between asking and killing.
        grace: Duration,
    },
    /// The portal will never take this agent.
    Refused(String),
}

/// The link, with what it needs to know.
pub(crate) struct Link {
    pub(crate) dialer: Dialer,
    pub(crate) socket: PathBuf,
    pub(crate) nodes: Vec<String>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) report: Report,
    pub(crate) scratch: Teller,
    pub(crate) samples: Outbox,
    pub(crate) traced: Traced,
    pub(crate) log: Log,
    pub(crate) orders: mpsc::Sender<Order>,
    /// Set once the portal has been told that the session is over, or does not want to hear it.
    pub(crate) told: watch::Sender<bool>,
}

impl Link {
    /// Dials and serves until the portal has been told that the session is over, or refuses for good.
    pub(crate) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut silent_since: Option<Instant> = None;
        while !*self.told.borrow() {
            let (begun, begun_ms) = (Instant::now(), traced::now_ms());
            match self.dialer.dial().await {
                Ok((stream, heartbeat_s)) => {
                    self.traced.dialled(begun_ms);
                    if silent_since.take().is_some() {
                        self.log.say("connected to the portal again");
                    }
                    self.serve(stream, Duration::from_secs(u64::from(heartbeat_s.clamp(1, 60)))).await;
                }
                Err(DialError::Handshake(HandshakeError::Refused { code, text, permanent })) => {
                    if permanent {
                        // The supervisor may be gone already, or wait to go.
                        let _ = self.orders.send(Order::Refused(text)).await;
                        self.told.send_replace(true);
                        return;
                    }
                    self.note(
                        &mut silent_since,
                        &format!("the portal does not take this session yet: {text} ({code})"),
                    );
                    self.dialer.refused().await;
                }
                Err(error) => self.note(&mut silent_since, &error.to_string()),
            }
            if begun.elapsed() > GOOD {
                pause = FIRST_PAUSE;
            }
            tokio::time::sleep(pause + jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One line for an outage, not one for an attempt.
    fn note(&self, silent_since: &mut Option<Instant>, what: &str) {
        if silent_since.is_none() {
            *silent_since = Some(Instant::now());
            self.log.say(&format!("{what}; trying again"));
        }
    }

    async fn serve<T>(&self, stream: T, heartbeat: Duration)
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let Ok(mut acceptor) = Acceptor::start(stream, Limits::default()).await else { return };
        let mut told = self.told.subscribe();
        let mut leaving = false;
        loop {
            tokio::select! {
                accepted = acceptor.accept() => match accepted {
                    Ok(Some((StreamKind::App, stream))) => {
                        tokio::spawn(forward(stream, self.socket.clone()));
                    }
                    Ok(Some((StreamKind::Control, stream))) => {
                        let conversation = Conversation {
                            nodes: self.nodes.clone(),
                            phase: self.phase.clone(),
                            report: self.report.clone(),
                            scratch: self.scratch.clone(),
                            samples: self.samples.clone(),
                            traced: self.traced.clone(),
                            log: self.log.clone(),
                            orders: self.orders.clone(),
                            told: self.told.clone(),
                            heartbeat,
                        };
                        tokio::spawn(conversation.hold(stream));
                    }
                    Ok(None) | Err(_) => return,
                },
                _ = told.wait_for(|told| *told), if !leaving => {
                    leaving = true;
                    acceptor.shut_down();
                }
            }
        }
    }
}

/// Up to half of `pause`, so that a thousand agents do not come back at once.
fn jitter(pause: Duration) -> Duration {
    let noise = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.subsec_nanos());
    pause.mul_f64(f64::from(noise % 1000) / 2000.0)
}

/// Copies bytes between a stream and the app's socket. A socket that cannot be reached resets the stream.
async fn forward(mut stream: TunnelStream, socket: PathBuf) {
    if let Ok(mut app) = UnixStream::connect(socket).await {
        // Either side may go at any time; there is nobody to tell but the two.
        let _ = copy_bidirectional_with_sizes(&mut stream, &mut app, COPY_BUFFER, COPY_BUFFER).await;
    }
}

/// The conversation on one control stream.
struct Conversation {
    nodes: Vec<String>,
    phase: watch::Receiver<Phase>,
    report: Report,
    scratch: Teller,
    samples: Outbox,
    traced: Traced,
    log: Log,
    orders: mpsc::Sender<Order>,
    told: watch::Sender<bool>,
    heartbeat: Duration,
}

impl Conversation {
    /// One line for an outage that was too long for what is kept of samples.
    fn tell_lost(&self) {
        if let Some(sentence) = self.samples.lost() {
            self.log.say(&sentence);
        }
    }

    async fn hold(mut self, stream: TunnelStream) {
        let (read, mut write) = tokio::io::split(stream);
        let (mut read, mut line) = (BufReader::new(read), Vec::new());
        let mut log_end = self.log.subscribe();
        let mut log_from: Option<u64> = None;
        let mut beat = tokio::time::interval(self.heartbeat);
        self.phase.mark_changed();
        if message::write(&mut write, &FromAgent::Starting { nodes: self.nodes.clone() }).await.is_err() {
            return;
        }
        loop {
            let mut say = Vec::new();
            tokio::select! {
                heard = message::read::<FromPortal>(&mut read, &mut line) => match heard {
                    Ok(Some(FromPortal::Stop { grace_s })) => {
                        let grace = Duration::from_secs(u64::from(grace_s.min(300)));
                        // The supervisor takes one stop; more of them change nothing.
                        let _ = self.orders.try_send(Order::Stop { grace });
                    }
                    Ok(Some(FromPortal::SendLog { offset })) => log_from = Some(offset),
                    Ok(Some(FromPortal::Unknown)) => {}
                    Ok(None) | Err(_) => return,
                },
                // Once it is known from where on the log is wanted: the last word of an app that has ended by now comes after its log.
                changed = self.phase.changed(), if log_from.is_some() => {
                    if changed.is_err() {
                        return;
                    }
                    let phase = self.phase.borrow_and_update().clone();
                    match phase {
                        Phase::Starting => {}
                        Phase::Ready => {
                            say.push(FromAgent::Ready);
                            say.extend(self.traced.ready());
                        }
                        Phase::Stopping(why) => say.push(FromAgent::Stopping { why }),
                        Phase::Exited { why, status, problem } => {
                            say.extend(why.map(|why| FromAgent::Stopping { why }));
                            // After its last word nothing is heard any more.
                            say.extend(self.scratch.last());
                            say.extend(self.samples.last());
                            self.tell_lost();
                            let (code, text) = problem.map_or((None, None), |(code, text)| (Some(code.to_owned()), Some(text)));
                            say.push(FromAgent::Exited { status, code, text });
                        }
                    }
                }
                changed = log_end.changed(), if log_from.is_some() => {
                    if changed.is_err() {
                        return;
                    }
                }
                message = self.report.next() => say.push(message),
                message = self.scratch.next() => say.push(message),
                message = self.samples.next() => {
                    say.push(message);
                    self.tell_lost();
                }
                _ = beat.tick() => say.push(FromAgent::Heartbeat),
            }
            let over = say.iter().any(|message| matches!(message, FromAgent::Exited { .. }));
            if let Some(from) = &mut log_from {
                while let Some((offset, end, text)) = self.log.piece(*from) {
                    *from = end;
                    if message::write(&mut write, &FromAgent::Log { offset, text }).await.is_err() {
                        return;
                    }
                }
            }
            for message in &say {
                if message::write(&mut write, message).await.is_err() {
                    return;
                }
            }
            if over {
                // Ends this direction. The portal ends the other when it has noted everything; when it could not, it breaks the
                // connection, and everything is said again on the next one. The supervisor does not wait for long.
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
                let noted = loop {
                    match message::read::<FromPortal>(&mut read, &mut line).await {
                        Ok(Some(_)) => {}
                        Ok(None) => break true,
                        Err(_) => break false,
                    }
                };
                if noted {
                    self.told.send_replace(true);
                }
                return;
            }
        }
    }
}
