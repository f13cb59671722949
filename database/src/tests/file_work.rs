//! Uploads and operations: rows that read back, and ends that come once.

use eirene_core::file_work::{OnConflict, Operation, OperationKind, OperationState, Upload, UploadState};
use eirene_core::{OperationId, SpaceId, SpaceOwner, UploadId};
use serde_json::json;

use super::spaces::space;
use super::*;

fn upload(user: &User, space: SpaceId) -> Upload {
    Upload {
        id: UploadId::generate(),
        user: user.id,
        space,
        directory: b"a/\xff\xfe/\n".to_vec(),
        file_name: vec![b'x'; 255],
        length: None,
        checksum: Some("0".repeat(64)),
        on_conflict: OnConflict::KeepBoth,
        state: UploadState::Open,
        final_name: None,
        created_at: at(0),
        last_seen_at: at(0),
        expires_at: at(100),
    }
}

fn operation(user: &User, space: SpaceId) -> Operation {
    Operation {
        id: OperationId::generate(),
        user: user.id,
        space,
        kind: OperationKind::Copy,
        state: OperationState::Waiting,
        request: json!({"items": [{"path": "a", "to": "b"}]}),
        progress: json!({}),
        problem: None,
        created_at: at(0),
        ended_at: None,
    }
}

async fn shared(db: &Db) -> SpaceId {
    db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap().id
}

