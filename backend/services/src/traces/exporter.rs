//! Sends spans to the collector, some at a time. What it does not take is lost, counted, and said once for an outage.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Client, Url, header};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::otlp;
use super::spans::Span;
use crate::config;
use crate::outward;

/// Spans of one request.
const MOST: usize = 512;
/// How long they are gathered.
const GATHER: Duration = Duration::from_secs(2);
/// An answer has to come within this time; meanwhile the queue fills.
const WAIT: Duration = Duration::from_secs(5);
/// Most of an answer that is read.
const ANSWER_BYTES: usize = 64 * 1024;

/// What a collector answers that has not taken all.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Answer {
    partial_success: Partial,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Partial {
    /// A number of 64 bits, which is a text in JSON; some write a number.
    rejected_spans: serde_json::Value,
}

/// Sends them.
pub struct Exporter {
    client: Client,
    address: Url,
    token: Option<PathBuf>,
    waiting: mpsc::Receiver<Span>,
    /// Whether the last were not taken.
    away: Arc<AtomicBool>,
}

impl Exporter {
    /// To where it is configured, and where it is said whether the collector is away; none where nothing is configured.
    pub(super) fn new(
        config: &config::Traces,
        waiting: mpsc::Receiver<Span>,
        away: Arc<AtomicBool>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(url) = &config.url else { return Ok(None) };
        let client = outward::client("traces.ca_file", config.ca_file.as_deref(), WAIT)?;
        let address = Url::parse(&format!("{}/v1/traces", url.trim_end_matches('/'))).context("`traces.url`")?;
        Ok(Some(Self { client, address, token: config.bearer_token_file.clone(), waiting, away }))
    }

    /// Whether the collector takes what we send: a request without a span, which it has to take as well.
    ///
    /// # Errors
    /// Why it does not, in words without its address.
    pub async fn reach(&self) -> anyhow::Result<()> {
        self.post(&[]).await.map(drop).map_err(anyhow::Error::msg)
    }

    /// Sends what comes until `shutdown`, and then what is there, as much as a collector takes in [`WAIT`].
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut away = false;
        loop {
            let mut spans = Vec::new();
            let over = tokio::select! {
                () = shutdown.cancelled() => true,
                more = self.waiting.recv_many(&mut spans, MOST) => more == 0,
            };
            if !over && spans.len() < MOST {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = tokio::time::sleep(GATHER) => {}
                }
            }
            self.gather(&mut spans);
            if over || shutdown.is_cancelled() {
                return self.send_the_rest(spans, away).await;
            }
            let sent = self.send(&spans).await;
            match &sent {
                Err(why) if !away => tracing::warn!(error = %why, "Traces are not taken, and are lost for now"),
                Ok(()) if away => tracing::info!("Traces are taken again"),
                _ => {}
            }
            away = sent.is_err();
            self.away.store(away, Ordering::Relaxed);
        }
    }

    /// Adds what waits, up to as much as goes into one request.
    fn gather(&mut self, spans: &mut Vec<Span>) {
        while spans.len() < MOST
            && let Ok(span) = self.waiting.try_recv()
        {
            spans.push(span);
        }
    }

    /// Sends these and all that waits. What a collector does not take in time is lost, and counted.
    async fn send_the_rest(mut self, mut spans: Vec<Span>, mut away: bool) {
        let until = Instant::now() + WAIT;
        // What is said from now on is nobody's to send, so there is an end.
        self.waiting.close();
        while !spans.is_empty() {
            let Ok(sent) = tokio::time::timeout_at(until, self.send(&spans)).await else { break };
            if let Err(why) = sent
                && !away
            {
                tracing::warn!(error = %why, "The last traces are not taken, and are lost");
                away = true;
            }
            spans.clear();
            self.gather(&mut spans);
        }
        let mut left = spans.len();
        while self.waiting.try_recv().is_ok() {
            left += 1;
        }
        if left > 0 {
            lost(left);
            tracing::warn!(spans = left, "The last traces are lost: the collector takes too long");
        }
    }

    async fn send(&self, spans: &[Span]) -> Result<(), String> {
        let sent = self.post(spans).await;
        match &sent {
            Err(_) => lost(spans.len()),
            Ok(rejected) => lost((*rejected).min(spans.len())),
        }
        match sent? {
            0 => Ok(()),
            many => Err(format!("the collector has refused {many} of {}", spans.len())),
        }
    }

    /// How many of them were refused.
    async fn post(&self, spans: &[Span]) -> Result<usize, String> {
        let body = otlp::body(spans).to_string();
        let mut request = self.client.post(self.address.clone()).header(header::CONTENT_TYPE, "application/json");
        if let Some(file) = &self.token {
            request = request.bearer_auth(outward::secret(file).await?.expose_secret());
        }
        let answer = request.body(body).send().await.map_err(outward::why)?;
        if !answer.status().is_success() {
            return Err(format!("the collector answers {}", answer.status()));
        }
        // An answer without a body, or with one that is none of ours to read, is a good one all the same.
        let said = outward::read(answer, ANSWER_BYTES).await.unwrap_or_default();
        let rejected = serde_json::from_slice::<Answer>(&said).unwrap_or_default().partial_success.rejected_spans;
        let number = rejected.as_str().and_then(|text| text.parse().ok()).or_else(|| rejected.as_u64());
        Ok(usize::try_from(number.unwrap_or(0)).unwrap_or(usize::MAX))
    }
}

fn lost(many: usize) {
    metrics::counter!("eirene_trace_spans_lost_total").increment(many as u64);
}
