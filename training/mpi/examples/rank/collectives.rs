//! Every collective, blocking and not, in place and not, against sums done by hand.
#![expect(unsafe_code, reason = "collectives on raw memory")]

use std::fmt::Debug;
use std::time::Duration;

use eirene_train_mpi::{Blocks, Collective, Communicator, Error, Input, Number, Numeric, Op, Width};

const LENGTHS: [usize; 4] = [0, 1, 3, 257];
const LONG: usize = 40_009;
const OPS: [Op; 4] = [Op::Sum, Op::Min, Op::Max, Op::Prod];

trait Value: Numeric + PartialEq + Debug + Default {
    fn of(value: i32) -> Self;
}
macro_rules! value {
    ($($ty:ty)*) => {$(impl Value for $ty {
        fn of(value: i32) -> Self {
            value as $ty
        }
    })*};
}
value! { f32 f64 i8 u8 i16 u16 i32 u32 i64 u64 }

/// Small enough that a product over four ranks fits a signed byte.
fn input<T: Value>(rank: u32, length: usize) -> Vec<T> {
    (0..length).map(|place| T::of(small(rank, place))).collect()
}

fn small(rank: u32, place: usize) -> i32 {
    [1, 2, 3][(place * 5 + rank as usize * 2 + place / 3) % 3]
}

fn joined<T: Value>(op: Op, size: u32, start: usize, length: usize) -> Vec<T> {
    (start..start + length)
        .map(|place| {
            let values = (0..size).map(|rank| small(rank, place));
            T::of(match op {
                Op::Sum => values.sum(),
                Op::Min => values.min().unwrap_or(0),
                Op::Max => values.max().unwrap_or(0),
                Op::Prod => values.product(),
            })
        })
        .collect()
}

/// Runs a collective, waiting inside MPI or with a request.
fn go(world: &Communicator, later: bool, call: &Collective<'_>) -> Result<(), Error> {
    // SAFETY: the callers keep all buffers until this returns.
    unsafe { if later { world.start(call)?.wait(Some(Duration::from_mins(1))).map(drop) } else { world.run(call) } }
}

fn at<T>(values: &[T]) -> Input {
    Input::At(values.as_ptr().cast())
}

fn to<T>(values: &mut [T]) -> *mut u8 {
    values.as_mut_ptr().cast()
}

pub(crate) fn check(world: &Communicator) -> Result<(), Error> {
    for later in [false, true] {
        go(world, later, &Collective::Barrier)?;
        reductions::<f32>(world, later)?;
        reductions::<f64>(world, later)?;
        reductions::<i8>(world, later)?;
        reductions::<u8>(world, later)?;
        reductions::<i16>(world, later)?;
        reductions::<u16>(world, later)?;
        reductions::<i32>(world, later)?;
        reductions::<u32>(world, later)?;
        reductions::<i64>(world, later)?;
        reductions::<u64>(world, later)?;
        for width in [Width::One, Width::Two, Width::Four, Width::Eight] {
            even_moves(world, later, width)?;
            uneven_moves(world, later, width)?;
        }
    }
    signs(world)?;
    slices(world)
}

fn reductions<T: Value>(world: &Communicator, later: bool) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let number = T::NUMBER;
    assert_eq!(number.size(), size_of::<T>());
    // Long data for two types and all operations; MPI's way with it does not depend on the type.
    let long = if matches!(number, Number::F32 | Number::I64) { [LONG; 4].as_slice() } else { &[] };
    for (turn, length) in LENGTHS.iter().chain(long).copied().enumerate() {
        let op = OPS[(turn + number as usize) % 4];
        let root = turn as u32 % size;
        let own = input::<T>(rank, length);
        if !world.can_reduce(number, op) {
            refused(world, later, number, op);
            continue;
        }
        let whole = joined::<T>(op, size, 0, length);
        let mut output = vec![T::default(); length];
        let call = Collective::AllReduce { input: at(&own), output: to(&mut output), elements: length, number, op };
        go(world, later, &call)?;
        assert_eq!(output, whole, "all-reduce {op:?} of {length} {number:?}");

        output.clone_from(&own);
        let call =
            Collective::AllReduce { input: Input::InPlace, output: to(&mut output), elements: length, number, op };
        go(world, later, &call)?;
        assert_eq!(output, whole, "all-reduce in place {op:?} of {length} {number:?}");

        let mut output = vec![T::default(); length];
        let call = Collective::Reduce { input: at(&own), output: to(&mut output), elements: length, number, op, root };
        go(world, later, &call)?;
        assert_eq!(output, if rank == root { whole.clone() } else { vec![T::default(); length] });

        output.clone_from(&own);
        let call =
            Collective::Reduce { input: Input::InPlace, output: to(&mut output), elements: length, number, op, root };
        go(world, later, &call)?;
        assert_eq!(output, if rank == root { whole } else { own });

        scattered::<T>(world, later, op, length)?;
    }
    Ok(())
}

