//! Groups of ranks, and what they are asked for.
#![expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "calls as Python makes them: gathering arguments into objects would cost what is saved, and lists come by value"
)]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use eirene_train_runtime::{Call, DType, Error, Part, ReduceOp};
use pyo3::prelude::*;

use crate::codes::{to_collective, to_dtype, to_op};
use crate::error::{invalid, raised};
use crate::interrupt;
use crate::work::{SLICE, Work};

/// Some ranks and their order of calls.
#[pyclass(frozen, module = "eirene_train._native")]
pub(crate) struct Group {
    inner: eirene_train_runtime::Group,
    /// What monitored barriers have under way.
    passing: Mutex<Vec<Passing>>,
}

impl Group {
    pub(crate) fn new(inner: eirene_train_runtime::Group) -> Self {
        Self { inner, passing: Mutex::new(Vec::new()) }
    }
}

#[pymethods]
impl Group {
    /// This rank's number in the group.
    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// Number of ranks.
    #[getter]
    fn size(&self) -> u32 {
        self.inner.size()
    }

    /// The members, by their rank in the world.
    #[getter]
    fn ranks(&self) -> Vec<u32> {
        self.inner.ranks().to_vec()
    }

    /// Whether all its ranks are on one node.
    #[getter]
    fn one_node(&self) -> bool {
        self.inner.is_one_node()
    }

    /// Reduces in place and waits.
    #[expect(unsafe_code, reason = "Python gives memory by address")]
    fn allreduce(
        &self,
        py: Python<'_>,
        address: usize,
        elements: usize,
        dtype: usize,
        op: usize,
        timeout_ms: u64,
    ) -> PyResult<()> {
        let call = Call::all_reduce(address, address, elements, to_dtype(dtype)?, to_op(op)?);
        // Always without the GIL: another rank may need one of this process's other threads before it comes.
        // SAFETY: the caller keeps the memory alive and untouched until we return.
        py.detach(|| unsafe { self.inner.run(&call, Duration::from_millis(timeout_ms)) })
            .map_err(|error| raised(&error))
    }

    /// A collective, to its end.
    #[expect(unsafe_code, reason = "Python gives memory by address")]
    fn run(
        &self,
        py: Python<'_>,
        collective: usize,
        root: u32,
        dtype: usize,
        op: usize,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
        timeout_ms: u64,
    ) -> PyResult<()> {
        let call = call(collective, root, to_dtype(dtype)?, to_op(op)?, &inputs, &outputs)?;
        // SAFETY: the caller keeps the memory alive and untouched until we return.
        py.detach(|| unsafe { self.inner.run(&call, Duration::from_millis(timeout_ms)) })
            .map_err(|error| raised(&error))
    }

    /// A collective, in the background.
    #[expect(unsafe_code, reason = "Python gives memory by address")]
    fn start(
        &self,
        py: Python<'_>,
        collective: usize,
        root: u32,
        dtype: usize,
        op: usize,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
        timeout_ms: u64,
    ) -> PyResult<Work> {
        let call = call(collective, root, to_dtype(dtype)?, to_op(op)?, &inputs, &outputs)?;
        // SAFETY: the caller keeps the memory alive and untouched until the work is over.
        let work = py.detach(|| unsafe { self.inner.start(&call, Duration::from_millis(timeout_ms)) });
        work.map(|work| Work::new(work, &self.inner)).map_err(|error| raised(&error))
    }

    /// Sends to a rank of the group.
    #[expect(unsafe_code, reason = "Python gives memory by address")]
    fn send(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u32,
        address: usize,
        elements: usize,
        dtype: usize,
        timeout_ms: u64,
    ) -> PyResult<Work> {
        let (part, dtype) = (Part { address, elements }, to_dtype(dtype)?);
        // SAFETY: the caller keeps the memory alive and untouched until the work is over.
        let work = py.detach(|| unsafe { self.inner.send(to, tag, part, dtype, Duration::from_millis(timeout_ms)) });
        work.map(|work| Work::new(work, &self.inner)).map_err(|error| raised(&error))
    }

