//! Silences: an admin's for everybody, and somebody's own for themselves.

use eirene_core::TokenId;
use futures_util::StreamExt as _;

use super::*;
use crate::actor::Via;

#[tokio::test]
async fn an_event_of_what_is_silenced_says_so() {
    let test = TestApp::new().await;
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let mut events = test.app.events.subscribe_all(&root, None).await.unwrap();
    let silence = NewSilence { minutes: 60, reason: "new fans".into(), ..NewSilence::default() };
    let silence = test.app.alerts.silence(&root, silence).await.unwrap();
    looks(&test, "down", &[], 40).await;
    assert!(events.next().await.unwrap().fact.alert().silenced);
    test.app.alerts.unsilence(&root, silence.id).await.unwrap();
    test.app.alerts.acknowledge(&root, open(&test).await[0].id).await.unwrap();
    assert!(!events.next().await.unwrap().fact.alert().silenced);
}

#[tokio::test]
async fn what_is_silenced_is_listed_so_and_only_admins_silence() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    looks(&test, "down", &[], 40).await;
    let new = || NewSilence {
        rule: Some(AlertRule::NodeDown),
        subject: Some("n1".into()),
        minutes: 60,
        reason: "new fans".into(),
    };
    assert!(matches!(test.app.alerts.silence(&ada, new()).await, Err(AppError::Forbidden { .. })));
    assert!(matches!(test.app.alerts.silences(&ada).await, Err(AppError::Forbidden { .. })));
    let silenced = async || test.app.alerts.list(&root, all()).await.unwrap().items[0].silenced;
    assert!(!silenced().await);
    let silence = test.app.alerts.silence(&root, new()).await.unwrap();
    assert!(silenced().await);
    assert!(matches!(test.app.alerts.unsilence(&ada, silence.id).await, Err(AppError::Forbidden { .. })));
    test.app.alerts.unsilence(&root, silence.id).await.unwrap();
    assert!(matches!(test.app.alerts.unsilence(&root, silence.id).await, Err(AppError::NotFound)));
    assert!(!silenced().await);
    for (field, wrong) in [
        ("minutes", NewSilence { minutes: 0, ..new() }),
        ("minutes", NewSilence { minutes: MOST_MINUTES + 1, ..new() }),
        ("reason", NewSilence { reason: String::new(), ..new() }),
        ("reason", NewSilence { reason: "two\nlines".into(), ..new() }),
        ("subject", NewSilence { subject: Some(" n1".into()), ..new() }),
    ] {
        let Err(AppError::Invalid(errors)) = test.app.alerts.silence(&root, wrong).await else { panic!("{field}") };
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field]);
    }
}

fn own(job: Option<SessionId>) -> NewOwnSilence {
    NewOwnSilence { rule: AlertRule::GpusIdle, job, minutes: 60, reason: None }
}

/// Ids of alerts, and whether they are silenced, as they are listed.
async fn silenced(test: &TestApp, actor: &Actor, all: bool) -> BTreeMap<AlertId, bool> {
    let which = ListAlerts { all, limit: 50, ..ListAlerts::default() };
    let items = test.app.alerts.list(actor, which).await.unwrap().items;
    items.iter().map(|listed| (listed.known.alert.id, listed.silenced)).collect()
}

#[tokio::test]
async fn what_somebody_silences_for_one_session_is_hidden_from_them_and_from_nobody_else() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let (one, other) = (session(&test, &ada).await, session(&test, &ada).await);
    let (a, b) = (idle(&test, &one).await, idle(&test, &other).await);
    let alerts = &test.app.alerts;
    let silence = alerts.silence_own(&ada, own(Some(one.id))).await.unwrap();
    assert_eq!((silence.owner, silence.by.as_str()), (Some(ada.user.id), "ada"));

    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, true), (b, false)]));
    assert_eq!(silenced(&test, &root, true).await, BTreeMap::from([(a, false), (b, false)]));
    assert!(alerts.get(&ada, a).await.unwrap().silenced && !alerts.get(&root, a).await.unwrap().silenced);
    let told = async |actor: &Actor, session: &Session| {
        let told = alerts.told_of_session(actor, session.id).await.unwrap();
        told.iter().map(|alert| alert.id).collect::<Vec<_>>()
    };
    assert_eq!((told(&ada, &one).await, told(&ada, &other).await), (vec![], vec![b]));
    assert_eq!(told(&root, &one).await, [a]);

    let mut hers = test.app.events.subscribe(&ada, None, None).await.unwrap();
    let mut everybodys = test.app.events.subscribe_all(&root, None).await.unwrap();
    alerts.tell(a).await;
    alerts.tell(b).await;
    assert_eq!(hers.next().await.unwrap().fact.alert().known.alert.id, b);
    let event = everybodys.next().await.unwrap();
    assert_eq!((event.fact.alert().known.alert.id, event.fact.alert().silenced), (a, false));

    test.clock.advance_s(60 * 60);
    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, false), (b, false)]), "its time is over");
    assert_eq!(told(&ada, &one).await, [a]);
}

