//! A rank or a node that fails is named on all that are left, soon.

use std::time::{Duration, Instant};

use crate::common::{Rank, lab};
use crate::deep::assert_within;

/// In the deep tests the death of a process has been noticed by then.
const SOON: Duration = Duration::from_secs(5);

/// So has silence: a machine is given up after some four seconds, and this one may have other things to do.
const SILENT: Duration = Duration::from_secs(8);

/// Four ranks on two nodes under way, then a misfortune; what the `survivors` say, each within the `limit`.
fn after(
    elements: &str,
    limit: Duration,
    survivors: &[usize],
    misfortune: impl FnOnce(&eirene_train_lab::Nodes, &mut [Rank]),
) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let nodes = lab(2);
    let mut ranks = Rank::two_by_two(&nodes, directory.path(), elements);
    for rank in &ranks {
        assert!(rank.hear().starts_with("under way"));
    }
    misfortune(&nodes, &mut ranks);
    let began = Instant::now();
    let said = survivors
        .iter()
        .map(|rank| {
            let said = ranks[*rank].hear();
            assert_within(limit, began.elapsed());
            said
        })
        .collect();
    for rank in survivors {
        ranks[*rank].end();
    }
    nodes.down().unwrap();
    said
}

#[test]
fn a_rank_killed_on_one_node_is_named_on_both() {
    for elements in ["10", "3000000"] {
        for said in after(elements, SOON, &[0, 1, 3], |_, ranks| ranks[2].kill()) {
            assert!(said.contains("rank 2 has ended"), "{said}");
        }
    }
}

#[test]
fn a_node_whose_ranks_are_all_killed_is_named() {
    let said = after("3000000", SOON, &[0, 1], |_, ranks| ranks[2..].iter_mut().for_each(Rank::kill));
    for said in said {
        assert!(said.contains("rank 2 has ended") || said.contains("rank 3 has ended"), "{said}");
    }
}

/// Each rank names one on the other node, or that the one beside it has left, which had noticed it first.
#[track_caller]
fn assert_noticed_on_both_sides(said: &[String]) {
    for (ranks, theirs) in [([0, 1], ["rank 2", "rank 3"]), ([2, 3], ["rank 0", "rank 1"])] {
        let names = |rank: usize| theirs.iter().any(|theirs| said[rank].contains(theirs));
        assert!(ranks.into_iter().any(names), "ranks {ranks:?}: {said:?}");
        for rank in ranks {
            assert!(names(rank) || said[rank].contains("has left"), "rank {rank}: {}", said[rank]);
        }
    }
}

#[test]
fn a_cable_that_is_cut_is_noticed_on_both_sides() {
    for elements in ["10", "3000000"] {
        let said = after(elements, SILENT, &[0, 1, 2, 3], |nodes, _| nodes.plug(2, false).unwrap());
        assert_noticed_on_both_sides(&said);
    }
}

#[test]
fn an_interface_that_is_set_down_is_noticed_on_both_sides() {
    let said = after("3000000", SILENT, &[0, 1, 2, 3], |nodes, _| nodes.link(2, false).unwrap());
    assert_noticed_on_both_sides(&said);
}
