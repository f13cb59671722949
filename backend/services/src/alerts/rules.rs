//! When a rule's alert is raised and when it ends: what is built in, and what the configuration says instead.

use eirene_core::alert::{AlertRule, AlertSeverity};
use jiff::SignedDuration;

use crate::config;

/// Thresholds and times of one rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Settings {
    /// How bad it is.
    pub severity: AlertSeverity,
    /// From this value on it is over its threshold.
    pub raise: f64,
    /// Beyond this value it is back.
    pub clear: f64,
    /// So long it has to be over its threshold before the alert is raised.
    pub(crate) raise_after: SignedDuration,
    /// So long it has to be back before the alert ends.
    pub(crate) clear_after: SignedDuration,
}

impl Settings {
    /// What is built in.
    pub(crate) fn built_in(rule: AlertRule) -> Self {
        use AlertRule as R;
        use AlertSeverity::{Critical, Info, Warning};
        let (severity, raise, clear, raise_s, clear_s) = match rule {
            R::MemoryNearlyFull => (Warning, 0.95, 0.9, 10, 30),
            R::GpuLost => (Critical, 1.0, 1.0, 10, 60),
            R::GpuMemoryErrors => (Critical, 1.0, 1.0, 0, 0),
            R::GpuThrottled => (Warning, 0.5, 0.2, 60, 60),
            R::GpusIdle => (Info, 30.0, 30.0, 0, 0),
            R::NodeDown => (Critical, 1.0, 1.0, 30, 30),
            R::NodeDrained => (Warning, 1.0, 1.0, 60, 0),
            R::NodeClockOff => (Warning, 1.0, 1.0, 60, 60),
            R::SchedulerAway => (Critical, 1.0, 1.0, 60, 10),
            R::SchedulerSlow => (Warning, 5.0, 2.0, 60, 120),
            R::DatabaseSlow => (Warning, 500.0, 200.0, 60, 120),
            R::LauncherAway => (Critical, 1.0, 1.0, 30, 10),
            R::AgentsLost => (Critical, 0.1, 0.05, 30, 60),
            R::ReconcilerFailing => (Warning, 3.0, 1.0, 60, 0),
            R::StorageBroken => (Critical, 1.0, 1.0, 60, 60),
            R::CertificateEnds => (Warning, 14.0, 14.0, 0, 0),
        };
        let [raise_after, clear_after] = [raise_s, clear_s].map(SignedDuration::from_secs);
        Self { severity, raise, clear, raise_after, clear_after }
    }

    /// As it is built in, but for what the configuration says; none where the rule is off.
    pub(crate) fn of(rule: AlertRule, config: &config::Alerts) -> Option<Self> {
        let built_in = Self::built_in(rule);
        let Some(said) = config.rules.get(&rule) else { return Some(built_in) };
        let seconds = |said: Option<u32>, built_in| said.map_or(built_in, |s| SignedDuration::from_secs(s.into()));
        let raise = said.raise.unwrap_or(built_in.raise);
        // Who moves the one threshold past the other and says nothing of that one means both.
        let moved = |clear: f64| if rule.is_below() { clear.max(raise) } else { clear.min(raise) };
        (!said.off).then(|| Self {
            severity: said.severity.unwrap_or(built_in.severity),
            raise,
            clear: said.clear.unwrap_or_else(|| moved(built_in.clear)),
            raise_after: seconds(said.raise_after_s, built_in.raise_after),
            clear_after: seconds(said.clear_after_s, built_in.clear_after),
        })
    }

    /// Whether a value is over the threshold.
    pub(crate) fn is_over(&self, rule: AlertRule, value: f64) -> bool {
        if rule.is_below() { value <= self.raise } else { value >= self.raise }
    }

    /// Whether a value is back. Between the thresholds it is neither.
    pub(crate) fn is_back(&self, rule: AlertRule, value: f64) -> bool {
        if rule.is_below() { value > self.clear } else { value < self.clear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_ends_where_it_is_raised() {
        for rule in AlertRule::ALL {
            let settings = Settings::built_in(*rule);
            for value in [settings.raise, settings.clear] {
                assert!(!(settings.is_over(*rule, value) && settings.is_back(*rule, value)), "{rule}");
            }
            assert!(settings.is_over(*rule, settings.raise), "{rule}");
        }
        let certificate = Settings::built_in(AlertRule::CertificateEnds);
        assert!(certificate.is_over(AlertRule::CertificateEnds, -3.0));
        assert!(certificate.is_back(AlertRule::CertificateEnds, 80.0));
    }

    #[test]
    fn the_configuration_changes_a_rule_or_turns_it_off() {
        let config = |text: &str| {
            let text = format!(
                "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n{text}"
            );
            config::Config::from_text(&text).map(|config| config.alerts)
        };
        let rule = AlertRule::MemoryNearlyFull;
        let changed =
            config("[alerts.rules.memory_nearly_full]\nraise = 0.8\nraise_after_s = 0\nseverity = \"critical\"");
        let expected = Settings {
            severity: AlertSeverity::Critical,
            raise: 0.8,
            clear: 0.8,
            raise_after: SignedDuration::ZERO,
            ..Settings::built_in(rule)
        };
        assert_eq!(Settings::of(rule, &changed.unwrap()), Some(expected));
        let off = config("[alerts.rules.memory_nearly_full]\noff = true").unwrap();
        assert_eq!(Settings::of(rule, &off), None);
        assert_eq!(Settings::of(AlertRule::GpuLost, &off), Some(Settings::built_in(AlertRule::GpuLost)));
        for wrong in [
            "[alerts.rules.memory_full]\noff = true",
            "[alerts.rules.node_down]\nraise = nan",
            "[alerts.rules.node_down]\nraise = 1\nclear = 2",
            "[alerts.rules.node_down]\nclear = 0.5",
            "[alerts.rules.certificate_ends]\nraise = 10\nclear = 9",
        ] {
            assert!(config(wrong).is_err(), "{wrong}");
        }
    }
}
