//! What sessions held and used: much of it idle, much of it unknown, and nothing at all.

use eirene_core::account::Role;
use eirene_core::job_usage::{GpuTime, HeldUsed, JobUsage, MeasuredJob, UsageBy, UsageSums, Waste};
use eirene_core::{Session, SessionState};
use eirene_services::efficiency::{DAYS, Example, Report, advice};
use eirene_words::words;
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::views::efficiency::{EfficiencyPage, EfficiencyView};
use crate::views::layout::Place;

const HOUR: u64 = 3600;

/// What a session used of what it held for ten hours: one in so many.
pub(super) fn measured(session: &Session, one_in: u64) -> Result<JobUsage> {
    let (wall_s, gpus) = (10 * HOUR, u64::from(session.resources.gpus));
    let cpu_held = u64::from(session.resources.cpus) * wall_s;
    Ok(JobUsage {
        session: session.id,
        restart_count: 0,
        started_at: session.started_at.unwrap_or(session.created_at),
        partition: "gpu".parse()?,
        until: session.created_at,
        is_final: true,
        wall_s,
        cpu: Some(HeldUsed { held: cpu_held, used: cpu_held / one_in }),
        memory_mib: Some(HeldUsed { held: session.resources.memory_mib, used: session.resources.memory_mib / one_in }),
        gpu: GpuTime {
            held_s: gpus * wall_s,
            known_s: gpus * wall_s,
            busy_s: gpus * wall_s / one_in,
            idle_s: gpus * wall_s / 2,
            empty_s: 0,
        },
    })
}

fn sums(name: &str, jobs: u64, gpu_hours: u64, idle_hours: u64) -> UsageSums {
    UsageSums {
        name: name.to_owned(),
        jobs,
        unknown_jobs: u64::from(gpu_hours == 0),
        cpu: HeldUsed { held: jobs * 40 * HOUR, used: jobs * 11 * HOUR },
        memory_mib_s: HeldUsed { held: jobs * 1024 * 320 * HOUR, used: jobs * 1024 * 150 * HOUR },
        gpu: GpuTime {
            held_s: gpu_hours * HOUR,
            known_s: gpu_hours * HOUR,
            busy_s: gpu_hours.saturating_sub(idle_hours) * HOUR / 2,
            idle_s: idle_hours * HOUR,
            empty_s: idle_hours * HOUR / 3,
        },
    }
}

impl Samples {
    /// The admins' report.
    pub(super) fn efficiency(&mut self) -> Result<()> {
        let groups = vec![
            sums("ada", 1234, 45_678, 12_000),
            sums(HOSTILE, 3, 90, 4),
            sums("a-very-long-user-name-on-purpose", 1, 0, 0),
        ];
        let mut total = UsageSums::default();
        for group in &groups {
            total.add(group);
        }
        let mut examples = Vec::new();
        for (name, waste) in [("Thesis, chapter 3", Waste::Gpu), (HOSTILE, Waste::Memory)] {
            let mut session = self.session(name, SessionState::Ended)?;
            session.resources.gpus = 8;
            session.resources.cpus = 64;
            session.resources.memory_mib = 512 * 1024;
            let usage = measured(&session, 10)?;
            let advice = advice(&usage, &session.resources);
            examples.push(Example { waste, job: MeasuredJob { session, usage }, advice });
        }
        let from = self.now.saturating_sub(SignedDuration::from_hours(24 * DAYS))?;
        let full = Report { from, to: self.now, total, groups, unlisted: 12, examples };
        let none = Report {
            total: UsageSums::default(),
            groups: Vec::new(),
            unlisted: 0,
            examples: Vec::new(),
            ..full.clone()
        };
        for (name, report) in [("admin-efficiency", full), ("admin-efficiency-none", none)] {
            let page = EfficiencyPage {
                layout: self.layout(Place::Efficiency, &words().get("efficiency.title"), Role::Admin)?,
                efficiency: EfficiencyView::new(words(), &report, UsageBy::Person, DAYS),
            };
            self.add(name, &page)?;
        }
        Ok(())
    }
}
