//! What ranks give, and what has to come out: whole numbers so small that every type and every order of adding them is exact.

use eirene_train_runtime::{DType, ReduceOp};

fn is_signed(dtype: DType) -> bool {
    !matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool)
}

/// What rank `rank` of `size` gives as element `index`.
pub(crate) fn given(rank: usize, size: usize, index: usize, dtype: DType, op: Option<ReduceOp>) -> i64 {
    let any = i64::from(((rank * 31 + index * 7 + index / 64) % 64) as u32);
    let below = i64::from(is_signed(dtype));
    if dtype == DType::Bool {
        return any % 3 % 2;
    }
    match op {
        None | Some(ReduceOp::Min | ReduceOp::Max) => any - 20 * below,
        Some(ReduceOp::Sum) => any % 16 - 8 * below,
        // Multiples of the number of ranks, whose average is whole.
        Some(ReduceOp::Avg) => i64::from(size as u32) * (any % 4),
        Some(ReduceOp::Prod) => any % 2 + 1,
    }
}

/// What all ranks' elements `index` become together.
pub(crate) fn reduced(size: usize, index: usize, dtype: DType, op: ReduceOp) -> i64 {
    let all = (0..size).map(|rank| given(rank, size, index, dtype, Some(op)));
    if dtype == DType::Bool {
        let truths: Vec<bool> = all.map(|value| value != 0).collect();
        return i64::from(match op {
            ReduceOp::Min | ReduceOp::Prod => truths.iter().all(|truth| *truth),
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Avg => truths.iter().any(|truth| *truth),
        });
    }
    match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Avg => all.sum::<i64>() / i64::from(size as u32),
        ReduceOp::Min => all.min().unwrap_or(0),
        ReduceOp::Max => all.max().unwrap_or(0),
        ReduceOp::Prod => all.fold(1, i64::wrapping_mul),
    }
}

/// Adds a number as an element of a type; integers wrap.
pub(crate) fn push(bytes: &mut Vec<u8>, value: i64, dtype: DType) {
    let single = (value as f32).to_bits();
    match dtype {
        DType::F32 => bytes.extend(single.to_le_bytes()),
        DType::F64 => bytes.extend((value as f64).to_le_bytes()),
        DType::BF16 => bytes.extend(((single >> 16) as u16).to_le_bytes()),
        DType::F16 => {
            // Sign, exponent with another bias, the upper bits of the fraction: small whole numbers have no lower ones.
            let magnitude = if value == 0 { 0 } else { ((single & 0x7fff_ffff) >> 13) - ((127 - 15) << 10) };
            bytes.extend((((single >> 16) & 0x8000 | magnitude) as u16).to_le_bytes());
        }
        DType::I8 | DType::U8 | DType::Bool => bytes.push(value as u8),
        DType::I16 | DType::U16 => bytes.extend((value as u16).to_le_bytes()),
        DType::I32 | DType::U32 => bytes.extend((value as u32).to_le_bytes()),
        DType::I64 | DType::U64 => bytes.extend(value.to_le_bytes()),
    }
}

/// Numbers one after the other as elements.
pub(crate) fn elements(values: impl Iterator<Item = i64>, dtype: DType) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        push(&mut bytes, value, dtype);
    }
    bytes
}
