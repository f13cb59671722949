//! Sessions: one per idempotency key, no lost update, pages without gaps.

use eirene_core::scheduler::JobIdentity;
use eirene_core::{JobKind, KeptOn, Reason, ScratchPhase, ScratchState, Sentence};

use super::*;
use crate::{DbError, Inserted, StateFilter};

fn full(owner: &User) -> Session {
    let mut session = session(owner);
    session.project = Some("physics".parse().unwrap());
    session.resources.partition = Some("GPU-a100".parse().unwrap());
    session.resources.gpu_type = Some("a100".parse().unwrap());
    session.resources.memory_mib = 4_000_000_000;
    session.state = SessionState::Running;
    session.desired = Desired::Ended;
    session.undetermined = true;
    session.reason = Some(Reason::new("waiting_for_resources", Sentence::from_elsewhere("It waits for a free GPU")));
    session.submit_begun_at = Some(at(1));
    session.job = Some(JobIdentity { cluster: "demo".to_owned(), id: u32::MAX, submitted_at: at(2) });
    session.restart_count = 3;
    session.nodes = vec!["c1".parse().unwrap(), "c2".parse().unwrap()];
    session.start_estimate = Some(at(3));
    session.started_at = Some(at(4));
    session.ends_at = Some(at(5));
    session.ended_at = Some(at(6));
    session.exit_status = Some(-1);
    let kept = KeptOn::new("c2".parse().unwrap(), Some("no room in `Übung 3`".to_owned()));
    session.scratch_state = Some(ScratchState::new(3, ScratchPhase::Kept, vec![kept]));
    session
}

fn with_key<'a>(key: &'a str, body: &'a str) -> Start<'a> {
    Start { idempotency: Some((key, body)), ..Start::default() }
}

