//! Which trials are made, in which order, and what follows from them. It is rank 0's part, and knows no ranks: trials and the clock come in.
//!
//! Sizes go upwards, so that what is slow need not be tried where it costs most: an algorithm that was more than twice as slow as the best
//! at two sizes that follow each other is dropped. Trials of one size are made in rounds, every algorithm once a round, so that what disturbs
//! the machine for a while disturbs all of them; the median counts. What the thresholds say is replaced only by what is clearly faster.

use std::collections::HashMap;
use std::time::Duration;

use eirene_train_schedule::Collective;

use super::candidates::{Candidate, candidates};
use super::table::{Case, SIZES, size};
use crate::choice::{Topology, Way, by_thresholds};
use crate::error::Error;

/// How much of the time may have been spent when a collective is done. What one does not need is the next one's.
const SHARES: [(Collective, f64); 6] = [
    (Collective::AllReduce, 0.5),
    (Collective::ReduceScatter, 0.6),
    (Collective::AllGather, 0.7),
    (Collective::Broadcast { root: 0 }, 0.8),
    (Collective::Reduce { root: 0 }, 0.9),
    (Collective::AllToAll, 1.0),
];

/// Sizes at which an all-to-all is measured; one algorithm serves all sizes, as ranks may know only their own.
const ALL_TO_ALL: [usize; 3] = [4 << 10, 256 << 10, 4 << 20];

/// About how long a trial takes at least: short calls are repeated.
const TRIAL: f64 = 200e-6;
const MOST_REPETITIONS: f64 = 50.0;
/// Calls of up to so many bytes are repeated however long the first has taken.
const SHORT: usize = 256 << 10;
/// About how long all rounds of one algorithm and size may take.
const ROUNDS: f64 = 50e-3;
const FEWEST_ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 7;

/// So much slower than the best one is out for this size after its first trial.
const HOPELESS: f64 = 3.0;
/// So much slower than the best twice in a row, and it is dropped.
const SLOW: f64 = 2.0;
/// A threshold's choice is replaced by what needs less than this of its time.
const CLEARLY: f64 = 0.95;
/// A median so many times the least time says more of the machine than of the algorithm.
const CALM: f64 = 2.0;
/// Times that are kept of a case.
const KEPT: usize = 5;

/// One trial: so many calls of a collective one after the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) collective: Collective,
    pub(super) bytes: usize,
    pub(super) way: Way,
    pub(super) calls: u32,
}

/// What a survey needs of the world.
pub(super) trait Bench {
    /// Makes a trial on all ranks: seconds for one call, on the slowest of them.
    fn try_out(&mut self, trial: &Trial) -> Result<f64, Error>;
    /// Whether MPI itself can do a collective.
    fn has_mpi(&self, collective: Collective, bytes: usize) -> bool;
    /// Since the survey began.
    fn elapsed(&self) -> Duration;
}

/// Surveys a topology with buffers up to `largest` bytes, for about as long as `budget` says; the smallest allreduce in any case, so that
/// there is always something to keep.
pub(super) fn survey(
    topology: &Topology,
    largest: usize,
    budget: Duration,
    bench: &mut dyn Bench,
) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    for (collective, share) in SHARES {
        let is_first = cases.is_empty();
        let mut one = Survey { collective, topology, until: budget.mul_f64(share), is_first, bench };
        if collective == Collective::AllToAll {
            cases.extend(one.in_all(largest)?);
        } else {
            one.by_size(largest, &mut cases)?;
        }
    }
    Ok(cases)
}

/// One collective's.
struct Survey<'a> {
    collective: Collective,
    topology: &'a Topology,
    until: Duration,
    /// Nothing has been measured yet.
    is_first: bool,
    bench: &'a mut dyn Bench,
}

/// A candidate and the times of its trials.
struct Runner {
    candidate: Candidate,
    times: Vec<f64>,
}

