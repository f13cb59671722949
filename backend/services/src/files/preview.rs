//! A file as something to look at: what the person's process made of it, put together here and believed no further than its form.

use data_encoding::{BASE64, HEXLOWER};
use eirene_core::{SpaceName, UserId};
use eirene_files_protocol::{
    Answer, CellKind, Code, Encoding, Part, Piece, Preview, Previewed, RelativePath, Shown, Verb, Version,
};

use super::path::AskedPath;
use super::{Files, Need, answered, wrong_answer};
use crate::actor::Actor;
use crate::error::files::{FilesTrouble, Kind};
use crate::error::{AppError, FieldError};
use crate::places::Place;

/// Pictures that browsers draw and that can run nothing.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Most bytes of a media type that is named.
const MOST_MEDIA: usize = 400;

/// Most previews of one person at once.
pub(super) const MOST_AT_ONCE: usize = 4;

/// What is shown of a file.
#[derive(Debug)]
pub struct Glance {
    /// Which.
    pub path: RelativePath,
    /// Of which content.
    pub version: Version,
    /// As what.
    pub sight: Sight,
}

/// As what a file is shown. All text is a person's, and nothing but text.
#[derive(Debug, PartialEq, Eq)]
pub enum Sight {
    /// A part of a text.
    Text {
        /// The text.
        text: String,
        /// How it was read.
        encoding: Encoding,
        /// Whether there is more behind it.
        cut: bool,
    },
    /// The beginning of a table.
    Table {
        /// Its cells, row by row.
        rows: Vec<Vec<String>>,
        /// Whether there is more of anything.
        cut: bool,
    },
    /// A notebook.
    Notebook {
        /// Its cells.
        cells: Vec<Cell>,
        /// Whether there is more of anything.
        cut: bool,
    },
    /// A picture, whose bytes are read as any file's.
    Picture {
        /// One of four media types.
        media: String,
        /// Width and height in pixels, where they are known.
        size: Option<(u32, u32)>,
    },
    /// Nothing of the above: the first bytes as hex digits.
    Bytes(String),
}

/// A cell of a notebook.
#[derive(Debug, PartialEq, Eq)]
pub struct Cell {
    /// What it is.
    pub kind: CellKind,
    /// How the kernel counted its last run.
    pub number: Option<u32>,
    /// What is written in it.
    pub source: String,
    /// What came of it.
    pub outputs: Vec<Output>,
}

/// An output of a cell.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    /// How the kernel counted it, where it is a result.
    pub number: Option<u32>,
    /// What it is.
    pub content: Content,
}

/// What an output is.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Text(String),
    /// A table.
    Table {
        /// Its cells, row by row.
        rows: Vec<Vec<String>>,
        /// How many of the rows say what the columns are.
        heads: u32,
    },
    /// A picture.
    Picture {
        /// One of four media types.
        media: String,
        /// Its bytes.
        base64: String,
    },
    /// Left out because it could run or load something, or is too large: its media type.
    Omitted(String),
}

impl From<Content> for Output {
    fn from(content: Content) -> Self {
        Self { number: None, content }
    }
}

impl Files {
    /// A place for a preview of this person's, held while it is put together.
    pub fn place_to_look(&self, user: UserId) -> Result<Place<UserId>, AppError> {
        self.inner.glances_of_one.take(user).ok_or_else(|| FilesTrouble::from(Code::TooMany).into())
    }

    /// A part of a file, to look at.
    pub async fn preview(
        &self,
        actor: &Actor,
        space: &SpaceName,
        path: &AskedPath,
        page: u32,
    ) -> Result<Glance, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = path.parse_inside()?;
        let _place = self.place_to_look(actor.user.id)?;
        let verb = Preview { space: within.number(), path: path.clone(), page };
        let done = within.ask(Verb::Preview(verb)).await.map_err(no_such_page)?;
        let Previewed { version, shown } = answered!(done.answer, Answer::Previewed(previewed) => previewed)?;
        let mut pieces = Vec::new();
        for part in done.parts {
            pieces.extend(answered!(part, Part::Preview(pieces) => pieces)?);
        }
        let sight = sight(shown, pieces).ok_or_else(wrong_answer)?;
        Ok(Glance { path, version, sight })
    }
}

/// A page is no range of bytes: one that there is not is a wrong number.
fn no_such_page(error: AppError) -> AppError {
    match error {
        AppError::Files(trouble) if trouble.kind == Kind::OutOfRange => {
            AppError::Invalid(vec![FieldError::new("page", trouble.text)])
        }
        other => other,
    }
}

/// What the pieces are together; none where they do not fit what they are said to be.
fn sight(shown: Shown, pieces: Vec<Piece>) -> Option<Sight> {
    Some(match shown {
        Shown::Text { encoding, cut } => {
            let text = pieces.into_iter().map(|piece| if let Piece::Text(text) = piece { Some(text) } else { None });
            Sight::Text { text: text.collect::<Option<String>>()?, encoding, cut }
        }
        Shown::Table { cut } => {
            let rows = pieces.into_iter().map(|piece| if let Piece::Row(cells) = piece { Some(cells) } else { None });
            Sight::Table { rows: rows.collect::<Option<_>>()?, cut }
        }
        Shown::Notebook { cut } => Sight::Notebook { cells: cells(pieces)?, cut },
        Shown::Picture { media, size } if pieces.is_empty() && PICTURES.contains(&media.as_str()) => {
            Sight::Picture { media, size }
        }
        Shown::Bytes { head } if pieces.is_empty() && HEXLOWER.decode(head.as_bytes()).is_ok() => Sight::Bytes(head),
        Shown::Picture { .. } | Shown::Bytes { .. } => return None,
    })
}

