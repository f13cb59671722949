//! The job's control groups: where they are and what they count.
//!
//! SLURM gives a job one group in version 2, and in version 1 one in each hierarchy that the site uses; what it does not use is not
//! asked here. This process's own `/proc/self/cgroup` says where they are: SLURM's names for them differ by version and settings. Formats
//! and meanings: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use eirene_monitoring::{Confinement, Held};

use crate::files::{Kept, Room};
use crate::parse::{self, Mount, NO_LIMIT};

/// Most groups below the job's whose kills are counted, and most devices.
const MOST: usize = 256;

/// What a job's groups say; what is none is not known.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) cpu_seconds: Option<f64>,
    /// Nanoseconds by core.
    pub(crate) cores: Vec<(u16, u64)>,
    pub(crate) memory: Option<u64>,
    pub(crate) peak: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) reclaimable: Option<u64>,
    pub(crate) oom_kills: Option<u64>,
    /// Bytes read and written by device.
    pub(crate) io: Vec<(String, u64, u64)>,
    /// Microseconds: processor, memory, storage.
    pub(crate) pressure: [Option<u64>; 3],
}

/// What the node has as a whole. What a group holds a job to may be no less.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Its cores; none where nobody knows.
    pub(crate) cores: Vec<u16>,
    /// Its memory, bytes.
    pub(crate) memory: Option<u64>,
}

/// The files of a job's groups.
#[derive(Debug)]
pub(crate) struct Groups {
    confinement: Confinement,
    held: Held,
    /// Paths as `/proc/PID/cgroup` says them.
    paths: Vec<String>,
    files: HashMap<&'static str, Kept>,
    /// Version 1 counts kills where they were, not above.
    memory_v1: Option<PathBuf>,
    kills: HashMap<PathBuf, u64>,
    io: HashMap<String, (u64, u64)>,
}

/// Files of version 2.
const V2: [&str; 9] = [
    "cpu.stat",
    "memory.current",
    "memory.peak",
    "memory.max",
    "memory.stat",
    "memory.events",
    "io.stat",
    "cpu.pressure",
    "memory.pressure",
];
/// Files of version 1 by controller. Of the last two nothing is counted; what they hold the job to is in [`LIMITS`].
const V1: [(&str, &[&str]); 5] = [
    ("cpuacct", &["cpuacct.usage", "cpuacct.usage_percpu"]),
    ("memory", &["memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.stat"]),
    ("blkio", &["blkio.throttle.io_service_bytes_recursive"]),
    ("cpuset", &[]),
    ("cpu", &[]),
];
/// Files of either version that say what a group is held to. One that is not there holds nobody: that controller is not used.
const LIMITS: [&str; 5] = ["memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us", "cpuset.cpus"];

impl Groups {
    /// Finds the job's groups by where this process is. What the groups hold the job to is looked at once: SLURM has written it before the
    /// job's first program runs.
    pub(crate) fn find(root: &Path, own: &str, mounts: &[Mount], whole: &Whole, room: &mut Room) -> Self {
        let mut groups = Self {
            confinement: Confinement::None,
            held: Held { memory: Some(false), cpus: Some(false) },
            paths: Vec::new(),
            files: HashMap::new(),
            memory_v1: None,
            kills: HashMap::new(),
            io: HashMap::new(),
        };
        let v2 = mounts.iter().find(|mount| mount.kind == "cgroup2");
        if let Some((path, directory)) = v2.and_then(|mount| directory(root, own, mount, "")) {
            groups.confinement = Confinement::CgroupV2;
            groups.paths.push(path);
            groups.keep(&directory, &V2);
            groups.keep(&directory, &["io.pressure"]);
            groups.note_limits(&directory, whole, room);
        }
        for (controller, files) in V1 {
            let has =
                |mount: &&Mount| mount.kind == "cgroup" && mount.options.split(',').any(|name| name == controller);
            let found = mounts.iter().find(has).and_then(|mount| directory(root, own, mount, controller));
            let Some((path, directory)) = found else { continue };
            if groups.confinement == Confinement::None {
                groups.confinement = Confinement::CgroupV1;
            }
            groups.paths.push(path);
            groups.keep(&directory, files);
            groups.note_limits(&directory, whole, room);
            if controller == "memory" {
                groups.memory_v1 = Some(directory);
            }
        }
        groups
    }

