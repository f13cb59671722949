//! The audit log: what was written stays as it was written.

use eirene_core::alert::AlertRule;
use eirene_core::audit::{AuditEntry, AuditEvent, NewAuditEvent};
use eirene_core::old_files::{OldFilesOf, OldFilesState};
use eirene_core::space::SpaceDesired;
use eirene_core::{Space, SpaceOwner};
use serde_json::json;

use super::alerts::{alert, silence};
use super::spaces::space;
use super::users::image;
use super::*;

fn event(actor: &str, action: &'static str) -> NewAuditEvent {
    NewAuditEvent {
        actor: actor.to_owned(),
        action,
        target: "grace".to_owned(),
        outcome: "ok",
        details: json!({"why": "'; DELETE FROM audit_events; --"}),
        address: Some("192.0.2.1".to_owned()),
        request_id: None,
    }
}

fn numbers(events: &[AuditEvent]) -> Vec<i64> {
    events.iter().map(|event| event.id).collect()
}

on_both! {
    async fn events_come_back_newest_first_page_by_page_and_by_actor_and_action(db) {
        let kinds = [("ada", "session.start"), ("ada", "session.stop"), ("grace", "session.start"), ("ada", "login")];
        let mut ids = Vec::new();
        for (n, (actor, action)) in kinds.into_iter().enumerate() {
            ids.push(db.append_audit(&AuditEntry::new(event(actor, action), at(i64::try_from(n).unwrap()))).await.unwrap());
        }
        let all = db.audit_events(None, 10, None, None).await.unwrap();
        assert_eq!(numbers(&all), ids.iter().rev().copied().collect::<Vec<_>>());
        let expected = AuditEvent {
            id: ids[3],
            at: at(3),
            actor: "ada".into(),
            action: "login".into(),
            target: "grace".into(),
            outcome: "ok".into(),
            details: json!({"why": "'; DELETE FROM audit_events; --"}),
            address: Some("192.0.2.1".into()),
            request_id: None,
        };
        assert_eq!(all[0], expected);
        let page = db.audit_events(Some(ids[3]), 2, None, None).await.unwrap();
        assert_eq!(numbers(&page), [ids[2], ids[1]]);
        assert_eq!(numbers(&db.audit_events(Some(ids[1]), 2, None, None).await.unwrap()), [ids[0]]);
        let starts = db.audit_events(None, 10, None, Some("session.start")).await.unwrap();
        assert_eq!(numbers(&starts), [ids[2], ids[0]]);
        let of_ada = db.audit_events(None, 10, Some("ada"), None).await.unwrap();
        assert_eq!(numbers(&of_ada), [ids[3], ids[1], ids[0]]);
        let both = db.audit_events(None, 10, Some("ada"), Some("session.start")).await.unwrap();
        assert_eq!(numbers(&both), [ids[0]]);
    }

    async fn without_its_line_nothing_is_changed(db) {
        let (ada, grace) = (add_user(db, "ada").await, user("grace"));
        let (stays, new) = (session(&ada), session(&ada));
        db.insert_session(&stays, Start::default()).await.unwrap();
        let (login, token) = (login(&ada), token(&ada, None));
        assert!(db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap());
        assert!(db.insert_token(0, &token, &hash("token"), &entry()).await.unwrap());
        let picture = image("jupyter", 1);
        db.insert_image(&picture, &entry()).await.unwrap();

        meddle(db, "ALTER TABLE audit_events RENAME TO away").await.unwrap();
        let line = entry();
        db.insert_user(&grace, "hash", &line).await.unwrap_err();
        db.set_user_state(ada.id, UserState::Disabled, &line).await.unwrap_err();
        db.replace_password(ada.id, "another", None, &line).await.unwrap_err();
        db.insert_login(0, &super::login(&ada), &hash("another cookie"), &line).await.unwrap_err();
        db.delete_login(login.id, &line).await.unwrap_err();
        db.insert_token(0, &super::token(&ada, None), &hash("another token"), &line).await.unwrap_err();
        db.delete_token(ada.id, token.id, &line).await.unwrap_err();
        db.insert_image(&image("jupyter", 2), &line).await.unwrap_err();
        db.retire_image(&picture.name, &line).await.unwrap_err();
        db.insert_session(&new, Start { audit: Some(&line), ..Start::default() }).await.unwrap_err();
        let ends = Session { desired: Desired::Ended, ..stays.clone() };
        db.update_session(&ends, Some(&line)).await.unwrap_err();

        assert_eq!(db.user_by_name(&grace.username).await.unwrap(), None);
        let (user, password) = db.user_credentials(&ada.username).await.unwrap().unwrap();
        assert_eq!((user, password.as_str()), (ada.clone(), "$argon2id$…"), "the same person, password and access");
        assert!(db.login_by_hash(&hash("cookie"), counting(0)).await.unwrap().is_some());
        assert!(db.login_by_hash(&hash("another cookie"), counting(0)).await.unwrap().is_none());
        assert_eq!(db.tokens_of(ada.id).await.unwrap(), [token]);
        assert_eq!(db.images().await.unwrap(), [picture]);
        assert_eq!(db.live_sessions().await.unwrap(), [stays]);
        meddle(db, "ALTER TABLE away RENAME TO audit_events").await.unwrap();
    }

    async fn without_its_line_no_space_alert_or_rule_is_changed(db) {
        let ada = add_user(db, "ada").await;
        let stays = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        let (session, login) = (add_session(db, &ada).await, login(&ada));
        assert!(db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap());
        let (open, known) = (alert(AlertRule::NodeDown, "n1", None, 1), alert(AlertRule::NodeDown, "n2", None, 1));
        for alert in [&open, &known] {
            db.insert_alert(alert).await.unwrap();
        }
        assert!(db.acknowledge_alert(known.id, &ada.username, at(2), &entry()).await.unwrap());
        let silenced = silence(90, Some("n1"));
        db.insert_silence(&silenced, &entry()).await.unwrap();

        meddle(db, "ALTER TABLE audit_events RENAME TO away").await.unwrap();
        let lines = [entry(), entry()];
        db.insert_space(space("new", SpaceOwner::Everybody), &lines).await.unwrap_err();
        db.update_space(&Space { desired: SpaceDesired::Gone, ..stays.clone() }, &lines).await.unwrap_err();
        let exempt = OldFilesState { exempt: true, ..OldFilesState::new(stays.id) };
        db.put_old_files(&exempt, &lines).await.unwrap_err();
        let of_member = OldFilesOf { space: stays.id, member: Some(ada.id) };
        db.put_old_files(&OldFilesState::new(of_member), &lines).await.unwrap_err();
        let app = hash("app");
        db.insert_app_login(&app, &app_login(session.id, ada.id, login.id, at(60)), counting(0), &lines[0]).await.unwrap_err();
        db.acknowledge_alert(open.id, &ada.username, at(2), &lines[0]).await.unwrap_err();
        db.unacknowledge_alert(known.id, &lines[0]).await.unwrap_err();
        db.insert_silence(&silence(90, Some("n2")), &lines[0]).await.unwrap_err();
        db.delete_silence(None, silenced.id, &lines[0]).await.unwrap_err();

        assert_eq!(db.spaces(None, 10).await.unwrap(), std::slice::from_ref(&stays));
        assert_eq!(db.app_login(&app, session.id, counting(0)).await.unwrap(), None);
        assert_eq!(db.old_files_of_members(stays.id).await.unwrap(), []);
        assert_eq!(db.old_files(stays.id).await.unwrap(), OldFilesState::new(stays.id));
        let by = db.open_alerts().await.unwrap().into_iter().map(|alert| alert.acknowledged.map(|(by, _)| by));
        assert_eq!(by.collect::<Vec<_>>(), [None, Some(ada.username)]);
        assert_eq!(db.silences(None, at(10)).await.unwrap(), [silenced]);
        meddle(db, "ALTER TABLE away RENAME TO audit_events").await.unwrap();
    }

    async fn what_is_not_changed_has_no_line(db) {
        let stays = db.insert_space(space("data", SpaceOwner::Everybody), &[entry(), entry()]).await.unwrap();
        assert_eq!(db.audit_events(None, 10, None, None).await.unwrap().len(), 2);
        let (late, nobody) = (Space { version: stays.version + 1, ..stays }, silence(90, None));
        assert!(!db.update_space(&late, &[entry()]).await.unwrap());
        assert!(!db.delete_silence(None, nobody.id, &entry()).await.unwrap());
        let alert = alert(AlertRule::NodeDown, "n1", None, 1);
        assert!(!db.unacknowledge_alert(alert.id, &entry()).await.unwrap());
        assert!(!db.acknowledge_alert(alert.id, &"ada".parse().unwrap(), at(2), &entry()).await.unwrap());
        let rule = OldFilesState::new(late.id);
        assert!(db.put_old_files(&rule, &[]).await.unwrap() && !db.put_old_files(&rule, &[entry()]).await.unwrap());
        db.insert_space(space("data", SpaceOwner::Everybody), &[entry()]).await.unwrap_err();
        assert_eq!(db.audit_events(None, 10, None, None).await.unwrap().len(), 2);
    }

    async fn nobody_changes_or_removes_what_was_written(db) {
        db.append_audit(&AuditEntry::new(event("ada", "login"), at(0))).await.unwrap();
        let before = db.audit_events(None, 10, None, None).await.unwrap();
        for sql in [
            "UPDATE audit_events SET actor = 'nobody'",
            "UPDATE audit_events SET outcome = outcome",
            "DELETE FROM audit_events",
            "DELETE FROM audit_events WHERE id = 1",
        ] {
            let error = meddle(db, sql).await.expect_err(sql);
            assert!(error.to_string().contains("audit events are append-only"), "{sql}: {error}");
        }
        if let Db::Postgres(_) = db {
            meddle(db, "TRUNCATE audit_events").await.expect_err("TRUNCATE");
        }
        assert_eq!(db.audit_events(None, 10, None, None).await.unwrap(), before);
    }
}
