//! GPUs, whole and divided, of which several sessions may tell, and one of them lie.

use futures_util::StreamExt as _;

use super::*;

#[tokio::test]
async fn a_lost_gpu_of_which_nobody_tells_any_more_is_lost_until_its_session_ends() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let now = test.clock.now();
    let begin = |session: &mut Session| {
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(now);
    };
    let mut session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
    session.resources.gpus = 1;
    let live = std::slice::from_ref(&session);
    let mut ingest = test.app.samples.ingest(session.id);
    for up in [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] {
        let samples = vec![Sample { series: "gpu_up/0".parse().unwrap(), value: up }];
        let node = NodeName::try_from("c1").unwrap();
        let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
        ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
        looks(&test, "idle", live, 5).await;
    }
    let lost = async || open(&test).await.iter().filter(|alert| alert.rule == AlertRule::GpuLost).count();
    assert_eq!(lost().await, 1);
    looks(&test, "idle", live, 600).await;
    assert_eq!(lost().await, 1, "silence says nothing");
    looks(&test, "idle", &[], 70).await;
    assert_eq!(lost().await, 0);
}

#[tokio::test]
async fn of_a_divided_gpu_a_person_hears_what_slows_her_part_and_admins_hear_once_of_errors() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let live = running(&test, &[&ada, &grace], 1).await;
    for round in 0..30 {
        for (part, session) in live.iter().enumerate() {
            // The second has begun after the errors, and tells of none.
            let errors = if part == 0 && round > 0 { 2.0 } else { 0.0 };
            let said = [
                (format!("gpu_up/1.{part}"), 1.0),
                ("gpu_ecc_uncorrected/1".to_owned(), errors),
                ("gpu_throttled/1".to_owned(), 1.0),
            ];
            told(&test, session, said).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    }
    let alerts = open(&test).await;
    let (errors, slowed): (Vec<&Alert>, Vec<&Alert>) =
        alerts.iter().partition(|alert| alert.rule == AlertRule::GpuMemoryErrors);
    let [errors] = &errors[..] else { panic!("once, whoever tells of it: {alerts:?}") };
    assert_eq!((errors.subject.as_str(), errors.session, errors.owner), ("c1/1", None, None));
    assert!(text(errors).as_str().contains("2 memory errors"), "{}", text(errors).as_str());
    assert!(slowed.iter().all(|alert| alert.rule == AlertRule::GpuThrottled) && slowed.len() == 2, "{slowed:?}");
    for actor in [&ada, &grace] {
        let hers = test.app.alerts.list(actor, ListAlerts { limit: 50, ..ListAlerts::default() }).await.unwrap().items;
        let [hers] = &hers[..] else { panic!("{hers:?}") };
        assert_eq!(hers.known.alert.rule, AlertRule::GpuThrottled);
        assert!(hers.text.as_str().contains("of which you have a part"), "{}", hers.text.as_str());
    }
}

#[tokio::test]
async fn who_knows_of_one_session_s_word_is_told_when_another_finds_the_same() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let live = running(&test, &[&ada, &grace], 1).await;
    let says = async |errors: [f64; 2]| {
        for (part, (session, errors)) in live.iter().zip(errors).enumerate() {
            let said = [(format!("gpu_up/1.{part}"), 1.0), ("gpu_ecc_uncorrected/1".to_owned(), errors)];
            told(&test, session, said).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    };
    says([0.0, 0.0]).await;
    says([1e6, 0.0]).await;
    let alert = open(&test).await.remove(0);
    assert_eq!((alert.rule, alert.subject.as_str()), (AlertRule::GpuMemoryErrors, "c1/1"));
    test.app.alerts.acknowledge(&root, alert.id).await.unwrap();
    let known = async || test.app.db.alert(alert.id).await.unwrap().unwrap().alert.acknowledged.is_some();
    says([2e6, 0.0]).await;
    assert!(known().await, "it is the same one who says more");
    let mut events = test.app.events.subscribe_all(&root, None).await.unwrap();
    says([2e6, 1.0]).await;
    assert!(!known().await);
    let event = loop {
        let event = events.next().await.unwrap();
        if event.kind == EventKind::Alert {
            break event;
        }
    };
    let told = &event.fact.alert().known;
    assert_eq!((told.alert.id, &told.alert.acknowledged), (alert.id, &None));
    let lines = test.app.db.audit_events(None, 10, None, Some("alert.unacknowledge")).await.unwrap();
    assert_eq!(lines[0].details, json!({"rule": "gpu_memory_errors", "subject": "c1/1", "value": 1.0}));
    test.app.alerts.acknowledge(&root, alert.id).await.unwrap();
    says([2e6, 1.0]).await;
    says([2e6, 2.0]).await;
    assert!(known().await, "of both they know now");
    assert_eq!(open(&test).await.len(), 1);
}

#[tokio::test]
async fn of_two_parts_that_are_idle_and_not_both_tell_it_a_person_hears_only_where_nothing_is_on_the_other() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let live = running(&test, &[&ada, &grace], 2).await;
    for _ in 0..40 {
        for (session, on_it) in live.iter().zip([1.0, 0.0]) {
            let said = [
                ("gpu_util/1.0", 0.0),
                ("gpu_processes/1.0", 1.0),
                ("gpu_up/1.0", 1.0),
                ("gpu_processes/1.1", on_it),
                ("gpu_up/1.1", 1.0),
            ];
            told(&test, session, said).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(60);
    }
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.rule, alert.session), (AlertRule::GpusIdle, Some(live[1].id)));
}

#[tokio::test]
async fn a_session_that_spends_all_its_alerts_and_lies_about_a_gpu_hides_none_that_another_tells_admins() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let now = test.clock.now();
    let mut live = Vec::new();
    for person in [&grace, &ada] {
        let (session, _) = test.app.sessions.start(person, TestApp::wish(), None).await.unwrap();
        let begin = |session: &mut Session| {
            session.nodes = vec!["c1".parse().unwrap()];
            session.started_at = Some(now);
        };
        let mut session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
        session.resources.gpus = 1;
        live.push(session);
    }
    let says = async |session: &Session, said: Vec<(String, f64)>| {
        let sample = |(name, value): (String, f64)| Sample { series: name.parse().unwrap(), value };
        let samples = said.into_iter().map(sample).collect();
        let node = NodeName::try_from("c1").unwrap();
        let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
        for text in batch.write() {
            test.app.samples.ingest(session.id).take(&String::from_utf8(text).unwrap()).await;
        }
    };
    let of = |gpu: u32, errors: f64| [(format!("gpu_up/{gpu}.0"), 1.0), (format!("gpu_ecc_uncorrected/{gpu}"), errors)];
    for round in 0..20 {
        // Errors of a hundred GPUs, and later more of the one of which the other tells then.
        let lies = if round > 0 { 7.0 } else { 0.0 };
        let (lie, truth) = if round > 10 { (1e12, 2.0) } else { (0.0, 0.0) };
        says(&live[0], (10..110).flat_map(|gpu| of(gpu, lies)).chain(of(1, lie)).collect()).await;
        says(&live[1], of(1, truth).to_vec()).await;
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    }
    let alerts = open(&test).await;
    assert_eq!(alerts.len(), 65, "what one session may raise, and the truth");
    let told: Vec<_> = alerts.iter().filter(|alert| alert.subject == "c1/1").collect();
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!((told.rule, told.owner), (AlertRule::GpuMemoryErrors, None));
    assert!(text(told).as_str().contains("2 memory errors"), "{}", text(told).as_str());
}
