//! Calls that do not fit the other ranks': every rank is told who called what, whatever the call, its length and where its buffers lie.

use std::sync::Barrier;
use std::time::Instant;

use crate::collectives::{mappings, mappings_of};
use crate::deep::assert_within;
use crate::ranks::{AMPLE, SOON, on_nodes};
use eirene_train_runtime::{Call, Collective, DType, Error, Group, Part, ReduceOp, Region, World};

const RANKS: usize = 3;

/// The rank that calls something else than the others, where one does.
const ODD: usize = 1;

/// What a rank may call, with blocks of so many elements for or from each rank; where it has one buffer for all, that is as long as all.
const ALL: [Collective; 8] = [
    Collective::AllReduce,
    Collective::Broadcast { root: 0 },
    Collective::Reduce { root: 0 },
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::Gather { root: 0 },
    Collective::Scatter { root: 0 },
];

/// Where a rank's buffers lie.
enum Memory {
    Own(Vec<f32>),
    Arena(Region),
}

impl Memory {
    fn new(world: &World, in_arena: bool, elements: usize) -> Result<Self, Error> {
        if in_arena { world.arena(elements * 4).map(Self::Arena) } else { Ok(Self::Own(vec![0.0; elements])) }
    }

    fn address(&self) -> usize {
        match self {
            Self::Own(memory) => memory.as_ptr() as usize,
            Self::Arena(region) => region.address(),
        }
    }
}

/// A call whose parts have these lengths, and the memory they lie in one after the other.
struct Made {
    call: Call,
    memory: Memory,
}

impl Made {
    fn new(
        world: &World,
        collective: Collective,
        in_arena: bool,
        input: &[usize],
        output: &[usize],
    ) -> Result<Self, Error> {
        let memory = Memory::new(world, in_arena, input.iter().chain(output).sum::<usize>() + 1)?;
        let mut address = memory.address();
        let mut parts = |lengths: &[usize]| -> Vec<Part> {
            let mut part = |elements: &usize| {
                let part = Part { address, elements: *elements };
                address += elements * 4;
                part
            };
            lengths.iter().map(&mut part).collect()
        };
        let call =
            Call { collective, dtype: DType::F32, op: ReduceOp::Sum, input: parts(input), output: parts(output) };
        Ok(Self { call, memory })
    }

    /// A call of a rank in which all blocks are as long.
    fn even(world: &World, collective: Collective, in_arena: bool, elements: usize) -> Result<Self, Error> {
        let (one, each, none) = ([elements], [elements; RANKS], []);
        let whole = [elements * RANKS];
        let is_root = |root: u32| root == world.rank();
        let (input, output): (&[usize], &[usize]) = match collective {
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } => (&whole, &whole),
            Collective::ReduceScatter => (&each, &one),
            Collective::AllGather => (&one, &each),
            Collective::AllToAll => (&each, &each),
            Collective::Gather { root } => (&one, if is_root(root) { &each } else { &none }),
            Collective::Scatter { root } => (if is_root(root) { &each } else { &none }, &one),
            Collective::Barrier => (&none, &none),
        };
        Self::new(world, collective, in_arena, input, output)
    }

    #[expect(unsafe_code, reason = "the buffers outlive the call")]
    fn run(&self, group: &Group) -> Result<(), Error> {
        // SAFETY: the parts lie in the memory, one after the other, and it lives until the call is over.
        unsafe { group.run(&self.call, AMPLE) }
    }

    /// The same, where something else may be under way.
    #[expect(unsafe_code, reason = "the buffers outlive the call")]
    fn start_and_wait(&self, group: &Group) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { group.start(&self.call, AMPLE) }?.wait(None)
    }

    /// Its arena, if it lies in one.
    fn inode(&self) -> Option<u64> {
        matches!(self.memory, Memory::Arena(_)).then(|| mappings(self.memory.address()).0)
    }
}

