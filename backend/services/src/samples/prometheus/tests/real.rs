//! The same contract with a real Prometheus, of the programs in `EIRENE_TEST_PROMETHEUS` (`tests/prometheus` has them): its blocks are made by
//! promtool from what eirened exposes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eirene_core::SessionId;

use super::contract::{self, Given, HOUR_MS, MINUTE_MS, drawn, given};
use super::{Figure, History as _, Spans, config, prometheus};
use crate::monitoring::exposition::exposition;
use crate::samples::Last;

/// Ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What eirened exposes of these series at each time, with the labels that service discovery adds, as OpenMetrics.
fn exposed(session: SessionId, all: &[Given]) -> String {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for given in all {
        for (at_ms, value) in &given.samples {
            let last = Last {
                metric: given.series.metric(),
                node: given.node.clone(),
                device: given.series.device().map(ToString::to_string),
                value: *value,
            };
            let text = exposition(&[last]);
            let line = text.lines().find(|line| !line.starts_with('#')).unwrap();
            let (name, rest) = line.split_once('{').unwrap();
            let lines = by_name.entry(name.to_owned()).or_default();
            let _ = writeln!(lines, "{name}{{session=\"{session}\",{rest} {}", *at_ms as f64 / 1000.0);
        }
    }
    by_name.into_values().collect()
}

/// The cluster's own, a sample each minute; for ten of them the scheduler does not answer.
fn of_the_cluster(base_ms: i64) -> String {
    let mut text = String::new();
    let labels = "job=\"eirene\",instance=\"portal\"";
    let series: [(&str, &dyn Fn(i64) -> i64); 3] = [
        ("eirene_scheduler_reachable{", &|minute| i64::from(!(20..30).contains(&minute))),
        ("eirene_cluster_jobs{state=\"running\",", &|_| 3),
        ("eirene_cluster_all_gpus_held{", &|minute| if minute < 40 { 2 } else { 4 }),
    ];
    for (name, value) in series {
        for minute in 0..60 {
            let at_s = (base_ms + minute * MINUTE_MS + 7000) / 1000;
            let _ = writeln!(text, "{name}{labels}}} {} {at_s}", value(minute));
        }
    }
    text
}

fn blocks(programs: &Path, directory: &Path, text: &str) -> PathBuf {
    let (input, output) = (directory.join("samples.om"), directory.join("data"));
    std::fs::write(&input, text).unwrap();
    let mut made = Command::new(programs.join("promtool"));
    made.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(&input).arg(&output);
    let made = made.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    output
}

#[tokio::test]
#[ignore = "needs Prometheus: tests/prometheus runs it"]
async fn a_real_prometheus_answers_as_the_store_does() {
    let Some(programs) = std::env::var_os("EIRENE_TEST_PROMETHEUS").map(PathBuf::from) else { return };
    let directory = tempfile::tempdir().unwrap();
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let base_ms = (now_ms - 6 * HOUR_MS) / MINUTE_MS * MINUTE_MS;
    let session = SessionId::generate();
    let text = exposed(session, &given(session, base_ms)) + &of_the_cluster(base_ms) + "# EOF\n";
    let data = blocks(&programs, directory.path(), &text);
    let settings = directory.path().join("prometheus.yml");
    std::fs::write(&settings, "global: {scrape_interval: 1m}\n").unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut server = Command::new(programs.join("prometheus"));
    server.arg(format!("--config.file={}", settings.display()));
    server.arg(format!("--storage.tsdb.path={}", data.display()));
    server.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _server = Ended(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let config = crate::config::Prometheus { timeout_s: 10, ..config(&format!("http://127.0.0.1:{port}")) };
    let begun = Instant::now();
    while prometheus(&config).reach().await.is_err() {
        assert!(begun.elapsed() < Duration::from_mins(1), "it does not start");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let real = prometheus(&config);
    let theirs = drawn(&real, session, base_ms).await;
    contract::is_right(&theirs);
    assert_eq!(theirs.lines, contract::of_the_store(session, base_ms).await.lines);
    assert!(drawn(&real, SessionId::generate(), base_ms).await.lines.is_empty());

    let spans = Spans { from_ms: base_ms, to_ms: base_ms + HOUR_MS, step_ms: 10 * MINUTE_MS };
    let figures = real.of_cluster(spans).await.unwrap();
    let means = |wanted: Figure| -> Vec<(i64, f64)> {
        let points = figures.iter().find(|(figure, _)| *figure == wanted).map(|(_, points)| points.as_slice());
        let points = points.unwrap_or_default().iter();
        points.map(|point| ((point.at_ms - base_ms) / MINUTE_MS, point.mean)).collect()
    };
    // Between two scrapes Prometheus goes on with the last, so the edges of an outage may be a minute off.
    let running = means(Figure::JobsRunning);
    assert!(running.iter().all(|(_, value)| (value - 3.0).abs() < 1e-9), "{running:?}");
    assert!(!running.iter().any(|(minute, _)| *minute == 20) || running.len() == 6, "{running:?}");
    let held = means(Figure::GpusHeld);
    assert_eq!((held.first(), held.last()), (Some(&(0, 2.0)), Some(&(50, 4.0))), "{held:?}");
    assert!(means(Figure::GpusWaiting).is_empty(), "what nobody tells is unknown, and not nothing");
}
