//! Model checking of what lies in shared memory: every interleaving and every order of writes that the memory model allows.
//! `RUSTFLAGS="--cfg loom" cargo test -p eirene-train-runtime --lib model`

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::bell::Bell;
use super::lane::{self, Shape};
use super::meeting::{self, Saying};
use crate::message::Head;

fn head(call: u64) -> Head {
    Head { call, ..Head::default() }
}

#[test]
fn pieces_are_seen_whole_and_slots_are_not_reused_too_early() {
    loom::model(|| {
        let (segment, mut sender, mut receiver) = lane::model(Shape { slot: 128 });
        // More pieces than slots, so that a slot is used again.
        let pieces = 3;
        let filling = thread::spawn(move || {
            for piece in 1..=pieces {
                while !sender.put(&head(piece), |_| 0) {
                    thread::yield_now();
                }
            }
        });
        for piece in 1..=pieces {
            let seen = loop {
                match receiver.peek() {
                    Some((head, _)) => break head,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(seen, head(piece));
            receiver.take(0);
        }
        filling.join().unwrap();
        drop(segment);
    });
}

#[test]
fn a_sleeper_is_woken_by_what_it_waits_for() {
    loom::model(|| {
        let (segment, mut sender, receiver) = lane::model(Shape { slot: 128 });
        let bell = Arc::new(Bell::new());
        let ringing = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || {
                assert!(sender.put(&head(1), |_| 0));
                bell.ring();
            })
        };
        while receiver.peek().is_none() {
            bell.sleep(Duration::MAX, || receiver.peek().is_some());
        }
        ringing.join().unwrap();
        drop(segment);
    });
}

#[test]
fn whoever_passes_a_fence_sees_what_the_others_said() {
    loom::model(|| {
        let says = |rank: u64, round: u64| Saying {
            head: Head { call: round, root: rank as u32, ..Head::default() },
            ..Saying::default()
        };
        let mut meetings = meeting::model(2);
        let rounds = move |meeting: &mut meeting::Meeting, me: u64| {
            for round in 1..=3 {
                meeting.arrive(Some(&says(me, round)));
                while !meeting.complete() {
                    thread::yield_now();
                }
                assert_eq!(meeting.saying(1 - me as usize), says(1 - me, round));
            }
        };
        let mut other = meetings.pop().unwrap();
        let others_rounds = rounds;
        let there = thread::spawn(move || others_rounds(&mut other, 1));
        rounds(&mut meetings[0], 0);
        there.join().unwrap();
    });
}

#[test]
fn a_call_that_is_being_overwritten_is_not_taken_for_another() {
    loom::model(|| {
        let call = |number: u64| Head { call: number, elements: number, ..Head::default() };
        let mut meetings = meeting::model(2);
        let ahead = meetings.pop().unwrap();
        meetings[0].begin(&call(1));
        ahead.begin(&call(1));
        let going_on = thread::spawn(move || (2..=3).for_each(|number| ahead.begin(&call(number))));
        assert_eq!(meetings[0].disagreement(1), None);
        going_on.join().unwrap();
    });
}
