//! Figures of one GPU as samples.

use eirene_monitoring::{Device, Metric, Process, Sample, Series, Text};

/// A figure of a GPU. What is no number, or impossible, is no sample.
pub(crate) fn of_gpu(id: &str, metric: Metric, value: f64, into: &mut Vec<Sample>) {
    let Ok(text) = Text::try_from(id) else { return };
    push(metric, Device::Gpu(text), value, into);
}

/// A figure of a process, by the name it has given itself.
pub(crate) fn of_process(id: u32, metric: Metric, value: f64, into: &mut Vec<Sample>) {
    let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    let Some(name) = Text::lossy(name.trim_end()).or_else(|| Text::lossy("?")) else { return };
    push(metric, Device::Process(Process { id, name }), value, into);
}

fn push(metric: Metric, device: Device, value: f64, into: &mut Vec<Sample>) {
    if let Ok(series) = Series::with(metric, device) {
        let sample = Sample { series, value };
        if sample.is_possible() {
            into.push(sample);
        }
    }
}

/// Bytes, pieces: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "samples are doubles; beyond 2^53 nothing is a sample")]
pub(crate) fn number(value: u64) -> f64 {
    value as f64
}

/// Whether a process is this person's: of others nothing is told, not even that they are there.
pub(crate) fn is_own(id: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{id}")).is_ok_and(|process| process.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_impossible_is_no_sample() {
        let mut samples = Vec::new();
        for value in [f64::NAN, -1.0, f64::INFINITY] {
            of_gpu("0", Metric::GpuPower, value, &mut samples);
        }
        of_gpu("0/1", Metric::GpuPower, 1.0, &mut samples);
        of_gpu("", Metric::GpuPower, 1.0, &mut samples);
        assert_eq!(samples, []);
        of_gpu("0.1", Metric::GpuPower, 70.5, &mut samples);
        of_process(std::process::id(), Metric::GpuMemoryProcess, 5.0, &mut samples);
        of_process(0, Metric::GpuMemoryProcess, 5.0, &mut samples);
        assert_eq!(samples[0].series.to_string(), "gpu_power_watts/0.1");
        assert!(samples[2].series.to_string().ends_with(":?"), "a process that has gone has no name");
        assert!(is_own(std::process::id()) && !is_own(0));
    }
}