/// Only one mistake of an MPI is known: the order of unsigned numbers. It is refused, not made.
fn refused(world: &Communicator, later: bool, number: Number, op: Op) {
    assert!(matches!(number, Number::U8 | Number::U16 | Number::U32 | Number::U64), "{number:?}");
    assert!(matches!(op, Op::Min | Op::Max), "{op:?}");
    let mut one = [0_u64];
    let call = Collective::AllReduce { input: Input::InPlace, output: to(&mut one), elements: 1, number, op };
    assert!(matches!(go(world, later, &call), Err(Error::Unreliable { .. })));
}

fn scattered<T: Value>(world: &Communicator, later: bool, op: Op, length: usize) -> Result<(), Error> {
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let number = T::NUMBER;
    let own = input::<T>(world.rank(), length * size);
    let block = joined::<T>(op, world.size(), rank * length, length);
    let mut output = vec![T::default(); length];
    let call =
        Collective::ReduceScatterBlock { input: at(&own), output: to(&mut output), elements: length, number, op };
    go(world, later, &call)?;
    assert_eq!(output, block, "reduce-scatter {op:?} of {length} {number:?}");

    let mut output = own;
    let call =
        Collective::ReduceScatterBlock { input: Input::InPlace, output: to(&mut output), elements: length, number, op };
    go(world, later, &call)?;
    assert_eq!(output[..length], block, "reduce-scatter in place {op:?} of {length} {number:?}");

    let counts: Vec<usize> = (0..size).map(|rank| length + 2 * rank).collect();
    let starts = starts(&counts);
    let own = input::<T>(world.rank(), counts.iter().sum());
    let block = joined::<T>(op, world.size(), starts[rank], counts[rank]);
    let mut output = vec![T::default(); counts[rank]];
    let call =
        Collective::ReduceScatter { input: own.as_ptr().cast(), output: to(&mut output), counts: &counts, number, op };
    go(world, later, &call)?;
    assert_eq!(output, block, "uneven reduce-scatter {op:?} of {counts:?} {number:?}");

    Ok(())
}

fn starts(counts: &[usize]) -> Vec<usize> {
    counts
        .iter()
        .scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start)
        })
        .collect()
}

/// The block of `from` for `for_whom`, of `length` elements.
fn block(from: usize, for_whom: usize, length: usize, width: Width) -> Vec<u8> {
    (0..length * width.size()).map(|place| (place * 3 + from * 31 + for_whom * 101 + 5) as u8).collect()
}

fn even_moves(world: &Communicator, later: bool, width: Width) -> Result<(), Error> {
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let long = (width == Width::Four).then_some(LONG);
    for (turn, elements) in LENGTHS.into_iter().chain(long).enumerate() {
        let root = (turn + 1) as u32 % world.size();
        let here = world.rank() == root;
        let bytes = elements * width.size();
        let row = |from: usize| (0..size).flat_map(|whom| block(from, whom, elements, width)).collect::<Vec<u8>>();
        let column = |whom: usize| (0..size).flat_map(|from| block(from, whom, elements, width)).collect::<Vec<u8>>();

        let mut data = if here { block(9, 9, elements, width) } else { vec![0; bytes] };
        go(world, later, &Collective::Broadcast { data: to(&mut data), elements, width, root })?;
        assert_eq!(data, block(9, 9, elements, width));

        let own = block(rank, 0, elements, width);
        let mut output = vec![0; bytes * size];
        go(world, later, &Collective::AllGather { input: at(&own), output: to(&mut output), elements, width })?;
        assert_eq!(output, column(0));

        output.fill(0);
        output[rank * bytes..][..bytes].copy_from_slice(&own);
        go(world, later, &Collective::AllGather { input: Input::InPlace, output: to(&mut output), elements, width })?;
        assert_eq!(output, column(0));

        let sent = row(rank);
        let mut output = vec![0; bytes * size];
        go(world, later, &Collective::AllToAll { input: at(&sent), output: to(&mut output), elements, width })?;
        assert_eq!(output, column(rank));

        output = sent;
        go(world, later, &Collective::AllToAll { input: Input::InPlace, output: to(&mut output), elements, width })?;
        assert_eq!(output, column(rank));

        let mut output = if here { vec![0; bytes * size] } else { Vec::new() };
        go(world, later, &Collective::Gather { input: at(&own), output: to(&mut output), elements, width, root })?;
        assert_eq!(output, if here { column(0) } else { Vec::new() });

        let mut input = at(&own);
        if here {
            output.fill(0);
            output[rank * bytes..][..bytes].copy_from_slice(&own);
            input = Input::InPlace;
        }
        go(world, later, &Collective::Gather { input, output: to(&mut output), elements, width, root })?;
        assert_eq!(output, if here { column(0) } else { Vec::new() });

        let whole = if here { row(root as usize) } else { Vec::new() };
        let mut output = vec![0; bytes];
        let (input, into) = (whole.as_ptr(), Some(to(&mut output)));
        go(world, later, &Collective::Scatter { input, output: into, elements, width, root })?;
        assert_eq!(output, block(root as usize, rank, elements, width));

        output.fill(0);
        let into = (!here).then(|| to(&mut output));
        go(world, later, &Collective::Scatter { input, output: into, elements, width, root })?;
        assert_eq!(output, if here { vec![0; bytes] } else { block(root as usize, rank, elements, width) });
    }
    Ok(())
}

