//! Ready-made sizes: what most people want, cut to what this cluster has.

use eirene_core::scheduler::Node;
use eirene_core::session::Resources;
use eirene_services::cluster::ClusterView;
use eirene_services::cluster::room::{Room, room};
use eirene_services::sessions::defaults;
use serde::Serialize;

use super::format;
use super::session::size;
use super::start::{Ground, StartInput};
use super::verdict::shortage;

/// A ready-made size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preset {
    /// Its name in addresses.
    pub(crate) code: String,
    /// What it asks for.
    pub(crate) resources: Resources,
}

/// A ready-made size as a page shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PresetView {
    /// What it is called.
    pub(crate) name: String,
    /// Icon.
    pub(crate) icon: &'static str,
    /// What it asks for.
    pub(crate) size: String,
    /// Whether there is room at this moment, in words.
    pub(crate) now: String,
    /// Whether there is.
    pub(crate) room: bool,
    /// Where the start form is with it filled in.
    pub(crate) href: String,
    /// Whether the form is filled in with it.
    pub(crate) current: bool,
    /// The whole form, for starting with one click.
    pub(crate) input: StartInput,
}

/// At most this many GPU types get a ready-made size.
const GPU_PRESETS: usize = 3;

/// Sizes that this cluster has, by what its default partition allows.
pub(crate) fn presets(cluster: &ClusterView) -> Vec<Preset> {
    let default = cluster.partition(None);
    let longest = default.and_then(|partition| partition.max_walltime_min).unwrap_or(u32::MAX);
    let inside: Vec<&Node> = cluster
        .nodes
        .iter()
        .filter(|node| default.is_none_or(|partition| node.partitions.contains(&partition.name)))
        .collect();
    let most_cpus = inside.iter().map(|node| node.cpus).max().unwrap_or(u32::MAX);
    let most_memory = inside.iter().map(|node| node.memory_mib).max().unwrap_or(u64::MAX);
    let make = |code: &str, cpus: u32, memory_gib: u64, gpu: Option<&str>, hours: u32| Preset {
        code: code.to_owned(),
        resources: Resources {
            partition: None,
            nodes: 1,
            cpus: cpus.min(most_cpus),
            memory_mib: (memory_gib * 1024).min(most_memory),
            gpus: u32::from(gpu.is_some()),
            gpu_type: gpu.and_then(|kind| kind.parse().ok()),
            walltime_min: (hours * 60).min(longest),
        },
    };
    // The small one is what a request gets that says nothing.
    let small = (defaults::CPUS, defaults::MEMORY_MIB / 1024, defaults::WALLTIME_MIN / 60);
    let mut presets = vec![make("small", small.0, small.1, None, small.2), make("medium", 4, 8, None, 4)];
    let types: Vec<String> = inside.iter().flat_map(|node| &node.gpus).map(|gpus| gpus.gpu_type.clone()).collect();
    let mut known: Vec<&String> = types.iter().collect();
    known.sort();
    known.dedup();
    presets.extend(known.into_iter().take(GPU_PRESETS).map(|kind| {
        let code = if kind.is_empty() { "gpu".to_owned() } else { format!("gpu-{kind}") };
        make(&code, 4, 8, Some(kind), 4)
    }));
    presets
}

impl Ground<'_> {
    /// The ready-made sizes; `current` is the one the form shows.
    pub(crate) fn presets(&self, current: &str, key: &dyn Fn() -> String) -> Vec<PresetView> {
        presets(self.cluster)
            .into_iter()
            .map(|preset| {
                let room = room(self.cluster, &preset.resources);
                let gpu = preset.resources.gpus > 0;
                let name = match &preset.resources.gpu_type {
                    Some(kind) => self.words.fill("preset.gpu_typed", &[("type", kind.as_str())]),
                    None if gpu => self.words.get("preset.gpu"),
                    None => self.words.get(&format!("preset.{}", preset.code)),
                };
                let time = format::minutes(self.words, u64::from(preset.resources.walltime_min));
                let size = size(self.words, &preset.resources);
                PresetView {
                    name,
                    icon: if gpu { "gpu" } else { "cpu" },
                    size: self.words.fill("preset.size", &[("size", &size), ("time", &time)]),
                    now: self.in_a_line(&room, &preset.resources),
                    room: room == Room::Now,
                    href: format!("/sessions/new?size={}", preset.code),
                    current: preset.code == current,
                    input: self
                        .with_defaults(StartInput { key: key(), ..StartInput::from_resources(&preset.resources) }),
                }
            })
            .collect()
    }

    fn in_a_line(&self, room: &Room, wanted: &Resources) -> String {
        match room {
            Room::Now => self.words.get("preset.room"),
            Room::Until { walltime_min } => {
                self.words.fill("preset.until", &[("time", &format::minutes(self.words, (*walltime_min).into()))])
            }
            Room::Later { short, .. } => {
                short.map_or_else(|| self.words.get("preset.no_room"), |short| shortage(self.words, short, wanted))
            }
        }
    }
}
