//! Checksums of bytes as they come.

use eirene_files_protocol::Checksum;
use sha2::{Digest as _, Sha256};

/// A sum in the making, and what it is to become.
#[derive(Clone)]
pub(crate) enum Sum {
    Sha256(Sha256, [u8; 32]),
    Sha1(sha1::Sha1, [u8; 20]),
    Crc32(crc32fast::Hasher, [u8; 4]),
}

impl Sum {
    pub(crate) fn new(wanted: Checksum) -> Self {
        match wanted {
            Checksum::Sha256(wanted) => Self::Sha256(Sha256::new(), wanted.0),
            Checksum::Sha1(wanted) => Self::Sha1(sha1::Sha1::default(), wanted.0),
            Checksum::Crc32(wanted) => Self::Crc32(crc32fast::Hasher::new(), wanted.0),
        }
    }

    /// Whether it takes as long as writing the bytes does.
    pub(crate) fn takes_long(&self) -> bool {
        !matches!(self, Self::Crc32(..))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum, _) => sum.update(bytes),
            Self::Sha1(sum, _) => sum.update(bytes),
            Self::Crc32(sum, _) => sum.update(bytes),
        }
    }

    /// Whether it became what was wanted.
    pub(crate) fn came_right(self) -> bool {
        match self {
            Self::Sha256(sum, wanted) => <[u8; 32]>::from(sum.finalize()) == wanted,
            Self::Sha1(sum, wanted) => <[u8; 20]>::from(sum.finalize()) == wanted,
            Self::Crc32(sum, wanted) => sum.finalize().to_be_bytes() == wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use eirene_files_protocol::Digest;

    use super::*;

    /// The sums of "123456789", as their specifications give them.
    #[test]
    fn each_sum_is_its_specifications() {
        let text = |hex: &str| data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap();
        let sha256 = text("15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
        let sums = [
            Checksum::Sha256(Digest(sha256.try_into().unwrap())),
            Checksum::Sha1(Digest(text("f7c3bc1d808e04732adf679965ccc34ca7ae3441").try_into().unwrap())),
            Checksum::Crc32(Digest(text("cbf43926").try_into().unwrap())),
        ];
        for wanted in sums {
            let mut sum = Sum::new(wanted);
            sum.update(b"1234");
            sum.update(b"56789");
            assert!(sum.came_right(), "{wanted:?}");
            let mut sum = Sum::new(wanted);
            sum.update(b"12345678");
            assert!(!sum.came_right(), "{wanted:?}");
        }
    }
}
