//! From samples to sums and advice.

use eirene_core::job_usage::HeldUsed;
use eirene_core::{Resources, Role};
use eirene_monitoring::{Batch, Confinement, NodeName, Sample};

use super::advice::About;
use super::*;
use crate::services::sessions::StartSession;
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
        let samples =
            samples.into_iter().map(|(name, value)| Sample { series: name.parse().unwrap(), value }).collect();
        let node = NodeName::try_from(node).unwrap();
        let batch = Batch { node, at, confinement: Confinement::CgroupV2, samples };
        ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
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

#[tokio::test]
async fn gpus_are_not_taken_for_empty_where_nobody_tells_who_is_on_them() {
    let test = TestApp::new().await;
    let (_, session) = begun(&test).await;
    let mut ingest = test.app.samples.ingest(session.id);
    for count in 0..720 {
        let at = session.started_at.unwrap() + SignedDuration::from_millis(2500 + 5000 * count);
        test.clock.advance_s(5);
        // As AMD's GPUs tell it, and as any did before: what computes, and nothing of processes.
        let samples = vec![Sample { series: "gpu_util/amd0".parse().unwrap(), value: 0.0 }];
        let node = NodeName::try_from("c1").unwrap();
        let batch = Batch { node, at, confinement: Confinement::CgroupV2, samples };
        ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
    }
    let usage = test.app.efficiency.of(&session).await.unwrap().unwrap();
    assert_eq!((usage.gpu.known_s, usage.gpu.idle_s, usage.gpu.empty_s), (3600, 3600, 0));
    let about: Vec<About> = advice(&usage, &session.resources).iter().map(|advice| advice.about).collect();
    assert_eq!(about, [About::IdleGpus]);
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
