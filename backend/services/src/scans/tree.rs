//! What directories hold, put together from what was measured of them piece by piece.
//!
//! A *round* measures everything below a directory anew, and everything that was measured since it began is *fresh*. A directory's numbers hold
//! all that lies in it. Where a piece was measured since, the directories above it that are not fresh yet hold what is known now: so the numbers
//! of a tree always agree, and each says when it was measured.

use std::collections::BTreeMap;

use eirene_files_protocol::RelativePath;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Directories kept, the largest. What the others hold is in those above them.
const MOST_KEPT: usize = 20_000;

/// A directory that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Its path below the space.
    pub path: RelativePath,
    /// Its device.
    pub device: u64,
    /// Its inode; 0 where it is not known, so that no other is taken for it.
    pub inode: u64,
    /// Bytes on disk of all in it.
    pub bytes: u64,
    /// Files and directories in it.
    pub files: u64,
    /// Bytes on disk of what lies directly in it.
    pub own_bytes: u64,
    /// Files and directories directly in it.
    pub own_files: u64,
    /// When it was measured.
    pub at: Timestamp,
}

/// What was measured of a space.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    /// By the bytes of their paths, so that what lies below one follows it, after what has its name as its beginning.
    directories: BTreeMap<Vec<u8>, Directory>,
}

/// Whether `path` lies below `top`, and is not it.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    if top.is_empty() {
        return !path.is_empty();
    }
    path.strip_prefix(top).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// The directories above a path, the space's root last.
pub(super) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = Some(path).filter(|path| !path.is_empty());
    std::iter::from_fn(move || {
        let end = next?.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let found = &path[..end];
        next = Some(found).filter(|found| !found.is_empty());
        Some(found)
    })
}

/// A number moved by what another moved by.
fn moved(number: u64, from: u64, to: u64) -> u64 {
    number.saturating_add(to).saturating_sub(from)
}

impl Tree {
    /// A directory.
    pub(super) fn get(&self, path: &RelativePath) -> Option<&Directory> {
        self.directories.get(path.as_bytes())
    }

    /// All of them, those above before those below.
    pub(super) fn all(&self) -> impl Iterator<Item = &Directory> {
        self.directories.values()
    }

