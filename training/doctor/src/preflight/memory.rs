//! Memory and processor of one node: whether what is written is read again, whether it can be shared, and how quick both are.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek as _, Write as _};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::words::Memory;
use crate::finding::bytes;

/// Most that is tried, and the share of what the job may still take.
const MOST: u64 = 256 << 20;
const SHARE: u64 = 20;
/// Words that are written and read at a time: more than caches hold, little enough to look at the clock in between.
const BLOCK: usize = 2 << 20;
/// When no further block is begun.
const ENOUGH: Duration = Duration::from_millis(300);
/// Bytes that are shared by descriptor: more than the bells and lanes of a rank take.
const SHARED: usize = 16 << 20;

/// Reads a word of memory. The real one reads what is there; tests have another.
pub(super) type Reader = fn(&u64) -> u64;

/// The real reader: the compiler must not take what it has seen written for what is there.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "where it lies is what matters")]
pub(super) fn read(word: &u64) -> u64 {
    *black_box(word)
}

/// Tries memory, `room` bytes being what the job may still take.
pub(super) fn check(room: Option<u64>, read: Reader) -> Memory {
    let most = room.map_or(MOST, |room| MOST.min(room / SHARE));
    let words = usize::try_from(most / 8).unwrap_or(0);
    let mut found = Memory { room, ..Memory::default() };
    let mut memory = Vec::<u64>::new();
    if memory.try_reserve_exact(words).is_err() {
        found.problem = Some(format!("{} of memory cannot be had", bytes(most)));
        return found;
    }
    let began = Instant::now();
    while memory.len() < words && (memory.is_empty() || began.elapsed() < ENOUGH) {
        let (from, to) = (memory.len(), (memory.len() + BLOCK).min(words));
        memory.resize(to, 0);
        // Once one way and once the other, so that every bit was both.
        for flip in [0, u64::MAX] {
            let block = &mut memory[from..to];
            block.iter_mut().zip(from as u64..).for_each(|(word, at)| *word = pattern(at) ^ flip);
            let before = Instant::now();
            let wrong = block.iter().zip(from as u64..).filter(|(word, at)| read(word) != pattern(*at) ^ flip).count();
            let speed = (block.len() * 8) as f64 / before.elapsed().as_secs_f64() / 1e9;
            found.speed = found.speed.max(speed);
            found.wrong += wrong as u64;
        }
    }
    found.bytes = memory.len() as u64 * 8;
    drop(memory);
    found.problem = share().err();
    found
}

/// A word that differs from its neighbours' in about half of its bits.
pub(super) fn pattern(at: u64) -> u64 {
    let mixed = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Makes memory as ranks share it, and fills it.
fn share() -> Result<(), String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("memory cannot be shared: {what}: {error}");
    let memory = memfd_create(c"eirene-train-preflight", MFdFlags::MFD_CLOEXEC);
    let mut memory = File::from(memory.map_err(|errno| failed("memfd_create")(errno.into()))?);
    let content = vec![0x5a_u8; SHARED];
    memory.write_all(&content).map_err(failed("it cannot be written"))?;
    memory.rewind().map_err(failed("it cannot be read"))?;
    let mut again = Vec::with_capacity(SHARED);
    memory.read_to_end(&mut again).map_err(failed("it cannot be read"))?;
    if again == content { Ok(()) } else { Err("shared memory gives back something else than was written".to_owned()) }
}

/// How long a fixed computation takes, milliseconds: the best of several, for others may use the processor now and then.
pub(super) fn processor() -> f64 {
    const ROUNDS: u64 = 4_000_000;
    const TIMES: usize = 5;
    let once = |_| {
        let began = Instant::now();
        let (mut number, mut sum) = (1_u64, 0.0_f64);
        for at in 0..black_box(ROUNDS) {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(at);
            sum += (number >> 40) as f64;
        }
        black_box(sum);
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..TIMES).map(once).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_memory_is_read_as_it_was_written() {
        let found = check(Some(200 << 20), read);
        assert_eq!((found.bytes, found.wrong, &found.problem), (10 << 20, 0, &None));
        assert!(found.speed > 0.0 && found.speed.is_finite());
    }

    #[test]
    fn a_bit_that_is_stuck_is_counted() {
        // One bit of every word reads as 0: half of the words are wrong one way, the other half the other way.
        let found = check(Some(20 << 20), |word| *word & !1);
        assert_eq!(found.bytes, 1 << 20);
        assert_eq!(found.wrong, (1 << 20) / 8);
    }

    #[test]
    fn little_room_is_little_tried() {
        let found = check(Some(0), read);
        assert_eq!((found.bytes, found.wrong), (0, 0));
    }

    #[test]
    fn a_computation_takes_time() {
        assert!(processor() > 0.01);
    }
}
