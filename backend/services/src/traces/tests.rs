//! What a collector gets of a start, and that nothing else happens when it gets nothing.

use std::sync::Arc;
use std::time::Duration;

use eirene_core::scheduler::JobIdentity;
use eirene_core::{Session, SessionState};
use eirene_tunnel::message::AgentWork;
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::firsts::MOST_AWAITED;
use super::testing::{Collector, config, sent, traces};
use super::*;
use crate::testing::{program, session, start_time};

const NOTHING: Firsts = Firsts { response: false, kernel: false };
const BROWSER: Firsts = Firsts { response: true, kernel: false };
const KERNEL: Firsts = Firsts { response: false, kernel: true };
const ANY: Firsts = Firsts { response: true, kernel: true };

fn answered<'a>(request: &'a str, route: &'a str, status: u16) -> Answered<'a> {
    let begins = start_time();
    Answered {
        request,
        method: "POST",
        route,
        session: None,
        status: StatusCode::from_u16(status).unwrap(),
        begins,
        ends: begins + SignedDuration::from_millis(20),
    }
}

fn request() -> String {
    Uuid::now_v7().simple().to_string()
}

/// Goes from the click to a kernel, as services change a session and the proxy passes requests; its agent tells of itself.
fn starts(traces: &Traces, asked: &Session, request: &str) {
    let at = |seconds: i64| start_time() + SignedDuration::from_secs(seconds);
    traces.began(Some(request), asked.id);
    traces.answered(&answered(request, "/api/v1/sessions", 201));
    traces.launcher_did(asked.id, "write_job_file", at(0), at(1));
    let submitted = Session {
        job: Some(JobIdentity { cluster: "demo".into(), id: 7, submitted_at: at(1) }),
        submit_begun_at: Some(at(1)),
        ..asked.clone()
    };
    traces.changed(asked, &submitted, at(2));
    let starting = Session { state: SessionState::Starting, started_at: Some(at(10)), ..submitted.clone() };
    traces.changed(&submitted, &starting, at(11));
    let ms = |seconds| at(seconds).as_millisecond();
    let told = [(AgentWork::Prepare, 10, 11), (AgentWork::Dial, 11, 12), (AgentWork::App, 11, 15)];
    let told = told.map(|(work, from, to)| AgentSpan { work, from_ms: ms(from), to_ms: ms(to) });
    traces.told(asked.id, &told, at(15));
    let running = Session { state: SessionState::Running, ..starting.clone() };
    traces.changed(&starting, &running, at(15));
    traces.came(asked.id, traces.awaits(asked.id, BROWSER), at(20), at(21));
    traces.came(asked.id, traces.awaits(asked.id, KERNEL), at(22), at(24));
}

/// Its app answers, `restart_count` times put back into the queue before.
fn begins_to_run(traces: &Traces, session: &Session, restart_count: u32) -> Session {
    let starting = Session { state: SessionState::Starting, restart_count, ..session.clone() };
    let running = Session { state: SessionState::Running, ..starting.clone() };
    traces.changed(&starting, &running, start_time());
    running
}

#[tokio::test]
async fn a_start_is_one_trace_from_the_click_to_a_kernel_across_portal_and_agent() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let (asked, id) = (session("ada"), request());
    starts(&traces, &asked, &id);
    sent(exporter).await;
    let spans = collector.spans();
    let context = traces.context(asked.id).unwrap().to_string();
    let root = context.split('-').nth(2).unwrap().to_owned();
    assert!(spans.iter().all(|(_, span)| span["traceId"] == asked.id.to_string()), "{spans:?}");
    let told: Vec<_> = spans
        .iter()
        .map(|(service, span)| (service.as_str(), span["name"].as_str().unwrap(), span["kind"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("eirened", "POST /api/v1/sessions", 2),
        ("eirened", "launcher.write_job_file", 1),
        ("eirened", "session.submit", 1),
        ("eirened", "session.queued", 1),
        ("eirened", "session.starting", 1),
        ("eirened", "session.start", 1),
        ("eirened", "proxy.first_response", 1),
        ("eirened", "kernel.start", 1),
        ("eirene-agent", "agent.prepare", 1),
        ("eirene-agent", "agent.dial", 1),
        ("eirene-agent", "agent.app", 1),
    ];
    assert_eq!(told, expected);
    for (_, span) in &spans {
        let is_root = span["name"] == "session.start";
        assert_eq!(span.get("parentSpanId").and_then(Value::as_str), (!is_root).then_some(root.as_str()), "{span}");
        assert!(!is_root || span["spanId"] == root.as_str());
        let nanoseconds = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanoseconds("startTimeUnixNano") <= nanoseconds("endTimeUnixNano"));
        assert!(span.get("status").is_none());
    }
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|(_, span)| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len());
}

