//! Text that somebody else wrote, made fit to be shown and written down.
//!
//! A terminal obeys control characters, a log takes a line break for the end of an entry, and marks of direction (Unicode Standard Annex 9) turn
//! around what stands beside them. So whatever comes from people, programs and nodes passes here once, where it comes in.

/// Marks that turn the direction of writing, separate lines or hide.
const MARKS: [char; 6] = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{feff}'];

/// Whether a character does nothing but show.
pub fn is_printable(c: char) -> bool {
    let turns = ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
    !c.is_control() && !turns && !MARKS.contains(&c)
}

/// One line of at most `most` characters: white space of any kind and length is one blank, and what is not printable is U+FFFD, so that it is seen.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::with_capacity(text.len().min(most));
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace()).filter(|word| !word.is_empty()) {
        let blank = (count > 0).then_some(' ');
        let shown = word.chars().map(|c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER });
        for c in blank.into_iter().chain(shown) {
            if count == most {
                return line;
            }
            line.push(c);
            count += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_acts_is_seen_and_white_space_is_one_blank() {
        for (text, expected) in [
            ("", ""),
            ("  a \r\n\t b\u{2028}c ", "a b c"),
            ("\u{1b}[2Jada", "\u{fffd}[2Jada"),
            ("\u{9b}31m", "\u{fffd}31m"),
            ("gpj\u{202e}.exe\u{200f}", "gpj\u{fffd}.exe\u{fffd}"),
            ("grüße, 👩\u{200d}🔬", "grüße, 👩\u{200d}🔬"),
            ("\0\u{7f}\u{feff}", "\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(one_line(text, 100), expected, "{text:?}");
        }
        assert_eq!(one_line("ab cd", 3), "ab ");
    }

    proptest! {
        #[test]
        fn a_line_is_printable_short_and_stays_the_same(text in any::<String>(), most in 0..50_usize) {
            let line = one_line(&text, most);
            prop_assert!(line.chars().all(is_printable) && line.chars().count() <= most);
            prop_assert_eq!(one_line(&line, most), line.trim_end());
        }
    }
}
