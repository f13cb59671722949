//! A proven connection while ranks meet: whole messages in, queued messages out, never blocking.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use zeroize::Zeroizing;

use crate::cipher::Cipher;
use crate::proof::Keys;
use crate::seal::{Corrupt, Kind, MOST_FILES, Message, Opener, Sealer};
use crate::socket::{self, Flow, Way};

/// How much is read at once.
pub(crate) const CHUNK: usize = 64 << 10;

/// The receiving end of a connection: bytes and descriptors in, messages out.
pub(crate) struct Ear {
    opener: Opener,
    way: Way,
    files: Vec<OwnedFd>,
    /// What was heard and not yet taken.
    pub(crate) heard: VecDeque<Message>,
}

/// What listening gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// The connection stands.
    Open,
    /// The other end is gone: closed, or its machine no longer answers.
    Gone,
}

impl Ear {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>, way: Way) -> Self {
        Self { opener: Opener::new(key), way, files: Vec::new(), heard: VecDeque::new() }
    }

    /// Reads once; what is whole then lies in `heard`.
    pub(crate) fn listen(&mut self, fd: BorrowedFd<'_>, chunk: &mut [u8]) -> Result<(Hearing, usize), Corrupt> {
        let files = (self.way == Way::Unix).then_some(&mut self.files);
        let length = match socket::read(fd, chunk, files) {
            Ok(Flow::Some(length)) => length,
            Ok(Flow::Nothing) => return Ok((Hearing::Open, 0)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Corrupt),
            Ok(Flow::End) | Err(_) => return Ok((Hearing::Gone, 0)),
        };
        let (files, heard) = (&mut self.files, &mut self.heard);
        let mut short = false;
        self.opener.feed(&chunk[..length], |opened| {
            short |= files.len() < opened.files;
            let taken = files.drain(..opened.files.min(files.len())).collect();
            heard.push_back(Message { kind: opened.kind, topic: opened.topic, bytes: opened.bytes, files: taken });
        })?;
        // Descriptors come with the first byte of their message, so never more than one message's are waiting.
        if short || self.files.len() > MOST_FILES { Err(Corrupt) } else { Ok((Hearing::Open, length)) }
    }
}

/// A proven connection.
pub(crate) struct Channel {
    pub(crate) fd: OwnedFd,
    pub(crate) way: Way,
    pub(crate) ear: Ear,
    pub(crate) sealer: Sealer,
    out: Vec<u8>,
    out_at: usize,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd, way: Way, keys: &Keys) -> io::Result<Self> {
        if way == Way::Tcp {
            socket::enliven(&fd)?;
        }
        let ear = Ear::new(keys.theirs.clone(), way);
        Ok(Self { fd, way, ear, sealer: Sealer::new(keys.ours.clone()), out: Vec::new(), out_at: 0 })
    }

    /// The connection and its ciphers, ours and theirs, for something else than messages.
    pub(crate) fn into_parts(self) -> (OwnedFd, Cipher, Cipher) {
        (self.fd, self.sealer.into_cipher(), self.ear.opener.into_cipher())
    }

    /// Queues a message and sends what can be sent now. A broken connection shows when it is listened to.
    pub(crate) fn say(&mut self, kind: Kind, bytes: &[u8]) {
        let sealed = self.sealer.seal(kind, 0, bytes, 0);
        self.out.extend_from_slice(&sealed);
        self.flush();
    }

    /// Sends what can be sent now.
    pub(crate) fn flush(&mut self) {
        while self.out_at < self.out.len() {
            match socket::write(self.fd.as_fd(), &self.out[self.out_at..], &[]) {
                Ok(0) => return,
                Ok(sent) => self.out_at += sent,
                Err(_) => break,
            }
        }
        self.out.clear();
        self.out_at = 0;
    }

    /// True if something waits to be sent.
    pub(crate) fn wants_to_write(&self) -> bool {
        !self.out.is_empty()
    }
}
