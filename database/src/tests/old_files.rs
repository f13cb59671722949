//! Old files: a row that reads back, and of two who change it one is told.

use eirene_core::SpaceOwner;
use eirene_core::old_files::{
    OldFileExample, OldFilesDoubt, OldFilesFound, OldFilesList, OldFilesLook, OldFilesRemoval, OldFilesState,
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
    OldFilesFound { files: 3, bytes: u64::MAX, saved: 1, skipped: 2, more: true, examples: vec![example] }
}

on_both! {
    async fn what_is_known_of_old_files_reads_back_and_of_two_who_change_it_one_was_late(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody)).await.unwrap();
        let nothing = db.old_files(space.id).await.unwrap();
        assert_eq!(nothing, OldFilesState::new(space.id));
        let list = OldFilesList {
            at: at(1),
            before: at(-100),
            days: 30,
            warn_days: 14,
            dry_run: true,
            told_at: Some(at(2)),
            waited_s: 5,
            found: found(),
        };
        let full = OldFilesState {
            exempt: true,
            days: Some(60),
            seen_at: Some(at(7)),
            steady_s: 9,
            doubt: Some(OldFilesDoubt::OtherFileSystem),
            list: Some(list),
            look: Some(OldFilesLook { at: at(3), days: 1, found: found() }),
            removed: Some((at(4), OldFilesRemoval { files: 1, bytes: 2, kept: 3, gone: 4, failed: 5 })),
            ..nothing.clone()
        };
        assert!(db.put_old_files(&full).await.unwrap());
        let stored = db.old_files(space.id).await.unwrap();
        assert_eq!(stored, OldFilesState { version: 1, ..full.clone() });
        assert!(!db.put_old_files(&full).await.unwrap(), "it was written from nothing once");
        let later = OldFilesState { doubt: None, list: None, ..stored.clone() };
        assert!(db.put_old_files(&later).await.unwrap());
        assert!(!db.put_old_files(&stored).await.unwrap());
        assert_eq!(db.old_files(space.id).await.unwrap(), OldFilesState { version: 2, ..later });
    }
}
