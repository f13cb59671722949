//! One rank of the tests on real processes with a real MPI: `mpi_rank FILE WHAT [NODES]`, where NODES has one letter a rank and splits this
//! machine into nodes. What it finds it adds to FILE, for launchers lose the last words of ranks when one fails. It says "ok" at the end and leaves with 0 if everything held; a world that does not come about leaves with 3 and says why.
#![expect(unsafe_code, clippy::expect_used, reason = "a program for tests, which gives memory by address")]

#[path = "mpi_rank/checks.rs"]
mod checks;
#[path = "../../deep.rs"]
mod deep;
#[path = "mpi_rank/messages.rs"]
mod messages;
#[path = "mpi_rank/mismatches.rs"]
mod mismatches;
#[path = "mpi_rank/oracle.rs"]
mod oracle;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use eirene_train_launch::{Environment, Launch};
use eirene_train_runtime::{Call, DType, Options, ReduceOp, Tuning, World};

/// Long enough for everything that goes well, and longer than a run may last.
const AMPLE: Duration = Duration::from_mins(30);

/// By when everybody knows what is wrong: in the deep tests.
const SOON: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.get(1).map_or("", String::as_str);
    let nodes = arguments.get(2).map_or("", String::as_str);
    let began = Instant::now();
    match run(what, nodes) {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error after {} ms: {error}", began.elapsed().as_millis()));
            ExitCode::from(3)
        }
    }
}

/// Adds a line to the file of all ranks, in one piece.
fn say(line: &str) {
    let file = std::env::args().nth(1).unwrap_or_default();
    let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("the file is there");
    file.write_all(format!("{line}\n").as_bytes()).expect("it can be added to");
}

fn run(what: &str, nodes: &str) -> Result<String, String> {
    let environment = Environment::of_this_process();
    let launch = Launch::detect(&environment).map_err(|error| error.to_string())?;
    let rank = launch.rank as usize;
    let prefix = std::env::var_os("EIRENE_TEST_MPI_WHEELS").map(Into::into);
    let node = nodes.get(rank..=rank).map(str::to_owned);
    let asked = Options::of_environment(&environment, Tuning::Off).map_err(|error| error.to_string())?;
    let options = Options { timeout: AMPLE, prefix, node, ..asked };
    let world = World::join(&launch, &options).map_err(|error| error.to_string())?;
    let by = world.mpi().map_or_else(|| "no MPI".to_owned(), |library| format!("MPI's own: {library}"));
    let ok = format!("ok rank {rank} of {} on {} nodes, {by}", world.size(), world.nodes());
    match what {
        "join" => {}
        "collectives" => checks::collectives(&world),
        "transfers" => checks::transfers(&world),
        "left" => checks::left(&world),
        "absent" => mismatches::absent(&world),
        "messages" => messages::all_kinds(&world),
        "too-long" => messages::misfit(&world, false),
        "too-short" => messages::misfit(&world, true),
        "silent" => messages::in_vain(&world, false),
        "silenced" => messages::in_vain(&world, true),
        "killed" => return killed(&world),
        other => match other.strip_prefix("differ-") {
            Some(how) => mismatches::differ(&world, how),
            None => panic!("mpi_rank does not know `{other}`"),
        },
    }
    world.leave();
    Ok(ok)
}

/// Reduces until a rank dies, which the last one does.
fn killed(world: &World) -> Result<String, String> {
    let group = world.everybody(AMPLE).map_err(|error| error.to_string())?;
    let mut buffer = vec![0_f32; 200_000];
    let address = buffer.as_mut_ptr() as usize;
    let call = Call::all_reduce(address, address, buffer.len(), DType::F32, ReduceOp::Sum);
    for round in 0_u64.. {
        if round == 20 && world.rank() + 1 == world.size() {
            // SAFETY: ends this process at once, as a crash does.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        let began = Instant::now();
        // SAFETY: the buffer lives as long, and nobody else uses it.
        if let Err(error) = unsafe { group.run(&call, AMPLE) } {
            let text = format!("after {} ms: {error}", began.elapsed().as_millis());
            drop(group);
            world.leave();
            return Err(text);
        }
    }
    Ok("ended".to_owned())
}
