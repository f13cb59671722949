//! Each trouble is found, a healthy storage has none, and what was not said is never taken for trouble or for its absence.

use eirene_core::storage::{Capabilities, Doubt, DoubtAbout, FileSystem, Identity, PoolId};
use proptest::prelude::*;

use super::*;
use crate::testing::start_time;

const GIB: u64 = 1 << 30;
const NEAR_FULL: NearFull = [10, 5];

fn identity() -> Identity {
    Identity {
        kind: "beegfs".into(),
        source: "beegfs_nodev".into(),
        root_inode: Some(2),
        marker: Some("00ff".into()),
        fs_id: 1,
        mount_id: 2,
    }
}

fn root() -> RootSeen {
    let file_system = FileSystem {
        total: Bytes(1000 * GIB),
        available: Bytes(500 * GIB),
        inodes_total: Known::Known(Files(1000)),
        inodes_available: Known::Known(Files(500)),
        read_only: false,
        client_version: None,
        identity: identity(),
    };
    RootSeen {
        name: "scratch".parse().unwrap(),
        writable: true,
        file_system: Asked::Got(file_system),
        first: Some(identity()),
        made: Some(identity()),
    }
}

fn target(number: u32) -> Target {
    Target {
        id: TargetId { role: Role::Storage, number },
        node: Known::Missing(Why::NotUnderstood),
        alias: None,
        pool: Some(PoolId(1)),
        reach: Reach::Online,
        consistency: Consistency::Good,
        room: Room::Normal,
        total: Known::Known(Bytes(1000 * GIB)),
        free: Known::Known(Bytes(500 * GIB)),
        inodes_total: Known::Known(Files(1000)),
        inodes_free: Known::Known(Files(500)),
        precision: Bytes(1),
        inodes_precision: Files(1),
        last_contact_s: Known::Missing(Why::NotSupported),
    }
}

fn sure<T>(value: T) -> Asked<Partial<T>> {
    Asked::Got(Partial { value, doubts: vec![] })
}

fn failed_with<T>(kind: TroubleKind) -> Asked<T> {
    Asked::Failed(Trouble { kind, text: "it said so".into() })
}

/// Two targets, a server, a root, and nothing wrong.
fn healthy() -> Snapshot {
    let node = NodeId { role: Role::Metadata, number: 1, alias: None };
    let able = Ability::Yes;
    let capabilities = Capabilities {
        version: Known::Known("7.4.7".into()),
        quota_read: able,
        targets: able,
        ..Capabilities::none("beegfs7")
    };
    Snapshot {
        at: Some(start_time()),
        capabilities: Some(capabilities),
        nodes: sure(vec![ServerNode { id: node, addresses: vec![], reachable: Known::Known(true) }]),
        targets: sure(vec![target(1), target(2)]),
        pools: sure(vec![Pool { id: PoolId(1), name: "Default".into(), targets: vec![1, 2], mirrors: vec![] }]),
        roots: vec![root()],
        homes: Asked::Got(()),
    }
}

fn codes(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    judge(snapshot, NEAR_FULL, start_time()).into_iter().map(|finding| (finding.code, finding.about)).collect()
}

fn with_target(change: impl FnOnce(&mut Target)) -> Vec<(&'static str, String)> {
    let mut one = target(1);
    change(&mut one);
    codes(&Snapshot { targets: sure(vec![one, target(2)]), ..healthy() })
}

fn with_root(change: impl FnOnce(&mut RootSeen, &mut FileSystem)) -> Vec<(&'static str, String)> {
    let mut seen = root();
    let Asked::Got(mut file_system) = seen.file_system.clone() else { panic!("it is there") };
    change(&mut seen, &mut file_system);
    if matches!(seen.file_system, Asked::Got(_)) {
        seen.file_system = Asked::Got(file_system);
    }
    codes(&Snapshot { roots: vec![seen], ..healthy() })
}

#[test]
fn a_healthy_storage_has_no_findings_and_one_that_was_not_looked_at_neither() {
    assert_eq!(codes(&healthy()), []);
    assert_eq!(codes(&Snapshot::default()), []);
    let mounted = Snapshot {
        capabilities: Some(Capabilities::none("posix")),
        nodes: Asked::Unsupported,
        targets: Asked::Unsupported,
        pools: Asked::Unsupported,
        ..healthy()
    };
    assert_eq!(codes(&mounted), [], "what a storage does not have is no trouble");
}