/// Runs what each rank calls first, and, as some are done before others have come to it, a call after which all must know. Returns what they
/// are told; none of their arenas is left.
fn told(nodes: &[&str], after: usize, first: impl Fn(&World) -> Result<Made, Error> + Sync) -> Vec<String> {
    let (errors, inodes): (Vec<String>, Vec<Option<u64>>) = on_nodes(nodes, |world| {
        let began = Instant::now();
        let mut inode = None;
        let outcome = world.everybody(AMPLE).and_then(|group| {
            let (made, next) = (first(&world)?, Made::even(&world, Collective::AllReduce, after > 0, after)?);
            inode = made.inode();
            // By turns in this thread and in the one that sees to what is under way.
            if after > 0 { made.run(&group) } else { made.start_and_wait(&group) }?;
            let barrier = Made::even(&world, Collective::Barrier, false, 0)?;
            if after > 0 { next.run(&group) } else { barrier.run(&group) }
        });
        assert_within(SOON, began.elapsed());
        let error = outcome.expect_err("the calls do not fit");
        assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
        (error.to_string(), inode)
    })
    .into_iter()
    .unzip();
    let ended = Instant::now();
    // A thread that has looked in at a world may be the last to let go of it.
    while inodes.iter().flatten().any(|inode| mappings_of(*inode) > 0) {
        assert!(ended.elapsed() < AMPLE, "an arena is left");
        std::thread::yield_now();
    }
    errors
}

/// Whether a number occurs in a text.
fn says(text: &str, number: usize) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|word| word.parse() == Ok(number))
}

/// On one node and on several.
const NODES: [[&str; RANKS]; 2] = [["a"; RANKS], ["a", "b", "b"]];

/// One rank's blocks are longer or shorter than all others': all learn both lengths.
fn lengths_differ(collectives: &[Collective]) {
    // The first are small, the second lie on both sides of the bound from which ranks of a node agree before they begin.
    let lengths = [(10, 11), (5461, 5462), (40_001, 40_000), (0, 10), (10, 0), (0, 40_000), (40_000, 0)];
    for collective in collectives {
        for (ours, odd) in lengths {
            for (nodes, in_arenas) in [(NODES[0], false), (NODES[0], true), (NODES[1], false)] {
                // What comes after is small or large by turns.
                let after = if ours > odd { 0 } else { 40_000 };
                let errors = told(&nodes, after, |world| {
                    let elements = if world.rank() as usize == ODD { odd } else { ours };
                    Made::even(world, *collective, in_arenas && elements > 1000, elements)
                });
                for error in errors {
                    let what = format!("{collective:?} of {ours} and {odd} on {nodes:?}: {error}");
                    let both = |factor: usize| says(&error, ours * factor) && says(&error, odd * factor);
                    assert!(both(1) || both(4) || both(RANKS), "{what}");
                    assert!(error.contains(&format!("rank {ODD}")) && error.contains(collective.name()), "{what}");
                }
            }
        }
    }
}

#[test]
fn lengths_of_one_buffer_that_differ_are_told() {
    lengths_differ(&ALL[..3]);
}

#[test]
fn lengths_of_blocks_that_all_ranks_know_and_that_differ_are_told() {
    lengths_differ(&ALL[3..5]);
}

#[test]
fn lengths_of_blocks_that_two_ranks_know_and_that_differ_are_told() {
    lengths_differ(&ALL[5..]);
}

#[test]
fn blocks_that_are_as_long_together_but_not_each_are_told() {
    for collective in [Collective::ReduceScatter, Collective::AllGather] {
        for (even, odd) in [([7, 7, 7], [14, 7, 0]), ([9000; RANKS], [8000, 9000, 10_000])] {
            for (nodes, in_arenas) in [(NODES[0], false), (NODES[0], true), (NODES[1], false)] {
                let errors = told(&nodes, 0, |world| {
                    let me = world.rank() as usize;
                    let each = if me == ODD { odd } else { even };
                    let (input, output): (&[usize], &[usize]) = match collective {
                        Collective::AllGather => (&each[me..=me], &each),
                        _ => (&each, &each[me..=me]),
                    };
                    Made::new(world, collective, in_arenas, input, output)
                });
                for error in errors {
                    let (name, odd) = (collective.name(), format!("rank {ODD}"));
                    assert!(error.contains(name) && error.contains(&odd) && error.contains("blocks"), "{error}");
                }
            }
        }
    }
}

/// Only one pair of ranks sees that what one gives is not what the other takes.
#[test]
fn one_block_that_one_rank_takes_for_longer_or_shorter_or_nothing_is_told() {
    for (gives, takes) in [(10, 11), (0, 10), (10, 0), (100_000, 0), (0, 100_000), (100_000, 99_999)] {
        for nodes in &NODES {
            for after in [0, 40_000] {
                let errors = told(nodes, after, |world| {
                    let (mut input, mut output) = ([5; RANKS], [5; RANKS]);
                    match world.rank() {
                        0 => input[ODD] = gives,
                        1 => output[0] = takes,
                        _ => {}
                    }
                    Made::new(world, Collective::AllToAll, false, &input, &output)
                });
                for error in errors {
                    assert!(error.contains("all-to-all") && error.contains("rank 0") && error.contains("rank 1"));
                    let both = |factor: usize| says(&error, gives * factor) && says(&error, takes * factor);
                    assert!(both(1) || both(4), "{error}");
                }
            }
        }
    }
}

