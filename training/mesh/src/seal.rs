//! Messages on a proven connection: nobody else can read them, and each proves that the other end sent it, as the next
//! one in its order.
//!
//! A message is a header of 16 bytes and its 16 proof bytes, then, if it has a body, the body and its 16 proof bytes;
//! header and body are sealed as the module `cipher` says, under the key of that direction. Their numbers are twice the
//! message's and the one after that. Both ends count, so a message that is missing, doubled or moved is refused like one
//! that was altered. The header is sealed by itself, so not even a length is believed unproven.

use std::os::fd::OwnedFd;

use zeroize::Zeroizing;

use crate::cipher::{Altered, Cipher, TAG};

/// The most a message may carry.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// The most descriptors a message may carry.
pub(crate) const MOST_FILES: usize = 32;

const PLAIN: usize = 16;
const HEADER: usize = PLAIN + TAG;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// From the mesh's user.
    User = 1,
    /// The last message of a rank that leaves in good order.
    Goodbye = 2,
    /// The end for everybody.
    Abort = 3,
    /// Where to call for a data connection.
    Offer = 4,
    /// The caller of a control connection has read the answer: the connection is used.
    Ready = 5,
    /// A rank tells rank 0 where it can be reached.
    Arrived = 6,
    /// Rank 0 tells where everybody can be reached.
    Table = 7,
    /// A rank can be called now.
    Listening = 8,
    /// Rank 0: everybody can be called now.
    Dial = 9,
    /// A rank has all its connections.
    Linked = 10,
    /// Rank 0: everybody has all connections.
    Go = 11,
    /// It came to nothing, and why.
    Failed = 12,
    /// A rank's time is up, and for whom it waits.
    Waiting = 13,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::User,
            2 => Self::Goodbye,
            3 => Self::Abort,
            4 => Self::Offer,
            5 => Self::Ready,
            6 => Self::Arrived,
            7 => Self::Table,
            8 => Self::Listening,
            9 => Self::Dial,
            10 => Self::Linked,
            11 => Self::Go,
            12 => Self::Failed,
            13 => Self::Waiting,
            _ => return None,
        })
    }
}

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) topic: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

/// What came is not what the other end sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

impl From<Altered> for Corrupt {
    fn from(_: Altered) -> Self {
        Self
    }
}

/// The numbers of a message's header and body.
fn numbers(message: u64) -> [u64; 2] {
    [2 * message, 2 * message + 1]
}

/// The sending end of one direction.
pub(crate) struct Sealer {
    cipher: Cipher,
    number: u64,
}

impl Sealer {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self { cipher: Cipher::new(key), number: 0 }
    }

    /// The cipher, for a connection that carries no messages.
    pub(crate) fn into_cipher(self) -> Cipher {
        self.cipher
    }

    /// The next message as it goes over the wire. The caller has seen to the bounds.
    pub(crate) fn seal(&mut self, kind: Kind, topic: u64, bytes: &[u8], files: usize) -> Vec<u8> {
        let [of_header, of_body] = numbers(self.number);
        let mut sealed = Vec::with_capacity(HEADER + bytes.len() + TAG);
        sealed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        sealed.extend_from_slice(&[kind as u8, files as u8, 0, 0]);
        sealed.extend_from_slice(&topic.to_le_bytes());
        let tag = self.cipher.seal(of_header, &[], &mut sealed);
        sealed.extend_from_slice(&tag);
        if !bytes.is_empty() {
            sealed.extend_from_slice(bytes);
            let tag = self.cipher.seal(of_body, &[], &mut sealed[HEADER..]);
            sealed.extend_from_slice(&tag);
        }
        self.number += 1;
        sealed
    }
}

impl Sealer {
    /// The message sealed last has not been sent, not even in part: its number is free again, for nobody has seen anything
    /// that was sealed under it.
    pub(crate) fn take_back(&mut self) {
        self.number -= 1;
    }
}

struct Header {
    kind: Kind,
    topic: u64,
    length: usize,
    files: usize,
}

/// The receiving end of one direction: takes bytes as they come and gives messages.
pub(crate) struct Opener {
    cipher: Cipher,
    number: u64,
    buffer: Vec<u8>,
    header: Option<Header>,
    dead: bool,
}

/// A message as it was opened: its descriptors, which came beside the bytes, are still to be added.
pub(crate) struct Opened {
    pub(crate) kind: Kind,
    pub(crate) topic: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) files: usize,
}

