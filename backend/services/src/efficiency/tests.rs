//! From samples to sums and advice.

use std::collections::HashSet;
use std::time::Instant;

use async_trait::async_trait;
use eirene_core::job_usage::HeldUsed;
use eirene_core::{Resources, Role};
use eirene_monitoring::{Batch, Confinement, Metric, NodeName, Sample};
use eirene_monitoring_store::{Answer, Point, Resolution};

use super::advice::About;
use super::*;
use crate::samples::{Chart, Figure, History, HistoryError, Ingest, Line, Part, Source, Spans, Trouble};
use crate::sessions::StartSession;
use crate::testing::TestApp;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// A session on two nodes, each with four CPUs, 8 GiB and two GPUs, that began now.
async fn begun(test: &TestApp) -> (Actor, Session) {
    test.app.samples.open().unwrap();
    let ada = test.ada().await;
    let partition = Some("gpu".parse().unwrap());
    let resources =
        Resources { partition, nodes: 2, cpus: 4, memory_mib: 8192, gpus: 2, gpu_type: None, walltime_min: 120 };
    let wish = StartSession { resources, ..TestApp::wish() };
    let (session, _) = test.app.sessions.start(&ada, wish, None).await.unwrap();
    let now = test.clock.now();
    let change = |session: &mut Session| {
        session.nodes = ["c1", "c2"].map(|name| name.parse().unwrap()).to_vec();
        session.started_at = Some(now);
    };
    (ada, test.app.sessions.change(session.id, change).await.unwrap().unwrap())
}

/// What both nodes say in five seconds; GPU 0 of the first computes while `busy`, the others nothing. On GPU 1 of the second nobody tells who is.
async fn said(test: &TestApp, session: &Session, count: i64, busy: bool) {
    let at = session.started_at.unwrap() + SignedDuration::from_millis(2500 + 5000 * count);
    test.clock.advance_s(5);
    let mut ingest = test.app.samples.ingest(session.id);
    for node in ["c1", "c2"] {
        let computes = busy && node == "c1";
        let mut samples = vec![
            ("cpu_seconds", 5.0 * 0.4 * count as f64),
            ("memory_peak_bytes", if node == "c1" { 1.5 * GIB } else { 0.5 * GIB }),
            ("gpu_util/0", if computes { 0.8 } else { 0.0 }),
            ("gpu_util/1", 0.0),
            ("gpu_processes/0", if computes { 1.0 } else { 0.0 }),
        ];
        if node == "c1" {
            samples.push(("gpu_processes/1", 0.0));
        }
        tells(&mut ingest, node, at, &samples).await;
    }
}

/// What a node says once.
async fn tells(ingest: &mut Ingest, node: &str, at: Timestamp, samples: &[(&str, f64)]) {
    let sample = |(name, value): &(&str, f64)| Sample { series: name.parse().unwrap(), value: *value };
    let samples = samples.iter().map(sample).collect();
    let node = NodeName::try_from(node).unwrap();
    let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
    ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
}

/// What a node says, and which.
type OfNode = (&'static str, Vec<(&'static str, f64)>);

/// An hour of a session from its beginning on, of which each five seconds are told.
async fn hour(test: &TestApp, session: &Session, says: impl Fn(i64) -> Vec<OfNode>) {
    let mut ingest = test.app.samples.ingest(session.id);
    for count in 0..720 {
        let at = session.started_at.unwrap() + SignedDuration::from_millis(2500 + 5000 * count);
        test.clock.advance_s(5);
        for (node, samples) in says(count) {
            tells(&mut ingest, node, at, &samples).await;
        }
    }
}

