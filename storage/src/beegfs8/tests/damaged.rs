//! No damaged answer makes a parser panic or lie.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn every_parser(text: &str) {
    let _ = lists::nodes(text);
    let _ = lists::targets(text);
    let _ = lists::pools(text);
    let _ = lists::entry(text);
    let _ = used(text);
    let _ = usage::limits(text, users(1000, 1010), &pools());
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
            "lic-quota-users",
            "lic-limits",
            "entry-dir",
            "users",
        ]),
        at in any::<Index>(),
        with in "(?s).{0,3}",
    ) {
        let text: Vec<char> = printed(name).chars().collect();
        let at = at.index(text.len());
        let (before, after) = (&text[..at], &text[at + 1..]);
        every_parser(&before.iter().copied().chain(with.chars()).chain(after.iter().copied()).collect::<String>());
    }

    #[test]
    fn an_answer_that_was_cut_or_doubled_never_lies(at in any::<Index>(), from in any::<Index>(), noise in prop::bool::ANY) {
        let (targets, usage, limits) = (printed("target-list"), printed("lic-quota-users"), printed("lic-limits"));
        let limits_of = |text: &str| {
            let own = usage::limits(text, users(1700, 1710), &pools());
            let limits = usage::Limits::new(pools(), &own);
            [1, 2].map(|pool| limits.of(QuotaOf::User, 1700, PoolId(pool)).unwrap())
        };
        let truth = (lists::targets(&targets).value, used(&usage).value, limits_of(&limits));
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
        for used in used(&damage(&usage)).value {
            prop_assert!(truth.1.contains(&used), "{used:?}");
        }
        let damaged = damage(&limits);
        // An answer that ends with a line is one of fewer people, as far as anybody can tell.
        if !damaged.is_empty() && !damaged.ends_with('\n') {
            for (told, true_one) in limits_of(&damaged).into_iter().zip(truth.2) {
                prop_assert!(told == true_one || told.0.value().is_none() && told.1.value().is_none(), "{told:?}");
            }
        }
    }
}
