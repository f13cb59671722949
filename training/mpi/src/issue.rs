//! Calling MPI's collectives: [`Communicator::run`] waits for the end and [`Communicator::start`] does not.
#![expect(unsafe_code, reason = "calls into MPI on raw memory")]

use std::sync::atomic::AtomicU64;

use libc::{c_int, c_void};

use crate::collective::{Collective, Input, pieces};
use crate::communicator::{Communicator, integer};
use crate::error::Error;
use crate::ffi::Handle;
use crate::library::Family;
use crate::number::{Number, Op};
use crate::request::{Kind, Request};

/// What MPI reads until a collective has ended, beside the caller's memory.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    lists: Vec<Box<[c_int]>>,
    copies: Vec<Box<[u64]>>,
}

impl Kept {
    /// Counts or offsets as MPI takes them, one for each rank; null where they are not wanted here.
    fn list(&mut self, size: usize, values: &[usize], wanted: bool) -> Result<*const c_int, Error> {
        if !wanted {
            return Ok(std::ptr::null());
        }
        if values.len() != size {
            return Err(Error::invalid(format!("{} blocks for {size} ranks", values.len())));
        }
        let list = values.iter().map(|value| integer(*value, "a block")).collect::<Result<Box<[c_int]>, _>>()?;
        let address = list.as_ptr();
        self.lists.push(list);
        Ok(address)
    }

    /// A copy of the data, aligned for every number.
    fn copy(&mut self, data: &[u8]) -> *const c_void {
        let copy: Box<[u64]> = data
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            .collect();
        let address = copy.as_ptr().cast();
        self.copies.push(copy);
        address
    }
}

/// An address to read from, as MPI takes it. That of an empty slice may be 1, which is "in place" in two of
/// the ABIs.
fn source(address: *const u8) -> *const c_void {
    static NOTHING: u64 = 0;
    if address.addr() < 4096 { (&raw const NOTHING).cast() } else { address.cast() }
}

/// An address to write to; nothing's is another than that of nothing to read, for both may not be the same.
fn target(address: *mut u8) -> *mut c_void {
    static NOWHERE: AtomicU64 = AtomicU64::new(0);
    if address.addr() < 4096 { NOWHERE.as_ptr().cast() } else { address.cast() }
}

macro_rules! issue {
    ($api:expr, $slot:expr, $now:ident, $later:ident, $($argument:expr),+) => {
        match $slot {
            None => $api.$now($($argument),+),
            Some(slot) => $api.$later($($argument),+, slot),
        }
    };
}

impl Communicator {
    /// Runs a collective and waits for its end. All ranks of the group must call it, with matching values.
    ///
    /// # Safety
    /// All memory named is good for what the collective reads and writes there, and used by nobody else until
    /// this returns.
    pub unsafe fn run(&self, collective: &Collective<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the rules.
        unsafe {
            if let Some(pieces) = pieces(collective) {
                for piece in pieces {
                    self.run(&piece)?;
                }
                return Ok(());
            }
            if self.session.one_at_a_time() {
                return self.start(collective)?.wait(None).map(drop);
            }
            self.issue(collective, None, &mut Kept::default())
        }
    }

    /// Starts a collective.
    ///
    /// # Safety
    /// As for [`Self::run`], until the request is finished, even if it is dropped before.
    pub unsafe fn start(&self, collective: &Collective<'_>) -> Result<Request, Error> {
        let mut request = self.session.constants().no_request;
        let mut kept = Kept::default();
        // SAFETY: the caller keeps the rules; `kept` goes into the request.
        unsafe { self.issue(collective, Some(&raw mut request), &mut kept) }?;
        Ok(Request::new(&self.session, request, Kind::Collective, kept))
    }

