//! What a rank does in a test, and what it finds.

use std::time::Instant;

use eirene_train_runtime::{Call, Collective, DType, Error, Group, Part, ReduceOp, World};

use crate::deep::{assert_within, deep};
use crate::oracle::{input, result};
use crate::{AMPLE, SOON, say};

/// A buffer of elements of a type, with an address for nothing as well.
fn part(memory: &[u8], dtype: DType) -> Part {
    Part { address: memory.as_ptr() as usize, elements: memory.len() / dtype.size() }
}

fn run(group: &Group, collective: Collective, dtype: DType, op: ReduceOp, input: Vec<Part>, output: Vec<Part>) {
    let call = Call { collective, dtype, op, input, output };
    // SAFETY: the callers keep all buffers until this returns.
    unsafe { group.run(&call, AMPLE) }.unwrap_or_else(|error| panic!("{collective:?} of {dtype}: {error}"));
}

/// All collectives, types and lengths, in place and not, on all ranks and on some of them.
pub(crate) fn collectives(world: &World) {
    let group = world.everybody(AMPLE).expect("a group of all");
    for (turn, dtype) in DType::ALL.into_iter().enumerate() {
        // Around what goes in one frame, and more frames than are under way at once.
        let short: &[usize] =
            if deep() { &[0, 1, 3, 257, 999, 1001] } else { &[[0, 3], [1, 1001], [257, 999]][turn % 3] };
        for elements in short {
            check(&group, dtype, *elements, &ReduceOp::ALL);
        }
        let long: &[usize] = match dtype {
            _ if deep() => &[9001, 65_537, 400_009],
            DType::F32 => &[9001, 300_007],
            DType::BF16 | DType::I64 => &[40_009],
            _ => &[],
        };
        for elements in long {
            check(&group, dtype, *elements, &[ReduceOp::Sum]);
        }
    }
    // Groups of some ranks, in another order than the world's.
    let mut ranks: Vec<u32> = (0..world.size()).filter(|rank| *rank != 1).collect();
    ranks.reverse();
    if ranks.len() > 1 && world.rank() != 1 {
        let some = world.group(&ranks, "some", AMPLE).expect("a group of some");
        check(&some, DType::F32, 1001, &ReduceOp::ALL);
    }
    check(&group, DType::F64, 17, &ReduceOp::ALL);
    background(&group);
}

fn check(group: &Group, dtype: DType, elements: usize, ops: &[ReduceOp]) {
    let (me, size) = (group.rank() as usize, group.size() as usize);
    let bytes = |elements: usize| vec![0xAA; elements * dtype.size()];
    let mine = input(dtype, me, 0..elements);
    let root = (elements % size) as u32;
    let at_root = me == root as usize;
    for op in ops.iter().copied().filter(|op| op.defined_for(dtype)) {
        // An average in half precision is checked where it is rounded: in the tests of reductions.
        if op == ReduceOp::Avg && matches!(dtype, DType::F16 | DType::BF16) {
            continue;
        }
        let expected = result(dtype, op, size, 0..elements);
        let output = bytes(elements);
        run(group, Collective::AllReduce, dtype, op, vec![part(&mine, dtype)], vec![part(&output, dtype)]);
        assert!(output == expected, "allreduce {op} of {elements} {dtype}");
        let both = mine.clone();
        run(group, Collective::AllReduce, dtype, op, vec![part(&both, dtype)], vec![part(&both, dtype)]);
        assert!(both == expected, "allreduce {op} of {elements} {dtype} in place");

        let output = bytes(elements);
        run(group, Collective::Reduce { root }, dtype, op, vec![part(&mine, dtype)], vec![part(&output, dtype)]);
        let expected = if at_root { expected } else { bytes(elements) };
        assert!(output == expected, "reduce {op} of {elements} {dtype}");
        let both = mine.clone();
        run(group, Collective::Reduce { root }, dtype, op, vec![part(&both, dtype)], vec![part(&both, dtype)]);
        assert!(both == if at_root { expected } else { mine.clone() }, "reduce {op} of {elements} {dtype} in place");

        for uneven in [false, true] {
            let length = |rank: usize| if uneven { (elements + rank * 3) / size } else { elements };
            let begin = |rank: usize| (0..rank).map(length).sum::<usize>();
            let whole = input(dtype, me, 0..begin(size));
            let expected = result(dtype, op, size, begin(me)..begin(me + 1));
            let blocks = |whole: &[u8]| -> Vec<Part> {
                let block = |rank| part(&whole[begin(rank) * dtype.size()..begin(rank + 1) * dtype.size()], dtype);
                (0..size).map(block).collect()
            };
            let output = bytes(length(me));
            run(group, Collective::ReduceScatter, dtype, op, blocks(&whole), vec![part(&output, dtype)]);
            assert!(output == expected, "reduce-scatter {op} of {elements} {dtype}");
            let own = blocks(&whole)[me];
            run(group, Collective::ReduceScatter, dtype, op, blocks(&whole), vec![own]);
            let place = begin(me) * dtype.size()..begin(me + 1) * dtype.size();
            assert!(whole[place] == expected, "reduce-scatter {op} of {elements} {dtype} in place");
        }
    }
    moves(group, dtype, elements, root);
}

