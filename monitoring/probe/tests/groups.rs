//! Control groups as this machine's kernel makes them: a program takes a known amount of processor time and memory in a group of its own, and
//! looks at itself as an agent does.
//!
//! That needs root, and a file system of control groups that can be written. Where something is missing a test says that it was not run, and why;
//! `tests/run` says so too.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::print_stderr, reason = "a test that was not run says so")]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use eirene_monitoring::{Batch, Confinement};
use eirene_monitoring_probe::{Job, Probe, Roots};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

const CHILD: &str = "EIRENE_PROBE_TEST_GROUPS";
/// A job's processes are in groups of its steps, below the job's.
const STEP: &str = "step_0";
/// What the program holds: memory of its own, and as much of a file in memory as `/dev/shm` has room for anywhere.
const MEMORY: usize = OWN + SHARED;
const OWN: usize = 96 << 20;
const SHARED: usize = 32 << 20;
/// What its group may hold at most.
const LIMIT: u32 = 512 << 20;
/// What it computes, seconds.
const SECONDS: f64 = 1.0;

/// Seconds of processor time of this process.
fn used() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn value(batch: &Batch, name: &str) -> Option<f64> {
    batch.samples.iter().find(|sample| sample.series.to_string() == name).map(|sample| sample.value)
}

#[track_caller]
fn assert_near(measured: f64, said: f64) {
    assert!((measured - said).abs() <= 0.05 * said, "measured {measured}, the kernel says {said}");
}

/// Not a test of its own: what the other tests start, which is this program again.
#[test]
fn workload() {
    let Ok(said) = std::env::var(CHILD) else { return };
    let Some((version, usage)) = said.split_once(' ') else { panic!("{said}") };
    // What it does from here on it does in the group.
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let before = used();
    let held: Vec<u8> = vec![7; OWN];
    let mut shared = tempfile::tempfile_in("/dev/shm").unwrap();
    shared.write_all(&held[..SHARED]).unwrap();
    let mut sum = 0_u64;
    while used() - before < SECONDS {
        sum = held[..1 << 20].iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    let job = Job { id: 42, uid: 0, memory_limit: None };
    let mut probe = Probe::new(&Roots::default(), "here".try_into().unwrap(), &job);
    // Groups are read first.
    let seconds = used() - before;
    let batch = probe.sample(Timestamp::from_second(1_700_000_000).unwrap());
    let by_file: f64 = fs::read_to_string(usage).unwrap().trim().parse().unwrap();
    drop(std::hint::black_box((held, sum, shared)));
    let figure = |name| value(&batch, name).unwrap();
    assert_near(figure("cpu_seconds"), seconds);
    assert_near(figure("memory_bytes"), MEMORY as f64);
    assert_near(figure("memory_bytes"), by_file);
    assert_near(figure("memory_bytes") - figure("memory_reclaimable_bytes"), MEMORY as f64);
    assert!(figure("memory_peak_bytes") >= 0.95 * figure("memory_bytes"));
    assert_eq!(value(&batch, "memory_limit_bytes"), Some(f64::from(LIMIT)));
    assert_eq!(value(&batch, "oom_kills"), Some(0.0));
    assert_eq!(value(&batch, "processes"), Some(1.0));
    if version == "2" {
        assert_eq!(batch.confinement, Confinement::CgroupV2);
    } else {
        assert_eq!(batch.confinement, Confinement::CgroupV1);
        let of_cores = |name: &str| name.starts_with("cpu_core/");
        let cores = batch.samples.iter().filter(|sample| of_cores(&sample.series.to_string()));
        assert_near(cores.map(|sample| sample.value).sum(), seconds);
    }
}

/// The groups of a job, in each hierarchy one, and in each the group of a step. They go when the test ends, however it does.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes them at these mount points; what keeps it from that is the error.
    fn make(points: &[Option<PathBuf>], name: &str) -> Result<Self, String> {
        let mut groups = Self(Vec::new());
        for point in points {
            let point = point.as_ref().ok_or("its controllers of memory and processor time are not there")?;
            let path = point.join(name);
            if !groups.0.contains(&path) {
                for path in [&path, &path.join(STEP)] {
                    fs::create_dir(path).map_err(|error| format!("`{}` cannot be made: {error}", path.display()))?;
                }
                groups.0.push(path);
            }
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let begun = Instant::now();
        // Until the program is gone altogether, its group is in use.
        let is_in_use = |path: &Path| fs::remove_dir(path).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy);
        for path in self.0.iter().flat_map(|path| [path.join(STEP), path.clone()]) {
            while is_in_use(&path) && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Where a hierarchy is mounted, that of version 1 with this controller.
fn mounted_at(kind: &str, controller: Option<&str>) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, point, of, options, ..] = words[..] else { return None };
        let has = controller.is_none_or(|controller| options.split(',').any(|option| option == controller));
        (of == kind && has).then(|| PathBuf::from(point))
    })
}

/// Has the program run in groups at these mount points, the first of which has the memory with these files.
fn assert_counts(version: u8, points: &[Option<PathBuf>], limit: &str, usage: &str) {
    // As SLURM 26.05 names them in version 2, though no job's is this one.
    let groups = match Groups::make(points, &format!("sTEST{:09}", std::process::id())) {
        Ok(groups) => groups,
        Err(why) => {
            eprintln!("NOT RUN: sampling in a control group of version {version}: {why}");
            return;
        }
    };
    let memory = &groups.0[0];
    fs::write(memory.join(limit), LIMIT.to_string()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "workload", "--nocapture", "--test-threads", "1"]);
    command.env(CHILD, format!("{version} {}", memory.join(usage).display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    for group in &groups.0 {
        fs::write(group.join(STEP).join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"!").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let paths = groups.0.clone();
    drop(groups);
    assert!(paths.iter().all(|path| !path.exists()), "{paths:?} are still there");
}

#[test]
fn version_1_counts_what_a_program_uses() {
    let points = ["memory", "cpuacct"].map(|controller| mounted_at("cgroup", Some(controller)));
    assert_counts(1, &points, "memory.limit_in_bytes", "memory.usage_in_bytes");
}

#[test]
fn version_2_counts_what_a_program_uses() {
    // What groups below the first one may use; which that is, is not changed here.
    let passes_memory_on = |point: &PathBuf| {
        let controllers = fs::read_to_string(point.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == "memory")
    };
    let point = mounted_at("cgroup2", None).filter(passes_memory_on);
    assert_counts(2, &[point], "memory.max", "memory.current");
}
