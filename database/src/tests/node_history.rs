//! The past of nodes: written once, read newest first, bounded by number and by age.

use eirene_core::NodeName;
use eirene_core::node_history::{GONE, IN_SERVICE, NodeChange};

use super::*;

fn c1() -> NodeName {
    "c1".parse().unwrap()
}

fn change(node: &str, second: i64, state: &str, reason: Option<&str>) -> NodeChange {
    NodeChange {
        node: node.parse().unwrap(),
        at: at(second),
        state: state.to_owned(),
        reason: reason.map(ToOwned::to_owned),
    }
}

async fn put(db: &Db, changes: &[&NodeChange]) {
    for change in changes {
        db.put_node_change(change, 500).await.unwrap();
    }
}

on_both! {
    async fn changes_come_back_newest_first_and_the_last_of_each_node_is_known(db) {
        assert_eq!(db.last_node_changes().await.unwrap(), []);
        assert_eq!(db.node_history(&c1(), 10).await.unwrap(), []);
        let first = change("c1", 100, IN_SERVICE, None);
        let drained = change("c1", 200, "drained", Some("<b>fan</b>; DROP TABLE users (eirene: ada)"));
        let other = change("c2", 150, GONE, None);
        put(db, &[&first, &drained, &other]).await;
        assert_eq!(db.node_history(&c1(), 10).await.unwrap(), [drained.clone(), first]);
        assert_eq!(db.node_history(&c1(), 1).await.unwrap(), std::slice::from_ref(&drained));
        assert_eq!(db.last_node_changes().await.unwrap(), [drained, other]);
    }

    async fn a_change_that_two_write_is_written_once(db) {
        let (one, same) = (change("c1", 100, "down", None), change("c1", 100, "drained", None));
        put(db, &[&one, &same]).await;
        assert_eq!(db.node_history(&c1(), 10).await.unwrap(), [one]);
    }

    async fn only_the_last_changes_of_a_node_are_kept(db) {
        let other = change("c2", 1, "down", None);
        put(db, &[&other]).await;
        for second in 1..=5 {
            db.put_node_change(&change("c1", second, "down", None), 3).await.unwrap();
        }
        let kept: Vec<_> = db.node_history(&c1(), 10).await.unwrap().into_iter().map(|change| change.at).collect();
        assert_eq!(kept, [at(5), at(4), at(3)]);
        assert_eq!(db.node_history(&other.node, 10).await.unwrap(), [other]);
    }

    async fn what_is_old_goes_but_for_what_a_node_still_is(db) {
        let changes = [
            change("c1", 100, IN_SERVICE, None),
            change("c1", 200, "down", None),
            change("c2", 100, "down", None),
            change("c2", 150, GONE, None),
            change("c3", 400, IN_SERVICE, None),
        ];
        put(db, &changes.iter().collect::<Vec<_>>()).await;
        assert_eq!(db.prune_node_history(at(100)).await.unwrap(), 0);
        assert_eq!(db.prune_node_history(at(300)).await.unwrap(), 3);
        assert_eq!(db.last_node_changes().await.unwrap(), [changes[1].clone(), changes[4].clone()]);
        assert_eq!(db.prune_node_history(at(300)).await.unwrap(), 0);
    }
}