/// What is carried and not reduced.
fn moves(group: &Group, dtype: DType, elements: usize, root: u32) {
    let (me, size) = (group.rank() as usize, group.size() as usize);
    let at_root = me == root as usize;
    let op = ReduceOp::Sum;
    let bytes = |elements: usize| vec![0xAA; elements * dtype.size()];
    let wanted = input(dtype, root as usize, 0..elements);
    let both = if at_root { wanted.clone() } else { bytes(elements) };
    run(group, Collective::Broadcast { root }, dtype, op, vec![part(&both, dtype)], vec![part(&both, dtype)]);
    assert!(both == wanted, "broadcast of {elements} {dtype} in place");
    let (source, output) = (input(dtype, me, 0..elements), bytes(elements));
    run(group, Collective::Broadcast { root }, dtype, op, vec![part(&source, dtype)], vec![part(&output, dtype)]);
    assert!(output == wanted, "broadcast of {elements} {dtype}");

    for uneven in [false, true] {
        let length = |rank: usize| if uneven { (elements + rank * 3) / size } else { elements };
        let begin = |rank: usize| (0..rank).map(length).sum::<usize>();
        let everything: Vec<u8> = (0..size).flat_map(|rank| input(dtype, rank, 0..length(rank))).collect();
        let place = |rank: usize| begin(rank) * dtype.size()..begin(rank + 1) * dtype.size();
        let blocks = |whole: &[u8]| (0..size).map(|rank| part(&whole[place(rank)], dtype)).collect::<Vec<_>>();
        let mine = input(dtype, me, 0..length(me));
        // One run of memory, then parts that lie apart, then in place.
        let output = bytes(begin(size));
        run(group, Collective::AllGather, dtype, op, vec![part(&mine, dtype)], blocks(&output));
        assert!(output == everything, "allgather of {elements} {dtype}");
        let apart: Vec<Vec<u8>> = (0..size).map(|rank| bytes(length(rank))).collect();
        let parts = apart.iter().map(|block| part(block, dtype)).collect();
        run(group, Collective::AllGather, dtype, op, vec![part(&mine, dtype)], parts);
        assert!(apart.concat() == everything, "allgather of {elements} {dtype} apart");
        let mut output = bytes(begin(size));
        output[place(me)].copy_from_slice(&mine);
        run(group, Collective::AllGather, dtype, op, vec![blocks(&output)[me]], blocks(&output));
        assert!(output == everything, "allgather of {elements} {dtype} in place");

        let mut output = bytes(begin(size));
        let to = |output: &[u8]| if at_root { blocks(output) } else { Vec::new() };
        run(group, Collective::Gather { root }, dtype, op, vec![part(&mine, dtype)], to(&output));
        assert!(!at_root || output == everything, "gather of {elements} {dtype}");
        output.fill(0xAA);
        output[place(me)].copy_from_slice(&mine);
        let own = if at_root { blocks(&output)[me] } else { part(&mine, dtype) };
        run(group, Collective::Gather { root }, dtype, op, vec![own], to(&output));
        assert!(!at_root || output == everything, "gather of {elements} {dtype} in place");

        let output = bytes(length(me));
        run(group, Collective::Scatter { root }, dtype, op, to(&everything), vec![part(&output, dtype)]);
        assert!(output == mine, "scatter of {elements} {dtype}");
        let own = if at_root { blocks(&everything)[me] } else { part(&output, dtype) };
        run(group, Collective::Scatter { root }, dtype, op, to(&everything), vec![own]);
        assert!(output == mine, "scatter of {elements} {dtype} in place");

        // From i to j go as many as i's block, and j more.
        let extra = |rank: usize| if uneven { rank } else { 0 };
        let sent: Vec<Vec<u8>> = (0..size).map(|to| input(dtype, me * size + to, 0..length(me) + extra(to))).collect();
        let received: Vec<Vec<u8>> = (0..size).map(|from| bytes(length(from) + extra(me))).collect();
        let parts = |blocks: &[Vec<u8>]| blocks.iter().map(|block| part(block, dtype)).collect::<Vec<_>>();
        run(group, Collective::AllToAll, dtype, op, parts(&sent), parts(&received));
        let expected: Vec<Vec<u8>> =
            (0..size).map(|from| input(dtype, from * size + me, 0..length(from) + extra(me))).collect();
        assert!(received == expected, "all-to-all of {elements} {dtype}");
    }
    run(group, Collective::Barrier, dtype, op, Vec::new(), Vec::new());
}