    /// Calls MPI's function: the blocking one, or the one that gives a request to `slot`.
    ///
    /// # Safety
    /// As for [`Self::run`]; `kept` lives until the end.
    unsafe fn issue(
        &self,
        collective: &Collective<'_>,
        slot: Option<*mut Handle>,
        kept: &mut Kept,
    ) -> Result<(), Error> {
        let group = self.handle;
        let constants = self.session.constants();
        let in_place = constants.whole.in_place as *const c_void;
        let from = |input: Input| match input {
            Input::At(at) => source(at),
            Input::InPlace => in_place,
        };
        let size = self.size() as usize;
        let call =
            |name, function: &dyn Fn(&dyn crate::ffi::Api) -> c_int| self.session.call(name, |api, _| function(api));
        // SAFETY, for every call below: the caller vouches for the memory, the lists live in `kept`, and the
        // handles are MPI's own.
        match *collective {
            Collective::Barrier => {
                // SAFETY: see above.
                call("MPI_Barrier", &|api| unsafe { issue!(api, slot, barrier, ibarrier, group) })
            }
            Collective::Broadcast { data, elements, width, root } => {
                let (count, kind, root) = (integer(elements, "the data")?, constants.width(width), self.peer(root)?);
                // SAFETY: see above.
                call("MPI_Bcast", &|api| unsafe {
                    issue!(api, slot, bcast, ibcast, target(data), count, kind, root, group)
                })
            }
            Collective::AllReduce { input, output, elements, number, op } => {
                let (count, kind, op) = (integer(elements, "the data")?, self.sure(number, op)?, constants.op(op));
                // SAFETY: see above.
                call("MPI_Allreduce", &|api| unsafe {
                    issue!(api, slot, allreduce, iallreduce, from(input), target(output), count, kind, op, group)
                })
            }
            Collective::Reduce { input, output, elements, number, op, root } => {
                let (count, kind, op) = (integer(elements, "the data")?, self.sure(number, op)?, constants.op(op));
                // Only the root may say "in place"; elsewhere the output is where the input lies. MPICH follows
                // the word as an address where the root is not rank 0 (4.0.2, long data): it gets a copy.
                let input = match input {
                    Input::InPlace if self.rank() != root => source(output),
                    Input::InPlace
                        if root != 0 && elements > 0 && self.session.library.identity().family == Family::Mpich =>
                    {
                        // SAFETY: the caller vouches for the output, which holds the input.
                        let data = unsafe { std::slice::from_raw_parts(output, elements * number.size()) };
                        kept.copy(data)
                    }
                    other => from(other),
                };
                let root = self.peer(root)?;
                // SAFETY: see above.
                call("MPI_Reduce", &|api| unsafe {
                    issue!(api, slot, reduce, ireduce, input, target(output), count, kind, op, root, group)
                })
            }
            Collective::ReduceScatterBlock { input, output, elements, number, op } => {
                let (count, kind, op) = (integer(elements, "a block")?, self.sure(number, op)?, constants.op(op));
                // SAFETY: see above.
                call("MPI_Reduce_scatter_block", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        reduce_scatter_block,
                        ireduce_scatter_block,
                        from(input),
                        target(output),
                        count,
                        kind,
                        op,
                        group
                    )
                })
            }
            Collective::ReduceScatter { input, output, counts, number, op } => {
                let (counts, kind, op) = (kept.list(size, counts, true)?, self.sure(number, op)?, constants.op(op));
                // SAFETY: see above.
                call("MPI_Reduce_scatter", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        reduce_scatter,
                        ireduce_scatter,
                        source(input),
                        target(output),
                        counts,
                        kind,
                        op,
                        group
                    )
                })
            }
            Collective::AllGather { input, output, elements, width } => {
                let (count, kind) = (integer(elements, "a block")?, constants.width(width));
                // SAFETY: see above.
                call("MPI_Allgather", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        allgather,
                        iallgather,
                        from(input),
                        count,
                        kind,
                        target(output),
                        count,
                        kind,
                        group
                    )
                })
            }
            Collective::AllGatherV { input, elements, output, blocks, width } => {
                let (count, kind) = (integer(elements, "the own block")?, constants.width(width));
                let (counts, offsets) = (kept.list(size, blocks.counts, true)?, kept.list(size, blocks.offsets, true)?);
                // SAFETY: see above.
                call("MPI_Allgatherv", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        allgatherv,
                        iallgatherv,
                        from(input),
                        count,
                        kind,
                        target(output),
                        counts,
                        offsets,
                        kind,
                        group
                    )
                })
            }
            Collective::AllToAll { input, output, elements, width } => {
                let (count, kind) = (integer(elements, "a block")?, constants.width(width));
                // SAFETY: see above.
                call("MPI_Alltoall", &|api| unsafe {
                    issue!(api, slot, alltoall, ialltoall, from(input), count, kind, target(output), count, kind, group)
                })
            }
            Collective::AllToAllV { input, sent, output, received, width } => {
                let kind = constants.width(width);
                let apart = input != Input::InPlace;
                let (sent, sent_offsets) =
                    (kept.list(size, sent.counts, apart)?, kept.list(size, sent.offsets, apart)?);
                let (received, offsets) =
                    (kept.list(size, received.counts, true)?, kept.list(size, received.offsets, true)?);
                // SAFETY: see above.
                call("MPI_Alltoallv", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        alltoallv,
                        ialltoallv,
                        from(input),
                        sent,
                        sent_offsets,
                        kind,
                        target(output),
                        received,
                        offsets,
                        kind,
                        group
                    )
                })
            }
            Collective::Gather { input, output, elements, width, root } => {
                let (count, kind) = (integer(elements, "a block")?, constants.width(width));
                self.only_root(input == Input::InPlace, root)?;
                let root = self.peer(root)?;
                // SAFETY: see above.
                call("MPI_Gather", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        gather,
                        igather,
                        from(input),
                        count,
                        kind,
                        target(output),
                        count,
                        kind,
                        root,
                        group
                    )
                })
            }
            Collective::GatherV { input, elements, output, blocks, width, root } => {
                let (count, kind) = (integer(elements, "the own block")?, constants.width(width));
                self.only_root(input == Input::InPlace, root)?;
                let here = self.rank() == root;
                let (counts, offsets) = (kept.list(size, blocks.counts, here)?, kept.list(size, blocks.offsets, here)?);
                let root = self.peer(root)?;
                // SAFETY: see above.
                call("MPI_Gatherv", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        gatherv,
                        igatherv,
                        from(input),
                        count,
                        kind,
                        target(output),
                        counts,
                        offsets,
                        kind,
                        root,
                        group
                    )
                })
            }
            Collective::Scatter { input, output, elements, width, root } => {
                let (count, kind) = (integer(elements, "a block")?, constants.width(width));
                self.only_root(output.is_none(), root)?;
                let output = output.map_or(in_place.cast_mut(), target);
                let root = self.peer(root)?;
                // SAFETY: see above.
                call("MPI_Scatter", &|api| unsafe {
                    issue!(api, slot, scatter, iscatter, source(input), count, kind, output, count, kind, root, group)
                })
            }
            Collective::ScatterV { input, blocks, output, elements, width, root } => {
                let (count, kind) = (integer(elements, "the own block")?, constants.width(width));
                self.only_root(output.is_none(), root)?;
                let here = self.rank() == root;
                let (counts, offsets) = (kept.list(size, blocks.counts, here)?, kept.list(size, blocks.offsets, here)?);
                let output = output.map_or(in_place.cast_mut(), target);
                let root = self.peer(root)?;
                // SAFETY: see above.
                call("MPI_Scatterv", &|api| unsafe {
                    issue!(
                        api,
                        slot,
                        scatterv,
                        iscatterv,
                        source(input),
                        counts,
                        offsets,
                        kind,
                        output,
                        count,
                        kind,
                        root,
                        group
                    )
                })
            }
        }
    }

    /// Whether this MPI reduces these numbers rightly: tried once at the start, for MPICH 4.0 orders unsigned
    /// numbers as if they were signed.
    pub fn can_reduce(&self, number: Number, op: Op) -> bool {
        !self.session.wrong.contains(&(number, op))
    }

    /// The type's handle, if it is reduced rightly.
    fn sure(&self, number: Number, op: Op) -> Result<Handle, Error> {
        if self.can_reduce(number, op) {
            return Ok(self.session.constants().number(number));
        }
        Err(Error::Unreliable { library: self.session.library.identity().name.clone(), number, op })
    }

    fn only_root(&self, in_place: bool, root: u32) -> Result<(), Error> {
        if in_place && self.rank() != root {
            return Err(Error::invalid("only the root's block can stay in place"));
        }
        Ok(())
    }
}
