//! Every reason not to act is a reason not to act, and a space that is left alone is left alone for ever.

use eirene_core::UserId;
use eirene_core::space::MadeAt;
use proptest::prelude::*;

use super::*;
use crate::spaces::testing::{a_space, person};
use crate::testing::start_time;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY_S: u64 = 24 * 60 * 60;

fn identity() -> Identity {
    Identity {
        kind: "xfs".into(),
        source: "/dev/sdb1".into(),
        root_inode: Some(128),
        marker: Some("00ff".into()),
        fs_id: 1,
        mount_id: 2,
    }
}

fn policy() -> Policy {
    Policy { warn_days: vec![14, 3, 1], grace_days: 30, dry_run: false }
}

/// A scratch of ada's that expires at the time of all tests.
fn expiring() -> Space {
    Space {
        kind: SpaceKind::Scratch,
        made_at: Some(MadeAt { inode: 7, identity: identity() }),
        expires_at: Some(start_time()),
        ..a_space(person(UserId::generate(), "ada"))
    }
}

/// A warning that its people have waited after for so many days.
fn warned(days: u32, waited_days: u32) -> Warned {
    let at = start_time() - DAY * i32::try_from(waited_days).unwrap();
    Warned { days, at, waited_s: DAY_S * u64::from(waited_days) }
}

/// A space that was taken away at the time of all tests.
fn retired() -> Space {
    Space {
        state: SpaceState::Retired,
        desired: SpaceDesired::Retired,
        retired_at: Some(start_time()),
        remove_after: Some(start_time() + DAY * 30),
        watched_at: Some(start_time()),
        ..expiring()
    }
}

fn absent(times: u32, first_days_ago: i32, last_days_ago: i32) -> Evidence {
    Evidence {
        what: EvidenceKind::PersonAbsent,
        first_at: start_time() - DAY * first_days_ago,
        last_at: start_time() - DAY * last_days_ago,
        times,
    }
}

/// All is as it should be at `now`.
struct World {
    space: Space,
    policy: Policy,
    evidence: Vec<Evidence>,
    place: Option<PlaceSeen>,
    people: Option<PeopleSeen>,
    last_look: Option<Timestamp>,
    steady_since: Option<Timestamp>,
    now: Timestamp,
}

impl World {
    fn at(now: Timestamp, space: Space) -> Self {
        Self {
            space,
            policy: policy(),
            evidence: vec![],
            place: Some(PlaceSeen { identity: identity(), inode: 7, file_time: now }),
            people: Some(PeopleSeen { canary: true, asked: 100, found: 100 }),
            last_look: Some(now - HOUR),
            steady_since: Some(now - HOUR * 6),
            now,
        }
    }

    fn decide(&self) -> Decision {
        decide(&Situation {
            space: &self.space,
            policy: &self.policy,
            evidence: &self.evidence,
            place: self.place.as_ref(),
            people: self.people,
            last_look: self.last_look,
            steady_since: self.steady_since,
            interval: HOUR,
            now: self.now,
        })
    }
}

/// A world in which a step is due.
fn due_world(which: u8) -> World {
    match which % 4 {
        0 => World::at(start_time() - DAY * 2, expiring()),
        1 => World::at(start_time(), Space { warned: vec![warned(14, 14), warned(1, 1)], ..expiring() }),
        2 => {
            let mut world = World::at(start_time(), Space { expires_at: None, ..expiring() });
            world.evidence.push(absent(7, 6, 0));
            world
        }
        _ => World::at(start_time() + DAY * 30, Space { kept_s: DAY_S * 30, ..retired() }),
    }
}

