//! What an alert says to people.

use eirene_core::Sentence;
use eirene_core::alert::{Alert, AlertRule};
use eirene_words::{say, say_count, say_with};

use super::platform::{FILE, OWN_CERTIFICATE, SETTING};
use super::{BEHIND, PART_OF, PORTAL_CLOCK, WAY};
use crate::samples::{clock_text, portal_clock_text};

/// One or two sentences: what is wrong, and what to do.
pub fn text(alert: &Alert) -> Sentence {
    let detail = |name: &str| alert.details.get(name).map(String::as_str).unwrap_or_default();
    let (node, gpu, reason) = (("node", detail("node")), ("gpu", detail("gpu")), ("reason", detail("reason")));
    let is_part = alert.details.contains_key(PART_OF);
    // Where somebody gave a reason it is told.
    let with_reason = |with: &str, without: &str| {
        let because = ("reason", reason.1.trim_end_matches('.'));
        say_with(if because.1.is_empty() { without } else { with }, &[node, because, ("name", detail("reconciler"))])
    };
    match alert.rule {
        AlertRule::MemoryNearlyFull => {
            say_with("alert.memory_nearly_full", &[node, ("percent", &percent(alert.value).to_string())])
        }
        AlertRule::GpuLost => say_with("alert.gpu_lost", &[node, gpu]),
        AlertRule::GpuMemoryErrors if is_part => {
            say_count("alert.gpu_memory_errors_divided", whole(alert.value), &[node, gpu])
        }
        AlertRule::GpuMemoryErrors => say_count("alert.gpu_memory_errors", whole(alert.value), &[node, gpu]),
        AlertRule::GpuThrottled if is_part => say_with("alert.gpu_throttled_part", &[node, gpu]),
        AlertRule::GpuThrottled => say_with("alert.gpu_throttled", &[node, gpu]),
        AlertRule::GpusIdle => say_count("alert.gpus_idle", whole(alert.value), &[]),
        AlertRule::NodeDown => with_reason("alert.node_down_because", "alert.node_down"),
        AlertRule::NodeDrained => with_reason("alert.node_drained_because", "alert.node_drained"),
        AlertRule::NodeClockOff if alert.subject == PORTAL_CLOCK => {
            portal_clock_text(whole(alert.value), detail(WAY) == BEHIND)
        }
        AlertRule::NodeClockOff => clock_text(node.1, whole(alert.value), detail(WAY) == BEHIND),
        AlertRule::SchedulerAway => with_reason("alert.scheduler_away_because", "alert.scheduler_away"),
        AlertRule::SchedulerSlow => say_with("alert.scheduler_slow", &[("seconds", &format!("{:.1}", alert.value))]),
        AlertRule::DatabaseSlow => say_with("alert.database_slow", &[("ms", &whole(alert.value).to_string())]),
        AlertRule::LauncherAway => say("alert.launcher_away"),
        AlertRule::AgentsLost => say_with("alert.agents_lost", &[("away", detail("away")), ("all", detail("all"))]),
        AlertRule::ReconcilerFailing => with_reason("alert.reconciler_failing_because", "alert.reconciler_failing"),
        AlertRule::StorageBroken => say_with("alert.storage_broken", &[reason]),
        AlertRule::CertificateEnds if ![OWN_CERTIFICATE, ""].contains(&detail(SETTING)) => {
            let of = [("file", detail(FILE)), ("setting", detail(SETTING))];
            if alert.value <= 0.0 {
                say_with("alert.certificate_over_of", &of)
            } else {
                say_count("alert.certificate_ends_of", whole(alert.value), &of)
            }
        }
        AlertRule::CertificateEnds if alert.value <= 0.0 => say("alert.certificate_over"),
        AlertRule::CertificateEnds => say_count("alert.certificate_ends", whole(alert.value), &[]),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(value: f64) -> u64 {
    value.clamp(0.0, 1e15) as u64
}

/// What is nearly full is never called full.
fn percent(share: f64) -> u64 {
    whole(share * 100.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use eirene_core::AlertId;
    use eirene_core::alert::AlertSeverity;
    use jiff::Timestamp;

    use super::*;

    fn alert(rule: AlertRule, value: f64, details: &[(&str, &str)]) -> Alert {
        Alert {
            id: AlertId::generate(),
            rule,
            severity: AlertSeverity::Warning,
            subject: String::new(),
            session: None,
            owner: None,
            value,
            details: details.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: None,
            acknowledged: None,
        }
    }

    #[test]
    fn every_rule_says_something_and_leaves_no_hole() {
        let details = [("node", "n1"), ("gpu", "3"), ("away", "4"), ("all", "9"), ("reconciler", "submit")];
        let mut said = BTreeMap::new();
        for rule in AlertRule::ALL {
            for reason in ["", "it is old."] {
                if *rule == AlertRule::StorageBroken && reason.is_empty() {
                    continue;
                }
                let text = text(&alert(*rule, 0.97, &[details.as_slice(), &[("reason", reason)]].concat()));
                assert!(
                    !text.as_str().contains(['{', '}']) && text.as_str().ends_with('.'),
                    "{rule}: {}",
                    text.as_str()
                );
                said.insert(text.as_str().to_owned(), *rule);
            }
        }
        assert!(said.len() > AlertRule::ALL.len(), "{said:#?}");
        for (rule, expected) in [
            (AlertRule::GpuThrottled, "GPU 3 on n1, of which you have a part, is slowed down"),
            (AlertRule::GpuMemoryErrors, "GPU 3 on n1 is divided, and has had 2 memory errors"),
        ] {
            let shared = text(&alert(rule, 2.0, &[details.as_slice(), &[(PART_OF, "3")]].concat()));
            assert!(shared.as_str().starts_with(expected) && !shared.as_str().contains('{'), "{}", shared.as_str());
        }
        let full = text(&alert(AlertRule::MemoryNearlyFull, 0.999, &details));
        assert!(full.as_str().contains("99\u{a0}%") && full.as_str().contains("n1"), "{}", full.as_str());
        let days = text(&alert(AlertRule::CertificateEnds, 13.9, &[]));
        assert!(days.as_str().contains("13 days"), "{}", days.as_str());
        let of = |setting, value| {
            text(&alert(AlertRule::CertificateEnds, value, &[("file", "/tls/a.pem"), ("setting", setting)]))
        };
        assert_eq!(of("server.tls_cert", 13.9).as_str(), days.as_str());
        for value in [13.9, -2.0] {
            let others = of("zabbix.tls_cert", value);
            assert!(
                others.as_str().contains("/tls/a.pem") && others.as_str().contains("zabbix.tls_cert"),
                "{}",
                others.as_str()
            );
            assert!(!others.as_str().contains("browsers") && !others.as_str().contains('{'), "{}", others.as_str());
        }
    }
}
