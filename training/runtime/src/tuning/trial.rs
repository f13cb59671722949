//! Trials on all ranks of a group: rank 0 says which, everybody makes it, and the slowest counts.

use std::time::{Duration, Instant};

use eirene_train_reduce::{DType, ReduceOp};
use eirene_train_schedule::Collective;

use super::overrides::COLLECTIVES;
use super::survey::{Bench, Trial};
use crate::call::{Call, Part};
use crate::choice::Way;
use crate::error::Error;
use crate::group::Group;
use crate::memory::bell::now;

/// How long a call may take while it is measured.
const ALLOWED: Duration = Duration::from_mins(5);

/// What rank 0 says, in words: calls (0: it is over), collective, bytes, length of the algorithm's name, and the name.
const ORDER: usize = 20;
const NAME: usize = (ORDER - 4) * 8;

/// Elements are of this type; the kind of arithmetic matters little, their bytes do.
const DTYPE: DType = DType::F32;

/// A group and the buffers to try things on.
pub(super) struct Ground<'a> {
    group: &'a Group,
    began: Instant,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl<'a> Ground<'a> {
    /// With buffers that can grow to so many bytes, if there is as much memory.
    pub(super) fn new(group: &'a Group, largest: usize) -> Option<Self> {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        input.try_reserve_exact(largest / 4).ok()?;
        output.try_reserve_exact(largest / 4).ok()?;
        Some(Self { group, began: now(), input, output })
    }

    /// What the others do while rank 0 surveys: each trial, until it is over.
    pub(super) fn follow(&mut self) -> Result<(), Error> {
        while let Some(trial) = self.order(None)? {
            self.make(&trial)?;
        }
        Ok(())
    }

    /// Tells the others that it is over.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.order(None).map(|_| ())
    }

    /// Rank 0's next trial, on all ranks.
    fn order(&mut self, trial: Option<&Trial>) -> Result<Option<Trial>, Error> {
        let mut words = trial.map_or([0; ORDER], written);
        everywhere(self.group, &mut words)?;
        read(&words, self.group.topology().nodes())
    }

    /// Makes a trial and says how long a call took on the slowest rank, in seconds.
    #[expect(unsafe_code, reason = "buffers are given by address")]
    fn make(&mut self, trial: &Trial) -> Result<f64, Error> {
        let call = self.call(trial.collective, trial.bytes);
        let barrier = Call::barrier();
        // SAFETY: a barrier has no buffers.
        unsafe { self.group.run(&barrier, ALLOWED) }?;
        let began = now();
        for _ in 0..trial.calls {
            // SAFETY: the buffers are as long as the call says, and nobody else's before it is over.
            unsafe { self.group.run_by(&call, Some(&trial.way), ALLOWED) }?;
        }
        let mut time = now().saturating_duration_since(began).as_secs_f64() / f64::from(trial.calls);
        let address = &raw mut time as usize;
        let slowest = Call::all_reduce(address, address, 1, DType::F64, ReduceOp::Max);
        // SAFETY: as above.
        unsafe { self.group.run(&slowest, ALLOWED) }?;
        // A clock that has not moved is no time.
        Ok(time.max(1e-9))
    }

    /// A call of about so many bytes on our buffers.
    fn call(&mut self, collective: Collective, bytes: usize) -> Call {
        let ranks = self.group.size() as usize;
        let block = bytes / 4 / ranks;
        // Minus zero: sums stay what they are, and the system has to give real memory for it.
        let mut memory = |buffer: fn(&mut Self) -> &mut Vec<f32>, elements: usize| {
            let buffer = buffer(self);
            if buffer.len() < elements {
                buffer.resize(elements, -0.0);
            }
            buffer.as_mut_ptr() as usize
        };
        let mut one = |buffer, elements| vec![Part { address: memory(buffer, elements), elements }];
        let input: fn(&mut Self) -> &mut Vec<f32> = |ground| &mut ground.input;
        let output: fn(&mut Self) -> &mut Vec<f32> = |ground| &mut ground.output;
        let each = |whole: &[Part]| -> Vec<Part> {
            (0..ranks).map(|rank| Part { address: whole[0].address + rank * block * 4, elements: block }).collect()
        };
        let (input, output) = match collective {
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } => {
                let whole = one(input, bytes / 4);
                (whole.clone(), whole)
            }
            Collective::ReduceScatter | Collective::Scatter { .. } => {
                (each(&one(input, block * ranks)), one(output, block))
            }
            Collective::AllGather | Collective::Gather { .. } => (one(input, block), each(&one(output, block * ranks))),
            Collective::AllToAll => (each(&one(input, block * ranks)), each(&one(output, block * ranks))),
            Collective::Barrier => (Vec::new(), Vec::new()),
        };
        Call { collective, dtype: DTYPE, op: ReduceOp::Sum, input, output }
    }
}

