//! What is shown of files, as the API says it: text and numbers, never a document.

use eirene_files_protocol::{CellKind, Encoding};
use eirene_services::files::path::shown;
use eirene_services::files::preview::{Cell, Content, Glance, Output, Sight};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::file::time;
use crate::range;

/// What is shown of a file. All text is what somebody wrote: whoever draws it draws it as text.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FilePreview)]
pub struct PreviewView {
    /// The file's path below the space.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Size of the whole file.
    size_bytes: u64,
    /// Last change of its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    modified_at: Option<Timestamp>,
    /// Its entity tag, as `content` has it.
    etag: String,
    /// As what it is shown, by its content.
    shown: ShownView,
}

/// As what a file is shown.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = ShownFile)]
pub(super) enum ShownView {
    /// A text, page by page, each of the characters that begin within 256 KiB of the file.
    Text {
        /// The page.
        text: String,
        /// How its bytes were read.
        encoding: EncodingView,
        /// Whether there is a page behind it.
        cut: bool,
    },
    /// The first rows and columns of a file of separated values.
    Table {
        /// Its cells, row by row.
        rows: Vec<Vec<String>>,
        /// Whether there is more of anything.
        cut: bool,
    },
    /// A notebook.
    Notebook {
        /// Its cells.
        cells: Vec<CellView>,
        /// Whether there is more of anything.
        cut: bool,
    },
    /// A picture: fetch `content` to draw it.
    Picture {
        /// By its first bytes.
        media_type: String,
        /// In pixels.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        width: Option<u32>,
        /// In pixels.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        height: Option<u32>,
    },
    /// Nothing of the above.
    Bytes {
        /// The first bytes, at most 256, as hex digits.
        #[schema(pattern = "^([0-9a-f]{2})*$")]
        head: String,
    },
}

/// How text was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TextEncoding)]
pub(super) enum EncodingView {
    /// UTF-8.
    #[serde(rename = "utf-8")]
    Utf8,
    /// UTF-16, as its first two bytes say.
    #[serde(rename = "utf-16")]
    Utf16,
    /// Latin-1, as which anything can be read.
    #[serde(rename = "latin-1")]
    Latin1,
}

/// What a cell of a notebook is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = NotebookCellKind)]
pub(super) enum CellKindView {
    /// Markdown, as its source.
    Markdown,
    /// Code.
    Code,
    /// Anything else.
    Raw,
}

/// A cell of a notebook.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = NotebookCell)]
pub(super) struct CellView {
    /// What it is.
    kind: CellKindView,
    /// How the kernel counted its last run, as in `In [3]`; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    number: Option<u32>,
    /// What is written in it.
    source: String,
    /// What came of it.
    outputs: Vec<OutputView>,
}

/// An output of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = NotebookOutput)]
pub(super) struct OutputView {
    /// How the kernel counted it, as in `Out [3]`; absent where it is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    number: Option<u32>,
    /// What it is.
    #[serde(flatten)]
    content: ContentView,
}

/// What an output is.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = NotebookContent)]
pub(super) enum ContentView {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A table, such as a data frame prints itself.
    Table {
        /// Its cells, row by row.
        rows: Vec<Vec<String>>,
        /// How many of the rows say what the columns are.
        heads: u32,
    },
    /// A picture.
    Picture {
        /// PNG, JPEG, GIF or WebP.
        media_type: String,
        /// Its bytes.
        base64: String,
    },
    /// Left out, because it could run or load something, or is too large.
    Omitted {
        /// What it says it is.
        media_type: String,
    },
}

impl From<Encoding> for EncodingView {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Utf8 => Self::Utf8,
            Encoding::Utf16 => Self::Utf16,
            Encoding::Latin1 => Self::Latin1,
        }
    }
}

impl From<Cell> for CellView {
    fn from(cell: Cell) -> Self {
        let kind = match cell.kind {
            CellKind::Markdown => CellKindView::Markdown,
            CellKind::Code => CellKindView::Code,
            CellKind::Raw => CellKindView::Raw,
        };
        let outputs = cell.outputs.into_iter().map(OutputView::from).collect();
        Self { kind, number: cell.number, source: cell.source, outputs }
    }
}

impl From<Output> for OutputView {
    fn from(output: Output) -> Self {
        let content = match output.content {
            Content::Text(text) => ContentView::Text { text },
            Content::Table { rows, heads } => ContentView::Table { rows, heads },
            Content::Picture { media, base64 } => ContentView::Picture { media_type: media, base64 },
            Content::Omitted(media) => ContentView::Omitted { media_type: media },
        };
        Self { number: output.number, content }
    }
}

impl From<Sight> for ShownView {
    fn from(sight: Sight) -> Self {
        match sight {
            Sight::Text { text, encoding, cut } => Self::Text { text, encoding: encoding.into(), cut },
            Sight::Table { rows, cut } => Self::Table { rows, cut },
            Sight::Notebook { cells, cut } => {
                Self::Notebook { cells: cells.into_iter().map(CellView::from).collect(), cut }
            }
            Sight::Picture { media, size } => {
                let (width, height) = size.unzip();
                Self::Picture { media_type: media, width, height }
            }
            Sight::Bytes(head) => Self::Bytes { head },
        }
    }
}

impl From<Glance> for PreviewView {
    fn from(glance: Glance) -> Self {
        let Glance { path, version, sight } = glance;
        let (path, raw_path) = shown(path.as_bytes());
        Self {
            path,
            raw_path,
            size_bytes: version.bytes,
            modified_at: time(version.modified),
            etag: range::etag(&version),
            shown: sight.into(),
        }
    }
}
