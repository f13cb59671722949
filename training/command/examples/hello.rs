//! A rank that says who it is, meets the others, and gets a word from the next one. Started by anything that detection knows:
//! `eirene-train run -n 4 target/debug/examples/hello`, `mpirun -n 4 …`, `srun -n 4 …`, or alone.

use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant};

use eirene_train_launch::{Environment, Launch};
use eirene_train_mesh::Mesh;

/// Words of ours under this number are greetings.
const GREETING: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let launch = Launch::detect(&Environment::of_this_process())?;
    writeln!(std::io::stderr(), "{}", launch.explain())?;
    let patience = std::env::args().nth(1).map_or(Ok(20), |seconds| seconds.parse())?;
    let timeout = Duration::from_secs(patience);
    let mesh = Mesh::join(launch.plan(timeout)?).map_err(|error| format!("{error}; {}", launch.advice()))?;
    launch.tidy();

    let (rank, size) = (mesh.rank(), mesh.size());
    if size > 1 {
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        mesh.send(before, GREETING, format!("{rank}").as_bytes(), &[])?;
        let (word, _) = mesh.receive(next, GREETING, Instant::now() + timeout)?;
        writeln!(std::io::stdout(), "rank {rank} of {size} heard {}", String::from_utf8_lossy(&word))?;
    } else {
        writeln!(std::io::stdout(), "rank 0 of 1 is alone")?;
    }
    mesh.leave();
    Ok(())
}
