//! Compressed bytes as what they were.

use std::io::{BufReader, Read};

use super::source::Source;

/// What was compressed with gzip, in one piece or several.
pub(super) fn decode(source: &Source) -> impl Read {
    flate2::bufread::MultiGzDecoder::new(BufReader::new(source.stream(0, source.bytes())))
}

/// What was compressed with deflate, as in a zip.
pub(super) fn inflate(compressed: impl Read) -> impl Read {
    flate2::bufread::DeflateDecoder::new(BufReader::new(compressed))
}
