//! Bytes as text.

use eirene_files_protocol::Encoding;

/// Reads bytes as text; none where they are none. Of bytes that were cut, a character that is not whole at the end is left out.
pub(crate) fn decode(bytes: &[u8]) -> Option<(String, Encoding)> {
    if let Some(rest) = bytes.strip_prefix(&[0xFF, 0xFE]) {
        return Some((utf_16(rest, u16::from_le_bytes), Encoding::Utf16));
    }
    if let Some(rest) = bytes.strip_prefix(&[0xFE, 0xFF]) {
        return Some((utf_16(rest, u16::from_be_bytes), Encoding::Utf16));
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if bytes.contains(&0) {
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some((text.to_owned(), Encoding::Utf8)),
        // Cut within the last character.
        Err(error) if error.error_len().is_none() => {
            let text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            Some((text, Encoding::Utf8))
        }
        Err(_) => Some((bytes.iter().map(|byte| char::from(*byte)).collect(), Encoding::Latin1)),
    }
}

fn utf_16(bytes: &[u8], read: fn([u8; 2]) -> u16) -> String {
    let units = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
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
            let read = decode(bytes);
            assert_eq!(read.as_ref().map(|(text, encoding)| (text.as_str(), *encoding)), expected);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn pieces_are_the_whole(text in "\\PC{0,60}", most in 4..20_usize) {
            let pieces: Vec<_> = pieces(&text, most).collect();
            prop_assert!(pieces.iter().all(|piece| piece.len() <= most));
            prop_assert_eq!(pieces.concat(), text);
        }
    }
}
