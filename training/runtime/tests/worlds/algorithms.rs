//! Every collective by every algorithm, asked for by name, on 1 to 9 ranks, of every element type and reduction, of odd lengths, in place and
//! not, against plain loops. A sample of it, others for another `EIRENE_TEST_SEED`; all of it with `EIRENE_TEST_DEEP=1`.

#![expect(clippy::cast_possible_wrap, reason = "numbers of ranks and elements are small")]

use std::collections::BTreeSet;

use crate::deep::deep;
use crate::ranks::{AMPLE, joining};
use eirene_train_runtime::{Call, Collective, DType, Group, Manner, Options, Part, ReduceOp, Region, World};
use eirene_train_schedule::algorithms;

/// Random numbers that can be had again: SplitMix64.
struct Random(u64);

impl Random {
    fn new(salt: u64) -> Self {
        let seed = std::env::var("EIRENE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_u64);
        Self(seed.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

/// One call, the same on all ranks.
#[derive(Debug, Clone, Copy)]
struct Case {
    collective: Collective,
    dtype: DType,
    op: ReduceOp,
    /// Of a whole buffer, or about as many in all blocks.
    elements: usize,
    /// Blocks of one length.
    even: bool,
    in_place: bool,
    /// Elements before the buffers' first.
    offset: usize,
    ranks: usize,
}

impl Case {
    fn any(random: &mut Random, collective: Collective, ranks: usize, shared: bool) -> Self {
        let dtype = random.of(&DType::ALL);
        let defined: Vec<ReduceOp> = OPS.into_iter().filter(|op| op.defined_for(dtype)).collect();
        // What lies in arenas is only reached into when it is large and looks alike on all ranks.
        let elements = if shared {
            (70_000 + random.below(20_000)) / dtype.size().min(4)
        } else {
            random.of(&[0, 1, 2, 3, 5, 7, 17, 31, 101, 1001, 4099, 16_385])
        };
        Self {
            collective,
            dtype,
            op: random.of(&defined),
            elements: if shared { elements / ranks * ranks } else { elements },
            even: shared || random.below(2) == 0,
            in_place: random.below(2) == 0,
            offset: random.below(3),
            ranks,
        }
    }

    fn block(&self, rank: usize) -> usize {
        if self.even { self.elements / self.ranks } else { (self.elements + rank * 3) / self.ranks }
    }

    /// Elements that go from one rank to another in an all-to-all.
    fn between(&self, from: usize, to: usize) -> usize {
        if self.even { self.block(from) } else { self.block(from) + to }
    }

    /// What rank `rank` gives as element `index`: whole numbers so small (sums below 256) that results are exact in every type and any order.
    fn given(&self, rank: usize, index: usize) -> i64 {
        let (rank, index) = (rank as i64, index as i64);
        if self.dtype == DType::Bool {
            return i64::from((rank + index) % 3 == 0);
        }
        match self.op {
            ReduceOp::Sum => (rank * 5 + index * 7) % 13,
            ReduceOp::Min | ReduceOp::Max => (rank * 31 + index * 7) % 101,
            ReduceOp::Prod => 1 + i64::from((rank + index) % 4 == 0),
            // Two ranks each differ from the mean by as much.
            ReduceOp::Avg if rank == self.ranks as i64 - 1 && self.ranks % 2 == 1 => index % 13,
            ReduceOp::Avg => index % 13 + if rank % 2 == 0 { 3 } else { -3 },
        }
    }

    /// The reduction of everybody's element.
    fn folded(&self, index: usize) -> i64 {
        let all = (0..self.ranks).map(|rank| self.given(rank, index));
        match self.op {
            ReduceOp::Sum if self.dtype == DType::Bool => all.max().unwrap(),
            ReduceOp::Sum => all.sum(),
            ReduceOp::Avg => all.sum::<i64>() / self.ranks as i64,
            ReduceOp::Min => all.min().unwrap(),
            ReduceOp::Max => all.max().unwrap(),
            ReduceOp::Prod => all.product(),
        }
    }

    /// The blocks a rank gives, and those it should get; none where what it has is to stay as it is.
    fn sides(&self, me: usize) -> (Vec<Vec<i64>>, Option<Vec<Vec<i64>>>) {
        let begin = |rank: usize| (0..rank).map(|rank| self.block(rank)).sum::<usize>();
        let of =
            |rank: usize, range: std::ops::Range<usize>| -> Vec<i64> { range.map(|i| self.given(rank, i)).collect() };
        let folded = |range: std::ops::Range<usize>| -> Vec<i64> { range.map(|index| self.folded(index)).collect() };
        let whole = 0..self.elements;
        let blocks = |rank: usize| -> Vec<Vec<i64>> {
            (0..self.ranks).map(|block| of(rank, begin(block)..begin(block + 1))).collect()
        };
        let gathered = || -> Vec<Vec<i64>> { (0..self.ranks).map(|rank| of(rank, 0..self.block(rank))).collect() };
        let is_root = |root: u32| root as usize == me;
        match self.collective {
            Collective::AllReduce => (vec![of(me, whole.clone())], Some(vec![folded(whole)])),
            Collective::Broadcast { root } => (vec![of(me, whole.clone())], Some(vec![of(root as usize, whole)])),
            Collective::Reduce { root } => (vec![of(me, whole.clone())], is_root(root).then(|| vec![folded(whole)])),
            Collective::ReduceScatter => (blocks(me), Some(vec![folded(begin(me)..begin(me + 1))])),
            Collective::AllGather => (vec![of(me, 0..self.block(me))], Some(gathered())),
            Collective::AllToAll => {
                let message = |from: usize, to: usize| of(from * 10 + to, 0..self.between(from, to));
                let all = 0..self.ranks;
                (all.clone().map(|to| message(me, to)).collect(), Some(all.map(|from| message(from, me)).collect()))
            }
            Collective::Gather { root } => {
                (vec![of(me, 0..self.block(me))], Some(if is_root(root) { gathered() } else { Vec::new() }))
            }
            Collective::Scatter { root } => (
                if is_root(root) { blocks(root as usize) } else { Vec::new() },
                Some(vec![of(root as usize, begin(me)..begin(me + 1))]),
            ),
            Collective::Barrier => (Vec::new(), Some(Vec::new())),
        }
    }

    /// Where the second buffer begins in the first, in place: 0, or the rank's own block.
    fn own(&self, me: usize) -> usize {
        match self.collective {
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Gather { .. }
            | Collective::Scatter { .. } => (0..me).map(|rank| self.block(rank)).sum(),
            _ => 0,
        }
    }
}

/// A small whole number as an element.
fn encoded(dtype: DType, number: i64) -> Vec<u8> {
    let sign = u16::from(number < 0) << 15;
    match dtype {
        DType::F32 => (number as f32).to_le_bytes().to_vec(),
        DType::F64 => (number as f64).to_le_bytes().to_vec(),
        DType::BF16 => (((number as f32).to_bits() >> 16) as u16).to_le_bytes().to_vec(),
        DType::F16 => {
            let size = number.unsigned_abs() as u16;
            let bits =
                if size == 0 { 0 } else { (size.ilog2() as u16 + 15) << 10 | (size << (10 - size.ilog2())) & 0x3ff };
            (sign | bits).to_le_bytes().to_vec()
        }
        DType::I8 | DType::U8 | DType::Bool => vec![number as u8],
        DType::I16 | DType::U16 => (number as u16).to_le_bytes().to_vec(),
        DType::I32 | DType::U32 => (number as u32).to_le_bytes().to_vec(),
        DType::I64 | DType::U64 => (number as u64).to_le_bytes().to_vec(),
    }
}

/// Memory for a test, in an arena or not.
enum Memory {
    Own(Vec<u64>),
    Arena(Region),
}

const ROOM: usize = 256 << 10;
/// What memory is full of that nobody has written to.
const UNTOUCHED: u8 = 0x5a;

impl Memory {
    fn new(world: &World, shared: bool) -> Self {
        if shared { Self::Arena(world.arena(ROOM).unwrap()) } else { Self::Own(vec![0; ROOM / 8]) }
    }

    #[expect(unsafe_code, reason = "arenas are given by address")]
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: the words are as many bytes, and nobody else's.
            Self::Own(words) => unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), ROOM) },
            // SAFETY: the region is as long, and others touch it only during calls.
            Self::Arena(region) => unsafe { std::slice::from_raw_parts_mut(region.address() as *mut u8, ROOM) },
        }
    }
}