#[tokio::test]
async fn how_sending_goes_is_known_and_a_collector_is_asked_without_a_span() {
    assert_eq!(Traces::default().sending(), None);
    for (status, is_taken) in [(StatusCode::OK, true), (StatusCode::UNAUTHORIZED, false)] {
        let collector = Collector::serve(status, "{}").await;
        let (traces, exporter) = traces(&config(&collector.url));
        assert_eq!(exporter.reach().await.is_ok(), is_taken, "{status}");
        assert_eq!(collector.bodies(), [serde_json::json!({"resourceSpans": []})]);
        assert_eq!(traces.sending(), Some(Ok(())), "nothing was to be sent so far");
        traces.answered(&answered(&request(), "/sessions/{id}", 200));
        let over = CancellationToken::new();
        let running = exporter.run(over.clone());
        let watches = async {
            let as_told = || traces.sending().is_some_and(|state| state.is_ok()) == is_taken;
            while collector.spans().is_empty() || !as_told() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            over.cancel();
        };
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(running, watches) }).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_of_anybody_is_in_a_span() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let asked = Session { name: "my secret thesis".parse().unwrap(), ..session("grace") };
    starts(&traces, &asked, &request());
    sent(exporter).await;
    let all = collector.bodies().iter().map(ToString::to_string).collect::<String>();
    for personal in ["grace", "secret thesis", "/images/", &asked.owner.to_string()] {
        assert!(!all.contains(personal), "{personal}: {all}");
    }
    let known = [
        "service.name",
        "http.request.method",
        "http.route",
        "http.response.status_code",
        "eirene.request.id",
        "eirene.session.id",
        "eirene.app",
        "eirene.nodes",
        "eirene.gpus",
        "slurm.job.id",
        "eirene.reason",
    ];
    let keys = all.split("\"key\":\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    assert!(keys.into_iter().all(|key| known.contains(&key)), "{all}");
}

#[tokio::test]
async fn a_request_of_its_own_is_a_trace_by_its_id_and_what_nobody_waits_for_is_none() {
    let collector = Collector::serve(StatusCode::OK, "").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let id = request();
    traces.answered(&answered(&id, "/sessions/{id}", 503));
    for route in ["/healthz", "/readyz", "/metrics", "/metrics/sessions/{id}", "/static/{*path}", ""] {
        traces.answered(&answered(&request(), route, 200));
    }
    traces.answered(&answered("no id", "/sessions/{id}", 200));
    sent(exporter).await;
    let spans = collector.spans();
    let [(_, span)] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&span["traceId"], &span["status"]["code"]), (&Value::from(id.as_str()), &Value::from(2)));
    assert!(span.get("parentSpanId").is_none());
}

#[tokio::test]
async fn a_start_that_comes_to_nothing_ends_with_its_reason_and_a_second_start_is_not_told() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let asked = session("ada");
    let reason = crate::sessions::reasons::submit_failed();
    let code = reason.code.clone();
    let failed = Session { state: SessionState::Failed, reason: Some(reason), ..asked.clone() };
    traces.changed(&asked, &failed, start_time() + SignedDuration::from_secs(3));
    let again = Session { restart_count: 1, ..asked.clone() };
    traces.changed(&again, &Session { state: SessionState::Starting, ..again.clone() }, start_time());
    sent(exporter).await;
    let spans = collector.spans();
    let [(_, span)] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&span["name"], &span["status"]["code"]), (&Value::from("session.start"), &Value::from(2)));
    assert!(span["attributes"].to_string().contains(&code));
}

#[tokio::test]
async fn all_that_waits_in_the_end_is_sent_though_it_is_more_than_one_request_takes() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    for _ in 0..1000 {
        traces.answered(&answered(&request(), "/sessions/{id}", 200));
    }
    sent(exporter).await;
    assert_eq!((collector.spans().len(), collector.bodies().len()), (1000, 2));
}

#[test]
fn requests_whose_clients_are_gone_make_room_for_others() {
    let (mut begun, now, id) = (Begun::default(), Instant::now(), SessionId::generate());
    for number in 0..MOST_BEGUN {
        begun.add(&number.to_string(), SessionId::generate(), now);
    }
    begun.add("next", id, now + Duration::from_secs(30));
    assert_eq!(begun.take("next"), None, "those may still be answered");
    begun.add("later", id, now + Duration::from_secs(61));
    assert_eq!((begun.take("later"), begun.take("later"), begun.take("0")), (Some(id), None, None));
}

