use eirene_core::{Role, SessionId};
use eirene_monitoring::{Batch, Confinement, Group, MOST_BYTES, Metric, NodeName, Sample};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::chart::{self, EVERY_MS};
use super::ingest::Refused;
use super::*;
use crate::services::cluster::Snapshot;
use crate::services::events::EventKind;
use crate::testing::TestApp;

/// What an agent says of a node.
fn said(node: &str, at: Timestamp, samples: &[(&str, f64)]) -> String {
    let sample = |(name, value): &(&str, f64)| Sample { series: name.parse().unwrap(), value: *value };
    let node = NodeName::try_from(node).unwrap();
    let samples = samples.iter().map(sample).collect();
    let batch = Batch { node, at, confinement: Confinement::CgroupV2, samples };
    String::from_utf8(batch.write().remove(0)).unwrap()
}

/// A session on these nodes that began now, and a store.
async fn begun(test: &TestApp, nodes: &[&str]) -> Session {
    test.app.samples.open().unwrap();
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let now = test.clock.now();
    let nodes: Vec<_> = nodes.iter().map(|name| name.parse().unwrap()).collect();
    let change = |session: &mut Session| {
        session.nodes.clone_from(&nodes);
        session.started_at = Some(now);
    };
    test.app.sessions.change(session.id, change).await.unwrap().unwrap()
}

fn ms(length: i64) -> SignedDuration {
    SignedDuration::from_millis(length)
}

fn line<'a>(chart: &'a Chart, metric: Metric, node: &str) -> &'a Line {
    chart.lines.iter().find(|line| line.metric == metric && line.node == node).unwrap()
}

#[tokio::test]
async fn lines_are_means_and_rises_per_second() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1", "c2"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let start = session.started_at.unwrap();
    for count in 0..120 {
        let at = start + ms(EVERY_MS / 2 + count * EVERY_MS);
        test.clock.advance_s(5);
        let seconds = 2.0 + 0.5 * 5.0 * count as f64;
        let memory = if count == 60 { 9e9 } else { 1e9 };
        let of_c1 = said("c1", at, &[("cpu_seconds", seconds), ("memory_bytes", memory), ("report/loss", -0.25)]);
        assert_eq!(ingest.accept(&of_c1).await, Ok(3));
        assert_eq!(ingest.accept(&said("c2", at, &[("cpu_seconds", 4.0 * seconds)])).await, Ok(1));
    }
    let fine = test.app.samples.chart(&session, Wanted::default()).await.unwrap();
    assert_eq!((fine.step_ms, fine.spans), (EVERY_MS, 120));
    assert_eq!(fine.from_ms, start.as_millisecond());
    let cpu = line(&fine, Metric::Cpu, "c1");
    assert_eq!(cpu.values[0], None, "of the first nobody knows how much was before");
    assert!(cpu.values[1..].iter().all(|value| *value == Some(0.5)), "{:?}", cpu.values);
    assert_eq!(cpu.total, Some(0.5 * 5.0 * 119.0));
    assert!(line(&fine, Metric::Cpu, "c2").values[1..].iter().all(|value| *value == Some(2.0)));
    let memory = line(&fine, Metric::Memory, "c1");
    assert_eq!((memory.values[60], memory.values[61], memory.highest), (Some(9e9), Some(1e9), Some(9e9)));
    assert_eq!(memory.most, None, "each span has one sample");

    let wanted = Wanted { points: Some(10), group: Some(Group::Memory), ..Wanted::default() };
    let coarse = test.app.samples.chart(&session, wanted).await.unwrap();
    assert_eq!((coarse.step_ms, coarse.lines.len()), (60_000, 1));
    let memory = &coarse.lines[0];
    let high = memory.most.as_ref().unwrap().iter().flatten().filter(|value| **value > 8e9).count();
    assert_eq!(high, 1, "a short rise is not lost in a mean");
    assert_eq!(memory.highest, Some(9e9));

    let from = start + ms(300_000);
    let part = Wanted { from: Some(from), to: Some(from + ms(60_000)), group: Some(Group::Cpu), points: None };
    let part = test.app.samples.chart(&session, part).await.unwrap();
    assert_eq!((part.spans, part.from_ms), (12, from.as_millisecond()));
    let cpu = line(&part, Metric::Cpu, "c1");
    assert_eq!((cpu.values[0], cpu.total), (Some(0.5), Some(30.0)), "what was before it is known");
}

