//! Messages between two ranks that MPI carries as they are.

use std::time::Instant;

use eirene_train_runtime::{DType, Error, Group, Part, Work, World};

use crate::deep::assert_within;
use crate::oracle::input;
use crate::{AMPLE, SOON, say};

const TYPE: DType = DType::U8;

fn part(memory: &[u8]) -> Part {
    Part { address: memory.as_ptr() as usize, elements: memory.len() }
}

fn send(group: &Group, to: u32, tag: u32, memory: &[u8]) -> Work {
    // SAFETY: the callers keep the memory until the work is over.
    unsafe { group.send(to, tag, part(memory), TYPE, AMPLE) }.expect("it begins")
}

fn receive(group: &Group, from: Option<u32>, tag: u32, memory: &[u8]) -> Work {
    // SAFETY: as above.
    unsafe { group.receive(from, tag, part(memory), TYPE, AMPLE) }.expect("it begins")
}

fn done(work: &Work) {
    work.wait(Some(AMPLE)).expect("it ends");
}

/// Messages from anybody and to oneself, of the same tag, in their order; and the tags there are.
pub(crate) fn all_kinds(world: &World) {
    let group = world.everybody(AMPLE).expect("a group of all");
    let said = group.explain_messages();
    assert!(said.contains("MPI's own"), "{said}");
    let (me, size) = (group.rank(), group.size());
    // Everybody sends one to rank 0, itself, too; it takes them from whomever they come.
    let mine = [me as u8; 3];
    let sent = send(&group, 0, 5, &mine);
    if me == 0 {
        let into: Vec<[u8; 3]> = (0..size).map(|_| [9; 3]).collect();
        let works: Vec<Work> = into.iter().map(|place| receive(&group, None, 5, place)).collect();
        works.iter().for_each(done);
        let mut sources: Vec<u32> = works.iter().map(|work| work.source().expect("it has come")).collect();
        assert!(
            sources.iter().zip(&into).all(|(source, place)| *place == [*source as u8; 3]),
            "{into:?} from {sources:?}"
        );
        sources.sort_unstable();
        assert_eq!(sources, (0..size).collect::<Vec<_>>());
    }
    done(&sent);
    // Around a ring, many of one tag at once: they keep their order, short and long.
    let (next, before) = ((me + 1) % size, (me + size - 1) % size);
    let length = |turn: usize| [3, 70_000, 0, 300_000][turn % 4];
    let out: Vec<Vec<u8>> = (0..40).map(|turn| input(TYPE, me as usize + turn, 0..length(turn))).collect();
    let into: Vec<Vec<u8>> = (0..40).map(|turn| vec![0xAA; length(turn)]).collect();
    let mut works: Vec<Work> = into.iter().map(|place| receive(&group, Some(before), 7, place)).collect();
    works.extend(out.iter().map(|message| send(&group, next, 7, message)));
    works.iter().rev().for_each(done);
    for (turn, place) in into.iter().enumerate() {
        assert!(*place == input(TYPE, before as usize + turn, 0..length(turn)), "message {turn}");
    }
    // The greatest tag is one of ours; what MPI cannot count to is refused before anybody else is bothered.
    let (word, place) = ([me as u8], [0xAA]);
    let works = [receive(&group, Some(before), u32::MAX, &place), send(&group, next, u32::MAX, &word)];
    works.iter().for_each(done);
    assert_eq!(place, [before as u8]);
    // SAFETY: there is no memory.
    let refused = unsafe { group.send(next, u32::MAX - 1, part(&[]), TYPE, AMPLE) };
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}

/// Sends and waits; the memory lives as long as the program.
fn give(group: &Group, to: u32, tag: u32, memory: &'static [u8]) -> Result<(), Error> {
    // SAFETY: nobody writes to it.
    unsafe { group.send(to, tag, part(memory), TYPE, AMPLE) }?.wait(Some(AMPLE))
}

/// Receives and waits, into memory that lives as long as the program.
fn take(group: &Group, from: u32, tag: u32, bytes: usize) -> Result<(), Error> {
    let memory = vec![0_u8; bytes].leak();
    // SAFETY: nobody else has it.
    unsafe { group.receive(Some(from), tag, part(memory), TYPE, AMPLE) }?.wait(Some(AMPLE))
}

/// The first rank sends the second one a message of another length than it receives: longer, or `shorter`.
pub(crate) fn misfit(world: &World, shorter: bool) {
    let lengths = if shorter { [10, 20] } else { [20, 10] };
    let began = Instant::now();
    let exchange = |group: Group| match group.rank() {
        // What is sent may be MPI's to deliver; then this waits for something that does not come.
        0 => give(&group, 1, 3, &[7; 20][..lengths[0]]).and_then(|()| take(&group, 1, 4, 20)),
        1 => take(&group, 0, 3, lengths[1]),
        _ => take(&group, 0, 4, 20),
    };
    // Whoever is late hears of the end while the group is made.
    let error = world.everybody(AMPLE).and_then(exchange).expect_err("they do not fit");
    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
    assert_within(SOON, began.elapsed());
    let text = error.to_string();
    assert!(text.contains("rank 0 of the group sends") && text.contains("tag 3"), "{text}");
    say(&format!("found rank {} after {} ms: {text}", world.rank(), began.elapsed().as_millis()));
}

/// The last rank leaves or dies when all are there, and the others wait for a message of its.
pub(crate) fn in_vain(world: &World, dies: bool) {
    let group = world.everybody(AMPLE).expect("a group of all");
    let last = world.size() - 1;
    if world.rank() == last {
        (0..last).for_each(|rank| take(&group, rank, 9, 1).expect("all are there"));
        if dies {
            // SAFETY: ends this process at once, as a crash does.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        // Its last words are not lost.
        (0..last).for_each(|rank| give(&group, rank, 1, &[7; 100]).expect("all are there"));
        return;
    }
    give(&group, last, 9, &[7]).expect("all are there");
    let began = Instant::now();
    if !dies {
        take(&group, last, 1, 100).expect("its last words come");
    }
    let error = take(&group, last, 2, 1 << 20).expect_err("nothing more comes");
    let text = error.to_string();
    assert!(text.contains(&format!("rank {last}")), "{text}");
    assert_within(SOON, began.elapsed());
    say(&format!("found rank {} after {} ms: {text}", world.rank(), began.elapsed().as_millis()));
}
