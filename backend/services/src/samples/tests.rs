use eirene_core::confinement::Held;
use eirene_core::{Resources, Role, SessionId};
use eirene_monitoring::{self as monitoring, Batch, Confinement, Group, MOST_BYTES, Metric, NodeName, Sample};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::chart::{self, EVERY_MS};
use super::ingest::{Refused, Sort};
use super::*;
use crate::cluster::Snapshot;
use crate::events::EventKind;
use crate::testing::TestApp;

/// What an agent says of a node.
fn said(node: &str, at: Timestamp, samples: &[(&str, f64)]) -> String {
    let sample = |(name, value): &(&str, f64)| Sample { series: name.parse().unwrap(), value: *value };
    let node = NodeName::try_from(node).unwrap();
    let samples = samples.iter().map(sample).collect();
    let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
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

#[tokio::test]
async fn the_store_has_the_memory_that_the_site_gives_it() {
    let test = TestApp::new().await;
    let Inner { db, clock, events, directory, .. } = &*test.app.samples.inner;
    let config = config::Samples { memory_mib: 16, ..config::Samples::default() };
    let samples = Samples::new(db.clone(), Arc::clone(clock), events.clone(), None, directory.clone(), &config);
    assert_eq!(samples.inner.options.memory_bytes, 16 << 20);
    assert_eq!(test.app.samples.inner.options.memory_bytes, 256 << 20);
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

    let ever = Wanted { from: Some(jiff::Timestamp::UNIX_EPOCH), ..Wanted::default() };
    let ever = test.app.samples.chart(&session, ever).await.unwrap();
    assert_eq!((ever.from_ms, ever.step_ms, ever.spans), (fine.from_ms, EVERY_MS, 120), "it was not there before");
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
async fn a_clock_that_is_wrong_is_known_until_it_is_right_and_of_the_sessions_nodes_alone() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let wrong = || -> Vec<(String, i64)> {
        let wrong = test.app.samples.wrong_clocks_of(session.id);
        wrong.into_iter().map(|clock| (clock.node, clock.ahead.as_mins())).collect()
    };
    let of = |node: &str, minutes: i64| {
        said(
            node,
            test.clock.now() + SignedDuration::from_mins(minutes),
            &[("cpu_seconds", 1.0), ("memory_bytes", 1e9)],
        )
    };
    assert_eq!(ingest.accept(&of("c2", 6)).await, Err(Refused::Time));
    assert!(wrong().is_empty(), "it has no such node");
    test.clock.advance_s(5);
    assert_eq!(ingest.accept(&of("c1", 6)).await, Err(Refused::Time));
    assert_eq!(wrong(), [("c1".to_owned(), 6)]);
    assert!(test.app.samples.wrong_clocks_of(SessionId::generate()).is_empty());
    assert_eq!(ingest.accept(&of("c1", 0)).await, Ok(2));
    assert!(wrong().is_empty(), "it was put right");

    // Set back by less than what is taken late: each of the samples is refused.
    assert_eq!(ingest.accept(&of("c1", -30)).await, Ok(0));
    assert_eq!(wrong(), [("c1".to_owned(), -30)]);
    let again = of("c1", 0);
    test.clock.advance_s(10);
    assert_eq!(ingest.accept(&of("c1", 0)).await, Ok(2));
    assert_eq!(ingest.accept(&again).await, Ok(0), "told twice");
    assert!(wrong().is_empty(), "which says nothing of the clock");

    assert_eq!(ingest.accept(&of("c1", -70)).await, Err(Refused::Time));
    assert_eq!(wrong(), [("c1".to_owned(), -70)]);
    test.clock.advance_s(200);
    assert!(wrong().is_empty(), "nobody tells it any more");
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
    assert_eq!(forger.accept(&text).await, Ok(0), "it has no nodes yet");
    test.app.sessions.change(other.id, |session| session.nodes = vec!["c2".parse().unwrap()]).await.unwrap();
    test.clock.advance_s(5);
    assert_eq!(forger.accept(&text).await, Err(Refused::Node), "and then another");
    test.app.sessions.change(other.id, |session| session.nodes = vec!["c1".parse().unwrap()]).await.unwrap();
    let mut forger = test.app.samples.ingest(other.id);
    assert_eq!(forger.accept(&text).await, Ok(1));
    assert!(test.app.samples.chart(&hers, Wanted::default()).await.unwrap().lines.is_empty());
    let nobody = test.app.samples.ingest(SessionId::generate()).accept(&text).await;
    assert_eq!(nobody, Err(Refused::Node));
}

#[tokio::test]
async fn what_an_agent_says_before_the_scheduler_has_told_its_nodes_is_kept_for_then() {
    let test = TestApp::new().await;
    let session = begun(&test, &[]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let start = session.started_at.unwrap();
    let at = |count| start + ms(EVERY_MS / 2 + count * EVERY_MS);
    for (count, value) in [(0, 0.0), (1, 2.0), (2, 5.0)] {
        assert_eq!(ingest.accept(&said("c1", at(count), &[("steps", value)])).await, Ok(0));
    }
    // What is false in it is left out alone.
    assert_eq!(ingest.accept(&said("c9", at(2), &[("steps", 100.0)])).await, Ok(0));
    test.app.sessions.change(session.id, |session| session.nodes = vec!["c1".parse().unwrap()]).await.unwrap();
    test.clock.advance_s(20);
    assert_eq!(ingest.accept(&said("c1", at(3), &[("steps", 9.0)])).await, Ok(4));
    let chart = test.app.samples.chart(&session, Wanted::default()).await.unwrap();
    assert_eq!(chart.lines.len(), 1);
    assert_eq!(line(&chart, Metric::Steps, "c1").total, Some(9.0), "from the first on");
}

#[tokio::test]
async fn no_more_is_kept_for_nodes_that_are_never_told_than_is_worth_it() {
    let test = TestApp::new().await;
    let session = begun(&test, &[]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let says = |count| said("c1", session.started_at.unwrap() + ms(count), &[("steps", count as f64)]);
    for count in 0..64 {
        assert_eq!(ingest.accept(&says(count)).await, Ok(0));
    }
    for count in 64..70 {
        assert_eq!(ingest.accept(&says(count)).await, Err(Refused::Node));
    }
    test.app.sessions.change(session.id, |session| session.nodes = vec!["c1".parse().unwrap()]).await.unwrap();
    test.clock.advance_s(5);
    assert_eq!(ingest.accept(&says(70)).await, Ok(65), "what came first is there");
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
    let ada = crate::actor::Actor {
        user: test.app.db.user(session.owner).await.unwrap().unwrap(),
        ..test.person("grace", 2002, Role::Researcher).await
    };
    let of = Some((eirene_core::JobKind::Session, session.id));
    let mut events = test.app.events.subscribe(&ada, of, None).await.unwrap();
    let text = said("c1", test.clock.now(), &[("memory_bytes", 7.0), ("report/loss", 0.5)]);
    test.app.samples.ingest(session.id).take(&text).await;
    let event = events.next().await.unwrap();
    assert_eq!((event.kind, event.id), (EventKind::Sample, None));
    assert_eq!(event.fact.small()["node"], "c1");
    assert_eq!(
        event.fact.small()["samples"],
        serde_json::json!({"memory_bytes": 7.0}),
        "totals only: the rest is asked for"
    );
}

proptest! {
    #[test]
    fn spans_are_whole_and_not_more_than_wished(length_ms in 0_i64..10_000_000_000, points in 1_u32..=2000, start in 0_i64..2_000_000_000_000) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), &Options::default()).unwrap();
        let span = chart::Span { from: start, to: start + length_ms };
        let (history, parts) = (BuiltIn(Arc::new(store)), chart::parts(Some(Group::Cpu)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let drawing = chart::draw(&history, SessionId::generate(), span, &parts, Some(points));
        let chart = runtime.block_on(drawing).unwrap();
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
    let most = Sort::Processes.most(1);
    let names: Vec<_> = (0..most + 10).map(|pid| format!("cpu_process/{pid}:cc")).collect();
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
    assert_eq!(expected, most + 1, "{taken:?}");
    // An agent that comes again has no other right; what it has told of before goes on.
    let mut second = test.app.samples.ingest(session.id);
    let mut again = 0;
    for text in all(now + ms(EVERY_MS)) {
        again += second.accept(&text).await.unwrap();
    }
    assert_eq!(again, expected);
    assert_eq!(test.app.samples.left_out(&session).await, [LeftOut::Full(Sort::Processes)]);
}

#[tokio::test]
async fn a_session_that_began_anew_on_more_nodes_has_their_room() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let cores: Vec<String> = (0..Sort::Cores.most(1) + 100).map(|core| format!("node_cpu_core/{core}")).collect();
    let mut says = async |node: &str| {
        let mut taken = 0;
        for cores in cores.chunks(200) {
            let samples: Vec<_> = cores.iter().map(|name| (name.as_str(), 1.0)).collect();
            taken += ingest.accept(&said(node, test.clock.now(), &samples)).await.unwrap();
        }
        taken
    };
    assert_eq!(says("c1").await, Sort::Cores.most(1));
    let nodes: Vec<_> = (1..=6).map(|node| format!("n{node}").parse().unwrap()).collect();
    test.app.sessions.change(session.id, |session| session.nodes.clone_from(&nodes)).await.unwrap();
    test.clock.advance_s(5);
    assert_eq!(says("n1").await, Sort::Cores.most(6) - Sort::Cores.most(1), "beside what it has told of before");
    assert_eq!(says("n2").await, 0);
}

#[tokio::test]
async fn a_large_session_has_room_for_its_gpus_and_reports_whatever_comes_before() {
    let test = TestApp::new().await;
    let nodes: Vec<String> = (1..=33).map(|node| format!("n{node}")).collect();
    let session = begun(&test, &nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let now = session.started_at.unwrap();
    // Cores and processes first, more than there is room for, and more interfaces than any node should have.
    let cores = (0..256).map(|core| format!("node_cpu_core/{core}"));
    let processes = (0..256).map(|pid| format!("cpu_process/{pid}:cc"));
    let interfaces = (0..256).map(|number| format!("net_receive_bytes/veth{number}"));
    let single: Vec<String> = cores.chain(processes).chain(interfaces).collect();
    let own = Metric::ALL.iter().filter(|metric| metric.stands_alone()).map(|metric| metric.name().to_owned());
    let of_gpu = Metric::ALL.iter().filter(|metric| metric.group() == Group::Gpu);
    let of_gpus = of_gpu.flat_map(|metric| (0..8).map(move |gpu| format!("{}/{gpu}", metric.name())));
    let reports = (0..64).map(|number| format!("report/{}{}", "a".repeat(1 + number / 16), "b".repeat(number % 16)));
    let rest: Vec<String> = own.chain(of_gpus).chain(reports).collect();
    assert_eq!(rest.len(), 20 + 12 * 8 + 64, "what the bounds are made of");
    let mut taken = [0, 0];
    for (place, series) in [&single, &rest].into_iter().enumerate() {
        for node in &nodes {
            for part in series.chunks(100) {
                let samples: Vec<_> = part.iter().map(|name| (name.as_str(), 1.0)).collect();
                taken[place] += ingest.accept(&said(node, now, &samples)).await.unwrap();
            }
        }
    }
    assert_eq!(taken, [4096 + 1024 + 33 * 64, 33 * rest.len()]);
    let told = test.app.samples.left_out(&session).await;
    let full = [Sort::Devices, Sort::Cores, Sort::Processes].map(LeftOut::Full);
    assert_eq!(told, [full[0], full[1], LeftOut::OfManyNodes, full[2]]);
    test.clock.advance_s(60);
    let wanted = Wanted { group: Some(Group::Gpu), points: Some(1), ..Wanted::default() };
    let lines = test.app.samples.chart(&session, wanted).await.unwrap().lines;
    // Of what only rises, which are two figures of a GPU, a line begins with the second sample.
    assert_eq!(lines.len(), 33 * 8 * 10);
}

#[tokio::test]
async fn what_charts_do_not_have_of_many_nodes_and_of_gpus_that_nobody_tells_of_is_said() {
    let test = TestApp::new().await;
    let nodes: Vec<String> = (1..=17).map(|node| format!("n{node}")).collect();
    let mut session = begun(&test, &nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    session.resources.gpus = 2;
    test.clock.advance_s(60);
    assert!(test.app.samples.left_out(&session).await.is_empty(), "nothing has come of it at all");
    let mut ingest = test.app.samples.ingest(session.id);
    ingest.accept(&said("n1", test.clock.now(), &[("cpu_seconds", 1.0)])).await.unwrap();
    assert_eq!(test.app.samples.left_out(&session).await, [LeftOut::OfManyNodes], "its GPUs may yet be told of");
    test.clock.advance_s(60);
    assert_eq!(test.app.samples.left_out(&session).await, [LeftOut::Gpus, LeftOut::OfManyNodes]);
    let without = Session { resources: Resources { gpus: 0, ..session.resources.clone() }, ..session.clone() };
    assert_eq!(test.app.samples.left_out(&without).await, [LeftOut::OfManyNodes], "it has none");
    ingest.accept(&said("n1", test.clock.now(), &[("gpu_up/0", 1.0)])).await.unwrap();
    assert_eq!(test.app.samples.left_out(&session).await, [LeftOut::OfManyNodes]);
    // Each node keeps to its part, 4096 / 17 cores, and tells no more.
    let cores: Vec<String> = (0..4096 / 17).map(|core| format!("node_cpu_core/{core}")).collect();
    let cores: Vec<_> = cores.iter().map(|name| (name.as_str(), 1.0)).collect();
    for node in &nodes {
        assert_eq!(ingest.accept(&said(node, test.clock.now(), &cores)).await, Ok(cores.len()));
    }
    let told = test.app.samples.left_out(&session).await;
    assert_eq!(told, [LeftOut::Full(Sort::Cores), LeftOut::OfManyNodes]);
}

#[test]
fn sixty_four_nodes_of_eight_gpus_have_room_and_the_store_has_it_for_all_sorts() {
    let own = Metric::ALL.iter().filter(|metric| metric.stands_alone()).count();
    let of_gpu = Metric::ALL.iter().filter(|metric| metric.group() == Group::Gpu).count();
    for nodes in 1..=64 {
        assert!(Sort::Nodes.most(nodes) >= nodes * (own + 8 * of_gpu + 64), "{nodes}");
    }
    let sorts = [Sort::Nodes, Sort::Devices, Sort::Cores, Sort::Processes];
    assert_eq!(sorts.map(|sort| sort.most(1000)).iter().sum::<usize>(), ingest::MOST_SERIES);
    assert_eq!(sorts.map(|sort| sort.most(1)), [1024; 4], "a small session takes no room from others");
}

#[test]
fn of_nothing_there_is_none_and_not_less() {
    for figure in Figure::ALL {
        let none = figure.of(&Snapshot::default());
        assert!(none == 0.0 && none.is_sign_positive(), "{figure:?}: {none}");
    }
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
        let look = Snapshot { reachable, asked_at: Some(test.clock.now()), ..(*seen).clone() };
        test.app.samples.note_cluster(&look).await.unwrap();
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
        let batch = Batch { node, at: test.clock.now(), confinement, held: None, samples: Vec::new() };
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

#[tokio::test]
async fn what_groups_hold_a_job_to_is_written_down_as_it_changes_and_who_cannot_tell_undoes_nothing_for_a_day() {
    let test = TestApp::new().await;
    let session = begun(&test, &["c1"]).await;
    let mut ingest = test.app.samples.ingest(session.id);
    let (yes, no) = (Some(true), Some(false));
    let mut says = async |confinement, held: Option<(Option<bool>, Option<bool>)>| {
        test.clock.advance_s(600);
        let node = NodeName::try_from("c1").unwrap();
        let held = held.map(|(memory, cpus)| monitoring::Held { memory, cpus });
        let batch = Batch { node, at: test.clock.now(), confinement, held, samples: Vec::new() };
        ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
        let written = test.app.db.confined_nodes().await.unwrap().remove(0);
        (written.held.memory, written.held.cpus)
    };
    assert_eq!(says(Confinement::CgroupV2, None).await, (None, None), "an older agent, and nobody before it");
    assert_eq!(says(Confinement::CgroupV2, Some((yes, no))).await, (yes, no));
    assert_eq!(says(Confinement::CgroupV2, Some((yes, yes))).await, (yes, yes));
    assert_eq!(says(Confinement::CgroupV2, None).await, (yes, yes));
    assert_eq!(says(Confinement::CgroupV2, Some((no, None))).await, (no, yes), "each by itself");
    assert_eq!(says(Confinement::CgroupV2, Some((None, no))).await, (no, no));
    // For a day the memory is told again and again, the CPUs are not.
    for _ in 0..143 {
        assert_eq!(says(Confinement::CgroupV2, Some((no, None))).await, (no, no));
    }
    assert_eq!(says(Confinement::CgroupV2, Some((no, None))).await, (no, None));
    assert_eq!(says(Confinement::CgroupV1, None).await, (None, None), "of other groups nobody has told anything");
    assert_eq!(says(Confinement::None, None).await, (no, no));
}

#[tokio::test]
async fn agents_of_two_versions_on_a_node_do_not_take_turns_also_after_a_start_of_the_portal() {
    let test = TestApp::new().await;
    let held = Held { memory: Some(true), cpus: Some(false) };
    let batch = |held: Option<Held>| {
        let held = held.map(|Held { memory, cpus }| monitoring::Held { memory, cpus });
        let (node, confinement) = (NodeName::try_from("c1").unwrap(), Confinement::CgroupV2);
        Batch { node, at: test.clock.now(), confinement, held, samples: Vec::new() }
    };
    let written = async || {
        let node = test.app.db.confined_nodes().await.unwrap().remove(0);
        (node.held, node.at)
    };
    let confined = Confined::default();
    confined.note(&test.app.db, &batch(Some(held)), test.clock.now()).await;
    let first = (held, test.clock.now());
    // Two days, hour by hour: it is written again once a day, and stays as it is.
    for hour in 1..48 {
        test.clock.advance_s(3600);
        for held in [None, Some(held)] {
            confined.note(&test.app.db, &batch(held), test.clock.now()).await;
        }
        assert_eq!(written().await.0, held, "{hour}");
        assert_eq!(written().await == first, hour < 24, "{hour}");
    }
    let anew = Confined::default();
    anew.note(&test.app.db, &batch(None), test.clock.now()).await;
    assert_eq!(written().await.0, held);
    test.clock.advance_s(3600);
    anew.note(&test.app.db, &batch(None), test.clock.now()).await;
    assert_eq!(written().await, (Held::default(), test.clock.now()));
}
