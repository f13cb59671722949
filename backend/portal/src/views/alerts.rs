//! Alerts as pages show them: what is wrong, since when, who knows, and what can be done.

use eirene_core::JobKind;
use eirene_core::alert::{Alert, AlertRule, AlertSeverity, Silence};
use eirene_services::alerts::{Listed, text};
use eirene_words::Words;
use serde::Serialize;

use super::format::Time;
use super::layout::{Layout, Tone};
use super::session::Chip;
use super::{Choice, Field, FormError};
use crate::pages::Page;

/// Hours that a silence may last, as the form offers them.
pub(crate) const HOURS: [u32; 5] = [1, 4, 24, 72, 168];

fn tone(severity: AlertSeverity) -> Tone {
    match severity {
        AlertSeverity::Info => Tone::Busy,
        AlertSeverity::Warning => Tone::Wait,
        AlertSeverity::Critical => Tone::Bad,
    }
}

fn severity_word(words: &Words, severity: AlertSeverity) -> String {
    words.get(match severity {
        AlertSeverity::Info => "alert_list.info",
        AlertSeverity::Warning => "alert_list.warning",
        AlertSeverity::Critical => "alert_list.critical",
    })
}

/// What a rule looks at, in a few words.
pub(crate) fn rule_word(words: &Words, rule: AlertRule) -> String {
    words.get(match rule {
        AlertRule::MemoryNearlyFull => "alert_rule.memory_nearly_full",
        AlertRule::GpuLost => "alert_rule.gpu_lost",
        AlertRule::GpuMemoryErrors => "alert_rule.gpu_memory_errors",
        AlertRule::GpuThrottled => "alert_rule.gpu_throttled",
        AlertRule::GpusIdle => "alert_rule.gpus_idle",
        AlertRule::NodeDown => "alert_rule.node_down",
        AlertRule::NodeDrained => "alert_rule.node_drained",
        AlertRule::NodeClockOff => "alert_rule.node_clock_off",
        AlertRule::SchedulerAway => "alert_rule.scheduler_away",
        AlertRule::SchedulerSlow => "alert_rule.scheduler_slow",
        AlertRule::DatabaseSlow => "alert_rule.database_slow",
        AlertRule::LauncherAway => "alert_rule.launcher_away",
        AlertRule::AgentsLost => "alert_rule.agents_lost",
        AlertRule::ReconcilerFailing => "alert_rule.reconciler_failing",
        AlertRule::StorageBroken => "alert_rule.storage_broken",
        AlertRule::CertificateEnds => "alert_rule.certificate_ends",
    })
}

/// An alert on the page of its session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AlertLine {
    tone: Tone,
    text: String,
    since: Time,
}

/// What goes on of a session's alerts and nobody has said that they know of.
pub(crate) fn lines(alerts: &[Alert]) -> Vec<AlertLine> {
    let news = alerts.iter().filter(|alert| alert.ended_at.is_none() && alert.acknowledged.is_none());
    news.map(|alert| AlertLine {
        tone: tone(alert.severity),
        text: text(alert).as_str().to_owned(),
        since: Time::new(alert.started_at),
    })
    .collect()
}

/// An alert in a list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AlertRow {
    chip: Chip,
    text: String,
    rule: String,
    subject: String,
    /// The session or run, its page, and whose it is.
    job: String,
    job_href: String,
    owner: String,
    since: Time,
    until: Option<Time>,
    known: String,
    silenced: bool,
    acknowledge_href: String,
    /// Where the form for a silence of it is; empty where there is none.
    silence_href: String,
}

impl AlertRow {
    /// Shows one; to admins with whose it is.
    pub(crate) fn new(words: &Words, listed: &Listed, for_admins: bool) -> Self {
        let alert = &listed.known.alert;
        let (job, job_href, owner) = match (alert.session, &listed.known.session) {
            (Some(id), Some((name, JobKind::Session, owner))) => {
                (name.clone(), format!("/sessions/{id}"), owner.to_string())
            }
            (Some(id), Some((name, JobKind::Run, owner))) => (name.clone(), format!("/runs/{id}"), owner.to_string()),
            _ => (String::new(), String::new(), String::new()),
        };
        let known = alert.acknowledged.as_ref().map(|(by, _)| words.fill("alert_list.known", &[("name", by.as_str())]));
        let goes_on = alert.ended_at.is_none();
        let chip = if goes_on {
            Chip { label: severity_word(words, alert.severity), tone: tone(alert.severity) }
        } else {
            Chip { label: words.get("alert_list.over"), tone: Tone::Still }
        };
        let acknowledge_href = format!("/alerts/{}/acknowledge", alert.id);
        let silence_href = format!("{}?silence={}", if for_admins { "/admin/alerts" } else { "/alerts" }, alert.id);
        let may_silence = for_admins || alert.rule.is_of_sessions();
        let when = |yes: bool, text: String| if yes { text } else { String::new() };
        Self {
            chip,
            text: listed.text.as_str().to_owned(),
            rule: rule_word(words, alert.rule),
            subject: when(alert.session.is_none(), alert.subject.clone()),
            job,
            job_href,
            owner: when(for_admins, owner),
            since: Time::new(alert.started_at),
            until: alert.ended_at.map(Time::new),
            acknowledge_href: when(goes_on && known.is_none(), acknowledge_href),
            silence_href: when(goes_on && may_silence && !listed.silenced, silence_href),
            known: known.unwrap_or_default(),
            silenced: listed.silenced,
        }
    }
}

/// A silence in the admins' list, or in a person's own.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SilenceRow {
    what: String,
    reason: String,
    /// Who has said so; empty for oneself.
    by: String,
    until: Time,
    end_href: String,
}

