//! A file to be uploaded, and its sums.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest as _, Sha256};

pub(crate) const MIB: u64 = 1024 * 1024;
/// Bytes of a piece of an upload.
pub(crate) const PIECE: u64 = 32 * MIB;

/// Sums of a file, made before anything is timed: what a client needs for them is no part of what is measured.
pub(crate) struct Sums {
    /// SHA-256 of all of it, in hexadecimal digits.
    pub(crate) whole: String,
    /// Of each piece, as the header says it.
    pub(crate) pieces: Vec<String>,
}

/// What of an upload is compared with its sum.
#[derive(Clone, Copy)]
pub(crate) enum Compared<'a> {
    Nothing,
    Pieces(&'a [String]),
    Whole(&'a str),
}

/// Random bytes, so that nothing can make less of them.
pub(crate) fn random_file(path: &Path, bytes: u64) -> anyhow::Result<Sums> {
    let (file, mut whole, mut pieces) = (File::create(path)?, Sha256::new(), Vec::new());
    for from in (0..bytes).step_by(PIECE as usize) {
        let mut piece = vec![0_u8; PIECE.min(bytes - from) as usize];
        rand::fill(&mut piece[..]);
        file.write_all_at(&piece, from)?;
        whole.update(&piece);
        pieces.push(format!("crc32 {}", BASE64.encode(&crc32fast::hash(&piece).to_be_bytes())));
    }
    file.sync_all()?;
    Ok(Sums { whole: HEXLOWER.encode(&whole.finalize()), pieces })
}
