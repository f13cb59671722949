//! Metrics for Prometheus: those of eirened, which are as many whatever runs, and those of sessions, where they are wanted.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eirene_core::SessionState;
use eirene_monitoring::{Batch, Confinement, MOST_BYTES, Metric, NodeName, Sample};
use eirene_services::samples::{History as _, Part, Prometheus, Spans};
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use super::*;

/// Where metrics of sessions are wanted.
async fn wanted(allow: Option<&str>) -> Server {
    let mut test = TestApp::new().await;
    let mut config = (*test.app.config).clone();
    config.metrics.sessions = true;
    if let Some(allow) = allow {
        config.metrics.allow = vec![allow.parse().unwrap()];
    }
    test.rebuild(config);
    Server::serve(test).await
}

/// A session on `c1` that has begun, and has said something.
async fn begun(server: &Server) -> Session {
    let ada = server.test.ada().await;
    let (session, _) = server.test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let now = server.test.clock.now();
    let change = |session: &mut Session| {
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(now);
    };
    let session = server.test.app.sessions.change(session.id, change).await.unwrap().unwrap();
    say(server, &session).await;
    session
}

/// What an agent says of `c1`.
async fn say(server: &Server, session: &Session) {
    let samples = [("cpu_seconds", 12.5), ("gpu_util/0", 0.25), ("cpu_process/7:python", 3.0), ("report/f1", 0.5)];
    let samples = samples.map(|(name, value)| Sample { series: name.parse().unwrap(), value }).to_vec();
    let node = NodeName::try_from("c1").unwrap();
    let batch = Batch { node, at: server.test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
    let mut ingest = server.test.app.samples.ingest(session.id);
    ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
}

#[tokio::test]
async fn sessions_are_found_by_service_discovery_and_tell_what_they_use() {
    let server = wanted(None).await;
    let none = server.portal(Ask::get("/metrics/sessions")).await;
    assert_eq!((none.status, none.body.as_str()), (StatusCode::OK, "[]"));
    assert!(none.header("content-type").starts_with("application/json"));
    let session = begun(&server).await;
    let found = server.portal(Ask::get("/metrics/sessions")).await.json();
    let path = format!("/metrics/sessions/{}", session.id);
    let labels = serde_json::json!({
        "__scheme__": "http", "__metrics_path__": path, "session": session.id, "kind": "session", "owner": "ada", "app": "jupyterlab",
    });
    assert_eq!(found, serde_json::json!([{"targets": [PORTAL], "labels": labels}]));

    let told = server.portal(Ask::get(&path)).await;
    assert_eq!(told.status, StatusCode::OK);
    assert!(told.header("content-type").starts_with("text/plain; version=0.0.4"));
    let lines: Vec<&str> = told.body.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "eirene_cpu_seconds_total{node=\"c1\"} 12.5",
        "eirene_gpu_util_ratio{node=\"c1\",gpu=\"0\"} 0.25",
        "eirene_report{node=\"c1\",name=\"f1\"} 0.5",
    ];
    assert_eq!(lines, expected, "processes come and go, and are not among them");

    server.test.clock.advance_s(60);
    assert_eq!(server.portal(Ask::get(&path)).await.body, "", "what is old is not told as if it were now");
    let end = |session: &mut Session| session.state = SessionState::Failed;
    server.test.app.sessions.change(session.id, end).await.unwrap();
    assert_eq!(server.portal(Ask::get(&path)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.portal(Ask::get("/metrics/sessions")).await.body, "[]");
}

#[tokio::test]
async fn nobody_finds_sessions_through_a_proxy_that_is_not_listed() {
    let server = wanted(None).await;
    let session = begun(&server).await;
    for path in ["/metrics".to_owned(), "/metrics/sessions".to_owned(), format!("/metrics/sessions/{}", session.id)] {
        assert_eq!(server.portal(Ask::get(&path)).await.status, StatusCode::OK, "{path}");
        for (name, value) in [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-for", ""),
            ("x-forwarded-host", "eirene.example.org"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1"),
        ] {
            let answer = server.portal(Ask::get(&path).with(name, value)).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path} {name}: {value}");
        }
    }
}

#[tokio::test]
async fn only_who_is_listed_finds_sessions() {
    let server = wanted(Some("192.0.2.0/24")).await;
    let session = begun(&server).await;
    for path in ["/metrics".to_owned(), "/metrics/sessions".to_owned(), format!("/metrics/sessions/{}", session.id)] {
        assert_eq!(server.portal(Ask::get(&path)).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// How much a counter by reason has of one, at `/metrics`.
async fn refused(server: &Server, metric: &str, reason: &str) -> u64 {
    let name = format!("{metric}{{reason=\"{reason}\"}} ");
    let body = server.portal(Ask::get("/metrics")).await.body;
    body.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn what_is_refused_of_an_agent_is_counted_by_its_reason() {
    let server = wanted(None).await;
    let counted = async |reason: &str| refused(&server, "eirene_samples_batches_refused_total", reason).await;
    // Counts from the first time it is asked on.
    counted("node").await;
    let session = begun(&server).await;
    let grace = server.test.person("grace", 2002, Role::Researcher).await;
    let (other, _) = server.test.app.sessions.start(&grace, TestApp::wish(), None).await.unwrap();
    let on_another = |session: &mut Session| session.nodes = vec!["c2".parse().unwrap()];
    server.test.app.sessions.change(other.id, on_another).await.unwrap();
    let now = server.test.clock.now();
    let says = |node: &str, minutes: i64, value: &str| {
        let at = (now + SignedDuration::from_mins(minutes)).as_millisecond();
        format!(r#"{{"n":"{node}","t":{at},"c":"none","s":[["cpu_seconds",{value}]]}}"#)
    };
    let impossible = ["-1", "1e300", "NaN", "\"1\""].map(|value| says("c1", 0, value)).to_vec();
    let wrong = [
        (session.id, "not_understood", [impossible, vec!["garbage".to_owned()]].concat()),
        (session.id, "time", vec![says("c1", -120, "1"), says("c1", 60, "1")]),
        (session.id, "too_long", vec![" ".repeat(MOST_BYTES + 1)]),
        (session.id, "node", vec![says("c9", 0, "1")]),
        // Of a node that another session has, over one's own connection.
        (other.id, "node", vec![says("c1", 0, "1")]),
    ];
    for (of, reason, texts) in wrong {
        let before = counted(reason).await;
        let mut ingest = server.test.app.samples.ingest(of);
        for text in &texts {
            ingest.take(text).await;
        }
        let (after, many) = (counted(reason).await, texts.len() as u64);
        assert!(after >= before + many, "{reason}: {before}, then {after} instead of {many} more");
    }
    let told = server.portal(Ask::get(&format!("/metrics/sessions/{}", session.id))).await.body;
    assert!(told.contains("eirene_cpu_seconds_total{node=\"c1\"} 12.5\n"), "what was good before stays: {told}");
}

#[tokio::test]
async fn samples_that_are_late_or_said_twice_and_series_that_are_made_up_are_counted_by_their_reason() {
    /// More than any other test of this process has refused: what stores count does not add up there.
    const MANY: u64 = 40;
    let server = wanted(None).await;
    let counted = async |reason: &str| refused(&server, "eirene_samples_refused_total", reason).await;
    // Counts from the first time it is asked on.
    let forged_before = counted("processes").await;
    let session = begun(&server).await;
    let now = server.test.clock.now();
    let mut ingest = server.test.app.samples.ingest(session.id);
    let mut says = async |at: Timestamp, name: &str, many: u64| {
        let series = |number: u64| name.replace('#', &number.to_string()).parse().unwrap();
        let sample = |number: u64| Sample { series: series(number), value: 1.0 };
        let samples = (1..=many).map(sample).collect();
        let node = NodeName::try_from("c1").unwrap();
        let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
        for text in batch.write() {
            ingest.take(&String::from_utf8(text).unwrap()).await;
        }
    };
    says(now, "gpu_util/#", MANY).await;
    says(now, "gpu_util/#", MANY).await;
    says(now - SignedDuration::from_mins(20), "gpu_util/#", MANY).await;
    // Beside the one process that the session has begun with there is room for 1,023.
    says(now, "cpu_process/#:made-up", 1023 + MANY).await;
    // One round of what keeps them, which is what tells.
    let over = CancellationToken::new();
    over.cancel();
    server.test.app.samples.clone().keep(over).await;
    for reason in ["duplicate", "late"] {
        let told = counted(reason).await;
        assert!(told >= MANY, "{reason}: {told}");
    }
    let forged = counted("processes").await;
    assert!(forged >= forged_before + MANY, "{forged_before}, then {forged}");
}

/// Ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "needs Prometheus: tests/prometheus runs it"]
async fn a_real_prometheus_finds_sessions_by_itself_and_what_it_scrapes_is_read_back() {
    let Some(programs) = std::env::var_os("EIRENE_TEST_PROMETHEUS").map(PathBuf::from) else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = wanted(None).await;
    let session = begun(&server).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let portal = listener.local_addr().unwrap();
    let router = crate::metrics_router(server.test.app.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let directory = tempfile::tempdir().unwrap();
    let settings = directory.path().join("prometheus.yml");
    let found_at = format!("http://{portal}/metrics/sessions");
    let text = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: eirene-sessions\n  \
         http_sd_configs: [{{url: \"{found_at}\", refresh_interval: 1s}}]\n"
    );
    std::fs::write(&settings, text).unwrap();
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut prometheus = Command::new(programs.join("prometheus"));
    prometheus.arg(format!("--config.file={}", settings.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _prometheus = Ended(prometheus.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());

    let config = eirene_services::config::Prometheus {
        url: Some(format!("http://127.0.0.1:{port}")),
        timeout_s: 10,
        scrape_interval_s: 1,
        ..eirene_services::config::Prometheus::default()
    };
    let read = async |id: SessionId| {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let to_ms = (i64::try_from(now_ms).unwrap() / 60_000 + 1) * 60_000;
        let spans = Spans { from_ms: to_ms - 120_000, to_ms, step_ms: 60_000 };
        // A new one each time: who was away rests before it is asked again.
        let prometheus = Prometheus::new(&config).unwrap().unwrap();
        let answers = prometheus.of_session(id, &[Part::Metric(Metric::GpuUtil)], spans, Instant::now()).await;
        answers.unwrap_or_default().into_iter().flat_map(|answer| answer.lines).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    let lines = loop {
        let lines = read(session.id).await;
        if !lines.is_empty() {
            break lines;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "it finds or scrapes nothing");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let [line] = &lines[..] else { panic!("one GPU of one node: {} lines", lines.len()) };
    assert!(line.name.contains("/c1"), "{}", line.name);
    assert!(!line.points.is_empty() && line.points.iter().all(|point| (point.mean - 0.25).abs() < 1e-9));
    assert!(read(SessionId::generate()).await.is_empty());
}

/// Two thousand sessions with `EIRENE_TEST_DEEP=1`.
#[tokio::test]
async fn many_sessions_make_no_more_series_than_one() {
    let many = if std::env::var_os("EIRENE_TEST_DEEP").is_some_and(|value| value == "1") { 2000 } else { 200 };
    let server = wanted(None).await;
    let series = async || -> Vec<String> {
        for path in ["/metrics/sessions", "/metrics/sessions/x"] {
            server.portal(Ask::get(path)).await;
        }
        let body = server.portal(Ask::get("/metrics")).await.body;
        let lines = body.lines().filter_map(|line| line.rsplit_once(' '));
        lines.map(|(name, _)| name.to_owned()).filter(|name| !name.starts_with('#')).collect()
    };
    let first = begun(&server).await;
    series().await;
    let with_one = series().await;
    assert!(with_one.iter().any(|name| name.starts_with("eirene_samples_total")), "{with_one:?}");
    let now = server.test.clock.now();
    for number in 0..many {
        let id = SessionId::generate();
        let session = Session {
            id,
            marker: format!("eirene-{id}"),
            name: format!("number {number}").parse().unwrap(),
            started_at: Some(now),
            ..first.clone()
        };
        assert_eq!(server.test.app.db.insert_session(&session, Start::default()).await.unwrap(), Inserted::New);
        if number % 20 == 0 {
            say(&server, &session).await;
            server.portal(Ask::get(&format!("/metrics/sessions/{id}"))).await;
        }
    }
    let found = server.portal(Ask::get("/metrics/sessions")).await.json();
    assert_eq!(found.as_array().unwrap().len(), many + 1);
    server.portal(Ask::get(&format!("/metrics/sessions/{}", first.id))).await;
    let with_many = series().await;
    let new: Vec<&String> = with_many.iter().filter(|name| !with_one.contains(name)).collect();
    assert!(
        new.iter().all(|name| name.contains("/metrics/sessions/{id}") || name.contains("status=\"200\"")),
        "{new:?}"
    );
    assert!(with_many.len() < with_one.len() + 4, "{new:?}");
}
