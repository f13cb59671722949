//! Notebooks (nbformat 4): cells and outputs as text, tables and pictures. What could run or load something in a page is left out by its name.

use std::collections::BTreeMap;
use std::fmt;

use eirene_files_protocol::{CellKind, MOST_PIECES, MOST_PREVIEW_BYTES, Piece};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::html::{self, Table};

/// Most bytes of text of a cell or an output, and of a picture.
const MOST_TEXT: usize = 64 * 1024;
const MOST_PICTURE: usize = 4 * 1024 * 1024;
/// Most bytes of all that is shown, as JSON has them: the frames around it stay below what a preview may have.
const MOST_IN_ALL: usize = MOST_PREVIEW_BYTES / 4 * 3;
/// Most cells and outputs that are shown.
const MOST_BEGUN: usize = MOST_PIECES / 4;
/// Most rows and cells of tables, counted together: with all that is begun, and the texts of it, they stay below what a preview may have.
const MOST_CELLS: usize = MOST_PIECES / 5 * 2;
/// Bytes of a piece: JSON makes at most six of one.
const PIECE: usize = 12 * 1024;
/// Most characters of a media type that is named.
const MOST_MEDIA: usize = 100;

#[derive(serde::Deserialize)]
struct Notebook {
    cells: Vec<Cell>,
}

#[derive(serde::Deserialize)]
struct Cell {
    #[serde(rename = "cell_type")]
    kind: String,
    #[serde(rename = "execution_count", default)]
    number: Text,
    #[serde(default)]
    source: Text,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(serde::Deserialize)]
struct Output {
    #[serde(rename = "execution_count", default)]
    number: Text,
    #[serde(default)]
    text: Text,
    #[serde(default)]
    data: BTreeMap<String, Text>,
    #[serde(default)]
    traceback: Text,
}

/// A text, a number, or a list of lines; anything else is none, and takes no memory.
#[derive(Default)]
struct Text(Option<String>);