#[tokio::test]
async fn what_somebody_silences_for_all_of_theirs_is_lifted_by_them_and_by_admins_alone() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let grace = test.person("grace", 2002, Role::Researcher).await;
    let (hers, graces) = (session(&test, &ada).await, session(&test, &grace).await);
    let (a, g) = (idle(&test, &hers).await, idle(&test, &graces).await);
    let alerts = &test.app.alerts;
    let silence = alerts.silence_own(&ada, own(None)).await.unwrap();
    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, true)]));
    assert_eq!(silenced(&test, &grace, false).await, BTreeMap::from([(g, false)]));
    assert_eq!(alerts.told_of_session(&grace, graces.id).await.unwrap().len(), 1);

    assert_eq!(alerts.own_silences(&ada).await.unwrap(), std::slice::from_ref(&silence));
    assert_eq!(alerts.own_silences(&grace).await.unwrap(), []);
    assert_eq!(alerts.own_silences(&root).await.unwrap(), []);
    assert!(matches!(alerts.silences(&grace).await, Err(AppError::Forbidden { .. })));
    assert_eq!(alerts.silences(&root).await.unwrap(), std::slice::from_ref(&silence));
    assert!(matches!(alerts.unsilence_own(&grace, silence.id).await, Err(AppError::NotFound)));
    assert!(matches!(alerts.unsilence_own(&root, silence.id).await, Err(AppError::NotFound)), "it is not theirs");
    alerts.unsilence_own(&ada, silence.id).await.unwrap();
    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, false)]));
    assert!(matches!(alerts.unsilence_own(&ada, silence.id).await, Err(AppError::NotFound)));

    let again = alerts.silence_own(&ada, own(None)).await.unwrap();
    alerts.unsilence(&root, again.id).await.unwrap();
    assert_eq!(alerts.own_silences(&ada).await.unwrap(), []);
    // What an admin has silenced is lifted by nobody as their own.
    let new = NewSilence { minutes: 60, reason: "new fans".into(), ..NewSilence::default() };
    let admins = alerts.silence(&root, new).await.unwrap();
    for actor in [&ada, &root] {
        assert!(matches!(alerts.unsilence_own(actor, admins.id).await, Err(AppError::NotFound)));
    }
    let lines = test.app.db.audit_events(None, 10, None, Some("alert.silence")).await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.details["own"] == true).count(), 2);
}

#[tokio::test]
async fn a_silence_of_ones_own_is_of_ones_own_sessions_and_for_a_bounded_time() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let grace = test.person("grace", 2002, Role::Researcher).await;
    let hers = session(&test, &ada).await;
    let alerts = &test.app.alerts;
    let wrong = async |actor: &Actor, new: NewOwnSilence| match alerts.silence_own(actor, new).await {
        Err(AppError::Invalid(errors)) => errors,
        other => panic!("{other:?}"),
    };
    // Somebody else's is as good as not there, for admins too.
    let no_such = wrong(&grace, own(Some(SessionId::generate()))).await;
    assert_eq!(wrong(&grace, own(Some(hers.id))).await, no_such);
    assert_eq!(wrong(&root, own(Some(hers.id))).await, no_such);
    for (field, new) in [
        ("job", own(Some(SessionId::generate()))),
        ("rule", NewOwnSilence { rule: AlertRule::NodeDown, ..own(None) }),
        ("minutes", NewOwnSilence { minutes: 0, ..own(None) }),
        ("minutes", NewOwnSilence { minutes: MOST_MINUTES + 1, ..own(None) }),
        ("reason", NewOwnSilence { reason: Some("two\nlines".into()), ..own(None) }),
    ] {
        let errors = wrong(&ada, new).await;
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field]);
    }
    let via = Via::Token { id: TokenId::generate(), scopes: vec![Scope::SessionsRead] };
    let program = Actor { via, ..ada.clone() };
    let refused = alerts.silence_own(&program, own(None)).await;
    assert!(matches!(refused, Err(AppError::Forbidden { code: "insufficient_scope", .. })));
    assert_eq!(alerts.own_silences(&program).await.unwrap(), []);

    for _ in 0..MOST_OWN {
        alerts.silence_own(&ada, own(Some(hers.id))).await.unwrap();
    }
    let refused = alerts.silence_own(&ada, own(None)).await;
    assert!(matches!(refused, Err(AppError::Conflict { code: "too_many_silences", .. })));
    alerts.silence_own(&grace, own(None)).await.unwrap();
    test.clock.advance_s(60 * 60);
    alerts.silence_own(&ada, own(None)).await.unwrap();
}

#[tokio::test]
async fn who_heard_of_an_alert_before_silencing_it_hears_that_it_is_over() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let hers = session(&test, &ada).await;
    let before = idle(&test, &hers).await;
    test.clock.advance_s(5);
    let alerts = &test.app.alerts;
    alerts.silence_own(&ada, own(None)).await.unwrap();
    test.clock.advance_s(5);
    let after = idle(&test, &hers).await;
    let mut events = test.app.events.subscribe(&ada, None, None).await.unwrap();
    alerts.tell(before).await;
    for id in [after, before] {
        alerts.end(id, test.clock.now()).await.unwrap();
    }
    let event = events.next().await.unwrap();
    let told = &event.fact.alert().known.alert;
    assert_eq!(told.id, before, "the other began and ended in the silence");
    assert!(told.ended_at.is_some(), "{told:?}");
}
