//! What sessions held and used: measured again until they are over, summed up by person and partition, the worst first.

use crate::Start;
use eirene_core::job_usage::{GpuTime, HeldUsed, JobStart, JobUsage, UsageBy, Waste};

use super::*;

/// A session that ran from the first second to the last, or still runs.
async fn ran(db: &Db, owner: &User, from: i64, to: Option<i64>) -> Session {
    let mut session = session(owner);
    session.started_at = Some(at(from));
    session.ended_at = to.map(at);
    session.state = if to.is_some() { SessionState::Ended } else { SessionState::Running };
    db.insert_session(&session, Start::default()).await.unwrap();
    session
}

fn usage(session: &Session, until: i64) -> JobUsage {
    JobUsage {
        session: session.id,
        restart_count: session.restart_count,
        started_at: session.started_at.unwrap(),
        partition: "gpu".parse().unwrap(),
        until: at(until),
        is_final: session.ended_at.is_some(),
        wall_s: 100,
        cpu: Some(HeldUsed { held: 400, used: 100 }),
        memory_mib: Some(HeldUsed { held: 1000, used: 200 }),
        gpu: GpuTime { held_s: 200, known_s: 190, busy_s: 50, idle_s: 60, empty_s: 40 },
    }
}

on_both! {
    async fn what_was_measured_comes_back_and_is_measured_again_until_it_is_over(db) {
        let ada = add_user(db, "ada").await;
        let (runs, over) = (ran(db, &ada, 100, None).await, ran(db, &ada, 100, Some(200)).await);
        add_session(db, &ada).await;
        let due = async |before: i64, over: i64| -> Vec<SessionId> {
            let due = db.jobs_to_measure(at(50), at(before), at(over), 10).await.unwrap();
            due.into_iter().map(|session| session.id).collect()
        };
        let sorted = |mut ids: Vec<SessionId>| { ids.sort(); ids };
        assert_eq!(sorted(due(0, 1000).await), sorted(vec![runs.id, over.id]), "what never began is not measured");
        assert_eq!(due(0, 200).await, [runs.id], "the last samples of what has just ended may still come");
        assert_eq!(db.jobs_to_measure(at(101), at(0), at(1000), 10).await.unwrap(), []);
        let early = JobUsage { is_final: false, ..usage(&over, 150) };
        for usage in [&usage(&runs, 300), &early] {
            db.put_job_usage(usage).await.unwrap();
            assert_eq!(db.job_usage(usage.session).await.unwrap().as_ref(), Some(usage));
        }
        assert_eq!(due(300, 1000).await, [over.id], "it is over since it was measured");
        db.put_job_usage(&usage(&over, 200)).await.unwrap();
        assert_eq!(due(300, 1000).await, []);
        assert_eq!(due(301, 1000).await, [runs.id]);
        let unknown = JobUsage { cpu: None, memory_mib: None, ..usage(&runs, 400) };
        db.put_job_usage(&unknown).await.unwrap();
        assert_eq!(db.job_usage(runs.id).await.unwrap(), Some(unknown));
        assert_eq!(db.job_usage(SessionId::generate()).await.unwrap(), None);
    }

    async fn each_start_has_a_row_of_its_own_and_sums_have_them_all(db) {
        let ada = add_user(db, "ada").await;
        let first = ran(db, &ada, 100, None).await;
        let second = Session { restart_count: 1, started_at: Some(at(300)), ended_at: Some(at(400)), ..first.clone() };
        let start = JobStart { session: first.id, restart_count: 0, started_at: at(100), ended_at: at(200) };
        let due = async || db.starts_to_measure(at(50), at(1000), 10).await.unwrap();
        assert_eq!(due().await, []);
        db.put_job_usage(&usage(&first, 150)).await.unwrap();
        db.put_job_start(&start).await.unwrap();
        // Who was killed before the session was changed says it again.
        db.put_job_start(&JobStart { ended_at: at(250), ..start }).await.unwrap();
        assert_eq!(db.job_starts(first.id).await.unwrap(), [start]);
        let found = due().await;
        assert_eq!(found, [Session { ended_at: Some(at(200)), ..first.clone() }], "as it was then");
        assert_eq!(db.starts_to_measure(at(50), at(200), 10).await.unwrap(), [], "its last samples may still come");
        let whole = usage(&found[0], 200);
        for again in [&whole, &whole, &usage(&first, 160)] {
            db.put_job_usage(again).await.unwrap();
            assert_eq!(due().await, [], "it is measured once");
            assert_eq!(db.job_usage(first.id).await.unwrap().as_ref(), Some(&whole));
        }

        assert!(db.update_session(&second, None).await.unwrap());
        let current = async || db.jobs_to_measure(at(50), at(0), at(1000), 10).await.unwrap();
        assert_eq!(current().await.len(), 1, "this start was never measured");
        let later = JobUsage { memory_mib: Some(HeldUsed { held: 1000, used: 900 }), ..usage(&second, 400) };
        db.put_job_usage(&later).await.unwrap();
        assert_eq!(current().await, []);
        let mut both = whole.clone();
        both.add(&later);
        assert_eq!(db.job_usage(first.id).await.unwrap(), Some(both.clone()));
        assert_eq!(both.memory_mib, Some(HeldUsed { held: 1000, used: 900 }), "the most of both");
        assert_eq!((both.wall_s, both.gpu.held_s, both.started_at, both.until), (200, 400, at(100), at(400)));
        assert_eq!(db.job_usage_before(first.id, 1).await.unwrap(), Some(whole));
        assert_eq!(db.job_usage_before(first.id, 0).await.unwrap(), None);

        let of = async |from, to| {
            let sums = db.usage_sums(UsageBy::Person, at(from), at(to)).await.unwrap();
            sums.iter().map(|sums| (sums.jobs, sums.gpu.held_s, sums.memory_mib_s.used)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 1000).await, [(1, 400, 20_000 + 90_000)], "one session, with both its starts");
        assert_eq!(of(0, 250).await, [(1, 200, 20_000)]);
        assert_eq!(of(250, 1000).await, [(1, 200, 90_000)]);
        let worst = db.worst_jobs(Waste::Gpu, at(0), at(1000), 10).await.unwrap();
        assert_eq!(worst.iter().map(|job| &job.usage).collect::<Vec<_>>(), [&both], "it stands there once");
    }

    async fn sums_are_by_person_and_by_partition_of_what_ran_then(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let sessions = [
            ran(db, &ada, 100, Some(200)).await,
            ran(db, &ada, 300, Some(400)).await,
            ran(db, &grace, 300, None).await,
        ];
        let mut of_grace = usage(&sessions[2], 500);
        of_grace.partition = "cpu".parse().unwrap();
        of_grace.cpu = None;
        of_grace.memory_mib = None;
        of_grace.gpu = GpuTime { idle_s: 1000, ..of_grace.gpu };
        for usage in [usage(&sessions[0], 200), usage(&sessions[1], 400), of_grace] {
            db.put_job_usage(&usage).await.unwrap();
        }
        let sums = db.usage_sums(UsageBy::Person, at(0), at(1000)).await.unwrap();
        assert_eq!(sums.iter().map(|sums| (sums.name.as_str(), sums.jobs, sums.unknown_jobs)).collect::<Vec<_>>(),
            [("grace", 1, 1), ("ada", 2, 0)]);
        assert_eq!(sums[1].cpu, HeldUsed { held: 800, used: 200 });
        assert_eq!(sums[1].memory_mib_s, HeldUsed { held: 200_000, used: 40_000 });
        assert_eq!(sums[1].gpu, GpuTime { held_s: 400, known_s: 380, busy_s: 100, idle_s: 120, empty_s: 80 });
        assert_eq!(sums[0].cpu, HeldUsed::default());
        let names = async |from, to| -> Vec<String> {
            let sums = db.usage_sums(UsageBy::Partition, at(from), at(to)).await.unwrap();
            sums.into_iter().map(|sums| sums.name).collect()
        };
        assert_eq!(names(0, 1000).await, ["cpu", "gpu"]);
        assert_eq!(names(0, 300).await, ["gpu"]);
        assert_eq!(names(450, 1000).await, ["cpu"]);
        assert_eq!(names(501, 1000).await, Vec::<String>::new());
    }

    async fn the_worst_come_first_and_those_that_used_enough_not_at_all(db) {
        let ada = add_user(db, "ada").await;
        let mut all = Vec::new();
        for (idle, used) in [(0, 900), (10, 400), (600, 100)] {
            let session = ran(db, &ada, 100, Some(200)).await;
            let usage = JobUsage {
                gpu: GpuTime { idle_s: idle, ..GpuTime::default() },
                cpu: Some(HeldUsed { held: 1000, used }),
                memory_mib: Some(HeldUsed { held: 1000, used }),
                ..usage(&session, 200)
            };
            db.put_job_usage(&usage).await.unwrap();
            all.push(session);
        }
        for waste in [Waste::Gpu, Waste::Memory, Waste::Cpu] {
            let worst = db.worst_jobs(waste, at(0), at(1000), 10).await.unwrap();
            assert_eq!(worst.iter().map(|job| job.session.id).collect::<Vec<_>>(), [all[2].id, all[1].id], "{waste:?}");
            assert_eq!(worst[0].session, all[2]);
        }
    }
}