impl Text {
    fn number(&self) -> Option<u32> {
        self.0.as_ref()?.parse().ok()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Some(text.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_unit<E>(self) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Text, A::Error> {
        let mut text = String::new();
        while let Some(line) = list.next_element::<Text>()? {
            text.push_str(line.0.as_deref().unwrap_or_default());
        }
        Ok(Text(Some(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text(None))
    }
}

/// The pieces of a notebook, and whether anything of it was cut; none where it is none.
pub(crate) fn pieces(bytes: &[u8]) -> Option<(Vec<Piece>, bool)> {
    let notebook: Notebook = serde_json::from_slice(bytes).ok()?;
    let mut shown = Pieces::default();
    for cell in notebook.cells {
        shown.begin(Piece::Cell(match cell.kind.as_str() {
            "markdown" => CellKind::Markdown,
            "code" => CellKind::Code,
            _ => CellKind::Raw,
        }));
        shown.number(cell.number.number());
        shown.text(cell.source.0.as_deref().unwrap_or_default(), MOST_TEXT);
        for output in cell.outputs {
            shown.output(&output);
        }
        if shown.is_full() {
            break;
        }
    }
    Some((shown.said, shown.cut))
}

#[derive(Default)]
struct Pieces {
    said: Vec<Piece>,
    bytes: usize,
    begun: usize,
    cells: usize,
    cut: bool,
}

impl Pieces {
    /// Whether no more is shown.
    fn is_full(&self) -> bool {
        self.begun > MOST_BEGUN || self.bytes > MOST_IN_ALL
    }

    fn begin(&mut self, piece: Piece) {
        self.begun += 1;
        if self.is_full() {
            self.cut = true;
            return;
        }
        self.bytes += 32 + if let Piece::Omitted(media) = &piece { in_json(media) } else { 0 };
        self.said.push(piece);
    }

    /// How what began last was counted.
    fn number(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.begin(Piece::Number(number));
        }
    }

    fn table(&mut self, table: Table) {
        self.cut |= table.cut;
        self.cells += table.weight();
        for row in table.rows {
            let bytes = 32 + row.iter().map(|cell| in_json(cell) + 4).sum::<usize>();
            if self.is_full() || self.bytes + bytes > MOST_IN_ALL {
                self.cut = true;
                return;
            }
            self.bytes += bytes;
            self.said.push(Piece::Row(row));
        }
        if !table.around.is_empty() {
            self.begin(Piece::Output);
            self.text(&table.around, MOST_TEXT);
        }
    }

    fn text(&mut self, text: &str, most: usize) {
        let text = without_escapes(text);
        let shown = &text[..text.floor_char_boundary(most)];
        self.cut |= shown.len() < text.len();
        let bytes = in_json(shown);
        if self.is_full() || self.bytes + bytes > MOST_IN_ALL {
            self.cut |= !shown.is_empty();
            return;
        }
        self.bytes += bytes;
        self.said.extend(super::text::pieces(shown, PIECE).map(|piece| Piece::Text(piece.to_owned())));
    }

    fn output(&mut self, output: &Output) {
        // It stands once, with what comes first.
        let mut number = output.number.number();
        for text in [&output.text, &output.traceback] {
            if let Some(text) = text.0.as_ref().filter(|text| !text.is_empty()) {
                self.begin(Piece::Output);
                self.number(number.take());
                self.text(text, MOST_TEXT);
            }
        }
        // HTML comes before plain text, which says the same where that is a table.
        let mut has_table = false;
        for (media, content) in &output.data {
            let content = content.0.as_deref();
            let table = content.filter(|_| media == "text/html").and_then(html::table);
            let picture = content.map(|text| text.replace(['\n', '\r'], ""));
            let is_base64 =
                |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
            match (media.as_str(), table, picture) {
                ("text/html", Some(table), _) if self.cells + table.weight() <= MOST_CELLS => {
                    has_table = true;
                    self.begin(Piece::Table(table.heads));
                    self.number(number.take());
                    self.table(table);
                }
                ("text/plain", ..) if has_table => {}
                ("text/plain", ..) => {
                    self.begin(Piece::Output);
                    self.number(number.take());
                    self.text(content.unwrap_or_default(), MOST_TEXT);
                }
                ("image/png" | "image/jpeg" | "image/gif", _, Some(picture))
                    if picture.len() <= MOST_PICTURE
                        && is_base64(&picture)
                        && self.bytes + picture.len() + 32 <= MOST_IN_ALL =>
                {
                    self.begin(Piece::Picture(media.clone()));
                    self.number(number.take());
                    self.text(&picture, MOST_PICTURE);
                }
                _ => {
                    self.begin(Piece::Omitted(media.chars().take(MOST_MEDIA).collect()));
                    self.number(number.take());
                }
            }
        }
    }
}

/// Bytes of a text in JSON.
fn in_json(text: &str) -> usize {
    let bytes = |byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(bytes).sum()
}

/// Text without the sequences that colour a terminal.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|character: char| !matches!(character, '0'..='9' | ';' | '?')).unwrap_or(part.len());
        let mut rest = part[end..].chars();
        rest.next();
        plain.push_str(rest.as_str());
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_notebook_is_its_cells_and_what_is_harmless_of_its_outputs() {
        let notebook = br##"{"nbformat": 4, "metadata": {"deep": [[[]]]}, "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "<script>alert(1)</script>"]},
            {"cell_type": "code", "execution_count": 7, "source": "x", "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["\u001b[31mred\u001b[0m\n"]},
                {"output_type": "display_data", "data": {"text/html": "<img onerror=x>", "text/plain": ["a", "b"],
                    "image/png": "aGVsbG8=\n", "image/svg+xml": ["<svg/>"], "application/json": {"a": [1, 2]}}},
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["one\n", "two"]}]},
            {"cell_type": "code", "execution_count": null, "source": "", "outputs": [
                {"output_type": "execute_result", "execution_count": 8, "data": {"text/plain": "the same", "text/html": [
                    "<style>td { color: red }</style><table><thead><tr><th>a</th></tr></thead>",
                    "<tr><td onclick='x()'>&lt;b&gt;</td></tr></table>", "<p>1 row</p>"]}}]},
            {"cell_type": "odd", "execution_count": [-1]}]}"##;
        let (pieces, cut) = pieces(notebook).unwrap();
        let text = |text: &str| Piece::Text(text.into());
        let omitted = |media: &str| Piece::Omitted(media.into());
        let expected = [
            Piece::Cell(CellKind::Markdown),
            text("# Title\n<script>alert(1)</script>"),
            Piece::Cell(CellKind::Code),
            Piece::Number(7),
            text("x"),
            Piece::Output,
            text("red\n"),
            omitted("application/json"),
            Piece::Picture("image/png".into()),
            text("aGVsbG8="),
            omitted("image/svg+xml"),
            omitted("text/html"),
            Piece::Output,
            text("ab"),
            Piece::Output,
            text("one\ntwo"),
            Piece::Cell(CellKind::Code),
            Piece::Table(1),
            Piece::Number(8),
            Piece::Row(vec!["a".into()]),
            Piece::Row(vec!["<b>".into()]),
            Piece::Output,
            text("1 row"),
            Piece::Cell(CellKind::Raw),
        ];
        assert_eq!((pieces.as_slice(), cut), (expected.as_slice(), false));
    }