impl Opener {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self { cipher: Cipher::new(key), number: 0, buffer: Vec::new(), header: None, dead: false }
    }

    /// The cipher, for a connection that carries no messages.
    pub(crate) fn into_cipher(self) -> Cipher {
        self.cipher
    }

    /// Takes what came; `give` gets each message that is whole and proven. After an error the direction is dead.
    pub(crate) fn feed(&mut self, bytes: &[u8], give: impl FnMut(Opened)) -> Result<(), Corrupt> {
        if self.dead {
            return Err(Corrupt);
        }
        let result = self.open(bytes, give);
        self.dead = result.is_err();
        result
    }

    fn open(&mut self, mut bytes: &[u8], mut give: impl FnMut(Opened)) -> Result<(), Corrupt> {
        loop {
            let wanted = match &self.header {
                None => HEADER,
                Some(header) => header.length + TAG,
            };
            let missing = wanted - self.buffer.len();
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() < wanted {
                return Ok(());
            }
            let opened = match self.header.take() {
                None => {
                    let header = self.open_header()?;
                    self.buffer.clear();
                    if header.length > 0 {
                        self.header = Some(header);
                        continue;
                    }
                    Opened { kind: header.kind, topic: header.topic, bytes: Vec::new(), files: header.files }
                }
                Some(header) => {
                    self.open_buffer(numbers(self.number)[1], header.length)?;
                    let mut bytes = std::mem::take(&mut self.buffer);
                    bytes.truncate(header.length);
                    Opened { kind: header.kind, topic: header.topic, bytes, files: header.files }
                }
            };
            self.number += 1;
            give(opened);
        }
    }

    /// Opens what lies in the buffer, of this length, and after it the proof.
    fn open_buffer(&mut self, number: u64, length: usize) -> Result<(), Corrupt> {
        let (sealed, tag) = self.buffer.split_at_mut(length);
        let tag = tag.first_chunk().ok_or(Corrupt)?;
        self.cipher.open(number, &[], sealed, 0, tag)?;
        Ok(())
    }

    fn open_header(&mut self) -> Result<Header, Corrupt> {
        self.open_buffer(numbers(self.number)[0], PLAIN)?;
        let plain = &self.buffer[..PLAIN];
        let word = |at: usize| plain[at..at + 4].try_into().map(u32::from_le_bytes).map_err(|_| Corrupt);
        let length = word(0)? as usize;
        let files = usize::from(plain[5]);
        let topic = plain[8..].try_into().map(u64::from_le_bytes).map_err(|_| Corrupt)?;
        let kind = Kind::parse(plain[4]).ok_or(Corrupt)?;
        if length > MOST_BYTES || files > MOST_FILES {
            return Err(Corrupt);
        }
        Ok(Header { kind, topic, length, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Plain = (Kind, u64, Vec<u8>, usize);

    fn all(opener: &mut Opener, bytes: &[u8]) -> Result<Vec<Plain>, Corrupt> {
        let mut got = Vec::new();
        opener.feed(bytes, |message| got.push((message.kind, message.topic, message.bytes, message.files)))?;
        Ok(got)
    }

    #[test]
    fn a_doubled_moved_or_missing_message_is_refused() {
        let mut sealer = Sealer::new([5; 32].into());
        let first = sealer.seal(Kind::User, 1, b"one", 0);
        let second = sealer.seal(Kind::User, 1, b"two", 0);
        assert!(all(&mut Opener::new([5; 32].into()), &[first.clone(), second.clone()].concat()).is_ok());
        assert!(all(&mut Opener::new([5; 32].into()), &[first.clone(), first.clone()].concat()).is_err());
        assert!(all(&mut Opener::new([5; 32].into()), &second).is_err());
        assert!(all(&mut Opener::new([6; 32].into()), &first).is_err());
    }

    #[test]
    fn a_message_shows_nothing_of_itself() {
        let mut sealer = Sealer::new([5; 32].into());
        let body = b"gradients of the first layer".repeat(3);
        let wire = sealer.seal(Kind::User, 0x0123_4567_89ab_cdef, &body, 0);
        let shows = |part: &[u8]| wire.windows(part.len()).any(|window| window == part);
        assert!(!shows(b"first") && !shows(&0x0123_4567_89ab_cdef_u64.to_le_bytes()[..4]));
        assert_eq!(wire.len(), HEADER + body.len() + TAG);
        assert_ne!(wire, sealer.seal(Kind::User, 0x0123_4567_89ab_cdef, &body, 0));
    }

    #[test]
    fn a_number_taken_back_is_the_next_message_s() {
        let mut sealer = Sealer::new([5; 32].into());
        let mut opener = Opener::new([5; 32].into());
        assert!(all(&mut opener, &sealer.seal(Kind::User, 1, b"one", 0)).is_ok());
        sealer.seal(Kind::User, 1, b"never sent", 0);
        sealer.take_back();
        assert_eq!(all(&mut opener, &sealer.seal(Kind::User, 1, b"two", 0)).unwrap().len(), 1);
    }

    #[test]
    fn a_body_cannot_pass_for_a_header() {
        let mut sealer = Sealer::new([5; 32].into());
        let first = sealer.seal(Kind::User, 1, &[0; PLAIN], 0);
        assert!(all(&mut Opener::new([5; 32].into()), &first[HEADER..]).is_err());
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_the_bytes_come(
            messages in proptest::collection::vec((any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200), 0..=MOST_FILES), 0..8),
            cuts in proptest::collection::vec(1..90_usize, 1..50),
        ) {
            let mut sealer = Sealer::new([5; 32].into());
            let wire: Vec<u8> = messages.iter().flat_map(|(topic, bytes, files)| sealer.seal(Kind::User, *topic, bytes, *files)).collect();
            let mut opener = Opener::new([5; 32].into());
            let mut got = Vec::new();
            let (mut rest, mut cuts) = (&wire[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                got.extend(all(&mut opener, now).unwrap());
                rest = later;
            }
            let sent: Vec<_> = messages.into_iter().map(|(topic, bytes, files)| (Kind::User, topic, bytes, files)).collect();
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn a_changed_byte_is_refused_and_nothing_of_it_given(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), at: prop::sample::Index, flip in 1..=255_u8,
        ) {
            let mut sealer = Sealer::new([5; 32].into());
            let mut wire = sealer.seal(Kind::User, 9, &bytes, 0);
            let at = at.index(wire.len());
            wire[at] ^= flip;
            let mut opener = Opener::new([5; 32].into());
            prop_assert!(all(&mut opener, &wire).is_err());
            prop_assert!(all(&mut opener, &wire).is_err());
        }

        #[test]
        fn any_bytes_are_refused_with_little_memory(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            let mut opener = Opener::new([5; 32].into());
            let result = all(&mut opener, &bytes);
            prop_assert_eq!(result.is_err(), bytes.len() >= HEADER);
            prop_assert!(opener.buffer.capacity() <= 2 * HEADER);
        }
    }
}
