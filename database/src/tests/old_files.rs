//! Old files: a row that reads back, and of two who change it one is told.

use eirene_core::SpaceOwner;
use eirene_core::old_files::{
    OldFileExample, OldFilesDoubt, OldFilesFound, OldFilesList, OldFilesLook, OldFilesOf, OldFilesOfOther,
    OldFilesOfStranger, OldFilesRemoval, OldFilesState,
};

use super::spaces::space;
use super::*;

fn found() -> OldFilesFound {
    let example = OldFileExample {
        path: "a'; --/é".into(),
        raw_path: Some("YQ".into()),
        bytes: u64::MAX,
        modified_at: Some(at(-5)),
        changed_at: None,
    };
    let others = vec![OldFilesOfOther { uid: 7, files: 1, bytes: u64::MAX }];
    OldFilesFound { files: 3, bytes: u64::MAX, saved: 1, skipped: 2, more: true, examples: vec![example], others }
}

fn list() -> OldFilesList {
    OldFilesList {
        at: at(1),
        before: at(-100),
        days: 30,
        warn_days: 14,
        dry_run: true,
        told_at: Some(at(2)),
        waited_s: 5,
        found: found(),
    }
}

on_both! {
    async fn what_is_known_of_old_files_reads_back_and_of_two_who_change_it_one_was_late(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        let nothing = db.old_files(space.id).await.unwrap();
        assert_eq!(nothing, OldFilesState::new(space.id));
        let full = OldFilesState {
            exempt: true,
            days: Some(60),
            seen_at: Some(at(7)),
            steady_s: 9,
            doubt: Some(OldFilesDoubt::OtherFileSystem),
            list: Some(list()),
            look: Some(OldFilesLook { at: at(3), days: 1, found: found() }),
            removed: Some((at(4), OldFilesRemoval { files: 1, bytes: 2, kept: 3, gone: 4, failed: 5 })),
            strangers: vec![OldFilesOfStranger {
                uid: 7,
                name: Some("gone".parse().unwrap()),
                files: 1,
                bytes: 2,
                seen_at: Some(at(6)),
            }],
            ..nothing.clone()
        };
        assert!(db.put_old_files(&full, &[]).await.unwrap());
        let stored = db.old_files(space.id).await.unwrap();
        assert_eq!(stored, OldFilesState { version: 1, ..full.clone() });
        assert!(!db.put_old_files(&full, &[]).await.unwrap(), "it was written from nothing once");
        let later = OldFilesState { doubt: None, list: None, ..stored.clone() };
        assert!(db.put_old_files(&later, &[]).await.unwrap());
        assert!(!db.put_old_files(&stored, &[]).await.unwrap());
        assert_eq!(db.old_files(space.id).await.unwrap(), OldFilesState { version: 2, ..later });
    }

    async fn what_is_known_of_members_is_theirs_and_what_is_said_of_the_space_holds_for_them(db) {
        let space = db.insert_space(space("stars", SpaceOwner::Group("physics".parse().unwrap())), &[]).await.unwrap();
        let (grace, ada) = (add_user(db, "grace").await, add_user(db, "ada").await);
        let of = |member: &User| OldFilesOf { space: space.id, member: Some(member.id) };
        let nothing = db.old_files(of(&ada)).await.unwrap();
        assert_eq!(nothing, OldFilesState::new(of(&ada)));
        let full = OldFilesState {
            seen_at: Some(at(7)),
            steady_s: 9,
            doubt: Some(OldFilesDoubt::NoMember),
            list: Some(list()),
            look: Some(OldFilesLook { at: at(3), days: 1, found: found() }),
            removed: Some((at(4), OldFilesRemoval { files: 1, bytes: 2, kept: 3, gone: 4, failed: 5 })),
            ..nothing
        };
        assert!(db.put_old_files(&full, &[]).await.unwrap());
        assert!(!db.put_old_files(&full, &[]).await.unwrap(), "it was written from nothing once");
        assert!(db.put_old_files(&OldFilesState::new(of(&grace)), &[]).await.unwrap());
        let exempt = OldFilesState { exempt: true, days: Some(60), ..OldFilesState::new(space.id) };
        assert!(db.put_old_files(&exempt, &[]).await.unwrap());
        let stored = db.old_files(of(&ada)).await.unwrap();
        assert_eq!(stored, OldFilesState { version: 1, exempt: true, days: Some(60), ..full.clone() });
        let members = db.old_files_of_members(space.id).await.unwrap();
        let names: Vec<_> = members.iter().map(|(name, state)| (name.as_str(), state.of.member)).collect();
        assert_eq!(names, [("ada", Some(ada.id)), ("grace", Some(grace.id))]);
        assert_eq!(members[0].1, stored);

        db.clear_old_files(space.id).await.unwrap();
        assert!(!db.put_old_files(&stored, &[]).await.unwrap(), "who read it before is late, whatever they know of the exemption");
        let cleared = db.old_files(of(&ada)).await.unwrap();
        assert_eq!(cleared, OldFilesState { version: 2, list: None, ..stored });
        db.forget_old_files(space.id, ada.id).await.unwrap();
        let names: Vec<_> = db.old_files_of_members(space.id).await.unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [grace.username]);
        let forgotten = db.old_files(of(&ada)).await.unwrap();
        assert_eq!((forgotten.version, forgotten.exempt, forgotten.list), (0, true, None));
    }
}
