//! What can be measured: names, units, kinds, and whose figure it is.
//!
//! Names follow Prometheus' conventions (prometheus.io/docs/practices/naming: base units, unit as suffix, `_total` for counters); the
//! suffix `_total` and the prefix of the platform are added where metrics are exposed, see [`Metric::prometheus`].

use crate::series::DeviceKind;

/// Whether a figure only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises while the agent lives; starts anew with a requeue.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Parts of one, 0 to 1.
    Ratio,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
    /// Pieces, or a number without unit.
    None,
}

/// Whose figure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The job's alone, on this node.
    Job,
    /// The whole node's: other jobs are in it. Pages have to say so.
    Node,
    /// The program's own word.
    Program,
}

/// What is looked at together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Processor time of the job.
    Cpu,
    /// Processor time by core.
    Cores,
    /// Memory.
    Memory,
    /// Storage.
    Io,
    /// Network.
    Network,
    /// GPUs.
    Gpu,
    /// Single processes.
    Processes,
    /// What programs report of themselves.
    Report,
}

impl Group {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::Cpu, Self::Cores, Self::Memory, Self::Io, Self::Network, Self::Gpu, Self::Processes, Self::Report];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cores => "cores",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Network => "network",
            Self::Gpu => "gpu",
            Self::Processes => "processes",
            Self::Report => "report",
        }
    }
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:literal $unit:ident $kind:ident $whose:ident [$($device:ident)*];)+) => {
        /// Something that is measured. The documentation of each says what, by whom it is known, and of whom.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Metric { $($(#[doc = $doc])+ $variant,)+ }

        impl Metric {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name, with the unit.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What is counted.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit,)+ }
            }

            /// Whether it only rises.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind,)+ }
            }

            /// Whose figure it is.
            pub const fn whose(self) -> Whose {
                match self { $(Self::$variant => Whose::$whose,)+ }
            }

            /// Devices it may be of. With none, it is of no device.
            pub const fn devices(self) -> &'static [DeviceKind] {
                match self { $(Self::$variant => &[$(DeviceKind::$device),*],)+ }
            }

            /// One sentence for `# HELP`.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

