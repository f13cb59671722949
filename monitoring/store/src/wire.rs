//! Numbers in bytes: fixed ones are little-endian, others LEB128 (seven bits a byte, the lowest first). Reading gives nothing where bytes
//! are missing, and never panics.

use crate::bits::{unzigzag, zigzag};

/// Adds a number in as few bytes as it needs.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The same of a number with a sign.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, zigzag(value));
}

/// Bytes that are taken from the front.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        self.number().map(unzigzag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_cut_ones_do_not() {
        for value in [0, 1, 127, 128, 300, u64::MAX, 1 << 63] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(Reader(&out).number(), Some(value));
            out.pop();
            assert_eq!(Reader(&out).number(), None);
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(Reader(&out).signed(), Some(value));
        }
        assert_eq!(Reader(&[0xff; 12]).number(), None);
    }
}
