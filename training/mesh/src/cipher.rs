//! One direction of a connection that nobody else can read or change: AES-256-GCM under a key of its own, which `ring` carries out.
//!
//! Both ends count what they seal and open, and the count is the nonce. So it is never used twice under one key, it need not be sent, and what
//! is missing, doubled or moved is refused like what was altered. After [`TURN`] pieces the key is replaced by one derived from it, before so
//! much lies under one key that chance could tell anything about it; it stays below the bound of TLS 1.3 (RFC 8446, section 5.5), 2^34.5 blocks.
//!
//! Keys and what is worked out of them are wiped where they are kept, when they are dropped; copies that the compiler makes on the stack are not. Whoever learns the world's secret later can read what was recorded
//! before: there is no forward secrecy.

use std::mem::MaybeUninit;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use zeroize::{Zeroize as _, Zeroizing};

use crate::proof::tag;

/// Bytes that prove a piece.
pub const TAG: usize = 16;

/// So many pieces are sealed under one key: of 64 KiB, so many are 2^34 blocks of the cipher. Even, so that pairs stay together.
const TURN: u64 = 1 << 22;

const NEXT: &[u8] = b"eirene-train-mesh 2 next key";

/// What came is not what the other end sealed as its next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came is not what the other side sent")]
pub struct Altered;

/// A cipher's key as it is used; `ring` does not wipe it.
struct Expanded(Box<MaybeUninit<LessSafeKey>>);

impl Expanded {
    fn new(key: &[u8; 32]) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
        Some(Self(Box::new(MaybeUninit::new(LessSafeKey::new(key)))))
    }

    fn key(&self) -> &LessSafeKey {
        #[expect(unsafe_code, reason = "only so can the memory be wiped")]
        // SAFETY: it is written when this is made and wiped when this is dropped.
        unsafe {
            self.0.assume_init_ref()
        }
    }
}

impl Drop for Expanded {
    fn drop(&mut self) {
        // A key has nothing of its own that would have to be dropped.
        const { assert!(!std::mem::needs_drop::<LessSafeKey>()) };
        self.0.zeroize();
    }
}

/// Seals and opens pieces by their numbers, which never go back by more than the turn of a key.
pub(crate) struct Cipher {
    key: Zeroizing<[u8; 32]>,
    expanded: Option<Expanded>,
    /// How often the key was replaced.
    turns: u64,
    turn: u64,
}

impl Cipher {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self::turning(key, TURN)
    }

    fn turning(key: Zeroizing<[u8; 32]>, turn: u64) -> Self {
        let expanded = Expanded::new(&key);
        Self { key, expanded, turns: 0, turn }
    }

    /// The key for a number, and its nonce. None for what is past, and never otherwise: every 32 bytes are a key.
    fn at(&mut self, number: u64) -> Option<(&LessSafeKey, Nonce)> {
        let turns = number / self.turn;
        while self.turns < turns {
            self.key = tag(self.key.as_slice(), NEXT, &[]).into();
            self.expanded = Expanded::new(&self.key);
            self.turns += 1;
        }
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
        let key = self.expanded.as_ref().filter(|_| self.turns == turns)?;
        Some((key.key(), Nonce::assume_unique_for_key(nonce)))
    }

    /// As [`Sealing::seal`].
    pub(crate) fn seal(&mut self, number: u64, aside: &[u8], bytes: &mut [u8]) -> [u8; TAG] {
        let sealed = self
            .at(number)
            .and_then(|(key, nonce)| key.seal_in_place_separate_tag(nonce, Aad::from(aside), bytes).ok())
            .and_then(|tag| tag.as_ref().try_into().ok());
        sealed.unwrap_or_else(|| {
            // Longer than the cipher takes. Better nothing that anybody believes than something that anybody reads.
            bytes.fill(0);
            [0; TAG]
        })
    }

    /// As [`Opening::open`].
    pub(crate) fn open<'a>(
        &mut self,
        number: u64,
        aside: &[u8],
        bytes: &'a mut [u8],
        from: usize,
        tag: &[u8; TAG],
    ) -> Result<&'a mut [u8], Altered> {
        let (key, nonce) = self.at(number).ok_or(Altered)?;
        let opened = key.open_in_place_separate_tag(nonce, Aad::from(aside), Tag::from(*tag), bytes, from..);
        opened.map_err(|_| Altered)
    }
}

