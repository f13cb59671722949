//! Sessions that were dropped, while segments still hold something of them. Nobody is shown it from the moment it is written here; the
//! store rewrites the segments one after the other, and then forgets the session here too.

use std::collections::BTreeMap;

use crate::SessionId;
use crate::wire::Reader;

/// The file.
pub(crate) const NAME: &str = "dropped";
const MAGIC: [u8; 8] = *b"EIRMD\0\0\x01";

/// For each session the number of the first journal that may have samples of it again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dropped(pub(crate) BTreeMap<SessionId, u64>);

impl Dropped {
    /// Whether what a segment up to journal `highest` has of a session is gone.
    pub(crate) fn covers(&self, session: &SessionId, highest: u64) -> bool {
        self.0.get(session).is_some_and(|first| highest < *first)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        for (session, first) in &self.0 {
            bytes.extend_from_slice(&session.0);
            bytes.extend_from_slice(&first.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// None of a file that is not whole.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        let mut reader = Reader(body);
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) || reader.array() != Some(MAGIC) {
            return None;
        }
        let count = reader.u32()?;
        let entries = (0..count).map(|_| Some((SessionId(reader.array()?), reader.u64()?))).collect::<Option<_>>()?;
        reader.0.is_empty().then_some(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_wrong_bytes_do_not() {
        let dropped = Dropped([(SessionId([1; 16]), 5), (SessionId([2; 16]), 9)].into());
        let bytes = dropped.write();
        assert_eq!(Dropped::read(&bytes), Some(dropped.clone()));
        for place in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[place] ^= 1;
            assert_eq!(Dropped::read(&wrong), None);
            assert_eq!(Dropped::read(&bytes[..place]), None);
        }
        assert!(dropped.covers(&SessionId([1; 16]), 4) && !dropped.covers(&SessionId([1; 16]), 5));
    }
}
