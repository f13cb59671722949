//! `eirene alert` and `eirene admin alert`: what somebody should know now, who knows, and what nobody, or oneself, is not told of for a time.

use clap::{Args, Subcommand};
use eirene_core::alert::AlertRule;
use eirene_core::{AlertId, SessionId, SilenceId};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::jobs;
use crate::api::{Api, Noun};
use crate::reference::{Candidate, Reference, choose};
use crate::{output, times};

/// Where the portal has everybody's silences.
const ALL: &str = "alert-silences";
/// Where it has those of one's own.
const OWN: &str = "me/alert-silences";

/// What you should know.
#[derive(Debug, Subcommand)]
pub(crate) enum Alert {
    /// List alerts about your sessions and runs, latest first
    #[command(alias = "ls")]
    List(List),
    /// Say that you know of an alert
    #[command(alias = "ack")]
    Acknowledge {
        /// Its id, or how its id begins
        alert: Reference<AlertId>,
    },
    /// Be not told of some alerts about your sessions and runs for a time
    Silence(OwnSilence),
    /// List what you are not told of
    Silences,
    /// Be told of alerts again
    Unsilence {
        /// The silence's id, or how its id begins
        silence: Reference<SilenceId>,
    },
}

/// What an admin should know.
#[derive(Debug, Subcommand)]
pub(crate) enum AdminAlert {
    /// List alerts about the platform and everybody's sessions and runs, latest first
    #[command(alias = "ls")]
    List(List),
    /// Say that you know of an alert
    #[command(alias = "ack")]
    Acknowledge {
        /// Its id, or how its id begins
        alert: Reference<AlertId>,
    },
    /// Have nobody told of some alerts for a time
    Silence(Silence),
    /// List what nobody is told of, and what people have silenced for themselves
    Silences,
    /// Have alerts told again
    Unsilence {
        /// The silence's id, or how its id begins
        silence: Reference<SilenceId>,
    },
}

/// Which alerts.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also the ones that are over
    #[arg(long, short)]
    all: bool,
}

/// What you are not to be told of.
#[derive(Debug, Args)]
pub(crate) struct OwnSilence {
    /// Of which rule, such as `gpus_idle`
    #[arg(long)]
    rule: AlertRule,
    /// About this session, by its name, its id or how its id begins; without it and `--run` about all of yours
    #[arg(long, conflicts_with = "run")]
    session: Option<Reference<SessionId>>,
    /// About this run
    #[arg(long)]
    run: Option<Reference<SessionId>>,
    /// For how many hours
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=744))]
    hours: u32,
    /// Why; you need not say
    #[arg(long)]
    reason: Option<String>,
}

/// What nobody is to be told of.
#[derive(Debug, Args)]
pub(crate) struct Silence {
    /// Of which rule, such as `node_down`; any when left out
    #[arg(long)]
    rule: Option<AlertRule>,
    /// About what, as alerts have it as their subject, such as `node7`; anything when left out
    #[arg(long)]
    subject: Option<String>,
    /// For how many hours
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=744))]
    hours: u32,
    /// Why
    #[arg(long)]
    reason: String,
}

/// The part of an alert this program reads.
#[derive(Debug, Deserialize)]
struct Found {
    id: AlertId,
    rule: AlertRule,
    severity: String,
    text: String,
    subject: String,
    job: Option<Job>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    acknowledged_by: Option<String>,
    silenced: bool,
}

#[derive(Debug, Deserialize)]
struct Job {
    name: String,
    owner: String,
}

impl Found {
    fn about(&self) -> String {
        self.job.as_ref().map_or_else(|| self.subject.clone(), |job| format!("{} ({})", job.name, job.owner))
    }

    fn standing(&self) -> String {
        match (self.ended_at, &self.acknowledged_by) {
            (Some(_), _) => "over".to_owned(),
            (None, Some(by)) => format!("{} known to {by}", self.severity),
            (None, None) if self.silenced => format!("{} silenced", self.severity),
            (None, None) => self.severity.clone(),
        }
    }
}

