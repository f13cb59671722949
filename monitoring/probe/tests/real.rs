//! Against the machine's own `/proc`: a program with a known profile, beside what the kernel says of it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::print_stdout, reason = "a program that says when its work is done")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use eirene_monitoring::Batch;
use eirene_monitoring_probe::{Job, Probe, Roots};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

const CHILD: &str = "EIRENE_PROBE_TEST_CHILD";
const MEMORY: usize = 64 << 20;
const WRITTEN: usize = 8 << 20;

/// Not a test of its own: what the other test starts, which is this program again.
#[test]
fn workload() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let held: Vec<u8> = vec![7; MEMORY];
    let path = format!("{directory}/written");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&held[..WRITTEN]).unwrap();
    file.sync_all().unwrap();
    // What is in the page cache is not read from storage.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), WRITTEN);
    let used = || clock_gettime(ClockId::ProcessCPUTime);
    let mut sum = 0_u64;
    while used().tv_sec == 0 && used().tv_nsec < 600_000_000 {
        sum = held[..1 << 20].iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    // Asks nothing of the reader but to come after the work.
    println!("\nat work {sum}");
    std::io::stdin().read_exact(&mut [0]).unwrap_or_default();
    drop(held);
}

fn start(directory: &str, job: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "workload", "--nocapture", "--test-threads", "1"]).env(CHILD, directory);
    command.env("SLURM_JOB_ID", job.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn value(batch: &Batch, name: &str) -> f64 {
    batch.samples.iter().find(|sample| sample.series.to_string() == name).unwrap().value
}

fn keyed(text: &str, key: &str) -> f64 {
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

#[track_caller]
fn assert_near(measured: f64, said: f64) {
    assert!((measured - said).abs() <= 0.05 * said, "measured {measured}, the kernel says {said}");
}

#[test]
fn figures_are_what_the_kernel_says() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // No job of SLURM's has such a number.
    let id = 3_000_000_000 + std::process::id();
    let mut child = start(directory.path().to_str().unwrap(), id);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("at work") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended before its work");
    }
    let uid = own_uid();
    let mut probe = Probe::new(&Roots::default(), "here".try_into().unwrap(), &Job { id, uid, memory_limit: None });
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let batch = probe.sample(now);
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
    let (io, status, schedule) = (read("io"), read("status"), read("schedstat"));
    assert!(value(&batch, "cpu_seconds") >= 0.55, "it has computed for 0.6 s");
    assert!(value(&batch, "memory_bytes") >= MEMORY as f64);
    assert_near(value(&batch, "memory_bytes"), keyed(&status, "VmRSS:") * 1024.0);
    assert_near(value(&batch, "io_written_bytes"), keyed(&io, "write_bytes:"));
    assert_near(value(&batch, "io_read_bytes"), keyed(&io, "read_bytes:"));
    // Its main thread alone, by another count of the kernel's: it is less than all.
    let main: f64 = schedule.split(' ').next().unwrap().parse().unwrap();
    assert!(value(&batch, "cpu_seconds") + 0.05 >= main / 1e9);
    let ticks = read("stat");
    let fields: Vec<&str> = ticks.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let said: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    assert_near(value(&batch, "cpu_seconds"), said / rustix::param::clock_ticks_per_second() as f64);
    // Its parent is no process of the job, so nobody inherits what it used.
    drop(child.stdin.take());
    child.wait().unwrap();
    let after = probe.sample(now);
    assert!(value(&after, "cpu_seconds") >= value(&batch, "cpu_seconds"));
    assert!(value(&after, "io_written_bytes") >= value(&batch, "io_written_bytes"));
}

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid()
}
