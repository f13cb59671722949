//! The page of charts: where its module finds figures, what happened meanwhile, and what they can be compared with.
//!
//! The charts are drawn in the browser (`frontend/static/js/charts.js`); without scripts the page shows what the server draws of the same.

use std::collections::BTreeMap;

use eirene_core::alert::{Alert, AlertRule, AlertSeverity};
use eirene_core::job_usage::JobStart;
use eirene_core::session::{JobKind, Session};
use eirene_services::samples::{LeftOut, WrongClock};
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::alerts::rule_word;
use super::layout::Layout;
use super::usage::UsageView;
use crate::pages::Page;

/// Most nodes of which it is said that their clock is wrong: where a site's clocks are, all of them may be.
const MOST_CLOCKS: usize = 4;

/// The page.
#[derive(Debug, Serialize)]
pub(crate) struct ChartsPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What the session or run is called.
    pub(crate) name: String,
    /// Its page.
    pub(crate) back_href: String,
    /// For the page's module: JSON of [`About`].
    pub(crate) about: String,
    /// What is not in the charts, because there is too much of it or nobody tells it, a sentence each.
    pub(crate) left_out: Vec<String>,
    /// Of which nodes nothing is taken, as their clocks are wrong, a sentence each.
    pub(crate) clocks: Vec<String>,
    /// The charts for browsers without scripts.
    pub(crate) usage: UsageView,
}

impl Page for ChartsPage {
    const TEMPLATE: &'static str = "pages/charts.html";
}

/// What the page's module has to know. Times are RFC 3339, UTC.
#[derive(Debug, Serialize)]
struct About {
    /// Where samples are read.
    samples: String,
    /// What tells that there are new ones.
    events: String,
    /// The last event before all this was read: those behind it are heard, whenever the page begins to listen.
    last_event: i64,
    /// When it began for the first time; without an allocation, when it was asked for.
    begins: Timestamp,
    /// How often it has been put back into the queue.
    restarts: u32,
    /// Whether it is there again.
    waits: bool,
    /// When it was over; none while it is not.
    ends: Option<Timestamp>,
    /// The portal's clock, which counts, not the reader's.
    now: Timestamp,
    /// CPUs on each node: what there can be at most.
    cpus: u32,
    /// What happened.
    marks: Vec<Mark>,
    /// What alerts are called that are yet to come, by their rules.
    rules: BTreeMap<&'static str, String>,
    /// What it can be compared with.
    others: Vec<Other>,
}

/// Something that happened.
#[derive(Debug, Serialize)]
struct Mark {
    at: Timestamp,
    text: String,
    /// How it is meant; empty mostly.
    tone: &'static str,
    /// The alert that it is of: one that is told again is no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<String>,
}

/// Something to compare with.
#[derive(Debug, Serialize)]
struct Other {
    /// Its address below `/live`, such as `runs/…`.
    of: String,
    name: String,
    begins: Timestamp,
}

/// Where a session or a run is found, below the root or below `/live`.
pub(crate) fn below(session: &Session) -> String {
    let folder = match session.kind() {
        JobKind::Session => "sessions",
        JobKind::Run => "runs",
    };
    format!("{folder}/{}", session.id)
}

/// [`ChartsPage::left_out`].
pub(crate) fn left_out(words: &Words, left_out: &[LeftOut]) -> Vec<String> {
    left_out.iter().map(|what| words.get(what.key())).collect()
}

/// What is said of clocks that are wrong: once of the portal's, where it is most likely that one, of some nodes, and of how many more.
pub(crate) fn clocks(words: &Words, wrong: &[WrongClock]) -> Vec<String> {
    let (common, own): (Vec<&WrongClock>, Vec<&WrongClock>) = wrong.iter().partition(|clock| clock.is_common);
    let named = common.first().into_iter().chain(own.iter().take(MOST_CLOCKS));
    let mut said: Vec<String> = named.map(|clock| clock.text().to_string()).collect();
    let more = own.len().saturating_sub(MOST_CLOCKS);
    if more > 0 {
        said.push(words.count("clock.more", more as u64));
    }
    said
}

/// When `session` began for the first time; `earlier` are its starts that were over before it was put back into the queue, the first of them first.
pub(crate) fn first_start(session: &Session, earlier: &[JobStart]) -> Option<Timestamp> {
    earlier.first().map(|start| start.started_at).or(session.started_at)
}