impl Bench for Ground<'_> {
    fn try_out(&mut self, trial: &Trial) -> Result<f64, Error> {
        self.order(Some(trial))?;
        self.make(trial)
    }

    fn has_mpi(&self, collective: Collective, bytes: usize) -> bool {
        self.group.has_mpi(collective, DTYPE, bytes)
    }

    fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }
}

/// Rank 0's words, on every rank.
#[expect(unsafe_code, reason = "buffers are given by address")]
pub(super) fn everywhere(group: &Group, words: &mut [u64]) -> Result<(), Error> {
    let part = vec![Part { address: words.as_mut_ptr() as usize, elements: words.len() }];
    let collective = Collective::Broadcast { root: 0 };
    let call = Call { collective, dtype: DType::U64, op: ReduceOp::Sum, input: part.clone(), output: part };
    // SAFETY: the words are ours until the call is over.
    unsafe { group.run(&call, ALLOWED) }
}

/// The least of all ranks' numbers, on every rank.
#[expect(unsafe_code, reason = "buffers are given by address")]
pub(super) fn least(group: &Group, mut number: u64) -> Result<u64, Error> {
    let address = &raw mut number as usize;
    let call = Call::all_reduce(address, address, 1, DType::U64, ReduceOp::Min);
    // SAFETY: the number is ours until the call is over.
    unsafe { group.run(&call, ALLOWED) }?;
    Ok(number)
}

/// A text of rank 0's, on every rank.
pub(super) fn text_everywhere(group: &Group, text: &str) -> Result<String, Error> {
    let mut length = [text.len() as u64];
    everywhere(group, &mut length)?;
    let length = usize::try_from(length[0]).unwrap_or(usize::MAX);
    let mut words = vec![0; length.div_ceil(8)];
    if group.rank() == 0 {
        pack(text, &mut words);
    }
    if !words.is_empty() {
        everywhere(group, &mut words)?;
    }
    unpack(&words, length).ok_or_else(|| unclear("a text"))
}

fn unclear(what: &str) -> Error {
    Error::Mismatch { message: format!("rank 0 of the group has sent {what} that makes no sense here") }
}

fn pack(text: &str, words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
}

fn unpack(words: &[u64], length: usize) -> Option<String> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    (length <= bytes.len()).then(|| bytes.truncate(length))?;
    String::from_utf8(bytes).ok()
}

fn written(trial: &Trial) -> [u64; ORDER] {
    let mut words = [0; ORDER];
    let name = trial.way.to_string();
    let collective = COLLECTIVES.iter().position(|collective| *collective == trial.collective).unwrap_or(0);
    words[..4].copy_from_slice(&[
        u64::from(trial.calls),
        collective as u64,
        trial.bytes as u64,
        name.len().min(NAME) as u64,
    ]);
    pack(&name, &mut words[4..]);
    words
}

fn read(words: &[u64; ORDER], nodes: &[u32]) -> Result<Option<Trial>, Error> {
    let number = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
    if words[0] == 0 {
        return Ok(None);
    }
    let name = unpack(&words[4..], number(words[3])).unwrap_or_default();
    let way = Way::named(&name, nodes);
    let (Some(way), Some(collective), Ok(calls)) = (way, COLLECTIVES.get(number(words[1])), u32::try_from(words[0]))
    else {
        return Err(unclear("a trial"));
    };
    Ok(Some(Trial { collective: *collective, bytes: number(words[2]), way, calls }))
}

#[cfg(test)]
mod tests {
    use eirene_train_schedule::Algorithm;

    use super::*;

    #[test]
    fn a_trial_is_read_as_it_was_written() {
        let nodes = [0, 0, 1];
        for way in [
            Way::Mpi,
            Way::Schedule(Algorithm::Ring),
            Way::Schedule(Algorithm::TwoLevel { nodes: nodes.to_vec(), segments: 1024 }),
            Way::Schedule(Algorithm::ChainBinomial { chain: 1023, segments: 1024 }),
        ] {
            let trial = Trial { collective: Collective::AllGather, bytes: 64 << 20, way, calls: 50 };
            assert_eq!(read(&written(&trial), &nodes).unwrap(), Some(trial));
        }
        assert_eq!(read(&[0; ORDER], &nodes).unwrap(), None);
        assert!(read(&[1; ORDER], &nodes).is_err());
    }

    #[test]
    fn texts_of_any_length_go_into_words() {
        for text in ["", "a", "12345678", "ünfzehn Zeichen"] {
            let mut words = vec![0; text.len().div_ceil(8)];
            pack(text, &mut words);
            assert_eq!(unpack(&words, text.len()).as_deref(), Some(text));
        }
        assert_eq!(unpack(&[0], 9), None);
    }
}
