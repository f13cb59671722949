//! One rank of the tests on real processes: `rank WHAT`. It prints one line at the end and leaves with 0 if
//! everything held; a start that fails leaves with 3 and the error's text.
#![expect(unsafe_code, clippy::print_stdout, clippy::unwrap_used, reason = "a program for tests")]

#[path = "rank/collectives.rs"]
mod collectives;
#[path = "rank/messages.rs"]
mod messages;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use eirene_train_mpi::{Error, Mpi, Options, Surroundings, ThreadLevel, choose};

fn main() -> ExitCode {
    let what = std::env::args().nth(1).unwrap_or_default();
    let mut options = Options::default();
    if what == "serialized" {
        options.threads = ThreadLevel::Serialized;
    }
    if let Some(limit) = std::env::var("EIRENE_TEST_LIMIT_MS").ok().and_then(|text| text.parse().ok()) {
        options.limit = Duration::from_millis(limit);
    }
    let start = std::time::Instant::now();
    match run(&what, &options) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            // In one piece, for other ranks write to the same place.
            let line = format!("error after {} ms: {error}\n", start.elapsed().as_millis());
            std::io::stderr().write_all(line.as_bytes()).ok();
            ExitCode::from(3)
        }
    }
}

fn run(what: &str, options: &Options) -> Result<String, Error> {
    let around = Surroundings::of_process(None);
    let library = choose(&around)?;
    let name = library.identity().name.clone();
    let abi = library.identity().abi;
    if what == "open" {
        return Ok(format!("opened {name} by {abi}"));
    }
    let mpi = Mpi::start(library, &around, options)?;
    let (rank, size) = (mpi.rank(), mpi.size());
    let ok = format!("ok rank {rank} of {size} {name} by {abi}, threads {:?}", mpi.thread_level());
    let world = mpi.world()?;
    match what {
        "start" => world.barrier()?,
        "all" | "serialized" => {
            messages::check(&mpi, &world)?;
            collectives::check(&world)?;
        }
        "guest" => {
            // A second start in one process is what mpi4py looks like: MPI is on already, and not ours.
            let guest = Mpi::start(choose(&Surroundings::of_process(None))?, &around, options)?;
            assert!(mpi.is_own() && !guest.is_own());
            let other = guest.world()?;
            other.barrier()?;
            drop(world);
            drop(mpi);
            assert!(matches!(other.barrier(), Err(Error::Finalized)));
            drop(other);
            guest.finalize()?;
            return Ok(ok);
        }
        "in-use" => {
            assert!(matches!(mpi.finalize(), Err(Error::InUse)));
            // The last to go ends MPI.
            world.barrier()?;
            drop(world);
            return Ok(ok);
        }
        "forsake" => {
            // Nothing of this can end by itself; whoever gives MPI up must not wait for it.
            let mut never = Box::new([0_u8; 4]);
            // SAFETY: the buffer is leaked.
            let receive = unsafe { world.irecv(never.as_mut_ptr(), 4, None, Some(1)) }?;
            std::mem::forget(never);
            let barrier =
                // SAFETY: no memory.
                if rank == 0 { Some(unsafe { world.start(&eirene_train_mpi::Collective::Barrier) }?) } else { None };
            mpi.forsake();
            drop((receive, barrier, world));
            mpi.finalize()?;
            return Ok(ok);
        }
        "abort" => {
            if rank + 1 == size {
                mpi.abort(7);
            }
            world.barrier()?;
            world.barrier()?;
        }
        other => panic!("rank does not know `{other}`"),
    }
    drop(world);
    mpi.finalize()?;
    Ok(ok)
}