#[test]
fn types_operations_roots_and_collectives_that_differ_are_told() {
    let ways = ["type", "operation", "root", "collective"];
    for (index, collective) in ALL.into_iter().enumerate() {
        for (way, elements) in ways.into_iter().flat_map(|way| [(way, 10), (way, 40_000)]) {
            let reduces =
                matches!(collective, Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter);
            let other = match (way, collective) {
                ("root", Collective::Broadcast { .. }) => Collective::Broadcast { root: 1 },
                ("root", Collective::Reduce { .. }) => Collective::Reduce { root: 1 },
                ("root", Collective::Gather { .. }) => Collective::Gather { root: 1 },
                ("root", Collective::Scatter { .. }) => Collective::Scatter { root: 1 },
                ("collective", _) => ALL[(index + 1) % ALL.len()],
                _ => collective,
            };
            if way == "root" && other == collective || way == "operation" && !reduces {
                continue;
            }
            for (nodes, in_arenas) in [(NODES[0], elements > 1000), (NODES[1], false)] {
                let errors = told(&nodes, 0, |world| {
                    let is_odd = world.rank() as usize == ODD;
                    let called = if is_odd { other } else { collective };
                    let mut made = Made::even(world, called, in_arenas, elements)?;
                    if is_odd {
                        made.call.dtype = if way == "type" { DType::I32 } else { DType::F32 };
                        made.call.op = if way == "operation" { ReduceOp::Max } else { ReduceOp::Sum };
                    }
                    Ok(made)
                });
                let words = match way {
                    "type" => ["float32", "int32"],
                    "operation" => ["of sum", "of max"],
                    "root" => ["root 0", "root 1"],
                    _ => [collective.name(), other.name()],
                };
                for error in errors {
                    let what = format!("{collective:?} of {elements} with another {way} on {nodes:?}: {error}");
                    assert!(error.contains(&format!("rank {ODD}")), "{what}");
                    assert!(words.iter().all(|word| error.contains(word)), "{what}");
                }
            }
        }
    }
}

/// A root is done when its messages are on their way, and the others may have called something that they wait for each other in.
#[test]
fn a_rank_that_is_many_calls_ahead_of_others_that_have_called_something_else_is_told() {
    const CALLS: usize = 100;
    for nodes in &NODES {
        for (elements, in_arenas) in [(10, false), (40_000, true)] {
            let errors = on_nodes(nodes, |world| {
                let began = Instant::now();
                let outcome = world.everybody(AMPLE).and_then(|group| {
                    if world.rank() == 0 {
                        let made = Made::even(&world, Collective::Scatter { root: 0 }, false, 10)?;
                        (0..CALLS).try_for_each(|_| made.run(&group))?;
                        return Made::even(&world, Collective::Barrier, false, 0)?.run(&group);
                    }
                    let made = Made::even(&world, Collective::AllReduce, in_arenas && nodes[0] == nodes[1], elements)?;
                    made.run(&group)
                });
                assert_within(SOON, began.elapsed());
                outcome.expect_err("the calls do not fit")
            });
            for error in errors {
                assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
                let error = error.to_string();
                assert!(
                    error.contains("scatter") && error.contains("allreduce") && error.contains("rank 0"),
                    "{error}"
                );
            }
        }
    }
}

/// Nobody waits for anybody in the first call, and in the second no message is sent: each works in the others' memory.
#[test]
fn roots_that_have_all_sent_are_told_by_a_call_in_place() {
    let errors =
        told(&NODES[0], 40_000, |world| Made::even(world, Collective::Broadcast { root: world.rank() }, false, 10));
    for error in errors {
        assert!(error.contains("broadcast (call 1)") && error.contains("root"), "{error}");
    }
}