/// Blocks of different lengths, some empty, with gaps between them.
fn uneven_moves(world: &Communicator, later: bool, width: Width) -> Result<(), Error> {
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let bytes = width.size();
    let count = |from: usize, whom: usize| (from * 5 + whom * 3) % 7 * 11;
    let place = |counts: &[usize]| -> (Vec<usize>, usize) {
        let gapped: Vec<usize> = counts.iter().map(|count| count + 2).collect();
        (starts(&gapped), gapped.iter().sum())
    };
    // Lays blocks out at their offsets; gaps hold 0xEE.
    let lay = |blocks: &[Vec<u8>], offsets: &[usize], total: usize| {
        let mut whole = vec![0xEE_u8; total * bytes];
        for (block, offset) in blocks.iter().zip(offsets) {
            whole[offset * bytes..][..block.len()].copy_from_slice(block);
        }
        whole
    };
    let empty = Blocks { counts: &[], offsets: &[] };

    // Everybody's block to everybody.
    let counts: Vec<usize> = (0..size).map(|from| count(from, 1)).collect();
    let (offsets, total) = place(&counts);
    let blocks = Blocks { counts: &counts, offsets: &offsets };
    let all: Vec<Vec<u8>> = (0..size).map(|from| block(from, 1, counts[from], width)).collect();
    let expected = lay(&all, &offsets, total);
    let (own, elements) = (all[rank].clone(), counts[rank]);
    let mut output = vec![0xEE; total * bytes];
    go(world, later, &Collective::AllGatherV { input: at(&own), elements, output: to(&mut output), blocks, width })?;
    assert_eq!(output, expected);
    output.fill(0xEE);
    output[offsets[rank] * bytes..][..own.len()].copy_from_slice(&own);
    go(
        world,
        later,
        &Collective::AllGatherV { input: Input::InPlace, elements, output: to(&mut output), blocks, width },
    )?;
    assert_eq!(output, expected);

    // To and from each root.
    for root in 0..world.size() {
        let here = world.rank() == root;
        let blocks = if here { blocks } else { empty };
        let nothing = || if here { vec![0xEE; total * bytes] } else { Vec::new() };
        let mut output = nothing();
        go(
            world,
            later,
            &Collective::GatherV { input: at(&own), elements, output: to(&mut output), blocks, width, root },
        )?;
        assert_eq!(output, if here { expected.clone() } else { Vec::new() });
        let mut input = at(&own);
        if here {
            output = nothing();
            output[offsets[rank] * bytes..][..own.len()].copy_from_slice(&own);
            input = Input::InPlace;
        }
        go(world, later, &Collective::GatherV { input, elements, output: to(&mut output), blocks, width, root })?;
        assert_eq!(output, if here { expected.clone() } else { Vec::new() });

        let whole = if here { expected.clone() } else { Vec::new() };
        let input = whole.as_ptr();
        let mut output = vec![0; elements * bytes];
        let into = Some(to(&mut output));
        go(world, later, &Collective::ScatterV { input, blocks, output: into, elements, width, root })?;
        assert_eq!(output, own);
        output.fill(0);
        let into = (!here).then(|| to(&mut output));
        go(world, later, &Collective::ScatterV { input, blocks, output: into, elements, width, root })?;
        assert_eq!(output, if here { vec![0; elements * bytes] } else { own.clone() });
    }

    // Everybody to everybody, each pair its own length.
    let sent: Vec<usize> = (0..size).map(|whom| count(rank, whom)).collect();
    let received: Vec<usize> = (0..size).map(|from| count(from, rank)).collect();
    let ((sent_at, sent_total), (received_at, received_total)) = (place(&sent), place(&received));
    let out: Vec<Vec<u8>> = (0..size).map(|whom| block(rank, whom, sent[whom], width)).collect();
    let come: Vec<Vec<u8>> = (0..size).map(|from| block(from, rank, received[from], width)).collect();
    let input = lay(&out, &sent_at, sent_total);
    let mut output = vec![0xEE; received_total * bytes];
    let call = Collective::AllToAllV {
        input: at(&input),
        sent: Blocks { counts: &sent, offsets: &sent_at },
        output: to(&mut output),
        received: Blocks { counts: &received, offsets: &received_at },
        width,
    };
    go(world, later, &call)?;
    assert_eq!(output, lay(&come, &received_at, received_total));

    // In place each pair sends as much as it gets.
    let pair: Vec<usize> = (0..size).map(|other| count(rank.min(other), rank.max(other))).collect();
    let (pair_at, pair_total) = place(&pair);
    let mine: Vec<Vec<u8>> = (0..size).map(|whom| block(rank, whom, pair[whom], width)).collect();
    let theirs: Vec<Vec<u8>> = (0..size).map(|from| block(from, rank, pair[from], width)).collect();
    let mut output = lay(&mine, &pair_at, pair_total);
    let received = Blocks { counts: &pair, offsets: &pair_at };
    let call = Collective::AllToAllV { input: Input::InPlace, sent: empty, output: to(&mut output), received, width };
    go(world, later, &call)?;
    assert_eq!(output, lay(&theirs, &pair_at, pair_total));
    Ok(())
}

