//! What Prometheus is asked: a value for each span of a chart, folded from the samples that lie in it.
//!
//! `…_over_time` looks at samples alone and never beyond the span, where a plain selector would go on with the last value for five minutes; a gap
//! stays a gap. What is told of one series twice (by two jobs of the site's, or from before and after the portal moved) is one series here,
//! because only labels that we have given are kept. A label of ours that the site has renamed (`exported_…`) would mix series up: those are left
//! out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use eirene_core::SessionId;
use eirene_monitoring::{DeviceKind, Metric};

use crate::samples::Figure;

/// The label that says which fold a value is, or which figure.
pub(super) const FOLD: &str = "fold";

/// How the samples of a span are folded, and how what is told of them twice.
const FOLDS: [(&str, &str); 4] = [("min", "min"), ("max", "max"), ("avg", "avg"), ("count", "max")];

/// Writes selectors of this portal's series.
pub(super) struct Selector {
    /// Matchers that all of them have, each with a comma before it.
    labels: String,
}

impl Selector {
    /// With labels that all series of this portal have.
    pub(super) fn new(labels: &BTreeMap<String, String>) -> Self {
        let mut text = String::new();
        for (name, value) in labels {
            let _ = write!(text, ",{name}=\"{}\"", escaped(value));
        }
        Self { labels: text }
    }

    /// One metric of a session in spans of `step_ms`, in each of [`FOLDS`].
    pub(super) fn metric(&self, session: SessionId, metric: Metric, step_ms: i64) -> String {
        let (name, labels) = (metric.prometheus(), &self.labels);
        let device = metric.devices().first().copied().map(DeviceKind::label);
        let mut selector = format!("{name}{{session=\"{session}\"{labels},exported_session=\"\",exported_node=\"\"");
        let mut by = "node".to_owned();
        if let Some(device) = device {
            let _ = write!(selector, ",exported_{device}=\"\"");
            let _ = write!(by, ",{device}");
        }
        let fold = |(fold, twice): &(&str, &str)| {
            tagged(&format!("{twice} by ({by}) ({fold}_over_time({selector}}}[{step_ms}ms]))"), fold)
        };
        FOLDS.iter().map(fold).collect::<Vec<_>>().join(" or ")
    }

    /// All figures of the cluster in spans of `step_ms`, as means, by whoever has told them; not of a time in which the scheduler did not answer.
    pub(super) fn cluster(&self, step_ms: i64) -> String {
        // A year has half a million minutes: what a span is the mean of are at most a hundred values of it.
        let every_ms = step_ms.div_euclid(100).max(60_000);
        let by = "by (job,instance)";
        let good = format!("sum {by} (eirene_scheduler_reachable{}) == 1", self.braced(""));
        let figure = |figure: Figure| {
            let (name, state) = figure.series();
            let matcher = state.map(|state| format!("state=\"{state}\"")).unwrap_or_default();
            let told = format!("sum {by} ({name}{})", self.braced(&matcher));
            let seen = format!("{told} and on (job,instance) ({good})");
            tagged(&format!("avg_over_time(({seen})[{step_ms}ms:{every_ms}ms])"), &tag(figure))
        };
        Figure::ALL.map(figure).join(" or ")
    }

    fn braced(&self, matcher: &str) -> String {
        let both = format!("{matcher}{}", self.labels);
        format!("{{{}}}", both.trim_start_matches(','))
    }
}

/// What a figure of the cluster is called in the label [`FOLD`].
pub(super) fn tag(figure: Figure) -> String {
    match figure.series() {
        (name, Some(state)) => format!("{name}/{state}"),
        (name, None) => name.to_owned(),
    }
}

/// The same with one more label, so that several can be in one answer.
fn tagged(expression: &str, value: &str) -> String {
    format!("label_replace({expression}, \"{FOLD}\", \"{value}\", \"\", \"\")")
}

/// A text within quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_asked_for_in_each_fold_by_the_labels_we_have_given() {
        let labels = BTreeMap::from([("cluster".to_owned(), "a\"b".to_owned())]);
        let session = SessionId::generate();
        let text = Selector::new(&labels).metric(session, Metric::GpuUtil, 60_000);
        let first = format!(
            "label_replace(min by (node,gpu) (min_over_time(eirene_gpu_util_ratio{{session=\"{session}\",cluster=\"a\\\"b\",\
             exported_session=\"\",exported_node=\"\",exported_gpu=\"\"}}[60000ms])), \"fold\", \"min\", \"\", \"\") or "
        );
        assert!(text.starts_with(&first), "{text}");
        assert_eq!(text.matches(" or ").count(), 3);
        let plain = Selector::new(&BTreeMap::new()).metric(session, Metric::Cpu, 5000);
        assert!(plain.contains("max by (node) (count_over_time(eirene_cpu_seconds_total{session=\""), "{plain}");
    }

    #[test]
    fn figures_of_the_cluster_are_asked_for_all_at_once() {
        let text = Selector::new(&BTreeMap::new()).cluster(900_000);
        let first = "label_replace(avg_over_time((sum by (job,instance) (eirene_cluster_jobs{state=\"running\"}) and on (job,instance) \
                     (sum by (job,instance) (eirene_scheduler_reachable{}) == 1))[900000ms:60000ms]), \"fold\", \"eirene_cluster_jobs/running\", \"\", \"\")";
        assert!(text.starts_with(first), "{text}");
        let gpus = "(sum by (job,instance) (eirene_cluster_all_gpus_held{}) and on (job,instance) ";
        assert!(text.contains(gpus) && text.contains("\"fold\", \"eirene_cluster_all_gpus_held\", "), "{text}");
        assert_eq!(text.matches(" or ").count(), Figure::ALL.len() - 1);
    }
}
