//! What became of an allocation, in sums: what a session or run held of the cluster, and what its programs used of that.
//!
//! Seconds are those of all its cores or GPUs together, so that sums over many sessions mean something. Who measures is the backend's
//! `efficiency` service; nothing here says what is much or little.

use jiff::Timestamp;
use serde::Serialize;

use crate::{PartitionName, Session, SessionId};

/// Held and used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct HeldUsed {
    /// What was held.
    pub held: u64,
    /// What was used of it.
    pub used: u64,
}

/// GPUs of a session or run, in GPU-seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct GpuTime {
    /// Held: GPUs times seconds.
    pub held_s: u64,
    /// Of these, how much it is known of what the GPU did.
    pub known_s: u64,
    /// Utilisation summed up: half an hour at 50 % is a quarter of an hour.
    pub busy_s: u64,
    /// Long stretches without computing.
    pub idle_s: u64,
    /// Without computing and without a process of the session on the same GPU; nothing where nobody tells who is on it.
    pub empty_s: u64,
}

/// What a session or run held and used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobUsage {
    /// Whose.
    pub session: SessionId,
    /// Where it ran.
    pub partition: PartitionName,
    /// Until when this is counted.
    pub until: Timestamp,
    /// Whether it is over, and nothing is to come.
    pub is_final: bool,
    /// How long it held what it held, seconds.
    pub wall_s: u64,
    /// Core-seconds; none where nobody told.
    pub cpu: Option<HeldUsed>,
    /// MiB on all nodes together, and the most that was held of them; none where nobody told.
    pub memory_mib: Option<HeldUsed>,
    /// GPU-seconds.
    pub gpu: GpuTime,
}

/// Sums over many sessions and runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageSums {
    /// A person's or a partition's name; empty for all.
    pub name: String,
    /// How many sessions and runs.
    pub jobs: u64,
    /// Of how many of them neither processors nor memory are known.
    pub unknown_jobs: u64,
    /// Core-seconds of those that are known.
    pub cpu: HeldUsed,
    /// MiB times seconds of those that are known.
    pub memory_mib_s: HeldUsed,
    /// GPU-seconds.
    pub gpu: GpuTime,
}

impl UsageSums {
    /// Adds others; the name stays.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: &mut u64, more: u64| *one = one.saturating_add(more);
        sum(&mut self.jobs, other.jobs);
        sum(&mut self.unknown_jobs, other.unknown_jobs);
        sum(&mut self.cpu.held, other.cpu.held);
        sum(&mut self.cpu.used, other.cpu.used);
        sum(&mut self.memory_mib_s.held, other.memory_mib_s.held);
        sum(&mut self.memory_mib_s.used, other.memory_mib_s.used);
        sum(&mut self.gpu.held_s, other.gpu.held_s);
        sum(&mut self.gpu.known_s, other.gpu.known_s);
        sum(&mut self.gpu.busy_s, other.gpu.busy_s);
        sum(&mut self.gpu.idle_s, other.gpu.idle_s);
        sum(&mut self.gpu.empty_s, other.gpu.empty_s);
    }
}

/// By what sums are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageBy {
    /// By whose sessions they are.
    Person,
    /// By where they ran.
    Partition,
}

/// By what the worst are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waste {
    /// [`GpuTime::idle_s`].
    Gpu,
    /// Memory times seconds that was held and not needed.
    Memory,
    /// Core-seconds that were held and not used.
    Cpu,
}

/// A session or run with what it used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredJob {
    /// The session or run.
    pub session: Session,
    /// What it held and used.
    pub usage: JobUsage,
}