#[tokio::test]
async fn a_session_that_computes_for_a_while_and_is_left_alone_then() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    for count in 0..240 {
        said(&test, &session, count, true).await;
    }
    assert_eq!(test.app.efficiency.measure_some(10).await.unwrap(), 1);
    let early = test.app.db.job_usage(session.id).await.unwrap().unwrap();
    assert_eq!((early.wall_s, early.is_final, early.gpu.idle_s), (1200, false, 0), "20 minutes are no idleness");
    for count in 240..720 {
        said(&test, &session, count, false).await;
    }
    assert_eq!(test.app.efficiency.measure_some(10).await.unwrap(), 1, "it lasts, so it is measured again");
    let now = test.clock.now();
    let end = |session: &mut Session| {
        session.ended_at = Some(now);
    };
    let session = test.app.sessions.change(session.id, end).await.unwrap().unwrap();
    assert_eq!(test.app.efficiency.measure_some(10).await.unwrap(), 0, "its last samples may still come");
    test.clock.advance_s(121);
    assert_eq!(test.app.efficiency.measure_some(10).await.unwrap(), 1);
    assert_eq!(test.app.efficiency.measure_some(10).await.unwrap(), 0, "that was all");

    let usage = test.app.efficiency.of(&session).await.unwrap().unwrap();
    assert_eq!(test.app.db.job_usage(session.id).await.unwrap().as_ref(), Some(&usage));
    assert!(usage.is_final);
    assert_eq!((usage.wall_s, usage.partition.as_str()), (3600, "gpu"));
    // The first sample says how much was counted, not since when.
    assert_eq!(usage.cpu, Some(HeldUsed { held: 2 * 4 * 3600, used: 2 * 719 * 2 }));
    assert_eq!(usage.memory_mib, Some(HeldUsed { held: 2 * 8192, used: 2048 }));
    let gpu = usage.gpu;
    assert_eq!((gpu.held_s, gpu.known_s, gpu.busy_s), (4 * 3600, 4 * 3600, 960));
    // For twenty minutes one GPU computes. The other of its node is empty all the time, as is one of the second; of the fourth nobody knows.
    assert_eq!((gpu.idle_s, gpu.empty_s), (3 * 3600 + 2400, 2 * 3600 + 2400));
    let about: Vec<About> = advice(&usage, &session.resources).iter().map(|advice| advice.about).collect();
    assert_eq!(about, [About::EmptyGpus, About::Memory, About::Cpus]);
}

/// What SLURM shows of a job that it has put back into the queue once.
fn requeued(session: &Session) -> Job {
    Job { restart_count: 1, ..crate::testing::job(session, 7, JobState::Pending) }
}

#[tokio::test]
async fn what_was_used_before_a_requeue_stays_and_is_counted_once_however_often_it_is_measured() {
    let test = TestApp::new().await;
    let (_, first) = begun(&test).await;
    for count in 0..480 {
        said(&test, &first, count, count < 240).await;
        if count == 240 {
            assert_eq!(test.app.efficiency.measure_some(10).await.unwrap(), 1);
        }
    }
    let efficiency = &test.app.efficiency;
    efficiency.start_over(&first, &requeued(&first)).await.unwrap();
    // Killed before the session was changed: it still seems to last, and later all is done again.
    test.clock.advance_s(60);
    efficiency.measure_some(10).await.unwrap();
    efficiency.start_over(&first, &requeued(&first)).await.unwrap();
    let requeue = |session: &mut Session| {
        (session.restart_count, session.started_at) = (1, None);
        session.nodes.clear();
    };
    let queued = test.app.sessions.change(first.id, requeue).await.unwrap().unwrap();
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 0, "its last samples may still come");
    test.clock.advance_s(61);
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 1);
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 0, "once");
    let before = efficiency.of(&queued).await.unwrap().unwrap();
    assert_eq!((before.wall_s, before.is_final), (2400, true));
    assert_eq!((before.gpu.held_s, before.gpu.busy_s), (4 * 2400, 960));

    let now = test.clock.now();
    let begin = |session: &mut Session| {
        session.nodes.clone_from(&first.nodes);
        session.started_at = Some(now);
    };
    let second = test.app.sessions.change(first.id, begin).await.unwrap().unwrap();
    for count in 0..240 {
        said(&test, &second, count, true).await;
    }
    let lasts = efficiency.of(&second).await.unwrap().unwrap();
    assert_eq!((lasts.wall_s, lasts.gpu.held_s, lasts.is_final), (3600, 4 * 3600, false), "both starts");
    let now = test.clock.now();
    let end = |session: &mut Session| session.ended_at = Some(now);
    let ended = test.app.sessions.change(first.id, end).await.unwrap().unwrap();
    test.clock.advance_s(121);
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 1);
    let all = efficiency.of(&ended).await.unwrap().unwrap();
    assert_eq!((all.wall_s, all.is_final, all.started_at), (3600, true, first.started_at.unwrap()));
    assert_eq!((all.gpu.held_s, all.gpu.busy_s), (4 * 3600, 2 * 960));
    assert_eq!(all.memory_mib, Some(HeldUsed { held: 2 * 8192, used: 2048 }), "the most of both");
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let wanted = Wanted { from: None, to: None, by: UsageBy::Person };
    let report = efficiency.report(&root, wanted).await.unwrap();
    assert_eq!((report.total.jobs, report.total.gpu), (1, all.gpu));
    let starts = efficiency.earlier_starts(&ended).await.unwrap();
    assert_eq!(starts.iter().map(|start| start.started_at).collect::<Vec<_>>(), [first.started_at.unwrap()]);
}