impl Runner {
    fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    fn least(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl Survey<'_> {
    fn is_over(&self) -> bool {
        !self.is_first && self.bench.elapsed() >= self.until
    }

    /// What thresholds say, and everything else there is for a size; the thresholds' first.
    fn field(&self, bytes: usize) -> Vec<Candidate> {
        let usual = Way::Schedule(by_thresholds(self.collective, bytes, self.topology, false).0);
        let mut list = candidates(self.collective, bytes, self.topology, self.bench.has_mpi(self.collective, bytes));
        let known = list.iter().position(|candidate| candidate.way == usual);
        let first = known
            .map_or_else(|| Candidate { id: (usual.clone(), None), way: usual.clone() }, |known| list.remove(known));
        list.insert(0, first);
        list
    }

    fn by_size(&mut self, largest: usize, cases: &mut Vec<Case>) -> Result<(), Error> {
        let mut slow: HashMap<(Way, Option<usize>), u32> = HashMap::new();
        let mut spent = Duration::ZERO;
        let mut best: Vec<(Way, Option<usize>)> = Vec::new();
        for bytes in
            (0..SIZES).map(size).filter(|bytes| *bytes <= largest && bytes / 4 >= self.topology.ranks() as usize)
        {
            let began = self.bench.elapsed();
            let mut field = self.field(bytes);
            let usual = field.remove(0);
            field.retain(|candidate| slow.get(&candidate.id).is_none_or(|times| *times < 2));
            // The next size takes longer than this one did: where there is not the time for all, the best of before are tried.
            if began + spent * 3 > self.until && !best.is_empty() {
                field.retain(|candidate| best.contains(&candidate.id));
            }
            if !self.is_first && began + spent > self.until {
                break;
            }
            field.insert(0, usual);
            let Some(runners) = self.race(bytes, field)? else { break };
            spent = self.bench.elapsed().saturating_sub(began);

            let fastest = runners.iter().map(Runner::median).fold(f64::INFINITY, f64::min);
            for runner in &runners {
                let times = slow.entry(runner.candidate.id.clone()).or_default();
                *times = if runner.median() > SLOW * fastest { *times + 1 } else { 0 };
            }
            let mut ranked: Vec<&Runner> = runners.iter().collect();
            ranked.sort_by(|one, other| one.median().total_cmp(&other.median()));
            best = ranked.iter().take(3).map(|runner| runner.candidate.id.clone()).collect();
            cases.push(self.judged(bytes, &runners));
            self.is_first = false;
        }
        Ok(())
    }

    /// Lets candidates run against each other; nothing if time runs out before that says anything.
    fn race(&mut self, bytes: usize, field: Vec<Candidate>) -> Result<Option<Vec<Runner>>, Error> {
        let mut runners = Vec::with_capacity(field.len());
        for candidate in field {
            if self.is_over() {
                return Ok(None);
            }
            // The first call works the schedule out, proves it and touches its memory.
            self.try_out(bytes, &candidate, 1)?;
            let time = self.try_out(bytes, &candidate, 1)?;
            runners.push(Runner { candidate, times: vec![time] });
        }
        let fastest = runners.iter().map(Runner::least).fold(f64::INFINITY, f64::min);
        // It may have been the machine that was slow, not the algorithm.
        for runner in runners.iter_mut().filter(|runner| runner.least() > HOPELESS * fastest) {
            if !self.is_over() {
                let again = self.try_out(bytes, &runner.candidate, 1)?;
                runner.times.push(again);
            }
        }
        let is_in = |index: usize, runner: &Runner| index == 0 || runner.least() <= HOPELESS * fastest;
        let racing: Vec<usize> = runners
            .iter()
            .enumerate()
            .filter(|(index, runner)| is_in(*index, runner))
            .map(|(index, _)| index)
            .collect();
        // The first call wakes who sleeps; where that counts it is not to be all there is.
        let fewest = if bytes <= SHORT { 8.0 } else { 1.0 };
        let calls = (TRIAL / fastest).clamp(fewest, MOST_REPETITIONS) as u32;
        let rounds = (ROUNDS / (fastest * f64::from(calls))).clamp(FEWEST_ROUNDS as f64, MOST_ROUNDS as f64) as usize;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); runners.len()];
        for round in 0..rounds {
            for turn in 0..racing.len() {
                // Whoever comes first in a round comes last in the next.
                let index = racing[(turn + round) % racing.len()];
                if self.is_over() {
                    if round < 2 {
                        return Ok(None);
                    }
                    break;
                }
                times[index].push(self.try_out(bytes, &runners[index].candidate, calls)?);
            }
        }
        for (runner, times) in runners.iter_mut().zip(times) {
            if !times.is_empty() {
                runner.times = times;
            }
        }
        Ok(Some(runners))
    }

    fn try_out(&mut self, bytes: usize, candidate: &Candidate, calls: u32) -> Result<f64, Error> {
        let (collective, way) = (self.collective, candidate.way.clone());
        self.bench.try_out(&Trial { collective, bytes, way, calls })
    }

    fn judged(&self, bytes: usize, runners: &[Runner]) -> Case {
        let usual = &runners[0];
        let best = runners.iter().min_by(|one, other| one.median().total_cmp(&other.median())).unwrap_or(usual);
        // Both, so that one disturbed round does not make a winner. Where most rounds of the usual one were disturbed, nothing is clear.
        let is_calm = usual.median() <= CALM * usual.least();
        let is_clear = is_calm && best.median() < CLEARLY * usual.median() && best.least() < usual.least();
        let chosen = is_clear.then(|| best.candidate.way.clone());
        let times = runners.iter().map(|runner| (runner.candidate.way.clone(), runner.median() * 1e6)).collect();
        Case { collective: self.collective, bytes, chosen, times: kept(times, &usual.candidate.way) }
    }

    /// One choice for all sizes: what is clearly faster in the mean of the ratios, and clearly slower nowhere.
    fn in_all(&mut self, largest: usize) -> Result<Option<Case>, Error> {
        let mut times: Vec<(Way, Vec<f64>)> = Vec::new();
        for bytes in ALL_TO_ALL.into_iter().filter(|bytes| *bytes <= largest) {
            let mut field = self.field(bytes);
            // Pieces go with the size, and here nobody knows the size.
            field.retain(|candidate| candidate.id.1.is_none());
            let Some(runners) = self.race(bytes, field)? else { break };
            for runner in runners {
                let median = runner.median();
                match times.iter_mut().find(|(known, _)| *known == runner.candidate.way) {
                    Some((_, list)) => list.push(median),
                    None => times.push((runner.candidate.way, vec![median])),
                }
            }
        }
        let Some((usual, usually)) = times.first().cloned() else { return Ok(None) };
        let mean = |list: &[f64]| (list.iter().map(|time| time.ln()).sum::<f64>() / list.len() as f64).exp();
        let best = times.iter().min_by(|one, other| mean(&one.1).total_cmp(&mean(&other.1)));
        let chosen = best.filter(|(_, list)| {
            let is_slower_nowhere = list.iter().zip(&usually).all(|(time, usual)| *time * CLEARLY < *usual);
            mean(list) < CLEARLY * mean(&usually) && is_slower_nowhere
        });
        let chosen = chosen.map(|(way, _)| way.clone());
        let times = times.iter().map(|(way, list)| (way.clone(), mean(list) * 1e6)).collect();
        Ok(Some(Case { collective: self.collective, bytes: 0, chosen, times: kept(times, &usual) }))
    }
}

