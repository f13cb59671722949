//! Messages, groups and threads, each against what must come.
#![expect(unsafe_code, reason = "requests on raw memory")]

use std::time::Duration;

use eirene_train_mpi::{Communicator, Error, Mpi};

const SOON: Option<Duration> = Some(Duration::from_secs(30));

fn bytes(rank: u32, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + rank as usize * 13 + 1) as u8).collect()
}

pub(crate) fn check(mpi: &Mpi, world: &Communicator) -> Result<(), Error> {
    assert_eq!((world.rank(), world.size()), (mpi.rank(), mpi.size()));
    ring(world)?;
    anybody(world)?;
    // Nobody may be ahead while rank 0 still takes whatever comes.
    world.barrier()?;
    order_and_tags(world)?;
    nothing_comes(world)?;
    too_long(world)?;
    refused(world);
    groups(world)?;
    threads(mpi)
}

/// Each to its right neighbour, from nothing to what does not fit any eager buffer.
fn ring(world: &Communicator) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    for length in [0, 1, 7, 4096, 65_537, 3_000_001] {
        let out = bytes(rank, length);
        let mut into = vec![0; length];
        // SAFETY: both buffers outlive the requests, which are waited for.
        let (mut send, mut receive) = unsafe {
            let receive = world.irecv(into.as_mut_ptr(), length, Some(left), Some(5))?;
            (world.isend(out.as_ptr(), length, right, 5)?, receive)
        };
        let done = receive.wait(SOON)?;
        assert_eq!((done.source, done.tag, done.bytes, done.cancelled), (Some(left), Some(5), length, false));
        let sent = send.wait(SOON)?;
        assert_eq!((sent.source, sent.bytes, sent.cancelled), (None, 0, false));
        assert_eq!(receive.test()?, Some(done), "a finished request stays finished");
        assert_eq!(into, bytes(left, length));
    }
    Ok(())
}

/// Everybody to rank 0, which takes them as they come.
fn anybody(world: &Communicator) -> Result<(), Error> {
    if world.rank() > 0 {
        return world.send(&bytes(world.rank(), 100 + world.rank() as usize), 0, 10 + world.rank());
    }
    let mut missing: Vec<u32> = (1..world.size()).collect();
    while !missing.is_empty() {
        let arrived = loop {
            if let Some(arrived) = world.iprobe(None, None)? {
                break arrived;
            }
            std::thread::yield_now();
        };
        assert_eq!(arrived.bytes, 100 + arrived.source as usize);
        let mut into = vec![0; arrived.bytes];
        let done = world.receive(&mut into, Some(arrived.source), None, SOON)?;
        assert_eq!((done.source, done.tag), (Some(arrived.source), Some(10 + arrived.source)));
        assert_eq!(into, bytes(arrived.source, arrived.bytes));
        missing.retain(|rank| *rank != arrived.source);
    }
    assert_eq!(world.iprobe(None, None)?, None);
    Ok(())
}

/// One sender's messages of one tag keep their order; a tag is waited for past others.
fn order_and_tags(world: &Communicator) -> Result<(), Error> {
    if world.size() < 2 || world.rank() > 1 {
        return Ok(());
    }
    let greatest = world.greatest_tag();
    assert!(greatest >= 32767);
    if world.rank() == 0 {
        for value in 0..20_u8 {
            world.send(&[value], 1, 3)?;
        }
        return world.send(&[99], 1, greatest);
    }
    let mut one = [0];
    world.receive(&mut one, Some(0), Some(greatest), SOON)?;
    assert_eq!(one, [99]);
    for value in 0..20_u8 {
        world.receive(&mut one, Some(0), Some(3), SOON)?;
        assert_eq!(one, [value]);
    }
    Ok(())
}

/// A receive that nobody serves: it times out, is taken back, and takes no later message.
fn nothing_comes(world: &Communicator) -> Result<(), Error> {
    let mut into = [0_u8; 8];
    let late = world.receive(&mut into, None, Some(77), Some(Duration::from_millis(30)));
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    // SAFETY: the buffer outlives the request, which is waited for.
    let mut receive = unsafe { world.irecv(into.as_mut_ptr(), 8, None, Some(77)) }?;
    assert_eq!(receive.test()?, None);
    receive.cancel()?;
    assert!(receive.wait(SOON)?.cancelled);
    // SAFETY: the buffer outlives the request, which is cancelled when dropped.
    drop(unsafe { world.irecv(into.as_mut_ptr(), 8, None, Some(77)) }?);
    let own = world.rank();
    // SAFETY: the bytes are static.
    let mut send = unsafe { world.isend(b"for all!".as_ptr(), 8, own, 77) }?;
    let mut second = [0_u8; 8];
    assert_eq!(world.receive(&mut second, None, Some(77), SOON)?.source, Some(own));
    send.wait(SOON)?;
    assert_eq!((&second, into), (b"for all!", [0; 8]));
    Ok(())
}

