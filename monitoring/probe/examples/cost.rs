//! `bench/probe`: what one sample of a job with many processes costs, beside one run of `ps -eo` as its peer.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures, and ends where it cannot measure"
)]

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use eirene_monitoring_probe::{Job, Probe, Roots};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Seconds between two samples.
const INTERVAL: f64 = 5.0;
const SAMPLES: u32 = 50;
const PEER_RUNS: u32 = 20;

fn main() {
    let count = std::env::args().nth(1).map_or(200, |count| count.parse().unwrap());
    // Lower than SLURM's numbers go up to, and nobody's.
    let id = 3_000_000_000 + std::process::id();
    let mut children: Vec<Child> = (0..count).map(|_| sleeper(id)).collect();
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let mut probe = Probe::new(&Roots::default(), "bench".try_into().unwrap(), &Job { id, uid, memory_limit: None });
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let first = processor();
    let batch = probe.sample(now);
    let first = processor() - first;
    let (begun, clock) = (processor(), Instant::now());
    for _ in 0..SAMPLES {
        std::hint::black_box(probe.sample(now));
    }
    let ours = (processor() - begun) / f64::from(SAMPLES);
    let wall = clock.elapsed().as_secs_f64() / f64::from(SAMPLES);
    let peer = peer();
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let seen =
        batch.samples.iter().find(|sample| sample.series.to_string() == "processes").map_or(0.0, |sample| sample.value);
    let bytes: usize = batch.write().iter().map(Vec::len).sum();
    let percent = |seconds: f64| 100.0 * seconds / INTERVAL;
    println!(
        "{seen} processes of the job, {} samples in a batch of {bytes} bytes, every {INTERVAL} s",
        batch.samples.len()
    );
    println!("first sample:    {:8.3} ms of processor time", 1e3 * first);
    println!(
        "each later one:  {:8.3} ms, {:.3} ms by the clock: {:.4} % of a core (goal 0.5 %)",
        1e3 * ours,
        1e3 * wall,
        percent(ours)
    );
    println!("one ps -eo:      {:8.3} ms: {:.4} % of a core", 1e3 * peer, percent(peer));
    println!("{{\"processes\":{seen},\"first_s\":{first},\"sample_s\":{ours},\"peer_s\":{peer}}}");
}

fn sleeper(job: u32) -> Child {
    Command::new("sleep").arg("600").env("SLURM_JOB_ID", job.to_string()).stdin(Stdio::null()).spawn().unwrap()
}

/// Processor time of one run, with what it takes to start it.
fn peer() -> f64 {
    let used = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<f64> =
            stat.rsplit_once(')').unwrap().1.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // Without the state, which is no number, those of waited-for children are the 13th and 14th.
        (fields[12] + fields[13]) / rustix::param::clock_ticks_per_second() as f64
    };
    let begun = used();
    for _ in 0..PEER_RUNS {
        let mut command = Command::new("ps");
        command.args(["-eo", "pid,ppid,uid,time,rss,comm"]).stdout(Stdio::null());
        assert!(command.status().unwrap().success());
    }
    (used() - begun) / f64::from(PEER_RUNS)
}

fn processor() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
