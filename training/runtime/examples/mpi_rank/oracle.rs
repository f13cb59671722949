//! What collectives should give, by plain loops over numbers as texts of bytes.

use eirene_train_runtime::{DType, ReduceOp};

/// A number as an element of a type; only numbers that every type has.
pub(crate) fn element(dtype: DType, value: i32) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        DType::F64 => f64::from(value).to_ne_bytes().to_vec(),
        // Small whole numbers have a short mantissa: the upper half of a single is exact.
        DType::BF16 => ((value as f32).to_bits() >> 16).to_ne_bytes()[..2].to_vec(),
        DType::F16 => half(value).to_ne_bytes().to_vec(),
        DType::I8 => (value as i8).to_ne_bytes().to_vec(),
        DType::U8 => (value as u8).to_ne_bytes().to_vec(),
        DType::I16 => (value as i16).to_ne_bytes().to_vec(),
        DType::U16 => (value as u16).to_ne_bytes().to_vec(),
        DType::I32 => value.to_ne_bytes().to_vec(),
        DType::U32 => (value as u32).to_ne_bytes().to_vec(),
        DType::I64 => i64::from(value).to_ne_bytes().to_vec(),
        DType::U64 => (value as u64).to_ne_bytes().to_vec(),
        DType::Bool => vec![value as u8],
    }
}

/// A whole number from 0 to 2047 in half precision.
fn half(value: i32) -> u16 {
    if value == 0 {
        return 0;
    }
    let exponent = value.ilog2();
    let fraction = ((value as u32) << 10 >> exponent) & 0x3ff;
    (((exponent + 15) << 10) | fraction) as u16
}

/// What a rank gives as an element: 0 to 3, and for truth values any byte that is one.
pub(crate) fn given(dtype: DType, rank: usize, index: usize) -> i32 {
    let value = [1, 2, 3, 0, 2, 1][(index * 5 + rank * 2 + index / 6) % 6];
    if dtype == DType::Bool { [0, 1, 128, 0, 1, 255][(index * 5 + rank * 2 + index / 6) % 6] } else { value }
}

/// What becomes of all ranks' elements; averages only of what divides.
pub(crate) fn joined(dtype: DType, op: ReduceOp, ranks: usize, index: usize) -> i32 {
    let all = (0..ranks).map(|rank| given(dtype, rank, index));
    if dtype == DType::Bool {
        let mut truths = all.map(|value| value != 0);
        return i32::from(match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Avg => truths.any(|truth| truth),
            ReduceOp::Prod | ReduceOp::Min => truths.all(|truth| truth),
        });
    }
    match op {
        ReduceOp::Sum | ReduceOp::Avg => all.sum(),
        ReduceOp::Min => all.min().unwrap_or(0),
        ReduceOp::Max => all.max().unwrap_or(0),
        ReduceOp::Prod => all.product(),
    }
}

/// Elements `from..to` of a rank, as bytes.
pub(crate) fn input(dtype: DType, rank: usize, range: std::ops::Range<usize>) -> Vec<u8> {
    range.flat_map(|index| element(dtype, given(dtype, rank, index))).collect()
}

/// The same of all ranks joined. An average is a sum over the number of ranks.
pub(crate) fn result(dtype: DType, op: ReduceOp, ranks: usize, range: std::ops::Range<usize>) -> Vec<u8> {
    let value = |index| joined(dtype, op, ranks, index);
    let divisor = if op == ReduceOp::Avg { i32::try_from(ranks).unwrap_or(i32::MAX) } else { 1 };
    match (op, dtype) {
        (ReduceOp::Avg, DType::F32) => {
            range.flat_map(|index| (value(index) as f32 / ranks as f32).to_ne_bytes()).collect()
        }
        (ReduceOp::Avg, DType::F64) => {
            range.flat_map(|index| (f64::from(value(index)) / ranks as f64).to_ne_bytes()).collect()
        }
        _ => range.flat_map(|index| element(dtype, value(index) / divisor)).collect(),
    }
}
