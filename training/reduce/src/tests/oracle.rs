//! What reductions must give, computed one element at a time and as plainly as can be.

use crate::{DType, ReduceOp};

/// The fold of the sources' elements, in their order.
pub(super) fn fold(dtype: DType, op: ReduceOp, divisor: Option<u32>, sources: &[&[u8]]) -> Vec<u8> {
    let size = dtype.size();
    let elements = sources[0].len() / size;
    let mut result = Vec::with_capacity(elements * size);
    for element in 0..elements {
        let column: Vec<&[u8]> = sources.iter().map(|source| &source[element * size..][..size]).collect();
        match dtype {
            DType::F32 => {
                let values = column.iter().map(|bytes| f32::from_ne_bytes(bytes.to_vec().try_into().unwrap()));
                let total = single(op, values);
                result.extend(divisor.map_or(total, |divisor| total / divisor as f32).to_ne_bytes());
            }
            DType::F64 => {
                let values = column.iter().map(|bytes| f64::from_ne_bytes(bytes.to_vec().try_into().unwrap()));
                let total = double(op, values);
                result.extend(divisor.map_or(total, |divisor| total / f64::from(divisor)).to_ne_bytes());
            }
            DType::F16 | DType::BF16 => {
                let format = if dtype == DType::F16 { HALF } else { BRAIN };
                let values = column.iter().map(|bytes| format.value(u16::from_ne_bytes([bytes[0], bytes[1]])) as f32);
                let total = single(op, values);
                let total = divisor.map_or(total, |divisor| total / divisor as f32);
                result.extend(format.nearest(total).to_ne_bytes());
            }
            DType::Bool => {
                let mut values = column.iter().map(|bytes| bytes[0] != 0);
                let total = match op {
                    ReduceOp::Sum | ReduceOp::Max | ReduceOp::Avg => values.any(|value| value),
                    ReduceOp::Min | ReduceOp::Prod => values.all(|value| value),
                };
                result.push(u8::from(total));
            }
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                result.extend(whole(op, divisor, &column, true));
            }
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                result.extend(whole(op, divisor, &column, false));
            }
        }
    }
    result
}

/// Whether the elements are the same, bit for bit; what is not a number is the same as any other such.
pub(super) fn same(dtype: DType, left: &[u8], right: &[u8]) -> bool {
    let size = dtype.size();
    left.len() == right.len()
        && left
            .chunks(size)
            .zip(right.chunks(size))
            .all(|(left, right)| left == right || (is_not_a_number(dtype, left) && is_not_a_number(dtype, right)))
}

fn is_not_a_number(dtype: DType, bytes: &[u8]) -> bool {
    match dtype {
        DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::F16 => HALF.value(u16::from_ne_bytes(bytes.try_into().unwrap())).is_nan(),
        DType::BF16 => BRAIN.value(u16::from_ne_bytes(bytes.try_into().unwrap())).is_nan(),
        _ => false,
    }
}

fn single(op: ReduceOp, values: impl Iterator<Item = f32>) -> f32 {
    let step = |left: f32, right: f32| match op {
        ReduceOp::Sum | ReduceOp::Avg => left + right,
        ReduceOp::Prod => left * right,
        _ if left.is_nan() || right.is_nan() => f32::NAN,
        ReduceOp::Min if left < right => left,
        ReduceOp::Max if left > right => left,
        ReduceOp::Min | ReduceOp::Max => right,
    };
    values.reduce(step).unwrap()
}

fn double(op: ReduceOp, values: impl Iterator<Item = f64>) -> f64 {
    let step = |left: f64, right: f64| match op {
        ReduceOp::Sum | ReduceOp::Avg => left + right,
        ReduceOp::Prod => left * right,
        _ if left.is_nan() || right.is_nan() => f64::NAN,
        ReduceOp::Min if left < right => left,
        ReduceOp::Max if left > right => left,
        ReduceOp::Min | ReduceOp::Max => right,
    };
    values.reduce(step).unwrap()
}

/// The fold of integers, as many bytes as they have.
fn whole(op: ReduceOp, divisor: Option<u32>, column: &[&[u8]], signed: bool) -> Vec<u8> {
    let size = column[0].len();
    let total = column.iter().map(|bytes| integer(bytes, signed)).reduce(|left, right| step(op, left, right)).unwrap();
    // The sum has wrapped before it is divided.
    let total = integer(&low_bytes(total)[..size], signed);
    low_bytes(total / i128::from(divisor.unwrap_or(1)))[..size].to_vec()
}

/// Integers are folded as 128 bits and cut to their lowest 64, which wraps every smaller size as well.
fn step(op: ReduceOp, left: i128, right: i128) -> i128 {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => i128::from((left + right) as i64),
        ReduceOp::Prod => i128::from(left.wrapping_mul(right) as i64),
        ReduceOp::Min => left.min(right),
        ReduceOp::Max => left.max(right),
    }
}

fn integer(bytes: &[u8], signed: bool) -> i128 {
    let negative = signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn low_bytes(value: i128) -> [u8; 16] {
    value.to_le_bytes()
}

/// A floating point format of 16 bits, by its definition.
pub(super) struct Format {
    exponent_bits: u32,
}

pub(super) const HALF: Format = Format { exponent_bits: 5 };
pub(super) const BRAIN: Format = Format { exponent_bits: 8 };

impl Format {
    fn fraction_bits(&self) -> u32 {
        15 - self.exponent_bits
    }

    /// The bits of positive infinity: all greater ones are not numbers.
    pub(super) fn infinity(&self) -> u16 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits()
    }

    /// What the bits mean.
    pub(super) fn value(&self, bits: u16) -> f64 {
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let magnitude = bits & 0x7fff;
        if magnitude >= self.infinity() {
            return if magnitude == self.infinity() { sign * f64::INFINITY } else { f64::NAN };
        }
        sign * self.finite(magnitude)
    }

    /// A positive number's value; also that which infinity would have as a number.
    fn finite(&self, magnitude: u16) -> f64 {
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let exponent = i32::from(magnitude >> self.fraction_bits());
        let fraction = f64::from(magnitude & ((1 << self.fraction_bits()) - 1)) / f64::from(1 << self.fraction_bits());
        if exponent == 0 { fraction * 2_f64.powi(1 - bias) } else { (1.0 + fraction) * 2_f64.powi(exponent - bias) }
    }

    /// The bits nearest to a value, by comparing with its neighbours: of two as near, the even one.
    pub(super) fn nearest(&self, value: f32) -> u16 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        if value.is_nan() {
            return 0x7fff;
        }
        let value = f64::from(value.abs());
        let (mut below, mut above) = (0_u16, self.infinity());
        if value >= self.finite(above) {
            return sign | above;
        }
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if self.finite(middle) <= value {
                below = middle;
            } else {
                above = middle;
            }
        }
        let (down, up) = (value - self.finite(below), self.finite(above) - value);
        let even = if below.is_multiple_of(2) { below } else { above };
        sign | if down < up {
            below
        } else if up < down {
            above
        } else {
            even
        }
    }
}