#[tokio::test]
async fn what_an_agent_cannot_mean_is_refused_as_a_whole() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let now = test.clock.now();
    let good = said("c1", now, &[("cpu_seconds", 1.0)]);
    for (text, refused) in [
        (said("c2", now, &[("cpu_seconds", 1.0)]), Refused::Node),
        (said("c1", now - ms(3_700_000), &[("cpu_seconds", 1.0)]), Refused::Time),
        (said("c1", now + ms(400_000), &[("cpu_seconds", 1.0)]), Refused::Time),
        (good.replace("1.0", "-1.0"), Refused::NotUnderstood),
        (good.replace("1.0", "1e300"), Refused::NotUnderstood),
        (good.replace("1.0", "NaN"), Refused::NotUnderstood),
        (good.replace("cpu_seconds", "cpu_dances"), Refused::NotUnderstood),
        ("garbage".to_owned(), Refused::NotUnderstood),
        (" ".repeat(MOST_BYTES + 1), Refused::TooLong),
    ] {
        assert_eq!(ingest.accept(&text).await, Err(refused), "{}", text.get(..80).unwrap_or(&text));
    }
    let chart = test.app.samples.chart(&session, Wanted::default()).await.unwrap();
    assert!(chart.lines.is_empty());
    assert_eq!(ingest.accept(&good).await, Ok(1));
    assert_eq!(ingest.accept(&good).await, Ok(0), "said twice counts once");
}

#[tokio::test]
async fn an_agent_speaks_of_its_own_session_alone() {
    let test = TestApp::new().await;
    let hers = begun(&test, &["c1"]).await;
    let grace = test.person("grace", 2002, Role::Researcher).await;
    let (other, _) = test.app.sessions.start(&grace, TestApp::wish(), None).await.unwrap();
    // The same node, as with jobs that share it, and another session's connection.
    let mut forger = test.app.samples.ingest(other.id);
    let text = said("c1", test.clock.now(), &[("cpu_seconds", 1.0)]);
    assert_eq!(forger.accept(&text).await, Err(Refused::Node), "it has no nodes yet");
    test.app.sessions.change(other.id, |session| session.nodes = vec!["c1".parse().unwrap()]).await.unwrap();
    let mut forger = test.app.samples.ingest(other.id);
    assert_eq!(forger.accept(&text).await, Ok(1));
    assert!(test.app.samples.chart(&hers, Wanted::default()).await.unwrap().lines.is_empty());
    let nobody = test.app.samples.ingest(SessionId::generate()).accept(&text).await;
    assert_eq!(nobody, Err(Refused::Node));
}

#[tokio::test]
async fn a_counter_that_begins_anew_is_no_fall() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let start = session.started_at.unwrap();
    for (count, value) in [(0, 100.0), (1, 105.0), (2, 1.0), (3, 6.0), (6, 21.0)] {
        let at = start + ms(EVERY_MS / 2 + count * EVERY_MS);
        ingest.accept(&said("c1", at, &[("cpu_seconds", value)])).await.unwrap();
    }
    test.clock.advance_s(35);
    let chart = test.app.samples.chart(&session, Wanted::default()).await.unwrap();
    let cpu = line(&chart, Metric::Cpu, "c1");
    assert_eq!(cpu.values, [None, Some(1.0), None, Some(1.0), None, None, Some(1.0)]);
    assert_eq!(cpu.total, Some(25.0));
}

#[tokio::test]
async fn what_was_written_is_there_again_and_the_portal_does_without_a_store() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let samples = &test.app.samples;
    let text = said("c1", test.clock.now(), &[("memory_bytes", 1.0)]);
    samples.ingest(session.id).accept(&text).await.unwrap();
    test.clock.advance_s(5);
    // Ends at once, and writes before that.
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    assert!(samples.are_kept());
    samples.clone().keep(shutdown.clone()).await;
    assert!(!samples.are_kept());
    let away = samples.chart(&session, Wanted::default()).await;
    assert!(matches!(away, Err(AppError::Unavailable { .. })));
    assert_eq!(samples.ingest(session.id).accept(&text).await, Err(Refused::Away));

    let directory = test.directory.path().join("samples");
    let other = Store::open(&directory, &Options::default()).unwrap();
    assert!(samples.open().is_err(), "somebody else has it");
    drop(other);
    samples.open().unwrap();
    let chart = samples.chart(&session, Wanted::default()).await.unwrap();
    assert_eq!(line(&chart, Metric::Memory, "c1").highest, Some(1.0));
}

#[tokio::test]
async fn who_looks_at_a_session_is_told_its_samples() {
    use futures_util::StreamExt as _;
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let ada = crate::services::actor::Actor {
        user: test.app.db.user(session.owner).await.unwrap().unwrap(),
        ..test.person("grace", 2002, Role::Researcher).await
    };
    let of = Some((eirene_core::JobKind::Session, session.id));
    let mut events = test.app.events.subscribe(&ada, of, None).await.unwrap();
    let text = said("c1", test.clock.now(), &[("memory_bytes", 7.0), ("report/loss", 0.5)]);
    test.app.samples.ingest(session.id).take(&text).await;
    let event = events.next().await.unwrap();
    assert_eq!((event.kind, event.id), (EventKind::Sample, None));
    assert_eq!(event.data["node"], "c1");
    assert_eq!(event.data["samples"], serde_json::json!({"memory_bytes": 7.0}), "totals only: the rest is asked for");
}

