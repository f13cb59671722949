//! What a picture is, and how large, by its first bytes. It is not decoded here: browsers do that in a place made for it.

/// Media type and size in pixels.
pub(crate) fn look(head: &[u8]) -> Option<(&'static str, Option<(u32, u32)>)> {
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Some(("image/png", Some((big(head, 16)?, big(head, 20)?))));
    }
    if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        return Some(("image/gif", Some((little(head, 6, 2)?, little(head, 8, 2)?))));
    }
    if head.starts_with(&[0xFF, 0xD8, 0xFF]) {
        return Some(("image/jpeg", jpeg(head)));
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some(("image/webp", webp(head)));
    }
    None
}

fn big(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    Some(bytes.get(at..at + length)?.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// Goes from segment to segment to the one that begins a frame.
fn jpeg(head: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let &[0xFF, marker, high, low] = head.get(at..at + 4)? else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC) {
            let size = head.get(at + 5..at + 9)?;
            return Some((
                u32::from(u16::from_be_bytes([size[2], size[3]])),
                u32::from(u16::from_be_bytes([size[0], size[1]])),
            ));
        }
        if length < 2 {
            return None;
        }
        at += 2 + length;
    }
}

fn webp(head: &[u8]) -> Option<(u32, u32)> {
    match head.get(12..16)? {
        b"VP8X" => Some((little(head, 24, 3)? + 1, little(head, 27, 3)? + 1)),
        b"VP8L" => {
            let bits = little(head, 21, 4)?;
            Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        }
        b"VP8 " => Some((little(head, 26, 2)? & 0x3FFF, little(head, 28, 2)? & 0x3FFF)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_picture_says_what_it_is_and_how_large() {
        let png = [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice(), &[0, 0, 2, 0], &[0, 0, 1, 0]].concat();
        assert_eq!(look(&png), Some(("image/png", Some((512, 256)))));
        assert_eq!(look(b"GIF89a\x03\x00\x02\x01"), Some(("image/gif", Some((3, 258)))));
        let jpeg = [b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08".as_slice(), &[0, 16, 0, 32], &[3]].concat();
        assert_eq!(look(&jpeg), Some(("image/jpeg", Some((32, 16)))));
        assert_eq!(look(b"\xff\xd8\xff\xe0\x00\x00"), Some(("image/jpeg", None)));
        let webp = [b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0".as_slice(), &[9, 0, 0], &[19, 0, 0]].concat();
        assert_eq!(look(&webp), Some(("image/webp", Some((10, 20)))));
        assert_eq!(look(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), None, "that is text");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(which in 0..4_usize, bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let magic: [&[u8]; 4] = [b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8L"];
            let _ = look(&[magic[which], &bytes].concat());
        }
    }
}