metrics! {
    /// Seconds of processor time of the job on this node, user and system, of all cores together.
    Cpu "cpu_seconds" Seconds Counter Job [];
    /// Seconds of processor time of the job by core, where the kernel counts them (cgroup v1).
    CpuCore "cpu_core" Seconds Counter Job [Core];
    /// Seconds of processor time of one process and its ended children; only the busiest are told.
    CpuProcess "cpu_process" Seconds Counter Job [Process];
    /// Seconds during which a core was not idle, whoever used it; only cores that the job may use.
    NodeCpuCore "node_cpu_core" Seconds Counter Node [Core];
    /// Memory that the job holds, its page cache included where a cgroup counts it, else what is resident.
    Memory "memory_bytes" Bytes Gauge Job [];
    /// The most memory that the job has held.
    MemoryPeak "memory_peak_bytes" Bytes Gauge Job [];
    /// Memory that the job may hold.
    MemoryLimit "memory_limit_bytes" Bytes Gauge Job [];
    /// Part of the memory that the kernel takes back before it kills: page cache that nobody has used lately.
    MemoryReclaimable "memory_reclaimable_bytes" Bytes Gauge Job [];
    /// Resident memory of one process, what it shares with others included; only the largest are told.
    MemoryProcess "memory_process_bytes" Bytes Gauge Job [Process];
    /// Processes that the kernel killed because the job's memory was used up.
    OomKills "oom_kills" None Counter Job [];
    /// The node's memory.
    NodeMemory "node_memory_bytes" Bytes Gauge Node [];
    /// The node's memory that could be had without swapping.
    NodeMemoryAvailable "node_memory_available_bytes" Bytes Gauge Node [];
    /// Bytes that the job has had read from storage; by mount only where the mount is a block device of its own.
    IoRead "io_read_bytes" Bytes Counter Job [Mount];
    /// Bytes that the job has had written to storage; by mount only where the mount is a block device of its own.
    IoWritten "io_written_bytes" Bytes Counter Job [Mount];
    /// Bytes read from the server of a mounted network file system, by the whole node.
    MountRead "mount_read_bytes" Bytes Counter Node [Mount];
    /// Bytes written to the server of a mounted network file system, by the whole node.
    MountWritten "mount_written_bytes" Bytes Counter Node [Mount];
    /// Bytes received by an interface or by a port of InfiniBand or RoCE, by the whole node.
    NetReceived "net_receive_bytes" Bytes Counter Node [Interface];
    /// Bytes sent by an interface or by a port of InfiniBand or RoCE, by the whole node.
    NetSent "net_transmit_bytes" Bytes Counter Node [Interface];
    /// Seconds in which some task of the job waited for a core.
    PressureCpu "pressure_cpu_seconds" Seconds Counter Job [];
    /// Seconds in which some task of the job waited for memory.
    PressureMemory "pressure_memory_seconds" Seconds Counter Job [];
    /// Seconds in which some task of the job waited for storage.
    PressureIo "pressure_io_seconds" Seconds Counter Job [];
    /// Seconds in which some task of the node waited for a core.
    NodePressureCpu "node_pressure_cpu_seconds" Seconds Counter Node [];
    /// Seconds in which some task of the node waited for memory.
    NodePressureMemory "node_pressure_memory_seconds" Seconds Counter Node [];
    /// Seconds in which some task of the node waited for storage.
    NodePressureIo "node_pressure_io_seconds" Seconds Counter Node [];
    /// Processes of the job on this node.
    Processes "processes" None Gauge Job [];
    /// Steps of the session that have begun, and programs that its first node has started on another, as launchers do.
    Steps "steps" None Counter Job [];
    /// Ranks of those that run.
    StepRanks "step_ranks" None Gauge Job [];
    /// Seconds of processor time that sampling itself has taken on this node: the agent's, and its GPU helper's.
    ProbeCpu "probe_cpu_seconds" Seconds Counter Job [];
    /// Part of the time in which the GPU computed; of a part of one, its GPU instance.
    GpuUtil "gpu_util" Ratio Gauge Job [Gpu];
    /// Part of the time in which the GPU's memory was read or written; of a part of one, what was of all that its memory could carry.
    GpuMemoryUtil "gpu_memory_util" Ratio Gauge Job [Gpu];
    /// The GPU's memory in use.
    GpuMemory "gpu_memory_bytes" Bytes Gauge Job [Gpu];
    /// The GPU's memory.
    GpuMemoryLimit "gpu_memory_limit_bytes" Bytes Gauge Job [Gpu];
    /// Power that the GPU draws.
    GpuPower "gpu_power_watts" Watts Gauge Job [Gpu];
    /// Power that the GPU may draw.
    GpuPowerLimit "gpu_power_limit_watts" Watts Gauge Job [Gpu];
    /// Temperature of the GPU.
    GpuTemperature "gpu_temperature_celsius" Celsius Gauge Job [Gpu];
    /// Memory errors that the GPU has corrected.
    GpuEccCorrected "gpu_ecc_corrected" None Counter Job [Gpu];
    /// Memory errors that the GPU could not correct.
    GpuEccUncorrected "gpu_ecc_uncorrected" None Counter Job [Gpu];
    /// 1 while the GPU is slowed down by power or heat, else 0.
    GpuThrottled "gpu_throttled" None Gauge Job [Gpu];
    /// 1 while the GPU answers, 0 once it is lost.
    GpuUp "gpu_up" None Gauge Job [Gpu];
    /// Processes of the job that compute on the GPU, or could at once, where the driver tells; busy or not.
    GpuProcesses "gpu_processes" None Gauge Job [Gpu];
    /// Memory of all the job's GPUs that one process holds.
    GpuMemoryProcess "gpu_memory_process_bytes" Bytes Gauge Job [Process];
    /// Part of the time in which one process computed on all the job's GPUs together: 2 is all of two GPUs.
    GpuUtilProcess "gpu_util_process" Ratio Gauge Job [Process];
    /// What a program reports of itself by `eirene_train.report`.
    Report "report" None Gauge Program [Name];
}