#[test]
fn every_trouble_of_a_target_is_named() {
    let of_one = |code| vec![(code, "storage:1".to_owned())];
    assert_eq!(with_target(|target| target.reach = Reach::Offline), of_one("target_offline"));
    assert_eq!(with_target(|target| target.reach = Reach::ProbablyOffline), of_one("target_probably_offline"));
    assert_eq!(with_target(|target| target.consistency = Consistency::Bad), of_one("target_bad"));
    assert_eq!(with_target(|target| target.consistency = Consistency::NeedsResync), of_one("target_needs_resync"));
    assert_eq!(with_target(|target| target.room = Room::Low), of_one("target_near_full"));
    assert_eq!(with_target(|target| target.free = Known::Known(Bytes(90 * GIB))), of_one("target_near_full"));
    assert_eq!(with_target(|target| target.inodes_free = Known::Known(Files(40))), of_one("inodes_near_full"));
    // What the storage thinks of it and what we think of it is one trouble.
    let both = with_target(|target| (target.room, target.free) = (Room::Emergency, Known::Known(Bytes(0))));
    assert_eq!(both, of_one("target_near_full"));
}

#[test]
fn a_target_that_says_nothing_is_neither_full_nor_well() {
    let silent = |target: &mut Target| {
        (target.total, target.free) = (Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer));
        (target.reach, target.consistency, target.room) = (Reach::Unknown, Consistency::Unknown, Room::Unknown);
    };
    assert_eq!(with_target(silent), []);
}

#[test]
fn rounding_makes_no_target_full() {
    let rounded = |free: u64| {
        with_target(move |target| {
            (target.total, target.free) = (Known::Known(Bytes(1000)), Known::Known(Bytes(free)));
            target.precision = Bytes(10);
        })
    };
    assert_eq!(rounded(92), [], "it may have 101");
    assert_eq!(rounded(90), [("target_near_full", "storage:1".to_owned())]);
}

#[test]
fn a_pool_is_judged_by_its_sum_and_only_by_a_whole_one() {
    let low = |number| Target { free: Known::Known(Bytes(80 * GIB)), ..target(number) };
    let all = Snapshot { targets: sure(vec![low(1), low(2)]), ..healthy() };
    assert!(codes(&all).contains(&("pool_near_full", "pool:1".to_owned())), "{:?}", codes(&all));
    let silent = Target { free: Known::Missing(Why::DidNotAnswer), ..target(2) };
    for targets in [vec![low(1), target(2)], vec![low(1), silent], vec![low(1)]] {
        let seen = codes(&Snapshot { targets: sure(targets), ..healthy() });
        assert_eq!(seen, [("target_near_full", "storage:1".to_owned())]);
    }
}

#[test]
fn a_pool_in_which_few_files_fit_is_named_and_of_half_a_sum_nothing_is_said() {
    let low = |number| Target { inodes_free: Known::Known(Files(80)), ..target(number) };
    let seen = |targets| codes(&Snapshot { targets: sure(targets), ..healthy() });
    let of = |about: &str| ("inodes_near_full", about.to_owned());
    assert_eq!(seen(vec![low(1), low(2)]), [of("storage:1"), of("storage:2"), of("pool:1")]);
    let silent = Target { inodes_total: Known::Missing(Why::DidNotAnswer), ..low(2) };
    assert_eq!(seen(vec![low(1), silent]), [of("storage:1")]);
    assert_eq!(seen(vec![low(1), target(2)]), [of("storage:1")], "the other one has enough for both");
}

#[test]
fn every_trouble_of_a_root_is_named() {
    let of_root = |code| vec![(code, "root:scratch".to_owned())];
    for (kind, code) in [
        (TroubleKind::Missing, "mount_missing"),
        (TroubleKind::Refused, "mount_refused"),
        (TroubleKind::Away, "mount_stale"),
        (TroubleKind::NotUnderstood, "not_understood"),
    ] {
        assert_eq!(with_root(|root, _| root.file_system = failed_with(kind)), of_root(code));
    }
    assert_eq!(with_root(|_, seen| seen.read_only = true), of_root("mount_read_only"));
    let read_only_data = |root: &mut RootSeen, seen: &mut FileSystem| (root.writable, seen.read_only) = (false, true);
    assert_eq!(with_root(read_only_data), []);
    assert_eq!(with_root(|_, seen| seen.identity.marker = Some("ff00".into())), of_root("mount_changed"));
    assert_eq!(with_root(|_, seen| seen.identity.marker = None), of_root("mount_changed"));
    assert_eq!(with_root(|_, seen| seen.identity.mount_id += 1), [], "it was mounted again");
    assert_eq!(with_root(|_, seen| seen.available = Bytes(GIB)), of_root("root_near_full"));
    let unmarked = with_root(|root, seen| {
        seen.identity.marker = None;
        root.first = Some(seen.identity.clone());
    });
    assert_eq!(unmarked, of_root("root_marker_missing"));
    let other_kind = with_root(|root, seen| (root.made, seen.identity.kind) = (None, "ext4".into()));
    assert_eq!(other_kind, of_root("mount_changed"), "nothing was made there yet");
}

