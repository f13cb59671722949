//! Captures that were damaged: what still comes out must be what the whole capture says, and nothing makes a parser panic.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// What is done to an answer.
#[derive(Debug, Clone)]
enum Damage {
    Cut(Index),
    Remove(Index),
    Double(Index, Index),
    Insert(Index, &'static str),
    Swap(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let noise = prop::sample::select(vec![
        "Communication with server failed: vm",
        " [ERROR from beegfs-storage vm [ID: 1]: Communication error]",
        "Some IDs were skipped because of invalid values. Check server logs.",
        "",
        "1",
        "a,b,c,d",
        "|",
    ]);
    prop_oneof![
        at().prop_map(Damage::Cut),
        at().prop_map(Damage::Remove),
        (at(), at()).prop_map(|(a, b)| Damage::Double(a, b)),
        (at(), noise).prop_map(|(a, text)| Damage::Insert(a, text)),
        (at(), at()).prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

fn damaged(text: &str, damages: &[Damage]) -> String {
    let mut text = text.to_owned();
    for damage in damages {
        if text.is_empty() {
            break;
        }
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        text = match damage {
            Damage::Cut(at) => text[..text.floor_char_boundary(at.index(text.len()))].to_owned(),
            Damage::Remove(at) => {
                lines.remove(at.index(lines.len()));
                lines.concat()
            }
            Damage::Double(from, to) => {
                lines.insert(to.index(lines.len()), lines[from.index(lines.len())]);
                lines.concat()
            }
            Damage::Insert(at, noise) => {
                let line = format!("{noise}\n");
                lines.insert(at.index(lines.len()), &line);
                lines.concat()
            }
            Damage::Swap(a, b) => {
                let (a, b) = (a.index(lines.len()), b.index(lines.len()));
                lines.swap(a, b);
                lines.concat()
            }
        };
    }
    text
}

/// Whether a value is the true one or none.
fn fits<T: PartialEq>(value: &Known<T>, truth: &Known<T>) -> bool {
    value.value().is_none() || value == truth
}

fn target_fits(target: &Target, truth: &[Target]) -> bool {
    truth.iter().any(|other| {
        target.id == other.id
            && fits(&target.total, &other.total)
            && fits(&target.free, &other.free)
            && fits(&target.inodes_total, &other.inodes_total)
            && fits(&target.inodes_free, &other.inodes_free)
            // Names are text that nothing checks; servers are known by their numbers.
            && target.node.value().is_none_or(|node| other.node.value().is_some_and(|other| other.number == node.number))
            && (target.reach == other.reach || target.reach == Reach::Unknown)
            && (target.room == other.room || target.room == Room::Unknown)
    })
}

fn quota_fits(quota: &Quota, truth: &[Quota]) -> bool {
    let nothing = quota.used.value().is_none() && quota.limit.value().is_none();
    nothing
        || truth.iter().any(|other| {
            (quota.id, quota.pool) == (other.id, other.pool)
                && fits(&quota.used, &other.used)
                && fits(&quota.limit, &other.limit)
                && fits(&quota.files_used, &other.files_used)
                && fits(&quota.files_limit, &other.files_limit)
        })
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "(?s).{0,300}") {
        every_parser(&text);
    }

    #[test]
    fn no_damaged_capture_makes_a_parser_panic(
        name in prop::sample::select(vec![
            "listtargets-storage",
            "getquota-user-csv",
            "userstats",
            "getentryinfo",
            "serverstats",
            "liststoragepools-two",
        ]),
        at in any::<Index>(),
        with in "(?s).{0,3}",
    ) {
        let mut text = text(name);
        let at = text.floor_char_boundary(at.index(text.len()));
        text.replace_range(at..=at, &with);
        every_parser(&text);
    }

    #[test]
    fn a_damaged_table_of_targets_never_lies(damages in prop::collection::vec(damage(), 1..4)) {
        let whole = text("listtargets-storage");
        let truth = targets::parse(&whole, Role::Storage).value;
        for target in targets::parse(&damaged(&whole, &damages), Role::Storage).value {
            prop_assert!(target_fits(&target, &truth), "{target:?}");
        }
    }

    #[test]
    fn a_table_of_targets_that_lost_a_byte_or_had_columns_swapped_never_lies(at in any::<Index>(), a in 0..8_usize, b in 0..8_usize) {
        let whole = text("listtargets-storage");
        let truth = targets::parse(&whole, Role::Storage).value;
        let mut lost = whole.clone();
        lost.remove(at.index(whole.len()));
        let swap = |(number, line): (usize, &str)| {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            if number < 2 {
                return line.to_owned();
            }
            words.swap(a, b);
            format!("{:>8} {}\n", words[0], words[1..].join(" "))
        };
        let swapped = whole.split_inclusive('\n').enumerate().map(swap).collect::<Vec<String>>().concat();
        for answer in [lost, swapped] {
            for target in targets::parse(&answer, Role::Storage).value {
                prop_assert!(target_fits(&target, &truth), "{target:?}");
            }
        }
    }

    #[test]
    fn a_damaged_table_of_quotas_never_lies(damages in prop::collection::vec(damage(), 1..4)) {
        let whole = format!("{}ada,1001,7,unlimited,3+,5\ngrace,1002,8,9,-,unlimited\n", text("getquota-user-csv"));
        let truth = quota::parse(&whole, users(1000, 1002)).value;
        for quota in quota::parse(&damaged(&whole, &damages), users(1000, 1002)).value {
            prop_assert!(quota_fits(&quota, &truth), "{quota:?}");
        }
    }

    #[test]
    fn a_table_of_quotas_that_was_cut_or_lost_a_line_gives_nobody_another_pool_s(
        lost in any::<Index>(),
        cut in prop::option::of(any::<Index>()),
    ) {
        let whole = format!(
            "{}\n\nQuota information for storage pool fast (ID: 2):\n\nname,id,size,hard,files,hard\n\
             ada,1000,7,unlimited,3+,5\ngrace,1001,8,9,-,5\n",
            text("getquota-user-csv"),
        );
        let truth = quota::parse(&whole, users(1000, 1001)).value;
        let damages: Vec<Damage> = [Some(Damage::Remove(lost)), cut.map(Damage::Cut)].into_iter().flatten().collect();
        for quota in quota::parse(&damaged(&whole, &damages), users(1000, 1001)).value {
            prop_assert!(quota_fits(&quota, &truth), "{quota:?}");
        }
    }

    #[test]
    fn a_damaged_list_of_pools_never_lies(damages in prop::collection::vec(damage(), 1..4), at in any::<Index>()) {
        let whole = text("liststoragepools-two");
        let truth = pools::parse(&whole).value;
        let mut lost = whole.clone();
        lost.remove(at.index(whole.len()));
        for pool in [damaged(&whole, &damages), lost].iter().flat_map(|answer| pools::parse(answer).value) {
            prop_assert!(truth.contains(&pool), "{pool:?}");
        }
    }

    #[test]
    fn damaged_counts_never_lie(damages in prop::collection::vec(damage(), 1..4), at in any::<Index>()) {
        let whole = text("clientstats");
        let truth = stats::parse_operations(&whole, OperationsKind::Clients).value;
        let mut lost = whole.clone();
        lost.remove(at.index(whole.len()));
        let of_lost = stats::parse_operations(&lost, OperationsKind::Clients);
        for row in stats::parse_operations(&damaged(&whole, &damages), OperationsKind::Clients).value {
            prop_assert!(truth.contains(&row), "{row:?}");
        }
        for row in of_lost.value {
            prop_assert!(truth.iter().any(|other| other.total == row.total), "{row:?}");
        }
    }

    #[test]
    fn a_damaged_entry_never_lies(damages in prop::collection::vec(damage(), 1..4)) {
        let whole = text("getentryinfo-home");
        let truth = &entry::parse(&whole).value[0];
        let stripe = truth.stripe.value().unwrap();
        for entry in entry::parse(&damaged(&whole, &damages)).value {
            prop_assert!(fits(&entry.metadata_node, &truth.metadata_node));
            if let Some(read) = entry.stripe.value() {
                prop_assert_eq!(&read.pattern, &stripe.pattern);
                prop_assert!(fits(&read.chunk, &stripe.chunk) && fits(&read.targets_wanted, &stripe.targets_wanted));
                prop_assert!(fits(&read.pool, &stripe.pool));
            }
        }
    }

    #[test]
    fn damaged_rates_never_lie(damages in prop::collection::vec(damage(), 1..4)) {
        let whole = text("serverstats");
        let truth = stats::parse_history(&whole, 1).value;
        for sample in stats::parse_history(&damaged(&whole, &damages), 1).value {
            prop_assert!(truth.contains(&sample), "{sample:?}");
        }
    }
}

fn every_parser(text: &str) {
    let _ = targets::parse(text, Role::Storage);
    let _ = nodes::parse(text, Role::Metadata);
    let _ = pools::parse(text);
    let _ = quota::parse(text, users(1000, 1003));
    let _ = quota::parse_defaults(text);
    let _ = entry::parse(text);
    let _ = stats::parse_history(text, 1);
    let _ = stats::parse_now(text, Role::Storage);
    let _ = stats::parse_operations(text, OperationsKind::Users);
}
