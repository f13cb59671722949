//! NVIDIA GPUs, by the NVML of the site's driver (docs.nvidia.com/deploy/nvml-api), version 510 or newer.
//!
//! The crate `nvml-wrapper` loads it and looks each function up by itself, so that one a driver does not have is an error of that call alone;
//! it does all that is wanted here but writing figures down, and it is maintained. Calls that take long, as for the throughput of PCIe (20 ms
//! each), are left out. What a part of a GPU (MIG) cannot tell is not told.

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

/// Where drivers put it. The dynamic loader looks for a bare name.
const LIBRARIES: [&str; 3] =
    ["libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"];
/// So many looks pass before one that was not there, or has gone, is tried again: a driver is not installed every few seconds.
const TRIED_AGAIN_AFTER: u32 = 12;

/// The NVIDIA GPUs of this node.
pub(crate) struct Nvidia {
    library: Option<OsString>,
    chosen: Chosen,
    nvml: Option<Nvml>,
    /// Looks until it is loaded again.
    pause: u32,
    trouble: Option<String>,
    /// Those that were seen, so that one that is lost is told as lost.
    known: BTreeMap<u32, Gpu>,
    /// When processes were last asked for, by the GPU's number: the driver's microseconds.
    asked: BTreeMap<u32, u64>,
}

impl Nvidia {
    pub(crate) fn new(library: Option<OsString>, chosen: Chosen) -> Self {
        let (known, asked) = (BTreeMap::new(), BTreeMap::new());
        Self { library, chosen, nvml: None, pause: 0, trouble: None, known, asked }
    }

    /// One look.
    pub(crate) fn look(&mut self) -> Seen {
        let mut seen = Seen::default();
        if self.nvml.is_none() {
            self.load();
        }
        if let Some(nvml) = self.nvml.take() {
            match self.look_by(&nvml, &mut seen) {
                Ok(()) => {
                    self.trouble = None;
                    self.nvml = Some(nvml);
                }
                // The driver has gone, or begun anew: what was loaded is of no use any more.
                Err(error) => {
                    self.trouble = Some(format!("NVML: {error}"));
                    self.pause = TRIED_AGAIN_AFTER;
                }
            }
        }
        seen.trouble.clone_from(&self.trouble);
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
            match Nvml::builder().lib_path(library).init() {
                Ok(nvml) => {
                    self.nvml = Some(nvml);
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
    fn look_by(&mut self, nvml: &Nvml, seen: &mut Seen) -> Result<(), NvmlError> {
        let mut programs = BTreeMap::<u32, Program>::new();
        for place in 0..nvml.device_count()? {
            // One that the job may not open is passed over; so is one that is lost, but not forgotten.
            let gpu = match nvml.device_by_index(place) {
                Ok(device) => self.one(place, &device, seen, &mut programs),
                Err(error) => Err(error),
            };
            match gpu {
                Err(NvmlError::GpuLost) => {
                    if let Some(gpu) = self.known.get(&place) {
                        of_gpu(&gpu.id, Metric::GpuUp, 0.0, &mut seen.samples);
                        seen.gpus.push(gpu.clone());
                    }
                }
                Err(error @ (NvmlError::Uninitialized | NvmlError::DriverNotLoaded)) => return Err(error),
                Ok(()) | Err(_) => {}
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

    fn one(
        &mut self,
        place: u32,
        device: &Device<'_>,
        seen: &mut Seen,
        programs: &mut BTreeMap<u32, Program>,
    ) -> Result<(), NvmlError> {
        let uuid = device.uuid()?;
        let id = device.index().unwrap_or(place).to_string();
        let parts = parts(device);
        let is_whole = parts.is_empty();
        let name = device.name().unwrap_or_default();
        let is_chosen = self.chosen.has_nvidia(place, &uuid);
        if is_chosen && is_whole {
            let gpu = Gpu { id: id.clone(), uuid: uuid.clone(), name: name.clone(), part_of: None };
            figures(&id, device, &mut seen.samples)?;
            self.known.insert(place, gpu.clone());
            seen.gpus.push(gpu);
        }
        let mut is_wanted = is_chosen;
        for (number, part) in parts {
            let Ok(part_uuid) = part.uuid() else { continue };
            if self.chosen.has_part(place, &uuid, &part_uuid) {
                is_wanted = true;
                let part_id = format!("{id}.{number}");
                memory(&part_id, &part, &mut seen.samples);
                of_gpu(&part_id, Metric::GpuUp, 1.0, &mut seen.samples);
                occupied(&part_id, own_processes(&part).as_deref(), &mut seen.samples);
                let name = part.name().unwrap_or_else(|_| name.clone());
                seen.gpus.push(Gpu { id: part_id, uuid: part_uuid, name, part_of: Some(id.clone()) });
            }
        }
        if is_wanted {
            let own = own_processes(device);
            if is_whole {
                occupied(&id, own.as_deref(), &mut seen.samples);
            }
            self.programs(place, device, &own.unwrap_or_default(), programs);
        }
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
fn parts<'a>(device: &Device<'a>) -> Vec<(u32, Device<'a>)> {
    // `NVML_DEVICE_MIG_ENABLE`
    if !device.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Vec::new();
    }
    let most = device.mig_device_count().unwrap_or(0).min(64);
    (0..most).filter_map(|number| Some((number, device.mig_device_by_index(number).ok()?))).collect()
}

/// Only what says that the GPU is lost is an error: everything else is a figure that there is not.
fn figures(id: &str, device: &Device<'_>, samples: &mut Vec<Sample>) -> Result<(), NvmlError> {
    let from = samples.len();
    match device.utilization_rates() {
        Ok(rates) => {
            of_gpu(id, Metric::GpuUtil, f64::from(rates.gpu.min(100)) / 100.0, samples);
            of_gpu(id, Metric::GpuMemoryUtil, f64::from(rates.memory.min(100)) / 100.0, samples);
        }
        Err(error @ (NvmlError::GpuLost | NvmlError::Uninitialized | NvmlError::DriverNotLoaded)) => {
            samples.truncate(from);
            return Err(error);
        }
        Err(_) => {}
    }
    memory(id, device, samples);
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
            Err(NvmlError::GpuLost) => {
                samples.truncate(from);
                return Err(NvmlError::GpuLost);
            }
            Err(_) => {}
        }
    }
    of_gpu(id, Metric::GpuUp, 1.0, samples);
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