/// Calls that are begun and waited for later keep their order.
fn background(group: &Group) {
    let size = group.size() as usize;
    let buffers: Vec<Vec<u8>> =
        (0..20).map(|round| input(DType::F32, group.rank() as usize, round..round + 3001)).collect();
    let begin = |buffer: &Vec<u8>| {
        let address = buffer.as_ptr() as usize;
        let call = Call::all_reduce(address, address, 3001, DType::F32, ReduceOp::Sum);
        // SAFETY: the buffers live until all works are done.
        unsafe { group.start(&call, AMPLE) }.expect("it begins")
    };
    let works: Vec<_> = buffers.iter().map(begin).collect();
    for work in works.iter().rev() {
        work.wait(Some(AMPLE)).expect("it ends");
    }
    for (round, buffer) in buffers.iter().enumerate() {
        assert!(*buffer == result(DType::F32, ReduceOp::Sum, size, round..round + 3001), "round {round}");
    }
}

/// Messages find their receives by rank and tag, long and short, while a collective goes on.
pub(crate) fn transfers(world: &World) {
    let group = world.everybody(AMPLE).expect("a group of all");
    let (me, size) = (group.rank(), group.size());
    let dtype = DType::U8;
    let others: Vec<u32> = (0..size).filter(|rank| *rank != me).collect();
    let length = |rank: u32| 2_500_000 + rank as usize;
    let (long, short) = (input(dtype, me as usize, 0..length(me)), [me as u8; 5]);
    let into: Vec<(Vec<u8>, Vec<u8>)> = others.iter().map(|rank| (vec![0; length(*rank)], vec![0; 5])).collect();
    let sum = input(DType::F32, me as usize, 0..100_003);
    let mut works = Vec::new();
    // SAFETY: everything is waited for before the buffers go.
    unsafe {
        for (rank, (large, little)) in others.iter().zip(&into) {
            works.push(group.send(*rank, 1, part(&long, dtype), dtype, AMPLE).expect("it begins"));
            works.push(group.send(*rank, 2, part(&short, dtype), dtype, AMPLE).expect("it begins"));
            works.push(group.send(*rank, 3, part(&[], dtype), dtype, AMPLE).expect("it begins"));
            // The other way round: the short ones have to pass the long one.
            works.push(group.receive(Some(*rank), 3, part(&[], dtype), dtype, AMPLE).expect("it begins"));
            works.push(group.receive(Some(*rank), 2, part(little, dtype), dtype, AMPLE).expect("it begins"));
            works.push(group.receive(Some(*rank), 1, part(large, dtype), dtype, AMPLE).expect("it begins"));
        }
        let address = sum.as_ptr() as usize;
        let call = Call::all_reduce(address, address, 100_003, DType::F32, ReduceOp::Sum);
        works.push(group.start(&call, AMPLE).expect("it begins"));
    }
    for work in &works {
        work.wait(Some(AMPLE)).expect("it ends");
    }
    for (rank, (large, little)) in others.iter().zip(&into) {
        assert!(*large == input(dtype, *rank as usize, 0..length(*rank)) && *little == [*rank as u8; 5]);
    }
    assert!(sum == result(DType::F32, ReduceOp::Sum, size as usize, 0..100_003));
}

fn reduce(group: &Group, elements: usize) -> Result<(), Error> {
    let buffer = vec![0_f32; elements];
    let address = buffer.as_ptr() as usize;
    let call = Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Sum);
    // SAFETY: the buffer lives until the call is over, and as long as the program if it fails: MPI may have it.
    let outcome = unsafe { group.run(&call, AMPLE) };
    if outcome.is_err() {
        std::mem::forget(buffer);
    }
    outcome
}

/// The last rank leaves after its first call; who calls once more is told.
pub(crate) fn left(world: &World) {
    let group = world.everybody(AMPLE).expect("a group of all");
    reduce(&group, 10).expect("all are here");
    if world.rank() + 1 == world.size() {
        return;
    }
    let began = Instant::now();
    let error = reduce(&group, 10).expect_err("one has left").to_string();
    assert!(error.contains(&format!("rank {}", world.size() - 1)), "{error}");
    assert_within(SOON, began.elapsed());
    say(&format!("found rank {} after {} ms: {error}", world.rank(), began.elapsed().as_millis()));
}