#[test]
#[expect(unsafe_code, reason = "the tests look at memory that nobody uses any more")]
fn blocks_of_all_lengths_are_legal_also_none() {
    /// What goes from one rank to another.
    const LENGTHS: [[usize; RANKS]; RANKS] = [[0, 30_000, 5], [0, 0, 70_000], [1, 0, 0]];
    for (nodes, in_arenas) in [(NODES[0], false), (NODES[0], true), (NODES[1], false)] {
        on_nodes(&nodes, |world| {
            let group = world.everybody(AMPLE).unwrap();
            let me = world.rank() as usize;
            let gives = |from: usize, to: usize| (from * RANKS + to) as f32;
            let row = LENGTHS[me];
            let column = [LENGTHS[0][me], LENGTHS[1][me], LENGTHS[2][me]];
            let lengths = [0, 30_000, 5];
            let own = &lengths[me..=me];
            let at_root: [&[usize]; 2] = if me == 0 { [&lengths, &[]] } else { [&[], &[]] };
            for (collective, input, output) in [
                (Collective::AllToAll, &row[..], &column[..]),
                (Collective::AllGather, own, &lengths[..]),
                (Collective::Gather { root: 0 }, own, at_root[0]),
                (Collective::Scatter { root: 0 }, at_root[0], own),
                (Collective::ReduceScatter, &lengths[..], own),
                (Collective::AllReduce, &[0][..], &[0][..]),
                (Collective::Broadcast { root: 0 }, &[0][..], &[0][..]),
            ] {
                let made = Made::new(&world, collective, in_arenas, input, output).unwrap();
                for (to, part) in made.call.input.iter().enumerate() {
                    // SAFETY: the part is memory of the call's, which has not begun.
                    unsafe { std::slice::from_raw_parts_mut(part.address as *mut f32, part.elements) }
                        .fill(gives(me, to));
                }
                made.run(&group).unwrap();
                for (from, part) in made.call.output.iter().enumerate() {
                    let wanted = match collective {
                        Collective::AllToAll => gives(from, me),
                        Collective::ReduceScatter => (0..RANKS).map(|rank| gives(rank, me)).sum(),
                        Collective::Scatter { .. } => gives(0, me),
                        _ => gives(from, 0),
                    };
                    // SAFETY: as above; it has ended.
                    let got = unsafe { std::slice::from_raw_parts(part.address as *const f32, part.elements) };
                    assert!(got.iter().all(|value| *value == wanted), "{collective} from {from} to {me}");
                }
            }
            // Nobody leaves while another still needs it.
            Made::even(&world, Collective::Barrier, false, 0).unwrap().run(&group).unwrap();
        });
    }
}

/// Rank 0 sends messages of these lengths under their tags, and then another receives some, which may be in another order. The first error.
#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn messages(
    group: &Group,
    to: u32,
    sent: &[(u32, usize)],
    received: &[(u32, usize)],
    under_way: &Barrier,
) -> Result<(), Error> {
    let longest = sent.iter().chain(received).map(|(_, elements)| *elements).max().unwrap_or(0);
    let memory = vec![0.0_f32; longest];
    let part = |elements| Part { address: memory.as_ptr() as usize, elements };
    let mut works = Vec::new();
    if group.rank() == 0 {
        // SAFETY: every work is waited for before the memory goes.
        works
            .extend(sent.iter().map(|(tag, length)| unsafe { group.send(to, *tag, part(*length), DType::F32, AMPLE) }));
    }
    under_way.wait();
    if group.rank() == to {
        // SAFETY: as above; what comes is not looked at.
        let receive =
            |(tag, length): &(u32, usize)| unsafe { group.receive(Some(0), *tag, part(*length), DType::F32, AMPLE) };
        works.extend(received.iter().map(receive));
    }
    let ends: Vec<_> = works.into_iter().map(|work| work.and_then(|work| work.wait(None))).collect();
    ends.into_iter().collect()
}

#[test]
fn messages_that_are_not_as_long_as_their_receives_are_told() {
    for nodes in [["a", "a"], ["a", "b"]] {
        for (sends, receives) in [(10, 11), (11, 10), (0, 10), (10, 0), (100_000, 100_001)] {
            // Where it is waited for; kept aside, since another is waited for first; from itself.
            for (to, sent, received) in [
                (1, &[(1, sends)][..], &[(1, receives)][..]),
                (1, &[(1, sends), (2, 3)], &[(2, 3), (1, receives)]),
                (0, &[(1, sends)], &[(1, receives)]),
            ] {
                let under_way = Barrier::new(2);
                let errors = on_nodes(&nodes, |world| {
                    let began = Instant::now();
                    let outcome = world.everybody(AMPLE).and_then(|group| {
                        messages(&group, to, sent, received, &under_way)?;
                        Made::even(&world, Collective::Barrier, false, 0)?.run(&group)
                    });
                    assert_within(SOON, began.elapsed());
                    outcome.expect_err("the lengths do not fit")
                });
                for error in errors {
                    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
                    let error = error.to_string();
                    assert!(
                        says(&error, sends * 4) && says(&error, receives * 4) && error.contains("tag 1"),
                        "{error}"
                    );
                }
            }
        }
    }
}