#[tokio::test]
async fn an_agent_tells_few_spans_with_times_that_can_be() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let (id, now) = (SessionId::generate(), start_time());
    let ms = now.as_millisecond();
    let span = |work, from_ms, to_ms| AgentSpan { work, from_ms, to_ms };
    let day = 24 * 3_600_000;
    let wrong = [
        span(AgentWork::App, ms, ms - 1),
        span(AgentWork::App, ms - day - 1, ms),
        span(AgentWork::App, ms, ms + 301_000),
        span(AgentWork::App, i64::MIN, i64::MAX),
        span(AgentWork::Unknown, ms, ms),
    ];
    traces.told(id, &wrong, now);
    traces.told(id, &vec![span(AgentWork::Dial, ms - 1, ms); 1000], now);
    sent(exporter).await;
    let spans = collector.spans();
    assert_eq!(spans.len(), MOST_AGENT_SPANS);
    assert!(spans.iter().all(|(service, span)| service == "eirene-agent" && span["name"] == "agent.dial"));
}

#[tokio::test]
async fn what_comes_first_is_told_once_however_many_see_it_and_whenever() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let asked = session("ada");
    let at = |seconds: i64| start_time() + SignedDuration::from_secs(seconds);
    assert_eq!(traces.awaits(asked.id, ANY), NOTHING, "its app has not answered yet");
    let running = begins_to_run(&traces, &asked, 0);
    // Two requests that were under way at the same time.
    let (one, other) = (traces.awaits(asked.id, BROWSER), traces.awaits(asked.id, ANY));
    assert_eq!((one, other, traces.awaits(asked.id, NOTHING)), (BROWSER, ANY, NOTHING));
    traces.came(asked.id, one, at(1), at(2));
    assert_eq!(traces.awaits(asked.id, ANY), KERNEL);
    traces.came(asked.id, other, at(1), at(3));
    assert_eq!(traces.awaits(asked.id, ANY), NOTHING);
    traces.came(asked.id, ANY, at(4), at(5));
    traces.changed(&running, &Session { state: SessionState::Stopping, ..running.clone() }, at(6));
    traces.came(asked.id, ANY, at(7), at(8));
    sent(exporter).await;
    let spans = collector.spans();
    let told: Vec<_> = spans.iter().map(|(_, span)| span["name"].as_str().unwrap()).collect();
    assert_eq!(told, ["session.starting", "session.start", "proxy.first_response", "kernel.start"]);
    let ended = |name: &str| &spans.iter().find(|(_, span)| span["name"] == name).unwrap().1["endTimeUnixNano"];
    assert_eq!(ended("proxy.first_response"), &Value::from(at(2).as_nanosecond().to_string()));
    assert_eq!(ended("kernel.start"), &Value::from(at(3).as_nanosecond().to_string()));
}

#[tokio::test]
async fn firsts_are_awaited_only_where_they_can_come_and_only_while_a_session_runs() {
    let (on, _exporter) = traces(&config("http://127.0.0.1:1"));
    let asked = session("ada");
    let running = begins_to_run(&on, &asked, 0);
    let noted = Session { version: 2, ..running.clone() };
    on.changed(&running, &noted, start_time());
    assert_eq!(on.awaits(asked.id, ANY), ANY, "it runs on");
    on.changed(&running, &Session { state: SessionState::Ended, ..running.clone() }, start_time());
    assert_eq!(on.awaits(asked.id, ANY), NOTHING, "nobody came");

    let other = Session { app: "tensorboard".parse().unwrap(), ..session("ada") };
    begins_to_run(&on, &other, 0);
    assert_eq!(on.awaits(other.id, ANY), BROWSER, "it has no kernels");
    let run = Session { program: Some(program()), ..session("ada") };
    begins_to_run(&on, &run, 0);
    assert_eq!(on.awaits(run.id, ANY), NOTHING, "nobody reaches a run by its address");
    let again = session("ada");
    begins_to_run(&on, &again, 1);
    assert_eq!(on.awaits(again.id, ANY), NOTHING, "it is not its first start");

    let off = Traces::default();
    let (unkept, _exporter) = traces(&config::Traces { sample: 0.0, ..config("http://127.0.0.1:1") });
    for none in [&off, &unkept] {
        begins_to_run(none, &asked, 0);
        assert_eq!(none.awaits(asked.id, ANY), NOTHING);
        none.came(asked.id, ANY, start_time(), start_time());
    }
}

