//! A collective that MPI does in its own way: which those are, and one under way.
//!
//! MPI takes a side of a call as one run of memory; parts that lie apart are copied together, and results back. What ranks have to give alike
//! (which of MPI's functions, lengths where it wants them) is decided by what they all know.

use std::sync::Arc;

use eirene_train_mpi::{Blocks, Collective as Own, Input, Number, Op, Request, Width};
use eirene_train_reduce::{DType, ReduceOp, Reduction};
use eirene_train_schedule::Collective;

use super::{Engine, Room, failed};
use crate::call::{self, Call, Part};
use crate::error::Error;
use crate::extent::Extent;

/// How MPI's own reduction gives what is defined here, if it does.
///
/// Half precision is unknown to it, and its smallest and greatest of floating point numbers lose what is not a number. A truth value is 0 or
/// 1 by the time it is reduced.
fn number(dtype: DType, op: ReduceOp) -> Option<(Number, Op)> {
    let number = match dtype {
        DType::F32 => Number::F32,
        DType::F64 => Number::F64,
        DType::F16 | DType::BF16 => return None,
        DType::I8 | DType::Bool => Number::I8,
        DType::U8 => Number::U8,
        DType::I16 => Number::I16,
        DType::U16 => Number::U16,
        DType::I32 => Number::I32,
        DType::U32 => Number::U32,
        DType::I64 => Number::I64,
        DType::U64 => Number::U64,
    };
    let op = match (op, dtype) {
        (ReduceOp::Min | ReduceOp::Max, _) if dtype.is_float() => return None,
        (ReduceOp::Max, _) | (ReduceOp::Sum, DType::Bool) => Op::Max,
        (ReduceOp::Min, _) | (ReduceOp::Prod, DType::Bool) => Op::Min,
        (ReduceOp::Sum | ReduceOp::Avg, _) => Op::Sum,
        (ReduceOp::Prod, _) => Op::Prod,
    };
    Some((number, op))
}

impl Engine {
    /// Whether MPI itself can do a collective about so many bytes, as [`Call::bytes`] counts them. All ranks come to the same answer.
    pub(crate) fn offers(&self, collective: Collective, dtype: DType, op: ReduceOp, bytes: usize) -> bool {
        if i32::try_from(bytes / dtype.size()).is_err() {
            return false;
        }
        !call::reduces(collective) || number(dtype, op).is_some_and(|known| !self.wrong.contains(&known))
    }
}

/// One side of a call as MPI takes it.
struct Side {
    address: *mut u8,
    /// By rank, in elements.
    counts: Vec<usize>,
    offsets: Vec<usize>,
    bytes: usize,
    /// Memory of our own, where the parts lie apart.
    own: Vec<u64>,
}

impl Side {
    /// Of parts where they lie, or of a copy of their layout if they lie apart or must not be used.
    fn new(parts: &[Part], dtype: DType, apart: bool) -> Self {
        let (mut counts, mut offsets, mut elements) = (Vec::new(), Vec::new(), 0);
        let mut first = None;
        let mut is_one = true;
        for part in parts {
            counts.push(part.elements);
            offsets.push(elements);
            if part.elements > 0 {
                let start = *first.get_or_insert(part.address);
                is_one &= start + elements * dtype.size() == part.address;
            }
            elements += part.elements;
        }
        let bytes = elements * dtype.size();
        let mut side = Self { address: first.unwrap_or(0) as *mut u8, counts, offsets, bytes, own: Vec::new() };
        if bytes > 0 && (apart || !is_one) {
            side.own = vec![0; bytes.div_ceil(8)];
            side.address = side.own.as_mut_ptr().cast();
        }
        side
    }

    fn is_own(&self) -> bool {
        !self.own.is_empty()
    }

    fn is_even(&self) -> bool {
        self.counts.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { counts: &self.counts, offsets: &self.offsets }
    }

    /// Copies the caller's parts in, if this is not where they lie.
    #[expect(unsafe_code, reason = "copies the caller's memory")]
    fn fill(&self, parts: &[Part], dtype: DType) {
        if self.is_own() {
            for (part, offset) in parts.iter().zip(&self.offsets).filter(|(part, _)| part.elements > 0) {
                let extent = part.extent(dtype);
                let place = self.address.wrapping_add(offset * dtype.size());
                // SAFETY: the caller's part is as long, and our memory has its place; they are apart.
                unsafe { place.copy_from_nonoverlapping(extent.address, extent.bytes) };
            }
        }
    }
}

