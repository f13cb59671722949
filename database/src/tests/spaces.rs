//! Spaces: rows that read back, names and numbers that are nobody else's, looks, samples and evidence.

use eirene_core::space::{
    EvidenceKind, HintState, Level, LimitState, MadeAt, Measured, Measurement, PolicyOutcome, PolicyRun, PolicyStep,
    SeenUsage, SpaceDesired, StripeHint, Usage, UsageSample, UsageSource, Warned,
};
use eirene_core::storage::{Bytes, Files, Identity, Limit, Why};
use eirene_core::{Reason, Sentence, Space, SpaceId, SpaceKind, SpaceOwner, SpaceState};
use jiff::SignedDuration;

use super::*;
use crate::DbError;

const DAY: i64 = 24 * 60 * 60;

pub(super) fn space(name: &str, owner: SpaceOwner) -> Space {
    Space {
        id: SpaceId::generate(),
        serial: 0,
        name: name.parse().unwrap(),
        kind: if matches!(owner, SpaceOwner::Person { .. }) { SpaceKind::Home } else { SpaceKind::Project },
        title: "Übung <b>'; --".parse().unwrap(),
        root: Space::HOME_ROOT.parse().unwrap(),
        owner,
        writable: true,
        hint: StripeHint::Usual,
        hint_state: HintState::Unset,
        hint_said: None,
        desired: SpaceDesired::Present,
        state: SpaceState::Present,
        undetermined: false,
        reason: None,
        made_at: None,
        limit_bytes: Limit::Unlimited,
        limit_files: Limit::Unlimited,
        limit_state: LimitState::Unset,
        limit_said: None,
        expires_at: None,
        warned: vec![],
        retired_at: None,
        remove_after: None,
        kept_s: 0,
        watched_at: None,
        created_at: at(0),
        version: 1,
    }
}

pub(super) fn of(user: &User) -> SpaceOwner {
    SpaceOwner::Person { id: user.id, name: user.username.clone() }
}

fn group(name: &str) -> SpaceOwner {
    SpaceOwner::Group(name.parse().unwrap())
}

fn seen(level: Level, seconds: i64) -> SeenUsage {
    let usage = Usage {
        source: UsageSource::ProjectQuota,
        used_bytes: Some(Bytes(u64::MAX)),
        limit_bytes: Some(Limit::Unlimited),
        used_files: None,
        limit_files: Some(Limit::At(Files(7))),
        total_bytes: None,
        total_files: Some(Files(1)),
        free_bytes: None,
        free_files: None,
        missing: Some(Why::NotEnabled),
        measured: None,
    };
    SeenUsage { usage, level, told: Level::Ok, seen_at: at(seconds) }
}

fn sample(seconds: i64, used: u64) -> UsageSample {
    UsageSample { at: at(seconds), used_bytes: Bytes(used), used_files: Some(Files(3)), limit_bytes: None }
}

