//! Barrier.
//!
//! Dissemination: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.

use super::draft::{Draft, before, input, receive, send};

/// Tokens to ranks at distances 1, 2, 4, …: whoever has heard of some tells of all of them.
pub(super) fn dissemination(ranks: u32) -> Draft {
    Draft::whole(ranks, 0, |rank| {
        let rounds = (0..ranks.next_power_of_two().ilog2()).map(|round| 1 << round);
        rounds
            .flat_map(|distance| {
                let (to, from) = ((rank + distance) % ranks, before(rank, distance, ranks));
                [send(to, input(0..0)), receive(from, input(0..0))]
            })
            .collect()
    })
}
