//! How busy the parts of a GPU (MIG) are, by NVML's GPU Performance Monitoring (GPM), which GPUs have from Hopper on, if their driver has it.
//!
//! NVML tells no utilisation of a part. What it has are counters of a *GPU instance*, and compares two samples of them: here that of a look with
//! that of the look before, so the first look has no figure. A GPU instance may be divided further into compute instances, each of which is a part
//! of its own: what is told is of the GPU instance, so all parts of one get the same figure, also where some of them are another job's.
//!
//! Everything of it is in `nvml-wrapper` but the question which GPU instance a part is of, for which the same library is opened a second time.

#![expect(unsafe_code, reason = "a function that nvml-wrapper lacks, and samples kept beside the NVML they are of")]

use std::collections::BTreeMap;
use std::ffi::OsStr;

use eirene_monitoring::Metric;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample, Nvml};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlGpmSample_t};

use crate::nvidia::unless_lost;

/// What is asked for, and what it is here. Of the memory it is the part of what it could carry that was read or written.
const ASKED: [(GpmMetricId, Metric); 2] =
    [(GpmMetricId::GraphicsUtil, Metric::GpuUtil), (GpmMetricId::DramBwUtil, Metric::GpuMemoryUtil)];

/// A GPU instance: the number of its GPU, and its own there.
type Instance = (u32, u32);
/// Shares, by what they are of.
type Figures = Vec<(Metric, f64)>;

/// NVML as it is loaded, with what is kept from one look to the next.
pub(crate) struct Loaded {
    nvml: Nvml,
    /// The same library; none where it could not be opened again.
    library: Option<NvmlLib>,
    /// The samples of the last look. [`GpmSample`] would borrow from the field above, so what lies here is what it is made of; nobody but this has
    /// it, and it is freed before NVML goes.
    kept: BTreeMap<Instance, nvmlGpmSample_t>,
}

impl Loaded {
    /// Loads NVML from this file, or name.
    pub(crate) fn load(library: &OsStr) -> Result<Self, NvmlError> {
        let nvml = Nvml::builder().lib_path(library).init()?;
        // SAFETY: what it runs when it is opened has run, a line before. The loader only counts that it is opened again, so this is the very library
        // that `nvml` has begun, and the handles of one are those of the other.
        let library = unsafe { NvmlLib::new(library) }.ok();
        Ok(Self { nvml, library, kept: BTreeMap::new() })
    }

    /// One look, which has the samples of the look before. Those that it does not take anew are freed after it.
    pub(crate) fn look<T>(&mut self, look: impl for<'a> FnOnce(&'a Nvml, &mut Instances<'a>) -> T) -> T {
        let nvml = &self.nvml;
        let back = |(instance, sample): (Instance, nvmlGpmSample_t)| {
            // SAFETY: it comes from `into_handle` below, of a sample of this library, is not freed since, and not kept any more.
            (instance, unsafe { GpmSample::from_handle(nvml, sample) })
        };
        let earlier = std::mem::take(&mut self.kept).into_iter().map(back).collect();
        let mut instances = Instances { library: self.library.as_ref(), earlier, now: BTreeMap::new() };
        let seen = look(nvml, &mut instances);
        self.kept = instances.now.into_iter().map(|(instance, (sample, _))| (instance, sample.into_handle())).collect();
        seen
    }
}

impl Drop for Loaded {
    /// Before NVML, which is a field, goes: a look that takes no sample frees all of them.
    fn drop(&mut self) {
        self.look(|_, _| ());
    }
}

/// The GPU instances of one look.
pub(crate) struct Instances<'a> {
    library: Option<&'a NvmlLib>,
    earlier: BTreeMap<Instance, GpmSample<'a>>,
    /// With what came of it.
    now: BTreeMap<Instance, (GpmSample<'a>, Figures)>,
}

impl<'a> Instances<'a> {
    /// How busy the GPU instance of a part has been since the last look. Only that the GPU is lost is an error: without GPM, without a sample of the
    /// last look, or where the job may not ask, there is no figure.
    pub(crate) fn busy(&mut self, place: u32, gpu: &Device<'a>, part: &Device<'a>) -> Result<Figures, NvmlError> {
        if unless_lost(gpu.gpm_support())? != Some(true) {
            return Ok(Figures::new());
        }
        let Some(number) = unless_lost(self.instance(part))? else { return Ok(Figures::new()) };
        // Another part of the same has asked in this look.
        if let Some((_, figures)) = self.now.get(&(place, number)) {
            return Ok(figures.clone());
        }
        let Some(sample) = unless_lost(gpu.gpm_mig_sample(number))? else { return Ok(Figures::new()) };
        let figures = match self.earlier.get(&(place, number)) {
            Some(earlier) => between(earlier, &sample)?,
            None => Figures::new(),
        };
        self.now.insert((place, number), (sample, figures.clone()));
        Ok(figures)
    }

    /// Of a GPU that was lost on the way nothing is kept: once it is back it may count anew.
    pub(crate) fn forget(&mut self, place: u32) {
        self.now.retain(|(of, _), _| *of != place);
    }

    /// The number of the GPU instance that a part is of.
    fn instance(&self, part: &Device<'a>) -> Result<u32, NvmlError> {
        let library = self.library.ok_or(NvmlError::LibraryNotFound)?;
        let ask = nvml_sym(library.nvmlDeviceGetGpuInstanceId.as_ref())?;
        let mut number: u32 = 0;
        // SAFETY: the function as nvml.h has it, with a handle from the same library, which is begun as long as `'a` is, and a number to write to.
        nvml_try(unsafe { ask(part.handle(), &raw mut number) })?;
        Ok(number)
    }
}

/// The figures between two samples of a GPU instance.
fn between<'a>(earlier: &GpmSample<'a>, now: &GpmSample<'a>) -> Result<Figures, NvmlError> {
    let told = unless_lost(gpm_metrics_get(now.nvml(), earlier, now, &ASKED.map(|(asked, _)| asked)))?;
    let mut figures = Figures::new();
    for ((_, metric), figure) in ASKED.into_iter().zip(told.unwrap_or_default()) {
        let share = unless_lost(figure)?.and_then(|figure| share(figure.value));
        figures.extend(share.map(|share| (metric, share)));
    }
    Ok(figures)
}

/// What NVML tells in percent: a little more than all is all, and what is no number is its word for a figure that it has not.
fn share(percent: f64) -> Option<f64> {
    (percent.is_finite() && percent >= 0.0).then(|| percent.min(100.0) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_not_known_and_nothing_is_more_than_all() {
        let shares = [0.0, 12.5, 100.0, 100.4].map(share);
        assert_eq!(shares, [Some(0.0), Some(0.125), Some(1.0), Some(1.0)]);
        assert_eq!([f64::NAN, f64::INFINITY, -1.0].map(share), [None; 3]);
    }
}