    /// Receives from a rank of the group, or from whoever sends first.
    #[expect(unsafe_code, reason = "Python gives memory by address")]
    #[pyo3(signature = (source, tag, address, elements, dtype, timeout_ms))]
    fn receive(
        &self,
        py: Python<'_>,
        source: Option<u32>,
        tag: u32,
        address: usize,
        elements: usize,
        dtype: usize,
        timeout_ms: u64,
    ) -> PyResult<Work> {
        let (part, dtype) = (Part { address, elements }, to_dtype(dtype)?);
        // SAFETY: the caller keeps the memory alive and untouched until the work is over.
        let work =
            py.detach(|| unsafe { self.inner.receive(source, tag, part, dtype, Duration::from_millis(timeout_ms)) });
        work.map(|work| Work::new(work, &self.inner)).map_err(|error| raised(&error))
    }

    /// A barrier whose failure names the missing ranks.
    fn monitored_barrier(&self, py: Python<'_>, timeout_ms: u64, wait_all: bool) -> PyResult<()> {
        py.detach(|| self.monitor(Duration::from_millis(timeout_ms), wait_all)).map_err(|error| raised(&error))
    }

    /// Takes what was measured on this topology before, or measures; says what became of it.
    fn tune(&self, py: Python<'_>, budget_ms: u64) -> PyResult<String> {
        let tuned = py.detach(|| self.inner.tune(Duration::from_millis(budget_ms)));
        tuned.map(|tuned| tuned.to_string()).map_err(|error| raised(&error))
    }

    /// Which algorithm would run, and why.
    fn explain(&self, collective: usize, dtype: usize, elements: usize) -> PyResult<String> {
        Ok(self.inner.explain(to_collective(collective, 0)?, to_dtype(dtype)?, elements))
    }

    /// How a message between two ranks goes, and why.
    fn explain_messages(&self) -> String {
        self.inner.explain_messages()
    }
}

/// The tag of a monitored barrier's messages, which nobody else uses.
const MONITOR: u32 = u32::MAX;

/// How long a monitored barrier's messages may be under way: what decides is how long each is waited for, for a message that is late ends
/// the world.
const LONG: Duration = Duration::from_hours(7 * 24);

/// What is under way in a monitored barrier, with the memory it reads or writes.
struct Passing {
    work: eirene_train_runtime::Work,
    memory: Vec<u8>,
}

impl Drop for Passing {
    /// What is still under way goes on without us, and so does its memory: a few bytes.
    fn drop(&mut self) {
        if !self.work.is_done() {
            std::mem::take(&mut self.memory).leak();
        }
    }
}

impl Group {
    /// Rank 0 hears of everybody; everybody hears that rank 0 is there, and then from it who is missing.
    ///
    /// Each barrier, well or not, is one message to rank 0 and two from it, for every other rank. A message cannot be called back, so this is
    /// what keeps barriers apart: one that is late goes to the barrier it belongs to, and the next one begins anew.
    fn monitor(&self, allowed: Duration, wait_all: bool) -> Result<(), Error> {
        let begun = Instant::now();
        let late = |missing: Vec<u32>| Error::Timeout {
            // Whoever comes late is told at once that rank 0 has waited long enough.
            waited: begun.elapsed().max(allowed),
            what: "a monitored barrier".to_owned(),
            missing,
        };
        let ranks = self.inner.ranks();
        let absent = if self.inner.rank() == 0 {
            self.hear_of_all(begun + allowed, wait_all)?
        } else {
            self.pass(0, &[])?;
            let present = self.expect(0, 0)?;
            let mut verdict = self.expect(0, ranks.len())?;
            // Rank 0 may have begun after us: it is waited for as long as itself waits.
            if !self.arrived(&verdict.work, allowed)?
                && present.work.is_done()
                && !self.arrived(&verdict.work, allowed)?
            {
                self.keep(verdict);
                return Err(late(Vec::new()));
            }
            if verdict.work.is_done() {
                std::mem::take(&mut verdict.memory)
            } else {
                self.keep(verdict);
                let mut nobody = vec![0; ranks.len()];
                nobody[0] = 1;
                nobody
            }
        };
        let missing: Vec<u32> =
            ranks.iter().zip(absent).filter(|(_, absent)| *absent != 0).map(|(rank, _)| *rank).collect();
        if missing.is_empty() { Ok(()) } else { Err(late(missing)) }
    }

