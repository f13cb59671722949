//! A directory: how it is looked at, its columns and its rows.

use eirene_files_protocol::{Entry, EntryKind, RelativePath, Sort};
use eirene_services::files::path::shown;
use eirene_words::Words;
use serde::Serialize;

use super::super::format::Time;
use super::super::layout::Layout;
use super::super::shown::{icon, kind, may, plain, size, time};
use super::{Crumb, Ground, address};
use crate::pages::Page;

/// How a directory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look<'a> {
    /// By what it is sorted.
    pub(crate) sort: Sort,
    /// Largest first.
    pub(crate) descending: bool,
    /// Whether names with a dot in front are listed.
    pub(crate) hidden: bool,
    /// What names have in them.
    pub(crate) filter: &'a str,
}

/// The head of a column that sorts.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Head {
    /// What it is called.
    pub(crate) label: String,
    /// The same page sorted by it.
    pub(crate) href: String,
    /// `ascending`, `descending` or empty.
    pub(crate) sorted: &'static str,
    /// Whether the column holds numbers.
    pub(crate) number: bool,
}

/// A row of a directory.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    /// Name as shown.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: String,
    /// Icon for that.
    pub(crate) icon: &'static str,
    /// Where its name leads.
    pub(crate) href: String,
    /// Its own page.
    pub(crate) entry_href: String,
    /// Size; empty where it has none.
    pub(crate) size: String,
    /// Last change.
    pub(crate) modified: Option<Time>,
    /// Who may do what.
    pub(crate) may: String,
}

/// What was just put into the trash, and how it comes back.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Undo {
    /// Where the form goes.
    pub(crate) action: String,
}

/// A directory.
#[derive(Debug, Serialize)]
pub(crate) struct FilesPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The space.
    pub(crate) ground: Ground,
    /// The way here.
    pub(crate) crumbs: Vec<Crumb>,
    /// The page of the directory itself as an entry; empty for the space.
    pub(crate) entry_href: String,
    /// The directory's path as forms send it.
    pub(crate) raw: String,
    /// What the list is sorted by, as the address says it.
    pub(crate) sort: &'static str,
    /// In which order.
    pub(crate) order: &'static str,
    /// What names have in them.
    pub(crate) filter: String,
    /// Whether names with a dot in front are listed.
    pub(crate) hidden: bool,
    /// Columns.
    pub(crate) heads: Vec<Head>,
    /// Entries.
    pub(crate) rows: Vec<Row>,
    /// How many there are.
    pub(crate) count: String,
    /// Whether there are none.
    pub(crate) empty: bool,
    /// The next page; empty after the last.
    pub(crate) next_href: String,
    /// The first page; empty there.
    pub(crate) first_href: String,
    /// What was just put into the trash.
    pub(crate) undo: Option<Undo>,
    /// A row of nothing, which the modules fill.
    pub(crate) blank: Row,
    /// The same list for the page's modules, JSON.
    pub(crate) state: String,
}

impl Page for FilesPage {
    const TEMPLATE: &'static str = "pages/files/directory.html";
}

fn sort_word(sort: Sort) -> &'static str {
    match sort {
        Sort::Name => "name",
        Sort::Bytes => "size",
        Sort::Modified => "modified",
    }
}

impl Ground {
    /// A row for an entry of a directory.
    pub(crate) fn row(&self, words: &Words, directory: &RelativePath, entry: &Entry) -> Row {
        // What is too deep to be asked for leads to itself as far as it goes.
        let path = directory.join(&entry.name).unwrap_or_else(|_| directory.clone());
        let entry_href = self.entry_href(path.as_bytes());
        // What a directory's own list takes is nobody's question.
        let weighed = entry.bytes.filter(|_| entry.kind != EntryKind::Directory);
        Row {
            name: plain(&shown(entry.name.as_bytes()).0),
            kind: kind(words, entry.kind),
            icon: icon(entry.kind),
            href: if entry.kind == EntryKind::Directory {
                self.directory_href(path.as_bytes())
            } else {
                entry_href.clone()
            },
            entry_href,
            size: weighed.map(|bytes| size(words, bytes)).unwrap_or_default(),
            modified: time(entry.modified),
            may: may(words, entry.kind, entry.mode),
        }
    }
}

impl Look<'_> {
    /// The words of an address, each where it is not what one gets without it.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, &str)> {
        let mut pairs = Vec::new();
        if self.sort != Sort::Name {
            pairs.push(("sort", sort_word(self.sort)));
        }
        if self.descending {
            pairs.push(("order", "desc"));
        }
        if self.hidden {
            pairs.push(("hidden", "true"));
        }
        if !self.filter.is_empty() {
            pairs.push(("filter", self.filter));
        }
        pairs
    }

    /// As the address says it: by what, in which order.
    pub(crate) fn order(&self) -> (&'static str, &'static str) {
        (sort_word(self.sort), if self.descending { "desc" } else { "asc" })
    }

    /// The page of a directory looked at so, from this cursor on.
    pub(crate) fn href(&self, ground: &Ground, path: &RelativePath, cursor: &str) -> String {
        let mut pairs = self.pairs();
        if !cursor.is_empty() {
            pairs.push(("cursor", cursor));
        }
        address(&ground.files_href, path.as_bytes(), &pairs)
    }

    /// The columns that sort; the one by which it is sorted turns the order round.
    pub(crate) fn heads(&self, words: &Words, ground: &Ground, path: &RelativePath) -> Vec<Head> {
        let columns =
            [(Sort::Name, "browser.name"), (Sort::Bytes, "browser.size"), (Sort::Modified, "browser.modified")];
        let head = |(sort, key): (Sort, &str)| {
            let here = sort == self.sort;
            // What is new or large is looked for first.
            let descending = if here { !self.descending } else { sort != Sort::Name };
            Head {
                label: words.get(key),
                href: Look { sort, descending, ..*self }.href(ground, path, ""),
                sorted: match (here, self.descending) {
                    (false, _) => "",
                    (true, false) => "ascending",
                    (true, true) => "descending",
                },
                number: sort == Sort::Bytes,
            }
        };
        columns.map(head).into()
    }
}

#[cfg(test)]
mod tests {
    use eirene_words::words;

    use super::super::tests::{ground, path};
    use super::*;

    #[test]
    fn a_column_sorts_by_itself_and_turned_round() {
        let look = Look { sort: Sort::Name, descending: false, hidden: true, filter: "x&y" };
        let heads = look.heads(words(), &ground(), &path(b"d"));
        let hrefs: Vec<&str> = heads.iter().map(|head| head.href.as_str()).collect();
        let rest = "hidden=true&filter=x%26y";
        assert_eq!(
            hrefs,
            [
                format!("/spaces/home/files?path=d&order=desc&{rest}"),
                format!("/spaces/home/files?path=d&sort=size&order=desc&{rest}"),
                format!("/spaces/home/files?path=d&sort=modified&order=desc&{rest}"),
            ]
        );
        assert_eq!(heads.iter().map(|head| head.sorted).collect::<Vec<_>>(), ["ascending", "", ""]);
    }
}
