//! Samples of this node, every few seconds, and their way to the portal.
//!
//! What is sampled is a matter of `monitoring/probe` and, where there are GPUs, of `eirene-gpu`. Here is when, and on which thread: reading the
//! kernel's files may take as long as it likes and nobody waits for it. What the portal does not take is kept for a while ([`Outbox`]).
//!
//! All nodes sample at the same moments, in the middle of each [`EVERY_MS`] of the clock: so every span of a chart has one sample of each node, and
//! what is counted between two of them is divided by the right time.
//!
//! What all of this costs is a sample itself ([`Metric::ProbeCpu`]).

mod cost;
mod detail;
mod gpus;
mod outbox;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_core::{Clock as _, SystemClock};
use eirene_monitoring::{Batch, Metric, NodeName, Sample, Series};
use eirene_monitoring_probe::{Job, MOST_AT_ONCE, Probe, Refusals, ReportSocket, Reports, Roots};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::log::Log;
use crate::steps::Running;
use cost::Cost;
use detail::Detail;
use gpus::Gpus;

pub(crate) use outbox::Outbox;

/// Time between two samples, milliseconds.
const EVERY_MS: i64 = 5000;
/// Name of the socket that programs report to, in the runtime directory.
pub(crate) const REPORT_SOCKET: &str = "report.sock";
/// The variable that says where it is.
pub(crate) const REPORT_VARIABLE: &str = "EIRENE_REPORT_SOCKET";
/// Pause after a look at what programs have reported: who reports more often than is looked at gets no more of the agent's time.
const REPORT_PAUSE: Duration = Duration::from_millis(50);
/// That reports are refused is said once in this time.
const REFUSED_PAUSE: Duration = Duration::from_mins(10);

/// Whose samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sampled {
    /// SLURM's number of the job.
    pub(crate) job: u32,
    /// This node.
    pub(crate) node: String,
    /// How many nodes the job has.
    pub(crate) nodes: usize,
    /// Memory that the job may have here, where the scheduler says it, bytes.
    pub(crate) memory_limit: Option<u64>,
    /// Whether the job has GPUs. A helper may be started by an agent that was there before it was updated.
    #[serde(default)]
    pub(crate) gpus: bool,
}

/// Samples this node until `tell`, which gets each batch, says that nobody listens any more. Programs report to a socket in `inside`, the part of
/// the runtime directory that they see. Where the agent is, what runs on all nodes is counted too, as `steps`.
pub(crate) fn start(
    sampled: &Sampled,
    inside: &Path,
    steps: Option<Running>,
    log: &Log,
    tell: impl Fn(String) -> bool + Send + Sync + 'static,
) {
    let Ok(node) = NodeName::try_from(sampled.node.as_str()) else {
        return log.say(&format!("node {}: no samples of it, the portal knows no such names", sampled.node));
    };
    let uid = nix::unistd::geteuid().as_raw();
    let job = Job { id: sampled.job, uid, memory_limit: sampled.memory_limit };
    let (reports, cost) = (Shared::<Reports>::default(), Cost::default());
    match ReportSocket::bind(&inside.join(REPORT_SOCKET)) {
        Ok(socket) => {
            let listened = listen(socket, reports.clone(), cost.clone(), sampled.node.clone(), log.clone());
            drop(tokio::spawn(listened));
        }
        Err(error) => log.say(&error.to_string()),
    }
    let sampler = Sampler {
        probe: Probe::new(&Roots::default(), node, &job),
        gpus: Gpus::start(&sampled.node, sampled.gpus, log, cost.clone()),
        detail: Detail::new(sampled.nodes),
        reports,
        steps,
        cost,
    };
    tokio::spawn(sampler.run(Arc::new(tell)));
}

/// Something that a task fills and a thread empties.
#[derive(Debug, Default)]
struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Sampler {
    probe: Probe,
    gpus: Gpus,
    reports: Shared<Reports>,
    steps: Option<Running>,
    detail: Detail,
    cost: Cost,
}

