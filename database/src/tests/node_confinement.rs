//! What holds jobs on nodes: the last word counts, and one that nobody has said for long is forgotten.

use eirene_core::confinement::{ConfinedNode, Confinement, Held};

use super::*;

fn confined(node: &str, by: Confinement, second: i64) -> ConfinedNode {
    let held = match by {
        Confinement::CgroupV2 => Held { memory: Some(true), cpus: Some(false) },
        Confinement::CgroupV1 => Held::default(),
        Confinement::Nothing => Held::NOTHING,
    };
    ConfinedNode { node: node.parse().unwrap(), by, held, at: at(second) }
}

on_both! {
    async fn the_last_word_of_each_node_is_kept_until_it_is_old(db) {
        assert_eq!(db.confined_nodes().await.unwrap(), []);
        let first = confined("c1", Confinement::CgroupV2, 100);
        let (later, other) = (confined("c1", Confinement::Nothing, 200), confined("a7", Confinement::CgroupV1, 150));
        for word in [&first, &other, &later] {
            db.put_confined_node(word).await.unwrap();
            assert_eq!(db.confined_node(&word.node).await.unwrap().as_ref(), Some(word));
        }
        assert_eq!(db.confined_nodes().await.unwrap(), [other.clone(), later.clone()]);
        assert_eq!(db.confined_node(&later.node).await.unwrap(), Some(later.clone()));
        assert_eq!(db.confined_node(&"c2".parse().unwrap()).await.unwrap(), None);
        assert_eq!(db.prune_confined_nodes(at(150)).await.unwrap(), 0);
        assert_eq!(db.prune_confined_nodes(at(151)).await.unwrap(), 1);
        assert_eq!(db.confined_nodes().await.unwrap(), [later]);
    }
}
