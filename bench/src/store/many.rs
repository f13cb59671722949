//! The built-in store with very many series, all of which sample at the same moments: what it takes in a second, and what it takes of memory.

use std::path::Path;

use anyhow::ensure;
use eirene_monitoring_store::{Options, Sample, SessionId, Store};
use serde::{Deserialize, Serialize};

use super::sides::Taking;
use crate::process::resident;

/// Series of a session.
const EACH: usize = 1000;
const BEGIN_MS: i64 = 1_767_225_600_000;
const EVERY_MS: i64 = 5000;

/// Bytes that are enough for the 250,000 series which are measured unless somebody says otherwise: of fractions, each of which may come ten minutes late.
const MEMORY_BYTES: usize = 512 << 20;
/// Of which memory may be an eighth.
const DISK_BYTES: u64 = 4 << 30;

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(super) struct Many {
    pub(super) series: usize,
    pub(super) ticks: usize,
    /// By processor time: what one core takes.
    pub(super) samples_per_core_s: f64,
    /// As the store counts it, at the most.
    pub(super) memory_bytes: f64,
    /// What the process grew by, at the most.
    pub(super) resident_bytes: f64,
}

/// Measures it: each tick of all series, on the disk before the next.
pub(super) fn measure(path: &Path, series: usize, ticks: usize) -> anyhow::Result<Many> {
    let options = Options { memory_bytes: MEMORY_BYTES, disk_bytes: DISK_BYTES, ..Options::default() };
    let store = Store::open(path, &options)?;
    let names: Vec<String> = (0..EACH.min(series)).map(|place| format!("gpu/gpu_util/c1/{place}")).collect();
    let sessions = series.div_ceil(EACH);
    let before = resident(std::process::id())?;
    let taking = Taking::begin()?;
    let (mut taken, mut memory, mut grown) = (0, 0, 0);
    for tick in 0..ticks {
        let at_ms = BEGIN_MS + EVERY_MS * i64::try_from(tick)?;
        for session in 0..sessions {
            let id = SessionId(u128::try_from(session)?.to_be_bytes());
            // Hundredths that change, as what is sampled mostly does.
            let value = |place: usize| ((place * 31 + tick * 17) % 100) as f64 / 100.0;
            let batch: Vec<Sample<'_>> =
                names.iter().enumerate().map(|(place, name)| Sample { name, at_ms, value: value(place) }).collect();
            taken += store.append(at_ms, id, &batch);
            // What comes at first says its names.
            if tick == 0 && session % 50 == 49 {
                store.flush()?;
            }
        }
        store.flush()?;
        store.maintain(at_ms)?;
        memory = memory.max(store.stats().memory_bytes);
        grown = grown.max(resident(std::process::id())?.saturating_sub(before));
    }
    let (samples_per_core_s, _) = taking.end(taken)?;
    let series = sessions * names.len();
    ensure!(taken == series * ticks, "{taken} of {} samples were taken: {:?}", series * ticks, store.stats());
    Ok(Many { series, ticks, samples_per_core_s, memory_bytes: memory as f64, resident_bytes: grown as f64 })
}
