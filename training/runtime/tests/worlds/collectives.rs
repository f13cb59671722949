//! Every collective on ranks that share memory, on ranks that do not, and on both, against plain loops.

use crate::ranks::{AMPLE, on_nodes, on_one_node};
use eirene_train_runtime::{Call, Collective, DType, Error, Group, Manner, Part, ReduceOp, Region, World};
use proptest::prelude::*;

/// What rank `rank` gives as element `index`: small whole numbers, so that sums are exact in any order.
fn given(rank: usize, index: usize) -> f32 {
    ((rank * 31 + index * 7) % 64) as f32 - 20.0
}

fn input(rank: usize, elements: usize) -> Vec<f32> {
    (0..elements).map(|index| given(rank, index)).collect()
}

fn part<T>(memory: &[T]) -> Part {
    Part { address: memory.as_ptr() as usize, elements: memory.len() }
}

/// Runs a call with f32 parts and says how it went.
#[expect(unsafe_code, reason = "the parts are vectors that outlive the call")]
fn run(group: &Group, collective: Collective, op: ReduceOp, input: Vec<Part>, output: Vec<Part>) -> Result<(), Error> {
    let call = Call { collective, dtype: DType::F32, op, input, output };
    // SAFETY: as said above.
    unsafe { group.run(&call, AMPLE) }
}

fn everybody(world: &World) -> Group {
    world.everybody(AMPLE).unwrap()
}

/// All collectives of `elements` on these nodes; everything is compared with what plain loops say.
fn check_all(nodes: &[&str], elements: usize, root: u32) {
    let size = nodes.len();
    on_nodes(nodes, |world| {
        let group = everybody(&world);
        let me = world.rank() as usize;
        let mine = input(me, elements);
        let fold = |index: usize, first: f32, with: fn(f32, f32) -> f32| {
            (0..size).map(|rank| given(rank, index)).fold(first, with)
        };

        // Out of place, then in place.
        let mut output = vec![f32::NAN; elements];
        run(&group, Collective::AllReduce, ReduceOp::Sum, vec![part(&mine)], vec![part(&output)]).unwrap();
        let sums: Vec<f32> = (0..elements).map(|index| fold(index, 0.0, |a, b| a + b)).collect();
        assert_eq!(output, sums);
        output.copy_from_slice(&mine);
        run(&group, Collective::AllReduce, ReduceOp::Max, vec![part(&output)], vec![part(&output)]).unwrap();
        assert_eq!(output, (0..elements).map(|index| fold(index, f32::MIN, f32::max)).collect::<Vec<_>>());
        output.copy_from_slice(&mine);
        run(&group, Collective::AllReduce, ReduceOp::Avg, vec![part(&output)], vec![part(&output)]).unwrap();
        assert_eq!(output, sums.iter().map(|sum| sum / size as f32).collect::<Vec<_>>());

        let mut output = if world.rank() == root { mine.clone() } else { vec![0.0; elements] };
        run(&group, Collective::Broadcast { root }, ReduceOp::Sum, vec![part(&output)], vec![part(&output)]).unwrap();
        assert_eq!(output, input(root as usize, elements));
        output.fill(-1.0);
        run(&group, Collective::Reduce { root }, ReduceOp::Sum, vec![part(&mine)], vec![part(&output)]).unwrap();
        assert_eq!(output, if world.rank() == root { sums } else { vec![-1.0; elements] });

        // Blocks of uneven length: rank r's has `length(r)`.
        let length = |rank: usize| (elements + rank * 3) / size;
        let begin = |rank: usize| (0..rank).map(length).sum::<usize>();
        let whole = input(me, begin(size));
        let blocks: Vec<Part> = (0..size).map(|rank| part(&whole[begin(rank)..begin(rank + 1)])).collect();
        let output = vec![f32::NAN; length(me)];
        run(&group, Collective::ReduceScatter, ReduceOp::Sum, blocks, vec![part(&output)]).unwrap();
        assert_eq!(output, (begin(me)..begin(me + 1)).map(|index| fold(index, 0.0, |a, b| a + b)).collect::<Vec<_>>());

        let mine = input(me, length(me));
        let outputs: Vec<Vec<f32>> = (0..size).map(|rank| vec![f32::NAN; length(rank)]).collect();
        let everything: Vec<Vec<f32>> = (0..size).map(|rank| input(rank, length(rank))).collect();
        run(&group, Collective::AllGather, ReduceOp::Sum, vec![part(&mine)], outputs.iter().map(|o| part(o)).collect())
            .unwrap();
        assert_eq!(outputs, everything);
        let outputs: Vec<Vec<f32>> = (0..size).map(|rank| vec![f32::NAN; length(rank)]).collect();
        let parts = if world.rank() == root { outputs.iter().map(|o| part(o)).collect() } else { Vec::new() };
        run(&group, Collective::Gather { root }, ReduceOp::Sum, vec![part(&mine)], parts).unwrap();
        if world.rank() == root {
            assert_eq!(outputs, everything);
        }
        let output = vec![f32::NAN; length(me)];
        let parts =
            if world.rank() == root { everything.iter().map(|block| part(block)).collect() } else { Vec::new() };
        run(&group, Collective::Scatter { root }, ReduceOp::Sum, parts, vec![part(&output)]).unwrap();
        assert_eq!(output, everything[me]);

        // From i to j go `length(i) + j` elements.
        let send: Vec<Vec<f32>> = (0..size).map(|to| input(me * 100 + to, length(me) + to)).collect();
        let receive: Vec<Vec<f32>> = (0..size).map(|from| vec![f32::NAN; length(from) + me]).collect();
        let parts = |blocks: &[Vec<f32>]| blocks.iter().map(|block| part(block)).collect::<Vec<_>>();
        run(&group, Collective::AllToAll, ReduceOp::Sum, parts(&send), parts(&receive)).unwrap();
        assert_eq!(receive, (0..size).map(|from| input(from * 100 + me, length(from) + me)).collect::<Vec<_>>());

        run(&group, Collective::Barrier, ReduceOp::Sum, Vec::new(), Vec::new()).unwrap();
        world.leave();
    });
}

