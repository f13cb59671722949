//! Calls of collectives, and what each has to leave in every byte of every rank's memory.

use eirene_train_runtime::{Call, Collective, DType, Group, Part, ReduceOp, Region, World};

use crate::values::{elements, given, reduced};
use crate::{AMPLE, Failure};

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    collective: Collective,
    dtype: DType,
    op: Option<ReduceOp>,
    elements: usize,
    /// Where the ranks' buffers are.
    place: Where,
    /// The output is the input.
    in_place: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In memory that only the rank sees.
    Own,
    /// In arenas that the other ranks of the node reach.
    Arena,
    /// Some ranks' in one, some ranks' in the other.
    Mixed,
}

/// Around what calls are rounded to and cut at, and nothing that a power of two divides.
const LENGTHS: [usize; 13] = [0, 1, 2, 3, 7, 17, 255, 1001, 4093, 16_383, 16_385, 70_001, 300_007];
/// Longer ones are done with a few types only: what they are for does not depend on it.
const LONG: usize = 4_000;
/// Blocks of all-to-all are longer than others by at most the number of ranks.
const MOST_BYTES: usize = (300_007 + 64 * 64) * 8 + 2 * GUARD;
/// Bytes before and behind what a call may touch.
const GUARD: usize = 128;
const UNTOUCHED: u8 = 0xA5;

/// The first `each` of every collective, in an order that the seed decides.
pub(crate) fn choose(size: u32, seed: u64, each: usize) -> Vec<Case> {
    let mut cases = every(size);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for last in (1..cases.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        cases.swap(last, (state % (last as u64 + 1)) as usize);
    }
    let mut taken = std::collections::HashMap::new();
    cases.retain(|case| {
        let count = taken.entry(std::mem::discriminant(&case.collective)).or_insert(0);
        *count += 1;
        *count <= each
    });
    cases
}

fn every(size: u32) -> Vec<Case> {
    let mut roots = vec![0, size / 2, size - 1];
    roots.dedup();
    let mut collectives = vec![
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Barrier,
    ];
    for root in roots {
        collectives.extend([
            Collective::Broadcast { root },
            Collective::Reduce { root },
            Collective::Gather { root },
            Collective::Scatter { root },
        ]);
    }
    let mut cases = Vec::new();
    for collective in collectives {
        let reduces =
            matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce { .. });
        let ops: Vec<Option<ReduceOp>> = if reduces { ReduceOp::ALL.map(Some).to_vec() } else { vec![None] };
        let may_be_in_place = [false, true].into_iter().take(1 + usize::from(one_buffer(collective)));
        for (dtype, op) in DType::ALL.into_iter().flat_map(|dtype| ops.iter().map(move |op| (dtype, *op))) {
            if op.is_some_and(|op| !op.defined_for(dtype)) {
                continue;
            }
            for elements in LENGTHS {
                if elements > LONG && !matches!(dtype, DType::F32 | DType::BF16 | DType::I8) {
                    continue;
                }
                for in_place in may_be_in_place.clone() {
                    for place in [Where::Own, Where::Arena, Where::Mixed] {
                        cases.push(Case { collective, dtype, op, elements, place, in_place });
                    }
                }
            }
        }
    }
    cases
}

/// Input and output are one part each, as long, and may be the same.
fn one_buffer(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. })
}

/// Memory for inputs and outputs, used again for every case.
pub(crate) struct Memory {
    own: [Vec<u64>; 2],
    arenas: [Region; 2],
}

impl Memory {
    pub(crate) fn new(world: &World, size: u32) -> Result<Self, Failure> {
        let bytes = MOST_BYTES + size as usize * 64;
        Ok(Self { own: [0, 1].map(|_| vec![0; bytes / 8 + 1]), arenas: [world.arena(bytes)?, world.arena(bytes)?] })
    }

    /// Bytes of one of the two sides, nothing of which has been touched yet.
    #[expect(unsafe_code, reason = "arenas are given by address")]
    fn side(&mut self, arena: bool, side: usize, bytes: usize) -> &mut [u8] {
        let address = if arena { self.arenas[side].address() as *mut u8 } else { self.own[side].as_mut_ptr().cast() };
        // SAFETY: there is room for as many bytes in both, and nobody else uses them between calls.
        let memory = unsafe { std::slice::from_raw_parts_mut(address, bytes + 2 * GUARD) };
        memory.fill(UNTOUCHED);
        memory
    }
}

/// What one side of a call is: parts, one behind the other.
struct Side {
    /// Elements of each part.
    parts: Vec<usize>,
    /// What is in them, before or after the call.
    content: Vec<u8>,
}

impl Side {
    fn none() -> Self {
        Self { parts: Vec::new(), content: Vec::new() }
    }
}

