//! The file browser: a directory, one thing in it, the trash, and what went wrong.

use std::fmt::Write as _;

use data_encoding::BASE64URL_NOPAD;
use eirene_core::file_work::OnConflict;
use eirene_core::{Space, SpaceId, SpaceName};
use eirene_files_protocol::{Entry, EntryKind, Name, Permissions, RelativePath, Sort, Stated, Trashed, Who};
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::Choice;
use super::format::Time;
use super::layout::Layout;
use super::permissions::{AclRow, called, letters, shares};
use super::shown::{icon, kind, may, plain, size, time};
use super::space::Fact;
use crate::http::portal::pages::Page;
use crate::services::files::path::shown;

/// Where the pages of a space's files are.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ground {
    /// The space's name in addresses.
    pub(crate) space: String,
    /// What people read.
    pub(crate) title: String,
    /// The files of the space.
    pub(crate) files_href: String,
    /// What was put into the trash.
    pub(crate) trash_href: String,
    /// Whether anything may be changed in the space, as far as the file system lets one.
    pub(crate) writable: bool,
}

/// A directory on the way to where one is.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Crumb {
    /// Its name as shown.
    pub(crate) name: String,
    /// Its page; empty for where one is.
    pub(crate) href: String,
}

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
    /// Why there are none; empty where there are some.
    pub(crate) empty: String,
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

/// One thing, with all that can be done with it by forms.
#[derive(Debug, Serialize)]
pub(crate) struct EntryPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The space.
    pub(crate) ground: Ground,
    /// The way here.
    pub(crate) crumbs: Vec<Crumb>,
    /// Name as shown.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: String,
    /// Whether it is a directory.
    pub(crate) is_directory: bool,
    /// Its path as forms send it.
    pub(crate) raw: String,
    /// Its path as text, to be changed.
    pub(crate) path: String,
    /// Size; empty where it has none.
    pub(crate) size: String,
    /// Room it takes.
    pub(crate) on_disk: String,
    /// Last change.
    pub(crate) modified: Option<Time>,
    /// Whose it is.
    pub(crate) owner: String,
    /// Who may do what.
    pub(crate) may: String,
    /// The same in letters.
    pub(crate) letters: String,
    /// Where a link leads, as shown; empty for what is none.
    pub(crate) target: String,
    /// Whether that is in this space.
    pub(crate) inside: bool,
    /// Its bytes; empty where it has none to be saved.
    pub(crate) content_href: String,
    /// A directory's list; empty for what is none.
    pub(crate) open_href: String,
    /// All of a directory in one zip file; empty for what is none.
    pub(crate) zip_href: String,
    /// The same as a tar file, into which links fit as well.
    pub(crate) tar_href: String,
    /// What can be chosen for who may do what; none where it cannot be changed.
    pub(crate) shares: Vec<Choice>,
    /// What the storage knows of a directory, where it told; none for anything else.
    pub(crate) storage: Vec<Fact>,
    /// Lines of its access control list.
    pub(crate) acl: Vec<AclRow>,
    /// The page of who may do what with it; empty for a link, which has no permissions.
    pub(crate) permissions_href: String,
    /// The directory an archive would be unpacked into, unless another is said; empty for what is none.
    pub(crate) unpack_to: String,
    /// The spaces it can be moved or copied to; none where there is no other than this.
    pub(crate) targets: Vec<Choice>,
    /// What happens where something lies already.
    pub(crate) conflicts: Vec<Choice>,
}

impl Page for EntryPage {
    const TEMPLATE: &'static str = "pages/files/entry.html";
}

/// A row of the trash.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TrashRow {
    /// Where it was, as shown.
    pub(crate) path: String,
    /// What it is.
    pub(crate) kind: String,
    /// Icon for that.
    pub(crate) icon: &'static str,
    /// Size of a file.
    pub(crate) size: String,
    /// When it was put there.
    pub(crate) deleted: Option<Time>,
    /// Where the form that puts it back goes; empty where nobody knows where it was.
    pub(crate) restore_action: String,
    /// The page that asks before it is deleted for good.
    pub(crate) delete_href: String,
}