#[test]
fn all_collectives_agree_with_plain_loops_on_one_node() {
    for (size, elements) in
        [(1, 100), (2, 0), (2, 1), (2, 1001), (2, 300_007), (3, 2), (3, 70_001), (4, 4096), (5, 17), (9, 5003)]
    {
        check_all(&vec!["here"; size], elements, size as u32 - 1);
    }
}

#[test]
fn all_collectives_agree_with_plain_loops_between_nodes() {
    for (nodes, elements) in [
        (vec!["a", "b"], 1001),
        (vec!["a", "b"], 300_007),
        (vec!["a", "a", "b", "b"], 100_003),
        (vec!["a", "b", "a", "b"], 9),
        (vec!["a", "b", "b", "c", "a"], 20_011),
    ] {
        check_all(&nodes, elements, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_length_on_any_nodes(nodes in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..6), elements in 0_usize..50_000) {
        check_all(&nodes, elements, 0);
    }
}

/// The mappings of the memory that an address lies in, by its inode: how many, and at which addresses.
pub(crate) fn mappings(address: usize) -> (u64, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inode = |line: &str| line.split_whitespace().nth(4).unwrap().parse::<u64>().unwrap();
    let holds = |line: &&str| {
        let (begin, end) = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let [begin, end] = [begin, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        (begin..end).contains(&address)
    };
    let ours = inode(maps.lines().find(holds).unwrap());
    (ours, mappings_of(ours))
}

/// How many mappings there are of an arena, by its inode.
pub(crate) fn mappings_of(inode: u64) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_it = |line: &&str| line.contains("eirene-train-arena") && line.contains(&format!(" {inode} "));
    maps.lines().filter(is_it).count()
}

#[expect(unsafe_code, reason = "the buffers are arenas that outlive the calls")]
fn reduce_region(group: &Group, region: &Region) {
    let elements = region.bytes() / 4;
    let call = Call::all_reduce(region.address(), region.address(), elements, DType::F32, ReduceOp::Sum);
    // SAFETY: the region is as long, and zeros.
    unsafe { group.run(&call, AMPLE) }.unwrap();
}

fn fence(group: &Group) {
    run(group, Collective::Barrier, ReduceOp::Sum, Vec::new(), Vec::new()).unwrap();
}

#[test]
fn memory_that_is_given_back_does_not_stay_mapped_at_the_others() {
    on_one_node(2, |world| {
        let group = everybody(&world);
        let inodes: Vec<u64> = (0..8)
            .map(|_| {
                let region = world.arena(245 * 4096).unwrap();
                reduce_region(&group, &region);
                fence(&group);
                // Both ranks are in this process.
                let (inode, mapped) = mappings(region.address());
                assert_eq!(mapped, 2);
                fence(&group);
                inode
            })
            .collect();
        fence(&group);
        // The other has the last one, of which it has heard nothing more; its pages are gone all the same.
        assert_eq!(inodes.iter().map(|inode| mappings_of(*inode)).sum::<usize>(), 1);
        fence(&group);
    });
}

#[test]
fn any_number_of_regions_is_no_burden_for_those_who_do_something_else() {
    const MANY: usize = 600;
    on_one_node(2, |world| {
        let group = everybody(&world);
        let regions: Vec<Region> =
            (0..if world.rank() == 0 { MANY } else { 1 }).map(|_| world.arena(64 << 10).unwrap()).collect();
        // Rank 1 has heard of none of them when the next group is built, and none is in the way.
        let another = everybody(&world);
        for round in 0..MANY {
            reduce_region(if round % 2 == 0 { &group } else { &another }, &regions[round % regions.len()]);
        }
        fence(&group);
        // They lie in one file, which the other has mapped once.
        let all: std::collections::HashSet<_> = regions.iter().map(|region| mappings(region.address())).collect();
        assert_eq!(all.len(), 1);
        assert!(all.iter().all(|(_, mapped)| *mapped == 2));
        fence(&group);
        drop(regions);
        fence(&group);
        assert_eq!(all.iter().map(|(inode, _)| mappings_of(*inode)).sum::<usize>(), 1);
        fence(&group);
    });
}

/// How a sum in place of so many f32 is done.
#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn manner(group: &Group, address: usize, elements: usize) -> Option<Manner> {
    let call = Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Sum);
    // SAFETY: the caller's buffers are as long, and are let go of later.
    let work = unsafe { group.start(&call, AMPLE) }.unwrap();
    work.wait(None).unwrap();
    work.manner()
}

