//! AMD GPUs, by what the driver `amdgpu` says in sysfs (docs.kernel.org/gpu/amdgpu: thermal.html, driver-misc.html, ras.html), and of processes
//! what its part for computing, `amdkfd`, does.
//!
//! Memory errors are those that the memory's own controllers count, since the driver was loaded. Whether a GPU is slowed down stands in its table
//! `gpu_metrics`, in the words of all chips only in some versions of that ([`throttled`]); the MI300's tables, which are later ones, have no such
//! state, and of what they and older ones cannot tell nothing is told. Of a process there is the memory that it holds. How much it computes is not
//! told anywhere: fdinfo counts only what goes through the queues of graphics (drm-usage-stats.html), and programs for ROCm have queues of their own.
//!
//! A card is lost when its files, or those of them that ask the card itself, are not to be read any more; one that sleeps is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use eirene_monitoring::{Gpu, Metric};

use crate::Seen;
use crate::chosen::Chosen;
use crate::figures::{is_own, number, of_gpu, of_process};
use crate::nvidia::{LOST_AFTER, not_up};

/// AMD's number among the vendors of PCI.
const VENDOR: &str = "0x1002";
/// Most that is read of a file with a number or two.
const MOST_TEXT: usize = 256;
/// Most that is read of a file with many properties.
const MOST_PROPERTIES: usize = 4096;
/// What makes a GPU slow by power, current or heat: `SMU_THROTTLER_…_BIT` of the driver, but for those of its own aging and of clocks.
const SLOWED: u64 = 0x0000_ffff_007f_00ff;
/// What only the card itself knows.
const OF_THE_CARD: [Metric; 4] = [Metric::GpuUtil, Metric::GpuMemoryUtil, Metric::GpuPower, Metric::GpuTemperature];

/// The AMD GPUs of this node.
pub(crate) struct Amd {
    sysfs: PathBuf,
    chosen: Chosen,
    /// All that were ever seen, by the kernel's numbers of cards.
    cards: BTreeMap<u32, Card>,
}

/// One of them.
#[derive(Debug, Default)]
struct Card {
    /// Which of the node's AMD GPUs it is: it stays that when another one goes.
    place: u32,
    /// As it was last seen, where it is the job's.
    gpu: Option<Gpu>,
    /// Whether there was ever something of [`OF_THE_CARD`].
    has_answered: bool,
    /// For how many looks it has not answered.
    unanswered: u32,
}

impl Amd {
    pub(crate) fn new(sysfs: PathBuf, chosen: Chosen) -> Self {
        Self { sysfs, chosen, cards: BTreeMap::new() }
    }

    /// One look: adds the AMD GPUs, in the order of their cards.
    pub(crate) fn look(&mut self, seen: &mut Seen) {
        let present = cards(&self.sysfs);
        for number in present.keys() {
            let place = u32::try_from(self.cards.len()).unwrap_or(u32::MAX);
            self.cards.entry(*number).or_insert_with(|| Card { place, ..Card::default() });
        }
        let mut minors = BTreeSet::new();
        for (number, card) in &mut self.cards {
            match present.get(number) {
                Some(device) if card.one(&self.chosen, device, seen) => {
                    minors.extend(card.gpu.as_ref().and_then(|_| render_minor(device)));
                }
                _ => card.unanswered(seen),
            }
        }
        if !minors.is_empty() {
            programs(&self.sysfs.join("class/kfd/kfd"), &minors, seen);
        }
    }
}

impl Card {
    /// Tells of it, if it is the job's; no where it does not answer.
    fn one(&mut self, chosen: &Chosen, device: &Path, seen: &mut Seen) -> bool {
        let known = || self.gpu.as_ref().map(|gpu| gpu.uuid.clone()).unwrap_or_default();
        let uuid = text(&device.join("unique_id")).map_or_else(known, |id| format!("GPU-{id}"));
        if !chosen.has_amd(self.place, &uuid) {
            self.gpu = None;
            return true;
        }
        let mut told = figures(device);
        let is_answer = told.iter().any(|(metric, _)| OF_THE_CARD.contains(metric));
        let is_asleep = is_asleep(device);
        if self.has_answered && !is_answer && !is_asleep {
            return false;
        }
        // One that is switched off does nothing, though it cannot say so.
        if is_asleep && !told.iter().any(|(metric, _)| *metric == Metric::GpuUtil) {
            told.push((Metric::GpuUtil, 0.0));
        }
        self.has_answered |= is_answer;
        self.unanswered = 0;
        let id = format!("amd{}", self.place);
        for (metric, value) in told {
            of_gpu(&id, metric, value, &mut seen.samples);
        }
        of_gpu(&id, Metric::GpuUp, 1.0, &mut seen.samples);
        let name = text(&device.join("product_name")).unwrap_or_else(|| "AMD GPU".to_owned());
        let gpu = Gpu { id, uuid, name, part_of: None };
        seen.gpus.push(gpu.clone());
        self.gpu = Some(gpu);
        true
    }

