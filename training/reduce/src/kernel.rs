//! One pass over memory: the loops, and how the sources of a reduction are led through them.
//!
//! Up to two sources are folded straight into the output. More are folded in tiles that stay in the first-level cache: the
//! first two into a tile of totals, then two at a time, the last one or two into the output. Everything here is inlined
//! into functions that [`reduction`](crate::reduction) compiles for each path, so that the loops become its vector code.
#![expect(unsafe_code, reason = "tensors are given by address")]
#![expect(
    clippy::inline_always,
    reason = "inlined into functions compiled for more instructions, and only so uses them"
)]

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::slice;

use crate::copy::{fence, stream};
use crate::number::{Fold, Number};

/// One call of a reduction.
pub(crate) struct Task<'task> {
    pub(crate) outputs: &'task [*mut u8],
    pub(crate) sources: &'task [*const u8],
    /// How many elements each of them has.
    pub(crate) elements: usize,
    /// What [`Fold::finish`] gets.
    pub(crate) factor: f64,
    /// Whether outputs that are no source's memory are written past the caches.
    pub(crate) streaming: bool,
}

/// A value that lies anywhere, aligned or not.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Loose<T: Copy>(T);

/// Bytes of a tile. So few that the processor sees all sources as one flow each and reads ahead on all of them; with tiles of
/// four times this, eight sources from main memory take a third longer.
const TILE: usize = 1024;

/// Memory for intermediate results.
#[repr(C, align(64))]
struct Tile(MaybeUninit<[u8; TILE]>);

impl Tile {
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Where the last loop writes.
#[derive(Clone, Copy)]
enum Target {
    /// Into the first output, which is none of the sources the loop reads.
    Output,
    /// Into the first output, which is the first of two sources.
    Left,
    /// Into the first output, which is the second of two sources.
    Right,
    /// Into a tile, which is then copied to the outputs.
    Tile,
}

type Stored<N> = Loose<<N as Number>::Stored>;

/// Folds the elements in `range` of all sources into all outputs; the range's length is a multiple of [`Number::ELEMENTS`].
///
/// # Safety
///
/// As [`Reduction::run`](crate::Reduction::run), and there is a source and an output.
#[inline(always)]
pub(crate) unsafe fn drive<N: Number, F: Fold<N::Wide>>(task: &Task<'_>, range: Range<usize>) {
    let item = size_of::<N::Stored>();
    let first_byte = range.start * (item / N::ELEMENTS);
    let items = range.len() / N::ELEMENTS;
    let target = target(task);
    let straight = task.sources.len() <= 2 && task.outputs.len() == 1 && !matches!(target, Target::Tile);
    let tile_items = if straight { items } else { TILE / size_of::<N::Wide>() };
    let (mut totals, mut result) = (Tile::new(), Tile::new());

    let mut done = 0;
    while done < items {
        let at = first_byte + done * item;
        let count = tile_items.min(items - done);
        // SAFETY: `at` and the `count` items behind it are within the caller's `elements`; a tile has place for `tile_items`
        // values of either form; the target is none of the sources that its loop reads as shared slices.
        unsafe {
            let output = task.outputs[0].add(at);
            let written = match target {
                Target::Tile => result.start(),
                Target::Output | Target::Left | Target::Right => output,
            };
            match target {
                Target::Left => {
                    let output = slice::from_raw_parts_mut(output.cast(), count);
                    into_left::<N, F>(output, items_of::<N>(task, 1, at, count), task.factor);
                }
                Target::Right => {
                    let output = slice::from_raw_parts_mut(output.cast(), count);
                    into_right::<N, F>(output, items_of::<N>(task, 0, at, count), task.factor);
                }
                Target::Output | Target::Tile => {
                    let output = slice::from_raw_parts_mut(written.cast(), count);
                    fold_tile::<N, F>(task, output, totals.start().cast(), at);
                }
            }
            spread(task, written, at, count * item);
        }
        done += count;
    }
    if task.streaming {
        fence();
    }
}

/// Where the last loop may write without overwriting what it has still to read.
#[inline(always)]
fn target(task: &Task<'_>) -> Target {
    let sources = task.sources;
    let output = task.outputs[0].cast_const();
    if task.streaming {
        return Target::Tile;
    }
    if let [left, right] = sources {
        return match (*left == output, *right == output) {
            (false, false) => Target::Output,
            (true, false) => Target::Left,
            (false, true) => Target::Right,
            (true, true) => Target::Tile,
        };
    }
    let last = &sources[sources.len() - last_loop(sources.len())..];
    if last.contains(&output) { Target::Tile } else { Target::Output }
}

/// How many sources the last loop reads: the first two and then pairs of them have gone before.
#[inline(always)]
const fn last_loop(sources: usize) -> usize {
    if sources % 2 == 1 { 1 } else { 2 }
}

/// Part of a source.
///
/// # Safety
///
/// The source can be read there, and is not written while the slice lives.
#[inline(always)]
unsafe fn items_of<'source, N: Number + 'source>(
    task: &Task<'_>,
    source: usize,
    at: usize,
    count: usize,
) -> &'source [Stored<N>] {
    // SAFETY: as the caller promises; the items may lie anywhere.
    unsafe { slice::from_raw_parts(task.sources[source].add(at).cast(), count) }
}