#[test]
fn all_ranks_know_how_a_collective_was_really_done() {
    const ELEMENTS: usize = 32 << 10;
    on_one_node(3, |world| {
        let group = everybody(&world);
        let region = world.arena(ELEMENTS * 4).unwrap();
        let elsewhere = vec![0_f32; ELEMENTS];
        assert_eq!(manner(&group, region.address(), ELEMENTS), Some(Manner::InPlace));
        assert_eq!(manner(&group, region.address(), 100), Some(Manner::Small));
        let address = if world.rank() == 1 { elsewhere.as_ptr() as usize } else { region.address() };
        assert_eq!(manner(&group, address, ELEMENTS), Some(Manner::Unshared { rank: 1 }));
        let alone = world.group(&[world.rank()], &format!("alone {}", world.rank()), AMPLE).unwrap();
        assert_eq!(manner(&alone, elsewhere.as_ptr() as usize, ELEMENTS), Some(Manner::InPlace));
        fence(&group);
    });
    on_nodes(&["a", "b"], |world| {
        let group = everybody(&world);
        let region = world.arena(ELEMENTS * 4).unwrap();
        assert_eq!(manner(&group, region.address(), ELEMENTS), Some(Manner::Nodes));
        fence(&group);
    });
}

#[test]
fn chunks_that_only_one_rank_has_are_taken_in_all_the_same() {
    on_one_node(2, |world| {
        let group = everybody(&world);
        let mut elsewhere = vec![0_f32; 16 << 10];
        for _ in 0..600 {
            // Each round has a file of its own, since the last round's is gone by then.
            if world.rank() == 0 {
                reduce_region(&group, &world.arena(64 << 10).unwrap());
            } else {
                let place = part(&elsewhere);
                run(&group, Collective::AllReduce, ReduceOp::Sum, vec![place], vec![place]).unwrap();
            }
        }
        elsewhere.clear();
        everybody(&world);
        fence(&group);
    });
}

#[test]
#[expect(unsafe_code, reason = "the buffers are arenas that outlive the calls")]
fn what_lies_in_arenas_is_reduced_in_place() {
    for (size, elements) in [(2, 40_000), (3, 100_001), (4, 1 << 20)] {
        on_one_node(size, |world| {
            let group = everybody(&world);
            let me = world.rank() as usize;
            let region = world.arena(elements * 4 + 64).unwrap();
            // SAFETY: the region is as long, and nobody else uses it between calls.
            let memory = unsafe { std::slice::from_raw_parts_mut((region.address() + 64) as *mut f32, elements) };
            for round in 0..3 {
                memory.copy_from_slice(&input(me + round, elements));
                run(&group, Collective::AllReduce, ReduceOp::Sum, vec![part(memory)], vec![part(memory)]).unwrap();
                let sum = |index: usize| (0..size).map(|rank| given(rank + round, index)).sum::<f32>();
                assert!(memory.iter().enumerate().all(|(index, value)| *value == sum(index)));
            }
            // One rank whose buffer is elsewhere: everybody does it the other way.
            let elsewhere = input(me, elements);
            let place = if me == 0 { part(&elsewhere) } else { part(memory) };
            memory.copy_from_slice(&elsewhere);
            run(&group, Collective::AllReduce, ReduceOp::Max, vec![place], vec![place]).unwrap();
            world.leave();
        });
    }
}

