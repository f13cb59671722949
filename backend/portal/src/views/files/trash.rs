//! The trash.

use eirene_files_protocol::Trashed;
use eirene_services::files::path::shown;
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::super::format::Time;
use super::super::layout::Layout;
use super::super::shown::{icon, kind, plain, size};
use super::Ground;
use crate::pages::Page;

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

impl Ground {
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