impl Metric {
    /// The metric with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|metric| metric.name() == name)
    }

    /// With what it is looked at.
    pub const fn group(self) -> Group {
        match self {
            Self::Cpu
            | Self::PressureCpu
            | Self::NodePressureCpu
            | Self::Processes
            | Self::Steps
            | Self::StepRanks
            | Self::ProbeCpu => Group::Cpu,
            Self::CpuCore | Self::NodeCpuCore => Group::Cores,
            Self::Memory
            | Self::MemoryPeak
            | Self::MemoryLimit
            | Self::MemoryReclaimable
            | Self::OomKills
            | Self::NodeMemory
            | Self::NodeMemoryAvailable
            | Self::PressureMemory
            | Self::NodePressureMemory => Group::Memory,
            Self::IoRead
            | Self::IoWritten
            | Self::MountRead
            | Self::MountWritten
            | Self::PressureIo
            | Self::NodePressureIo => Group::Io,
            Self::NetReceived | Self::NetSent => Group::Network,
            Self::GpuUtil
            | Self::GpuMemoryUtil
            | Self::GpuMemory
            | Self::GpuMemoryLimit
            | Self::GpuPower
            | Self::GpuPowerLimit
            | Self::GpuTemperature
            | Self::GpuEccCorrected
            | Self::GpuEccUncorrected
            | Self::GpuThrottled
            | Self::GpuUp
            | Self::GpuProcesses => Group::Gpu,
            Self::CpuProcess | Self::MemoryProcess | Self::GpuMemoryProcess | Self::GpuUtilProcess => Group::Processes,
            Self::Report => Group::Report,
        }
    }

    /// Whether it may be without a device: totals that are also told by device are, figures of cores and processes are not.
    pub fn stands_alone(self) -> bool {
        self.devices().is_empty() || matches!(self, Self::IoRead | Self::IoWritten)
    }

    /// Whether it may be below zero: only what programs report.
    pub fn may_be_negative(self) -> bool {
        matches!(self, Self::Report | Self::GpuTemperature)
    }

    /// The name under which it is exposed to Prometheus.
    pub fn prometheus(self) -> String {
        let name = self.name();
        let unit = match self.unit() {
            Unit::Seconds => "_seconds",
            Unit::Bytes => "_bytes",
            Unit::Ratio => "_ratio",
            Unit::Watts => "_watts",
            Unit::Celsius => "_celsius",
            Unit::None => "",
        };
        let unit = if name.ends_with(unit) { "" } else { unit };
        let total = if self.kind() == Kind::Counter { "_total" } else { "" };
        format!("eirene_{name}{unit}{total}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_cores_and_processes_is_in_groups_of_its_own() {
        for metric in Metric::ALL {
            let kinds = metric.devices();
            assert_eq!(metric.group() == Group::Cores, kinds == [DeviceKind::Core], "{}", metric.name());
            assert_eq!(metric.group() == Group::Processes, kinds == [DeviceKind::Process], "{}", metric.name());
        }
        let used: std::collections::BTreeSet<_> = Metric::ALL.iter().map(|metric| metric.group()).collect();
        assert_eq!(used, Group::ALL.iter().copied().collect());
    }

    #[test]
    fn names_are_distinct_and_by_the_conventions() {
        for (at, metric) in Metric::ALL.iter().enumerate() {
            assert_eq!(Metric::by_name(metric.name()), Some(*metric));
            assert_eq!(Metric::ALL.iter().position(|other| other.name() == metric.name()), Some(at));
            assert!(metric.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", metric.name());
            let exposed = metric.prometheus();
            assert_eq!(exposed.ends_with("_total"), metric.kind() == Kind::Counter, "{exposed}");
            assert!(metric.help().ends_with('.'), "{exposed}");
        }
        assert_eq!(Metric::CpuCore.prometheus(), "eirene_cpu_core_seconds_total");
        assert_eq!(Metric::Memory.prometheus(), "eirene_memory_bytes");
        assert_eq!(Metric::GpuUtil.prometheus(), "eirene_gpu_util_ratio");
        assert_eq!(Metric::by_name("cpu"), None);
    }
}
