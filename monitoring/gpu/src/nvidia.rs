//! NVIDIA GPUs, by the NVML of the site's driver (docs.nvidia.com/deploy/nvml-api), version 510 or newer.
//!
//! The crate `nvml-wrapper` loads it and looks each function up by itself, so that one a driver does not have is an error of that call alone;
//! it does all that is wanted here but writing figures down, and it is maintained. Calls that take long, as for the throughput of PCIe (20 ms
//! each), are left out. What a part of a GPU (MIG) cannot tell is told of the whole of it, once, by its own number, without what would make it a
//! GPU that the job has beside its parts: that it is up, what it computes, who is on it. How busy a part is has a way of its own ([`crate::gpm`]).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use eirene_monitoring::{Gpu, Metric, Sample};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use crate::Seen;
use crate::chosen::Chosen;
use crate::figures::{is_own, number, of_gpu, of_process};
use crate::gpm::{Instances, Loaded};

/// Where drivers put it. The dynamic loader looks for a bare name.
const LIBRARIES: [&str; 3] =
    ["libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"];
/// So many looks pass before one that was not there, or has gone, is tried again: a driver is not installed every few seconds.
const TRIED_AGAIN_AFTER: u32 = 12;
/// One that was seen and does not answer for so many looks in a row is lost, whatever the driver calls it.
pub(crate) const LOST_AFTER: u32 = 3;

/// The NVIDIA GPUs of this node.
pub(crate) struct Nvidia {
    library: Option<OsString>,
    chosen: Chosen,
    loaded: Option<Loaded>,
    /// Looks until it is loaded again.
    pause: u32,
    trouble: Option<String>,
    /// Whether the last look was without a driver.
    is_away: bool,
    /// What was last seen of each GPU, itself or its parts, so that one that is lost is told as lost.
    known: BTreeMap<u32, Vec<Gpu>>,
    /// For how many looks each of them has not answered, by its number.
    unanswered: BTreeMap<u32, u32>,
    /// When processes were last asked for, by the GPU's number: the driver's microseconds.
    asked: BTreeMap<u32, u64>,
}

