//! MPI's own collectives, each with its memory as one value.

use libc::c_int;

use crate::number::{Number, Op, Width};

/// Where a collective's input lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// In memory of its own.
    At(*const u8),
    /// In the output, as [`Collective`] says for each.
    InPlace,
}

/// One block for each rank, in elements.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    /// Their lengths.
    pub counts: &'a [usize],
    /// Where each begins.
    pub offsets: &'a [usize],
}

/// A collective and its memory. Counts are elements. `Blocks` and the output (for scatter: the input) that
/// only the root uses may be empty and null elsewhere.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the fields are those of the MPI function of the same name")]
pub enum Collective<'a> {
    Barrier,
    Broadcast {
        data: *mut u8,
        elements: usize,
        width: Width,
        root: u32,
    },
    /// In place: the input is in the output.
    AllReduce {
        input: Input,
        output: *mut u8,
        elements: usize,
        number: Number,
        op: Op,
    },
    /// In place: the input is in the output, at every rank; only the root's changes.
    Reduce {
        input: Input,
        output: *mut u8,
        elements: usize,
        number: Number,
        op: Op,
        root: u32,
    },
    /// `elements` are those of one block. In place: all blocks are in the output, and the result at its start.
    ReduceScatterBlock {
        input: Input,
        output: *mut u8,
        elements: usize,
        number: Number,
        op: Op,
    },
    /// Never in place: MPICH copies a block over itself where it is longer than its offset.
    ReduceScatter {
        input: *const u8,
        output: *mut u8,
        counts: &'a [usize],
        number: Number,
        op: Op,
    },
    /// `elements` are those of one block. In place: the own block is at its place in the output.
    AllGather {
        input: Input,
        output: *mut u8,
        elements: usize,
        width: Width,
    },
    /// In place: the own block is at its place in the output.
    AllGatherV {
        input: Input,
        elements: usize,
        output: *mut u8,
        blocks: Blocks<'a>,
        width: Width,
    },
    /// `elements` are those of one block. In place: the blocks to send are in the output.
    AllToAll {
        input: Input,
        output: *mut u8,
        elements: usize,
        width: Width,
    },
    /// In place: the blocks to send are in the output, placed as `received`.
    AllToAllV {
        input: Input,
        sent: Blocks<'a>,
        output: *mut u8,
        received: Blocks<'a>,
        width: Width,
    },
    /// `elements` are those of one block. In place, at the root only: the own block is at its place.
    Gather {
        input: Input,
        output: *mut u8,
        elements: usize,
        width: Width,
        root: u32,
    },
    /// In place, at the root only: the own block is at its place.
    GatherV {
        input: Input,
        elements: usize,
        output: *mut u8,
        blocks: Blocks<'a>,
        width: Width,
        root: u32,
    },
    /// `elements` are those of one block. No output, at the root only: the own block stays in the input.
    Scatter {
        input: *const u8,
        output: Option<*mut u8>,
        elements: usize,
        width: Width,
        root: u32,
    },
    /// No output, at the root only: the own block stays in the input.
    ScatterV {
        input: *const u8,
        blocks: Blocks<'a>,
        output: Option<*mut u8>,
        elements: usize,
        width: Width,
        root: u32,
    },
}

/// Elements that one call of MPI surely takes, where a longer one can be cut.
const PIECE: usize = 1 << 30;

/// The pieces of a collective that is too long for one call and can be cut; none for all others.
pub(crate) fn pieces<'a>(collective: &Collective<'a>) -> Option<Vec<Collective<'a>>> {
    let (Collective::Broadcast { elements, .. }
    | Collective::AllReduce { elements, .. }
    | Collective::Reduce { elements, .. }) = *collective
    else {
        return None;
    };
    if c_int::try_from(elements).is_ok() {
        return None;
    }
    let starts = (0..elements).step_by(PIECE);
    Some(starts.map(|start| piece(collective, start, PIECE.min(elements - start))).collect())
}

/// The piece of `length` elements from `start` on.
fn piece<'a>(collective: &Collective<'a>, start: usize, length: usize) -> Collective<'a> {
    let later = |input: Input, bytes: usize| match input {
        Input::At(at) => Input::At(at.wrapping_add(bytes)),
        Input::InPlace => Input::InPlace,
    };
    let mut cut = *collective;
    match &mut cut {
        Collective::Broadcast { data, elements, width, .. } => {
            *data = data.wrapping_add(start * width.size());
            *elements = length;
        }
        Collective::AllReduce { input, output, elements, number, .. }
        | Collective::Reduce { input, output, elements, number, .. } => {
            let bytes = start * number.size();
            *input = later(*input, bytes);
            *output = output.wrapping_add(bytes);
            *elements = length;
        }
        _ => {}
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_long_is_cut_and_the_pieces_are_the_whole() {
        let whole = |elements| Collective::AllReduce {
            input: Input::At(std::ptr::without_provenance(4096)),
            output: std::ptr::without_provenance_mut(8192),
            elements,
            number: Number::F64,
            op: Op::Sum,
        };
        assert!(pieces(&whole(c_int::MAX as usize)).is_none());
        assert!(pieces(&Collective::Barrier).is_none());
        let cut = pieces(&whole((1 << 31) + 5)).unwrap();
        let seen: Vec<(usize, usize, usize)> = cut
            .iter()
            .map(|piece| match *piece {
                Collective::AllReduce { input: Input::At(input), output, elements, .. } => {
                    (input.addr(), output.addr(), elements)
                }
                _ => panic!("{piece:?}"),
            })
            .collect();
        let step = 8 << 30;
        assert_eq!(
            seen,
            [(4096, 8192, 1 << 30), (4096 + step, 8192 + step, 1 << 30), (4096 + 2 * step, 8192 + 2 * step, 5)],
        );
    }
}