    /// Those below `top`.
    fn below<'a>(&'a self, top: &[u8]) -> impl Iterator<Item = &'a Directory> + use<'a> {
        let begins = if top.is_empty() { Vec::new() } else { [top, b"/"].concat() };
        let rest = self.directories.range(begins.clone()..);
        rest.take_while(move |(path, _)| path.starts_with(&begins))
            // The space itself lies below nothing.
            .filter(|(path, _)| !path.is_empty())
            .map(|(_, directory)| directory)
    }

    /// Takes a directory that was measured to its end in the round that began at `since`: what is below it and older was not met there.
    pub(super) fn put(&mut self, directory: Directory, since: Timestamp) {
        let path = directory.path.as_bytes().to_vec();
        let gone: Vec<Vec<u8>> =
            self.below(&path).filter(|below| below.at < since).map(|below| below.path.as_bytes().to_vec()).collect();
        for path in gone {
            self.directories.remove(&path);
        }
        let (bytes, files) = (directory.bytes, directory.files);
        // What was not known before is in the numbers above it already, among what they hold besides.
        if let Some(old) = self.directories.insert(path.clone(), directory) {
            self.pass_up(&path, since, (old.bytes, bytes), (old.files, files));
        }
        if self.directories.len() > 2 * MOST_KEPT {
            self.keep_largest();
        }
    }

    /// Takes what was measured after `now`, by a clock that was ahead, for older than what is measured from now on.
    pub(super) fn age(&mut self, now: Timestamp) {
        let before = now.saturating_sub(SignedDuration::from_micros(1)).unwrap_or(Timestamp::MIN);
        for directory in self.directories.values_mut().filter(|directory| directory.at > now) {
            directory.at = before;
        }
    }

    /// Forgets a directory that is not there any more, with all below it.
    pub(super) fn forget(&mut self, path: &RelativePath, since: Timestamp) {
        let path = path.as_bytes();
        let gone: Vec<Vec<u8>> = self.below(path).map(|below| below.path.as_bytes().to_vec()).collect();
        for path in gone {
            self.directories.remove(&path);
        }
        if let Some(old) = self.directories.remove(path) {
            self.pass_up(path, since, (old.bytes, 0), (old.files, 0));
        }
    }

    fn pass_up(&mut self, path: &[u8], since: Timestamp, bytes: (u64, u64), files: (u64, u64)) {
        for path in above(path) {
            if let Some(directory) = self.directories.get_mut(path).filter(|directory| directory.at < since) {
                directory.bytes = moved(directory.bytes, bytes.0, bytes.1);
                directory.files = moved(directory.files, files.0, files.1);
            }
        }
    }

    /// Keeps the largest. A directory is at least as large as what lies in it, so what lies above what is kept is kept.
    pub(super) fn keep_largest(&mut self) {
        if self.directories.len() <= MOST_KEPT {
            return;
        }
        let mut sizes: Vec<(u64, &Vec<u8>)> = self.directories.iter().map(|(path, one)| (one.bytes, path)).collect();
        sizes.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let kept: std::collections::HashSet<Vec<u8>> =
            sizes.into_iter().take(MOST_KEPT).map(|(_, path)| path.clone()).collect();
        self.directories.retain(|path, _| kept.contains(path));
    }

    /// The fresh directories at or below `top` that lie in no other fresh one, `top` itself left out: what need not be gone into again.
    pub(super) fn fresh_tops(&self, top: &RelativePath, since: Timestamp) -> Vec<&Directory> {
        let mut tops: Vec<&Directory> = Vec::new();
        for directory in self.below(top.as_bytes()).filter(|directory| directory.at >= since) {
            let path = directory.path.as_bytes();
            // In the order of bytes what lies in a directory need not follow it at once, so the last top is not enough.
            if !above(path).any(|above| is_below(above, top.as_bytes()) && self.is_fresh(above, since)) {
                tops.push(directory);
            }
        }
        tops
    }

    fn is_fresh(&self, path: &[u8], since: Timestamp) -> bool {
        self.directories.get(path).is_some_and(|directory| directory.at >= since)
    }

    /// How many are fresh at or below `top`.
    pub(super) fn fresh(&self, top: &RelativePath, since: Timestamp) -> usize {
        let here = usize::from(self.is_fresh(top.as_bytes(), since));
        here + self.below(top.as_bytes()).filter(|directory| directory.at >= since).count()
    }

    /// Those directly in `top`, the largest first.
    pub(super) fn children(&self, top: &RelativePath) -> Vec<&Directory> {
        let depth = top.components().count() + 1;
        let mut children: Vec<&Directory> =
            self.below(top.as_bytes()).filter(|directory| directory.path.components().count() == depth).collect();
        children.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        children
    }

    /// `top` and all below it, the largest first.
    pub(super) fn largest(&self, top: &RelativePath) -> Vec<&Directory> {
        let mut all: Vec<&Directory> = self.get(top).into_iter().chain(self.below(top.as_bytes())).collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start_time;

    fn at(minutes: i64) -> Timestamp {
        start_time() + SignedDuration::from_mins(minutes)
    }

    fn path(text: &str) -> RelativePath {
        if text.is_empty() { RelativePath::default() } else { RelativePath::parse(text.as_bytes()).unwrap() }
    }

    fn directory(text: &str, bytes: u64, minutes: i64) -> Directory {
        Directory {
            path: path(text),
            device: 1,
            inode: 2,
            bytes,
            files: bytes,
            own_bytes: 0,
            own_files: 0,
            at: at(minutes),
        }
    }

    fn tree(directories: &[(&str, u64, i64)]) -> Tree {
        let mut tree = Tree::default();
        for (text, bytes, minutes) in directories {
            tree.put(directory(text, *bytes, *minutes), at(0));
        }
        tree
    }

    fn texts<'a>(directories: impl IntoIterator<Item = &'a Directory>) -> Vec<String> {
        directories.into_iter().map(|one| String::from_utf8(one.path.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_directories_above_a_path_end_with_the_space() {
        let up =
            |text: &'static str| above(text.as_bytes()).map(|at| std::str::from_utf8(at).unwrap()).collect::<Vec<_>>();
        assert_eq!(up("a/b/c"), ["a/b", "a", ""]);
        assert_eq!(up("a"), [""]);
        assert_eq!(up(""), Vec::<&str>::new());
    }

    #[test]
    fn what_begins_with_a_name_does_not_lie_in_it() {
        let tree = tree(&[("a", 5, 0), ("a!b", 3, 0), ("a/b", 2, 0), ("ab", 9, 0), ("", 20, 0)]);
        assert_eq!(texts(tree.children(&path(""))), ["ab", "a", "a!b"]);
        assert_eq!(texts(tree.children(&path("a"))), ["a/b"]);
        assert_eq!(texts(tree.largest(&path("a"))), ["a", "a/b"]);
        assert_eq!(texts(tree.fresh_tops(&path(""), at(0))), ["a", "a!b", "ab"]);
        assert!(tree.children(&path("nothing")).is_empty());
    }

    #[test]
    fn a_piece_that_is_measured_anew_moves_what_lies_above_it_and_nothing_beside_it() {
        let mut tree = tree(&[("a/b", 5, 0), ("a", 10, 0), ("c", 7, 0), ("", 20, 0)]);
        tree.put(directory("a/b", 8, 60), at(60));
        let bytes = |tree: &Tree, text: &str| tree.get(&path(text)).unwrap().bytes;
        assert_eq!(["a/b", "a", "c", ""].map(|text| bytes(&tree, text)), [8, 13, 7, 23]);
        assert_eq!(tree.get(&path("a")).unwrap().at, at(0), "it was not measured itself");
        // Measured itself, it says so, and what is old below it was not met.
        tree.put(directory("a/old", 1, 0), at(0));
        tree.put(directory("a", 9, 61), at(60));
        assert_eq!(texts(tree.all()), ["", "a", "a/b", "c"]);
        assert_eq!(bytes(&tree, ""), 19);
        tree.forget(&path("a"), at(60));
        assert_eq!((texts(tree.all()), bytes(&tree, "")), (vec![String::new(), "c".to_owned()], 10));
    }

    #[test]
    fn what_is_fresh_is_left_out_from_its_top() {
        let tree = tree(&[("a/b/c", 1, 70), ("a/b", 2, 70), ("a/d", 1, 10), ("a", 9, 10), ("e", 3, 70)]);
        assert_eq!(texts(tree.fresh_tops(&path(""), at(60))), ["a/b", "e"]);
        assert_eq!(texts(tree.fresh_tops(&path("a"), at(60))), ["a/b"]);
        assert_eq!(tree.fresh_tops(&path("a/b"), at(60)).len(), 1);
        assert_eq!((tree.fresh(&path(""), at(60)), tree.fresh(&path("a/b"), at(60))), (3, 2));
    }

    #[test]
    fn only_the_largest_are_kept_and_whatever_is_above_them() {
        let mut tree = Tree::default();
        for number in 0..=2 * MOST_KEPT {
            tree.put(directory(&format!("d/{number}"), number as u64, 0), at(0));
        }
        assert_eq!(tree.all().count(), MOST_KEPT);
        assert_eq!(texts(tree.children(&path("d")))[0], format!("d/{}", 2 * MOST_KEPT));
    }

    proptest! {
        #[test]
        fn the_root_is_the_sum_of_its_pieces_whichever_are_measured_anew(
            sizes in prop::collection::vec((0_u64..1000, prop::option::of(0_u64..1000)), 1..20),
        ) {
            let mut tree = Tree::default();
            for (at_index, (bytes, _)) in sizes.iter().enumerate() {
                tree.put(directory(&format!("d{at_index}"), *bytes, 0), at(0));
            }
            tree.put(directory("", sizes.iter().map(|(bytes, _)| bytes).sum(), 0), at(0));
            for (at_index, (_, anew)) in sizes.iter().enumerate() {
                if let Some(bytes) = anew {
                    tree.put(directory(&format!("d{at_index}"), *bytes, 60), at(60));
                }
            }
            let expected: u64 = sizes.iter().map(|(bytes, anew)| anew.unwrap_or(*bytes)).sum();
            prop_assert_eq!(tree.get(&path("")).unwrap().bytes, expected);
        }
    }
}
