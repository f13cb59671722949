//! The two 16-bit floating point formats, converted without branches, so that compilers can make vector code of the
//! loops around them. Every value of 16 bits is exact in single precision; the way back rounds to nearest, ties to even.
#![expect(
    clippy::inline_always,
    reason = "inlined into functions compiled for more instructions, and only so uses them"
)]

use std::hint::select_unpredictable;

/// A `bfloat16` in single precision.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The `bfloat16` nearest to a single; what is not a number stays so, made quiet.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    select_unpredictable(bits & 0x7fff_ffff > 0x7f80_0000, quiet, rounded) as u16
}

/// An IEEE half in single precision; what is not a number stays so, made quiet.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = (u32::from(bits) & 0x8000) << 16;
    let magnitude = u32::from(bits) & 0x7fff;
    let shifted = magnitude << 13;
    let normal = shifted + (112 << 23);
    let special = (shifted + (224 << 23)) | (u32::from(magnitude > 0x7c00) << 22);
    // A subnormal's digits below a leading one of 2^-14, which is then taken away: exact.
    let subnormal = (f32::from_bits(shifted + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let finite = select_unpredictable(magnitude < 0x0400, subnormal, normal);
    let magnitude = select_unpredictable(magnitude >= 0x7c00, special, finite);
    f32::from_bits(sign | magnitude)
}

/// The IEEE half nearest to a single: too great becomes infinite, what is not a number stays so, made quiet.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0x0fff + odd) >> 13;
    // Adding one half puts the subnormal's last digit where a single's is: the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(126 << 23);
    let quiet = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    let special = select_unpredictable(magnitude > 0x7f80_0000, quiet, 0x7c00);
    let finite = select_unpredictable(magnitude < 0x3880_0000, subnormal, normal);
    let magnitude = select_unpredictable(magnitude >= 0x4780_0000, special, finite);
    (sign | magnitude) as u16
}
