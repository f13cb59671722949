//! Alerts: one at a time about the same, told until somebody has taken them, kept for a while.

use std::collections::BTreeMap;

use eirene_core::alert::{Alert, AlertRule, AlertSeverity, Silence, SilencedJob};
use eirene_core::{AlertId, JobKind, SilenceId};

use super::*;
use crate::DbError;

pub(super) fn alert(rule: AlertRule, subject: &str, session: Option<&Session>, second: i64) -> Alert {
    Alert {
        id: AlertId::generate(),
        rule,
        severity: AlertSeverity::Warning,
        subject: subject.into(),
        session: session.map(|session| session.id),
        owner: session.map(|session| session.owner),
        value: 0.97,
        details: BTreeMap::from([("node".to_owned(), "n1".to_owned())]),
        started_at: at(second),
        ended_at: None,
        acknowledged: None,
    }
}

pub(super) fn silence(until: i64, subject: Option<&str>) -> Silence {
    Silence {
        id: SilenceId::generate(),
        rule: Some(AlertRule::NodeDown),
        subject: subject.map(Into::into),
        owner: None,
        job: None,
        until: at(until),
        reason: "moving".into(),
        by: "admin".parse().unwrap(),
        created_at: at(1),
    }
}

async fn listed(db: &Db, owner: Option<&User>, open_only: bool) -> Vec<AlertId> {
    let found = db.alerts(owner.map(|owner| owner.id), None, open_only, 10).await.unwrap();
    found.into_iter().map(|known| known.alert.id).collect()
}

