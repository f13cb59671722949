//! Admits an agent that knows the secret of its session, for the session's job, restart count and uid.
//!
//! A refusal is permanent only where another attempt can never succeed. An agent of an unknown session is asked to try again: the database may
//! have been restored, and that must not end a running job.

use std::sync::Arc;
use std::time::Duration;

use eirene_core::scheduler::JobState;
use eirene_core::secret::Secret;
use eirene_core::{Clock, Session, SessionState};
use eirene_database::{AgentCredentials, Db};
use eirene_tunnel::handshake::{Credential, Greeting, Hello};

use crate::cluster::Cluster;
use crate::error::AppError;
use crate::nudge::Nudges;

/// How long a hello waits for what SLURM says next of its job.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// What became of a hello.
pub enum Admission {
    /// In; `key` is confirmed when the agent has it.
    Welcome {
        /// The session.
        session: Box<Session>,
        /// A key to send, when a secret was exchanged.
        key: Option<Secret>,
    },
    /// Out.
    Refused(Refusal),
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// What it is counted by.
    pub code: &'static str,
    text: &'static str,
    permanent: bool,
}

impl Refusal {
    const fn for_now(code: &'static str, text: &'static str) -> Self {
        Self { code, text, permanent: false }
    }

    const fn for_good(code: &'static str, text: &'static str) -> Self {
        Self { code, text, permanent: true }
    }

    /// What the agent is sent.
    pub fn greeting(self) -> Greeting {
        Greeting::Refused { code: self.code.into(), text: self.text.into(), permanent: self.permanent }
    }
}

/// Another portal may be installed while the job runs, and taken back again: the app goes on meanwhile.
const WRONG_VERSION: Refusal = Refusal::for_now("wrong_version", "the portal speaks another version of the protocol");
const UNKNOWN: Refusal = Refusal::for_now("unknown", "the portal does not know this session and secret");
const OVER: Refusal = Refusal::for_good("session_over", "the session has ended");
const OLD_RESTART: Refusal = Refusal::for_good("old_restart", "a later run of the job has taken over");
const NEW_RESTART: Refusal = Refusal::for_now("new_restart", "the portal has not seen this restart yet");
const NOT_STARTED: Refusal = Refusal::for_now("not_started", "SLURM has not started the job yet");
const OTHER_JOB: Refusal = Refusal::for_now("other_job", "the session belongs to another job");
const OTHER_USER: Refusal = Refusal::for_good("other_user", "the session belongs to somebody else");

/// Lets agents in. Cheap to clone.
#[derive(Clone)]
pub struct AgentAdmission {
    db: Db,
    clock: Arc<dyn Clock>,
    cluster: Cluster,
    nudges: Nudges,
}

impl AgentAdmission {
    /// Admission by what the database says of sessions, and the cluster of their jobs.
    pub(crate) fn new(db: Db, clock: Arc<dyn Clock>, cluster: Cluster, nudges: Nudges) -> Self {
        Self { db, clock, cluster, nudges }
    }

    /// Decides. Who cannot show the secret learns nothing about the session.
    pub async fn admit(&self, hello: &Hello) -> Result<Admission, AppError> {
        if hello.version != eirene_tunnel::VERSION {
            return Ok(Admission::Refused(WRONG_VERSION));
        }
        let Some(session) = self.db.session(hello.session).await? else { return Ok(Admission::Refused(UNKNOWN)) };
        let Some(known) = self.db.agent_credentials(hello.session).await? else {
            return Ok(Admission::Refused(UNKNOWN));
        };
        let shown = match shown(&known, &hello.credential) {
            // Also where the restart is news: the next look at the cluster makes its secret known.
            Shown::Nothing => return Ok(Admission::Refused(UNKNOWN)),
            shown => shown,
        };
        if let Some(refusal) = contradiction(&session, &known, hello) {
            return Ok(Admission::Refused(refusal));
        }
        if self.still_pending(&session).await {
            return Ok(Admission::Refused(NOT_STARTED));
        }
        let key = match shown {
            Shown::JobSecret => {
                let key = Secret::generate();
                if !self.db.set_pending_tunnel_key(session.id, known.restart_count, &key.hash()).await? {
                    return Ok(Admission::Refused(UNKNOWN));
                }
                Some(key)
            }
            Shown::TunnelKey | Shown::Nothing => None,
        };
        Ok(Admission::Welcome { session: Box::new(session), key })
    }

    /// Notes that the agent holds the key, which voids the job's secret. Said again, it is true again.
    pub async fn confirm(&self, hello: &Hello, key: Option<&Secret>) -> Result<bool, AppError> {
        let hash = match (key, &hello.credential) {
            (Some(key), _) => key.hash(),
            (None, Credential::TunnelKey(key)) => Secret::from_text(key.as_str()).hash(),
            (None, Credential::JobSecret(_)) => return Ok(false),
        };
        Ok(self.db.confirm_tunnel_key(hello.session, hello.restart_count, &hash).await?)
    }

    /// Whether SLURM says that the job of a queued session is pending, so that this is no agent which SLURM started. What is known may be older than the
    /// start, so the next look decides. Where none comes in time the credential alone counts, as it does while SLURM is unreachable.
    async fn still_pending(&self, session: &Session) -> bool {
        let Some(job) = session.job.as_ref().filter(|_| session.state == SessionState::Queued) else { return false };
        let now = self.clock.now();
        let mut looks = self.cluster.watch();
        let says_pending = async {
            if looks.borrow().reachable {
                self.nudges.poll().notify_one();
            }
            let next =
                looks.wait_for(|look| !look.reachable || look.asked_at.is_some_and(|at| at >= now)).await.ok()?;
            let job = next.jobs.iter().find(|known| next.reachable && known.identity.id == job.id)?;
            Some(job.state == JobState::Pending)
        };
        matches!(tokio::time::timeout(LOOK_WAIT, says_pending).await, Ok(Some(true)))
    }
}

#[derive(Clone, Copy)]
enum Shown {
    JobSecret,
    TunnelKey,
    Nothing,
}

fn shown(known: &AgentCredentials, credential: &Credential) -> Shown {
    let fits = |hash: &Option<eirene_core::secret::SecretHash>, text: &str| {
        hash.as_ref().is_some_and(|hash| hash.matches(&Secret::from_text(text)))
    };
    match credential {
        Credential::JobSecret(text) if fits(&known.secret_hash, text) => Shown::JobSecret,
        Credential::TunnelKey(text) if fits(&known.tunnel_key_hash, text) || fits(&known.pending_key_hash, text) => {
            Shown::TunnelKey
        }
        Credential::JobSecret(_) | Credential::TunnelKey(_) => Shown::Nothing,
    }
}

fn contradiction(session: &Session, known: &AgentCredentials, hello: &Hello) -> Option<Refusal> {
    if hello.uid != session.owner_uid {
        return Some(OTHER_USER);
    }
    if session.state.is_final() {
        return Some(OVER);
    }
    if hello.restart_count < known.restart_count {
        return Some(OLD_RESTART);
    }
    if hello.restart_count > known.restart_count {
        return Some(NEW_RESTART);
    }
    // While the submit's answer is on its way, the job is not known yet; the secret is what counts.
    session.job.as_ref().is_some_and(|job| job.id != hello.slurm_job_id).then_some(OTHER_JOB)
}
