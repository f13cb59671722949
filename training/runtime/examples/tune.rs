//! A rank that tunes, for tests: `tune NUMBER NODES DIRECTORY MILLISECONDS TIMES`, where NODES has one letter a rank. The environment says
//! how. It says "under way" when it begins, what became of each time, and in the end why it ended, if not well.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::time::Duration;

use eirene_train_launch::Environment;
use eirene_train_mesh::{Meeting, Mesh, Plan, Secret};
use eirene_train_runtime::{Call, Collective, DType, Error, Options, ReduceOp, Tuning, World};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [number, nodes, directory, milliseconds, times] = arguments.as_slice() else { std::process::exit(2) };
    let (Ok(rank), Ok(milliseconds), Ok(times)) = (number.parse::<u32>(), milliseconds.parse(), times.parse::<u32>())
    else {
        std::process::exit(2)
    };
    let mut plan = Plan::new(rank, nodes.len() as u32, "rank", Meeting::Directory(directory.into()));
    plan.secret = Some(Secret::from_bytes([9; 16]));
    plan.node = nodes.get(rank as usize..=rank as usize).map(str::to_owned);
    let end = Mesh::join(plan)
        .map_err(Error::from)
        .and_then(|mesh| {
            let options = Options::of_environment(&Environment::of_this_process(), Tuning::Measure)?;
            World::over(mesh, &options)
        })
        .and_then(|world| tune(&world, Duration::from_millis(milliseconds), times));
    if let Err(error) = end {
        println!("{error}");
    }
}

#[expect(unsafe_code, reason = "the buffer outlives the calls")]
fn tune(world: &World, budget: Duration, times: u32) -> Result<(), Error> {
    let allowed = Duration::from_mins(1);
    let group = world.everybody(allowed)?;
    println!("under way");
    for _ in 0..times {
        println!("{}", group.tune(budget)?);
        let mut buffer = vec![1_f32; 100_000];
        let address = buffer.as_mut_ptr() as usize;
        for elements in [1, 10_000, 10_000, 100_000] {
            let call = Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Max);
            // SAFETY: the buffer lives as long, and nobody else uses it.
            unsafe { group.run(&call, allowed) }?;
        }
    }
    for bytes in (10..27).step_by(2).map(|shift| 1_usize << shift) {
        let all = [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::Broadcast { root: 0 },
            Collective::Reduce { root: 0 },
        ];
        for collective in all {
            println!("{}", group.explain(collective, DType::F32, bytes / 4));
        }
    }
    println!("{}", group.explain(Collective::AllToAll, DType::F32, 0));
    world.leave();
    Ok(())
}