on_both! {
    async fn an_alert_comes_back_and_there_is_one_at_a_time_about_the_same(db) {
        let ada = add_user(db, "ada").await;
        let session = add_session(db, &ada).await;
        let first = alert(AlertRule::MemoryNearlyFull, "s/n1", Some(&session), 10);
        db.insert_alert(&first).await.unwrap();
        assert_eq!(db.open_alerts().await.unwrap(), std::slice::from_ref(&first));
        let again = alert(AlertRule::MemoryNearlyFull, "s/n1", Some(&session), 11);
        assert!(matches!(db.insert_alert(&again).await, Err(DbError::Conflict { .. })));
        db.insert_alert(&alert(AlertRule::GpuLost, "s/n1", Some(&session), 12)).await.unwrap();
        assert!(db.end_alert(first.id, at(20)).await.unwrap());
        assert!(!db.end_alert(first.id, at(30)).await.unwrap(), "it was over");
        db.insert_alert(&again).await.unwrap();
        let known = db.alert(first.id).await.unwrap().unwrap();
        assert_eq!(known.alert, Alert { ended_at: Some(at(20)), ..first });
        assert_eq!(known.session, Some((session.name.to_string(), JobKind::Session, ada.username)));
        assert_eq!(db.alert(AlertId::generate()).await.unwrap(), None);
    }

    async fn lists_are_of_one_person_or_of_all_and_go_on_where_they_were(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let (hers, others) = (add_session(db, &ada).await, add_session(db, &grace).await);
        let all = [
            alert(AlertRule::GpuLost, "a", Some(&hers), 1),
            alert(AlertRule::GpuLost, "b", Some(&others), 2),
            alert(AlertRule::NodeDown, "n1", None, 3),
        ];
        for alert in &all {
            db.insert_alert(alert).await.unwrap();
        }
        db.end_alert(all[0].id, at(9)).await.unwrap();
        let [a, b, node] = [all[0].id, all[1].id, all[2].id];
        assert_eq!(listed(db, None, false).await, [node, b, a]);
        assert_eq!(listed(db, None, true).await, [node, b]);
        assert_eq!(listed(db, Some(&ada), false).await, [a]);
        assert_eq!(listed(db, Some(&ada), true).await, []);
        let rest = db.alerts(None, Some(b), false, 10).await.unwrap();
        assert_eq!(rest.iter().map(|known| known.alert.id).collect::<Vec<_>>(), [a]);
        let of: Vec<_> = db.alerts_of_session(hers.id, 10).await.unwrap().iter().map(|alert| alert.id).collect();
        assert_eq!(of, [a]);
    }

    async fn who_knows_first_is_written_down(db) {
        let node = alert(AlertRule::NodeDown, "n1", None, 3);
        db.insert_alert(&node).await.unwrap();
        let (ada, grace) = ("ada".parse().unwrap(), "grace".parse().unwrap());
        assert!(db.acknowledge_alert(node.id, &ada, at(5), &entry()).await.unwrap());
        assert!(!db.acknowledge_alert(node.id, &grace, at(6), &entry()).await.unwrap());
        assert_eq!(db.alert(node.id).await.unwrap().unwrap().alert.acknowledged, Some((ada, at(5))));
        assert!(db.unacknowledge_alert(node.id, &entry()).await.unwrap());
        assert!(!db.unacknowledge_alert(node.id, &entry()).await.unwrap(), "nobody knows of it");
        assert_eq!(db.alert(node.id).await.unwrap().unwrap().alert.acknowledged, None);
        assert!(db.acknowledge_alert(node.id, &grace, at(7), &entry()).await.unwrap());
        db.end_alert(node.id, at(8)).await.unwrap();
        assert!(!db.unacknowledge_alert(node.id, &entry()).await.unwrap(), "of what is over nothing changes");
    }

    async fn an_alert_is_told_when_it_is_raised_and_when_it_is_over_until_it_was_taken(db) {
        let node = alert(AlertRule::NodeDown, "n1", None, 10);
        db.insert_alert(&node).await.unwrap();
        let due = async |now: i64, since: i64| db.alerts_to_tell(at(now), at(since), 10).await.unwrap().len();
        assert_eq!((due(9, 0).await, due(10, 0).await), (0, 1));
        assert_eq!(due(10, 11).await, 1, "what goes on is told however long ago it began");
        db.alert_not_told(node.id, at(50)).await.unwrap();
        assert_eq!((due(49, 0).await, due(50, 0).await), (0, 1));
        let is_told = async || db.alert(node.id).await.unwrap().unwrap().is_told;
        assert!(!is_told().await);
        db.alert_told(node.id, false).await.unwrap();
        assert!(is_told().await);
        assert_eq!(due(60, 0).await, 0);
        db.end_alert(node.id, at(70)).await.unwrap();
        assert_eq!((due(69, 0).await, due(70, 0).await), (0, 1));
        assert_eq!(due(70, 11).await, 1, "who was told that it is raised hears that it is over, however late");
        db.alert_told(node.id, true).await.unwrap();
        assert_eq!(due(99, 0).await, 0);
        assert_eq!((db.prune_alerts(at(70)).await.unwrap(), db.prune_alerts(at(71)).await.unwrap()), (0, 1));
    }

    async fn of_what_nobody_was_told_in_time_nobody_hears_that_it_is_over(db) {
        let node = alert(AlertRule::NodeDown, "n1", None, 10);
        db.insert_alert(&node).await.unwrap();
        db.end_alert(node.id, at(70)).await.unwrap();
        let due = async |since: i64| db.alerts_to_tell(at(80), at(since), 10).await.unwrap().len();
        assert_eq!((due(10).await, due(11).await), (1, 0));
    }

    async fn what_is_to_be_dropped_is_over_and_untold_and_is_found_until_it_is(db) {
        let all = ["a", "b", "c", "d"].map(|subject| alert(AlertRule::NodeDown, subject, None, 10));
        for alert in &all {
            db.insert_alert(alert).await.unwrap();
        }
        let [_goes_on, untold, told, refused] = all;
        db.alert_told(told.id, false).await.unwrap();
        db.alert_refused(refused.id).await.unwrap();
        for over in [&untold, &told, &refused] {
            db.end_alert(over.id, at(70)).await.unwrap();
        }
        let found = async |from: i64, before: i64, ended: i64| {
            let found = db.untold_alerts(at(from), at(before), at(ended), 10).await.unwrap();
            found.into_iter().map(|known| known.alert.id).collect::<Vec<_>>()
        };
        assert_eq!((found(11, 99, 71).await, found(0, 10, 0).await), (vec![], vec![]), "of another time");
        assert_eq!(found(0, 11, 71).await, [untold.id]);
        assert_eq!(found(11, 99, 70).await, [untold.id], "it began long ago, and ended lately");
        db.alert_dropped(untold.id).await.unwrap();
        assert_eq!((found(0, 11, 71).await, found(11, 99, 70).await), (vec![], vec![]));
        let due = db.alerts_to_tell(at(80), at(0), 10).await.unwrap();
        assert_eq!(due.len(), 2, "what goes on, and the end of what it was told of");
        assert!(!due.iter().any(|known| known.alert.id == untold.id));
    }

    async fn who_refused_to_hear_of_the_beginning_hears_of_no_end(db) {
        let node = alert(AlertRule::NodeDown, "n1", None, 10);
        db.insert_alert(&node).await.unwrap();
        db.alert_refused(node.id).await.unwrap();
        let due = async || db.alerts_to_tell(at(80), at(0), 10).await.unwrap().len();
        assert_eq!(due().await, 0);
        db.end_alert(node.id, at(70)).await.unwrap();
        assert_eq!((due().await, db.alert(node.id).await.unwrap().unwrap().is_told), (0, false));
    }

    async fn silences_are_there_until_they_are_over_or_taken_away(db) {
        let (long, short) = (silence(90, Some("n1")), silence(50, None));
        for silence in [&long, &short] {
            db.insert_silence(silence, &entry()).await.unwrap();
        }
        assert_eq!(db.silences(None, at(10)).await.unwrap(), [short.clone(), long.clone()]);
        assert_eq!(db.silences(None, at(50)).await.unwrap(), std::slice::from_ref(&long));
        assert!(db.delete_silence(None, long.id, &entry()).await.unwrap() && !db.delete_silence(None, long.id, &entry()).await.unwrap());
        assert_eq!(db.prune_alerts(at(60)).await.unwrap(), 1);
        assert_eq!(db.silences(None, at(10)).await.unwrap(), []);
    }

    async fn a_silence_of_ones_own_is_found_and_taken_away_by_whose_it_is_or_as_any(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let session = add_session(db, &ada).await;
        let job = SilencedJob { id: session.id, name: session.name.to_string(), kind: JobKind::Session };
        let hers = |job: Option<SilencedJob>, until: i64| Silence {
            id: SilenceId::generate(),
            rule: Some(AlertRule::GpusIdle),
            subject: None,
            owner: Some(ada.id),
            job,
            until: at(until),
            reason: String::new(),
            by: ada.username.clone(),
            created_at: at(1),
        };
        let (of_one, of_all) = (hers(Some(job), 50), hers(None, 60));
        let admins = Silence { owner: None, by: "admin".parse().unwrap(), ..hers(None, 70) };
        for silence in [&of_one, &of_all, &admins] {
            db.insert_silence(silence, &entry()).await.unwrap();
        }
        assert_eq!(db.silences(Some(ada.id), at(10)).await.unwrap(), [of_one.clone(), of_all.clone()]);
        assert_eq!(db.silences(Some(grace.id), at(10)).await.unwrap(), []);
        assert_eq!(db.silences(None, at(10)).await.unwrap(), [of_one.clone(), of_all.clone(), admins.clone()]);
        for silence in [&of_one, &admins] {
            assert!(!db.delete_silence(Some(grace.id), silence.id, &entry()).await.unwrap(), "it is not hers");
        }
        assert!(!db.delete_silence(Some(ada.id), admins.id, &entry()).await.unwrap());
        assert!(db.delete_silence(Some(ada.id), of_one.id, &entry()).await.unwrap());
        assert!(db.delete_silence(None, of_all.id, &entry()).await.unwrap());
        assert_eq!(db.silences(None, at(10)).await.unwrap(), [admins]);
    }
}
