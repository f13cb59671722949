//! Readings of the platform: nodes, the scheduler, the database, the launcher, agents, reconcilers, the storage, certificates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use eirene_core::alert::AlertRule;
use eirene_core::text::one_line;
use eirene_core::{Session, SessionState};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::parse_x509_certificate;

use super::watch::{Reading, Round};
use crate::cluster::Snapshot;
use crate::health::status::Health;
use crate::storage::judge::{Finding, Severity};

/// Fewer agents that are away are their sessions' business.
const FEWEST_AGENTS: usize = 3;
/// How the poller is called among the reconcilers; how it is doing has rules of its own.
pub(crate) const POLL: &str = "poll";
/// The details of an alert that say which file it is about, and which key of the configuration names that.
pub(super) const FILE: &str = "file";
pub(super) const SETTING: &str = "setting";
/// The key that names the certificate browsers are shown.
pub(super) const OWN_CERTIFICATE: &str = "server.tls_cert";
/// Longest text of others in an alert, in characters.
const MOST_TEXT: usize = 300;

/// What was seen, to be read.
pub struct Seen<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Sessions and runs that are not over.
    pub live: &'a [Session],
    /// How the reconcilers are doing.
    pub reconcilers: &'a BTreeMap<&'static str, Health>,
    /// What is wrong with the storage.
    pub findings: &'a [Finding],
    /// How long the database took; none where it gave no answer.
    pub database: Option<Duration>,
    /// Whether the launcher takes connections.
    pub launcher: bool,
    /// What is known of the certificates that are in use.
    pub certificates: &'a [Certificate],
    /// Now.
    pub now: Timestamp,
}

/// What is known of a certificate that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The key of the configuration that names its file.
    pub key: &'static str,
    /// Its file.
    pub path: PathBuf,
    /// When it is over; none where it could never be read.
    pub ends: Option<Timestamp>,
}

/// One short line out of a text of others.
fn short(text: &str) -> String {
    one_line(text, MOST_TEXT)
}

fn reading(rule: AlertRule, subject: &str, value: f64, details: &[(&str, &str)]) -> Reading {
    let said = details.iter().filter(|(_, text)| !text.is_empty());
    let details = said.map(|(name, text)| ((*name).to_owned(), short(text))).collect();
    Reading { rule, subject: subject.to_owned(), value, session: None, is_for_operators: true, details }
}