#[test]
fn sessions_that_wait_for_a_first_are_bounded_and_those_that_wait_for_a_day_make_room() {
    let (awaited, now) = (Awaited::default(), Instant::now());
    let (oldest, late) = (SessionId::generate(), SessionId::generate());
    awaited.add(oldest, ANY, now);
    for _ in 1..MOST_AWAITED {
        awaited.add(SessionId::generate(), ANY, now);
    }
    awaited.add(late, ANY, now + Duration::from_hours(23));
    assert_eq!((awaited.of(late, ANY), awaited.of(oldest, ANY)), (NOTHING, ANY));
    awaited.add(late, ANY, now + Duration::from_hours(24));
    assert_eq!((awaited.of(late, ANY), awaited.of(oldest, ANY)), (ANY, NOTHING));
    assert_eq!(
        (awaited.take(oldest, ANY), awaited.take(late, BROWSER), awaited.take(late, ANY)),
        (NOTHING, BROWSER, KERNEL)
    );
}

#[tokio::test]
async fn each_time_that_the_launcher_is_asked_is_a_span_of_its_own() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let id = SessionId::generate();
    let at = |seconds: i64| start_time() + SignedDuration::from_secs(seconds);
    traces.launcher_did(id, "write_job_file", at(0), at(1));
    traces.launcher_did(id, "write_job_file", at(5), at(6));
    sent(exporter).await;
    let spans = collector.spans();
    let [(_, one), (_, other)] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(
        (&one["name"], &one["traceId"]),
        (&Value::from("launcher.write_job_file"), &Value::from(id.to_string()))
    );
    assert_eq!((&other["name"], &other["parentSpanId"]), (&one["name"], &one["parentSpanId"]));
    assert_ne!(other["spanId"], one["spanId"]);
}

#[tokio::test]
async fn a_part_of_all_traces_is_kept_and_everybody_agrees_which() {
    let at = |sample| traces(&config::Traces { sample, ..config("http://127.0.0.1:1") }).0;
    let (none, half, again, all) = (at(0.0), at(0.5), at(0.5), at(1.0));
    let ids: Vec<SessionId> = (0..2000).map(|_| SessionId::generate()).collect();
    let kept = |traces: &Traces| ids.iter().filter(|id| traces.context(**id).is_some()).copied().collect::<Vec<_>>();
    assert_eq!((kept(&none).len(), kept(&all).len()), (0, ids.len()));
    assert_eq!(kept(&half), kept(&again));
    // Beyond nine standard deviations.
    assert!((800..=1200).contains(&kept(&half).len()), "{}", kept(&half).len());
    assert!(Traces::default().context(ids[0]).is_none());
}

#[tokio::test]
async fn without_a_collector_spans_are_lost_and_nobody_waits() {
    let (traces, exporter) = traces(&config("http://127.0.0.1:1"));
    // Nothing takes them before the loop has ended, so a call that waits would wait for ever.
    for _ in 0..MOST_WAITING + 1000 {
        traces.answered(&answered(&request(), "/sessions/{id}", 200));
    }
    sent(exporter).await;
    // Nobody hears any more; saying something is still no fault.
    traces.answered(&answered(&request(), "/sessions/{id}", 200));
    let off = Traces::default();
    starts(&off, &session("ada"), &request());
}

/// What is logged, as one text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_outage_is_said_once_and_the_token_never() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "the-token\n").unwrap();
    for (status, answer, expected) in [
        (StatusCode::SERVICE_UNAVAILABLE, "", "answers 503"),
        (StatusCode::OK, r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}"#, "has refused 1 of 1"),
    ] {
        let collector = Collector::serve(status, answer).await;
        let config = config::Traces { bearer_token_file: Some(file.clone()), ..config(&collector.url) };
        let (traces, exporter) = traces(&config);
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let told = tracing::subscriber::set_default(subscriber);
        let over = CancellationToken::new();
        let running = exporter.run(over.clone());
        let says = async {
            for _ in 0..2 {
                let before = collector.bodies().len();
                traces.answered(&answered(&request(), "/sessions/{id}", 200));
                while collector.bodies().len() == before {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            over.cancel();
        };
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(running, says) }).await.unwrap();
        drop(told);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("Traces are not taken").count(), 1, "{text}");
        assert!(text.contains(expected) && !text.contains("the-token"), "{text}");
        let headers = collector.got.lock().unwrap()[0].0.clone();
        assert_eq!(headers.get("authorization").unwrap(), "Bearer the-token");
        assert_eq!(headers.get("content-type").unwrap(), "application/json");
    }
}