/// Breaks one thing a step rests on.
fn spoil(world: &mut World, how: u8) {
    let place = world.place.as_mut().unwrap();
    let people = world.people.as_mut().unwrap();
    match how % 17 {
        0 => place.identity.marker = None,
        1 => place.identity.root_inode = None,
        2 => place.identity.source = "/dev/sdc1".into(),
        3 => place.identity.kind = "tmpfs".into(),
        4 => place.inode += 1,
        5 => place.file_time = world.now + SignedDuration::from_mins(6),
        6 => place.file_time = world.now - SignedDuration::from_mins(6),
        7 => people.canary = false,
        8 => people.found = 89,
        9 => (people.asked, people.found) = (0, 0),
        10 => world.people = None,
        11 => world.last_look = None,
        12 => world.last_look = Some(world.now + SignedDuration::from_secs(1)),
        13 => world.last_look = Some(world.now - HOUR * 2 - SignedDuration::from_secs(1)),
        14 => world.space.made_at = None,
        15 => world.space.undetermined = true,
        _ => world.place = None,
    }
}

#[test]
fn what_is_due_is_done_one_step_after_the_other() {
    assert_eq!(due_world(0).decide(), Decision::Do(Step::Warn { days: 3 }));
    assert_eq!(due_world(1).decide(), Decision::Do(Step::Retire(Cause::Expired)));
    assert_eq!(due_world(2).decide(), Decision::Do(Step::Retire(Cause::PersonAbsent)));
    assert_eq!(due_world(3).decide(), Decision::Do(Step::Remove));
}

#[test]
fn a_policy_on_trial_does_nothing() {
    for which in 0..4 {
        let mut world = due_world(which);
        world.policy.dry_run = true;
        assert!(matches!(world.decide(), Decision::Would(_)), "{which}");
    }
}

#[test]
fn a_warning_that_was_not_delivered_holds_up_the_end() {
    let mut world = World::at(start_time() + DAY * 100, expiring());
    assert_eq!(world.decide(), Decision::Do(Step::Warn { days: 1 }));
    // Delivered late: the day it promised still has to pass.
    world.space.warned = vec![Warned { days: 1, at: world.now, waited_s: 0 }];
    assert_eq!(world.decide(), Decision::Nothing);
    world = World::at(world.now + DAY, world.space);
    assert_eq!(world.decide(), Decision::Nothing, "nobody has looked meanwhile");
    world.space.warned[0].waited_s = DAY_S;
    assert_eq!(world.decide(), Decision::Do(Step::Retire(Cause::Expired)));
}

#[test]
fn a_warning_that_came_late_promises_what_was_left_until_the_end() {
    let told = Warned { days: 14, ..warned(14, 5) };
    let world = World::at(start_time(), Space { warned: vec![told, warned(3, 3)], ..expiring() });
    assert_eq!(world.decide(), Decision::Do(Step::Warn { days: 1 }));
    let world = World::at(start_time(), Space { warned: vec![told, warned(1, 1)], ..expiring() });
    assert_eq!(world.decide(), Decision::Do(Step::Retire(Cause::Expired)));
    let missed = Warned { waited_s: DAY_S * 5 - 1, ..told };
    let world = World::at(start_time(), Space { warned: vec![missed, warned(1, 1)], ..expiring() });
    assert_eq!(world.decide(), Decision::Nothing, "it was told that it has five days");
}

#[test]
fn a_clock_that_jumps_and_a_portal_that_was_down_shorten_no_grace() {
    let (mut space, mut now) = (retired(), start_time());
    let mut look = |step: SignedDuration| {
        now += step;
        watch(&mut space, now, HOUR);
        let left = space.kept_until().unwrap().duration_since(now);
        (World::at(now, space.clone()).decide(), left)
    };
    for hours in 1..=24 {
        assert_eq!(look(HOUR), (Decision::Nothing, DAY * 30 - HOUR * hours));
    }
    for step in [DAY * 31, DAY, HOUR * 2 + SignedDuration::from_secs(1), DAY * -2, SignedDuration::ZERO] {
        assert_eq!(look(step), (Decision::Nothing, DAY * 29), "{step:?}");
    }
    for hours in 1..29 * 24 {
        assert_eq!(look(HOUR), (Decision::Nothing, DAY * 29 - HOUR * hours));
    }
    assert_eq!(look(HOUR), (Decision::Do(Step::Remove), SignedDuration::ZERO));
}

