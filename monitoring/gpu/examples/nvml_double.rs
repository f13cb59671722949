//! A double of NVML for the tests of `eirene-gpu`: the functions that it calls, answering from a file, read anew at each call, whose name is
//! in the variable `NVML_DOUBLE`; where SLURM makes the environment, it is [`EVERYWHERE`]. One function that drivers have is left out on purpose:
//! the power limit's.
//!
//! Nothing loads it by itself: `eirene-gpu` looks for `libnvidia-ml.so.1` alone, so a test has to put it there under that name.
//!
//! The file: `{"init": CODE, "most_samples", "gpus": [{"uuid", "name", "lost", "error": CODE, "util": [gpu, memory], "memory": [total, used],
//! "power", "temperature", "ecc": [corrected, uncorrected], "reasons", "gpm": true, "parts": [{"uuid", "memory", "processes", "instance",
//! "busy": [graphics, dram]}], "processes": [[pid, bytes or null]], "samples": [[pid, time, sm]]}]}`; whatever is missing of a GPU is not supported,
//! and how much a process holds is not told where it is null. GPM's samples, of which there are at most `most_samples` at once, have what was
//! in `busy` of the GPU instance then, in percent, null where it is not known; what is told of two is what the later one has.

#![expect(unsafe_code, reason = "the functions of a C library, which take pointers")]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_uint, c_ulonglong};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL as DRAM_BW_UTIL,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL as GRAPHICS_UTIL, nvmlGpmMetricsGet_t, nvmlGpmSample_t,
    nvmlGpmSupport_t, nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
    nvmlUtilization_t,
};
use serde_json::Value;

const SUCCESS: nvmlReturn_t = 0;
const INVALID_ARGUMENT: nvmlReturn_t = 2;
const NOT_SUPPORTED: nvmlReturn_t = 3;
const NOT_FOUND: nvmlReturn_t = 6;
const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
const GPU_IS_LOST: nvmlReturn_t = 15;
const MEMORY: nvmlReturn_t = 20;

/// The file where no variable says another one.
const EVERYWHERE: &str = "/run/nvml-double.json";

/// A sample of GPM: of which GPU and GPU instance, and what that was busy with. It is of none until it is taken.
type Taken = Option<(usize, c_uint, Value)>;

/// The samples that are there, by their numbers, and how many were ever made.
static SAMPLES: Mutex<(BTreeMap<usize, Taken>, usize)> = Mutex::new((BTreeMap::new(), 0));

fn samples() -> MutexGuard<'static, (BTreeMap<usize, Taken>, usize)> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state() -> Value {
    let path = std::env::var_os("NVML_DOUBLE").unwrap_or_else(|| EVERYWHERE.into());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A handle is a number: of the GPU, and of its part.
fn handle(gpu: usize, part: Option<usize>) -> nvmlDevice_t {
    (null_mut::<u8>().wrapping_add((gpu + 1) | (part.map_or(0, |part| part + 1) << 16))).cast()
}

/// What is known of a handle.
fn known(device: nvmlDevice_t) -> Result<Value, nvmlReturn_t> {
    let number = device as usize;
    let gpu = state()["gpus"].get((number & 0xffff).wrapping_sub(1)).cloned().unwrap_or_default();
    match (number >> 16, &gpu) {
        (_, Value::Null) => Err(INVALID_ARGUMENT),
        (_, gpu) if gpu["lost"] == true => Err(GPU_IS_LOST),
        (_, gpu) if code(&gpu["error"]) != SUCCESS => Err(code(&gpu["error"])),
        (0, _) => Ok(gpu),
        (part, gpu) => Ok(gpu["parts"][part - 1].clone()),
    }
}

/// Writes one number of a GPU, or says that there is none.
fn tell<T: TryFrom<u64>>(device: nvmlDevice_t, pick: impl Fn(&Value) -> &Value, into: *mut T) -> nvmlReturn_t {
    match known(device).map(|known| pick(&known).as_u64().and_then(|number| T::try_from(number).ok())) {
        Ok(Some(number)) => {
            // SAFETY: the caller's pointer to a number, as the header has it.
            unsafe { into.write(number) };
            SUCCESS
        }
        Ok(None) => NOT_SUPPORTED,
        Err(code) => code,
    }
}

