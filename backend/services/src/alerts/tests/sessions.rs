//! What is told of a session to whose it is, and that nothing is told of one without samples.

use super::*;

#[tokio::test]
async fn memory_that_is_nearly_full_is_told_to_whose_session_it_is() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let now = test.clock.now();
    let begin = |session: &mut Session| {
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(now);
    };
    let session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
    let live = std::slice::from_ref(&session);
    let mut ingest = test.app.samples.ingest(session.id);
    let mut says = async |held: f64, seconds: i64| {
        for _ in 0..seconds / 5 {
            let sample = |name: &str, value| Sample { series: name.parse().unwrap(), value };
            let samples = vec![
                sample("memory_bytes", held * 4e9),
                sample("memory_limit_bytes", 4e9),
                sample("memory_reclaimable_bytes", 0.02 * 4e9),
            ];
            let node = NodeName::try_from("c1").unwrap();
            let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
            ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
            look(&test, "idle", live).await;
            test.clock.advance_s(5);
        }
    };
    says(0.96, 60).await;
    assert_eq!(open(&test).await, [], "0.94 without what the kernel takes back");
    says(0.99, 20).await;
    let alert = open(&test).await.remove(0);
    assert_eq!(
        (alert.rule, alert.session, alert.owner),
        (AlertRule::MemoryNearlyFull, Some(session.id), Some(ada.user.id))
    );
    assert!(text(&alert).as_str().contains("97\u{a0}% full"), "{}", text(&alert).as_str());
    let shown = test.app.alerts.get(&ada, alert.id).await.unwrap();
    assert_eq!(shown.known.session.unwrap().0, session.name.to_string());
    assert!(matches!(test.app.alerts.get(&grace, alert.id).await, Err(AppError::Hidden)));
    assert_eq!(test.app.alerts.of_session(session.id).await.unwrap(), [alert]);
    says(0.5, 40).await;
    assert_eq!(open(&test).await, []);
}

#[tokio::test]
async fn without_samples_nothing_is_concluded_about_sessions() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let session = Session { started_at: Some(test.clock.now()), ..session };
    look(&test, "idle", std::slice::from_ref(&session)).await;
    assert_eq!(open(&test).await, []);
}