/// Folds all sources' items from byte `at` on into `output`.
///
/// # Safety
///
/// All sources can be read there, `totals` has place for as many values as `output`, and `output` is none of the sources of
/// the [last loop](last_loop).
#[inline(always)]
unsafe fn fold_tile<N: Number, F: Fold<N::Wide>>(
    task: &Task<'_>,
    output: &mut [MaybeUninit<Stored<N>>],
    totals: *mut N::Wide,
    at: usize,
) {
    let count = output.len();
    let sources = task.sources.len();
    // SAFETY: `source` is called for sources that the caller allows to be read; `totals` is written by `begin` before it is read.
    unsafe {
        let source = |number| items_of::<N>(task, number, at, count);
        match sources {
            1 => return alone::<N, F>(output, source(0), task.factor),
            2 => return both::<N, F>(output, source(0), source(1), task.factor),
            _ => begin::<N, F>(slice::from_raw_parts_mut(totals.cast(), count), source(0), source(1)),
        }
        let totals = slice::from_raw_parts_mut(totals, count);
        let last = sources - last_loop(sources);
        for next in (2..last).step_by(2) {
            go_on::<N, F>(totals, source(next), source(next + 1));
        }
        if last_loop(sources) == 1 {
            end_one::<N, F>(output, totals, source(last), task.factor);
        } else {
            end_two::<N, F>(output, totals, source(last), source(last + 1), task.factor);
        }
    }
}

/// Copies a tile's result to all outputs that do not have it.
///
/// # Safety
///
/// `written` can be read and the outputs written for `bytes` bytes from byte `at` on.
#[inline(always)]
unsafe fn spread(task: &Task<'_>, written: *const u8, at: usize, bytes: usize) {
    for &output in task.outputs {
        // SAFETY: as the caller promises; outputs are disjoint, and tiles are nobody else's.
        unsafe {
            let to = output.add(at);
            if to.cast_const() == written {
                continue;
            }
            if task.streaming && !task.sources.contains(&output.cast_const()) {
                stream(to, written, bytes);
            } else {
                ptr::copy_nonoverlapping(written, to, bytes);
            }
        }
    }
}

/// One source.
#[inline(always)]
fn alone<N: Number, F: Fold<N::Wide>>(output: &mut [MaybeUninit<Stored<N>>], only: &[Stored<N>], factor: f64) {
    for (output, only) in output.iter_mut().zip(only) {
        output.write(Loose(N::narrow(F::finish(N::widen(only.0), factor))));
    }
}

/// Two sources.
#[inline(always)]
fn both<N: Number, F: Fold<N::Wide>>(
    output: &mut [MaybeUninit<Stored<N>>],
    left: &[Stored<N>],
    right: &[Stored<N>],
    factor: f64,
) {
    for ((output, left), right) in output.iter_mut().zip(left).zip(right) {
        output.write(Loose(N::narrow(F::finish(F::fold(N::widen(left.0), N::widen(right.0)), factor))));
    }
}

/// Two sources, into the first.
#[inline(always)]
fn into_left<N: Number, F: Fold<N::Wide>>(left: &mut [Stored<N>], right: &[Stored<N>], factor: f64) {
    for (left, right) in left.iter_mut().zip(right) {
        left.0 = N::narrow(F::finish(F::fold(N::widen(left.0), N::widen(right.0)), factor));
    }
}

/// Two sources, into the second.
#[inline(always)]
fn into_right<N: Number, F: Fold<N::Wide>>(right: &mut [Stored<N>], left: &[Stored<N>], factor: f64) {
    for (right, left) in right.iter_mut().zip(left) {
        right.0 = N::narrow(F::finish(F::fold(N::widen(left.0), N::widen(right.0)), factor));
    }
}

/// The first two of many sources.
#[inline(always)]
fn begin<N: Number, F: Fold<N::Wide>>(totals: &mut [MaybeUninit<N::Wide>], left: &[Stored<N>], right: &[Stored<N>]) {
    for ((total, left), right) in totals.iter_mut().zip(left).zip(right) {
        total.write(F::fold(N::widen(left.0), N::widen(right.0)));
    }
}

/// Two more.
#[inline(always)]
fn go_on<N: Number, F: Fold<N::Wide>>(totals: &mut [N::Wide], first: &[Stored<N>], second: &[Stored<N>]) {
    for ((total, first), second) in totals.iter_mut().zip(first).zip(second) {
        *total = F::fold(F::fold(*total, N::widen(first.0)), N::widen(second.0));
    }
}

/// The last one.
#[inline(always)]
fn end_one<N: Number, F: Fold<N::Wide>>(
    output: &mut [MaybeUninit<Stored<N>>],
    totals: &[N::Wide],
    last: &[Stored<N>],
    factor: f64,
) {
    for ((output, total), last) in output.iter_mut().zip(totals).zip(last) {
        output.write(Loose(N::narrow(F::finish(F::fold(*total, N::widen(last.0)), factor))));
    }
}

/// The last two.
#[inline(always)]
fn end_two<N: Number, F: Fold<N::Wide>>(
    output: &mut [MaybeUninit<Stored<N>>],
    totals: &[N::Wide],
    first: &[Stored<N>],
    second: &[Stored<N>],
    factor: f64,
) {
    for (((output, total), first), second) in output.iter_mut().zip(totals).zip(first).zip(second) {
        let total = F::fold(F::fold(*total, N::widen(first.0)), N::widen(second.0));
        output.write(Loose(N::narrow(F::finish(total, factor))));
    }
}
