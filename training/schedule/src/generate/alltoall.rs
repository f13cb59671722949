//! All-to-all.
//!
//! Every block goes straight to where it belongs: all at once, or with one partner after the other (Thakur, Rabenseifner and Gropp, 2005).
//! Blocks can be of all lengths, so there is no algorithm here that puts several into one message, and none in place in others' memory.

use super::draft::{Draft, before, copy, input, one, others, output, receive, send};

/// All at once, segment by segment.
pub(super) fn direct(ranks: u32, segments: u32) -> Draft {
    Draft::whole(ranks, ranks * segments, |rank| {
        let mut program = Vec::new();
        for turn in 0..=segments {
            if turn < segments {
                program.extend(others(rank, ranks).map(|to| send(to, input(one(to * segments + turn)))));
            }
            match turn.checked_sub(1) {
                None => {
                    let own = rank * segments..(rank + 1) * segments;
                    program.push(copy(input(own.clone()), output(own)));
                }
                Some(last) => {
                    program.extend(others(rank, ranks).map(|from| receive(from, output(one(from * segments + last)))));
                }
            }
        }
        program
    })
}

/// With one partner after the other.
pub(super) fn pairwise(ranks: u32) -> Draft {
    Draft::whole(ranks, ranks, |rank| {
        let mut program = vec![copy(input(one(rank)), output(one(rank)))];
        for distance in 1..ranks {
            let (to, from) = ((rank + distance) % ranks, before(rank, distance, ranks));
            program.push(send(to, input(one(to))));
            program.push(receive(from, output(one(from))));
        }
        program
    })
}