/// Blocks one after the other from an address on.
fn parts(address: usize, size: usize, blocks: &[Vec<i64>]) -> Vec<Part> {
    let mut at = address;
    let part = |block: &Vec<i64>| {
        let part = Part { address: at, elements: block.len() };
        at += block.len() * size;
        part
    };
    blocks.iter().map(part).collect()
}

fn flat(dtype: DType, blocks: &[Vec<i64>]) -> Vec<u8> {
    blocks.iter().flatten().flat_map(|number| encoded(dtype, *number)).collect()
}

/// Makes a call and compares everything it has written with what it should have.
#[expect(unsafe_code, reason = "the memory outlives the call")]
fn check(case: &Case, group: &Group, memory: &mut [Memory; 2]) {
    let me = group.rank() as usize;
    let size = case.dtype.size();
    let (gives, gets) = case.sides(me);
    // Where nothing is to be written there must still be room for it.
    let room = gets.clone().unwrap_or_else(|| gives.clone());
    let in_place = case.in_place
        && !gives.is_empty()
        && !room.is_empty()
        && !matches!(case.collective, Collective::AllToAll | Collective::Barrier);
    let (given, wanted) = (flat(case.dtype, &gives), gets.as_ref().map(|gets| flat(case.dtype, gets)));
    for memory in memory.iter_mut() {
        memory.bytes().fill(UNTOUCHED);
    }
    let offset = case.offset * size;
    let own = if in_place { case.own(me) * size } else { 0 };
    let (input_at, output_at) = match case.collective {
        Collective::AllGather | Collective::Gather { .. } => (offset + own, offset),
        _ => (offset, offset + own),
    };
    let [first, second] = memory;
    first.bytes()[input_at..input_at + given.len()].copy_from_slice(&given);
    let input = parts(first.bytes().as_ptr() as usize + input_at, size, &gives);
    let target = if in_place { &mut *first } else { &mut *second };
    let target_is_shared = matches!(target, Memory::Arena(_));
    let output = parts(target.bytes().as_ptr() as usize + output_at, size, &room);
    let call = Call { collective: case.collective, dtype: case.dtype, op: case.op, input, output };
    if target_is_shared {
        // SAFETY: the memory is longer than what is named of it, and nobody else's.
        let work = unsafe { group.start(&call, AMPLE) }.unwrap();
        work.wait(None).unwrap();
        assert_eq!(work.manner(), Some(Manner::InPlace), "{case:?} on rank {me}");
    } else {
        // SAFETY: as above.
        unsafe { group.run(&call, AMPLE) }.unwrap();
    }

    let target = if in_place { &mut *first } else { &mut *second };
    let (found, untouched) = (target.bytes(), vec![UNTOUCHED; ROOM]);
    match &wanted {
        Some(wanted) => assert!(found[output_at..output_at + wanted.len()] == wanted[..], "{case:?} on rank {me}"),
        None if in_place => assert!(found[input_at..input_at + given.len()] == given[..], "{case:?} on rank {me}"),
        None => assert!(*found == untouched[..], "{case:?} on rank {me}"),
    }
    if !in_place {
        let end = output_at + wanted.map_or(0, |wanted| wanted.len());
        let around = found[..output_at] == untouched[..output_at] && found[end..] == untouched[end..];
        assert!(around, "{case:?} on rank {me}");
        assert!(first.bytes()[input_at..input_at + given.len()] == given[..], "{case:?} on rank {me}");
    }
}

