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

impl GpuTime {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: &mut u64, more: u64| *one = one.saturating_add(more);
        sum(&mut self.held_s, other.held_s);
        sum(&mut self.known_s, other.known_s);
        sum(&mut self.busy_s, other.busy_s);
        sum(&mut self.idle_s, other.idle_s);
        sum(&mut self.empty_s, other.empty_s);
    }
}

/// What a session or run held and used in one of its starts, or in several of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobUsage {
    /// Whose.
    pub session: SessionId,
    /// How often the scheduler had put it back into the queue before; of several starts, before the last of them.
    pub restart_count: u32,
    /// When it began; of several starts, when the first did.
    pub started_at: Timestamp,
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

impl JobUsage {
    /// Adds a later start of the same session or run. Of memory the most counts, as within one start.
    pub fn add(&mut self, later: &Self) {
        let both = |one: Option<HeldUsed>, other: Option<HeldUsed>, join: fn(u64, u64) -> u64| match (one, other) {
            (Some(one), Some(other)) => {
                Some(HeldUsed { held: join(one.held, other.held), used: join(one.used, other.used) })
            }
            (one, other) => one.or(other),
        };
        self.restart_count = self.restart_count.max(later.restart_count);
        self.started_at = self.started_at.min(later.started_at);
        self.partition.clone_from(&later.partition);
        self.until = self.until.max(later.until);
        self.is_final = self.is_final && later.is_final;
        self.wall_s = self.wall_s.saturating_add(later.wall_s);
        self.cpu = both(self.cpu, later.cpu, u64::saturating_add);
        self.memory_mib = both(self.memory_mib, later.memory_mib, u64::max);
        self.gpu.add(&later.gpu);
    }
}

/// Sums over many sessions and runs, each with all its starts.
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
        self.gpu.add(&other.gpu);
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

/// A start of a session or run that the scheduler put back into the queue since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStart {
    /// Whose.
    pub session: SessionId,
    /// How often it had been put back into the queue before.
    pub restart_count: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was over, as far as that was seen.
    pub ended_at: Timestamp,
}

/// A session or run with what it used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredJob {
    /// The session or run.
    pub session: Session,
    /// What it held and used, of all its starts in the time that was asked about.
    pub usage: JobUsage,
}
