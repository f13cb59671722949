//! `eirene-gpu`: samples a job's GPUs on one node, as the person, and says what it sees on its output, a line each ([`GpuSaid`]).
//!
//! A program of its own, because NVML comes with the site's driver and has to be loaded from there, which the agent, linked statically, cannot.
//! It ends when its input does: with the agent. Times are the agent's; nothing here reads a clock but to wait.
//!
//! It looks when it starts, and then at whole multiples of its interval by the node's clock, however long a look takes: the agent takes what was
//! said in the middle between two of them, so each of its samples has one look in it.

mod amd;
mod chosen;
mod figures;
mod gpm;
mod nvidia;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use eirene_monitoring::{GPU_WORDS, Gpu, GpuSaid, MOST_GPUS, MOST_SAMPLES, Sample};

use crate::chosen::Chosen;

/// Samples this job's GPUs until the input ends.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Seconds between two samples.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval_s: u64,
    /// NVML, where it is not where drivers put it.
    #[arg(long, value_name = "FILE")]
    library: Option<OsString>,
    /// Where sysfs is mounted.
    #[arg(long, value_name = "DIRECTORY", default_value = "/sys")]
    sysfs: PathBuf,
}

/// What one look at all GPUs gave.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    gpus: Vec<Gpu>,
    samples: Vec<Sample>,
    trouble: Option<String>,
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let parent_gone = parent();
    // Whoever reads has gone: nobody wants to hear that.
    let _ = run(&arguments, &parent_gone);
    std::process::ExitCode::SUCCESS
}

fn run(arguments: &Arguments, parent_gone: &Receiver<()>) -> std::io::Result<()> {
    let chosen = Chosen::from_environment();
    let mut nvidia = nvidia::Nvidia::new(arguments.library.clone(), chosen.clone());
    let mut amd = amd::Amd::new(arguments.sysfs.clone(), chosen);
    let mut known: Option<(Vec<Gpu>, Option<String>)> = None;
    // The clock is read once: what sets it meanwhile neither hurries a look nor delays one.
    let (begun, begun_at) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let every = Duration::from_secs(arguments.interval_s);
    say(&GpuSaid::Hello { version: GPU_WORDS })?;
    loop {
        let mut seen = nvidia.look();
        amd.look(&mut seen);
        seen.gpus.truncate(MOST_GPUS);
        let now = (seen.gpus, seen.trouble);
        if known.as_ref().is_none_or(|(gpus, _)| *gpus != now.0) {
            say(&GpuSaid::Gpus { gpus: now.0.clone() })?;
        }
        // Said once, not with every look.
        if let Some(text) = now.1.as_ref().filter(|_| known.as_ref().is_none_or(|(_, trouble)| *trouble != now.1)) {
            say(&GpuSaid::Trouble { text: text.clone() })?;
        }
        known = Some(now);
        // A line has room for what MOST_SAMPLES of any length are not sure to have.
        for samples in seen.samples.chunks(MOST_SAMPLES / 4) {
            say(&GpuSaid::Samples { samples: samples.to_vec() })?;
        }
        match parent_gone.recv_timeout(until_next(begun_at.saturating_add(begun.elapsed()), every)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// From this time to the next multiple of `every`. Those that passed during a long look are left out.
fn until_next(now: Duration, every: Duration) -> Duration {
    let every = every.as_nanos().max(1);
    let left = every - now.as_nanos() % every;
    Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
}

fn say(said: &GpuSaid) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(&said.write())?;
    output.flush()
}

/// Says when the input has ended.
fn parent() -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut nothing = [0; 64];
        let mut input = std::io::stdin().lock();
        while input.read(&mut nothing).is_ok_and(|read| read > 0) {}
        let _ = sender.send(());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_at_multiples_of_the_interval_however_long_they_take() {
        let every = Duration::from_secs(5);
        for (now_ms, wait_ms) in [(0, 5000), (1, 4999), (4999, 1), (5000, 5000), (1_700_000_012_345, 2655)] {
            let wait = until_next(Duration::from_millis(now_ms), every);
            assert_eq!(wait, Duration::from_millis(wait_ms), "{now_ms}");
        }
        // An hour of looks that take between nothing and more than the interval: none comes between two multiples.
        let (mut now, mut looks) = (Duration::from_millis(1234), 0);
        while now < Duration::from_hours(1) {
            now += until_next(now, every);
            assert_eq!(now.as_millis() % 5000, 0);
            now += Duration::from_millis(looks * 37 % 6100);
            looks += 1;
        }
        assert!(looks > 600, "{looks}");
    }
}
