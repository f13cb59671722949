//! The control stream of one tunnel: what the agent says about its session, and what the portal wants of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use eirene_core::{Desired, KeptOn, ScratchPhase, ScratchState, Session, SessionId, SessionState};
use eirene_services::error::AppError;
use eirene_services::events::EventKind;
use eirene_services::nodes::{Reporter, Share, clean};
use eirene_services::samples::Ingest;
use eirene_services::sessions::agent::AppOutcome;
use eirene_services::sessions::reasons::ScratchTrouble;
use eirene_tunnel::handshake::Hello;
use eirene_tunnel::message::{
    self, AgentSpan, FromAgent, FromPortal, MAX_SCRATCH_NODES, ScratchReport, ScratchWord, StopCause,
};
use eirene_tunnel::{Opener, StreamKind};
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::TunnelContext;
use super::listener::HEARTBEAT_S;
use super::pace::Pace;

/// So many heartbeats may be missing.
const PATIENCE: u32 = 3;
/// Messages in a second, and at once.
const MESSAGES: (u32, u32) = (20, 200);
/// Bytes of log in a second, and at once.
const LOG_BYTES: (u32, u32) = (64 * 1024, 1024 * 1024);
/// Bytes of samples in a second, and at once: what an agent has kept while the portal was away comes at once.
const SAMPLE_BYTES: (u32, u32) = (256 * 1024, 2 * 1024 * 1024);
/// Batches of samples in a second, and at once: one of each node every few seconds.
const SAMPLE_BATCHES: (u32, u32) = (100, 1000);
/// Exit statuses of an app that a signal ended, as shells show them: what sent the signal is said by how the job ends.
const BY_SIGNAL: &[i32] = &[130, 137, 143];
/// Why a conversation ends that neither side wished to end.
pub(super) const BROKEN_OFF: &str = "the connection ended";
const SILENT: &str = "the agent is silent";
const DEAF: &str = "the agent does not listen";
/// Why a conversation ends whose agent has to say it all again.
const NOT_NOTED: &str = "what it said was not noted";

/// An agent that has said its last word hangs up within this time.
const FAREWELL: Duration = Duration::from_secs(1);

/// Talks until the agent is silent or gone; the answer says why it ended.
pub(super) async fn converse(
    context: &TunnelContext,
    opener: &Opener,
    hello: &Hello,
    mut orders: mpsc::Receiver<FromPortal>,
) -> &'static str {
    let session = hello.session;
    match context.sessions.agent_arrived(session).await {
        // It was quicker than the next look at the scheduler, which alone says on which nodes it is.
        Ok(Some(arrived)) if arrived.nodes.is_empty() => context.tunnels.nudge_poll(session, &context.nudges),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(session.id = %session, %error, "The arrival of the agent of session {session} was not noted");
            return NOT_NOTED;
        }
    }
    let patience = Duration::from_secs(u64::from(HEARTBEAT_S * PATIENCE));
    let Ok(Ok(stream)) = tokio::time::timeout(patience, opener.open(StreamKind::Control)).await else {
        return "it took no control stream";
    };
    let (reader, mut writer) = tokio::io::split(stream);
    let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
    let offset = context.logs.position(session, hello.restart_count).await;
    if message::write(&mut writer, &FromPortal::SendLog { offset }).await.is_err() {
        return BROKEN_OFF;
    }
    let mut ear = Ear {
        context,
        session,
        restart_count: hello.restart_count,
        nodes: context.nodes.open(session),
        messages: Pace::new(MESSAGES.0, MESSAGES.1),
        log_bytes: Pace::new(LOG_BYTES.0, LOG_BYTES.1),
        samples: context.samples.ingest(session),
        sample_bytes: Pace::new(SAMPLE_BYTES.0, SAMPLE_BYTES.1),
        sample_batches: Pace::new(SAMPLE_BATCHES.0, SAMPLE_BATCHES.1),
        has_traced: false,
        stopping: None,
    };
    let mut heard = tokio::time::Instant::now();
    loop {
        tokio::select! {
            said = message::read::<FromAgent>(&mut reader, &mut line) => match said {
                Ok(Some(said)) => {
                    if let Err(error) = ear.hear(said).await {
                        tracing::warn!(session.id = %session, %error, "What the agent of session {session} said was not noted");
                        return NOT_NOTED;
                    }
                    // What took long was the writing down, not the agent.
                    heard = tokio::time::Instant::now();
                }
                Ok(None) => {
                    // The end of this direction says that everything was noted; a connection that breaks says the contrary.
                    if writer.shutdown().await.is_ok() {
                        // Who stays is put out.
                        let _ = tokio::time::timeout(FAREWELL, opener.closed()).await;
                    }
                    return "the agent ended the conversation";
                }
                Err(_) => return "the agent broke the rules",
            },
            order = orders.recv() => {
                let Some(order) = order else { return "closed" };
                let sent = tokio::time::timeout(patience, message::write(&mut writer, &order)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return DEAF;
                }
            }
            () = tokio::time::sleep_until(heard + patience) => return SILENT,
        }
    }
}