pub(super) async fn run(api: &Api, verb: Alert, as_json: bool) -> anyhow::Result<()> {
    match verb {
        Alert::List(which) => list(api, &which, false, as_json).await,
        Alert::Acknowledge { alert } => acknowledge(api, &alert, false, as_json).await,
        Alert::Silence(wanted) => silence_own(api, &wanted, as_json).await,
        Alert::Silences => silences(api, OWN, as_json).await,
        Alert::Unsilence { silence } => unsilence(api, OWN, &silence, as_json).await,
    }
}

pub(super) async fn run_as_admin(api: &Api, verb: AdminAlert, as_json: bool) -> anyhow::Result<()> {
    match verb {
        AdminAlert::List(which) => list(api, &which, true, as_json).await,
        AdminAlert::Acknowledge { alert } => acknowledge(api, &alert, true, as_json).await,
        AdminAlert::Silence(wanted) => silence(api, &wanted, as_json).await,
        AdminAlert::Silences => silences(api, ALL, as_json).await,
        AdminAlert::Unsilence { silence } => unsilence(api, ALL, &silence, as_json).await,
    }
}

async fn found(api: &Api, past: bool, everybodys: bool) -> anyhow::Result<Vec<Value>> {
    api.list(&format!("alerts?all={everybodys}&open={}", !past)).await
}

async fn list(api: &Api, which: &List, everybodys: bool, as_json: bool) -> anyhow::Result<()> {
    let items = found(api, which.all, everybodys).await?;
    if as_json {
        return output::json(&Value::Array(items));
    }
    let now = times::now();
    let mut rows = Vec::new();
    for item in items {
        let alert: Found = serde_json::from_value(item)?;
        rows.push(vec![
            alert.id.to_string(),
            alert.standing(),
            times::relative(alert.started_at, now),
            output::printable(&alert.about()),
            output::printable(&alert.text),
        ]);
    }
    output::table(&["ALERT", "STATE", "SINCE", "ABOUT", "WHAT"], rows, "All is well.")
}

async fn acknowledge(api: &Api, wanted: &Reference<AlertId>, everybodys: bool, as_json: bool) -> anyhow::Result<()> {
    let id = match wanted {
        Reference::Id(id) => *id,
        Reference::Text(text) => {
            let mut candidates = Vec::new();
            for item in found(api, false, everybodys).await? {
                let alert: Found = serde_json::from_value(item)?;
                let remark = format!("since {}", times::local(alert.started_at));
                candidates.push(Candidate { id: alert.id, name: alert.rule.to_string(), remark });
            }
            choose("alert", text, &candidates)?
        }
    };
    let answer = api.post(&format!("alerts/{id}/acknowledge"), &json!({})).await?;
    super::done(&answer, as_json, "It is written down that you know.")
}

async fn silence(api: &Api, wanted: &Silence, as_json: bool) -> anyhow::Result<()> {
    let mut body = json!({"minutes": wanted.hours.saturating_mul(60), "reason": wanted.reason});
    if let Some(rule) = wanted.rule {
        body["rule"] = rule.as_str().into();
    }
    if let Some(subject) = &wanted.subject {
        body["subject"] = subject.as_str().into();
    }
    let answer = api.post(ALL, &body).await?;
    let hours = wanted.hours;
    super::done(&answer, as_json, &format!("Nobody is told of these alerts for {hours} h. They are still listed."))
}

