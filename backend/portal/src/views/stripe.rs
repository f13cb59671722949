//! What the storage knows of a directory, in words: how its new files are spread over targets, and where its metadata lies. What the storage did
//! not tell is left out or said to be unknown.

use eirene_core::storage::{Entry, Known, Pattern, Stripe};
use eirene_services::storage::judge::server_name;
use eirene_words::Words;

use super::format;
use super::space::Fact;

/// Lines about a directory: over what its new files are spread and in which pool, where its metadata lies, and the storage's own name of it.
pub(crate) fn facts(words: &Words, entry: &Entry) -> Vec<Fact> {
    let fact = |label: &str, value: String| Fact { label: words.get(label), value };
    let mut facts = entry.stripe.value().map(|stripe| spread(words, stripe)).unwrap_or_default();
    let server = entry.metadata_node.value().map(|node| match &node.alias {
        Some(alias) => format!("{alias} ({})", server_name(node)),
        None => server_name(node),
    });
    let mirrored = match entry.metadata_mirrored {
        Known::Known(true) => Some(words.get("my_spaces.mirrored")),
        Known::Known(false) => Some(words.get("my_spaces.not_mirrored")),
        Known::Missing(_) => None,
    };
    let metadata = [server, mirrored].into_iter().flatten().collect::<Vec<_>>().join(", ");
    if !metadata.is_empty() {
        facts.push(fact("my_spaces.metadata", metadata));
    }
    facts.push(fact("my_spaces.entry_id", entry.entry_id.clone()));
    facts
}

fn spread(words: &Words, stripe: &Stripe) -> Vec<Fact> {
    let pattern = match &stripe.pattern {
        Pattern::Raid0 => None,
        Pattern::Raid10 | Pattern::BuddyMirror => Some(words.get("my_spaces.spread_twice")),
        Pattern::Other(word) => Some(words.fill("my_spaces.spread_otherwise", &[("word", word)])),
    };
    let targets = match stripe.targets_wanted.value() {
        Some(targets) => words.count("my_spaces.spread_over", u64::from(*targets)),
        None => words.get("my_spaces.spread_over_unknown"),
    };
    let chunk = stripe.chunk.value().map(|chunk| format::bytes(words, chunk.0));
    let chunk = chunk.map(|size| words.fill("my_spaces.spread_chunk", &[("size", &size)]));
    let spread = [Some(targets), chunk, pattern].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let pool = stripe.pool.value().map(|(id, name)| format!("{name} ({})", id.0));
    let fact = |label: &str, value: String| Fact { label: words.get(label), value };
    [Some(fact("my_spaces.spread", spread)), pool.map(|pool| fact("my_spaces.pool", pool))]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::{Bytes, EntryKind, NodeId, PoolId, Role, Why};
    use eirene_words::words;

    use super::*;

    #[test]
    fn what_is_told_is_said_and_nothing_is_guessed() {
        let told = Stripe {
            pattern: Pattern::BuddyMirror,
            chunk: Known::Known(Bytes(512 << 10)),
            targets_wanted: Known::Known(4),
            targets: vec![],
            pool: Known::Known((PoolId(2), "fast".into())),
        };
        let told_of = |stripe: &Stripe| Entry {
            kind: EntryKind::Directory,
            entry_id: "0-6AC-1".into(),
            metadata_node: Known::Known(NodeId { role: Role::Metadata, number: 1, alias: Some("mds".into()) }),
            metadata_mirrored: Known::Known(false),
            stripe: Known::Known(stripe.clone()),
        };
        let values = |entry: &Entry| facts(words(), entry).into_iter().map(|fact| fact.value).collect::<Vec<_>>();
        let all = [
            "Over 4 targets, in pieces of 512\u{a0}KiB, each twice",
            "fast (2)",
            "mds (metadata:1), not mirrored",
            "0-6AC-1",
        ];
        assert_eq!(values(&told_of(&told)), all);
        let missing = Stripe {
            pattern: Pattern::Other("RAID7".into()),
            chunk: Known::Missing(Why::NotUnderstood),
            targets_wanted: Known::Missing(Why::DidNotAnswer),
            pool: Known::Missing(Why::NotUnderstood),
            ..told
        };
        let half = Entry {
            metadata_node: Known::Missing(Why::NotUnderstood),
            metadata_mirrored: Known::Missing(Why::NotUnderstood),
            ..told_of(&missing)
        };
        assert_eq!(values(&half), ["Over targets, nobody says how many, by the pattern RAID7", "0-6AC-1"]);
        let mirrored = Entry {
            metadata_node: Known::Known(NodeId { role: Role::Metadata, number: 2, alias: None }),
            metadata_mirrored: Known::Known(true),
            stripe: Known::Missing(Why::NotUnderstood),
            ..half
        };
        assert_eq!(values(&mirrored), ["metadata:2, mirrored", "0-6AC-1"]);
    }
}
