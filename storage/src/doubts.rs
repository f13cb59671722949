//! Collects what is doubtful about an answer, in bounded and printable words: the text comes from a tool and may hold anything.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use eirene_core::storage::{Doubt, DoubtAbout, Partial};

/// Longest text of one doubt, characters.
const LONGEST: usize = 300;
/// Most doubts of one answer: a garbled answer has one a line.
const MOST: usize = 100;

/// Printable characters alone, at most [`LONGEST`].
pub(crate) fn printable(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}

/// Doubts in the order in which they came up.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Vec<Doubt>);

impl Doubts {
    /// Notes one.
    pub(crate) fn note(&mut self, about: DoubtAbout, text: &str) {
        if self.0.len() < MOST {
            self.0.push(Doubt { about, text: printable(text) });
        }
    }

    /// Notes one about a line.
    pub(crate) fn line(&mut self, number: u32, text: &str) {
        self.note(DoubtAbout::Line(number), text);
    }

    /// Notes one about the whole answer.
    pub(crate) fn whole(&mut self, text: &str) {
        self.note(DoubtAbout::Whole, text);
    }

    /// Takes over another answer's.
    pub(crate) fn add(&mut self, more: Vec<Doubt>) {
        self.0.extend(more);
        self.0.truncate(MOST);
    }

    /// The answer with its doubts.
    pub(crate) fn with<T>(self, value: T) -> Partial<T> {
        Partial { value, doubts: self.0 }
    }

    /// Rows by a key that must be unique. A row that came twice is kept once; rows that contradict each other are all left out.
    pub(crate) fn unique<T: PartialEq, K: Eq + Hash>(&mut self, rows: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
        let mut places: HashMap<K, usize> = HashMap::with_capacity(rows.len());
        let mut kept: Vec<(T, bool)> = Vec::with_capacity(rows.len());
        for row in rows {
            match places.entry(key(&row)) {
                Entry::Vacant(place) => {
                    place.insert(kept.len());
                    kept.push((row, true));
                }
                Entry::Occupied(place) => {
                    let (other, agree) = &mut kept[*place.get()];
                    *agree &= *other == row;
                    self.whole("a row came more than once");
                }
            }
        }
        kept.into_iter().filter_map(|(row, agree)| agree.then_some(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_short_and_printable() {
        let mut doubts = Doubts::default();
        doubts.line(3, &format!("\u{1b}[31m{}", "x".repeat(1000)));
        let text = &doubts.with(()).doubts[0].text;
        assert_eq!(text.chars().count(), LONGEST);
        assert!(!text.chars().any(char::is_control));
    }

    #[test]
    fn rows_that_contradict_each_other_are_left_out() {
        let mut doubts = Doubts::default();
        let rows = doubts.unique(vec![(1, 'a'), (2, 'b'), (1, 'a'), (2, 'c')], |row| row.0);
        assert_eq!(rows, [(1, 'a')]);
        assert_eq!(doubts.with(()).doubts.len(), 2);
    }
}