#[tokio::test]
async fn of_a_last_start_that_was_short_it_is_measured_what_was_not_yet() {
    let test = TestApp::new().await;
    let (_, first) = begun(&test).await;
    for count in 0..240 {
        said(&test, &first, count, true).await;
    }
    let efficiency = &test.app.efficiency;
    efficiency.start_over(&first, &requeued(&first)).await.unwrap();
    test.clock.advance_s(121);
    let now = test.clock.now();
    let begin = |session: &mut Session| (session.restart_count, session.started_at) = (1, Some(now));
    let second = test.app.sessions.change(first.id, begin).await.unwrap().unwrap();
    for count in 0..12 {
        said(&test, &second, count, true).await;
    }
    // The first start is measured to its end, and the second is over before it was ever measured.
    assert_eq!(efficiency.measure_some(1).await.unwrap(), 1, "what is over is first");
    let now = test.clock.now();
    let end = |session: &mut Session| session.ended_at = Some(now);
    let ended = test.app.sessions.change(first.id, end).await.unwrap().unwrap();
    let written = test.app.db.job_usage(first.id).await.unwrap().unwrap();
    assert_eq!((written.wall_s, written.restart_count, written.is_final), (1200, 0, true));
    let all = efficiency.of(&ended).await.unwrap().unwrap();
    assert_eq!((all.wall_s, all.gpu.held_s, all.is_final), (1260, 4 * 1260, false), "its last samples may still come");
    test.clock.advance_s(121);
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 1);
    let all = efficiency.of(&ended).await.unwrap().unwrap();
    assert_eq!((all.wall_s, all.restart_count, all.is_final), (1260, 1, true));
    // One that was taken away while it waited for another start has no other.
    let queued = Session { restart_count: 2, started_at: None, ..ended };
    assert_eq!(efficiency.of(&queued).await.unwrap(), Some(all));
}

