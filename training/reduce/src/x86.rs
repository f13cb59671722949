//! The paths of x86-64: the same loops, compiled for more instructions, and the processor's own conversion of halves.
#![expect(unsafe_code, reason = "functions for processors that have their instructions")]
#![expect(
    clippy::inline_always,
    reason = "inlined into functions compiled for more instructions, and only so uses them"
)]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps,
    _mm256_and_si256, _mm256_blend_epi16, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps,
    _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_div_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32,
};

use crate::kernel::{Task, drive};
use crate::number::{Brain, Fold, Half, Max, Min, Number, Prod, Sum, SumOver, SumTimes};

/// Eight singles in a register. This and all that uses it is used only in functions that have AVX2 and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Singles(__m256);

macro_rules! fold {
    ($($op:ident: $left:ident, $right:ident => $total:expr),+) => { $(
        impl Fold<Singles> for $op {
            #[inline(always)]
            fn fold($left: Singles, $right: Singles) -> Singles {
                let (Singles($left), Singles($right)) = ($left, $right);
                // SAFETY: the function this is inlined into has the instructions.
                Singles(unsafe { $total })
            }
        }
    )+ };
}
fold!(
    Sum: left, right => _mm256_add_ps(left, right),
    Prod: left, right => _mm256_mul_ps(left, right),
    // The instruction gives `right` for equal elements, and if either is not a number.
    Min: left, right => unordered_first(left, _mm256_min_ps(left, right)),
    Max: left, right => unordered_first(left, _mm256_max_ps(left, right))
);

/// `left` where it is not a number, `otherwise` elsewhere.
#[inline(always)]
unsafe fn unordered_first(left: __m256, otherwise: __m256) -> __m256 {
    // SAFETY: the function this is inlined into has the instructions.
    unsafe { _mm256_blendv_ps(otherwise, left, _mm256_cmp_ps::<_CMP_UNORD_Q>(left, left)) }
}

impl Fold<Singles> for SumTimes {
    #[inline(always)]
    fn fold(left: Singles, right: Singles) -> Singles {
        Sum::fold(left, right)
    }

    #[inline(always)]
    fn finish(total: Singles, factor: f64) -> Singles {
        // SAFETY: the function this is inlined into has the instructions.
        Singles(unsafe { _mm256_mul_ps(total.0, _mm256_set1_ps(factor as f32)) })
    }
}

impl Fold<Singles> for SumOver {
    #[inline(always)]
    fn fold(left: Singles, right: Singles) -> Singles {
        Sum::fold(left, right)
    }

    #[inline(always)]
    fn finish(total: Singles, factor: f64) -> Singles {
        // SAFETY: the function this is inlined into has the instructions.
        Singles(unsafe { _mm256_div_ps(total.0, _mm256_set1_ps(factor as f32)) })
    }
}

/// Eight [halves](Half) at once.
enum Halves {}

impl Number for Halves {
    type Stored = __m128i;
    type Wide = Singles;
    const ELEMENTS: usize = 8;

    #[inline(always)]
    fn widen(stored: __m128i) -> Singles {
        // SAFETY: the function this is inlined into has the instruction.
        Singles(unsafe { _mm256_cvtph_ps(stored) })
    }

    #[inline(always)]
    fn narrow(wide: Singles) -> __m128i {
        // SAFETY: the function this is inlined into has the instruction.
        unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide.0) }
    }
}

/// Sixteen [`Brain`]s at once: those at even places and those at odd places, which need no shuffling.
enum Brains {}

impl Number for Brains {
    type Stored = __m256i;
    type Wide = [Singles; 2];
    const ELEMENTS: usize = 16;

    #[inline(always)]
    fn widen(stored: __m256i) -> [Singles; 2] {
        // SAFETY: the function this is inlined into has the instructions.
        unsafe {
            let even = _mm256_slli_epi32::<16>(stored);
            let odd = _mm256_and_si256(stored, _mm256_set1_epi32(!0xffff));
            [Singles(_mm256_castsi256_ps(even)), Singles(_mm256_castsi256_ps(odd))]
        }
    }

    #[inline(always)]
    fn narrow([even, odd]: [Singles; 2]) -> __m256i {
        // SAFETY: the function this is inlined into has the instructions.
        unsafe {
            let even = _mm256_srli_epi32::<16>(rounded(even));
            _mm256_blend_epi16::<0b1010_1010>(even, rounded(odd))
        }
    }
}

/// Singles whose upper halves are the nearest [`Brain`]s.
#[inline(always)]
unsafe fn rounded(Singles(value): Singles) -> __m256i {
    // SAFETY: the function this is inlined into has the instructions.
    unsafe {
        let bits = _mm256_castps_si256(value);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
        let not_a_number = _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value);
        _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), not_a_number))
    }
}

/// # Safety
///
/// As [`drive`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn avx2<N: Number, F: Fold<N::Wide>>(task: &Task<'_>) {
    // SAFETY: as the caller promises.
    unsafe { drive::<N, F>(task, 0..task.elements) };
}

/// # Safety
///
/// As [`drive`], on a processor with AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(crate) unsafe fn avx2_halves<F: Fold<f32> + Fold<Singles>>(task: &Task<'_>) {
    let whole = task.elements - task.elements % Halves::ELEMENTS;
    // SAFETY: as the caller promises.
    unsafe {
        drive::<Halves, F>(task, 0..whole);
        drive::<Half, F>(task, whole..task.elements);
    }
}

/// # Safety
///
/// As [`drive`], on a processor with AVX2.
#[target_feature(enable = "avx2,f16c")]
pub(crate) unsafe fn avx2_brains<F: Fold<f32> + Fold<Singles>>(task: &Task<'_>) {
    let whole = task.elements - task.elements % Brains::ELEMENTS;
    // SAFETY: as the caller promises.
    unsafe {
        drive::<Brains, F>(task, 0..whole);
        drive::<Brain, F>(task, whole..task.elements);
    }
}
