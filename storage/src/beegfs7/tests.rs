//! The parsers on the captures of 7.4.7, and on captures that were damaged.

mod damaged;

use std::fs;

use eirene_core::storage::{
    Consistency, EntryKind, NodeId, OperationsOf, Pattern, Reach, Room, StorageError, Target, TargetId,
};

use super::*;
use crate::answer;

/// A capture without its first line (the command) and its last one, which is the status.
fn capture(name: &str) -> Ran {
    let path = format!("{}/tests/fixtures/beegfs-7.4.7/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    let (body, status) = body.rsplit_once("[exit ").unwrap();
    Ran {
        status: status.trim_end().strip_suffix(']').unwrap().parse().unwrap(),
        stdout: body.into(),
        stderr: String::new(),
    }
}

fn text(name: &str) -> String {
    capture(name).stdout
}

fn users(first: u32, last: u32) -> QuotaRange {
    QuotaRange { of: QuotaOf::User, first, last }
}

fn vm(role: Role) -> NodeId {
    NodeId { role, number: 1, alias: Some("vm".into()) }
}

fn no_doubts<T>(partial: Partial<T>) -> T {
    assert_eq!(partial.doubts, []);
    partial.value
}

#[test]
fn targets_are_read_with_their_state_and_rounded_sizes() {
    let targets = no_doubts(targets::parse(&text("listtargets-storage"), Role::Storage));
    assert_eq!(targets.len(), 2);
    assert_eq!(
        targets[1],
        Target {
            id: TargetId { role: Role::Storage, number: 2 },
            node: Known::Known(vm(Role::Storage)),
            alias: None,
            pool: None,
            reach: Reach::Online,
            consistency: Consistency::Good,
            room: Room::Low,
            total: Known::Known(Bytes(252 << 30)),
            free: Known::Known(Bytes(244_491_013_324)),
            inodes_total: Known::Known(Files(16_800_000)),
            inodes_free: Known::Known(Files(16_100_000)),
            precision: Bytes(107_374_182),
            inodes_precision: Files(100_000),
            last_contact_s: Known::Missing(Why::NotSupported),
        }
    );
    let metadata = no_doubts(targets::parse(&text("listtargets-meta"), Role::Metadata));
    assert_eq!(metadata[0].node, Known::Known(NodeId { role: Role::Metadata, number: 1, alias: None }));
    assert_eq!(metadata[0].room, Room::Unknown);
}

#[test]
fn a_target_whose_server_is_down_has_no_size_and_never_zero() {
    let mut answer = text("listtargets-storage").replace(
        "       2           Online         Good         low     252.0GiB     227.7GiB  90%       16.8M       16.1M  96%",
        "       2          Offline         Good         low       0.0GiB       0.0GiB   0%        0.0M        0.0M   0%",
    );
    assert!(answer.contains("Offline"));
    answer.push_str(" [ERROR from beegfs-storage vm [ID: 2]: Communication error]\n");
    let parsed = targets::parse(&answer, Role::Storage);
    let down = &parsed.value[1];
    assert_eq!((down.reach, down.total), (Reach::Offline, Known::Missing(Why::DidNotAnswer)));
    assert_eq!(down.inodes_free, Known::Missing(Why::DidNotAnswer));
    assert_eq!(parsed.doubts.len(), 2, "{:?}", parsed.doubts);
    assert!(parsed.value[0].total.value().is_some());
}

#[test]
fn a_target_without_a_state_is_unknown() {
    let answer = text("listtargets-meta").replace("          Online         Good", "               <invalid_value>");
    let target = &targets::parse(&answer, Role::Metadata).value[0];
    assert_eq!((target.reach, target.consistency), (Reach::Unknown, Consistency::Unknown));
    assert!(target.total.value().is_some());
}

#[test]
fn nodes_and_pools_are_listed() {
    let nodes = no_doubts(nodes::parse(&text("listnodes-storage"), Role::Storage));
    assert_eq!(nodes[0].id, vm(Role::Storage));
    assert_eq!(nodes[0].addresses, ["eth0(TCP)", "br-6587a64b042b(TCP)"]);
    assert_eq!(no_doubts(nodes::parse(&text("listnodes-meta"), Role::Metadata))[0].id, vm(Role::Metadata));

    let pools = no_doubts(pools::parse(&text("liststoragepools-two")));
    let found: Vec<_> = pools.iter().map(|pool| (pool.id.0, pool.name.as_str(), pool.targets.clone())).collect();
    assert_eq!(found, [(1, "Default", vec![1]), (2, "fast", vec![2])]);
    assert_eq!(no_doubts(pools::parse(&text("liststoragepools")))[0].targets, [1, 2]);
}

#[test]
fn whether_a_server_is_reached_is_told_and_never_another_s() {
    let whole = text("written-from-source-listnodes-reachable");
    let reached = |text: &str| {
        let nodes = nodes::parse(text, Role::Storage);
        let found: Vec<_> = nodes.value.iter().map(|node| (node.id.number, node.reachable)).collect();
        (found, nodes.doubts.is_empty())
    };
    let not_understood = Known::Missing(Why::NotUnderstood);
    assert_eq!(reached(&whole), (vec![(1, Known::Known(true)), (2, Known::Known(false))], true));
    // Not said of one of them, in another word, and below a name that was lost.
    let silent = reached(&whole.replacen("   Reachable: <yes>\n", "", 1));
    assert_eq!(silent, (vec![(1, Known::Missing(Why::NeverMeasured)), (2, Known::Known(false))], true));
    let odd = reached(&whole.replace("<no>", "<perhaps>"));
    assert_eq!(odd, (vec![(1, Known::Known(true)), (2, not_understood)], false));
    let lost = whole.replacen("   Reachable: <yes>\nother [ID: 2]\n", "", 1);
    assert_eq!(reached(&lost), (vec![(1, not_understood)], false));
    assert_eq!(reached(&whole.replacen("other [ID: 2]\n", "", 1)), (vec![(1, not_understood)], false));
    // As it was captured, without being asked.
    let captured = reached(&text("listnodes-storage"));
    assert_eq!(captured, (vec![(1, Known::Missing(Why::NeverMeasured))], true));
}

#[test]
fn long_names_and_long_lists_of_pools_are_read() {
    let list = |text: &str| format!("{text:<28}");
    let head = "Pool ID   Pool Description                      Targets                 Buddy Groups\n";
    let answer = format!(
        "{head}{:>7} {:>18} {} {}\n{:>7} {:>18} {} {}\n",
        3,
        "a name of more than eighteen",
        list("1,2,"),
        list(""),
        "",
        "",
        list("3"),
        list("7"),
    );
    let pools = no_doubts(pools::parse(&answer));
    assert_eq!(
        (pools[0].name.as_str(), &pools[0].targets[..], &pools[0].mirrors[..]),
        ("a name of more than eighteen", &[1, 2, 3][..], &[7][..])
    );
}

#[test]
fn quotas_are_numbers_and_unlimited_is_none() {
    let quota = &no_doubts(quota::parse(&text("getquota-user-csv"), users(1000, 1000)))[0];
    assert_eq!((quota.id, quota.pool), (QuotaId::User(1000), Some(PoolId(1))));
    assert_eq!((quota.used, quota.files_used), (Known::Known(Bytes(0)), Known::Known(Files(0))));
    assert_eq!(quota.limit, Known::Known(Limit::At(Bytes(10 << 30))));
    assert_eq!(quota.files_limit, Known::Known(Limit::At(Files(100_000))));

    let answer = "\nQuota information for storage pool a (ID: 9): b (ID: 2):\n\nname,id,size,hard,files,hard\n\
                  a,b,5,7,unlimited,12+,unlimited\nc,6,7,8,-,9\n";
    let quotas = no_doubts(quota::parse(answer, users(5, 6)));
    assert_eq!(quotas[0].pool, Some(PoolId(2)));
    assert_eq!((quotas[0].used, quotas[0].limit), (Known::Known(Bytes(7)), Known::Known(Limit::Unlimited)));
    assert_eq!((quotas[0].files_used, quotas[0].files_at_least), (Known::Known(Files(12)), true));
    assert_eq!(quotas[1].files_used, Known::Missing(Why::NotSupported));
}

#[test]
fn the_largest_range_is_read() {
    use std::fmt::Write as _;
    let mut answer = String::new();
    for pool in 1..=2 {
        write!(answer, "\nQuota information for storage pool p (ID: {pool}):\n\nname,id,size,hard,files,hard\n")
            .unwrap();
        for id in 0..QuotaRange::MOST {
            writeln!(answer, "{id},{id},{pool},unlimited,{id},unlimited").unwrap();
        }
    }
    let quotas = no_doubts(quota::parse(&answer, users(0, QuotaRange::MOST - 1)));
    assert_eq!(quotas.len(), 2 * QuotaRange::MOST as usize);
    assert_eq!(quotas[QuotaRange::MOST as usize + 7].used, Known::Known(Bytes(2)));
}

#[test]
fn a_quota_that_did_not_come_is_missing_and_not_zero() {
    // Without `--withzero` the answer is a header and nothing.
    let none = answer::rows(&capture("getquota-range-csv"), Empty::Wrong, |text| quota::parse(text, users(1000, 1003)));
    assert!(matches!(none, Err(StorageError::Malformed { .. })), "{none:?}");
    let half = quota::parse(&text("getquota-user-csv"), users(1000, 1001));
    assert_eq!(half.value[1].used, Known::Missing(Why::DidNotAnswer));
    assert_eq!(half.doubts.len(), 1);
}

#[test]
fn refused_and_failed_quota_queries_are_clear() {
    let read = |ran: &Ran| answer::rows(ran, Empty::Wrong, |text| quota::parse(text, users(1000, 1000)));
    assert!(matches!(read(&capture("getquota-noquota")), Err(StorageError::NoSuchPlace { .. })));
    let said = |text: &str| Ran { status: 1, stdout: String::new(), stderr: text.into() };
    assert!(matches!(read(&said("Couldn't receive valid quota data.\n")), Err(StorageError::Away { .. })));
    let half = said(
        "Could not gather quota information from all storage nodes.\nRefusing to display incorrect information.\n",
    );
    assert!(matches!(read(&half), Err(StorageError::Away { .. })));
}

#[test]
fn limits_that_the_management_does_not_hold_are_refused_and_not_misunderstood() {
    let off = answer::done(&capture("written-from-source-setquota-off")).map_err(with_advice);
    let Err(StorageError::Refused { why: Why::NotEnabled, text }) = off else { panic!("{off:?}") };
    assert!(text.contains("Quota is not enabled in the management server"), "{text}");
    assert!(text.contains("quotaEnableEnforcement"), "and what to do: {text}");
    let rights = with_advice(StorageError::Refused { why: Why::Refused, text: "no".into() });
    assert!(matches!(&rights, StorageError::Refused { text, .. } if text == "no"), "{rights:?}");
}

#[test]
fn statistics_of_servers_that_are_down_are_no_empty_list() {
    let read =
        |ran: &Ran| answer::rows(ran, Empty::Said, |text| stats::parse_operations(text, OperationsKind::Clients));
    let down = read(&capture("down-clientstats"));
    assert!(matches!(down, Err(StorageError::Away { .. })), "{down:?}");
    assert_eq!(no_doubts(read(&capture("clientstats")).unwrap()).len(), 2);
}

#[test]
fn tables_for_people_give_no_number() {
    for name in ["getquota-user", "getquota-limits"] {
        let parsed = quota::parse(&text(name), users(1000, 1003));
        assert_eq!(parsed.value, [], "{name}");
        assert!(!parsed.doubts.is_empty());
    }
    let parsed = quota::parse_defaults(&text("getquota-defaults"));
    assert_eq!(parsed.value, []);
    assert!(!parsed.doubts.is_empty());
}

#[test]
fn default_quotas_of_a_pool_are_read() {
    let answer = "user size limit,user chunk files limit,group size limit,group chunk files\n53687091200,unlimited,unlimited,unlimited\n";
    let defaults = no_doubts(quota::parse_defaults(answer))[0];
    assert_eq!(defaults.user_size, Known::Known(Limit::At(Bytes(50 << 30))));
    assert_eq!(defaults.group_files, Known::Known(Limit::Unlimited));
}

#[test]
fn entries_have_their_stripe_pattern() {
    let entry = &no_doubts(entry::parse(&text("getentryinfo-home")))[0];
    assert_eq!((entry.kind, entry.entry_id.as_str()), (EntryKind::Directory, "0-6B013B03-1"));
    assert_eq!(entry.metadata_node, Known::Known(vm(Role::Metadata)));
    assert_eq!(entry.metadata_mirrored, Known::Known(false));
    let stripe = entry.stripe.value().unwrap();
    assert_eq!((&stripe.pattern, stripe.chunk), (&Pattern::Raid0, Known::Known(Bytes(1 << 20))));
    assert_eq!(stripe.targets_wanted, Known::Known(2));
    assert_eq!(stripe.pool, Known::Known((PoolId(1), "Default".into())));
    // The verbose form, which nobody asks for, has the node elsewhere.
    let verbose = &entry::parse(&text("getentryinfo-verbose")).value[0];
    assert_eq!(verbose.metadata_node, Known::Missing(Why::NotUnderstood));
    assert_eq!(
        entry::parse(&text("getentryinfo")).value[0].stripe.value().unwrap().chunk,
        Known::Known(Bytes(512 << 10))
    );
}

#[test]
fn two_lines_that_ran_together_are_no_pattern() {
    let answer = text("getentryinfo-home").replace("+ Type: RAID0\n", "+ Type: Metadata node: vm [ID: 1]\n");
    assert_eq!(entry::parse(&answer).value[0].stripe, Known::Missing(Why::NotUnderstood));
}

#[test]
fn a_mirrored_file_has_its_primary_node_and_its_targets() {
    let answer = "Entry type: file\nEntryID: 1-2-3\nMetadata buddy group: 1\nCurrent primary metadata node: m b [ID: 7]\n\
                  Stripe pattern details:\n+ Type: Buddy Mirror\n+ Chunksize: 512K\n+ Number of storage targets: desired: 4; actual: 2\n\
                  + Storage mirror buddy groups:\n  + 3\n  + 4\n";
    let entry = &no_doubts(entry::parse(answer))[0];
    assert_eq!((entry.kind, entry.metadata_mirrored), (EntryKind::File, Known::Known(true)));
    assert_eq!(entry.metadata_node.value().unwrap().number, 7);
    let stripe = entry.stripe.value().unwrap();
    assert_eq!((stripe.targets_wanted, &stripe.targets[..]), (Known::Known(4), &[3, 4][..]));
    assert_eq!(stripe.pattern, Pattern::BuddyMirror);
}

#[test]
fn statistics_are_bytes_and_counts() {
    let samples = no_doubts(stats::parse_history(&text("serverstats"), 1));
    assert_eq!(samples.len(), 3);
    assert_eq!((samples[2].at_s, samples[2].read), (1_795_242_755, Known::Known(Bytes(0))));
    let half = stats::parse_history(&text("serverstats"), 2);
    assert!(half.doubts.len() == 1 && half.doubts[0].text.contains("of 2 servers"), "{half:?}");
    let now =
        "\n===== time index: 1795242755 =====\n\nnodeID   reqs   qlen bsy name\n     3     12      1   2 meta a\n\n";
    let sample = &no_doubts(stats::parse_now(now, Role::Metadata))[0];
    assert_eq!((sample.at_s, sample.requests, sample.queued, sample.busy), (1_795_242_755, 12, 1, 2));
    assert_eq!(sample.written, Known::Missing(Why::NotSupported));
    assert_eq!(sample.node.value().unwrap().alias.as_deref(), Some("meta a"));
}

#[test]
fn operations_go_by_client_and_by_user_and_add_up() {
    let clients = no_doubts(stats::parse_operations(&text("clientstats"), OperationsKind::Clients));
    assert_eq!(clients[0].of, OperationsOf::Client("192.0.2.2".into()));
    assert_eq!((clients[0].total, &clients[0].by_name[0]), (15, &("sChDrct".into(), 11)));
    let users = no_doubts(stats::parse_operations(&text("userstats"), OperationsKind::Users));
    assert_eq!((users.len(), &users[0].of, users[0].total), (1, &OperationsOf::UnknownUser, 30));
    let rounded = "Sum:            3 [sum]  3 [rd]  1.5 [MiB-rd]  \n7               3 [sum]  3 [rd]  1.5 [MiB-rd]  \n";
    let users = no_doubts(stats::parse_operations(rounded, OperationsKind::Users));
    assert_eq!((&users[0].of, users[0].read), (&OperationsOf::User(7), Known::Missing(Why::NotSupported)));
}

#[test]
fn changes_end_well_and_the_version_is_read_in_spite_of_its_status() {
    for name in [
        "setquota-user",
        "setquota-gid",
        "setquota-default",
        "setpattern",
        "setpattern-pool",
        "createdir",
        "addstoragepool",
    ] {
        assert!(answer::done(&capture(name)).is_ok(), "{name}");
    }
    let ran = capture("version");
    assert_eq!((ran.status, version(&ran)), (1, Known::Known("7.4.7".into())));
    for said in ["Version: 7.4.7", "7.4.7"] {
        let without = Ran { stdout: ran.stdout.replace(said, said.trim_end_matches("7.4.7")), ..ran.clone() };
        assert_eq!(version(&without), Known::Missing(Why::NotUnderstood));
    }
}

#[test]
fn every_question_is_asked_in_these_words() {
    let all = SetStripe { chunk: Some(Bytes(1 << 20)), targets: Some(4), pool: Some(PoolId(2)), mirrored: Some(false) };
    let (ten, none) = (Limit::At(Bytes(10)), Limit::Unlimited);
    for (asked, words) in [
        (call::version(), "--version"),
        (call::nodes(Role::Management), "--listnodes --nodetype=management --details --reachable"),
        (call::targets(Role::Metadata), "--listtargets --nodetype=meta --state --spaceinfo"),
        (call::targets(Role::Storage), "--listtargets --nodetype=storage --state --spaceinfo --pools --longnodes"),
        (call::pools(), "--liststoragepools"),
        (call::quotas(users(5, 9)), "--getquota --uid --range 5 9 --withzero --csv"),
        (call::quotas(users(5, 5)), "--getquota --uid 5 --withzero --csv"),
        (call::default_quota(PoolId(2)), "--getquota --defaultlimits --csv --storagepoolid=2"),
        (
            call::set_quota(QuotaOf::Group, 5, PoolId(1), ten, none),
            "--setquota --gid 5 --sizelimit=10 --inodelimit=unlimited --storagepoolid=1",
        ),
        (
            call::set_default_quota(QuotaOf::User, PoolId(1), Limit::Unlimited, Limit::At(Files(3))),
            "--setquota --default --uid --sizelimit=unlimited --inodelimit=3 --storagepoolid=1",
        ),
        (
            call::free_root(QuotaOf::Group, PoolId(3)),
            "--setquota --gid 0 --sizelimit=unlimited --inodelimit=unlimited --storagepoolid=3",
        ),
        (call::entry("/a b"), "--getentryinfo --unmounted /a b"),
        (
            call::set_stripe("/x", &all),
            "--setpattern --unmounted --chunksize=1048576 --numtargets=4 --storagepoolid=2 --pattern=raid0 /x",
        ),
        (call::server_stats(Role::Storage, 60), "--serverstats --nodetype=storage --history=60 --interval=0"),
        (call::server_stats_now(Role::Metadata), "--serverstats --nodetype=meta --interval=0 --perserver --names"),
        (call::operations(Role::Storage, OperationsKind::Clients), "--clientstats --nodetype=storage --interval=0"),
    ] {
        assert_eq!(asked.join(" "), words);
    }
    assert_eq!(call::entry("/a b").len(), 3, "a path is one argument");
}
