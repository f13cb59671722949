//! The past of sessions and of the cluster out of a Prometheus that scrapes this portal, by its HTTP API
//! (prometheus.io/docs/prometheus/latest/querying/api, `query_range`), which others speak too.
//!
//! Each span of a chart is folded there ([`expression`]) and read here ([`answer`]), so a long time costs no more than a short one. What comes
//! is bounded in size and time, and a Prometheus that is away is not asked for each chart again: pages that have no charts still come at once.
//! An answer that is only a part of one is none.

mod answer;
mod expression;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_trait::async_trait;
use eirene_core::SessionId;
use eirene_monitoring::Metric;
use eirene_monitoring_store::{Answer, Point, Resolution};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, header};
use secrecy::ExposeSecret as _;
use tokio::sync::Semaphore;

use super::cluster::Figure;
use super::history::{History, HistoryError, Part, Source, Spans};
use crate::config;
use crate::outward::{self, Unread};
use expression::Selector;

/// Most bytes of one answer: one metric of all devices of a session, or all figures of the cluster.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Most points of all answers to one question together.
const MOST_POINTS: usize = 4 << 20;
/// Metrics of one question that are asked for at once.
const AT_ONCE: usize = 4;
/// Requests at once, of everybody together; Prometheus itself carries out twenty.
const MOST_AT_ONCE: usize = 8;
/// Who did not answer is not asked again for so long.
const REST: Duration = Duration::from_secs(10);
/// How long the least of all questions may take before it is believed that nothing is answered.
const LEAST_WAIT: Duration = Duration::from_secs(2);
/// How much of a refusal is read.
const REFUSAL_BYTES: usize = 64 * 1024;

/// Why there is no answer. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It cannot be reached.
    #[error("it cannot be reached: {0}")]
    Away(String),
    /// It takes longer than it may.
    #[error("it does not answer within {0} s")]
    Slow(u64),
    /// It does not want us: a token or password is wrong or missing, or a file with one cannot be read.
    #[error("it does not let the portal in: {0}")]
    Refused(String),
    /// The answer would be larger than it may be, here or there.
    #[error("the answer is too large")]
    TooMuch,
    /// It says itself that something is missing.
    #[error("it has only a part of the answer: {0}")]
    Partial(String),
    /// It says that it cannot.
    #[error("it answers with an error: {0}")]
    Failed(String),
    /// What came is no answer of Prometheus.
    #[error("what it answers is not understood: {0}")]
    NotUnderstood(String),
}

impl Trouble {
    /// Whether the next question would come to the same, whatever it is.
    pub(super) fn lasts(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Slow(_) | Self::Refused(_))
    }
}

/// A Prometheus.
pub struct Prometheus {
    client: Client,
    query: Url,
    query_range: Url,
    config: config::Prometheus,
    places: Semaphore,
    state: Mutex<State>,
}

/// How it answered.
#[derive(Debug, Default)]
struct State {
    /// When it last did not, and why; none once it did.
    resting: Option<(Instant, Trouble)>,
    /// When it last did.
    answered: Option<Instant>,
}

