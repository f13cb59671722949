//! A reduction, chosen once for a type, an operation and a path.
#![expect(
    unsafe_code,
    reason = "tensors are given by address, and paths are functions for processors that have their instructions"
)]

use crate::kernel::{Task, drive};
use crate::number::{Brain, Fold, Half, Max, Min, Number, Prod, Sum, SumOver, SumTimes, Truth};
use crate::path::Path;
use crate::types::{DType, ReduceOp, Undefined};
#[cfg(target_arch = "x86_64")]
use crate::x86;

/// Folds sources into outputs. Cheap to copy; as quick to make as to look up.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    kernel: Kernel,
    dtype: DType,
    factor: f64,
    /// Whether one source is its own result, byte for byte.
    keeps_one: bool,
}

/// A whole pass, for one type, operation and path.
///
/// Safe to call as [`Reduction::run`] is, with at least one source and output, on a processor with the path's instructions.
type Kernel = unsafe fn(&Task<'_>);

impl Reduction {
    /// The reduction on the [best path](Path::best).
    ///
    /// `divisor` is how an average ends: the sum is divided by it. It is `None` while sums are only intermediate.
    pub fn new(dtype: DType, op: ReduceOp, divisor: Option<u32>) -> Result<Self, Undefined> {
        Self::on(Path::best(), dtype, op, divisor)
    }

    /// The reduction on that path, or on the best one if the processor has not its instructions.
    pub fn on(path: Path, dtype: DType, op: ReduceOp, divisor: Option<u32>) -> Result<Self, Undefined> {
        if !op.defined_for(dtype) {
            return Err(Undefined::Operation { op, dtype });
        }
        let (end, factor) = match (op, divisor) {
            (ReduceOp::Avg, Some(0)) => return Err(Undefined::ZeroDivisor),
            (_, None) | (ReduceOp::Avg, Some(1)) => (End::Nothing, 1.0),
            (ReduceOp::Avg, Some(divisor)) if dtype.is_float() && divisor.is_power_of_two() => {
                (End::Times, 1.0 / f64::from(divisor))
            }
            (ReduceOp::Avg, Some(divisor)) => (End::Over, f64::from(divisor)),
            (_, Some(_)) => return Err(Undefined::Divisor { op }),
        };
        let path = if path.is_available() { path } else { Path::best() };
        let keeps_one = end == End::Nothing && dtype != DType::Bool;
        Ok(Self { kernel: kernel(path, dtype, op, end), dtype, factor, keeps_one })
    }

    /// The type of the elements.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// `outputs[k][i]` becomes the fold of `sources[0][i]`, `sources[1][i]`, … for every output `k`.
    ///
    /// # Panics
    ///
    /// If there is no source.
    ///
    /// # Safety
    ///
    /// Every source can be read and every output written for `elements` elements of the reduction's [type](Self::dtype), at
    /// any alignment; nobody else writes them meanwhile. Sources may overlap. Outputs are disjoint from one another and from
    /// all sources, except that an output may be exactly a source: same address.
    pub unsafe fn run(&self, outputs: &[*mut u8], sources: &[*const u8], elements: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.pass(outputs, sources, elements, false) };
    }

    /// As [`run`](Self::run), but outputs that are no sources are written past the caches. A later release store publishes
    /// them as usual.
    ///
    /// Worth it only for more than the last-level cache holds, and only if nobody reads the outputs soon: then two sources
    /// are done about a fifth sooner, a [`copy`](crate::copy()) a third; within the caches both lose.
    ///
    /// # Panics
    ///
    /// If there is no source.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    pub unsafe fn run_streaming(&self, outputs: &[*mut u8], sources: &[*const u8], elements: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.pass(outputs, sources, elements, true) };
    }

    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn pass(&self, outputs: &[*mut u8], sources: &[*const u8], elements: usize, streaming: bool) {
        assert!(!sources.is_empty(), "a reduction of no sources");
        if elements == 0 || outputs.is_empty() {
            return;
        }
        let in_place = |output: &*mut u8| sources.contains(&output.cast_const());
        if let &[only] = sources
            && self.keeps_one
        {
            for &output in outputs.iter().filter(|output| !in_place(output)) {
                // SAFETY: the output is not the source, so they are disjoint; both have `elements` elements.
                unsafe { crate::copy(output, only, elements * self.dtype.size(), streaming) };
            }
            return;
        }
        let streaming = streaming && !outputs.iter().all(in_place);
        let task = Task { outputs, sources, elements, factor: self.factor, streaming };
        // SAFETY: as the caller promises; the kernel's path was found available when it was chosen.
        unsafe { (self.kernel)(&task) };
    }
}

