//! A rank that reduces without end, for the test that kills one: `reduce_without_end NUMBER NODES ELEMENTS DIRECTORY`, where NODES has one letter a rank.
//! It says "under way" after its first round, and in the end why it ended.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::time::Duration;

use eirene_train_mesh::{Meeting, Mesh, Plan, Secret};
use eirene_train_runtime::{Call, DType, Options, ReduceOp, World};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [number, nodes, elements, directory] = arguments.as_slice() else { std::process::exit(2) };
    let (Ok(rank), Ok(elements)) = (number.parse::<u32>(), elements.parse::<usize>()) else { std::process::exit(2) };
    let mut plan = Plan::new(rank, nodes.len() as u32, "rank", Meeting::Directory(directory.into()));
    plan.secret = Some(Secret::from_bytes([9; 16]));
    plan.node = nodes.get(rank as usize..=rank as usize).map(str::to_owned);
    let end = Mesh::join(plan)
        .map_err(|error| error.to_string())
        .and_then(|mesh| World::over(mesh, &Options::default()).map_err(|error| error.to_string()))
        .and_then(|world| reduce(&world, elements));
    if let Err(error) = end {
        println!("{error}");
    }
}

#[expect(unsafe_code, reason = "the buffer outlives the calls")]
fn reduce(world: &World, elements: usize) -> Result<(), String> {
    let allowed = Duration::from_mins(1);
    let group = world.everybody(allowed).map_err(|error| error.to_string())?;
    let mut buffer = vec![0_f32; elements];
    let address = buffer.as_mut_ptr() as usize;
    let call = Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Sum);
    for round in 0_u64.. {
        // SAFETY: the buffer lives as long, and nobody else uses it.
        unsafe { group.run(&call, allowed) }.map_err(|error| error.to_string())?;
        if round == 0 {
            println!("under way");
        }
    }
    Ok(())
}