#[test]
fn of_a_long_start_counts_what_was_done_on_its_nodes_and_nothing_of_the_next_one_elsewhere() {
    let (wall_s, spans) = (360_000, 2000);
    let line = |metric: Metric, node: &str, told: std::ops::Range<usize>, value: f64, total: f64| Line {
        metric,
        node: node.into(),
        device: None,
        values: (0..spans).map(|place| told.contains(&place).then_some(value)).collect(),
        most: None,
        least: None,
        total: (metric == Metric::Cpu).then_some(total),
        highest: (metric == Metric::MemoryPeak).then_some(value),
    };
    // Spans are of three minutes. In the last one the job was put back, and began elsewhere.
    let last = spans - 1..spans;
    let chart = || Chart {
        from_ms: 0,
        step_ms: 180_000,
        spans,
        resolution: Resolution::Minute,
        source: Source::BuiltIn,
        every_ms: 5000,
        broken: 0,
        lines: vec![
            line(Metric::Cpu, "c1", 0..spans, 0.5, 180_000.0),
            line(Metric::Cpu, "a1", last.clone(), 4.0, 300.0),
            line(Metric::MemoryPeak, "c1", 0..spans, 2.0 * GIB, 0.0),
            line(Metric::MemoryPeak, "a1", last.clone(), 4.0 * GIB, 0.0),
        ],
    };
    let mut session = crate::testing::session("ada");
    session.resources = Resources { nodes: 1, cpus: 4, memory_mib: 8192, ..session.resources };
    let mut measured = |nodes: &[&str]| {
        session.nodes = nodes.iter().map(|node| node.parse().unwrap()).collect();
        let mut chart = chart();
        measure::of_start(&mut chart, &session);
        measure::shares(&session.resources, wall_s, &chart)
    };
    let cpu = |used| Some(HeldUsed { held: 4 * 360_000, used });
    let memory_mib = |used| Some(HeldUsed { held: 8192, used });
    assert_eq!(measured(&["c1"]), (cpu(180_000), memory_mib(2048)));
    assert_eq!(measured(&[]), (cpu(180_000), memory_mib(2048)), "its nodes are not known any more");
    assert_eq!(measured(&["a1"]), (cpu(300), memory_mib(4096)));
    assert_eq!(measured(&["x1"]), (cpu(180_000), memory_mib(2048)), "who tells calls them otherwise");
}

#[test]
fn a_start_is_over_when_that_is_seen_unless_nobody_has_looked_for_a_while() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut session = crate::testing::session("ada");
    session.started_at = Some(at(1000));
    let ended = |session: &Session, job: &Job| over(session, job, at(9000)).map(|start| start.ended_at.as_second());
    let running = crate::testing::job(&session, 7, JobState::Running);
    assert_eq!(ended(&session, &running), None, "it goes on");
    // While it waits, when it starts is a guess.
    let mut job = Job { started_at: Some(at(8000)), ..requeued(&session) };
    job.identity.submitted_at = at(900);
    assert_eq!(ended(&session, &job), Some(9000));
    job.preempted_at = Some(at(900));
    assert_eq!(ended(&session, &job), Some(9000), "that was an earlier start");
    job.preempted_at = Some(at(2000));
    assert_eq!(ended(&session, &job), Some(2600));
    job.preempted_at = None;
    session.ends_at = Some(at(5000));
    assert_eq!(ended(&session, &job), Some(5000));
    (job.state, job.started_at) = (JobState::Running, Some(at(4000)));
    assert_eq!(ended(&session, &job), Some(4000));
    job.identity.submitted_at = at(3000);
    assert_eq!(ended(&session, &job), Some(3000), "it waited for a while before it started anew");
    session.started_at = None;
    assert_eq!(ended(&session, &job), None, "there was none");
}

#[tokio::test]
async fn gpus_are_not_taken_for_empty_where_nobody_tells_who_is_on_them() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    // As AMD's GPUs tell it, and as any did before: what computes, and nothing of processes.
    hour(&test, &session, |_| vec![("c1", vec![("gpu_util/amd0", 0.0)])]).await;
    let usage = test.app.efficiency.of(&session).await.unwrap().unwrap();
    assert_eq!((usage.gpu.known_s, usage.gpu.idle_s, usage.gpu.empty_s), (3600, 3600, 0));
    let about: Vec<About> = advice(&usage, &session.resources).iter().map(|advice| advice.about).collect();
    assert_eq!(about, [About::IdleGpus]);
}

