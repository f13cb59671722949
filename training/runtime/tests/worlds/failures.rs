//! What goes wrong is told by name, to every rank that is left, in time.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::deep::assert_within;
use crate::ranks::{AMPLE, SOON, meeting_place, on_nodes, on_nodes_until};
use eirene_train_runtime::{Call, Collective, DType, Error, Group, Interrupted, Part, ReduceOp, Work};

/// How long ranks wait for one that does not come: long enough for those that do.
const LATE: Duration = Duration::from_secs(2);

/// Whether a text ends with the ranks that have not come, and this one is among them. Between nodes a rank that answers late is among them too.
fn says_missing(text: &str, rank: u32) -> bool {
    let list = text.rsplit("rank").next().unwrap_or_default();
    list.contains(" not come") && list.split(|c: char| !c.is_ascii_digit()).any(|number| number.parse() == Ok(rank))
}

#[expect(unsafe_code, reason = "the buffer outlives the call")]
fn all_reduce(group: &Group, elements: usize, dtype: DType, allowed: Duration) -> Result<(), Error> {
    let buffer = vec![0_u64; elements + 1];
    let address = buffer.as_ptr() as usize;
    // SAFETY: the buffer lives until the call is over, and is as long for every type.
    unsafe { group.run(&Call::all_reduce(address, address, elements, dtype, ReduceOp::Sum), allowed) }
}

#[expect(unsafe_code, reason = "the buffer outlives the call")]
fn broadcast(group: &Group, elements: usize) -> Result<(), Error> {
    let buffer = vec![0_u64; elements];
    let part = vec![Part { address: buffer.as_ptr() as usize, elements }];
    let (input, output) = (part.clone(), part);
    let call =
        Call { collective: Collective::Broadcast { root: 0 }, dtype: DType::F32, op: ReduceOp::Sum, input, output };
    // SAFETY: the buffer lives until the call is over.
    unsafe { group.run(&call, AMPLE) }
}

/// Both on one node and between nodes, small and large.
fn everywhere(check: impl Fn(&[&str], usize)) {
    for nodes in [["a", "a", "a"], ["a", "b", "b"]] {
        // The last on both sides of a bound at which small calls become large ones.
        for elements in [10, 100_000, (16 << 10) - 1] {
            check(&nodes, elements);
        }
    }
}

#[test]
fn a_rank_that_is_interrupted_while_it_waits_says_so_and_the_others_hear_of_it() {
    // In the calling thread, and with something else under way.
    for beside in [false, true] {
        for nodes in [["a", "a"], ["a", "b"]] {
            let stop = |rank: u32| (rank == 0).then(|| Interrupted::by(|| true));
            let errors = on_nodes_until(&nodes, stop, |world| {
                let group = world.everybody(AMPLE).unwrap();
                if world.rank() == 1 {
                    return receive(&group).and_then(|work| work.wait(None)).unwrap_err();
                }
                let began = Instant::now();
                let other = beside.then(|| receive(&group).unwrap());
                let error = all_reduce(&group, 10, DType::F32, AMPLE).unwrap_err();
                assert_within(SOON, began.elapsed());
                if let Some(other) = other {
                    assert!(matches!(other.wait(None), Err(Error::Interrupted { .. })));
                }
                error
            });
            assert!(matches!(&errors[0], Error::Interrupted { what } if what.contains("allreduce")), "{}", errors[0]);
            let heard = errors[1].to_string();
            assert!(heard.contains("rank 0") && heard.contains("interrupted"), "{heard}");
        }
    }
}

/// Waits for a message that nobody sends.
#[expect(unsafe_code, reason = "there is no buffer")]
fn receive(group: &Group) -> Result<Work, Error> {
    let nothing = Part { address: 0, elements: 0 };
    // SAFETY: nothing is written.
    unsafe { group.receive(Some(1 - group.rank()), 1, nothing, DType::U8, AMPLE) }
}

#[test]
fn ranks_that_call_different_lengths_are_told_who_called_what() {
    everywhere(|nodes, elements| {
        let errors = on_nodes(nodes, |world| {
            let began = Instant::now();
            let elements = elements + usize::from(world.rank() == 1);
            let outcome = world.everybody(AMPLE).and_then(|group| all_reduce(&group, elements, DType::F32, AMPLE));
            assert_within(SOON, began.elapsed());
            outcome.unwrap_err().to_string()
        });
        for error in &errors {
            assert!(error.contains(&format!("{} elements", elements + 1)) && error.contains("rank 1"), "{error}");
            assert!(error.contains(&format!("{elements} elements")), "{error}");
        }
    });
}

#[test]
fn ranks_that_call_different_types_are_told() {
    everywhere(|nodes, elements| {
        let errors = on_nodes(nodes, |world| {
            let dtype = if world.rank() == 2 { DType::I32 } else { DType::F32 };
            let outcome = world.everybody(AMPLE).and_then(|group| all_reduce(&group, elements, dtype, AMPLE));
            outcome.unwrap_err().to_string()
        });
        for error in &errors {
            assert!(error.contains("int32") && error.contains("float32"), "{error}");
        }
    });
}

