//! Figures of the whole node that a person may read: network, network file systems, cores, memory, pressure; and by which mounts a job's
//! bytes on a device are told.
//!
//! What MPI and NCCL send over InfiniBand, Omni-Path or RoCE goes past the kernel's interfaces: the ports of the adapters count it, as
//! the kernel's Documentation/ABI/stable/sysfs-class-infiniband says. A port is a device as MPI names it, `mlx5_0:1`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use eirene_monitoring::{Device, Metric, Text};

use crate::files::{Kept, Room};
use crate::parse::{self, Mount};
use crate::{Roots, Samples};

/// Most devices of one sort that are told.
const MOST: usize = 256;
/// Ports count in pieces of so many bytes.
const PORT_BYTES: u64 = 4;
/// Where a port's old counters of 32 bits stop, which do not begin anew: what has come there tells nothing any more.
const PORT_FULL: u64 = 0xFFFF_FFFF;
/// The type of an interface that is IP over InfiniBand, in the kernel's include/uapi/linux/if_arp.h.
const IP_OVER_INFINIBAND: &str = "32";

/// A counter of the kernel that begins anew when its device does: what it had before stays in the sum.
#[derive(Debug, Default)]
struct Rise {
    base: u64,
    last: u64,
}

/// The node's files.
#[derive(Debug)]
pub(crate) struct Node {
    network: Kept,
    /// The kernel's `/sys/class`.
    class: PathBuf,
    mount_stats: Kept,
    mounts: Kept,
    stat: Kept,
    memory: Kept,
    status: Kept,
    pressure: [(Metric, Kept); 3],
    rises: HashMap<(Metric, String), Rise>,
}

impl Node {
    pub(crate) fn new(roots: &Roots) -> Self {
        let kept = |name: &str| Kept::new(roots.proc.join(name));
        Self {
            network: kept("net/dev"),
            class: roots.root.join("sys/class"),
            mount_stats: kept("self/mountstats"),
            mounts: kept("self/mountinfo"),
            stat: kept("stat"),
            memory: kept("meminfo"),
            status: kept("self/status"),
            pressure: [
                (Metric::NodePressureCpu, kept("pressure/cpu")),
                (Metric::NodePressureMemory, kept("pressure/memory")),
                (Metric::NodePressureIo, kept("pressure/io")),
            ],
            rises: HashMap::new(),
        }
    }

    /// Adds the node's figures, and the job's bytes by mount.
    pub(crate) fn look(&mut self, samples: &mut Samples, io: &[(String, u64, u64)], ticks: f64, room: &mut Room) {
        self.network(samples, room);
        self.network_file_systems(samples, room);
        self.mounts(samples, io, room);
        self.cores(samples, ticks, room);
        if let Some(text) = self.memory.text(room) {
            let bytes = |key| parse::keyed(&text, key).map(|kilo| kilo as f64 * 1024.0);
            samples.total(Metric::NodeMemory, bytes("MemTotal"));
            samples.total(Metric::NodeMemoryAvailable, bytes("MemAvailable"));
        }
        for (metric, file) in &mut self.pressure {
            let micros = file.text(room).and_then(|text| parse::pressure(&text));
            samples.total(*metric, micros.map(|micros| micros as f64 / 1e6));
        }
    }

    fn network(&mut self, samples: &mut Samples, room: &mut Room) {
        let counts_infiniband = self.ports(samples, room);
        let Some(text) = self.network.text(room) else { return };
        let is_told = |name: &str| name != "lo" && !(counts_infiniband && is_ip_over_infiniband(&self.class, name));
        for (name, received, sent) in parse::interfaces(&text).into_iter().filter(|(name, ..)| is_told(name)).take(MOST)
        {
            for (metric, value) in [(Metric::NetReceived, received), (Metric::NetSent, sent)] {
                let Some(device) = Text::lossy(name).map(Device::Interface) else { continue };
                samples.of(metric, device, rise(&mut self.rises, metric, name, value));
            }
        }
    }

    /// Adds what ports of adapters count, and says whether one of InfiniBand is among them: it counts IP over InfiniBand too. What RoCE
    /// sends is in no interface's figures.
    fn ports(&mut self, samples: &mut Samples, room: &mut Room) -> bool {
        let mut counts_infiniband = false;
        for (name, port) in ports(&self.class.join("infiniband")) {
            let mut told = 0;
            for (metric, file) in [(Metric::NetReceived, "port_rcv_data"), (Metric::NetSent, "port_xmit_data")] {
                let pieces = room.once(&port.join("counters").join(file)).and_then(|text| parse::single(&text));
                let Some(pieces) = pieces.filter(|pieces| *pieces != PORT_FULL) else { continue };
                let Some(device) = Text::lossy(&name).map(Device::Interface) else { continue };
                let bytes = pieces.saturating_mul(PORT_BYTES);
                samples.of(metric, device, rise(&mut self.rises, metric, &name, bytes));
                told += 1;
            }
            // Where only one way is told, the interface has the other.
            if told == 2 {
                let layer = room.once(&port.join("link_layer"));
                counts_infiniband |= layer.is_some_and(|text| text.trim() == "InfiniBand");
            }
        }
        counts_infiniband
    }

