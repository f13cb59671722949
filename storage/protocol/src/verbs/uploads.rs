//! What is asked of an upload: made, written to as often as it needs, and given its name once it is whole.
//!
//! Its bytes lie hidden in the directory they are for ([`PartId::file_name`]), and beside them what is known of them
//! ([`PartId::sidecar_name`]): both outlive the process and the portal, so that an upload goes on wherever it stopped.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::{IdError, Moment, Moved, OnConflict, PartId, SpaceNumber};
use crate::{Name, RelativePath};

/// What is not whole yet, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSpot {
    /// In which space.
    pub space: SpaceNumber,
    /// The directory it is for.
    pub directory: RelativePath,
    /// Which.
    pub id: PartId,
}

/// A new upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateUpload {
    /// How and where it will lie.
    pub part: PartSpot,
    /// What it will be called.
    pub name: Name,
    /// Its size, where that is known already.
    pub length: Option<u64>,
    /// SHA-256 of the whole, where it is to be compared.
    pub sha256: Option<Digest<32>>,
    /// Last change of content, where it is to be kept.
    pub modified: Option<Moment>,
    /// Where the name is taken once it is whole.
    pub on_conflict: OnConflict,
    /// Whether the directory is made, with those on the way, where it is missing.
    pub parents: bool,
}

/// More bytes of an upload, from the stream to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteUpload {
    /// Which.
    pub part: PartSpot,
    /// Where they begin: exactly where the upload is.
    pub offset: u64,
    /// How many the stream brings, where that is known: no more are taken.
    pub bytes: Option<u64>,
    /// The size of the whole, where it was not known before.
    pub length: Option<u64>,
    /// Of these bytes: all of them count, or, where it differs, none.
    pub checksum: Option<Checksum>,
}

/// A checksum of bytes of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// SHA-256.
    Sha256(Digest<32>),
    /// SHA-1, which the protocol of uploads asks for; it finds mistakes, not forgeries.
    Sha1(Digest<20>),
    /// CRC-32 as of Ethernet and zip, the highest byte first.
    Crc32(Digest<4>),
}

/// Bytes of a checksum, written as small hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Digest<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl<const N: usize> TryFrom<String> for Digest<N> {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| IdError)?;
        bytes.try_into().map(Self).map_err(|_| IdError)
    }
}

impl<const N: usize> From<Digest<N>> for String {
    fn from(digest: Digest<N>) -> Self {
        digest.to_string()
    }
}

/// How far an upload is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadState {
    /// Where it goes on.
    pub offset: u64,
    /// Its size, where that is known.
    pub length: Option<u64>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Where the whole lies, where it has its name already.
    pub finished: Option<Moved>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_digest_is_written_in_exactly_one_way(text in "[0-9a-fA-F]{0,10}|\\PC{0,10}") {
            if let Ok(digest) = Digest::<4>::try_from(text.clone()) {
                prop_assert_eq!(digest.to_string(), text);
            }
        }

        #[test]
        fn any_digest_survives(bytes in any::<[u8; 20]>()) {
            let digest = Digest(bytes);
            prop_assert_eq!(serde_json::from_str::<Digest<20>>(&serde_json::to_string(&digest).unwrap()).unwrap(), digest);
            prop_assert!(serde_json::from_str::<Digest<32>>(&serde_json::to_string(&digest).unwrap()).is_err());
        }
    }
}