impl Sampler {
    async fn run(mut self, tell: Arc<impl Fn(String) -> bool + Send + Sync + 'static>) {
        let mut is_first = true;
        loop {
            tokio::time::sleep(until_next(SystemClock.now())).await;
            let tell = Arc::clone(&tell);
            let told = tokio::task::spawn_blocking(move || {
                let batch = self.sample(SystemClock.now());
                let is_heard = self.cost.of(|| {
                    let earlier = is_first.then(|| before(&batch)).flatten();
                    let batches = earlier.iter().chain([&batch]);
                    let mut messages =
                        batches.flat_map(Batch::write).filter_map(|message| String::from_utf8(message).ok());
                    messages.all(|message| tell(message))
                });
                is_heard.then_some(self)
            });
            match told.await {
                Ok(Some(sampler)) => (self, is_first) = (sampler, false),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// All figures, and what it has cost to get them; to write them down is in the next ones.
    fn sample(&mut self, now: Timestamp) -> Batch {
        let cost = self.cost.clone();
        let mut batch = cost.of(|| self.look(now));
        self.gpus.count();
        let series = Series::of(Metric::ProbeCpu).ok();
        batch.samples.extend(series.map(|series| Sample { series, value: cost.so_far().as_secs_f64() }));
        batch
    }

    fn look(&mut self, now: Timestamp) -> Batch {
        let mut batch = self.probe.sample(now);
        batch.samples.extend(self.gpus.take());
        batch.samples.extend(self.reports.lock().take());
        if let Some((begun, ranks)) = self.steps.as_ref().map(Running::counts) {
            let counted = [(Metric::Steps, begun), (Metric::StepRanks, ranks)];
            let sample = |(metric, count)| Some(Sample { series: Series::of(metric).ok()?, value: f64::from(count) });
            batch.samples.extend(counted.into_iter().filter_map(sample));
        }
        self.detail.choose(&mut batch.samples);
        batch
    }
}

/// What the agent counts itself, one sample before its first: there was no agent yet, and nothing to count. A chart shows what rises between two
/// samples, and would miss what came before the first.
fn before(first: &Batch) -> Option<Batch> {
    let is_counted_here = |sample: &&Sample| sample.series.metric() == Metric::Steps;
    let counted = first.samples.iter().filter(is_counted_here);
    let samples: Vec<_> = counted.map(|sample| Sample { value: 0.0, ..sample.clone() }).collect();
    let at = first.at.checked_sub(SignedDuration::from_millis(EVERY_MS)).ok()?;
    (!samples.is_empty()).then(|| Batch { at, samples, ..first.clone() })
}

/// From this time of the clock to the next middle of an [`EVERY_MS`].
fn until_next(now: Timestamp) -> Duration {
    let passed = now.as_millisecond().saturating_add(EVERY_MS / 2).rem_euclid(EVERY_MS);
    Duration::from_millis((EVERY_MS - passed).unsigned_abs())
}

/// What is said of reports that are refused: whoever writes them wonders why there is no chart, and gets no answer.
#[derive(Debug, Default)]
struct Refused {
    told: u64,
    at: Option<Instant>,
}

impl Refused {
    /// A sentence where there are more than when one was said, and that is long ago.
    fn sentence(&mut self, refusals: Refusals, now: Instant) -> Option<String> {
        let is_soon = self.at.is_some_and(|at| now.duration_since(at) < REFUSED_PAUSE);
        if refusals.total() <= self.told || is_soon {
            return None;
        }
        (self.told, self.at) = (refusals.total(), Some(now));
        Some(format!("reports of programs that were not taken so far: {refusals}"))
    }
}

/// Takes what programs report.
async fn listen(mut socket: ReportSocket, reports: Shared<Reports>, cost: Cost, node: String, log: Log) {
    let Ok(readable) = socket.socket().try_clone().and_then(UnixDatagram::from_std) else { return };
    let mut refused = Refused::default();
    while readable.readable().await.is_ok() {
        let received = readable.try_io(Interest::READABLE, || {
            let count = cost.of(|| socket.receive(&mut reports.lock(), SystemClock.now()))?;
            // Nothing is left, and the next one is to be waited for.
            if count < MOST_AT_ONCE { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        let refusals = reports.lock().refusals();
        if let Some(sentence) = refused.sentence(refusals, Instant::now()) {
            log.say(&format!("node {node}: {sentence}"));
        }
        match received {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => tokio::time::sleep(REPORT_PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use eirene_monitoring::{Confinement, Device};

    use super::*;

    #[test]
    fn samples_lie_in_the_middle_of_their_spans() {
        for (now_ms, wait_ms) in [(0, 2500), (2499, 1), (2500, 5000), (7400, 100), (1_700_000_000_001, 2499)] {
            let wait = until_next(Timestamp::from_millisecond(now_ms).unwrap());
            assert_eq!(wait, Duration::from_millis(wait_ms), "{now_ms}");
        }
    }

    #[tokio::test]
    async fn a_node_is_sampled_with_what_programs_report() {
        let directory = tempfile::tempdir().unwrap();
        let sampled = Sampled { job: 7, node: "c1".into(), nodes: 1, memory_limit: Some(1 << 30), gpus: false };
        let (tell, mut told) = tokio::sync::mpsc::channel(4);
        let log = Log::new(std::io::sink());
        start(&sampled, directory.path(), None, &log, move |batch| tell.try_send(batch).is_ok());
        let program = UnixDatagram::unbound().unwrap();
        let socket = directory.path().join(REPORT_SOCKET);
        for loss in ["0.5", "0.25"] {
            program.send_to(format!(r#"{{"loss":{loss}}}"#).as_bytes(), &socket).await.unwrap();
        }
        let text = told.recv().await.unwrap();
        let window = eirene_monitoring::TimeWindow { oldest: Timestamp::UNIX_EPOCH, newest: Timestamp::MAX };
        let batch = Batch::read(text.as_bytes(), window).unwrap();
        assert_eq!((batch.node.as_str(), batch.at.as_millisecond() % 5000 / 1000), ("c1", 2));
        let value = |name: &str| {
            let sample = batch.samples.iter().find(|sample| sample.series.to_string() == name);
            sample.map(|sample| sample.value)
        };
        assert_eq!(value("report/loss"), Some(0.25));
        assert!(value("node_memory_bytes").is_some_and(|bytes| bytes > 0.0), "{text}");
        assert!(value("probe_cpu_seconds").is_some_and(|seconds| seconds > 0.0), "{text}");
    }

    #[test]
    fn what_was_counted_before_the_first_sample_rose_from_nothing() {
        let sample = |metric, value| Sample { series: Series::of(metric).unwrap(), value };
        let first = Batch {
            node: NodeName::try_from("c1").unwrap(),
            at: Timestamp::from_millisecond(7500).unwrap(),
            confinement: Confinement::CgroupV2,
            held: None,
            samples: vec![sample(Metric::Cpu, 1.5), sample(Metric::Steps, 3.0), sample(Metric::StepRanks, 2.0)],
        };
        let told = before(&first).unwrap();
        assert_eq!((told.at.as_millisecond(), &told.samples[..]), (2500, &[sample(Metric::Steps, 0.0)][..]));
        let of_another_node = Batch { samples: vec![sample(Metric::Cpu, 1.5)], ..first };
        assert_eq!(before(&of_another_node), None, "what the kernel counts began when nobody knows");
    }

    #[test]
    fn what_is_refused_is_said_now_and_then() {
        let (mut refused, begun) = (Refused::default(), Instant::now());
        let mut said = |too_long, not_understood, seconds| {
            let refusals = Refusals { too_long, not_understood, ..Refusals::default() };
            refused.sentence(refusals, begun + Duration::from_secs(seconds))
        };
        assert_eq!(said(0, 0, 0), None);
        let first = said(0, 3, 1).unwrap();
        assert_eq!(first, "reports of programs that were not taken so far: 3 not understood");
        assert_eq!(said(0, 900, 600), None, "a program that goes on is told of again after a while");
        assert!(said(2, 901, 601).unwrap().ends_with("2 too long, 901 not understood"));
        assert_eq!(said(2, 901, 9000), None, "nothing is new");
    }

    #[test]
    fn what_is_the_whole_node_s_is_told_with_however_many_nodes() {
        let job = Job { id: 7, uid: nix::unistd::geteuid().as_raw(), memory_limit: None };
        let probe = || Probe::new(&Roots::default(), NodeName::try_from("c1").unwrap(), &job);
        let batch = |nodes| {
            let (gpus, reports) = (Gpus::default(), Shared::default());
            let (cost, detail) = (Cost::default(), Detail::new(nodes));
            Sampler { probe: probe(), gpus, reports, steps: None, detail, cost }.sample(SystemClock.now())
        };
        let is_core = |sample: &Sample| matches!(sample.series.device(), Some(Device::Core(_)));
        for (nodes, has_cores) in [(1, true), (17, true), (5000, false)] {
            let samples = batch(nodes).samples;
            assert_eq!(samples.iter().any(is_core), has_cores, "{nodes}");
            assert!(samples.iter().any(|sample| sample.series.metric() == Metric::NodeMemory), "{nodes}");
        }
    }
}