#[test]
fn what_was_taken_away_before_time_was_counted_is_kept_for_its_whole_grace_from_now_on() {
    let mut space = Space { watched_at: None, ..retired() };
    assert_eq!(space.kept_until(), space.remove_after);
    let now = start_time() + DAY * 40;
    watch(&mut space, now, HOUR);
    assert_eq!((space.kept_s, space.kept_until()), (0, Some(now + DAY * 30)));
    assert_eq!(World::at(now, space).decide(), Decision::Nothing);
}

#[test]
fn parts_of_seconds_are_not_lost_to_the_time_that_is_counted() {
    let (mut space, mut now) = (retired(), start_time());
    for _ in 0..10 {
        now += HOUR + SignedDuration::from_millis(900);
        watch(&mut space, now, HOUR);
    }
    assert_eq!(space.kept_s, 10 * 3600 + 9);
}

#[test]
fn whoever_was_warned_has_the_days_that_they_were_told_however_the_clock_jumps() {
    let mut now = start_time() - DAY * 14;
    let told = Warned { days: 14, at: now, waited_s: 0 };
    let mut space = Space { warned: vec![told], watched_at: Some(now), ..expiring() };
    now += DAY * 14;
    watch(&mut space, now, HOUR);
    assert_eq!(World::at(now, space.clone()).decide(), Decision::Do(Step::Warn { days: 1 }));
    space.warned.push(Warned { days: 1, at: now, waited_s: 0 });
    for _ in 1..14 * 24 {
        now += HOUR;
        watch(&mut space, now, HOUR);
        assert_eq!(World::at(now, space.clone()).decide(), Decision::Nothing);
    }
    now += HOUR;
    watch(&mut space, now, HOUR);
    assert_eq!(World::at(now, space.clone()).decide(), Decision::Do(Step::Retire(Cause::Expired)));
}

#[test]
fn where_nobody_was_told_anything_the_first_step_waits_until_looks_have_come_in_time_for_hours() {
    let mut unannounced = World::at(start_time(), expiring());
    unannounced.policy.warn_days = vec![];
    let second = SignedDuration::from_secs(1);
    for (mut world, step) in [(due_world(0), Step::Warn { days: 3 }), (unannounced, Step::Retire(Cause::Expired))] {
        for since in [None, Some(world.now), Some(world.now - HOUR * 6 + second)] {
            world.steady_since = since;
            assert_eq!(world.decide(), Decision::Undetermined(Doubt::NotWatched), "{step:?} {since:?}");
        }
        world.steady_since = Some(world.now - HOUR * 6);
        assert_eq!(world.decide(), Decision::Do(step));
    }
    // What was counted, or missed on several days, says it by itself.
    for which in 1..4 {
        let mut world = due_world(which);
        world.steady_since = world.last_look;
        assert!(matches!(world.decide(), Decision::Do(_)), "{which}");
    }
}

#[test]
fn what_was_told_by_a_clock_that_was_ahead_is_told_again() {
    let now = start_time() - DAY * 2;
    let ahead = Warned { days: 1, at: now + DAY * 30, waited_s: 0 };
    let mut space = Space { warned: vec![ahead], watched_at: Some(ahead.at), ..expiring() };
    assert!(is_waited_for(&space));
    watch(&mut space, now, HOUR);
    assert_eq!(space.warned, []);
    assert_eq!(World::at(now, space).decide(), Decision::Do(Step::Warn { days: 3 }));
}

#[test]
fn somebody_is_absent_who_was_missed_on_seven_days_and_lately() {
    for (evidence, expected) in [
        (absent(6, 6, 0), Decision::Nothing),
        (absent(7, 5, 0), Decision::Nothing),
        (absent(7, 9, 3), Decision::Nothing),
        (absent(7, 6, -1), Decision::Nothing),
        (absent(7, 8, 2), Decision::Do(Step::Retire(Cause::PersonAbsent))),
    ] {
        let mut world = World::at(start_time(), Space { expires_at: None, ..expiring() });
        world.evidence.push(evidence);
        assert_eq!(world.decide(), expected, "{evidence:?}");
        world.space.owner = SpaceOwner::Group("physics".parse().unwrap());
        assert_eq!(world.decide(), Decision::Nothing, "a group has no person to miss");
    }
}