/// The fastest, and what is taken usually.
fn kept(mut times: Vec<(Way, f64)>, usual: &Way) -> Vec<(Way, f64)> {
    times.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut place = 0;
    times.retain(|(way, _)| {
        place += 1;
        place <= KEPT || way == usual
    });
    times
}

#[cfg(test)]
mod tests {
    use eirene_train_schedule::Algorithm;

    use super::*;

    const RING: Way = Way::Schedule(Algorithm::Ring);

    /// A machine on which everything takes as long as a rule says.
    struct Pretended<F> {
        time: F,
        elapsed: f64,
        mpi: bool,
        trials: Vec<Trial>,
    }

    impl<F: Fn(&Trial) -> f64> Bench for Pretended<F> {
        fn try_out(&mut self, trial: &Trial) -> Result<f64, Error> {
            let seconds = (self.time)(trial);
            self.elapsed += seconds * f64::from(trial.calls);
            self.trials.push(trial.clone());
            Ok(seconds)
        }

        fn has_mpi(&self, _: Collective, _: usize) -> bool {
            self.mpi
        }

        fn elapsed(&self) -> Duration {
            Duration::from_secs_f64(self.elapsed)
        }
    }

    fn pretend(largest: usize, budget: f64, time: impl Fn(&Trial) -> f64) -> (Vec<Case>, Vec<Trial>, f64) {
        let mut bench = Pretended { time, elapsed: 0.0, mpi: false, trials: Vec::new() };
        let topology = Topology::new(&[0, 0]);
        let cases = survey(&topology, largest, Duration::from_secs_f64(budget), &mut bench).unwrap();
        (cases, bench.trials, bench.elapsed)
    }

    fn by_bytes(trial: &Trial) -> f64 {
        1e-6 + trial.bytes as f64 * 1e-10
    }

    #[test]
    fn with_time_enough_everything_is_measured_once() {
        let (cases, _, _) = pretend(usize::MAX, 1000.0, by_bytes);
        assert_eq!(cases.len(), 5 * SIZES + 1);
        assert!(cases.iter().all(|case| case.chosen.is_none()), "nothing was faster");
    }

    #[test]
    fn what_is_clearly_faster_is_chosen_and_what_is_hardly_faster_is_not() {
        for (factor, wins) in [(0.90, true), (0.97, false)] {
            let (cases, _, _) =
                pretend(1 << 20, 1000.0, |trial| by_bytes(trial) * if trial.way == RING { factor } else { 1.0 });
            for case in cases.iter().filter(|case| case.collective == Collective::AllReduce) {
                assert_eq!(case.chosen, wins.then_some(RING), "{case:?}");
                assert_eq!(case.times[0].0, RING);
            }
        }
    }

