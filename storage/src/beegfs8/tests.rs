//! The parsers on answers that are written from the source of 8.4.0, and on damaged ones.

use std::fs;

use eirene_core::storage::{Consistency, Doubt, DoubtAbout, EntryKind, OperationsOf, Pattern, Reach, Room};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn written(name: &str) -> String {
    let folder = env!("CARGO_MANIFEST_DIR");
    fs::read_to_string(format!("{folder}/tests/fixtures/beegfs-8.4.0/written-from-source-8.4.0-{name}.txt")).unwrap()
}

fn users(first: u32, last: u32) -> QuotaRange {
    QuotaRange { of: QuotaOf::User, first, last }
}

fn pools() -> Vec<Pool> {
    lists::pools(&written("pool-list")).value.into_iter().map(|(pool, _)| pool).collect()
}

fn quotas(text: &str) -> Partial<Vec<Quota>> {
    usage::quotas(text, users(1000, 1001), &pools(), Known::Missing(Why::NotUnderstood))
}

#[test]
fn nodes_are_reached_by_any_interface_and_clients_are_no_servers() {
    let nodes = lists::nodes(&written("node-list"));
    assert_eq!(nodes.doubts, []);
    let found: Vec<_> = nodes.value.iter().map(|node| (node.id.role, node.id.number, node.reachable)).collect();
    assert_eq!(
        found,
        [
            (Role::Management, 1, Known::Known(true)),
            (Role::Metadata, 1, Known::Known(true)),
            (Role::Storage, 1, Known::Known(true)),
            (Role::Storage, 2, Known::Known(false)),
        ]
    );
    assert_eq!(nodes.value[2].addresses.len(), 2);
}

#[test]
fn a_target_that_is_away_has_no_numbers() {
    let targets = lists::targets(&written("target-list"));
    let [metadata, near, away] = &targets.value[..] else { panic!() };
    assert_eq!((metadata.id.role, metadata.pool, metadata.room), (Role::Metadata, None, Room::Normal));
    assert_eq!((near.total, near.last_contact_s), (Known::Known(Bytes(270_582_939_648)), Known::Known(12)));
    assert_eq!((near.pool, near.precision), (Some(PoolId(1)), Bytes(1)));
    assert_eq!((away.reach, away.consistency, away.room), (Reach::Offline, Consistency::NeedsResync, Room::Unknown));
    assert_eq!((away.total, away.inodes_free), (Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer)));
    assert_eq!(targets.doubts.len(), 1);
    assert!(matches!(targets.doubts[0], Doubt { about: DoubtAbout::Target(id), .. } if id == away.id));
}

#[test]
fn pools_bring_the_default_limits() {
    let pools = lists::pools(&written("pool-list"));
    assert_eq!(pools.doubts, []);
    let (pool, quota) = &pools.value[0];
    assert_eq!((pool.id, &pool.targets[..]), (PoolId(1), &[1][..]));
    assert_eq!(quota.user_size, Known::Known(Limit::At(Bytes(50 << 30))));
    assert_eq!((quota.user_files, quota.group_size), (Known::Known(Limit::Unlimited), Known::Known(Limit::Unlimited)));
    assert_eq!(pools.value[1].1.user_size, Known::Missing(Why::NeverMeasured));
}

#[test]
fn quotas_are_joined_by_pool_and_unlimited_is_no_number() {
    let answer = quotas(&written("quota-list-usage"));
    let find =
        |id, pool| answer.value.iter().find(|q| q.id == QuotaId::User(id) && q.pool == Some(PoolId(pool))).unwrap();
    let ada = find(1000, 1);
    assert_eq!((ada.used, ada.limit), (Known::Known(Bytes(4096)), Known::Known(Limit::At(Bytes(10 << 30)))));
    assert_eq!((ada.files_used, ada.files_limit), (Known::Known(Files(12)), Known::Known(Limit::At(Files(100_000)))));
    let fast = find(1000, 2);
    assert_eq!((fast.used, fast.limit), (Known::Missing(Why::DidNotAnswer), Known::Known(Limit::Unlimited)));
    assert_eq!(find(1001, 1).used, Known::Known(Bytes(0)));
    assert_eq!(find(1001, 2).used, Known::Missing(Why::NeverMeasured));
}