    fn keep(&mut self, directory: &Path, files: &[&'static str]) {
        for name in files {
            // `memory.stat` is called so in both: the one that was there first is the job's.
            self.files.entry(name).or_insert_with(|| Kept::new(directory.join(name)));
        }
    }

    /// Notes what a group of the job's holds it to: the job is held where one of its groups does.
    fn note_limits(&mut self, directory: &Path, whole: &Whole, room: &mut Room) {
        for name in LIMITS {
            let path = directory.join(name);
            if path.try_exists().is_ok_and(|is_there| !is_there) {
                continue;
            }
            // What is there and cannot be read is not known.
            let text = room.once(&path).map(Cow::into_owned);
            let text = text.as_deref();
            let held = &mut self.held;
            match name {
                "memory.max" | "memory.limit_in_bytes" => {
                    let is_held = text.and_then(|text| parse::limits_memory(text, whole.memory));
                    held.memory = either(held.memory, is_held);
                }
                "cpuset.cpus" => {
                    let is_held = text.and_then(|text| parse::lacks_some(text, &whole.cores));
                    held.cpus = either(held.cpus, is_held);
                }
                _ => {
                    // Version 1 has the period of its quota in a file of its own.
                    let period = room.once(&directory.join("cpu.cfs_period_us")).unwrap_or_default();
                    let is_held =
                        text.and_then(|text| parse::limits_time(&format!("{text} {period}"), whole.cores.len()));
                    held.cpus = either(held.cpus, is_held);
                }
            }
        }
    }

    /// What the groups hold the job to; none where there are none.
    pub(crate) fn held(&self) -> Option<Held> {
        (self.confinement != Confinement::None).then_some(self.held)
    }

    /// Which version confines the job.
    pub(crate) fn confinement(&self) -> Confinement {
        self.confinement
    }

    /// Paths of the job's groups.
    pub(crate) fn paths(&self) -> &[String] {
        &self.paths
    }

    /// What they say now.
    pub(crate) fn look(&mut self, room: &mut Room) -> Figures {
        if self.confinement == Confinement::None {
            return Figures::default();
        }
        let micros = |text: &str| parse::keyed(text, "usage_usec").map(|micros| micros as f64 / 1e6);
        let nanos = |text: &str| parse::single(text).map(|nanos| nanos as f64 / 1e9);
        let limited = |text: &str| parse::single(text).filter(|limit| *limit < NO_LIMIT);
        let reclaimable =
            |text: &str| parse::keyed(text, "total_inactive_file").or_else(|| parse::keyed(text, "inactive_file"));
        let mut ask = |name, read: &dyn Fn(&str) -> Option<u64>| {
            self.files.get_mut(name).and_then(|file| read(&file.text(room)?))
        };
        let memory = ask("memory.current", &parse::single).or_else(|| ask("memory.usage_in_bytes", &parse::single));
        let peak = ask("memory.peak", &parse::single).or_else(|| ask("memory.max_usage_in_bytes", &parse::single));
        let limit = ask("memory.max", &limited).or_else(|| ask("memory.limit_in_bytes", &limited));
        let reclaimable = ask("memory.stat", &reclaimable);
        let oom_kills = ask("memory.events", &|text| parse::keyed(text, "oom_kill"));
        let pressure = ["cpu.pressure", "memory.pressure", "io.pressure"].map(|name| ask(name, &parse::pressure));
        let mut seconds = |name, read: &dyn Fn(&str) -> Option<f64>| {
            self.files.get_mut(name).and_then(|file| read(&file.text(room)?))
        };
        let cpu_seconds = seconds("cpu.stat", &micros).or_else(|| seconds("cpuacct.usage", &nanos));
        let by_core = self.files.get_mut("cpuacct.usage_percpu").and_then(|file| file.text(room));
        let cores = by_core.map(|text| parse::usage_by_core(&text)).unwrap_or_default();
        let oom_kills = oom_kills.or_else(|| self.kills_v1(room));
        let io = self.devices(room);
        Figures { cpu_seconds, cores, memory, peak, limit, reclaimable, oom_kills, io, pressure }
    }

    /// Kills in the job's groups of version 1. A step that has ended takes its group along, and keeps its count here.
    fn kills_v1(&mut self, room: &mut Room) -> Option<u64> {
        let mut queue = vec![self.memory_v1.clone()?];
        let mut looked_at = 0;
        while let Some(directory) = queue.pop().filter(|_| looked_at < MOST) {
            looked_at += 1;
            let count =
                room.once(&directory.join("memory.oom_control")).and_then(|text| parse::keyed(&text, "oom_kill"));
            let below = std::fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok);
            queue.extend(
                below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
            );
            if let Some(count) = count.filter(|_| self.kills.len() < MOST || self.kills.contains_key(&directory)) {
                let kept = self.kills.entry(directory).or_default();
                *kept = count.max(*kept);
            }
        }
        (!self.kills.is_empty()).then(|| self.kills.values().fold(0, |sum: u64, count| sum.saturating_add(*count)))
    }

    /// Bytes by device; a device that is gone keeps its own.
    fn devices(&mut self, room: &mut Room) -> Vec<(String, u64, u64)> {
        let mut now = Vec::new();
        if let Some(text) = self.files.get_mut("io.stat").and_then(|file| file.text(room)) {
            now = parse::io_stat(&text);
        } else if let Some(text) =
            self.files.get_mut("blkio.throttle.io_service_bytes_recursive").and_then(|file| file.text(room))
        {
            now = parse::blkio(&text);
        }
        for (device, read, written) in now {
            if self.io.len() < MOST || self.io.contains_key(&device) {
                let kept = self.io.entry(device).or_default();
                *kept = (kept.0.max(read), kept.1.max(written));
            }
        }
        let mut all: Vec<_> =
            self.io.iter().map(|(device, (read, written))| (device.clone(), *read, *written)).collect();
        all.sort();
        all
    }
}

/// Whether one of two limits holds. Where the one that is known does not, nothing is known of both.
fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// The job's group in one hierarchy: its path, and its directory where it can be seen.
fn directory(root: &Path, own: &str, mount: &Mount, controller: &str) -> Option<(String, PathBuf)> {
    let path = parse::job_group(parse::cgroup(own, controller)?)?;
    // Only a part of the hierarchy may be mounted; a group outside of it cannot be seen.
    let below = path.strip_prefix(mount.root.trim_end_matches('/'))?.trim_start_matches('/');
    if below.split('/').any(|part| part == "..") {
        return None;
    }
    let directory = root.join(mount.point.trim_start_matches('/')).join(below);
    directory.is_dir().then(|| (path.to_owned(), directory))
}
