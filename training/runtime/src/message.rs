//! What goes from rank to rank, whatever carries it.

/// What a message says of itself, so that whoever expected another one can say which.
///
/// In a collective it describes the call; point to point, `call` is the tag.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the call in its group, from 1; point to point, the tag.
    pub(crate) call: u64,
    /// Bytes of the message.
    pub(crate) bytes: u64,
    /// Elements the whole call is about; 0 where ranks may differ.
    pub(crate) elements: u64,
    /// The root's rank in the group, where there is one. Where all ranks know the lengths of all blocks, what stands for these: 0 if they are
    /// the same.
    pub(crate) root: u32,
    /// Which collective, element type and reduction, by their numbers in [`crate::call`]; and what stands for the calls before.
    pub(crate) kind: [u8; 4],
}

/// Stands for some words, one after the other.
pub(crate) fn mix(before: u64, word: u64) -> u64 {
    (before ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Bytes of a head on the wire.
pub(crate) const HEAD: usize = 32;

impl Head {
    /// As bytes, the same on every machine.
    pub(crate) fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.call.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.elements.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.root.to_le_bytes());
        bytes[28..].copy_from_slice(&self.kind);
        bytes
    }

    /// As words, for memory in which others read while it is written.
    pub(crate) fn to_words(self) -> [u64; HEAD / 8] {
        let bytes = self.to_bytes();
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|i| bytes[word * 8 + i])))
    }

    /// Stands for this call and all before it, by what stands for those.
    pub(crate) fn history(self, before: u64) -> u64 {
        self.to_words().into_iter().fold(before, mix)
    }

    /// From words.
    pub(crate) fn from_words(words: [u64; HEAD / 8]) -> Self {
        Self::from_bytes(&std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8]))
    }

    /// From bytes.
    pub(crate) fn from_bytes(bytes: &[u8; HEAD]) -> Self {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            call: number(0),
            bytes: number(8),
            elements: number(16),
            root: u32::from_le_bytes(std::array::from_fn(|i| bytes[24 + i])),
            kind: std::array::from_fn(|i| bytes[28 + i]),
        }
    }
}
