//! The links between nodes: each pair of ranks exchanges messages while the others do the same in pairs of their own, then all add up numbers.
//!
//! It goes over the built-in transport, sealed as a training's data would be: MPI's own ways are the doctor's to try. Everything that is received is compared with what was sent.

use std::time::{Duration, Instant, SystemTime};

use eirene_train_runtime::{Call, DType, Error, Group, Part, ReduceOp};

use super::memory::pattern;
use super::words::{Pair, Why, Word};

/// Most others that a node is paired with: in a large world every link would take too long.
const MOST_ROUNDS: u32 = 7;
/// How long one pair may take once it has found together. What is stuck must be noticed by those it sticks to, before others who wait for them.
const PAIR: Duration = Duration::from_secs(5);
/// Small messages there and back; the quickest counts.
const PINGS: usize = 20;
/// Transfers each way; the quickest counts.
const TIMES: u64 = 3;
/// Words of the first transfer, which says how long the others may be, and of the longest.
const FIRST: usize = 32 << 10;
const LONGEST: usize = 512 << 10;
/// How long a transfer is to take, seconds; and when no further one is begun.
const WANTED: f64 = 0.015;
const ENOUGH: Duration = Duration::from_millis(100);
/// Numbers that all add up.
const ELEMENTS: usize = 1 << 20;

/// Why a rank goes no further, and with whom it has to do.
pub(super) struct Broken {
    pub(super) why: Why,
    pub(super) with: Vec<u32>,
    pub(super) text: String,
}

impl Broken {
    /// What the runtime says while this rank deals with another, or with all.
    pub(super) fn of(error: &Error, with: Option<u32>) -> Self {
        let (why, with) = match error {
            Error::Timeout { missing, .. } | Error::Absent { missing, .. } if !missing.is_empty() => {
                (Why::Late, missing.clone())
            }
            Error::Timeout { .. } => (Why::Late, with.into_iter().collect()),
            Error::PeerDied { rank, .. } => (Why::Died, vec![*rank]),
            Error::Connection { rank, .. } => (Why::Link, vec![*rank]),
            Error::Aborted { rank, .. } | Error::Left { rank, .. } => (Why::Follows, vec![*rank]),
            Error::Ended { .. } => (Why::Follows, Vec::new()),
            _ => (Why::Own, Vec::new()),
        };
        Self { why, with, text: error.to_string() }
    }

    /// Who was late when the time for all was over need not be stuck: the machine may be busy, or it waits for others in turn.
    pub(super) fn or_over(self, by: Instant) -> Self {
        let why = if self.why == Why::Late && Instant::now() >= by { Why::Over } else { self.why };
        Self { why, ..self }
    }
}

/// With whom a rank is paired in a round: in `size - 1` rounds (`size`, if it is odd) everybody is with everybody once.
fn partner(rank: u32, size: u32, round: u32) -> Option<u32> {
    // One sits still, and the others move around the table by one seat a round; with an odd number nobody sits there.
    let seats = size + size % 2;
    let turning = seats - 1;
    let other = if rank == turning {
        // Twice itself must be the round's number.
        (round * (turning + 1) / 2) % turning
    } else {
        let opposite = (round + turning - rank % turning) % turning;
        if opposite == rank { turning } else { opposite }
    };
    (other < size).then_some(other)
}

/// Measures the links of this rank, and tells of each at once.
pub(super) fn measure(group: &Group, by: Instant, tell: &mut dyn FnMut(Word)) -> Result<(), Broken> {
    let (me, size) = (group.rank(), group.size());
    for round in 0..(size - 1 + size % 2).min(MOST_ROUNDS) {
        let Some(with) = partner(me, size, round) else { continue };
        let line = Line { group, with, by };
        let word = if me < with { line.lead().map(Word::Link) } else { line.follow() };
        tell(word.map_err(|error| Broken::of(&error, Some(with)).or_over(by))?);
    }
    Ok(())
}

