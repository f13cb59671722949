//! Clocks that are wrong: a node's, or the portal's own.

use super::*;

#[tokio::test]
async fn of_a_clock_that_is_wrong_admins_hear_once_whoever_tells_of_it_and_until_it_is_right() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let live = running(&test, &[&ada, &grace], 0).await;
    let says = async |seconds: i64, ahead: SignedDuration| {
        for _ in 0..seconds / 5 {
            for session in &live {
                let samples = vec![Sample { series: "cpu_seconds".parse().unwrap(), value: 1.0 }];
                let (node, at) = (NodeName::try_from("c1").unwrap(), test.clock.now() + ahead);
                let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
                let text = String::from_utf8(batch.write().remove(0)).unwrap();
                test.app.samples.ingest(session.id).take(&text).await;
            }
            look(&test, "idle", &live).await;
            test.clock.advance_s(5);
        }
    };
    says(60, SignedDuration::from_mins(6)).await;
    assert_eq!(open(&test).await, [], "it may be put right at once");
    says(30, SignedDuration::from_mins(6)).await;
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.rule, alert.subject.as_str(), alert.owner), (AlertRule::NodeClockOff, "c1", None));
    assert!(text(alert).as_str().contains("node c1 is 6 minutes ahead"), "{}", text(alert).as_str());
    let hers = test.app.alerts.list(&ada, ListAlerts { limit: 50, ..ListAlerts::default() }).await.unwrap();
    assert!(hers.items.is_empty(), "it is for admins");
    says(80, SignedDuration::ZERO).await;
    assert_eq!(open(&test).await, []);
}

#[tokio::test]
async fn where_most_nodes_are_off_by_the_same_admins_hear_of_the_portals_clock_alone() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let ada = test.ada().await;
    let session = running(&test, &[&ada], 0).await.remove(0);
    let nodes = ["c1", "c2", "c3"];
    let have = |session: &mut Session| session.nodes = nodes.map(|node| node.parse().unwrap()).to_vec();
    let live = [test.app.sessions.change(session.id, have).await.unwrap().unwrap()];
    let mut ingest = test.app.samples.ingest(session.id);
    for _ in 0..18 {
        for node in nodes {
            let samples = vec![Sample { series: "cpu_seconds".parse().unwrap(), value: 1.0 }];
            let (node, at) = (NodeName::try_from(node).unwrap(), test.clock.now() + SignedDuration::from_mins(6));
            let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
            ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    }
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.rule, alert.subject.as_str()), (AlertRule::NodeClockOff, PORTAL_CLOCK));
    let said = text(alert);
    assert!(said.as_str().contains("6 minutes ahead of the portal"), "{}", said.as_str());
    let pages = test.app.samples.wrong_clocks_of(session.id);
    assert!(pages.len() == 3 && pages.iter().all(|clock| clock.text() == said), "{pages:?}");
}