    /// It was the job's and does not answer: nothing is told of it until it is lost.
    fn unanswered(&mut self, seen: &mut Seen) {
        let Some(gpu) = self.gpu.clone() else { return };
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered >= LOST_AFTER {
            not_up([gpu], seen);
        } else {
            seen.gpus.push(gpu);
        }
    }
}

/// The cards that are AMD's, and where they are, in the order of the kernel's numbers. It gives those as it finds the cards, as `amdkfd` does its own,
/// whose order `ROCR_VISIBLE_DEVICES` has: not that of their addresses on the bus.
fn cards(sysfs: &Path) -> BTreeMap<u32, PathBuf> {
    let card = |(number, path): (u32, PathBuf)| {
        let device = path.join("device");
        (text(&device.join("vendor")).as_deref() == Some(VENDOR)).then_some((number, device))
    };
    numbered(&sysfs.join("class/drm"), "card").filter_map(card).collect()
}

/// What a card tells.
fn figures(device: &Path) -> Vec<(Metric, f64)> {
    let read = |name: &str| text(&device.join(name))?.parse::<u64>().ok().map(number);
    let hwmon = fs::read_dir(device.join("hwmon")).ok().and_then(|mut all| all.next()?.ok()).map(|entry| entry.path());
    let sensor = |name: &str| text(&hwmon.as_ref()?.join(name))?.parse::<u64>().ok().map(number);
    // `ue: 0` and `ce: 1`, a line each.
    let errors = text(&device.join("ras/umc_err_count"));
    let errors = |which: &str| {
        let count = |line: &str| line.strip_prefix(which)?.strip_prefix(": ")?.trim().parse::<u64>().ok();
        errors.as_deref()?.lines().find_map(count).map(number)
    };
    let slowed = fs::read(device.join("gpu_metrics")).ok().and_then(|table| throttled(&table));
    let all = [
        (Metric::GpuUtil, read("gpu_busy_percent").map(|percent| percent / 100.0)),
        (Metric::GpuMemoryUtil, read("mem_busy_percent").map(|percent| percent / 100.0)),
        (Metric::GpuMemory, read("mem_info_vram_used")),
        (Metric::GpuMemoryLimit, read("mem_info_vram_total")),
        // Microwatts; newer chips have the mean alone, older ones the moment's.
        (Metric::GpuPower, sensor("power1_average").or_else(|| sensor("power1_input")).map(|power| power / 1e6)),
        (Metric::GpuPowerLimit, sensor("power1_cap").map(|power| power / 1e6)),
        (Metric::GpuTemperature, sensor("temp1_input").map(|millidegrees| millidegrees / 1000.0)),
        (Metric::GpuEccCorrected, errors("ce")),
        (Metric::GpuEccUncorrected, errors("ue")),
        (Metric::GpuThrottled, slowed.map(|slowed| f64::from(u8::from(slowed)))),
    ];
    all.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

/// Whether a table `gpu_metrics` says that the GPU is slowed down: by `indep_throttle_status`, which means the same whatever the chip
/// (`kgd_pp_interface.h` of the driver). None of a version that does not have it, and where it is not filled in.
fn throttled(table: &[u8]) -> Option<bool> {
    let size = u16::from_ne_bytes(table.get(..2)?.try_into().ok()?);
    let at = match (table.get(2)?, table.get(3)?) {
        (1, 3) => 112,
        (2, 2..=4) => 120,
        _ => return None,
    };
    let status = table.get(..usize::from(size))?.get(at..at + 8)?;
    let status = u64::from_ne_bytes(status.try_into().ok()?);
    (status != u64::MAX).then_some(status & SLOWED != 0)
}

/// Whether it is switched off for as long as nobody needs it: then it cannot be asked, and newer drivers do not wake it for that.
fn is_asleep(device: &Path) -> bool {
    let state = text(&device.join("power/runtime_status"));
    matches!(state.as_deref(), Some("suspended" | "suspending" | "resuming"))
}

/// The number by which programs open the card, and `amdkfd` knows it.
fn render_minor(device: &Path) -> Option<u32> {
    numbered(&device.join("drm"), "renderD").next().map(|(minor, _)| minor)
}

/// Tells what the person's own processes hold of these GPUs.
fn programs(kfd: &Path, minors: &BTreeSet<u32>, seen: &mut Seen) {
    let name = |(_, node): (u32, PathBuf)| {
        let properties = text_of(&node.join("properties"), MOST_PROPERTIES)?;
        let minor = |line: &str| line.strip_prefix("drm_render_minor ")?.trim().parse::<u32>().ok();
        if !minors.contains(&properties.lines().find_map(minor)?) {
            return None;
        }
        Some(format!("vram_{}", text(&node.join("gpu_id"))?))
    };
    let names: Vec<String> = numbered(&kfd.join("topology/nodes"), "").filter_map(name).collect();
    for (process, directory) in numbered(&kfd.join("proc"), "").filter(|(process, _)| is_own(*process)) {
        let held = names.iter().filter_map(|name| text(&directory.join(name))?.parse::<u64>().ok());
        // Each process that can compute has a file for each GPU, whether it is on it or not.
        let held = held.fold(0, u64::saturating_add);
        if held > 0 {
            of_process(process, Metric::GpuMemoryProcess, number(held), &mut seen.samples);
        }
    }
}

/// What is called so with a number behind it.
fn numbered(directory: &Path, begin: &str) -> impl Iterator<Item = (u32, PathBuf)> {
    let entry = move |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix(begin)?.parse().ok()?;
        Some((number, entry.path()))
    };
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(entry)
}