/// Ranks on nodes, and an algorithm that some collective has there.
type Setting = (Vec<&'static str>, String);

/// All settings there are.
fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for ranks in 1..=9_usize {
        let patterns: [Vec<&str>; 3] = [
            vec!["a"; ranks],
            (0..ranks).map(|rank| ["a", "b"][rank % 2]).collect(),
            (0..ranks).map(|rank| ["a", "b", "c"][rank / 3]).collect(),
        ];
        for (index, nodes) in patterns.iter().enumerate() {
            if patterns[..index].contains(nodes) {
                continue;
            }
            let numbers: Vec<u32> = nodes.iter().map(|node| u32::from(node.as_bytes()[0])).collect();
            let shares = ranks > 1 && nodes.iter().all(|node| *node == nodes[0]);
            let offered = |collective| algorithms(collective, ranks as u32, &numbers, shares);
            let names: BTreeSet<String> =
                Collective::all(0).into_iter().flat_map(offered).map(|algorithm| algorithm.to_string()).collect();
            all.extend(names.into_iter().map(|name| (nodes.clone(), name)));
        }
    }
    all
}

/// Every collective that has the algorithm, by it; returns how many there were.
fn check_setting((nodes, name): &Setting, salt: u64, times: usize) -> usize {
    let ranks = nodes.len();
    let options = |_| Options { algorithm: Some(name.clone()), ..Options::default() };
    let shared = name == "shared";
    let counts = joining(nodes, options, |world| {
        let world = world.unwrap();
        let group = world.everybody(AMPLE).unwrap();
        let mut memory = [Memory::new(&world, shared), Memory::new(&world, shared)];
        // The same on all ranks.
        let mut random = Random::new(salt);
        let mut checked = 0;
        for collective in Collective::all(random.below(ranks) as u32) {
            let explained = group.explain(collective, DType::F32, if shared { 100_000 } else { 1001 });
            if !explained.contains(&format!("{name}: asked for by `{name}`")) {
                continue;
            }
            for _ in 0..times {
                check(&Case::any(&mut random, collective, ranks, shared), &group, &mut memory);
                checked += 1;
            }
        }
        world.leave();
        checked
    });
    assert!(counts.iter().all(|count| *count == counts[0]));
    counts[0]
}

#[test]
fn every_collective_agrees_with_plain_loops_by_every_algorithm() {
    let all = settings();
    assert!(all.len() > 400, "{} settings", all.len());
    if deep() {
        for (salt, setting) in all.iter().enumerate() {
            assert!(check_setting(setting, salt as u64, 4) > 0, "{setting:?}: no collective was done by it");
        }
        return;
    }
    let mut random = Random::new(1);
    for salt in 0..30 {
        let setting = &all[random.below(all.len())];
        assert!(check_setting(setting, salt, 3) > 0, "{setting:?}: no collective was done by it");
    }
}