impl Prometheus {
    /// As it is configured; none where it is not. Asks nothing.
    ///
    /// # Errors
    /// A file of the configuration cannot be read, or holds no certificates.
    pub fn new(config: &config::Prometheus) -> anyhow::Result<Option<Self>> {
        let Some(url) = &config.url else { return Ok(None) };
        let within = Duration::from_secs(config.timeout_s);
        let client = outward::client("prometheus.ca_file", config.ca_file.as_deref(), within)?;
        let base = url.trim_end_matches('/');
        let address = |path: &str| Url::parse(&format!("{base}/api/v1/{path}")).context("`prometheus.url`");
        Ok(Some(Self {
            client,
            query: address("query")?,
            query_range: address("query_range")?,
            config: config.clone(),
            places: Semaphore::new(MOST_AT_ONCE),
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a question, unless the last one came to nothing just now. Whoever waits has since `since`, and for all questions together no
    /// longer than the time and [`LEAST_WAIT`].
    async fn bounded<T>(
        &self,
        since: Instant,
        question: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, HistoryError> {
        if let Some((at, trouble)) = &self.state().resting
            && at.elapsed() < REST
        {
            return Err(trouble.clone().into());
        }
        let within = Duration::from_secs(self.config.timeout_s).saturating_sub(since.elapsed());
        let answer = tokio::time::timeout(within, question).await;
        let answer = answer.unwrap_or(Err(Trouble::Slow(self.config.timeout_s)));
        let lasts = match &answer {
            Ok(_) => false,
            // A question can be too large for its time: that is no reason to leave everybody else's unasked.
            Err(Trouble::Slow(_)) => !self.has_answered_since(since) && !self.answers().await,
            Err(trouble) => trouble.lasts(),
        };
        let mut state = self.state();
        if answer.is_ok() {
            state.answered = Some(Instant::now());
        }
        state.resting = answer.as_ref().err().filter(|_| lasts).map(|trouble| (Instant::now(), trouble.clone()));
        Ok(answer?)
    }

    fn has_answered_since(&self, since: Instant) -> bool {
        self.state().answered.is_some_and(|at| at >= since)
    }

    /// Whether it answers the least of all questions, for which nobody has to wait for a place.
    async fn answers(&self) -> bool {
        let least = async { answer::is_good(&self.put(&self.query, &[("query", "1".to_owned())]).await?) };
        tokio::time::timeout(LEAST_WAIT, least).await.is_ok_and(|answer| answer.is_ok())
    }

    /// The file's secret: read each time, because tokens are replaced while we run.
    async fn signed(&self, request: RequestBuilder) -> Result<RequestBuilder, Trouble> {
        if let Some(file) = &self.config.bearer_token_file {
            return Ok(request.bearer_auth(outward::secret(file).await.map_err(Trouble::Refused)?.expose_secret()));
        }
        let Some(file) = &self.config.basic_auth_file else { return Ok(request) };
        let secret = outward::secret(file).await.map_err(Trouble::Refused)?;
        let wrong = || Trouble::Refused(format!("`{}` does not hold `name:password`", file.display()));
        let (name, password) = secret.expose_secret().split_once(':').ok_or_else(wrong)?;
        Ok(request.basic_auth(name, Some(password)))
    }

    /// Asks once there is a place, and gives the bytes of a good answer.
    async fn ask(&self, address: &Url, question: &[(&str, String)]) -> Result<Vec<u8>, Trouble> {
        let Ok(_place) = self.places.acquire().await else { return Err(Trouble::Away("it is closed".into())) };
        self.put(address, question).await
    }

    /// Asks now. The question goes in the body: an expression is longer than an address may be.
    async fn put(&self, address: &Url, question: &[(&str, String)]) -> Result<Vec<u8>, Trouble> {
        let fault = |_| Trouble::Failed("the question could not be written".into());
        let body = serde_html_form::to_string(question).map_err(fault)?;
        let request = self.client.post(address.clone()).body(body);
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = self.signed(request).await?.send().await.map_err(|error| self.unsent(error))?;
        let status = answer.status();
        if status.is_success() {
            return self.read(answer, MOST_BYTES).await;
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(Trouble::Refused(status.to_string()));
        }
        // Whatever stands before Prometheus answers in words of its own.
        let said = self.read(answer, REFUSAL_BYTES).await.unwrap_or_default();
        Err(answer::refusal(&said).unwrap_or_else(|| match status {
            StatusCode::PAYLOAD_TOO_LARGE => Trouble::TooMuch,
            StatusCode::GATEWAY_TIMEOUT => Trouble::Slow(self.config.timeout_s),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => Trouble::Away(status.to_string()),
            _ => Trouble::NotUnderstood(status.to_string()),
        }))
    }

    fn unsent(&self, error: reqwest::Error) -> Trouble {
        if error.is_timeout() && !error.is_connect() {
            return Trouble::Slow(self.config.timeout_s);
        }
        Trouble::Away(outward::why(error))
    }

    async fn read(&self, answer: Response, most: usize) -> Result<Vec<u8>, Trouble> {
        outward::read(answer, most).await.map_err(|error| match error {
            Unread::TooMuch => Trouble::TooMuch,
            Unread::Broken(error) => self.unsent(error),
        })
    }

    /// One value at the end of each span.
    async fn range(&self, expression: String, spans: Spans) -> Result<Vec<u8>, Trouble> {
        // The last millisecond of a span: what lies before it by the span's length, and on it, is the span.
        let question = [
            ("query", expression),
            ("start", seconds(spans.from_ms + spans.step_ms - 1)),
            ("end", seconds(spans.to_ms - 1)),
            ("step", seconds(spans.step_ms)),
            ("timeout", format!("{}s", self.config.timeout_s)),
        ];
        self.ask(&self.query_range, &question).await
    }

    /// How one metric of a session went.
    async fn metric(&self, session: SessionId, metric: Metric, spans: Spans) -> Result<Vec<answer::Told>, Trouble> {
        let selector = Selector::new(&self.config.labels);
        let bytes = self.range(selector.metric(session, metric, spans.step_ms), spans).await?;
        answer::lines(&bytes, metric, spans)
    }

    async fn parts(&self, session: SessionId, parts: &[Part], spans: Spans) -> Result<Vec<Answer>, Trouble> {
        let metrics: Vec<Metric> = parts.iter().flat_map(|part| part.metrics()).collect();
        let asked = stream::iter(metrics).map(|metric| self.metric(session, metric, spans));
        let mut asked = asked.buffered(AT_ONCE);
        let (mut lines, mut points) = (Vec::new(), 0);
        while let Some(told) = asked.try_next().await? {
            points += told.iter().map(|line| line.points.len()).sum::<usize>();
            if points > MOST_POINTS {
                return Err(Trouble::TooMuch);
            }
            lines.extend(told.into_iter().map(answer::Told::named));
        }
        Ok(vec![Answer { resolution: Resolution::Raw, step_ms: spans.step_ms, lines, broken: 0 }])
    }
}

#[async_trait]
impl History for Prometheus {
    fn source(&self) -> Source {
        Source::Prometheus
    }

    fn every_ms(&self) -> i64 {
        i64::from(self.config.scrape_interval_s) * 1000
    }

    async fn of_session(
        &self,
        session: SessionId,
        parts: &[Part],
        spans: Spans,
        since: Instant,
    ) -> Result<Vec<Answer>, HistoryError> {
        self.bounded(since, self.parts(session, parts, spans)).await
    }

    async fn of_cluster(&self, spans: Spans) -> Result<Vec<(Figure, Vec<Point>)>, HistoryError> {
        let look = async {
            let selector = Selector::new(&self.config.labels);
            let bytes = self.range(selector.cluster(spans.step_ms), spans).await?;
            answer::figures(&bytes, spans)
        };
        self.bounded(Instant::now(), look).await
    }

    async fn reach(&self) -> Result<(), HistoryError> {
        let look = async {
            let bytes = self.ask(&self.query, &[("query", "1".to_owned())]).await?;
            answer::is_good(&bytes)
        };
        self.bounded(Instant::now(), look).await
    }
}

/// Milliseconds as Prometheus reads times and lengths.
fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000))
}