/// All add up numbers; how long it took, and how many sums are wrong.
pub(super) fn add_up(group: &Group, by: Instant) -> Result<Word, Broken> {
    let number = |rank: u32, at: usize| (pattern(at as u64) as i32).wrapping_mul(rank.cast_signed() + 1);
    let mut numbers: Vec<i32> = (0..ELEMENTS).map(|at| number(group.rank(), at)).collect();
    let address = numbers.as_mut_ptr() as usize;
    let call = Call::all_reduce(address, address, ELEMENTS, DType::I32, ReduceOp::Sum);
    let began = Instant::now();
    let broken = |error| Broken::of(&error, None).or_over(by);
    run(group, &call, by).map_err(broken)?;
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    let all = (0..group.size()).fold(0_i32, |sum, rank| sum.wrapping_add(rank.cast_signed() + 1));
    let sum = |at: usize| (pattern(at as u64) as i32).wrapping_mul(all);
    let wrong = numbers.iter().enumerate().filter(|(at, is)| **is != sum(*at)).count() as u64;
    // Nobody leaves before all have what they came for.
    run(group, &Call::barrier(), by).map_err(broken)?;
    Ok(Word::Sum { milliseconds, wrong })
}

#[expect(unsafe_code, reason = "buffers are given by address")]
fn run(group: &Group, call: &Call, by: Instant) -> Result<(), Error> {
    // SAFETY: the callers' buffers live until this returns, and nobody else uses them.
    unsafe { group.run(call, left(by)) }
}

fn left(by: Instant) -> Duration {
    by.saturating_duration_since(Instant::now())
}

/// One link, from one of its ends.
struct Line<'a> {
    group: &'a Group,
    with: u32,
    by: Instant,
}

impl Line<'_> {
    #[expect(unsafe_code, reason = "buffers are given by address")]
    fn send(&self, words: &[u64]) -> Result<(), Error> {
        let part = Part { address: words.as_ptr() as usize, elements: size_of_val(words) };
        // SAFETY: the words outlive the work, which is waited for; where that fails the world has ended and lets go of them.
        unsafe { self.group.send(self.with, 1, part, DType::U8, left(self.by)) }?.wait(None)
    }

    #[expect(unsafe_code, reason = "buffers are given by address")]
    fn receive(&self, words: &mut [u64]) -> Result<(), Error> {
        let part = Part { address: words.as_mut_ptr() as usize, elements: size_of_val(words) };
        // SAFETY: as for sending, and nobody else has the words.
        unsafe { self.group.receive(Some(self.with), 1, part, DType::U8, left(self.by)) }?.wait(None)
    }

    fn say(&self, word: u64) -> Result<(), Error> {
        self.send(&[word])
    }

    fn hear(&self) -> Result<u64, Error> {
        let mut word = [0];
        self.receive(&mut word)?;
        Ok(word[0])
    }

    /// The same with the time that a pair has from now on.
    fn together(&self) -> Self {
        Self { by: self.by.min(Instant::now() + PAIR), ..*self }
    }

    /// The lower rank's part: it says what is done, and takes the time.
    fn lead(&self) -> Result<Pair, Error> {
        self.say(0)?;
        self.hear()?;
        let line = self.together();
        let (mut latency, mut clock) = (f64::INFINITY, 0.0);
        for _ in 0..PINGS {
            let (began, here) = (Instant::now(), nanoseconds());
            line.say(0)?;
            let there = line.hear()?;
            let one_way = began.elapsed().as_secs_f64() / 2.0;
            if one_way < latency {
                latency = one_way;
                clock = (i128::from(there) - i128::from(here)) as f64 / 1e9 - one_way;
            }
        }
        let mut pair = Pair { with: self.with, latency: latency * 1e6, clock, ..Pair::default() };
        let (mut length, began) = (FIRST, Instant::now());
        for time in 0..=TIMES {
            line.say(length as u64)?;
            let (out, back, wrong) = line.both_ways(length, time, latency)?;
            pair.wrong += wrong;
            let speed = |seconds: f64| (length * 8) as f64 / seconds / 1e9;
            (pair.out, pair.back) = (pair.out.max(speed(out)), pair.back.max(speed(back)));
            if began.elapsed() > ENOUGH {
                break;
            }
            length = ((length as f64 * WANTED / out.max(back)) as usize).clamp(FIRST, LONGEST);
        }
        line.say(0)?;
        Ok(pair)
    }

    /// Seconds of a transfer to the other rank and of one from it, and how many words of that were wrong.
    fn both_ways(&self, length: usize, time: u64, latency: f64) -> Result<(f64, f64, u64), Error> {
        let mut words = vec![0; length];
        fill(&mut words, self.group.rank(), time);
        self.hear()?;
        let began = Instant::now();
        self.send(&words)?;
        self.hear()?;
        let out = began.elapsed().as_secs_f64();
        words.fill(0);
        let began = Instant::now();
        self.say(0)?;
        self.receive(&mut words)?;
        let back = began.elapsed().as_secs_f64();
        let most = |seconds: f64| (seconds - latency).max(seconds / 2.0);
        Ok((most(out), most(back), wrong(&words, self.with, time)))
    }

    /// The higher rank's part.
    fn follow(&self) -> Result<Word, Error> {
        self.hear()?;
        self.say(0)?;
        let line = self.together();
        for _ in 0..PINGS {
            line.hear()?;
            line.say(nanoseconds())?;
        }
        let mut bad = 0;
        let mut time = 0;
        loop {
            let length = usize::try_from(line.hear()?).unwrap_or(LONGEST).min(LONGEST);
            if length == 0 {
                return Ok(Word::Received { with: self.with, wrong: bad });
            }
            let mut words = vec![0; length];
            line.say(0)?;
            line.receive(&mut words)?;
            line.say(0)?;
            bad += wrong(&words, self.with, time);
            fill(&mut words, self.group.rank(), time);
            line.hear()?;
            line.send(&words)?;
            time += 1;
        }
    }
}