impl Nvidia {
    pub(crate) fn new(library: Option<OsString>, chosen: Chosen) -> Self {
        let (known, unanswered, asked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { library, chosen, loaded: None, pause: 0, trouble: None, is_away: false, known, unanswered, asked }
    }

    /// One look.
    pub(crate) fn look(&mut self) -> Seen {
        let mut seen = Seen::default();
        if self.loaded.is_none() {
            self.load();
        }
        if let Some(mut loaded) = self.loaded.take() {
            match loaded.look(|nvml, instances| self.look_by(nvml, instances, &mut seen)) {
                Ok(()) => {
                    self.trouble = None;
                    self.is_away = false;
                    self.loaded = Some(loaded);
                }
                // The driver has gone, or begun anew: what was loaded is of no use any more.
                Err(error) => {
                    self.trouble = Some(format!("NVML: {error}"));
                    // One that has begun anew is there with the next look.
                    self.pause = if self.is_away { TRIED_AGAIN_AFTER } else { 0 };
                }
            }
        }
        if self.loaded.is_none() {
            seen = self.without_driver();
        }
        seen.trouble.clone_from(&self.trouble);
        seen
    }

    /// The job's GPUs are the same, and not up, but for the first such look: that may be chance.
    fn without_driver(&mut self) -> Seen {
        let mut seen = Seen::default();
        let gpus = self.known.values().flatten().cloned();
        if self.is_away {
            not_up(gpus, &mut seen);
        } else {
            seen.gpus.extend(gpus);
        }
        self.is_away = true;
        seen
    }

    fn load(&mut self) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        self.pause = TRIED_AGAIN_AFTER;
        let named = self.library.as_deref().map(|library| vec![library]);
        let mut trouble = None;
        for library in named.unwrap_or_else(|| LIBRARIES.iter().map(OsStr::new).collect()) {
            match Loaded::load(library) {
                Ok(loaded) => {
                    self.loaded = Some(loaded);
                    return;
                }
                // A node without NVIDIA's GPUs has none, and that is no trouble, unless one was named.
                Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound) if self.library.is_none() => {}
                Err(error) => trouble = Some(format!("NVML: {error}")),
            }
        }
        self.trouble = trouble;
    }

    /// An error ends the look, and with it what is loaded; a GPU that does not answer does not.
    fn look_by<'a>(&mut self, nvml: &'a Nvml, instances: &mut Instances<'a>, seen: &mut Seen) -> Result<(), NvmlError> {
        let mut programs = BTreeMap::<u32, Program>::new();
        // One that fell off the bus may not be counted any more.
        let seen_before = self.known.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        for place in 0..nvml.device_count()?.max(seen_before) {
            // One that the job may not open is passed over; so is one that is lost, but not forgotten.
            let gpu = match nvml.device_by_index(place) {
                Ok(device) => self.one(place, &device, instances, seen, &mut programs),
                Err(error) => Err(error),
            };
            match gpu {
                // With a divided one all of its parts are.
                Err(NvmlError::GpuLost) => {
                    instances.forget(place);
                    not_up(self.known.get(&place).cloned().unwrap_or_else(|| self.never_seen(place)), seen);
                }
                Err(error @ (NvmlError::Uninitialized | NvmlError::DriverNotLoaded)) => return Err(error),
                Ok(()) => {
                    self.unanswered.remove(&place);
                }
                Err(NvmlError::NoPermission) => {}
                Err(_) => self.unanswered(place, seen),
            }
        }
        for (id, Program { memory, util }) in programs {
            if let Some(memory) = memory {
                of_process(id, Metric::GpuMemoryProcess, memory, &mut seen.samples);
            }
            of_process(id, Metric::GpuUtilProcess, util, &mut seen.samples);
        }
        Ok(())
    }

    /// One that was seen and does not answer, with its parts: nothing is told of it until it is lost.
    fn unanswered(&mut self, place: u32, seen: &mut Seen) {
        let Some(gpus) = self.known.get(&place).cloned() else { return };
        let looks = self.unanswered.entry(place).or_default();
        *looks = looks.saturating_add(1);
        if *looks >= LOST_AFTER {
            not_up(gpus, seen);
        } else {
            seen.gpus.extend(gpus);
        }
    }

    /// One that was lost before anybody looked, where the job was given it by its number: nothing else is known of it, nor whose any other is.
    fn never_seen(&self, place: u32) -> Vec<Gpu> {
        let lost = Gpu { id: place.to_string(), uuid: String::new(), name: "NVIDIA GPU".to_owned(), part_of: None };
        if self.chosen.names_nvidia(place) { vec![lost] } else { Vec::new() }
    }

    /// One that is lost in the middle of it is lost as a whole: nothing of it is in `seen` then.
    fn one<'a>(
        &mut self,
        place: u32,
        device: &Device<'a>,
        instances: &mut Instances<'a>,
        seen: &mut Seen,
        programs: &mut BTreeMap<u32, Program>,
    ) -> Result<(), NvmlError> {
        let uuid = device.uuid()?;
        let id = device.index().unwrap_or(place).to_string();
        let parts = parts(device)?;
        let is_whole = parts.is_empty();
        let name = device.name().unwrap_or_default();
        let is_chosen = self.chosen.has_nvidia(place, &uuid);
        let (mut gpus, mut samples) = (Vec::new(), Vec::new());
        if is_chosen && is_whole {
            figures(&id, device, &mut samples)?;
            gpus.push(Gpu { id: id.clone(), uuid: uuid.clone(), name: name.clone(), part_of: None });
        }
        let mut is_wanted = is_chosen;
        for (number, part) in parts {
            let Some(part_uuid) = unless_lost(part.uuid())? else { continue };
            if self.chosen.has_part(place, &uuid, &part_uuid) {
                is_wanted = true;
                let part_id = format!("{id}.{number}");
                memory(&part_id, &part, &mut samples);
                of_gpu(&part_id, Metric::GpuUp, 1.0, &mut samples);
                occupied(&part_id, own_processes(&part).as_deref(), &mut samples);
                for (metric, share) in instances.busy(place, device, &part)? {
                    of_gpu(&part_id, metric, share, &mut samples);
                }
                let name = part.name().unwrap_or_else(|_| name.clone());
                gpus.push(Gpu { id: part_id, uuid: part_uuid, name, part_of: Some(id.clone()) });
            }
        }
        if is_wanted {
            let own = own_processes(device);
            if is_whole {
                occupied(&id, own.as_deref(), &mut samples);
            } else {
                of_the_whole(&id, device, &mut samples)?;
            }
            self.programs(place, device, &own.unwrap_or_default(), programs);
        }
        self.known.insert(place, gpus.clone());
        seen.gpus.append(&mut gpus);
        seen.samples.append(&mut samples);
        Ok(())
    }

    /// Adds up what the person's own processes have of a GPU.
    fn programs(
        &mut self,
        place: u32,
        device: &Device<'_>,
        own: &[ProcessInfo],
        programs: &mut BTreeMap<u32, Program>,
    ) {
        for process in own {
            if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                let memory = &mut programs.entry(process.pid).or_default().memory;
                *memory = Some(memory.unwrap_or_default() + number(bytes));
            }
        }
        let last = self.asked.get(&place).copied().unwrap_or(0);
        // None lately: that is an error to NVML.
        let mut samples = device.process_utilization_stats(last).unwrap_or_default();
        samples.retain(|sample| sample.timestamp > last);
        let newest = samples.iter().map(|sample| sample.timestamp).max().unwrap_or(last);
        self.asked.insert(place, newest);
        let mut of = BTreeMap::<u32, (f64, f64)>::new();
        for sample in samples {
            let (sum, many) = of.entry(sample.pid).or_default();
            *sum += f64::from(sample.sm_util.min(100)) / 100.0;
            *many += 1.0;
        }
        for (process, (sum, many)) in of.into_iter().filter(|(process, _)| is_own(*process)) {
            programs.entry(process).or_default().util += sum / many;
        }
    }
}