#[test]
fn ranks_that_call_in_different_orders_are_told() {
    everywhere(|nodes, elements| {
        let errors = on_nodes(nodes, |world| {
            let both = world.everybody(AMPLE).and_then(|group| {
                if world.rank() == 0 {
                    broadcast(&group, elements).and_then(|()| all_reduce(&group, elements, DType::F32, AMPLE))
                } else {
                    all_reduce(&group, elements, DType::F32, AMPLE).and_then(|()| broadcast(&group, elements))
                }
            });
            both.unwrap_err().to_string()
        });
        for error in &errors {
            assert!(error.contains("broadcast") && error.contains("allreduce"), "{error}");
        }
    });
}

#[test]
fn a_rank_that_never_comes_is_named_by_all_others() {
    everywhere(|nodes, elements| {
        let start = std::sync::Barrier::new(nodes.len());
        let errors = on_nodes(nodes, |world| {
            let group = world.everybody(AMPLE).unwrap();
            // Who is late for the call by more than its time would be named in rank 1's stead.
            start.wait();
            if world.rank() == 1 {
                // It is there, and hears of it.
                let alone = world.group(&[1], "alone", AMPLE).unwrap();
                while all_reduce(&alone, 1, DType::F32, AMPLE).is_ok() {
                    std::thread::yield_now();
                }
                return None;
            }
            let began = Instant::now();
            let error = all_reduce(&group, elements, DType::F32, LATE).unwrap_err();
            assert_within(LATE + SOON, began.elapsed());
            Some(error.to_string())
        });
        for error in errors.iter().flatten() {
            // The one that gave up first tells the others, who pass its words on.
            assert!(says_missing(error, 1), "{error}");
        }
    });
}

#[test]
fn a_rank_that_has_left_is_named() {
    everywhere(|nodes, elements| {
        let errors = on_nodes(nodes, |world| {
            let group = world.everybody(AMPLE).unwrap();
            if world.rank() == 2 {
                world.leave();
                return None;
            }
            let began = Instant::now();
            let error = all_reduce(&group, elements, DType::F32, AMPLE).unwrap_err();
            assert_within(SOON, began.elapsed());
            Some(error.to_string())
        });
        for error in errors.iter().flatten() {
            assert!(error.contains("rank 2"), "{error}");
        }
    });
}

#[test]
fn a_rank_that_is_too_far_behind_another_is_told_what_to_do() {
    const MANY: usize = 260;
    on_nodes(&["a", "a"], |world| {
        // Every group that rank 0 builds sends one descriptor, of which only some are kept unread.
        let groups: Vec<_> = if world.rank() == 0 {
            (0..MANY).map(|number| world.group(&[0, 1], &number.to_string(), AMPLE).unwrap()).collect()
        } else {
            let error = world.group(&[0, 1], "another", AMPLE).unwrap_err();
            assert!(matches!(error, Error::Behind { rank: 0 }), "{error}");
            // Whoever takes what was begun can go on.
            (0..MANY).map(|number| world.group(&[0, 1], &number.to_string(), AMPLE).unwrap()).collect()
        };
        all_reduce(&groups[MANY - 1], 1, DType::F32, AMPLE).unwrap();
        all_reduce(&groups[0], 1, DType::F32, AMPLE).unwrap();
    });
}

#[test]
fn more_memory_than_there_is_is_an_error_and_the_world_goes_on() {
    on_nodes(&["a", "a"], |world| {
        let group = world.everybody(AMPLE).unwrap();
        let error = world.arena(1 << 50).unwrap_err().to_string();
        assert!(error.contains("1125899906842624 bytes"), "{error}");
        all_reduce(&group, 100_000, DType::F32, AMPLE).unwrap();
        // Nobody leaves while another still needs it.
        all_reduce(&group, 1, DType::F32, AMPLE).unwrap();
    });
}

/// The example program `reduce_without_end`, which joins a world and reduces without end.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/reduce_without_end")
}

struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

#[test]
fn a_killed_rank_is_named_by_all_others_and_nothing_is_left() {
    for (nodes, elements) in [("aaaa", "10"), ("aaaa", "3000000"), ("aabb", "3000000"), ("abab", "10")] {
        let directory = meeting_place();
        let spawn = |rank: usize| {
            Command::new(program())
                .args([rank.to_string().as_str(), nodes, elements])
                .arg(directory.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut ranks = Ranks((0..4).map(spawn).collect());
        let mut lines: Vec<_> =
            ranks.0.iter_mut().map(|rank| BufReader::new(rank.stdout.take().unwrap()).lines()).collect();
        for lines in &mut lines {
            assert_eq!(lines.next().unwrap().unwrap(), "under way");
        }
        ranks.0[2].kill().unwrap();
        let killed = Instant::now();
        for rank in [0, 1, 3] {
            let error = lines[rank].next().unwrap().unwrap();
            assert_within(SOON, killed.elapsed());
            assert!(error.contains("rank 2 has ended"), "rank {rank}: {error}");
            assert!(ranks.0[rank].wait().unwrap().success());
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left in the directory");
    }
}
