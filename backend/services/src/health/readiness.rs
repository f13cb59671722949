//! What the portal depends on and how each of it is doing: for `/readyz`, for the admins' page of health and for programs.
//!
//! To look costs a question to the database and a connection to the launcher, and `/readyz` may be asked for by anybody. So a look is good for a
//! while, one is made at a time, and everybody else waits for it. What pollers and reconcilers have seen is taken as they left it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_core::{Clock, RootName};
use eirene_database::Db;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use super::problem::Trouble;
use super::status::Status;
use crate::actor::Actor;
use crate::agents::TunnelRegistry;
use crate::alerts::Alerts;
use crate::alerts::platform::POLL;
use crate::cluster::Cluster;
use crate::error::AppError;
use crate::launcher_client::LauncherClient;
use crate::samples::Samples;
use crate::shared::Shared;
use crate::storage::Storage;
use crate::storage::snapshot::Asked;
use crate::traces::Traces;
use crate::zabbix::Zabbix;

/// The database has this long to answer.
const DATABASE_WAIT: Duration = Duration::from_secs(3);
/// The launcher has this long to take a connection: it is a socket of this machine.
const LAUNCHER_WAIT: Duration = Duration::from_secs(1);
/// Prometheus has this long to answer the smallest question.
const PROMETHEUS_WAIT: Duration = Duration::from_secs(2);
/// How long a look is good.
const FRESH: SignedDuration = SignedDuration::from_secs(2);

/// Something the portal depends on, in the order in which it is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// The database: without it there is no portal.
    Database,
    /// The privileged process.
    Launcher,
    /// SLURM.
    Scheduler,
    /// The file system of a root of spaces.
    Root(RootName),
    /// The file system of homes.
    Homes,
    /// The store of samples.
    Samples,
    /// The site's Prometheus.
    Prometheus,
    /// The site's Zabbix.
    Zabbix,
    /// The collector of traces.
    Traces,
    /// Whoever is told of alerts.
    Webhook,
    /// A reconciler of ours.
    Reconciler(&'static str),
}

impl Dependency {
    /// What it is, in one word for programs, and which one where there are several.
    pub fn kind(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Database => ("database", None),
            Self::Launcher => ("launcher", None),
            Self::Scheduler => ("slurm", None),
            Self::Root(name) => ("storage_root", Some(name.as_str())),
            Self::Homes => ("storage_homes", None),
            Self::Samples => ("samples", None),
            Self::Prometheus => ("prometheus", None),
            Self::Zabbix => ("zabbix", None),
            Self::Traces => ("traces", None),
            Self::Webhook => ("webhook", None),
            Self::Reconciler(name) => ("reconciler", Some(*name)),
        }
    }
}

/// As `/readyz` names it.
impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => write!(f, "storage root {name}"),
            Self::Homes => f.write_str("storage homes"),
            Self::Reconciler(name) => write!(f, "reconciler {name}"),
            _ => f.write_str(self.kind().0),
        }
    }
}

/// When something last gave an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// Then.
    At(Timestamp),
    /// It has given none that was seen.
    NotSeen,
    /// Nobody asks it anything.
    NotAsked,
}

impl Answered {
    /// The time, where there is one.
    pub fn at(self) -> Option<Timestamp> {
        match self {
            Self::At(at) => Some(at),
            Self::NotSeen | Self::NotAsked => None,
        }
    }
}

/// How one of them is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Which.
    pub what: Dependency,
    /// What is wrong; none when nothing is.
    pub trouble: Option<Trouble>,
    /// What it or the system said of that, for logs and admins; empty for nothing.
    pub detail: String,
    /// Since when it is so, as far as it was seen.
    pub since: Timestamp,
    /// When it last gave an answer.
    pub answered: Answered,
    /// How long that took, where somebody has measured.
    pub took: Option<Duration>,
}

/// How all of them are doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// By a look at this time.
    pub at: Timestamp,
    /// Each, in order.
    pub lines: Vec<Line>,
    /// Agents that are connected.
    pub agents: usize,
}

impl Report {
    /// Whether the portal can be used: for that the database alone is needed.
    pub fn is_usable(&self) -> bool {
        !self.lines.iter().any(|line| line.what == Dependency::Database && line.trouble.is_some())
    }
}