#[test]
#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn what_is_begun_goes_on_and_ends_in_order() {
    on_one_node(3, |world| {
        let group = everybody(&world);
        let mut buffers: Vec<Vec<f32>> =
            (0..20).map(|round| vec![world.rank() as f32 + round as f32; 10_000]).collect();
        let works: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| {
                let address = buffer.as_mut_ptr() as usize;
                let call = Call::all_reduce(address, address, buffer.len(), DType::F32, ReduceOp::Sum);
                // SAFETY: the buffers live until all works are done.
                unsafe { group.start(&call, AMPLE) }.unwrap()
            })
            .collect();
        for work in works.iter().rev() {
            work.wait(Some(AMPLE)).unwrap();
        }
        for (round, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|value| *value == 3.0 + 3.0 * round as f32));
        }
        world.leave();
    });
}

#[test]
#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn groups_that_are_used_in_different_orders_do_not_wait_for_each_other() {
    on_one_node(2, |world| {
        let (one, two) = (world.group(&[0, 1], "one", AMPLE).unwrap(), world.group(&[1, 0], "two", AMPLE).unwrap());
        let (mut a, mut b) = (vec![1.0_f32; 200_000], vec![2.0_f32; 200_000]);
        let call = |buffer: &mut Vec<f32>| {
            let address = buffer.as_mut_ptr() as usize;
            Call::all_reduce(address, address, buffer.len(), DType::F32, ReduceOp::Sum)
        };
        let (first, second) = (call(&mut a), call(&mut b));
        // SAFETY: both works are waited for.
        let works = unsafe {
            if world.rank() == 0 {
                [one.start(&first, AMPLE).unwrap(), two.start(&second, AMPLE).unwrap()]
            } else {
                let late = two.start(&second, AMPLE).unwrap();
                [one.start(&first, AMPLE).unwrap(), late]
            }
        };
        works[1].wait(Some(AMPLE)).unwrap();
        works[0].wait(Some(AMPLE)).unwrap();
        assert!(a.iter().all(|value| *value == 2.0) && b.iter().all(|value| *value == 4.0));
        world.leave();
    });
}

#[test]
#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn messages_find_their_receives_by_tag_and_rank() {
    for nodes in [vec!["a", "a", "a"], vec!["a", "b", "b"]] {
        on_nodes(&nodes, |world| {
            let group = everybody(&world);
            let me = world.rank();
            let big: Vec<f32> = input(me as usize, 500_000);
            let small = [me as f32; 3];
            let others: Vec<u32> = (0..3).filter(|rank| *rank != me).collect();
            let into: Vec<(Vec<f32>, Vec<f32>)> = others.iter().map(|_| (vec![0.0; 500_000], vec![0.0; 3])).collect();
            let any = vec![0.0_f32; 1];
            let mut works = Vec::new();
            // SAFETY: everything is waited for before the buffers go.
            unsafe {
                for (other, (large, little)) in others.iter().zip(&into) {
                    works.push(group.send(*other, 1, part(&big), DType::F32, AMPLE).unwrap());
                    works.push(group.send(*other, 2, part(&small), DType::F32, AMPLE).unwrap());
                    // The other way round: the small one has to pass the large one.
                    works.push(group.receive(Some(*other), 2, part(little), DType::F32, AMPLE).unwrap());
                    works.push(group.receive(Some(*other), 1, part(large), DType::F32, AMPLE).unwrap());
                }
                for work in &works {
                    work.wait(Some(AMPLE)).unwrap();
                }
                let next = group.send((me + 1) % 3, 9, part(&small[..1]), DType::F32, AMPLE).unwrap();
                let last = group.receive(None, 9, part(&any), DType::F32, AMPLE).unwrap();
                last.wait(Some(AMPLE)).unwrap();
                next.wait(Some(AMPLE)).unwrap();
                assert_eq!(last.source(), Some((me + 2) % 3));
                assert_eq!(any[0], ((me + 2) % 3) as f32);
                let own = vec![0.0_f32; 3];
                group.send(me, 4, part(&small), DType::F32, AMPLE).unwrap().wait(Some(AMPLE)).unwrap();
                group.receive(Some(me), 4, part(&own), DType::F32, AMPLE).unwrap().wait(Some(AMPLE)).unwrap();
                assert_eq!(own, small);
            }
            for (other, (large, little)) in others.iter().zip(&into) {
                assert_eq!(little, &[*other as f32; 3]);
                assert_eq!(large, &input(*other as usize, 500_000));
            }
            run(&group, Collective::Barrier, ReduceOp::Sum, Vec::new(), Vec::new()).unwrap();
            world.leave();
        });
    }
}