fn cells(pieces: Vec<Piece>) -> Option<Vec<Cell>> {
    let mut cells: Vec<Cell> = Vec::new();
    for piece in pieces {
        if let Piece::Cell(kind) = piece {
            cells.push(Cell { kind, number: None, source: String::new(), outputs: Vec::new() });
            continue;
        }
        let cell = cells.last_mut()?;
        match piece {
            Piece::Number(number) => {
                *cell.outputs.last_mut().map_or(&mut cell.number, |output| &mut output.number) = Some(number);
            }
            Piece::Output => cell.outputs.push(Content::Text(String::new()).into()),
            Piece::Table(heads) => cell.outputs.push(Content::Table { rows: Vec::new(), heads }.into()),
            Piece::Picture(media) if PICTURES.contains(&media.as_str()) => {
                cell.outputs.push(Content::Picture { media, base64: String::new() }.into());
            }
            Piece::Omitted(media) if media.len() <= MOST_MEDIA => cell.outputs.push(Content::Omitted(media).into()),
            Piece::Text(more) => match cell.outputs.last_mut().map(|output| &mut output.content) {
                None => cell.source.push_str(&more),
                Some(Content::Text(text)) => text.push_str(&more),
                Some(Content::Picture { base64, .. }) => base64.push_str(&more),
                Some(Content::Table { .. } | Content::Omitted(_)) => return None,
            },
            Piece::Row(row) => {
                let Content::Table { rows, .. } = &mut cell.outputs.last_mut()?.content else { return None };
                rows.push(row);
            }
            Piece::Picture(_) | Piece::Omitted(_) | Piece::Cell(_) => return None,
        }
    }
    for output in cells.iter_mut().flat_map(|cell| &mut cell.outputs) {
        match &mut output.content {
            // Notebooks are written by anybody: what is no picture is left out as what it says it is.
            Content::Picture { media, base64 } if BASE64.decode(base64.as_bytes()).is_err() => {
                output.content = Content::Omitted(std::mem::take(media));
            }
            // Rows may have been cut.
            Content::Table { rows, heads } => *heads = (*heads).min(rows.len() as u32),
            _ => {}
        }
    }
    Some(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.into())
    }

    fn notebook(pieces: Vec<Piece>) -> Option<Vec<Cell>> {
        match sight(Shown::Notebook { cut: false }, pieces) {
            Some(Sight::Notebook { cells, .. }) => Some(cells),
            _ => None,
        }
    }

    #[test]
    fn pieces_are_put_together_in_their_order() {
        let pieces = vec![
            Piece::Cell(CellKind::Code),
            Piece::Number(1),
            text("a"),
            text("b"),
            Piece::Output,
            Piece::Number(2),
            text("c"),
            Piece::Table(2),
            Piece::Row(vec!["<b>".into()]),
            Piece::Picture("image/png".into()),
            text("aGVs"),
            text("bG8="),
            Piece::Picture("image/png".into()),
            text("\"><script>"),
            Piece::Omitted("text/html".into()),
            Piece::Cell(CellKind::Markdown),
        ];
        let cells = notebook(pieces).unwrap();
        let outputs = vec![
            Output { number: Some(2), content: Content::Text("c".into()) },
            Content::Table { rows: vec![vec!["<b>".into()]], heads: 1 }.into(),
            Content::Picture { media: "image/png".into(), base64: "aGVsbG8=".into() }.into(),
            Content::Omitted("image/png".into()).into(),
            Content::Omitted("text/html".into()).into(),
        ];
        let expected = [
            Cell { kind: CellKind::Code, number: Some(1), source: "ab".into(), outputs },
            Cell { kind: CellKind::Markdown, number: None, source: String::new(), outputs: vec![] },
        ];
        assert_eq!(cells, expected);
        let shown = Shown::Text { encoding: Encoding::Utf8, cut: true };
        let expected = Sight::Text { text: "ab".into(), encoding: Encoding::Utf8, cut: true };
        assert_eq!(sight(shown, vec![text("a"), text("b")]), Some(expected));
    }

    #[test]
    fn what_does_not_fit_what_it_is_said_to_be_is_nothing() {
        let cell = || Piece::Cell(CellKind::Code);
        for pieces in [
            vec![text("a")],
            vec![Piece::Output],
            vec![Piece::Number(1)],
            vec![Piece::Table(1)],
            vec![cell(), Piece::Row(vec![])],
            vec![cell(), Piece::Output, Piece::Row(vec![])],
            vec![cell(), Piece::Table(0), text("a")],
            vec![cell(), Piece::Picture("image/svg+xml".into())],
            vec![cell(), Piece::Omitted("x".into()), text("a")],
            vec![cell(), Piece::Omitted("x".repeat(MOST_MEDIA + 1))],
        ] {
            assert_eq!(notebook(pieces.clone()), None, "{pieces:?}");
        }
        let picture = |media: &str| Shown::Picture { media: media.into(), size: None };
        let bytes = |head: &str| Shown::Bytes { head: head.into() };
        for (shown, pieces) in [
            (Shown::Text { encoding: Encoding::Utf8, cut: false }, vec![Piece::Output]),
            (Shown::Table { cut: false }, vec![text("a")]),
            (picture("image/svg+xml"), vec![]),
            (picture("image/png"), vec![text("a")]),
            (bytes("<b>"), vec![]),
            (bytes("00"), vec![text("a")]),
        ] {
            assert_eq!(sight(shown.clone(), pieces), None, "{shown:?}");
        }
    }
}
