//! What takes the room in a space: the largest directories of one, with bars.

use eirene_core::Space;
use eirene_core::text::is_printable;
use eirene_files_protocol::RelativePath;
use eirene_services::files::path::shown;
use eirene_services::scans::{Directory, ScanState, Sizes};
use eirene_words::Words;
use serde::Serialize;

use super::format::{self, Time};
use super::layout::Layout;
use crate::admin::encode;
use crate::pages::Page;

/// A link to a directory above.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Crumb {
    /// Where to; empty where one is.
    pub(crate) href: String,
    /// Its name.
    pub(crate) label: String,
}

/// A directory in the list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SizeRow {
    /// Its own page; empty where there is nothing to go into.
    pub(crate) href: String,
    /// Its name.
    pub(crate) name: String,
    /// What all in it takes.
    pub(crate) size: String,
    /// How many files and directories are in it; empty where that is not known.
    pub(crate) files: String,
    /// Its part of the whole, per cent.
    pub(crate) percent: u8,
    /// When it was measured.
    pub(crate) at: Option<Time>,
}

/// What takes the room in a directory.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SizesView {
    /// How measuring is going, a sentence each.
    pub(crate) lines: Vec<String>,
    /// When the last measuring was over.
    pub(crate) as_of: Option<Time>,
    /// Whether it is going on.
    pub(crate) runs: bool,
    /// What the button that begins it says.
    pub(crate) start: String,
    /// Where both buttons send their forms.
    pub(crate) action: String,
    /// Which directory is measured, as the form says it.
    pub(crate) path: String,
    /// The same where that is not UTF-8; empty where it is.
    pub(crate) raw_path: String,
    /// From the space down to the directory.
    pub(crate) crumbs: Vec<Crumb>,
    /// The sum of the directory; none where it is not known.
    pub(crate) whole: Option<SizeRow>,
    /// What is in it, the largest first.
    pub(crate) rows: Vec<SizeRow>,
    /// Why nothing is listed; empty where something is, or where how measuring is going says it.
    pub(crate) nothing: String,
}

impl SizesView {
    /// Shows `sizes` of `space`.
    pub(crate) fn new(words: &Words, space: &Space, sizes: &Sizes) -> Self {
        let base = format!("/spaces/{}/sizes", space.name);
        // What has stopped is gone on with where it began, from wherever that is asked.
        let wanted = if sizes.state == ScanState::Stopped { &sizes.round } else { &sizes.path };
        let (path, raw_path) = shown(wanted.as_bytes());
        let whole_bytes = sizes
            .here
            .as_ref()
            .map_or_else(|| sizes.items.iter().map(|item| item.bytes).fold(0, u64::saturating_add), |here| here.bytes);
        let row = |directory: &Directory| SizeRow {
            href: format!("{base}{}", query(&directory.path)),
            name: last_name(&directory.path),
            size: format::bytes(words, directory.bytes),
            files: format::number(directory.files),
            percent: part(directory.bytes, whole_bytes),
            at: Some(Time::new(directory.at)),
        };
        let name = if sizes.path.is_space() { words.get("my_spaces.sizes_page.top") } else { last_name(&sizes.path) };
        let whole = sizes.here.as_ref().map(|here| SizeRow {
            href: String::new(),
            name: words.fill("my_spaces.sizes_page.here", &[("name", &name)]),
            ..row(here)
        });
        let mut rows: Vec<SizeRow> = sizes.items.iter().map(row).collect();
        let listed = sizes.items.iter().map(|item| item.bytes).fold(0, u64::saturating_add);
        let rest = sizes.here.as_ref().map_or(0, |here| here.bytes.saturating_sub(listed));
        if rest > 0 {
            rows.push(SizeRow {
                href: String::new(),
                name: words.get("my_spaces.sizes_page.rest"),
                size: format::bytes(words, rest),
                files: String::new(),
                percent: part(rest, whole_bytes),
                at: None,
            });
        }
        Self {
            lines: lines(words, sizes),
            as_of: sizes.as_of.map(Time::new),
            runs: sizes.state == ScanState::Running,
            start: words.get(match sizes.state {
                ScanState::Never | ScanState::Running => "my_spaces.sizes_page.start",
                ScanState::Stopped => "my_spaces.sizes_page.go_on",
                ScanState::Done => "my_spaces.sizes_page.again",
            }),
            action: base.clone(),
            path: if raw_path.is_some() { String::new() } else { path },
            raw_path: raw_path.unwrap_or_default(),
            crumbs: crumbs(space, &base, &sizes.path),
            nothing: nothing(words, sizes),
            whole,
            rows,
        }
    }
}

