//! Names of series in the store: `cpu/cpu_seconds/c1`, `io/io_read_bytes/c1//scratch`, `processes/cpu_process/c1/4711:python3`. The group stands first,
//! because the store answers by how names begin, and a page wants one group.
//!
//! The store takes printable ASCII without blanks; everything else in the name of a device, and `%`, is written as in URLs (RFC 3986, section 2.1).

use eirene_monitoring::{Group, Metric, NodeName, Series};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What the store does not take, and what encodes it.
const CODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A series of a session, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// What is measured.
    pub(super) metric: Metric,
    /// Where.
    pub(super) node: String,
    /// Of what, where it is of something.
    pub(super) device: Option<String>,
}

/// The name of a node's series.
pub(super) fn write(series: &Series, node: &NodeName) -> String {
    let mut name = format!("{}{}", prefix_of(series.metric()), node.as_str());
    if let Some(device) = series.device() {
        name.push('/');
        name.extend(utf8_percent_encode(&device.to_string(), CODED));
    }
    name
}

/// How the names of a group begin.
pub(super) fn prefix(group: Group) -> String {
    format!("{}/", group.name())
}

/// How the names of a metric begin.
pub(super) fn prefix_of(metric: Metric) -> String {
    format!("{}{}/", prefix(metric.group()), metric.name())
}

/// None of what a later version wrote.
pub(super) fn read(name: &str) -> Option<Name> {
    let mut parts = name.splitn(4, '/');
    let (_group, metric, node) = (parts.next()?, Metric::by_name(parts.next()?)?, parts.next()?);
    let device = parts.next().map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
    Some(Name { metric, node: node.to_owned(), device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_is_one_that_the_store_takes() {
        let node = NodeName::try_from("c1.cluster").unwrap();
        for (text, name) in [
            ("cpu_seconds", "cpu/cpu_seconds/c1.cluster"),
            ("io_read_bytes//scratch/a b", "io/io_read_bytes/c1.cluster//scratch/a%20b"),
            ("cpu_process/7:50% \u{e9}", "processes/cpu_process/c1.cluster/7:50%25%20%C3%A9"),
            ("gpu_util/0.1", "gpu/gpu_util/c1.cluster/0.1"),
            ("report/top5", "report/report/c1.cluster/top5"),
        ] {
            let series: Series = text.parse().unwrap();
            let written = write(&series, &node);
            assert_eq!(written, name);
            assert!(written.bytes().all(|byte| byte.is_ascii_graphic()));
            let device = series.device().map(ToString::to_string);
            assert_eq!(read(&written), Some(Name { metric: series.metric(), node: "c1.cluster".into(), device }));
        }
    }

    #[test]
    fn what_is_no_name_of_ours_is_passed_over() {
        for name in ["", "cpu", "cpu/cpu_seconds", "cpu/dance/c1"] {
            assert_eq!(read(name), None, "{name}");
        }
        assert_eq!(read("io/io_read_bytes/c1/%zz%2").unwrap().device.unwrap(), "%zz%2");
    }
}
