//! Every reason not to act is a reason not to act, and a space that is left alone is left alone for ever.

use eirene_core::UserId;
use eirene_core::space::{MadeAt, Warned};
use proptest::prelude::*;

use super::*;
use crate::services::spaces::testing::{a_space, person};
use crate::testing::start_time;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

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
            interval: HOUR,
            now: self.now,
        })
    }
}

/// A world in which a step is due.
fn due_world(which: u8) -> World {
    let warned = |days: u32, days_ago: i32| Warned { days, at: start_time() - DAY * days_ago };
    match which % 4 {
        0 => World::at(start_time() - DAY * 2, expiring()),
        1 => World::at(start_time(), Space { warned: vec![warned(14, 14), warned(1, 1)], ..expiring() }),
        2 => {
            let mut world = World::at(start_time(), Space { expires_at: None, ..expiring() });
            world.evidence.push(absent(7, 6, 0));
            world
        }
        _ => World::at(
            start_time(),
            Space {
                state: SpaceState::Retired,
                desired: SpaceDesired::Retired,
                retired_at: Some(start_time() - DAY * 30),
                remove_after: Some(start_time()),
                ..expiring()
            },
        ),
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
    world.space.warned = vec![Warned { days: 1, at: world.now }];
    assert_eq!(world.decide(), Decision::Nothing);
    world = World::at(world.now + DAY, world.space);
    assert_eq!(world.decide(), Decision::Do(Step::Retire(Cause::Expired)));
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
    world.space.retired_at = Some(start_time() - DAY * 29);
    assert_eq!(world.decide(), Decision::Nothing);
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
    fn nothing_ends_before_its_time(before_s in 1_i64..100_000_000, warned_days in proptest::collection::vec(0_u32..20, 0..5)) {
        let now = start_time() - SignedDuration::from_secs(before_s);
        let warned = warned_days.iter().map(|days| Warned { days: *days, at: now - DAY * 30 }).collect();
        let world = World::at(now, Space { warned, ..expiring() });
        prop_assert!(matches!(world.decide(), Decision::Nothing | Decision::Do(Step::Warn { .. })), "{:?}", world.decide());
    }
}
