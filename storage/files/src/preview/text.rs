//! Bytes as text.

use eirene_files_protocol::Encoding;

/// Most bytes of a character, in any encoding that is read here.
pub(crate) const MOST_CHARACTER: usize = 4;

/// How a file is read as text, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Utf8,
    Utf16 { is_little: bool },
    Latin1,
}

impl Coding {
    /// As what a file that begins so is read; none where it is no text.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xFF, 0xFE, ..] => return Some(Self::Utf16 { is_little: true }),
            [0xFE, 0xFF, ..] => return Some(Self::Utf16 { is_little: false }),
            _ if head.contains(&0) => return None,
            _ => {}
        }
        match std::str::from_utf8(head) {
            Err(error) if error.error_len().is_some() => Some(Self::Latin1),
            // Cut within the last character is as good as whole.
            Ok(_) | Err(_) => Some(Self::Utf8),
        }
    }

    pub(crate) fn encoding(self) -> Encoding {
        match self {
            Self::Utf8 => Encoding::Utf8,
            Self::Utf16 { .. } => Encoding::Utf16,
            Self::Latin1 => Encoding::Latin1,
        }
    }

    /// The characters that begin within the first `most` of these bytes, which come from the file's beginning (`is_first`) or from an even
    /// place in it. One that began before is the page's before; the last is whole where the bytes behind it were read too.
    pub(crate) fn read(self, bytes: &[u8], most: usize, is_first: bool) -> String {
        match self {
            Self::Utf8 => {
                let begin = if is_first { 0 } else { continued(bytes) };
                let end = most.min(bytes.len());
                let end = end + continued(&bytes[end..]);
                let bytes = bytes.get(begin..end).unwrap_or_default();
                let bytes = if is_first { bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes) } else { bytes };
                match std::str::from_utf8(bytes) {
                    Err(error) if error.error_len().is_none() => {
                        String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
                    }
                    // What comes behind the first page may be something else.
                    Ok(_) | Err(_) => String::from_utf8_lossy(bytes).into_owned(),
                }
            }
            Self::Utf16 { is_little } => {
                let read = if is_little { u16::from_le_bytes } else { u16::from_be_bytes };
                let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
                let is_low = |unit: &u16| (0xDC00..0xE000).contains(unit);
                // The first unit of all says how the others are read.
                let begin = if is_first { 1 } else { usize::from(units.first().is_some_and(is_low)) };
                let end = (most / 2).min(units.len());
                let end = end + usize::from(units.get(end).is_some_and(is_low));
                let units = units.get(begin..end).unwrap_or_default().iter().copied();
                char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
            Self::Latin1 => bytes.iter().take(most).map(|byte| char::from(*byte)).collect(),
        }
    }
}

/// How many bytes at the beginning belong to a character of UTF-8 that began before them.
fn continued(bytes: &[u8]) -> usize {
    bytes.iter().take(MOST_CHARACTER - 1).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

/// Text in pieces of at most so many bytes, each whole characters.
pub(crate) fn pieces(mut text: &str, most: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let piece = &text[..text.floor_char_boundary(most)];
        text = &text[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_read_as_what_it_is() {
        for (bytes, expected) in [
            (b"plain".as_slice(), Some(("plain", Encoding::Utf8))),
            (b"", Some(("", Encoding::Utf8))),
            ("\u{feff}\u{e9}".as_bytes(), Some(("\u{e9}", Encoding::Utf8))),
            (b"cut \xf0\x9f\xa6", Some(("cut ", Encoding::Utf8))),
            (b"caf\xe9.", Some(("caf\u{e9}.", Encoding::Latin1))),
            (b"\xff\xfea\0b\0", Some(("ab", Encoding::Utf16))),
            (b"\xfe\xff\0a\0b", Some(("ab", Encoding::Utf16))),
            (b"\xff\xfe\0\xd8", Some(("\u{fffd}", Encoding::Utf16))),
            (b"a\0b", None),
        ] {
            let read = Coding::of(bytes).map(|coding| (coding.read(bytes, bytes.len(), true), coding.encoding()));
            assert_eq!(read.as_ref().map(|(text, encoding)| (text.as_str(), *encoding)), expected);
        }
    }

    /// A text as it is read page by page, each with as many bytes behind it as a character may have.
    fn paged(coding: Coding, bytes: &[u8], most: usize) -> String {
        let pages = (0..bytes.len()).step_by(most).map(|at| {
            let end = (at + most + MOST_CHARACTER).min(bytes.len());
            coding.read(&bytes[at..end], most, at == 0)
        });
        pages.collect()
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            for coding in [Coding::Utf8, Coding::Utf16 { is_little: true }, Coding::Latin1] {
                for is_first in [true, false] {
                    coding.read(&bytes, 20, is_first);
                }
            }
        }

        #[test]
        fn pages_lose_no_character_and_have_none_twice(text in "[aé€🦀]{1,40}", half in 4..12_usize) {
            let most = 2 * half;
            prop_assert_eq!(paged(Coding::Utf8, text.as_bytes(), most), text.as_str());
            let wide: Vec<u8> = std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
            prop_assert_eq!(paged(Coding::Utf16 { is_little: false }, &wide, most), text.as_str());
            let narrow: Vec<u8> = text.chars().map(|character| (u32::from(character) & 0xFF) as u8).collect();
            prop_assert_eq!(paged(Coding::Latin1, &narrow, most).chars().count(), narrow.len());
        }

        #[test]
        fn pieces_are_the_whole(text in "\\PC{0,60}", most in 4..20_usize) {
            let pieces: Vec<_> = pieces(&text, most).collect();
            prop_assert!(pieces.iter().all(|piece| piece.len() <= most));
            prop_assert_eq!(pieces.concat(), text);
        }
    }
}
