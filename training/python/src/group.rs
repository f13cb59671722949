//! Groups of ranks, and what they are asked for.
#![expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "calls as Python makes them: gathering arguments into objects would cost what is saved, and lists come by value"
)]

use std::time::{Duration, Instant};

use eirene_train_runtime::{Call, DType, Error, Part, ReduceOp};
use pyo3::prelude::*;

use crate::codes::{to_collective, to_dtype, to_op};
use crate::error::{invalid, raised};
use crate::work::Work;

/// Some ranks and their order of calls.
#[pyclass(frozen, module = "eirene_train._native")]
pub(crate) struct Group {
    inner: eirene_train_runtime::Group,
}

impl Group {
    pub(crate) fn new(inner: eirene_train_runtime::Group) -> Self {
        Self { inner }
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

impl Group {
    /// Rank 0 hears of everybody, then everybody hears of rank 0.
    fn monitor(&self, allowed: Duration, wait_all: bool) -> Result<(), Error> {
        let begun = Instant::now();
        let left = || allowed.saturating_sub(begun.elapsed());
        let late = |missing: Vec<u32>| Error::Timeout {
            waited: begun.elapsed(),
            what: "a monitored barrier".to_owned(),
            missing,
        };
        if self.inner.rank() != 0 {
            self.pass(0, false)?;
            return match self.pass(0, true)?.wait(Some(left())) {
                Err(Error::Timeout { .. }) => Err(late(Vec::new())),
                outcome => outcome,
            };
        }
        let others: Vec<_> =
            (1..self.inner.size()).map(|rank| Ok((rank, self.pass(rank, true)?))).collect::<Result<_, Error>>()?;
        let mut missing = Vec::new();
        for (rank, work) in others {
            match work.wait(Some(left())) {
                Err(Error::Timeout { .. }) => missing.push(self.inner.ranks()[rank as usize]),
                outcome => outcome?,
            }
            if !missing.is_empty() && !wait_all {
                break;
            }
        }
        if !missing.is_empty() {
            return Err(late(missing));
        }
        (1..self.inner.size()).try_for_each(|rank| self.pass(rank, false).map(|_| ()))
    }

    /// A message without content, to a rank or from it.
    #[expect(unsafe_code, reason = "the runtime takes memory by address")]
    fn pass(&self, rank: u32, receive: bool) -> Result<eirene_train_runtime::Work, Error> {
        let nothing = Part { address: 0, elements: 0 };
        if receive {
            // SAFETY: there is no memory.
            unsafe { self.inner.receive(Some(rank), MONITOR, nothing, DType::U8, LONG) }
        } else {
            // SAFETY: there is no memory.
            unsafe { self.inner.send(rank, MONITOR, nothing, DType::U8, LONG) }
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