#[tokio::test]
async fn a_part_of_a_gpu_is_empty_while_no_process_is_on_it_and_else_nothing_is_known_of_it() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    // Of two parts one is used for twenty minutes. What the whole draws makes it no third.
    let says = |count| {
        vec![
            ("gpu_processes/1.0", 0.0),
            ("gpu_processes/1.1", if count < 240 { 1.0 } else { 0.0 }),
            ("gpu_power_watts/1", 120.0),
            ("gpu_throttled/1", 0.0),
        ]
    };
    hour(&test, &session, |count| vec![("c1", says(count))]).await;
    let usage = test.app.efficiency.of(&session).await.unwrap().unwrap();
    let gpu = usage.gpu;
    assert_eq!((gpu.known_s, gpu.busy_s, gpu.idle_s, gpu.empty_s), (6000, 0, 6000, 6000));
    let about: Vec<About> = advice(&usage, &session.resources).iter().map(|advice| advice.about).collect();
    assert_eq!(about, [About::EmptyGpus]);
}

#[tokio::test]
async fn a_part_of_a_gpu_that_tells_how_busy_it_is_counts_by_that_and_else_by_who_is_on_it() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    let says = |count: i64| {
        // Of 1.0 it is told all the time, with a process on it: for twenty minutes it computes. Of 1.1 it is told for the first ten minutes, at half;
        // then there is a process for ten minutes, of which nobody knows, and none after it.
        let busy = if count < 240 { 0.5 } else { 0.0 };
        let mut samples = vec![("gpu_util/1.0", busy), ("gpu_processes/1.0", 1.0)];
        samples.push(("gpu_processes/1.1", if count < 240 { 1.0 } else { 0.0 }));
        if count < 120 {
            samples.push(("gpu_util/1.1", 0.5));
        }
        samples
    };
    hour(&test, &session, |count| vec![("c1", says(count))]).await;
    let gpu = test.app.efficiency.of(&session).await.unwrap().unwrap().gpu;
    assert_eq!((gpu.known_s, gpu.busy_s), (3600 + 600 + 2400, 600 + 300));
    assert_eq!((gpu.idle_s, gpu.empty_s), (2400 + 2400, 2400), "a process that does nothing is idle, and not empty");
}

#[tokio::test]
async fn a_process_of_which_nothing_is_known_ends_a_stretch_without_computing() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    // Twenty minutes without one, twenty with one, twenty without: nowhere half an hour.
    let says = |count: i64| vec![("gpu_processes/1.0", if (240..480).contains(&count) { 1.0 } else { 0.0 })];
    hour(&test, &session, |count| vec![("c1", says(count))]).await;
    let gpu = test.app.efficiency.of(&session).await.unwrap().unwrap().gpu;
    assert_eq!((gpu.known_s, gpu.idle_s, gpu.empty_s), (2400, 0, 2400));
}

#[tokio::test]
async fn a_job_that_reads_a_lot_did_not_need_the_cache_of_it() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    let says = |count| {
        // Its own 2 GiB, for a moment 3; all that is left is full of what it has read. The other node tells nothing of a cache.
        let own = if count == 300 { 3.0 * GIB } else { 2.0 * GIB };
        let of_c1 = vec![
            ("memory_bytes", 8.0 * GIB),
            ("memory_peak_bytes", 8.0 * GIB),
            ("memory_reclaimable_bytes", 8.0 * GIB - own),
        ];
        vec![("c1", of_c1), ("c2", vec![("memory_bytes", GIB), ("memory_peak_bytes", 1.5 * GIB)])]
    };
    hour(&test, &session, says).await;
    let usage = test.app.efficiency.of(&session).await.unwrap().unwrap();
    assert_eq!(usage.memory_mib, Some(HeldUsed { held: 2 * 8192, used: 3072 + 1536 }));
}

#[tokio::test]
async fn where_nobody_told_nothing_is_known_and_nothing_is_advised() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    test.clock.advance_s(7200);
    let usage = test.app.efficiency.of(&session).await.unwrap().unwrap();
    assert_eq!((usage.wall_s, usage.cpu, usage.memory_mib), (7200, None, None));
    assert_eq!(usage.gpu, eirene_core::job_usage::GpuTime { held_s: 4 * 7200, ..Default::default() });
    assert!(advice(&usage, &session.resources).is_empty());
}

