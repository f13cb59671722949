//! Both that are behind the port answer alike, whatever comes from Prometheus is bounded and strictly read, and what it is not told stays where it
//! is.

mod contract;
mod fake;
mod real;

use std::time::{Duration, Instant};

use eirene_core::{Clock as _, SessionId};
use eirene_monitoring::{Group, Metric};
use reqwest::StatusCode;

use super::*;
use crate::config::Config;
use crate::error::AppError;
use crate::samples::{Wanted, chart};
use crate::testing::TestApp;
use contract::{Given, HOUR_MS, MINUTE_MS, drawn, given};
use fake::{Fake, Mood};

/// Where the contract's hour begins in tests that have no clock.
const BASE_MS: i64 = 1_767_322_800_000;

/// Long enough for every answer to arrive in time.
const AMPLE_S: u64 = 60;

fn config(url: &str) -> config::Prometheus {
    config::Prometheus { url: Some(url.to_owned()), timeout_s: AMPLE_S, ..config::Prometheus::default() }
}

fn prometheus(config: &config::Prometheus) -> Prometheus {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Prometheus::new(config).unwrap().unwrap()
}

/// An hour in minutes.
fn hour() -> Spans {
    Spans { from_ms: BASE_MS, to_ms: BASE_MS + HOUR_MS, step_ms: MINUTE_MS }
}

/// So many seconds ago.
fn ago(seconds: u64) -> Instant {
    Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap()
}

async fn ask(prometheus: &Prometheus, session: SessionId, metric: Metric) -> Result<Vec<Answer>, Trouble> {
    ask_since(Instant::now(), prometheus, session, metric).await
}