on_both! {
    async fn a_space_reads_back_as_it_was_written(db) {
        let ada = add_user(db, "ada").await;
        let made = db.insert_space(space("home-ada", of(&ada)), &[]).await.unwrap();
        assert_eq!(db.space(made.id).await.unwrap(), Some(made.clone()));
        assert_eq!(db.space_by_name(&made.name).await.unwrap(), Some(made));

        let identity = Identity {
            kind: "xfs".into(),
            source: "/dev/sd b".into(),
            root_inode: Some(u64::MAX),
            marker: Some("00ff".into()),
            fs_id: u64::MAX,
            mount_id: 1,
        };
        let full = Space {
            kind: SpaceKind::Scratch,
            root: "scratch".parse().unwrap(),
            hint: StripeHint::LargeSequential,
            hint_state: HintState::NotApplied,
            hint_said: Some("it says '; --".into()),
            desired: SpaceDesired::Retired,
            undetermined: true,
            reason: Some(Reason::new("storage_away", Sentence::from_elsewhere("it does not answer"))),
            // Some file systems number by 64 bits.
            made_at: Some(MadeAt { inode: u64::MAX - 1, identity }),
            limit_bytes: Limit::At(Bytes(1 << 50)),
            limit_files: Limit::At(Files(0)),
            expires_at: Some(at(5)),
            warned: vec![Warned { days: 14, at: at(1), waited_s: 3600 }],
            retired_at: Some(at(6)),
            remove_after: Some(at(7)),
            kept_s: 1 << 40,
            watched_at: Some(at(8)),
            ..space("physics", group("Physics-1"))
        };
        let full = db.insert_space(full, &[]).await.unwrap();
        assert_eq!(db.space(full.id).await.unwrap(), Some(full));
        let all = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        assert_eq!(db.space(all.id).await.unwrap(), Some(all));
        assert_eq!(db.space(SpaceId::generate()).await.unwrap(), None);
    }

    async fn a_name_is_one_spaces_until_that_is_gone_and_a_number_for_ever(db) {
        let first = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        let again = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await;
        assert!(matches!(again, Err(DbError::Conflict { what: "space" })), "{again:?}");
        let gone = Space { state: SpaceState::Gone, ..first.clone() };
        assert!(db.update_space(&gone, &[]).await.unwrap());
        assert_eq!(db.space_by_name(&first.name).await.unwrap(), None);
        assert_eq!(db.spaces(None, 10).await.unwrap(), []);
        let second = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        assert!(second.serial > first.serial, "{} {}", second.serial, first.serial);
        assert_eq!(db.space_by_name(&first.name).await.unwrap(), Some(second));
    }

    async fn of_two_who_change_a_space_one_is_told_that_it_was_late(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        let one = Space { title: "One".parse().unwrap(), ..space.clone() };
        let two = Space { title: "Two".parse().unwrap(), ..space.clone() };
        assert!(db.update_space(&one, &[]).await.unwrap());
        assert!(!db.update_space(&two, &[]).await.unwrap());
        let now = db.space(space.id).await.unwrap().unwrap();
        assert_eq!((now.title.as_str(), now.version), ("One", space.version + 1));
    }

    async fn who_read_a_space_before_its_time_was_counted_takes_none_of_it_back(db) {
        for (name, before) in [("never", None), ("before", Some(at(1)))] {
            let read = space(name, SpaceOwner::Everybody);
            let read = Space { state: SpaceState::Retired, kept_s: 1, watched_at: before, ..read };
            let read = db.insert_space(read, &[]).await.unwrap();
            assert!(db.note_watched(&Space { kept_s: 7, watched_at: Some(at(61)), ..read.clone() }).await.unwrap());
            assert!(db.update_space(&Space { title: "Other".parse().unwrap(), ..read.clone() }, &[]).await.unwrap());
            let now = db.space(read.id).await.unwrap().unwrap();
            assert_eq!((now.title.as_str(), now.kept_s, now.watched_at), ("Other", 7, Some(at(61))), "{name}");
            // With a warning it begins to be counted then.
            assert!(db.update_space(&Space { watched_at: Some(at(70)), ..now }, &[]).await.unwrap());
            let now = db.space(read.id).await.unwrap().unwrap();
            assert_eq!((now.kept_s, now.watched_at), (7, Some(at(70))));
            let back = Space { state: SpaceState::Present, kept_s: 0, watched_at: Some(at(65)), ..now };
            assert!(db.update_space(&back, &[]).await.unwrap());
            let now = db.space(read.id).await.unwrap().unwrap();
            assert_eq!((now.kept_s, now.watched_at), (0, Some(at(65))), "what is brought back begins anew");
        }
    }

    async fn time_that_is_counted_changes_nothing_for_anybody_else(db) {
        let warned = vec![Warned { days: 3, at: at(1), waited_s: 0 }];
        let space = Space { warned, ..space("data", SpaceOwner::Everybody) };
        let space = db.insert_space(space, &[]).await.unwrap();
        let warned = vec![Warned { days: 3, at: at(1), waited_s: 60 }];
        let watched = Space { kept_s: 7, watched_at: Some(at(61)), warned, ..space.clone() };
        let titled = Space { title: "Other".parse().unwrap(), ..watched.clone() };
        assert!(db.note_watched(&titled).await.unwrap());
        assert_eq!(db.space(space.id).await.unwrap(), Some(watched), "the rest and the version stay");
        assert!(db.update_space(&titled, &[]).await.unwrap());
        assert!(!db.note_watched(&Space { kept_s: 9, ..space.clone() }).await.unwrap());
        let now = db.space(space.id).await.unwrap().unwrap();
        assert_eq!((now.title.as_str(), now.kept_s), ("Other", 7));
        // As warnings were written before anything was counted.
        meddle(db, "UPDATE spaces SET warned = '[{\"days\":3,\"at\":\"2026-01-01T00:00:00Z\"}]'").await.unwrap();
        assert_eq!(db.space(space.id).await.unwrap().unwrap().warned[0].waited_s, 0);
    }

    async fn lists_are_by_name_and_each_has_its_own(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        for new in [space("x-ada", of(&ada)), space("home-ada", of(&ada)), space("home-grace", of(&grace)),
                    space("physics", group("physics")), space("data", SpaceOwner::Everybody)] {
            db.insert_space(new, &[]).await.unwrap();
        }
        let names = |spaces: Vec<Space>| spaces.into_iter().map(|space| space.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(db.spaces_of_person(ada.id).await.unwrap()), ["home-ada", "x-ada"]);
        assert_eq!(names(db.spaces_of_groups().await.unwrap()), ["data", "physics"]);
        assert_eq!(names(db.spaces(None, 2).await.unwrap()), ["data", "home-ada"]);
        assert_eq!(names(db.spaces(Some("home-ada".into()), 9).await.unwrap()), ["home-grace", "physics", "x-ada"]);
    }

    async fn who_has_a_user_id_and_no_home_is_found(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let nobody = User { uid: None, ..user("admin") };
        db.insert_user(&nobody, "…", &entry()).await.unwrap();
        db.insert_space(space("home-ada", of(&ada)), &[]).await.unwrap();
        assert_eq!(db.people_without_home(10).await.unwrap(), [grace.id]);
        db.set_user_state(grace.id, UserState::Disabled, &entry()).await.unwrap();
        assert_eq!(db.people_without_home(10).await.unwrap(), []);
    }

    async fn whose_home_has_answered_is_found_and_who_answered_last_first(db) {
        let (ada, grace, alan) = (add_user(db, "ada").await, add_user(db, "grace").await, add_user(db, "alan").await);
        for (name, owner) in [("home-ada", &ada), ("home-grace", &grace), ("home-alan", &alan)] {
            db.insert_space(space(name, of(owner)), &[]).await.unwrap();
        }
        let scratch = db.insert_space(Space { kind: SpaceKind::Scratch, ..space("x-alan", of(&alan)) }, &[]).await.unwrap();
        assert_eq!(db.people_with_home(10).await.unwrap(), []);
        for (name, seconds) in [("home-ada", 1), ("home-grace", 2)] {
            let home = db.space_by_name(&name.parse().unwrap()).await.unwrap().unwrap();
            db.note_usage(home.id, &seen(Level::Ok, seconds)).await.unwrap();
        }
        db.note_usage(scratch.id, &seen(Level::Ok, 3)).await.unwrap();
        assert_eq!(db.people_with_home(10).await.unwrap(), [grace.username.clone(), ada.username.clone()]);
        assert_eq!(db.people_with_home(1).await.unwrap(), [grace.username]);
        db.set_user_state(grace.id, UserState::Disabled, &entry()).await.unwrap();
        assert_eq!(db.people_with_home(10).await.unwrap(), [ada.username]);
    }

    async fn the_file_system_of_a_root_is_that_of_its_newest_space_that_is_there(db) {
        let made = |marker: Option<&str>| {
            let identity = Identity {
                kind: "xfs".into(),
                source: "/dev/sdb".into(),
                root_inode: Some(128),
                marker: marker.map(str::to_owned),
                fs_id: 1,
                mount_id: 1,
            };
            Some(MadeAt { inode: 7, identity })
        };
        let in_root = |name: &str, marker: Option<&str>, state| {
            let (root, made_at) = ("scratch".parse().unwrap(), made(marker));
            Space { root, made_at, state, ..space(name, SpaceOwner::Everybody) }
        };
        db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        assert!(db.file_systems_of_roots().await.unwrap().is_empty());
        for space in [in_root("a", None, SpaceState::Present), in_root("b", Some("00ff"), SpaceState::Retired),
                      in_root("c", Some("ff00"), SpaceState::Gone)] {
            db.insert_space(space, &[]).await.unwrap();
        }
        let seen = db.file_systems_of_roots().await.unwrap();
        assert_eq!(seen, [("scratch".parse().unwrap(), made(Some("00ff")).unwrap().identity)]);
    }

    async fn what_nobody_has_looked_at_is_found_until_a_look_answers_or_fails(db) {
        let ada = add_user(db, "ada").await;
        let mut first = db.insert_space(space("home-ada", of(&ada)), &[]).await.unwrap();
        let second = db.insert_space(space("physics", group("physics")), &[]).await.unwrap();
        let wanted = Space { state: SpaceState::Wanted, ..space("moons", group("physics")) };
        db.insert_space(wanted, &[]).await.unwrap();
        let never = async |limit| db.spaces_never_seen(limit).await.unwrap().into_iter().map(|space| space.id);
        assert!(never(9).await.eq([second.id, first.id]));
        assert!(never(1).await.eq([second.id]));
        db.note_usage(second.id, &seen(Level::Ok, 1)).await.unwrap();
        first.undetermined = true;
        assert!(db.update_space(&first, &[]).await.unwrap());
        assert!(never(9).await.eq([]));
    }

    async fn who_has_no_space_in_a_root_is_found_and_what_is_not_as_it_is_wanted(db) {
        let (ada, grace) = (add_user(db, "ada").await, add_user(db, "grace").await);
        let one = Space { kind: SpaceKind::Scratch, ..space("scratch-ada", of(&ada)) };
        let (root, one) = (one.root.clone(), db.insert_space(one, &[]).await.unwrap());
        assert_eq!(db.people_without_space_in(&root, 10).await.unwrap(), [grace.id]);
        assert_eq!(db.people_without_space_in(&"other".parse().unwrap(), 1).await.unwrap().len(), 1);
        assert_eq!(db.spaces_to_change().await.unwrap(), []);
        let mut now = Space { desired: SpaceDesired::Retired, ..one };
        let states = [SpaceState::Present, SpaceState::Retired, SpaceState::Wanted, SpaceState::Gone];
        for (state, listed) in states.into_iter().zip([1, 0, 1, 0]) {
            assert!(db.update_space(&Space { state, ..now.clone() }, &[]).await.unwrap());
            now.version += 1;
            assert_eq!(db.spaces_to_change().await.unwrap().len(), listed, "{state:?}");
        }
        assert_eq!(db.people_without_space_in(&root, 10).await.unwrap().len(), 2, "the name is free again");
    }

    async fn limits_and_hints_that_are_not_as_they_are_wanted_are_found_while_the_space_is_there(db) {
        let one = Space { kind: SpaceKind::Project, ..space("data", SpaceOwner::Everybody) };
        let mut now = db.insert_space(one, &[]).await.unwrap();
        for (limit_state, hint_state, listed) in [
            (LimitState::Held, HintState::Applied, 0),
            (LimitState::Wanted, HintState::Unset, 1),
            (LimitState::NotHeld, HintState::Applied, 1),
            (LimitState::Unset, HintState::Wanted, 1),
            (LimitState::Held, HintState::NotApplied, 1),
        ] {
            (now.limit_state, now.hint_state) = (limit_state, hint_state);
            assert!(db.update_space(&now, &[]).await.unwrap());
            now.version += 1;
            assert_eq!(db.spaces_to_change().await.unwrap().len(), listed, "{limit_state} {hint_state}");
        }
        let retired = Space { state: SpaceState::Retired, desired: SpaceDesired::Retired, ..now };
        assert!(db.update_space(&retired, &[]).await.unwrap());
        assert_eq!(db.spaces_to_change().await.unwrap(), []);
    }

    async fn a_look_takes_the_place_of_the_last_and_leaves_what_was_told(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap().id;
        assert_eq!(db.usage(space).await.unwrap(), None);
        db.note_usage(space, &seen(Level::Ok, 1)).await.unwrap();
        assert_eq!(db.usage(space).await.unwrap(), Some(seen(Level::Ok, 1)));
        db.note_usage(space, &SeenUsage { told: Level::Full, ..seen(Level::Critical, 2) }).await.unwrap();
        assert_eq!(db.usage(space).await.unwrap(), Some(seen(Level::Critical, 2)));
        // Of two who would tell, one does.
        assert!(db.note_told(space, Level::Ok, Level::Critical).await.unwrap());
        assert!(!db.note_told(space, Level::Ok, Level::Critical).await.unwrap());
        let told = SeenUsage { told: Level::Critical, ..seen(Level::Critical, 2) };
        assert_eq!(db.usages().await.unwrap(), [(space, told)]);
    }

    async fn of_what_was_measured_of_a_space_the_latest_is_kept_and_goes_into_looks(db) {
        let (ada, grace) = (add_user(db, "ada").await.id, add_user(db, "grace").await.id);
        let other = db.insert_space(space("other", SpaceOwner::Everybody), &[]).await.unwrap().id;
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap().id;
        let measurement = |by, seconds, used| Measurement {
            used_bytes: Bytes(used),
            used_files: Files(7),
            measured: Measured { by, at: at(seconds), approximate: by == grace },
        };
        assert_eq!(db.measurement(space).await.unwrap(), None);
        let (first, early, last) = (measurement(ada, 5, 1), measurement(grace, 4, 2), measurement(grace, 6, 3));
        for (noted, kept) in [(first, first), (early, first), (last, last)] {
            db.note_measurement(space, &noted, at(10)).await.unwrap();
            assert_eq!(db.measurement(space).await.unwrap(), Some(kept));
        }
        // By a clock that was ahead, and was set right then.
        let (ahead, right) = (measurement(ada, 900, 4), measurement(grace, 8, 5));
        db.note_measurement(space, &ahead, at(900)).await.unwrap();
        assert_eq!(db.measurement(space).await.unwrap(), Some(ahead));
        db.note_measurement(space, &right, at(8)).await.unwrap();
        assert_eq!(db.measurement(space).await.unwrap(), Some(right));
        assert_eq!(db.measurement(other).await.unwrap(), None);
        let measured = Some(first.measured);
        let usage = Usage { source: UsageSource::Measured, measured, ..seen(Level::Ok, 1).usage };
        let look = SeenUsage { usage, ..seen(Level::Ok, 1) };
        db.note_usage(space, &look).await.unwrap();
        assert_eq!(db.usage(space).await.unwrap(), Some(look));
    }

    async fn samples_of_old_days_are_thinned_to_the_last_of_each(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap().id;
        // Midnight, so that the hours of a day are of one day.
        let midnight = (1_700_000_000 / DAY + 1) * DAY - 1_700_000_000;
        for (hour, used) in [(0, 1), (1, 2), (23, 3), (24, 4), (47, 5), (48, 6), (49, 7)] {
            db.insert_sample(space, &sample(midnight + hour * 3600, used)).await.unwrap();
        }
        db.insert_sample(space, &sample(midnight + 49 * 3600, 8)).await.unwrap();
        let used = |samples: Vec<UsageSample>| samples.iter().map(|sample| sample.used_bytes.0).collect::<Vec<_>>();
        assert_eq!(used(db.samples(space, at(0)).await.unwrap()), [1, 2, 3, 4, 5, 6, 8]);
        assert_eq!(db.samples(space, at(midnight + 49 * 3600)).await.unwrap(), [sample(midnight + 49 * 3600, 8)]);
        assert_eq!(db.thin_samples(at(midnight + 2 * DAY), at(0)).await.unwrap(), 3);
        assert_eq!(used(db.samples(space, at(0)).await.unwrap()), [3, 5, 6, 8]);
        assert_eq!(db.thin_samples(at(midnight + 2 * DAY), at(midnight + DAY)).await.unwrap(), 1);
        assert_eq!(used(db.samples(space, at(0)).await.unwrap()), [5, 6, 8]);
    }

    async fn evidence_counts_once_a_day_and_is_forgotten_whole(db) {
        let other = db.insert_space(space("other", SpaceOwner::Everybody), &[]).await.unwrap().id;
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap().id;
        let day = SignedDuration::from_secs(DAY);
        for seconds in [0, 10, DAY - 1, DAY, DAY + 5, 2 * DAY] {
            db.note_evidence(space, EvidenceKind::PersonAbsent, at(seconds), day).await.unwrap();
        }
        db.note_evidence(other, EvidenceKind::PersonAbsent, at(3), day).await.unwrap();
        let all = db.evidence(space).await.unwrap();
        assert_eq!(all.iter().map(|e| (e.what, e.first_at, e.last_at, e.times)).collect::<Vec<_>>(), [
            (EvidenceKind::PersonAbsent, at(0), at(2 * DAY), 3),
        ]);
        // A clock that went back counts nothing.
        db.note_evidence(space, EvidenceKind::PersonAbsent, at(0), day).await.unwrap();
        assert_eq!(db.evidence(space).await.unwrap(), all);
        db.forget_evidence(space, EvidenceKind::PersonAbsent).await.unwrap();
        assert_eq!(db.evidence(space).await.unwrap(), []);
        assert_eq!(db.evidence(other).await.unwrap().len(), 1, "another space's stays");
    }

    async fn what_policies_did_is_kept_for_a_while(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap().id;
        let run = |step, outcome, seconds| PolicyRun { step, outcome, why: "Übung '; --".into(), at: at(seconds) };
        let runs = [
            run(Some(PolicyStep::Retire), PolicyOutcome::WouldDo, 2),
            run(None, PolicyOutcome::Undetermined, 1),
        ];
        for run in runs.iter().rev() {
            db.record_policy_run(space, run).await.unwrap();
        }
        assert_eq!(db.policy_runs(space, 10).await.unwrap(), runs);
        assert_eq!(db.policy_runs(space, 1).await.unwrap(), runs[..1]);
        assert_eq!(db.prune_policy_runs(at(2)).await.unwrap(), 1);
        assert_eq!(db.policy_runs(space, 10).await.unwrap(), runs[..1]);
    }

    async fn names_that_earlier_versions_took_are_read(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        meddle(db, "UPDATE spaces SET title = 'gpj\u{202e}.exe'").await.unwrap();
        assert_eq!(db.space(space.id).await.unwrap().unwrap().title.as_str(), "gpj\u{fffd}.exe");
        let ada = add_user(db, "ada").await;
        let session = add_session(db, &ada).await;
        meddle(db, "UPDATE sessions SET name = '\u{2066}a'").await.unwrap();
        assert_eq!(db.session(session.id).await.unwrap().unwrap().name.as_str(), "\u{fffd}a");
    }

    async fn a_word_nobody_knows_names_its_place(db) {
        let space = db.insert_space(space("data", SpaceOwner::Everybody), &[]).await.unwrap();
        meddle(db, "UPDATE spaces SET state = 'moved'").await.unwrap();
        let read = db.space(space.id).await;
        assert!(matches!(&read, Err(DbError::Inconsistent { table: "spaces", column: "state", .. })), "{read:?}");
    }
}
