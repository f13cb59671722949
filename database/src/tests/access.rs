//! Log-ins, tokens, hand-over codes and app log-ins: who is let in, and until when.

use super::*;
use crate::{AppLogin, DbError};

on_both! {
    async fn a_login_is_good_until_it_is_over(db) {
        let ada = add_user(db, "ada").await;
        let login = login(&ada);
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        assert_eq!(db.login_by_hash(&hash("cookie"), counting(999)).await.unwrap(), Some((login.clone(), ada)));
        assert_eq!(db.login_by_hash(&hash("cookie"), counting(1000)).await.unwrap(), None);
        assert_eq!(db.login_by_hash(&hash("other"), counting(0)).await.unwrap(), None);
        assert!(db.delete_login(login.id, &entry()).await.unwrap());
        assert!(!db.delete_login(login.id, &entry()).await.unwrap());
        assert_eq!(db.login_by_hash(&hash("cookie"), counting(0)).await.unwrap(), None);
    }

    async fn touching_moves_forward_only(db) {
        let ada = add_user(db, "ada").await;
        let (login, token) = (login(&ada), token(&ada, None));
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        db.insert_token(0, &token, &hash("token"), &entry()).await.unwrap();
        for seen in [50, 20] {
            db.touch_login(login.id, at(seen)).await.unwrap();
            db.touch_token(token.id, at(seen)).await.unwrap();
        }
        let (login, _) = db.login_by_hash(&hash("cookie"), counting(60)).await.unwrap().unwrap();
        let (token, _) = db.token_by_hash(&hash("token"), at(60)).await.unwrap().unwrap();
        assert_eq!((login.last_seen_at, token.last_used_at), (at(50), Some(at(50))));
    }

    async fn a_token_is_good_until_it_is_over_and_belongs_to_its_user(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let (forever, short) = (token(&ada, None), token(&ada, Some(at(100))));
        db.insert_token(0, &forever, &hash("forever"), &entry()).await.unwrap();
        db.insert_token(0, &short, &hash("short"), &entry()).await.unwrap();
        let second = db.insert_token(0, &token(&grace, None), &hash("short"), &entry()).await;
        assert!(matches!(second, Err(DbError::Conflict { what: "token" })), "{second:?}");
        assert_eq!(db.token_by_hash(&hash("short"), at(99)).await.unwrap(), Some((short.clone(), ada.clone())));
        assert_eq!(db.token_by_hash(&hash("short"), at(100)).await.unwrap(), None);
        assert_eq!(db.token_by_hash(&hash("forever"), at(1_000_000)).await.unwrap(), Some((forever.clone(), ada.clone())));
        assert_eq!(db.tokens_of(ada.id).await.unwrap(), [short.clone(), forever.clone()]);
        assert_eq!(db.tokens_of(grace.id).await.unwrap(), []);
        assert!(!db.delete_token(grace.id, forever.id, &entry()).await.unwrap(), "grace cannot delete what is ada's");
        assert!(db.delete_token(ada.id, forever.id, &entry()).await.unwrap());
        assert_eq!(db.token_by_hash(&hash("forever"), at(0)).await.unwrap(), None);
    }

    async fn a_scope_nobody_knows_is_named(db) {
        let ada = add_user(db, "ada").await;
        db.insert_token(0, &token(&ada, None), &hash("token"), &entry()).await.unwrap();
        meddle(db, "UPDATE tokens SET scopes = '[\"read\",\"everything\"]'").await.unwrap();
        let found = db.token_by_hash(&hash("token"), at(0)).await;
        assert!(matches!(found, Err(DbError::Inconsistent { table: "tokens", column: "scopes", .. })), "{found:?}");
    }

    async fn of_many_takers_one_gets_the_hand_over_code(db) {
        let ada = add_user(db, "ada").await;
        let session = add_session(db, &ada).await;
        let login = login(&ada);
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        db.insert_handover(&hash("code"), session.id, ada.id, login.id, at(60), counting(0)).await.unwrap();
        let takers: Vec<_> = (0..16)
            .map(|_| {
                let db = db.clone();
                tokio::spawn(async move { db.take_handover(&hash("code"), session.id, at(1)).await.unwrap() })
            })
            .collect();
        let mut taken = Vec::new();
        for taker in takers {
            taken.extend(taker.await.unwrap());
        }
        assert_eq!(taken, [(ada.id, login.id)]);
    }

    async fn a_code_is_for_its_session_and_its_minute(db) {
        let ada = add_user(db, "ada").await;
        let (session, other) = (add_session(db, &ada).await, add_session(db, &ada).await);
        let login = login(&ada);
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        db.insert_handover(&hash("code"), session.id, ada.id, login.id, at(60), counting(0)).await.unwrap();
        assert_eq!(db.take_handover(&hash("code"), other.id, at(1)).await.unwrap(), None);
        assert_eq!(db.take_handover(&hash("code"), session.id, at(60)).await.unwrap(), None);
        assert_eq!(db.take_handover(&hash("code"), session.id, at(59)).await.unwrap(), Some((ada.id, login.id)));
        assert_eq!(db.take_handover(&hash("code"), session.id, at(59)).await.unwrap(), None);
    }

    async fn an_app_login_ends_with_the_login_it_came_from(db) {
        let ada = add_user(db, "ada").await;
        let (session, other) = (add_session(db, &ada).await, add_session(db, &ada).await);
        let login = login(&ada);
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        db.insert_app_login(&hash("app"), &app_login(session.id, ada.id, login.id, at(2000)), counting(0), &entry()).await.unwrap();
        let found = AppLogin { user: ada.clone(), login: login.id, last_seen_at: at(0) };
        assert_eq!(db.app_login(&hash("app"), session.id, counting(999)).await.unwrap(), Some(found));
        assert_eq!(db.app_login(&hash("app"), other.id, counting(1)).await.unwrap(), None, "a cookie is for one session");
        assert_eq!(db.app_login(&hash("app"), session.id, counting(1000)).await.unwrap(), None, "the sign-in has ended");
        db.delete_login(login.id, &entry()).await.unwrap();
        assert_eq!(db.app_login(&hash("app"), session.id, counting(1)).await.unwrap(), None);
    }

    async fn a_login_that_is_idle_for_too_long_opens_nothing(db) {
        let ada = add_user(db, "ada").await;
        let session = add_session(db, &ada).await;
        let login = login(&ada);
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        db.touch_login(login.id, at(50)).await.unwrap();
        let used_after = |second| Counting { now: at(100), used_after: at(second) };
        for (name, idle, opens) in [("a", used_after(49), true), ("b", used_after(50), false)] {
            db.insert_handover(&hash(name), session.id, ada.id, login.id, at(160), idle).await.unwrap();
            assert_eq!(db.insert_app_login(&hash(name), &app_login(session.id, ada.id, login.id, at(160)), idle, &entry()).await.unwrap(), opens, "{name}");
            assert_eq!(db.login_by_hash(&hash("cookie"), idle).await.unwrap().is_some(), opens, "{name}");
            assert_eq!(db.take_handover(&hash(name), session.id, at(100)).await.unwrap().is_some(), opens, "{name}");
            assert_eq!(db.app_login(&hash(name), session.id, counting(100)).await.unwrap().is_some(), opens, "{name}");
            assert_eq!(db.app_login(&hash("a"), session.id, idle).await.unwrap().is_some(), opens, "{name}");
        }
    }

    async fn nothing_is_kept_for_a_login_that_is_gone_or_somebody_elses(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let session = add_session(db, &ada).await;
        let login = login(&ada);
        db.insert_handover(&hash("code"), session.id, ada.id, login.id, at(60), counting(0)).await.unwrap();
        db.insert_app_login(&hash("app"), &app_login(session.id, ada.id, login.id, at(60)), counting(0), &entry()).await.unwrap();
        db.insert_login(0, &login, &hash("cookie"), &entry()).await.unwrap();
        db.insert_app_login(&hash("graces"), &app_login(session.id, grace.id, login.id, at(60)), counting(0), &entry()).await.unwrap();
        assert_eq!(db.take_handover(&hash("code"), session.id, at(1)).await.unwrap(), None);
        assert_eq!(db.app_login(&hash("app"), session.id, counting(1)).await.unwrap(), None);
        assert_eq!(db.app_login(&hash("graces"), session.id, counting(1)).await.unwrap(), None);
    }

    async fn voiding_access_ends_everything_of_one_user(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let mut sessions = Vec::new();
        for user in [&ada, &grace] {
            let (session, login) = (add_session(db, user).await, login(user));
            let name = user.username.as_str();
            db.insert_login(0, &login, &hash(&format!("{name} cookie")), &entry()).await.unwrap();
            db.insert_token(0, &token(user, None), &hash(&format!("{name} token")), &entry()).await.unwrap();
            db.insert_handover(&hash(&format!("{name} code")), session.id, user.id, login.id, at(60), counting(0)).await.unwrap();
            db.insert_app_login(&hash(&format!("{name} app")), &app_login(session.id, user.id, login.id, at(60)), counting(0), &entry()).await.unwrap();
            sessions.push(session.id);
        }
        db.replace_password(ada.id, "another", None, &entry()).await.unwrap();
        assert_eq!(doors(db, "ada", sessions[0]).await, [false; 4]);
        assert_eq!(doors(db, "grace", sessions[1]).await, [true; 4]);
    }

    async fn disabling_ends_everything_and_enabling_brings_nothing_back(db) {
        let ada = add_user(db, "ada").await;
        let (session, login) = (add_session(db, &ada).await, login(&ada));
        db.insert_login(0, &login, &hash("ada cookie"), &entry()).await.unwrap();
        db.insert_token(0, &token(&ada, None), &hash("ada token"), &entry()).await.unwrap();
        db.insert_app_login(&hash("ada app"), &app_login(session.id, ada.id, login.id, at(60)), counting(0), &entry()).await.unwrap();
        db.set_user_state(ada.id, UserState::Disabled, &entry()).await.unwrap();
        // A log-in whose password was checked just before.
        assert!(!db.insert_login(0, &super::login(&ada), &hash("late cookie"), &entry()).await.unwrap());
        assert_eq!(db.login_by_hash(&hash("late cookie"), counting(1)).await.unwrap(), None);
        db.set_user_state(ada.id, UserState::Active, &entry()).await.unwrap();
        assert_eq!(doors(db, "ada", session.id).await, [false; 4]);
    }

    async fn a_new_password_ends_everything_and_what_was_authorised_by_the_old_one_comes_too_late(db) {
        let before = add_user(db, "ada").await;
        db.insert_login(0, &login(&before), &hash("cookie"), &entry()).await.unwrap();
        assert!(db.replace_password(before.id, "new", None, &entry()).await.unwrap());
        assert!(!db.replace_password(before.id, "a thief's", Some(before.access_epoch), &entry()).await.unwrap());
        assert_eq!(db.login_by_hash(&hash("cookie"), counting(1)).await.unwrap(), None);
        assert!(!db.insert_login(before.access_epoch, &login(&before), &hash("late cookie"), &entry()).await.unwrap());
        assert!(!db.insert_token(before.access_epoch, &token(&before, None), &hash("late token"), &entry()).await.unwrap());
        assert!(!db.rehash_password(before.id, "$argon2id$…", "better").await.unwrap(), "not the old one back");
        let (now, stored) = db.user_credentials(&before.username).await.unwrap().unwrap();
        assert_eq!(stored, "new");
        assert!(db.insert_login(now.access_epoch, &login(&now), &hash("cookie"), &entry()).await.unwrap());
        assert!(db.rehash_password(now.id, "new", "better").await.unwrap());
        assert!(db.login_by_hash(&hash("cookie"), counting(1)).await.unwrap().is_some());
    }

    async fn what_is_over_is_removed_and_the_rest_stays(db) {
        let ada = add_user(db, "ada").await;
        let session = add_session(db, &ada).await;
        let (stays, goes) = (login(&ada), Login { expires_at: at(100), ..login(&ada) });
        db.insert_login(0, &stays, &hash("stays"), &entry()).await.unwrap();
        db.insert_login(0, &goes, &hash("goes"), &entry()).await.unwrap();
        for (name, until) in [("a", 100), ("b", 101)] {
            db.insert_handover(&hash(name), session.id, ada.id, stays.id, at(until), counting(0)).await.unwrap();
            db.insert_app_login(&hash(name), &app_login(session.id, ada.id, stays.id, at(until)), counting(0), &entry()).await.unwrap();
            db.insert_token(0, &token(&ada, Some(at(until))), &hash(name), &entry()).await.unwrap();
        }
        db.insert_token(0, &token(&ada, None), &hash("forever"), &entry()).await.unwrap();
        assert_eq!(db.delete_expired(at(100)).await.unwrap(), 4);
        assert_eq!(db.delete_expired(at(100)).await.unwrap(), 0);
        // Asked for an earlier moment, so only what is still stored is found.
        assert!(db.login_by_hash(&hash("stays"), counting(0)).await.unwrap().is_some());
        assert!(db.login_by_hash(&hash("goes"), counting(0)).await.unwrap().is_none());
        assert_eq!(db.tokens_of(ada.id).await.unwrap().len(), 2);
        assert!(db.app_login(&hash("a"), session.id, counting(0)).await.unwrap().is_none());
        assert!(db.app_login(&hash("b"), session.id, counting(0)).await.unwrap().is_some());
        assert!(db.take_handover(&hash("a"), session.id, at(0)).await.unwrap().is_none());
        assert!(db.take_handover(&hash("b"), session.id, at(0)).await.unwrap().is_some());
    }
}

/// Which of a user's four ways in are open: log-in, token, app log-in, hand-over code.
async fn doors(db: &Db, name: &str, session: SessionId) -> [bool; 4] {
    let secret = |kind: &str| hash(&format!("{name} {kind}"));
    [
        db.login_by_hash(&secret("cookie"), counting(1)).await.unwrap().is_some(),
        db.token_by_hash(&secret("token"), at(1)).await.unwrap().is_some(),
        db.app_login(&secret("app"), session, counting(1)).await.unwrap().is_some(),
        db.take_handover(&secret("code"), session, at(1)).await.unwrap().is_some(),
    ]
}
