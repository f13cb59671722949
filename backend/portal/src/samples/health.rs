//! What the portal depends on: much of it in trouble, and all of it well.

use std::time::Duration;

use eirene_core::RootName;
use eirene_core::account::Role;
use eirene_services::health::problem::Trouble;
use eirene_services::health::readiness::{Answered, Dependency, Line, Report};
use eirene_words::words;
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::views::health::{HealthFragment, HealthPage, HealthView};
use crate::views::layout::Place;

impl Samples {
    /// The admins' page of health.
    pub(super) fn health(&mut self) -> Result<()> {
        let answered = |what: &Dependency, trouble: Option<Trouble>| match (what, trouble) {
            (Dependency::Samples | Dependency::Zabbix | Dependency::Traces | Dependency::Webhook, _) => {
                Answered::NotAsked
            }
            (Dependency::Root(_), Some(_)) => Answered::NotSeen,
            (_, Some(_)) => Answered::At(self.now - SignedDuration::from_hours(31)),
            (_, None) => Answered::At(self.now),
        };
        let line = |what: Dependency, trouble: Option<Trouble>, took_ms: Option<u64>| Line {
            answered: answered(&what, trouble),
            what,
            trouble,
            detail: if trouble.is_some() { format!("no route to host {HOSTILE}") } else { String::new() },
            since: self.now - SignedDuration::from_hours(30),
            took: took_ms.map(Duration::from_millis),
        };
        let long: RootName = "a-long-name-of-a-root-on-purpose".parse()?;
        let report = Report {
            at: self.now,
            lines: vec![
                line(Dependency::Database, Some(Trouble::DatabaseSlow), None),
                line(Dependency::Launcher, Some(Trouble::LauncherAway), None),
                line(Dependency::Scheduler, Some(Trouble::SchedulerAway), Some(12_345)),
                line(Dependency::Root(long), Some(Trouble::StorageAway), None),
                line(Dependency::Homes, None, Some(0)),
                line(Dependency::Samples, Some(Trouble::SamplesNotKept), None),
                line(Dependency::Prometheus, Some(Trouble::PrometheusAway), None),
                line(Dependency::Zabbix, Some(Trouble::ZabbixTakesNothing), None),
                line(Dependency::Traces, Some(Trouble::TracesAway), None),
                line(Dependency::Webhook, Some(Trouble::WebhookRefuses), None),
                line(Dependency::Reconciler("submit"), None, Some(7)),
                line(Dependency::Reconciler("storage-health"), Some(Trouble::ReconcilerFails), Some(812)),
            ],
            agents: 1,
        };
        let well = Report {
            at: self.now,
            lines: vec![
                line(Dependency::Database, None, Some(1)),
                line(Dependency::Launcher, None, Some(0)),
                line(Dependency::Scheduler, None, Some(312)),
                line(Dependency::Samples, None, None),
            ],
            agents: 42,
        };
        for (name, report) in [("admin-health", &report), ("admin-health-well", &well)] {
            let layout = self.layout(Place::Health, &words().get("health.title"), Role::Admin)?;
            self.add(name, &HealthPage { layout, health: HealthView::new(words(), report) })?;
        }
        self.add("fragment-health", &HealthFragment { health: HealthView::new(words(), &report) })?;
        Ok(())
    }
}