on_both! {
    async fn an_upload_reads_back_grows_and_is_finished_once(db) {
        let ada = add_user(db, "ada").await;
        let upload = upload(&ada, shared(db).await);
        db.insert_upload(&upload).await.unwrap();
        assert_eq!(db.upload(upload.id).await.unwrap(), Some(upload.clone()));
        assert!(db.upload_seen(upload.id, at(1), at(101), Some(5)).await.unwrap());
        // A length that was said stays.
        assert!(db.upload_seen(upload.id, at(2), at(102), Some(6)).await.unwrap());
        let grown = Upload { length: Some(5), last_seen_at: at(2), expires_at: at(102), ..upload };
        assert_eq!(db.open_uploads(ada.id).await.unwrap(), std::slice::from_ref(&grown));

        assert!(db.finish_upload(grown.id, b"\xff (2)", at(3), at(200)).await.unwrap());
        assert!(!db.finish_upload(grown.id, b"other", at(4), at(300)).await.unwrap());
        assert!(!db.upload_seen(grown.id, at(4), at(300), None).await.unwrap());
        let finished = db.upload(grown.id).await.unwrap().unwrap();
        assert_eq!((finished.state, finished.final_name), (UploadState::Finished, Some(b"\xff (2)".to_vec())));
        assert_eq!(db.open_uploads(ada.id).await.unwrap(), []);
    }

    async fn the_row_of_an_upload_outlives_its_end_while_there_is_something_to_remove(db) {
        let (ada, space) = (add_user(db, "ada").await, shared(db).await);
        let (open, finished) = (upload(&ada, space), upload(&ada, space));
        for upload in [&open, &finished] {
            db.insert_upload(upload).await.unwrap();
        }
        db.finish_upload(finished.id, b"x", at(1), at(50)).await.unwrap();
        let over = async |now, over_s| db.left_over_uploads(at(now), over_s, 10).await.unwrap();
        let count = async |now, passed_s| db.count_left_over(at(now), passed_s).await.unwrap();
        count(99, Some(50)).await;
        assert_eq!((over(99, 0).await, over(100, 0).await), (vec![], vec![]), "nobody has seen that it is");
        count(100, Some(50)).await;
        assert_eq!((over(100, 0).await, over(100, 1).await), (vec![open.clone()], vec![]));
        count(150, Some(50)).await;
        assert_eq!((over(150, 50).await, over(99, 50).await, over(150, 51).await), (vec![open.clone()], vec![], vec![]));
        // The clock went back before its end, or is not believed.
        for (now, passed_s) in [(99, Some(1)), (150, None)] {
            count(now, passed_s).await;
            count(150, Some(7)).await;
            count(157, Some(7)).await;
            assert_eq!(over(157, 15).await, []);
        }
        assert_eq!(over(157, 14).await, std::slice::from_ref(&open));
        assert_eq!(db.delete_expired(at(49)).await.unwrap(), 0);
        assert_eq!(db.delete_expired(at(1000)).await.unwrap(), 1);
        assert_eq!(db.upload(finished.id).await.unwrap(), None);
        assert!(db.upload(open.id).await.unwrap().is_some());
        db.delete_upload(open.id).await.unwrap();
        assert_eq!(db.upload(open.id).await.unwrap(), None);
    }

    async fn an_upload_is_either_gone_on_with_or_removed(db) {
        let (ada, space) = (add_user(db, "ada").await, shared(db).await);
        let (resumed, left, finished) = (upload(&ada, space), upload(&ada, space), upload(&ada, space));
        for upload in [&resumed, &left, &finished] {
            db.insert_upload(upload).await.unwrap();
        }
        let claim = async |of: &Upload, now, over_s| db.claim_left_over(of.id, at(now), over_s).await.unwrap();
        assert!(!claim(&left, 100, 0).await, "nobody has seen that it is over");
        for now in [100, 150] {
            db.count_left_over(at(now), Some(50)).await.unwrap();
        }
        assert_eq!((claim(&left, 99, 50).await, claim(&left, 150, 51).await), (false, false));
        assert!(db.upload_seen(resumed.id, at(160), at(260), None).await.unwrap());
        db.finish_upload(finished.id, b"x", at(160), at(161)).await.unwrap();
        for upload in [&resumed, &finished] {
            assert!(!claim(upload, 300, 50).await);
        }
        assert!(claim(&left, 150, 50).await);
        // Whatever the clock says then; and what was begun is begun again.
        for now in [50, 150, 200] {
            assert!(!db.upload_seen(left.id, at(now), at(now + 100), None).await.unwrap());
        }
        assert!(claim(&left, 200, 50).await);
        assert_eq!(db.upload(left.id).await.unwrap().unwrap().expires_at, at(100));
    }

    async fn an_operation_reads_back_and_ends_once(db) {
        let (ada, space) = (add_user(db, "ada").await, shared(db).await);
        let first = operation(&ada, space);
        db.insert_operation(&first).await.unwrap();
        assert_eq!(db.operation(first.id).await.unwrap(), Some(first.clone()));
        let half = json!({"files": 1});
        assert!(db.update_operation(first.id, OperationState::Running, &half, None, None).await.unwrap());
        let problem = json!({"code": "no_space"});
        assert!(db.update_operation(first.id, OperationState::Failed, &half, Some(&problem), Some(at(9))).await.unwrap());
        assert!(!db.update_operation(first.id, OperationState::Done, &json!({}), None, Some(at(10))).await.unwrap());
        let ended = Operation {
            state: OperationState::Failed, progress: half, problem: Some(problem), ended_at: Some(at(9)), ..first
        };
        assert_eq!(db.operation(ended.id).await.unwrap(), Some(ended.clone()));

        // A restart ends what was under way, and nothing else.
        let second = operation(&ada, space);
        db.insert_operation(&second).await.unwrap();
        assert_eq!(db.interrupt_operations(at(20)).await.unwrap(), 1);
        let second = Operation { state: OperationState::Interrupted, ended_at: Some(at(20)), ..second };
        assert_eq!(db.operations_of(ada.id, None, 10).await.unwrap(), [second.clone(), ended.clone()]);
        assert_eq!(db.operations_of(ada.id, Some(second.id), 10).await.unwrap(), std::slice::from_ref(&ended));
        assert_eq!(db.operations_of(UserId::generate(), None, 10).await.unwrap(), []);
        assert_eq!(db.prune_operations(at(20)).await.unwrap(), 1);
        assert_eq!(db.operations_of(ada.id, None, 10).await.unwrap(), [second]);
    }

    async fn what_was_interrupted_is_known_until_nothing_is_left_of_it(db) {
        let (ada, space) = (add_user(db, "ada").await, shared(db).await);
        let interrupted = |kind| Operation {
            kind, state: OperationState::Interrupted, ended_at: Some(at(20)), ..operation(&ada, space)
        };
        let (copy, moved) = (interrupted(OperationKind::Copy), interrupted(OperationKind::Move));
        // What a name has in it is no word of ours.
        let named = Operation { progress: json!({"path": "\"cleared\":true"}), ..interrupted(OperationKind::Extract) };
        let others = [
            interrupted(OperationKind::Search),
            Operation { state: OperationState::Failed, ..operation(&ada, space) },
            operation(&ada, space),
        ];
        for operation in others.iter().chain([&copy, &moved, &named]) {
            db.insert_operation(operation).await.unwrap();
        }
        let mut all = vec![copy.clone(), moved.clone(), named.clone()];
        all.sort_by_key(|operation| operation.id.to_string());
        let left = async |limit, before| db.interrupted_operations(limit, at(before)).await.unwrap();
        assert_eq!(left(10, 21).await, all);
        assert_eq!(left(1, 21).await, all[..1]);
        assert_eq!(left(10, 20).await, std::slice::from_ref(&named), "the others are kept for a while");
        let mut mine = vec![copy.clone(), moved.clone()];
        mine.sort_by_key(|operation| std::cmp::Reverse(operation.id.to_string()));
        assert_eq!(db.interrupted_of(ada.id, 10).await.unwrap(), mine);
        assert_eq!(db.interrupted_of(ada.id, 1).await.unwrap(), mine[..1]);
        assert_eq!(db.interrupted_of(UserId::generate(), 10).await.unwrap(), []);

        db.note_left(copy.id, &json!({"entries": 1, "given_up": true})).await.unwrap();
        assert_eq!(db.interrupted_of(ada.id, 10).await.unwrap(), std::slice::from_ref(&moved));
        let given_up = left(10, 20).await;
        assert_eq!(given_up.len(), 2, "what nobody goes on with is kept for nobody");
        assert!(given_up.iter().any(|one| one.id == copy.id && one.progress["given_up"] == true));
        for id in [copy.id, moved.id] {
            db.note_left(id, &json!({"entries": 1, "cleared": true})).await.unwrap();
        }
        assert_eq!(left(10, 21).await, [named]);
        assert_eq!(db.interrupted_of(ada.id, 10).await.unwrap(), []);
        db.note_left(others[1].id, &json!({"cleared": true})).await.unwrap();
        assert_eq!(db.operation(others[1].id).await.unwrap().unwrap().progress, json!({}), "nothing else is touched");
    }
}