    /// Of each rank whether it is missing, as rank 0 finds and tells all others.
    fn hear_of_all(&self, deadline: Instant, wait_all: bool) -> Result<Vec<u8>, Error> {
        let others = 1..self.inner.size();
        let works = others
            .clone()
            .map(|rank| {
                self.pass(rank, &[])?;
                Ok((rank, self.expect(rank, 0)?))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let mut absent = vec![0; self.inner.ranks().len()];
        for (rank, present) in works {
            if !self.arrived(&present.work, deadline.saturating_duration_since(Instant::now()))? {
                absent[rank as usize] = 1;
                if !wait_all {
                    break;
                }
            }
        }
        for rank in others {
            self.pass(rank, &absent)?;
        }
        Ok(absent)
    }

    /// Sends to a rank.
    #[expect(unsafe_code, reason = "the runtime takes memory by address")]
    fn pass(&self, rank: u32, content: &[u8]) -> Result<(), Error> {
        let memory = content.to_vec();
        let part = Part { address: memory.as_ptr().expose_provenance(), elements: memory.len() };
        // SAFETY: the memory is kept until the work is over.
        let work = unsafe { self.inner.send(rank, MONITOR, part, DType::U8, LONG) }?;
        self.keep(Passing { work, memory });
        Ok(())
    }

    /// Receives so many bytes from a rank. Whoever gives up waiting gives it to [`Self::keep`].
    #[expect(unsafe_code, reason = "the runtime takes memory by address")]
    fn expect(&self, rank: u32, bytes: usize) -> Result<Passing, Error> {
        let mut memory = vec![0; bytes];
        let part = Part { address: memory.as_mut_ptr().expose_provenance(), elements: bytes };
        // SAFETY: the memory is kept until the work is over.
        let work = unsafe { self.inner.receive(Some(rank), MONITOR, part, DType::U8, LONG) }?;
        Ok(Passing { work, memory })
    }

    /// Whether it is over within a time. Ctrl-C ends the wait, and the world, as it does in any call that blocks: this rank's part in the
    /// barrier cannot be taken back.
    fn arrived(&self, work: &eirene_train_runtime::Work, longest: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + longest;
        loop {
            let slice = deadline.saturating_duration_since(Instant::now()).min(SLICE);
            match work.wait(Some(slice)) {
                Err(Error::Timeout { .. }) if !work.is_done() => {}
                // It may have ended just after the wait did; then what it says itself counts.
                Err(Error::Timeout { .. }) => return work.wait(Some(Duration::ZERO)).map(|()| true),
                outcome => return outcome.map(|()| true),
            }
            if interrupt::asked() {
                return Err(self.inner.give_up("it was in a monitored barrier"));
            }
            if slice < SLICE {
                return Ok(false);
            }
        }
    }

    /// Keeps what is under way.
    fn keep(&self, passing: Passing) {
        let mut kept = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|passing| !passing.work.is_done());
        if !passing.memory.is_empty() && !passing.work.is_done() {
            kept.push(passing);
        }
    }
}

fn call(
    collective: usize,
    root: u32,
    dtype: DType,
    op: ReduceOp,
    inputs: &[usize],
    outputs: &[usize],
) -> PyResult<Call> {
    Ok(Call { collective: to_collective(collective, root)?, dtype, op, input: parts(inputs)?, output: parts(outputs)? })
}

fn parts(flat: &[usize]) -> PyResult<Vec<Part>> {
    let (pairs, []) = flat.as_chunks::<2>() else {
        return Err(invalid("parts are given as addresses and numbers of elements, in turn"));
    };
    Ok(pairs.iter().map(|[address, elements]| Part { address: *address, elements: *elements }).collect())
}
