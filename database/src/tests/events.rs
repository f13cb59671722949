//! Events: numbers that only grow, also for whoever reads while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;
use crate::{DbError, Event};

on_both! {
    async fn events_come_back_in_order_and_resume_after_a_number(db) {
        let (session, owner) = (SessionId::generate(), UserId::generate());
        assert_eq!(db.latest_event_id().await.unwrap(), 0);
        let data = json!({"state": "running", "text": "Übung \u{0} '; --", "n": [1, 2.5, null]});
        let first = db.append_event(Some(session), Some(owner), "state", &data, at(1)).await.unwrap();
        let second = db.append_event(None, None, "notice", &json!("all"), at(2)).await.unwrap();
        let events = [
            Event { id: first, session: Some(session), owner: Some(owner), kind: "state".into(), data, at: at(1) },
            Event { id: second, session: None, owner: None, kind: "notice".into(), data: json!("all"), at: at(2) },
        ];
        assert!(0 < first && first < second);
        assert_eq!(db.events_after(0, 10).await.unwrap(), events);
        assert_eq!(db.events_after(0, 1).await.unwrap(), events[..1]);
        assert_eq!(db.events_after(first, 10).await.unwrap(), events[1..]);
        assert_eq!(db.events_after(second, 10).await.unwrap(), []);
        assert_eq!(db.latest_event_id().await.unwrap(), second);
    }

    async fn pruning_takes_what_is_old_and_no_number_comes_again(db) {
        for n in 1..=3 {
            db.append_event(None, None, "notice", &json!(n), at(n)).await.unwrap();
        }
        let last = db.latest_event_id().await.unwrap();
        assert_eq!(db.prune_events(at(3)).await.unwrap(), 2);
        assert_eq!(db.events_after(0, 10).await.unwrap().len(), 1);
        assert_eq!(db.prune_events(at(4)).await.unwrap(), 1);
        assert_eq!(db.events_after(0, 10).await.unwrap(), []);
        assert!(db.append_event(None, None, "notice", &json!(4), at(4)).await.unwrap() > last);
    }

    async fn a_reader_who_follows_misses_nothing_while_many_write(db) {
        const WRITERS: usize = 8;
        const EACH: usize = 25;
        let written = Arc::new(AtomicBool::new(false));
        let reader = {
            let (db, written) = (db.clone(), Arc::clone(&written));
            tokio::spawn(async move {
                let mut seen: Vec<i64> = Vec::new();
                loop {
                    let all_written = written.load(Ordering::SeqCst);
                    let news = db.events_after(seen.last().copied().unwrap_or(0), 1000).await.unwrap();
                    if news.is_empty() && all_written {
                        return seen;
                    }
                    seen.extend(news.iter().map(|event| event.id));
                }
            })
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let db = db.clone();
                tokio::spawn(async move {
                    let mut ids = Vec::new();
                    for _ in 0..EACH {
                        ids.push(db.append_event(None, None, "sample", &json!(n), at(0)).await.unwrap());
                    }
                    ids
                })
            })
            .collect();
        let mut ids = Vec::new();
        for writer in writers {
            ids.extend(writer.await.unwrap());
        }
        written.store(true, Ordering::SeqCst);
        ids.sort_unstable();
        assert_eq!(ids.len(), WRITERS * EACH);
        assert_eq!(reader.await.unwrap(), ids);
    }

    async fn an_event_that_is_no_json_is_named(db) {
        let id = db.append_event(None, None, "notice", &json!(1), at(0)).await.unwrap();
        meddle(db, "UPDATE events SET data = '{'").await.unwrap();
        match db.events_after(0, 1).await {
            Err(DbError::Inconsistent { table: "events", column: "data", row }) => assert_eq!(row, id.to_string()),
            other => panic!("{other:?}"),
        }
    }
}
