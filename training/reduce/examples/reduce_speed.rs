//! How fast reductions are here, beside copying: bytes read and written each second.
//!
//! `cargo run --release -p eirene-train-reduce --example reduce_speed [FIELD…]`
//!
//! Each argument keeps only the lines that have it as a field: `float32`, `avg`, `avx2`, `8x` … In each round every candidate
//! of a line runs once; the numbers are medians of rounds.
#![expect(unsafe_code, reason = "tensors are given by address")]
#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::env;
use std::hint::black_box;
use std::time::Instant;

use eirene_train_reduce::{DType, Path, ReduceOp, Reduction, copy};

const ROUNDS: usize = 9;
/// Seconds.
const BATCH: f64 = 1e-4;
const BATCHES: usize = 8;
const PAGE: usize = 4096;
const SIZES: [(usize, &str); 4] = [(16 << 10, "16K"), (256 << 10, "256K"), (4 << 20, "4M"), (64 << 20, "64M")];
const SOURCES: [usize; 4] = [2, 3, 4, 8];

/// Memory that begins at a page, plus a distance that keeps buffers from fighting for the same cache sets.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(bytes: usize, number: usize) -> Self {
        // One in both halves' formats and in single precision alike: nothing overflows or becomes subnormal.
        let memory: Vec<u8> = [0x80, 0x3f].into_iter().cycle().take(bytes + 3 * PAGE).collect();
        let start = memory.as_ptr().align_offset(PAGE) + number * 320 % PAGE;
        Self { memory, start }
    }

    fn read(&self) -> *const u8 {
        self.memory[self.start..].as_ptr()
    }

    fn write(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }
}

/// How many times `work` runs in a second: the best of some batches, for the others met somebody else on the processor.
fn rate(mut work: impl FnMut()) -> f64 {
    let mut batch = |times: u32| {
        let start = Instant::now();
        for _ in 0..times {
            work();
        }
        start.elapsed().as_secs_f64() / f64::from(times)
    };
    let once = batch(1).min(batch(1));
    let times = (BATCH / once).clamp(1.0, 1e6) as u32;
    1.0 / (0..BATCHES).map(|_| batch(times)).fold(once, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let paths: Vec<Path> = Path::ALL.into_iter().filter(|path| path.is_available()).collect();
    println!("best path: {}; gigabytes read and written each second", Path::best().name());
    println!("dtype    op   sources size path     copy  streaming | fresh  in-place  streaming  fresh/copy");
    let most = SIZES[SIZES.len() - 1].0;
    let sources: Vec<Buffer> = (0..SOURCES[SOURCES.len() - 1]).map(|number| Buffer::new(most, number)).collect();
    let mut output = Buffer::new(most, sources.len());

    for (bytes, size) in SIZES {
        for count in SOURCES {
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.defined_for(dtype)) {
                    for &path in &paths {
                        let many = format!("{count}x");
                        let fields = [dtype.name(), op.name(), &many, size, path.name()];
                        if !wanted.iter().all(|field| fields.contains(&field.as_str())) {
                            continue;
                        }
                        let divisor = (op == ReduceOp::Avg).then_some(count as u32);
                        let Ok(reduction) = Reduction::on(path, dtype, op, divisor) else { continue };
                        let from: Vec<*const u8> = sources.iter().take(count).map(Buffer::read).collect();
                        let [copied, reduced, replaced, streamed, past] =
                            measure(reduction, &from, output.write(), bytes, sources[0].read());
                        println!(
                            "{:<8} {:<4} {many:>3} {size:>6} {:<8} {copied:>6.1} {past:>6.1} | {reduced:>6.1} {replaced:>6.1} \
                             {streamed:>6.1} {:>6.2}",
                            dtype.name(),
                            op.name(),
                            path.name(),
                            reduced / copied,
                        );
                    }
                }
            }
        }
    }
}

/// Rates of: a plain copy, a fresh reduction, one in place of its first source, a streaming one, a streaming copy.
fn measure(reduction: Reduction, from: &[*const u8], output: *mut u8, bytes: usize, original: *const u8) -> [f64; 5] {
    let elements = bytes / reduction.dtype().size();
    let in_place: Vec<*const u8> = [output.cast_const()].into_iter().chain(from[1..].iter().copied()).collect();
    let (twice, all) = (2.0 * bytes as f64, (from.len() as f64 + 1.0) * bytes as f64);
    let mut rounds: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        // SAFETY: all buffers have `bytes` bytes and are disjoint, except where the output is the first source.
        unsafe {
            rounds[0].push(twice * rate(|| copy(black_box(output), black_box(original), bytes, false)));
            rounds[1].push(all * rate(|| reduction.run(&[black_box(output)], black_box(from), elements)));
            rounds[3].push(all * rate(|| reduction.run_streaming(&[black_box(output)], black_box(from), elements)));
            rounds[4].push(twice * rate(|| copy(black_box(output), black_box(original), bytes, true)));
            copy(output, original, bytes, false);
            rounds[2].push(all * rate(|| reduction.run(&[black_box(output)], black_box(&in_place), elements)));
        }
    }
    rounds.map(|rounds| median(rounds) / 1e9)
}