on_both! {
    async fn a_session_comes_back_as_it_went_in(db) {
        let ada = add_user(db, "ada").await;
        let earlier = add_session(db, &ada).await;
        let run = Session { requeue_of: Some(earlier.id), exit_status: Some(3), ..a_run(&ada) };
        for session in [session(&ada), full(&ada), run] {
            assert_eq!(db.insert_session(&session, Start::default()).await.unwrap(), Inserted::New);
            assert_eq!(db.session(session.id).await.unwrap().as_ref(), Some(&session));
            assert_eq!(db.session_by_marker(&session.marker).await.unwrap(), Some(session));
        }
        assert_eq!(db.session(SessionId::generate()).await.unwrap(), None);
        assert_eq!(db.session_by_marker("eirene-x").await.unwrap(), None);
    }

    async fn a_marker_is_used_once(db) {
        let ada = add_user(db, "ada").await;
        let first = add_session(db, &ada).await;
        let second = Session { marker: first.marker.clone(), ..session(&ada) };
        let inserted = db.insert_session(&second, with_key("key", "body")).await;
        assert!(matches!(inserted, Err(DbError::Conflict { what: "session" })), "{inserted:?}");
        assert_eq!(db.session(second.id).await.unwrap(), None);
    }

    async fn of_identical_starts_at_once_one_makes_a_session(db) {
        let ada = add_user(db, "ada").await;
        let starts: Vec<_> = (0..8)
            .map(|_| {
                let (db, session) = (db.clone(), session(&ada));
                tokio::spawn(async move {
                    let inserted = db.insert_session(&session, with_key("key", "body")).await.unwrap();
                    (session, inserted)
                })
            })
            .collect();
        let (mut made, mut found) = (Vec::new(), Vec::new());
        for start in starts {
            match start.await.unwrap() {
                (session, Inserted::New) => made.push(session),
                (_, Inserted::Existing(session)) => found.push(session),
                (_, other) => panic!("{other:?}"),
            }
        }
        assert_eq!((made.len(), found.len()), (1, 7));
        assert!(found.iter().all(|session| *session == made[0]));
        assert_eq!(db.live_sessions().await.unwrap(), made);
    }

    async fn of_many_starts_at_once_no_more_than_allowed_are_made(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        db.insert_session(&session(&grace), Start::default()).await.unwrap();
        db.insert_session(&a_run(&ada), Start::default()).await.unwrap();
        let starts: Vec<_> = (0..24)
            .map(|_| {
                let (db, session, line) = (db.clone(), session(&ada), entry());
                tokio::spawn(async move {
                    let start = Start { most_live: Some(3), audit: Some(&line), ..Start::default() };
                    db.insert_session(&session, start).await.unwrap()
                })
            })
            .collect();
        let mut made = 0;
        for start in starts {
            match start.await.unwrap() {
                Inserted::New => made += 1,
                other => assert_eq!(other, Inserted::TooMany),
            }
        }
        assert_eq!((made, db.live_sessions_of(ada.id).await.unwrap().len()), (3, 4), "three sessions, and the run");
        let lines = db.audit_events(None, 100, None, None).await.unwrap().len();
        assert_eq!(lines, 5, "two people and three sessions: what is not made has no line");

        let one_run = Start { most_live: Some(1), ..Start::default() };
        let first = db.live_sessions_of(ada.id).await.unwrap().into_iter().find(|job| job.kind() == JobKind::Run).unwrap();
        assert_eq!(db.insert_session(&a_run(&ada), one_run).await.unwrap(), Inserted::TooMany);
        let repeats = Session { requeue_of: Some(first.id), ..a_run(&ada) };
        assert_eq!(db.insert_session(&repeats, one_run).await.unwrap(), Inserted::New, "the one before makes room");
    }

    async fn a_key_with_another_body_is_a_conflict_and_makes_nothing(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let first = session(&ada);
        assert_eq!(db.insert_session(&first, with_key("key", "body")).await.unwrap(), Inserted::New);
        assert_eq!(db.insert_session(&session(&ada), with_key("key", "other")).await.unwrap(), Inserted::KeyConflict);
        assert_eq!(db.live_sessions().await.unwrap(), std::slice::from_ref(&first));
        // A key is its owner's own, and without one every start is new.
        assert_eq!(db.insert_session(&session(&grace), with_key("key", "other")).await.unwrap(), Inserted::New);
        assert_eq!(db.insert_session(&session(&ada), Start::default()).await.unwrap(), Inserted::New);
        assert_eq!(db.insert_session(&session(&ada), Start::default()).await.unwrap(), Inserted::New);
        let again = db.insert_session(&session(&ada), with_key("key", "body")).await.unwrap();
        assert_eq!(again, Inserted::Existing(first));
    }

    async fn everything_that_may_change_is_written_back(db) {
        let ada = add_user(db, "ada").await;
        let before = add_session(db, &ada).await;
        let mut changed = Session { id: before.id, marker: before.marker.clone(), ..full(&ada) };
        changed.project = None;
        changed.resources = before.resources;
        changed.name = "Renamed".parse().unwrap();
        assert!(db.update_session(&changed, None).await.unwrap());
        changed.version += 1;
        assert_eq!(db.session(before.id).await.unwrap(), Some(changed.clone()));
        // And back to nothing.
        let emptied = Session { id: before.id, version: changed.version, marker: before.marker, ..session(&ada) };
        assert!(db.update_session(&emptied, None).await.unwrap());
        let stored = db.session(before.id).await.unwrap();
        assert_eq!(stored, Some(Session { version: emptied.version + 1, ..emptied }));
    }

    async fn of_two_who_read_the_same_version_one_writes(db) {
        let ada = add_user(db, "ada").await;
        let read = add_session(db, &ada).await;
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let (db, mut copy) = (db.clone(), read.clone());
                copy.restart_count = n;
                tokio::spawn(async move { (n, db.update_session(&copy, None).await.unwrap()) })
            })
            .collect();
        let mut winners = Vec::new();
        for writer in writers {
            let (n, written) = writer.await.unwrap();
            winners.extend(written.then_some(n));
        }
        assert_eq!(winners.len(), 1);
        let stored = db.session(read.id).await.unwrap().unwrap();
        assert_eq!((stored.restart_count, stored.version), (winners[0], read.version + 1));
        assert!(!db.update_session(&read, None).await.unwrap(), "the version read before is stale");
        assert!(!db.update_session(&session(&ada), None).await.unwrap(), "there is no such session");
    }

    async fn pages_have_no_gap_and_nothing_twice(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let mut all = Vec::new();
        for n in 0..14 {
            let owner = if n % 3 == 2 { &grace } else { &ada };
            let mut session = if n % 7 < 4 { session(owner) } else { a_run(owner) };
            session.state = if n % 2 == 1 { SessionState::Ended } else { SessionState::Running };
            db.insert_session(&session, Start::default()).await.unwrap();
            all.push(session);
        }
        all.reverse();
        let live = |session: &&Session| !session.state.is_final();
        let of_ada = |session: &&Session| session.owner == ada.id;
        let ids = |sessions: Vec<&Session>| sessions.iter().map(|session| session.id).collect::<Vec<_>>();
        let mut pages = Vec::new();
        for kind in [JobKind::Session, JobKind::Run] {
            let of_kind = |session: &&Session| session.kind() == kind;
            let all = || all.iter().filter(of_kind);
            pages.extend([
                (kind, None, StateFilter::All, ids(all().collect())),
                (kind, None, StateFilter::Live, ids(all().filter(live).collect())),
                (kind, Some(ada.id), StateFilter::All, ids(all().filter(of_ada).collect())),
                (kind, Some(ada.id), StateFilter::Live, ids(all().filter(of_ada).filter(live).collect())),
            ]);
        }
        for (kind, owner, filter, expected) in pages {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = db.sessions_of(kind, owner, filter, cursor, 2).await.unwrap();
                assert!(page.len() <= 2);
                let Some(last) = page.last() else { break };
                cursor = Some(last.id);
                seen.extend(page.iter().map(|session| session.id));
                if seen.len() == 2 {
                    // What comes new between two pages is on neither.
                    add_session(db, &ada).await;
                    db.insert_session(&a_run(&ada), Start::default()).await.unwrap();
                }
            }
            assert_eq!(seen, expected, "{kind:?} {owner:?} {filter:?}");
            meddle(db, "DELETE FROM sessions WHERE state = 'queued'").await.unwrap();
        }
        let oldest_first: Vec<Session> = all.iter().filter(live).rev().cloned().collect();
        assert_eq!(db.live_sessions().await.unwrap(), oldest_first);
        let mut hers = oldest_first;
        hers.retain(|session| session.owner == ada.id);
        assert_eq!(db.live_sessions_of(ada.id).await.unwrap(), hers);
    }

    async fn what_a_run_repeats_is_found_through_any_number_of_requeues(db) {
        let ada = add_user(db, "ada").await;
        let mut line = vec![a_run(&ada)];
        for n in 0..3 {
            line.push(Session { requeue_of: Some(line[n].id), ..a_run(&ada) });
        }
        for run in &line {
            db.insert_session(run, Start::default()).await.unwrap();
        }
        let last = line[3].id;
        let before = async || db.live_before(last).await.unwrap().map(|run| run.id);
        assert_eq!(before().await, Some(line[0].id));
        // One in the middle is over first: it was asked to stop before it was submitted.
        for (over, expected) in [(1, Some(line[0].id)), (0, Some(line[2].id)), (2, None)] {
            let mut run = line[over].clone();
            run.state = SessionState::Ended;
            assert!(db.update_session(&run, None).await.unwrap());
            assert_eq!(before().await, expected, "{over}");
        }
        assert_eq!(db.live_before(line[0].id).await.unwrap(), None);
        assert_eq!(db.requeued_as(line[0].id).await.unwrap().map(|run| run.id), Some(line[1].id));
        assert_eq!(db.requeued_as(last).await.unwrap(), None);
    }

    async fn a_run_is_repeated_once(db) {
        let ada = add_user(db, "ada").await;
        let first = a_run(&ada);
        db.insert_session(&first, Start::default()).await.unwrap();
        let repeats = || Session { requeue_of: Some(first.id), ..a_run(&ada) };
        let second = repeats();
        assert_eq!(db.insert_session(&second, Start::default()).await.unwrap(), Inserted::New);
        let again = db.insert_session(&repeats(), Start { most_live: Some(1), ..Start::default() }).await.unwrap();
        assert_eq!(again, Inserted::Requeued(second.id), "whether there is room for another or not");
    }

    async fn only_what_is_over_and_has_something_left_is_found_by_that(db) {
        let ada = add_user(db, "ada").await;
        let mut left = Vec::new();
        for (state, phase, is_left) in [
            (SessionState::Running, ScratchPhase::Kept, false),
            (SessionState::Failed, ScratchPhase::Kept, true),
            (SessionState::Ended, ScratchPhase::Done, false),
            (SessionState::Ended, ScratchPhase::Ready, true),
        ] {
            let mut one = add_session(db, &ada).await;
            (one.state, one.scratch_state) = (state, Some(ScratchState::new(0, phase, Vec::new())));
            assert!(db.update_session(&one, None).await.unwrap());
            left.extend(is_left.then_some(one.id));
        }
        let found = async |limit| {
            let sessions = db.sessions_with_scratch_left(limit).await.unwrap();
            sessions.into_iter().map(|session| session.id).collect::<Vec<_>>()
        };
        assert_eq!((found(100).await, found(1).await), (left.clone(), left[..1].to_vec()));
        let mut done = db.session(left[0]).await.unwrap().unwrap();
        done.scratch_state = Some(ScratchState::new(0, ScratchPhase::Done, Vec::new()));
        assert!(db.update_session(&done, None).await.unwrap());
        assert_eq!(found(100).await, left[1..]);
    }

    async fn a_column_that_makes_no_sense_is_named(db) {
        let ada = add_user(db, "ada").await;
        let session = add_session(db, &ada).await;
        let damage = [
            ("state", "UPDATE sessions SET state = 'sleeping'", "UPDATE sessions SET state = 'queued'"),
            ("desired", "UPDATE sessions SET desired = 'perhaps'", "UPDATE sessions SET desired = 'running'"),
            ("scratch", "UPDATE sessions SET scratch = '{\"kind\":\"disk\"}'", "UPDATE sessions SET scratch = NULL"),
            (
                "scratch_state",
                "UPDATE sessions SET scratch_state = '{\"restart_count\":0,\"phase\":\"full\"}'",
                "UPDATE sessions SET scratch_state = NULL",
            ),
            ("nodes", "UPDATE sessions SET nodes = '[\"../x\"]'", "UPDATE sessions SET nodes = '[]'"),
            ("cpus", "UPDATE sessions SET cpus = 4294967296", "UPDATE sessions SET cpus = 2"),
            ("job_id", "UPDATE sessions SET job_id = 7", "UPDATE sessions SET job_id = NULL"),
            ("reason_text", "UPDATE sessions SET reason_code = 'x'", "UPDATE sessions SET reason_code = NULL"),
            ("program", "UPDATE sessions SET program = '{\"file\": 1}'", "UPDATE sessions SET program = NULL"),
            ("exit_status", "UPDATE sessions SET exit_status = 4294967296", "UPDATE sessions SET exit_status = NULL"),
            ("app", "UPDATE sessions SET app = ''", "UPDATE sessions SET app = 'jupyterlab'"),
        ];
        for (wanted, break_it, mend_it) in damage {
            meddle(db, break_it).await.unwrap();
            match db.session(session.id).await {
                Err(DbError::Inconsistent { table: "sessions", column, row }) => {
                    assert_eq!((column, row), (wanted, session.id.to_string()));
                }
                other => panic!("{wanted}: {other:?}"),
            }
            meddle(db, mend_it).await.unwrap();
        }
        assert_eq!(db.session(session.id).await.unwrap(), Some(session));
    }
}