/// How a reduction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Nothing,
    /// Multiplied by the factor.
    Times,
    /// Divided by the factor.
    Over,
}

/// The operation's passes for floating point.
macro_rules! float {
    ($op:expr, $end:expr, $fold:ident => $pass:expr) => {
        match ($op, $end) {
            (ReduceOp::Sum | ReduceOp::Avg, End::Nothing) => {
                type $fold = Sum;
                $pass
            }
            (ReduceOp::Sum | ReduceOp::Avg, End::Times) => {
                type $fold = SumTimes;
                $pass
            }
            (ReduceOp::Sum | ReduceOp::Avg, End::Over) => {
                type $fold = SumOver;
                $pass
            }
            (ReduceOp::Min, _) => {
                type $fold = Min;
                $pass
            }
            (ReduceOp::Max, _) => {
                type $fold = Max;
                $pass
            }
            (ReduceOp::Prod, _) => {
                type $fold = Prod;
                $pass
            }
        }
    };
}

/// The pass for a type, an operation it is defined for, and an end that is the operation's.
fn kernel(path: Path, dtype: DType, op: ReduceOp, end: End) -> Kernel {
    match dtype {
        DType::F32 => float!(op, end, F => on_path::<f32, F>(path)),
        DType::F64 => float!(op, end, F => on_path::<f64, F>(path)),
        DType::F16 => float!(op, end, F => match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => x86::avx2_halves::<F>,
            path => on_path::<Half, F>(path),
        }),
        DType::BF16 => float!(op, end, F => match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => x86::avx2_brains::<F>,
            path => on_path::<Brain, F>(path),
        }),
        DType::I8 => integer::<i8, u8>(path, op, end),
        DType::U8 => integer::<u8, u8>(path, op, end),
        DType::I16 => integer::<i16, u16>(path, op, end),
        DType::U16 => integer::<u16, u16>(path, op, end),
        DType::I32 => integer::<i32, u32>(path, op, end),
        DType::U32 => integer::<u32, u32>(path, op, end),
        DType::I64 => integer::<i64, u64>(path, op, end),
        DType::U64 => integer::<u64, u64>(path, op, end),
        DType::Bool => match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Max => on_path::<Truth, Max>(path),
            ReduceOp::Min | ReduceOp::Prod => on_path::<Truth, Min>(path),
        },
    }
}

/// `Wrapping` is the unsigned type of the same size.
fn integer<N: Number, Wrapping: Number>(path: Path, op: ReduceOp, end: End) -> Kernel
where
    Min: Fold<N::Wide>,
    Max: Fold<N::Wide>,
    SumOver: Fold<N::Wide>,
    Sum: Fold<Wrapping::Wide>,
    Prod: Fold<Wrapping::Wide>,
{
    match op {
        ReduceOp::Avg if end != End::Nothing => on_path::<N, SumOver>(path),
        ReduceOp::Sum | ReduceOp::Avg => on_path::<Wrapping, Sum>(path),
        ReduceOp::Prod => on_path::<Wrapping, Prod>(path),
        ReduceOp::Min => on_path::<N, Min>(path),
        ReduceOp::Max => on_path::<N, Max>(path),
    }
}

#[cfg(target_arch = "x86_64")]
fn on_path<N: Number, F: Fold<N::Wide>>(path: Path) -> Kernel {
    match path {
        Path::Portable => portable::<N, F>,
        Path::Avx2 => x86::avx2::<N, F>,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn on_path<N: Number, F: Fold<N::Wide>>(_: Path) -> Kernel {
    portable::<N, F>
}

/// # Safety
///
/// As [`Kernel`].
unsafe fn portable<N: Number, F: Fold<N::Wide>>(task: &Task<'_>) {
    // SAFETY: as the caller promises.
    unsafe { drive::<N, F>(task, 0..task.elements) };
}
