//! How long an allreduce between two ranks of pretended nodes takes over this machine's own network, with encryption and without, in turns.
//!
//! `wire_speed [MEBIBYTES ROUNDS]`: medians and the least of each, in milliseconds, and what was moved in each direction in GB/s by the median.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use eirene_train_mesh::{Meeting, Mesh, Plan, Secret};
use eirene_train_runtime::{Call, DType, Encryption, Group, Options, ReduceOp, World};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ALLOWED: Duration = Duration::from_mins(1);

fn main() -> Outcome<()> {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let (mebibytes, rounds) = match arguments[..] {
        [mebibytes, rounds] => (mebibytes, rounds),
        _ => (16, 20),
    };
    let directory = std::env::temp_dir().join(format!("eirene-wire-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
    let place = &directory;
    let outcome = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| scope.spawn(move || be(rank, place, mebibytes << 18, rounds)));
        ranks.map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    std::fs::remove_dir(&directory)?;
    outcome.into_iter().collect()
}

fn be(rank: u32, directory: &Path, elements: usize, rounds: usize) -> Outcome<()> {
    let all = [Encryption::On, Encryption::Off];
    let mut groups = Vec::new();
    for encryption in all {
        let mut plan = Plan::new(rank, 2, encryption.name(), Meeting::Directory(directory.to_owned()));
        plan.secret = Some(Secret::from_bytes([1; 16]));
        plan.node = Some(rank.to_string());
        let options = Options { encryption: Some(encryption), ..Options::default() };
        let world = World::over(Mesh::join(plan)?, &options)?;
        let group = world.everybody(ALLOWED)?;
        groups.push((world, group, Vec::new()));
    }
    let mut buffer = vec![1.0_f32; elements];
    for round in 0..=rounds {
        for (_, group, samples) in &mut groups {
            let seconds = reduce(group, &mut buffer)?;
            if round > 0 {
                samples.push(seconds);
            }
        }
    }
    for (encryption, (_, _, mut samples)) in all.into_iter().zip(groups).filter(|_| rank == 0) {
        samples.sort_by(f64::total_cmp);
        let median = samples[samples.len() / 2];
        let moved = elements as f64 * 4.0 / median / 1e9;
        println!(
            "{:>4}  median {:8.2} ms  least {:8.2} ms  {moved:.2} GB/s",
            encryption.name(),
            median * 1e3,
            samples[0] * 1e3
        );
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the buffer outlives the call")]
fn reduce(group: &Group, buffer: &mut [f32]) -> Outcome<f64> {
    let address = buffer.as_mut_ptr() as usize;
    // SAFETY: a barrier has no buffers.
    unsafe { group.run(&Call::barrier(), ALLOWED) }?;
    let began = Instant::now();
    // SAFETY: the buffer lives until the call is over and nobody else uses it.
    unsafe { group.run(&Call::all_reduce(address, address, buffer.len(), DType::F32, ReduceOp::Max), ALLOWED) }?;
    Ok(began.elapsed().as_secs_f64())
}