/// Writes a text, with no end where there is no room for one: hostile on purpose.
fn tell_text(device: nvmlDevice_t, name: &str, into: *mut c_char, room: c_uint) -> nvmlReturn_t {
    match known(device).map(|known| known[name].as_str().map(str::to_owned)) {
        Ok(Some(text)) => {
            let bytes = text.bytes().chain([0]).take(room as usize);
            for (place, byte) in bytes.enumerate() {
                // SAFETY: within the room that the caller says it has.
                unsafe { into.add(place).write(byte.cast_signed()) };
            }
            SUCCESS
        }
        Ok(None) => NOT_SUPPORTED,
        Err(code) => code,
    }
}

/// Writes as many of a list as there is room for.
fn tell_all<T>(all: &[T], count: *mut c_uint, into: *mut T, none: nvmlReturn_t) -> nvmlReturn_t
where
    T: Copy,
{
    // SAFETY: the caller's number.
    let room = unsafe { count.read() } as usize;
    let many = c_uint::try_from(all.len()).unwrap_or(c_uint::MAX);
    // SAFETY: as above.
    unsafe { count.write(many) };
    match all {
        [] => none,
        _ if into.is_null() || room < all.len() => INSUFFICIENT_SIZE,
        _ => {
            for (place, one) in all.iter().enumerate() {
                // SAFETY: within the room that the caller says it has.
                unsafe { into.add(place).write(*one) };
            }
            SUCCESS
        }
    }
}

