//! Samples a job on one node from within, as the person, without privileges, for the agent.
//!
//! [`Probe::sample`] reads the kernel's files and gives a [`Batch`]; it never blocks on anything but them, starts nothing and waits for
//! nothing, so that the agent can call it from a thread every few seconds. Figures come from the job's control groups where it has some,
//! version 2 before version 1, else from its processes; [`Batch::confinement`] says which, and [`Batch::held`] what they hold the job to. A figure that nobody tells is not in the batch.
//! Counters of the job never fall while the probe lives, whatever ends.
//!
//! What cannot be told honestly is not: I/O by mount only for block devices that are mounted as such (`io.stat` counts devices, and nothing
//! counts a job's bytes on NFS, Lustre or BeeGFS: for NFS the whole node's are told, BeeGFS's client has no file of them, and Lustre's is
//! root's alone; in the totals, which are what processes have had read and written, they are), cores of a job only
//! where cgroup v1 counts them. Network, of interfaces and of ports of InfiniBand and RoCE, and cores are else the node's, and [`eirene_monitoring::Metric::whose`] says so. GPUs are another's, and so is what sampling costs.
//!
//! [`Reports`] takes what programs say of themselves.

mod cgroup;
mod files;
mod node;
mod parse;
mod processes;
mod report;
mod tally;

use std::path::PathBuf;

use eirene_monitoring::{Batch, Confinement, Device, Metric, NodeName, Process, Sample, Series, Text};
use jiff::Timestamp;

use crate::cgroup::{Figures, Groups, Whole};
use crate::files::Room;
use crate::node::Node;
use crate::processes::{Processes, Sums};

pub use crate::report::{
    MOST_AT_ONCE, MOST_DATAGRAM, MOST_NAMES, MOST_NAMES_KEPT, MOST_REPORTS_PER_SECOND, Refusals, RefusedReport,
    ReportError, ReportSocket, Reports,
};

/// Processes that are told one by one: so many of the busiest, and so many of the largest.
pub const MOST_PROCESSES_TOLD: usize = 16;
/// A process is told by itself from this look on: a build that starts a thousand short ones is not a thousand series.
const LOOKS_BEFORE_TOLD: u32 = 3;

/// Where the kernel's files are; a test has its own.
#[derive(Debug, Clone)]
pub struct Roots {
    /// proc(5).
    pub proc: PathBuf,
    /// Below which mount points are: control groups are found by them; and `sys`, where adapters of the network are.
    pub root: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), root: "/".into() }
    }
}

/// Whose figures are wanted.
#[derive(Debug, Clone)]
pub struct Job {
    /// SLURM's number of the job.
    pub id: u32,
    /// Whose processes they are.
    pub uid: u32,
    /// Memory that SLURM gives the job on this node, bytes, for where no control group says it (`SLURM_MEM_PER_NODE`).
    pub memory_limit: Option<u64>,
}

/// Samples one job on one node.
#[derive(Debug)]
pub struct Probe {
    node_name: NodeName,
    memory_limit: Option<u64>,
    groups: Groups,
    processes: Processes,
    node: Node,
    room: Room,
    /// The most seen where the kernel does not say it.
    peak: u64,
    /// What counters told last.
    told: std::collections::HashMap<Metric, f64>,
    ticks: f64,
    page: u64,
}

impl Probe {
    /// Looks where the job's figures are. What is missing is no error: it is missing in the samples.
    pub fn new(roots: &Roots, node_name: NodeName, job: &Job) -> Self {
        let mut room = Room::default();
        let own = room.once(&roots.proc.join("self/cgroup")).unwrap_or_default().into_owned();
        let mounts = parse::mounts(&room.once(&roots.proc.join("self/mountinfo")).unwrap_or_default());
        let cores = parse::cores(&room.once(&roots.proc.join("stat")).unwrap_or_default());
        let kilo = parse::keyed(&room.once(&roots.proc.join("meminfo")).unwrap_or_default(), "MemTotal");
        let whole = Whole {
            cores: cores.into_iter().map(|(core, _)| core).collect(),
            memory: kilo.map(|kilo| kilo.saturating_mul(1024)),
        };
        Self {
            node_name,
            memory_limit: job.memory_limit,
            groups: Groups::find(&roots.root, &own, &mounts, &whole, &mut room),
            processes: Processes::new(roots.proc.clone(), job.id, job.uid),
            node: Node::new(roots),
            room,
            peak: 0,
            told: std::collections::HashMap::new(),
            ticks: rustix::param::clock_ticks_per_second() as f64,
            page: rustix::param::page_size() as u64,
        }
    }

    /// What confines the job here.
    pub fn confinement(&self) -> Confinement {
        self.groups.confinement()
    }