/// Whether a conversation that ended so was lost, on the way or by an agent that hangs.
pub(super) fn is_loss(why: &str) -> bool {
    [BROKEN_OFF, SILENT, DEAF].contains(&why)
}

struct Ear<'a> {
    context: &'a TunnelContext,
    session: SessionId,
    restart_count: u32,
    nodes: Reporter,
    messages: Pace,
    log_bytes: Pace,
    samples: Ingest,
    sample_bytes: Pace,
    sample_batches: Pace,
    has_traced: bool,
    stopping: Option<StopCause>,
}

impl Ear<'_> {
    /// An error means that nothing was noted: the connection has to end, so that the agent says it again on its next one.
    async fn hear(&mut self, said: FromAgent) -> Result<(), AppError> {
        // Many nodes say every few seconds what they use: that has a pace of its own, and is not in the way of what is said of the session.
        if !matches!(said, FromAgent::Samples { .. }) {
            tokio::time::sleep(self.messages.take(1, Instant::now())).await;
        }
        let sessions = &self.context.sessions;
        match said {
            FromAgent::Heartbeat | FromAgent::Unknown => {}
            FromAgent::Samples { batch } => self.samples(&batch).await,
            FromAgent::Traced { spans } => self.traced(&spans),
            FromAgent::Log { offset, text } => self.log(offset, text).await,
            FromAgent::Starting { .. } => drop(sessions.agent_arrived(self.session).await?),
            FromAgent::Nodes { nodes, steps } => {
                if self.nodes.note(nodes, steps) {
                    self.tell_nodes().await;
                }
            }
            FromAgent::Scratch { state, copied, total, nodes } => {
                self.scratch(state, Share::of(copied, total), nodes).await?;
            }
            FromAgent::Ready => drop(sessions.agent_ready(self.session).await?),
            FromAgent::Stopping { why } => {
                self.stopping = Some(why);
                match why {
                    StopCause::Walltime => self.over(AppOutcome::WalltimeReached).await?,
                    // What a signal means is said by how the job ends.
                    StopCause::Request | StopCause::Signal | StopCause::Unknown => {}
                }
            }
            FromAgent::Exited { status, code, text } => {
                self.exited(status, code.as_deref(), text.as_deref()).await?;
            }
        }
        Ok(())
    }

    /// An agent tells it once; what one tells more often is not the start of its session.
    fn traced(&mut self, spans: &[AgentSpan]) {
        if !std::mem::replace(&mut self.has_traced, true) {
            self.context.traces.told(self.session, spans, self.context.clock.now());
        }
    }

    async fn samples(&mut self, batch: &str) {
        let now = Instant::now();
        let wait = self.sample_bytes.take(batch.len(), now).max(self.sample_batches.take(1, now));
        tokio::time::sleep(wait).await;
        self.samples.take(batch).await;
    }

    async fn scratch(&self, word: ScratchWord, all: Share, nodes: Vec<ScratchReport>) -> Result<(), AppError> {
        let Some(phase) = phase(word) else { return Ok(()) };
        let keeps = nodes.iter().filter(|node| node.kept && phase == ScratchPhase::Kept).take(MAX_SCRATCH_NODES);
        let kept = keeps.filter_map(|node| {
            let text = node.text.as_deref().map(clean).filter(|text| !text.is_empty());
            Some(KeptOn::new(node.name.parse().ok()?, text))
        });
        let said = ScratchState::new(self.restart_count, phase, kept.collect());
        let session = self.context.sessions.scratch_said(self.session, said).await?;
        let copies = matches!(phase, ScratchPhase::Filling | ScratchPhase::Emptying);
        let is_new = self.nodes.note_copied(copies.then_some((all, nodes)));
        if let Some(session) = session.filter(|session| is_new && copies && session.scratch.is_some()) {
            self.context.sessions.tell_copied(&session);
        }
        Ok(())
    }

    /// An agent says how its app ended as often as it likes; what has been noted once does not set everything in motion again.
    async fn over(&self, outcome: AppOutcome) -> Result<(), AppError> {
        let known = self.context.sessions.as_it_is(self.session).await?;
        let code = if let AppOutcome::Scratch { trouble, .. } = &outcome { Some(trouble.code()) } else { None };
        let noted = |session: &Session| {
            let said = session.reason.as_ref().is_some_and(|reason| code == Some(reason.code.as_str()));
            let ending = session.state == SessionState::Stopping && session.desired == Desired::Ended;
            session.state.is_final() || (ending && (code.is_none() || said))
        };
        if known.as_ref().is_some_and(noted) {
            self.context.tunnels.nudge_poll(self.session, &self.context.nudges);
        } else {
            self.context.sessions.app_exited(self.session, outcome).await?;
        }
        Ok(())
    }

    async fn exited(&self, status: Option<i32>, code: Option<&str>, text: Option<&str>) -> Result<(), AppError> {
        if let Some(trouble) = code.and_then(ScratchTrouble::of) {
            let text = clean(text.unwrap_or_default());
            return self.over(AppOutcome::Scratch { trouble, text, status }).await;
        }
        let outcome = match (code, status) {
            (Some("never_ready"), _) => Some(AppOutcome::NeverReady(self.context.ready_within_s)),
            (Some(_), _) => Some(AppOutcome::NotStarted(text.map(clean))),
            (None, Some(0)) => Some(AppOutcome::Ended),
            (None, Some(status)) if !BY_SIGNAL.contains(&status) => Some(AppOutcome::Failed(status)),
            (None, Some(_) | None) => None,
        };
        if let (None, Some(status)) = (&outcome, status) {
            self.context.sessions.program_killed(self.session, status).await?;
        }
        if let Some(outcome) = outcome.filter(|_| self.stopping.is_none()) {
            return self.over(outcome).await;
        }
        if self.stopping == Some(StopCause::Request) {
            self.context.sessions.program_stopped(self.session).await?;
        }
        self.context.tunnels.nudge_poll(self.session, &self.context.nudges);
        Ok(())
    }

    async fn log(&mut self, offset: u64, text: String) {
        if text.len() > message::MAX_LOG_TEXT * 4 {
            return;
        }
        tokio::time::sleep(self.log_bytes.take(text.len(), Instant::now())).await;
        let appended = self.context.logs.append_at(self.session, self.restart_count, offset, Bytes::from(text)).await;
        match appended {
            Ok(Some(piece)) => self.tell(&piece).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(session.id = %self.session, %error, "The log of session {} was not written", self.session);
            }
        }
    }

    async fn tell_nodes(&self) {
        let Ok(Some(session)) = self.context.sessions.as_it_is(self.session).await else { return };
        // What runs there is asked for by those who look.
        let data = json!({"session": self.session});
        self.context.events.publish_transient(EventKind::Nodes, Some(session.id), session.owner, data);
    }

    async fn tell(&self, piece: &[u8]) {
        let Ok(Some(session)) = self.context.sessions.as_it_is(self.session).await else { return };
        let data = json!({"session": self.session, "text": String::from_utf8_lossy(piece)});
        self.context.events.publish_transient(EventKind::Log, Some(session.id), session.owner, data);
    }
}

/// The agent's word as ours; none for what a later version may say.
fn phase(word: ScratchWord) -> Option<ScratchPhase> {
    match word {
        ScratchWord::Filling => Some(ScratchPhase::Filling),
        ScratchWord::Ready => Some(ScratchPhase::Ready),
        ScratchWord::Emptying => Some(ScratchPhase::Emptying),
        ScratchWord::Done => Some(ScratchPhase::Done),
        ScratchWord::Kept => Some(ScratchPhase::Kept),
        ScratchWord::Unknown => None,
    }
}
