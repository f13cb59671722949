//! Alerts from what is seen to whoever is told. What the tests share is here; they lie by what is told of, and by who is told and who is not.

mod clocks;
mod gpus;
mod platform;
mod sending;
mod sessions;
mod silences;

use eirene_core::Role;
use eirene_core::alert::AlertSeverity;
use eirene_core::scheduler::Node;
use eirene_monitoring::{Batch, Confinement, NodeName, Sample};

use super::platform::Seen;
use super::*;
use crate::cluster::Snapshot;
use crate::testing::{TestApp, idle_node};

fn node(name: &str, state: &str) -> Node {
    let reason = (state != "idle").then(|| "it smokes".to_owned());
    Node { available: state == "idle", state: state.into(), reason, ..idle_node(name) }
}

/// One look: how node n1 is, and who runs.
async fn look(test: &TestApp, state: &str, live: &[Session]) {
    let snapshot = Snapshot {
        reachable: true,
        asked_at: Some(test.clock.now()),
        nodes: vec![node("n1", state)].into(),
        ..Snapshot::default()
    };
    let seen = Seen {
        snapshot: &snapshot,
        live,
        reconcilers: &BTreeMap::new(),
        findings: &[],
        database: None,
        launcher: true,
        certificates: &[],
        now: test.clock.now(),
    };
    test.app.alerts.look(&seen, true).await.unwrap();
}

/// Looks every five seconds for so long.
async fn looks(test: &TestApp, state: &str, live: &[Session], seconds: i64) {
    for _ in 0..seconds / 5 {
        look(test, state, live).await;
        test.clock.advance_s(5);
    }
}

async fn open(test: &TestApp) -> Vec<Alert> {
    test.app.db.open_alerts().await.unwrap()
}

fn all() -> ListAlerts {
    ListAlerts { all: true, limit: 50, ..ListAlerts::default() }
}

/// A session of each, on `c1` with so many GPUs.
async fn running(test: &TestApp, people: &[&Actor], gpus: u32) -> Vec<Session> {
    let now = test.clock.now();
    let mut live = Vec::new();
    for person in people {
        let (session, _) = test.app.sessions.start(person, TestApp::wish(), None).await.unwrap();
        let begin = |session: &mut Session| {
            session.nodes = vec!["c1".parse().unwrap()];
            session.started_at = Some(now);
        };
        let mut session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
        session.resources.gpus = gpus;
        live.push(session);
    }
    live
}

/// What the agent of a session on `c1` tells now.
async fn told<const N: usize>(test: &TestApp, session: &Session, said: [(impl AsRef<str>, f64); N]) {
    let samples = said.map(|(name, value)| Sample { series: name.as_ref().parse().unwrap(), value }).to_vec();
    let node = NodeName::try_from("c1").unwrap();
    let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
    let text = String::from_utf8(batch.write().remove(0)).unwrap();
    test.app.samples.ingest(session.id).take(&text).await;
}

/// An alert that the GPUs of a session are idle, which goes on.
async fn idle(test: &TestApp, session: &Session) -> AlertId {
    let alert = Alert {
        id: AlertId::generate(),
        rule: AlertRule::GpusIdle,
        severity: AlertSeverity::Info,
        subject: AlertId::generate().to_string(),
        session: Some(session.id),
        owner: Some(session.owner),
        value: 30.0,
        details: BTreeMap::new(),
        started_at: test.clock.now(),
        ended_at: None,
        acknowledged: None,
    };
    test.app.db.insert_alert(&alert).await.unwrap();
    alert.id
}

async fn session(test: &TestApp, owner: &Actor) -> Session {
    test.app.sessions.start(owner, TestApp::wish(), None).await.unwrap().0
}