/// The trash.
#[derive(Debug, Serialize)]
pub(crate) struct TrashPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The space.
    pub(crate) ground: Ground,
    /// What lies there.
    pub(crate) rows: Vec<TrashRow>,
    /// How many in all.
    pub(crate) count: String,
    /// The page that asks before all of it is deleted for good.
    pub(crate) empty_href: String,
    /// The next page; empty after the last.
    pub(crate) next_href: String,
}

impl Page for TrashPage {
    const TEMPLATE: &'static str = "pages/files/trash.html";
}

/// Why nothing came of it.
#[derive(Debug, Serialize)]
pub(crate) struct FilesTroublePage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The sentence.
    pub(crate) title: String,
    /// What to do.
    pub(crate) advice: String,
    /// Where to go on.
    pub(crate) back_href: String,
    /// The same page again; empty where that is of no use.
    pub(crate) again_href: String,
}

impl Page for FilesTroublePage {
    const TEMPLATE: &'static str = "pages/files/trouble.html";
}

/// An address with a path in it. What is no text goes by its bytes.
fn address(place: &str, path: &[u8], more: &[(&str, &str)]) -> String {
    let (text, raw) = shown(path);
    let path = match &raw {
        Some(raw) => Some(("raw_path", raw.as_str())),
        None => (!text.is_empty()).then_some(("path", text.as_str())),
    };
    let pairs: Vec<(&str, &str)> = path.into_iter().chain(more.iter().copied()).collect();
    match serde_html_form::to_string(&pairs) {
        Ok(query) if !query.is_empty() => format!("{place}?{query}"),
        _ => place.to_owned(),
    }
}

/// A path as forms send it.
pub(crate) fn raw(path: &[u8]) -> String {
    BASE64URL_NOPAD.encode(path)
}

/// JSON for an attribute of a page, in ASCII alone: no character of somebody's is in the page's source but as its number.
pub(crate) fn state(json: &serde_json::Value) -> String {
    let mut text = String::new();
    for letter in json.to_string().chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // A string takes all that is written to it.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

fn sort_word(sort: Sort) -> &'static str {
    match sort {
        Sort::Name => "name",
        Sort::Bytes => "size",
        Sort::Modified => "modified",
    }
}

impl Ground {
    /// Of a space.
    pub(crate) fn new(space: &SpaceName, title: &str, writable: bool) -> Self {
        Self {
            space: space.to_string(),
            title: title.to_owned(),
            files_href: format!("/spaces/{space}/files"),
            trash_href: format!("/spaces/{space}/trash"),
            writable,
        }
    }

    /// The page of a directory.
    pub(crate) fn directory_href(&self, path: &[u8]) -> String {
        address(&self.files_href, path, &[])
    }

    /// The page of one thing.
    pub(crate) fn entry_href(&self, path: &[u8]) -> String {
        address(&format!("{}/entry", self.files_href), path, &[])
    }

    /// The page of who may do what with one thing.
    pub(crate) fn permissions_href(&self, path: &[u8]) -> String {
        address(&format!("{}/permissions", self.files_href), path, &[])
    }

    /// What modules and links fetch.
    fn live(&self, what: &str, path: &[u8], more: &[(&str, &str)]) -> String {
        address(&format!("/live/spaces/{}/files/{what}", self.space), path, more)
    }

    /// The way to `path`; the last is where one is.
    pub(crate) fn crumbs(&self, path: &RelativePath) -> Vec<Crumb> {
        let mut way: Vec<u8> = Vec::new();
        let mut crumbs = vec![Crumb { name: self.title.clone(), href: self.files_href.clone() }];
        for name in path.components() {
            if !way.is_empty() {
                way.push(b'/');
            }
            way.extend_from_slice(name.as_bytes());
            crumbs.push(Crumb { name: plain(&shown(name.as_bytes()).0), href: self.directory_href(&way) });
        }
        if let Some(last) = crumbs.last_mut() {
            last.href.clear();
        }
        crumbs
    }

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

