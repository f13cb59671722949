//! Tables of separated values (RFC 4180, and what people write): rows of cells, as many as are looked at.

/// Most rows, columns, and characters of a cell.
pub(super) const MOST_ROWS: usize = 200;
pub(super) const MOST_COLUMNS: usize = 50;
pub(super) const MOST_CELL: usize = 300;
/// What may separate cells.
const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// The first rows, and whether there is more of anything. `whole` says that the text is all there is.
pub(crate) fn rows(text: &str, whole: bool) -> (Vec<Vec<String>>, bool) {
    let first = text.lines().next().unwrap_or_default();
    let separator = SEPARATORS.into_iter().rev().max_by_key(|separator| first.matches(*separator).count());
    let separator = separator.unwrap_or(',');
    let mut rows = Vec::new();
    let mut cut = !whole;
    let (mut row, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut length = 0;
    let mut characters = text.chars().peekable();
    let mut is_open = false;
    while let Some(character) = characters.next() {
        is_open = true;
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                push(&mut cell, &mut length, '"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if length == 0 => is_quoted = true,
            '\r' if !is_quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !is_quoted => {
                cut |= end_cell(&mut row, &mut cell, &mut length);
                rows.push(std::mem::take(&mut row));
                is_open = false;
                if rows.len() == MOST_ROWS {
                    return (rows, characters.peek().is_some() || !whole || cut);
                }
            }
            _ if !is_quoted && character == separator => cut |= end_cell(&mut row, &mut cell, &mut length),
            _ => push(&mut cell, &mut length, character),
        }
    }
    // A row that was cut is not shown as if it were one.
    if is_open && whole {
        cut |= end_cell(&mut row, &mut cell, &mut length);
        rows.push(row);
    }
    (rows, cut)
}

/// Ends a cell of so many characters. Whether anything of it is left out.
fn end_cell(row: &mut Vec<String>, cell: &mut String, length: &mut usize) -> bool {
    let cell = std::mem::take(cell);
    let is_long = std::mem::take(length) > MOST_CELL;
    if row.len() < MOST_COLUMNS {
        row.push(cell);
        is_long
    } else {
        true
    }
}

fn push(cell: &mut String, length: &mut usize, character: char) {
    if *length < MOST_CELL {
        cell.push(character);
    }
    *length += 1;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_what_they_say() {
        for (text, expected) in [
            ("a,b\n1,2\n", vec![vec!["a", "b"], vec!["1", "2"]]),
            ("a;b,c;d\r\n1;2;3", vec![vec!["a", "b,c", "d"], vec!["1", "2", "3"]]),
            ("a\tb", vec![vec!["a", "b"]]),
            ("\"a,\"\"b\"\"\",\"new\nline\"\n", vec![vec!["a,\"b\"", "new\nline"]]),
            ("a,\n,", vec![vec!["a", ""], vec!["", ""]]),
            ("", vec![]),
            ("one\n", vec![vec!["one"]]),
        ] {
            assert_eq!(rows(text, true).0, expected, "{text:?}");
        }
        assert_eq!(rows("a,b\n1,", false), (vec![vec!["a".to_owned(), "b".to_owned()]], true));
        let long = format!("{},x\n", "y".repeat(301));
        assert!(rows(&long, true).1 && rows(&"a,".repeat(51), true).1 && rows(&"a\n".repeat(201), true).1);
        assert!(!rows(&"a\n".repeat(200), true).1);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_exceed_its_bounds(text in "[a,;\"\\n\\r\\t|]{0,300}", whole in any::<bool>()) {
            let (rows, _) = rows(&text, whole);
            prop_assert!(rows.len() <= MOST_ROWS);
            prop_assert!(rows.iter().all(|row| row.len() <= MOST_COLUMNS && row.iter().all(|cell| cell.len() <= MOST_CELL)));
        }
    }
}