#[test]
fn a_pool_nobody_knows_is_a_doubt() {
    let answer = quotas(&written("quota-list-usage").replace("\"fast\"", "\"slow\""));
    assert!(answer.doubts.iter().any(|doubt| matches!(doubt.about, DoubtAbout::Line(2))), "{:?}", answer.doubts);
}

#[test]
fn nothing_found_is_said_of_each_id_and_is_not_zero() {
    let said = "WARNING: No information found for the specified ID(s). Either these ID(s) do not exist, or the management \
                is not configured to query/enforce their quotas.\n";
    let ran = Ran { status: 0, stdout: String::new(), stderr: said.into() };
    let answer = usage::nothing_known(&ran, users(1000, 1001), &pools()).unwrap();
    assert_eq!((answer.value.len(), answer.doubts.len()), (4, 1));
    assert!(answer.value.iter().all(|quota| quota.used == Known::Missing(Why::NotEnabled)));
    assert_eq!(usage::nothing_known(&Ran { status: 1, ..ran }, users(1000, 1001), &pools()), None);
}

#[test]
fn the_period_of_measurement_is_told_beside_the_rows() {
    assert_eq!(
        usage::every("INFO: Quota usage information is fetched every 30s from the server nodes, thus …\n"),
        Known::Known(30)
    );
    assert_eq!(
        usage::every("INFO: Quota usage information is fetched every ? from"),
        Known::Missing(Why::NotUnderstood)
    );
}

#[test]
fn entries_have_their_stripe_pattern() {
    let entry = &lists::entry(&written("entry-info")).value[0];
    assert_eq!((entry.kind, entry.metadata_mirrored), (EntryKind::Directory, Known::Known(false)));
    let stripe = entry.stripe.value().unwrap();
    assert_eq!((&stripe.pattern, stripe.chunk), (&Pattern::Raid0, Known::Known(Bytes(1 << 20))));
    assert_eq!(
        (stripe.targets_wanted, &stripe.pool),
        (Known::Known(2), &Known::Known((PoolId(1), "storage_pool_default".into())))
    );
    let locked = written("entry-info").replace("RAID0 (2x1048576)", "(unavailable: locked)");
    assert_eq!(lists::entry(&locked).value[0].stripe, Known::Missing(Why::DidNotAnswer));
}

#[test]
fn statistics_are_bytes_and_counts() {
    let sample = &usage::samples(&written("stats-server")).value[0];
    assert_eq!(
        (sample.at_s, sample.written, sample.read),
        (1_795_242_755, Known::Known(Bytes(8192)), Known::Known(Bytes(4096)))
    );
    let counts = usage::operations(&written("stats-user"), OperationsKind::Users);
    assert_eq!(counts.doubts, []);
    assert_eq!((&counts.value[0].of, counts.value[0].total), (&OperationsOf::User(1000), 10));
    assert_eq!(counts.value[0].by_name.len(), 3);
    assert_eq!(counts.value[1].of, OperationsOf::UnknownUser);
    let storage = "{\"client\":\"192.0.2.2\",\"ops-rd\":\"2\",\"rd\":\"4096\",\"sum\":\"2\",\"wr\":\"\"}\n";
    let client = &usage::operations(storage, OperationsKind::Clients).value[0];
    assert_eq!((client.read, client.written), (Known::Known(Bytes(4096)), Known::Known(Bytes(0))));
}

#[test]
fn the_version_is_its_number() {
    let ran = Ran { status: 0, stdout: written("version"), stderr: String::new() };
    assert_eq!(version(&ran), Known::Known("8.4.0".into()));
}