proptest! {
    #[test]
    fn spans_are_whole_and_not_more_than_wished(length_ms in 0_i64..10_000_000_000, points in 1_u32..=2000, start in 0_i64..2_000_000_000_000) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), &Options::default()).unwrap();
        let span = chart::Span { from: start, to: start + length_ms };
        let (id, prefixes) = (ingest::store_id(SessionId::generate()), chart::prefixes(Some(Group::Cpu)));
        let chart = chart::draw(&store, id, span, &prefixes, Some(points)).unwrap();
        prop_assert_eq!(chart.step_ms % EVERY_MS, 0);
        prop_assert_eq!(chart.from_ms % chart.step_ms, 0);
        prop_assert!(chart.spans <= points as usize + 1, "{} of {points}", chart.spans);
        let end = chart.from_ms + chart.step_ms * i64::try_from(chart.spans).unwrap();
        prop_assert!(chart.from_ms <= start && end >= span.to, "all of it");
    }
}

#[tokio::test]
async fn processes_that_come_and_go_leave_room_for_the_rest() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let now = session.started_at.unwrap();
    let names: Vec<_> = (0..ingest::MOST_PROCESS_SERIES + 10).map(|pid| format!("cpu_process/{pid}:cc")).collect();
    let all = |at| {
        names.chunks(200).map(move |names| {
            let mut samples: Vec<_> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
            samples.push(("cpu_seconds", 1.0));
            said("c1", at, &samples)
        })
    };
    let mut taken = Vec::new();
    let mut first = test.app.samples.ingest(session.id);
    for text in all(now) {
        taken.push(first.accept(&text).await.unwrap());
    }
    let expected: usize = taken.iter().sum();
    assert_eq!(expected, ingest::MOST_PROCESS_SERIES + 1, "{taken:?}");
    // An agent that comes again has no other right; what it has told of before goes on.
    let mut second = test.app.samples.ingest(session.id);
    let mut again = 0;
    for text in all(now + ms(EVERY_MS)) {
        again += second.accept(&text).await.unwrap();
    }
    assert_eq!(again, expected);
}

#[tokio::test]
async fn the_clusters_past_is_kept_and_what_nobody_saw_is_a_gap() {
    let test = TestApp::new().await;
    let day = SignedDuration::from_hours(24);
    let away = test.app.samples.cluster_past(day, 96).await;
    assert!(matches!(away, Err(AppError::Unavailable { .. })), "{away:?}");
    test.app.samples.open().unwrap();
    let empty = test.app.samples.cluster_past(day, 96).await.unwrap();
    assert_eq!((empty.step_ms, empty.spans), (900_000, 96));
    assert!(empty.values(Figure::JobsRunning).iter().all(Option::is_none));
    let seen = test.app.cluster.snapshot();
    let nodes: u32 = seen.nodes.iter().flat_map(|node| &node.gpus).map(|gpus| gpus.total).sum();
    for minute in 0..60 {
        // For a quarter of an hour the scheduler does not answer.
        let reachable = !(15..30).contains(&minute);
        test.app.samples.note_cluster(&Snapshot { reachable, asked_at: Some(test.clock.now()), ..(*seen).clone() });
        test.clock.advance_s(60);
    }
    let past = test.app.samples.cluster_past(SignedDuration::from_hours(1), 60).await.unwrap();
    assert_eq!((past.step_ms, past.spans), (60_000, 60));
    let total = past.values(Figure::GpusTotal);
    let known = total.iter().flatten().count();
    assert!((44..=45).contains(&known), "{total:?}");
    assert!(total.iter().all(|value| value.is_none() || *value == Some(f64::from(nodes))), "{total:?}");
    assert_eq!(past.values(Figure::JobsWaiting).iter().flatten().count(), known);
}

#[tokio::test]
async fn what_confines_a_node_is_written_down_when_it_changes_and_once_a_day() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let mut says = async |node: &str, confinement| {
        let node = NodeName::try_from(node).unwrap();
        let batch = Batch { node, at: test.clock.now(), confinement, samples: Vec::new() };
        ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
        let written = test.app.db.confined_nodes().await.unwrap();
        written.into_iter().map(|node| (node.node.to_string(), node.by.as_str(), node.at)).collect::<Vec<_>>()
    };
    let first = test.clock.now();
    let written = |by, at| [("c1".to_owned(), by, at)];
    assert_eq!(says("c1", Confinement::CgroupV2).await, written("cgroup_v2", first));
    assert_eq!(says("c2", Confinement::None).await, written("cgroup_v2", first), "it is no node of the session");
    test.clock.advance_s(5);
    assert_eq!(says("c1", Confinement::CgroupV2).await, written("cgroup_v2", first), "nothing is new");
    assert_eq!(says("c1", Confinement::None).await, written("cgroup_v2", first), "agents may contradict each other");
    test.clock.advance_s(600);
    let changed = test.clock.now();
    assert_eq!(says("c1", Confinement::None).await, written("none", changed));
    test.clock.advance_s(24 * 3600 - 1);
    assert_eq!(says("c1", Confinement::None).await, written("none", changed));
    test.clock.advance_s(1);
    assert_eq!(says("c1", Confinement::None).await, written("none", test.clock.now()));
}