fn text(path: &Path) -> Option<String> {
    text_of(path, MOST_TEXT)
}

fn text_of(path: &Path, most: usize) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = std::str::from_utf8(text.get(..most).unwrap_or(&text)).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: impl AsRef<[u8]>) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn amd(root: &Path) -> Amd {
        Amd::new(root.to_owned(), Chosen::from_environment())
    }

    fn seen(amd: &mut Amd) -> Seen {
        let mut seen = Seen::default();
        amd.look(&mut seen);
        seen
    }

    fn told(seen: &Seen) -> Vec<(String, f64)> {
        seen.samples.iter().map(|sample| (sample.series.to_string(), sample.value)).collect()
    }

    /// Whether each GPU is up, as far as it is told.
    fn up(seen: &Seen) -> Vec<(String, f64)> {
        told(seen).into_iter().filter(|(name, _)| name.starts_with("gpu_up/")).collect()
    }

    /// A table of this version and size, with the state at this place.
    fn table(version: [u8; 2], size: u16, at: usize, status: u64) -> Vec<u8> {
        let mut table = vec![0; usize::from(size)];
        table[..2].copy_from_slice(&size.to_ne_bytes());
        table[2..4].copy_from_slice(&version);
        table[at..at + 8].copy_from_slice(&status.to_ne_bytes());
        table
    }

    #[test]
    fn what_the_driver_says_is_told_and_what_it_does_not_is_missing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(seen(&mut amd(root.path())), Seen::default(), "no sysfs is no GPU");
        let first = "class/drm/card1/device";
        for (name, text) in [
            ("vendor", "0x1002\n"),
            ("unique_id", "fefe12ab34cd56ef\n"),
            ("product_name", "Instinct MI250X\n"),
            ("gpu_busy_percent", "87\n"),
            ("mem_info_vram_used", "1073741824\n"),
            ("mem_info_vram_total", "206141652992\n"),
            ("hwmon/hwmon3/power1_average", "305000000\n"),
            ("hwmon/hwmon3/temp1_input", "61000\n"),
            ("hwmon/hwmon3/power1_cap", "garbage\n"),
            ("ras/umc_err_count", "ue: 2\nce: 17\n"),
            ("ras/gfx_err_count", "ue: 5\nce: 5\n"),
        ] {
            write(root.path(), &format!("{first}/{name}"), text);
        }
        write(root.path(), &format!("{first}/gpu_metrics"), table([1, 3], 120, 112, 1));
        write(root.path(), "class/drm/card0/device/vendor", "0x10de\n");
        write(root.path(), "class/drm/card10/device/vendor", "0x1002\n");
        write(root.path(), "class/drm/card10/device/ras/umc_err_count", "Query currently inaccessible\n");
        write(root.path(), "class/drm/card1-DP-1/status", "connected\n");
        write(root.path(), "class/drm/renderD128/device/vendor", "0x1002\n");
        let seen = seen(&mut amd(root.path()));
        let ids: Vec<_> = seen.gpus.iter().map(|gpu| (gpu.id.as_str(), gpu.uuid.as_str(), gpu.name.as_str())).collect();
        assert_eq!(ids, [("amd0", "GPU-fefe12ab34cd56ef", "Instinct MI250X"), ("amd1", "", "AMD GPU")]);
        let told = told(&seen);
        let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(
            told,
            [
                ("gpu_util/amd0", 0.87),
                ("gpu_memory_bytes/amd0", 1_073_741_824.0),
                ("gpu_memory_limit_bytes/amd0", 206_141_652_992.0),
                ("gpu_power_watts/amd0", 305.0),
                ("gpu_temperature_celsius/amd0", 61.0),
                ("gpu_ecc_corrected/amd0", 17.0),
                ("gpu_ecc_uncorrected/amd0", 2.0),
                ("gpu_throttled/amd0", 1.0),
                ("gpu_up/amd0", 1.0),
                ("gpu_up/amd1", 1.0),
            ]
        );
    }

    #[test]
    fn places_are_in_the_order_of_the_kernel_s_numbers_whatever_the_addresses() {
        let root = tempfile::tempdir().unwrap();
        // As text `card10` would be before `card2`, and on the bus the last is the first.
        for (card, address, id) in [(10, "0000:03:00.0", "c"), (2, "0000:43:00.0", "a"), (3, "0000:23:00.0", "b")] {
            let device = format!("devices/pci0000:00/{address}");
            write(root.path(), &format!("{device}/vendor"), "0x1002\n");
            write(root.path(), &format!("{device}/unique_id"), format!("{id}\n"));
            let directory = root.path().join(format!("class/drm/card{card}"));
            fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink(root.path().join(&device), directory.join("device")).unwrap();
        }
        let gpus = seen(&mut amd(root.path())).gpus;
        let all: Vec<_> = gpus.iter().map(|gpu| (gpu.id.as_str(), gpu.uuid.as_str())).collect();
        assert_eq!(all, [("amd0", "GPU-a"), ("amd1", "GPU-b"), ("amd2", "GPU-c")]);
    }

    #[test]
    fn whether_it_is_slowed_down_is_told_where_the_table_has_it_and_else_not_at_all() {
        // `SMU_THROTTLER_TEMP_MEM_BIT`, `SMU_THROTTLER_TDC_SOC_BIT`, `SMU_THROTTLER_FIT_BIT`
        for (bit, slowed) in [(34, true), (17, true), (57, false)] {
            assert_eq!(throttled(&table([1, 3], 120, 112, 1 << bit)), Some(slowed), "{bit}");
            assert_eq!(throttled(&table([2, 4], 168, 120, 1 << bit)), Some(slowed), "{bit}");
        }
        assert_eq!(throttled(&table([1, 3], 120, 112, 0)), Some(false));
        assert_eq!(throttled(&table([1, 3], 120, 112, u64::MAX)), None, "it is not filled in");
        for version in [[1, 0], [1, 2], [1, 4], [1, 5], [2, 1], [3, 0], [9, 9]] {
            assert_eq!(throttled(&table(version, 264, 112, 1)), None, "{version:?}");
        }
        let mut short = table([1, 3], 120, 112, 1);
        short.truncate(119);
        assert_eq!(throttled(&short), None, "shorter than it says");
        short.truncate(3);
        assert_eq!(throttled(&short), None);
        short[..2].copy_from_slice(&2_u16.to_ne_bytes());
        assert_eq!((throttled(&short), throttled(&[])), (None, None));
    }

    #[test]
    fn one_that_was_seen_and_does_not_answer_is_lost_after_three_looks_and_the_others_keep_their_numbers() {
        let root = tempfile::tempdir().unwrap();
        for card in [0, 1] {
            write(root.path(), &format!("class/drm/card{card}/device/vendor"), "0x1002\n");
            write(root.path(), &format!("class/drm/card{card}/device/mem_info_vram_total"), "4096\n");
            write(root.path(), &format!("class/drm/card{card}/device/gpu_busy_percent"), "5\n");
        }
        let mut amd = amd(root.path());
        let both = |first, second| [("gpu_up/amd0".to_owned(), first), ("gpu_up/amd1".to_owned(), second)];
        assert_eq!(up(&seen(&mut amd)), both(1.0, 1.0));
        // Its files are there, but it does not say what only it knows.
        let busy = "class/drm/card0/device/gpu_busy_percent";
        fs::remove_file(root.path().join(busy)).unwrap();
        for _ in 1..LOST_AFTER {
            let seen = seen(&mut amd);
            assert_eq!((seen.gpus.len(), up(&seen)), (2, both(1.0, 1.0)[1..].to_vec()), "that may be chance");
        }
        let lost = seen(&mut amd);
        assert_eq!((lost.gpus.len(), up(&lost)), (2, both(0.0, 1.0).to_vec()));
        assert!(
            told(&lost).iter().all(|(name, _)| name == "gpu_up/amd0" || name.ends_with("amd1")),
            "nothing else of it"
        );
        write(root.path(), busy, "0\n");
        assert_eq!(up(&seen(&mut amd)), both(1.0, 1.0), "it is back");
        // One that is put to sleep is not lost.
        fs::remove_file(root.path().join(busy)).unwrap();
        write(root.path(), "class/drm/card0/device/power/runtime_status", "suspended\n");
        for _ in 0..=LOST_AFTER {
            let seen = seen(&mut amd);
            assert_eq!(up(&seen), both(1.0, 1.0));
            assert!(told(&seen).contains(&("gpu_util/amd0".to_owned(), 0.0)), "and it does nothing");
        }
        // One that has gone as a whole is.
        fs::remove_dir_all(root.path().join("class/drm/card0")).unwrap();
        for _ in 1..LOST_AFTER {
            assert_eq!(up(&seen(&mut amd)), both(1.0, 1.0)[1..]);
        }
        assert_eq!(up(&seen(&mut amd)), both(0.0, 1.0));
    }

    #[test]
    fn what_own_processes_hold_of_the_job_s_gpus_is_told() {
        let root = tempfile::tempdir().unwrap();
        let (own, kfd) = (std::process::id(), "class/kfd/kfd");
        write(root.path(), "class/drm/card0/device/vendor", "0x1002\n");
        fs::create_dir_all(root.path().join("class/drm/card0/device/drm/renderD128")).unwrap();
        // A processor, the GPU, and one that is not seen here.
        let filler = "simd_count 0\n".repeat(40);
        for (node, id, minor) in [(0, 0, 0), (1, 51_110, 128), (2, 7, 129)] {
            let properties = format!("{filler}drm_render_minor {minor}\nunique_id 5\n");
            write(root.path(), &format!("{kfd}/topology/nodes/{node}/properties"), properties);
            write(root.path(), &format!("{kfd}/topology/nodes/{node}/gpu_id"), format!("{id}\n"));
        }
        for process in [own, 0] {
            write(root.path(), &format!("{kfd}/proc/{process}/vram_51110"), "4096\n");
            write(root.path(), &format!("{kfd}/proc/{process}/vram_7"), "100\n");
        }
        let mut amd = amd(root.path());
        let told: Vec<_> = told(&seen(&mut amd)).into_iter().filter(|(name, _)| name.contains("_process")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0.starts_with(&format!("gpu_memory_process_bytes/{own}:")), "{told:?}");
        assert!((told[0].1 - 4096.0).abs() < 1e-9, "{told:?}");
        // It can compute there, and holds nothing.
        write(root.path(), &format!("{kfd}/proc/{own}/vram_51110"), "0\n");
        assert_eq!(up(&seen(&mut amd)).len(), seen(&mut amd).samples.len());
    }
}