#[test]
fn a_retired_space_is_kept_for_its_grace_and_while_it_is_wanted_back() {
    let mut world = due_world(3);
    world.space.retired_at = Some(start_time() + DAY);
    assert_eq!(world.decide(), Decision::Nothing);
    let mut world = due_world(3);
    world.space.kept_s -= 1;
    assert_eq!(world.decide(), Decision::Nothing);
    let mut world = due_world(3);
    world.policy.grace_days = 31;
    world.space.kept_s = DAY_S * 31;
    assert_eq!(world.decide(), Decision::Nothing, "the policy has grown longer");
    let mut world = due_world(3);
    (world.policy.grace_days, world.space.kept_s) = (1, DAY_S * 29);
    assert_eq!(world.decide(), Decision::Nothing, "what was promised holds");
    let mut world = due_world(3);
    world.space.remove_after = None;
    assert_eq!(world.decide(), Decision::Nothing);
    let mut world = due_world(3);
    world.space.desired = SpaceDesired::Present;
    assert_eq!(world.decide(), Decision::Nothing);
}

proptest! {
    #[test]
    fn whatever_is_in_doubt_nothing_is_done(which in any::<u8>(), how in any::<u8>(), more in any::<u8>()) {
        let mut world = due_world(which);
        prop_assert!(matches!(world.decide(), Decision::Do(_)));
        spoil(&mut world, how);
        let spoiled_twice = how % 17 != 16 && how % 17 != 10;
        if spoiled_twice {
            spoil(&mut world, more);
        }
        prop_assert!(matches!(world.decide(), Decision::Undetermined(_)), "{:?}", world.decide());
    }

    #[test]
    fn a_home_and_what_has_no_end_and_no_evidence_are_left_alone_at_any_time(
        days in -10_000_i32..10_000, home in any::<bool>(), times in 0_u32..100,
    ) {
        let now = start_time() + DAY * days;
        let space = Space { expires_at: home.then_some(start_time()), ..expiring() };
        let space = Space { kind: if home { SpaceKind::Home } else { SpaceKind::Scratch }, ..space };
        let mut world = World::at(now, space);
        if home {
            world.evidence.push(Evidence { last_at: now, ..absent(times, 100, 0) });
        }
        prop_assert_eq!(world.decide(), Decision::Nothing);
    }

    #[test]
    fn whatever_the_clock_does_nobody_waits_less_than_the_looks_that_were_in_time(
        steps in proptest::collection::vec(prop_oneof![0_i64..8_000, -100_000_i64..1_000_000], 0..60),
        is_retired in any::<bool>(),
    ) {
        let told = vec![warned(14, 0)];
        let warned_of = Space { warned: told, watched_at: Some(start_time()), ..expiring() };
        let mut space = if is_retired { retired() } else { warned_of };
        let (mut now, mut in_time) = (start_time(), 0_u64);
        for step in steps {
            now += SignedDuration::from_secs(step);
            watch(&mut space, now, HOUR);
            if (0..=7200).contains(&step) {
                in_time += step.unsigned_abs();
            }
            let waited = space.warned.first().map_or(space.kept_s, |warned| warned.waited_s);
            prop_assert!(waited <= in_time && space.watched_at == Some(now));
            prop_assert!(space.kept_until().is_none_or(|until| until >= start_time() + DAY * 30));
        }
    }

    #[test]
    fn nothing_ends_before_its_time(before_s in 1_i64..100_000_000, warned_days in proptest::collection::vec(0_u32..20, 0..5)) {
        let now = start_time() - SignedDuration::from_secs(before_s);
        let warned = warned_days.iter().map(|days| Warned { days: *days, at: now - DAY * 30, waited_s: DAY_S * 30 }).collect();
        let world = World::at(now, Space { warned, ..expiring() });
        prop_assert!(matches!(world.decide(), Decision::Nothing | Decision::Do(Step::Warn { .. })), "{:?}", world.decide());
    }
}
