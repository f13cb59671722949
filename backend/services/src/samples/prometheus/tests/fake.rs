//! A Prometheus in this process: it evaluates what [`super::super::expression`] writes of sessions over samples in memory, or misbehaves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::contract::Given;

/// How it behaves.
#[derive(Debug, Clone)]
pub(super) enum Mood {
    Good,
    /// Says this to everything.
    Says(StatusCode, String),
    /// Never says anything.
    Hangs,
    /// Never says anything to questions in which this stands.
    HangsAt(&'static str),
    /// Does not stop.
    Endless,
    /// Refuses more points of a series than these, in Prometheus' words.
    AtMost(usize),
    /// Refuses its first questions for series, so many, in Prometheus' words, and never says anything to the others.
    TooMuchFirst(usize),
    /// Wants this header.
    Wants(&'static str),
}

struct Inner {
    mood: Mood,
    given: Vec<Given>,
    asked: AtomicUsize,
}

pub(super) struct Fake {
    pub(super) url: String,
    inner: Arc<Inner>,
}

impl Fake {
    pub(super) async fn serve(mood: Mood, given: &[Given]) -> Self {
        let inner = Arc::new(Inner { mood, given: given.to_vec(), asked: AtomicUsize::new(0) });
        let paths = Router::new().route("/api/v1/query", post(answer)).route("/api/v1/query_range", post(answer));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = paths.with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> usize {
        self.inner.asked.load(Ordering::Relaxed)
    }
}

async fn answer(
    State(inner): State<Arc<Inner>>,
    headers: HeaderMap,
    Form(question): Form<HashMap<String, String>>,
) -> Response {
    inner.asked.fetch_add(1, Ordering::Relaxed);
    let good = |result: Value| {
        Json(json!({"status": "success", "data": {"resultType": "matrix", "result": result}})).into_response()
    };
    match &inner.mood {
        Mood::Says(status, body) => (*status, body.clone()).into_response(),
        Mood::Hangs => hang().await,
        Mood::HangsAt(what) if question["query"].contains(what) => hang().await,
        Mood::Endless => {
            let part = Bytes::from(vec![b' '; 65_536]);
            Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(part.clone()))).into_response()
        }
        Mood::Wants(header) if headers.get("authorization").is_none_or(|has| has != header) => {
            StatusCode::UNAUTHORIZED.into_response()
        }
        Mood::AtMost(most) if times(&question).len() > *most => too_much(),
        Mood::TooMuchFirst(many) if question.contains_key("step") => {
            if inner.asked.load(Ordering::Relaxed) > *many {
                return hang().await;
            }
            too_much()
        }
        _ if !question.contains_key("step") => {
            Json(json!({"status": "success", "data": {"resultType": "scalar", "result": [1.5, "1"]}})).into_response()
        }
        Mood::Good | Mood::AtMost(_) | Mood::TooMuchFirst(_) | Mood::Wants(_) | Mood::HangsAt(_) => {
            let at = times(&question);
            let parts = question["query"].split(" or ").flat_map(|part| evaluated(part, &at, &inner.given));
            good(parts.collect())
        }
    }
}

fn too_much() -> Response {
    let error = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution";
    let refusal = json!({"status": "error", "errorType": "bad_data", "error": error});
    (StatusCode::BAD_REQUEST, Json(refusal)).into_response()
}

async fn hang() -> Response {
    std::future::pending().await
}

/// The times that are asked for, milliseconds.
fn times(question: &HashMap<String, String>) -> Vec<i64> {
    let ms = |key: &str| question.get(key).map_or(1, |text| (text.parse::<f64>().unwrap() * 1000.0).round() as i64);
    let (start, end, step) = (ms("start"), ms("end"), ms("step"));
    std::iter::successors(Some(start), |at| Some(at + step)).take_while(|at| *at <= end).collect()
}

/// `label_replace(AGGREGATION by (LABELS) (FOLD_over_time(NAME{MATCHERS}[RANGEms])), "fold", "TAG", "", "")`.
fn evaluated(text: &str, at: &[i64], all: &[Given]) -> Vec<Value> {
    let cut = |text: &'_ str, by: &str| -> (String, String) {
        let (before, behind) = text.split_once(by).unwrap_or_else(|| panic!("no `{by}` in {text}"));
        (before.to_owned(), behind.to_owned())
    };
    let (_, rest) = cut(text, "label_replace(");
    let (aggregation, rest) = cut(&rest, " by (");
    let (by, rest) = cut(&rest, ") (");
    let (fold, rest) = cut(&rest, "_over_time(");
    let (name, rest) = cut(&rest, "{");
    let (matchers, rest) = cut(&rest, "}[");
    let (range, rest) = cut(&rest, "ms])), \"fold\", \"");
    let (tag, _) = cut(&rest, "\"");
    let range: i64 = range.parse().unwrap();
    let matches = |given: &&Given| {
        given.series.metric().prometheus() == name
            && matchers.split(',').all(|matcher| {
                let (label, value) = cut(matcher, "=\"");
                given.labels.get(&label).map_or("", String::as_str) == value.trim_end_matches('"')
            })
    };
    let mut groups: BTreeMap<BTreeMap<String, String>, BTreeMap<i64, Vec<f64>>> = BTreeMap::new();
    for given in all.iter().filter(matches) {
        let kept = by.split(',').filter_map(|label| Some((label.to_owned(), given.labels.get(label)?.clone())));
        let group = groups.entry(kept.collect()).or_default();
        for at in at {
            let within = given.samples.iter().filter(|(time, _)| *time > at - range && time <= at);
            let within: Vec<f64> = within.map(|(_, value)| *value).collect();
            if !within.is_empty() {
                group.entry(*at).or_default().push(folded(&fold, &within));
            }
        }
    }
    let series = |(mut labels, values): (BTreeMap<String, String>, BTreeMap<i64, Vec<f64>>)| {
        labels.retain(|_, value| !value.is_empty());
        labels.insert("fold".into(), tag.clone());
        let value = |(at, values): (i64, Vec<f64>)| json!([at as f64 / 1000.0, said(folded(&aggregation, &values))]);
        json!({"metric": labels, "values": values.into_iter().map(value).collect::<Vec<_>>()})
    };
    let known = groups.into_iter().filter(|(_, values)| !values.is_empty());
    known.map(series).collect()
}

fn folded(by: &str, values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    match by {
        "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
        "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "avg" => sum / values.len() as f64,
        "count" => values.len() as f64,
        _ => panic!("{by}"),
    }
}

fn said(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".into() } else { value.to_string() }
}