async fn ask_since(
    since: Instant,
    prometheus: &Prometheus,
    session: SessionId,
    metric: Metric,
) -> Result<Vec<Answer>, Trouble> {
    match prometheus.of_session(session, &[Part::Metric(metric)], hour(), since).await {
        Ok(answers) => Ok(answers),
        Err(HistoryError::Prometheus(trouble)) => Err(trouble),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn prometheus_answers_as_the_store_does() {
    let session = SessionId::generate();
    let fake = Fake::serve(Mood::Good, &given(session, BASE_MS)).await;
    let theirs = drawn(&prometheus(&config(&fake.url)), session, BASE_MS).await;
    let ours = contract::of_the_store(session, BASE_MS).await;
    assert_eq!((ours.source, theirs.source), (Source::BuiltIn, Source::Prometheus));
    contract::is_right(&ours);
    contract::is_right(&theirs);
    assert_eq!(ours.lines, theirs.lines);
}

#[tokio::test]
async fn what_is_told_twice_is_one_series_and_what_the_site_has_renamed_is_none() {
    let session = SessionId::generate();
    let told = Given::new(session, "cpu_seconds", "c1", &[(BASE_MS + 7000, 1.0), (BASE_MS + 67_000, 3.0)]);
    let again = told.clone().with("instance", "portal-b").with("job", "other");
    let renamed = told.clone().with("node", "portal-host").with("exported_node", "c1");
    let nobody = told.clone().with("node", "");
    let other = Given::new(SessionId::generate(), "cpu_seconds", "c1", &[(BASE_MS + 7000, 99.0)]);
    let fake = Fake::serve(Mood::Good, &[told, again, renamed, nobody, other]).await;
    let answers = ask(&prometheus(&config(&fake.url)), session, Metric::Cpu).await.unwrap();
    let lines = &answers[0].lines;
    assert_eq!(lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["cpu/cpu_seconds/c1"]);
    let values: Vec<_> = lines[0].points.iter().map(|point| (point.at_ms - BASE_MS, point.max, point.count)).collect();
    assert_eq!(values, [(0, 1.0, 1), (MINUTE_MS, 3.0, 1)]);
}

#[tokio::test]
async fn only_series_with_the_configured_labels_are_this_portals() {
    let session = SessionId::generate();
    let told = Given::new(session, "cpu_seconds", "c1", &[(BASE_MS + 7000, 1.0)]);
    let fake = Fake::serve(Mood::Good, &[told.clone().with("cluster", "b"), told.with("cluster", "a")]).await;
    for (label, lines) in [("a", 1), ("c", 0)] {
        let labels = std::collections::BTreeMap::from([("cluster".to_owned(), label.to_owned())]);
        let config = config::Prometheus { labels, ..config(&fake.url) };
        let answers = ask(&prometheus(&config), session, Metric::Cpu).await.unwrap();
        assert_eq!(answers[0].lines.len(), lines, "{label}");
    }
}

#[tokio::test]
async fn values_that_say_nothing_or_cannot_be_leave_a_gap() {
    let session = SessionId::generate();
    let at = |minute: i64, value: f64| (BASE_MS + minute * MINUTE_MS + 7000, value);
    let samples = [at(0, 5.0), at(1, f64::NAN), at(2, f64::INFINITY), at(3, -1.0), at(4, 1e300), at(5, 7.0)];
    let fake = Fake::serve(Mood::Good, &[Given::new(session, "memory_bytes", "c1", &samples)]).await;
    let answers = ask(&prometheus(&config(&fake.url)), session, Metric::Memory).await.unwrap();
    let points = &answers[0].lines[0].points;
    assert_eq!(points.iter().map(|point| point.mean).collect::<Vec<_>>(), [5.0, 7.0]);
}

#[tokio::test]
async fn what_is_no_good_answer_is_told_apart_and_none_of_it_becomes_a_chart() {
    let good = |inner: &str| format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{inner}]}}}}"#);
    let series = |at: &str, value: &str| {
        good(&format!(r#"{{"metric":{{"node":"c1","fold":"max"}},"values":[[{at},{value}]]}}"#))
    };
    let (in_time, beyond) = ("1767322859.999", "1767319259.999");
    let failed = |kind: &str, text: &str| format!(r#"{{"status":"error","errorType":"{kind}","error":"{text}"}}"#);
    let partial = r#"{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix","result":[]}}"#;
    let deep = "[".repeat(100_000);
    for (status, body, expected) in [
        (200, "garbage", "not understood"),
        (200, "{}", "not understood"),
        (200, "<html>log in</html>", "not understood"),
        (200, r#"{"status":"success"}"#, "not understood"),
        (200, r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "not understood"),
        (200, &good("7"), "not understood"),
        (200, &good(&deep), "not understood"),
        (200, &series(in_time, "7"), "not understood"),
        (200, &series(in_time, "\"many\""), "not understood"),
        (200, &series(beyond, "\"7\""), "not understood"),
        (200, partial, "only a part of the answer: a store is away"),
        (200, &failed("execution", "broken"), "execution: broken"),
        (422, &failed("execution", "query processing would load too many samples into memory"), "too large"),
        (400, &failed("bad_data", "parse error\\nX"), "bad_data: parse error X"),
        (503, &failed("timeout", "query timed out"), "gave up"),
        (413, "nginx", "too large"),
        (502, "nginx", "cannot be reached: 502"),
        (504, "nginx", "within 60 s"),
        (302, "", "not understood: 302"),
        (404, "", "not understood: 404"),
        (401, "", "does not let the portal in: 401"),
        (403, "", "does not let the portal in: 403"),
    ] {
        let fake = Fake::serve(Mood::Says(StatusCode::from_u16(status).unwrap(), body.to_owned()), &[]).await;
        let error = ask(&prometheus(&config(&fake.url)), SessionId::generate(), Metric::Cpu).await.unwrap_err();
        let start = body.get(..80).unwrap_or(body);
        assert!(error.to_string().contains(expected), "{status} {start}: {error}");
    }
    let fake = Fake::serve(Mood::Says(StatusCode::OK, series(in_time, "\"7\"")), &[]).await;
    let answers = ask(&prometheus(&config(&fake.url)), SessionId::generate(), Metric::Cpu).await.unwrap();
    assert!(answers[0].lines.is_empty(), "of a span it has to say all");
}

#[tokio::test]
async fn who_is_slow_or_away_costs_one_wait_and_is_then_left_alone_for_a_while() {
    let fake = Fake::serve(Mood::Hangs, &[]).await;
    let slow = prometheus(&config::Prometheus { timeout_s: 1, ..config(&fake.url) });
    let session = SessionId::generate();
    let parts: Vec<Part> = chart::parts(None);
    let asked = slow.of_session(session, &parts, hour(), Instant::now()).await;
    assert!(matches!(asked, Err(HistoryError::Prometheus(Trouble::Slow(1)))), "{asked:?}");
    // All that a chart needs has one wait together, so the rest of it is not asked for.
    let many = fake.asked();
    assert!(many <= AT_ONCE + 1, "of the question, and whether anything is answered: {many}");
    for _ in 0..20 {
        assert_eq!(ask(&slow, session, Metric::Cpu).await.unwrap_err(), Trouble::Slow(1));
    }
    assert_eq!(fake.asked(), many);

    let nobody = prometheus(&config("http://127.0.0.1:1"));
    let error = ask(&nobody, session, Metric::Cpu).await.unwrap_err();
    assert!(matches!(error, Trouble::Away(_)), "{error}");
}

#[tokio::test]
async fn a_question_that_takes_too_long_takes_nobody_else_s_answer_away() {
    let session = SessionId::generate();
    let fake = Fake::serve(Mood::HangsAt("eirene_gpu_util_ratio"), &[]).await;
    let prometheus = prometheus(&config(&fake.url));
    // A caller whose query hangs has a second left.
    let slow = || ask_since(ago(AMPLE_S - 1), &prometheus, session, Metric::GpuUtil);
    for _ in 0..2 {
        assert_eq!(slow().await.unwrap_err(), Trouble::Slow(AMPLE_S));
        ask(&prometheus, session, Metric::Cpu).await.unwrap();
    }
    // Whoever was answered meanwhile is sign enough.
    let (slow, quick) = tokio::join!(slow(), ask(&prometheus, session, Metric::Cpu));
    assert_eq!(slow.unwrap_err(), Trouble::Slow(AMPLE_S));
    quick.unwrap();
    ask(&prometheus, session, Metric::Cpu).await.unwrap();
}

#[tokio::test]
async fn an_answer_without_end_is_cut_and_a_chart_that_is_too_much_is_coarser() {
    let session = SessionId::generate();
    let fake = Fake::serve(Mood::Endless, &[]).await;
    let endless = prometheus(&config(&fake.url));
    assert_eq!(ask(&endless, session, Metric::Cpu).await.unwrap_err(), Trouble::TooMuch);

    let fake = Fake::serve(Mood::AtMost(20), &given(session, BASE_MS)).await;
    let chart = drawn(&prometheus(&config(&fake.url)), session, BASE_MS).await;
    assert_eq!(chart.step_ms, 4 * MINUTE_MS);
    assert!(!chart.lines.is_empty());
}

/// A Prometheus whose questions seem to take half of the time each.
struct Sluggish {
    prometheus: Prometheus,
    /// When each query began to wait.
    since: Mutex<Vec<Instant>>,
}

#[async_trait]
impl History for Sluggish {
    fn source(&self) -> Source {
        self.prometheus.source()
    }

    fn every_ms(&self) -> i64 {
        self.prometheus.every_ms()
    }

    async fn of_session(
        &self,
        session: SessionId,
        parts: &[Part],
        spans: Spans,
        since: Instant,
    ) -> Result<Vec<Answer>, HistoryError> {
        let asked = {
            let mut all = self.since.lock().unwrap();
            all.push(since);
            all.len() - 1
        };
        let passed = Duration::from_secs(AMPLE_S / 2) * u32::try_from(asked).unwrap();
        self.prometheus.of_session(session, parts, spans, since.checked_sub(passed).unwrap()).await
    }

    async fn of_cluster(&self, spans: Spans) -> Result<Vec<(Figure, Vec<Point>)>, HistoryError> {
        self.prometheus.of_cluster(spans).await
    }

    async fn reach(&self) -> Result<(), HistoryError> {
        self.prometheus.reach().await
    }
}

#[tokio::test]
async fn coarser_tries_of_a_chart_take_of_the_time_of_the_first() {
    let session = SessionId::generate();
    let fake = Fake::serve(Mood::TooMuchFirst(2), &[]).await;
    let sluggish = Sluggish { prometheus: prometheus(&config(&fake.url)), since: Mutex::default() };
    let span = chart::Span { from: BASE_MS, to: BASE_MS + HOUR_MS };
    let drawn = chart::draw(&sluggish, session, span, &[Part::Metric(Metric::Cpu)], Some(60)).await;
    assert!(
        matches!(drawn, Err(HistoryError::Prometheus(Trouble::Slow(AMPLE_S)))),
        "there is time for two of four: {drawn:?}"
    );
    let since = sluggish.since.into_inner().unwrap();
    assert!(since.len() == 3 && since.iter().all(|at| *at == since[0]), "{since:?}");
    assert!(sluggish.prometheus.state().resting.is_none(), "what it says at all, it says in time");
}

#[tokio::test]
async fn the_token_is_read_each_time_and_shown_to_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let fake = Fake::serve(Mood::Wants("Bearer second-token"), &[]).await;
    let with_token = prometheus(&config::Prometheus { bearer_token_file: Some(file.clone()), ..config(&fake.url) });
    let error = ask(&with_token, SessionId::generate(), Metric::Cpu).await.unwrap_err();
    assert!(matches!(&error, Trouble::Refused(why) if why.contains("token`")), "{error}");
    std::fs::write(&file, "first-token\n").unwrap();
    // Each in turn as if a while had passed.
    let rested = || with_token.state().resting = None;
    rested();
    let error = ask(&with_token, SessionId::generate(), Metric::Cpu).await.unwrap_err();
    assert!(error.to_string().contains("401") && !error.to_string().contains("first-token"), "{error}");
    std::fs::write(&file, "second-token\n").unwrap();
    rested();
    ask(&with_token, SessionId::generate(), Metric::Cpu).await.unwrap();

    // RFC 7617's own example.
    let fake = Fake::serve(Mood::Wants("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), &[]).await;
    let with_password = prometheus(&config::Prometheus { basic_auth_file: Some(file.clone()), ..config(&fake.url) });
    let error = ask(&with_password, SessionId::generate(), Metric::Cpu).await.unwrap_err();
    assert!(error.to_string().contains("does not hold `name:password`"), "{error}");
    assert!(!error.to_string().contains("second-token"), "{error}");
    std::fs::write(&file, "Aladdin:open sesame\n").unwrap();
    with_password.state().resting = None;
    ask(&with_password, SessionId::generate(), Metric::Cpu).await.unwrap();
}

#[tokio::test]
async fn a_file_of_certificates_has_some() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    for text in ["", "no certificate"] {
        std::fs::write(&file, text).unwrap();
        let config = config::Prometheus { ca_file: Some(file.clone()), ..config("https://localhost:1") };
        let error = Prometheus::new(&config).err().unwrap().to_string();
        assert!(error.contains("holds no certificates"), "{error}");
    }
}

/// An application with this Prometheus, and a session that began an hour before its clock.
async fn with_app(url: &str) -> (TestApp, eirene_core::Session) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut test = TestApp::new().await;
    let mut config = Config::clone(&test.app.config);
    config.prometheus = self::config(url);
    test.rebuild(config);
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let begun = test.clock.now();
    let change = |session: &mut eirene_core::Session| session.started_at = Some(begun);
    let session = test.app.sessions.change(session.id, change).await.unwrap().unwrap();
    test.clock.advance_s(3600);
    (test, session)
}

#[tokio::test]
async fn what_it_is_not_told_and_what_happens_now_still_comes_from_the_store() {
    let fake = Fake::serve(Mood::Good, &[]).await;
    let (test, session) = with_app(&fake.url).await;
    let samples = &test.app.samples;
    let wanted = |group| Wanted { group: Some(group), ..Wanted::default() };
    let chart = samples.chart(&session, wanted(Group::Gpu)).await.unwrap();
    assert_eq!((chart.source, chart.every_ms, chart.step_ms), (Source::Prometheus, 60_000, 60_000));
    for group in [Group::Cores, Group::Processes] {
        let away = samples.chart(&session, wanted(group)).await;
        assert!(matches!(away, Err(AppError::Unavailable { .. })), "the store is not open yet: {away:?}");
    }
    samples.open().unwrap();
    for group in [Group::Cores, Group::Processes] {
        assert_eq!(samples.chart(&session, wanted(group)).await.unwrap().source, Source::BuiltIn);
    }
    let many = fake.asked();
    samples.last(session.id).await.unwrap();
    assert_eq!(fake.asked(), many, "what Prometheus is told is not what it has told");
    assert_eq!(samples.elsewhere_answers().await, Some(true));
}

#[tokio::test]
async fn while_it_is_away_charts_are_and_say_what_is_missing_and_nothing_is_measured() {
    let (test, session) = with_app("http://127.0.0.1:1").await;
    test.app.samples.open().unwrap();
    let chart = test.app.samples.chart(&session, Wanted::default()).await;
    let Err(AppError::Unavailable { what, .. }) = chart else { panic!("{chart:?}") };
    assert!(what.as_str().contains("Prometheus"), "{}", what.as_str());
    let measured = test.app.efficiency.measure_some(10).await;
    assert!(matches!(measured, Err(AppError::Unavailable { .. })), "rather than as nothing: {measured:?}");
    assert_eq!(test.app.db.job_usage(session.id).await.unwrap(), None);
    assert_eq!(test.app.samples.elsewhere_answers().await, Some(false));
}

#[test]
fn figures_of_the_cluster_that_two_portals_tell_differently_are_nobodys() {
    let one = |instance: &str, values: &str| {
        format!(r#"{{"metric":{{"instance":"{instance}","fold":"eirene_cluster_jobs/running"}},"values":[{values}]}}"#)
    };
    // Minutes 0 and 1 by both, with one that is not the same; minute 2 by one; then what is no number.
    let first = r#"[1767322859.999,"3"],[1767322919.999,"4"],[1767322979.999,"5"],[1767323039.999,"NaN"]"#;
    let second = r#"[1767322859.999,"3"],[1767322919.999,"7"]"#;
    let bytes = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{},{}]}}}}"#,
        one("a", first),
        one("b", second)
    );
    let figures = answer::figures(bytes.as_bytes(), hour()).unwrap();
    let [(Figure::JobsRunning, points)] = &figures[..] else { panic!("{figures:?}") };
    let values: Vec<_> = points.iter().map(|point| ((point.at_ms - BASE_MS) / MINUTE_MS, point.mean)).collect();
    assert_eq!(values, [(0, 3.0), (2, 5.0)]);
}
