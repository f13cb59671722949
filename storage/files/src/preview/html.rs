//! The one kind of HTML that is shown: a table of text, as data frames print themselves. Whatever could be more than text makes it none, so
//! that nothing is shown without what belongs to it.

use super::table::{MOST_CELL, MOST_COLUMNS, MOST_ROWS};

/// What may stand around a table, and in its cells: none of it is more than its text.
const PLAIN: [&str; 13] = ["a", "b", "br", "center", "code", "div", "em", "i", "p", "small", "span", "strong", "u"];
/// What is known of characters by name.
const NAMED: [(&str, char); 7] = [
    ("&amp;", '&'),
    ("&lt;", '<'),
    ("&gt;", '>'),
    ("&quot;", '"'),
    ("&apos;", '\''),
    ("&nbsp;", '\u{a0}'),
    ("&times;", '\u{d7}'),
];
/// Most bytes between `&#` and `;`.
const MOST_DIGITS: usize = 8;

/// A table, and what is said around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Its cells, row by row; behind one that takes several places there are empty ones.
    pub(super) rows: Vec<Vec<String>>,
    /// How many of the rows say what the columns are.
    pub(super) heads: u32,
    /// What is said around it, such as how many rows there are in all.
    pub(super) around: String,
    /// Whether there is more of anything.
    pub(super) cut: bool,
}

impl Table {
    /// Rows and cells, as [`eirene_files_protocol::MOST_PIECES`] counts.
    pub(super) fn weight(&self) -> usize {
        self.rows.iter().map(|row| 1 + row.len()).sum()
    }
}

/// The table that a piece of HTML is; none where it is anything else, or more than that.
pub(super) fn table(html: &str) -> Option<Table> {
    let mut reader = Reader::default();
    let mut rest = html;
    while let Some(begin) = rest.find('<') {
        reader.text(&rest[..begin]);
        rest = &rest[begin..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->")? + 3..];
        } else if let Some(close) = rest.strip_prefix("</") {
            let end = close.find('>')?;
            reader.close(&close[..end].trim().to_ascii_lowercase());
            rest = &close[end + 1..];
        } else if rest[1..].starts_with(|first: char| first.is_ascii_alphabetic()) {
            let end = tag_end(rest)?;
            let tag = &rest[1..end];
            rest = &rest[end + 1..];
            let name = tag.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(tag.len());
            let (name, attributes) = (tag[..name].to_ascii_lowercase(), &tag[name..]);
            if name == "style" {
                rest = &rest[rest.find("</style")?..];
            } else {
                reader.open(&name, attributes)?;
            }
        } else if rest.starts_with("<!") || rest.starts_with("<?") {
            return None;
        } else {
            reader.text("<");
            rest = &rest[1..];
        }
    }
    reader.text(rest);
    reader.finish()
}

/// Where the tag ends that begins here: at the first `>` outside of quotes.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

/// How many columns or rows a cell takes, at most `most`.
fn span(attributes: &str, name: &str, most: usize) -> usize {
    let mut all = attributes.split_ascii_whitespace();
    let said = all.find_map(|said| said.strip_prefix(name)?.strip_prefix('='));
    let number = said.and_then(|said| said.trim_matches(['"', '\'']).parse::<usize>().ok());
    number.unwrap_or(1).clamp(1, most)
}

/// The character that is written at the beginning of a text, and in how many bytes: `&` where it is none that is known.
fn character(text: &str) -> (char, usize) {
    let named = NAMED.iter().find(|(name, _)| text.starts_with(*name)).map(|(name, named)| (*named, name.len()));
    named.or_else(|| numbered(text)).unwrap_or(('&', 1))
}

fn numbered(text: &str) -> Option<(char, usize)> {
    let digits = text.strip_prefix("&#")?;
    let end = digits.bytes().take(MOST_DIGITS).position(|byte| byte == b';')?;
    let number = match digits[..end].strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits[..end].parse(),
    };
    let character = char::from_u32(number.ok()?).filter(|character| !character.is_control())?;
    Some((character, end + 3))
}

/// Text as browsers have it: white space, however much, is one blank.
#[derive(Default)]
struct Text {
    said: String,
    /// Characters, those that are left out too.
    length: usize,
}

impl Text {
    fn push(&mut self, character: char) {
        let is_blank = character.is_ascii_whitespace();
        if is_blank && (self.length == 0 || self.said.ends_with(' ')) {
            return;
        }
        if self.length < MOST_CELL {
            self.said.push(if is_blank { ' ' } else { character });
        }
        self.length += 1;
    }

    fn is_long(&self) -> bool {
        self.length > MOST_CELL
    }

    fn end(mut self) -> String {
        self.said.truncate(self.said.trim_end_matches(' ').len());
        self.said
    }
}

/// A cell that is being read.
#[derive(Default)]
struct Cell {
    text: Text,
    columns: usize,
    rows: usize,
}

