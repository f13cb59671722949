//! Names that people cannot tell apart although they are two: different case, or the same letters written in different characters.

use std::collections::HashMap;

use eirene_files_protocol::Entry;
use unicode_normalization::UnicodeNormalization as _;

use super::path::shown;

/// What of two names is the same where they look alike: composed characters (NFC), without the difference of case. What is no text counts as
/// it is shown.
fn looks(name: &[u8]) -> String {
    let name = shown(name).0;
    // Upper case first: some letters have a partner that way only, as the two forms of a small sigma.
    name.nfc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfc().collect()
}

/// For each entry, whether another one of these looks like it.
pub(super) fn alike(entries: &[Entry]) -> Vec<bool> {
    let looks: Vec<String> = entries.iter().map(|entry| looks(entry.name.as_bytes())).collect();
    let mut many: HashMap<&str, u32> = HashMap::with_capacity(looks.len());
    for look in &looks {
        *many.entry(look).or_default() += 1;
    }
    looks.iter().map(|look| many.get(look.as_str()).is_some_and(|many| *many > 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_or_in_how_letters_are_written_look_alike() {
        for (a, b) in [
            ("Data", "data"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("CAF\u{c9}", "cafe\u{301}"),
            ("\u{c5}", "\u{212b}"),
            ("\u{3c3}", "\u{3c2}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{1e69}", "s\u{307}\u{323}"),
        ] {
            assert_eq!(looks(a.as_bytes()), looks(b.as_bytes()), "{a:?} {b:?}");
        }
        for (a, b) in [("a", "b"), ("a", "a "), ("caf\u{e9}", "cafe"), ("1", "\u{661}"), ("\u{fb01}", "fl")] {
            assert_ne!(looks(a.as_bytes()), looks(b.as_bytes()), "{a:?} {b:?}");
        }
        assert_eq!(looks(b"caf\xe9"), looks(b"caf\xe8"), "both are shown with the same mark");
    }
}
