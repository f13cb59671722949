//! How fast the engine is without anything above it: allreduce of f32 on ranks of this node, staged and in arenas, beside a memcpy of as
//! much. `speed [RANKS]`; microseconds, the median of interleaved rounds and the least.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints figures")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use eirene_train_mesh::{Meeting, Mesh, Plan, Secret};
use eirene_train_runtime::{Call, DType, Error, Group, Options, ReduceOp, World};

const ALLOWED: Duration = Duration::from_mins(1);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [rank, size, directory] => match (rank.parse(), size.parse()) {
            (Ok(rank), Ok(size)) => be(rank, size, directory),
            _ => Err("numbers are wanted".to_owned()),
        },
        [] => start(2),
        [size, ..] => size.parse().map_err(|_| "a number of ranks is wanted".to_owned()).and_then(start),
    };
    if let Err(error) = outcome {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn start(size: u32) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let directory = std::env::temp_dir().join(format!("eirene-speed-{}", std::process::id()));
    std::fs::create_dir(&directory).map_err(text)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).map_err(text)?;
    let program = std::env::current_exe().map_err(text)?;
    let ranks: Result<Vec<_>, _> = (0..size)
        .map(|rank| Command::new(&program).args([rank.to_string(), size.to_string()]).arg(&directory).spawn())
        .collect();
    for mut rank in ranks.map_err(text)? {
        rank.wait().map_err(text)?;
    }
    std::fs::remove_dir(&directory).map_err(text)
}

fn be(rank: u32, size: u32, directory: &str) -> Result<(), String> {
    let mut plan = Plan::new(rank, size, "speed", Meeting::Directory(directory.into()));
    plan.secret = Some(Secret::from_bytes([1; 16]));
    let mesh = Mesh::join(plan).map_err(|error| error.to_string())?;
    let world = World::over(mesh, &Options::default()).map_err(|error| error.to_string())?;
    measure(&world).map_err(|error| error.to_string())
}

fn measure(world: &World) -> Result<(), Error> {
    let group = world.everybody(ALLOWED)?;
    if world.rank() == 0 {
        println!("{:>10} {:>21} {:>21} {:>21}", "bytes", "staged", "arena", "memcpy");
    }
    for shift in [2, 6, 8, 12, 14, 16, 18, 20, 22, 24, 26] {
        let bytes = 1_usize << shift;
        let elements = bytes / 4;
        let rounds = 5;
        let times = ((32 << 20) / bytes).clamp(5, 2000);
        let mut plain = vec![1.0_f32; elements];
        let mut other = vec![1.0_f32; elements];
        let region = world.arena(bytes)?;
        let staged = plain.as_mut_ptr() as usize;
        let mut samples: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            for (address, samples) in [staged, region.address()].into_iter().zip(&mut samples) {
                for _ in 0..times {
                    samples.push(reduce(&group, address, elements)?);
                }
            }
            for _ in 0..times {
                let began = Instant::now();
                other.copy_from_slice(&plain);
                std::hint::black_box(&mut other);
                samples[2].push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        if world.rank() == 0 {
            let text = samples.map(|mut all| {
                all.sort_by(f64::total_cmp);
                format!("{:>10.2} {:>10.2}", all[all.len() / 2], all[0])
            });
            println!("{bytes:>10} {}", text.join(" "));
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the buffers outlive the calls")]
fn reduce(group: &Group, address: usize, elements: usize) -> Result<f64, Error> {
    // SAFETY: a barrier has no buffers.
    unsafe { group.run(&Call::barrier(), ALLOWED) }?;
    let began = Instant::now();
    // SAFETY: the caller's buffers are as long, and used by nobody else.
    unsafe { group.run(&Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Max), ALLOWED) }?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}