impl SilenceRow {
    /// Shows one to admins, who see everybody's, or to whose it is.
    pub(crate) fn new(words: &Words, silence: &Silence, for_admins: bool) -> Self {
        let rule = silence.rule.map(|rule| rule_word(words, rule));
        let job = silence.job.as_ref().map(|job| job.name.clone());
        let all_own = silence.owner.map(|_| words.get("alert_list.all_own"));
        let what = match (rule, job.or_else(|| silence.subject.clone()).or(all_own)) {
            (Some(rule), Some(subject)) => format!("{rule}: {subject}"),
            (Some(rule), None) => rule,
            (None, Some(subject)) => subject,
            (None, None) => words.get("alert_list.everything"),
        };
        let by = silence.by.as_str();
        let of_one = for_admins && silence.owner.is_some();
        let silences = if for_admins { "/admin/alerts/silences" } else { "/alerts/silences" };
        Self {
            what: if of_one { words.fill("alert_list.for_one", &[("what", &what), ("name", by)]) } else { what },
            reason: silence.reason.clone(),
            by: if for_admins { by.to_owned() } else { String::new() },
            until: Time::new(silence.until),
            end_href: format!("{silences}/{}/end", silence.id),
        }
    }
}

/// What the form for a silence holds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct SilenceForm {
    /// What is known of silences of this kind.
    pub(crate) lede: String,
    /// Where it is sent.
    pub(crate) action: String,
    /// Rules, and for admins none of them.
    pub(crate) rules: Vec<Choice>,
    /// What about, for admins.
    pub(crate) subject: Field,
    /// About which session or run, for whose they are; empty for admins.
    pub(crate) jobs: Vec<Choice>,
    /// What is wrong about that.
    pub(crate) job_error: String,
    /// For how long.
    pub(crate) hours: Vec<Choice>,
    /// Why.
    pub(crate) reason: Field,
}

impl SilenceForm {
    /// With what was typed, and what is wrong about it.
    pub(crate) fn new(
        words: &Words,
        rule: &str,
        subject: &str,
        hours: &str,
        reason: &str,
        errors: &[FormError],
    ) -> Self {
        let field =
            |name: &str, value: &str| Field { value: value.to_owned(), error: FormError::text_of(errors, name) };
        let any = Choice::new("", words.get("alert_list.any_rule"), rule);
        let rules = AlertRule::ALL.iter().map(|of| Choice::new(of.as_str(), rule_word(words, *of), rule));
        let time = |of: &u32| Choice::new(of.to_string(), words.count("alert_list.hours", u64::from(*of)), hours);
        Self {
            lede: words.get("alert_list.silences_lede"),
            action: "/admin/alerts/silences".to_owned(),
            rules: std::iter::once(any).chain(rules).collect(),
            subject: field("subject", subject),
            jobs: Vec::new(),
            job_error: String::new(),
            hours: HOURS.iter().map(time).collect(),
            reason: field("reason", reason),
        }
    }

    /// The same for one's own sessions and runs, of which `jobs` can be named.
    pub(crate) fn own(
        words: &Words,
        jobs: &[(String, String)],
        (rule, job): (&str, &str),
        hours: &str,
        reason: &str,
        errors: &[FormError],
    ) -> Self {
        let rules = AlertRule::ALL.iter().filter(|of| of.is_of_sessions());
        let all = Choice::new("", words.get("alert_list.all_own"), job);
        let named = jobs.iter().map(|(id, name)| Choice::new(id.as_str(), name.as_str(), job));
        // What was asked for stays so, where it is listed no more as well: one must not become all.
        let is_other = !job.is_empty() && jobs.iter().all(|(id, _)| id != job);
        let other = is_other.then(|| Choice::new(job, job, job));
        Self {
            lede: words.get("alert_list.own_silences_lede"),
            action: "/alerts/silences".to_owned(),
            rules: rules.map(|of| Choice::new(of.as_str(), rule_word(words, *of), rule)).collect(),
            jobs: std::iter::once(all).chain(named).chain(other).collect(),
            job_error: FormError::text_of(errors, "job"),
            ..Self::new(words, rule, "", hours, reason, errors)
        }
    }
}

/// Alerts: one's own, or for admins all.
#[derive(Debug, Serialize)]
pub(crate) struct AlertsPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What is to be known of the list.
    pub(crate) lede: String,
    /// Token for the forms.
    pub(crate) csrf: String,
    /// The list.
    pub(crate) alerts: Vec<AlertRow>,
    /// What to say where there is none.
    pub(crate) nothing: String,
    /// Where the list comes from again.
    pub(crate) fragment_href: String,
    /// Where older ones are; empty for none.
    pub(crate) older_href: String,
    /// Back to the newest; empty where they are.
    pub(crate) newest_href: String,
    /// The other list: what goes on, or all.
    pub(crate) other_href: String,
    /// What that is called.
    pub(crate) other: String,
    /// What nobody is told of, for admins; what they themselves are not told of, for everybody else.
    pub(crate) silences: Vec<SilenceRow>,
    /// To add one.
    pub(crate) form: SilenceForm,
    /// What is wrong with it.
    pub(crate) errors: Vec<FormError>,
}

impl Page for AlertsPage {
    const TEMPLATE: &'static str = "pages/alerts.html";
}

/// The list alone.
#[derive(Debug, Serialize)]
pub(crate) struct AlertsFragment {
    /// Token for the forms.
    pub(crate) csrf: String,
    /// The list.
    pub(crate) alerts: Vec<AlertRow>,
    /// What to say where there is none.
    pub(crate) nothing: String,
}

impl Page for AlertsFragment {
    const TEMPLATE: &'static str = "fragments/alerts.html";
}