#[test]
fn a_root_that_is_not_mounted_is_told_by_what_its_spaces_were_made_on() {
    let of_root = |code| vec![(code, "root:scratch".to_owned())];
    // As whoever was just started sees it: what is there now is what was seen first.
    let now = |made: fn(&mut Identity), now: fn(&mut Identity)| {
        with_root(|root, seen| {
            made(root.made.as_mut().unwrap());
            now(&mut seen.identity);
            root.first = Some(seen.identity.clone());
        })
    };
    let local = |now: &mut Identity| {
        (now.kind, now.source, now.root_inode, now.marker) = ("ext4".into(), "/dev/sda2".into(), Some(3), None);
    };
    let unmarked = |made: &mut Identity| made.marker = None;
    assert_eq!(now(|_| {}, local), of_root("root_not_mounted"));
    assert_eq!(now(unmarked, local), of_root("root_not_mounted"), "also where none was ever marked");
    assert_eq!(now(unmarked, |_| {}), [], "the marker was written since");
    assert_eq!(now(unmarked, unmarked), of_root("root_marker_missing"));
    assert_eq!(now(|_| {}, unmarked), of_root("root_marker_missing"), "all but the marker is as it was");
    assert_eq!(now(|_| {}, |now| now.marker = Some("ff00".into())), of_root("mount_changed"));
    let moved = |now: &mut Identity| (now.source, now.fs_id, now.mount_id) = ("other".into(), 8, 9);
    assert_eq!(now(|_| {}, moved), [], "the marker says that it is the same");
    let disk = |seen: &mut Identity| (seen.source, seen.marker) = ("/dev/sdb1".into(), None);
    let renamed = |seen: &mut Identity| (seen.source, seen.marker) = ("/dev/sdc1".into(), None);
    assert_eq!(now(disk, renamed), of_root("root_marker_missing"), "nothing tells whether it is another one");
    let marked_disk = |seen: &mut Identity| seen.source = "/dev/sdb1".into();
    assert_eq!(now(marked_disk, renamed), of_root("root_not_mounted"));
    let mounted_late = with_root(|root, _| local(root.first.as_mut().unwrap()));
    assert_eq!(mounted_late, [], "it was not mounted when it was first seen");
    // How full it is, and whether it may be written to, is another one's affair.
    let full = with_root(|_, seen| {
        local(&mut seen.identity);
        (seen.available, seen.read_only) = (Bytes(0), true);
    });
    assert_eq!(full, of_root("root_not_mounted"));
}

#[test]
fn homes_that_do_not_answer_are_named() {
    for (kind, code) in [
        (TroubleKind::Missing, "homes_missing"),
        (TroubleKind::Refused, "homes_refused"),
        (TroubleKind::Away, "homes_stale"),
        (TroubleKind::NotUnderstood, "not_understood"),
    ] {
        let seen = Snapshot { homes: failed_with(kind), ..healthy() };
        assert_eq!(codes(&seen), [(code, "homes".to_owned())]);
        let severity = judge(&seen, NEAR_FULL, start_time())[0].severity;
        assert_eq!(severity == Severity::Warning, kind == TroubleKind::Refused, "{kind:?}");
    }
    assert_eq!(codes(&Snapshot { homes: Asked::Unsupported, ..healthy() }), [], "nobody is known to have one");
}

