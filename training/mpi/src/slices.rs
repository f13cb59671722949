//! The collectives on slices: checked lengths, waited for, no unsafe code for the caller.
#![expect(unsafe_code, reason = "hands checked slices to the raw form")]

use crate::collective::{Collective, Input};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::number::{Numeric, Op};

impl Communicator {
    /// Waits until all ranks are here.
    pub fn barrier(&self) -> Result<(), Error> {
        // SAFETY: no memory.
        unsafe { self.run(&Collective::Barrier) }
    }

    /// The root's data at all ranks.
    pub fn broadcast<T: Numeric>(&self, data: &mut [T], root: u32) -> Result<(), Error> {
        let call =
            Collective::Broadcast { data: data.as_mut_ptr().cast(), elements: data.len(), width: T::WIDTH, root };
        // SAFETY: the slice is borrowed for the call.
        unsafe { self.run(&call) }
    }

    /// All ranks' inputs joined, at all ranks.
    pub fn all_reduce<T: Numeric>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        same(input.len(), output.len())?;
        self.all_reduce_from(Input::At(input.as_ptr().cast()), output, op)
    }

    /// As [`Self::all_reduce`], the input in the output.
    pub fn all_reduce_in_place<T: Numeric>(&self, data: &mut [T], op: Op) -> Result<(), Error> {
        self.all_reduce_from(Input::InPlace, data, op)
    }

    fn all_reduce_from<T: Numeric>(&self, input: Input, output: &mut [T], op: Op) -> Result<(), Error> {
        let (elements, number) = (output.len(), T::NUMBER);
        let call = Collective::AllReduce { input, output: output.as_mut_ptr().cast(), elements, number, op };
        // SAFETY: both slices are borrowed for the call and as long as it says.
        unsafe { self.run(&call) }
    }

    /// All ranks' inputs joined, at the root; elsewhere the output is left alone and may be empty.
    pub fn reduce<T: Numeric>(&self, input: &[T], output: &mut [T], op: Op, root: u32) -> Result<(), Error> {
        if self.rank() == root {
            same(input.len(), output.len())?;
        }
        let call = Collective::Reduce {
            input: Input::At(input.as_ptr().cast()),
            output: output.as_mut_ptr().cast(),
            elements: input.len(),
            number: T::NUMBER,
            op,
            root,
        };
        // SAFETY: both slices are borrowed for the call; the output is written at the root only, where it is
        // as long as the input.
        unsafe { self.run(&call) }
    }

    /// All ranks' inputs joined, and each rank given its block.
    pub fn reduce_scatter<T: Numeric>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        same(input.len(), output.len() * self.size() as usize)?;
        let call = Collective::ReduceScatterBlock {
            input: Input::At(input.as_ptr().cast()),
            output: output.as_mut_ptr().cast(),
            elements: output.len(),
            number: T::NUMBER,
            op,
        };
        // SAFETY: both slices are borrowed for the call and as long as it says.
        unsafe { self.run(&call) }
    }

    /// All ranks' inputs one after the other, at all ranks.
    pub fn all_gather<T: Numeric>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        same(input.len() * self.size() as usize, output.len())?;
        let call = Collective::AllGather {
            input: Input::At(input.as_ptr().cast()),
            output: output.as_mut_ptr().cast(),
            elements: input.len(),
            width: T::WIDTH,
        };
        // SAFETY: both slices are borrowed for the call and as long as it says.
        unsafe { self.run(&call) }
    }

    /// Block `j` of rank `i` becomes block `i` of rank `j`.
    pub fn all_to_all<T: Numeric>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        same(input.len(), output.len())?;
        if !input.len().is_multiple_of(self.size() as usize) {
            return Err(Error::invalid(format!("{} elements do not divide among {} ranks", input.len(), self.size())));
        }
        let call = Collective::AllToAll {
            input: Input::At(input.as_ptr().cast()),
            output: output.as_mut_ptr().cast(),
            elements: input.len() / self.size() as usize,
            width: T::WIDTH,
        };
        // SAFETY: both slices are borrowed for the call and as long as it says.
        unsafe { self.run(&call) }
    }

    /// All ranks' inputs one after the other, at the root; elsewhere the output is left alone and may be empty.
    pub fn gather<T: Numeric>(&self, input: &[T], output: &mut [T], root: u32) -> Result<(), Error> {
        if self.rank() == root {
            same(input.len() * self.size() as usize, output.len())?;
        }
        let call = Collective::Gather {
            input: Input::At(input.as_ptr().cast()),
            output: output.as_mut_ptr().cast(),
            elements: input.len(),
            width: T::WIDTH,
            root,
        };
        // SAFETY: both slices are borrowed for the call; the output is written at the root only, where it is
        // long enough.
        unsafe { self.run(&call) }
    }

    /// The root's blocks, one for each rank; elsewhere the input is not read and may be empty.
    pub fn scatter<T: Numeric>(&self, input: &[T], output: &mut [T], root: u32) -> Result<(), Error> {
        if self.rank() == root {
            same(input.len(), output.len() * self.size() as usize)?;
        }
        let call = Collective::Scatter {
            input: input.as_ptr().cast(),
            output: Some(output.as_mut_ptr().cast()),
            elements: output.len(),
            width: T::WIDTH,
            root,
        };
        // SAFETY: both slices are borrowed for the call; the input is read at the root only, where it is long
        // enough.
        unsafe { self.run(&call) }
    }
}

fn same(left: usize, right: usize) -> Result<(), Error> {
    if left == right {
        return Ok(());
    }
    Err(Error::invalid(format!("{left} elements do not fit {right}")))
}