    /// A row of the trash.
    pub(crate) fn trash_row(&self, words: &Words, trashed: &Trashed) -> TrashRow {
        let place = format!("{}/{}", self.trash_href, trashed.id);
        let milliseconds = i64::try_from(trashed.id.milliseconds()).ok();
        let origin = trashed.origin.as_ref();
        TrashRow {
            path: origin.map_or_else(|| words.get("trash.unknown"), |origin| plain(&shown(origin.as_bytes()).0)),
            kind: kind(words, trashed.kind),
            icon: icon(trashed.kind),
            size: trashed.bytes.map(|bytes| size(words, bytes)).unwrap_or_default(),
            deleted: milliseconds.and_then(|at| Timestamp::from_millisecond(at).ok()).map(Time::new),
            restore_action: origin.map(|_| format!("{place}/restore")).unwrap_or_default(),
            delete_href: format!("{place}/delete"),
        }
    }
}

/// Where things of the space `here` can be moved or copied to, of all `spaces` into which the person may write; none where there is no other.
pub(crate) fn targets(ground: &Ground, here: SpaceId, spaces: &[Space]) -> Vec<Choice> {
    if spaces.iter().all(|space| space.id == here) {
        return Vec::new();
    }
    let choice = |space: &Space| {
        let (title, is_here) = (space.title.as_str(), space.id == here);
        let is_one_of_several = spaces.iter().filter(|other| other.title.as_str() == title).count() > 1;
        Choice {
            // As the page's own address has it: what comes afterwards leads back there.
            value: if is_here { ground.space.clone() } else { space.name.to_string() },
            label: if is_one_of_several { format!("{title} ({})", space.name) } else { title.to_owned() },
            selected: is_here,
        }
    };
    spaces.iter().map(choice).collect()
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

impl EntryPage {
    /// Of one thing that is not the space itself.
    pub(crate) fn new(
        words: &Words,
        layout: Layout,
        (ground, targets): (Ground, Vec<Choice>),
        (path, stated): (&RelativePath, &Stated),
        may_be: &Permissions,
    ) -> Self {
        let bytes = path.as_bytes();
        let name = path.split_last().map(|(_, name)| name);
        let link = stated.link.as_ref();
        let is = |wanted| stated.kind == wanted;
        let changeable = ground.writable && may_be.mine && !is(EntryKind::Link);
        let archive = |format: &str| {
            if is(EntryKind::Directory) { ground.live("archive", bytes, &[("format", format)]) } else { String::new() }
        };
        Self {
            crumbs: ground.crumbs(path),
            name: plain(&shown(name.as_ref().map_or(&b""[..], Name::as_bytes)).0),
            kind: kind(words, stated.kind),
            is_directory: is(EntryKind::Directory),
            raw: raw(bytes),
            path: shown(bytes).0,
            size: if is(EntryKind::File) { size(words, stated.version.bytes) } else { String::new() },
            on_disk: size(words, stated.on_disk),
            modified: time(Some(stated.version.modified)),
            owner: if may_be.mine {
                words.get("browser.mine")
            } else {
                called(words, Who::User(stated.owner), &may_be.accounts)
            },
            may: may(words, stated.kind, Some(stated.mode)),
            letters: letters(stated.mode),
            target: link.map(|link| plain(&shown(&link.target.0).0)).unwrap_or_default(),
            inside: link.is_some_and(|link| link.leads_to.is_some()),
            content_href: if is(EntryKind::File) { ground.live("content", bytes, &[]) } else { String::new() },
            open_href: if is(EntryKind::Directory) { ground.directory_href(bytes) } else { String::new() },
            zip_href: archive("zip"),
            tar_href: archive("tar"),
            shares: if changeable { shares(words, may_be.share) } else { Vec::new() },
            storage: Vec::new(),
            acl: AclRow::all(words, may_be.access.as_ref(), &may_be.accounts),
            permissions_href: if is(EntryKind::Link) { String::new() } else { ground.permissions_href(bytes) },
            unpack_to: if is(EntryKind::File) { unpacked(&shown(bytes).0).unwrap_or_default() } else { String::new() },
            targets,
            conflicts: conflicts(words),
            layout,
            ground,
        }
    }
}

/// How archives are called that can be unpacked.
const ARCHIVES: [&str; 4] = [".tar.gz", ".tgz", ".tar", ".zip"];

/// The path of an archive without what says that it is one; none for what is called otherwise.
fn unpacked(path: &str) -> Option<String> {
    let ending = |ending: &&str| path.len() > ending.len() && path.to_ascii_lowercase().ends_with(*ending);
    let rest = path.get(..path.len() - ARCHIVES.into_iter().find(ending)?.len())?;
    (!rest.is_empty() && !rest.ends_with('/')).then(|| rest.to_owned())
}

fn conflicts(words: &Words) -> Vec<Choice> {
    let choice = |(value, key): (OnConflict, &str)| Choice::new(value.as_str(), words.get(key), "refuse");
    let all = [
        (OnConflict::Refuse, "browser.conflict_refuse"),
        (OnConflict::KeepBoth, "browser.conflict_keep_both"),
        (OnConflict::Replace, "browser.conflict_replace"),
    ];
    all.map(choice).into()
}

#[cfg(test)]
mod tests {
    use eirene_core::SpaceOwner;
    use eirene_words::words;

    use super::*;
    use crate::services::spaces::testing::a_space;

    fn ground() -> Ground {
        Ground::new(&"home".parse().unwrap(), "Home", true)
    }

    fn path(bytes: &[u8]) -> RelativePath {
        RelativePath::parse(bytes).unwrap()
    }

    #[test]
    fn an_archive_is_told_by_its_name_and_unpacked_beside_it() {
        for (path, to) in [
            ("d/data.tar.gz", Some("d/data")),
            ("data.TGZ", Some("data")),
            ("a.b.zip", Some("a.b")),
            ("\u{1f30d}.tar", Some("\u{1f30d}")),
            ("d/.zip", None),
            (".tar.gz", None),
            ("zip", None),
            ("data.gz", None),
        ] {
            assert_eq!(unpacked(path).as_deref(), to, "{path}");
        }
    }

    #[test]
    fn an_address_carries_any_name_and_no_line_break() {
        for (bytes, href) in [
            (&b""[..], "/spaces/home/files"),
            (b"a b/\xc3\xa9", "/spaces/home/files?path=a+b%2F%C3%A9"),
            (b"a\r\nb\"<", "/spaces/home/files?path=a%0D%0Ab%22%3C"),
            (b"caf\xe9", "/spaces/home/files?raw_path=Y2Fm6Q"),
        ] {
            assert_eq!(ground().directory_href(bytes), href);
        }
    }

    #[test]
    fn what_modules_are_told_is_ascii_and_the_same() {
        let value = serde_json::json!({"name": "\u{202e}é👩\n\"<"});
        let text = state(&value);
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn the_space_one_is_in_is_chosen_and_a_title_of_two_is_told_apart() {
        let space = |name: &str, title: &str| Space {
            name: name.parse().unwrap(),
            title: title.parse().unwrap(),
            ..a_space(SpaceOwner::Group("physics".parse().unwrap()))
        };
        let (home, stars, more, data) =
            (space("home-ada", "Home"), space("stars", "Stars"), space("more", "Stars"), space("data", "Data"));
        let all = [home.clone(), stars, more];
        let shown = |here, spaces: &[Space]| -> Vec<(String, String, bool)> {
            let choices = targets(&ground(), here, spaces).into_iter();
            choices.map(|choice| (choice.value, choice.label, choice.selected)).collect()
        };
        let lines = |lines: &[(&str, &str, bool)]| -> Vec<(String, String, bool)> {
            lines.iter().map(|(value, label, selected)| ((*value).into(), (*label).into(), *selected)).collect()
        };
        let others = [("stars", "Stars (stars)", false), ("more", "Stars (more)", false)];
        assert_eq!(shown(home.id, &all), lines(&[&[("home", "Home", true)][..], &others].concat()));
        assert_eq!(shown(data.id, &all), lines(&[&[("home-ada", "Home", false)][..], &others].concat()));
        let only = [home.clone()];
        assert!(shown(home.id, &only).is_empty() && shown(home.id, &[]).is_empty());
        assert_eq!(shown(data.id, &only), lines(&[("home-ada", "Home", false)]));
    }

    #[test]
    fn the_way_ends_where_one_is() {
        let crumbs = ground().crumbs(&path(b"a/\xe9\n"));
        let way: Vec<_> = crumbs.iter().map(|crumb| (crumb.name.as_str(), crumb.href.as_str())).collect();
        assert_eq!(way, [("Home", "/spaces/home/files"), ("a", "/spaces/home/files?path=a"), ("\u{fffd}\u{240a}", "")]);
        assert_eq!(ground().crumbs(&path(b"")).len(), 1);
    }

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