    #[test]
    fn on_a_machine_that_is_busy_with_something_else_nothing_is_chosen() {
        let turn = std::cell::Cell::new(0);
        let (cases, _, _) = pretend(1 << 20, 1000.0, |trial| {
            turn.set(turn.get() + 1);
            let (usual, _) = by_thresholds(trial.collective, trial.bytes, &Topology::new(&[0, 0]), false);
            // What is usual is held up two times of three.
            by_bytes(trial) * if trial.way == Way::Schedule(usual) && turn.get() % 3 > 0 { 10.0 } else { 0.9 }
        });
        let chosen = cases.iter().filter(|case| case.bytes > 0 && case.chosen.is_some()).count();
        assert!(chosen * 3 < cases.len(), "{chosen} of {}", cases.len());
    }

    #[test]
    fn what_is_slow_twice_is_not_tried_again() {
        let (_, trials, _) =
            pretend(usize::MAX, 1000.0, |trial| by_bytes(trial) * if trial.way == RING { 2.5 } else { 1.0 });
        let mut tried: Vec<usize> = trials
            .iter()
            .filter(|trial| trial.collective == Collective::AllReduce && trial.way == RING)
            .map(|trial| trial.bytes)
            .collect();
        tried.dedup();
        assert_eq!(tried, [1 << 10, 4 << 10]);
    }

    #[test]
    fn what_is_usual_is_never_dropped() {
        let (cases, _, _) = pretend(usize::MAX, 1000.0, |trial| {
            let (usual, _) = by_thresholds(trial.collective, trial.bytes, &Topology::new(&[0, 0]), false);
            by_bytes(trial) * if trial.way == Way::Schedule(usual.clone()) { 10.0 } else { 1.0 }
        });
        assert_eq!(cases.len(), 5 * SIZES + 1);
        assert!(cases.iter().all(|case| case.chosen.is_some()));
    }

    #[test]
    fn the_time_is_kept_and_allreduce_comes_first() {
        for slowness in [1.0, 30.0, 1000.0] {
            let budget = 2.0;
            let (cases, trials, elapsed) = pretend(usize::MAX, budget, |trial| by_bytes(trial) * slowness);
            let longest =
                trials.iter().map(|trial| by_bytes(trial) * slowness * f64::from(trial.calls)).fold(0.0, f64::max);
            assert!(elapsed <= budget + 2.0 * longest, "{slowness}: {elapsed} with trials of {longest}");
            assert!(cases.iter().any(|case| case.collective == Collective::AllReduce), "{slowness}");
        }
        let (cases, trials, _) = pretend(usize::MAX, 0.0, by_bytes);
        assert_eq!((cases.len(), cases[0].collective, cases[0].bytes), (1, Collective::AllReduce, size(0)));
        assert!(trials.iter().all(|trial| trial.bytes == size(0)));
    }

    #[test]
    fn mpi_is_one_more_choice_where_it_is_in_use() {
        for mpi in [true, false] {
            let time = |trial: &Trial| by_bytes(trial) * if trial.way == Way::Mpi { 0.5 } else { 1.0 };
            let mut bench = Pretended { time, elapsed: 0.0, mpi, trials: Vec::new() };
            let cases = survey(&Topology::new(&[0, 1]), 1 << 20, Duration::from_mins(1), &mut bench).unwrap();
            assert!(cases.iter().all(|case| case.chosen == mpi.then_some(Way::Mpi)), "{cases:?}");
        }
    }

    #[test]
    fn memory_is_a_limit() {
        let (_, trials, _) = pretend(64 << 10, 1000.0, by_bytes);
        assert_eq!(trials.iter().map(|trial| trial.bytes).max(), Some(64 << 10));
    }

    #[test]
    fn all_to_all_is_chosen_for_all_sizes_only_if_it_is_slower_nowhere() {
        for (large, wins) in [(0.5, true), (1.2, false)] {
            let (cases, _, _) = pretend(usize::MAX, 1000.0, |trial| {
                let factor = if trial.bytes > 1 << 20 { large } else { 0.5 };
                by_bytes(trial) * if trial.way == Way::Schedule(Algorithm::Pairwise) { factor } else { 1.0 }
            });
            let case = cases.iter().find(|case| case.collective == Collective::AllToAll).unwrap();
            assert_eq!(case.chosen, wins.then_some(Way::Schedule(Algorithm::Pairwise)));
        }
    }
}
