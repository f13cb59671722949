//! What the control group of this process allows, of version 1 or 2, in a container or not.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories of the groups this process is in, each from its own up to the root.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    cpu: Vec<PathBuf>,
    memory: Vec<PathBuf>,
}

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

impl Groups {
    pub(crate) fn look() -> Self {
        Self::of(Path::new(MOUNT), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
    }

    /// By the lines of `/proc/self/cgroup`: `0::/path` (version 2) or `4:memory:/path` (version 1).
    fn of(mount: &Path, lines: &str) -> Self {
        let mut groups = Self::default();
        for line in lines.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let has = |wanted: &str| controllers.is_empty() || controllers.split(',').any(|name| name == wanted);
            for (wanted, to) in [("cpu", &mut groups.cpu), ("memory", &mut groups.memory)] {
                if has(wanted) {
                    let root = if controllers.is_empty() { mount.to_owned() } else { mount.join(wanted) };
                    to.extend(upwards(&root, path));
                }
            }
        }
        groups
    }

    /// Processors' worth of time: the least of all limits on the way up.
    pub(crate) fn quota(&self) -> Option<f64> {
        let limits = self.cpu.iter().filter_map(|group| {
            let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<f64>().ok();
            let (quota, period) = match fs::read_to_string(group.join("cpu.max")) {
                Ok(text) => {
                    let (quota, period) = text.trim().split_once(' ')?;
                    (quota.parse().ok()?, period.parse().ok()?)
                }
                Err(_) => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
            };
            (quota > 0.0 && period > 0.0).then(|| quota / period)
        });
        limits.min_by(f64::total_cmp)
    }

    /// Bytes allowed and bytes used, of the group that has the least left.
    pub(crate) fn memory(&self) -> Option<(u64, u64)> {
        // Version 1 writes a number near the largest for "no limit".
        const NO_LIMIT: u64 = 1 << 60;
        let limits = self.memory.iter().filter_map(|group| {
            let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
            let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
            (limit < NO_LIMIT).then_some((limit, used))
        });
        limits.min_by_key(|(limit, used)| limit.saturating_sub(*used))
    }
}

/// The group's directory and those above it. In a container the path may be the host's, of which only the root is there.
fn upwards(root: &Path, path: &str) -> Vec<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors()
        .take_while(|above| above.starts_with(root))
        .filter(|above| above.is_dir())
        .map(Path::to_owned)
        .collect()
}

/// The word in brackets: `always [madvise] never`.
pub(crate) fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> PathBuf {
        let name = std::thread::current().name().unwrap_or("tree").replace(':', "-");
        let root = std::env::temp_dir().join(format!("eirene-doctor-{}-{name}", std::process::id()));
        for (path, content) in files {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let root = tree(&[
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/memory.max", "1073741824\n"),
            ("a/memory.current", "1000\n"),
            ("a/b/memory.max", "max\n"),
        ]);
        let groups = Groups::of(&root, "0::/a/b\n");
        assert_eq!((groups.quota(), groups.memory()), (Some(1.5), Some((1 << 30, 1000))));
        let elsewhere = Groups::of(&root, "0::/not/here\n");
        assert_eq!((elsewhere.quota(), elsewhere.memory()), (None, None));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn version_one_is_understood() {
        let root = tree(&[
            ("cpu/cpu.cfs_quota_us", "200000"),
            ("cpu/cpu.cfs_period_us", "100000"),
            ("memory/x/memory.limit_in_bytes", "9223372036854771712"),
            ("memory/memory.limit_in_bytes", "5000"),
            ("memory/memory.usage_in_bytes", "4000"),
        ]);
        let groups = Groups::of(&root, "5:cpu,cpuacct:/host/path\n4:memory:/x\n1:name=systemd:/\n");
        assert_eq!((groups.quota(), groups.memory()), (Some(2.0), Some((5000, 4000))));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn nonsense_is_no_limit() {
        let root = tree(&[("cpu.max", "x y z"), ("memory.max", "\n")]);
        let groups = Groups::of(&root, "0::/\nnonsense\n::\n");
        assert_eq!((groups.quota(), groups.memory()), (None, None));
        fs::remove_dir_all(root).unwrap();
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }
}
