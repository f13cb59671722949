//! How elements lie in memory and what is computed with them.
#![expect(
    clippy::inline_always,
    reason = "inlined into functions compiled for more instructions, and only so uses them"
)]

use std::hint::select_unpredictable;

use crate::half;

/// Elements as they lie in memory, and the form in which they are folded.
pub(crate) trait Number {
    /// In memory.
    type Stored: Copy;
    /// While several are folded.
    type Wide: Copy;
    /// Elements of the tensor in one value.
    const ELEMENTS: usize = 1;

    /// From memory.
    fn widen(stored: Self::Stored) -> Self::Wide;
    /// Into memory.
    fn narrow(wide: Self::Wide) -> Self::Stored;
}

/// An operation on two values, and what is done with the last result.
///
/// Nothing here is a choice whether a value stays as it lies: in place, it would become a store under a condition, and that
/// is slow.
pub(crate) trait Fold<Wide> {
    /// `left` comes from sources before `right`.
    fn fold(left: Wide, right: Wide) -> Wide;

    /// Ends an average; `factor` is what its operation says.
    #[inline(always)]
    fn finish(total: Wide, factor: f64) -> Wide {
        let _ = factor;
        total
    }
}

/// The sum; integers wrap.
pub(crate) enum Sum {}
/// The sum times a factor: an average over a power of two, as exact as a division.
pub(crate) enum SumTimes {}
/// The sum divided; of integers toward zero.
pub(crate) enum SumOver {}
/// The smallest.
pub(crate) enum Min {}
/// The greatest.
pub(crate) enum Max {}
/// The product; integers wrap.
pub(crate) enum Prod {}

/// Primitive types are folded as they are.
macro_rules! plain {
    ($($type:ty),+) => { $(
        impl Number for $type {
            type Stored = Self;
            type Wide = Self;

            #[inline(always)]
            fn widen(stored: Self) -> Self {
                stored
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }
        }
    )+ };
}
plain!(f32, f64, i8, u8, i16, u16, i32, u32, i64, u64);

/// `float16`, one at a time.
pub(crate) enum Half {}

impl Number for Half {
    type Stored = u16;
    type Wide = f32;

    #[inline(always)]
    fn widen(stored: u16) -> f32 {
        half::f16_to_f32(stored)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> u16 {
        half::f32_to_f16(wide)
    }
}

/// `bfloat16`.
pub(crate) enum Brain {}

impl Number for Brain {
    type Stored = u16;
    type Wide = f32;

    #[inline(always)]
    fn widen(stored: u16) -> f32 {
        half::bf16_to_f32(stored)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> u16 {
        half::f32_to_bf16(wide)
    }
}

/// A truth value; its greatest is "or", its smallest "and".
pub(crate) enum Truth {}

impl Number for Truth {
    type Stored = u8;
    type Wide = u8;

    #[inline(always)]
    fn widen(stored: u8) -> u8 {
        u8::from(stored != 0)
    }

    #[inline(always)]
    fn narrow(wide: u8) -> u8 {
        wide
    }
}

/// Floating point: what is not a number wins.
macro_rules! floats {
    ($($type:ident: $factor:expr),+) => { $(
        impl Fold<$type> for Sum {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left + right
            }
        }

        impl Fold<$type> for SumTimes {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left + right
            }

            #[inline(always)]
            fn finish(total: $type, factor: f64) -> $type {
                total * $factor(factor)
            }
        }

        impl Fold<$type> for SumOver {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left + right
            }

            #[inline(always)]
            fn finish(total: $type, factor: f64) -> $type {
                total / $factor(factor)
            }
        }

        impl Fold<$type> for Prod {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left * right
            }
        }

        impl Fold<$type> for Min {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                let number = select_unpredictable(left < right, left, right);
                select_unpredictable(left.is_nan(), left + right, number)
            }
        }

        impl Fold<$type> for Max {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                let number = select_unpredictable(left > right, left, right);
                select_unpredictable(left.is_nan(), left + right, number)
            }
        }
    )+ };
}
floats!(f32: (|factor: f64| factor as f32), f64: (|factor: f64| factor));

/// Integers of either sign, and the type that holds both them and any number of ranks.
macro_rules! signed {
    ($($type:ident: $wide:ident),+) => { $(
        impl Fold<$type> for SumOver {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left.wrapping_add(right)
            }

            #[inline(always)]
            fn finish(total: $type, factor: f64) -> $type {
                ($wide::from(total) / factor as $wide) as $type
            }
        }

        impl Fold<$type> for Min {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left.min(right)
            }
        }

        impl Fold<$type> for Max {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left.max(right)
            }
        }
    )+ };
}
signed!(i8: i64, u8: u64, i16: i64, u16: u64, i32: i64, u32: u64, i64: i64, u64: u64);

/// Sums and products that wrap are the same for both signs.
macro_rules! wrapping {
    ($($type:ident),+) => { $(
        impl Fold<$type> for Sum {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left.wrapping_add(right)
            }
        }

        impl Fold<$type> for Prod {
            #[inline(always)]
            fn fold(left: $type, right: $type) -> $type {
                left.wrapping_mul(right)
            }
        }
    )+ };
}
wrapping!(u8, u16, u32, u64);

/// Several at once are folded side by side.
impl<Op: Fold<Wide>, Wide: Copy, const LANES: usize> Fold<[Wide; LANES]> for Op {
    #[inline(always)]
    fn fold(left: [Wide; LANES], right: [Wide; LANES]) -> [Wide; LANES] {
        let mut total = left;
        for (total, right) in total.iter_mut().zip(right) {
            *total = Op::fold(*total, right);
        }
        total
    }

    #[inline(always)]
    fn finish(total: [Wide; LANES], factor: f64) -> [Wide; LANES] {
        total.map(|total| Op::finish(total, factor))
    }
}