#[tokio::test]
async fn while_samples_cannot_be_read_nothing_is_measured_as_nothing() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    assert!(test.app.efficiency.of(&session).await.unwrap().is_none(), "it has not begun");
    let now = test.clock.now();
    test.app.sessions.change(session.id, |session| session.started_at = Some(now)).await.unwrap();
    let refused = test.app.efficiency.measure_some(10).await;
    assert!(matches!(refused, Err(AppError::Unavailable { .. })), "{refused:?}");
    assert_eq!(test.app.db.job_usage(session.id).await.unwrap(), None);
}

/// A Prometheus that cannot answer about some sessions, and keeps about whom it was asked.
#[derive(Default)]
struct Halting {
    fails: Mutex<HashSet<SessionId>>,
    asked: Mutex<Vec<SessionId>>,
}

#[async_trait]
impl History for Halting {
    fn source(&self) -> Source {
        Source::Prometheus
    }

    fn every_ms(&self) -> i64 {
        60_000
    }

    async fn of_session(
        &self,
        session: SessionId,
        _: &[Part],
        spans: Spans,
        _: Instant,
    ) -> Result<Vec<Answer>, HistoryError> {
        self.asked.lock().unwrap().push(session);
        if self.fails.lock().unwrap().contains(&session) {
            return Err(Trouble::Failed("execution: broken".into()).into());
        }
        Ok(vec![Answer { resolution: Resolution::Raw, step_ms: spans.step_ms, lines: vec![], broken: 0 }])
    }

    async fn of_cluster(&self, _: Spans) -> Result<Vec<(Figure, Vec<Point>)>, HistoryError> {
        Ok(vec![])
    }

    async fn reach(&self) -> Result<(), HistoryError> {
        Ok(())
    }
}

/// So many sessions that have begun, of which Prometheus cannot tell of the first `failing`; who measures them, in the order in which they are due.
async fn due_sessions(test: &TestApp, many: u32, failing: usize) -> (Efficiency, Arc<Halting>, Vec<Session>) {
    let mut sessions = Vec::new();
    for number in 0..many {
        let person = test.person(&format!("person{number}"), 3000 + number, Role::Researcher).await;
        let resources = Resources { partition: Some("gpu".parse().unwrap()), ..TestApp::wish().resources };
        let wish = StartSession { resources, ..TestApp::wish() };
        let (session, _) = test.app.sessions.start(&person, wish, None).await.unwrap();
        let now = test.clock.now();
        let begin = |session: &mut Session| session.started_at = Some(now);
        sessions.push(test.app.sessions.change(session.id, begin).await.unwrap().unwrap());
    }
    // What was never measured is due by id.
    sessions.sort_by_key(|session| session.id.to_string());
    test.clock.advance_s(60);
    let halting = Arc::new(Halting::default());
    halting.fails.lock().unwrap().extend(sessions[..failing].iter().map(|session| session.id));
    let (clock, directory) = (Arc::new(test.clock.clone()), test.directory.path().join("elsewhere"));
    let (db, config) = (test.app.db.clone(), &test.app.config.samples);
    let elsewhere: Arc<dyn History> = halting.clone();
    let samples = Samples::new(db.clone(), clock.clone(), test.app.events.clone(), Some(elsewhere), directory, config);
    (Efficiency::new(db, clock, samples, test.app.cluster.clone(), config), halting, sessions)
}

#[tokio::test]
async fn one_session_without_an_answer_does_not_keep_others_from_being_measured() {
    let test = TestApp::new().await;
    let (efficiency, halting, sessions) = due_sessions(&test, 2, 1).await;
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 1);
    assert_eq!(test.app.db.job_usage(sessions[0].id).await.unwrap(), None, "rather than as nothing");
    assert!(test.app.db.job_usage(sessions[1].id).await.unwrap().is_some());
    let refused = efficiency.measure_some(10).await;
    assert!(matches!(refused, Err(AppError::Unavailable { .. })), "nothing else was due: {refused:?}");
    halting.fails.lock().unwrap().clear();
    assert_eq!(efficiency.measure_some(10).await.unwrap(), 1, "it is tried again");
    assert!(test.app.db.job_usage(sessions[0].id).await.unwrap().is_some());
}

