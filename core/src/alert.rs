//! Alerts: what somebody should know now. About a session or run, for its person and for admins; about the platform, for admins alone.
//!
//! An alert is raised when a rule's value has been over its threshold for a while, and ends when it has been back for a while; both thresholds and
//! both times are the rule's. Who looks and who decides is the backend's `alerts` service.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::id::{AlertId, SessionId, SilenceId, UserId};
use crate::name::Username;
use crate::session::JobKind;

word_enum! {
    /// What is looked at.
    AlertRule {
        /// Of a session: memory that the kernel cannot take back, as a share of what the job may have, on one node. At 1 a program is killed.
        MemoryNearlyFull = "memory_nearly_full",
        /// Of a session: 1 while a GPU does not answer any more.
        GpuLost = "gpu_lost",
        /// Of a session: memory errors that a GPU could not correct in the last hour; of a divided GPU as a whole, about that.
        GpuMemoryErrors = "gpu_memory_errors",
        /// Of a session: share of the last five minutes in which a GPU was slowed down by power or heat.
        GpuThrottled = "gpu_throttled",
        /// Of a session: minutes for which none of its GPUs has computed.
        GpusIdle = "gpus_idle",
        /// 1 while a node is down or does not answer.
        NodeDown = "node_down",
        /// 1 while a node takes no jobs because somebody, or the scheduler itself, has drained it.
        NodeDrained = "node_drained",
        /// Minutes that a node's clock is wrong by, while what is told there is refused for that.
        NodeClockOff = "node_clock_off",
        /// 1 while the scheduler does not answer.
        SchedulerAway = "scheduler_away",
        /// Seconds that the last look at the scheduler took.
        SchedulerSlow = "scheduler_slow",
        /// Milliseconds that the database took for nothing at all.
        DatabaseSlow = "database_slow",
        /// 1 while the launcher takes no connections.
        LauncherAway = "launcher_away",
        /// Share of the running sessions whose agents are not connected, where there are three or more of these.
        AgentsLost = "agents_lost",
        /// Failed runs of a reconciler in a row.
        ReconcilerFailing = "reconciler_failing",
        /// 1 while something about the shared storage is broken.
        StorageBroken = "storage_broken",
        /// Days until the portal's certificate is over; it alerts below its threshold.
        CertificateEnds = "certificate_ends",
    }
}

impl AlertRule {
    /// Whether it is about a session or run, and so for its person too.
    pub const fn is_of_sessions(self) -> bool {
        matches!(
            self,
            Self::MemoryNearlyFull | Self::GpuLost | Self::GpuMemoryErrors | Self::GpuThrottled | Self::GpusIdle
        )
    }

    /// Whether less is worse.
    pub const fn is_below(self) -> bool {
        matches!(self, Self::CertificateEnds)
    }
}

word_enum! {
    /// How bad.
    AlertSeverity {
        /// Worth knowing.
        Info = "info",
        /// It will go wrong if nobody does anything.
        Warning = "warning",
        /// It has gone wrong.
        Critical = "critical",
    }
}

/// Something that somebody should know.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Id; later ones sort later.
    pub id: AlertId,
    /// By which rule.
    pub rule: AlertRule,
    /// How bad.
    pub severity: AlertSeverity,
    /// What it is about, within its rule: no two of a rule that are not over are about the same. Such as `node7`, or `<session>/node7/GPU-3`.
    pub subject: String,
    /// The session or run it is about.
    pub session: Option<SessionId>,
    /// Whose that is; none is for admins alone.
    pub owner: Option<UserId>,
    /// The rule's value when it was raised.
    pub value: f64,
    /// What its sentence says besides: `node`, `gpu`, `reason` and so on.
    pub details: BTreeMap<String, String>,
    /// Since when.
    pub started_at: Timestamp,
    /// Until when; none while it goes on.
    pub ended_at: Option<Timestamp>,
    /// Who has said that they know, and when.
    pub acknowledged: Option<(Username, Timestamp)>,
}

/// An alert with what its session is called.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownAlert {
    /// The alert.
    pub alert: Alert,
    /// Name and kind of the session it is about, and whose it is.
    pub session: Option<(String, JobKind, Username)>,
    /// Whether a webhook has taken that it is raised: it has to hear of the end, too.
    pub is_told: bool,
}

/// The session or run that a silence of a person's own is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilencedJob {
    /// Its id.
    pub id: SessionId,
    /// What it is called.
    pub name: String,
    /// Which of the two it is.
    pub kind: JobKind,
}