fn lines(words: &Words, sizes: &Sizes) -> Vec<String> {
    let (files, size) = (format::number(sizes.files_done), format::bytes(words, sizes.bytes_done));
    let values = [("files", files.as_str()), ("size", size.as_str())];
    let state = match sizes.state {
        ScanState::Never => words.get("my_spaces.sizes_page.never"),
        ScanState::Running if sizes.files_done == 0 => words.get("my_spaces.sizes_page.running_first"),
        ScanState::Running => words.fill("my_spaces.sizes_page.running", &values),
        ScanState::Stopped => words.fill("my_spaces.sizes_page.stopped", &values),
        ScanState::Done => words.fill("my_spaces.sizes_page.done", &values),
    };
    let mut lines = vec![state];
    if sizes.approximate {
        lines.push(words.get("my_spaces.sizes_page.approximate"));
    }
    if sizes.skipped > 0 {
        lines.push(words.count("my_spaces.sizes_page.skipped", sizes.skipped));
    }
    lines
}

/// Only what was measured can be too small to be kept: before that, and while it is being done, there is one thing to say, and that is said.
fn nothing(words: &Words, sizes: &Sizes) -> String {
    match (sizes.state, &sizes.here) {
        (_, Some(_)) => words.get("my_spaces.sizes_page.empty"),
        (ScanState::Never | ScanState::Running, None) => String::new(),
        (ScanState::Stopped | ScanState::Done, None) => words.get("my_spaces.sizes_page.unknown"),
    }
}

/// Per cent, rounded down; of nothing nothing.
fn part(bytes: u64, of: u64) -> u8 {
    if of == 0 { 0 } else { eirene_services::spaces::level::percent(bytes, of).min(100) }
}

fn crumbs(space: &Space, base: &str, path: &RelativePath) -> Vec<Crumb> {
    let here = |path: &RelativePath| format!("{base}{}", query(path));
    let mut crumbs = Vec::new();
    let mut next = path.clone();
    while let Some((above, _)) = next.split_last() {
        let href = if next == *path { String::new() } else { here(&next) };
        crumbs.push(Crumb { href, label: last_name(&next) });
        next = above;
    }
    let href = if path.is_space() { String::new() } else { base.to_owned() };
    crumbs.push(Crumb { href, label: space.title.to_string() });
    crumbs.reverse();
    crumbs
}

/// A directory as the query of an address; nothing for the space itself.
pub(crate) fn query(path: &RelativePath) -> String {
    match shown(path.as_bytes()) {
        _ if path.is_space() => String::new(),
        (_, Some(raw)) => format!("?raw_path={raw}"),
        (text, None) => format!("?path={}", encode(&text)),
    }
}

/// What a path ends in, to be read: what would not be seen, or would turn what stands beside it around, is a sign.
fn last_name(path: &RelativePath) -> String {
    let name = path.split_last().map(|(_, name)| String::from_utf8_lossy(name.as_bytes()).into_owned());
    name.unwrap_or_default()
        .chars()
        .map(|letter| if is_printable(letter) { letter } else { char::REPLACEMENT_CHARACTER })
        .collect()
}

/// What takes the room.
#[derive(Debug, Serialize)]
pub(crate) struct SizesPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What the page is about, in a sentence.
    pub(crate) lede: String,
    /// The space's own page.
    pub(crate) space_href: String,
    /// Where the list is fetched again.
    pub(crate) fragment_href: String,
    /// The list.
    pub(crate) sizes: SizesView,
}

impl Page for SizesPage {
    const TEMPLATE: &'static str = "pages/sizes.html";
}