    /// All figures now; `now` is the batch's time.
    pub fn sample(&mut self, now: Timestamp) -> Batch {
        let figures = self.groups.look(&mut self.room);
        let sums = self.processes.look(self.groups.paths(), &mut self.room);
        let mut samples = Samples::default();
        self.job(&mut samples, &figures, &sums);
        self.each_process(&mut samples);
        self.node.look(&mut samples, &figures.io, self.ticks, &mut self.room);
        let (confinement, held) = (self.groups.confinement(), self.groups.held());
        Batch { node: self.node_name.clone(), at: now, confinement, held, samples: samples.all }
    }

    fn job(&mut self, samples: &mut Samples, figures: &Figures, sums: &Sums) {
        let bytes = |count: Option<u64>| count.map(|count| count as f64);
        let cpu = figures.cpu_seconds.or(sums.cpu.map(|ticks| ticks as f64 / self.ticks));
        // What processes say has network file systems in it; a group's devices do not.
        let of_devices =
            |which: fn(&(String, u64, u64)) -> u64| figures.io.iter().map(which).reduce(u64::saturating_add);
        let read = sums.read.or_else(|| of_devices(|(_, read, _)| *read));
        let written = sums.written.or_else(|| of_devices(|(_, _, written)| *written));
        let waited = |micros: Option<u64>| micros.map(|micros| micros as f64 / 1e6);
        let [on_cpu, on_memory, on_io] = figures.pressure;
        for (metric, value) in [
            (Metric::Cpu, cpu),
            (Metric::IoRead, bytes(read)),
            (Metric::IoWritten, bytes(written)),
            (Metric::OomKills, bytes(figures.oom_kills)),
            (Metric::PressureCpu, waited(on_cpu)),
            (Metric::PressureMemory, waited(on_memory)),
            (Metric::PressureIo, waited(on_io)),
        ] {
            samples.total(metric, self.never_less(metric, value));
        }
        for (core, nanos) in &figures.cores {
            samples.of(Metric::CpuCore, Device::Core(*core), *nanos as f64 / 1e9);
        }
        let resident = sums.resident.map(|pages| pages.saturating_mul(self.page));
        let memory = figures.memory.or(resident);
        self.peak = self.peak.max(memory.unwrap_or_default());
        samples.total(Metric::Memory, bytes(memory));
        samples.total(Metric::MemoryPeak, bytes(figures.peak.or(memory.map(|_| self.peak))));
        samples.total(Metric::MemoryLimit, bytes(figures.limit.or(self.memory_limit)));
        samples.total(Metric::MemoryReclaimable, bytes(figures.reclaimable));
        samples.total(Metric::Processes, sums.resident.map(|_| self.processes.all().len() as f64));
    }

    /// The value, or what was told before where the kernel says less: a file that was read in part, or another source. None stays none.
    fn never_less(&mut self, metric: Metric, value: Option<f64>) -> Option<f64> {
        let told = self.told.get(&metric).copied();
        let value = match (value, told) {
            (Some(value), Some(told)) => Some(value.max(told)),
            (value, _) => value,
        };
        if let Some(value) = value {
            self.told.insert(metric, value);
        }
        value
    }

    fn each_process(&self, samples: &mut Samples) {
        let used = |process: &processes::Process| process.stat.own.saturating_add(process.stat.children);
        let lasting = |(_, process): &(&u32, &processes::Process)| process.looks >= LOOKS_BEFORE_TOLD;
        let mut all: Vec<_> = self.processes.all().iter().filter(lasting).collect();
        let device = |id: u32, process: &processes::Process| {
            Text::lossy(&process.stat.name).map(|name| Device::Process(Process { id, name }))
        };
        all.sort_unstable_by_key(|(id, process)| (std::cmp::Reverse(used(process)), **id));
        for (id, process) in all.iter().take(MOST_PROCESSES_TOLD) {
            let Some(device) = device(**id, process) else { continue };
            samples.of(Metric::CpuProcess, device, used(process) as f64 / self.ticks);
        }
        all.sort_unstable_by_key(|(id, process)| (std::cmp::Reverse(process.stat.resident), **id));
        for (id, process) in all.iter().take(MOST_PROCESSES_TOLD) {
            let Some(device) = device(**id, process) else { continue };
            samples.of(Metric::MemoryProcess, device, process.stat.resident.saturating_mul(self.page) as f64);
        }
    }
}

/// Figures as they come together.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    all: Vec<Sample>,
}

impl Samples {
    /// A figure without device, where there is one.
    pub(crate) fn total(&mut self, metric: Metric, value: Option<f64>) {
        let Some(value) = value else { return };
        self.all.extend(Series::of(metric).ok().map(|series| Sample { series, value }));
    }

    /// A figure of a device. One whose name cannot be said is left out.
    pub(crate) fn of(&mut self, metric: Metric, device: Device, value: f64) {
        self.all.extend(Series::with(metric, device).ok().map(|series| Sample { series, value }));
    }
}
