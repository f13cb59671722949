//! Messages that have come and that nobody has asked for yet, by topic and in their order.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use crate::seal::{Kind, Message};

/// So much may wait unread from one rank before no more is taken from its connection.
const MOST_BYTES: usize = 64 << 20;
const MOST_MESSAGES: usize = 16 << 10;
const MOST_FILES: usize = 256;
/// What a message costs beside its bytes.
const OVERHEAD: usize = 256;

/// Bytes and the descriptors that came with them.
pub(crate) type Letter = (Vec<u8>, Vec<OwnedFd>);

/// One rank's unread messages.
#[derive(Default)]
pub(crate) struct Inbox {
    letters: HashMap<(Kind, u64), VecDeque<Letter>>,
    bytes: usize,
    messages: usize,
    files: usize,
    /// The watcher reads no more until something is taken.
    pub(crate) paused: bool,
    /// The rank has said goodbye.
    pub(crate) left: bool,
    /// Its connection is closed, and all that came over it is here.
    pub(crate) gone: bool,
}

impl Inbox {
    pub(crate) fn put(&mut self, message: Message) {
        self.bytes += message.bytes.len() + OVERHEAD;
        self.messages += 1;
        self.files += message.files.len();
        self.letters.entry((message.kind, message.topic)).or_default().push_back((message.bytes, message.files));
    }

    pub(crate) fn take(&mut self, kind: Kind, topic: u64) -> Option<Letter> {
        let letters = self.letters.get_mut(&(kind, topic))?;
        let letter = letters.pop_front()?;
        if letters.is_empty() {
            self.letters.remove(&(kind, topic));
        }
        self.bytes -= letter.0.len() + OVERHEAD;
        self.messages -= 1;
        self.files -= letter.1.len();
        Some(letter)
    }

    /// True if something of the kind and topic waits.
    pub(crate) fn has(&self, kind: Kind, topic: u64) -> bool {
        self.letters.contains_key(&(kind, topic))
    }

    /// True if nothing more should be read.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES || self.messages >= MOST_MESSAGES || self.files >= MOST_FILES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(topic: u64, bytes: &[u8]) -> Message {
        Message { kind: Kind::User, topic, bytes: bytes.to_vec(), files: Vec::new() }
    }

    #[test]
    fn each_topic_keeps_its_order() {
        let mut inbox = Inbox::default();
        for (topic, bytes) in [(1, b"a"), (2, b"b"), (1, b"c"), (2, b"d")] {
            inbox.put(message(topic, bytes));
        }
        let mut take = |topic| inbox.take(Kind::User, topic).map(|(bytes, _)| bytes[0]);
        assert_eq!(
            [take(2), take(1), take(1), take(2), take(1), take(3)],
            [Some(b'b'), Some(b'a'), Some(b'c'), Some(b'd'), None, None]
        );
        assert!(inbox.letters.is_empty() && inbox.bytes == 0 && inbox.messages == 0);
    }

    #[test]
    fn an_inbox_fills_by_bytes_and_by_number() {
        let mut inbox = Inbox::default();
        for _ in 0..64 {
            assert!(!inbox.is_full());
            inbox.put(message(0, &vec![0; 1 << 20]));
        }
        assert!(inbox.is_full());
        let mut inbox = Inbox::default();
        (0..MOST_MESSAGES).for_each(|topic| inbox.put(message(topic as u64, b"")));
        assert!(inbox.is_full());
        inbox.take(Kind::User, 0).unwrap();
        assert!(!inbox.is_full());
    }
}