/// [`ChartsPage::about`] of `session`, with its earlier starts; `others` are sessions and runs that whoever looks may see. Those without an allocation
/// have used nothing.
pub(crate) fn about(
    words: &Words,
    session: &Session,
    earlier: &[JobStart],
    alerts: &[Alert],
    others: &[Session],
    (last_event, now): (i64, Timestamp),
) -> String {
    let at = |at: Option<Timestamp>, key: &str, tone| at.map(|at| Mark { at, text: words.get(key), tone, alert: None });
    let over = session.ended_at.filter(|_| session.state.is_final());
    let ends = session.ends_at.filter(|_| over.is_none());
    // The scheduler may kill a job before any of its programs is killed in it: then no figure says so.
    let is_killed = session.reason.as_ref().is_some_and(|reason| reason.code == "out_of_memory");
    let (ended, tone) = if is_killed { ("charts.killed", "bad") } else { ("charts.ended", "") };
    let started = |place: usize| if place == 0 { "charts.started" } else { "charts.started_again" };
    let mut marks = vec![at(Some(session.created_at), "charts.asked", "")];
    for (place, start) in earlier.iter().enumerate() {
        marks.push(at(Some(start.started_at), started(place), ""));
        marks.push(at(Some(start.ended_at), "charts.requeued", "wait"));
    }
    marks.push(at(session.started_at, started(earlier.len()), ""));
    marks.push(at(over, ended, tone));
    marks.push(at(ends, "charts.time_over", "wait"));
    let alert = |alert: &Alert| {
        let tone = if alert.severity == AlertSeverity::Critical { "bad" } else { "wait" };
        Mark { at: alert.started_at, text: rule_word(words, alert.rule), tone, alert: Some(alert.id.to_string()) }
    };
    let rules = AlertRule::ALL.iter().filter(|rule| rule.is_of_sessions());
    let other = |other: &Session| {
        let begins = other.started_at.filter(|_| other.id != session.id)?;
        Some(Other { of: below(other), name: other.name.to_string(), begins })
    };
    let about = About {
        samples: format!("/live/{}/samples", below(session)),
        events: format!("/live/{}/events", below(session)),
        last_event,
        begins: first_start(session, earlier).unwrap_or(session.created_at),
        restarts: session.restart_count,
        waits: session.restart_count > 0 && session.started_at.is_none(),
        ends: over,
        now,
        cpus: session.resources.cpus,
        marks: marks.into_iter().flatten().chain(alerts.iter().map(alert)).collect(),
        rules: rules.map(|rule| (rule.as_str(), rule_word(words, *rule))).collect(),
        others: others.iter().filter_map(other).collect(),
    };
    serde_json::to_string(&about).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use eirene_core::AlertId;
    use eirene_core::session::{Reason, SessionState};
    use eirene_words::{say, words};
    use serde_json::Value;

    use super::*;
    use crate::samples::Samples;

    fn told(samples: &Samples, session: &Session, others: &[Session]) -> Value {
        serde_json::from_str(&about(words(), session, &[], &[], others, (7, samples.now))).unwrap()
    }

    #[test]
    fn marks_are_what_has_happened_and_the_end_that_is_foreseen() {
        let samples = Samples::new().unwrap();
        let marks = |state| -> Vec<String> {
            let told = told(&samples, &samples.session("x", state).unwrap(), &[]);
            let marks = told["marks"].as_array().unwrap().clone();
            marks.iter().map(|mark| mark["text"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(marks(SessionState::Queued), ["Asked for"]);
        assert_eq!(marks(SessionState::Running), ["Asked for", "Started", "Its time is over"]);
        assert_eq!(marks(SessionState::Failed), ["Asked for", "Started", "Ended"]);
    }

    #[test]
    fn what_was_put_back_into_the_queue_begins_at_its_first_start_and_each_is_a_mark() {
        let samples = Samples::new().unwrap();
        let mut session = samples.session("x", SessionState::Running).unwrap();
        let started = session.started_at.unwrap();
        let (id, asked) = (session.id, session.created_at);
        let later = |seconds: i64| asked + jiff::SignedDuration::from_secs(seconds);
        let start = |restart_count: u32, from, to| JobStart {
            session: id,
            restart_count,
            started_at: later(from),
            ended_at: later(to),
        };
        // The second of its three starts was over while nobody looked.
        let earlier = [start(0, 10, 20), start(2, 30, 40)];
        let about = |session: &Session| -> Value {
            serde_json::from_str(&about(words(), session, &earlier, &[], &[], (7, samples.now))).unwrap()
        };
        let marks = |told: &Value| -> Vec<(String, String)> {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            told["marks"].as_array().unwrap().iter().map(|mark| (text(&mark["text"]), text(&mark["at"]))).collect()
        };
        let first = earlier[0].started_at.to_string();
        session.restart_count = 3;
        let told = about(&session);
        assert_eq!((told["begins"].as_str(), told["restarts"].as_u64()), (Some(first.as_str()), Some(3)));
        assert_eq!(told["waits"], false);
        let found = marks(&told);
        let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        let back = "Put back into the queue";
        let all = ["Asked for", "Started", back, "Started again", back, "Started again", "Its time is over"];
        assert_eq!(texts, all);
        assert_eq!((&found[1].1, &found[5].1), (&first, &started.to_string()));
        (session.state, session.started_at) = (SessionState::Queued, None);
        let told = about(&session);
        assert_eq!(told["begins"], first);
        assert_eq!(told["waits"], true);
        assert_eq!(marks(&told)[4].0, back);
    }

    #[test]
    fn an_end_for_want_of_memory_is_told_as_one() {
        let samples = Samples::new().unwrap();
        let mut session = samples.session("x", SessionState::Failed).unwrap();
        let end = |session: &Session| told(&samples, session, &[])["marks"].as_array().unwrap().last().unwrap().clone();
        session.reason = Some(Reason::new("node_failed", say("reason.node_failed")));
        assert_eq!((&end(&session)["text"], &end(&session)["tone"]), (&"Ended".into(), &"".into()));
        session.reason = Some(Reason::new("out_of_memory", say("reason.out_of_memory")));
        assert_eq!((&end(&session)["text"], &end(&session)["tone"]), (&"Killed, memory used up".into(), &"bad".into()));
    }

    #[test]
    fn alerts_are_marks_with_their_ids_and_those_to_come_have_their_words() {
        let samples = Samples::new().unwrap();
        let session = samples.session("x", SessionState::Running).unwrap();
        let alert = Alert {
            id: AlertId::generate(),
            rule: AlertRule::GpuLost,
            severity: AlertSeverity::Critical,
            subject: "x".into(),
            session: Some(session.id),
            owner: Some(session.owner),
            value: 1.0,
            details: BTreeMap::new(),
            started_at: samples.now,
            ended_at: None,
            acknowledged: None,
        };
        let text = about(words(), &session, &[], std::slice::from_ref(&alert), &[], (7, samples.now));
        let told: Value = serde_json::from_str(&text).unwrap();
        let (mark, word) = (told["marks"].as_array().unwrap().last().unwrap(), rule_word(words(), alert.rule));
        assert_eq!((&mark["alert"], &mark["text"]), (&alert.id.to_string().into(), &word.as_str().into()));
        assert_eq!((&mark["tone"], &told["rules"]["gpu_lost"]), (&"bad".into(), &word.into()));
        assert_eq!(told["rules"].get("node_down"), None, "that is not a session's");
        assert_eq!(told["marks"][0].get("alert"), None);
    }

    #[test]
    fn what_is_not_over_has_no_end_and_what_has_not_begun_begins_when_it_was_asked_for() {
        let samples = Samples::new().unwrap();
        let queued = samples.session("x", SessionState::Queued).unwrap();
        let found = told(&samples, &queued, &[]);
        assert_eq!((&found["begins"], &found["ends"]), (&queued.created_at.to_string().into(), &Value::Null));
        let ended = samples.session("x", SessionState::Ended).unwrap();
        let found = told(&samples, &ended, &[]);
        assert_eq!(found["begins"], ended.started_at.unwrap().to_string());
        assert_eq!(found["ends"], ended.ended_at.unwrap().to_string());
    }

    #[test]
    fn others_are_those_that_have_begun_but_not_it_itself() {
        let samples = Samples::new().unwrap();
        let session = samples.session("x", SessionState::Running).unwrap();
        let run = samples.run("train", SessionState::Ended, Some(2)).unwrap();
        let queued = samples.session("later", SessionState::Queued).unwrap();
        let found = told(&samples, &session, &[session.clone(), run.clone(), queued]);
        let others = found["others"].as_array().unwrap();
        assert_eq!(others.len(), 1);
        assert_eq!((&others[0]["of"], &others[0]["name"]), (&format!("runs/{}", run.id).into(), &"train".into()));
        assert_eq!(found["samples"], format!("/live/sessions/{}/samples", session.id));
    }
}
