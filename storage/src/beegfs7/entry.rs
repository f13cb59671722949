//! Reads `--getentryinfo`: one line for each thing that is known, those of the stripe pattern with `+ ` in front.

use eirene_core::storage::{Bytes, Entry, EntryKind, Known, Partial, Pattern, PoolId, Role, Stripe, Why};

use super::nodes::node_id;
use crate::doubts::{Doubts, printable};
use crate::noise;
use crate::units::{binary, digits};

/// The one entry of the answer.
pub(super) fn parse(text: &str) -> Partial<Vec<Entry>> {
    let mut doubts = Doubts::default();
    let lines = noise::lines(text, &mut doubts);
    let mut read = Reader { lines: &lines, doubts: &mut doubts };
    let kind = match read.line("Entry type: ") {
        Some("directory") => EntryKind::Directory,
        Some("file" | "regular file") => EntryKind::File,
        Some("symbolic link" | "symlink") => EntryKind::Link,
        Some(_) => EntryKind::Other,
        None => return none(doubts),
    };
    let Some(entry_id) = read.line("EntryID: ").map(printable) else { return none(doubts) };
    let group = read.line("Metadata buddy group: ");
    let node = read.line(if group.is_some() { "Current primary metadata node: " } else { "Metadata node: " });
    let stripe = stripe(&mut read);
    let entry = Entry {
        kind,
        entry_id,
        metadata_node: node.and_then(|node| node_id(node, Role::Metadata)).map_or_else(missing, Known::Known),
        metadata_mirrored: if node.is_some() { Known::Known(group.is_some()) } else { missing() },
        stripe,
    };
    doubts.with(vec![entry])
}

fn none(mut doubts: Doubts) -> Partial<Vec<Entry>> {
    doubts.whole("there is no entry in the answer");
    doubts.with(Vec::new())
}

fn missing<T>() -> Known<T> {
    Known::Missing(Why::NotUnderstood)
}

/// Finds lines by how they begin.
struct Reader<'a, 'd> {
    lines: &'a [(u32, &'a str)],
    doubts: &'d mut Doubts,
}

impl<'a> Reader<'a, '_> {
    /// The rest of the line that begins so. Two that contradict each other are none.
    fn line(&mut self, beginning: &str) -> Option<&'a str> {
        let mut found = self.lines.iter().filter_map(|(_, line)| line.strip_prefix(beginning));
        let first = found.next()?;
        let again: Vec<&str> = found.collect();
        if again.is_empty() {
            return Some(first.trim());
        }
        self.doubts.whole("a line came more than once");
        again.iter().all(|other| *other == first).then_some(first.trim())
    }
}

fn stripe(read: &mut Reader<'_, '_>) -> Known<Stripe> {
    let pattern = match read.line("+ Type: ") {
        Some("RAID0") => Pattern::Raid0,
        Some("RAID10") => Pattern::Raid10,
        Some("Buddy Mirror") => Pattern::BuddyMirror,
        Some(other) if !other.contains(':') => Pattern::Other(printable(other)),
        // Two lines that ran together, or none.
        Some(_) | None => {
            read.doubts.whole("the stripe pattern is not told");
            return missing();
        }
    };
    let chunk = read.line("+ Chunksize: ").and_then(binary).map(Bytes);
    let wanted = read.line("+ Number of storage targets: ").and_then(|text| {
        let desired = text.strip_prefix("desired: ")?;
        let desired = desired.split_once(';').map_or(desired, |(desired, _)| desired);
        u32::try_from(digits(desired)?).ok()
    });
    // Files have no pool of their own; the line stands for directories alone.
    let pool = read.line("+ Storage Pool: ").and_then(pool);
    for (known, what) in [(chunk.is_some(), "chunk size"), (wanted.is_some(), "number of targets")] {
        if !known {
            read.doubts.whole(&format!("the {what} is not told"));
        }
    }
    Known::Known(Stripe {
        pattern,
        chunk: chunk.map_or_else(missing, Known::Known),
        targets_wanted: wanted.map_or_else(missing, Known::Known),
        targets: read.lines.iter().filter_map(|(_, line)| target(line)).collect(),
        pool: pool.map_or_else(missing, Known::Known),
    })
}

/// `1 (Default)`.
fn pool(text: &str) -> Option<(PoolId, String)> {
    let (id, name) = text.split_once(" (")?;
    let id = u16::try_from(digits(id)?).ok()?;
    Some((PoolId(id), printable(name.strip_suffix(')')?)))
}

/// `  + 1 @ beegfs-storage vm [ID: 1]`: a target of a file, or without a server a mirror group.
fn target(line: &str) -> Option<u32> {
    let text = line.strip_prefix("  + ")?;
    let id = text.split_once(" @ ").map_or(text, |(id, _)| id);
    u32::try_from(digits(id)?).ok()
}