#[test]
fn questions_without_a_good_answer_are_named() {
    for (kind, code) in [
        (TroubleKind::Away, "storage_away"),
        (TroubleKind::Refused, "storage_refuses"),
        (TroubleKind::NotUnderstood, "not_understood"),
    ] {
        assert_eq!(codes(&Snapshot { targets: failed_with(kind), ..healthy() }), [(code, "targets".to_owned())]);
    }
    let doubt = Doubt { about: DoubtAbout::Whole, text: "half of it".into() };
    let doubtful = Asked::Got(Partial { value: vec![], doubts: vec![doubt] });
    assert_eq!(codes(&Snapshot { nodes: doubtful, ..healthy() }), [("answer_doubtful", "servers".to_owned())]);
    let mut lost = healthy();
    lost.capabilities.as_mut().unwrap().version = Known::Missing(Why::DidNotAnswer);
    assert_eq!(codes(&lost), [("tool_missing", String::new())]);
    lost.targets = failed_with(TroubleKind::Refused);
    (lost.nodes, lost.pools) = (failed_with(TroubleKind::Refused), failed_with(TroubleKind::Away));
    assert_eq!(codes(&lost), [("tool_missing", String::new())], "one cause is said once");
    let text = judge(&lost, NEAR_FULL, start_time())[0].text.to_string();
    assert!(text.contains("it said so"), "{text}");
    let away = Snapshot {
        nodes: failed_with(TroubleKind::Away),
        targets: failed_with(TroubleKind::Away),
        pools: failed_with(TroubleKind::Refused),
        ..healthy()
    };
    let (servers, pools) = (("storage_away", "servers".to_owned()), ("storage_refuses", "pools".to_owned()));
    assert_eq!(codes(&away), [servers, pools], "what else is wrong is still said");
    for (why, code) in
        [(Why::NotEnabled, "quota_not_enabled"), (Why::Unlicensed, "quota_unlicensed"), (Why::Refused, "quota_refused")]
    {
        let mut off = healthy();
        off.capabilities.as_mut().unwrap().quota_read = Ability::No(why);
        assert_eq!(codes(&off), [(code, String::new())]);
        off.capabilities.as_mut().unwrap().name = "posix";
        assert_eq!(codes(&off), [], "most file systems have none, and that is nothing to be cured");
    }
    let node = NodeId { role: Role::Storage, number: 4, alias: None };
    let lost = ServerNode { id: node, addresses: vec![], reachable: Known::Known(false) };
    let seen = codes(&Snapshot { nodes: sure(vec![lost]), ..healthy() });
    assert_eq!(seen, [("node_unreachable", "storage:4".to_owned())]);
    let later = start_time() + SignedDuration::from_mins(11);
    assert_eq!(judge(&healthy(), NEAR_FULL, later)[0].code, "look_too_old");
}

#[test]
fn parts_of_beegfs_that_do_not_belong_together_are_named() {
    let seen = |adapter: &'static str, tool: &str, client: Option<&str>, kind: &str| {
        let mut snapshot = healthy();
        snapshot.capabilities =
            Some(Capabilities { version: Known::Known(tool.to_owned()), ..Capabilities::none(adapter) });
        let Asked::Got(root) = &mut snapshot.roots[0].file_system else { panic!("it is there") };
        root.client_version = client.map(str::to_owned);
        root.identity.kind = kind.to_owned();
        (snapshot.roots[0].first, snapshot.roots[0].made) = (None, None);
        codes(&snapshot)
    };
    let of_root = |code| [(code, "root:scratch".to_owned())];
    assert_eq!(seen("beegfs7", "7.4.7", Some("7.4.6"), "beegfs"), [], "patches of one release go together");
    assert_eq!(seen("beegfs7", "7.4.7", Some("7.3.4"), "beegfs"), of_root("client_version_differs"));
    assert_eq!(seen("beegfs8", "8.4.0", Some("7.4.7"), "beegfs"), of_root("client_version_differs"));
    assert_eq!(seen("beegfs7", "7.4.7", None, "beegfs"), [], "what is not known is no trouble");
    assert_eq!(seen("beegfs7", "7.4.7", Some("a word"), "beegfs"), []);
    assert_eq!(seen("beegfs7", "8.4.0", None, "beegfs"), [("tool_generation", String::new())]);
    assert_eq!(seen("beegfs7", "7.4.7", None, "ext4"), of_root("not_on_beegfs"));
    assert_eq!(seen("posix", "", None, "ext4"), [], "any file system will do there");
}

#[test]
fn the_worst_comes_first() {
    let seen = Snapshot { targets: failed_with(TroubleKind::Away), roots: vec![], ..healthy() };
    let mut seen = seen;
    seen.capabilities.as_mut().unwrap().quota_read = Ability::No(Why::NotEnabled);
    let found = judge(&seen, NEAR_FULL, start_time());
    assert_eq!(found.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["storage_away", "quota_not_enabled"]);
}

proptest! {
    #[test]
    fn less_room_is_never_less_bad(total in any::<u64>(), free in any::<u64>(), less in any::<u64>()) {
        let worst = |free| {
            let mut one = target(1);
            (one.total, one.free) = (Known::Known(Bytes(total)), Known::Known(Bytes(free)));
            let seen = Snapshot { targets: sure(vec![one]), ..healthy() };
            judge(&seen, NEAR_FULL, start_time()).into_iter().map(|finding| finding.severity).max()
        };
        prop_assert!(worst(free.saturating_sub(less)) >= worst(free));
    }
}