#[derive(Default)]
struct Reader {
    has_begun: bool,
    is_within: bool,
    /// Whether rows say what the columns are.
    is_head: bool,
    cell: Option<Cell>,
    row: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    /// For how many rows, this one too, the columns are taken by cells.
    taken: Vec<usize>,
    heads: u32,
    around: Text,
    cut: bool,
}

impl Reader {
    fn text(&mut self, mut rest: &str) {
        while let Some(at) = rest.find('&') {
            rest[..at].chars().for_each(|character| self.push(character));
            let (character, length) = character(&rest[at..]);
            self.push(character);
            rest = &rest[at + length..];
        }
        rest.chars().for_each(|character| self.push(character));
    }

    fn push(&mut self, character: char) {
        self.cell.as_mut().map_or(&mut self.around, |cell| &mut cell.text).push(character);
    }

    /// A tag opens; none where it is more than a table of text.
    fn open(&mut self, name: &str, attributes: &str) -> Option<()> {
        match name {
            "table" if !self.has_begun => {
                (self.has_begun, self.is_within) = (true, true);
            }
            "thead" | "tbody" | "tfoot" if self.is_within => {
                self.end_row();
                self.is_head = name == "thead";
            }
            "tr" if self.is_within => {
                self.end_row();
                self.row = Some(Vec::new());
            }
            "td" | "th" if self.is_within => {
                self.end_cell();
                let columns = span(attributes, "colspan", MOST_COLUMNS);
                let rows = span(attributes, "rowspan", MOST_ROWS);
                self.cell = Some(Cell { columns, rows, ..Cell::default() });
            }
            "caption" | "colgroup" | "col" if self.is_within => {}
            name if PLAIN.contains(&name) => self.part(name),
            _ => return None,
        }
        Some(())
    }

    fn close(&mut self, name: &str) {
        match name {
            "table" => {
                self.end_row();
                self.is_within = false;
            }
            "thead" | "tbody" | "tfoot" => {
                self.end_row();
                self.is_head = false;
            }
            "tr" => self.end_row(),
            "td" | "th" => self.end_cell(),
            name => self.part(name),
        }
    }

    /// What stands on lines of its own is parted from what stands beside it.
    fn part(&mut self, name: &str) {
        if ["br", "caption", "center", "div", "p"].contains(&name) {
            self.push(' ');
        }
    }

    fn end_cell(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        let mut row = self.row.take().unwrap_or_default();
        self.fill(&mut row);
        self.cut |= cell.text.is_long();
        let mut text = cell.text.end();
        for _ in 0..cell.columns {
            let column = row.len();
            if column == MOST_COLUMNS {
                self.cut = true;
                break;
            }
            row.push(std::mem::take(&mut text));
            if self.taken.len() <= column {
                self.taken.resize(column + 1, 0);
            }
            self.taken[column] = cell.rows;
        }
        self.row = Some(row);
    }

    /// Goes on behind what cells of the rows above take.
    fn fill(&self, row: &mut Vec<String>) {
        while self.taken.get(row.len()).is_some_and(|rows| *rows > 0) {
            row.push(String::new());
        }
    }

    fn end_row(&mut self) {
        self.end_cell();
        let Some(mut row) = self.row.take() else { return };
        self.fill(&mut row);
        self.taken.iter_mut().for_each(|rows| *rows = rows.saturating_sub(1));
        if self.rows.len() == MOST_ROWS {
            self.cut = true;
        } else if !row.is_empty() {
            self.heads += u32::from(self.is_head && self.heads as usize == self.rows.len());
            self.rows.push(row);
        }
    }