    fn network_file_systems(&mut self, samples: &mut Samples, room: &mut Room) {
        let Some(text) = self.mount_stats.text(room) else { return };
        for (point, read, written) in parse::mount_stats(&text).into_iter().take(MOST) {
            for (metric, value) in [(Metric::MountRead, read), (Metric::MountWritten, written)] {
                let Ok(device) = Text::try_from(point.as_str()).map(Device::Mount) else { continue };
                samples.of(metric, device, rise(&mut self.rises, metric, &point, value));
            }
        }
    }

    fn mounts(&mut self, samples: &mut Samples, io: &[(String, u64, u64)], room: &mut Room) {
        if io.is_empty() {
            return;
        }
        let Some(text) = self.mounts.text(room) else { return };
        let mounts = parse::mounts(&text);
        for (device, read, written) in io {
            let Some(point) = mounted_at(&mounts, device) else { continue };
            for (metric, value) in [(Metric::IoRead, *read), (Metric::IoWritten, *written)] {
                let Ok(device) = Text::try_from(point).map(Device::Mount) else { continue };
                samples.of(metric, device, value as f64);
            }
        }
    }

    fn cores(&mut self, samples: &mut Samples, ticks: f64, room: &mut Room) {
        let Some(status) = self.status.text(room) else { return };
        let ours = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let Some(ours) = ours.map(str::to_owned) else { return };
        let Some(text) = self.stat.text(room) else { return };
        for (core, busy) in parse::cores(&text).into_iter().filter(|(core, _)| parse::in_list(&ours, *core)).take(MOST)
        {
            samples.of(Metric::NodeCpuCore, Device::Core(core), busy as f64 / ticks);
        }
    }
}

/// Ports of adapters, by what they are called, and where they are.
fn ports(adapters: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for adapter in names_in(adapters) {
        let ports = adapters.join(&adapter).join("ports");
        found.extend(names_in(&ports).into_iter().map(|port| (format!("{adapter}:{port}"), ports.join(&port))));
    }
    found.sort_unstable();
    found.truncate(MOST);
    found
}

/// What is in a directory; nothing where there is none.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether an interface's bytes go through a port of InfiniBand.
fn is_ip_over_infiniband(class: &Path, name: &str) -> bool {
    let kind = std::fs::read_to_string(class.join("net").join(name).join("type"));
    kind.is_ok_and(|kind| kind.trim() == IP_OVER_INFINIBAND)
}

/// Where a device is mounted as a whole. A disk with partitions is not: its bytes are of several mounts, and told for none.
fn mounted_at<'a>(mounts: &'a [Mount], device: &str) -> Option<&'a str> {
    let whole = mounts.iter().filter(|mount| mount.device == device && mount.root == "/");
    whole.map(|mount| mount.point.as_str()).min_by_key(|point| point.len())
}

fn rise(rises: &mut HashMap<(Metric, String), Rise>, metric: Metric, name: &str, value: u64) -> f64 {
    let key = (metric, name.to_owned());
    // More names than any node has at once: interfaces of containers come and go. Those that went begin anew.
    if rises.len() >= 4 * MOST && !rises.contains_key(&key) {
        rises.clear();
    }
    let rise = rises.entry(key).or_default();
    if value < rise.last {
        rise.base = rise.base.saturating_add(rise.last);
    }
    rise.last = value;
    rise.base.saturating_add(value) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_goes_on() {
        let mut rises = HashMap::new();
        let told: Vec<_> = [5, 7, 3, 4].map(|value| rise(&mut rises, Metric::NetSent, "eth0", value)).into();
        assert_eq!(told, [5.0, 7.0, 10.0, 11.0]);
    }

    #[test]
    fn only_a_device_that_is_mounted_whole_has_a_mount() {
        let mounts = parse::mounts(
            "1 0 8:1 / /data rw - ext4 /dev/sda1 rw\n2 0 8:1 / /d rw - ext4 /dev/sda1 rw\n\
                                    3 0 8:2 /sub /x rw - ext4 /dev/sda2 rw\n",
        );
        assert_eq!(mounted_at(&mounts, "8:1"), Some("/d"));
        assert_eq!(mounted_at(&mounts, "8:2"), None);
        assert_eq!(mounted_at(&mounts, "8:0"), None);
    }
}
