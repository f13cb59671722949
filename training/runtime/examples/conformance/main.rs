//! A rank of the tests on real processes, whoever starts it: `conformance WHAT`, where WHAT is
//!
//! - `cases SEED EACH`: every collective on every type, operation, odd length and kind of memory, and messages, compared with plain loops; so
//!   many of each collective, in an order that the seed decides, or `all`. Says `rank 1 of 4: 131 cases right`.
//! - `library`: starts the MPI that is found and does one collective with it. Says `rank 1 of 4: MPICH 4.0.2 by MPICH's ABI`.
//! - `endless ELEMENTS`: reduces until something ends it, for the tests that kill a rank. Says `rank 1 of 4 is 4711`, its process, when under way.
//! - `run …` and `node`: the command `eirene-train`, so that these tests need no other program.
//!
//! Where something fails, it says `rank 1: error after 12 ms: …` and exits with 3; a wrong result is `rank 1: wrong: …` and 4.

mod cases;
mod messages;
mod values;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use eirene_train_command::Context;
use eirene_train_launch::{Environment, Launch};
use eirene_train_mpi::{Mpi, Surroundings};
use eirene_train_runtime::{Call, Collective, DType, Error, Group, Options, ReduceOp, Tuning, World};

/// Long enough for everything that goes well.
const AMPLE: Duration = Duration::from_mins(1);

/// Why a rank did not get to its end.
enum Failure {
    /// Something said no.
    Error(String),
    /// Something came out wrong.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error.to_string())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Some(&("run" | "node")) = words.first() {
        return eirene_train_command::main(std::env::args_os(), &Context::of_this_program()).into();
    }
    let start = Instant::now();
    let rank = Launch::detect(&Environment::of_this_process()).map_or(0, |launch| launch.rank);
    let (line, code) = match be(&words) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Error(error)) => {
            (format!("rank {rank}: error after {} ms: {error}", start.elapsed().as_millis()), 3)
        }
        Err(Failure::Wrong(what)) => (format!("rank {rank}: wrong: {what}"), 4),
    };
    say(&line);
    code.into()
}

/// In one piece, for other ranks write to the same place.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

fn be(words: &[&str]) -> Result<(), Failure> {
    let environment = Environment::of_this_process();
    let launch = Launch::detect(&environment).map_err(|error| Failure::Error(error.to_string()))?;
    if words == ["library"] {
        return library().map_err(|error| Failure::Error(error.to_string()));
    }
    let options = Options { timeout: AMPLE, ..Options::of_environment(&environment, Tuning::Off)? };
    let world = World::join(&launch, &options)?;
    match words {
        ["cases", seed, each] => {
            let seed = seed.parse().map_err(|_| Failure::Error(format!("`{seed}` is no seed")))?;
            let right = check(&world, seed, each.parse().unwrap_or(usize::MAX))?;
            say(&format!("rank {} of {}: {right} cases right", world.rank(), world.size()));
        }
        ["endless", elements] => {
            let elements = elements.parse().map_err(|_| Failure::Error(format!("`{elements}` is no number")))?;
            endless(&world, elements)?;
        }
        _ => return Err(Failure::Error(format!("nobody knows how to do {words:?}"))),
    }
    world.leave();
    Ok(())
}

/// Cases on the group of everybody and on one whose ranks go the other way round, then messages. Says how many.
fn check(world: &World, seed: u64, each: usize) -> Result<usize, Failure> {
    let backwards: Vec<u32> = (0..world.size()).rev().collect();
    let groups = [world.everybody(AMPLE)?, world.group(&backwards, "backwards", AMPLE)?];
    if world.rank() == 0 {
        say(&groups[0].explain(Collective::AllReduce, DType::F32, 1000));
    }
    let mut memory = cases::Memory::new(world, world.size())?;
    let chosen = cases::choose(world.size(), seed, each);
    for (number, case) in chosen.iter().enumerate() {
        let group = &groups[number % groups.len()];
        cases::check(group, case, number, &mut memory)
            .map_err(|failure| with(failure, &format!("{case:?} on ranks {:?}", group.ranks())))?;
    }
    let mut right = chosen.len();
    for group in &groups {
        right += messages::check(group)?;
    }
    // Nobody leaves while another still needs it.
    barrier(&groups[0])?;
    Ok(right)
}

fn with(failure: Failure, what: &str) -> Failure {
    match failure {
        Failure::Error(error) => Failure::Error(format!("{what}: {error}")),
        Failure::Wrong(wrong) => Failure::Wrong(format!("{what}: {wrong}")),
    }
}

#[expect(unsafe_code, reason = "calls take addresses")]
fn barrier(group: &Group) -> Result<(), Error> {
    // SAFETY: a barrier has no buffers.
    unsafe { group.run(&Call::barrier(), AMPLE) }
}

#[expect(unsafe_code, reason = "calls take addresses")]
fn endless(world: &World, elements: usize) -> Result<(), Failure> {
    let group = world.everybody(AMPLE)?;
    let buffer = vec![0_f32; elements];
    let address = buffer.as_ptr() as usize;
    let call = Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Max);
    for round in 0_u64.. {
        // SAFETY: the buffer lives as long, and nobody else uses it.
        unsafe { group.run(&call, AMPLE) }?;
        if round == 0 {
            say(&format!("rank {} of {} is {}", world.rank(), world.size(), std::process::id()));
        }
    }
    Ok(())
}

/// The MPI by itself, without a world of ours over it.
fn library() -> Result<(), eirene_train_mpi::Error> {
    let around = Surroundings::of_process(None);
    let library = eirene_train_mpi::choose(&around)?;
    let name = format!("{} by {}", library.identity().name, library.identity().abi);
    let mpi = Mpi::start(library, &around, &eirene_train_mpi::Options::default())?;
    let line = format!("rank {} of {}: {name}", mpi.rank(), mpi.size());
    let world = mpi.world()?;
    world.barrier()?;
    drop(world);
    mpi.finalize()?;
    say(&line);
    Ok(())
}
