//! How fast one core seals and opens records of several lengths, and copies as much: `cipher_speed`.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::time::Instant;

use eirene_train_mesh::{Altered, Opening, Sealing};

/// Of all records of one length.
const BYTES: usize = 256 << 20;

fn main() -> Result<(), Altered> {
    let (mut sealing, mut opening) = (Sealing::new([1; 32].into()), Opening::new([1; 32].into()));
    println!("{:>8} {:>10} {:>10} {:>10}  GB/s, best of 5", "bytes", "seal", "open", "copy");
    for length in [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        let (mut record, mut other) = (vec![7_u8; length], vec![0_u8; length]);
        let mut best = [f64::MAX; 3];
        for _ in 0..5 {
            let mut seconds = [0.0; 3];
            // A few records at a time, so that the clock is seldom asked.
            for _ in 0..BYTES / length / 16 {
                let began = Instant::now();
                let sealed: [_; 16] = std::array::from_fn(|_| {
                    let mut record = record.clone();
                    (sealing.seal(&[], &mut record), record)
                });
                seconds[0] += began.elapsed().as_secs_f64();
                let began = Instant::now();
                for (tag, mut record) in sealed {
                    opening.open(&[], &mut record, 0, &tag)?;
                }
                seconds[1] += began.elapsed().as_secs_f64();
                let began = Instant::now();
                for _ in 0..16 {
                    other.copy_from_slice(std::hint::black_box(&record));
                    std::mem::swap(&mut record, &mut other);
                }
                seconds[2] += began.elapsed().as_secs_f64();
            }
            best = std::array::from_fn(|at| best[at].min(seconds[at]));
        }
        let [seal, open, copy] = best.map(|seconds| BYTES as f64 / seconds / 1e9);
        println!("{length:>8} {seal:>10.2} {open:>10.2} {copy:>10.2}");
    }
    Ok(())
}
