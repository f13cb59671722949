//! AMD GPUs, by what the driver `amdgpu` says in sysfs (docs.kernel.org/gpu/amdgpu/thermal.html, driver-misc.html). A process's share is not
//! told there.

use std::fs;
use std::path::{Path, PathBuf};

use eirene_monitoring::{Gpu, Metric};

use crate::Seen;
use crate::chosen::Chosen;
use crate::figures::{number, of_gpu};

/// AMD's number among the vendors of PCI.
const VENDOR: &str = "0x1002";
/// Most that is read of a file: each has one number.
const MOST_TEXT: usize = 256;

/// Adds the AMD GPUs below `sysfs`, in the order of their cards.
pub(crate) fn look(sysfs: &Path, chosen: &Chosen, seen: &mut Seen) {
    let Ok(entries) = fs::read_dir(sysfs.join("class/drm")) else { return };
    let card = |entry: fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.strip_prefix("card")?.parse().ok()?;
        Some((number, entry.path().join("device")))
    };
    let mut cards: Vec<(u32, PathBuf)> = entries.flatten().filter_map(card).collect();
    cards.sort();
    cards.retain(|(_, device)| text(&device.join("vendor")).as_deref() == Some(VENDOR));
    for (place, (_, device)) in (0_u32..).zip(&cards) {
        let uuid = text(&device.join("unique_id")).map_or_else(String::new, |id| format!("GPU-{id}"));
        if chosen.has_amd(place, &uuid) {
            one(place, uuid, device, seen);
        }
    }
}

fn one(place: u32, uuid: String, device: &Path, seen: &mut Seen) {
    let id = format!("amd{place}");
    let read = |name: &str| text(&device.join(name))?.parse::<u64>().ok().map(number);
    let hwmon = fs::read_dir(device.join("hwmon")).ok().and_then(|mut all| all.next()?.ok()).map(|entry| entry.path());
    let sensor = |name: &str| text(&hwmon.as_ref()?.join(name))?.parse::<u64>().ok().map(number);
    let all = [
        (Metric::GpuUtil, read("gpu_busy_percent").map(|percent| percent / 100.0)),
        (Metric::GpuMemoryUtil, read("mem_busy_percent").map(|percent| percent / 100.0)),
        (Metric::GpuMemory, read("mem_info_vram_used")),
        (Metric::GpuMemoryLimit, read("mem_info_vram_total")),
        // Microwatts; newer chips have the mean alone, older ones the moment's.
        (Metric::GpuPower, sensor("power1_average").or_else(|| sensor("power1_input")).map(|power| power / 1e6)),
        (Metric::GpuPowerLimit, sensor("power1_cap").map(|power| power / 1e6)),
        (Metric::GpuTemperature, sensor("temp1_input").map(|millidegrees| millidegrees / 1000.0)),
        (Metric::GpuUp, Some(1.0)),
    ];
    for (metric, value) in all {
        if let Some(value) = value {
            of_gpu(&id, metric, value, &mut seen.samples);
        }
    }
    let name = text(&device.join("product_name")).unwrap_or_else(|| "AMD GPU".to_owned());
    seen.gpus.push(Gpu { id, uuid, name, part_of: None });
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = std::str::from_utf8(text.get(..MOST_TEXT).unwrap_or(&text)).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn seen(root: &Path) -> Seen {
        let mut seen = Seen::default();
        look(root, &Chosen::from_environment(), &mut seen);
        seen
    }

    #[test]
    fn what_the_driver_says_is_told_and_what_it_does_not_is_missing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(seen(root.path()), Seen::default(), "no sysfs is no GPU");
        let first = "class/drm/card1/device";
        for (name, text) in [
            ("vendor", "0x1002\n"),
            ("unique_id", "fefe12ab34cd56ef\n"),
            ("product_name", "Instinct MI300X\n"),
            ("gpu_busy_percent", "87\n"),
            ("mem_info_vram_used", "1073741824\n"),
            ("mem_info_vram_total", "206141652992\n"),
            ("hwmon/hwmon3/power1_average", "305000000\n"),
            ("hwmon/hwmon3/temp1_input", "61000\n"),
            ("hwmon/hwmon3/power1_cap", "garbage\n"),
        ] {
            write(root.path(), &format!("{first}/{name}"), text);
        }
        write(root.path(), "class/drm/card0/device/vendor", "0x10de\n");
        write(root.path(), "class/drm/card10/device/vendor", "0x1002\n");
        write(root.path(), "class/drm/card1-DP-1/status", "connected\n");
        write(root.path(), "class/drm/renderD128/device/vendor", "0x1002\n");
        let seen = seen(root.path());
        let ids: Vec<_> = seen.gpus.iter().map(|gpu| (gpu.id.as_str(), gpu.uuid.as_str(), gpu.name.as_str())).collect();
        assert_eq!(ids, [("amd0", "GPU-fefe12ab34cd56ef", "Instinct MI300X"), ("amd1", "", "AMD GPU")]);
        let told: Vec<_> = seen.samples.iter().map(|sample| (sample.series.to_string(), sample.value)).collect();
        let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(
            told,
            [
                ("gpu_util/amd0", 0.87),
                ("gpu_memory_bytes/amd0", 1_073_741_824.0),
                ("gpu_memory_limit_bytes/amd0", 206_141_652_992.0),
                ("gpu_power_watts/amd0", 305.0),
                ("gpu_temperature_celsius/amd0", 61.0),
                ("gpu_up/amd0", 1.0),
                ("gpu_up/amd1", 1.0),
            ]
        );
    }
}
