//! The trace of a session's start on the real cluster, as a collector of OpenTelemetry gets it: from the click to the first kernel.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, daemon, exec, exec_with_input};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, job_id};
use eirene_cluster_tests::until;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// By this name the collector is found and ended.
const NAME: &str = "eirene-test-collector";
/// Takes what is posted to it and prints each body as a line. It stands on the portal, whose loopback is nobody else's, and is written in what every
/// Debian has. Where nobody ends it, it does so by itself.
const COLLECTOR: &str = r#"
use IO::Socket::INET;
$| = 1;
alarm 600;
my $door = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 4318, Listen => 16, ReuseAddr => 1) or die "no socket: $!";
print "ready\n";
while (my $peer = $door->accept) {
    my ($asked, $length) = (scalar <$peer>, 0);
    while (defined(my $line = <$peer>)) {
        last if $line =~ /^\r?\n$/;
        $length = $1 if $line =~ /^content-length: *(\d+)/i;
    }
    read $peer, my $body, $length;
    my $known = defined $asked && $asked =~ m{^POST /v1/traces };
    printf $peer "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}", $known ? "200 OK" : "404 Not Found";
    close $peer;
    print "$body\n" if $known;
}
"#;

/// Has eirened send traces to the collector, from its next start on.
const TRACED: &str = "cd /etc/eirene && { test -e eirened.toml.untraced || cp eirened.toml eirened.toml.untraced; } \
     && { cat eirened.toml.untraced; cat; } >eirened.toml.new && chmod 0644 eirened.toml.new && mv eirened.toml.new eirened.toml";
const SECTION: &str = "\n[traces]\nurl = \"http://127.0.0.1:4318\"\n";
/// Takes that back, and waits for the portal, which the next test asks at once.
const UNTRACED: &str =
    "cd /etc/eirene && if [ -e eirened.toml.untraced ]; then mv eirened.toml.untraced eirened.toml; fi
demo-ctl eirened restart
for look in $(seq 150); do
    curl -sf -m 5 -o /dev/null http://127.0.0.1:8080/healthz && exit
    sleep 0.2
done";

/// All of a start by who tells it. What a browser gets first is not among it: a program with a token is none.
const WHOLE: [(&str, &str); 10] = [
    ("eirened", "POST /api/v1/sessions"),
    ("eirened", "launcher.write_job_file"),
    ("eirened", "session.submit"),
    ("eirened", "session.queued"),
    ("eirened", "session.starting"),
    ("eirened", "session.start"),
    ("eirene-agent", "agent.prepare"),
    ("eirene-agent", "agent.dial"),
    ("eirene-agent", "agent.app"),
    ("eirened", "kernel.start"),
];

/// Who takes the spans.
struct Collector {
    _running: Child,
    got: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    async fn start() -> anyhow::Result<Self> {
        let mut running = Command::new("docker")
            .args(["exec", "-u", "nobody", "portal", "perl", "-e", COLLECTOR, NAME])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("`docker` is needed")?;
        let mut lines = BufReader::new(running.stdout.take().context("its output")?).lines();
        let first = tokio::time::timeout(NOTICE, lines.next_line()).await??;
        ensure!(first.as_deref() == Some("ready"), "the collector does not start: {first:?}");
        let got = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&got);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let said = serde_json::from_str(&line).unwrap_or(Value::Null);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(said);
            }
        });
        Ok(Self { _running: running, got })
    }

    /// The spans of a trace so far, and who tells each.
    fn spans(&self, trace: &str) -> Vec<(String, Value)> {
        let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spans = Vec::new();
        for told in got.iter().flat_map(|body| list(body, "resourceSpans")) {
            let service = told.pointer("/resource/attributes/0/value/stringValue").and_then(Value::as_str);
            let service = service.unwrap_or_default().to_owned();
            for scope in list(&told, "scopeSpans") {
                let of_trace = list(&scope, "spans").into_iter().filter(|span| span["traceId"] == trace);
                spans.extend(of_trace.map(|span| (service.clone(), span)));
            }
        }
        spans
    }
}

/// A time of a span, nanoseconds since 1970.
fn at(span: &Value, name: &str) -> anyhow::Result<u128> {
    let text = span[name].as_str().with_context(|| format!("no {name}: {span}"))?;
    Ok(text.parse()?)
}

#[tokio::test]
async fn a_start_is_one_trace_from_the_click_to_the_kernel() -> anyhow::Result<()> {
    // `pkill` passes over itself, but not over a shell in whose arguments the name stands.
    let _back = Restore::with(&[&["exec", "portal", "pkill", "-f", NAME], &["exec", "portal", "sh", "-c", UNTRACED]]);
    exec("portal", "root", &["sh", "-c", "pkill -f '[e]irene-test-collector' || :"]).await?;
    let collector = Collector::start().await?;
    exec_with_input("portal", "root", &["sh", "-c", TRACED], SECTION).await?;
    daemon("portal", "eirened", "restart").await?;
    let ada = until("the portal answers", NOTICE, || async { Ok(Person::sign_in("ada").await.ok()) }).await?;
    ada.stop_all().await?;
    let session = ada.running(&json!({})).await?;
    let id = session["id"].as_str().context("id")?;
    Kernel::start(&ada, &session).await?;

    let spans = until("the trace is whole", NOTICE, || async {
        let spans = collector.spans(id);
        let missing = WHOLE.iter().filter(|(_, name)| spans.iter().all(|(_, span)| span["name"] != *name));
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        ensure!(missing.is_empty(), "not told: {missing:?}");
        Ok(Some(spans))
    })
    .await?;
    let mut told: Vec<(&str, &str)> =
        spans.iter().map(|(service, span)| (service.as_str(), span["name"].as_str().unwrap_or_default())).collect();
    told.sort_unstable();
    let mut whole = WHOLE.to_vec();
    whole.sort_unstable();
    assert_eq!(told, whole, "each once, and nothing else");

    let named = |name: &str| spans.iter().map(|(_, span)| span).find(|span| span["name"] == name).context("a span");
    let root = named("session.start")?;
    for (_, span) in &spans {
        ensure!(at(span, "startTimeUnixNano")? <= at(span, "endTimeUnixNano")?, "{span}");
        ensure!(span["status"].is_null(), "nothing went wrong: {span}");
        if span["name"] != "session.start" {
            assert_eq!(span["parentSpanId"], root["spanId"], "{span}");
        }
    }
    ensure!(root["parentSpanId"].is_null(), "{root}");
    let attributes = root["attributes"].as_array().context("attributes")?;
    let job = attributes.iter().find(|attribute| attribute["key"] == "slurm.job.id").context("its job")?;
    assert_eq!(job["value"]["intValue"], job_id(&session)?);
    assert_eq!(at(named("session.queued")?, "startTimeUnixNano")?, at(root, "startTimeUnixNano")?);
    let answered = at(root, "endTimeUnixNano")?;
    ensure!(at(named("kernel.start")?, "startTimeUnixNano")? >= answered, "the kernel comes after the app answers");
    ensure!(at(named("agent.app")?, "startTimeUnixNano")? < answered, "the agent's part lies within");
    ada.stop(id).await?;
    Ok(())
}