fn one(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

/// Reads it.
pub fn look(seen: &Seen<'_>) -> Round {
    let mut round = Round::default();
    nodes(seen, &mut round);
    scheduler(seen, &mut round);
    match seen.database {
        Some(took) => {
            round.readings.push(reading(AlertRule::DatabaseSlow, "", took.as_secs_f64() * 1000.0, &[]));
        }
        None => {
            round.unknown.insert(AlertRule::DatabaseSlow);
        }
    }
    round.readings.push(reading(AlertRule::LauncherAway, "", one(!seen.launcher), &[]));
    round.readings.push(agents(seen.live));
    for (name, health) in seen.reconcilers.iter().filter(|(name, _)| **name != POLL) {
        let why = health.trouble.as_deref().unwrap_or_default();
        let details = [("reconciler", *name), ("reason", why)];
        round.readings.push(reading(AlertRule::ReconcilerFailing, name, health.failures.into(), &details));
    }
    for finding in seen.findings.iter().filter(|finding| finding.severity == Severity::Broken) {
        let subject = format!("{} {}", finding.code, finding.about);
        let details = [("reason", finding.text.as_str())];
        round.readings.push(reading(AlertRule::StorageBroken, subject.trim_end(), 1.0, &details));
    }
    for certificate in seen.certificates {
        let file = certificate.path.to_string_lossy();
        let Some(ends) = certificate.ends else {
            round.unknown_of.insert((AlertRule::CertificateEnds, file.into_owned()));
            continue;
        };
        let days = ends.duration_since(seen.now).as_secs_f64() / 86_400.0;
        let details = [(FILE, &*file), (SETTING, certificate.key)];
        round.readings.push(reading(AlertRule::CertificateEnds, &file, days, &details));
    }
    round
}

fn nodes(seen: &Seen<'_>, round: &mut Round) {
    if !seen.snapshot.reachable {
        round.unknown.extend([AlertRule::NodeDown, AlertRule::NodeDrained]);
        return;
    }
    for node in seen.snapshot.nodes.iter() {
        let name = node.name.as_str();
        let details = [("node", name), ("reason", node.reason.as_deref().unwrap_or_default())];
        let is_drained = matches!(node.state.as_str(), "drained" | "draining");
        round.readings.push(reading(AlertRule::NodeDown, name, one(node.state == "down"), &details));
        round.readings.push(reading(AlertRule::NodeDrained, name, one(is_drained), &details));
    }
}

fn scheduler(seen: &Seen<'_>, round: &mut Round) {
    let trouble = seen.snapshot.trouble.as_deref().unwrap_or_default();
    let away = one(!seen.snapshot.reachable);
    round.readings.push(reading(AlertRule::SchedulerAway, "", away, &[("reason", trouble)]));
    match seen.reconcilers.get(POLL).filter(|poll| poll.trouble.is_none()) {
        Some(poll) => {
            let seconds = Duration::from_millis(poll.took_ms).as_secs_f64();
            round.readings.push(reading(AlertRule::SchedulerSlow, "", seconds, &[]));
        }
        None => {
            round.unknown.insert(AlertRule::SchedulerSlow);
        }
    }
}

fn agents(live: &[Session]) -> Reading {
    let running = live.iter().filter(|session| session.state == SessionState::Running);
    let is_away = |session: &&Session| session.reason.as_ref().is_some_and(|reason| reason.code == "agent_silent");
    let (all, away) = (running.clone().count(), running.filter(is_away).count());
    #[expect(clippy::cast_precision_loss, reason = "sessions of a cluster")]
    let share = if away < FEWEST_AGENTS { 0.0 } else { away as f64 / all as f64 };
    let details = [("away", away.to_string()), ("all", all.to_string())];
    reading(AlertRule::AgentsLost, "", share, &details.each_ref().map(|(name, text)| (*name, text.as_str())))
}

/// When the first certificate of a chain is over.
///
/// # Errors
/// The file cannot be read, or holds none.
pub fn certificate_ends(path: &Path) -> anyhow::Result<Timestamp> {
    let der = CertificateDer::from_pem_file(path).with_context(|| format!("`{}` is no certificate", path.display()))?;
    ends(&der)
}

/// When the last certificate of a file is over, by which others are known. One that is not understood says nothing.
///
/// # Errors
/// The file cannot be read, or holds none that is understood.
pub fn last_certificate_ends(path: &Path) -> anyhow::Result<Timestamp> {
    let none = || format!("`{}` is no certificate", path.display());
    let mut last: Option<Timestamp> = None;
    for der in CertificateDer::pem_file_iter(path).with_context(none)? {
        last = last.max(ends(&der.with_context(none)?).ok());
    }
    last.with_context(none)
}

/// When this certificate is over, which is given in DER.
///
/// # Errors
/// It is none.
pub fn ends(der: &[u8]) -> anyhow::Result<Timestamp> {
    let (_, certificate) = parse_x509_certificate(der).context("the certificate is not understood")?;
    Ok(Timestamp::from_second(certificate.validity().not_after.timestamp())?)
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::Node;
    use eirene_core::{Reason, Sentence};

    use super::*;
    use crate::testing::{TestApp, idle_node};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(name: &str, state: &str, reason: Option<&str>) -> Node {
        Node { available: state == "idle", state: state.into(), reason: reason.map(Into::into), ..idle_node(name) }
    }

    fn certificate(path: &str, ends: Option<i64>) -> Certificate {
        Certificate { key: "zabbix.tls_cert", path: path.into(), ends: ends.map(at) }
    }

    /// What is over its built-in threshold.
    fn over(round: &Round) -> Vec<String> {
        let is_over = |reading: &&Reading| {
            super::super::rules::Settings::built_in(reading.rule).is_over(reading.rule, reading.value)
        };
        let text = |reading: &Reading| {
            let reason = reading.details.get("reason").map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{} {}{reason}", reading.rule, reading.subject)
        };
        round.readings.iter().filter(is_over).map(text).collect()
    }

    fn good(snapshot: &Snapshot) -> Seen<'_> {
        static NOBODY: BTreeMap<&'static str, Health> = BTreeMap::new();
        Seen {
            snapshot,
            live: &[],
            reconcilers: &NOBODY,
            findings: &[],
            database: Some(Duration::from_millis(1)),
            launcher: true,
            certificates: &[],
            now: at(1000),
        }
    }

    fn snapshot(nodes: Vec<Node>) -> Snapshot {
        Snapshot { reachable: true, nodes: nodes.into(), asked_at: Some(at(999)), ..Snapshot::default() }
    }

    #[test]
    fn where_all_is_well_nothing_is_over() {
        let snapshot = snapshot(vec![node("n1", "idle", None), node("n2", "allocated", None)]);
        assert_eq!(over(&look(&good(&snapshot))), Vec::<String>::new());
    }

    #[test]
    fn nodes_that_are_down_or_drained_are_named_with_the_reason_in_one_line() {
        let nodes = vec![node("n1", "down", Some("Not\nresponding")), node("n2", "draining", None)];
        let snapshot = snapshot(nodes);
        assert_eq!(over(&look(&good(&snapshot))), ["node_down n1: Not responding", "node_drained n2"]);
    }

    #[test]
    fn of_nodes_nothing_is_known_while_the_scheduler_is_away() {
        let away =
            Snapshot { reachable: false, trouble: Some("refused".into()), ..snapshot(vec![node("n1", "down", None)]) };
        let round = look(&good(&away));
        assert_eq!(over(&round), ["scheduler_away : refused"]);
        assert!(round.unknown.contains(&AlertRule::NodeDown) && round.unknown.contains(&AlertRule::SchedulerSlow));
    }

    #[test]
    fn what_is_slow_away_or_fails_is_over() {
        let snapshot = snapshot(Vec::new());
        let health = |failures, took_ms| Health {
            last_run: at(0),
            last_good: None,
            trouble: (failures > 0).then(|| "no".to_owned()),
            took_ms,
            failures,
        };
        let reconcilers = BTreeMap::from([("poll", health(0, 6000)), ("submit", health(3, 1)), ("stop", health(2, 1))]);
        let finding = |severity| Finding {
            code: "mount_stale",
            severity,
            about: "root:scratch".into(),
            text: Sentence::from_elsewhere("It does not answer."),
        };
        let findings = [finding(Severity::Broken), finding(Severity::Warning)];
        let in_days = |path, days: i64| certificate(path, Some(1000 + days * 86_400));
        let certificates = [in_days("/tls/own", 13), in_days("/tls/good", 15), in_days("/tls/client", -1)];
        let seen = Seen {
            reconcilers: &reconcilers,
            findings: &findings,
            database: Some(Duration::from_millis(700)),
            launcher: false,
            certificates: &certificates,
            ..good(&snapshot)
        };
        let expected = [
            "scheduler_slow ",
            "database_slow ",
            "launcher_away ",
            "reconciler_failing submit: no",
            "storage_broken mount_stale root:scratch: It does not answer.",
            "certificate_ends /tls/own",
            "certificate_ends /tls/client",
        ];
        assert_eq!(over(&look(&seen)), expected);
        let silent = look(&Seen { database: None, ..good(&snapshot) });
        assert!(silent.unknown.contains(&AlertRule::DatabaseSlow));
    }

    #[test]
    fn a_certificate_that_cannot_be_read_ends_no_alert_and_one_that_is_not_there_any_more_does() {
        let snapshot = snapshot(Vec::new());
        let rule = AlertRule::CertificateEnds;
        let is_read = |round: &Round| round.readings.iter().any(|reading| reading.rule == rule);
        let certificates = [certificate("/tls/own", None)];
        let unreadable = look(&Seen { certificates: &certificates, ..good(&snapshot) });
        assert!(!is_read(&unreadable) && unreadable.unknown_of.contains(&(rule, "/tls/own".to_owned())));
        assert!(!unreadable.unknown.contains(&rule), "of others it may be known");
        let elsewhere = look(&good(&snapshot));
        assert!(!is_read(&elsewhere) && elsewhere.unknown_of.is_empty());
    }

    #[tokio::test]
    async fn agents_are_lost_where_many_are_away_together() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
        let silent = Reason::new("agent_silent", Sentence::from_elsewhere("x"));
        let of = |away: bool| Session {
            state: SessionState::Running,
            reason: away.then(|| silent.clone()),
            ..session.clone()
        };
        let all = |away: usize, there: usize| [vec![of(true); away], vec![of(false); there]].concat();
        assert!((agents(&all(2, 0)).value - 0.0).abs() < 1e-9, "two are their persons' business");
        assert!((agents(&all(3, 9)).value - 0.25).abs() < 1e-9);
        assert!((agents(&[]).value - 0.0).abs() < 1e-9);
    }

    #[test]
    fn the_end_of_a_certificate_is_read_and_what_is_none_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cert.pem");
        let mut parameters = rcgen::CertificateParams::new(vec!["a.example.org".into()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2031, 5, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&path, parameters.self_signed(&key).unwrap().pem()).unwrap();
        assert_eq!(certificate_ends(&path).unwrap(), "2031-05-01T00:00:00Z".parse().unwrap());
        std::fs::write(&path, key.serialize_pem()).unwrap();
        assert!(certificate_ends(&path).is_err());
        assert!(certificate_ends(&directory.path().join("none")).is_err());
    }

    #[test]
    fn those_by_which_others_are_known_are_good_for_as_long_as_the_last_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let until = |year| {
            let mut parameters = rcgen::CertificateParams::new(vec!["ca.example.org".into()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 5, 1);
            parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        std::fs::write(&path, [until(2001), until(2032), until(2030)].concat()).unwrap();
        assert_eq!(last_certificate_ends(&path).unwrap(), "2032-05-01T00:00:00Z".parse().unwrap());
        for wrong in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(last_certificate_ends(&path).is_err(), "{wrong}");
        }
        assert!(last_certificate_ends(&directory.path().join("none")).is_err());
    }
}
