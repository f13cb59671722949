//! How fast one core seals and opens records of several lengths, and copies as much: `cipher_speed`.
#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use std::time::Instant;

use eirene_train_mesh::{Altered, Opening, Sealing};

/// Of all records of one length.
const BYTES: usize = 64 << 20;

fn main() -> Result<(), Altered> {
    let (mut sealing, mut opening) = (Sealing::new([1; 32].into()), Opening::new([1; 32].into()));
    println!("{:>8} {:>10} {:>10} {:>10}  GB/s, best of 5", "bytes", "seal", "open", "copy");
    for length in [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        let mut records = vec![vec![7_u8; length]; 16];
        let (record, mut other) = (vec![7_u8; length], vec![0_u8; length]);
        let mut best = [f64::MAX; 3];
        for _ in 0..5 {
            let mut seconds = [0.0; 3];
            // A few records at a time, so that the clock is seldom asked.
            for _ in 0..BYTES / length / records.len() {
                let began = Instant::now();
                let tags: Vec<_> = records.iter_mut().map(|record| sealing.seal(&[], record)).collect();
                seconds[0] += began.elapsed().as_secs_f64();
                let began = Instant::now();
                for (tag, record) in tags.iter().zip(&mut records) {
                    opening.open(&[], record, 0, tag)?;
                }
                seconds[1] += began.elapsed().as_secs_f64();
                let began = Instant::now();
                for _ in 0..records.len() {
                    other.copy_from_slice(std::hint::black_box(&record));
                    std::hint::black_box(&mut other);
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
