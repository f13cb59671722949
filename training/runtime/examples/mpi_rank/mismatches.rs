//! Calls that do not match the others', and ranks that do not come.

use std::time::{Duration, Instant};

use eirene_train_runtime::{Call, Collective, DType, Error, Group, Part, ReduceOp, World};

use crate::deep::assert_within;
use crate::{AMPLE, SOON, say};

/// Calls and waits; memory is given up where it fails, for MPI may have it.
fn run(
    group: &Group,
    collective: Collective,
    dtype: DType,
    op: ReduceOp,
    input: &[usize],
    output: &[usize],
) -> Result<(), Error> {
    let mut memory = vec![0_u64; 200_000];
    let mut address = memory.as_mut_ptr() as usize;
    let mut parts = |lengths: &[usize]| -> Vec<Part> {
        let mut part = |elements: usize| {
            let part = Part { address, elements };
            address += elements * 8;
            part
        };
        lengths.iter().map(|elements| part(*elements)).collect()
    };
    let call = Call { collective, dtype, op, input: parts(input), output: parts(output) };
    // SAFETY: the memory is long enough for all parts, and lives until the call is over, or as long as the program if it fails.
    let outcome = unsafe { group.run(&call, AMPLE) };
    if outcome.is_err() {
        std::mem::forget(memory);
    }
    outcome
}

/// The last rank calls something else than the others in its second call: `how` says what. All of them learn what both have called.
pub(crate) fn differ(world: &World, how: &str) {
    let words = match how {
        "length" => ["20000 elements", "20001 elements"],
        "op" => ["of sum", "of prod"],
        "type" => ["float32", "float64"],
        "root" => ["root 0", "root 2"],
        "order" => ["allreduce (call 2)", "allgather (call 2)"],
        "blocks" => ["3000 elements", "2900 elements"],
        "busy" => ["allreduce (call 2)", "broadcast (call 2)"],
        other => panic!("there is no difference `{other}`"),
    };
    let began = Instant::now();
    // Whoever is late hears of the end in its first call, or while the group is made.
    let calls = |group: Group| one_then_another(&group, world, how);
    let error = world.everybody(AMPLE).and_then(calls).expect_err("they differ");
    assert_within(SOON, began.elapsed());
    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
    let text = error.to_string();
    let words = if text.contains("different things before") { ["rank", "(call"] } else { words };
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    say(&format!("found rank {}: {text}", world.rank()));
}

/// A call that is everybody's, one that is not, and then the same again until somebody is told.
fn one_then_another(group: &Group, world: &World, how: &str) -> Result<(), Error> {
    let (float, sum, all) = (DType::F32, ReduceOp::Sum, Collective::AllReduce);
    let is_last = world.rank() + 1 == world.size();
    let size = world.size() as usize;
    run(group, all, float, sum, &[10], &[10])?;
    let began = Instant::now();
    match (how, is_last) {
        ("length", true) => run(group, all, float, sum, &[20_001], &[20_001]),
        ("length", false) => run(group, all, float, sum, &[20_000], &[20_000]),
        ("op", true) => run(group, all, float, ReduceOp::Prod, &[50], &[50]),
        ("type", true) => run(group, all, DType::F64, sum, &[50], &[50]),
        // Each root sends and is done; nobody waits for what does not come.
        ("root", true) => run(group, Collective::Broadcast { root: world.rank() }, float, sum, &[10], &[10]),
        ("root", false) => run(group, Collective::Broadcast { root: 0 }, float, sum, &[10], &[10]),
        ("order", true) => run(group, Collective::AllGather, float, sum, &[500], &vec![500; size]),
        // Rank 0 gives 1000 elements, of which the last rank wants 900.
        ("blocks", _) => {
            let lengths: Vec<usize> = (0..size).map(|rank| if is_last && rank == 0 { 900 } else { 1000 }).collect();
            run(group, Collective::AllGather, float, sum, &[1000], &lengths)
        }
        // Short enough to be MPI's to deliver; then the program computes and asks nothing of the runtime until it is told.
        ("busy", true) => {
            run(group, Collective::Broadcast { root: world.rank() }, float, sum, &[10], &[10])?;
            while began.elapsed() < AMPLE {
                std::thread::sleep(Duration::from_millis(50));
                world.arena(4096)?;
            }
            Ok(())
        }
        _ => run(group, all, float, sum, &[50], &[50]),
    }?;
    // MPI may have given a rank what it wanted of the others' call, or something else: it is told nevertheless.
    while began.elapsed() < AMPLE {
        run(group, Collective::Barrier, DType::U8, sum, &[], &[])?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The last rank does not come; the others say who is missing.
pub(crate) fn absent(world: &World) {
    let group = world.everybody(AMPLE).expect("a group of all");
    let last = world.size() - 1;
    if world.rank() == last {
        // Until the others have given up.
        let began = Instant::now();
        while world.arena(4096).is_ok() {
            assert!(began.elapsed() < AMPLE, "the others wait for ever");
            std::thread::sleep(Duration::from_millis(50));
        }
        say(&format!("found rank {last}: it has not come"));
        return;
    }
    let mut memory = vec![0_f32; 1000];
    let address = memory.as_mut_ptr() as usize;
    let call = Call::all_reduce(address, address, memory.len(), DType::F32, ReduceOp::Sum);
    // SAFETY: the memory lives as long as the program: MPI may have it when the call has failed.
    let error = unsafe { group.run(&call, Duration::from_secs(10)) }.expect_err("one is missing");
    std::mem::forget(memory);
    let text = error.to_string();
    assert!(text.contains(&format!("rank {last} has not come")), "{text}");
    match error {
        Error::Timeout { missing, .. } => assert_eq!(missing, [last]),
        Error::Aborted { .. } => {}
        other => panic!("{other:?}"),
    }
    say(&format!("found rank {}: {text}", world.rank()));
}
