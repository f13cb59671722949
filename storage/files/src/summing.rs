//! Sums of bytes that come, made on a thread of its own while the next are read and written: on one thread the disk and whoever sends would wait for
//! each of them. So many buffers are on their way and no more; whoever reads waits for one to be free.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use eirene_files_protocol::Code;
use sha2::{Digest as _, Sha256};

use crate::checksum::Sum;
use crate::server::STACK_BYTES;

/// Buffers of one transfer.
const BUFFERS: usize = 8;
/// Fewer bytes are summed up before a thread would have begun.
const WORTH_A_THREAD: u64 = 1024 * 1024;

/// What somebody wants of the same bytes.
#[derive(Clone, Default)]
pub(crate) struct Sums {
    /// Of those that come now, and what it is to become.
    pub(crate) piece: Option<Sum>,
    /// Of all so far.
    pub(crate) whole: Option<Sha256>,
}

impl Sums {
    /// Whether a thread of their own is worth it. A CRC is made faster than bytes are given away.
    fn take_long(&self) -> bool {
        self.whole.is_some() || self.piece.as_ref().is_some_and(Sum::takes_long)
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some(sum) = &mut self.piece {
            sum.update(bytes);
        }
        if let Some(sum) = &mut self.whole {
            sum.update(bytes);
        }
    }
}

/// Sums in the making.
pub(crate) enum Summing {
    /// As bytes are given; also where there is no thread to be had.
    Here(Box<Sums>),
    /// After they were given.
    Beside(Beside),
}

/// The thread, and what goes there and comes back.
pub(crate) struct Beside {
    thread: JoinHandle<Sums>,
    work: SyncSender<Work>,
    free: Receiver<Vec<u8>>,
    told: Receiver<Sums>,
    /// Buffers there are, with the one that is filled.
    buffers: usize,
}

enum Work {
    Bytes(Vec<u8>, usize),
    Tell,
}

impl Summing {
    /// Sums of at most so many bytes more.
    pub(crate) fn new(sums: Sums, most: u64) -> Self {
        if most < WORTH_A_THREAD || !sums.take_long() {
            return Self::Here(Box::new(sums));
        }
        let (work, todo) = sync_channel(BUFFERS);
        let (done, free) = sync_channel(BUFFERS);
        let (tell, told) = sync_channel(1);
        let started = sums.clone();
        let run = move || sum_up(started, &todo, &done, &tell);
        match Builder::new().stack_size(STACK_BYTES).spawn(run) {
            Ok(thread) => Self::Beside(Beside { thread, work, free, told, buffers: 1 }),
            Err(_) => Self::Here(Box::new(sums)),
        }
    }

    /// Takes a buffer with so many bytes in it; gives one to be filled, of the same size.
    ///
    /// # Errors
    /// The thread is gone.
    pub(crate) fn take(&mut self, buffer: Vec<u8>, count: usize) -> Result<Vec<u8>, Code> {
        match self {
            Self::Here(sums) => {
                sums.update(&buffer[..count]);
                Ok(buffer)
            }
            Self::Beside(beside) => beside.take(buffer, count),
        }
    }

    /// The sum of all so far.
    ///
    /// # Errors
    /// The thread is gone.
    pub(crate) fn whole(&self) -> Result<Option<Sha256>, Code> {
        match self {
            Self::Here(sums) => Ok(sums.whole.clone()),
            Self::Beside(beside) => {
                beside.work.send(Work::Tell).map_err(|_| Code::Failed)?;
                Ok(beside.told.recv().map_err(|_| Code::Failed)?.whole)
            }
        }
    }

    /// The sums of all that was taken.
    ///
    /// # Errors
    /// The thread is gone.
    pub(crate) fn end(self) -> Result<Sums, Code> {
        match self {
            Self::Here(sums) => Ok(*sums),
            Self::Beside(Beside { thread, work, .. }) => {
                drop(work);
                thread.join().map_err(|_| Code::Failed)
            }
        }
    }
}

impl Beside {
    fn take(&mut self, buffer: Vec<u8>, count: usize) -> Result<Vec<u8>, Code> {
        let bytes = buffer.len();
        self.work.send(Work::Bytes(buffer, count)).map_err(|_| Code::Failed)?;
        if let Ok(free) = self.free.try_recv() {
            return Ok(free);
        }
        if self.buffers < BUFFERS {
            self.buffers += 1;
            return Ok(vec![0; bytes]);
        }
        self.free.recv().map_err(|_| Code::Failed)
    }
}

fn sum_up(mut sums: Sums, todo: &Receiver<Work>, done: &SyncSender<Vec<u8>>, tell: &SyncSender<Sums>) -> Sums {
    while let Ok(work) = todo.recv() {
        // Whoever gave it may have given up.
        match work {
            Work::Bytes(buffer, count) => {
                sums.update(&buffer[..count]);
                let _ = done.send(buffer);
            }
            Work::Tell => {
                let _ = tell.send(sums.clone());
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use eirene_files_protocol::{Checksum, Digest};

    use super::*;

    fn sums(bytes: &[u8]) -> Sums {
        let wanted = Checksum::Sha256(Digest(Sha256::digest(bytes).into()));
        Sums { piece: Some(Sum::new(wanted)), whole: Some(Sha256::new()) }
    }

    #[test]
    fn each_byte_is_in_the_sums_once_and_in_its_order_by_few_buffers() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        for (most, is_beside) in [(WORTH_A_THREAD, true), (WORTH_A_THREAD - 1, false)] {
            let mut summing = Summing::new(sums(&bytes), most);
            assert_eq!(matches!(summing, Summing::Beside(_)), is_beside);
            let (mut buffer, mut at, mut seen) = (vec![0; 4096], 0, HashSet::new());
            for count in (1..4096).cycle() {
                let count = count.min(bytes.len() - at);
                if count == 0 {
                    break;
                }
                seen.insert(buffer.as_ptr() as usize);
                buffer[..count].copy_from_slice(&bytes[at..at + count]);
                buffer = summing.take(buffer, count).unwrap();
                at += count;
                assert_eq!(buffer.len(), 4096);
                if at % 97 == 0 {
                    let so_far: [u8; 32] = summing.whole().unwrap().unwrap().finalize().into();
                    assert_eq!(so_far, <[u8; 32]>::from(Sha256::digest(&bytes[..at])), "{at}");
                }
            }
            assert!(seen.len() <= BUFFERS, "{}", seen.len());
            let ended = summing.end().unwrap();
            assert!(ended.piece.unwrap().came_right());
            assert_eq!(ended.whole.unwrap().finalize(), Sha256::digest(&bytes));
        }
    }

    #[test]
    fn what_nobody_wants_summed_up_and_what_is_soon_done_has_no_thread() {
        let crc = Sum::new(Checksum::Crc32(Digest([0xcb, 0xf4, 0x39, 0x26])));
        let mut summing = Summing::new(Sums { piece: Some(crc), whole: None }, u64::MAX);
        assert!(matches!(summing, Summing::Here(_)));
        assert_eq!(summing.take(b"123456789".to_vec(), 9), Ok(b"123456789".to_vec()));
        assert!(summing.end().unwrap().piece.unwrap().came_right());
        let mut summing = Summing::new(Sums::default(), u64::MAX);
        assert!(matches!(summing, Summing::Here(_)));
        assert_eq!(summing.take(vec![7; 3], 3), Ok(vec![7; 3]));
        assert!(summing.whole().unwrap().is_none() && summing.end().unwrap().piece.is_none());
    }
}