/// GPUs that are the job's and do not answer; nothing else is known of them.
pub(crate) fn not_up(gpus: impl IntoIterator<Item = Gpu>, seen: &mut Seen) {
    for gpu in gpus {
        of_gpu(&gpu.id, Metric::GpuUp, 0.0, &mut seen.samples);
        seen.gpus.push(gpu);
    }
}

/// What one process has of all GPUs together.
#[derive(Debug, Default)]
struct Program {
    /// None where the driver does not tell.
    memory: Option<f64>,
    util: f64,
}

/// The person's own processes on a GPU, or a part of one; none where the driver does not tell, which is not the same as that there are none.
fn own_processes(device: &Device<'_>) -> Option<Vec<ProcessInfo>> {
    let mut running = device.running_compute_processes().ok()?;
    running.retain(|process| is_own(process.pid));
    Some(running)
}

/// Says how many they are, where that is known.
fn occupied(id: &str, own: Option<&[ProcessInfo]>, samples: &mut Vec<Sample>) {
    if let Some(own) = own {
        of_gpu(id, Metric::GpuProcesses, number(own.len() as u64), samples);
    }
}

/// The parts of a divided GPU that can be reached from here; none of one that is not.
fn parts<'a>(device: &Device<'a>) -> Result<Vec<(u32, Device<'a>)>, NvmlError> {
    // `NVML_DEVICE_MIG_ENABLE`
    if unless_lost(device.mig_mode())?.is_none_or(|mode| mode.current != 1) {
        return Ok(Vec::new());
    }
    let most = unless_lost(device.mig_device_count())?.unwrap_or(0).min(64);
    let mut parts = Vec::new();
    for number in 0..most {
        parts.extend(unless_lost(device.mig_device_by_index(number))?.map(|part| (number, part)));
    }
    Ok(parts)
}

/// What a GPU told; none where it does not tell it. That it is lost is an error: it is not one that has no parts.
pub(crate) fn unless_lost<T>(told: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match told {
        Err(NvmlError::GpuLost) => Err(NvmlError::GpuLost),
        told => Ok(told.ok()),
    }
}

/// Only what says that the GPU is lost is an error: everything else is a figure that there is not.
fn figures(id: &str, device: &Device<'_>, samples: &mut Vec<Sample>) -> Result<(), NvmlError> {
    match device.utilization_rates() {
        Ok(rates) => {
            of_gpu(id, Metric::GpuUtil, f64::from(rates.gpu.min(100)) / 100.0, samples);
            of_gpu(id, Metric::GpuMemoryUtil, f64::from(rates.memory.min(100)) / 100.0, samples);
        }
        Err(error @ (NvmlError::GpuLost | NvmlError::Uninitialized | NvmlError::DriverNotLoaded)) => return Err(error),
        Err(_) => {}
    }
    memory(id, device, samples);
    of_the_whole(id, device, samples)?;
    of_gpu(id, Metric::GpuUp, 1.0, samples);
    Ok(())
}

/// What a GPU has as a whole, divided or not; an error as that of [`figures`].
fn of_the_whole(id: &str, device: &Device<'_>, samples: &mut Vec<Sample>) -> Result<(), NvmlError> {
    let milliwatts = |value: u32| f64::from(value) / 1000.0;
    let all = [
        (Metric::GpuPower, device.power_usage().map(milliwatts)),
        (Metric::GpuPowerLimit, device.enforced_power_limit().map(milliwatts)),
        (Metric::GpuTemperature, device.temperature(TemperatureSensor::Gpu).map(f64::from)),
        (Metric::GpuEccCorrected, device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).map(number)),
        (
            Metric::GpuEccUncorrected,
            device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).map(number),
        ),
        (
            Metric::GpuThrottled,
            device.current_throttle_reasons().map(|reasons| f64::from(u8::from(is_throttled(reasons)))),
        ),
    ];
    for (metric, value) in all {
        match value {
            Ok(value) => of_gpu(id, metric, value, samples),
            Err(NvmlError::GpuLost) => return Err(NvmlError::GpuLost),
            Err(_) => {}
        }
    }
    Ok(())
}

fn memory(id: &str, device: &Device<'_>, samples: &mut Vec<Sample>) {
    if let Ok(memory) = device.memory_info() {
        of_gpu(id, Metric::GpuMemory, number(memory.used), samples);
        of_gpu(id, Metric::GpuMemoryLimit, number(memory.total), samples);
    }
}

/// Slowed down by power or heat; not by being idle, nor by clocks that somebody has set.
fn is_throttled(reasons: ThrottleReasons) -> bool {
    reasons.intersects(
        ThrottleReasons::SW_POWER_CAP
            | ThrottleReasons::HW_SLOWDOWN
            | ThrottleReasons::SW_THERMAL_SLOWDOWN
            | ThrottleReasons::HW_THERMAL_SLOWDOWN
            | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
    )
}
