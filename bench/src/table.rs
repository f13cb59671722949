//! Tables on the terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// A table with this head; all columns but the first are numbers.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A count with thin groups: `12 345`.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Microseconds as milliseconds with as many digits as mean something.
pub(crate) fn millis(micros: f64) -> String {
    let millis = micros / 1000.0;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.0}") }
}

/// Bytes as MiB.
pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1024.0 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_from_the_right() {
        assert_eq!(count(1_234_567.0), "1 234 567");
        assert_eq!(count(123.4), "123");
        assert_eq!(count(0.0), "0");
    }
}
