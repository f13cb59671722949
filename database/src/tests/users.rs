//! Users, images and adopted jobs.

use std::collections::BTreeMap;

use eirene_core::{Image, ImageId, Username};

use super::*;
use crate::{AdoptedJob, DbError};

pub(super) fn image(name: &str, version: i64) -> Image {
    Image {
        id: ImageId::generate(),
        name: name.parse().unwrap(),
        description: format!("Version {version}"),
        path: format!("/shared/images/{version}.sif"),
        sha256: "0".repeat(64),
        size_bytes: 5_000_000_000,
        apps: vec!["jupyterlab".parse().unwrap(), "tensorboard".parse().unwrap()],
        created_at: at(version),
    }
}

on_both! {
    async fn a_user_comes_back_as_it_went_in(db) {
        let mut ada = user("ada");
        ada.uid = Some(u32::MAX);
        let mut root = user("operator");
        root.uid = None;
        root.role = Role::Admin;
        db.insert_user(&ada, "hash of ada", &entry()).await.unwrap();
        db.insert_user(&root, "hash of operator", &entry()).await.unwrap();
        assert_eq!(db.user(ada.id).await.unwrap().as_ref(), Some(&ada));
        assert_eq!(db.user_by_name(&root.username).await.unwrap().as_ref(), Some(&root));
        assert_eq!(db.user_credentials(&ada.username).await.unwrap(), Some((ada, "hash of ada".to_owned())));
        assert_eq!(db.user(UserId::generate()).await.unwrap(), None);
        assert_eq!(db.user_credentials(&"grace".parse().unwrap()).await.unwrap(), None);
    }

    async fn names_are_told_by_user_ids_all_at_once(db) {
        for (name, uid) in [("ada", Some(2001)), ("abe", Some(2001)), ("grace", Some(u32::MAX)), ("operator", None)] {
            let mut user = user(name);
            user.uid = uid;
            db.insert_user(&user, "x", &entry()).await.unwrap();
        }
        let named = |all: &[(u32, &str)]| -> BTreeMap<u32, Username> {
            all.iter().map(|(uid, name)| (*uid, name.parse().unwrap())).collect()
        };
        let found = db.usernames(&[u32::MAX, 2001, 0, 7, 2001]).await.unwrap();
        assert_eq!(found, named(&[(2001, "abe"), (u32::MAX, "grace")]), "nobody is not root, and one name is enough");
        assert_eq!(db.usernames(&[]).await.unwrap(), named(&[]));
        let many: Vec<u32> = (0..40_000).collect();
        assert_eq!(db.usernames(&many).await.unwrap(), named(&[(2001, "abe")]), "more than a statement has places for");
    }

    async fn a_name_is_taken_once(db) {
        add_user(db, "ada").await;
        let second = db.insert_user(&user("ada"), "x", &entry()).await;
        assert!(matches!(second, Err(DbError::Conflict { what: "user" })), "{second:?}");
    }

    async fn users_are_paged_by_name_in_one_order_on_both_engines(db) {
        // An order by language would ignore the hyphen and put the digits elsewhere.
        let sorted = ["a-z", "a.b", "a0", "a_b", "ab", "b"];
        for name in ["b", "ab", "a_b", "a0", "a.b", "a-z"] {
            add_user(db, name).await;
        }
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let page = db.users(cursor, 2).await.unwrap();
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            cursor = Some(last.username.to_string());
            seen.extend(page.into_iter().map(|user| user.username.to_string()));
        }
        assert_eq!(seen, sorted);
    }

    async fn roles_states_and_passwords_change(db) {
        let ada = add_user(db, "ada").await;
        assert_eq!(db.count_admins().await.unwrap(), 0);
        assert!(db.set_user_role(ada.id, Role::Admin).await.unwrap());
        assert_eq!(db.count_admins().await.unwrap(), 1);
        assert!(db.replace_password(ada.id, "new", Some(ada.access_epoch), &entry()).await.unwrap());
        assert!(db.set_user_state(ada.id, UserState::Disabled, &entry()).await.unwrap());
        assert_eq!(db.count_admins().await.unwrap(), 0, "a disabled admin cannot sign in");
        let (stored, password) = db.user_credentials(&ada.username).await.unwrap().unwrap();
        assert_eq!((stored.role, stored.state, password.as_str()), (Role::Admin, UserState::Disabled, "new"));
        let nobody = UserId::generate();
        assert!(!db.set_user_role(nobody, Role::Admin).await.unwrap());
        assert!(!db.set_user_state(nobody, UserState::Disabled, &entry()).await.unwrap());
        assert!(!db.replace_password(nobody, "x", None, &entry()).await.unwrap());
    }

    async fn a_word_nobody_knows_is_named_and_not_guessed(db) {
        let ada = add_user(db, "ada").await;
        meddle(db, "UPDATE users SET role = 'king'").await.unwrap();
        match db.user(ada.id).await {
            Err(DbError::Inconsistent { table: "users", column: "role", row }) => assert_eq!(row, ada.id.to_string()),
            other => panic!("{other:?}"),
        }
        assert!(matches!(db.users(None, 10).await, Err(DbError::Inconsistent { column: "role", .. })));
        meddle(db, "UPDATE users SET role = 'admin', uid = -1").await.unwrap();
        assert!(matches!(db.user(ada.id).await, Err(DbError::Inconsistent { column: "uid", .. })));
        meddle(db, "UPDATE users SET uid = 1, created_at = 9223372036854775807").await.unwrap();
        assert!(matches!(db.user(ada.id).await, Err(DbError::Inconsistent { column: "created_at", .. })));
    }

    async fn an_image_keeps_its_name_until_another_has_it(db) {
        let (first, other, next) = (image("jupyter", 1), image("base", 1), image("jupyter", 2));
        db.insert_image(&first, &entry()).await.unwrap();
        db.insert_image(&other, &entry()).await.unwrap();
        assert_eq!(db.images().await.unwrap(), [other.clone(), first.clone()]);
        db.insert_image(&next, &entry()).await.unwrap();
        assert_eq!(db.image_by_name(&first.name).await.unwrap().as_ref(), Some(&next));
        assert_eq!(db.images().await.unwrap(), [other.clone(), next]);
        assert!(db.retire_image(&first.name, &entry()).await.unwrap());
        assert!(!db.retire_image(&first.name, &entry()).await.unwrap());
        assert_eq!(db.image_by_name(&first.name).await.unwrap(), None);
        assert_eq!(db.images().await.unwrap(), [other]);
    }

    async fn adopted_jobs_are_kept_once_and_forgotten_by_name(db) {
        let job = |marker: &str, job_id, seen| AdoptedJob {
            marker: marker.to_owned(),
            cluster: "demo".to_owned(),
            job_id,
            uid: 10_001,
            seen_at: at(seen),
        };
        for seen in [1, 2] {
            db.upsert_adopted("eirene-a", "demo", 7, 10_001, at(seen)).await.unwrap();
        }
        // Anyone may give a job the same name.
        db.upsert_adopted("eirene-a", "demo", 8, 10_001, at(3)).await.unwrap();
        db.upsert_adopted("eirene-b", "demo", u32::MAX, 10_001, at(3)).await.unwrap();
        let all = [job("eirene-a", 7, 2), job("eirene-a", 8, 3), job("eirene-b", u32::MAX, 3)];
        assert_eq!(db.adopted_jobs().await.unwrap(), all);
        assert!(db.delete_adopted("eirene-a").await.unwrap());
        assert!(!db.delete_adopted("eirene-a").await.unwrap());
        assert_eq!(db.adopted_jobs().await.unwrap(), all[2..]);
    }
}