/// The sending end of one direction.
pub struct Sealing {
    cipher: Cipher,
    number: u64,
}

impl Sealing {
    /// Under a key that nothing else is sealed under.
    pub fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self::of(Cipher::new(key))
    }

    pub(crate) fn of(cipher: Cipher) -> Self {
        Self { cipher, number: 0 }
    }

    /// Seals the next piece where it lies, and gives the 16 bytes that prove it together with `aside`, which is not sealed and which the other
    /// end must know. More than 64 GiB are replaced by zeros that the other end refuses.
    pub fn seal(&mut self, aside: &[u8], bytes: &mut [u8]) -> [u8; TAG] {
        let tag = self.cipher.seal(self.number, aside, bytes);
        self.number += 1;
        tag
    }
}

/// The receiving end of one direction.
pub struct Opening {
    cipher: Cipher,
    number: u64,
    dead: bool,
}

impl Opening {
    /// Under the key of the other end's [`Sealing`].
    pub fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self::of(Cipher::new(key))
    }

    pub(crate) fn of(cipher: Cipher) -> Self {
        Self { cipher, number: 0, dead: false }
    }

    /// Opens the next piece, which lies in `bytes` from the place `from` to the end; it then lies at the beginning. After an error the direction
    /// is dead: everything fails.
    ///
    /// # Errors
    /// [`Altered`], and of what lay there nothing is left.
    pub fn open<'a>(
        &mut self,
        aside: &[u8],
        bytes: &'a mut [u8],
        from: usize,
        tag: &[u8; TAG],
    ) -> Result<&'a mut [u8], Altered> {
        if self.dead {
            return Err(Altered);
        }
        let opened = self.cipher.open(self.number, aside, bytes, from, tag);
        self.dead = opened.is_err();
        self.number += 1;
        opened
    }
}