fn code(of: &Value) -> nvmlReturn_t {
    of.as_u64().and_then(|code| nvmlReturn_t::try_from(code).ok()).unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    code(&state()["init"])
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    // Whoever frees a sample after this frees what is not there any more: no test passes with that.
    if !samples().0.is_empty() {
        std::process::abort();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    let state = state();
    let many = state["gpus"].as_array().map_or(0, Vec::len);
    // SAFETY: the caller's number.
    unsafe { count.write(c_uint::try_from(many).unwrap_or(0)) };
    code(&state["init"])
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's handle.
    unsafe { device.write(handle(index as usize, None)) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    if let Err(code) = known(device) {
        return code;
    }
    let index_of = c_uint::try_from((device as usize & 0xffff) - 1).unwrap_or(0);
    // SAFETY: the caller's number.
    unsafe { index.write(index_of) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: nvmlDevice_t, into: *mut c_char, room: c_uint) -> nvmlReturn_t {
    tell_text(device, "uuid", into, room)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: nvmlDevice_t, into: *mut c_char, room: c_uint) -> nvmlReturn_t {
    tell_text(device, "name", into, room)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, into: *mut nvmlUtilization_t) -> nvmlReturn_t {
    let known = match known(device) {
        Ok(known) => known,
        Err(code) => return code,
    };
    let part = |place: usize| known["util"][place].as_u64().and_then(|part| c_uint::try_from(part).ok());
    let (Some(gpu), Some(memory)) = (part(0), part(1)) else { return NOT_SUPPORTED };
    // SAFETY: the caller's struct.
    unsafe { into.write(nvmlUtilization_t { gpu, memory }) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, into: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    let known = match known(device) {
        Ok(known) => known,
        Err(code) => return code,
    };
    let (Some(total), Some(used)) = (known["memory"][0].as_u64(), known["memory"][1].as_u64()) else {
        return NOT_SUPPORTED;
    };
    // SAFETY: the caller's struct.
    let info = unsafe { &mut *into };
    (info.total, info.used, info.reserved, info.free) = (total, used, 0, total.saturating_sub(used));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power: *mut c_uint) -> nvmlReturn_t {
    tell(device, |known| &known["power"], power)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(device: nvmlDevice_t, _: c_uint, temperature: *mut c_uint) -> nvmlReturn_t {
    tell(device, |known| &known["temperature"], temperature)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    error: c_uint,
    _: c_uint,
    count: *mut c_ulonglong,
) -> nvmlReturn_t {
    tell(device, |known| &known["ecc"][error as usize], count)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: nvmlDevice_t,
    reasons: *mut c_ulonglong,
) -> nvmlReturn_t {
    tell(device, |known| &known["reasons"], reasons)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: nvmlDevice_t, now: *mut c_uint, later: *mut c_uint) -> nvmlReturn_t {
    let is_divided = match known(device) {
        Ok(known) => c_uint::from(known["parts"].is_array()),
        Err(code) => return code,
    };
    // SAFETY: the caller's numbers.
    unsafe { (now.write(is_divided), later.write(is_divided)) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(_: nvmlDevice_t, count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's number.
    unsafe { count.write(7) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    part: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    match known(device) {
        Ok(known) if known["parts"][index as usize].is_object() => {
            // SAFETY: the caller's handle.
            unsafe { part.write(handle((device as usize & 0xffff) - 1, Some(index as usize))) };
            SUCCESS
        }
        Ok(_) => NOT_FOUND,
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    into: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let known = match known(device) {
        Ok(known) => known,
        Err(code) => return code,
    };
    let Some(all) = known["processes"].as_array() else { return NOT_SUPPORTED };
    let process = |one: &Value| nvmlProcessInfo_t {
        pid: c_uint::try_from(one[0].as_u64().unwrap_or(0)).unwrap_or(0),
        // `NVML_VALUE_NOT_AVAILABLE`
        usedGpuMemory: one[1].as_u64().unwrap_or(u64::MAX),
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    };
    tell_all(&all.iter().map(process).collect::<Vec<_>>(), count, into, SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    into: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    _: c_ulonglong,
) -> nvmlReturn_t {
    let known = known(device).unwrap_or_default();
    let all = known["samples"].as_array().cloned().unwrap_or_default();
    let sample = |one: &Value| nvmlProcessUtilizationSample_t {
        pid: c_uint::try_from(one[0].as_u64().unwrap_or(0)).unwrap_or(0),
        timeStamp: one[1].as_u64().unwrap_or(0),
        smUtil: c_uint::try_from(one[2].as_u64().unwrap_or(0)).unwrap_or(0),
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    tell_all(&all.iter().map(sample).collect::<Vec<_>>(), count, into, NOT_FOUND)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    tell(device, |known| &known["instance"], id)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, support: *mut nvmlGpmSupport_t) -> nvmlReturn_t {
    let known = match known(device) {
        Ok(known) => known,
        Err(code) => return code,
    };
    // SAFETY: the caller's struct.
    let support = unsafe { &mut *support };
    support.isSupportedDevice = c_uint::from(known["gpm"] == true);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let most = state()["most_samples"].as_u64().unwrap_or(u64::MAX);
    let mut samples = samples();
    if samples.0.len() as u64 >= most {
        return MEMORY;
    }
    samples.1 += 1;
    let number = samples.1;
    samples.0.insert(number, None);
    // A handle is its number.
    // SAFETY: the caller's handle.
    unsafe { sample.write(null_mut::<u8>().wrapping_add(number).cast()) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    match samples().0.remove(&(sample as usize)) {
        Some(_) => SUCCESS,
        // Freed twice: no test passes with that.
        None => std::process::abort(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: nvmlDevice_t, instance: c_uint, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let known = match known(device) {
        Ok(known) => known,
        Err(code) => return code,
    };
    if known["gpm"] != true {
        return NOT_SUPPORTED;
    }
    // A part has no parts: it is the GPU itself that is asked.
    let parts = known["parts"].as_array().cloned().unwrap_or_default();
    let Some(part) = parts.iter().find(|part| part["instance"] == instance) else { return INVALID_ARGUMENT };
    match samples().0.get_mut(&(sample as usize)) {
        Some(taken) => {
            *taken = Some((device as usize, instance, part["busy"].clone()));
            SUCCESS
        }
        None => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(asked: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: the caller's struct.
    let asked = unsafe { &mut *asked };
    let samples = samples();
    let taken = |sample: nvmlGpmSample_t| samples.0.get(&(sample as usize)).and_then(Option::as_ref);
    let (Some(earlier), Some(later)) = (taken(asked.sample1), taken(asked.sample2)) else { return INVALID_ARGUMENT };
    if (earlier.0, earlier.1) != (later.0, later.1) || asked.sample1 == asked.sample2 {
        return INVALID_ARGUMENT;
    }
    for metric in asked.metrics.iter_mut().take(asked.numMetrics as usize) {
        let place = match metric.metricId {
            GRAPHICS_UTIL => 0,
            DRAM_BW_UTIL => 1,
            _ => usize::MAX,
        };
        let known = later.2.get(place);
        metric.nvmlReturn = if known.is_some() { SUCCESS } else { NOT_SUPPORTED };
        metric.value = known.and_then(Value::as_f64).unwrap_or(f64::NAN);
    }
    SUCCESS
}
