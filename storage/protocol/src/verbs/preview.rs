//! What is asked to show a file without opening it: parsed by the person's own process, said as plain text and numbers, never as a document.

use serde::{Deserialize, Serialize};

use super::{SpaceNumber, Version};
use crate::RelativePath;

/// A part of a file, as something to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preview {
    /// In which space.
    pub space: SpaceNumber,
    /// Which file; links that stay in the space are followed.
    pub path: RelativePath,
    /// Which part of a text, from 0. Of everything else only the beginning is shown: [`super::Code::OutOfRange`], as behind the end.
    pub page: u32,
}

/// A piece of what is shown, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Piece {
    /// Text that goes on where the last piece ended: of the file, or of the cell, output or picture that began last. A picture's is base64.
    Text(String),
    /// A row of a table.
    Row(Vec<String>),
    /// A cell of a notebook begins with its source.
    Cell(CellKind),
    /// How the kernel has counted the cell, or the output, that began last: what stands in the brackets of `In [3]` and `Out [3]`.
    Number(u32),
    /// An output of the cell begins.
    Output,
    /// A table among the outputs begins: its rows follow, and so many of them say what the columns are.
    Table(u32),
    /// A picture among the outputs begins: its media type.
    Picture(String),
    /// An output that is not shown because it could run or load something, or is too large: its media type.
    Omitted(String),
}

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// Markdown, as its source.
    Markdown,
    /// Code.
    Code,
    /// Anything else.
    Raw,
}

/// What was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previewed {
    /// Of which content.
    pub version: Version,
    /// As what.
    pub shown: Shown,
}

/// As what a file is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Shown {
    /// Text.
    Text {
        /// How it was read.
        encoding: Encoding,
        /// Whether there is more behind it.
        cut: bool,
    },
    /// A table, by its rows.
    Table {
        /// Whether there are more rows, columns or text in a cell.
        cut: bool,
    },
    /// A notebook, by its cells.
    Notebook {
        /// Whether there is more.
        cut: bool,
    },
    /// A picture: its bytes are read as any file's.
    Picture {
        /// Its media type, by its first bytes.
        media: String,
        /// Width and height in pixels, where its first bytes say so.
        size: Option<(u32, u32)>,
    },
    /// Nothing of the above: its first bytes as hex digits.
    Bytes {
        /// At most 256 bytes of them.
        head: String,
    },
}

/// How text was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// UTF-16, as its first two bytes say.
    Utf16,
    /// Latin-1, as which anything can be read.
    Latin1,
}
