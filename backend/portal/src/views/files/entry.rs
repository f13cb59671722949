//! One thing, with all that can be done with it by forms.

use eirene_core::file_work::OnConflict;
use eirene_files_protocol::{EntryKind, Name, Permissions, RelativePath, Stated, Who};
use eirene_services::files::path::shown;
use eirene_words::Words;
use serde::Serialize;

use super::super::Choice;
use super::super::format::Time;
use super::super::layout::Layout;
use super::super::permissions::{AclRow, called, letters, shares};
use super::super::shown::{kind, may, plain, size, time};
use super::super::space::Fact;
use super::{Crumb, Ground, raw};
use crate::pages::Page;

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
    use super::*;

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
}
