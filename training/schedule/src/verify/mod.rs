//! Proof that a schedule is right, before it may run.
//!
//! The schedule is executed with symbols in place of numbers: a chunk's content is the set of ranks whose contributions it has. Nothing is
//! assumed about buffers: a send ends only when its receive is executed, and whoever wants to write what an own send still reads waits for
//! that. Programs are sequential, messages between two ranks keep their order and every wait is for one thing that, once there, stays there;
//! so all orders of execution come to the same end and **one** execution proves them all (Kahn 1974).
//!
//! Proven, out of place and in place: no rank waits for ever; every message is taken, by a span of as many chunks whose lengths are the
//! sender's for all lengths of the call; nothing undefined is read; the input is not written; each output chunk has exactly the
//! contributions it should, each once, finished once; the results of an allreduce have been combined in the same way on all ranks, so that
//! they are the same to the bit (this one by 64-bit hashes of the ways); between two fences no memory is written by one rank and touched by
//! another, and no other rank's memory is touched before the first or behind the last fence; a barrier holds everybody until all have come.

mod flaw;
mod machine;
mod memory;
mod set;

use std::rc::Rc;

pub use self::flaw::{Fault, Flaw};
use self::machine::Machine;
use crate::geometry::Geometry;
use crate::ir::{Algorithm, Collective, Rank, Schedule, Step};

/// Ranks that a schedule can have.
pub const MAX_RANKS: u32 = 1024;

/// A schedule that has been proven right. There is no other way to get one than [`verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    schedule: Schedule,
    geometry: Geometry,
    depth: u32,
}

impl Verified {
    /// What it brings about.
    pub fn collective(&self) -> Collective {
        self.schedule.collective
    }

    /// How.
    pub fn algorithm(&self) -> &Algorithm {
        &self.schedule.algorithm
    }

    /// Ranks.
    pub fn ranks(&self) -> u32 {
        self.schedule.ranks
    }

    /// Chunks of the input.
    pub fn input_chunks(&self) -> u32 {
        self.schedule.input_chunks
    }

    /// Chunks of the output.
    pub fn output_chunks(&self) -> u32 {
        self.schedule.output_chunks
    }

    /// Chunks of the scratch.
    pub fn scratch_chunks(&self) -> u32 {
        self.schedule.scratch_chunks
    }

    /// A rank's program; empty for a rank there is not.
    pub fn program(&self, rank: Rank) -> &[Step] {
        self.schedule.programs.get(rank as usize).map_or(&[], Vec::as_slice)
    }

    /// A rank's program, without those of the others.
    pub fn into_program(mut self, rank: Rank) -> Vec<Step> {
        self.schedule.programs.get_mut(rank as usize).map(std::mem::take).unwrap_or_default()
    }

    /// Whether it is also proven for input and output being the same memory.
    pub fn in_place(&self) -> bool {
        self.geometry.may_be_in_place()
    }

    /// Where chunks lie and how long they are.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Steps on the critical path: messages (or fences) that have to come one after the other.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The whole schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

/// Proves a schedule right, or says what is wrong.
pub fn verify(schedule: Schedule) -> Result<Verified, Flaw> {
    let tables = |what| Flaw { rank: None, step: None, in_place: false, fault: Fault::Tables(what) };
    if schedule.ranks > MAX_RANKS {
        return Err(tables("there are too many ranks"));
    }
    let geometry = Geometry::of(&schedule).map_err(tables)?;
    let depth = run(&schedule, geometry, false)?;
    if geometry.may_be_in_place() {
        run(&schedule, geometry, true)?;
    }
    Ok(Verified { schedule, geometry, depth })
}

fn run(schedule: &Schedule, geometry: Geometry, in_place: bool) -> Result<u32, Flaw> {
    if schedule.ranks <= u64::BITS {
        Machine::<u64>::new(schedule, geometry, in_place).run()
    } else {
        Machine::<Rc<[u64]>>::new(schedule, geometry, in_place).run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{algorithms, generate};

    #[test]
    fn small_and_large_sets_come_to_the_same_verdict() {
        let collectives =
            [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::Barrier];
        let mut verdicts = [0, 0];
        for collective in collectives {
            for algorithm in algorithms(collective, 5, &[0, 0, 1, 1, 1], true) {
                let right = generate(collective, &algorithm, 5).unwrap();
                let geometry = Geometry::of(&right).unwrap();
                for slip in 0..8 {
                    let mut schedule = right.clone();
                    let program = &mut schedule.programs[slip % 5];
                    match slip {
                        0 => {}
                        1..5 => drop(program.remove(slip % program.len())),
                        _ => program.reverse(),
                    }
                    for in_place in [false, true] {
                        let small = Machine::<u64>::new(&schedule, geometry, in_place).run();
                        let large = Machine::<Rc<[u64]>>::new(&schedule, geometry, in_place).run();
                        assert_eq!(small, large, "{collective:?} {algorithm:?} {slip}");
                        verdicts[usize::from(small.is_ok())] += 1;
                    }
                }
            }
        }
        assert!(verdicts[0] > 100 && verdicts[1] > 50, "{verdicts:?}");
    }
}