#[tokio::test]
async fn many_without_an_answer_come_after_all_others_and_each_has_its_turn() {
    let test = TestApp::new().await;
    let (efficiency, halting, sessions) = due_sessions(&test, 6, 4).await;
    let round = async || {
        let measured = efficiency.measure_some(2).await.ok();
        let asked = std::mem::take(&mut *halting.asked.lock().unwrap());
        let place = |id: &SessionId| sessions.iter().position(|session| session.id == *id).unwrap();
        (measured, asked.iter().map(place).collect::<Vec<_>>())
    };
    // The clock stands still for a round, so those of one round keep their order.
    assert_eq!(round().await, (None, vec![0, 1]));
    test.clock.advance_s(60);
    assert_eq!(round().await, (None, vec![2, 3]));
    test.clock.advance_s(60);
    assert_eq!(round().await, (Some(2), vec![4, 5]), "those at the head take nobody's place");
    test.clock.advance_s(60);
    assert_eq!(round().await, (None, vec![0]), "one that failed lately ends a round");
    test.clock.advance_s(60);
    assert_eq!(round().await, (None, vec![1]), "and the next has its turn");
}

#[test]
fn those_who_are_not_listed_are_summed_up_all_the_same() {
    let of = |many: usize| vec![UsageSums { jobs: 2, ..UsageSums::default() }; many];
    for (many, listed, unlisted) in [(0, 0, 0), (MOST_GROUPS, MOST_GROUPS, 0), (MOST_GROUPS + 3, MOST_GROUPS, 3)] {
        let (total, groups, others) = summed(of(many));
        assert_eq!((total.jobs, groups.len(), others), (2 * many as u64, listed, unlisted));
    }
}

#[tokio::test]
async fn the_report_is_for_admins_and_says_who_and_why() {
    let test = TestApp::new().await;
    let (ada, session) = begun(&test).await;
    for count in 0..720 {
        said(&test, &session, count, false).await;
    }
    test.app.efficiency.measure_some(10).await.unwrap();
    let wanted = |from, to, by| Wanted { from, to, by };
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let refused = test.app.efficiency.report(&ada, wanted(None, None, UsageBy::Person)).await;
    assert!(matches!(refused, Err(AppError::Forbidden { .. })), "{refused:?}");
    for by in [UsageBy::Person, UsageBy::Partition] {
        let report = test.app.efficiency.report(&root, wanted(None, None, by)).await.unwrap();
        let name = if by == UsageBy::Person { "ada" } else { "gpu" };
        assert_eq!((report.groups[0].name.as_str(), report.groups[0].jobs), (name, 1));
        assert_eq!((report.total.jobs, report.total.gpu), (1, report.groups[0].gpu));
        let waste: Vec<Waste> = report.examples.iter().map(|example| example.waste).collect();
        assert_eq!(waste, [Waste::Gpu, Waste::Memory, Waste::Cpu]);
        assert_eq!(report.examples[0].job.session.id, session.id);
    }
    let now = test.clock.now();
    let past = now - SignedDuration::from_hours(48);
    let before = test.app.efficiency.report(&root, wanted(None, Some(past), UsageBy::Person)).await.unwrap();
    assert_eq!((before.groups.len(), before.examples.len()), (0, 0));
    for (from, to) in [(now, past), (now, now), (now - SignedDuration::from_hours(24 * 400), now)] {
        let refused = test.app.efficiency.report(&root, wanted(Some(from), Some(to), UsageBy::Person)).await;
        assert!(matches!(refused, Err(AppError::Invalid(_))), "{refused:?}");
    }
}