async fn silence_own(api: &Api, wanted: &OwnSilence, as_json: bool) -> anyhow::Result<()> {
    let job = match (&wanted.session, &wanted.run) {
        (Some(session), _) => Some(jobs::find(api, Noun::Session, session).await?.id),
        (None, Some(run)) => Some(jobs::find(api, Noun::Run, run).await?.id),
        (None, None) => None,
    };
    let mut body = json!({"rule": wanted.rule.as_str(), "minutes": wanted.hours.saturating_mul(60)});
    if let Some(job) = job {
        body["job"] = job.to_string().into();
    }
    if let Some(reason) = &wanted.reason {
        body["reason"] = reason.as_str().into();
    }
    let answer = api.post(OWN, &body).await?;
    let hours = wanted.hours;
    super::done(&answer, as_json, &format!("You are not told of these alerts for {hours} h. They are still listed."))
}

/// The part of a silence this program reads.
#[derive(Debug, Deserialize)]
struct Silenced {
    id: SilenceId,
    rule: Option<AlertRule>,
    subject: Option<String>,
    owner: Option<String>,
    job: Option<SilencedJob>,
    until: Timestamp,
    reason: String,
    by: String,
}

#[derive(Debug, Deserialize)]
struct SilencedJob {
    name: String,
}

impl Silenced {
    /// What it is about; of somebody's own, whose.
    fn about(&self) -> String {
        match (&self.owner, &self.job) {
            (Some(owner), Some(job)) => format!("{} of {owner}", job.name),
            (Some(owner), None) => format!("all of {owner}"),
            (None, _) => self.subject.clone().unwrap_or_else(|| "any".to_owned()),
        }
    }
}

async fn silences(api: &Api, path: &str, as_json: bool) -> anyhow::Result<()> {
    let items = api.list(path).await?;
    if as_json {
        return output::json(&Value::Array(items));
    }
    let now = times::now();
    let mut rows = Vec::new();
    for item in items {
        let silence: Silenced = serde_json::from_value(item)?;
        rows.push(vec![
            silence.id.to_string(),
            silence.rule.map_or_else(|| "any".to_owned(), |rule| rule.to_string()),
            output::printable(&silence.about()),
            times::relative(silence.until, now),
            output::printable(&silence.by),
            output::printable(&silence.reason),
        ]);
    }
    output::table(&["SILENCE", "RULE", "SUBJECT", "OVER", "BY", "WHY"], rows, "Nothing is silenced.")
}

async fn unsilence(api: &Api, path: &str, wanted: &Reference<SilenceId>, as_json: bool) -> anyhow::Result<()> {
    let id = match wanted {
        Reference::Id(id) => *id,
        Reference::Text(text) => {
            let mut candidates = Vec::new();
            for item in api.list(path).await? {
                let silence: Silenced = serde_json::from_value(item)?;
                candidates.push(Candidate { id: silence.id, name: silence.reason, remark: silence.by });
            }
            choose("silence", text, &candidates)?
        }
    };
    api.delete(&format!("{path}/{id}")).await?;
    super::done(&json!({"ended": id}), as_json, "These alerts are told again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(extra: &Value) -> Found {
        let mut value = json!({
            "id": "0190d2a4c3f87b1e8f0e6d2f4b5a6978", "rule": "node_down", "severity": "critical", "text": "Node n1 is down.",
            "subject": "n1", "value": 1.0, "details": {}, "started_at": "2026-11-21T12:00:00Z", "silenced": false,
        });
        for (key, text) in extra.as_object().unwrap() {
            value[key] = text.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_alert_says_how_it_stands_and_what_it_is_about() {
        assert_eq!(alert(&json!({})).standing(), "critical");
        assert_eq!(alert(&json!({"silenced": true})).standing(), "critical silenced");
        assert_eq!(alert(&json!({"silenced": true, "acknowledged_by": "root"})).standing(), "critical known to root");
        assert_eq!(alert(&json!({"ended_at": "2026-11-21T13:00:00Z"})).standing(), "over");
        assert_eq!(alert(&json!({})).about(), "n1");
        let job = json!({"job": {"kind": "run", "id": "x", "name": "fit", "owner": "ada"}});
        assert_eq!(alert(&job).about(), "fit (ada)");
    }
}