#[test]
fn every_question_is_asked_in_these_words() {
    let plain = "--raw --disable-alerts --disable-emojis --log-level=0";
    let rows = format!("--output=ndjson {plain}");
    let stats =
        format!("{rows} --columns=time,node_id,alias,queue_length,requests,busy_workers,written,read stats server");
    let stripe =
        SetStripe { chunk: Some(Bytes(1 << 20)), targets: Some(4), pool: Some(PoolId(2)), mirrored: Some(true) };
    let (size, none) = (Some(Limit::At(Bytes(10))), Some(Limit::Unlimited));
    for (asked, words) in [
        (call::version(), "version".to_owned()),
        (
            call::nodes(),
            format!(
                "{rows} --columns=id,type,alias,nics,reachable \
                 node list --with-nics --reachability-check --reachability-error"
            ),
        ),
        (
            call::targets(),
            format!(
                "{rows} --columns=id,type,alias,node,storage_pool,reachability,last_contact,consistency,cap_pool,\
                 space,space_free,inodes,inodes_free target list --state --capacity"
            ),
        ),
        (
            call::pools(),
            format!(
                "--output=json --page-size=1000000 {plain} --columns=id,alias,targets,mirrors,user_space_limit,\
                 user_inode_limit,group_space_limit,group_inode_limit pool list --with-limits"
            ),
        ),
        (call::quotas(users(5, 9)), format!("{rows} --columns=id,type,pool,space,inode quota list-usage --uids=5-9")),
        (
            call::set_quota(QuotaOf::Group, 5, PoolId(2), size, none),
            format!("{plain} quota set-limits s:2 --gid=5 --space=10 --inode=unlimited"),
        ),
        (
            call::set_default_quota(QuotaOf::User, PoolId(1), size, None),
            format!("{plain} quota set-defaults s:1 --user-space=10"),
        ),
        (
            call::entry("/a b"),
            format!(
                "{rows} --columns=path,entry_id,type,meta_node,meta_mirror,storage_pool,stripe_pattern,storage_targets,\
                 storage_mirrors entry info --mount=none /a b"
            ),
        ),
        (
            call::set_stripe("/x", &stripe),
            format!(
                "{plain} entry set --mount=none --chunk-size=1048576 --num-targets=4 --pool=s:2 --pattern=mirrored /x"
            ),
        ),
        (call::server_stats_now(Role::Storage), format!("{stats} --node-type=storage --interval=0s")),
        (call::server_stats(Role::Metadata, 3, 60), format!("{stats} m:3 --interval=0s --history=60s")),
        (
            call::operations(Role::Metadata, OperationsKind::Clients),
            format!("{rows} stats client --node-type=meta --interval=0s"),
        ),
    ] {
        assert_eq!(asked.join(" "), words);
    }
    assert_eq!(call::entry("/a b").last().map(String::as_str), Some("/a b"), "a path is one argument");
}

fn every_parser(text: &str) {
    let _ = lists::nodes(text);
    let _ = lists::targets(text);
    let _ = lists::pools(text);
    let _ = lists::entry(text);
    let _ = quotas(text);
    let _ = usage::samples(text);
    let _ = usage::operations(text, OperationsKind::Users);
    let _ = usage::every(text);
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "(?s).{0,300}") {
        every_parser(&text);
    }

    #[test]
    fn no_damaged_answer_makes_a_parser_panic(
        name in prop::sample::select(vec![
            "node-list",
            "target-list",
            "pool-list",
            "quota-list-usage",
            "entry-info",
            "stats-user",
        ]),
        at in any::<Index>(),
        with in "(?s).{0,3}",
    ) {
        let text: Vec<char> = written(name).chars().collect();
        let at = at.index(text.len());
        let (before, after) = (&text[..at], &text[at + 1..]);
        every_parser(&before.iter().copied().chain(with.chars()).chain(after.iter().copied()).collect::<String>());
    }

    #[test]
    fn an_answer_that_was_cut_or_doubled_never_lies(at in any::<Index>(), from in any::<Index>(), noise in prop::bool::ANY) {
        let (targets, usage) = (written("target-list"), written("quota-list-usage"));
        let truth = (lists::targets(&targets).value, quotas(&usage).value);
        let damage = |text: &str| {
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            lines.insert(at.index(lines.len()), lines[from.index(lines.len())]);
            if noise {
                lines.insert(from.index(lines.len()), "Error: rpc error: code = Unavailable\n");
            }
            let text = lines.concat();
            text[..text.floor_char_boundary(at.index(text.len()))].to_owned()
        };
        for target in lists::targets(&damage(&targets)).value {
            prop_assert!(truth.0.contains(&target), "{target:?}");
        }
        for quota in quotas(&damage(&usage)).value {
            prop_assert!(truth.1.contains(&quota) || quota.used.value().is_none() && quota.limit.value().is_none(), "{quota:?}");
        }
    }
}
