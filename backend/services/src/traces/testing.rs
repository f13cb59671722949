//! A collector of OpenTelemetry in this process, for tests of what is sent to one.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Exporter, Traces};
use crate::config::Traces as Config;
use crate::testing::PATIENCE;

/// The collector: keeps what it is sent, and answers as it is told.
pub struct Collector {
    pub url: String,
    pub got: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

type Kept = (Arc<Mutex<Vec<(HeaderMap, Value)>>>, StatusCode, &'static str);

impl Collector {
    /// One that answers each request with these.
    pub async fn serve(status: StatusCode, answer: &'static str) -> Self {
        async fn take(
            State((got, status, answer)): State<Kept>,
            headers: HeaderMap,
            body: String,
        ) -> (StatusCode, &'static str) {
            got.lock().unwrap().push((headers, serde_json::from_str(&body).unwrap()));
            (status, answer)
        }
        let got = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().route("/v1/traces", post(take)).with_state((Arc::clone(&got), status, answer));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, got }
    }

    /// All that it was sent.
    pub fn bodies(&self) -> Vec<Value> {
        self.got.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    /// All spans, with the service that says each.
    pub fn spans(&self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        for body in self.bodies() {
            for resource in body["resourceSpans"].as_array().unwrap() {
                let service = resource["resource"]["attributes"][0]["value"]["stringValue"].as_str().unwrap();
                let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
                all.extend(spans.iter().map(|span| (service.to_owned(), span.clone())));
            }
        }
        all
    }
}

/// Traces go there, all of them.
pub fn config(url: &str) -> Config {
    Config { url: Some(url.to_owned()), ..Config::default() }
}

/// As it is configured, which is with a collector.
pub fn traces(config: &Config) -> (Traces, Exporter) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (traces, exporter) = Traces::new(config).unwrap();
    (traces, exporter.unwrap())
}

/// Sends all that was said.
pub async fn sent(exporter: Exporter) {
    let over = CancellationToken::new();
    over.cancel();
    tokio::time::timeout(PATIENCE, exporter.run(over)).await.unwrap();
}