/// A message from another rank that is longer than its place is an error that says so, and no end of the
/// process. (From this very rank, Open MPI 4 cuts it short without a word.)
fn too_long(world: &Communicator) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    if size == 1 {
        return Ok(());
    }
    let mut into = [0_u8; 4];
    // SAFETY: buffers outlive the requests, which are waited for.
    let (mut send, mut receive) = unsafe {
        let receive = world.irecv(into.as_mut_ptr(), 4, Some((rank + size - 1) % size), Some(8))?;
        (world.isend(b"far too long".as_ptr(), 12, (rank + 1) % size, 8)?, receive)
    };
    match receive.wait(SOON) {
        Err(Error::Truncated { message, .. }) => assert!(message.to_lowercase().contains("trunc"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert!(receive.test().is_err(), "a failed request stays failed");
    // Whether the send is fine or failed, it ends.
    send.wait(SOON).ok();
    Ok(())
}

fn refused(world: &Communicator) {
    let size = world.size();
    let message = |result: Result<(), Error>| match result {
        Err(Error::Invalid { message }) => message,
        other => panic!("{other:?}"),
    };
    assert!(message(world.send(&[], size, 0)).contains(&format!("rank {size} is not among the {size}")));
    if world.greatest_tag() < u32::MAX >> 1 {
        assert!(message(world.send(&[], 0, world.greatest_tag() + 1)).contains("greatest"));
    }
    assert!(message(world.broadcast(&mut [0.0_f32], size)).contains("not among"));
    assert!(message(world.all_gather(&[1_u8], &mut [])).contains("do not fit"));
}

fn groups(world: &Communicator) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let node = world.node()?;
    assert_eq!(node.size(), size, "all ranks of this test are on one machine");
    let half = world.split(Some(rank % 2), size - rank)?.expect("a colour was given");
    assert_eq!(half.size(), (size + 1 - rank % 2) / 2);
    let mut ranks = vec![0; half.size() as usize];
    half.all_gather(&[rank], &mut ranks)?;
    let expected: Vec<u32> = (0..size).rev().filter(|other| other % 2 == rank % 2).collect();
    assert_eq!(ranks, expected, "the key orders backwards");
    let only_first = world.split((rank == 0).then_some(4), 0)?;
    assert_eq!(only_first.is_some(), rank == 0);
    // What is sent in one communicator is not seen in another.
    let other = world.duplicate()?;
    // SAFETY: the bytes are static.
    let mut send = unsafe { other.isend(b"x".as_ptr(), 1, rank, 1) }?;
    assert_eq!(world.iprobe(Some(rank), Some(1))?, None);
    other.receive(&mut [0], Some(rank), Some(1), SOON)?;
    send.wait(SOON).map(drop)
}

/// Two threads at once, each in a communicator of its own.
fn threads(mpi: &Mpi) -> Result<(), Error> {
    let (first, second) = (mpi.world()?, mpi.world()?);
    std::thread::scope(|scope| {
        let work = |world: Communicator| {
            move || {
                let (rank, size) = (world.rank(), world.size());
                for round in 0..50 {
                    let out = bytes(rank + round, 300);
                    let mut into = vec![0; 300];
                    // SAFETY: both buffers outlive the requests, which are waited for.
                    let (mut send, mut receive) = unsafe {
                        let receive =
                            world.irecv(into.as_mut_ptr(), 300, Some((rank + size - 1) % size), Some(round))?;
                        (world.isend(out.as_ptr(), 300, (rank + 1) % size, round)?, receive)
                    };
                    receive.wait(SOON)?;
                    send.wait(SOON)?;
                    assert_eq!(into, bytes((rank + size - 1) % size + round, 300));
                    let mut sum = [1_i32];
                    world.all_reduce_in_place(&mut sum, eirene_train_mpi::Op::Sum)?;
                    assert_eq!(sum, [size.cast_signed()]);
                }
                Ok(())
            }
        };
        let (one, two) = (scope.spawn(work(first)), scope.spawn(work(second)));
        one.join().unwrap()?;
        two.join().unwrap()
    })
}