/// What it takes.
pub struct Parts {
    /// The database.
    pub db: Db,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The launcher's socket.
    pub launcher: PathBuf,
    /// The cluster as last seen.
    pub cluster: Cluster,
    /// The storage as last seen.
    pub storage: Storage,
    /// Samples.
    pub samples: Samples,
    /// The site's Zabbix.
    pub zabbix: Zabbix,
    /// Traces.
    pub traces: Traces,
    /// Alerts.
    pub alerts: Alerts,
    /// Reconcilers.
    pub status: Status,
    /// Agents.
    pub tunnels: TunnelRegistry,
}

/// Knows how everything is doing. Cheap to clone.
#[derive(Clone)]
pub struct Readiness {
    inner: Shared<Inner>,
}

struct Inner {
    parts: Parts,
    memory: Mutex<Memory>,
}

/// What one look leaves for the next.
#[derive(Default)]
struct Memory {
    last: Option<Arc<Report>>,
    since: Since,
    answers: Answers,
}

/// How each was at the last look, and since when.
type Since = BTreeMap<Dependency, (Option<Trouble>, Timestamp)>;

/// When each last gave an answer, and how long that took: of one that is away now, that is what is asked first.
type Answers = BTreeMap<Dependency, (Timestamp, Option<Duration>)>;

/// One look, compared with the last one.
struct Look<'a> {
    now: Timestamp,
    memory: &'a mut Memory,
}

/// What came of a question that was asked just now.
struct Answer {
    trouble: Option<Trouble>,
    detail: String,
    took: Duration,
}

impl Readiness {
    /// Looks at `parts` when somebody asks.
    pub fn new(parts: Parts) -> Self {
        Self { inner: Shared::new(Inner { parts, memory: Mutex::default() }) }
    }

    /// The last look while it is good, or a new one.
    ///
    /// # Errors
    /// The look ended in a panic.
    pub async fn report(&self) -> Result<Arc<Report>, AppError> {
        let this = self.clone();
        // A task of its own, so that those who ask and go away at once do not each begin anew.
        let report = tokio::spawn(async move { this.fresh().await }).await;
        report.map_err(|error| AppError::Internal(error.into()))
    }

    /// The same for admins, to whom it is shown with all that is known.
    ///
    /// # Errors
    /// Somebody else asks, or the look ended in a panic.
    pub async fn for_admins(&self, actor: &Actor) -> Result<Arc<Report>, AppError> {
        actor.require_admin()?;
        self.report().await
    }

    async fn fresh(&self) -> Arc<Report> {
        let mut memory = self.inner.memory.lock().await;
        if let Some(last) = &memory.last {
            let age = self.inner.parts.clock.now().duration_since(last.at);
            if !age.is_negative() && age < FRESH {
                return Arc::clone(last);
            }
        }
        let lines = self.look(&mut memory).await;
        let at = self.inner.parts.clock.now();
        let report = Arc::new(Report { at, lines, agents: self.inner.parts.tunnels.count() });
        memory.last = Some(Arc::clone(&report));
        report
    }

    /// Looks once.
    async fn look(&self, memory: &mut Memory) -> Vec<Line> {
        let parts = &self.inner.parts;
        let launcher = LauncherClient::new(&parts.launcher);
        let (database, launcher, prometheus) = tokio::join!(
            ask(DATABASE_WAIT, parts.db.ping(), [Trouble::DatabaseAway, Trouble::DatabaseSlow]),
            ask(LAUNCHER_WAIT, launcher.reach(), [Trouble::LauncherAway, Trouble::LauncherSlow]),
            self.prometheus(),
        );
        let mut look = Look { now: parts.clock.now(), memory };
        let mut lines = vec![look.asked(Dependency::Database, database), look.asked(Dependency::Launcher, launcher)];

        let reconcilers = parts.status.all();
        let cluster = parts.cluster.snapshot();
        let away = (!cluster.reachable).then_some(Trouble::SchedulerAway);
        let polled = reconcilers.get(POLL).filter(|_| away.is_none());
        let good_since = cluster.good_since.filter(|_| away.is_none());
        lines.push(Line {
            answered: cluster.asked_at.map_or(Answered::NotSeen, Answered::At),
            took: polled.map(|poll| Duration::from_millis(poll.took_ms)),
            ..look.seen(Dependency::Scheduler, away, cluster.trouble.clone(), good_since)
        });

        // A storage that is away leaves the portal usable: what is said of spaces is then what was seen before.
        let storage = parts.storage.snapshot();
        let roots = storage.roots.iter().map(|root| {
            (Dependency::Root(root.name.clone()), root.file_system.got().is_some(), said(&root.file_system))
        });
        let homes = (storage.homes != Asked::Unsupported)
            .then(|| (Dependency::Homes, storage.homes.got().is_some(), said(&storage.homes)));
        for (what, answers, detail) in roots.chain(homes) {
            let away = (!answers).then_some(Trouble::StorageAway);
            let answer = storage.at.filter(|_| answers).map(|at| (at, None));
            let (answered, took) = look.answered(&what, answer);
            lines.push(Line { answered, took, ..look.seen(what, away, detail, None) });
        }

        let lost = (!parts.samples.are_kept()).then_some(Trouble::SamplesNotKept);
        lines.push(look.seen(Dependency::Samples, lost, None, None));
        lines.extend(prometheus.map(|answer| look.asked(Dependency::Prometheus, answer)));
        lines.extend(parts.zabbix.sending().map(|state| look.seen(Dependency::Zabbix, state.err(), None, None)));
        lines.extend(parts.traces.sending().map(|state| look.seen(Dependency::Traces, state.err(), None, None)));
        lines.extend(parts.alerts.sending().map(|state| {
            let (trouble, detail) = state.err().unzip();
            look.seen(Dependency::Webhook, trouble, detail, None)
        }));
        for (name, health) in reconcilers {
            let fails = (health.failures > 0).then_some(Trouble::ReconcilerFails);
            let known = health.last_good.filter(|_| fails.is_some());
            lines.push(Line {
                answered: Answered::At(health.last_run),
                took: Some(Duration::from_millis(health.took_ms)),
                ..look.seen(Dependency::Reconciler(name), fails, health.trouble, known)
            });
        }
        lines
    }