    fn finish(mut self) -> Option<Table> {
        self.end_row();
        let is_plain = !self.rows.is_empty() && !self.around.is_long();
        is_plain.then(|| Table { rows: self.rows, heads: self.heads, around: self.around.end(), cut: self.cut })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(html: &str) -> Vec<Vec<String>> {
        table(html).unwrap_or_else(|| panic!("{html}")).rows
    }

    #[test]
    fn a_data_frame_is_its_cells_and_what_is_said_of_it() {
        let frame = "<div>\n<style scoped>\n    .dataframe tbody tr th { vertical-align: top; }\n</style>\n\
            <table border=\"1\" class=\"dataframe\">\n  <thead>\n    <tr style=\"text-align: right;\">\n      <th></th>\n\
            <th>a &lt; b</th>\n    </tr>\n  </thead>\n  <tbody>\n    <tr>\n      <th>0</th>\n      <td>caf\u{e9}\n  &amp;\tb</td>\n\
            </tr>\n  </tbody>\n</table>\n<p>1 rows \u{d7} 1 columns</p>\n</div>";
        let expected = Table {
            rows: vec![vec![String::new(), "a < b".into()], vec!["0".into(), "caf\u{e9} & b".into()]],
            heads: 1,
            around: "1 rows \u{d7} 1 columns".into(),
            cut: false,
        };
        assert_eq!(table(frame), Some(expected));
    }

    #[test]
    fn cells_keep_their_columns() {
        let frame = "<TABLE><thead><tr><th colspan='2'>x</th><th>y</th></tr><tr><th>1</th><th>2</th><th>3</th></tr></thead>\
            <tr><th rowspan=\"2\">a</th><td>b</td><td rowspan=3>c</td><tr><td>d<tr><td>e</table>";
        let expected = [["x", "", "y"], ["1", "2", "3"], ["a", "b", "c"], ["", "d", ""]];
        let expected = expected.map(|row| row.map(str::to_owned).to_vec());
        let found = table(frame).unwrap();
        assert_eq!((&found.rows[..4], found.heads), (&expected[..], 2));
        assert_eq!(found.rows[4], ["e"]);
    }

    #[test]
    fn nothing_but_text_comes_of_it() {
        let cell = |html: &str| rows(&format!("<table><tr><td>{html}</td></tr></table>"))[0][0].clone();
        for (html, expected) in [
            ("<a href=\"javascript:alert(1)\" onclick='x>y'>here</a>", "here"),
            ("<span style=\"background: url(//evil)\"> a </span> b<br>c", "a b c"),
            ("&lt;script&gt;alert(1)&lt;/script&gt;", "<script>alert(1)</script>"),
            ("&#60;b&#x3e; &#x1F980; &#0; &#x110000; &#; &copy; a&b", "<b> \u{1f980} &#0; &#x110000; &#; &copy; a&b"),
            ("1 < 2 <3<!-- <script> -->", "1 < 2 <3"),
        ] {
            assert_eq!(cell(html), expected, "{html}");
        }
    }

    #[test]
    fn what_is_more_than_a_table_of_text_is_none() {
        for html in [
            "",
            "text",
            "<p>text</p>",
            "<table></table>",
            "<tr><td>a</td></tr>",
            "<table><tr><td><table><tr><td>a</td></tr></table></td></tr></table>",
            "<table><tr><td>a</td></tr></table><table><tr><td>b</td></tr></table>",
            "<table><tr><td>a</td></tr></table><script>alert(1)</script>",
            "<table><tr><td><img src=x onerror=alert(1)></td></tr></table>",
            "<table><tr><td><svg onload=alert(1)></td></tr></table>",
            "<table><tr><td><iframe src=\"data:text/html,x\"></iframe></td></tr></table>",
            "<table><tr><td>x<sup>2</sup></td></tr></table>",
            "<table><tr><td>a</td></tr></table><button>b</button>",
            "<!DOCTYPE html><table><tr><td>a</td></tr></table>",
            "<table><tr><td title=\">a</td></tr></table>",
            "<table><tr><td>a</td></tr></table><!-- ",
            "<style><table><tr><td>a</td></tr></table>",
        ] {
            assert_eq!(table(html), None, "{html}");
        }
        let around = format!("{}<table><tr><td>a</td></tr></table>", "x".repeat(MOST_CELL + 1));
        assert_eq!(table(&around), None, "a page with a table in it");
    }

    #[test]
    fn what_is_large_is_cut_and_takes_no_more_room() {
        let many = |what: &str, many: usize| format!("<table><tr>{}</table>", what.repeat(many));
        for (html, rows, columns) in [
            (many("<td>a</td>", 10_000), 1, MOST_COLUMNS),
            (many("<td colspan=4000000000>a", 10_000), 1, MOST_COLUMNS),
            (many("<td>a<tr>", 10_000), MOST_ROWS, 1),
            (many("<td rowspan=4000000000 colspan=50>a<tr>", 10_000), MOST_ROWS, MOST_COLUMNS),
            (many(&"b".repeat(MOST_CELL), 2).replace("<tr>", "<tr><td>"), 1, 1),
        ] {
            let found = table(&html).unwrap();
            assert!(found.cut, "{rows} {columns}");
            assert_eq!((found.rows.len(), found.rows.iter().map(Vec::len).max()), (rows, Some(columns)));
            assert!(found.rows.iter().flatten().all(|cell| cell.chars().count() <= MOST_CELL));
        }
    }

    /// What hostile HTML is made of here.
    const PARTS: [&str; 25] = [
        "<table>",
        "</table>",
        "<tr>",
        "<td>",
        "<th rowspan=3>",
        "<td colspan='70'>",
        "</td>",
        "<thead>",
        "<",
        ">",
        "&",
        "&#",
        ";",
        "x41",
        "\u{e9}",
        " ",
        "\"",
        "'",
        "<!--",
        "-->",
        "<style>",
        "</style>",
        "</",
        "a",
        "<p",
    ];

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_exceed_its_bounds(parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..60)) {
            for html in [parts.concat(), format!("<table>{}", parts.concat())] {
                let Some(found) = table(&html) else { continue };
                prop_assert!(found.rows.len() <= MOST_ROWS && found.heads as usize <= found.rows.len());
                prop_assert!(found.rows.iter().all(|row| row.len() <= MOST_COLUMNS));
            }
        }
    }
}
