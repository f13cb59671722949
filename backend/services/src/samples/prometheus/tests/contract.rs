//! An hour of a session on two nodes, as both that are behind the port are told it, and what a chart of it has to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use eirene_core::SessionId;
use eirene_monitoring::{Group, Metric, NodeName, Series};
use eirene_monitoring_store::{Options, Sample, Store};

use crate::samples::history::{BuiltIn, History};
use crate::samples::{Chart, Line, chart, ingest, name};

pub(super) const MINUTE_MS: i64 = 60_000;
pub(super) const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Samples come so often, and so long after a minute begins.
const EVERY_MS: i64 = 20_000;
const OFFSET_MS: i64 = 7000;
/// A name of a mount that has in it what names may have.
const HOSTILE: &str = "/a \"b\"\\,} é";

/// One series, as it is told.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) series: Series,
    pub(super) node: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) samples: Vec<(i64, f64)>,
}

impl Given {
    pub(super) fn new(session: SessionId, series: &str, node: &str, samples: &[(i64, f64)]) -> Self {
        let series: Series = series.parse().unwrap();
        let mut labels = BTreeMap::from([
            ("session".to_owned(), session.to_string()),
            ("node".to_owned(), node.to_owned()),
            ("job".to_owned(), "eirene-sessions".to_owned()),
            ("instance".to_owned(), "portal".to_owned()),
        ]);
        if let (Some(device), Some(kind)) = (series.device(), series.metric().devices().first()) {
            labels.insert(kind.label().to_owned(), device.to_string());
        }
        Self { series, node: node.to_owned(), labels, samples: samples.to_vec() }
    }

    pub(super) fn with(mut self, label: &str, value: &str) -> Self {
        self.labels.insert(label.to_owned(), value.to_owned());
        self
    }
}

/// The hour from `base_ms` on, which begins a minute. Values are such that every way to fold them is exact.
pub(super) fn given(session: SessionId, base_ms: i64) -> Vec<Given> {
    let told = |series: &str, node: &str, value: &dyn Fn(i64, i64) -> Option<f64>| {
        let at = |minute: i64, third: i64| base_ms + minute * MINUTE_MS + third * EVERY_MS + OFFSET_MS;
        let all = (0..60).flat_map(|minute| (0..3).map(move |third| (minute, third)));
        let samples: Vec<_> =
            all.filter_map(|(minute, third)| Some((at(minute, third), value(minute, third)?))).collect();
        Given::new(session, series, node, &samples)
    };
    vec![
        // Half a core; its agent is started again in minute 40.
        told("cpu_seconds", "c1", &|minute, third| {
            let all = 10 * (minute * 3 + third);
            Some(if minute < 40 { all as f64 } else { (all - 1200) as f64 })
        }),
        told("cpu_seconds", "c2", &|minute, third| Some(40.0 * (minute * 3 + third) as f64)),
        // For five minutes nobody tells of it; in minute 30 it is much for a moment.
        told("memory_bytes", "c1", &|minute, third| match (minute, third) {
            (20..25, _) => None,
            (30, 2) => Some(4e9),
            _ => Some(1e9),
        }),
        told("gpu_util/0", "c2", &|minute, _| Some(if minute % 2 == 0 { 0.5 } else { 0.25 })),
        told("gpu_util/1", "c2", &|_, _| Some(0.0)),
        told("report/loss", "c1", &|minute, _| Some(-(minute as f64))),
        told(&format!("io_read_bytes/{HOSTILE}"), "c1", &|minute, third| Some(6e6 * (minute * 3 + third) as f64)),
    ]
}

/// A chart of the hour in minutes.
pub(super) async fn drawn(history: &dyn History, session: SessionId, base_ms: i64) -> Chart {
    let span = chart::Span { from: base_ms, to: base_ms + HOUR_MS };
    chart::draw(history, session, span, &chart::parts(None), Some(60)).await.unwrap()
}

/// The same from a store that was told the same.
pub(super) async fn of_the_store(session: SessionId, base_ms: i64) -> Chart {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), &Options::default()).unwrap();
    for given in given(session, base_ms) {
        let name = name::write(&given.series, &NodeName::try_from(given.node.as_str()).unwrap());
        for (at_ms, value) in &given.samples {
            let sample = Sample { name: &name, at_ms: *at_ms, value: *value };
            assert_eq!(store.append(*at_ms, ingest::store_id(session), &[sample]), 1);
        }
    }
    drawn(&BuiltIn(Arc::new(store)), session, base_ms).await
}

/// What anybody can work out by hand.
pub(super) fn is_right(chart: &Chart) {
    let of = |metric: Metric, node: &str| -> &Line {
        chart.lines.iter().find(|line| line.metric == metric && line.node == node).unwrap()
    };
    assert_eq!((chart.step_ms, chart.spans, chart.lines.len()), (MINUTE_MS, 60, 7));
    assert!(chart.lines.iter().all(|line| line.metric.group() != Group::Cores));
    let cpu = of(Metric::Cpu, "c1");
    assert_eq!(
        (cpu.values[0], cpu.values[1], cpu.values[40]),
        (None, Some(0.5), None),
        "a counter that falls began anew"
    );
    assert_eq!(cpu.total, Some(1760.0));
    assert_eq!(of(Metric::Cpu, "c2").total, Some(40.0 * 179.0), "from the first sample to the last");
    let memory = of(Metric::Memory, "c1");
    assert!(memory.values[20..25].iter().all(Option::is_none), "a gap stays a gap: {:?}", memory.values);
    assert_eq!((memory.values[19], memory.values[25], memory.values[30]), (Some(1e9), Some(1e9), Some(2e9)));
    assert_eq!(memory.most.as_ref().unwrap()[30], Some(4e9), "a short rise is not lost in a mean");
    assert_eq!(memory.highest, Some(4e9));
    let gpus: Vec<_> = chart.lines.iter().filter(|line| line.metric == Metric::GpuUtil).collect();
    assert_eq!(gpus.iter().map(|line| line.device.as_deref().unwrap()).collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!((gpus[0].values[0], gpus[0].values[1], gpus[1].values[7]), (Some(0.5), Some(0.25), Some(0.0)));
    assert_eq!(of(Metric::Report, "c1").values[59], Some(-59.0));
    let read = of(Metric::IoRead, "c1");
    assert_eq!((read.device.as_deref(), read.values[9]), (Some(HOSTILE), Some(300_000.0)));
}