/// For a time nobody is told of some alerts, or one person is not told of some of their own. They are still listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Id.
    pub id: SilenceId,
    /// Of which rule; none is any.
    pub rule: Option<AlertRule>,
    /// About what, as [`Alert::subject`] has it; none is anything.
    pub subject: Option<String>,
    /// Who alone is not told, and of what is theirs alone; none is an admin's silence, in which nobody is told.
    pub owner: Option<UserId>,
    /// The session or run it is about; none is any.
    pub job: Option<SilencedJob>,
    /// Until when.
    pub until: Timestamp,
    /// Why.
    pub reason: String,
    /// Who said so.
    pub by: Username,
    /// When.
    pub created_at: Timestamp,
}

impl Silence {
    /// Whether nobody is told of `alert` at `now`.
    pub fn covers(&self, alert: &Alert, now: Timestamp) -> bool {
        self.owner.is_none() && self.names(alert, now)
    }

    /// Whether whose alert it is has asked not to be told of it at `now`. Everybody else still is.
    pub fn hides(&self, alert: &Alert, now: Timestamp) -> bool {
        self.owner.is_some() && self.owner == alert.owner && self.names(alert, now)
    }

    fn names(&self, alert: &Alert, now: Timestamp) -> bool {
        self.until > now
            && self.rule.is_none_or(|rule| rule == alert.rule)
            && self.subject.as_ref().is_none_or(|subject| *subject == alert.subject)
            && self.job.as_ref().is_none_or(|job| Some(job.id) == alert.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_covers_what_it_names_until_it_is_over() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let alert = Alert {
            id: AlertId::generate(),
            rule: AlertRule::NodeDown,
            severity: AlertSeverity::Critical,
            subject: "n1".into(),
            session: None,
            owner: None,
            value: 1.0,
            details: BTreeMap::new(),
            started_at: at(0),
            ended_at: None,
            acknowledged: None,
        };
        let all = Silence {
            id: SilenceId::generate(),
            rule: None,
            subject: None,
            owner: None,
            job: None,
            until: at(10),
            reason: "moving".into(),
            by: "admin".parse().unwrap(),
            created_at: at(0),
        };
        assert!(all.covers(&alert, at(9)) && !all.covers(&alert, at(10)));
        let of = |rule, subject: Option<&str>| Silence { rule, subject: subject.map(Into::into), ..all.clone() };
        assert!(of(Some(AlertRule::NodeDown), Some("n1")).covers(&alert, at(0)));
        assert!(!of(Some(AlertRule::NodeDrained), None).covers(&alert, at(0)));
        assert!(!of(None, Some("n2")).covers(&alert, at(0)));
        assert!(!all.hides(&alert, at(0)), "it is everybody's");
    }

    #[test]
    fn a_silence_of_ones_own_hides_what_is_ones_own_and_covers_nothing() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (ada, grace) = (UserId::generate(), UserId::generate());
        let (one, other) = (SessionId::generate(), SessionId::generate());
        let of = |owner, session| Alert {
            id: AlertId::generate(),
            rule: AlertRule::GpusIdle,
            severity: AlertSeverity::Info,
            subject: "s".into(),
            session,
            owner,
            value: 30.0,
            details: BTreeMap::new(),
            started_at: at(0),
            ended_at: None,
            acknowledged: None,
        };
        let job = |id| Some(SilencedJob { id, name: "fit".into(), kind: JobKind::Run });
        let hers = Silence {
            id: SilenceId::generate(),
            rule: Some(AlertRule::GpusIdle),
            subject: None,
            owner: Some(ada),
            job: None,
            until: at(10),
            reason: String::new(),
            by: "ada".parse().unwrap(),
            created_at: at(0),
        };
        let of_one = Silence { job: job(one), ..hers.clone() };
        let alert = of(Some(ada), Some(one));
        for silence in [&hers, &of_one] {
            assert!(silence.hides(&alert, at(9)) && !silence.hides(&alert, at(10)));
            assert!(!silence.covers(&alert, at(9)), "others are told");
            assert!(!silence.hides(&Alert { rule: AlertRule::GpuLost, ..alert.clone() }, at(9)));
            assert!(!silence.hides(&of(Some(grace), Some(one)), at(9)), "it is another's");
            assert!(!silence.hides(&of(None, None), at(9)), "it is the platform's");
        }
        let alert = of(Some(ada), Some(other));
        assert!(hers.hides(&alert, at(9)) && !of_one.hides(&alert, at(9)));
    }
}
