//! What may be wrong with what the portal depends on.

use eirene_core::Sentence;
use eirene_words::say;

/// What is wrong with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The database does not answer.
    DatabaseAway,
    /// It does not answer in time.
    DatabaseSlow,
    /// The launcher takes no connections.
    LauncherAway,
    /// It does not take them in time.
    LauncherSlow,
    /// SLURM does not answer.
    SchedulerAway,
    /// A file system does not answer.
    StorageAway,
    /// Samples are not kept.
    SamplesNotKept,
    /// Prometheus does not answer us.
    PrometheusAway,
    /// Zabbix takes none of the values.
    ZabbixTakesNothing,
    /// Zabbix cannot be reached.
    ZabbixAway,
    /// The collector does not take traces.
    TracesAway,
    /// The webhook does not answer, or not now.
    WebhookAway,
    /// The webhook takes nothing from us: our key or its address is not right any more.
    WebhookRefuses,
    /// The webhook has called the last message wrong, and that one is given up.
    WebhookRefusedOne,
    /// A reconciler's last run failed.
    ReconcilerFails,
}

impl Trouble {
    /// For programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::DatabaseAway => "database_away",
            Self::DatabaseSlow => "database_slow",
            Self::LauncherAway => "launcher_away",
            Self::LauncherSlow => "launcher_slow",
            Self::SchedulerAway => "scheduler_away",
            Self::StorageAway => "storage_away",
            Self::SamplesNotKept => "samples_not_kept",
            Self::PrometheusAway => "prometheus_away",
            Self::ZabbixTakesNothing => "zabbix_takes_nothing",
            Self::ZabbixAway => "zabbix_away",
            Self::TracesAway => "traces_away",
            Self::WebhookAway => "webhook_away",
            Self::WebhookRefuses => "webhook_refuses",
            Self::WebhookRefusedOne => "webhook_refused_one",
            Self::ReconcilerFails => "reconciler_fails",
        }
    }

    /// What `/readyz` says behind the name.
    pub fn line(self) -> &'static str {
        match self {
            Self::DatabaseAway => "does not answer",
            Self::DatabaseSlow => "answers too slowly",
            Self::LauncherAway => "takes no connections; nothing new is started",
            Self::LauncherSlow => "takes connections too slowly",
            Self::SchedulerAway => "does not answer; sessions are shown as last seen",
            Self::StorageAway => "does not answer; ask `doctor`",
            Self::SamplesNotKept => "are not kept; charts show what there was, or nothing",
            Self::PrometheusAway => "has no answer for us; there are no charts for now",
            Self::ZabbixTakesNothing => "takes none of the values; has its host the template?",
            Self::ZabbixAway => "cannot be reached; values are kept for a while",
            Self::TracesAway => "are not taken by their collector, and are lost for now",
            Self::WebhookAway => "does not take alerts; they are kept for a day",
            Self::WebhookRefuses => "refuses alerts; are its address and its key still right?",
            Self::WebhookRefusedOne => "has called the last alert wrong; that one is not sent again",
            Self::ReconcilerFails => "its last run failed",
        }
    }

    /// What that means for people, and what to do.
    pub fn says(self) -> (Sentence, Sentence) {
        let (means, cure) = match self {
            Self::DatabaseAway => ("health.database_away", "health.cure.database"),
            Self::DatabaseSlow => ("health.database_slow", "health.cure.database"),
            Self::LauncherAway => ("health.launcher_away", "health.cure.launcher"),
            Self::LauncherSlow => ("health.launcher_slow", "health.cure.launcher"),
            Self::SchedulerAway => ("health.scheduler_away", "health.cure.scheduler"),
            Self::StorageAway => ("health.storage_away", "health.cure.storage"),
            Self::SamplesNotKept => ("health.samples_not_kept", "health.cure.samples"),
            Self::PrometheusAway => ("health.prometheus_away", "health.cure.prometheus"),
            Self::ZabbixTakesNothing => ("health.zabbix_takes_nothing", "health.cure.zabbix_template"),
            Self::ZabbixAway => ("health.zabbix_away", "health.cure.zabbix"),
            Self::TracesAway => ("health.traces_away", "health.cure.traces"),
            Self::WebhookAway => ("health.webhook_away", "health.cure.webhook"),
            Self::WebhookRefuses => ("health.webhook_refuses", "health.cure.webhook_address"),
            Self::WebhookRefusedOne => ("health.webhook_refused_one", "health.cure.webhook_one"),
            Self::ReconcilerFails => ("health.reconciler_fails", "health.cure.reconciler"),
        };
        (say(means), say(cure))
    }
}