/// Signed and unsigned types are told apart, and wide ones are not cut short.
fn signs(world: &Communicator) -> Result<(), Error> {
    let first = world.rank() == 0;
    let mut byte = [if first { -1_i8 } else { 1 }];
    world.all_reduce_in_place(&mut byte, Op::Min)?;
    assert_eq!(byte, [-1]);
    let mut byte = [if first { 255_u8 } else { 1 }];
    if world.can_reduce(Number::U8, Op::Max) {
        world.all_reduce_in_place(&mut byte, Op::Max)?;
        assert_eq!(byte, [255]);
    }
    let mut long = [if first { i64::MIN + 1 } else { 0 }];
    world.all_reduce_in_place(&mut long, Op::Sum)?;
    assert_eq!(long, [i64::MIN + 1]);
    let mut long = [if first { u64::MAX } else { 1 }];
    if world.can_reduce(Number::U64, Op::Max) {
        world.all_reduce_in_place(&mut long, Op::Max)?;
        assert_eq!(long, [u64::MAX]);
    }
    let mut double = [if first { 1.0 + f64::EPSILON } else { 0.0 }];
    world.all_reduce_in_place(&mut double, Op::Sum)?;
    assert_eq!(double[0].to_bits(), (1.0 + f64::EPSILON).to_bits());
    assert_eq!(Number::ALL.map(Number::size), [4, 8, 1, 1, 2, 2, 4, 4, 8, 8]);
    Ok(())
}

/// The checked forms.
fn slices(world: &Communicator) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let last = size - 1;
    world.barrier()?;
    let mut data = vec![if rank == last { 2.5_f32 } else { 0.0 }; 9];
    world.broadcast(&mut data, last)?;
    assert_eq!(data, [2.5; 9]);
    let own = input::<i32>(rank, 6);
    let mut output = vec![0; 6];
    world.all_reduce(&own, &mut output, Op::Sum)?;
    assert_eq!(output, joined::<i32>(Op::Sum, size, 0, 6));
    let mut output = if rank == last { vec![0; 6] } else { Vec::new() };
    world.reduce(&own, &mut output, Op::Prod, last)?;
    assert_eq!(output, if rank == last { joined::<i32>(Op::Prod, size, 0, 6) } else { Vec::new() });
    let own = input::<f64>(rank, 3 * size as usize);
    let mut output = [0.0; 3];
    world.reduce_scatter(&own, &mut output, Op::Sum)?;
    assert_eq!(output.to_vec(), joined::<f64>(Op::Sum, size, 3 * rank as usize, 3));
    let mut output = vec![0; size as usize];
    world.all_gather(&[rank], &mut output)?;
    assert_eq!(output, (0..size).collect::<Vec<_>>());
    let out: Vec<u32> = (0..size).map(|whom| rank * 100 + whom).collect();
    world.all_to_all(&out, &mut output)?;
    assert_eq!(output, (0..size).map(|from| from * 100 + rank).collect::<Vec<_>>());
    let mut gathered = if rank == last { vec![0; size as usize] } else { Vec::new() };
    world.gather(&[rank * 3], &mut gathered, last)?;
    assert_eq!(gathered, if rank == last { (0..size).map(|from| from * 3).collect() } else { Vec::new() });
    let mut one = [0];
    world.scatter(&gathered, &mut one, last)?;
    assert_eq!(one, [rank * 3]);
    Ok(())
}
