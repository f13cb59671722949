//! Names, sizes and permissions of files as people read them. The page's modules show what they fetch by the same rules and the same words
//! (`static/js/shown.js`).

use eirene_core::text::is_printable;
use eirene_files_protocol::{EntryKind, Moment};
use eirene_words::Words;
use jiff::Timestamp;

use super::format::Time;

/// A name as it is shown: control characters as their pictures, what would turn the writing around as U+FFFD, and all else as it is.
pub(crate) fn plain(name: &str) -> String {
    let picture = |c: char| match u32::from(c) {
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ if !is_printable(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    name.chars().map(picture).collect()
}

/// A size with three digits at most, or so many bytes.
pub(crate) fn size(words: &Words, bytes: u64) -> String {
    let units = ["js.size_kib", "js.size_mib", "js.size_gib", "js.size_tib", "js.size_pib"];
    if bytes < 1024 {
        return words.fill("js.size_bytes", &[("n", &bytes.to_string())]);
    }
    // Tenths of the unit, rounded; what rounds up to 1024 of one is 1 of the next.
    let tenths = |power: u32| (u128::from(bytes) * 10 + (1_u128 << (10 * power)) / 2) >> (10 * power);
    let power = (1..5).find(|power| tenths(*power) < 10_240).unwrap_or(5);
    let tenths = tenths(power);
    let number = if tenths < 100 && tenths % 10 > 0 {
        format!("{}.{}", tenths / 10, tenths % 10)
    } else {
        ((tenths + 5) / 10).to_string()
    };
    words.fill(units[power as usize - 1], &[("n", &number)])
}

/// Who may do what, in words, of permission bits. Those of a link mean nothing: what counts is what it leads to.
pub(crate) fn may(words: &Words, kind: EntryKind, bits: Option<u16>) -> String {
    let Some(bits) = bits.filter(|_| kind != EntryKind::Link) else { return String::new() };
    words.get(match bits {
        bits if bits & 0o002 != 0 => "js.may_all_write",
        bits if bits & 0o004 != 0 => "js.may_all_read",
        bits if bits & 0o020 != 0 => "js.may_group_write",
        bits if bits & 0o040 != 0 => "js.may_group_read",
        _ => "js.may_owner",
    })
}

/// What something is, in a word.
pub(crate) fn kind(words: &Words, kind: EntryKind) -> String {
    words.get(match kind {
        EntryKind::Directory => "js.kind_directory",
        EntryKind::File => "js.kind_file",
        EntryKind::Link => "js.kind_link",
        EntryKind::Mount => "js.kind_mount",
        EntryKind::Special | EntryKind::Unknown => "js.kind_other",
    })
}

/// The icon for it.
pub(crate) fn icon(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Directory | EntryKind::Mount => "directory",
        EntryKind::Link => "link",
        EntryKind::File | EntryKind::Special | EntryKind::Unknown => "file",
    }
}

/// A time, where it is one that can be written.
pub(crate) fn time(moment: Option<Moment>) -> Option<Time> {
    let moment = moment?;
    Timestamp::new(moment.seconds, i32::try_from(moment.nanoseconds).ok()?).ok().map(Time::new)
}

#[cfg(test)]
mod tests {
    use eirene_words::words;

    use super::*;

    #[test]
    fn what_cannot_be_seen_in_a_name_has_a_picture() {
        for (name, shown) in [
            ("a b.txt", "a b.txt"),
            ("a\nb\r\t\0", "a\u{240a}b\u{240d}\u{2409}\u{2400}"),
            ("\u{7f}\u{85}", "\u{2421}\u{fffd}"),
            ("\u{202e}gpj.exe\u{2069}\u{200f}", "\u{fffd}gpj.exe\u{fffd}\u{fffd}"),
            ("<b>'\"&", "<b>'\"&"),
            ("שלום 👩‍🔬 é", "שלום 👩‍🔬 é"),
        ] {
            assert_eq!(plain(name), shown);
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        let size = |bytes| size(words(), bytes).replace('\u{a0}', " ");
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10_239, "10 KiB"),
            (1024 * 1024 - 1, "1 MiB"),
            (734_003_200, "700 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn permissions_say_the_most_that_anybody_else_may() {
        let may = |bits| may(words(), EntryKind::File, Some(bits));
        for (bits, key) in [
            (0o700, "js.may_owner"),
            (0o711, "js.may_owner"),
            (0o750, "js.may_group_read"),
            (0o2770, "js.may_group_write"),
            (0o644, "js.may_all_read"),
            (0o666, "js.may_all_write"),
        ] {
            assert_eq!(may(bits), words().get(key), "{bits:o}");
        }
        assert_eq!(super::may(words(), EntryKind::File, None), "");
        assert_eq!(super::may(words(), EntryKind::Link, Some(0o777)), "");
    }
}