/// The list by itself.
#[derive(Debug, Serialize)]
pub(crate) struct SizesFragment {
    /// Frame: its forms need the token.
    pub(crate) layout: Layout,
    /// The list.
    pub(crate) sizes: SizesView,
}

impl Page for SizesFragment {
    const TEMPLATE: &'static str = "fragments/sizes.html";
}

#[cfg(test)]
mod tests {
    use eirene_core::UserId;
    use eirene_services::spaces::testing::{a_space, person};
    use eirene_services::testing::start_time;
    use eirene_words::words;

    use super::*;

    fn directory(path: &[u8], bytes: u64) -> Directory {
        Directory {
            path: if path.is_empty() { RelativePath::default() } else { RelativePath::parse(path).unwrap() },
            device: 1,
            inode: 1,
            bytes,
            files: 1,
            own_bytes: 0,
            own_files: 0,
            at: start_time(),
        }
    }

    fn view(state: ScanState, here: Option<Directory>, items: Vec<Directory>) -> SizesView {
        let sizes = Sizes {
            state,
            operation: None,
            as_of: None,
            directories_done: 0,
            files_done: 0,
            bytes_done: 0,
            approximate: false,
            skipped: 0,
            path: here.as_ref().map(|here| here.path.clone()).unwrap_or_default(),
            round: RelativePath::parse(b"round").unwrap(),
            here,
            items,
        };
        SizesView::new(words(), &a_space(person(UserId::generate(), "ada")), &sizes)
    }

    #[test]
    fn what_is_not_listed_is_a_row_and_the_rows_come_to_the_whole() {
        let shown =
            view(ScanState::Done, Some(directory(b"a", 100)), vec![directory(b"a/b", 60), directory(b"a/c", 15)]);
        let percents: Vec<u8> = shown.rows.iter().map(|row| row.percent).collect();
        assert_eq!(percents, [60, 15, 25]);
        assert_eq!(shown.rows[2].name, words().get("my_spaces.sizes_page.rest"));
        assert_eq!(shown.whole.unwrap().percent, 100);
        let unknown = view(ScanState::Running, None, vec![directory(b"b", 60), directory(b"c", 20)]);
        assert_eq!((unknown.rows[0].percent, unknown.rows.len()), (75, 2));
        assert!(unknown.whole.is_none() && unknown.runs);
        let stopped = view(ScanState::Stopped, Some(directory(b"a", 9)), vec![]);
        assert_eq!((stopped.path.as_str(), shown.path.as_str()), ("round", "a"), "where it goes on");
        let nothing = view(ScanState::Done, Some(directory(b"", 0)), vec![directory(b"b", 0)]);
        assert_eq!(nothing.rows[0].percent, 0);
    }

    #[test]
    fn where_nothing_is_listed_one_thing_is_said_of_it() {
        let said = |state, here| view(state, here, vec![]).nothing;
        let here = || Some(directory(b"a", 9));
        let (empty, unknown) = ("my_spaces.sizes_page.empty", "my_spaces.sizes_page.unknown");
        for state in [ScanState::Never, ScanState::Running] {
            assert_eq!(said(state, None), "", "that nothing has been measured yet, or that it is being done");
        }
        for state in [ScanState::Stopped, ScanState::Done] {
            assert_eq!(said(state, None), words().get(unknown));
            assert_eq!(said(state, here()), words().get(empty));
        }
        assert_eq!(said(ScanState::Running, here()), words().get(empty));
    }

    #[test]
    fn names_are_only_ever_text_and_lead_where_they_say() {
        let shown = view(ScanState::Done, Some(directory(b"a&b/c d", 9)), vec![directory(b"a&b/c d/\xff", 4)]);
        let hrefs: Vec<&str> = shown.crumbs.iter().map(|crumb| crumb.href.as_str()).collect();
        assert_eq!(hrefs, ["/spaces/physics/sizes", "/spaces/physics/sizes?path=a%26b", ""]);
        assert_eq!(shown.rows[0].href, "/spaces/physics/sizes?raw_path=YSZiL2MgZC__");
        assert_eq!(last_name(&directory("a/x\u{202e}\ny".as_bytes(), 0).path), "x\u{fffd}\u{fffd}y");
    }
}