/// What a rank sends: other words each time, so that nothing of before can be taken for it.
fn fill(words: &mut [u64], rank: u32, time: u64) {
    let seed = pattern((u64::from(rank) << 8) | time);
    words.iter_mut().zip(0_u64..).for_each(|(word, at)| *word = pattern(at) ^ seed);
}

/// How many are not what that rank has sent.
fn wrong(words: &[u64], rank: u32, time: u64) -> u64 {
    let seed = pattern((u64::from(rank) << 8) | time);
    words.iter().zip(0_u64..).filter(|(word, at)| **word != pattern(*at) ^ seed).count() as u64
}

/// This node's clock.
fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn in_all_rounds_together_everybody_is_with_everybody_once() {
        for size in 2..40 {
            let mut pairs = BTreeSet::new();
            for round in 0..size - 1 + size % 2 {
                for rank in 0..size {
                    let Some(with) = partner(rank, size, round) else {
                        assert!(size % 2 == 1, "{rank} of {size} is idle in round {round}");
                        continue;
                    };
                    assert!(with < size && with != rank, "{rank} with {with} of {size}");
                    assert_eq!(partner(with, size, round), Some(rank), "round {round} of {size}");
                    if rank < with {
                        assert!(pairs.insert((rank, with)), "{rank} and {with} of {size} twice");
                    }
                }
            }
            assert_eq!(pairs.len() as u32, size * (size - 1) / 2);
        }
    }

    #[test]
    fn what_is_wrong_is_counted() {
        let mut words = vec![0; 100];
        fill(&mut words, 3, 2);
        assert_eq!(wrong(&words, 3, 2), 0);
        words[7] ^= 1 << 40;
        assert_eq!(wrong(&words, 3, 2), 1);
        assert!(wrong(&words, 3, 1) > 90 && wrong(&words, 2, 2) > 90);
    }
}
