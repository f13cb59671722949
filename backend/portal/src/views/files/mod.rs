//! The file browser: a directory, one thing in it, the trash, and what went wrong.

mod directory;
mod entry;
mod trash;

use std::fmt::Write as _;

use data_encoding::BASE64URL_NOPAD;
use eirene_core::{Space, SpaceId, SpaceName};
use eirene_files_protocol::RelativePath;
use eirene_services::files::path::shown;
use serde::Serialize;

use super::Choice;
use super::layout::Layout;
use super::shown::plain;
use crate::pages::Page;

pub(crate) use directory::{FilesPage, Look, Row, Undo};
pub(crate) use entry::EntryPage;
pub(crate) use trash::TrashPage;

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

#[cfg(test)]
mod tests {
    use eirene_core::SpaceOwner;
    use eirene_services::spaces::testing::a_space;

    use super::*;

    pub(super) fn ground() -> Ground {
        Ground::new(&"home".parse().unwrap(), "Home", true)
    }

    pub(super) fn path(bytes: &[u8]) -> RelativePath {
        RelativePath::parse(bytes).unwrap()
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
}