    /// Whether the site's Prometheus answers; none where there is none. One that is slow is away for this purpose.
    async fn prometheus(&self) -> Option<Answer> {
        let begun = Instant::now();
        let asked = tokio::time::timeout(PROMETHEUS_WAIT, self.inner.parts.samples.elsewhere_answers()).await;
        let answers = asked.unwrap_or(Some(false))?;
        let trouble = (!answers).then_some(Trouble::PrometheusAway);
        Some(Answer { trouble, detail: String::new(), took: begun.elapsed() })
    }
}

impl Look<'_> {
    /// How something is; `known` is since when, where whoever looks at it knows better than by our looks.
    fn seen(
        &mut self,
        what: Dependency,
        trouble: Option<Trouble>,
        detail: Option<String>,
        known: Option<Timestamp>,
    ) -> Line {
        let (before, since) = self.memory.since.entry(what.clone()).or_insert((trouble, self.now));
        if *before != trouble {
            (*before, *since) = (trouble, self.now);
        }
        let since = known.unwrap_or(*since);
        // Of what is well again nobody needs to know what was wrong.
        let detail = detail.filter(|_| trouble.is_some()).unwrap_or_default();
        Line { what, trouble, detail, since, answered: Answered::NotAsked, took: None }
    }

    /// The same of what was asked just now.
    fn asked(&mut self, what: Dependency, Answer { trouble, detail, took }: Answer) -> Line {
        let answer = trouble.is_none().then_some((self.now, Some(took)));
        let (answered, took) = self.answered(&what, answer);
        Line { answered, took, ..self.seen(what, trouble, Some(detail), None) }
    }

    /// When something last gave an answer and how long that took: this one, or the last one that a look has seen.
    fn answered(
        &mut self,
        what: &Dependency,
        answer: Option<(Timestamp, Option<Duration>)>,
    ) -> (Answered, Option<Duration>) {
        if let Some(answer) = answer {
            self.memory.answers.insert(what.clone(), answer);
        }
        match self.memory.answers.get(what) {
            Some((at, took)) => (Answered::At(*at), *took),
            None => (Answered::NotSeen, None),
        }
    }
}

/// Asks, and waits so long.
async fn ask<E: Error>(
    wait: Duration,
    question: impl Future<Output = Result<(), E>>,
    [away, slow]: [Trouble; 2],
) -> Answer {
    let begun = Instant::now();
    let (trouble, detail) = match tokio::time::timeout(wait, question).await {
        Ok(Ok(())) => (None, String::new()),
        Ok(Err(error)) => {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            (Some(away), format!("{error}{cause}"))
        }
        Err(_) => (Some(slow), String::new()),
    };
    Answer { trouble, detail, took: begun.elapsed() }
}

/// What a storage said instead of an answer.
fn said<T>(asked: &Asked<T>) -> Option<String> {
    match asked {
        Asked::Failed(trouble) => Some(trouble.text.clone()),
        Asked::Got(_) | Asked::Unsupported => None,
    }
}