/// Does a case and compares every byte.
#[expect(unsafe_code, reason = "calls take addresses")]
pub(crate) fn check(group: &Group, case: &Case, number: usize, memory: &mut Memory) -> Result<(), Failure> {
    let (me, size) = (group.rank() as usize, group.size() as usize);
    let (input, output) = (gives(case, me, size), gets(case, me, size));
    let arena = match case.place {
        Where::Own => false,
        Where::Arena => true,
        Where::Mixed => me % 2 == 0,
    };
    let element = case.dtype.size();
    let place = |memory: &mut [u8], side: &Side| -> Vec<Part> {
        let mut address = memory.as_mut_ptr() as usize + GUARD;
        let part = |elements: &usize| {
            let part = Part { address, elements: *elements };
            address += elements * element;
            part
        };
        side.parts.iter().map(part).collect()
    };
    let room = input.content.len().max(output.content.len());
    let given = memory.side(arena, 0, room);
    given[GUARD..GUARD + input.content.len()].copy_from_slice(&input.content);
    let into_parts = place(given, &input);
    let out_parts = if case.in_place { into_parts.clone() } else { place(memory.side(arena, 1, room), &output) };
    let call = Call {
        collective: case.collective,
        dtype: case.dtype,
        op: case.op.unwrap_or(ReduceOp::Sum),
        input: into_parts,
        output: out_parts,
    };
    // SAFETY: the memory is as long and is not looked at before the call is done.
    unsafe {
        if number.is_multiple_of(3) {
            group.start(&call, AMPLE)?.wait(Some(AMPLE))?;
        } else {
            group.run(&call, AMPLE)?;
        }
    }
    let after = |arena: bool, side: usize, memory: &mut Memory| -> Vec<u8> {
        let address = if arena { memory.arenas[side].address() as *const u8 } else { memory.own[side].as_ptr().cast() };
        // SAFETY: as long as it was made, and the call is done.
        unsafe { std::slice::from_raw_parts(address, room + 2 * GUARD) }.to_vec()
    };
    // Where nothing comes out, what was there stays: the input, or nothing.
    let stays = output.content.is_empty() && case.in_place;
    let right = if stays { &input.content } else { &output.content };
    compare("output", &after(arena, usize::from(!case.in_place), memory), right, element)?;
    if case.in_place {
        return Ok(());
    }
    compare("input", &after(arena, 0, memory), &input.content, element)
}

fn compare(side: &str, found: &[u8], right: &[u8], element: usize) -> Result<(), Failure> {
    let wanted = |at: usize| at.checked_sub(GUARD).and_then(|at| right.get(at)).copied().unwrap_or(UNTOUCHED);
    let Some(at) = (0..found.len()).find(|at| found[*at] != wanted(*at)) else { return Ok(()) };
    let elements = right.len() / element;
    Err(Failure::Wrong(match at.checked_sub(GUARD) {
        Some(inside) if inside < right.len() => format!(
            "{side} element {} of {elements}: byte {:#04x} instead of {:#04x}",
            inside / element,
            found[at],
            right[inside]
        ),
        Some(behind) => format!("{side}: written {} bytes behind its end", behind - right.len() + 1),
        None => format!("{side}: written {} bytes before its beginning", GUARD - at),
    }))
}

/// Elements of rank `rank`'s block where every rank has one: of different lengths.
fn length(case: &Case, rank: usize, size: usize) -> usize {
    (case.elements + rank * 3) / size
}

fn begin(case: &Case, rank: usize, size: usize) -> usize {
    (0..rank).map(|rank| length(case, rank, size)).sum()
}

/// What a rank gives where it is told apart from others by a number.
fn content(case: &Case, giver: usize, size: usize, elements_given: usize) -> Vec<u8> {
    elements((0..elements_given).map(|index| given(giver, size, index, case.dtype, case.op)), case.dtype)
}

/// From i to j go `length(i) + j` elements.
fn exchanged(case: &Case, from: usize, to: usize, size: usize) -> (usize, Vec<u8>) {
    let elements = length(case, from, size) + to;
    (elements, content(case, from * 64 + to, size, elements))
}

fn gives(case: &Case, me: usize, size: usize) -> Side {
    let one = |elements: usize| Side { parts: vec![elements], content: content(case, me, size, elements) };
    match case.collective {
        Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. } => one(case.elements),
        Collective::AllGather | Collective::Gather { .. } => one(length(case, me, size)),
        Collective::ReduceScatter => {
            let parts: Vec<usize> = (0..size).map(|rank| length(case, rank, size)).collect();
            Side { content: content(case, me, size, parts.iter().sum()), parts }
        }
        Collective::Scatter { root } if root as usize == me => blocks(case, size),
        Collective::Scatter { .. } | Collective::Barrier => Side::none(),
        Collective::AllToAll => joined((0..size).map(|to| exchanged(case, me, to, size))),
    }
}

/// What has to be there; a side without content where nothing comes out.
fn gets(case: &Case, me: usize, size: usize) -> Side {
    let sums = |from: usize, count: usize| {
        let op = case.op.unwrap_or(ReduceOp::Sum);
        elements((from..from + count).map(|index| reduced(size, index, case.dtype, op)), case.dtype)
    };
    let whole = |content: Vec<u8>| Side { parts: vec![case.elements], content };
    match case.collective {
        Collective::AllReduce => whole(sums(0, case.elements)),
        Collective::Reduce { root } if root as usize == me => whole(sums(0, case.elements)),
        Collective::Reduce { .. } => whole(Vec::new()),
        Collective::Broadcast { root } => whole(content(case, root as usize, size, case.elements)),
        Collective::ReduceScatter => {
            let count = length(case, me, size);
            Side { parts: vec![count], content: sums(begin(case, me, size), count) }
        }
        Collective::AllGather => blocks(case, size),
        Collective::Gather { root } if root as usize == me => blocks(case, size),
        Collective::Gather { .. } | Collective::Barrier => Side::none(),
        Collective::Scatter { .. } => {
            let count = length(case, me, size);
            Side { parts: vec![count], content: content(case, me, size, count) }
        }
        Collective::AllToAll => joined((0..size).map(|from| exchanged(case, from, me, size))),
    }
}

/// Every rank's block, one behind the other.
fn blocks(case: &Case, size: usize) -> Side {
    joined((0..size).map(|rank| {
        let elements = length(case, rank, size);
        (elements, content(case, rank, size, elements))
    }))
}

fn joined(parts: impl Iterator<Item = (usize, Vec<u8>)>) -> Side {
    let mut side = Side::none();
    for (elements, content) in parts {
        side.parts.push(elements);
        side.content.extend(content);
    }
    side
}
