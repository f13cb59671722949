//! Devices: NVIDIA's and AMD's. Their libraries are opened in a child, for a driver that is broken may hang or crash whoever asks it.
#![expect(unsafe_code, reason = "dlopen, and calls into NVIDIA's management library")]

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eirene_train_launch::Environment;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::child;
use crate::finding::{Finding, Section, bytes, count};

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) total: u64,
    pub(crate) free: u64,
}

/// What NVIDIA's libraries say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nvidia {
    /// The driver's version.
    pub(crate) driver: String,
    pub(crate) gpus: Vec<Gpu>,
    /// Whether CUDA's own library opens.
    pub(crate) cuda: bool,
}

/// What is there.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// NVIDIA's device files, and whether this user may use each.
    pub(crate) files: Vec<(String, bool)>,
    /// What its libraries say; the error is the first thing that went wrong.
    pub(crate) nvidia: Result<Nvidia, String>,
    /// Where programs that share a GPU would meet, if a server for that is there.
    pub(crate) sharing: Option<PathBuf>,
    /// Whether AMD's driver is there, and may be used.
    pub(crate) amd: Option<bool>,
    /// What the environment lets programs see.
    pub(crate) visible: Option<String>,
}

impl Facts {
    pub(crate) fn look(look: &[OsString], environment: &Environment) -> Self {
        let kfd = Path::new("/dev/kfd");
        let pipes = environment.get("CUDA_MPS_PIPE_DIRECTORY").unwrap_or("/tmp/nvidia-mps");
        Self {
            files: files(Path::new("/dev")),
            nvidia: ask(look),
            sharing: Some(PathBuf::from(pipes)).filter(|path| path.join("control").exists()),
            amd: kfd.exists().then(|| may_use(kfd)),
            visible: environment
                .variables()
                .find(|(name, _)| *name == "CUDA_VISIBLE_DEVICES")
                .map(|(_, value)| value.to_owned()),
        }
    }
}

fn may_use(path: &Path) -> bool {
    use nix::unistd::{AccessFlags, access};
    access(path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok()
}

/// `nvidia0`, `nvidia1` and so on.
fn files(below: &Path) -> Vec<(String, bool)> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    let mut found: Vec<(u32, String, bool)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix("nvidia")?.parse().ok()?;
            Some((number, name, may_use(&entry.path())))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name, may)| (name, may)).collect()
}

/// How long the driver may take to wake its devices.
const WAKING: Duration = Duration::from_secs(10);

fn ask(look: &[OsString]) -> Result<Nvidia, String> {
    let ended = child::run(&[look, &["nvidia".into()]].concat(), &[], WAKING);
    let Some(answer) = ended.answer() else { return Err(format!("the process that asked {}", ended.ending)) };
    match answer["refused"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => serde_json::from_value(answer).map_err(|_| "its answer makes no sense".to_owned()),
    }
}

/// The child's part of [`ask`].
pub(crate) fn answer() -> serde_json::Value {
    nvidia().map_or_else(|why| json!({"refused": why}), |found| json!(found))
}