    #[test]
    fn what_is_large_is_cut_and_what_is_no_notebook_is_none() {
        let cell = |source: &str| format!(r#"{{"cells": [{{"cell_type": "code", "source": "{source}"}}]}}"#);
        let (pieces, cut) = pieces(cell(&"\u{e9}".repeat(MOST_TEXT)).as_bytes()).unwrap();
        let bytes: usize = pieces.iter().map(|piece| if let Piece::Text(text) = piece { text.len() } else { 0 }).sum();
        assert!(cut && bytes <= MOST_TEXT);
        assert!(pieces.iter().all(|piece| !matches!(piece, Piece::Text(text) if text.len() > PIECE)));
        for bad in
            ["", "{}", "[]", r#"{"cells": 5}"#, &"[".repeat(100_000), &format!(r#"{{"cells": {}"#, "[".repeat(100_000))]
        {
            assert!(super::pieces(bad.as_bytes()).is_none());
        }
        let cells = |one: &str, many| format!(r#"{{"cells": [{}{one}]}}"#, format!("{one},").repeat(many - 1));
        let many = cells(r#"{"cell_type": "code", "source": "x"}"#, MOST_PIECES);
        let (many, cut) = super::pieces(many.as_bytes()).unwrap();
        assert_eq!((many.len(), cut), (2 * MOST_BEGUN, true));
        let wide = cells(&format!(r#"{{"cell_type": "code", "source": "{}"}}"#, "\\u0001".repeat(60_000)), 100);
        let (wide, cut) = super::pieces(wide.as_bytes()).unwrap();
        assert!(cut && serde_json::to_vec(&wide).unwrap().len() < MOST_PREVIEW_BYTES);
        let evil = r#"{"cells": [{"cell_type": "code", "outputs": [{"data": {"image/png": "\"><script>"}}]}]}"#;
        assert_eq!(super::pieces(evil.as_bytes()).unwrap().0[1], Piece::Omitted("image/png".into()));
    }

    #[test]
    fn tables_are_whole_as_far_as_there_is_room_and_text_behind() {
        let weight = |pieces: &[Piece]| {
            pieces.iter().map(|piece| if let Piece::Row(cells) = piece { 1 + cells.len() } else { 1 }).sum::<usize>()
        };
        let table = format!("<table>{}</table>", format!("<tr>{}</tr>", "<td>a</td>".repeat(49)).repeat(20));
        let output = format!(r#"{{"data": {{"text/html": "{table}", "text/plain": "plain"}}, "execution_count": 1}}"#);
        let cell = |outputs| format!(r#"{{"cell_type": "code", "outputs": [{outputs}]}}"#);
        let book = |cell: &str, many: usize| format!(r#"{{"cells": [{cell}{}]}}"#, format!(",{cell}").repeat(many - 1));
        let (pieces, cut) = super::pieces(book(&cell(output), 10).as_bytes()).unwrap();
        let plain = pieces.iter().filter(|piece| **piece == Piece::Text("plain".into())).count();
        let tables = pieces.iter().filter(|piece| matches!(piece, Piece::Table(0))).count();
        assert_eq!((tables, plain, cut), (8, 2, false));
        // The most of all at once.
        let full = format!(
            r#"{{"data": {{"text/html": "{table}"}}}}, {}{{"text": "x"}}"#,
            r#"{"text": "x", "execution_count": 1}, "#.repeat(4)
        );
        let (pieces, cut) = super::pieces(book(&cell(full), 500).as_bytes()).unwrap();
        assert!(cut && weight(&pieces) <= MOST_PIECES, "{}", weight(&pieces));
        assert!(serde_json::to_vec(&pieces).unwrap().len() < MOST_PREVIEW_BYTES);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\x1b\\[0-9;mé?]{0,30}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(without_escapes(&text).len() <= text.len());
            let _ = pieces(&bytes);
        }
    }
}
