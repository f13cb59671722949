//! Trees of the kernel's files as they are found on nodes, in a temporary directory: cgroup v2, v1, neither, and broken ones. Contents
//! follow Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{cpuacct,memory,blkio-controller}.rst and proc(5).
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use eirene_monitoring::{Batch, Confinement, Held};
use eirene_monitoring_probe::{Job, Probe, Roots};
use jiff::Timestamp;
use proptest::prelude::*;
use tempfile::TempDir;

struct Tree(TempDir);

impl Tree {
    fn new(own: &str, mounts: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write("proc/self/cgroup", own).write("proc/self/mountinfo", mounts);
        tree
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A process: ticks of its own and of its ended children, bytes written.
    fn process(&self, id: u32, parent: u32, own: u64, children: u64, written: u64, environment: &str) -> &Self {
        let stat =
            format!("{id} (python) S {parent} {id} {id} 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 7 0 256 0\n");
        self.write(&format!("proc/{id}/stat"), &stat)
            .write(&format!("proc/{id}/io"), &format!("rchar: 9\nread_bytes: 4096\nwrite_bytes: {written}\n"))
            .write(&format!("proc/{id}/environ"), environment)
            .write(&format!("proc/{id}/cgroup"), "0::/\n")
    }

    fn end(&self, id: u32) -> &Self {
        // Open files of the kernel fail once the process has ended; those of a disk are emptied for that.
        self.write(&format!("proc/{id}/stat"), "");
        fs::remove_dir_all(self.path().join(format!("proc/{id}"))).unwrap();
        self
    }

    fn probe(&self) -> Probe {
        let job = Job { id: 42, uid: self.path().metadata().unwrap().uid(), memory_limit: Some(1 << 30) };
        let roots = Roots { proc: self.path().join("proc"), root: self.path().to_owned() };
        Probe::new(&roots, "node-1".try_into().unwrap(), &job)
    }
}

fn sample(probe: &mut Probe) -> Batch {
    probe.sample(Timestamp::from_second(1_700_000_000).unwrap())
}

fn value(batch: &Batch, name: &str) -> Option<f64> {
    batch.samples.iter().find(|sample| sample.series.to_string() == name).map(|sample| sample.value)
}

#[track_caller]
fn assert_values(batch: &Batch, expected: &[(&str, Option<f64>)]) {
    for (name, expected) in expected {
        assert_eq!(value(batch, name), *expected, "{name}");
    }
}

/// The job's group as SLURM 26.05 names it, by the job's SLUID.
const V2: &str = "system.slice/slurmstepd.scope/s5K1KKYAYG5D00";

fn v2() -> Tree {
    let mounts = "25 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n26 1 8:1 / /scratch rw - ext4 /dev/sda1 rw\n";
    let tree = Tree::new(&format!("0::/{V2}/step_batch/user/task_0\n"), mounts);
    for (name, text) in [
        ("cpu.stat", "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n"),
        ("memory.current", "1000000\n"),
        ("memory.peak", "2000000\n"),
        ("memory.max", "3000000\n"),
        (
            "memory.stat",
            "anon 500000\nfile 400500\nshmem 400000\ninactive_anon 400000\nactive_file 100\ninactive_file 400\n",
        ),
        ("memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n"),
        (
            "io.stat",
            "8:1 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n",
        ),
        (
            "cpu.pressure",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        ),
    ] {
        tree.write(&format!("sys/fs/cgroup/{V2}/{name}"), text);
    }
    tree
}

#[test]
fn version_2_tells_the_job() {
    let tree = v2();
    tree.process(100, 1, 10, 0, 8192, "").write("proc/100/cgroup", &format!("0::/{V2}/step_0/user/task_0\n"));
    tree.process(101, 1, 10, 0, 8192, "SLURM_JOB_ID=42").write("proc/101/cgroup", &format!("0::/{V2}1/step_0\n"));
    let batch = sample(&mut tree.probe());
    assert_eq!(batch.confinement, Confinement::CgroupV2);
    assert_values(
        &batch,
        &[
            ("cpu_seconds", Some(2.5)),
            ("memory_bytes", Some(1e6)),
            ("memory_peak_bytes", Some(2e6)),
            ("memory_limit_bytes", Some(3e6)),
            ("memory_reclaimable_bytes", Some(400.0)),
            ("oom_kills", Some(1.0)),
            ("pressure_cpu_seconds", Some(1.5)),
            ("pressure_io_seconds", None),
            ("io_read_bytes//scratch", Some(10.0)),
            ("io_written_bytes//scratch", Some(20.0)),
            ("io_written_bytes", Some(8192.0)),
            ("processes", Some(1.0)),
            ("cpu_core/0", None),
        ],
    );
}

#[test]
fn without_processes_devices_are_summed_up() {
    let tree = v2();
    let mut probe = tree.probe();
    assert_values(&sample(&mut probe), &[("io_read_bytes", Some(11.0)), ("io_written_bytes", Some(22.0))]);
    tree.write(&format!("sys/fs/cgroup/{V2}/io.stat"), "8:1 rbytes=15 wbytes=20\n");
    assert_values(&sample(&mut probe), &[("io_read_bytes", Some(16.0)), ("io_written_bytes", Some(22.0))]);
}

#[test]
fn the_group_of_slurm_24_11_is_found_too() {
    let tree = v2();
    let job = "system.slice/slurmstepd.scope/job_42";
    tree.write("proc/self/cgroup", &format!("0::/{job}/step_batch/user/task_0\n"))
        .write(&format!("sys/fs/cgroup/{job}/memory.current"), "7000\n");
    let batch = sample(&mut tree.probe());
    assert_eq!((batch.confinement, value(&batch, "memory_bytes")), (Confinement::CgroupV2, Some(7000.0)));
}

#[test]
fn shared_memory_counts_as_used() {
    // Of these 1 000 000 bytes 400 000 are in /dev/shm, which the kernel can take back from nobody.
    let batch = sample(&mut v2().probe());
    let both = value(&batch, "memory_bytes").zip(value(&batch, "memory_reclaimable_bytes"));
    assert_eq!(both.map(|(held, reclaimable)| held - reclaimable), Some(999_600.0));
}

#[test]
fn a_limit_that_is_none_is_slurms() {
    let tree = v2();
    tree.write(&format!("sys/fs/cgroup/{V2}/memory.max"), "max\n");
    assert_values(&sample(&mut tree.probe()), &[("memory_limit_bytes", Some(f64::from(1 << 30)))]);
}

const FOUR_CORES: &str =
    "cpu 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1\ncpu2 1 1 1 1 1 1 1\ncpu3 1 1 1 1 1 1 1\n";

/// What is said of memory and of CPUs with these files in place.
#[track_caller]
fn assert_held(tree: &Tree, folder: &str, files: &[(&str, &str)], memory: Option<bool>, cpus: Option<bool>) {
    tree.write("proc/stat", FOUR_CORES).write("proc/meminfo", "MemTotal:           4096 kB\nMemFree: 1 kB\n");
    for (name, text) in files {
        tree.write(&format!("{folder}/{name}"), text);
    }
    assert_eq!(sample(&mut tree.probe()).held, Some(Held { memory, cpus }), "{files:?}");
}

#[test]
fn a_group_of_version_2_says_what_it_holds_the_job_to() {
    let folder = format!("sys/fs/cgroup/{V2}");
    let (yes, no) = (Some(true), Some(false));
    // In that order: what SLURM is told to confine, and nothing, where it only finds and counts processes by groups.
    for (max, quota, cores, memory, cpus) in [
        ("3000000\n", "max 100000\n", "0-1\n", yes, yes),
        ("3000000\n", "max 100000\n", "\n", yes, no),
        ("max\n", "max 100000\n", "2\n", no, yes),
        ("max\n", "max 100000\n", "\n", no, no),
        ("max\n", "200000 100000\n", "\n", no, yes),
        ("max\n", "200000 100000\n", "0-3\n", no, yes),
        // A job that has all cores may be held to them or not.
        ("max\n", "max 100000\n", "0-3\n", no, None),
        // A quota of all their time is none, and with a limit of all memory the job may be held to it or not.
        ("3000000\n", "400000 100000\n", "\n", yes, no),
        ("4194303\n", "399999 100000\n", "\n", yes, yes),
        ("4194304\n", "900000 100000\n", "0-3\n", None, None),
        ("8000000\n", "100000 50000\n", "\n", None, yes),
        ("", "max 100000\n", "broken\n", None, None),
    ] {
        assert_held(&v2(), &folder, &[("memory.max", max), ("cpu.max", quota), ("cpuset.cpus", cores)], memory, cpus);
    }
}

#[test]
fn a_controller_that_is_not_used_holds_nobody() {
    let tree = v2();
    let folder = format!("sys/fs/cgroup/{V2}");
    assert_held(&tree, &folder, &[], Some(true), Some(false));
    fs::remove_file(tree.path().join(folder).join("memory.max")).unwrap();
    assert_held(&tree, "", &[], Some(false), Some(false));
}

#[test]
fn groups_of_version_1_say_what_they_hold_the_job_to() {
    let job = "slurm/uid_1000/job_42";
    let mounts = "30 1 0:30 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n31 1 0:31 / /cg/memory rw - cgroup cgroup rw,memory\n\
                  32 1 0:32 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n";
    let all = ["memory", "cpuset", "cpu,cpuacct"];
    let of = |hierarchies: &[&str]| {
        let step = format!("{job}/step_batch");
        let line = |name: &str| format!("1:{name}:/{}\n", if hierarchies.contains(&name) { step.as_str() } else { "" });
        let tree = Tree::new(&all.map(line).concat(), mounts);
        for folder in ["memory", "cpuset", "cpu"] {
            fs::create_dir_all(tree.path().join("cg").join(folder).join(job)).unwrap();
        }
        tree
    };
    let file = |name: &str| format!("{}/{job}/{name}", name.split('.').next().unwrap());
    let (memory, cores, quota) = (file("memory.limit_in_bytes"), file("cpuset.cpus"), file("cpu.cfs_quota_us"));
    let period = file("cpu.cfs_period_us");
    let (yes, no) = (Some(true), Some(false));
    for (limit, list, micros, is_memory_held, are_cpus_held) in [
        ("4000000\n", "1-2\n", "-1\n", yes, yes),
        ("9223372036854771712\n", "0-3\n", "-1\n", no, None),
        ("9223372036854771712\n", "0-3\n", "150000\n", no, yes),
        ("4194304\n", "0-3\n", "200000\n", None, None),
        ("4194304\n", "1-2\n", "200000\n", None, yes),
    ] {
        let limits = [(memory.as_str(), limit), (cores.as_str(), list)];
        let files = [limits[0], limits[1], (quota.as_str(), micros), (period.as_str(), "50000\n")];
        assert_held(&of(&all), "cg", &files, is_memory_held, are_cpus_held);
    }
    // As with `jobacct_gather/cgroup` alone: a group that counts memory, with the limit that is none, and no group with cores of its own.
    let counts = [(memory.as_str(), "9223372036854771712\n"), (cores.as_str(), "1-2\n"), (quota.as_str(), "-1\n")];
    assert_held(&of(&["memory", "cpu,cpuacct"]), "cg", &counts, no, no);
    // As with `ConstrainCores` alone.
    let confines = of(&["cpuset"]);
    assert_held(&confines, "cg", &counts, no, yes);
    assert_eq!(sample(&mut confines.probe()).confinement, Confinement::CgroupV1);
}

#[test]
fn version_1_tells_the_job() {
    let job = "slurm/uid_1000/job_42";
    let own = format!("4:memory:/{job}/step_0\n3:blkio:/{job}/step_0\n2:cpu,cpuacct:/{job}/step_0\n0::/\n");
    let mounts = "30 1 0:30 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n31 1 0:31 / /cg/memory rw - cgroup cgroup rw,memory\n\
                  32 1 0:32 / /cg/blkio rw - cgroup cgroup rw,blkio\n33 1 0:33 / /cg/unified rw - cgroup2 cgroup2 rw\n";
    let tree = Tree::new(&own, mounts);
    for (name, text) in [
        ("cpu/JOB/cpuacct.usage", "2500000000\n"),
        ("cpu/JOB/cpuacct.usage_percpu", "1500000000 0 1000000000 \n"),
        ("memory/JOB/memory.usage_in_bytes", "1000\n"),
        ("memory/JOB/memory.max_usage_in_bytes", "2000\n"),
        ("memory/JOB/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/JOB/memory.stat", "cache 1\ninactive_file 1\ntotal_shmem 600\ntotal_inactive_file 300\n"),
        ("memory/JOB/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ("memory/JOB/step_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("blkio/JOB/blkio.throttle.io_service_bytes_recursive", "8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\nTotal 30\n"),
    ] {
        tree.write(&format!("cg/{}", name.replace("JOB", job)), text);
    }
    let mut probe = tree.probe();
    let batch = sample(&mut probe);
    assert_eq!(batch.confinement, Confinement::CgroupV1);
    assert_eq!(batch.held, Some(Held { memory: Some(false), cpus: Some(false) }));
    let expected = [
        ("cpu_seconds", Some(2.5)),
        ("cpu_core/0", Some(1.5)),
        ("cpu_core/1", None),
        ("cpu_core/2", Some(1.0)),
        ("memory_bytes", Some(1000.0)),
        ("memory_peak_bytes", Some(2000.0)),
        ("memory_limit_bytes", Some(f64::from(1 << 30))),
        ("memory_reclaimable_bytes", Some(300.0)),
        ("oom_kills", Some(2.0)),
        ("io_read_bytes", Some(10.0)),
    ];
    assert_values(&batch, &expected);
    // The step has ended and taken its group along.
    fs::remove_dir_all(tree.path().join(format!("cg/memory/{job}/step_0"))).unwrap();
    assert_values(&sample(&mut probe), &expected);
}

#[test]
fn without_groups_processes_are_the_job() {
    let tree = Tree::new("0::/\n", "25 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    tree.process(100, 1, 100, 0, 1000, "A=1\0SLURM_JOB_ID=42\0");
    tree.process(101, 100, 200, 0, 2000, "");
    tree.process(102, 101, 300, 0, 3000, "");
    tree.process(200, 1, 999, 0, 999, "SLURM_JOB_ID=43\0");
    let mut probe = tree.probe();
    let ticks = ticks_per_second();
    let batch = sample(&mut probe);
    assert_eq!((batch.confinement, batch.held), (Confinement::None, None));
    assert_values(
        &batch,
        &[
            ("cpu_seconds", Some(600.0 / ticks)),
            ("io_written_bytes", Some(6000.0)),
            ("processes", Some(3.0)),
            ("oom_kills", None),
            ("cpu_process/102:python", None),
            ("pressure_cpu_seconds", None),
        ],
    );
    // Those that last are told by themselves.
    sample(&mut probe);
    tree.process(103, 100, 0, 0, 0, "");
    let lasting = [("cpu_process/102:python", Some(300.0 / ticks)), ("cpu_process/200:python", None)];
    assert_values(&sample(&mut probe), &[lasting[0], lasting[1], ("cpu_process/103:python", None)]);
    tree.end(103);
    // One is waited for, having used ten more; one is left to init.
    tree.end(102).process(101, 100, 200, 310, 5000, "");
    assert_values(&sample(&mut probe), &[("cpu_seconds", Some(610.0 / ticks)), ("io_written_bytes", Some(6000.0))]);
    tree.end(101);
    assert_values(&sample(&mut probe), &[("cpu_seconds", Some(610.0 / ticks)), ("processes", Some(1.0))]);
    tree.end(100);
    assert_values(
        &sample(&mut probe),
        &[("cpu_seconds", Some(610.0 / ticks)), ("processes", None), ("memory_bytes", None)],
    );
}

/// A process has one tick in its statistics and the rest in seconds: asked of the probe's own answer, not of the machine.
fn ticks_per_second() -> f64 {
    let tree = Tree::new("", "");
    tree.process(1, 0, 1_000_000, 0, 0, "SLURM_JOB_ID=42");
    1_000_000.0 / value(&sample(&mut tree.probe()), "cpu_seconds").unwrap()
}

#[test]
fn a_process_that_becomes_the_jobs_late_is_seen() {
    let tree = Tree::new("", "");
    tree.process(100, 1, 100, 0, 0, "");
    let mut probe = tree.probe();
    assert_values(&sample(&mut probe), &[("cpu_seconds", None), ("processes", None)]);
    tree.write("proc/100/environ", "SLURM_JOB_ID=42");
    assert_values(&sample(&mut probe), &[("processes", Some(1.0))]);
}

#[test]
fn the_nodes_figures_are_told_as_the_nodes() {
    let tree = Tree::new("", "");
    tree.write("proc/net/dev", "a\nb\n  lo: 1 0 0 0 0 0 0 0 2 0\n  eth0: 100 0 0 0 0 0 0 0 200 0\n")
        .write("proc/meminfo", "MemTotal: 4 kB\nMemAvailable: 3 kB\n")
        .write("proc/stat", "cpu 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1\n")
        .write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1\n")
        .write("proc/self/mountstats", "device s:/h mounted on /home with fstype nfs4 x\n\tbytes:\t1 2 3 4 5 6 7 8\n")
        .write("proc/pressure/io", "some avg10=0 avg60=0 avg300=0 total=1000000\n");
    assert_values(
        &sample(&mut tree.probe()),
        &[
            ("net_receive_bytes/eth0", Some(100.0)),
            ("net_transmit_bytes/eth0", Some(200.0)),
            ("net_receive_bytes/lo", None),
            ("node_memory_bytes", Some(4096.0)),
            ("node_memory_available_bytes", Some(3072.0)),
            ("node_cpu_core/0", None),
            ("mount_read_bytes//home", Some(5.0)),
            ("mount_written_bytes//home", Some(6.0)),
            ("node_pressure_io_seconds", Some(1.0)),
        ],
    );
}

/// A node with two interfaces of Ethernet and one of IP over InfiniBand, and ports as the kernel shows them.
fn with_ports(ports: &[(&str, &str, &str, &str)]) -> Tree {
    let tree = Tree::new("", "");
    let line = |name: &str| format!("  {name}: 100 0 0 0 0 0 0 0 200 0\n");
    tree.write("proc/net/dev", &["a\nb\n".to_owned(), line("eth0"), line("ens1"), line("ib0")].concat());
    for (name, kind) in [("eth0", "1\n"), ("ens1", "1\n"), ("ib0", "32\n")] {
        tree.write(&format!("sys/class/net/{name}/type"), kind);
    }
    for (port, layer, received, sent) in ports {
        let folder = format!("sys/class/infiniband/{port}");
        tree.write(&format!("{folder}/link_layer"), layer)
            .write(&format!("{folder}/counters/port_rcv_data"), received)
            .write(&format!("{folder}/counters/port_xmit_data"), sent);
    }
    tree
}

#[test]
fn ports_of_infiniband_and_roce_are_told_and_ip_over_infiniband_is_not_told_twice() {
    let tree = with_ports(&[
        ("mlx5_0/ports/1", "InfiniBand\n", "250\n", "1000\n"),
        ("mlx5_1/ports/1", "Ethernet\n", "5\n", "6\n"),
        ("mlx5_1/ports/2", "Ethernet\n", "0\n", "0\n"),
    ]);
    let mut probe = tree.probe();
    assert_values(
        &sample(&mut probe),
        &[
            ("net_receive_bytes/mlx5_0:1", Some(1000.0)),
            ("net_transmit_bytes/mlx5_0:1", Some(4000.0)),
            ("net_receive_bytes/mlx5_1:1", Some(20.0)),
            ("net_transmit_bytes/mlx5_1:2", Some(0.0)),
            ("net_receive_bytes/ens1", Some(100.0)),
            ("net_receive_bytes/ib0", None),
            ("net_transmit_bytes/ib0", None),
        ],
    );
    // Somebody has set the port's counters back: the sum goes on.
    tree.write("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "10\n");
    assert_values(&sample(&mut probe), &[("net_receive_bytes/mlx5_0:1", Some(1040.0))]);
}

#[test]
fn without_infiniband_that_tells_ip_over_it_is_told_as_an_interface() {
    for (port, layer, received, sent) in [
        ("mlx5_0/ports/1", "Ethernet\n", "250\n", "1000\n"),
        ("mlx5_0/ports/1", "InfiniBand\n", "garbage\n", "-1\n"),
        // Counters of 32 bits stay where they are full, for ever.
        ("mlx5_0/ports/1", "InfiniBand\n", "4294967295\n", "1000\n"),
        ("mlx5_0/ports/1", "InfiniBand\n", "", ""),
        ("mlx5_0/other", "InfiniBand\n", "250\n", "1000\n"),
    ] {
        let batch = sample(&mut with_ports(&[(port, layer, received, sent)]).probe());
        assert_values(&batch, &[("net_receive_bytes/ib0", Some(100.0)), ("net_transmit_bytes/ib0", Some(200.0))]);
        let is_told = received == "250\n" && port.contains("ports");
        assert_values(&batch, &[("net_receive_bytes/mlx5_0:1", is_told.then_some(1000.0))]);
    }
    // What cannot be read is not there: a directory in the place of a file, a file in that of a directory.
    let tree = with_ports(&[("mlx5_1/ports/1/counters/port_rcv_data", "", "", "")]);
    fs::create_dir_all(tree.path().join("sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data")).unwrap();
    tree.write("sys/class/infiniband/mlx5_2/ports", "none\n").write("sys/class/infiniband/abi_version", "1\n");
    let batch = sample(&mut tree.probe());
    assert_values(&batch, &[("net_receive_bytes/ib0", Some(100.0)), ("net_receive_bytes/mlx5_1:1", None)]);
    assert_values(&batch, &[("net_transmit_bytes/mlx5_1:1", None), ("net_receive_bytes/eth0", Some(100.0))]);
}

#[test]
fn an_empty_node_has_no_figures() {
    let directory = tempfile::tempdir().unwrap();
    let roots = Roots { proc: directory.path().join("none"), root: directory.path().join("none") };
    let job = Job { id: 42, uid: 0, memory_limit: None };
    let batch = sample(&mut Probe::new(&roots, "n".try_into().unwrap(), &job));
    assert_eq!(batch.samples, []);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn garbage_is_missing_and_totals_never_fall(file in 0usize..8, bytes in prop::collection::vec(any::<u8>(), 0..64), cut in any::<bool>()) {
        let tree = v2();
        let mut probe = tree.probe();
        let before = sample(&mut probe);
        let name = ["cpu.stat", "memory.current", "memory.peak", "memory.max", "memory.stat", "memory.events", "io.stat", "cpu.pressure"][file];
        let path = tree.path().join(format!("sys/fs/cgroup/{V2}/{name}"));
        if cut {
            let whole = fs::read(&path).unwrap();
            fs::write(&path, &whole[..bytes.len().min(whole.len())]).unwrap();
        } else {
            fs::write(&path, &bytes).unwrap();
        }
        let after = sample(&mut probe);
        for total in ["cpu_seconds", "oom_kills", "io_read_bytes", "io_written_bytes", "pressure_cpu_seconds"] {
            // Missing is missing, never less.
            prop_assert!(value(&after, total).is_none_or(|after| Some(after) >= value(&before, total)), "{}", total);
        }
    }
}