/// Opens a library for as long as this process lives.
fn open(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name is a C string. Opening runs the library's constructors: that is what is asked for.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(format!("{} does not open", name.to_string_lossy())) } else { Ok(handle) }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is open, the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(format!("libnvidia-ml has no {}", name.to_string_lossy())) } else { Ok(address) }
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// Asks NVIDIA's management library (NVML) by its published interface.
fn nvidia() -> Result<Nvidia, String> {
    type Init = unsafe extern "C" fn() -> c_int;
    type Text = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
    type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
    type Handle = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
    type Name = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;
    type Amount = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
    const TEXT: usize = 96;

    let library = open(c"libnvidia-ml.so.1")?;
    let find = |name: &CStr| symbol(library, name);
    let (init, version, number) =
        (find(c"nvmlInit_v2")?, find(c"nvmlSystemGetDriverVersion")?, find(c"nvmlDeviceGetCount_v2")?);
    let (handle, name, memory) =
        (find(c"nvmlDeviceGetHandleByIndex_v2")?, find(c"nvmlDeviceGetName")?, find(c"nvmlDeviceGetMemoryInfo")?);
    // SAFETY: these are the functions' types by NVML's header, which they have kept since its version 2.
    let (init, version, number, handle, name, memory) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Init>(init),
            std::mem::transmute::<*mut c_void, Text>(version),
            std::mem::transmute::<*mut c_void, Count>(number),
            std::mem::transmute::<*mut c_void, Handle>(handle),
            std::mem::transmute::<*mut c_void, Name>(name),
            std::mem::transmute::<*mut c_void, Amount>(memory),
        )
    };
    let text = |fill: &dyn Fn(*mut c_char, c_uint) -> c_int| {
        let mut buffer = [0_u8; TEXT];
        let code = fill(buffer.as_mut_ptr().cast(), TEXT as c_uint);
        let read = CStr::from_bytes_until_nul(&buffer).map(|text| text.to_string_lossy().into_owned());
        if code == 0 { read.unwrap_or_default() } else { String::new() }
    };
    // SAFETY: NVML may be started at any time.
    let code = unsafe { init() };
    if code != 0 {
        return Err(format!("NVIDIA's driver does not answer (nvmlInit: error {code})"));
    }
    // SAFETY: NVML is on; the buffer is as long as said.
    let driver = text(&|to, room| unsafe { version(to, room) });
    let mut devices: c_uint = 0;
    // SAFETY: as above.
    unsafe { number(&raw mut devices) };
    let gpus = (0..devices).filter_map(|index| {
        let mut device = std::ptr::null_mut();
        // SAFETY: as above; the place is good for a handle.
        if unsafe { handle(index, &raw mut device) } != 0 {
            return None;
        }
        let mut amount = Memory::default();
        // SAFETY: the handle is NVML's own; the place is good for its struct.
        unsafe { memory(device, &raw mut amount) };
        // SAFETY: as above.
        let name = text(&|to, room| unsafe { name(device, to, room) });
        Some(Gpu { name, total: amount.total, free: amount.free })
    });
    Ok(Nvidia { driver, gpus: gpus.collect(), cuda: open(c"libcuda.so.1").is_ok() })
}

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mut findings = Vec::new();
    match &facts.nvidia {
        Ok(found) => judge_nvidia(found, &mut findings),
        Err(why) if !facts.files.is_empty() => findings.push(Finding::warning(
            "devices.nvidia",
            format!("{}, but {why}", count(facts.files.len(), "NVIDIA device file")),
            "the driver's libraries are not here: start the container with `--gpus all` (docker) or `--nv` (apptainer), and with \
             NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )),
        Err(_) if facts.amd.is_none() => findings.push(Finding::ok("devices.none", "no GPU; ranks compute on the processors")),
        Err(_) => {}
    }
    let closed: Vec<&str> = facts.files.iter().filter(|(_, may)| !may).map(|(name, _)| name.as_str()).collect();
    if !closed.is_empty() {
        let fact = format!("/dev/{} may not be used by this user", closed.join(", /dev/"));
        findings.push(Finding::warning(
            "devices.permission",
            fact,
            "ask for the GPU (`srun --gpus`), or for the group that owns the files",
        ));
    }
    if let Some(visible) = &facts.visible {
        let fact = format!("CUDA_VISIBLE_DEVICES is `{visible}`: programs see these only");
        findings.push(Finding::ok("devices.visible", fact).with(visible.as_str()));
    }
    if let Some(path) = &facts.sharing {
        let fact = format!("a server that lets processes share a GPU (MPS) has its pipes in {}", path.display());
        findings.push(Finding::ok("devices.mps", fact));
    }
    match facts.amd {
        Some(true) => findings.push(Finding::ok("devices.amd", "AMD's driver is there and may be used (/dev/kfd)")),
        Some(false) => findings.push(Finding::warning(
            "devices.amd",
            "AMD's driver is there, but /dev/kfd may not be used by this user",
            "ask for the group that owns it (render), or start the container with `--device=/dev/kfd --device=/dev/dri`",
        )),
        None => {}
    }
    Section { name: "devices", title: "devices", findings }
}

fn judge_nvidia(found: &Nvidia, findings: &mut Vec<Finding>) {
    let driver = &found.driver;
    let fact = format!("NVIDIA driver {driver}, {}", count(found.gpus.len(), "GPU"));
    findings.push(
        if found.cuda {
            Finding::ok("devices.nvidia", fact)
        } else {
            let cure =
                "CUDA programs need libcuda.so.1: start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility";
            Finding::warning("devices.nvidia", format!("{fact}, but libcuda.so.1 does not open"), cure)
        }
        .with(json!(found)),
    );
    for (index, Gpu { name, total, free }) in found.gpus.iter().enumerate() {
        findings.push(Finding::ok(
            "devices.gpu",
            format!("GPU {index}: {name}, {} of {} free", bytes(*free), bytes(*total)),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn facts() -> Facts {
        Facts {
            files: Vec::new(),
            nvidia: Err("libnvidia-ml.so.1 does not open".into()),
            sharing: None,
            amd: None,
            visible: None,
        }
    }

    fn levels(facts: &Facts) -> Vec<(&'static str, Level)> {
        judge(facts).findings.iter().map(|finding| (finding.id, finding.level)).collect()
    }

    #[test]
    fn no_device_is_fine() {
        assert_eq!(levels(&facts()), [("devices.none", Level::Ok)]);
    }

    #[test]
    fn devices_without_their_libraries_are_a_warning() {
        let files = vec![("nvidia0".to_owned(), true)];
        assert_eq!(levels(&Facts { files, ..facts() }), [("devices.nvidia", Level::Warning)]);
        let files = vec![("nvidia0".to_owned(), false)];
        assert!(levels(&Facts { files, ..facts() }).contains(&("devices.permission", Level::Warning)));
        assert_eq!(levels(&Facts { amd: Some(false), ..facts() }), [("devices.amd", Level::Warning)]);
    }

    #[test]
    fn devices_are_shown_with_their_memory() {
        let gpu = Gpu { name: "NVIDIA H200".into(), total: 143 << 30, free: 142 << 30 };
        let found = Nvidia { driver: "570.1".into(), gpus: vec![gpu], cuda: true };
        let section = judge(&Facts { nvidia: Ok(found.clone()), ..facts() });
        assert_eq!(section.findings[1].fact, "GPU 0: NVIDIA H200, 142 GiB of 143 GiB free");
        let half = Facts { nvidia: Ok(Nvidia { cuda: false, ..found }), ..facts() };
        assert_eq!(levels(&half)[0], ("devices.nvidia", Level::Warning));
    }

    #[test]
    fn whoever_asks_gets_an_answer() {
        let answer = answer();
        assert!(answer["refused"].is_string() || answer["driver"].is_string(), "{answer}");
    }
}