/// Whether any part of one side has a byte in common with one of the other.
fn meet(one: &[Part], other: &[Part], dtype: DType) -> bool {
    one.iter().any(|one| other.iter().any(|other| one.extent(dtype).meets(other.extent(dtype))))
}

/// A collective of MPI's under way.
pub(crate) struct Running {
    room: Arc<Room>,
    request: Option<Request>,
    /// What MPI reads and writes of ours.
    memory: Vec<Vec<u64>>,
    /// What is copied to the caller at the end: from where, and where to.
    results: Vec<(usize, Extent)>,
    /// What makes an average of a sum, and where.
    average: Option<(Reduction, Extent)>,
}

impl Running {
    /// Begins a call that is [offered](Engine::offers).
    #[expect(unsafe_code, reason = "MPI works on the caller's memory")]
    pub(crate) fn begin(room: &Arc<Room>, call: &Call) -> Result<Self, Error> {
        let (me, size) = (room.communicator.rank(), room.communicator.size());
        let dtype = call.dtype;
        let refused = |what: &str| Error::Invalid { message: format!("MPI does not know {what}") };
        let width = Width::of(dtype.size()).ok_or_else(|| refused(dtype.name()))?;
        let reduces = call::reduces(call.collective);
        let plain = Part { address: 0, elements: 0 };
        let given = |parts: &[Part]| parts.first().copied().unwrap_or(plain);
        let (input, output) = (given(&call.input), given(&call.output));
        let at_root = call::root(call.collective).is_none_or(|root| root == me);
        // Where the own block may lie in the other side's place for it.
        let own_output = call.output.get(me as usize).copied().unwrap_or(plain);
        let own_input = call.input.get(me as usize).copied().unwrap_or(plain);

        // Truth values become 0 or 1 in a copy; MPI wants input and output apart, except where it has a word for "in place".
        let truths = reduces && dtype == DType::Bool;
        let clash = match call.collective {
            Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. } | Collective::Barrier => {
                false
            }
            Collective::ReduceScatter | Collective::AllToAll => meet(&call.input, &call.output, dtype),
            Collective::AllGather | Collective::Gather { .. } => {
                input.address != own_output.address && meet(&call.input, &call.output, dtype)
            }
            Collective::Scatter { .. } => output.address != own_input.address && meet(&call.input, &call.output, dtype),
        };
        let gives = Side::new(&call.input, dtype, truths || clash);
        let gets = Side::new(&call.output, dtype, false);
        gives.fill(&call.input, dtype);
        if truths && gives.is_own() {
            let ones = Reduction::new(dtype, call.op, None)
                .map_err(|undefined| Error::Invalid { message: undefined.to_string() })?;
            // SAFETY: our own memory, as long as all parts.
            unsafe { ones.run(&[gives.address], &[gives.address.cast_const()], gives.bytes) };
        }
        let (number, op) = match number(dtype, call.op) {
            Some(known) => known,
            None if reduces => return Err(refused(call.op.name())),
            None => (Number::U8, Op::Sum),
        };
        let from = |in_place: bool| {
            if in_place && !gives.is_own() && !gets.is_own() { Input::InPlace } else { Input::At(gives.address) }
        };
        let own = match call.collective {
            Collective::Barrier => Own::Barrier,
            Collective::Broadcast { root } => {
                if at_root && input.address != output.address && gives.bytes > 0 {
                    // SAFETY: both parts are the caller's, as long, and apart.
                    unsafe { gets.address.copy_from(gives.address, gives.bytes) };
                }
                Own::Broadcast { data: gets.address, elements: output.elements, width, root }
            }
            Collective::AllReduce => {
                let input = from(input.address == output.address);
                Own::AllReduce { input, output: gets.address, elements: output.elements, number, op }
            }
            Collective::Reduce { root } => {
                // Only the root has a place for the result.
                let place = if at_root { gets.address } else { std::ptr::null_mut() };
                let in_place = at_root && input.address == output.address;
                Own::Reduce { input: from(in_place), output: place, elements: input.elements, number, op, root }
            }
            Collective::ReduceScatter if gives.is_even() => Own::ReduceScatterBlock {
                input: Input::At(gives.address),
                output: gets.address,
                elements: output.elements,
                number,
                op,
            },
            Collective::ReduceScatter => {
                Own::ReduceScatter { input: gives.address, output: gets.address, counts: &gives.counts, number, op }
            }
            Collective::AllGather => {
                let (source, elements) = (from(input.address == own_output.address), input.elements);
                let output = gets.address;
                if gets.is_even() {
                    Own::AllGather { input: source, output, elements, width }
                } else {
                    Own::AllGatherV { input: source, elements, output, blocks: gets.blocks(), width }
                }
            }
            Collective::AllToAll => Own::AllToAllV {
                input: Input::At(gives.address),
                sent: gives.blocks(),
                output: gets.address,
                received: gets.blocks(),
                width,
            },
            Collective::Gather { root } => {
                let input = from(at_root && input.address == own_output.address);
                let elements = call.input.iter().map(|part| part.elements).sum();
                Own::GatherV { input, elements, output: gets.address, blocks: gets.blocks(), width, root }
            }
            Collective::Scatter { root } => {
                let stays = at_root && output.address == own_input.address && !gives.is_own();
                let place = (!stays).then_some(gets.address);
                let (input, elements) = (gives.address.cast_const(), output.elements);
                Own::ScatterV { input, blocks: gives.blocks(), output: place, elements, width, root }
            }
        };
        let turn = room.engine.enter()?;
        // SAFETY: the caller's memory stays until the call is over, or MPI is given up; ours stays in what is returned, or is leaked.
        let request = unsafe { room.communicator.start(&own) }.map_err(|error| failed(&error))?;
        drop(turn);
        let mut results = Vec::new();
        if gets.is_own() {
            for (part, offset) in call.output.iter().zip(&gets.offsets).filter(|(part, _)| part.elements > 0) {
                results.push((gets.address as usize + offset * dtype.size(), part.extent(dtype)));
            }
        }
        let average = if reduces && call.op == ReduceOp::Avg && at_root {
            let mean = Reduction::new(dtype, ReduceOp::Avg, Some(size))
                .map_err(|undefined| Error::Invalid { message: undefined.to_string() })?;
            Some((mean, output.extent(dtype)))
        } else {
            None
        };
        let memory = vec![gives.own, gets.own];
        Ok(Self { room: Arc::clone(room), request: Some(request), memory, results, average })
    }

    /// Whether it is over.
    #[expect(unsafe_code, reason = "finishes the caller's result")]
    pub(crate) fn poll(&mut self) -> Result<bool, Error> {
        let Some(request) = &mut self.request else { return Ok(true) };
        let turn = self.room.engine.enter()?;
        let done = request.test().map_err(|error| failed(&error))?;
        drop(turn);
        if done.is_none() {
            return Ok(false);
        }
        self.request = None;
        for (from, to) in self.results.drain(..) {
            // SAFETY: the result lies in our memory, and the caller's part is as long; they are apart.
            unsafe { to.address.copy_from_nonoverlapping(from as *const u8, to.bytes) };
        }
        if let Some((mean, sum)) = self.average.take().filter(|(_, sum)| sum.bytes > 0) {
            let elements = sum.bytes / mean.dtype().size();
            // SAFETY: the caller's output, as long; an output may be a source.
            unsafe { mean.run(&[sum.address], &[sum.address.cast_const()], elements) };
        }
        Ok(true)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        // MPI goes on with what it has, as long as it is called.
        std::mem::forget(std::mem::take(&mut self.memory));
        if !self.room.engine.is_usable() {
            // Nor may a fork call it.
            std::mem::forget(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mpi_would_reduce_otherwise_is_not_asked_of_it() {
        assert_eq!(number(DType::F32, ReduceOp::Avg), Some((Number::F32, Op::Sum)));
        assert_eq!(number(DType::Bool, ReduceOp::Sum), Some((Number::I8, Op::Max)));
        assert_eq!(number(DType::Bool, ReduceOp::Prod), Some((Number::I8, Op::Min)));
        for (dtype, op) in [
            (DType::F16, ReduceOp::Sum),
            (DType::BF16, ReduceOp::Max),
            (DType::F64, ReduceOp::Min),
            (DType::F32, ReduceOp::Max),
        ] {
            assert_eq!(number(dtype, op), None);
        }
    }

    #[test]
    fn parts_that_lie_apart_are_laid_together() {
        let parts = |addresses: [usize; 3]| {
            [addresses[0], addresses[1], addresses[2]].map(|address| Part { address, elements: 2 })
        };
        let together = Side::new(&parts([4096, 4104, 4112]), DType::F32, false);
        assert!(!together.is_own() && together.is_even() && together.address as usize == 4096);
        let apart = Side::new(&parts([4096, 4112, 4104]), DType::F32, false);
        assert!(apart.is_own());
        assert_eq!((apart.bytes, apart.offsets), (24, vec![0, 2, 4]));
    }
}
