//! How a sender writes to memory that another core reads: through its caches, or past them.
//!
//! Between cores that share a last-level cache a line is handed over in it, and that is quickest. Between others (another chiplet, another
//! socket) every line is fetched from the other core's cache one by one, twice: when it is written and when it is read. There it is several
//! times quicker to write past the caches (fourth-generation EPYC, allreduce of 1 MiB: 45 µs through and 110 µs past them where two cores
//! share a cache, 460 µs and 80 µs where they do not). Which of both it is can change while a program runs: the kernel moves threads, and
//! below it a hypervisor moves processors. So every sender compares both ways now and then, on the memory it writes anyway.

use std::time::{Duration, Instant};

use super::sync::{Ordering, fence};

/// Bytes that are written in each way for a comparison.
const SAMPLE: usize = 4 << 10;
/// Copies of at least two samples from one comparison to the next.
const BETWEEN: u32 = 32;
/// Past the caches only where that is so many times quicker to write, for the reader then finds nothing in a cache. Measured: 0.3 to 1.7 times
/// where cores share one, 2 to 5 times elsewhere.
const WORTH: u32 = 2;
/// Verdicts that are remembered; so many that one which a busy machine has falsified changes nothing.
const MOST: u32 = 3;

/// The way of one sender.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Verdicts for writing past the caches, less those for the caches.
    verdicts: u32,
    copies: u32,
}

impl Stores {
    /// Copies to memory that another core reads next.
    ///
    /// # Safety
    /// `from` can be read and `to` written for `bytes` bytes, and they do not overlap.
    pub(crate) unsafe fn copy(&mut self, to: *mut u8, from: *const u8, bytes: usize) {
        let streaming = self.verdicts * 2 > MOST;
        let mut done = 0;
        if bytes >= 2 * SAMPLE {
            // The first few copies are all compared.
            if self.copies < MOST || self.copies.is_multiple_of(BETWEEN) {
                // SAFETY: both samples are within the bytes.
                let [through, past] =
                    unsafe { [timed(to, from, false), timed(to.add(SAMPLE), from.add(SAMPLE), true)] };
                let is_worth = through > past * WORTH;
                self.verdicts = if is_worth { (self.verdicts + 1).min(MOST) } else { self.verdicts.saturating_sub(1) };
                done = 2 * SAMPLE;
            }
            self.copies = self.copies.wrapping_add(1);
        }
        // SAFETY: the rest of what the caller promises.
        unsafe { eirene_train_reduce::copy(to.add(done), from.add(done), bytes - done, streaming && bytes >= SAMPLE) };
    }
}

/// Copies a sample; how long it took until others could see it.
///
/// # Safety
/// As [`Stores::copy`], for a sample.
unsafe fn timed(to: *mut u8, from: *const u8, streaming: bool) -> Duration {
    fence(Ordering::SeqCst);
    let began = Instant::now();
    // SAFETY: as promised to us.
    unsafe { eirene_train_reduce::copy(to, from, SAMPLE, streaming) };
    fence(Ordering::SeqCst);
    began.elapsed()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_whole_whether_compared_or_not_and_in_either_way() {
        let content: Vec<u8> = (0..5 * SAMPLE).map(|i| (i * 31 / 7) as u8).collect();
        for verdicts in [0, MOST] {
            let mut stores = Stores { verdicts, copies: 0 };
            for copies in 0..2 * BETWEEN {
                for bytes in [0, 1, 63, SAMPLE - 1, SAMPLE, 2 * SAMPLE, 2 * SAMPLE + 5, 4 * SAMPLE] {
                    let mut into = vec![0; bytes];
                    let at = copies as usize;
                    // SAFETY: both are as long.
                    unsafe { stores.copy(into.as_mut_ptr(), content[at..].as_ptr(), bytes) };
                    assert_eq!(into, content[at..at + bytes]);
                }
            }
        }
    }
}