impl std::fmt::Debug for Sealing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Sealing(..)")
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Opening(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends() -> (Sealing, Opening) {
        (Sealing::new([5; 32].into()), Opening::new([5; 32].into()))
    }

    /// A piece as it goes over the wire.
    fn sealed(sealing: &mut Sealing, aside: &[u8], bytes: &[u8]) -> (Vec<u8>, [u8; TAG]) {
        let mut bytes = bytes.to_vec();
        let tag = sealing.seal(aside, &mut bytes);
        (bytes, tag)
    }

    fn opened(opening: &mut Opening, aside: &[u8], (bytes, tag): &(Vec<u8>, [u8; TAG])) -> Result<Vec<u8>, Altered> {
        opening.open(aside, &mut bytes.clone(), 0, tag).map(|bytes| bytes.to_vec())
    }

    #[test]
    fn the_bytes_are_those_of_aes_gcm() {
        // Test case 14 of the GCM specification: a key, a nonce and a block of zeros.
        let mut bytes = [0; 16];
        let tag = Sealing::new([0; 32].into()).seal(&[], &mut bytes);
        assert_eq!(u128::from_be_bytes(bytes), 0xcea7_403d_4d60_6b6e_074e_c5d3_baf3_9d18);
        assert_eq!(u128::from_be_bytes(tag), 0xd0d1_c8a7_9999_6bf0_265b_98b5_d48a_b919);
    }

    #[test]
    fn pieces_that_are_doubled_moved_or_missing_are_refused_and_what_follows_too() {
        let (mut sealing, mut opening) = ends();
        let [first, second, third] = [b"one", b"two", b"six"].map(|bytes| sealed(&mut sealing, b"", bytes));
        assert_eq!(opened(&mut opening, b"", &first).unwrap(), b"one");
        assert_eq!(opened(&mut opening, b"", &second).unwrap(), b"two");
        assert_eq!(opened(&mut opening, b"", &third).unwrap(), b"six");
        for order in [[&first, &first, &second], [&second, &first, &third], [&first, &third, &second]] {
            let (_, mut opening) = ends();
            let outcomes = order.map(|piece| opened(&mut opening, b"", piece).is_ok());
            assert!(!(outcomes[2] || outcomes[0] && outcomes[1]), "{outcomes:?}");
        }
        assert_eq!(opened(&mut Opening::new([6; 32].into()), b"", &first), Err(Altered));
        assert_eq!(opened(&mut Opening::new([5; 32].into()), b"beside", &first), Err(Altered));
    }

    #[test]
    fn the_same_bytes_are_never_sealed_alike() {
        let (mut sealing, _) = ends();
        let pieces: std::collections::HashSet<_> =
            (0..100).map(|_| sealed(&mut sealing, b"", b"the same again")).collect();
        assert_eq!(pieces.len(), 100);
    }

    #[test]
    fn both_ends_turn_to_the_next_key_at_the_same_piece() {
        let mut sealing = Sealing::of(Cipher::turning([5; 32].into(), 4));
        let mut opening = Opening::of(Cipher::turning([5; 32].into(), 4));
        let mut never = Opening::new([5; 32].into());
        for number in 0..13_u8 {
            let piece = sealed(&mut sealing, b"", &[number]);
            assert_eq!(opened(&mut opening, b"", &piece).unwrap(), [number]);
            assert_eq!(opened(&mut never, b"", &piece).is_ok(), number < 4);
        }
        assert_eq!(sealing.cipher.turns, 3);
        // The key before cannot be had back.
        assert!(sealing.cipher.at(11).is_none() && sealing.cipher.at(12).is_some());
    }

    #[test]
    fn a_key_leaves_nothing_behind() {
        let mut expanded = Expanded::new(&[0xa7; 32]).unwrap();
        expanded.0.zeroize();
        #[expect(unsafe_code, reason = "looks at wiped memory")]
        // SAFETY: zeros were just written there, as many as it is long.
        let bytes = unsafe { std::slice::from_raw_parts(expanded.0.as_ptr().cast::<u8>(), size_of::<LessSafeKey>()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_wherever_it_lies(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), aside in proptest::collection::vec(any::<u8>(), 0..20), from in 0_usize..20,
        ) {
            let (mut sealing, mut opening) = ends();
            for _ in 0..3 {
                let (wire, tag) = sealed(&mut sealing, &aside, &bytes);
                prop_assert!(bytes.len() < 8 || wire != bytes);
                let mut lying = [&vec![9; from], &wire[..]].concat();
                prop_assert_eq!(opening.open(&aside, &mut lying, from, &tag).unwrap(), &bytes[..]);
            }
        }

        #[test]
        fn a_changed_byte_anywhere_is_refused_and_nothing_of_it_given(
            bytes in proptest::collection::vec(1_u8.., 1..200), flip in 1..=255_u8, at: prop::sample::Index,
        ) {
            let (mut sealing, mut opening) = ends();
            let aside = [7; 8];
            let (wire, tag) = sealed(&mut sealing, &aside, &bytes);
            let mut all = [&wire[..], &tag, &aside].concat();
            let at = at.index(all.len());
            all[at] ^= flip;
            let (changed, rest) = all.split_at_mut(wire.len());
            let (changed_tag, changed_aside) = rest.split_first_chunk::<TAG>().unwrap();
            prop_assert!(opening.open(changed_aside, changed, 0, changed_tag).is_err());
            prop_assert!(changed.iter().all(|byte| *byte == 0), "{:?}", changed);
            // And what is right comes too late.
            prop_assert!(opening.open(&aside, &mut wire.clone(), 0, &tag).is_err());
        }

        #[test]
        fn a_piece_cut_short_is_refused(bytes in proptest::collection::vec(any::<u8>(), 1..100), keep: prop::sample::Index) {
            let (mut sealing, mut opening) = ends();
            let (mut wire, tag) = sealed(&mut sealing, &[], &bytes);
            wire.truncate(keep.index(wire.len()));
            prop_assert!(opening.open(&[], &mut wire, 0, &tag).is_err());
        }
    }
}
